"""Which provider gets the guard's own spans and metrics, and what ends with a provider."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.util._once import Once

from trajectory_guard import FlagBoard, GuardConfig, runtime, telemetry
from trajectory_guard.config import ConfigError
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.gates.gate import Gate
from trajectory_guard.otel import instrument as instrumentation
from trajectory_guard.otel import metrics as otel_metrics
from trajectory_guard.otel.instrument import instrument, uninstrument
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.runtime import shared_board

TOOL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
    "gen_ai.tool.call.arguments": '{"q": "x"}', "gen_ai.tool.call.result": "nothing found",
}  # fmt: skip
CHAT = {
    "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c", "gen_ai.response.model": "a-model",
    "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has set a provider or a configuration."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setattr(instrumentation, "_instrumentation", instrumentation.Instrumentation())


def application() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def loop(provider: TracerProvider, calls: int = 3, conversation: str = "c") -> None:
    for _ in range(calls):
        attributes = {**TOOL, "gen_ai.conversation.id": conversation}
        provider.get_tracer("app").start_span("execute_tool", attributes=attributes).end()


def guard_spans(exporter: InMemorySpanExporter) -> int:
    return sum(one.name == telemetry.SPAN_NAME for one in exporter.get_finished_spans())


def by_gate(board: FlagBoard | None) -> None:
    """A gate reads three equal calls from the messages."""
    messages: list[AnyMessage] = [HumanMessage("look", id="h")]
    for at in range(3):
        request = {"name": "search", "args": {"q": "x"}, "id": f"c{at}"}
        messages.append(AIMessage("", tool_calls=[request], id=f"a{at}"))
        messages.append(ToolMessage("nothing found", tool_call_id=f"c{at}", id=f"t{at}", name="search"))
    assert Gate(board=board).decide(messages, {}, "t").level.value == "NUDGE"


# --- the guard's own spans -------------------------------------------------------------------------------------


def test_limits_that_the_application_sets_in_code_hold_for_the_spans_of_the_guard() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=SpanLimits(max_span_attribute_length=50), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard()))
    loop(provider)
    (written,) = [one for one in exporter.get_finished_spans() if one.name == telemetry.SPAN_NAME]
    assert max(len(value) for value in (written.attributes or {}).values() if isinstance(value, str)) == 50


@pytest.mark.parametrize("has_global", [False, True])
@pytest.mark.parametrize("way", ["add_span_processor", "instrument"])
def test_the_spans_of_the_guard_go_where_the_spans_of_the_agent_go(way: str, has_global: bool) -> None:
    other, elsewhere = application()
    if has_global:
        trace.set_tracer_provider(other)
    provider, exporter = application()
    if way == "instrument":
        instrument(provider)
    else:
        provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard(GuardConfig())))
    loop(provider)
    assert (guard_spans(exporter), guard_spans(elsewhere)) == (1, 0)
    own = next(one for one in exporter.get_finished_spans() if one.name == telemetry.SPAN_NAME)
    assert own.resource == exporter.get_finished_spans()[0].resource


def own_spans(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.name == telemetry.SPAN_NAME]


class Numbered(RandomIdGenerator):
    """Span ids from one on, as an application chooses them that wants to recognise its spans."""

    def __init__(self) -> None:
        self.last = 0

    def generate_span_id(self) -> int:
        self.last += 1
        return self.last


@pytest.mark.parametrize("way", ["global", "instrument"])
def test_the_id_generator_of_the_application_makes_the_ids_of_the_guards_spans(way: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(id_generator=Numbered(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if way == "global":
        trace.set_tracer_provider(provider)
        provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard()))
    else:
        instrument(provider)
    loop(provider)
    (own,) = own_spans(exporter)
    assert (own.context and own.context.span_id) == 4


@pytest.mark.skipif(
    not hasattr(TracerProvider, "_set_tracer_configurator"), reason="this SDK has no TracerConfigurator"
)
def test_an_application_that_switches_the_guards_tracer_off_gets_no_spans_of_it() -> None:
    from opentelemetry.sdk.trace import _TracerConfig

    provider, exporter = application()
    processor = instrument(provider)
    provider._set_tracer_configurator(
        tracer_configurator=lambda scope: _TracerConfig(is_enabled=scope.name != telemetry.SCOPE)
    )
    loop(provider)
    assert guard_spans(exporter) == 0
    assert processor.board.read("c").level.value == "NUDGE"


@pytest.mark.parametrize("has_global", [False, True])
@pytest.mark.parametrize("sampler, flags", [(ALWAYS_ON, 0), (ALWAYS_ON, 1), (ParentBased(ALWAYS_ON), 1)])
def test_the_sampler_of_the_application_decides_and_the_trace_state_is_inherited(
    sampler: Sampler, flags: int, has_global: bool
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler, shutdown_on_exit=False)
    if has_global:
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(TrajectoryGuardProcessor(board=FlagBoard()))
    state = trace.TraceState([("vendor", "x")])
    caller = trace.SpanContext(0x1F, 0x2F, is_remote=True, trace_flags=trace.TraceFlags(flags), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(caller)):
        loop(provider)
    (own,) = own_spans(exporter)
    assert own.context is not None
    assert own.parent == caller
    assert (own.context.trace_state, own.context.trace_flags) == (state, 1)
    assert own.links[0].context.trace_state == state


def test_one_processor_of_two_providers_writes_to_that_of_the_tool_span() -> None:
    (one, first), (two, second) = application(), application()
    processor = TrajectoryGuardProcessor(board=FlagBoard())
    one.add_span_processor(processor)
    two.add_span_processor(processor)
    for _ in range(3):
        loop(one, 1, "a")
        loop(two, 1, "b")
    attributes = [
        [(span.attributes or {})[telemetry.TRAJECTORY_ID] for span in own_spans(at)] for at in (first, second)
    ]
    assert attributes == [["a"], ["b"]]
    one.shutdown()
    loop(two, 3, "c")
    assert processor.board.read("c").level.value == "OBSERVE"  # a provider ends its processors


@pytest.mark.parametrize("limit, whole", [(50, False), (100_000, True), (None, True)])
def test_a_certificate_is_on_its_span_whole_or_not_at_all(limit: int | None, whole: bool) -> None:
    exporter, board, reader = InMemorySpanExporter(), FlagBoard(), InMemoryMetricReader()
    limits = SpanLimits(max_span_attribute_length=limit) if limit is not None else None
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, meter_provider=meters))
    loop(provider)
    (own,) = own_spans(exporter)
    found = (own.attributes or {}).get(telemetry.CERTIFICATE)
    assert (found is not None) is whole
    assert found is None or Certificate.from_json(str(found)).verify()
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = [
        one for one in data.resource_metrics[0].scope_metrics[0].metrics
        if one.name == "trajectory_guard.certificates.left_out"
    ]  # fmt: skip
    assert [point.value for point in metric.data.data_points] == [0 if whole else 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("threads", [1, 2])
def test_processors_that_share_a_few_threads_do_not_wait_for_each_other(threads: int) -> None:
    """The guard writes a span while another one ends: all the threads may be inside the guard at that moment."""
    exporter, written = InMemorySpanExporter(), threading.Event()

    class Exporter(SimpleSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            super().on_end(span)
            if guard_spans(exporter) == threads:
                written.set()

    provider = TracerProvider(
        active_span_processor=ConcurrentMultiSpanProcessor(num_threads=threads), shutdown_on_exit=False
    )
    instrument(provider)
    provider.add_span_processor(Exporter(exporter))
    agents = [
        threading.Thread(target=loop, args=(provider,), kwargs={"conversation": str(at)}, daemon=True)
        for at in range(threads)
    ]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join(5)

    assert not any(agent.is_alive() for agent in agents)
    assert written.wait(5)


def test_a_gates_span_goes_to_the_provider_that_is_instrumented() -> None:
    other, elsewhere = application()
    trace.set_tracer_provider(other)
    provider, exporter = application()
    instrument(provider)
    by_gate(None)
    assert (guard_spans(exporter), guard_spans(elsewhere)) == (1, 0)


def test_a_gates_span_goes_where_the_span_around_it_goes() -> None:
    provider, exporter = application()
    board = FlagBoard(GuardConfig())
    with provider.get_tracer("app").start_as_current_span("request"):
        by_gate(board)
    assert guard_spans(exporter) == 1


def test_of_several_instrumented_providers_the_span_around_a_gate_names_its_own() -> None:
    (one, first), (two, second) = application(), application()
    instrument(one)
    instrument(two)
    with two.get_tracer("app").start_as_current_span("request"):
        by_gate(None)
    assert (guard_spans(first), guard_spans(second)) == (0, 1)


# --- what ends with a provider ---------------------------------------------------------------------------------


def test_a_provider_that_the_application_drops_is_freed() -> None:
    provider, _ = application()
    instrument(provider)
    loop(provider)
    alive = weakref.ref(provider)
    provider.shutdown()
    del provider
    gc.collect()
    assert alive() is None
    another, exporter = application()
    instrument(another)
    assert len(instrumentation._instrumentation._instrumented) == 1
    loop(another)
    assert guard_spans(exporter) == 1


def test_the_configuration_ends_with_the_last_provider_and_gate(caplog: pytest.LogCaptureFixture) -> None:
    one, _ = application()
    two, _ = application()
    before, after = GuardConfig(nudge_threshold=2.0), GuardConfig(nudge_threshold=1.5)
    instrument(one, before)
    instrument(two)
    gate = Gate()
    uninstrument(one)
    for _ in ("a provider", "a gate"):
        with pytest.raises(ConfigError, match="nudge_threshold"):
            instrument(one, after)
        uninstrument(two)
    del gate
    gc.collect()
    uninstrument(two)
    with caplog.at_level(logging.WARNING, telemetry.LOGGER):
        assert instrument(one, after).config.nudge_threshold == 1.5
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert not warnings, "it replaces none of the environment"
    assert shared_board().config.nudge_threshold == 1.5
    with pytest.raises(ConfigError, match="nudge_threshold"):
        instrument(two, before)


def test_what_belongs_to_the_board_is_closed_with_its_last_processor(tmp_path: Path) -> None:
    """The judge is at work on an answer, and another one waits: both are judged after one provider has shut down."""
    go, judged = threading.Event(), list[str]()

    def judge(request: str, response: str) -> float:
        go.wait(30)
        judged.append(response)
        return 0.5

    config = GuardConfig(quality_judge=judge, track_spending=True, spending_file=str(tmp_path / "spent.db"))
    board = FlagBoard(config)
    one, _ = application()
    two, _ = application()
    for provider in (one, two):
        provider.add_span_processor(TrajectoryGuardProcessor(board=board))
    assert board.quality is not None
    assert board.quality.judge is not None
    from trajectory_guard.quality.judge import Answer

    for text in ("first", "second"):
        board.quality.judge.submit(Answer("c", "", "?", text))
    one.shutdown()
    go.set()
    assert board.quality.judge.wait(30)
    assert judged == ["first", "second"]
    two.get_tracer("app").start_span("chat", attributes=CHAT).end()
    two.shutdown()
    assert board.quality.judge._line.thread is None


# --- metrics ---------------------------------------------------------------------------------------------------


def reported(reader: InMemoryMetricReader, name: str) -> dict[Any, float]:
    data = reader.get_metrics_data()
    return {
        tuple(sorted(point.attributes.items())): point.value
        for group in (data.resource_metrics if data is not None else ())
        for scope in group.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    }


@pytest.fixture
def no_meters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has set a meter provider."""
    monkeypatch.setattr(otel_metrics, "_registry", otel_metrics._Registry())
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics_internal, "_PROXY_METER_PROVIDER", metrics_internal._ProxyMeterProvider())


