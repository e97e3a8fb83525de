"""What a model was told about a call: found in the inputs of later model calls."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.spans.arguments import decode_arguments
from trajectory_guard.transcripts.matching import same_arguments
from trajectory_guard.transcripts.messages import ids_told, input_items, input_messages, is_model_span
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.told import Place, Told, is_named
from trajectory_guard.transcripts.transcript import Message, ToolAnswer, ToolCall, linked, trailing_answers

Pair = tuple[ToolCall, ToolAnswer]
LAST_MESSAGES: Final = 40
"""Messages read from the end of an input: an answer is told in the next model call, together with its turn."""
_OPENING: Final = 2
"""Messages by which a transcript is told apart from others before it is read whole."""


def find_answers(
    told: Sequence[Told],
    spans: Sequence[SpanView],
    place_of: Callable[[SpanView], Place],
    table: DialectTable = DIALECTS,
) -> None:
    """Fill in the answers of calls that have none. ``spans`` are in order of time.

    First within the same trace or trajectory; what is left, anywhere, if the transcript there shows the very call.
    """
    if all(one.answer is not None for one in told):
        return
    listening = [span for span in spans if is_model_span(span, table) or "gen_ai.input.messages" in span.attributes]
    _within(told, listening, place_of, table)
    _elsewhere(told, listening, place_of, table)


def _within(
    told: Iterable[Told], spans: Iterable[SpanView], place_of: Callable[[SpanView], Place], table: DialectTable
) -> None:
    waiting: dict[tuple[str, str], list[Told]] = defaultdict(list)
    for one in told:
        if one.answer is None:
            for scope in enumerate_place(one.place):
                waiting[scope].append(one)
    for span in spans:
        scopes = [scope for scope in enumerate_place(place_of(span)) if waiting.get(scope)]
        open_calls = {id(one): one for scope in scopes for one in waiting[scope] if one.answer is None}
        asking = [one for one in open_calls.values() if span.start >= one.span.end]
        if asking:
            messages = input_messages(span, LAST_MESSAGES, table)
            pairs = _pairs(messages)
            last = trailing_answers(messages) if is_model_span(span, table) else []
            for one in asking:
                one.answer = _answer_here(one, pairs) or (None if one.asked else _by_position(one, last))
                one.asked = one.asked or bool(last)
        for scope in scopes:
            waiting[scope] = [one for one in waiting[scope] if one.answer is None]


def enumerate_place(place: Place) -> tuple[tuple[str, str], ...]:
    """The scopes a place belongs to: its trace and its trajectory."""
    return ("trace", place.trace_id), ("trajectory", place.trajectory_id)


def _pairs(messages: Sequence[Message]) -> list[Pair]:
    """Refusals by a person first, then calls with their answers, the latest first."""
    decided = [
        (answer.call, answer)
        for message in messages
        for answer in message.answers
        if answer.approved is False and answer.call is not None
    ]
    return decided + [(call, answer) for call, answer in reversed(linked(messages)) if answer is not None]


def _answer_here(told: Told, pairs: Sequence[Pair]) -> ToolAnswer | None:
    for call, answer in pairs:
        if _same_id(told, call, answer) and _same_name(told, call):
            return _with_call(answer, call)
    for call, answer in pairs:
        if call.name and _same_name(told, call) and same_arguments(decode_arguments(call.arguments).value, told.args):
            return _with_call(answer, call)
    return None


def _same_name(told: Told, call: ToolCall) -> bool:
    return not call.name or not told.call.name or call.name == told.call.name


def _same_id(told: Told, call: ToolCall, answer: ToolAnswer) -> bool:
    ids = {one for one in (call.call_id, call.item_id, answer.call_id) if one}
    return not ids.isdisjoint(told.ids)


def _with_call(answer: ToolAnswer, call: ToolCall) -> ToolAnswer:
    return answer._replace(call_id=answer.call_id or call.call_id, call=call)


def _by_position(told: Told, answers: Sequence[ToolAnswer]) -> ToolAnswer | None:
    """Transcripts that show answers without ids and no calls: the n-th answer belongs to the n-th call of the turn."""
    size, ordinal = told.turn
    if not size or len(answers) != size or any(answer.call_id is not None for answer in answers):
        return None
    return answers[ordinal]


# --- in another trace ----------------------------------------------------------------------------------------


def _elsewhere(
    told: Sequence[Told], spans: Sequence[SpanView], place_of: Callable[[SpanView], Place], table: DialectTable
) -> None:
    """Bare clients write one trace per model call: a later transcript must show the very call, by id or by history.

    Not from one named conversation into another.
    """
    by_id: dict[str, list[Told]] = defaultdict(list)
    for one in told:
        if one.answer is None:
            for call_id in one.ids:
                by_id[call_id].append(one)
    for span in spans if by_id else ():
        _by_id_elsewhere(span, is_named(place_of(span)), by_id, table)
    left = [one for one in told if one.answer is None and not is_named(one.place)]
    if left:
        _by_history_elsewhere(left, [span for span in spans if not is_named(place_of(span))], table)


def _by_id_elsewhere(span: SpanView, named: bool, waiting: dict[str, list[Told]], table: DialectTable) -> None:
    mentioned = ids_told(span, table)
    if mentioned is not None and waiting.keys().isdisjoint(mentioned):
        return
    for call, answer in _pairs(input_messages(span, LAST_MESSAGES, table)):
        for call_id in (call.call_id, call.item_id):
            asking = waiting.get(call_id, []) if call_id is not None else []
            for one in asking:
                if not (named and is_named(one.place)) and _same_opening(one.span, span, table):
                    _settle(one, call, answer, span)
            if asking and all(one.answer is not None for one in asking):
                del waiting[str(call_id)]


def _same_opening(earlier: SpanView, later: SpanView, table: DialectTable) -> bool:
    """Whether two transcripts begin alike, as far as can be seen: ids such as ``call_1`` are used again and again."""
    opening = input_items(earlier, table)[:_OPENING]
    return not opening or _digests(opening) == _digests(input_items(later, table)[: len(opening)])


def _by_history_elsewhere(told: Iterable[Told], spans: Sequence[SpanView], table: DialectTable) -> None:
    """A transcript that begins with all a model was told when it asked, goes on with its calls and their answers."""
    waiting: dict[bytes, list[Told]] = defaultdict(list)
    starts: dict[bytes, float] = {}
    for one in told:
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


def _continue_history(span: SpanView, items: Sequence[Any], waiting: Mapping[bytes, Sequence[Told]]) -> None:
    for length, digest in enumerate(_digests(items), 1):
        asking = [one for one in waiting.get(digest, ()) if one.answer is None]
        if asking and length < len(items):
            pairs = _pairs(read_messages(items[length : length + LAST_MESSAGES]))[::-1]
            for one in asking:
                for call, answer in pairs:
                    _settle(one, call, answer, span)


def _settle(told: Told, call: ToolCall, answer: ToolAnswer, span: SpanView) -> None:
    if (
        told.answer is None
        and span.start >= told.span.end
        and call.name == told.call.name
        and same_arguments(decode_arguments(call.arguments).value, told.args)
    ):
        told.answer = _with_call(answer, call)


def _digests(items: Iterable[Any]) -> list[bytes]:
    """For each message, a digest of the transcript up to and including it."""
    digest = blake2b(digest_size=16)
    found = []
    for item in items:
        digest.update(json.dumps(item, default=repr, ensure_ascii=True).encode())
        found.append(digest.digest())
    return found
