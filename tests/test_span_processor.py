"""The processor on a real SDK ``TracerProvider``: verdicts from spans, published as spans, and nothing that hurts the application."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.version import __version__ as sdk_version

import trajectory_guard
from trajectory_guard import __version__, callbacks, runtime, telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import Detector
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.policy import Level
from trajectory_guard.otel.ending import goes_on_after_false
from trajectory_guard.otel.instrument import auto_instrument, instrument, uninstrument
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

ANSWER = "We are closed on Mondays and open from Tuesday to Sunday."
_names = itertools.count()


class App:
    """An application with an exporter, guarded by a processor of its own."""

    def __init__(
        self, *, guard_first: bool = False, others: tuple[SpanProcessor, ...] = (), provider: Any = None, **config: Any
    ) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = provider or TracerProvider()
        self.board = FlagBoard(GuardConfig(**config))
        self.processor = TrajectoryGuardProcessor(board=self.board, tracer_provider=self.provider)
        exporting = SimpleSpanProcessor(self.exporter)
        for one in (self.processor, exporting) if guard_first else (exporting, self.processor):
            self.provider.add_span_processor(one)
        for one in others:
            self.provider.add_span_processor(one)
        self.tracer = self.provider.get_tracer("app")

    def call(self, args: Any = '{"q":"hours"}', result: Any = ANSWER, *, name: str = "search", **extra: Any) -> None:
        """One tool call by the semantic conventions, in conversation ``c`` unless told otherwise.

        It belongs to the current trace, else to the one trace of this application.
        """
        current = trace.get_current_span().get_span_context().is_valid
        attributes = tool_attributes(args, result, name=name, **extra)
        context = None if current else one_trace(1)
        with self.tracer.start_as_current_span(f"execute_tool {name}", context, attributes=attributes):
            pass

    def exported(self, name: str | None = None) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if name is None or span.name == name]

    @property
    def errors(self) -> dict[str, int]:
        return {key: count for key, count in self.board.counts.items() if key.startswith("errors")}


def one_trace(trace_id: int) -> otel_context.Context:
    """A context in which spans belong to this trace."""
    parent = trace.SpanContext(trace_id, 1, is_remote=False, trace_flags=trace.TraceFlags(1))
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


def trace_of(app: App, number: int) -> AbstractContextManager[Any]:
    """A trace of its own, as a run has that is resumed."""
    return app.tracer.start_as_current_span(f"run {number}", otel_context.Context())


def tool_attributes(
    args: Any, result: Any, *, name: str = "search", conversation: str | None = "c", **extra: Any
) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": args,
        "gen_ai.tool.call.result": result,
        "gen_ai.conversation.id": conversation,
        **extra,
    }
    return {key: value for key, value in attributes.items() if value is not None}


# --- verdicts ------------------------------------------------------------------------------------------------


def test_a_loop_is_flagged_at_the_right_step() -> None:
    app = App()
    levels = []
    for _ in range(5):
        app.call()
        levels.append(app.board.take("c").level)
    assert levels == [Level.OBSERVE, Level.OBSERVE, Level.NUDGE, Level.NUDGE, Level.STOP]
    assert app.board.read("c").steps == 5


def test_healthy_work_is_not_flagged() -> None:
    app = App()
    for at in range(30):
        app.call(f'{{"page": {at}}}', f"text of page {at}")
    assert app.board.read("c").level is Level.OBSERVE
    assert app.exported(telemetry.SPAN_NAME) == []


def test_spans_that_are_no_tool_calls_are_no_steps() -> None:
    app = App()
    for operation in ("chat", "invoke_agent", "embeddings"):
        with app.tracer.start_as_current_span(
            operation, attributes={"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"}
        ):
            pass
    with app.tracer.start_as_current_span("GET /"):
        pass
    assert (len(app.board), app.errors) == (0, {})


def test_a_declared_dialect_is_asked_first_in_process_too() -> None:
    match = {"gen_ai.operation.name": "chat", "acme.tool": True}
    app = App(dialects=[{"name": "mine", "match": match, "tool_name": "acme.tool"}])
    with app.tracer.start_as_current_span("x", attributes={"gen_ai.operation.name": "chat", "acme.tool": "search"}):
        pass
    assert (app.board.counts["steps"], app.errors) == (1, {})


@pytest.mark.parametrize("guard_first", [False, True])
def test_order_among_the_processors_does_not_matter(guard_first: bool) -> None:
    app = App(guard_first=guard_first)
    for _ in range(5):
        app.call()
    assert [span.attributes[telemetry.INTERVENTION] for span in app.exported(telemetry.SPAN_NAME)] == ["NUDGE", "STOP"]
    assert len(app.exported("execute_tool search")) == 5
    assert all(telemetry.INTERVENTION not in span.attributes for span in app.exported("execute_tool search"))


def test_two_spans_of_one_call_count_once() -> None:
    app = App()
    for at in range(6):
        with app.tracer.start_as_current_span(
            "x", attributes=tool_attributes('{"q":1}', ANSWER, **{"gen_ai.tool.call.id": f"call_{at}"})
        ):
            inner = {
                "tool.name": "search",
                "openinference.span.kind": "TOOL",
                "input.value": '{"q":1}',
                "output.value": ANSWER,
            }
            with app.tracer.start_as_current_span("search", attributes=inner):
                pass
    assert app.board.read("c").steps == 6


def test_a_resumed_call_counts_once() -> None:
    app = App()
    for at in range(6):
        with trace_of(app, at):
            app.call(**{"gen_ai.tool.call.id": "call_1"})
    assert app.board.read("c").steps == 1
    assert app.board.counts["duplicates"] == 5


def test_usage_of_the_model_is_spent_on_the_next_step() -> None:
    app = App()
    with app.tracer.start_as_current_span("run"):
        for _ in range(3):
            tokens = {
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 10,
            }
            with app.tracer.start_as_current_span("chat", attributes=tokens):
                pass
            app.call()
    verdict = app.board.last_verdict("c")
    assert verdict is not None
    assert verdict.spent.tokens == 220


# --- how a verdict is published -----------------------------------------------------------------------------------


def test_an_intervention_is_a_span_beside_the_tool_span() -> None:
    app = App()
    with app.tracer.start_as_current_span("agent") as agent:
        for _ in range(3):
            app.call()
    (reported,) = app.exported(telemetry.SPAN_NAME)
    tools = app.exported("execute_tool search")
    assert reported.parent is not None
    assert reported.parent.span_id == agent.get_span_context().span_id
    assert reported.context.trace_id == agent.get_span_context().trace_id
    assert [link.context.span_id for link in reported.links] == [tools[2].context.span_id]
    scope = reported.instrumentation_scope
    assert (scope.name, scope.version) == (telemetry.SCOPE, __version__)
    attributes = reported.attributes
    assert attributes[telemetry.LOOP_DETECTED] is True
    assert tuple(attributes[telemetry.LOOP_TYPE]) == ("TYPE_I_STUTTER",)
    assert attributes[telemetry.LOOP_SCORE] == 3.0
    assert attributes[telemetry.HEALTH] == pytest.approx(0.4)
    assert attributes[telemetry.INTERVENTION] == "NUDGE"
    assert attributes[telemetry.LOOP_FIRST_STEP] == f"{tools[0].context.span_id:016x}"
    assert (attributes[telemetry.EPISODE], attributes[telemetry.STEP_INDEX]) == (1, 2)
    assert (attributes[telemetry.TRAJECTORY_ID], attributes[telemetry.EVIDENCE]) == ("c", "full")
    assert "search" in attributes[telemetry.REASON]


def test_a_tool_span_without_a_parent_is_reported_in_its_own_trace() -> None:
    app = App()
    for _ in range(3):
        app.call()
    (reported,) = app.exported(telemetry.SPAN_NAME)
    assert reported.context.trace_id == app.exported("execute_tool search")[2].context.trace_id


def test_the_live_parent_is_reported_too() -> None:
    app = App()
    with app.tracer.start_as_current_span("agent"):
        for _ in range(3):
            app.call()
    (agent,) = app.exported("agent")
    assert agent.attributes[telemetry.INTERVENTION] == "NUDGE"
    assert agent.attributes[telemetry.TRAJECTORY_ID] == "c"


def test_a_parent_that_has_ended_is_left_alone() -> None:
    app = App()
    parent = app.tracer.start_span("agent")
    parent.end()
    token = otel_context.attach(trace.set_span_in_context(parent))
    try:
        for _ in range(3):
            app.call()
    finally:
        otel_context.detach(token)
    assert telemetry.INTERVENTION not in (app.exported("agent")[0].attributes or {})
    assert len(app.exported(telemetry.SPAN_NAME)) == 1
    assert app.errors == {}


def test_langfuse_is_tagged_from_the_nudge_on_and_not_before() -> None:
    app = App()
    with app.tracer.start_as_current_span("first"):
        for _ in range(2):
            app.call()
    with app.tracer.start_as_current_span("second"):
        app.call()
    assert telemetry.LANGFUSE_TAGS not in app.exported("first")[0].attributes
    assert tuple(app.exported("second")[0].attributes[telemetry.LANGFUSE_TAGS]) == ("LOOP_DETECTED", "TYPE_I_STUTTER")
    assert len(app.exported(telemetry.SPAN_NAME)) == 1


def test_each_nudge_of_a_loop_and_its_stop_are_reported_once() -> None:
    app = App()
    for at in range(30):
        app.call(f'{{"id": {at}}}', "Cart: 1 item. Please choose a size to continue.", name="click")
    assert (app.board.counts["interventions.NUDGE"], app.board.counts["interventions.STOP"]) == (2, 1)
    reported = [span.attributes[telemetry.INTERVENTION] for span in app.exported(telemetry.SPAN_NAME)]
    assert reported == ["NUDGE", "NUDGE", "STOP"]


def test_every_step_is_a_line_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    with caplog.at_level(logging.DEBUG, logger=telemetry.LOGGER):
        for page in range(3):
            app.call(f'{{"page": {page}}}', f"page {page} of the report", name="read")
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.levelno == logging.DEBUG]
    assert [(line["step_index"], line["tool"], line["detections"]) for line in lines] == [
        (0, "read", []), (1, "read", []), (2, "read", []),
    ]  # fmt: skip


def test_an_agent_that_nobody_stops_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """With nothing but observation a night of one loop wrote a span and an ERROR at every step."""
    app = App()
    with caplog.at_level(logging.INFO, telemetry.LOGGER):
        for _ in range(20):
            app.call()
    assert app.board.read("c").level is Level.STOP
    assert [span.attributes[telemetry.INTERVENTION] for span in app.exported(telemetry.SPAN_NAME)] == ["NUDGE", "STOP"]
    assert (app.board.counts["interventions.NUDGE"], app.board.counts["interventions.STOP"]) == (1, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


# --- identity ------------------------------------------------------------------------------------------------


def test_a_conversation_named_by_a_live_ancestor_is_the_trajectory() -> None:
    app = App()
    for _ in range(3):
        with (
            app.tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.conversation.id": "thread-7"}),
            app.tracer.start_as_current_span("node"),
        ):
            app.call(conversation=None)
    assert app.board.read("thread-7").level is Level.NUDGE
    assert len(app.board) == 1


def test_a_conversation_named_late_on_a_live_parent_is_found() -> None:
    app = App()
    for _ in range(3):
        with app.tracer.start_as_current_span("agent") as agent:
            agent.set_attribute("session.id", "thread-7")
            app.call(conversation=None)
    assert app.board.read("thread-7").steps == 3


def test_steps_evaluated_before_their_conversation_was_named_belong_to_it() -> None:
    app = App()
    for _ in range(3):
        with app.tracer.start_as_current_span("agent") as agent:
            app.call(conversation=None)
            agent.set_attribute("gen_ai.conversation.id", "thread-7")
    assert app.board.read("thread-7").steps == 3
    assert app.board.read("thread-7").level is Level.NUDGE
    assert len(app.board) == 1


@pytest.mark.parametrize("calls", [16, 17, 40])
def test_a_long_loop_whose_conversation_is_named_late_keeps_its_stop(calls: int) -> None:
    """Beyond sixteen steps they are not evaluated again: their run goes on in the conversation as it is."""
    app = App()
    app.call('{"day":"monday"}', "open", conversation="thread-7")
    with app.tracer.start_as_current_span("agent") as agent:
        for _ in range(calls):
            app.call(conversation=None)
        agent.set_attribute("gen_ai.conversation.id", "thread-7")
    flag = app.board.read("thread-7")
    assert (flag.level, flag.steps) == (Level.STOP, calls + 1)
    assert len(app.board) == 1


def test_a_conversation_named_by_a_sibling_holds_for_the_rest_of_the_trace() -> None:
    app = App()
    with app.tracer.start_as_current_span("run"):
        with app.tracer.start_as_current_span(
            "chat", attributes={"gen_ai.operation.name": "chat", "session.id": "thread-7"}
        ):
            pass
        for _ in range(3):
            app.call(conversation=None)
    assert app.board.read("thread-7").steps == 3


def test_a_declared_conversation_named_by_a_sibling_holds_for_the_rest_of_the_trace() -> None:
    app = App(dialects=[{"name": "mine", "match": {"acme.kind": "tool"}, "conversation": "acme.chat"}])
    with app.tracer.start_as_current_span("run"):
        with app.tracer.start_as_current_span("chat", attributes={"acme.chat": 7}):
            pass
        for _ in range(3):
            app.call(conversation=None)
    assert app.board.read("7").steps == 3


def test_without_any_name_the_trace_is_the_trajectory() -> None:
    app = App()
    for _ in range(2):
        with app.tracer.start_as_current_span("run") as run:
            for _ in range(3):
                app.call(conversation=None)
        assert app.board.read(f"{run.get_span_context().trace_id:032x}").steps == 3


def test_conversations_do_not_mix() -> None:
    app = App()
    for at in range(12):
        app.call(conversation=f"c{at % 4}")
    assert [app.board.read(f"c{at}").level for at in range(4)] == [Level.NUDGE] * 4
    app = App()
    for at in range(12):
        app.call(conversation=f"c{at}")
    assert all(app.board.read(f"c{at}").level is Level.OBSERVE for at in range(12))


# --- sampling ------------------------------------------------------------------------------------------------


class RecordOnly(Sampler):
    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *rest: Any,
        **more: Any,
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        return "record only"


def test_spans_that_are_recorded_but_not_exported_are_evaluated() -> None:
    app = App(provider=TracerProvider(sampler=RecordOnly()))
    for _ in range(3):
        app.call()
    assert app.board.read("c").level is Level.NUDGE
    assert app.exported() == []


# --- faults --------------------------------------------------------------------------------------------------


class Raises(SpanProcessor):
    """Raises for spans of one name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_end(self, span: ReadableSpan) -> None:
        if span.name == self.name:
            raise RuntimeError("no disk")


