"""``on_stop="interrupt"``: a person decides about a run that would be stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from tests.helpers import REPLACES_CODE
from trajectory_guard import AgentState, apply_guard
from trajectory_guard.core import state

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    agent_builder,
    async_context,
    calls,
    closing,
    new_board,
    nudges,
    obeys,
    outline,
    repeats,
    thread,
    works,
)

ASKED = NUDGED_THEN_STOPPED[:-1]
"""The run as it stands when the person is asked."""


def _asked(policy: Any = None) -> tuple[Any, dict[str, Any]]:
    builder = apply_guard(agent_builder(policy or repeats(12)), on_stop="interrupt", board=new_board())
    graph = builder.compile(checkpointer=InMemorySaver())
    return graph, graph.invoke(TASK, thread())


def test_the_run_waits_and_the_person_is_shown_the_payload() -> None:
    graph, result = _asked()

    (asked,) = result["__interrupt__"]
    assert outline(result["messages"]) == ASKED
    assert asked.value["status"] == "guardrail_triggered"
    assert asked.value["steps_taken"] == STOP_AT
    assert asked.value["similar_actions"] == ['search({"query": "return policy"})'] * STOP_AT
    assert graph.get_state(thread()).next == ("agent",)


@pytest.mark.parametrize("answer", [True, "continue"])
def test_going_on_clears_the_suspicion(answer: Any) -> None:
    """Three more calls pass before the next nudge, and two more before the person is asked again."""
    graph, _ = _asked()

    result = graph.invoke(Command(resume=answer), thread())

    assert outline(result["messages"]) == ASKED + "atatatNatat"
    assert "__interrupt__" in result


def test_a_run_that_goes_on_and_gets_somewhere_is_left_alone() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        done = sum(message.type == "tool" for message in messages)
        if done < STOP_AT:
            return calls(messages, ("search", {"query": "x"}))
        return works(STOP_AT + 4)(messages, turn)

    graph, _ = _asked(policy)

    result = graph.invoke(Command(resume=True), thread())

    assert outline(result["messages"]) == ASKED + "at" * 4 + "a"
    assert graph.get_state(thread()).values["loop_status"]["status"] == "ok"


def test_text_is_handed_to_the_agent_and_clears_the_suspicion() -> None:
    graph, _ = _asked()

    result = graph.invoke(Command(resume="The policy is in the FAQ."), thread())

    assert outline(result["messages"]) == ASKED + "NatatatNatat"
    assert nudges(result["messages"])[1].content == "The policy is in the FAQ."


@pytest.mark.parametrize("answer", [False, "stop"])
def test_stopping_ends_the_run_with_the_closing_message(answer: Any) -> None:
    graph, _ = _asked()

    result = graph.invoke(Command(resume=answer), thread())

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert len(closing(result["messages"])) == 1
    state = graph.get_state(thread())
    assert state.next == ()
    assert state.values["loop_status"]["status"] == "stopped"


@async_context
async def test_asking_works_under_ainvoke() -> None:
    builder = apply_guard(agent_builder(repeats()), on_stop="interrupt", board=new_board())
    graph = builder.compile(checkpointer=InMemorySaver())

    asked = await graph.ainvoke(TASK, thread())
    ended = await graph.ainvoke(Command(resume=False), thread())

    assert "__interrupt__" in asked
    assert outline(ended["messages"]) == NUDGED_THEN_STOPPED


# Found: the step at which a person was asked was missing from the scratchpad, as the gate runs twice there.
@pytest.mark.parametrize("answer", [True, "Try the FAQ.", False])
def test_every_call_is_in_the_scratchpad_once_though_the_gate_ran_twice(answer: Any) -> None:
    graph, _ = _asked(repeats(STOP_AT))

    graph.invoke(Command(resume=answer), thread())

    state = graph.get_state(thread()).values
    called = [message.tool_call_id for message in state["messages"] if message.type == "tool"]
    assert [entry["call_id"] for entry in state["trajectory_scratchpad"]] == called
    assert len({entry["step_id"] for entry in state["trajectory_scratchpad"]}) == len(called)
    assert state["loop_status"]["steps_taken"] == STOP_AT


# Found: in this mode the flag of a nudge stayed up, and the agent was nudged again after every later call.
def test_an_agent_that_recovers_is_nudged_once() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        if not nudges(messages):
            return calls(messages, ("search", {"query": "x"}))
        return works(8)(messages, turn)

    _, result = _asked(policy)

    assert outline(result["messages"]) == "hatatatN" + "at" * 5 + "a"


# Found: the answer went unheard if an upgrade came between question and answer, and the agent went on for four rounds.
@REPLACES_CODE
@pytest.mark.parametrize("answer", ["stop", "Ask the warehouse."])
def test_an_answer_is_heard_by_a_version_that_cannot_read_the_state(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = InMemorySaver()
    with monkeypatch.context() as other_version:
        other_version.setattr(state, "FORMAT_VERSION", state.FORMAT_VERSION - 1)
        _asking(saver).invoke(TASK, thread())

    result = _asking(saver).invoke(Command(resume=answer), thread())

    if answer == "stop":
        assert outline(result["messages"]) == NUDGED_THEN_STOPPED
        assert len(result["trajectory_scratchpad"]) == STOP_AT
    else:
        assert answer in [message.content for message in result["messages"]]


def _asking(saver: InMemorySaver) -> Any:
    """A graph as after the start of a process."""
    builder = agent_builder(repeats(12), state=AgentState)
    return apply_guard(builder, on_stop="interrupt", board=new_board()).compile(checkpointer=saver)


def test_an_agent_that_listens_is_never_asked_about() -> None:
    graph, result = _asked(obeys)

    assert outline(result["messages"]) == NUDGED_THEN_FINISHED
    assert graph.get_state(thread()).next == ()


def test_without_a_checkpointer_the_run_ends() -> None:
    graph = apply_guard(agent_builder(repeats()), on_stop="interrupt", board=new_board()).compile()

    for result in (graph.invoke(TASK), asyncio.run(graph.ainvoke(TASK))):
        assert outline(result["messages"]) == NUDGED_THEN_STOPPED
        assert "__interrupt__" not in result


def test_a_new_message_instead_of_an_answer_starts_a_new_turn() -> None:
    graph, _ = _asked()

    result = graph.invoke({"messages": [("user", "Never mind. What are your opening hours?")]}, thread())

    assert outline(result["messages"]).startswith(ASKED + "hat")


def test_asking_inside_a_sub_graph_goes_on_inside_it() -> None:
    inner = apply_guard(agent_builder(repeats(STOP_AT)), on_stop="interrupt", board=new_board()).compile()
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    outer.add_node("research", inner)
    outer.add_edge(START, "research")
    graph = outer.compile(checkpointer=InMemorySaver())

    asked = graph.invoke(TASK, thread())
    ended = graph.invoke(Command(resume=True), thread())

    assert "__interrupt__" in asked
    assert outline(ended["messages"]) == ASKED + "a"
