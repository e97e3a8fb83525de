"""Threads of conversation and of execution: nobody hears what another one did."""

from __future__ import annotations

import asyncio
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    calls,
    lookup,
    new_board,
    nudges,
    obeys,
    outline,
    repeats,
    rounds,
    search,
    thread,
    works,
)

WORKING = "h" + "at" * 6 + "a"


def _as_reported(messages: Any, turn: int) -> AIMessage:
    """The task says how the agent behaves."""
    said = [message.content for message in messages if message.type == "human"]
    return {"loop": repeats(), "listen": obeys, "work": works(6)}[said[0]](messages, turn)


def _ask(how: str) -> dict[str, Any]:
    return {"messages": [("user", how)]}


EXPECTED = {"loop": NUDGED_THEN_STOPPED, "listen": NUDGED_THEN_FINISHED, "work": WORKING}


@pytest.mark.parametrize("checkpointer", [True, False], ids=["checkpointer", "no checkpointer"])
def test_eight_threads_on_one_graph_do_not_hear_each_other(checkpointer: bool) -> None:
    board = new_board()
    graph = apply_guard(agent_builder(_as_reported), board=board).compile(
        checkpointer=InMemorySaver() if checkpointer else None
    )
    jobs = [(f"user-{number}", list(EXPECTED)[number % 3]) for number in range(48)]

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda job: graph.invoke(_ask(job[1]), thread(job[0]))["messages"], jobs))

    assert [outline(run) for run in runs] == [EXPECTED[how] for _, how in jobs]
    assert board.counts["steps"] == 16 * (STOP_AT + 3 + 6)
    assert board.counts["interventions.NUDGE"] == 32
    assert board.counts["interventions.STOP"] == 16
    assert board.counts["errors.gate"] == 0


async def test_many_tasks_on_one_event_loop_do_not_hear_each_other() -> None:
    graph = apply_guard(agent_builder(_as_reported), board=new_board()).compile()
    jobs = [(f"user-{number}", list(EXPECTED)[number % 3]) for number in range(24)]

    runs = await asyncio.gather(*(graph.ainvoke(_ask(how), thread(name)) for name, how in jobs))

    assert [outline(run["messages"]) for run in runs] == [EXPECTED[how] for _, how in jobs]


def test_concurrent_runs_without_thread_ids_do_not_hear_each_other() -> None:
    """All runs use the same call ids: only the runs themselves tell them apart."""
    graph = apply_guard(agent_builder(_as_reported), board=new_board()).compile()
    jobs = list(EXPECTED) * 8

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda how: graph.invoke(_ask(how))["messages"], jobs))

    assert [outline(run) for run in runs] == [EXPECTED[how] for how in jobs]


def test_concurrent_runs_with_spans_whose_models_number_calls_alike_do_not_hear_each_other(traced: Any) -> None:
    """No thread id, and an instrumentation that leaves no current span: only the call's id leads to its spans."""
    jobs = list(EXPECTED) * 2
    all_reported = threading.Barrier(len(jobs))

    def wait(state: MessagesState) -> dict[str, Any]:
        if rounds(state["messages"]) == 1:  # before a gate has read the first call of any run
            all_reported.wait(30)
        return {}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(_as_reported))
    builder.add_node("tools", ToolNode([search, lookup]))
    builder.add_node("wait", wait)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "wait")
    builder.add_edge("wait", "agent")
    graph = apply_guard(builder, tools="wait", agent="agent", board=traced()).compile()

    with ThreadPoolExecutor(len(jobs)) as pool:
        runs = list(pool.map(lambda how: graph.invoke(_ask(how))["messages"], jobs))

    assert [outline(run) for run in runs] == [EXPECTED[how] for how in jobs]


