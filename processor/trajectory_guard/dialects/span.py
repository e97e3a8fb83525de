"""A finished (or live) span as the dialects see it, whatever SDK or wire format it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

GUARD_SCOPE: Final = "trajectory_guard"
"""Scope of the guard's own spans. Other vendors' processors enter attributes in them as in any span that names a tool:
no row may read them."""
SPAN_KINDS: Final = ("internal", "internal", "server", "client", "producer", "consumer")
"""By the number of the kind in OTLP; 0, which says nothing, is read as the default."""


class CutOff(str):
    """Text that a length limit has cut off. The missing part is unknown: no two such texts are known to be equal."""

    __slots__ = ()


def whole_text(value: Any) -> str | None:
    """A text of which nothing is cut off; None for anything else."""
    return value if isinstance(value, str) and value.__class__ is not CutOff else None


def with_cut_off(attributes: Mapping[str, Any], is_cut: Callable[[int], bool]) -> dict[str, Any]:
    """Attributes with ``CutOff`` in place of texts whose number of characters shows that they are cut off."""
    return {
        key: CutOff(value) if isinstance(value, str) and is_cut(len(value)) else value
        for key, value in attributes.items()
    }


class SpanEvent(NamedTuple):
    """A span event: name and attributes."""

    name: str
    attributes: Mapping[str, Any]


class SpanView(NamedTuple):
    """The parts of a span the guard reads. Ids are lower-case hex, times are seconds since the epoch.

    ``status`` is ``unset``, ``ok`` or ``error``; ``kind`` is ``internal``, ``server``, ``client``, ``producer`` or
    ``consumer``; ``parent_id`` is None for a root; ``dropped`` is the number of attributes that a limit has
    taken away, as far as it is known.
    """

    name: str
    attributes: Mapping[str, Any]
    trace_id: str
    span_id: str
    parent_id: str | None = None
    kind: str = "internal"
    status: str = "unset"
    status_description: str = ""
    events: Sequence[SpanEvent] = ()
    start: float = 0.0
    end: float = 0.0
    scope: str = ""
    scope_version: str | None = None
    resource: Mapping[str, Any] = {}
    dropped: int = 0
