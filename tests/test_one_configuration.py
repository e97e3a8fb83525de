"""One configuration a process: the first one given in code is adopted by all, another one is refused by name."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gates.agents import TASK, agent_builder, nudges, outline, repeats, thread
from trajectory_guard import (
    TrajectoryGuardMiddleware,
    apply_guard,
    guard_compiled,
    guarded_invoke,
    runtime,
    telemetry,
)  # fmt: skip
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GATE_KEYS, ConfigError, GuardConfig, differences
from trajectory_guard.core.policy import Level
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.messages import MARK
from trajectory_guard.otel.instrument import instrument
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.runtime import shared_board

SECRET = "SSN 123-45-6789"


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that nobody has configured."""
    for name in [name for name in os.environ if name.startswith("TRAJECTORY_GUARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(runtime, "_process", runtime.Process())


def call(provider: TracerProvider, times: int = 1, conversation: str = "c", tool: str = "search") -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.result": "none",
        "gen_ai.tool.call.arguments": f'{{"q": "{SECRET}"}}', "gen_ai.conversation.id": conversation,
    }  # fmt: skip
    for _ in range(times):
        provider.get_tracer("app").start_span(f"execute_tool {tool}", attributes=attributes).end()


def nudge_of(conversation: str = "c") -> str:
    verdict = shared_board().read(conversation).verdict
    assert verdict is not None
    assert verdict.nudge is not None
    return verdict.nudge


# --- the first one is adopted, in whatever order -------------------------------------------------------------

WITHOUT: dict[str, Callable[[TracerProvider], Any]] = {
    "instrument": lambda provider: instrument(provider),
    "processor": lambda provider: provider.add_span_processor(TrajectoryGuardProcessor()),
    "gate": lambda provider: Gate(),
    "board": lambda provider: shared_board(),
    "given board": lambda provider: Gate(board=shared_board()),
}
WITH: dict[str, Callable[[TracerProvider, GuardConfig], Any]] = {
    "instrument": lambda provider, config: instrument(provider, config),
    "processor": lambda provider, config: provider.add_span_processor(TrajectoryGuardProcessor(config)),
    "gate": lambda provider, config: Gate(config),
    "board": lambda provider, config: shared_board(config),
}


@pytest.mark.parametrize(("first", "then"), itertools.product(WITHOUT, WITH))
def test_what_was_made_before_adopts_the_first_configuration(first: str, then: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    made = WITHOUT[first](provider)
    config = GuardConfig(redact=True, nudge_threshold=1.5, tools={"other": {"ignore": True}})
    WITH[then](provider, config)
    assert shared_board().config == config
    for one in (made, made.board if isinstance(made, Gate) else None):
        assert one is None or getattr(one, "config", config) == config
    instrument(provider)
    call(provider, 3)
    call(provider, 5, "d", "other")
    assert SECRET not in nudge_of()
    assert shared_board().read("d").steps == 0


def test_spans_and_gate_redact_though_instrument_came_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)
    around = provider.get_tracer("app").start_span("POST /chat")
    gate = Gate(GuardConfig(redact=True))
    messages: list[Any] = []
    status: Any = None
    texts = []
    for turn in range(5):
        called = {"name": "search", "args": {"q": SECRET}, "id": f"call_{turn}", "type": "tool_call"}
        messages += [AIMessage("", id=f"m{turn}", tool_calls=[called]), ToolMessage("none", tool_call_id=called["id"])]
        with trace.use_span(around):
            call(provider, conversation="spans")
        decision = gate.decide(messages, status, "thread")
        status = decision.status
        if decision.nudge is not None:
            messages.append(HumanMessage(decision.nudge, additional_kwargs={MARK: {"intervention": "NUDGE"}}))
        texts.append(repr(decision))
    assert "Level.NUDGE" in "".join(texts)
    assert "Level.STOP" in "".join(texts)
    reported = [
        str(dict(span.attributes or {})) for span in exporter.get_finished_spans() if span.name == telemetry.SPAN_NAME
    ]
    assert len(reported) == 4, "two because of spans, two by the gate"
    assert "123-45" not in "".join([*texts, *reported, caplog.text])


def test_every_key_can_come_late() -> None:
    late = {
        "nudge_threshold": 1.25, "stop_threshold": 1.75, "max_score": 4.0, "decay": 0.25, "weights": {"TYPE_I_STUTTER": 1.0},
        "history_steps": 16, "slow_gap_s": 1.0, "poll_patience": 2, "tools": {"x": {"poll": True}}, "mode": "nudge",
        "calibration": "/nowhere/calibration.json", "redact": True, "collector_url": "http://localhost:4318",
        "collector_token": "secret", "collector_timeout_s": 0.5, "langfuse_max_waiting": 10,
        "langfuse_batches_per_minute": 5.0, "max_trajectories": 3, "idle_ttl_s": 60.0, "max_open_spans": 7,
        "open_span_ttl_s": 5.0, "model_path": "/nowhere", "langfuse_scores": True,
        "dialects": ({"name": "own", "match": {"own.kind": "tool"}, "tool_name": "own.name"},),
    }  # fmt: skip
    provider = TracerProvider(shutdown_on_exit=False)
    processor, gate = instrument(provider), Gate()
    config = GuardConfig(**late)
    Gate(config)
    assert shared_board().config == processor.config == gate.config == config
    assert shared_board().engine.settings == config.engine_settings()
    assert processor._max_open == 7
    assert (processor._conversations.limit, processor._usage.limit) == (3, 3)
    assert gate.remote is not None


def test_a_model_asked_for_late_is_loaded() -> None:
    instrument(TracerProvider(shutdown_on_exit=False))
    board = shared_board()
    Gate(GuardConfig(model_path="/nowhere/at/all"))
    assert board.settler is not None
    assert board.settler.settings.path == "/nowhere/at/all"
    assert board.settler.counts is board.counts


def test_what_an_adopted_configuration_replaces_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_SPENDING_FILE", str(tmp_path / "first.db"))
    monkeypatch.setenv("TRAJECTORY_GUARD_MODEL_PATH", "/nowhere/at/all")
    instrument(TracerProvider(shutdown_on_exit=False))
    board = shared_board()
    model, spending = board.settler, board.spending
    assert model is not None
    assert spending is not None
    closed: list[str] = []
    monkeypatch.setattr(model, "close", lambda: closed.append("model"))
    monkeypatch.setattr(spending, "close", lambda: closed.append("ledger"))
    Gate(GuardConfig(spending_file=str(tmp_path / "second.db"), model_path="/elsewhere"))
    assert closed == ["model", "ledger"]
    assert board.settler is not model
    assert board.spending is not spending


def test_scores_asked_for_late_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
    instrument(TracerProvider(shutdown_on_exit=False))
    assert shared_board().reporter is None
    Gate(GuardConfig(langfuse_scores=True))
    assert shared_board().reporter is not None


def test_earlier_evaluations_are_carried_over() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    instrument(provider)
    call(provider, 2)
    Gate(GuardConfig(max_trajectories=50))
    call(provider, 1)
    assert (shared_board().read("c").steps, shared_board().read("c").level) == (3, Level.NUDGE)


def test_what_was_kept_before_it_was_to_be_redacted_is_forgotten() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    instrument(provider)
    call(provider, 3)
    assert SECRET in nudge_of()
    Gate(GuardConfig(redact=True))
    assert shared_board().read("c").verdict is None
    assert SECRET.encode() not in (shared_board().save("c") or b"")


# --- a second one ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), itertools.product(WITH, WITH))
def test_a_second_configuration_that_differs_is_refused_by_key_and_values(first: str, then: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    WITH[first](provider, GuardConfig(redact=True, tools={"a": {"poll": True}, "b": {"ignore": True}}))
    with pytest.raises(ConfigError) as error:
        WITH[then](provider, GuardConfig(decay=0.25, tools={"a": {"poll": True}, "b": {"weight": 2.0}}))
    text = str(error.value)
    assert "redact: True, False" in text
    assert "decay: 0.5, 0.25" in text
    assert "tools.b: {'ignore': True}, {'weight': 2.0}" in text
    assert "tools.a" not in text
    assert "board=FlagBoard(config)" in text


@pytest.mark.parametrize(("first", "then"), itertools.product(WITH, WITH))
def test_an_equal_configuration_is_welcome(first: str, then: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    config = GuardConfig(redact=True)
    WITH[first](provider, config)
    board = shared_board()
    made = WITH[then](provider, GuardConfig(redact=True))
    assert shared_board() is getattr(made, "board", board) is board
    assert shared_board().config == getattr(made, "config", config) == config


def test_a_provider_that_is_instrumented_already_refuses_another_configuration() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    first = instrument(provider, GuardConfig(mode="nudge"))
    with pytest.raises(ConfigError, match="mode: 'nudge', 'observe'"):
        instrument(provider, GuardConfig(mode="observe"))
    assert instrument(provider) is first


def test_gates_may_differ_in_what_is_their_own() -> None:
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(redact=True))
    observing, default = Gate(GuardConfig(redact=True, mode="observe")), Gate()
    assert (observing.config.mode, observing.config.redact) == ("observe", True)
    assert (default.config.mode, default.config.redact) == ("enforce", True)


def test_the_mode_of_the_process_may_come_after_that_of_a_gate() -> None:
    observing, default = Gate(GuardConfig(mode="observe")), Gate()
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(mode="nudge"))
    assert (observing.config.mode, default.config.mode) == ("observe", "nudge")


def test_a_gate_with_a_board_of_its_own_has_a_configuration_of_its_own() -> None:
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(redact=True))
    own = GuardConfig(nudge_threshold=1.5)
    gate = Gate(own, board=FlagBoard(own))
    assert gate.config == own
    assert shared_board().config == GuardConfig(redact=True)


