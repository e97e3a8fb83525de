"""Type II over a stretch of steps: nothing new is asked, nothing new is answered, and no figure moves on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice, repeat
from sys import byteorder
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_II, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import Insanity
from trajectory_guard.core.masking import mask_text
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.pending import is_pending
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import changes_database, is_communication, is_status_lookup, is_thinking, is_waiting

_TURNS: Final = 14
_FEW: Final = 1
_KNOWN: Final = 9
_OF: Final = 12
_KEPT_MARKS: Final = 28
_KEPT_ANSWERS: Final = 32
_MANY_WAITS: Final = 3
_MANY_SILENT: Final = 9
_AFTER_KNOWN: Final = 3
"""An answer to a call that asks something new is read only so soon after one that did not: reading takes its time."""
_PAUSE_S: Final = 45.0
_MAX_CHARS: Final = 4_096
_MAX_WORDS: Final = 64
_MAX_SENTENCES: Final = 256
_MIN_QUOTED: Final = 3
_MIN_LETTERS: Final = 2
_SILENT_LETTERS: Final = 12
_KEPT_WORDS: Final = 256
_KEPT_SENTENCES: Final = 192
_WIDTH: Final = 2
_WORD: Final = re.compile(r"[^\W\d_]+")
_FIGURED: Final = re.compile(r"(?<![^\s,;\"'(){}\[\]=])[^\s,;\"'(){}\[\]=\d]{0,64}\d[^\s,;\"'(){}\[\]=]{0,64}")
_MASKED: Final = re.compile(r"(?<![^\W\d_])[^\W\d_]{0,64}\d[\w.,:/-]{0,64}|<\w{1,16}>")
_SENTENCE: Final = re.compile(r"[\n{}\[\],;|]|(?<=[.!?。])\s")
_FIGURE: Final = re.compile(r"(?:(?<![\w.])-)?\d{1,9}(?:[.,]\d{1,6})?")
_MAX_FIGURES: Final = 3
_KEPT_FIGURES: Final = 12
_KEPT_MOVES: Final = 7
_LEAST_MOVES: Final = 4
_ONE_WAY: Final = 0.7

_ANSWER: Final = 1
_WORDS: Final = 2
_FIGURES: Final = 4
_WAIT: Final = 8
_SILENT: Final = 16
_SAME: Final = 32
_MOVE: Final = {1.0: "f", -1.0: "b"}
_NEW: Final = _ANSWER | _WORDS | _FIGURES | _WAIT


class _Figures(NamedTuple):
    """The figures of a sentence that a tool returns again and again.

    Fields:
        key: checksum of tool and sentence; last: its figures at the newest time.
        moves: of each figure, how it moved from time to time: ``u`` up, ``d`` down, ``c`` one more, as a counter does.
    """

    key: int
    last: tuple[float, ...]
    moves: tuple[str, ...]

    def with_figures(self, figures: tuple[float, ...]) -> _Figures:
        """The same with the figures of one more time."""
        if len(figures) != len(self.last):
            return _Figures(self.key, figures, ("",) * len(figures))
        moves = [
            (known + _MOVE.get(now - then, "u" if now > then else "d"))[-_KEPT_MOVES:] if now != then else known
            for now, then, known in zip(figures, self.last, self.moves, strict=True)
        ]
        return _Figures(self.key, figures, tuple(moves))

    def move_on(self) -> bool:
        """Whether one of them goes one way, and does not just count the times."""
        return any(
            len(one) >= _LEAST_MOVES
            and one.strip("f")
            and (abs(len(one) - 2 * (one.count("d") + one.count("b"))) >= _ONE_WAY * len(one) or not one.strip("bf"))
            for one in self.moves
        )


class Standstill(Detector):
    """Fires when fourteen model turns brought nothing: no new word or figure in the calls, no new sentence in an answer.

    A word or a figure is new if no call of the run held it before, in whatever combination; a sentence, if the tool has
    not said it before, figures, ids and the words of the request aside. One turn of the fourteen may ask or answer
    something new. A figure that rises or falls from one time to the next is progress, unless it goes up by one each
    time, as the number of a try does. Nothing is found where more than three of the turns wait, or pause for 45
    seconds, or where more than nine only acknowledge. Thoughts are not counted. It leads to nudges only.

    >>> from trajectory_guard.core.demonstration import fires
    >>> flags = ("", "--force", "--legacy", "--force --legacy", "--legacy --force")
    >>> fires("standstill", (
    ...     f"run(command=audit {flags[at % 5]} {flags[at // 5]}) -> 12{at * 7 % 5} packages, and no fix is available"
    ...     for at in range(20)
    ... ))

    Reference: situations of this kind in ``docs/detection.md``.
    """

    name: ClassVar[str] = "standstill"
    rules: ClassVar[tuple[str, ...]] = ("standstill",)
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = Insanity.weight
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "Nothing new has come up for many steps: write down what you know, and what is missing.",
        "Do something that you have not done yet: another tool, another source, another way to the goal.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has tried, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"turns": _TURNS, "new": _FEW}
    __slots__ = ("answers", "figures", "marks", "sentences", "since_known", "steps", "words")

    def __init__(self) -> None:
        self.words = b""  # checksums of the words and figures that were asked for
        self.sentences = b""  # and of the sentences that were answered
        self.answers = b""  # and of whole answers
        self.figures: tuple[_Figures, ...] = ()
        self.marks: tuple[int, ...] = ()  # of the newest turns, the bits above
        self.steps: tuple[int, ...] = ()
        self.since_known = _AFTER_KNOWN  # turns since a call asked nothing new

    def update(self, seen: Observation) -> DetectionResult | None:
        """Mark what is new in the call and its answer, and count the turns without."""
        if is_thinking(seen.step.tool_name):
            return None
        mark = self._asked(seen)
        self.since_known = 0 if not mark else self.since_known + 1
        if self.since_known > _AFTER_KNOWN:
            mark |= _ANSWER
        else:
            mark |= self._answered(seen)
        if seen.same_batch and self.marks:
            silent = mark & self.marks[-1] & _SILENT
            mark = ((mark | self.marks[-1]) & ~_SILENT) | silent
            self.marks, self.steps = self.marks[:-1], self.steps[:-1]
        self.marks, self.steps = (*self.marks, mark)[-_KEPT_MARKS:], (*self.steps, seen.index)[-_KEPT_MARKS:]
        if mark & _NEW or seen.same_batch:
            return None
        steps = self._known_steps() or self._standing_steps()
        if not steps:
            return None
        return self.found(
            seen, 1.0, "standstill", Certainty.LIKELY, count=len(steps), first_step=steps[0], steps=steps,
            varied=True, calls=seen.index - steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def _standing_steps(self) -> tuple[int, ...]:
        """The newest fourteen, if hardly anything in them was new."""
        marks = self.marks[-_TURNS:]
        if len(marks) < _TURNS:
            return ()
        few = all(sum([mark & new > 0 for mark in marks]) <= _FEW for new in (_ANSWER, _WORDS, _FIGURES))
        waits, silent = (sum([mark & one > 0 for mark in marks]) for one in (_WAIT, _SILENT))
        return self.steps[-_TURNS:] if few and waits < _MANY_WAITS and silent < _MANY_SILENT else ()

    def _known_steps(self) -> tuple[int, ...]:
        """Those of the newest twelve with an answer of some length that ask nothing new, and whose answer is the same
        as one before with all its figures; none if they are fewer than nine.
        """
        told = [(at, mark) for at, mark in zip(self.steps, self.marks, strict=True) if mark & (_NEW | _SAME)][-_OF:]
        same = tuple([at for at, mark in told if mark & _SAME and not mark & _NEW])
        waits = sum([mark & _WAIT > 0 for _, mark in told])
        return same if len(same) >= _KNOWN and waits <= _MANY_WAITS else ()

    def _asked(self, seen: Observation) -> int:
        """Whether the call holds new words, or new figures."""
        if not seen.call:
            return _WORDS
        text = "\n".join(seen.values)[:_MAX_CHARS].casefold()
        tool = crc32(seen.tool.encode())
        words = _checksums(islice(_WORD.findall(text), _MAX_WORDS), tool)
        figures = _checksums(islice(_FIGURED.findall(text), _MAX_WORDS), tool)
        known = set(memoryview(self.words).cast("H"))
        mark = (0 if known.issuperset(words) else _WORDS) | (0 if known.issuperset(figures) else _FIGURES)
        if mark:
            self.words = _with_new(self.words, known, words + figures, _KEPT_WORDS)
        return mark

    def _answered(self, seen: Observation) -> int:
        """Whether the answer holds a new sentence, or a figure that moves on; whether the step waits, or says little."""
        step, text = seen.step, seen.step.result
        if text is None:
            return _ANSWER
        masked = mask_text(both_ends(text, _MAX_CHARS)).casefold()
        for value in seen.values:
            if _MIN_QUOTED <= len(value) <= _MAX_CHARS:
                masked = masked.replace(value.casefold(), "~")
        tool, keys, letters, moved = crc32(seen.tool.encode()), [], 0, False
        for part in islice(_SENTENCE.split(masked), _MAX_SENTENCES):
            said = " ".join(_WORD.findall(_MASKED.sub("#", part)))
            key = crc32(said.encode(), tool)
            if len(said) >= _MIN_LETTERS:
                keys.append(key & 0xFFFF)
                letters += len(said)
            numbers = _FIGURE.findall(part)
            if numbers:
                moved = self._moved(key, tuple([float(one.replace(",", ".")) for one in numbers[:_MAX_FIGURES]])) or moved
        known = set(memoryview(self.sentences).cast("H"))
        new = not known.issuperset(keys) or _is_about_its_own(seen, text)
        if new:
            self.sentences = _with_new(self.sentences, known, keys, _KEPT_SENTENCES)
        answer = crc32(masked.encode(), tool) & 0xFFFF
        before = set(memoryview(self.answers).cast("H"))
        self.answers = _with_new(self.answers, before, [answer], _KEPT_ANSWERS)
        waits = (
            (seen.in_a_row and answer not in before)  # readings, of which the next one may be what is waited for
            or seen.gap_s >= _PAUSE_S
            or seen.certainty is Certainty.WAITING
            or is_waiting(step.tool_name, step.args)
            or is_status_lookup(step.tool_name)
            or is_pending(text)
        )
        mark = (_ANSWER * (new or moved)) | (_WAIT * waits)
        if letters < _SILENT_LETTERS or changes_database(step.args, text):
            return mark | _SILENT
        return mark | _SAME * (answer in before and not is_communication(step.tool_name))

    def _moved(self, key: int, figures: tuple[float, ...]) -> bool:
        known = next((one for one in self.figures if one.key == key), None)
        others = tuple([one for one in self.figures if one is not known])
        now = known.with_figures(figures) if known is not None else _Figures(key, figures, ("",) * len(figures))
        self.figures = (*others[1 - _KEPT_FIGURES :], now)
        return now.move_on()

    def dump(self) -> Any:
        """What was asked and answered, and the marks of the newest turns."""
        if not self.words:
            return None
        words, sentences = to_text(self.words), to_text(self.sentences)
        return [words, sentences, to_text(self.answers), [list(one) for one in self.figures], self.marks, self.steps, self.since_known]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        words, sentences, answers, figures, marks, steps, self.since_known = data
        self.words, self.sentences, self.answers = map(from_text, (words, sentences, answers))
        self.figures = tuple([_Figures(key, tuple(last), tuple(moves)) for key, last, moves in figures])
        self.marks, self.steps = tuple(marks), tuple(steps)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        return (
            f"For at least {found.count} turns nothing new was asked, and nothing new came back; {call} returned "
            f"{answer}."
        )


def _is_about_its_own(seen: Observation, text: str) -> bool:
    """Whether a call that was not made before is answered with its figures: each answer is about another thing."""
    figures = [one for one in seen.values if len(one) >= _MIN_QUOTED and _FIGURE.fullmatch(one)]
    return seen.made < 2 and len(figures) > 1 and all(one in text for one in figures)


def _checksums(words: Any, tool: int) -> list[int]:
    return [one & 0xFFFF for one in map(crc32, map(str.encode, words, repeat("utf-8"), repeat("replace")), repeat(tool))]


def _with_new(data: bytes, known: set[int], checksums: list[int], kept: int) -> bytes:
    new = [one.to_bytes(_WIDTH, byteorder) for one in dict.fromkeys(checksums) if one not in known]
    return (data + b"".join(new))[-kept * _WIDTH :]