class BrokenExporter(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("no network")

    def shutdown(self) -> None:
        return None


def test_a_processor_that_fails_on_the_guards_own_span_does_not_reach_the_application() -> None:
    app = App(others=(Raises(telemetry.SPAN_NAME),))
    for _ in range(5):
        app.call()
    assert app.board.read("c").level is Level.STOP
    assert sum(app.errors.values()) == 2


def test_an_exporter_that_raises_changes_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    app = App(others=(SimpleSpanProcessor(BrokenExporter()),))
    with caplog.at_level(logging.CRITICAL):
        for _ in range(3):
            app.call()
    assert app.board.read("c").level is Level.NUDGE


def test_an_engine_that_raises_is_contained_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    def broken(*args: Any) -> None:
        raise ZeroDivisionError("detector")

    monkeypatch.setattr(app.board.engine, "observe", broken)
    for _ in range(5):
        app.call()
    assert app.errors == {"errors.on_end": 5}
    assert [one.levelname for one in caplog.records if one.name == telemetry.LOGGER] == ["ERROR"]
    assert len(app.exported("execute_tool search")) == 5
    monkeypatch.undo()
    for _ in range(3):
        app.call()
    assert app.board.read("c").level is Level.NUDGE


def test_a_detector_that_raises_once_does_not_shift_later_steps() -> None:
    app = App()
    app.call('{"q": "first"}', "something")
    run = app.board._entries["c"].state.run
    healthy = run.detectors

    class Broken(Detector):
        name, loop_type = "broken", "TYPE_I_STUTTER"

        def update(self, seen: Observation) -> None:
            raise ZeroDivisionError

    run.detectors = (Broken(),)
    app.call('{"q": "second"}', "something else")
    run.detectors = healthy
    for _ in range(3):
        app.call()
    looping = [
        span for span in app.exported("execute_tool search") if span.attributes["gen_ai.tool.call.result"] == ANSWER
    ]
    (reported,) = app.exported(telemetry.SPAN_NAME)
    assert reported.attributes[telemetry.LOOP_FIRST_STEP] == f"{looping[0].context.span_id:016x}"


def test_an_error_of_the_guard_is_a_metric() -> None:
    reader = InMemoryMetricReader()
    board = FlagBoard()
    provider = TracerProvider()
    processor = TrajectoryGuardProcessor(board=board, tracer_provider=provider, meter_provider=MeterProvider([reader]))
    provider.add_span_processor(processor)
    board.engine.observe = None  # type: ignore[method-assign, assignment]
    with provider.get_tracer("app").start_as_current_span("execute_tool x", attributes=tool_attributes("{}", "y")):
        pass
    data = reader.get_metrics_data()
    metrics = {
        metric.name: metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics
    }
    scopes = {(scope.scope.name, scope.scope.version) for one in data.resource_metrics for scope in one.scope_metrics}
    assert scopes == {(telemetry.SCOPE, __version__)}
    points = metrics[telemetry.ERRORS.name].data.data_points
    assert [(point.value, dict(point.attributes)) for point in points] == [
        (1, {"trajectory_guard.error.where": "on_end"})
    ]


DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]

