"""From a tool span to a StepRecord."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from trajectory_guard.core.content.masking import result_hash, state_hash
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.steps import (
    ERROR,
    HANDOFF_SUFFIX,
    SUCCESS,
    TOO_MANY,
    Evidence,
    ModelTokens,
    StepRecord,
    Usage,
)
from trajectory_guard.core.text_bounds import both_ends_and_digest
from trajectory_guard.core.tools import HANDOFF
from trajectory_guard.core.tracking.scope import CODE
from trajectory_guard.dialects.base import Dialect, RawCall, RawUsage, first, firsts, written
from trajectory_guard.dialects.mcp import SERVER_SPAN, is_served, is_transport
from trajectory_guard.dialects.span import CutOff, SpanView
from trajectory_guard.dialects.table import (
    DIALECTS,
    DialectTable,
    KeySet,
    RowKeys,
    handed_over,
    is_copy,
    recognise,
    row_keys,
    table_of,
)
from trajectory_guard.spans.content import (
    Decoded,
    Payload,
    as_text,
    decode_arguments,
    decode_result,
    error_class,
    outcome,
)
from trajectory_guard.spans.identity import (
    NO_NAME,
    agent_name,
    batch_and_task,
    conversation_above,
    conversation_id,
    dialect_above,
    instance_of,
    is_agent_span,
    metadata_of,
    named_agent,
    named_conversation,
    named_instance,
    task_of,
)

MAX_RESULT_CHARS: Final = 1_000_000
_WITHHELD: Final = "Error details are redacted."
"""The OpenAI Agents SDK ends the text of an error like this where it withholds details: all such errors look equal."""
STATE_KEY: Final = "trajectory_guard.state"
"""Attribute of a tool span by which an application supplies the state after the call: a page, a board, a hash of it."""


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
    table, above = table_of(dialects), list(above)
    if dialect is None and (_is_of_server(span, above) or [one for one in above if dialect_above(one, table)]):
        dialect = recognise(span, table)
    return dialect is not None and repeats_above(span, dialect, above, table)


def repeats_above(span: SpanView, dialect: Dialect, above: Sequence[SpanView], table: DialectTable) -> bool:
    """As ``is_inner_duplicate``, for a tool span whose dialect is known.

    A span of a transport repeats the tool span around it under any name: frameworks put the server before the name of
    its tool, gateways offer one tool for all. An agent in between makes calls of its own, also of the tool that it is.
    """
    for place, ancestor in enumerate(above):
        outer = dialect_above(ancestor, table)
        repeats = outer is not None and (outer.tool_name(ancestor) == dialect.tool_name(span) or is_transport(span))
        if repeats and not any(is_agent_span(one, table) for one in above[:place]):
            return True
    return _is_of_server(span, above) and is_served(span, above)


def _is_of_server(span: SpanView, above: Sequence[SpanView]) -> bool:
    """Whether the span may be that of a server of tools, by signs that cost nothing to look for."""
    return span.kind == "server" or (bool(above) and above[0].name == SERVER_SPAN)


def read_step(
    span: SpanView,
    dialect: Dialect,
    above: list[SpanView],
    trajectory_of: Callable[[SpanView], str] | None = None,
    table: DialectTable = DIALECTS,
) -> StepRecord | None:
    """The step of a tool span whose dialect is known; None if the dialect says that it must not count.

    Parameters:
        above: the spans above it, nearest first, as far as they are known.
        trajectory_of: called if neither the span nor one above it names a conversation; the trace id otherwise.
    """
    known = table.key_set(span.attributes)
    keys = next((one for one in (*known.built_in, *known.declared) if one.row is dialect), None)
    return read_known_step(span, keys or row_keys(dialect, span.attributes), known, above, trajectory_of, table)


def read_known_step(
    span: SpanView,
    keys: RowKeys,
    known: KeySet,
    above: list[SpanView],
    trajectory_of: Callable[[SpanView], str] | None,
    table: DialectTable,
    *,
    is_whole: bool = True,
) -> StepRecord | None:
    """As ``read_step``, for a span whose keys have been looked at.

    Parameters:
        keys: the dialect of the span, with the keys of its content; known: what all names of its attributes say.
        is_whole: no span above is missing in ``above``.
    """
    dialect, attributes = keys.row, span.attributes
    if dialect.succeeded is not None and span.status == "error" and dialect.succeeded(span):
        span = span._replace(status="ok", status_description="")
    name = dialect.tool_name(span)
    if name is None:
        return None
    if name[MAX_NAME_CHARS:]:
        name = bounded_name(name)
    metadata = metadata_of(attributes, known) if known.metadata else {}
    if table.declared_conversations:  # on any span, before the other keys of the nearest one
        trajectory = trajectory_id(span, above, trajectory_of, table)
    else:
        named = named_conversation(attributes, known, metadata)
        trajectory = named if named is not None else _trajectory_above(span, above, trajectory_of, table)
    agents = dialect.identity.agents
    agent = (agents and _named(span, above, agents)) or named_agent(span, above, table, known, metadata)
    call_id, given, returned = _raw_call(span, keys)
    payload = decode_result(returned)
    decoded = decode_arguments(given, single=dialect.single_argument)
    if given is None and dialect.empty_arguments and payload.text is not None:
        decoded = Decoded({})
    args = decoded.value
    if dialect.empty_result is not None and returned is None and args is not None and span.status != "error":
        payload = Payload("") if dialect.empty_result(span) else payload  # there was nothing to write down
    if dialect.failed is not None and payload.text is None and dialect.failed(span):
        payload = payload._replace(error=True)
    kind = outcome(span, payload, known, arguments_known=args is not None, absent=returned is None, table=table)
    cut_off = isinstance(returned, CutOff)
    visible = None if cut_off else payload.text  # the part that is left may be that of other results, too
    if visible is None:
        visible = _failure_text(span, kind, known)
    elif len(visible) > MAX_RESULT_CHARS:
        visible = both_ends_and_digest(visible, MAX_RESULT_CHARS)
    batch, task = batch_and_task(span, known, metadata) if known.step_key or metadata else (None, None)
    if span.scope in table.turn_spans:
        batch = turn_around(span, above, table)
    stated, seconds = attributes.get(STATE_KEY), span.end - span.start
    seen = Evidence.FULL if visible is not None or (kind == ERROR and not cut_off) else Evidence.NO_RESULT
    return StepRecord(
        step_id=span.span_id,
        trajectory_id=trajectory,
        tool_name=name,
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(kind, visible) if stated is None else state_hash(as_text(stated)),
        outcome_type=kind,
        agent_id=agent,
        timestamp=span.start,
        duration=seconds if seconds > 0.0 else 0.0,
        call_id=_call_id(call_id, decoded.call_id, payload.call_id),
        dialect=dialect.name,
        trace_id=span.trace_id,
        span_id=span.span_id,
        args=args,
        result=visible,
        error_class=error_class(span) if kind == ERROR else None,
        evidence=seen if args is not None else Evidence.NAME_ONLY,
        batch=batch,
        run=named_instance(span, above, table, known, metadata, name, unnamed=is_whole and trajectory == span.trace_id),
        stated=stated is not None,
        task=task,
    )


def read_handoff(
    span: SpanView,
    known: KeySet,
    above: Callable[[], Iterable[SpanView]],
    trajectory_of: Callable[[SpanView], str] | None,
    table: DialectTable,
) -> StepRecord | None:
    """The step of a span that stands for a hand-off between agents, None if it stands for none.

    Frameworks without a tool for it (the OpenAI Agents SDK) write such spans. They show neither what the next agent was
    given nor what came back: the result is unknown.

    Parameters:
        known: what the names of its attributes say; only spans with ``known.handoffs`` need to be asked.
        above: the spans above it, nearest first; called only for a hand-off.
    """
    found = handed_over(span, known.handoffs)
    if found is None or is_copy(span, table):
        return None
    row, name = found
    args, ancestors = {"to_agent": bounded_name(name)} if name else None, list(above())
    return StepRecord(
        step_id=span.span_id,
        trajectory_id=trajectory_id(span, ancestors, trajectory_of, table),
        tool_name=HANDOFF,
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(SUCCESS, None),
        outcome_type=SUCCESS,
        agent_id=agent_name(span, ancestors, table),
        timestamp=span.start,
        duration=max(0.0, span.end - span.start),
        dialect=row.name + HANDOFF_SUFFIX,
        trace_id=span.trace_id,
        span_id=span.span_id,
        args=args,
        evidence=Evidence.NAME_ONLY if args is None else Evidence.NO_RESULT,
        run=instance_of(span, ancestors, table),
        task=task_of(span, table),
    )


def _raw_call(span: SpanView, keys: RowKeys) -> tuple[Any, Any, Any]:
    """Call id, arguments and result as they were found."""
    attributes, adjust = span.attributes, keys.row.adjust
    call_id, common_id, given, result = firsts(attributes, keys.content)
    if result is None and keys.content[-1]:
        result = ""  # the Java SDK writes an empty text as a value without content
    raw = call_id or common_id or None, given, result
    if adjust is None:
        return raw
    call_id, given, returned = adjust(span, RawCall(*raw))
    return call_id, given, CutOff(returned) if isinstance(result, CutOff) and isinstance(returned, str) else returned


def _failure_text(span: SpanView, kind: str, known: KeySet) -> str | None:
    """The text of an exception stands in for the missing result of a failed call."""
    if kind != ERROR:
        return None
    for event in span.events:
        message = event.attributes.get("exception.message")
        if event.name == "exception" and isinstance(message, str) and message:
            return f"{written(event.attributes.get('exception.type', 'Error'))}: {message}"
    messages = (span.attributes[key] for key in known.status_messages)
    text = span.status_description or next((one for one in messages if isinstance(one, str)), "")
    if not text or _WITHHELD in text or text == span.attributes.get("error.type"):
        return None  # beside its class, nothing is said of the error
    return text


def _call_id(*candidates: Any) -> str | None:
    for candidate in candidates:
        if isinstance(candidate, str) and candidate not in NO_NAME:
            found = candidate.strip('"')
            return (found if not found[MAX_NAME_CHARS:] else bounded_name(found)) or None
    return None


def agent_of(span: SpanView, above: Sequence[SpanView], dialect: Dialect, table: DialectTable = DIALECTS) -> str | None:
    """The acting agent of a tool span: by the keys its dialect declares, else by the common ones."""
    return _named(span, above, dialect.identity.agents) or agent_name(span, above, table)


def _named(span: SpanView, above: Iterable[SpanView], keys: tuple[str, ...]) -> str | None:
    """The value of a declared key on the span or the nearest ancestor that has one."""
    if not keys:
        return None
    values = (first(one.attributes, keys) for one in (span, *above))
    return next((bounded_name(written(value)) for value in values if value not in NO_NAME), None)


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
    found = conversation_id(span.attributes, table)
    return found if found is not None else _trajectory_above(span, above, trajectory_of, table)


def turn_around(span: SpanView, above: Iterable[SpanView], table: DialectTable) -> str | None:
    """Label of the model turn whose span holds a tool span, as that of a block of code; None if no span does."""
    name = table.turn_spans.get(span.scope)
    if name is None:
        return None
    turn = next((one for one in above if one.scope == span.scope and one.name.startswith(name)), None)
    return f"{CODE}{span.trace_id}/{turn.span_id}" if turn is not None else None


def _trajectory_above(
    span: SpanView, above: Iterable[SpanView], trajectory_of: Callable[[SpanView], str] | None, table: DialectTable
) -> str:
    """Conversation of a span that names none itself."""
    for candidate in above:
        found = conversation_above(candidate, table)
        if found is not None:
            return found
    return trajectory_of(span) if trajectory_of is not None else span.trace_id


def model_usage(span: SpanView, table: DialectTable = DIALECTS, known: KeySet | None = None) -> Usage | None:
    """Tokens, cost and running time of a model call; None if the span is none (agent totals are not model calls).

    Parameters:
        known: what the names of its attributes say, if the caller has looked.
    """
    known = known or table.key_set(span.attributes)
    for scopes, has_usage, read in known.usage:
        if (not scopes or span.scope.startswith(scopes)) and has_usage(span):
            raw = read(span) if read is not None else RawUsage(*firsts(span.attributes, known.consumed))
            return None if raw is None else _usage(span, raw, table)
    return None


def _usage(span: SpanView, raw: RawUsage, table: DialectTable) -> Usage:
    asked, answered, usd = tokens(raw.input_tokens), tokens(raw.output_tokens), amount(raw.cost)
    model = model_name(span, table) if (asked or answered) and not usd else None
    unpriced = (ModelTokens(model, asked, answered),) if model is not None else ()
    return Usage(asked, answered, usd, max(0.0, span.end - span.start), unpriced)


def model_name(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Name of the model that answered, None if the span does not say."""
    name = first(span.attributes, table.model_names)
    if not isinstance(name, str):
        return None
    name = name.strip('"')
    return name if not name[MAX_NAME_CHARS:] else bounded_name(name)


def requested_model(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """The other name that a span gives its model, which is the requested one; None if there is none."""
    answered = model_name(span, table)
    named = (span.attributes.get(key) for key in table.model_names)
    names = (bounded_name(name.strip('"')) for name in named if isinstance(name, str))
    return next((name for name in names if name and name != answered), None)


def response_id(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """The provider's id of the answer to a model call, None if the span does not say."""
    found = first(span.attributes, table.response_ids)
    return bounded_name(written(found)) if found else None


def tokens(value: Any) -> int:
    """A number of tokens as recorded; 0 if that is no number, or one that cannot be right."""
    if value.__class__ is int and 0 <= value < TOO_MANY:
        return value  # as nearly all tokens are
    return int(amount(value))


def amount(value: Any) -> float:
    """Tokens or dollars as recorded; 0 if that is no number, or one that cannot be right."""
    if value is None:
        return 0.0  # most spans name no cost: an exception would take longer than all the rest
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0.0 <= number < TOO_MANY else 0.0
