"""From a tool span to a StepRecord."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from trajectory_guard.core.budget import both_ends_and_digest
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.masking import result_hash, state_hash
from trajectory_guard.core.steps import ERROR, Evidence, ModelTokens, StepRecord, Usage
from trajectory_guard.dialects.base import ARGUMENT_KEYS, CALL_ID_KEYS, RESULT_KEYS, Dialect, RawCall, RawUsage, first
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise, table_of
from trajectory_guard.spans.content import (
    Decoded,
    Payload,
    as_text,
    decode_arguments,
    decode_result,
    error_class,
    outcome,
)
from trajectory_guard.spans.identity import agent_name, batch_label, conversation_id, instance_of

MAX_RESULT_CHARS: Final = 1_000_000
STATE_KEY: Final = "trajectory_guard.state"
"""Attribute of a tool span by which an application supplies the state after the call: a page, a board, a hash of it."""


def extract_step(
    span: SpanView,
    *,
    ancestors: Iterable[SpanView] = (),
    trajectory_of: Callable[[SpanView], str] | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
) -> StepRecord | None:
    """The step of a tool span, None if the span is no tool call.

    Parameters:
        ancestors: spans above it, nearest first, as far as they are known.
        trajectory_of: called if neither the span nor an ancestor names a conversation; the trace id otherwise.
    """
    table = table_of(dialects)
    if table.markers.isdisjoint(span.attributes):
        return None
    dialect = recognise(span, table)
    return read_step(span, dialect, list(ancestors), trajectory_of, table) if dialect is not None else None


def is_inner_duplicate(
    span: SpanView,
    above: Iterable[SpanView],
    dialects: Sequence[Dialect] = DIALECTS,
    dialect: Dialect | None = None,
) -> bool:
    """Whether a span repeats a tool span around it: transport inside framework, wrapper inside wrapper.

    Parameters:
        dialect: the row that reads the span, if the caller knows it.
    """
    table = table_of(dialects)
    dialect = dialect or recognise(span, table)
    if dialect is None:
        return False
    name, markers = dialect.tool_name(span), table.markers
    for ancestor in above:
        outer = None if markers.isdisjoint(ancestor.attributes) else recognise(ancestor, table)
        if outer is not None and outer.tool_name(ancestor) == name:
            return True
    return False


def read_step(
    span: SpanView,
    dialect: Dialect,
    above: list[SpanView],
    trajectory_of: Callable[[SpanView], str] | None = None,
    table: DialectTable = DIALECTS,
) -> StepRecord | None:
    """As ``extract_step``, for a span whose dialect is known; None if the dialect says that it must not count."""
    name = dialect.tool_name(span)
    if name is None:
        return None
    return _record(span, dialect, name, above, trajectory_id(span, above, trajectory_of, table), table)


def _record(
    span: SpanView, dialect: Dialect, name: str, above: list[SpanView], trajectory: str, table: DialectTable
) -> StepRecord:
    raw = _raw_call(span, dialect)
    payload = decode_result(raw.result)
    decoded = _arguments(dialect, raw, payload)
    payload = _complete(span, dialect, payload, decoded)
    kind = outcome(span, payload, arguments_known=decoded.value is not None, table=table)
    text = payload.text if payload.text is None else both_ends_and_digest(payload.text, MAX_RESULT_CHARS)
    failure = error_class(span) if kind == ERROR else None
    visible = text if text is not None else _failure_text(span, kind)
    stated = span.attributes.get(STATE_KEY)
    return StepRecord(  # by position: matching twenty names takes as long as a hash of the arguments
        span.span_id,
        trajectory,
        name,
        args_hash(decoded.value),
        result_hash(kind, visible) if stated is None else state_hash(as_text(stated)),
        kind,
        agent_of(span, above, dialect, table),
        span.start,
        max(0.0, span.end - span.start),
        _call_id(raw, decoded, payload),
        dialect.name,
        span.trace_id,
        span.span_id,
        decoded.value,
        visible,
        failure,
        _evidence(decoded, visible, kind),
        batch=batch_label(span, table),
        run=instance_of(span, above, table),
        stated=stated is not None,
    )


def _raw_call(span: SpanView, dialect: Dialect) -> RawCall:
    attributes = span.attributes
    result = _pick(attributes, dialect.results, RESULT_KEYS)
    if result is None and any(key in attributes for key in (*dialect.results, *RESULT_KEYS)):
        result = ""  # the Java SDK writes an empty text as a value without content
    raw = RawCall(
        first(attributes, dialect.call_ids) or first(attributes, CALL_ID_KEYS),
        _pick(attributes, dialect.arguments, ARGUMENT_KEYS),
        result,
    )
    return dialect.adjust(span, raw) if dialect.adjust is not None else raw


def _pick(attributes: Any, own: tuple[str, ...], common: tuple[str, ...]) -> Any:
    value = first(attributes, own) if own else None
    return value if value is not None else first(attributes, common)


def _arguments(dialect: Dialect, raw: RawCall, payload: Payload) -> Decoded:
    decoded = decode_arguments(raw.arguments, single=dialect.single_argument)
    if raw.arguments is None and dialect.empty_arguments and payload.text is not None:
        return Decoded({})
    return decoded


def _complete(span: SpanView, dialect: Dialect, payload: Payload, decoded: Decoded) -> Payload:
    """A result that is missing because there was nothing to write down."""
    if dialect.empty_result is None or payload != Payload() or decoded.value is None or span.status == "error":
        return payload
    return Payload("") if dialect.empty_result(span) else payload


def _failure_text(span: SpanView, kind: str) -> str | None:
    """The text of an exception stands in for the missing result of a failed call."""
    if kind != ERROR:
        return None
    for event in span.events:
        message = event.attributes.get("exception.message")
        if event.name == "exception" and isinstance(message, str) and message:
            return f"{event.attributes.get('exception.type', 'Error')}: {message}"
    return span.status_description or None


def _call_id(raw: RawCall, decoded: Decoded, payload: Payload) -> str | None:
    for candidate in (raw.call_id, decoded.call_id, payload.call_id):
        if isinstance(candidate, str) and candidate:
            return candidate.strip('"') or None
    return None


def _evidence(decoded: Decoded, visible: str | None, kind: str) -> Evidence:
    if decoded.value is None:
        return Evidence.NAME_ONLY
    return Evidence.FULL if visible is not None or kind == ERROR else Evidence.NO_RESULT


def agent_of(span: SpanView, above: Sequence[SpanView], dialect: Dialect, table: DialectTable = DIALECTS) -> str | None:
    """The acting agent of a tool span: by the keys its dialect declares, else by the common ones."""
    return _named(span, above, dialect.identity.agents) or agent_name(span, above, table)


def _named(span: SpanView, above: Iterable[SpanView], keys: tuple[str, ...]) -> str | None:
    """The value of a declared key on the span or the nearest ancestor that has one."""
    if not keys:
        return None
    values = (first(one.attributes, keys) for one in (span, *above))
    return next((str(value) for value in values if value not in (None, "")), None)


def trajectory_id(
    span: SpanView,
    above: Iterable[SpanView],
    trajectory_of: Callable[[SpanView], str] | None = None,
    table: DialectTable = DIALECTS,
) -> str:
    """Conversation of a span: by declared keys, then by its own and its ancestors' ids, then by ``trajectory_of``."""
    declared = _named(span, above, table.declared_conversations)
    if declared is not None:
        return declared
    for candidate in (span, *above):
        found = conversation_id(candidate.attributes, table)
        if found is not None:
            return found
    return trajectory_of(span) if trajectory_of is not None else span.trace_id


