"""A new user message in the captured input of a model call begins a new run, in every shell alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import comparable, request, score_all, span, tool, views
from tests.collector.test_same_verdicts import replayed, unplaced
from tests.helpers import capture, capture_names, span_view
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.spans.extract import model_usage
from trajectory_guard.transcripts.asked import MAX_INPUT_CHARS, asked_in

TURNS = 8
RESUMED = (
    "hitl_middleware_reject",
    "interrupt_in_tool",
    "approval_rejected",
    "confirmation_rejected",
    "approval_reject",
)


def asked(*messages: dict[str, Any]) -> str | None:
    return asked_in(span_view({"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(messages)}))


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def used_tool(answer: str) -> list[dict[str, Any]]:
    call = {"type": "tool_call", "id": "c", "name": "search", "arguments": {"q": 1}}
    return [
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": answer}]},
    ]


TURN = [text("user", "when are you open?"), *used_tool("at nine"), text("assistant", "We open at nine.")]


# --- what a model was asked ----------------------------------------------------------------------------------------


def labels(name: str) -> list[set[str | None]]:
    """Labels of a capture's model calls, trace by trace."""
    found: dict[str, set[str | None]] = {}
    for one in capture(name):
        if model_usage(one) is not None:
            found.setdefault(one.trace_id, set()).add(asked_in(one))
    return list(found.values())


@pytest.mark.parametrize(
    "name", [one for one in capture_names() if one.endswith("two_turns") and "nocontent" not in one]
)
def test_two_turns_of_a_capture_have_two_labels(name: str) -> None:
    (first, second) = labels(name)
    assert len(first) == len(second) == 1
    assert first.isdisjoint(second)


def test_resumed_runs_of_captures_answer_the_same_message() -> None:
    found = {name: labels(name) for name in capture_names() if name.endswith(RESUMED)}
    in_two_traces = {name: one for name, one in found.items() if len(one) == 2}
    assert len(in_two_traces) >= 10
    assert {name: one for name, one in in_two_traces.items() if one[0] != one[1]} == {}


def test_later_calls_of_a_turn_serve_the_same_message() -> None:
    assert asked(*TURN, text("user", "and on Sunday?")) == asked(
        *TURN, text("user", "and on Sunday?"), *used_tool("no")
    )


def test_the_same_words_again_are_a_new_message() -> None:
    once = asked(*TURN, text("user", "again please"))
    assert once != asked(*TURN, text("user", "again please"), *TURN[1:], text("user", "again please"))


def test_a_nudge_or_a_reminder_among_the_tools_is_no_user_message() -> None:
    reminder = text("user", "You have repeated search three times. Try something else.")
    assert asked(*TURN[:3], reminder) == asked(*TURN[:3]) == asked(TURN[0])


def test_observations_of_an_agent_whose_calls_are_plain_text_are_no_user_messages() -> None:
    task, act, seen = text("user", "fix the test"), text("assistant", "ACTION ls"), text("user", "OBSERVATION a.py")
    assert asked(task) == asked(task, act, seen) == asked(task, act, seen, act, seen)


def test_an_input_that_was_not_captured_says_nothing() -> None:
    assert asked_in(span_view({"gen_ai.operation.name": "chat"})) is None
    assert asked(text("system", "You are helpful.")) is None


@pytest.mark.parametrize("value", ["[", "[1, null]", "{'role': 'user'", '[{"role": 5}]', "\ud800", "[" * 100_000])
def test_an_input_that_cannot_be_read_says_nothing(value: str) -> None:
    assert asked_in(span_view({"gen_ai.operation.name": "chat", "gen_ai.input.messages": value})) is None


def test_a_very_long_input_is_not_read() -> None:
    assert asked(text("user", "x" * MAX_INPUT_CHARS)) is None


# --- an input whose beginning is lost ------------------------------------------------------------------------------


def spread(history: list[dict[str, Any]], most: int, *, newest: bool = True) -> dict[str, Any]:
    """An input as OpenInference spreads it, of which a limit on the number of attributes keeps the newest or the first."""
    found: dict[str, Any] = {}
    for place, message in enumerate(history):
        prefix = f"llm.input_messages.{place}.message"
        found[f"{prefix}.role"] = message["role"]
        for part in message["parts"]:
            if part["type"] == "text":
                found[f"{prefix}.content"] = part["content"]
            elif part["type"] == "tool_call":
                call = f"{prefix}.tool_calls.0.tool_call"
                found |= {f"{call}.id": part["id"], f"{call}.function.name": part["name"]}
                found[f"{call}.function.arguments"] = json.dumps(part["arguments"])
            else:
                found |= {f"{prefix}.content": part["result"], f"{prefix}.tool_call_id": part["id"]}
    kept = list(found.items())[-most:] if newest else list(found.items())[:most]
    return {**dict(kept), "openinference.span.kind": "LLM"}


def asked_in_spread(history: list[dict[str, Any]], most: int) -> str | None:
    return asked_in(span_view(spread(history, most)))


def test_a_message_has_one_label_however_much_before_it_is_lost() -> None:
    history = [*TURN * 8, text("user", "and on Sunday?")]
    whole = asked_in_spread(history, 1_000)
    assert whole == asked(*history)
    assert {asked_in_spread([*history, *used_tool("no")], most) for most in (14, 30, 50, 128)} == {whole}


@pytest.mark.parametrize(("language", "known"), [("nodejs", False), ("python", True), (None, False)])
def test_where_the_newest_messages_may_be_lost_nothing_is_known(language: str | None, known: bool) -> None:
    """SDKs other than Python's keep the attributes that came first."""
    attributes = spread(TURN * 8, 40, newest=False)
    resource = {"telemetry.sdk.language": language} if language else {}
    view = span_view(attributes)._replace(dropped=70, resource=resource)
    assert (asked_in(view) is not None) is known
    assert asked_in(view._replace(dropped=0)) is not None


