"""Results of requested calls, found in the inputs of later model calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.content import as_text, decode_arguments
from trajectory_guard.transcripts.matching import same_arguments
from trajectory_guard.transcripts.messages import call_ids_in, input_items, input_messages, is_model_span
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.requested_calls import Place, RequestedCall, is_named
from trajectory_guard.transcripts.transcript import Message, ToolCall, ToolResult, linked, trailing_results

Pair = tuple[ToolCall, ToolResult]
LAST_MESSAGES: Final = 40
"""Messages read from the end of an input: a result is sent with the next model call, together with its turn."""
_OPENING: Final = 2
"""Messages by which two transcripts are distinguished before they are read whole."""


def find_results(
    requested: Sequence[RequestedCall],
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    table: DialectTable = DIALECTS,
) -> None:
    """Fill in the results of calls that have none. ``spans`` are in order of time.

    The same trace or trajectory is searched first; for calls that are left, any other, if its transcript shows the very
    call.
    """
    if all(one.result is not None for one in requested):
        return
    listening = [span for span in spans if is_model_span(span, table) or "gen_ai.input.messages" in span.attributes]
    _within(requested, listening, place_of, table)
    _elsewhere(requested, listening, place_of, table)


def _within(
    requested: Iterable[RequestedCall],
    spans: Iterable[SpanView],
    place_of: Callable[[SpanView], Place],
    table: DialectTable,
) -> None:
    waiting: dict[tuple[str, str], list[RequestedCall]] = defaultdict(list)
    for one in requested:
        if one.result is None:
            for scope in scopes_of(one.place):
                waiting[scope].append(one)
    for span in spans:
        scopes = [scope for scope in scopes_of(place_of(span)) if waiting.get(scope)]
        open_calls = {id(one): one for scope in scopes for one in waiting[scope] if one.result is None}
        asking = [one for one in open_calls.values() if _follows(span, one.span)]
        if asking:
            messages = input_messages(span, LAST_MESSAGES, table)
            pairs = _pairs(messages)
            last = trailing_results(messages) if is_model_span(span, table) else []
            for one in asking:
                one.result = _result_here(one, pairs) or (None if one.passed else _by_position(one, last))
                one.passed = one.passed or bool(last)
        for scope in scopes:
            waiting[scope] = [one for one in waiting[scope] if one.result is None]


def _follows(later: SpanView, earlier: SpanView) -> bool:
    """Whether a span began after another had ended; starts may be whole milliseconds (JavaScript)."""
    return later.start >= int(earlier.end * 1_000) / 1_000 and later is not earlier


def scopes_of(place: Place) -> tuple[tuple[str, str], ...]:
    """The scopes a place belongs to: its trace and its trajectory."""
    return ("trace", place.trace_id), ("trajectory", place.trajectory_id)


def _pairs(messages: Sequence[Message]) -> list[Pair]:
    """Refusals by a person first, then calls with their results, the latest first, then results without their call:
    a request that continues an earlier response (``previous_response_id``) has nothing else.
    """
    decided = [
        (result.call, result)
        for message in messages
        for result in message.results
        if result.approved is False and result.call is not None
    ]
    pairs = [(call, result) for call, result in reversed(linked(messages)) if result is not None]
    shown = {id(result) for _, result in pairs}
    alone = [
        (ToolCall("", None, result.call_id), result)
        for message in messages
        for result in message.results
        if result.call_id is not None and id(result) not in shown
    ]
    return decided + pairs + alone


def _result_here(requested: RequestedCall, pairs: Sequence[Pair]) -> ToolResult | None:
    for call, result in pairs:
        if _same_id(requested, call, result) and _same_name(requested, call):
            return _with_call(result, call)
    for call, result in pairs:
        if (
            call.name
            and _same_name(requested, call)
            and same_arguments(decode_arguments(call.arguments).value, requested.args)
        ):
            return _with_call(result, call)
    return None


def _same_name(requested: RequestedCall, call: ToolCall) -> bool:
    return not call.name or not requested.call.name or call.name == requested.call.name


def _same_id(requested: RequestedCall, call: ToolCall, result: ToolResult) -> bool:
    ids = {one for one in (call.call_id, call.item_id, result.call_id) if one}
    return not ids.isdisjoint(requested.ids)


def _with_call(result: ToolResult, call: ToolCall) -> ToolResult:
    return result._replace(call_id=result.call_id or call.call_id, call=call)


def _by_position(requested: RequestedCall, results: Sequence[ToolResult]) -> ToolResult | None:
    """Transcripts that show results without ids and no calls: the n-th result belongs to the n-th call of the turn."""
    size, ordinal = requested.turn
    if not size or len(results) != size or any(result.call_id is not None for result in results):
        return None
    return results[ordinal]


# --- in another trace ----------------------------------------------------------------------------------------


def _elsewhere(
    requested: Sequence[RequestedCall],
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    table: DialectTable,
) -> None:
    """Bare clients write one trace per model call: a later transcript must show the very call, by id or by history.

    Not from one named conversation into another.
    """
    by_id: dict[str, list[RequestedCall]] = defaultdict(list)
    for one in requested:
        if one.result is None:
            for call_id in one.ids:
                by_id[call_id].append(one)
    for span in spans if by_id else ():
        _by_id_elsewhere(span, is_named(place_of(span)), by_id, table)
    left = [one for one in requested if one.result is None and not is_named(one.place)]
    if left:
        _by_history_elsewhere(left, [span for span in spans if not is_named(place_of(span))], table)


def _by_id_elsewhere(span: SpanView, named: bool, waiting: dict[str, list[RequestedCall]], table: DialectTable) -> None:
    mentioned = call_ids_in(span, table)
    if mentioned is not None and waiting.keys().isdisjoint(mentioned):
        return
    for call, result in _pairs(input_messages(span, LAST_MESSAGES, table)):
        for call_id in (call.call_id, call.item_id):
            asking = waiting.get(call_id, []) if call_id is not None else []
            for one in asking:
                if not (named and is_named(one.place)) and _same_opening(one.span, span, table):
                    _assign(one, call, result, span)
            if asking and all(one.result is not None for one in asking):
                del waiting[str(call_id)]


def _same_opening(earlier: SpanView, later: SpanView, table: DialectTable) -> bool:
    """Whether two transcripts begin alike, as far as can be seen: ids such as ``call_1`` are used again and again."""
    opening = input_items(earlier, table)[:_OPENING]
    return not opening or _digests(opening) == _digests(input_items(later, table)[: len(opening)])


def _by_history_elsewhere(requested: Iterable[RequestedCall], spans: Sequence[SpanView], table: DialectTable) -> None:
    """Find transcripts that begin with the input of the requesting model call: its calls and their results follow."""
    waiting: dict[bytes, list[RequestedCall]] = defaultdict(list)
    starts: dict[bytes, float] = {}
    for one in requested:
        digests = _digests(input_items(one.span, table))
        if digests:
            waiting[digests[-1]].append(one)
            start = digests[:_OPENING][-1]
            starts[start] = min(one.span.end, starts.get(start, one.span.end))
    for span in spans if waiting else ():
        items = input_items(span, table)
        opening = _digests(items[:_OPENING])
        if any(starts.get(start, float("inf")) <= span.start for start in opening):
            _continue_history(span, items, waiting)


def _continue_history(span: SpanView, items: Sequence[Any], waiting: Mapping[bytes, Sequence[RequestedCall]]) -> None:
    for length, digest in enumerate(_digests(items), 1):
        asking = [one for one in waiting.get(digest, ()) if one.result is None]
        if asking and length < len(items):
            pairs = _pairs(read_messages(items[length : length + LAST_MESSAGES]))[::-1]
            for one in asking:
                for call, result in pairs:
                    _assign(one, call, result, span)


def _assign(requested: RequestedCall, call: ToolCall, result: ToolResult, span: SpanView) -> None:
    if (
        requested.result is None
        and _follows(span, requested.span)
        and call.name == requested.call.name
        and same_arguments(decode_arguments(call.arguments).value, requested.args)
    ):
        requested.result = _with_call(result, call)


def _digests(items: Iterable[Any]) -> list[bytes]:
    """For each message, a digest of the transcript up to and including it."""
    digest = blake2b(digest_size=16)
    found = []
    for item in items:
        digest.update(as_text(item).encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return found