# Found: the first request of a run was noted under the turn of the run that had begun last. Healthy runs were stopped.
@pytest.mark.parametrize("numbered_anew", [False, True], ids=["ids of their own", "equal ids"])
@pytest.mark.parametrize("kind", ["graph", "agent"])
def test_runs_of_one_thread_that_overlap_do_not_hear_each_other(kind: str, numbered_anew: bool) -> None:
    """As in a server without a checkpointer that takes the user's id for the thread id.

    All begin before the first request of any. Then each is over before the next one requests something, but the first.
    """
    asked = ["work", "work", "work", "work", "work", "loop", "listen"]
    begun = threading.Barrier(len(asked))
    first_is_on = threading.Event()
    over = [threading.Event() for _ in asked]

    def policy(messages: Any, turn: int) -> AIMessage:
        place, done = int(messages[0].content.split()[1]), rounds(messages)
        if done == 0:
            begun.wait(30)
        if (place, done) == (0, 1):
            first_is_on.set()
            assert over[-1].wait(30)
        elif place and done == 0:
            assert (over[place - 1] if place > 1 else first_is_on).wait(30)
        how = {"loop": repeats(), "listen": obeys, "work": works(6)}[asked[place]]
        said: AIMessage = how(messages, turn)
        renamed = [one if numbered_anew else {**one, "id": f"{one['id']}_of_{place}"} for one in said.tool_calls]
        return said.model_copy(update={"tool_calls": renamed, "id": f"message {len(messages)} of {place}"})

    def run(place: int) -> str:
        try:
            return outline(graph.invoke(_ask(f"{asked[place]} {place}"), thread())["messages"])
        finally:
            over[place].set()

    board = new_board()
    if kind == "graph":
        graph: Any = apply_guard(agent_builder(policy), board=board).compile()
    else:
        guard = TrajectoryGuardMiddleware(board=board)
        graph = create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=[guard])
    with ThreadPoolExecutor(len(asked)) as pool:
        runs = list(pool.map(run, range(len(asked))))

    assert runs == [EXPECTED[how] for how in asked]


# Found: two runs with the same message went back to their own past one after the other, and then decided on both.
@pytest.mark.parametrize("kind", ["graph", "agent"])
def test_parallel_runs_of_one_thread_and_one_message_do_not_hear_each_other(kind: str) -> None:
    """LangGraph writes the id of a message into the message itself: all runs that are given it are in one user turn."""

    def policy(messages: Any, turn: int) -> AIMessage:
        said: AIMessage = works(6)(messages, turn)
        return said.model_copy(update={"tool_calls": [{**one, "id": uuid.uuid4().hex} for one in said.tool_calls]})

    board, asked = new_board(), HumanMessage("What is due?")
    if kind == "graph":
        graph: Any = apply_guard(agent_builder(policy), board=board).compile()
    else:
        guard = TrajectoryGuardMiddleware(board=board)
        graph = create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=[guard])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            runs = list(pool.map(lambda _: graph.invoke({"messages": [asked]}, thread())["messages"], range(32)))
    finally:
        sys.setswitchinterval(interval)
    assert {outline(run) for run in runs} == {WORKING}


def test_one_thread_at_a_time_decides_on_a_trajectory_and_none_waits_for_ever() -> None:
    branches, order = new_board().branches, list[str]()
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with branches.deciding("thread"), branches.deciding("thread"):  # a finalizer may come in between
            entered.set()
            left.wait(0.1)
            order.append("first")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        assert entered.wait(30)
        with branches.deciding("thread"):
            order.append("second")
        done.result(30)
        entered.clear()
        stuck = pool.submit(lambda: branches.deciding("thread").__enter__())  # and never leaves
        stuck.result(30)
        with branches.deciding("thread"):
            order.append("third")
    assert order == ["first", "second", "third"]


def test_two_runs_without_thread_id_start_from_nothing() -> None:
    graph = apply_guard(agent_builder(repeats(2)), board=new_board()).compile()

    runs = [outline(graph.invoke(TASK)["messages"]) for _ in range(4)]

    assert runs == ["hatata"] * 4


@pytest.mark.parametrize(
    "name", [7, uuid.UUID(int=5), ("tenant", 3), "", 0, b"raw", 3.5, "thread/with:odd|chars", "名前"], ids=repr
)
def test_thread_ids_of_any_type(name: Any) -> None:
    board = new_board()
    graph = apply_guard(agent_builder(repeats()), board=board).compile()

    result = graph.invoke(TASK, thread(name), output_keys=["messages", "loop_status"])

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert board.counts["errors.gate"] == 0
    assert result["loop_status"]["trajectory_id"] == str(name)


def test_a_thread_id_stays_the_same_trajectory_over_runs() -> None:
    for name in (7, uuid.UUID(int=5), ("tenant", 3)):
        board = new_board()
        graph = apply_guard(agent_builder(works(2)), board=board).compile()

        graph.invoke(_ask("one"), thread(name))
        graph.invoke(_ask("two"), thread(name))

        assert len(board) == 1


# --- several turns of one conversation ---------------------------------------------------------------------------


def test_asking_the_same_in_every_user_turn_is_no_loop() -> None:
    """A person asks for the weather every morning: one call a turn, always the same answer."""
    graph = apply_guard(agent_builder(repeats(1)), board=new_board()).compile(checkpointer=InMemorySaver())

    for _ in range(8):
        result = graph.invoke(TASK, thread())

    assert nudges(result["messages"]) == []
    assert outline(result["messages"]) == "hata" * 8


