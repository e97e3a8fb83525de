"""Processors that run on a few threads of their own: the thread that starts or ends a span waits for these.

What runs on such a thread must wait neither for another one of them, all of which may be in the same place, nor for a
lock without limit: the thread that waits for it may hold the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    Span,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
)

_SEVERAL: Final = (ConcurrentMultiSpanProcessor, SynchronousMultiSpanProcessor)


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

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        for one in _parts(self._processor):
            one.on_start(span, parent_context=parent_context)

    def _on_ending(self, span: Span) -> None:
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