HOSTILE: dict[str, Mapping[str, Any]] = {
    "1 MB of arguments": {"args": '{"text": "' + "x" * 1_000_000 + '"}'},
    "1 MB of result": {"result": "y" * 1_000_000},
    "NaN": {"args": '{"n": NaN, "m": [Infinity, -Infinity]}'},
    "lone surrogates": {"args": '{"a": "\ud800"}', "result": "\udc80 text"},
    "escaped surrogates": {"args": '{"a": "\\ud800"}', "result": '{"a": "\\udfff"}'},
    "surrogate names": {"name": "to\ud800ol", "conversation": "c\udc80"},
    "bytes": {"args": b"\xff\xfe", "result": b"\x00"},
    "deep nesting": {"args": '{"a":' * 5_000 + "1" + "}" * 5_000, "result": "[" * 5_000},
    "python repr with odd keys": {"args": "{(1, 2): 3, b'k': 99999999999999999999}"},
    "broken JSON": {"args": '{"a": ', "result": '{"b": '},
    "numbers for texts": {"args": 7, "result": 3.5},
    "lists for texts": {"args": ["a", "b"], "result": ["c"]},
    "odd conversation": {"conversation": 17},
    "odd agent": {"gen_ai.agent.name": ["alice", "bob"]},
    "odd error": {"error.type": ["a"]},
    "odd metadata": {"metadata": '{"lc_agent_name": {"a": 1}, "langgraph_step": {}}'},
    "odd step": {"traceloop.association.properties.langgraph_step": [1, 2]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_odd_content_is_evaluated_without_an_error(name: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    for _ in range(4):
        app.call(**HOSTILE[name])
    assert app.errors == {}
    assert app.board.counts["steps"] == 4
    assert [one for one in caplog.records if one.name == telemetry.LOGGER and one.exc_info] == []


@pytest.mark.parametrize(
    "key", ["gen_ai.operation.name", "mcp.method.name", "openinference.span.kind", "tool.name", "logfire.span_type"]
)
def test_markers_of_odd_type_do_no_harm(key: str) -> None:
    app = App()
    with app.tracer.start_as_current_span(
        "execute_tool x", attributes={key: ["execute_tool", "x"], "gen_ai.conversation.id": "c"}
    ):
        pass
    with app.tracer.start_as_current_span("outer", attributes={key: ["execute_tool", "x"]}):
        app.call()
    assert app.errors == {}


class OneSpanId(IdGenerator):
    def generate_span_id(self) -> int:
        return 7

    def generate_trace_id(self) -> int:
        return RandomIdGenerator().generate_trace_id()


def test_span_ids_that_repeat_are_redeliveries() -> None:
    app = App(provider=TracerProvider(id_generator=OneSpanId()))
    for _ in range(5):
        app.call()
    assert (app.board.read("c").steps, app.errors) == (1, {})


def test_a_span_that_is_its_own_parent_ends_the_search_for_ancestors() -> None:
    app = App(provider=TracerProvider(id_generator=OneSpanId()))
    with app.tracer.start_as_current_span("outer"):
        app.call(conversation=None)
    assert app.errors == {}


@pytest.mark.parametrize("skew_s", [-3_600, -1, 0])
def test_clocks_that_run_backwards(skew_s: int) -> None:
    app = App()
    for at in range(3):
        start = 1_700_000_000_000_000_000 + at * 1_000_000_000
        span = app.tracer.start_span(
            "execute_tool search", attributes=tool_attributes('{"q":1}', ANSWER), start_time=start
        )
        span.end(end_time=start + skew_s * 1_000_000_000)
    assert app.errors == {}
    verdict = app.board.last_verdict("c")
    assert verdict is not None
    assert verdict.level is Level.NUDGE
    assert verdict.spent.seconds >= 0


# --- bounds --------------------------------------------------------------------------------------------------


def largest_table(*objects: Any) -> int:
    """Size of the largest container that any of the objects holds."""
    values = [value for one in objects for value in vars(one).values()]
    return max(
        len(value) for value in values if isinstance(value, (dict, list, set)) or type(value).__name__ == "deque"
    )


def test_spans_that_never_end_are_bounded_and_counted() -> None:
    app = App(max_open_spans=100)
    held = [app.tracer.start_span("execute_tool search", attributes=tool_attributes("{}", None)) for _ in range(1_000)]
    assert largest_table(app.processor, app.board) <= 101
    assert app.board.counts["expired_full"] >= len(held) - 101
    app.call()
    assert app.board.read("c").steps == 1


def test_spans_that_the_application_drops_are_not_kept_alive() -> None:
    app = App(max_open_spans=100)
    dropped = [
        ref(app.tracer.start_span("chat", attributes={"gen_ai.input.messages": "x" * 10_000})) for _ in range(50)
    ]
    gc.collect()
    assert [one() for one in dropped] == [None] * 50
    for _ in range(300):
        app.tracer.start_span("work").end()
    assert app.board.counts["expired_dropped"] == 50


def test_a_tool_span_that_never_ends_expires_by_age_and_an_agent_span_does_not() -> None:
    app = App(open_span_ttl_s=60.0)
    long_ago = 1_700_000_000_000_000_000
    hanging = app.tracer.start_span("execute_tool search", attributes=tool_attributes("{}", None), start_time=long_ago)
    agent = app.tracer.start_span(
        "invoke_agent", attributes={"gen_ai.conversation.id": "thread-7"}, start_time=long_ago
    )
    for _ in range(3_000):
        app.tracer.start_span("work").end()
    assert app.board.counts["expired_age"] == 1
    assert hanging.is_recording()
    with trace.use_span(agent, end_on_exit=True):
        app.call(conversation=None)
    assert app.board.read("thread-7").steps == 1


@pytest.mark.slow
def test_memory_is_bounded_over_many_trajectories() -> None:
    app = App(max_trajectories=1_000)
    app.exporter.shutdown()
    for at in range(20_000):
        app.call(conversation=f"c{at}", **{"session.id": f"s{at}"})
    assert len(app.board) == 1_000
    assert app.board.counts["evicted_full"] == 19_000
    assert largest_table(app.processor, app.board) <= 1_001
    assert app.board.read("c19999").steps == 1
    assert app.board.read("c0").steps == 0


def test_traces_without_tool_calls_leave_nothing_behind() -> None:
    app = App(max_trajectories=50)
    app.exporter.shutdown()
    for at in range(500):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1, "session.id": f"s{at}"}
        with app.tracer.start_as_current_span("chat", attributes=attributes):
            pass
    assert largest_table(app.processor) <= 51
    assert len(app.board) == 0


# --- threads and tasks ---------------------------------------------------------------------------------------


def test_sixteen_threads_over_eight_conversations_give_the_verdicts_of_one() -> None:
    app = App()
    app.exporter.shutdown()
    clock = itertools.count(1_700_000_000_000)  # milliseconds
    start = threading.Barrier(16)

    def work(number: int) -> None:
        conversation = number % 8
        start.wait()
        for at in range(200):
            moment = next(clock) * 1_000_000
            looping = conversation < 4
            args, result = ('{"q":1}', ANSWER) if looping else (f'{{"n": "{number}-{at}"}}', f"news {number} {at}")
            span = app.tracer.start_span(
                "execute_tool search",
                one_trace(conversation + 1),
                attributes=tool_attributes(args, result, conversation=f"c{conversation}"),
                start_time=moment,
            )
            span.end(end_time=moment)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert app.errors == {}
    flags = [app.board.read(f"c{number}") for number in range(8)]
    assert [flag.steps for flag in flags] == [400] * 8
    assert [(flag.level, flag.score, flag.nudges) for flag in flags[:4]] == [(Level.STOP, 5.0, 1)] * 4
    assert [(flag.level, flag.score, flag.nudges) for flag in flags[4:]] == [(Level.OBSERVE, 0.0, 0)] * 4
    assert app.board.counts["steps"] == 3_200
    assert app.board.counts["interventions.NUDGE"] == 4


async def test_concurrent_tasks_keep_their_conversations_apart() -> None:
    app = App()

    async def agent(number: int) -> None:
        with app.tracer.start_as_current_span("agent", attributes={"gen_ai.conversation.id": f"c{number}"}):
            for at in range(5):
                await asyncio.sleep(0)
                result = ANSWER if number % 2 else f"page {at} of {number}"
                app.call(f'{{"at": {0 if number % 2 else at}}}', result, conversation=None)
                await asyncio.sleep(0)

    await asyncio.gather(*(agent(number) for number in range(8)))
    assert [app.board.read(f"c{number}").level for number in range(8)] == [Level.OBSERVE, Level.STOP] * 4
    assert [app.board.read(f"c{number}").steps for number in range(8)] == [5] * 8


# --- life cycle ----------------------------------------------------------------------------------------------


def test_after_shutdown_nothing_is_evaluated_and_flags_stay_readable() -> None:
    app = App()
    for _ in range(3):
        app.call()
    assert app.processor.force_flush() is True
    app.processor.shutdown()
    for _ in range(3):
        app.call()
    assert (app.board.read("c").level, app.board.read("c").steps) == (Level.NUDGE, 3)


def test_the_provider_can_flush_and_shut_down() -> None:
    app = App()
    app.call()
    assert app.provider.force_flush() is True
    app.provider.shutdown()
    assert app.processor.enabled is False


def test_a_callback_that_hangs_leaves_time_for_the_exporters_behind() -> None:
    """The provider skips processors whose turn comes after its time-out."""
    go, flushed = threading.Event(), list[int]()

    async def hang(_: Any) -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)

    class Exporting(SpanProcessor):
        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            flushed.append(timeout_millis)
            return True

    app = App(on_intervention=hang)
    app.provider.add_span_processor(Exporting())
    for _ in range(3):
        app.call()
    try:
        assert app.provider.force_flush(1_000) is not goes_on_after_false(sdk_version)
    finally:
        go.set()
    assert callbacks.wait(30)
    assert 0 < flushed[0] <= 500


@pytest.fixture
def guarded() -> Callable[[TracerProvider], Any]:
    """Makes three equal calls on a provider, in a conversation of its own, and returns the flag raised."""

    def run(provider: TracerProvider) -> Any:
        name = f"conversation-{next(_names)}"
        for _ in range(3):
            attributes = tool_attributes('{"q":1}', ANSWER, conversation=name)
            with provider.get_tracer("app").start_as_current_span("execute_tool search", attributes=attributes):
                pass
        return trajectory_guard.shared_board().read(name)

    return run


def test_instrument_twice_attaches_one_processor(guarded: Any) -> None:
    provider = TracerProvider()
    assert instrument(provider) is instrument(provider)
    assert guarded(provider).steps == 3


def test_uninstrument_switches_off_and_instrument_on_again(guarded: Any) -> None:
    provider = TracerProvider()
    first = instrument(provider)
    uninstrument(provider)
    assert guarded(provider).steps == 0
    assert instrument(provider) is first
    assert guarded(provider).level is Level.NUDGE


def test_uninstrument_without_instrument_is_harmless(guarded: Any) -> None:
    provider = TracerProvider()
    uninstrument(provider)
    instrument(provider)
    assert guarded(provider).level is Level.NUDGE


def test_two_providers_have_a_processor_each(guarded: Any) -> None:
    one, other = TracerProvider(), TracerProvider()
    assert instrument(one) is not instrument(other)
    uninstrument(one)
    assert guarded(one).steps == 0
    assert guarded(other).steps == 3


def test_instrument_from_two_threads_at_once_attaches_one_processor() -> None:
    class SlowProvider:
        def __init__(self) -> None:
            self.attached: list[SpanProcessor] = []
            self.second: threading.Thread | None = None

        def add_span_processor(self, processor: SpanProcessor) -> None:
            if self.second is None:
                self.second = threading.Thread(target=lambda: instrument(self))  # type: ignore[arg-type]
                self.second.start()
                self.second.join(0.5)
            self.attached.append(processor)

        def get_tracer(self, *args: Any) -> Any:
            raise NotImplementedError

    provider = SlowProvider()
    instrument(provider)  # type: ignore[arg-type]
    assert provider.second is not None
    provider.second.join(5)
    assert len(provider.attached) == 1


@pytest.mark.parametrize("provider", [object(), trace.NoOpTracerProvider()])
def test_a_provider_that_takes_no_processors_is_refused_by_name(provider: Any) -> None:
    with pytest.raises(TypeError, match=f"tracer_provider: {type(provider).__name__} has no add_span_processor"):
        instrument(provider)


def test_automatic_loading_can_be_switched_off_and_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def broken() -> None:
        calls.append(1)
        raise RuntimeError("bad configuration")

    monkeypatch.setattr("trajectory_guard.otel.instrument.instrument", broken)
    auto_instrument()
    assert calls == [1]
    assert any("unguarded" in one.getMessage() for one in caplog.records)
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "true")
    auto_instrument()
    assert calls == [1]


