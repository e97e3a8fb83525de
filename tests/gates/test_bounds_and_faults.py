"""The state stays bounded over any number of loops, and an error of the guard never becomes the application's."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.prebuilt import ToolNode

from trajectory_guard import AgentState, FlagBoard, apply_guard
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.langgraph import MAX_SCRATCHPAD
from trajectory_guard.gates.own_keys import MEMORY

from .agents import (
    NUDGED_THEN_STOPPED,
    TASK,
    agent_builder,
    calls,
    lookup,
    new_board,
    outline,
    repeats,
    rounds,
    search,
    thread,
    tool_runs,
    works,
)

LOOPS = 300
MOST_BYTES = 24_000
"""Bytes that a gate adds to a checkpoint, at most."""


@tool
def dump(what: str) -> str:
    """A tool with long arguments and answers."""
    return f"{what}: " + "x" * 2_000


@pytest.mark.parametrize("tokens", [2**64, 1.5, -7, None, "many", float("nan"), float("inf")])
def test_a_number_of_tokens_that_cannot_be_right_costs_no_step(tokens: Any) -> None:
    board = FlagBoard()
    gate, decisions, messages, status = Gate(board=board), [], [HumanMessage("Find it.", id="asked")], None
    for number in range(4):
        request = calls(messages, ("search", {"query": "return policy"}))
        request.usage_metadata = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens}
        request.response_metadata = {"model_name": "scripted"}
        answer = ToolMessage("nothing", tool_call_id=request.tool_calls[0]["id"], name="search", id=f"found {number}")
        messages += [request, answer]
        decision = gate.decide(messages, status, "thread")
        status = decision.status
        decisions.append(str(decision.level))
    assert decisions == ["OBSERVE", "OBSERVE", "NUDGE", "OBSERVE"]
    assert board.read("thread").steps == 4


def _dumps(messages: Any, turn: int) -> AIMessage:
    if rounds(messages) >= LOOPS:
        return AIMessage("Done.")
    return calls(messages, ("dump", {"what": "a" * 1_000 + str(len(messages) % 7)}))


@pytest.mark.slow
@pytest.mark.parametrize("policy", [repeats(LOOPS), works(LOOPS), _dumps], ids=["repeats", "works", "long texts"])
def test_the_guards_part_of_the_state_is_bounded(policy: Any) -> None:
    board = new_board(mode="nudge")
    builder = apply_guard(agent_builder(policy, tools=[search, lookup, dump]), board=board)
    graph = builder.compile()

    sizes: list[int] = []
    state: dict[str, Any] = {}
    keys = ["loop_status", MEMORY, "trajectory_scratchpad"]
    for values in graph.stream(TASK, thread(recursion_limit=4 * LOOPS), stream_mode="values", output_keys=keys):
        if values.get("loop_status"):
            state = values["loop_status"]
            sizes.append(len(JsonPlusSerializer().dumps_typed(values)[1]))

    assert len(sizes) >= LOOPS
    assert state["steps_taken"] == LOOPS
    assert max(sizes) < MOST_BYTES
    assert max(sizes[LOOPS // 2 :]) <= 1.1 * max(sizes[LOOPS // 4 : LOOPS // 2])


def test_the_scratchpad_keeps_the_newest_steps() -> None:
    graph = apply_guard(agent_builder(works(MAX_SCRATCHPAD + 20)), board=new_board()).compile(
        checkpointer=InMemorySaver()
    )

    graph.invoke(TASK, thread(recursion_limit=400))

    state = graph.get_state(thread()).values
    called = [message.tool_call_id for message in state["messages"] if message.type == "tool"]
    assert [entry["call_id"] for entry in state["trajectory_scratchpad"]] == called[-MAX_SCRATCHPAD:]


def test_long_arguments_are_clipped_in_what_the_guard_writes() -> None:
    builder = apply_guard(agent_builder(_dumps, tools=[dump]), board=new_board(mode="observe"))
    graph = builder.compile(checkpointer=InMemorySaver())

    with pytest.raises(Exception, match="Recursion limit"):
        graph.invoke(TASK, thread(recursion_limit=12))

    scratchpad = graph.get_state(thread()).values["trajectory_scratchpad"]
    assert scratchpad
    assert max(len(entry["action"]) for entry in scratchpad) < 200


def test_a_new_trajectory_for_every_run_does_not_fill_the_board() -> None:
    board = new_board(max_trajectories=5)
    graph = apply_guard(agent_builder(works(1)), board=board).compile()

    for _ in range(12):
        graph.invoke(TASK)

    assert len(board) == 5
    assert board.counts["evicted_full"] == 7


# --- faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["take", "observe_from_messages", "save", "new_turn"])
def test_an_error_of_the_guard_is_counted_logged_once_and_harmless(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("broken on purpose")

    board = new_board()
    monkeypatch.setattr(board, part, broken)
    graph = apply_guard(agent_builder(repeats(5)), board=board).compile()

    with caplog.at_level(logging.ERROR, "trajectory_guard"):
        messages = graph.invoke(TASK)["messages"]
        asyncio.run(graph.ainvoke(TASK))

    assert outline(messages) == "h" + "at" * 5 + "a"
    assert board.counts["errors.gate"] == 10
    reported = [record for record in caplog.records if "contained (logged once)" in record.message]
    assert len(reported) == 1
    assert "broken on purpose" in caplog.text


def test_an_engine_that_raises_does_not_break_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    board = new_board()
    monkeypatch.setattr(board.engine, "observe", lambda state, step: 1 / 0)
    graph = apply_guard(agent_builder(repeats(4)), board=board).compile()

    assert outline(graph.invoke(TASK)["messages"]) == "h" + "at" * 4 + "a"
    assert board.counts["errors.gate"] == 4


def test_what_was_due_when_a_decision_was_interrupted_is_due_when_the_run_is_taken_up() -> None:
    """Ctrl-C while the gate decides: the run that goes on is nudged as it would have been, and stopped in the end."""
    given = iter([KeyboardInterrupt])

    def text(verdict: Any) -> str:
        for interrupt in given:
            raise interrupt
        return "Try something else."

    builder = apply_guard(agent_builder(repeats()), board=new_board(nudge_text=text))
    graph = builder.compile(checkpointer=InMemorySaver())

    with pytest.raises(KeyboardInterrupt):
        graph.invoke(TASK, thread())

    assert outline(graph.invoke(None, thread())["messages"]) == NUDGED_THEN_STOPPED


@pytest.mark.parametrize(
    "saved",
    ["no base64!", "bm8ganNvbg==", "eyJ2Ijo5OX0=", "eyJ2IjoxfQ=="],
    ids=["text", "no json", "version", "damaged"],
)
def test_saved_state_that_cannot_be_read_is_ignored_and_counted(saved: str) -> None:
    board = new_board()
    graph = apply_guard(agent_builder(repeats(), state=AgentState), board=board).compile()

    messages = graph.invoke({**TASK, "loop_status": {"state": saved}}, thread())["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED
    assert board.counts["errors.saved_state"] >= 1
    assert board.counts["errors.gate"] == 0


def test_odd_calls_and_answers_do_not_disturb_the_gate() -> None:
    """NaN and lone surrogates, a megabyte of arguments, deep nesting, an answer in blocks."""
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]

    @tool
    def anything(value: Any) -> Any:
        """Answer in content blocks."""
        return [{"type": "text", "text": "same"}, {"type": "image", "url": "x"}]

    def policy(messages: Any, turn: int) -> AIMessage:
        values = [float("nan"), "\\ud800", "y" * 1_000_000, deep, {"": None}]
        if rounds(messages) == len(values):
            return AIMessage("Done.")
        return calls(messages, ("anything", {"value": values[rounds(messages)]}))

    board: FlagBoard = new_board(mode="observe")
    graph = apply_guard(agent_builder(policy, tools=[anything]), board=board).compile()

    messages = graph.invoke(TASK)["messages"]

    assert tool_runs(messages) == 5
    assert board.counts["errors.gate"] == 0
    assert board.counts["steps"] == 5


def test_a_call_to_a_tool_that_does_not_exist_is_a_step() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        return calls(messages, ("serch", {"query": "x"}))

    messages = apply_guard(agent_builder(policy), board=new_board()).compile().invoke(TASK)["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED


def test_a_tool_that_keeps_failing_is_nudged_and_stopped() -> None:
    @tool("search")
    def failing(query: str) -> str:
        """Search."""
        raise LookupError("no index of that name")

    builder = agent_builder(repeats())
    builder.nodes.pop("tools")
    builder.add_node("tools", ToolNode([failing], handle_tool_errors=True))
    messages = apply_guard(builder, board=new_board()).compile().invoke(TASK)["messages"]

    line = outline(messages)
    assert line.count("N") == 1
    assert line.endswith("S")
