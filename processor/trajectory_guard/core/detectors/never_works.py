"""Type V over one tool: it does not work any more, whatever it says, and it only says what it has said before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from struct import pack, unpack
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

from trajectory_guard.core.content.durations import keep_falling, times_in
from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.detectors.base import FAILED, TYPE_V, WORKED, DetectionResult, Detector
from trajectory_guard.core.detectors.entry_lists import commands_of, runs_program
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.steps import SUCCESS, Certainty
from trajectory_guard.core.text import both_ends, text_of
from trajectory_guard.core.tools import is_thinking

_FAILURES: Final = 12
_WINDOW: Final = 64
_NEW_SHARE: Final = 0.1
"""An id of letters only, as they come among other ids, is one new word of many."""
_MOST_ANEW: Final = _FAILURES // 2
"""More calls that ask for something new are a list, of which each entry fails."""
_ANEW_SHARE: Final = 0.25
_KEPT_TOOLS: Final = 4
_KEPT_WORDS: Final = 256
_READ_CHARS: Final = 1_024
_REQUEST_CHARS: Final = 2_048
_WIDTH: Final = 2
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_PART: Final = re.compile(r"[^\W_]{3,}")
_FIGURE: Final = re.compile(r"\d{1,7}")
_PROGRAM: Final = re.compile(
    r"\A\s{0,9}(?:cd \S{1,200} ?(?:&&|;) ?|timeout \S{1,9} |sudo |time |env |[A-Z_]{1,40}=\S{0,200} ){0,4}"
    r"([\w./+-]{1,100})"
)


class _Failing(NamedTuple):
    """A tool, or a program of a shell, that has not succeeded since these failures.

    Fields:
        key: checksum of the tool and program.
        words: checksums of the words of all its failures, those of the requests aside; parts: of the words and numbers
            of the requests.
        steps, known, anew: of the newest failures: the index; whether it had hardly a word that was not there before;
            whether its call asked for something that no call before it had asked for.
        figures: of each failure the first, the last and the largest of its figures, and their number; times: durations.
    """

    key: int
    words: bytes = b""
    parts: bytes = b""
    steps: tuple[int, ...] = ()
    known: tuple[bool, ...] = ()
    anew: tuple[bool, ...] = ()
    figures: tuple[tuple[float, ...], ...] = ()
    times: tuple[tuple[float, ...], ...] = ()

    def with_failure(self, seen: Observation) -> _Failing:
        """The same with one more failure."""
        text = both_ends(seen.step.result or "", _READ_CHARS)
        request = set(_PART.findall("\n".join(seen.values)[:_REQUEST_CHARS].casefold()))
        said = sorted(set(_WORD.findall(text.casefold())) - request)
        new = _new(said, self.words)
        parts = _new(sorted(request), self.parts)
        asks_anew = seen.asks_anew or len(parts) >= max(1.0, _ANEW_SHARE * len(request))
        is_known = bool(said) and len(new) <= _NEW_SHARE * len(said)
        numbers = list(map(float, _FIGURE.findall(mask_text(text)))) or [0.0]
        figures = (numbers[0], numbers[-1], max(numbers), float(len(numbers)))
        return _Failing(
            self.key, _with_new(self.words, new), _with_new(self.parts, parts),
            (*self.steps, seen.index)[-_FAILURES:], (*self.known, is_known)[-_FAILURES:],
            (*self.anew, asks_anew)[-_FAILURES:], (*self.figures, figures)[-_FAILURES:],
            (*self.times, tuple(times_in(text)))[-_FAILURES:],
        )  # fmt: skip

    @property
    def says_nothing_new(self) -> bool:
        """Whether twelve failures within 64 steps were known ones, but for one, and no figure in them goes one way."""
        if len(self.steps) < _FAILURES or self.steps[0] <= self.steps[-1] - _WINDOW:
            return False
        if sum(self.known) < _FAILURES - 1 or sum(self.anew) > _MOST_ANEW:
            return False
        one_way = [values for values in zip(*self.figures, strict=True) if _goes_one_way(values)]
        return not one_way and not keep_falling(self.times)


def _new(words: Sequence[str], known: bytes) -> list[int]:
    """Checksums of the words that are not among the known ones."""
    encoded = map(str.encode, words, repeat("utf-8"), repeat("replace"))
    sums = set(unpack(f"<{len(known) // _WIDTH}H", known))
    return [one & 0xFFFF for one in map(crc32, encoded) if one & 0xFFFF not in sums]


def _with_new(known: bytes, new: Sequence[int]) -> bytes:
    return (known + pack(f"<{len(new)}H", *new))[-_KEPT_WORDS * _WIDTH :]


def _goes_one_way(values: tuple[float, ...]) -> bool:
    """Whether of the pairs of unequal values three in four rise, or fall. Written out: it is asked at each failure."""
    if values.count(values[0]) == len(values):
        return False  # as most figures
    rising = falling = 0
    for at, value in enumerate(values):
        for other in values[:at]:
            rising += other < value
            falling += other > value
    return 2 * abs(rising - falling) >= rising + falling > 0


class NeverWorks(Detector):
    """Fires when a tool, or a program of a shell, failed twelve times without a success, in words that it had used.

    A grader refuses every version for some of the same reasons, a server closes the connection in four ways, a build
    fails in another place each time. No two of the failures need be alike. Eleven of the newest twelve, all within 64
    steps, have hardly a word that no earlier failure of this tool had, ids, figures and the words of the request aside.
    Successes of other tools in between do not matter. Failures of which a figure goes one way are progress, calls of
    which more than half ask for something new are a list, and failures without a word may be anything. It leads to
    nudges only.

    >>> from trajectory_guard.core.demonstration import fires
    >>> reasons = ("the total is missing", "no table is cited", "the largest change is not named")
    >>> fires("never_works", (
    ...     call for at in range(16) for call in (
    ...         f"write(text=version {'abcdefghijklmnop'[at] * 4}) -> saved as {at * 977 % 89}",
    ...         f"submit(file=report) -> [error] Rejected: {reasons[at % 3]}, {reasons[at * at % 3]}",
    ...     )
    ... ))
    step 27: 12 times, 1.00, acknowledged, OBSERVE
    step 29: 12 times, 1.00, acknowledged, OBSERVE
    step 31: 12 times, 1.00, acknowledged, NUDGE

    Reference: long runs that were stuck on one step and worked on others (``docs/measurements.md``).
    """

    name: ClassVar[str] = "never_works"
    rules: ClassVar[tuple[str, ...]] = ("never_works",)
    loop_type: ClassVar[str] = TYPE_V
    weight: ClassVar[float] = ErrorStreak.weight
    asked_at: ClassVar[int] = FAILED | WORKED
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "This has not worked once, and says nothing that it has not said before: stop varying it.",
        "Read its messages together: name the one thing that all tries lack, and get that first.",
        "If it cannot be had, finish what does not need it, and report what is missing.",
    )
    recommendation: ClassVar[str] = ErrorStreak.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"failures": _FAILURES}
    __slots__ = ("failing",)

    def __init__(self) -> None:
        self.failing: tuple[_Failing, ...] = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Add a failure to those of its tool, or forget them after a success."""
        failed = seen.signature is not None
        if not failed and not self.failing:
            return None
        if is_thinking(seen.step.tool_name):
            return None
        key = _key(seen)
        known = next((one for one in self.failing if one.key == key), None)
        others = tuple([one for one in self.failing if one is not known])
        if not failed:
            if known is not None and seen.outcome == SUCCESS:
                self.failing = others
            return None
        if seen.certainty is Certainty.WAITING or seen.same_batch or not seen.call:
            return None  # where nothing shows what was asked for, each call may have asked for something else
        failing = (known or _Failing(key)).with_failure(seen)
        self.failing = (*others[1 - _KEPT_TOOLS :], failing)
        if not failing.says_nothing_new:
            return None
        return self.found(
            seen, 1.0, "never_works", Certainty.ACKNOWLEDGED, count=len(failing.steps), first_step=failing.steps[0],
            steps=failing.steps, varied=True, calls=seen.index - failing.steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def dump(self) -> Any:
        """The tools that fail."""
        return [[one.key, to_text(one.words), to_text(one.parts), *one[3:]] for one in self.failing] or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.failing = tuple([
            _Failing(
                key, from_text(words), from_text(parts), tuple(steps), tuple(known), tuple(anew),
                tuple(map(tuple, figures)), tuple(map(tuple, times)),
            )
            for key, words, parts, steps, known, anew, figures, times in data
        ])  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of failures and the newest call."""
        return (
            f"At least {found.count} calls failed without one that worked, and said nothing new; the newest, {call}, "
            f"returned {answer}."
        )


def _key(seen: Observation) -> int:
    program = ""
    if runs_program(seen):
        match = _PROGRAM.match(" ".join(map(text_of, commands_of(seen)))[:_REQUEST_CHARS])
        program = match[1].rpartition("/")[2] if match is not None else ""
    return crc32(f"{seen.tool}\0{program}".encode("utf-8", "replace"))
