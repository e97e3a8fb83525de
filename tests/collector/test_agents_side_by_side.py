"""Agents that work side by side: a loop of one is found while it lives, though its own span arrives last of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.collector.kit import HOURS, comparable, new_scorer, request, score_all, span, span_id, tool, verdicts
from trajectory_guard.core.policy import Level
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply
from trajectory_guard_collector.scoring.item_codec import dialects_by_name
from trajectory_guard_collector.scoring.items import EventKind
from trajectory_guard_collector.scoring.lanes import Lanes
from trajectory_guard_collector.scoring.operations import Operation, OperationLog, apply
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.state.codec import dump, load

ROUNDS = 8


def call(who: int, at: int, *, parent: str, trace: str = "trace", named: bool = False, **fields: Any) -> Any:
    """A call of agent 0, which repeats itself, or of one of the others, which do not."""
    args, result = ({"q": "same"}, HOURS) if who == 0 else ({"q": f"{who} {at}"}, f"answer {at} for {who}")
    extra = {"gen_ai.agent.name": f"r{who}"} if named else {}
    when = {"at": 2.0 * at + 0.3 * who, "dur": 0.1, **fields}
    return tool(f"{trace} {who} {at}", args, result, parent=parent, trace=trace, extra=extra, **when)


def agent(who: int, *, trace: str = "trace", parent: str = "boss") -> Any:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": f"r{who}"}
    return span(f"agent{who}", attributes, trace=trace, parent=parent, dur=100.0)


def side_by_side(agents: int, *, separate: bool, named: bool) -> tuple[list[Any], list[Any]]:
    """The calls in the order in which they end, and the spans above them."""
    traces = [f"trace{who}" if separate else "trace" for who in range(agents)]
    calls = [
        call(who, at, parent=f"agent{who}", trace=traces[who], named=named)
        for at in range(ROUNDS)
        for who in range(agents)
    ]
    above = [agent(who, trace=traces[who], parent="" if separate else "boss") for who in range(agents)]
    boss = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "boss"}
    return calls, above if separate else [*above, span("boss", boss, dur=101.0)]


def delivered(spans: list[Any], scorer: RequestScorer | None = None) -> tuple[RequestScorer, list[tuple[Any, str]]]:
    """A scorer that has had each span in a request of its own, and the events in order, with the steps they are of."""
    scorer = scorer or new_scorer()
    events = [(event.kind, event.verdict.step_id) for one in spans for event in scorer.score(request(one)).events]
    return scorer, [event for event in events if event[0] is not EventKind.START]


def due(trace: str, nudge: int, stop: int) -> list[tuple[Any, str]]:
    return [
        (EventKind.NUDGE, span_id(f"{trace} 0 {nudge}").hex()),
        (EventKind.STOP, span_id(f"{trace} 0 {stop}").hex()),
    ]


@pytest.mark.parametrize("named", [False, True], ids=["", "calls name their agent"])
@pytest.mark.parametrize("separate", [False, True], ids=["one trace", "a trace each"])
@pytest.mark.parametrize("agents", [2, 4])
def test_a_loop_is_found_as_early_whether_the_agents_arrive_first_or_last(
    agents: int, separate: bool, named: bool
) -> None:
    calls, above = side_by_side(agents, separate=separate, named=named)
    expected = due("trace0" if separate else "trace", 2, 4)
    live, events = delivered(calls)
    assert events == expected
    levels = verdicts(live)
    others = [one for one in calls if b"same" not in one.SerializeToString()]
    assert {levels[one.span_id.hex()].level for one in others} == {Level.OBSERVE}
    after, later = delivered(above, live)
    assert later == []
    first, events = delivered([*above, *calls])
    assert events == expected
    assert comparable(verdicts(after)) == comparable(verdicts(first))


def test_no_other_agent_is_given_the_nudge() -> None:
    calls, _ = side_by_side(2, separate=False, named=True)
    scorer, _ = delivered(calls)
    found = scorer.registry.find("c")
    assert found is not None
    asked: Callable[[str], Any] = lambda who: flag_reply(  # noqa: E731
        "c", FlagState.of(found), -1, None, mode="enforce", max_score=5.0, agent=who
    )
    assert (asked("r0")["level"], asked("r1")["level"]) == ("NUDGE", "OBSERVE")


def test_an_agent_that_is_joined_by_another_one_keeps_its_loop() -> None:
    alone = [call(0, at, parent="agent0") for at in range(4)]
    beside = [call(1, 3, parent="agent1"), call(0, 4, parent="agent0"), call(1, 4, parent="agent1")]
    _, events = delivered([*alone, *beside])
    assert events == due("trace", 2, 4)


@pytest.mark.parametrize("late", [0, 1], ids=["each wrapper after its call", "one call later"])
def test_a_span_around_each_call_is_no_agent(late: int) -> None:
    """Also where it arrives late: an agent that makes one call in each is one agent."""
    calls = [call(0, at, parent=f"node{at}") for at in range(ROUNDS)]
    nodes = [
        span(f"node{at}", {"code.function": "tools"}, parent="agent0", at=2.0 * at, dur=0.2) for at in range(ROUNDS)
    ]
    spans = [one for at in range(ROUNDS) for one in (calls[at], *nodes[max(0, at - late) : at - late + 1])]
    _, events = delivered(spans)
    assert events == due("trace", 2, 4)
    _, events = delivered(calls)  # nothing forwards the other spans
    assert events == due("trace", 2, 4)


def test_two_agents_with_a_span_around_each_call_are_distinguished() -> None:
    spans = []
    for at in range(ROUNDS):
        for who in range(2):
            spans.append(call(who, at, parent=f"node{who} {at}"))
            spans.append(span(f"node{who} {at}", {"code.function": "tools"}, parent=f"agent{who}", at=2.0 * at + 1.0))
    _, events = delivered(spans)
    assert events == due("trace", 2, 4)


def test_graphs_side_by_side_stay_apart_between_their_ends_and_that_of_the_request() -> None:
    """They are below one missing span then, and the trace may turn out to have a conversation."""
    scope, chain = "openinference.instrumentation.langchain", {"openinference.span.kind": "CHAIN"}
    spans = []
    for at in range(ROUNDS):
        place = {"metadata": json.dumps({"langgraph_step": at + 1})}
        for who in range(2):
            one = call(who, at, parent=f"graph{who}", conversation=None)
            one.attributes.extend(span("", place).attributes)
            spans.append(one)
    graphs = [span(f"graph{who}", chain, parent="request", dur=100.0, span_name="LangGraph") for who in range(2)]
    scorer, events = new_scorer(), []
    for one in (*spans, *graphs, span("request", {}, dur=101.0)):
        found = scorer.score(request(one, scope=scope)).events
        events += [(event.kind, event.verdict.step_id) for event in found if event.kind is not EventKind.START]
    assert events == due("trace", 2, 4)
    assert {one.run for one in verdicts(scorer).values()} == {f"^{span_id(f'graph{who}').hex()}" for who in range(2)}


def test_agents_one_after_the_other_are_one_run_until_they_are_known() -> None:
    calls = [call(who, 10 * who + at, parent=f"agent{who}") for who in range(3) for at in range(3)]
    scorer, _ = delivered(calls)
    assert {one.run for one in verdicts(scorer).values()} == {""}


def test_two_model_turns_of_one_agent_are_one_run() -> None:
    """Their spans are never forwarded; each turn calls several tools at once."""
    calls = [call(0, at, parent=f"turn{at // 2}") for at in range(ROUNDS)]
    scorer, events = delivered(calls)
    assert events == due("trace", 2, 4)
    assert {one.run for one in verdicts(scorer).values()} == {""}


def test_the_order_of_arrival_does_not_matter() -> None:
    calls, above = side_by_side(3, separate=False, named=False)
    spans = [request(one) for one in (*calls, *above)]
    assert (
        comparable(score_all(spans)) == comparable(score_all(spans[::-1])) == comparable(score_all([b"".join(spans)]))
    )


def test_agents_stay_apart_once_the_first_one_has_ended() -> None:
    calls, above = side_by_side(2, separate=False, named=False)
    more = [call(1, at, parent="agent1") for at in range(ROUNDS, ROUNDS + 3)]
    scorer, _ = delivered([*calls, above[0], *more])
    runs = {one.run for one in verdicts(scorer).values()}
    assert runs == {span_id("agent0").hex(), span_id("agent1").hex()}


def test_agents_stay_apart_when_their_steps_are_compacted() -> None:
    calls = [call(who, at, parent=f"agent{who}") for at in range(80) for who in range(1, 3)]
    scorer, _ = delivered(calls, new_scorer(reorder_steps=8))
    found = scorer.registry.find("c")
    assert found is not None
    assert found.base is not None
    assert {one.run for one in verdicts(scorer).values()} == {span_id("agent1").hex(), span_id("agent2").hex()}
    saved = dump(found, {})
    assert saved is not None
    again = new_scorer(reorder_steps=8)
    again.registry.restore(*load(saved))
    delivered([call(1, 90, parent="agent1")], again)
    assert {one.run for one in verdicts(again).values()} == {span_id("agent1").hex()}


def test_agents_stay_apart_in_saved_steps_and_in_another_process() -> None:
    calls, above = side_by_side(2, separate=False, named=False)
    scorer, _ = delivered(calls)
    found = scorer.registry.find("c")
    assert found is not None
    saved = dump(found, {}, with_steps=True)
    assert saved is not None
    again = new_scorer()
    again.registry.restore(*load(saved, dialects_by_name(DIALECTS)))
    assert comparable(verdicts(again)) == comparable(verdicts(scorer))
    log, other = OperationLog(), new_scorer()
    first = new_scorer()
    first.identifier._operations = log
    for one in (*calls, *above):
        first.score(request(one))
        for operation in log.take():
            apply(Operation.from_bytes(operation.to_bytes()), other.registry, dialects_by_name(DIALECTS))
        other.maintain()
        list(other.registry.scoring())
    delivered(above, scorer)
    assert comparable(verdicts(other)) == comparable(verdicts(scorer))


def test_the_lanes_of_a_long_trace_are_forgotten_with_its_steps() -> None:
    scorer, _ = delivered([call(1, at, parent=f"node{at}") for at in range(400)], new_scorer(reorder_steps=8))
    found = scorer.registry.find("c")
    assert found is not None
    lanes: Lanes = found._lanes
    assert len(lanes._seen) <= 2 * 40


def test_a_span_around_a_call_that_arrives_evaluates_nothing_again() -> None:
    spans = []
    for at in range(ROUNDS):
        spans += [
            call(1, at, parent=f"node{at}"),
            span(f"node{at}", {"a": json.dumps(at)}, parent="agent1", at=2.0 * at),
        ]
    scorer, _ = delivered(spans)
    assert not scorer.metrics.registry.get_sample_value("trajectory_guard_reevaluated_steps_total")