@pytest.mark.parametrize(
    ("listed", "loaded"),
    [("trajectory_guard", 0), ("requests, trajectory_guard", 0), ("*", 0), ("requests", 1), ("", 1)],
)
def test_the_switch_of_opentelemetry_leaves_the_guard_out(
    listed: str, loaded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr("trajectory_guard.otel.instrument.instrument", lambda: calls.append(1))
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", listed)
    auto_instrument()
    assert len(calls) == loaded


def test_a_wrong_setting_at_automatic_loading_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setenv("TRAJECTORY_GUARD_MODE", "observ")
    monkeypatch.setenv("TRAJECTORY_GUARD_DECAY", "2")
    auto_instrument()
    (line,) = [one for one in caplog.records if "unguarded" in one.getMessage()]
    assert line.exc_info is None
    assert "TRAJECTORY_GUARD_MODE: expected 'enforce', 'nudge' or 'observe', got 'observ'" in line.getMessage()
    assert "TRAJECTORY_GUARD_DECAY: expected less than 1, got 2; " in line.getMessage()
    assert "\n" not in line.getMessage()


def test_a_live_span_is_never_changed_by_looking_at_it() -> None:
    app = App()
    with app.tracer.start_as_current_span("agent", attributes={"a": 1}) as agent:
        app.call()
        assert isinstance(agent, Span)
        assert dict(agent.attributes or {}) == {"a": 1}