def test_a_new_turn_after_a_stop_is_not_stopped_at_its_first_call() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        said = [message.content for message in messages if message.type == "human"]
        return (works(3) if "again" in said else repeats())(messages, turn)

    graph = apply_guard(agent_builder(policy), board=new_board()).compile(checkpointer=InMemorySaver())

    first = graph.invoke(_ask("go"), thread())["messages"]
    second = graph.invoke(_ask("again"), thread())["messages"]

    assert outline(first) == NUDGED_THEN_STOPPED
    assert outline(second) == NUDGED_THEN_STOPPED + "hatatata"


def test_a_loop_in_a_later_turn_is_caught() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        said = [message.content for message in messages if message.type == "human"]
        return (repeats() if "loop" in said else works(2))(messages, turn)

    graph = apply_guard(agent_builder(policy), board=new_board()).compile(checkpointer=InMemorySaver())

    graph.invoke(_ask("go"), thread())
    second = graph.invoke(_ask("loop"), thread())["messages"]

    assert outline(second) == "hatata" + NUDGED_THEN_STOPPED


def _old_loop(times: int) -> list[Any]:
    messages: list[Any] = [HumanMessage("Find it.")]
    for number in range(times):
        messages += [
            call("search", {"query": "x"}, 900 + number),
            ToolMessage("No results found", tool_call_id=f"call_{900 + number}", name="search"),
        ]
    return [*messages, AIMessage("I found nothing."), HumanMessage("Never mind. Do something else.")]


# Found: a loop of an earlier turn, from before the guard was there, stopped a healthy run at its first call.
@pytest.mark.parametrize("with_thread", [True, False], ids=["thread", "no thread"])
def test_a_loop_from_before_the_guard_does_not_stop_a_healthy_run(with_thread: bool) -> None:
    graph = apply_guard(agent_builder(works(3)), board=new_board()).compile()

    messages = graph.invoke({"messages": _old_loop(6)}, thread() if with_thread else None)["messages"]

    assert outline(messages[len(_old_loop(6)) :]) == "atatata"


def test_a_loop_of_the_current_turn_from_before_the_guard_is_seen() -> None:
    """The thread was saved without a guard in the middle of a loop: one more call is enough for the nudge."""
    unguarded = agent_builder(repeats(6)).compile(checkpointer=(saver := InMemorySaver()), interrupt_before=["tools"])
    unguarded.invoke(TASK, thread())
    for _ in range(2):
        unguarded.invoke(None, thread())

    board = new_board()
    guarded = apply_guard(agent_builder(repeats(6)), board=board).compile(checkpointer=saver)
    messages = guarded.invoke(None, thread())["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED


def test_a_turn_without_calls_after_a_stop_is_answered_as_usual() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        said = [message.content for message in messages if message.type == "human"]
        return AIMessage("Bye.") if "thanks" in said else repeats()(messages, turn)

    graph = apply_guard(agent_builder(policy), board=new_board()).compile(checkpointer=InMemorySaver())
    graph.invoke(_ask("go"), thread())

    messages = graph.invoke(_ask("thanks"), thread())["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED + "ha"
    assert "trajectory_guard" not in messages[-1].response_metadata


# Found: call ids that start anew with every model turn (some servers number them) hide all calls but the first.
def test_a_loop_is_seen_though_the_model_numbers_its_calls_anew_in_each_turn() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages) >= 12:
            return AIMessage("I give up.")
        return call("search", {"query": "x"}, 0)

    messages = apply_guard(agent_builder(policy), board=new_board()).compile().invoke(TASK)["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED


def test_repeated_history_is_not_evaluated_twice() -> None:
    """Without a checkpointer the caller hands in the whole conversation on every turn."""
    board = new_board()
    graph = apply_guard(agent_builder(works(2)), board=board).compile()
    messages: list[Any] = []

    for turn in range(4):
        messages = graph.invoke({"messages": [*messages, HumanMessage(f"turn {turn}")]}, thread())["messages"]

    assert board.counts["steps"] == 8
    assert nudges(messages) == []


def test_two_calls_with_one_answer_each_in_different_orders_count_once_each() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages) == 2:
            return AIMessage("Done.")
        pair = [("lookup", {"key": "a"}), ("lookup", {"key": "b"})]
        return calls(messages, *(pair if rounds(messages) else reversed(pair)))

    board = new_board()
    apply_guard(agent_builder(policy), board=board).compile().invoke(TASK)

    assert board.counts["steps"] == 4
