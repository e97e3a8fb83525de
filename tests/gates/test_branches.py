"""A checkpoint that is resumed several times: time travel, "regenerate", edited questions. Each branch has its own past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.gates.agents import (
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    calls,
    lookup,
    new_board,
    nudges,
    outline,
    repeats,
    rounds,
    search,
    thread,
)
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.langgraph import apply_guard
from trajectory_guard.gates.messages import is_guard_message

Make = Callable[[Policy, FlagBoard], Any]


def middleware_agent(policy: Policy, board: FlagBoard) -> Any:
    model, middleware = ScriptedChatModel(policy=policy), [TrajectoryGuardMiddleware(board=board)]
    return create_agent(model, [search, lookup], middleware=middleware, checkpointer=InMemorySaver())


def built_agent(policy: Policy, board: FlagBoard) -> Any:
    return apply_guard(agent_builder(policy), board=board).compile(checkpointer=InMemorySaver())


surfaces = pytest.mark.parametrize("make", [middleware_agent, built_agent])
spans = pytest.mark.parametrize("with_spans", [False, True], ids=["messages", "spans"])


def before_model(agent: Any, number: int) -> Any:
    """The configuration of the newest checkpoint before a model call that has ``number`` messages to go on."""
    return next(
        one.config
        for one in agent.get_state_history(thread())
        if len(one.values["messages"]) == number and one.next in (("model",), ("agent",))
    )


def stand(out: Any) -> tuple[str, int, int]:
    """Status, steps taken, and tool calls among the messages."""
    status = out["loop_status"]
    return status["status"], status["steps_taken"], sum(one.type == "tool" for one in out["messages"])


def state_of(agent: Any) -> Any:
    return agent.get_state(thread()).values


@surfaces
@spans
@pytest.mark.parametrize("messages", [1, 3])
def test_regenerating_an_answer_adds_nothing_up(
    make: Make, with_spans: bool, messages: int, run: Any, traced: Any
) -> None:
    board = traced() if with_spans else new_board()
    agent = make(repeats(2), board)
    run(agent, TASK, thread())
    early = before_model(agent, messages)
    for _ in range(3):  # two equal calls each: added up, they would be beyond the stop
        run(agent, None, early)
        assert stand(state_of(agent)) == ("ok", 2, 2)
        assert nudges(state_of(agent)["messages"]) == []


@surfaces
@spans
def test_a_loop_within_a_branch_is_stopped_as_in_the_first_one(make: Make, with_spans: bool, traced: Any) -> None:
    board = traced() if with_spans else new_board()
    agent = make(repeats(), board)
    agent.invoke(TASK, thread())
    early = before_model(agent, 1)
    for _ in range(3):
        agent.invoke(None, early)
        assert stand(state_of(agent)) == ("stopped", STOP_AT, STOP_AT)


@surfaces
def test_a_branch_that_leaves_a_loop_goes_on_from_the_nudge_it_was_given(make: Make) -> None:
    """The past of the branch holds the nudge: the loop is stopped where it was stopped, no later."""
    agent = make(repeats(), new_board())
    agent.invoke(TASK, thread())
    nudged = next(at for at, one in enumerate(state_of(agent)["messages"]) if one in nudges([one]))
    early = before_model(agent, nudged + 3)
    for _ in range(2):
        agent.invoke(None, early)
        assert stand(state_of(agent)) == ("stopped", STOP_AT, STOP_AT)


@surfaces
@pytest.mark.parametrize("way", ["messages", "spans", "another process"])
def test_the_checkpoint_right_before_a_stop_is_stopped_each_time(make: Make, way: str, traced: Any) -> None:
    agent = make(repeats(), traced() if way == "spans" else new_board())
    agent.invoke(TASK, thread())
    assert stand(state_of(agent)) == ("stopped", STOP_AT, STOP_AT)
    before = next(
        one.config
        for one in agent.get_state_history(thread())
        if one.values["messages"][-1].type == "tool" and one.next in (("model",), ("agent",))
    )
    if way == "another process":
        saver, agent = agent.checkpointer, make(repeats(), new_board())
        agent.checkpointer = saver
    for _ in range(4):
        out = agent.invoke(None, before)
        assert stand(out if "loop_status" in out else state_of(agent)) == ("stopped", STOP_AT, STOP_AT)


@surfaces
def test_the_checkpoint_right_before_a_nudge_is_nudged_each_time(make: Make) -> None:
    agent = make(repeats(), new_board())
    agent.invoke(TASK, thread())
    before = before_model(agent, 7)
    for _ in range(4):
        agent.invoke(None, before)
        assert outline(state_of(agent)["messages"]) == NUDGED_THEN_STOPPED


@surfaces
def test_a_new_question_after_a_stop_begins_without_an_episode(make: Make) -> None:
    agent = make(repeats(2), new_board())
    looping = make(repeats(), new_board())
    looping.invoke(TASK, thread())
    agent.checkpointer = looping.checkpointer
    agent.invoke({"messages": [("user", "And for shoes?")]}, thread())
    assert outline(state_of(agent)["messages"]) == NUDGED_THEN_STOPPED + "hatata"


@surfaces
@spans
def test_an_edited_question_begins_anew(make: Make, with_spans: bool, traced: Any) -> None:
    board = traced() if with_spans else new_board()
    agent = make(repeats(2), board)
    agent.invoke(TASK, thread())
    early = before_model(agent, 1)
    for again in range(4):
        asked = state_of(agent)["messages"][0].model_copy(update={"content": f"Return policy? {again}"})
        agent.invoke(None, agent.update_state(early, {"messages": [asked]}))
        assert stand(state_of(agent)) == ("ok", 2, 2)


@surfaces
@spans
def test_back_to_an_earlier_user_turn_and_forth(make: Make, with_spans: bool, traced: Any) -> None:
    board = traced() if with_spans else new_board()
    agent = make(repeats(2), board)
    agent.invoke(TASK, thread())
    end = agent.get_state(thread()).config
    agent.invoke({"messages": [("user", "And for shoes?")]}, thread())
    assert stand(state_of(agent)) == ("ok", 4, 4)
    early = before_model(agent, 3)
    for _ in range(3):
        agent.invoke(None, early)
        assert stand(state_of(agent)) == ("ok", 2, 2)
        agent.invoke({"messages": [("user", "And for hats?")]}, end)
        assert stand(state_of(agent)) == ("ok", 4, 4)


@surfaces
@spans
def test_the_tool_node_replayed(make: Make, with_spans: bool, traced: Any) -> None:
    board = traced() if with_spans else new_board()
    agent = make(repeats(2), board)
    agent.invoke(TASK, thread())
    early = next(one.config for one in agent.get_state_history(thread()) if len(one.values["messages"]) == 2)
    for _ in range(4):
        agent.invoke(None, early)
        assert stand(state_of(agent)) == ("ok", 2, 2)


@surfaces
def test_two_branches_that_take_turns(make: Make) -> None:
    """Two windows on one thread: each branch is stopped by its own calls, and by no other's."""
    agent = make(repeats(), new_board())
    agent.invoke(TASK, thread(), interrupt_before=["tools"])
    first = second = agent.get_state(thread()).config
    for _ in range(2):
        for _ in range(2):
            agent.invoke(None, first, interrupt_before=["tools"])
        first = agent.get_state(thread()).config
        for _ in range(2):
            agent.invoke(None, second, interrupt_before=["tools"])
        second = agent.get_state(thread()).config
    assert stand(state_of(agent))[2] <= STOP_AT


