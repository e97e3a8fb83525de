"""Writing to a live span of the application: nothing that it has written there is lost.

A span has room for a number of attributes. The SDK makes room for a further one by dropping the oldest, which the
application wrote: the guard writes only as many as there are places free. The guard's own span has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from trajectory_guard import telemetry
from trajectory_guard.langfuse_tags import with_tags

_UNLIMITED: Final = 1 << 30


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
