"""Models that number their calls in every answer: agents side by side, and user turns, share the ids of their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.kit import HOURS, new_scorer, request, score_all, span, views
from trajectory_guard.core.policy import Level
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard_collector.state import codec

CALL_ID = "call_0"
Writer = Callable[[Any, str], dict[str, Any]]


def by_conventions(args: Any, result: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": CALL_ID,
        "gen_ai.tool.call.arguments": json.dumps(args), "gen_ai.tool.call.result": result,
    }  # fmt: skip


def by_openinference(args: Any, result: str) -> dict[str, Any]:
    return {
        "openinference.span.kind": "TOOL", "tool.name": "search", "tool_call.id": CALL_ID,
        "input.value": json.dumps(args), "output.value": result,
    }  # fmt: skip


def by_langfuse(args: Any, result: str) -> dict[str, Any]:
    message = {"content": result, "type": "tool", "name": "search", "tool_call_id": CALL_ID, "status": "success"}
    return {
        "langfuse.observation.type": "tool", "langfuse.observation.input": json.dumps(args),
        "langfuse.observation.output": json.dumps(message),
    }  # fmt: skip


WRITERS: dict[str, Writer] = {"semconv": by_conventions, "openinference": by_openinference, "langfuse": by_langfuse}
EACH = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)


def call(writer: Writer, name: str, args: Any, result: str = HOURS, **fields: Any) -> Span:
    return span(name, {**writer(args, result), "gen_ai.conversation.id": "c"}, span_name="search", **fields)


def agent(name: str, **fields: Any) -> Span:
    named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "worker"}
    return span(name, named, span_name="invoke_agent worker", **{"dur": 100.0, **fields})


def counted(spans: Sequence[Span]) -> int:
    """Steps of the spans, in a collector that gets a span at a time; a recording has as many."""
    scorer = new_scorer()
    for one in sorted(spans, key=lambda one: one.end_time_unix_nano):
        scorer.score(request(one))
    scorer.finish()
    assert len(extract_steps(views(request(*spans)))) == sum(one.steps for one in scorer.registry)
    return sum(one.steps for one in scorer.registry)


@EACH
@pytest.mark.parametrize("differ", ["arguments", "results", "agents"])
def test_agents_side_by_side_share_ids(writer: Writer, differ: str) -> None:
    spans = [agent(f"agent{who}") for who in range(3)]
    for at in range(5):
        for who in range(3):
            args = {"q": f"part {at} of {who}" if differ == "arguments" else at}
            result = f"{HOURS} {at} {who}" if differ == "results" else HOURS
            parent = f"agent{who}" if differ == "agents" else "job"
            spans.append(call(writer, f"{at} {who}", args, result, parent=parent, at=at + 0.1 * who))
    assert counted(spans) == 15


@EACH
def test_each_of_the_agents_that_share_ids_is_found_in_its_loop(writer: Writer) -> None:
    spans = [agent(f"agent{who}") for who in range(3)]
    spans += [
        call(writer, f"{at} {who}", {"q": 1}, parent=f"agent{who}", at=at + 0.1 * who)
        for at in range(5)
        for who in range(3)
    ]
    found = score_all([request(*spans)])
    assert len({one.run for one in found.values() if one.level is Level.NUDGE}) == 3


@EACH
def test_user_turns_share_ids(writer: Writer) -> None:
    spans = [
        call(writer, f"{turn} {at}", {"q": 1}, f"{HOURS} {turn} {at}", trace=f"turn {turn}", at=10.0 * turn + at)
        for turn in range(3)
        for at in range(5)
    ]
    assert counted(spans) == 15


@EACH
def test_a_loop_in_a_later_user_turn_is_found(writer: Writer) -> None:
    """Its calls are those of the turn before; at most the first may have been made again by a run that was resumed."""
    spans = [call(writer, f"0 {at}", {"q": at}, f"{HOURS} {at}", trace="turn 0", at=1.0 * at) for at in range(6)]
    spans += [call(writer, f"1 {at}", {"q": 5}, f"{HOURS} 5", trace="turn 1", at=100.0 + at) for at in range(6)]
    assert counted(spans) >= 11
    found = score_all([request(*spans)])
    assert Level.NUDGE in {one.level for one in found.values()}


def test_two_instrumentations_of_agents_side_by_side_count_each_call_once() -> None:
    spans = [
        call(
            writer, f"{at} {who} {name}", {"q": at, "who": who}, parent=f"agent{who}", at=at + 0.1 * who + 0.01 * place
        )
        for at in range(5)
        for who in range(3)
        for place, (name, writer) in enumerate(list(WRITERS.items())[:2])
    ]
    assert counted([agent(f"agent{who}") for who in range(3)] + spans) == 15


@EACH
def test_an_instrumentation_that_was_installed_twice_reports_each_call_once(writer: Writer) -> None:
    spans = [agent("agent"), *(call(writer, f"{at} {copy}", {"q": 1}, parent="agent", at=at) for at in range(5) for copy in range(2))]  # fmt: skip
    assert counted(spans) == 5


def test_what_was_reported_twice_is_known_after_a_restart() -> None:
    first, second = (by_conventions, by_openinference)
    spans = [call(first, "a", {"q": 1}, at=0.0), call(second, "b", {"q": 1}, at=0.1), call(second, "c", {"q": 1}, f"{HOURS} 2", at=0.2)]  # fmt: skip
    scorer = new_scorer()
    scorer.score(request(*spans[:2]))
    trajectory = next(iter(scorer.registry))
    snapshot = trajectory.snapshot()
    assert snapshot is not None
    plain = json.loads(json.dumps(codec.plain_snapshot(snapshot)))
    assert codec._snapshot(plain).recent == snapshot.recent
    assert snapshot.recent[0].again
    assert counted(spans) == 2