def test_where_the_message_itself_is_lost_no_reminder_stands_for_it() -> None:
    reminder = text("user", "Remember to answer in German.")
    history = [*TURN, text("user", "and on Sunday?"), *used_tool("no") * 9, reminder, *used_tool("no")]
    assert {asked_in_spread(history, most) for most in (9, 12, 20, 30)} == {None}


# --- what follows from it ------------------------------------------------------------------------------------------


def chat(
    *,
    turns: int = TURNS,
    captured: bool = True,
    new_messages: bool = True,
    most: int | None = None,
    newest: bool = True,
) -> Iterator[Span]:
    """A person asks in each trace, the agent looks the same thing up; ``most``: attributes of an input that are kept."""
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        if new_messages or not history:
            history += TURN[:1]
        given = {"gen_ai.input.messages": json.dumps(history)} if captured else {}
        given = given if most is None else spread(history, most, newest=newest)
        model = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10, **given}
        asking = span(f"model {turn}", model, trace=f"t{turn}", parent=f"root {turn}", at=turn * 10)
        asking.dropped_attributes_count = 0 if newest else 5
        yield asking
        yield tool(f"tool {turn}", trace=f"t{turn}", parent=f"root {turn}", at=turn * 10 + 1)
        yield span(f"root {turn}", {"session.id": "c"}, trace=f"t{turn}", at=turn * 10, dur=3)
        history += TURN[1:3] if not new_messages else TURN[1:]


def everywhere(spans: list[Span], folder: Path) -> list[Verdict]:
    """Verdicts of all shells, which are the same."""
    data = request(*spans)
    found = score_all([data])
    live, recorded = evaluate_in_process(views(data)), replayed([data], folder)
    assert comparable(live) == comparable(found)
    assert {key: unplaced(one) for key, one in comparable(recorded).items()} == {
        key: unplaced(one) for key, one in comparable(found).items()
    }
    assert comparable(score_all([request(one) for one in reversed(spans)])) == comparable(found)
    return list(found.values())


def test_what_is_asked_again_in_every_turn_is_no_loop(tmp_path: Path) -> None:
    verdicts = everywhere(list(chat()), tmp_path)
    assert len(verdicts) == TURNS
    assert not any(one.detections for one in verdicts)
    assert len({one.run for one in verdicts}) == TURNS


def test_what_is_asked_again_is_no_loop_where_the_beginning_of_the_input_is_lost(tmp_path: Path) -> None:
    verdicts = everywhere(list(chat(most=24)), tmp_path)
    assert len(verdicts) == TURNS
    assert not any(one.detections for one in verdicts)


def test_where_the_end_of_the_input_is_lost_a_new_trace_is_an_uncertain_boundary(tmp_path: Path) -> None:
    """As SDKs of other languages than Python lose it: what the spans of this process lost is seen from its places."""
    data = request(*chat(most=12, newest=False))
    for verdicts in (score_all([data]), replayed([data], tmp_path)):
        assert any(one.detections for one in verdicts.values())
        assert all(one.level is not Level.STOP for one in verdicts.values())


def test_without_the_input_a_new_trace_is_an_uncertain_boundary(tmp_path: Path) -> None:
    verdicts = everywhere(list(chat(captured=False)), tmp_path)
    assert any(one.detections for one in verdicts)
    assert all(one.level is not Level.STOP for one in verdicts)


def test_a_run_resumed_in_new_traces_stays_under_suspicion(tmp_path: Path) -> None:
    verdicts = everywhere(list(chat(new_messages=False)), tmp_path)
    assert any(one.detections for one in verdicts)


def test_a_loop_within_a_turn_is_found_in_every_turn(tmp_path: Path) -> None:
    spans = list(chat(turns=2))
    spans += [tool(f"more {turn} {at}", trace=f"t{turn}", parent=f"root {turn}", at=turn * 10 + 1.6 + at / 5, dur=0.1) for turn in range(2) for at in range(5)]  # fmt: skip
    verdicts = everywhere(spans, tmp_path)
    assert {one.run for one in verdicts if one.detections} == {one.run for one in verdicts}


def pair(*, new_messages: bool) -> list[Span]:
    """Two agents that work one after the other in each trace, always with the same calls."""
    spans, history = [], []
    for turn in range(TURNS):
        if new_messages or not history:
            history += TURN[:1]
        given = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(history)}
        within = {"trace": f"t{turn}", "at": turn * 10.0}
        spans.append(span(f"model {turn}", {**given, "gen_ai.usage.input_tokens": 10}, parent=f"root {turn}", **within))
        for at, agent in enumerate(("planner", "writer"), start=1):
            named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
            place = {"trace": f"t{turn}", "at": turn * 10.0 + at}
            spans.append(tool(f"{agent} looks {turn}", {"of": agent}, parent=f"{agent} {turn}", **place))
            spans.append(span(f"{agent} {turn}", named, parent=f"root {turn}", dur=0.8, **place))
        spans.append(span(f"root {turn}", {"session.id": "c"}, dur=4, **within))
        history += TURN[1:]
    return spans


def test_two_agents_that_answer_every_message_with_the_same_calls_are_no_circle(tmp_path: Path) -> None:
    verdicts = everywhere(pair(new_messages=True), tmp_path)
    assert len(verdicts) == 2 * TURNS
    assert not any(one.detections for one in verdicts)


def test_two_agents_that_go_round_in_new_traces_with_one_message_are_a_circle(tmp_path: Path) -> None:
    verdicts = everywhere(pair(new_messages=False), tmp_path)
    assert {kind for one in verdicts for kind in one.types} == {"TYPE_IV_PINGPONG"}
