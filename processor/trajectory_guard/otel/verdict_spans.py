"""Verdicts in the trace. A tool span is read-only once it has ended, so verdicts are emitted beside it.

Three places: a short span of the guard's own next to the tool span, the parent span if it is still recording, and
(for Langfuse) tags on both. The SDK's hook for writing while a span ends (``_on_ending``) is not public yet; once it
is, this is the only file to change.

Processors may run on a few threads of their own, for which the thread that starts or ends a span waits
(``ConcurrentMultiSpanProcessor``). What runs on such a thread must wait neither for another one of them, all of which
may be in the same place, nor for a lock without limit: the thread that waits for it may hold the lock.

A processor of the application's may call the guard's, and hold a lock meanwhile that it needs for every span: there the
guard's own span begins and ends on a thread of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
)
from opentelemetry.trace import NonRecordingSpan, Span
from opentelemetry.util.types import AttributeValue

from trajectory_guard import telemetry
from trajectory_guard.callbacks import run_elsewhere
from trajectory_guard.core.detectors.reported import QUALITY_DROP
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.langfuse_tags import with_tags
from trajectory_guard.logs import is_loop
from trajectory_guard.otel.pipelines import pipeline_of, weakly
from trajectory_guard.process.containment import contain
from trajectory_guard.version import __version__

_SEVERAL: Final = (ConcurrentMultiSpanProcessor, SynchronousMultiSpanProcessor)
_UNLIMITED: Final = 1 << 30


def verdict_attributes(verdict: Verdict, first_step: str) -> dict[str, AttributeValue]:
    """Values of ``telemetry.ATTRIBUTES`` for one verdict, by attribute key, the most important first.

    Waiting is a loop by the contract of ``trajectory_guard.loop.detected``; the certainty distinguishes it.
    """
    of_loop = is_loop(verdict)
    attributes: dict[str, AttributeValue] = {
        telemetry.LOOP_DETECTED: of_loop and verdict.level is not Level.OBSERVE,
        telemetry.INTERVENTION: str(verdict.level),
        telemetry.LOOP_TYPE: verdict.types,
        telemetry.REASON: verdict.reason,
        telemetry.LOOP_RULE: verdict.rule,
        telemetry.LOOP_CERTAINTY: str(verdict.certainty or ""),
        telemetry.LOOP_SCORE: verdict.score,
        telemetry.LOOP_FIRST_STEP: first_step,
        telemetry.HEALTH: verdict.health,
        telemetry.EPISODE: verdict.episode,
        telemetry.STEP_INDEX: verdict.step_index,
        telemetry.TRAJECTORY_ID: verdict.trajectory_id,
        telemetry.RUN_ID: verdict.run,
        telemetry.EVIDENCE: str(verdict.evidence),
    }
    if verdict.level is not Level.OBSERVE:
        attributes[telemetry.LANGFUSE_TAGS] = [*([telemetry.TAG] if of_loop else ()), *verdict.types]
    return attributes


def guard_attributes(verdict: Verdict) -> dict[str, AttributeValue]:
    """Values that only the guard's own span has: the tool, the certificate, and the scores if those have dropped."""
    of_quality = verdict.rule == QUALITY_DROP
    own: dict[str, AttributeValue] = {} if of_quality else {telemetry.TOOL: verdict.tool}
    if verdict.certificate is not None:
        own[telemetry.CERTIFICATE] = verdict.certificate.to_json()
    if of_quality:
        name, before, now = verdict.detections[0].names
        own |= {
            telemetry.QUALITY_NAME: name, telemetry.QUALITY_BEFORE: float(before), telemetry.QUALITY_NOW: float(now),
        }  # fmt: skip
    return own


def in_trace_of(span: ReadableSpan) -> AbstractContextManager[Any]:
    """The context for what is logged about a span that ends: not every instrumentation makes its spans current ones."""
    around = span.parent or span.context
    return trace.use_span(NonRecordingSpan(around)) if around is not None else nullcontext()


