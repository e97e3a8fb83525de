"""Configuration files that are made to hurt: one line on standard error, status 2, and soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers_cli import write
from trajectory_guard.cli.main import main as guard
from trajectory_guard.config.bounds import MAX_VALUES, bounded
from trajectory_guard_collector.cli import main as collector

DEEP = 100_000
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]\n" for level in range(9)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{level + 1}: &a{level + 1} {{<<: [{', '.join([f'*a{level}'] * 9)}]}}\n" for level in range(9)
)
FILES = {
    "brackets.json": ("[" * DEEP + "]" * DEEP, "nested too deeply"),
    "braces.json": ('{"a":' * DEEP + "1" + "}" * DEEP, "nested too deeply"),
    "open.json": ("[" * DEEP, "nested too deeply"),
    "deep.toml": ("a = " + "[" * DEEP + "]" * DEEP, "nested too deeply"),
    "deep.yaml": ("a: " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
    "laughs.yaml": (LAUGHS, f"more than {MAX_VALUES:,} values"),
    "laughs_in_a_key.yaml": (f"{LAUGHS}mode: *a9\nreceivers: *a9\n", f"more than {MAX_VALUES:,} values"),
    "merges.yaml": (MERGES, f"more than {MAX_VALUES:,} values"),
    "circle.yaml": ("tools: &t\n  a: *t\n", "a value contains itself"),
    "number.json": ('{"decay": ' + "9" * 10_000 + "}", ""),
    "large.toml": ("# a comment\n" * 100_000, "larger than 1 MiB"),
}
COMMANDS: dict[str, Callable[[str, str], int]] = {
    "replay": lambda file, lines: guard(["replay", lines, "--config", file]),
    "extract": lambda file, lines: guard(["extract", lines, "--config", file]),
    "validate": lambda file, lines: collector(["validate", "--config", file]),
    "print-config": lambda file, lines: collector(["print-config", "--config", file]),
}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        # Two commands each read with the same function.
        pytest.param(command, name, marks=pytest.mark.slow if command in ("extract", "print-config") and at else ())
        for command in COMMANDS
        for at, name in enumerate(FILES)
    ],
)
def test_a_hostile_file_is_refused_in_one_line(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, reason = FILES[name]
    file = write(tmp_path / name, content)
    lines = write(tmp_path / "ok.jsonl", '{"id": "a", "steps": [{"tool": "x", "args": {}, "result": "y"}]}\n')
    assert COMMANDS[command](str(file), str(lines)) == 2
    err = capsys.readouterr().err
    assert f"{file}: {reason}" in err
    assert "unexpected" not in err
    assert (err.count("\n"), len(err) < 1_000) == (1, True)


@pytest.mark.parametrize("value", ["[" * DEEP, "{" * DEEP, '{"a":' * DEEP])
def test_a_hostile_value_on_the_command_line_is_refused(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = write(tmp_path / "ok.jsonl", '{"id": "a", "steps": []}\n')
    assert guard(["replay", str(lines), "--set", f"tools={value}"]) == 2
    assert collector(["validate", "--set", f"receivers={value}"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert "unexpected" not in err


def test_what_is_counted() -> None:
    shared = ["x"] * 10
    assert bounded({"a": shared, "b": shared}) == {"a": shared, "b": shared}
    assert bounded(["x"] * (MAX_VALUES - 1))
    with pytest.raises(ValueError, match="more than 100,000 values"):
        bounded(["x"] * MAX_VALUES)
