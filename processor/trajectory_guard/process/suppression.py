"""Work of the guard itself leaves no spans: its requests and the calls of its judge are no steps of an agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context

_KEYS: Final = (
    *(
        key
        for name in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY")
        if (key := getattr(otel_context, name, None)) is not None
    ),
    "suppress_instrumentation", "suppress_http_instrumentation", "suppress_language_model_instrumentation",
)  # fmt: skip
"""Keys of the context that keep instrumentations from writing spans."""


@contextmanager
def suppressed() -> Iterator[None]:
    """Suppress instrumentations in the current context, and in the tasks that begin inside."""
    context = otel_context.get_current()
    for key in _KEYS:
        context = otel_context.set_value(key, True, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)
