"""An exception that a signal handler raises while its thread is inside the guard reaches the application."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import TrajectoryGuardProcessor, apply_guard
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.integrity import IntegrityGate
from trajectory_guard.gates.stagnation import StagnationGate
from trajectory_guard.process.containment import contain

SECRET = "078-05-1120"


class SoftTimeLimitError(Exception):
    """A plain exception, as the soft time limit of a task queue raises."""


def of_function(_number: int, _frame: FrameType | None) -> None:
    raise SoftTimeLimitError


class Worker:
    def of_method(self, _number: int, _frame: FrameType | None) -> None:
        self._give_up()

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self._give_up()

    def _give_up(self) -> None:
        raise SoftTimeLimitError


HANDLERS = {"function": of_function, "method": Worker().of_method, "object": Worker()}


@pytest.fixture(params=HANDLERS)
def time_limit(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A function that fires the time limit in its own thread, as the timer of a worker would."""
    before = signal.signal(signal.SIGALRM, HANDLERS[request.param])
    try:
        yield lambda *_: signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)


def run_guarded(board: FlagBoard, **guard: Any) -> None:
    """An agent that makes the same call ten times, in one thread, under a gate."""

    def agent(state: MessagesState) -> dict[str, Any]:
        n = len(state["messages"])
        call = {"name": "search", "args": {"q": "same"}, "id": f"c{n}"}
        return {"messages": [AIMessage("", tool_calls=[call] if n < 20 else [])]}

    def tools(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage("nothing found", tool_call_id=state["messages"][-1].tool_calls[0]["id"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    builder.add_edge("tools", "agent")
    apply_guard(builder, board=board, tools="tools", agent="agent", **guard)
    builder.compile().invoke({"messages": [HumanMessage("find it")]}, {"recursion_limit": 60})


def test_time_limit_in_state_of_reaches_the_application(time_limit: Callable[..., Any]) -> None:
    board = FlagBoard(GuardConfig(mode="nudge"))
    with pytest.raises(SoftTimeLimitError):
        run_guarded(board, state_of=time_limit)
    assert not any(count for name, count in board.counts.items() if name.startswith("errors."))


def test_time_limit_in_on_intervention_reaches_the_application(time_limit: Callable[..., Any]) -> None:
    with pytest.raises(SoftTimeLimitError):
        run_guarded(FlagBoard(GuardConfig(mode="nudge", on_intervention=time_limit)))


def test_time_limit_while_a_span_ends_reaches_the_application(
    time_limit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = FlagBoard(GuardConfig(mode="observe"))
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board))
    tracer = provider.get_tracer("app")
    tool_call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    monkeypatch.setattr(board.engine, "observe", time_limit)
    span = tracer.start_span("execute_tool search", attributes=tool_call)
    with pytest.raises(SoftTimeLimitError):
        span.end()
    assert not any(count for name, count in board.counts.items() if name.startswith("errors."))
    monkeypatch.undo()
    tracer.start_span("execute_tool search", attributes=tool_call).end()
    assert board.counts["steps"] == 1, "the next span is evaluated: no lock is held, and nothing is left open"


def test_time_limit_in_an_invariant_reaches_the_application(time_limit: Callable[..., Any]) -> None:
    node = IntegrityGate(invariants=[time_limit], board=FlagBoard(GuardConfig(mode="nudge"))).wrap(lambda _state: {})
    with pytest.raises(SoftTimeLimitError):
        node({"messages": []})


def test_errors_of_the_guard_stay_contained(time_limit: Callable[..., Any]) -> None:
    def fails(_state: Any) -> str:
        raise SoftTimeLimitError  # the same class, and no signal

    board = FlagBoard(GuardConfig(mode="nudge"))
    run_guarded(board, state_of=fails)
    assert board.counts["errors.state_of"] > 0


def test_handlers_that_are_not_python_are_looked_past() -> None:
    """The default handler of SIGINT is a builtin, and most signals have none at all."""
    board = FlagBoard(GuardConfig(mode="nudge"))

    def fails(_state: Any) -> str:
        raise ValueError

    run_guarded(board, state_of=fails)
    assert board.counts["errors.state_of"] > 0


def failing(counts: Counter[str], where: str, text: str, *values: object, kind: str = "") -> None:
    try:
        raise RuntimeError("an error of the guard")
    except RuntimeError:
        contain(counts, where, text, *values, kind=kind)


def test_each_text_is_logged_once_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """Several parts of the guard count their errors under one place, each with a text of its own."""
    counts: Counter[str] = Counter()
    for _ in range(3):
        failing(counts, "quality", "messages could not be scored")
        failing(counts, "quality", "a drop could not be published")
        failing(counts, "gate", "error in a %s gate", "stagnation")
        failing(counts, "gate", "error in a %s gate", "integrity")
        failing(counts, "on_end", "error in %s", "on_end", kind="KeyError")
        failing(counts, "on_end", "error in %s", "on_end", kind="ValueError")
    assert [record.getMessage() for record in caplog.records] == [
        "trajectory_guard: messages could not be scored (logged once)",
        "trajectory_guard: a drop could not be published (logged once)",
        "trajectory_guard: error in a stagnation gate (logged once)",
        "trajectory_guard: error in a integrity gate (logged once)",
        "trajectory_guard: error in on_end (logged once)",
        "trajectory_guard: error in on_end (logged once)",
    ]
    assert counts == {"errors.quality": 6, "errors.gate": 6, "errors.on_end": 6}


def test_texts_without_end_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    counts: Counter[str] = Counter()
    for number in range(1_000):
        failing(counts, "gate", f"error {number}")
    assert len(caplog.records) < 100
    assert counts["errors.gate"] == 1_000


def test_a_gate_around_a_node_and_one_of_a_graph_both_say_what_failed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both count under ``gate``, on one board."""

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("an error of the guard")

    board = FlagBoard(GuardConfig())
    monkeypatch.setattr(board, "take", fails)
    run_guarded(board)
    wrapped = StagnationGate(board=board).wrap(lambda state: {"draft": "one"}, text_extractor=fails)
    wrapped({})
    texts = [record.getMessage() for record in caplog.records]
    assert texts.count("trajectory_guard: error in the gate, contained (logged once)") == 1
    assert texts.count("trajectory_guard: error in a stagnation gate, contained (logged once)") == 1


@pytest.mark.parametrize("withheld", ["by the configuration", "by a variable", "not at all"])
def test_what_may_not_be_quoted_stands_in_no_error_either(
    withheld: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if withheld == "by a variable":
        monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "false")
    board = FlagBoard(GuardConfig(redact=withheld == "by the configuration"))

    def fails(*_: Any, **__: Any) -> Any:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"no message: {SECRET}") from error

    monkeypatch.setattr("trajectory_guard.gates.graph_gate.as_messages", fails)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [AIMessage("done")]})
    builder.add_node("tools", lambda state: {"messages": []})
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "__end__", ["tools", "__end__"])
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=board).compile()
    asked = [
        HumanMessage("q"),
        AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "1"}]),
        ToolMessage("r", tool_call_id="1"),
    ]
    graph.invoke({"messages": asked})

    (record,) = [one for one in caplog.records if "error in the gate" in one.message]
    shown = logging.Formatter().format(record)
    assert (SECRET in shown) == (withheld == "not at all")
    assert "ValueError" in shown
    assert "graph_gate.py" in shown
