"""The outcome of a call: control flow is never an error, and a green span is not always a success."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.outcome import classify
from trajectory_guard.core.steps import INTERRUPTED, SUCCESS, Outcome
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.results import UNKNOWN, Payload

_CONTROL_TYPES: Final = ("GraphInterrupt", "NodeInterrupt", "ParentCommand", "GraphBubbleUp")
_CONTROL: Final = re.compile(rf"\b(?:{'|'.join(_CONTROL_TYPES)})\b|^\(?Interrupt\(value=|^\(Interrupt\(|^Command\(")
_INTERRUPT: Final = re.compile(r"\b(?:GraphInterrupt|NodeInterrupt)\b|^\(?Interrupt\(value=|^\(Interrupt\(")
_NAME_CHARS: Final = 512
_STATUS_CHARS: Final = 8_192
GENERIC_FAILURE: Final = "An error occurred while running the tool. Please try again."


def error_class(span: SpanView) -> str | None:
    """Exception type or ``error.type`` of a failed span, None if it names none."""
    named = span.attributes.get("error.type")
    if isinstance(named, str) and named:
        return named.rsplit(".", 1)[-1]
    for event in span.events:
        kind = event.attributes.get("exception.type")
        if event.name == "exception" and isinstance(kind, str) and kind not in ("", "Exception"):
            return kind.rsplit(".", 1)[-1]
    match = re.match(r"\A(\w+(?:Error|Exception))\b", span.status_description[:_NAME_CHARS])
    return match[1] if match else None


def outcome(
    span: SpanView, payload: Payload, *, arguments_known: bool = False, table: DialectTable = DIALECTS
) -> Outcome:
    """The outcome of a tool span."""
    control = _control_flow(span, table)
    if arguments_known and payload == UNKNOWN and any(test(span) for test in table.approval_tests):
        return INTERRUPTED
    if control is not None and payload.text is None and not payload.control:
        return control
    failed = control is None and (span.status == "error" or _says_error(span, payload, table))
    text = payload.text if payload.text is not None else span.status_description or None
    return classify(text, failed=failed, refused=_says_refused(span, table))


def _control_flow(span: SpanView, table: DialectTable) -> Outcome | None:
    attributes = span.attributes
    texts = [span.status_description, str(attributes.get("error.type", ""))]
    texts += [str(attributes[key]) for key in table.status_messages if key in attributes]
    for event in span.events:
        if event.name == "exception":
            texts += [str(event.attributes.get(key, "")) for key in ("exception.type", "exception.message")]
    texts = [text[:_STATUS_CHARS] for text in texts if text]
    if not texts or not any(_CONTROL.search(text) for text in texts):
        return None
    return INTERRUPTED if any(_INTERRUPT.search(text) for text in texts) else SUCCESS


def _says_refused(span: SpanView, table: DialectTable) -> bool:
    attributes = span.attributes
    if attributes.get("trajectory_guard.denied") is True:
        return True
    for key, test in table.refused_when:  # noqa: SIM110  as below
        if key in attributes and test(attributes[key]):
            return True
    return False


def _says_error(span: SpanView, payload: Payload, table: DialectTable) -> bool:
    if payload.error is not None:
        return payload.error
    attributes = span.attributes
    if attributes.get("error.type") or payload.text == GENERIC_FAILURE:
        return True
    for key, value in table.failed_when:  # noqa: SIM110  a generator would cost more than the look-ups
        if attributes.get(key) == value:
            return True
    return False