@pytest.mark.parametrize("early", [0, 1, 2], ids=lambda count: f"{count} boards before the meter provider")
def test_all_boards_of_a_process_are_in_its_metrics(early: int, no_meters: None) -> None:
    reader, boards = InMemoryMetricReader(), [FlagBoard(GuardConfig()) for _ in range(2)]
    processors = [TrajectoryGuardProcessor(board=board) for board in boards[:early]]
    metrics.set_meter_provider(MeterProvider([reader]))
    processors += [TrajectoryGuardProcessor(board=board) for board in boards[early:]]
    for calls, processor in enumerate(processors, start=3):
        provider, _ = application()
        provider.add_span_processor(processor)
        loop(provider, calls)
    assert reported(reader, telemetry.STEPS.name) == {(): 7}
    assert reported(reader, telemetry.ACTIVE.name) == {(): 2}
    assert sum(reported(reader, telemetry.EPISODES.name).values()) == 2
    assert len(reported(reader, telemetry.EPISODES.name)) == 1


def test_metrics_go_to_the_meter_provider_that_instrument_is_given(no_meters: None) -> None:
    own, everywhere = InMemoryMetricReader(), InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([everywhere]))
    provider, _ = application()
    instrument(provider, meter_provider=MeterProvider([own]))
    loop(provider, 20)
    Gate().decide([HumanMessage("look", id="h")], {}, "t")  # looks whether its board is reported
    assert reported(own, telemetry.STEPS.name) == {(): 20}
    assert latencies(own) > 0
    assert reported(everywhere, telemetry.STEPS.name) == {}


