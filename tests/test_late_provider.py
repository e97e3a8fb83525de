"""``instrument()`` before the application has set its tracer provider: the application's telemetry stays its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

from tests.helpers import PACKAGE
from trajectory_guard import runtime, telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.gates.gate import Gate
from trajectory_guard.otel import instrument as instrumentation
from trajectory_guard.otel.instrument import auto_instrument, instrument, uninstrument
from trajectory_guard.runtime import shared_board

TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": "{}",
    "gen_ai.tool.call.result": "none", "gen_ai.conversation.id": "c",
}  # fmt: skip


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which nobody has set a provider or a configuration."""
    setter = trace._set_tracer_provider
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setattr(instrumentation, "_instrumentation", instrumentation.Instrumentation())
    yield
    trace._set_tracer_provider = setter


def application() -> tuple[TracerProvider, InMemorySpanExporter]:
    """A provider as an application makes it, and what it exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def loop(calls: int = 3) -> Level:
    """Equal calls through the global provider, and the flag they raise."""
    for _ in range(calls):
        with trace.get_tracer("app").start_as_current_span("execute_tool search", attributes=TOOL):
            pass
    return shared_board().read("c").level


def test_the_application_exports_all_its_spans_and_they_are_evaluated() -> None:
    instrument()
    provider, exporter = application()
    trace.set_tracer_provider(provider)
    assert trace.get_tracer_provider() is provider
    assert loop() is Level.NUDGE
    names = [span.name for span in exporter.get_finished_spans()]
    assert names.count("execute_tool search") == 3
    assert telemetry.SPAN_NAME in names


def test_no_provider_is_set_by_the_guard() -> None:
    instrument()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_tracer_taken_before_the_provider_was_set_is_guarded_too() -> None:
    instrument()
    tracer = trace.get_tracer("app")
    trace.set_tracer_provider(application()[0])
    for _ in range(3):
        tracer.start_span("execute_tool search", attributes=TOOL).end()
    assert shared_board().read("c").level is Level.NUDGE


def test_a_setter_imported_by_name_before_is_noticed() -> None:
    from opentelemetry.trace import set_tracer_provider  # as the SDK's own configurator has it

    instrument()
    set_tracer_provider(application()[0])
    assert loop() is Level.NUDGE


def test_the_name_that_is_replaced_exists_and_every_setter_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(trace, "_set_tracer_provider", lambda provider, log: called.append(provider))
    trace.set_tracer_provider("one")  # type: ignore[arg-type]
    assert called == ["one"]


def test_without_that_name_the_public_one_is_used_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def set_now(provider: Any) -> None:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    monkeypatch.setattr(trace, "set_tracer_provider", set_now)
    monkeypatch.delattr(trace, "_set_tracer_provider")
    instrument()
    assert "has no _set_tracer_provider" in caplog.text
    trace.set_tracer_provider(application()[0])
    assert loop() is Level.NUDGE
    assert trace.set_tracer_provider is set_now
    monkeypatch.setattr(trace, "_set_tracer_provider", None, raising=False)


def test_a_provider_that_came_unnoticed_is_found_by_the_next_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", application()[0])  # as some test tools set it
    Gate().decide([], None, "thread")
    assert loop() is Level.NUDGE


def test_the_second_provider_is_refused_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    instrument()
    first, exporter = application()
    trace.set_tracer_provider(first)
    trace.set_tracer_provider(application()[0])
    assert "Overriding of current TracerProvider is not allowed" in caplog.text
    assert trace.get_tracer_provider() is first
    loop()
    assert shared_board().counts["steps"] == 3
    assert sum(span.name == "execute_tool search" for span in exporter.get_finished_spans()) == 3


def test_a_provider_set_in_another_thread_is_guarded() -> None:
    instrument()
    thread = threading.Thread(target=lambda: trace.set_tracer_provider(application()[0]))
    thread.start()
    thread.join(10)
    assert loop() is Level.NUDGE


def test_threads_that_instrument_and_set_at_once_attach_one_processor() -> None:
    for _ in range(50):
        runtime._process = runtime.Process()
        instrumentation._instrumentation = instrumentation.Instrumentation()
        trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = None, Once()
        provider, ready = application()[0], threading.Barrier(3)

        def at_once(action: Any, ready: threading.Barrier = ready) -> threading.Thread:
            def run() -> None:
                ready.wait(10)
                action()

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        set_provider = lambda provider=provider: trace.set_tracer_provider(provider)  # noqa: E731
        for thread in [at_once(instrument), at_once(set_provider), at_once(instrument)]:
            thread.join(10)
        processors = provider._active_span_processor._span_processors
        assert sum(type(one).__name__ == "TrajectoryGuardProcessor" for one in processors) == 1


def test_instrument_twice_before_the_provider_is_one_processor() -> None:
    assert instrument() is instrument()
    trace.set_tracer_provider(application()[0])
    loop()
    assert (shared_board().counts["steps"], shared_board().counts["duplicates"]) == (3, 0)


def test_instrument_before_and_after_the_provider_is_one_processor() -> None:
    first = instrument()
    trace.set_tracer_provider(application()[0])
    assert instrument() is first


def test_a_provider_instrumented_by_name_and_then_set_gets_one_processor() -> None:
    instrument()
    provider, _ = application()
    own = instrument(provider)
    trace.set_tracer_provider(provider)
    assert instrument() is own
    assert loop() is Level.NUDGE
    assert shared_board().counts["duplicates"] == 0


@pytest.mark.parametrize("takes_processors", [True, False])
def test_a_processor_that_no_provider_takes_leaves_the_configuration_free(takes_processors: bool) -> None:
    waiting = instrument(config=GuardConfig(decay=0.4))
    provider: trace.TracerProvider = application()[0] if takes_processors else trace.NoOpTracerProvider()
    if takes_processors:
        instrument(provider)
    trace.set_tracer_provider(provider)
    assert not waiting.enabled
    assert waiting not in shared_board().processors
    uninstrument()
    shared_board(GuardConfig(decay=0.6))


def test_a_provider_that_was_switched_off_evaluates_again_as_the_awaited_one() -> None:
    instrument()
    provider, _ = application()
    own = instrument(provider)
    uninstrument(provider)
    trace.set_tracer_provider(provider)
    assert own.enabled
    assert loop() is Level.NUDGE


def test_uninstrument_before_the_provider_leaves_it_alone_and_instrument_takes_it_up_again() -> None:
    before = trace._set_tracer_provider
    waiting = instrument()
    uninstrument()
    assert trace._set_tracer_provider is before
    trace.set_tracer_provider(application()[0])
    assert loop() is Level.OBSERVE
    assert instrument() is not waiting or waiting.enabled
    assert loop() is Level.NUDGE


def test_uninstrument_and_instrument_before_the_provider() -> None:
    waiting = instrument()
    uninstrument()
    assert instrument() is waiting
    trace.set_tracer_provider(application()[0])
    assert loop() is Level.NUDGE


def test_the_setter_is_put_back_when_the_provider_has_come() -> None:
    before = trace._set_tracer_provider
    instrument()
    trace.set_tracer_provider(application()[0])
    assert trace._set_tracer_provider is before


def test_somebody_else_who_replaced_the_setter_since_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    instrument()
    ours, seen = trace._set_tracer_provider, []

    def theirs(provider: Any, log: bool) -> None:
        seen.append(provider)
        ours(provider, log)

    monkeypatch.setattr(trace, "_set_tracer_provider", theirs)
    provider, _ = application()
    trace.set_tracer_provider(provider)
    assert trace._set_tracer_provider is theirs
    assert seen == [provider]
    assert loop() is Level.NUDGE


def test_a_provider_that_takes_no_processors_is_set_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    instrument()
    provider = trace.NoOpTracerProvider()
    trace.set_tracer_provider(provider)
    assert trace.get_tracer_provider() is provider
    assert "NoOpTracerProvider, which was set as tracer provider, takes no span processors" in caplog.text


def test_an_error_of_the_guard_does_not_reach_who_sets_the_provider(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(TracerProvider):
        def add_span_processor(self, span_processor: Any) -> None:
            raise RuntimeError("not today")

    instrument()
    provider = Broken(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    assert trace.get_tracer_provider() is provider
    assert "the provider that was set is not guarded" in caplog.text


def test_a_provider_named_by_a_variable_does_not_take_the_applications_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    instrument()
    provider, _ = application()
    trace.set_tracer_provider(provider)
    assert trace.get_tracer_provider() is provider
    assert loop() is Level.NUDGE


def test_a_provider_named_by_a_variable_is_guarded_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    instrument()
    assert loop() is Level.NUDGE


def test_without_a_provider_gates_work_from_messages_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from trajectory_guard.gates.messages import MARK

    caplog.set_level(logging.INFO)
    instrument()
    gate, messages, levels = Gate(), [], []
    status: Any = None
    for turn in range(30):
        call = {"name": "search", "args": {"q": "x"}, "id": f"call_{turn}", "type": "tool_call"}
        messages += [AIMessage("", id=f"m{turn}", tool_calls=[call]), ToolMessage("none", tool_call_id=call["id"])]
        decision = gate.decide(messages, status, "thread")
        status = decision.status
        if decision.nudge is not None:
            messages.append(HumanMessage(decision.nudge, additional_kwargs={MARK: {"intervention": "NUDGE"}}))
        levels.append(decision.level)
    assert levels[:5] == [Level.OBSERVE, Level.OBSERVE, Level.NUDGE, Level.OBSERVE, Level.STOP]
    lines = [record for record in caplog.records if "no tracer provider is set" in record.getMessage()]
    assert [record.levelname for record in lines] == ["INFO"]


def test_nothing_is_said_where_nobody_asked_for_spans(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gate = Gate()
    for _ in range(50):
        gate.decide([], None, "thread")
    assert "tracer provider" not in caplog.text


def test_metrics_created_early_reach_a_meter_provider_set_later() -> None:
    code = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from trajectory_guard import instrument
instrument()
trace.set_tracer_provider(TracerProvider())
reader = InMemoryMetricReader()
provider = MeterProvider([reader])
metrics.set_meter_provider(provider)
assert metrics.get_meter_provider() is provider
for _ in range(17):
    trace.get_tracer("app").start_span("execute_tool search", attributes=TOOL).end()
for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
    if scope.scope.name == "trajectory_guard":
        print(sorted(metric.name for metric in scope.metrics if any(True for _ in metric.data.data_points)))
"""
    names = run(code)
    for metric in (telemetry.STEPS, telemetry.INTERVENTIONS, telemetry.LATENCY, telemetry.ACTIVE):
        assert metric.name in names