@pytest.mark.parametrize("make", [Gate, TrajectoryGuardProcessor])
def test_a_configuration_and_a_board_that_differ_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="redact: False, True"):
        make(GuardConfig(redact=True), board=FlagBoard())
    assert make(board=FlagBoard(GuardConfig(redact=True))).config.redact


@pytest.mark.parametrize(
    "make", [Gate, shared_board, TrajectoryGuardProcessor, FlagBoard, lambda one: instrument(None, one)]
)
@pytest.mark.parametrize("config", [{"mode": "observe"}, "observe", 3, {}])
def test_something_else_than_a_configuration_is_refused_by_type(make: Any, config: Any) -> None:
    with pytest.raises(TypeError, match=rf"config: expected a GuardConfig, got .*\({type(config).__name__}\)"):
        make(config)


@pytest.mark.parametrize("make", [Gate, TrajectoryGuardProcessor])
@pytest.mark.parametrize("board", [{}, "board", GuardConfig()])
def test_something_else_than_a_board_is_refused_by_type(make: Any, board: Any) -> None:
    with pytest.raises(TypeError, match=rf"board: expected a FlagBoard, got .*\({type(board).__name__}\)"):
        make(board=board)


def test_the_environment_is_replaced_aloud(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_REDACT", "true")
    monkeypatch.setenv("TRAJECTORY_GUARD_DECAY", "0.25")
    gate = Gate()
    assert gate.config.redact
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(decay=0.25, nudge_threshold=1.5))
    (record,) = [one for one in caplog.records if "replaces that of the environment" in one.getMessage()]
    assert record.getMessage().endswith("redact: True, False")


