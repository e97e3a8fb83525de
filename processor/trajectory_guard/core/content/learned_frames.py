"""The frame that an environment puts around every answer, learned from the answers themselves.

``[gw-4 10:21:07 #17] … (quota 983)`` stands around whatever is answered, whichever tool was called. No list knows such
frames. A frame differs from the answer in that it is always there, and in its figures: ids are new each time, counters
move evenly, clocks and durations are noise. A figure that climbs unevenly, jumps or stays may be a score, a position or
a stock, so a frame ends in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.envelope import with_result
from trajectory_guard.core.content.error_text import begins_as_error
from trajectory_guard.core.content.masking import is_volatile_key, noise_spans
from trajectory_guard.core.content.pending import is_pending
from trajectory_guard.core.content.result_text import may_acknowledge
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.steps import DENIED, ERROR, StepRecord
from trajectory_guard.core.text import text_of
from trajectory_guard.core.text_bounds import MAX_UNDERSTOOD_CHARS
from trajectory_guard.core.tools import is_lookup

_CHARS: Final = 400
_MAX_TOKENS: Final = 56
"""Characters and tokens at each end of an answer among which a frame is looked for."""
_ANSWERS: Final = 4
"""Answers that a frame has to be around before it is taken for one, and that a template of one tool is around."""
_ANSWERS_OF_ONE_TOOL: Final = 6
_ANSWERS_BEFORE_FAILURES: Final = 2
_TOOLS: Final = 2
_CALLS: Final = 3
"""Tools, or calls that differ in more than figures, whose answers it has to be around."""
_DIFFERENT: Final = 2
"""Answers within it that differ: else it may be the answer."""
_LEAST_ID: Final = 4
_MAX_DIGITS: Final = 9
_TOKEN: Final = re.compile(r"\n\s*|[^\S\n]+|[A-Za-z0-9+/]{12,128}|[^\W_]+|_|[^\w\s]")
_DIGITS: Final = re.compile(r"\d+")
_TOOL: Final = "\0"
_NOISE: Final = "\1"
_SLOT: Final = Struct("<BIh")
_MAX_PACE: Final = 1 << 15

WORD, CODE, FIGURE, COUNT, ID, LASTED, NOISE = range(7)


class Slot(NamedTuple):
    """One place of a frame.

    Fields:
        kind: ``WORD``, ``CODE`` (with digits) and ``FIGURE`` stay as they are; ``COUNT`` is a figure that moves evenly
            with the calls, ``ID`` is new each time, ``LASTED`` is a figure that its name says to be noise, and
            ``NOISE`` is what the masks know.
        value: checksum of the newest token there, or its figure.
        pace: by how much a ``COUNT`` moves with each call.
    """

    kind: int
    value: int
    pace: int = 0


Slots = Sequence[Slot]


class Frame(NamedTuple):
    """The frame of a trajectory, as far as it is known.

    Fields:
        head: the places before the answer, from the first one on, packed; foot: those behind it, from the last one on.
        at: step of the newest answer that did not fail; answers: number of those that it has been around.
        tools: checksums of the first two tools; calls: of the first three calls, figures aside; different: of the first
            two answers without the frame.
    """

    head: bytes = b""
    foot: bytes = b""
    at: int = 0
    answers: int = 0
    tools: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    different: tuple[int, ...] = ()

    @property
    def of_several_tools(self) -> bool:
        """Whether it is around the answers of more than one tool, so that it is no template of one."""
        return len(self.tools) == _TOOLS

    @property
    def known(self) -> bool:
        """Whether it has been around enough different answers."""
        least = _ANSWERS if self.of_several_tools else _ANSWERS_OF_ONE_TOOL
        differs = self.of_several_tools or len(self.calls) == _CALLS
        return self.answers >= least and differs and len(self.different) == _DIFFERENT

    def after(self, step: StepRecord, at: int, head: Slots, foot: Slots, answer: str) -> Frame:
        """The frame after the next answer.

        Parameters:
            at: index of the step.
            head, foot: the places that this answer has as well; answer: its result without the frame.
        """
        moves = any(slot.kind >= COUNT for slot in (*head, *foot))
        if _is_failure(step):  # it may come with another frame, so it takes nothing from this one
            return self._replace(answers=self.answers + moves)
        if not (head or foot) or (not moves and self.answers >= _ANSWERS_OF_ONE_TOOL):
            return DEAD
        call = checksum(f"{step.tool_name} {_DIGITS.sub('', text_of(step.args))}")
        different = (*self.different, checksum(answer)) if self.answers and answer else self.different
        return Frame(
            _packed(head),
            _packed(foot),
            at,
            self.answers + 1,
            tuple(dict.fromkeys((*self.tools, checksum(step.tool_name))))[:_TOOLS],
            tuple(dict.fromkeys((*self.calls, call)))[:_CALLS],
            tuple(dict.fromkeys(different))[:_DIFFERENT],
        )

    def to_plain(self) -> list[Any]:
        """The frame as JSON values; none of one that is dead."""
        return [] if self == DEAD else [to_text(self.head), to_text(self.foot), *self[2:]]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Frame:
        """Restore ``to_plain``."""
        if not plain:
            return DEAD
        head, foot, at, answers, *seen = plain
        return cls(from_text(head), from_text(foot), at, answers, *map(tuple, seen))


NO_FRAME: Final = Frame()
DEAD: Final = Frame(answers=-1)
"""That of a trajectory whose answers have none."""


def _packed(slots: Slots) -> bytes:
    return b"".join([_SLOT.pack(*slot) for slot in slots])


def _is_failure(step: StepRecord) -> bool:
    return step.outcome_type in (ERROR, DENIED)


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def without_learned_frame(
    step: StepRecord, frame: Frame, at: int, is_known: Callable[[StepRecord], bool]
) -> tuple[StepRecord, Frame]:
    """A step whose result is without the frame, and what is known of the frame then.

    Parameters:
        frame: from the steps before; at: index of this one; is_known: whether its call was made before.

    >>> from trajectory_guard.core.steps import StepRecord
    >>> frame, pages = NO_FRAME, ("nothing", "a page", "nothing", "another page", "nothing")
    >>> for at, (tool, page) in enumerate(zip(("find", "open", "find", "open", "find"), pages)):
    ...     result = f"[gw-{at} {tool} 9f{at}c] {page} (quota {9 - at})"
    ...     step = StepRecord(str(at), "t", tool, tool_args_hash="", result=result)
    ...     step, frame = without_learned_frame(step, frame, at, lambda step: False)
    >>> step.result
    'nothing'
    """
    result = step.result
    if result is None or frame is DEAD or step.stated:
        return step, frame
    if result[:1] in ("{", "[") and result[-1:] in ("}", "]"):
        return step, frame  # an object: its members are told by their names
    if len(result) > MAX_UNDERSTOOD_CHARS or not result.strip():
        return step, frame
    if _is_failure(step) and frame.answers < _ANSWERS_BEFORE_FAILURES:
        return step, frame  # errors of one kind have a template of their own
    first, last = _tokens(result, step.tool_name, frame)
    head, foot = _merged(frame, frame.head, first, at, ahead=True), _merged(frame, frame.foot, last, at, ahead=False)
    answer = _between(result, first[: len(head)], last[: len(foot)])
    frame = frame.after(step, at, head, foot, answer)
    if answer in ("", result) or not frame.known or not any(_tells(end, frame) for end in (head, foot)):
        return step, frame
    if any(_names(step, slots, tokens) for slots, tokens in ((head, first), (foot, last))):
        return step, frame
    if not frame.of_several_tools and may_acknowledge(answer) and not is_lookup(step.tool_name) and is_known(step):
        return step, frame  # the next entry of many is acknowledged as the one before it
    return with_result(step, answer), frame


def _tells(slots: Slots, frame: Frame) -> bool:
    """Whether what moves at one end of the answers belongs to the exchange: an id, a duration, a number and a clock.

    A figure that does nothing but move evenly may count what is done (``call_counters``).
    """
    kinds = {slot.kind for slot in slots}
    return ID in kinds or (frame.of_several_tools and (LASTED in kinds or {COUNT, NOISE} <= kinds))


def _names(step: StepRecord, slots: Slots, tokens: Sequence[_Token]) -> bool:
    """Whether an id at one end of the answer is what was asked for."""
    ids = [token.text for slot, token in zip(slots, tokens, strict=False) if slot.kind == ID]
    return bool(ids and step.args) and any(one in text_of(step.args) for one in ids)


def _tokens(text: str, tool: str, frame: Frame) -> tuple[list[_Token], list[_Token]]:
    """The first tokens of a text, and the last ones, the last one first; none where a known frame has no place."""
    begins = frame.answers == 0
    ahead, behind = begins or frame.head != b"", begins or frame.foot != b""
    start = max(0, len(text) - _CHARS)
    last = _split(text[start:], tool, start, _CHARS) if behind else []
    if not ahead:
        first = []
    elif behind and not start:
        first = last[:_MAX_TOKENS]
    else:
        first = _split(text[:_CHARS], tool, 0, _MAX_TOKENS)
    return first, last[: -_MAX_TOKENS - 1 : -1]


def _split(text: str, tool: str, ahead: int, most: int) -> list[_Token]:
    """The tokens of a text: words, signs and spaces, and what the masks know and the name of the tool as one each.

    Parameters:
        ahead: characters before this part of the text; most: number of tokens after which it is left.
    """
    spans = [(start, end, _NOISE) for start, end in noise_spans(text)]
    at = text.find(tool) if tool else -1
    while at >= 0 and len(spans) < _MAX_TOKENS:
        spans.append((at, at + len(tool), _TOOL))
        at = text.find(tool, at + len(tool))
    tokens: list[_Token] = []
    place = 0
    for start, end, kind in (*sorted(spans), (len(text), len(text), "")):
        if start < place:
            continue
        found = islice(_TOKEN.finditer(text, place, start), most - len(tokens))
        tokens += [_Token(one[0], one.start() + ahead, one.end() + ahead) for one in found]
        if len(tokens) == most:
            break
        if end > start:
            tokens.append(_Token(kind, start + ahead, end + ahead))
        place = end
    return tokens


def _slot(token: str) -> Slot:
    if token.isascii() and token.isdigit() and len(token) <= _MAX_DIGITS:
        return Slot(FIGURE, int(token))
    is_code = len(token) >= _LEAST_ID and _DIGITS.search(token) is not None
    kind = NOISE if token == _NOISE else CODE if is_code else WORD
    return Slot(kind, checksum(token.strip(" \t") or token[:1]))


def _merged(frame: Frame, packed: bytes, tokens: Sequence[_Token], at: int, *, ahead: bool) -> list[Slot]:
    """The places of a frame that an answer has as well, from the outside inwards.

    Parameters:
        packed: those of its head or foot.
        ahead: the tokens are in the order of the text, and not from its end.
    """
    if frame.answers == 0:
        return [_slot(one.text) for one in tokens]
    kept: list[Slot] = []
    outside, inside = (_NAME_TOKENS, _UNIT_TOKENS) if ahead else (_UNIT_TOKENS, _NAME_TOKENS)
    for place, (slot, token) in enumerate(zip(_SLOT.iter_unpack(packed), tokens, strict=False)):
        around = tokens[max(0, place - outside) : place + inside + 1]
        merged = _next(Slot(*slot), token.text, at - frame.at, around)
        if merged is None:
            break
        kept.append(merged)
    return kept


_NAME_TOKENS: Final = 6
_UNIT_TOKENS: Final = 3


def _next(slot: Slot, token: str, steps: int, around: Sequence[_Token]) -> Slot | None:
    """A place after the next answer, which came so many steps later; None if the frame ends in front of it."""
    one = _slot(token)
    same = slot.value == one.value
    if same and slot.kind == one.kind:
        return one
    if slot.kind in (FIGURE, LASTED) and one.kind == FIGURE and _is_named_noise(around):
        return one._replace(kind=LASTED)
    if same or slot.kind == LASTED:
        return None
    moved = one.value - slot.value
    if one.kind == FIGURE and steps > 0 and abs(moved) < _MAX_PACE:
        if slot.kind == COUNT and moved == slot.pace * steps:
            return one._replace(kind=COUNT, pace=slot.pace)
        if slot.kind == FIGURE and moved % steps == 0:
            return one._replace(kind=COUNT, pace=moved // steps)
    if slot.kind == FIGURE and one.kind == FIGURE:
        return None  # it climbs unevenly, or jumps
    is_code = one.kind in (CODE, FIGURE) and len(token) >= _LEAST_ID
    return one._replace(kind=ID) if is_code and slot.kind in (CODE, FIGURE, ID) else None


def _is_named_noise(around: Sequence[_Token]) -> bool:
    """Whether the words around a figure are the name of a duration or of another kind of noise."""
    return any(
        one.text.isalpha() and (_NAMES_NOISE.search(one.text) is not None or is_volatile_key(one.text))
        for one in around
    )


_NAMES_NOISE: Final = re.compile(r"\A(?:dur|thread|node|worker|memory)\Z|nanos\Z", re.IGNORECASE)


def _between(text: str, head: Sequence[_Token], foot: Sequence[_Token]) -> str:
    """The text between the tokens of a frame, which ends beside a word and not within one; ``text`` itself if the frame
    says something, empty if it leaves nothing.
    """
    start = next((one.end for one in reversed(head) if not one.text[-1:].isalnum()), 0)
    end = next((one.start for one in reversed(foot) if not one.text[:1].isalnum()), len(text))
    if start >= end:
        return ""
    outside = (" ".join(text[:start].split()), " ".join(text[end:].split()))
    if any(is_pending(part) or begins_as_error(part) for part in outside if part):
        return text
    return text[start:end].strip()
