"""Laminar: functions that an application observes as tools, and clients of models by the semantic conventions."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, is_kind
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "lmnr.span.type"


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == "TOOL"


def _failed(span: SpanView) -> bool:
    """The SDK for JavaScript records what a function threw, and leaves the status unset."""
    return any(event.name == "exception" for event in span.events)


LAMINAR = Dialect(
    name="laminar",
    matches=_matches,
    markers=(_TYPE,),
    arguments=("lmnr.span.input",),
    results=("lmnr.span.output",),
    failed=_failed,
    identity=Identity(sessions=("lmnr.association.properties.session_id",)),
    models=ModelCalls(is_call=is_kind(_TYPE, "LLM"), call_markers=(_TYPE,)),
    messages=Messages(
        raw_inputs=("lmnr.span.input",), raw_outputs=("lmnr.span.output",), family_markers=("lmnr.span.sdk_version",)
    ),
)
