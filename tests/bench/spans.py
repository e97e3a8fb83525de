"""The time the processor adds to a span, beside the SDK's own for creating and ending that very span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from tests.bench import shapes
from tests.bench.measure import Effort, Figures, Probe, interleave
from tests.bench.report import Row
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

STEPS_PER_RUN = 50
TOOL_RATIO = 2.0
LARGE_US = 100.0
OTHER_RATIO = 0.05
Shape = Callable[[str, int], shapes.SpanShape]
_TOOLS: tuple[tuple[str, Shape], ...] = (
    ("plain semconv", shapes.semconv),
    ("OpenLLMetry", shapes.openllmetry),
    ("OpenInference", shapes.openinference),
)
_LOOPS: tuple[tuple[str, Shape], ...] = (
    ("same call, same result", shapes.same_call),
    ("other calls, same result", shapes.same_result),
    ("other calls, errors of 1 kB", partial(shapes.failing, size=1_000)),
    ("other calls, errors of 8 kB", partial(shapes.failing, size=8_000)),
    ("two calls, 8 kB of nothing but heads of errors", shapes.error_lines),
)
"""Runs that are stuck from their first step to their last."""
_conversations = count()


class Keep(SpanProcessor):
    """Keeps finished spans, to hand them to a processor directly."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Setup(NamedTuple):
    """A tracer without processors, one with the guard alone, and one that keeps its spans."""

    plain: trace.Tracer
    guarded: trace.Tracer
    keeping: trace.Tracer
    guard: TrajectoryGuardProcessor
    keep: Keep


def _setup() -> Setup:
    plain, guarded, keeping = TracerProvider(), TracerProvider(), TracerProvider()
    guard, keep = TrajectoryGuardProcessor(board=FlagBoard(GuardConfig()), tracer_provider=plain), Keep()
    guarded.add_span_processor(guard)
    keeping.add_span_processor(keep)
    return Setup(*(provider.get_tracer("bench") for provider in (plain, guarded, keeping)), guard, keep)


def rows(effort: Effort) -> Iterator[Row]:
    """Tool spans of each shape, and a span that is none of our business."""
    for name, shape in _TOOLS:
        figures = _measure(shape, effort.rounds)
        sdk = figures.median("sdk")
        yield Row(f"tool span, {name}: added", figures.added("guarded", "sdk"), "us", sdk, "SDK", TOOL_RATIO, True)
        yield Row(f"tool span, {name}: on_end alone", figures.median("on_end"), "us", sdk, "SDK", TOOL_RATIO, True)
    figures = _measure(shapes.large, effort.times(0.2))
    added, sdk = figures.added("guarded", "sdk"), figures.median("sdk")
    yield Row("tool span, result of 50 kB: added", added, "us", sdk, "SDK", LARGE_US)
    for name, shape in _LOOPS:
        figures = _measure(shape, effort.times(0.2))
        yield Row(f"tool span, {name}: added", figures.added("guarded", "sdk"), "us", figures.median("sdk"), "SDK")
    for messages in (20, 100):
        figures = _measure(partial(shapes.model_call, messages=messages), effort.times(0.2))
        added, sdk = figures.added("guarded", "sdk"), figures.median("sdk")
        yield Row(f"model span with {messages} messages: added", added, "us", sdk, "SDK")
    figures = _measure(shapes.http, effort.rounds * 3)
    sdk = figures.median("sdk")
    yield Row("other span, 10 attributes: added", figures.added("guarded", "sdk"), "us", sdk, "SDK", OTHER_RATIO, True)
    yield Row("other span, 10 attributes: on_end alone", figures.median("on_end"), "us", sdk, "SDK", OTHER_RATIO, True)


def _measure(shape: Shape, rounds: int) -> Figures:
    setup = _setup()
    return interleave(
        (
            Probe("sdk", lambda: _inputs(setup.plain, shape), _make(setup.plain)),
            Probe("guarded", lambda: _inputs(setup.guarded, shape), _make(setup.guarded)),
            Probe("on_end", lambda: _finished(setup, shape), setup.guard.on_end),
        ),
        rounds,
    )


def _make(tracer: trace.Tracer) -> Callable[[tuple[Context, shapes.SpanShape]], None]:
    """The timed work: a span is started, given its attributes one by one, and ended."""

    def make(item: tuple[Context, shapes.SpanShape]) -> None:
        context, shape = item
        span = tracer.start_span(shape.name, context)
        set_attribute = span.set_attribute
        for key, value in shape.attributes:
            set_attribute(key, value)
        span.end()

    return make


def _inputs(tracer: trace.Tracer, shape: Shape) -> Sequence[tuple[Context, shapes.SpanShape]]:
    """The calls of one run, below live spans of ``tracer``."""
    conversation = f"conversation-{next(_conversations)}"
    described = [shape(conversation, number) for number in range(STEPS_PER_RUN)]
    context = Context()
    for name, attributes in described[0].above:
        context = trace.set_span_in_context(tracer.start_span(name, context, attributes=dict(attributes)), context)
    return [(context, one) for one in described]


def _finished(setup: Setup, shape: Shape) -> list[Any]:
    """The same, ended already; the guard knows the live spans above."""
    make = _make(setup.keeping)
    for item in _inputs(setup.guarded, shape):
        make(item)
    spans, setup.keep.spans = setup.keep.spans, []
    return spans