READ_BY_A_GATE = """
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from trajectory_guard import instrument
from trajectory_guard.gates.gate import Gate
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
def decide(gate):
    messages = [HumanMessage("x", id="h")]
    for place in range(4):
        call = {"name": "search", "args": {}, "id": f"c{place}"}
        messages += [AIMessage("", tool_calls=[call], id=f"a{place}"), ToolMessage("r", tool_call_id=call["id"])]
    gate.decide(messages, None, "thread")
def show():
    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            if metric.name in ("trajectory_guard.steps", "trajectory_guard.trajectories.active"):
                print(metric.name, [point.value for point in metric.data.data_points])
"""
STEPS_OF_A_GATE = "trajectory_guard.steps [4]\ntrajectory_guard.trajectories.active [1]\n"


def test_a_gate_without_any_processor_has_metrics() -> None:
    assert run(READ_BY_A_GATE + "decide(Gate()); decide(Gate()); show()") == STEPS_OF_A_GATE


def test_a_gate_around_nodes_has_metrics_too() -> None:
    says = "gate = StagnationGate(); [gate.observe('the same words', thread_id='t') for _ in range(4)]; show()"
    assert "trajectories.active [1]" in run(f"{READ_BY_A_GATE}from trajectory_guard import StagnationGate\n{says}")


