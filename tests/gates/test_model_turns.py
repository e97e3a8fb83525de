"""One model turn is one step, however the telemetry shows its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from tests.helpers import record
from trajectory_guard import apply_guard
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.messages import MAX_LOOK_BACK, new_steps

from .agents import TASK, agent_builder, calls, new_board, nudges, rounds, thread, tool_runs

FILES = "abcd"


@tool
def read(path: str) -> str:
    """Reads a file, at once, so that parallel calls hardly overlap."""
    return f"content of {path} is here and long"


def reads_all(paths: Sequence[str]) -> Callable[..., AIMessage]:
    """Reads all of these files in every turn: ignores nudges."""

    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages) >= 12:
            return AIMessage("Done.")
        return calls(messages, *(("read", {"path": path}) for path in paths))

    return policy


reads = reads_all(FILES)


def turns_at_nudge(messages: list[Any]) -> list[int]:
    return [rounds(messages[: messages.index(one)]) for one in nudges(messages)]


def test_parallel_calls_reported_by_spans_are_nudged_as_without_spans(traced: Callable[..., Any]) -> None:
    plain = apply_guard(agent_builder(reads, tools=[read]), board=new_board()).compile().invoke(TASK, thread("plain"))
    spans = apply_guard(agent_builder(reads, tools=[read]), board=traced()).compile().invoke(TASK, thread("spans"))

    assert turns_at_nudge(plain["messages"]) == turns_at_nudge(spans["messages"]) == [3, 6]
    assert rounds(plain["messages"]) == rounds(spans["messages"]) == 9


@pytest.mark.parametrize("size", [33, 70])
@pytest.mark.parametrize("with_spans", [False, True])
def test_a_turn_of_many_calls_is_stopped_like_any_other(
    size: int, with_spans: bool, traced: Callable[..., Any]
) -> None:  # fmt: skip
    paths = [f"{at * 7919 % 1000}.txt" for at in range(size)]
    board = traced() if with_spans else new_board()
    graph = apply_guard(agent_builder(reads_all(paths), tools=[read]), board=board).compile()

    state = graph.invoke(TASK, thread("many"))

    assert turns_at_nudge(state["messages"])[0] == 3, nudges(state["messages"])[0].content
    assert rounds(state["messages"]) <= 9
    assert board.counts["steps"] == tool_runs(state["messages"])


def test_a_turn_beyond_the_look_back_is_read_whole() -> None:
    wanted = [{"name": "read", "args": {"path": str(n)}, "id": f"c{n}"} for n in range(MAX_LOOK_BACK + 40)]
    answers = [ToolMessage(f"text {one['id']}", tool_call_id=one["id"]) for one in wanted]
    messages = [HumanMessage("Go.", id="h"), AIMessage("", tool_calls=wanted, id="turn"), *answers]

    steps = new_steps(messages, trajectory_id="t", known=lambda _: False, now=0.0)

    assert len(steps) == len(wanted)


def answered(turn: int, *paths: str) -> list[Any]:
    """A model message with parallel calls, and their answers."""
    wanted = [{"name": "read", "args": {"path": path}, "id": f"{turn}-{path}"} for path in paths]
    answers = [ToolMessage(read.invoke({"path": path}), tool_call_id=f"{turn}-{path}") for path in paths]
    return [AIMessage("", tool_calls=wanted, id=f"turn-{turn}"), *answers]


def span_of(turn: int, path: str, at: float, **fields: Any) -> Any:
    """The step of a span that ends before the next one begins."""
    return record(
        "read", {"path": path}, read.invoke({"path": path}), t=at, dur=0.001, call_id=f"{turn}-{path}", trajectory="t", **fields
    )  # fmt: skip


@pytest.mark.parametrize("paths", ["ab", "abc", "abcdefghij"])
def test_spans_that_came_before_the_gate_followed_them_are_counted_once(paths: str) -> None:
    board = new_board()
    gate = Gate(board=board)
    for at, path in enumerate(paths):
        board.observe(span_of(1, path, 100.0 + at / 100))
    before = board.counts["steps"]

    decision = gate.decide([HumanMessage("Go.", id="h"), *answered(1, *paths)], None, "t")
    state = board.engine.load_state(board.save("t") or b"")

    assert before == board.counts["steps"] == decision.status["steps_taken"] == len(paths)
    assert [run.index for run in state.runs.values()] == [len(paths)]  # none was evaluated a second time


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_requested_turn_is_one_step_though_its_spans_do_not_overlap(count: int) -> None:
    board = new_board()
    gate = Gate(board=board)
    messages: list[Any] = [HumanMessage("Go.", id="h"), *answered(0, "x")]
    decision = gate.decide(messages, None, "t")
    turn_of_nudge = None
    for turn in range(1, 6):
        asked = answered(turn, *"abcdefgh"[:count])
        gate.answered(decision, [asked[0]])
        verdicts = [board.observe(span_of(turn, path, 100.0 * turn + at)) for at, path in enumerate("abcdefgh"[:count])]
        messages += asked
        decision = gate.decide(messages, decision.status, "t")
        assert all(verdict is not None for verdict in verdicts)
        if decision.nudge is not None and turn_of_nudge is None:
            turn_of_nudge = turn

    assert turn_of_nudge == 3


def test_copies_in_one_requested_turn_are_no_repeats() -> None:
    board = new_board()
    gate = Gate(board=board)
    start = [HumanMessage("Go.", id="h"), *answered(0, "x")]
    decision = gate.decide(start, None, "t")
    wanted = [{"name": "read", "args": {"path": "a"}, "id": f"c{n}"} for n in range(5)]
    gate.answered(decision, [AIMessage("", tool_calls=wanted, id="turn")])

    found = [board.observe(span_of(1, "a", 100.0 + n)._replace(call_id=f"c{n}")) for n in range(5)]

    assert [one.detections for one in found if one is not None] == [()] * 5


def test_two_threads_that_number_their_calls_alike_keep_their_turns_apart() -> None:
    board = new_board()
    for name in ("one", "two"):
        board.branches.note_batch((name, "trace"), ["call_0", "call_1"], f"turn of {name}")

    steps = [board.branches.in_batch(span_of(1, "a", 1.0, trace_id="trace")._replace(trajectory_id=name, call_id="call_1")) for name in ("one", "two")]  # fmt: skip
    assert [step.batch for step in steps] == ["turn of one", "turn of two"]


def test_a_turn_whose_message_has_no_id_is_one_step() -> None:
    wanted = [{"name": "read", "args": {"path": path}, "id": f"call_{path}"} for path in FILES]
    answers = [ToolMessage("x", tool_call_id=f"call_{path}") for path in FILES]

    steps = new_steps([AIMessage("", tool_calls=wanted), *answers], trajectory_id="t", known=lambda _: False, now=0.0)

    assert len({step.batch for step in steps}) == 1