@pytest.mark.parametrize("times", [2, 8])
def test_an_agent_in_a_sub_graph_that_is_entered_again(times: int) -> None:
    """Each time it is a new agent instance: no branch repeats another one's calls."""
    board = new_board()
    inner = create_agent(
        ScriptedChatModel(policy=repeats(times)), [search], middleware=[TrajectoryGuardMiddleware(board=board)]
    )
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(TASK, thread())
    early = next(one.config for one in graph.get_state_history(thread()) if one.next == ("inner",))
    for _ in range(4):
        graph.invoke(None, early)
        messages = state_of(graph)["messages"]
        assert sum(one.type == "tool" for one in messages) == min(times, STOP_AT)
        assert len(nudges(messages)) == (times > 2)


def _stateful(policy: Policy, board: FlagBoard, way: str) -> Any:
    """A parent of an agent whose sub-graph keeps its own state, so that its name contains no task."""
    middleware = [TrajectoryGuardMiddleware(board=board)] if way == "middleware" else []
    model = ScriptedChatModel(policy=policy)
    inner = create_agent(model, [search, lookup], middleware=middleware, checkpointer=True)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    builder = apply_guard(builder, board=board) if way == "apply_guard" else builder
    return builder.compile(checkpointer=InMemorySaver())


# Older versions of LangGraph may not take such a sub-graph back to the checkpoint.
# Found: the calls of each replay were added to those of the one before, and a healthy agent was nudged and stopped.
@pytest.mark.newest
@pytest.mark.parametrize("way", ["apply_guard", "middleware"])
@spans
def test_an_agent_with_a_state_of_its_own_is_replayed(way: str, with_spans: bool, traced: Any) -> None:
    def works(messages: Any, turn: int) -> AIMessage:
        done = rounds(messages)
        return AIMessage("Done.") if done == 4 else calls(messages, ("lookup", {"key": f"item {done}"}))

    agent = _stateful(works, traced() if with_spans else new_board(), way)
    agent.invoke(TASK, thread())
    before = next(one.config for one in agent.get_state_history(thread()) if one.next == ("inner",))

    for _ in range(5):
        assert outline(agent.invoke(None, before)["messages"]) == "hatatatata"