def test_a_guard_that_waits_for_a_tracer_provider_keeps_its_meter_provider(no_meters: None) -> None:
    reader = InMemoryMetricReader()
    instrument(meter_provider=MeterProvider([reader]))
    provider, _ = application()
    trace.set_tracer_provider(provider)
    loop(provider)
    assert reported(reader, telemetry.STEPS.name) == {(): 3}


@pytest.mark.parametrize("is_set", [True, False], ids=["attached", "waiting"])
def test_a_meter_provider_that_comes_later_is_reported_to_as_well(is_set: bool, no_meters: None) -> None:
    """After auto-instrumentation, which knows the global ones only."""
    reader = InMemoryMetricReader()
    provider, _ = application()
    if is_set:
        trace.set_tracer_provider(provider)
    first = instrument()
    meters = MeterProvider([reader])
    assert instrument(meter_provider=meters) is instrument(meter_provider=meters) is first
    if not is_set:
        trace.set_tracer_provider(provider)
    loop(provider, 20)
    assert reported(reader, telemetry.STEPS.name) == {(): 20}
    assert latencies(reader) > 0


def latencies(reader: InMemoryMetricReader) -> int:
    data = reader.get_metrics_data()
    return sum(
        point.count
        for group in data.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
        if metric.name == telemetry.LATENCY.name
        for point in metric.data.data_points
    )


def test_the_provider_that_stands_for_one_that_is_not_set_yet_is_named_as_such() -> None:
    """Found: "ProxyTracerProvider has no add_span_processor", of a provider that nobody has made."""
    with pytest.raises(TypeError, match=r"no tracer provider is set yet.*or call instrument\(\) without it"):
        instrument(trace.ProxyTracerProvider())