class VerdictSpans:
    """Emits one span per intervention and tags the live parent.

    Parameters:
        tracer_provider: by default that of each verdict's tool span.
        counts: where certificates that do not fit are counted.

    Attributes:
        elsewhere: own spans begin and end on a thread of their own.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None, counts: Counter[str] | None = None) -> None:
        self._given = tracer_provider
        self._counts: Counter[str] = Counter() if counts is None else counts
        self.elsewhere = False
        self._first: Callable[[], trace.TracerProvider | None] | None = None  # weak, so that an application can drop it

    def learn(self, span: Span) -> None:
        """Let the guard's spans go where those of the application go, if a tool span does not say where; once."""
        if self._given is None and self._first is None and (provider := pipeline_of(span)) is not None:
            self._first = weakly(provider)

    def emit(
        self, verdict: Verdict, *, first_step: str, live_parent: Span | None, tool_span: ReadableSpan | None = None,
        live_tool: Span | None = None,
    ) -> None:  # fmt: skip
        """Emit an intervention: a span of its own under the tool span's parent, and attributes on that parent.

        Without a tool span the own span stands in the current context. With one, this is called while that span ends:
        on one of a few threads, perhaps, that all processors share, and for which the own span must not wait.

        Parameters:
            live_parent, live_tool: the spans as the application holds them, None if they are not known any more.
            tool_span: what ``on_end`` was given, which does not say where it goes.
        """
        attributes = verdict_attributes(verdict, first_step)
        own = {**attributes, **guard_attributes(verdict)}
        if live_parent is not None and live_parent.is_recording():
            write_to(live_parent, attributes)
        tool = tool_span.context if tool_span is not None else None
        around = (tool_span.parent if tool_span is not None else None) or tool
        context = trace.set_span_in_context(NonRecordingSpan(around)) if around is not None else None

        provider = self._given or pipeline_of(live_tool) or pipeline_of(live_parent)
        if provider is None and self._first is not None:
            provider = self._first()
        tracer = tracer_without_pool(provider or trace.get_tracer_provider(), telemetry.SCOPE, __version__)
        self._leave_out_certificate(own, tracer)

        def write() -> None:
            tracer.start_span(
                telemetry.SPAN_NAME,
                context=context,
                attributes=dict(reversed(own.items())),  # the SDK keeps the last ones, if there is no room for all
                links=[trace.Link(tool)] if tool is not None else None,
            ).end()

        if self.elsewhere:
            run_elsewhere(write, partial(contain, self._counts, "on_end", "an intervention's span failed, contained"))
        else:
            write()

    def _leave_out_certificate(self, own: dict[str, AttributeValue], tracer: Any) -> None:
        """Leave a certificate out that the SDK would cut off: no program could read it. Log lines have the whole."""
        limit = getattr(getattr(tracer, "_span_limits", None), "max_span_attribute_length", None)
        if limit is not None and len(str(own.get(telemetry.CERTIFICATE, ""))) > limit:
            del own[telemetry.CERTIFICATE]
            self._counts["certificates_left_out"] += 1


# --- live spans of the application -----------------------------------------------------------------------------

# A span has room for a number of attributes. The SDK makes room for a further one by dropping the oldest, which the
# application wrote: the guard writes only as many as there are places free. The guard's own span has all of them.


def write_to(span: Span, attributes: Mapping[str, AttributeValue]) -> None:
    """Write attributes to a span of the application's.

    Parameters:
        span: one that is recording. A span of another SDK than OpenTelemetry's shows no limit, and gets all of them.
        attributes: the most important first; Langfuse's tags join those that the span has.
    """
    held = _held_by(span)
    free = _places_of(span) - len(held)
    written: dict[str, AttributeValue] = {}
    for key, value in attributes.items():
        if key in held:
            is_tags = key == telemetry.LANGFUSE_TAGS
            written[key] = with_tags(held[key], cast(Iterable[str], value)) if is_tags else value
        elif free > 0:
            free -= 1
            written[key] = value
    if written:
        span.set_attributes(written)


def _held_by(span: Any) -> Mapping[str, Any]:
    held = getattr(span, "attributes", None)
    return held if isinstance(held, Mapping) else {}


def _places_of(span: Any) -> int:
    """How many attributes a span can hold: the SDK's own attributes know it, and no property of a span does."""
    places = getattr(getattr(span, "_attributes", None), "maxlen", None)
    return places if isinstance(places, int) else _UNLIMITED


# --- processors with threads of their own ----------------------------------------------------------------------


def is_part_of(processor: Any, whole: Any) -> bool:
    """Whether a provider calls a processor itself, rather than through one of the application's."""
    return any(one is processor for one in _parts(whole))


def has_pool(processor: Any) -> bool:
    """Whether any part of a processor runs on threads of its own."""
    return isinstance(processor, ConcurrentMultiSpanProcessor) or (
        isinstance(processor, SynchronousMultiSpanProcessor) and any(map(has_pool, processor._span_processors))
    )


def tracer_without_pool(provider: trace.TracerProvider, scope: str, version: str) -> trace.Tracer:
    """A tracer of a provider whose spans reach the same processors on the thread that starts and ends them."""
    tracer = provider.get_tracer(scope, version)
    processor = getattr(tracer, "span_processor", None)
    if has_pool(processor):
        tracer.span_processor = _OnThisThread(processor)  # type: ignore[attr-defined]
    return tracer


class _OnThisThread(SpanProcessor):
    """Calls the parts of a processor, those that are added later as well, on the calling thread."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        for one in _parts(self._processor):
            one.on_start(span, parent_context=parent_context)

    def _on_ending(self, span: Any) -> None:
        for one in _parts(self._processor):
            if hasattr(one, "_on_ending"):  # since SDK 1.32
                one._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        for one in _parts(self._processor):
            one.on_end(span)


def _parts(processor: Any) -> Iterator[Any]:
    if isinstance(processor, _SEVERAL):
        for one in processor._span_processors:
            yield from _parts(one)
    else:
        yield processor