@pytest.mark.parametrize("code", ["gate = Gate(); instrument()", "instrument(); gate = Gate()"])
def test_a_gate_beside_a_processor_counts_nothing_twice(code: str) -> None:
    asked = f"trace.set_tracer_provider(TracerProvider()); {code}; decide(gate); show()"
    assert run(READ_BY_A_GATE + asked) == STEPS_OF_A_GATE


FORKED = """
import os, signal, sys, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from trajectory_guard import instrument, runtime, shared_board
from trajectory_guard.otel.instrument import _instrumentation
instrument()
held, done = threading.Event(), threading.Event()
def hold():
    with _instrumentation._lock, runtime._process._config_lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold, daemon=True)
thread.start()
held.wait()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        for _ in range(3):
            trace.get_tracer("app").start_span("execute_tool search", attributes=TOOL).end()
        spans = [span.name for span in exporter.get_finished_spans()]
        os._exit(0 if spans.count("execute_tool search") == 3 and shared_board().read("c").level == "NUDGE" else 1)
    children.append(child)
done.set()
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_workers_forked_before_the_provider_is_set_set_their_own() -> None:
    assert run(FORKED).strip() == "[0, 0]"


def test_langfuse_brings_its_provider_later() -> None:
    code = """
import os
os.environ.update(LANGFUSE_PUBLIC_KEY="pk", LANGFUSE_SECRET_KEY="sk", LANGFUSE_BASE_URL="http://127.0.0.1:9")
from trajectory_guard import instrument, shared_board
instrument()
from langfuse import Langfuse
from opentelemetry import trace
Langfuse()
for _ in range(3):
    trace.get_tracer("app").start_span("execute_tool search", attributes=TOOL).end()
print(shared_board().read("c").level.value, type(trace.get_tracer_provider()).__name__, flush=True)
os._exit(0)
"""
    assert run(code).strip() == "NUDGE TracerProvider"


def run(code: str) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "TRAJECTORY_GUARD"))}
    done = subprocess.run(
        [sys.executable, "-c", f"TOOL = {TOOL!r}\n{code}"], env={**environ, "PYTHONPATH": str(PACKAGE.parent)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_configuration_before_the_provider_is_held_to_the_first() -> None:
    instrument(config=GuardConfig(nudge_threshold=1.5))
    with pytest.raises(ValueError, match=r"nudge_threshold: 1\.5, 2\.0"):
        instrument(config=GuardConfig())


# --- opentelemetry-instrument -------------------------------------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "no tracer provider is set" in one.getMessage()]


def test_automatic_loading_without_a_provider_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    auto_instrument()
    (line,) = warnings(caplog)
    assert "opentelemetry-distro opentelemetry-exporter-otlp" in line
    provider, _ = application()
    trace.set_tracer_provider(provider)
    assert loop() is Level.NUDGE


def test_automatic_loading_behind_a_provider_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    provider, _ = application()
    trace.set_tracer_provider(provider)
    auto_instrument()
    assert warnings(caplog) == []
    assert loop() is Level.NUDGE


def test_a_provider_that_a_variable_names_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    auto_instrument()
    assert warnings(caplog) == []
