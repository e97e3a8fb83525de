"""What a model was told about a call: found in the inputs of later model calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.dialects.arguments import decode_arguments
from trajectory_guard.dialects.matching import same_arguments
from trajectory_guard.dialects.messages import input_messages, is_model_span
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.told import Place, Told
from trajectory_guard.dialects.transcript import Message, ToolAnswer, ToolCall, linked, trailing_answers

Pair = tuple[ToolCall, ToolAnswer]


def find_answers(told: Sequence[Told], spans: Sequence[SpanView], place_of: Callable[[SpanView], Place]) -> None:
    """Fill in the answers of calls that have none. ``spans`` are in order of time.

    First within the same trace or trajectory; what is left, anywhere, if the transcript there shows the very call.
    """
    if all(one.answer is not None for one in told):
        return
    listening = [span for span in spans if is_model_span(span) or "gen_ai.input.messages" in span.attributes]
    _within(told, listening, place_of)
    _elsewhere([one for one in told if one.answer is None], listening, place_of)


def _within(told: Iterable[Told], spans: Iterable[SpanView], place_of: Callable[[SpanView], Place]) -> None:
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
            messages = input_messages(span)
            pairs = _pairs(messages)
            last = trailing_answers(messages) if is_model_span(span) else []
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
    if len(answers) != size or any(answer.call_id is not None for answer in answers):
        return None
    return answers[ordinal]


# --- in another trace ----------------------------------------------------------------------------------------


def _elsewhere(told: Sequence[Told], spans: Iterable[SpanView], place_of: Callable[[SpanView], Place]) -> None:
    """Bare clients write one trace per model call: the later transcript must show the very call, by id or history."""
    waiting: dict[Hashable, list[Told]] = defaultdict(list)
    for one in told:
        for key in chain(one.ids, [_key(one.call.name, one.args)]):
            waiting[key].append(one)
    left = len(told)
    for span in spans:
        if not left:
            return
        messages = input_messages(span)
        for call, answer in _pairs(messages):
            args = decode_arguments(call.arguments).value
            found = [*waiting.get(call.call_id, ()), *waiting.get(call.item_id, ())]
            for one in found + waiting.get(_key(call.name, args), []):
                if one.answer is None and _is_the_call(one, call, args, answer, span, messages):
                    one.answer = _with_call(answer, call)
                    left -= 1


def _key(name: str, args: object) -> tuple[str, str | None]:
    return name, args_hash(args)


def _is_the_call(
    told: Told, call: ToolCall, args: object, answer: ToolAnswer, span: SpanView, messages: Sequence[Message]
) -> bool:
    if span.start < told.span.end or call.name != told.call.name or not same_arguments(args, told.args):
        return False
    return _same_id(told, call, answer) or _continues(input_messages(told.span), messages)


def _continues(earlier: Sequence[Message], later: Sequence[Message]) -> bool:
    """Whether a transcript begins with another one, word for word."""
    if not earlier or len(later) <= len(earlier):
        return False
    return all(
        (one.text, [call.name for call in one.calls]) == (other.text, [call.name for call in other.calls])
        for one, other in zip(earlier, later, strict=False)
    )
