"""``compare``: pairs of calls, one a line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.helpers_cli import Command, write
from tests.helpers import DATA, lines
from trajectory_guard.cli import commands


def pair(**fields: object) -> str:
    return json.dumps({"tool": "search", "a_args": {"q": 1}, "b_args": {"q": 1}, **fields})


def test_every_line_comes_back_with_a_relation(command: Command) -> None:
    path = DATA / "similar_calls.jsonl"
    ran = command("compare", path, "--json")
    assert ran.status == 0
    given = list(lines(path))
    assert len(ran.lines) == len(given)
    for before, after in zip(given, ran.lines, strict=True):
        assert {key: after[key] for key in before} == before
        assert after["relation"] in ("same", "different", "maybe")
        assert after["reason"]


def test_other_answers_make_a_difference(tmp_path: Path, command: Command) -> None:
    content = "\n".join([pair(), pair(a_out="one", b_out="two"), pair(a_out="one", b_out="one")])
    assert [one["relation"] for one in command("compare", write(tmp_path / "p", content)).lines] == [
        "same",
        "different",
        "same",
    ]


def test_bad_lines_are_named_and_the_others_evaluated(tmp_path: Path, command: Command) -> None:
    content = "\ufeff" + pair() + "\r\n\n{oops\n" + '{"tool": "x"}\n[1]\n' + pair()
    path = write(tmp_path / "pairs.jsonl", gzip.compress(content.encode() + b"\n\xff\xfe{}"))
    ran = command("compare", path)
    assert ran.status == 2
    assert len(ran.lines) == 2
    where = [line.removeprefix(f"trajectory-guard: {path}:").split(":")[0] for line in ran.err.splitlines()]
    assert where == ["3", "4", "5", "7"]
    assert "expected an object with 'tool', 'a_args' and 'b_args'" in ran.err


def test_files_that_cannot_be_read(tmp_path: Path, command: Command) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "missing", "No such file or directory")):
        ran = command("compare", path)
        assert (ran.status, ran.err) == (2, f"trajectory-guard: {path}: cannot be read: {reason}\n")


def test_a_line_without_end_is_refused(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_MAX_PAIR_BYTES", 1_000)
    path = write(tmp_path / "pairs.jsonl.gz", gzip.compress(f"{pair()}\n".encode() + b'{"tool": "' + b"x" * 100_000))
    ran = command("compare", path)
    assert (ran.status, len(ran.lines)) == (2, 1)
    assert "pairs.jsonl.gz:2: a line of more than 0 MiB; the rest is not read" in ran.err


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b"\n \t\r\n", "is empty"),
        (b"\xef\xbb\xbf\n", "is empty"),
        (gzip.compress(bytes(100_000)), "is no text: expected JSON lines"),
    ],
)
def test_a_file_without_lines_is_named(tmp_path: Path, command: Command, content: bytes, said: str) -> None:
    ran = command("compare", write(tmp_path / "pairs.jsonl", content))
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
