"""Shared by several test modules: steps, runs of the engine, recorded spans."""

from __future__ import annotations

import gc
import gzip
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings

import trajectory_guard
from trajectory_guard.core.build import is_compiled
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise, table_of
from trajectory_guard.otlp import spans_from_json
from trajectory_guard.spans.extract import read_step
from trajectory_guard.spans.identity import batch_and_task, metadata_of

TESTS = Path(__file__).parent
DATA = TESTS / "data"
PACKAGE = Path(trajectory_guard.__file__).parent
COLLECTOR_PACKAGE = PACKAGE.parent.parent / "collector" / "trajectory_guard_collector"

REPLACES_CODE = pytest.mark.skipif(is_compiled(), reason="replaces code that compiled modules call directly")

_numbers = itertools.count()


def record(
    tool: str = "search",
    args: Any = None,
    result: str | None = None,
    outcome: str = "success",
    *,
    step_id: str | None = None,
    trajectory: str = "t",
    **fields: Any,
) -> StepRecord:
    """A step as the dialects would build it: hashes follow from arguments, outcome and result."""
    return StepRecord(
        step_id=step_id if step_id is not None else f"{next(_numbers) + 1:016x}",
        trajectory_id=trajectory,
        tool_name=tool,
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(outcome, result),
        outcome_type=outcome,  # type: ignore[arg-type]
        agent_id=fields.pop("agent", None),
        timestamp=fields.pop("t", 0.0),
        duration=fields.pop("dur", 0.0),
        args=args,
        result=result,
        **fields,
    )


def from_line(step: Mapping[str, Any], *, step_id: str, trajectory: str) -> StepRecord:
    """A step line of a case or a recorded run."""
    return record(
        step["tool"],
        step["args"],
        step["result"],
        step["outcome"],
        step_id=step_id,
        trajectory=trajectory,
        agent=step.get("agent") or None,
        t=float(step.get("t") or 0.0),
        dur=float(step.get("dur") or 0.0),
        thought=step.get("thought") or None,
        batch=str(step["batch"]) if step.get("batch") is not None else None,
        turn=str(step["turn"]) if step.get("turn") is not None else None,
        run=str(step["run"]) if step.get("run") is not None else None,
    )


def evaluate(steps: Iterable[StepRecord], settings: EngineSettings | None = None) -> list[Verdict | None]:
    """Verdicts of a fresh engine on one trajectory."""
    engine = Engine(settings)
    state = engine.new_state("t")
    return [engine.observe(state, step) for step in steps]


def evaluate_saved(steps: Sequence[StepRecord], at: int) -> list[Verdict | None]:
    """Verdicts on the steps from ``at`` on, by an engine that saved its state before them and loaded it again."""
    engine = Engine()
    state = engine.new_state("t")
    for step in steps[:at]:
        engine.observe(state, step)
    state = engine.load_state(state.to_bytes())
    return [engine.observe(state, step) for step in steps[at:]]


def evaluate_run(run: Mapping[str, Any], settings: EngineSettings | None = None) -> list[Verdict | None]:
    """Verdicts on a case or a recorded run."""
    lines = enumerate(run["steps"])
    return evaluate(
        (from_line(line, step_id=f"{run['id']}-{at}", trajectory=run["id"]) for at, line in lines), settings
    )


def eventually(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Wait until a condition holds, much longer than it should take; returns whether it does."""
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def fewer_examples(divisor: int) -> settings:
    """For a property whose examples are costly: a part of the examples that the profile asks for."""
    return settings(max_examples=settings.default.max_examples // divisor)


def first_level(verdicts: Sequence[Verdict | None], *levels: Level) -> int | None:
    """Index of the first verdict of one of ``levels``, None if there is none."""
    wanted = levels or (Level.NUDGE, Level.STOP)
    return next((at for at, verdict in enumerate(verdicts) if verdict is not None and verdict.level in wanted), None)


def fired(verdicts: Sequence[Verdict | None], loop_type: str) -> list[int]:
    """Indices of the verdicts in which ``loop_type`` was among the findings."""
    return [at for at, verdict in enumerate(verdicts) if verdict is not None and loop_type in verdict.types]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON-lines file, gzip-compressed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    yield from (json.loads(line) for line in text.split("\n") if line.strip())


def capture_names() -> list[str]:
    """Names of all recorded span captures."""
    return sorted(
        path.name.removesuffix(".json.gz")
        for path in (DATA / "spans").glob("*__*.json.gz")
        if ".logs." not in path.name
    )


def one_in(count: int, values: Iterable[Any], name: Callable[[Any], str] = str) -> list[Any]:
    """Parameters with these names: one value in ``count`` for the fast part, the others for the slow one."""
    return [
        pytest.param(one, id=name(one), marks=pytest.mark.slow if at % count else ()) for at, one in enumerate(values)
    ]


@cache
def _capture_text(name: str) -> bytes:
    return gzip.decompress((DATA / "spans" / f"{name}.json.gz").read_bytes())


def capture(name: str) -> list[SpanView]:
    """The spans of a capture, in the order the exporter got them."""
    return list(spans_from_json(json.loads(_capture_text(name))))


def golden(name: str) -> list[dict[str, Any]]:
    """The calls a careful reader found in a capture (``X``), or only in its model messages (``X.messages``)."""
    file = DATA / "golden" / f"{name}.jsonl"
    return list(lines(file)) if file.exists() else []


def span_view(attributes: Mapping[str, Any], name: str = "execute_tool search", **fields: Any) -> SpanView:
    """A finished span with these attributes."""
    defaults: dict[str, Any] = {"trace_id": "a" * 32, "span_id": "b" * 16, "start": 10.0, "end": 10.5}
    return SpanView(name=name, attributes=attributes, **{**defaults, **fields})


def tool_view(args: Any = '{"q":1}', result: Any = "found", **fields: Any) -> SpanView:
    """A finished span of a tool call by the semantic conventions; ``extra`` adds attributes."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": args,
        "gen_ai.tool.call.result": result,
        **fields.pop("extra", {}),
    }
    return span_view({key: value for key, value in attributes.items() if value is not None}, **fields)


def extract_step(
    span: SpanView,
    *,
    ancestors: Iterable[SpanView] = (),
    trajectory_of: Callable[[SpanView], str] | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
) -> StepRecord | None:
    """The step of a tool span, None if the span is no tool call: ``spans.extract.read_step`` by the first dialect.

    Parameters:
        ancestors: spans above it, nearest first.
        trajectory_of: as for ``read_step``.
    """
    table = table_of(dialects)
    dialect = recognise(span, table) if not table.markers.isdisjoint(span.attributes) else None
    return read_step(span, dialect, list(ancestors), trajectory_of, table) if dialect is not None else None


def batch_label(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Label shared by the calls of one LangGraph super-step; None outside LangGraph graphs."""
    known = table.key_set(span.attributes)
    return batch_and_task(span, known, metadata_of(span.attributes, known))[0]


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """Cells of the tables below a heading of a page, by the first, which is code."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert len({row[0] for row in found}) == len(found), "a row is there twice"
    return {row[0].strip("`"): row[1:] for row in found}


def profiled(work: Callable[[], object], counts: Callable[[FrameType, str], bool]) -> int:
    """How many events of the profiler count while this thread does some work.

    A garbage collection in between would count too, with its callbacks: Hypothesis registers one that calls four functions.
    """
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += counts(frame, event)

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return count
