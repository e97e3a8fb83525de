"""Flags that a person raises and clears on the board of a process, at the gates of real graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gates.agents import (
    TASK,
    agent_builder,
    closing,
    new_board,
    nudges,
    obeys,
    outline,
    repeats,
    rounds,
    thread,
    works,
)
from tests.gates.test_refusal import agent_of
from trajectory_guard import FlagBoard, Level, apply_guard
from trajectory_guard.callbacks import Intervention
from trajectory_guard.cli.demo.scripted import Policy
from trajectory_guard.core.steps import Evidence, StepRecord


def raising(board: FlagBoard, at: int, level: str, policy: Policy) -> Policy:
    """The policy of an agent; while it works, a person raises a flag."""

    def raised(messages: Any, turn: int) -> Any:
        if rounds(messages) == at:
            board.raise_flag("thread", level, "The order was cancelled.", actor="maria")
        return policy(messages, turn)

    return raised


def graphs(policy: Policy, board: FlagBoard, **options: Any) -> list[Any]:
    builder = apply_guard(agent_builder(policy), board=board, **options)
    return [builder.compile(InMemorySaver())]


def run(policy: Policy, board: FlagBoard, **options: Any) -> list[Any]:
    (graph,) = graphs(policy, board, **options)
    return list(graph.invoke(TASK, thread())["messages"])


def test_a_nudge_by_hand_is_given_once_in_the_persons_words() -> None:
    board = new_board()
    messages = run(raising(board, 2, "nudge", works(5)), board)
    (nudge,) = nudges(messages)
    assert nudge.content == "[Trajectory guard] A person who watches this run says:\nThe order was cancelled."
    assert outline(messages) == "hatatatNatata"
    assert board.counts["flags.raised"] == 1


def test_a_stop_by_hand_ends_the_run_at_the_next_model_call_and_no_other() -> None:
    board = new_board()
    (graph,) = graphs(raising(board, 2, "STOP", works(5)), board)
    messages = graph.invoke(TASK, thread())["messages"]
    assert outline(messages) == "hatatatS"
    assert closing(messages)[0].content.startswith("A person has ended this run.")
    board.raise_flag("thread", Level.NUDGE, "go on")
    board.clear_flag("thread", "a mistake", actor="maria")
    assert outline(graph.invoke(TASK, thread())["messages"])[-8:] == "hatatatS"  # the policy raises it again


def test_middleware_obeys_as_well() -> None:
    board = new_board()
    agent = agent_of(raising(board, 2, "STOP", works(5)), [*_tools()], board, saver=InMemorySaver())
    assert outline(agent.invoke(TASK, thread())["messages"]) == "hatatatS"


def _tools() -> Any:
    from tests.gates.agents import lookup

    yield lookup


def test_a_flag_between_turns_waits_for_no_tool_call() -> None:
    board = new_board()
    (graph,) = graphs(works(1), board)
    graph.invoke(TASK, thread())
    board.raise_flag("thread", "stop", "blocked")
    assert outline(graph.invoke(TASK, thread())["messages"]) == "hatahS"


def test_a_stop_by_hand_is_obeyed_where_spans_hid_the_content_of_the_calls() -> None:
    """The gate removes what the spans have told, and reads it from the messages: the person's flag stays."""
    board = new_board()
    board.observe(StepRecord("s1", "thread", "search", evidence=Evidence.NAME_ONLY))
    board.raise_flag("thread", "stop", "The order was cancelled.")
    messages = run(works(3), board)
    assert closing(messages)
    assert board.read("thread").steps == 0
    assert not board.has_hand_flag("thread")


def test_raised_values_are_checked() -> None:
    board = new_board(mode="nudge")
    with pytest.raises(LookupError, match="no trajectory 'thread' is known"):
        board.raise_flag("thread", "NUDGE", "x")
    for level, reason, said in (("OBSERVE", "x", "level"), ("NUDGE", " ", "reason"), ("STOP", "x", "mode 'nudge'")):
        with pytest.raises(ValueError, match=said):
            board.raise_flag("thread", level, reason)
    assert not board.clear_flag("thread")


def test_clearing_a_flag_dismisses_what_the_engine_found() -> None:
    """Cleared after every round, no loop comes to a nudge."""
    board = new_board()

    def policy(messages: Any, turn: int) -> Any:
        board.clear_flag("thread", "it works", actor="maria")
        return repeats(8)(messages, turn)

    assert outline(run(policy, board)) == "h" + "at" * 8 + "a"


def test_the_engines_stop_comes_before_a_nudge_by_hand() -> None:
    board = new_board()
    messages = run(raising(board, 5, "nudge", repeats(8)), board)
    assert messages[-1] is closing(messages)[0]


def test_a_nudge_by_hand_leaves_the_engines_own_to_come() -> None:
    board = new_board()
    messages = run(raising(board, 2, "nudge", obeys), board)
    assert len(nudges(messages)) == 1  # the scripted agent obeys the person
    board = new_board()
    assert len(nudges(run(raising(board, 2, "nudge", repeats(8)), board))) == 2


@pytest.mark.parametrize(("answer", "last"), [(True, "a"), (False, "S")])
def test_a_person_who_is_asked_decides_on_a_stop_by_hand(answer: bool, last: str) -> None:
    board = new_board()
    (graph,) = graphs(raising(board, 2, "STOP", works(4)), board, on_stop="interrupt")
    (asked,) = graph.invoke(TASK, thread())["__interrupt__"]
    assert asked.value["rule"] == "by_hand"
    assert outline(graph.invoke(Command(resume=answer), thread())["messages"])[-1] == last
    assert not board.has_hand_flag("thread")


def test_actor_and_reason_are_in_log_span_and_callback(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[Intervention] = []
    board, exporter = new_board(on_intervention=reported.append, redact=True), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, provider
    try:
        run(raising(board, 2, "STOP", works(5)), board)
    finally:
        trace._TRACER_PROVIDER = before
    why = "maria raised the flag by hand: The order was cancelled."
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["trajectory_guard.reason"] == why
    assert (span.attributes or {})["trajectory_guard.intervention"] == "STOP"
    assert reported[0].payload["reason"] == reported[0].verdict.reason == why
    (entry,) = [json.loads(one.message) for one in caplog.records if "TRAJECTORY_FLAG_RAISED" in one.message]
    assert (entry["actor"], entry["reason"], entry["intervention"]) == ("maria", "The order was cancelled.", "STOP")
