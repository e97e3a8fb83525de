"""What a model was told about a call: found in the inputs of later model calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import blake2b

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
    _elsewhere(told, listening, place_of)


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


def _elsewhere(told: Iterable[Told], spans: Iterable[SpanView], place_of: Callable[[SpanView], Place]) -> None:
    """Bare clients write one trace per model call: a later transcript must show the very call, by id or by history.

    Not from one named conversation into another.
    """
    waiting: dict[Hashable, list[Told]] = defaultdict(list)
    for one in told:
        if one.answer is None:
            for call_id in one.ids:
                waiting[call_id].append(one)
            waiting[_history(input_messages(one.span)), one.call.name].append(one)
    for span in spans:
        if not waiting:
            return
        _elsewhere_in(span, _is_named(place_of(span)), waiting)


def _is_named(place: Place) -> bool:
    return place.trace_id != place.trajectory_id


def _elsewhere_in(span: SpanView, named: bool, waiting: dict[Hashable, list[Told]]) -> None:
    messages = input_messages(span)
    before = _histories(messages)
    for call, answer in _pairs(messages):
        args = decode_arguments(call.arguments).value
        for key in (call.call_id, call.item_id, (before.get(id(call)), call.name)):
            for one in waiting.get(key, ()) if key is not None else ():
                if (
                    one.answer is None
                    and span.start >= one.span.end
                    and call.name == one.call.name
                    and not (named and _is_named(one.place))
                    and same_arguments(args, one.args)
                ):
                    one.answer = _with_call(answer, call)
            if key in waiting and all(one.answer is not None for one in waiting[key]):
                del waiting[key]


def _history(messages: Iterable[Message]) -> str | None:
    """A digest of what was said; None if nothing was."""
    digest, said = blake2b(digest_size=16), False
    for message in messages:
        said = _feed(digest, message) or said
    return digest.hexdigest() if said else None


def _feed(digest: blake2b, message: Message) -> bool:
    if not (message.text or message.calls):
        return False
    digest.update(repr((message.text, [call.name for call in message.calls])).encode("utf-8", "surrogatepass"))
    return True


def _histories(messages: Sequence[Message]) -> dict[int, str | None]:
    """For each call of a transcript, the digest of what was said before its turn."""
    digest, said = blake2b(digest_size=16), False
    found: dict[int, str | None] = {}
    turn: str | None = None
    in_turn = False
    for message in messages:
        answers = message.role == "assistant" or bool(message.calls)
        if answers and not in_turn:
            turn = digest.hexdigest() if said else None
        in_turn = answers
        found.update({id(call): turn for call in message.calls})
        said = _feed(digest, message) or said
    return found