def test_threads_that_configure_at_once_agree_on_one() -> None:
    for _ in range(30):
        runtime._process = runtime.Process()
        Gate()
        refused: list[str] = []
        ready = threading.Barrier(6)

        def give(value: float, ready: threading.Barrier = ready, refused: list[str] = refused) -> None:
            ready.wait(10)
            try:
                Gate(GuardConfig(nudge_threshold=value))
            except ConfigError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=give, args=(1.0 + number / 10,)) for number in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(10)
        assert len(refused) == 5
        assert all(f"nudge_threshold: {shared_board().config.nudge_threshold}," in text for text in refused)


def test_steps_evaluated_while_a_configuration_is_adopted_are_all_evaluated() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    processor = instrument(provider)
    done = threading.Event()
    board, rounds = shared_board(), [0] * 4

    def work(number: int) -> None:
        while not done.is_set() or rounds[number] < 20:
            call(provider, 1, f"c{number}", tool=f"t{rounds[number]}")
            rounds[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for size in range(100, 140):
        board.reconfigure(GuardConfig(max_trajectories=size), None)  # type: ignore[attr-defined]
    done.set()
    for one in threads:
        one.join(30)
    assert processor.board.counts["errors.on_end"] == 0
    assert [board.read(f"c{number}").steps for number in range(4)] == rounds


# --- graphs ---------------------------------------------------------------------------------------------------


def test_instrument_and_then_a_graph_with_a_configuration() -> None:
    instrument(TracerProvider(shutdown_on_exit=False))
    graph = apply_guard(agent_builder(repeats(8)), GuardConfig(tools={"search": {"ignore": True}})).compile()
    assert outline(graph.invoke(TASK, thread())["messages"]) == "h" + "at" * 8 + "a"


def test_a_graph_with_another_configuration_is_refused_when_it_is_built() -> None:
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(redact=True))
    other = GuardConfig(nudge_threshold=1.0)
    for build in (
        lambda: apply_guard(agent_builder(repeats(8)), other),
        lambda: TrajectoryGuardMiddleware(other),
        lambda: guard_compiled(agent_builder(repeats(8)).compile(), other),
        lambda: guarded_invoke(agent_builder(repeats(8)).compile(), TASK, guard_config=other),
    ):
        with pytest.raises(ConfigError, match=r"nudge_threshold: 2\.0, 1\.0"):
            build()
    apply_guard(agent_builder(repeats(8)), other, board=FlagBoard(other))