def model_usage(span: SpanView, table: DialectTable = DIALECTS) -> Usage | None:
    """Tokens, cost and running time of a model call; None if the span is none (agent totals are not model calls)."""
    for has_usage, read in table.usage:
        if has_usage(span):
            raw = read(span) if read is not None else _common_usage(span, table)
            return None if raw is None else _usage(span, raw, table)
    return None


def _common_usage(span: SpanView, table: DialectTable) -> RawUsage:
    attributes = span.attributes
    return RawUsage(
        first(attributes, table.input_tokens), first(attributes, table.output_tokens), first(attributes, table.costs)
    )


def _usage(span: SpanView, raw: RawUsage, table: DialectTable) -> Usage:
    tokens, usd = (_integer(raw.input_tokens), _integer(raw.output_tokens)), _number(raw.cost)
    model = model_name(span, table) if any(tokens) and not usd else None
    unpriced = (ModelTokens(model, *tokens),) if model is not None else ()
    return Usage(*tokens, usd, max(0.0, span.end - span.start), unpriced)


def model_name(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Name of the model that answered, None if the span does not say."""
    name = first(span.attributes, table.model_names)
    return name if isinstance(name, str) else None


def response_id(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """The provider's id of the answer to a model call, None if the span does not say."""
    found = first(span.attributes, table.response_ids)
    return str(found) if found else None


def _integer(value: Any) -> int:
    return int(_number(value))


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if 0.0 <= number < 1e12 else 0.0
