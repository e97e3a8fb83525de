"""Type II over a stretch of steps: nothing new is asked, nothing new is answered, and no figure moves on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from struct import pack, unpack
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_II, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import Insanity
from trajectory_guard.core.observation import LONG_PAUSE_S, Observation
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.steps import Certainty
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import (
    changes_database,
    is_communication,
    is_handoff,
    is_status_lookup,
    is_thinking,
    is_waiting,
)

_TURNS: Final = 14
_LONG: Final = 32
_FEW: Final = 1
_REPEATED: Final = 3
"""Cells of a table ask for known words, each for another pair of them: so many calls have to be repeats."""
_MANY_WAITS: Final = 3
_MANY_SILENT: Final = 9
_SAME_ANSWERS: Final = 9
_ANSWERS: Final = 12
_SINCE_NEW: Final = 3
_AFTER_KNOWN: Final = 3
"""An answer to a call that asks something new is read only so soon after one that did not: reading takes its time."""
_MAX_CHARS: Final = 4_096
_MAX_WORDS: Final = 10
"""A line of more words is a text, and another one says something else: it counts as one word."""
_MAX_CHECKSUMS: Final = 64
_MAX_SENTENCES: Final = 256
_MAX_FIGURES: Final = 3
_MIN_QUOTED: Final = 3
_MIN_LETTERS: Final = 2
_SAID: Final = re.compile(r"(?:[^\W\d_][\W\d_]{0,80}){12}")
"""An answer with fewer letters says too little to be compared: a value, an acknowledgement."""
_BRIEF: Final = 24
_KEPT_WORDS: Final = 192
_KEPT_SENTENCES: Final = 160
_KEPT_ANSWERS: Final = 32
_KEPT_TURNS: Final = 28
_KEPT_FIGURES: Final = 8
_KEPT_MOVES: Final = 7
_LEAST_MOVES: Final = 4
_ONE_WAY: Final = 0.7
_BY_ONE: Final = {1.0: "f", -1.0: "b"}
_WORD: Final = re.compile(r"[^\W_]+(?:[.,:/_-][^\W_]+)*")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_DIGIT: Final = re.compile(r"\d")
_MASKED: Final = re.compile(r"(?<![^\W\d_])[^\W\d_]{0,64}\d[\w.,:/-]{0,64}|<\w{1,16}>")
_SENTENCE: Final = re.compile(r"[\n{}\[\],;|]|(?<=[.!?。])\s")
_FIGURE: Final = re.compile(r"[-\d](?:(?<=-)(?<![\w.]-)\d{1,9}|(?<!-)\d{0,8})(?:[.,]\d{1,6})?")
"""A number with its sign. The character before a sign is looked at behind it: so a search skips to signs and digits."""
_PART_OF: Final = re.compile(
    r"(?<![\d.,:/-])(\d{1,6})(?: ?(?:/|[^\W\d_]{1,3}) ?|,\s{0,4}\"(?:total|of|whole)\":\s{0,4})(\d{1,6})(?![\d.,:/-])"
)
"""A number of a number, as in "step 3 of 60", "3/60" and ``"done": 3, "total": 60``."""

_WIDTH: Final = 2
_INDEX: Final = 4

_ANSWER: Final = 1
_WORDS: Final = 2
_FIGURES: Final = 4
_WAIT: Final = 8
_NEW: Final = _ANSWER | _WORDS | _FIGURES | _WAIT
_SILENT: Final = 16
_SAME: Final = 32
_AGAIN: Final = 64


class _Figures(NamedTuple):
    """The figures of a sentence that a tool returns again and again.

    Fields:
        key: checksum of tool and sentence; last: its figures at the newest time.
        moves: of each figure, how it moved from time to time: ``u`` up, ``d`` down, ``f`` and ``b`` the same by one; as
            many steps as the run has made since count as one.
        at: index of the step of the newest time.
    """

    key: int
    last: tuple[float, ...]
    moves: tuple[str, ...]
    at: int

    def with_figures(self, figures: tuple[float, ...], at: int) -> _Figures:
        """The same with the figures of one more time."""
        if len(figures) != len(self.last):
            return _Figures(self.key, figures, ("",) * len(figures), at)
        moves = [
            known if now == then else (known + self._move(now - then, at))[-_KEPT_MOVES:]
            for now, then, known in zip(figures, self.last, self.moves, strict=True)
        ]
        return _Figures(self.key, figures, tuple(moves), at)

    def _move(self, by: float, at: int) -> str:
        if by == at - self.at:
            return "f"  # it counts the steps, of which not every answer was read
        return _BY_ONE.get(by, "u" if by > 0.0 else "d")

    def move_on(self) -> bool:
        """Whether one of them goes one way, or walks by one to and fro. One that only counts up does neither."""
        for moves in self.moves:
            if len(moves) >= _LEAST_MOVES and moves.strip("f"):
                down = moves.count("d") + moves.count("b")
                if abs(len(moves) - 2 * down) >= _ONE_WAY * len(moves) or not moves.strip("bf"):
                    return True
        return False


class Standstill(Detector):
    """Fires when fourteen model turns in a row had no new word or figure in a call and nothing new in an answer.

    A word or a figure is new if no call of the tool held it before, in whatever combination; an answer, if the tool has
    not said one of its sentences before, figures, ids and the words of the request aside, or if a figure in one of them
    (in this row, if several say the same) goes one way from time to time. One that goes up by one each time, as the
    number of a try, does not. Of the fourteen turns one may ask, and one may say, something new. Nine of twelve turns
    are enough whose whole answers came before, with all their figures. Three of the calls have to be repeats. Thoughts
    do not count, and acknowledgements and values only if their call asks something new; hand-overs have rules of their
    own. Where three of the turns wait, pause for 45 seconds, or read another value off one call, nothing is found. A
    count that has an end, "step 3 of 60", is something new when it has gone up by one. The finding leads to nudges
    only. After 32 turns in a row without anything new it is named ``long_standstill``, if half of their calls gave
    arguments, and may lead to a stop.

    >>> from trajectory_guard.core.demonstration import fires
    >>> flags = ("--deep", "--force", "--legacy", "--dry-run")
    >>> fires("standstill", (
    ...     f"run(cmd=audit {flags[at % 4]} {flags[at * at // 3 % 4]}) -> {1208 + at * 7 % 5} packages, and no fix yet"
    ...     for at in range(19)
    ... ))
    step 17: 9 times, 1.00, likely, NUDGE
    step 18: 10 times, 1.00, likely, NUDGE

    Reference: situations of this kind in ``docs/detection.md``.
    """

    name: ClassVar[str] = "standstill"
    rules: ClassVar[tuple[str, ...]] = ("standstill", "long_standstill")
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = Insanity.weight
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    stopping_rules: ClassVar[tuple[str, ...]] = ("long_standstill",)
    advice: ClassVar[tuple[str, ...]] = (
        "Nothing new has come up for many steps: write down what you know, and what is missing.",
        "Do something that you have not done yet: another tool, another source, another way to the goal.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has tried, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"turns": _TURNS, "new": _FEW, "same": _SAME_ANSWERS, "long": _LONG}
    __slots__ = ("answers", "figures", "marks", "named", "part", "sentences", "since_known", "steps", "stood", "words")

    def __init__(self) -> None:
        self.words = b""  # checksums of the words and figures that were asked for
        self.sentences = b""  # and of the sentences that were answered
        self.answers = b""  # and of whole answers
        self.figures: tuple[_Figures, ...] = ()
        self.marks = b""  # of the newest turns, the bits above
        self.steps = b""  # and their newest steps
        self.since_known = _AFTER_KNOWN  # turns since a call asked nothing new
        self.stood = self.named = 0  # turns in a row without anything new, and those of them that gave arguments
        self.part = (0, 0, 0)  # tool, number and total of the newest count that has an end

    def update(self, seen: Observation) -> DetectionResult | None:
        """Mark what is new in the call and in its answer, and count the turns without."""
        if is_thinking(seen.step.tool_name):
            return None
        tool = crc32(seen.tool.encode("utf-8", "replace"))
        mark = self._asked(seen, tool)
        self.since_known = self.since_known + 1 if mark else 0
        read = self.since_known <= _AFTER_KNOWN and not is_handoff(seen.step.tool_name)
        mark |= _AGAIN * (seen.made > 1)
        # what an agent does with a hand-over does not show in its answer
        mark |= self._answered(seen, tool) if read else _ANSWER
        marks, indices = self.marks, self.steps
        if seen.same_batch and marks:
            mark = (mark | marks[-1]) & ~(_SILENT | _SAME | _AGAIN) | mark & marks[-1]
            marks, indices = marks[:-1], indices[:-_INDEX]
        self.marks = (marks + bytes((mark,)))[-_KEPT_TURNS:]
        self.steps = (indices + seen.index.to_bytes(_INDEX, "little"))[-_INDEX * _KEPT_TURNS :]
        if mark & _NEW:
            self.stood = self.named = 0
        elif not seen.same_batch:
            self.stood += 1
            self.named += bool(seen.values)
        if mark & _NEW or seen.same_batch:
            return None
        steps = self._with_same_answers() or self._standing()
        if not steps:
            return None
        # a round over many places needs no arguments
        rule = "long_standstill" if self.stood >= _LONG and 2 * self.named >= self.stood else "standstill"
        return self.found(
            seen, 1.0, rule, Certainty.LIKELY, count=len(steps), first_step=steps[0], steps=steps,
            varied=True, calls=seen.index - steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def _standing(self) -> tuple[int, ...]:
        """The newest fourteen turns, if hardly anything in them was new."""
        marks = self.marks[-_TURNS:]
        few = max(_count(marks, one) for one in (_WORDS, _FIGURES, _ANSWER)) <= _FEW
        waits = _count(marks, _WAIT) >= _MANY_WAITS or _count(marks, _SILENT) >= _MANY_SILENT
        stands = few and not waits and _count(marks, _AGAIN) >= _REPEATED
        return _indices(self.steps)[-_TURNS:] if stands and len(marks) == _TURNS else ()

    def _with_same_answers(self) -> tuple[int, ...]:
        """Of the newest twelve turns that ask or say something: those that ask nothing new, and whose answer is one
        that came before with all its figures. None if they are fewer than nine, or one of the newest three is not.
        """
        turns = [at for at, mark in enumerate(self.marks) if mark & (_NEW | _SAME)][-_ANSWERS:]
        marks = [self.marks[at] for at in turns]
        same = [at for at, mark in zip(turns, marks, strict=True) if mark & _SAME and not mark & _NEW]
        if len(same) < _SAME_ANSWERS or [1 for mark in marks[-_SINCE_NEW:] if mark & _NEW]:
            return ()
        if _count(marks, _WAIT) > _MANY_WAITS or _count(marks, _AGAIN) < _REPEATED:
            return ()
        steps = _indices(self.steps)
        return tuple([steps[at] for at in same])

    def _asked(self, seen: Observation, tool: int) -> int:
        """Whether the call holds new words, or new figures; they are remembered."""
        if not seen.call:
            return _WORDS
        words = _words_of(seen.values, tool)
        unknown = set(words.values()).difference(_numbers(self.words))
        if not unknown:
            return 0
        new = {word: one for word, one in words.items() if one in unknown}
        self.words = _with_new(self.words, list(dict.fromkeys(new.values())), _KEPT_WORDS)
        mark = 0
        for word in new:
            mark |= _WORDS if _DIGIT.search(word) is None else _FIGURES
        return mark

    def _answered(self, seen: Observation, tool: int) -> int:
        """Whether the answer says something new, or what it said before; whether the step waits, or says little."""
        step, text = seen.step, seen.step.result
        if text is None or seen.takes_entry:
            return _ANSWER  # another entry of a queue may differ in its number only
        if self._is_further(tool, text):
            return _ANSWER
        if seen.repeats > 1 and seen.certainty is not Certainty.WAITING and seen.gap_s < LONG_PAUSE_S:
            return _SILENT if len(text) < _BRIEF else _SAME  # as it was, but for clocks and ids
        masked = mask_text(both_ends(text, _MAX_CHARS)).casefold()
        for value in seen.values:
            if _MIN_QUOTED <= len(value) <= _MAX_CHARS:
                masked = masked.replace(value.casefold(), "~")
        answer = crc32(masked.encode("utf-8", "replace"), tool) & 0xFFFF
        same = answer in _numbers(self.answers)
        new = not same and (self._says_anything_new(masked, tool, seen.index) or _is_about_its_own(seen, text))
        if not same:
            self.answers = _with_new(self.answers, [answer], _KEPT_ANSWERS)
        waits = (
            (seen.in_a_row and not same)  # readings, of which the next one may be what is waited for
            or seen.gap_s >= LONG_PAUSE_S
            or seen.certainty is Certainty.WAITING
            or is_waiting(step.tool_name, step.args)
            or is_status_lookup(step.tool_name)
        )
        mark = _ANSWER * new | _WAIT * waits
        if _SAID.search(masked) is None or changes_database(step.args, text):
            return mark | _SILENT
        return mark | _SAME * (same and not is_communication(step.tool_name))

    def _is_further(self, tool: int, text: str) -> bool:
        """Whether a count that has an end has gone up by one: unlike the number of a try, it shows how far work is."""
        found = _PART_OF.search(text[:_MAX_CHARS])
        if found is None:
            return False
        before, self.part = self.part, (tool, int(found[1]), int(found[2]))
        return before == (tool, int(found[1]) - 1, int(found[2])) and int(found[1]) <= int(found[2])

    def _says_anything_new(self, masked: str, tool: int, at: int) -> bool:
        """Whether an answer holds a new sentence, or a figure that moves on; both are remembered."""
        keys, moved, places = [], False, dict[int, int]()
        for part in _SENTENCE.split(masked)[:_MAX_SENTENCES]:
            figures = _FIGURE.findall(part)
            words = _LETTERS.findall(_MASKED.sub("#", part) if figures or "<" in part else part)
            if not words and not figures:
                continue
            said = " ".join(words)
            key = crc32(said.encode("utf-8", "replace"), tool)
            if len(said) >= _MIN_LETTERS:
                keys.append(key & 0xFFFF)
            if figures:
                place = places[key] = places.get(key, -1) + 1  # rows of a table say the same of other things
                shown = tuple([float(one.replace(",", ".")) for one in figures[:_MAX_FIGURES]])
                moved |= self._moves(key + place, shown, at)
        known = set(_numbers(self.sentences))
        new = [one for one in dict.fromkeys(keys) if one not in known]
        self.sentences = _with_new(self.sentences, new, _KEPT_SENTENCES)
        return moved or bool(new)

    def _moves(self, key: int, figures: tuple[float, ...], at: int) -> bool:
        known = next((one for one in self.figures if one.key == key), None)
        others = tuple([one for one in self.figures if one is not known])
        now = known.with_figures(figures, at) if known is not None else _Figures(key, figures, ("",) * len(figures), at)
        self.figures = (*others[1 - _KEPT_FIGURES :], now)
        return now.move_on()

    def dump(self) -> Any:
        """What was asked and answered, and the marks of the newest turns."""
        if not self.marks:
            return None
        texts = [to_text(one) for one in (self.words, self.sentences, self.answers, self.marks, self.steps)]
        return [*texts, [list(one) for one in self.figures], self.since_known, self.stood, self.named, self.part]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        *texts, figures, self.since_known, self.stood, self.named, part = data
        self.part = (part[0], part[1], part[2])
        self.words, self.sentences, self.answers, self.marks, self.steps = map(from_text, texts)
        self.figures = tuple([_Figures(key, tuple(last), tuple(moves), at) for key, last, moves, at in figures])

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        return (
            f"For at least {found.count} turns nothing new was asked, and nothing new came back; {call} returned "
            f"{answer}."
        )


def _count(marks: Sequence[int], bit: int) -> int:
    return sum([mark & bit > 0 for mark in marks])


def _is_about_its_own(seen: Observation, text: str) -> bool:
    """Whether a call that was not made before is answered with its figures: each answer is about another thing."""
    figures = [one for one in seen.values if len(one) >= _MIN_QUOTED and _FIGURE.fullmatch(one)]
    return seen.made < 2 and len(figures) > 1 and all(one in text for one in figures)


@lru_cache(maxsize=16)  # a run that is stuck asks for a few things again and again
def _words_of(values: tuple[str, ...], tool: int) -> dict[str, int]:
    """The words and figures of a request, each with its checksum; not to be changed."""
    text = "\n".join(values)[:_MAX_CHARS].casefold()
    words: list[str] = []
    for line in text.split("\n"):
        words += [line] if line.count(" ") >= _MAX_WORDS else _WORD.findall(line)
    unique = dict.fromkeys(words[:_MAX_CHECKSUMS])
    encoded = map(str.encode, unique, repeat("utf-8"), repeat("replace"))
    return {word: one & 0xFFFF for word, one in zip(unique, map(crc32, encoded, repeat(tool)), strict=True)}


def _with_new(data: bytes, new: list[int], kept: int) -> bytes:
    return (data + pack(f"<{len(new)}H", *new))[-kept * _WIDTH :] if new else data


def _numbers(data: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(data) // _WIDTH}H", data)


def _indices(data: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(data) // _INDEX}I", data)