@pytest.mark.newest
@pytest.mark.parametrize("way", ["apply_guard", "middleware"])
def test_a_loop_of_an_agent_with_a_state_of_its_own_is_stopped_in_each_turn_and_branch(way: str) -> None:
    agent = _stateful(repeats(), new_board(), way)

    assert outline(agent.invoke(TASK, thread())["messages"]) == NUDGED_THEN_STOPPED
    before = next(one.config for one in agent.get_state_history(thread()) if one.next == ("inner",))
    for _ in range(3):
        assert outline(agent.invoke(None, before)["messages"]) == NUDGED_THEN_STOPPED
    again = agent.invoke({"messages": [("user", "And now?")]}, thread())
    assert outline(again["messages"]) == 2 * NUDGED_THEN_STOPPED


def test_a_trimmed_history_is_no_branch() -> None:
    """Only the newest messages stay in the state: the loop is stopped all the same."""
    board = new_board()
    model = agent_node(lambda messages, turn: calls(messages, ("search", {"query": "x"})))
    number = 0

    def trimming(state: MessagesState) -> dict[str, Any]:
        nonlocal number
        number += 1
        written = model(state)["messages"][0]
        for place, call in enumerate(written.tool_calls):
            call["id"] = f"call_{number}_{place}"
        old = [RemoveMessage(id=str(one.id)) for one in state["messages"][1:] if not is_guard_message(one)]
        return {"messages": [*old, written]}

    builder = agent_builder(repeats())
    builder.nodes.pop("agent")
    builder.add_node("agent", trimming)
    agent = apply_guard(builder, board=board).compile(checkpointer=InMemorySaver())
    agent.invoke(TASK, thread(recursion_limit=60))
    assert state_of(agent)["loop_status"]["status"] == "stopped"
    assert number == STOP_AT


def test_a_server_that_keeps_no_state_and_sends_the_history_each_time() -> None:
    board = new_board()
    agent = apply_guard(agent_builder(repeats(2)), board=board).compile()
    history = list(TASK["messages"])
    for turn in range(1, 4):
        out = agent.invoke({"messages": history}, thread(), output_keys=["messages", "loop_status"])
        assert out["loop_status"]["steps_taken"] == 2 * turn
        history = [*out["messages"], ("user", f"And number {turn}?")]


@pytest.mark.newest
def test_a_branch_is_healthy_though_the_first_one_was_stopped() -> None:
    """The agent repeats itself until a person goes back and edits what the tool has answered."""
    agent = middleware_agent(
        lambda messages, turn: (
            AIMessage("Found it.") if "30 days" in str(messages[-1].content) or rounds(messages) >= 8
            else calls(messages, ("search", {"query": "return policy"}))
        ),
        new_board(),
    )  # fmt: skip
    agent.invoke(TASK, thread())
    early = before_model(agent, 5)
    answer = agent.get_state(early).values["messages"][-1].model_copy(update={"content": "30 days"})
    agent.invoke(None, agent.update_state(early, {"messages": [answer]}))
    assert stand(state_of(agent)) == ("ok", 2, 2)


def test_a_tool_that_asks_again_in_a_branch() -> None:
    """Calls with ids that a provider numbers anew in every answer."""

    @tool
    def check(order: str) -> str:
        """Check an order."""
        return "no news"

    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages) >= 2:
            return AIMessage("Done.")
        call = {"name": "check", "args": {"order": "7"}, "id": f"call_{rounds(messages)}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call])

    middleware = [TrajectoryGuardMiddleware(board=new_board())]
    agent = create_agent(ScriptedChatModel(policy=policy), [check], middleware=middleware, checkpointer=InMemorySaver())
    agent.invoke(TASK, thread())
    early = before_model(agent, 1)
    for _ in range(5):
        agent.invoke(None, early)
        assert stand(state_of(agent)) == ("ok", 2, 2)
