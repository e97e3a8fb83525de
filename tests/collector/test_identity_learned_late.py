"""Over a network children come before their parents: what an ancestor knows joins histories when it arrives."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.collector.kit import loop, new_scorer, request, span, span_id, tool, verdicts, views
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply
from trajectory_guard_collector.scoring.items import EventKind
from trajectory_guard_collector.scoring.scorer import RequestScorer


def steps(scorer: RequestScorer) -> dict[str, int]:
    return {trajectory.key[1]: trajectory.steps for trajectory in scorer.registry if trajectory.steps}


def agent(name: str, who: str, conversation: str | None = None, **fields: Any) -> Any:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": who}
    if conversation is not None:
        attributes["gen_ai.conversation.id"] = conversation
    return span(name, attributes, dur=9.0, **fields)


def test_steps_move_to_the_conversation_that_their_parent_names() -> None:
    scorer = new_scorer()
    for one in loop(3, conversation=None, parent="agent"):
        scorer.score(request(one))
    assert len(steps(scorer)) == 1
    scorer.score(request(agent("agent", "bob", "conv")))
    assert steps(scorer) == {"conv": 3}
    assert verdicts(scorer)[span_id("s2").hex()].level is Level.NUDGE


def test_a_link_learned_late_joins_the_histories_of_two_traces() -> None:
    scorer = new_scorer()
    for at, one in enumerate(loop(4, conversation=None)):
        trace = "first" if at < 2 else "second"
        one.trace_id = span(f"x{at}", {}, trace=trace).trace_id
        scorer.score(request(one))
    assert sorted(steps(scorer).values()) == [2, 2]
    assert {verdict.level for verdict in verdicts(scorer).values()} == {Level.OBSERVE}
    for trace in ("first", "second"):
        scorer.score(request(span(f"root-{trace}", {"session.id": "conv"}, trace=trace)))
    assert steps(scorer) == {"conv": 4}
    assert [verdicts(scorer)[span_id(f"s{at}").hex()].level for at in range(4)] == [
        "OBSERVE",
        "OBSERVE",
        "NUDGE",
        "NUDGE",
    ]


def test_the_name_of_an_agent_that_arrives_late_changes_the_verdict() -> None:
    """Two agents that make the same call twice each, one after the other, do not repeat themselves four times."""
    scorer = new_scorer()
    for at in range(4):
        scorer.score(request(tool(f"s{at}", parent=f"agent{at // 2}", at=at)))
    before = verdicts(scorer)[span_id("s3").hex()]
    for at in range(2):
        scorer.score(request(agent(f"agent{at}", f"agent {at}")))
    after = verdicts(scorer)[span_id("s3").hex()]
    assert {one.step.agent_id for one in next(iter(scorer.registry)).items} == {"agent 0", "agent 1"}  # type: ignore[union-attr]
    assert after != before


@pytest.mark.parametrize("order", permutations(range(3)))
def test_ancestors_are_found_through_spans_that_say_nothing_of_agents(order: tuple[int, ...]) -> None:
    """Even if such a span is the first one of its trace."""
    scorer = new_scorer()
    middle = span("middle", {"code.function": "run"}, parent="agent")
    spans = [tool("t", conversation=None, parent="middle"), middle, agent("agent", "bob", "conv")]
    for at in order:
        scorer.score(request(spans[at]))
    assert steps(scorer) == {"conv": 1}
    assert next(iter(scorer.registry)).agents == ("bob",)


def test_a_tool_span_inside_another_record_of_the_same_call_counts_once() -> None:
    scorer = new_scorer()
    for at in range(3):
        inner = tool(f"inner{at}", parent=f"outer{at}", at=at + 0.1, dur=0.1, extra={"gen_ai.tool.call.id": ""})
        scorer.score(request(inner))
        scorer.score(request(tool(f"outer{at}", at=at)))
    assert steps(scorer) == {"c": 3}


def test_a_tool_whose_agent_calls_the_same_tool_is_no_second_report() -> None:
    """A researcher that delegates parts of its question to a researcher below it."""
    scorer = new_scorer()
    named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "below"}
    below = span("below", named, parent="outer", at=0.5, dur=40.0)
    inner = [
        tool(f"inner{at}", {"q": f"part {at}"}, f"part {at}", tool_name="research", parent="below", at=1.0 + at)
        for at in range(3)
    ]
    spans = [*inner, below, tool("outer", {"q": "all"}, tool_name="research", dur=50.0)]
    for one in spans:
        scorer.score(request(one))
    assert steps(scorer) == {"c": 4}
    assert len(extract_steps(views(request(*spans)))) == 4


def test_ping_pong_between_two_services_with_separate_traces_is_found() -> None:
    """Whether the next trace is a new question is not known: there is advice, and no stop."""
    scorer = new_scorer()
    for at in range(12):
        service = ("planner", "critic")[at % 2]
        one = tool(
            f"s{at}", {"plan": 1}, "revise it", tool_name=f"ask_{service}", conversation=None, trace=f"{service}-{at}",
            parent=f"agent{at}", at=at,
        )  # fmt: skip
        scorer.score(request(one, service=service))
        above = {"session.id": "shared", "agent.name": service}
        scorer.score(request(span(f"agent{at}", above, trace=f"{service}-{at}"), service=service))
    assert steps(scorer) == {"shared": 12}
    trajectory = next(iter(scorer.registry))
    assert set(trajectory.services) == {"planner", "critic"}
    assert trajectory.current.last is not None
    assert "TYPE_IV_PINGPONG" in trajectory.current.last.types
    assert trajectory.current.nudge is not None
    assert trajectory.current.stop is None


def test_equal_ids_in_two_environments_are_two_trajectories() -> None:
    scorer = new_scorer()
    for at, one in enumerate(loop(4)):
        scorer.score(request(one, resource={"deployment.environment.name": ("dev", "prod")[at % 2]}))
    assert [trajectory.steps for trajectory in scorer.registry] == [2, 2]


def test_services_that_count_their_own_conversations_can_be_kept_apart() -> None:
    scorer = new_scorer(separate_by=("service.name",))
    for at, one in enumerate(loop(4)):
        scorer.score(request(one, service=f"app{at % 2}"))
    assert [trajectory.steps for trajectory in scorer.registry] == [2, 2]


def test_a_trace_around_several_conversations_names_none() -> None:
    scorer = new_scorer()
    scorer.score(
        request(tool("a", conversation="one"), tool("b", conversation="two"), tool("n", {"z": 1}, conversation=None))
    )
    assert set(steps(scorer)) == {"one", "two", tool("n").trace_id.hex()}


def test_a_trajectory_is_found_by_the_names_it_goes_by() -> None:
    scorer = new_scorer()
    one = tool("t", conversation="conv", extra={"session.id": "session"})
    scorer.score(request(one))
    found = scorer.registry.find("conv")
    assert found is not None
    assert scorer.registry.find(one.trace_id.hex()) is found
    assert scorer.registry.find("session") is found
    assert scorer.registry.find("unknown") is None


def test_events_of_the_trace_are_reported_again_under_the_conversation() -> None:
    """Once more for those who write it down by conversation, as Langfuse's sessions; it is counted once."""
    scorer = new_scorer()
    first = [events for one in loop(3, conversation=None) for events in scorer.score(request(one)).events]
    late = scorer.score(request(span("root", {"session.id": "conv"}))).events
    assert [(events.kind, events.renamed) for events in first] == [("start", False), ("nudge", False)]
    assert [(events.kind, events.renamed, events.verdict.trajectory_id) for events in late] == [
        ("start", True, "conv"),
        ("nudge", True, "conv"),
    ]
    labels = {
        "service_name": "app", "gen_ai_agent_name": "", "gen_ai_tool_name": "search",
        "trajectory_guard_intervention": "NUDGE", "trajectory_guard_loop_type": "TYPE_I_STUTTER", "trajectory_guard_loop_certainty": "certain",
    }  # fmt: skip
    assert scorer.metrics.registry.get_sample_value("trajectory_guard_interventions_total", labels) == 1
    episodes = {key: value for key, value in labels.items() if key != "trajectory_guard_intervention"}
    episodes["trajectory_guard_loop_certainty"] = "likely"  # that of the first repeat
    assert scorer.metrics.registry.get_sample_value("trajectory_guard_episodes_total", episodes) == 1
    for certainty in ("likely", "certain"):
        labels = {"service_name": "app", "trajectory_guard_loop_certainty": certainty}
        assert scorer.metrics.registry.get_sample_value("trajectory_guard_loop_steps_total", labels) == 1