def test_a_compiled_graph_run_in_another_mode_needs_no_agreement() -> None:
    graph = agent_builder(repeats(8)).compile()
    assert outline(guarded_invoke(graph, TASK, thread("a"), mode="observe")["messages"]) == "h" + "at" * 8 + "a"
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(redact=True))
    messages = guarded_invoke(graph, TASK, thread("b"), mode="nudge")["messages"]
    assert "N" in outline(messages)
    assert "return policy" not in str(nudges(messages)[0].content)


# --- naming what differs --------------------------------------------------------------------------------------


class Extended(GuardConfig):
    """A configuration with keys that hold functions and odd objects."""

    on_intervention: Any = None
    stop_text: Any = None


class Odd:
    """An object that cannot be compared, as an array of numbers."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


def reported(verdict: Any) -> None:
    """A callback."""


def test_functions_are_named_and_compared_by_identity() -> None:
    one, other = Extended(on_intervention=reported), Extended(on_intervention=print)
    assert differences(one, Extended(on_intervention=reported)) == []
    assert differences(one, other) == [f"on_intervention: {__name__}.reported, builtins.print"]
    assert differences(Extended(), other) == ["on_intervention: not set, builtins.print"]
    assert len(differences(Extended(stop_text=lambda: 1), Extended(stop_text=lambda: 1))) == 1


def test_bound_methods_of_one_object_are_equal() -> None:
    box: list[Any] = []
    assert differences(Extended(on_intervention=box.append), Extended(on_intervention=box.append)) == []


def test_what_cannot_be_compared_differs_from_all_but_itself() -> None:
    odd = Odd()
    assert differences(Extended(stop_text=odd), Extended(stop_text=odd)) == []
    assert len(differences(Extended(stop_text=odd), Extended(stop_text=Odd()))) == 1


def test_secrets_are_masked_and_long_values_cut() -> None:
    one = GuardConfig(collector_token="hush-1", collector_url="http://collector:4318", model_path="x" * 500)
    found = differences(GuardConfig(), one)
    assert [line.split(":")[0] for line in found] == ["model_path", "collector_url", "collector_token"]
    assert "hush" not in "".join(found)
    assert max(map(len, found)) < 200


def test_the_mode_is_a_gates_own() -> None:
    assert "mode" in GATE_KEYS & GuardConfig.model_fields.keys()


# --- notebooks and reloads -------------------------------------------------------------------------------------

CELL = """
def heard(intervention, which=number):
    said.append((which, intervention.level))

instrument(provider, GuardConfig(on_intervention=heard))
graph = apply_guard(agent_builder(repeats())).compile()
"""


def test_a_cell_of_a_notebook_may_run_again() -> None:
    notebook: dict[str, Any] = {
        "__name__": "notebook", "said": [], "provider": TracerProvider(), "instrument": instrument,
        "GuardConfig": GuardConfig, "apply_guard": apply_guard, "agent_builder": agent_builder, "repeats": repeats,
    }  # fmt: skip
    graphs = []  # a notebook keeps the first one alive
    for number in (1, 2):
        notebook["number"] = number
        exec(CELL, notebook)
        graphs.append(notebook["graph"])

    graphs[-1].invoke(TASK)

    assert notebook["said"] == [(2, Level.NUDGE), (2, Level.STOP)]


def test_functions_that_share_a_name_are_different_ones() -> None:
    def handler(number: int) -> Callable[[Any], None]:
        return lambda intervention: print(number)

    instrument(TracerProvider(), GuardConfig(on_intervention=handler(1)))

    with pytest.raises(ConfigError, match="Functions are compared by identity"):
        instrument(TracerProvider(), GuardConfig(on_intervention=handler(2)))


@pytest.mark.parametrize(("mode", "ending"), [("enforce", "S"), ("nudge", "a"), ("observe", "a")])
@pytest.mark.parametrize("of_process", ["enforce", "nudge", "observe"])
def test_the_mode_of_a_gate_holds_whatever_the_process_has(of_process: str, mode: str, ending: str) -> None:
    instrument(TracerProvider(shutdown_on_exit=False), GuardConfig(mode=of_process))
    graph = apply_guard(agent_builder(repeats(8)), GuardConfig(mode=mode)).compile()
    shown = outline(graph.invoke(TASK)["messages"])
    assert shown[-1] == ending
    assert ("N" in shown) is (mode != "observe")
