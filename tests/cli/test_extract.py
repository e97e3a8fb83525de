"""``extract``: the same calls whatever the size of the file, the order of its spans and the room in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.helpers_cli import Command, otlp_span, request, run_line, step, write
from tests.cli.synthetic import synthetic_spans
from tests.helpers import capture, capture_names, one_in
from trajectory_guard.cli.recordings import spool as spooling
from trajectory_guard.cli.recordings.grouping import Groups
from trajectory_guard.cli.recordings.inputs import Diagnostics, Limits, read
from trajectory_guard.cli.recordings.spool import Spool
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.transcripts.assemble import extract_steps

TIGHT = Limits(cache_bytes=64 * 1024, whole_bytes=0)
"""Everything goes to disk and is read group by group."""


def collected(
    spans: Iterable[SpanView], limits: Limits = TIGHT, diagnostics: Diagnostics | None = None
) -> list[StepRecord]:
    with Spool(limits) as spool:
        for span in spans:
            spool.add(span)
        spool.collect(diagnostics or Diagnostics())
        steps = list(spool.steps())
        grouped = [one for recorded in spool.trajectories() for one in recorded.steps if not one.is_toolless]
        assert sorted(grouped) == sorted(steps) if len({one.step_id for one in steps}) == len(steps) else True
        return steps


def small_synthetic(path: Path, count: int = 2400) -> list[SpanView]:
    synthetic_spans(count, path)
    return [one for one in read(str(path), Diagnostics()) if isinstance(one, SpanView)]


@pytest.mark.parametrize("name", one_in(4, capture_names()))
def test_groups_give_what_memory_gives(name: str) -> None:
    assert collected(capture(name)) == extract_steps(capture(name))


@given(
    st.sampled_from(
        [name for name in capture_names() if "two_turns" in name or "client" in name or "interrupt" in name]
    ),
    st.randoms(),
)
def test_groups_in_any_order_of_spans(name: str, dice: random.Random) -> None:
    spans = capture(name)
    dice.shuffle(spans)
    assert collected(spans) == extract_steps(spans)


def test_many_interleaved_trajectories(tmp_path: Path) -> None:
    spans = small_synthetic(tmp_path / "spans.jsonl")
    expected = extract_steps(spans)
    assert len(expected) == 240
    assert {one.dialect for one in expected} == {"semconv", "openinference", "langfuse", "openllmetry"}
    random.Random(7).shuffle(spans)
    assert collected(spans) == expected
    assert collected(spans, Limits()) == expected


def test_strings_that_are_no_unicode() -> None:
    spans = [
        one._replace(attributes={**one.attributes, "session.id": "\ud800x"}) for one in capture(capture_names()[0])
    ]
    found = collected(spans)
    assert found == extract_steps(spans)
    assert {one.trajectory_id for one in found} == {"\ud800x"}


def test_steps_are_ordered_by_time_even_before_the_epoch() -> None:
    times = [3.5, -2.0, 0.0, 1e9, -0.5, 2.0]
    steps = [StepRecord(f"{at}", "t", "tool", timestamp=time) for at, time in enumerate(times)]
    assert [one.timestamp for one in sorted(steps, key=spooling._place)] == sorted(times)


def test_a_trace_that_is_too_large_is_named() -> None:
    spans = capture("langfuse-langchain__two_turns")
    diagnostics = Diagnostics()
    assert collected(spans, Limits(trace_bytes=5_000), diagnostics) == []
    assert all("more than --max-trace-mb" in one and "left out" in one for one in map(str, diagnostics.errors))
    assert len(diagnostics.errors) == len({one.trace_id for one in spans})


def test_a_conversation_that_is_too_large_is_read_trace_by_trace(tmp_path: Path) -> None:
    spans = small_synthetic(tmp_path / "spans.jsonl")
    diagnostics = Diagnostics()
    steps = collected(spans, Limits(cache_bytes=0, whole_bytes=0, trace_bytes=250_000), diagnostics)
    assert steps == extract_steps(spans)
    assert diagnostics.errors == []
    assert "read one by one" in diagnostics.notes[0]


def test_an_odd_trace_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = capture("langfuse-langchain__bare_tool"), capture("langfuse-langchain__handoff")

    def picky(spans: list[SpanView], **options: Any) -> list[StepRecord]:
        if any(one.trace_id == bad[0].trace_id for one in spans):
            raise KeyError("odd")
        return extract_steps(spans, **options)

    monkeypatch.setattr(spooling, "extract_steps", picky)
    diagnostics = Diagnostics()
    assert collected([*good, *bad], Limits(), diagnostics) == extract_steps(good)
    assert [str(one) for one in diagnostics.errors] == [f": trace {bad[0].trace_id}: cannot be read: KeyError: 'odd'"]


def test_groups_join() -> None:
    groups = Groups()
    for together in ([b"a", b"b"], [b"c", b"d"], [b"d", b"a"], [b"e", b"f"]):
        groups.join(together)
    assert sorted(sorted(one) for one in groups) == [[b"a", b"b", b"c", b"d"], [b"e", b"f"]]
    assert b"g" not in groups


# --- the command ---------------------------------------------------------------------------------------------


def test_calls_of_all_files_by_start_time(tmp_path: Path, command: Command) -> None:
    first = write(tmp_path / "1.json", json.dumps(request([otlp_span(1, start=5), otlp_span(2, start=1)])))
    second = write(tmp_path / "2.json", json.dumps(request([otlp_span(3, start=3)])))
    lines = write(tmp_path / "3.jsonl", run_line("late", [step(t=9), step(t=8)]))
    ran = command("extract", first, second, lines, "--json")
    assert ran.status == 0
    assert [one["start"] for one in ran.lines] == [9.0, 8.0, 1001.0, 1003.0, 1005.0]
    assert list(ran.lines[2]) == [
        "span_id", "trace_id", "dialect", "trajectory_id", "tool_name", "call_id", "args", "result", "outcome_type",
        "agent_id", "evidence", "start", "end",
    ]  # fmt: skip
    assert ran.lines[2]["args"] == {"q": 1}


def test_what_was_read_is_printed_although_the_rest_is_broken(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path / "spans.jsonl", json.dumps(request([otlp_span(1)])) + "\n{oops\n")
    ran = command("extract", path)
    assert (ran.status, len(ran.lines)) == (2, 1)
    assert ran.err.startswith(f"trajectory-guard: {path}:2: not valid JSON: ")


def test_values_json_cannot_carry(tmp_path: Path, command: Command) -> None:
    content = '{"id": "a", "steps": [{"tool": "x", "args": {"n": NaN, "i": [-Infinity]}, "result": "\\ud800"}]}'
    ran = command("extract", write(tmp_path / "runs.jsonl", content))
    assert ran.lines[0]["args"] == {"n": None, "i": [None]}
    assert ran.lines[0]["result"] == "\ud800"


def test_no_room_for_temporary_data(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Spool, diagnostics: Diagnostics) -> None:
        raise spooling.sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Spool, "collect", full)
    for name in ("extract", "replay"):
        ran = command(name, write(tmp_path / "spans.json", json.dumps(request([otlp_span(1)]))))
        assert ran.status == 2
        assert "temporary storage: database or disk is full; SQLITE_TMPDIR" in ran.err
