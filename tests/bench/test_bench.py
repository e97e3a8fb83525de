"""The benchmark itself: run with ``pytest tests/bench/test_bench.py``; left out of the default run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.peers import PEERS
from tests.bench.report import Row

EXPECTED = (
    "tool span, plain semconv: added",
    "tool span, plain semconv: on_end alone",
    "tool span, OpenLLMetry: added",
    "tool span, OpenInference: added",
    "tool span, result of 50 kB: added",
    "tool span, same call, same result: added",
    "tool span, other calls, same result: added",
    "tool span, other calls, errors of 1 kB: added",
    "tool span, other calls, errors of 8 kB: added",
    "tool span, two calls, 8 kB of nothing but heads of errors: added",
    "other span, 10 attributes: added",
    "engine, healthy step, at step 10",
    "engine, healthy step, at step 10,000",
    "engine, healthy step: flat",
    "engine, looping step, same call: flat",
    "engine, looping step, reworded and failing: flat",
    "state, 100 distinct steps",
    "state, worst case",
    "entry on the board, 100 distinct steps",
    "gate, 20 messages, spans evaluated already",
    "gate, 20 messages, no spans",
    "model span, no ledger: on_end alone",
    "model span, three budgets in SQLite: on_end alone",
    "before a model call, no ledger: check",
    "replay, file of 20,000 spans: per span",
    "replay, file of 20,000 spans: peak memory",
    *(peer.what for peer in PEERS),
)


def test_quick_run_has_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    assert main(["--quick", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    for expected in EXPECTED:
        found = [row for row in rows if row["what"].startswith(expected)]
        assert found, expected
        assert all(row["ours"] > 0 for row in found), expected
    assert "target" in capsys.readouterr().out


def test_the_stream_worker_is_skipped_with_the_reason_where_it_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.fleet._python", lambda: None)
    assert main(["--quick", "--only", "fleet", "--json", str(tmp_path / "bench.json")]) == 0
    (row,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert (row["what"], row["ours"], row["failed"]) == ("stream worker", None, False)
    assert row["versus"].startswith("skipped: the extra 'fleet' is missing")
    monkeypatch.undo()
    monkeypatch.setenv("FLEET_PYTHON", str(without_java(tmp_path)))
    assert main(["--quick", "--only", "fleet"]) == 0
    assert "skipped: Java is missing" in capsys.readouterr().out


def without_java(folder: Path) -> Path:
    """A program that answers as ``tests.bench.stream_worker`` does where it finds no Java."""
    file = folder / "python"
    file.write_text("""#!/bin/sh\necho '{"skipped": "Java is missing"}'\n""")
    file.chmod(0o755)
    return file


def test_a_failing_measurement_is_a_row_and_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(effort: object) -> object:
        raise RuntimeError("no clock")

    monkeypatch.setattr("tests.bench.engine.rows", broken)
    assert main(["--quick", "--only", "engine"]) == 1


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (Row("a", 9.0, most=10.0), True),
        (Row("a", 11.0, most=10.0), False),
        (Row("a", 11.0, "us", 20.0, "SDK", 0.5, True), False),
        (Row("a", 9.0, "us", 20.0, "SDK", 0.5, True), True),
        (Row("a", 9.0), None),
        (Row("a", None, most=1.0), None),
    ],
)
def test_verdict_on_a_target(row: Row, ok: bool | None) -> None:
    assert row.ok is ok


def test_check_exits_with_1_on_a_missed_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.engine.rows", lambda effort: iter([Row("slow", 2.0, most=1.0)]))
    assert main(["--only", "engine"]) == 0
    assert main(["--only", "engine", "--check"]) == 1