# --- what a client has acted on before the conversation was known ---------------------------------------------


def fresh(count: int, start: int = 0, **fields: Any) -> list[Any]:
    return [tool(f"f{at}", {"q": at}, f"answer {at}", at=at, **fields) for at in range(start, start + count)]


def asked(scorer: RequestScorer, name: str, after: int | None = None) -> dict[str, Any]:
    found = scorer.registry.find(name)
    return flag_reply(
        name, FlagState.of(found) if found is not None else None, after, None, mode="enforce", max_score=5.0
    )


def root(conversation: str = "conv") -> Any:
    return agent("root", "bob", conversation, at=500.0, parent="request")


def sibling(conversation: str = "conv") -> Any:
    return span("chat", {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": conversation}, at=95.0)


@pytest.mark.parametrize(
    "names_it", [root, sibling], ids=["the agent span that ends last", "another span of the trace"]
)
def test_a_long_run_keeps_its_ordinals_when_its_conversation_becomes_known(names_it: Any) -> None:
    scorer = new_scorer(reorder_steps=8)
    where = {"conversation": None, "parent": "root"}
    scorer.score(request(*fresh(90, **where)))
    for one in loop(3, start=90, **where):
        scorer.score(request(one))
    trace = span("x", {}).trace_id.hex()
    nudge = asked(scorer, trace, -1)
    assert (nudge["level"], nudge["step"], nudge["steps"]) == ("NUDGE", 92, 93)
    scorer.score(request(names_it()))
    assert steps(scorer) == {"conv": 93}
    assert asked(scorer, trace, nudge["step"])["level"] == "OBSERVE"
    for one in loop(4, prefix="more", start=96, **where):
        scorer.score(request(one))
    stop = asked(scorer, trace, nudge["step"])
    assert (stop["trajectory_id"], stop["level"], stop["steps"]) == ("conv", "STOP", 97)


def test_a_run_that_has_rested_keeps_its_ordinals_too() -> None:
    """Ten minutes inside one tool: no single step is left to be moved."""
    now = [0.0]
    scorer = new_scorer(clock=lambda: now[0])
    for one in loop(3, conversation=None):
        scorer.score(request(one))
    now[0] = 600.0
    scorer.maintain()
    scorer.score(request(span("root", {"session.id": "conv"}, at=500.0)))
    for one in loop(3, prefix="more", start=600, conversation=None):
        scorer.score(request(one))
    assert steps(scorer) == {"conv": 6}


def test_nudges_published_under_the_trace_are_counted_once() -> None:
    scorer = new_scorer(reorder_steps=8)
    first = [one for each in loop(60, conversation=None) for one in scorer.score(request(each)).events]
    late = scorer.score(request(span("root", {"session.id": "conv"}))).events
    assert [one.kind for one in first if not one.renamed].count(EventKind.STOP) == 1
    assert [one for one in late if not one.renamed] == []
    assert steps(scorer) == {"conv": 60}


def test_a_flag_by_hand_outlives_the_name_of_the_trace() -> None:
    scorer = new_scorer()
    scorer.score(request(*fresh(3, conversation=None)))
    trace = span("x", {}).trace_id.hex()
    found = scorer.registry.find(trace)
    assert found is not None
    scorer.registry.raise_flag(found, HandFlag.of("STOP", "the customer has cancelled", "ann"))
    scorer.score(request(span("root", {"session.id": "conv"})))
    answer = asked(scorer, trace)
    assert (answer["trajectory_id"], answer["level"], answer["by_hand"]["ordinal"]) == ("conv", "STOP", 1)


def test_a_trace_around_several_conversations_keeps_its_own_steps() -> None:
    scorer = new_scorer(reorder_steps=8)
    scorer.score(request(tool("a", conversation="one"), tool("b", conversation="two")))
    scorer.score(request(*fresh(90, conversation=None)))
    scorer.score(request(tool("c", conversation="three", at=100)))
    assert steps(scorer) == {"one": 1, "two": 1, "three": 1, span("x", {}).trace_id.hex(): 90}


def test_a_client_ahead_of_ordinals_that_began_again_gets_the_verdict_that_stands() -> None:
    """The collector restarted without storage, or the conversation has a history of its own."""
    scorer = new_scorer()
    for one in loop(6):
        scorer.score(request(one))
    assert [asked(scorer, "c", after)["level"] for after in (902, 6, 5, 4)] == ["NUDGE", "NUDGE", "OBSERVE", "STOP"]
