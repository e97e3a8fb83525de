"""Whose flag an agent gets that asks over HTTP: not that of an earlier request, and not that of another agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.collector.kit import loop, new_scorer, request, span, tool
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.state.codec import current_of, plain_current

AGENT = {"gen_ai.operation.name": "invoke_agent"}


def level(scorer: RequestScorer, after: int | None = None, agent: str | None = None) -> str:
    found = scorer.registry.find("c")
    state = FlagState.of(found) if found is not None else None
    return str(flag_reply("c", state, after, None, mode="enforce", max_score=5.0, agent=agent)["level"])


def scored(*spans: Any) -> RequestScorer:
    scorer = new_scorer()
    for one in spans:
        scorer.score(request(one))
    return scorer


def said(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


FIRST = [said("user", type="text", content="Where is my parcel?")]
SECOND = [
    *FIRST,
    said("assistant", type="tool_call", id="1", name="search", arguments={"q": 1}),
    said("tool", type="tool_call_response", id="1", response="closed"),
    said("assistant", type="text", content="I could not find it."),
    said("user", type="text", content="Never mind. List my orders."),
]


def answered(name: str, messages: list[Any], at: float, **fields: Any) -> Any:
    """A model call that shows the conversation so far."""
    shown = {"gen_ai.conversation.id": "c", "gen_ai.input.messages": json.dumps(messages)}
    return span(name, {"gen_ai.operation.name": "chat", **shown}, at=at, **fields)


def works(count: int, start: float, **fields: Any) -> list[Any]:
    return [
        tool(f"w{at}", {"q": f"order {at}"}, f"order {at} has left", at=start + at, **fields) for at in range(count)
    ]


def root(name: str, trace: str, **fields: Any) -> Any:
    return span(name, {**AGENT, "gen_ai.conversation.id": "c"}, trace=trace, at=0.0, dur=90.0, **fields)


@pytest.mark.parametrize("after", [None, -1, 2])
def test_what_became_due_in_a_request_that_is_over_concerns_no_later_one(after: int | None) -> None:
    scorer = scored(*loop(9, trace="first", parent="root"))
    assert level(scorer, after) != "OBSERVE"
    scorer.score(request(root("root", "first")))
    assert level(scorer, after) == "OBSERVE"
    for one in loop(5, prefix="again", start=100.0, trace="second"):  # and the next request has flags of its own
        scorer.score(request(one))
    assert level(scorer, -1) == "NUDGE"
    assert level(scorer) == "STOP"


def test_a_root_span_without_an_agent_ends_the_request_as_well() -> None:
    scorer = scored(*loop(9, trace="first", parent="root"), span("root", {"http.route": "/chat"}, trace="first"))
    assert level(scorer) == "OBSERVE"


@pytest.mark.parametrize("kind", ["tool", "model"])
def test_calls_that_are_roots_themselves_end_no_request(kind: str) -> None:
    model = span("chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, trace="s4", at=4.5)
    spans = [tool(f"s{at}", trace=f"s{at}", at=float(at)) for at in range(9)]
    assert level(scored(*spans, *([model] if kind == "model" else []))) == "NUDGE"


@pytest.mark.parametrize("after", [None, -1, 2])
def test_the_next_question_is_another_request_though_the_root_of_the_one_before_is_late(after: int | None) -> None:
    scorer = scored(answered("q1", FIRST, 0.0, trace="first"), *loop(9, start=1.0, trace="first"))
    assert level(scorer, after) != "OBSERVE"
    for one in (answered("q2", SECOND, 20.0, trace="second"), *works(1, 21.0, trace="second")):
        scorer.score(request(one))
    assert level(scorer, after) == "OBSERVE"


def test_an_agent_that_names_itself_gets_its_own_flag_alone() -> None:
    def of(agent: str, spans: list[Any], trace: str) -> list[Any]:
        above = span(agent, {**AGENT, "gen_ai.agent.name": agent}, trace=trace, parent="request", dur=90.0)
        return [above, *spans]

    stuck = of("watcher", loop(9, trace="t", parent="watcher"), "t")
    scorer = scored(*stuck, *of("clerk", works(9, 20.0, trace="t", parent="clerk"), "t"))
    assert [level(scorer, -1, name) for name in ("watcher", "clerk", "nobody")] == ["NUDGE", "OBSERVE", "OBSERVE"]
    assert level(scorer) == "OBSERVE"  # the clerk acted last
    scorer.score(request(loop(1, prefix="more", start=40.0, trace="t", parent="watcher")[0]))
    assert level(scorer) == "STOP"
    found = scorer.registry.find("c")
    assert found is not None
    plain = plain_current(found.current)
    assert plain_current(current_of(json.loads(json.dumps(plain)))) == json.loads(json.dumps(plain))


def test_a_loop_through_several_traces_goes_on_although_each_of_them_has_ended() -> None:
    """Two services hand the same draft back and forth, each in traces of its own."""
    scorer, levels = new_scorer(), []
    for at in range(14):
        agent = ("writer", "critic")[at % 2]
        call = tool(
            f"s{at}", {"draft": 1}, "Please revise.", tool_name=f"ask_{agent}", trace=f"t{at}", parent=f"r{at}", at=at
        )
        above = span(
            f"r{at}", {**AGENT, "gen_ai.agent.name": agent, "gen_ai.conversation.id": "c"}, trace=f"t{at}", at=at
        )
        scorer.score(request(call))
        scorer.score(request(above))
        levels.append(level(scorer))
    assert levels[0] == "OBSERVE"
    assert levels[-1] == "STOP"
