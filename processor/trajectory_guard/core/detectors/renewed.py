"""Type IV under new names: what a call shows is dealt with by its name, and comes back under another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.content.masking import mask_noise
from trajectory_guard.core.detectors.base import FAILED, PROGRESS, TYPE_IV, WORKED, DetectionResult, Detector
from trajectory_guard.core.detectors.pingpong import PingPong
from trajectory_guard.core.fingerprints import UNKNOWN, checksum
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty
from trajectory_guard.core.text import text_of

_LAPS: Final = 4
"""Names in a row that were dealt with and came back as another one."""
_MADE: Final = 3
"""So often a call has been made before what it shows is compared."""
_LONGEST_LAP: Final = 8
_MAX_CHARS: Final = 2_000
_MAX_NAMES: Final = 24
_MAX_NUMBERS: Final = 24
_KEPT_FORMS: Final = 16
_NAME: Final = re.compile(
    r"(?<![\w.-])(?:(?=[\w.-]{0,60}[A-Za-z])(?=[\w.-]{0,60}\d)\w[\w.-]{2,62}\w|\d{6,20})(?![\w-])", re.ASCII
)
"""A name that somebody has made up: of letters and figures, or a long number."""
_DIGIT: Final = re.compile(r"\d", re.ASCII)
_LAST_DIGITS: Final = 12
_NEXT_IN_ORDER: Final = 1_000
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)


class _Shape(NamedTuple):
    """A text without its names and numbers.

    Fields:
        form: checksum of the rest; names: the former (``_name``); numbers: the latter.
    """

    form: int
    names: frozenset[tuple[int, int]]
    numbers: tuple[float, ...]


def _name(text: str) -> tuple[int, int]:
    """A checksum of a name without its figures, and these as a number."""
    digits = "".join(filter(str.isdigit, text))
    return checksum(_DIGIT.sub("0", text)), int(digits[-_LAST_DIGITS:])


def _names_in(text: str) -> frozenset[tuple[int, int]]:
    return frozenset([_name(one[0]) for one in _NAME.finditer(text)][:_MAX_NAMES])


def _shape(text: str, *, without_noise: bool = False) -> _Shape:
    """``without_noise``: ids and clocks that the masks know are no names."""
    masked = mask_noise(text)
    rest = _NAME.sub("#", masked)
    numbers = tuple([float(one[0]) for one in _NUMBER.finditer(rest)][:_MAX_NUMBERS])
    return _Shape(checksum(_NUMBER.sub("0", rest)), _names_in(masked if without_noise else text), numbers)


def _replaces(gone: frozenset[tuple[int, int]], come: frozenset[tuple[int, int]]) -> bool:
    """Whether one name has taken the place of one other, and is not the next in order, as those of a queue are."""
    if len(gone) != 1 or len(come) != 1:
        return False
    (form, number), (new_form, new_number) = *gone, *come
    return form != new_form or not 0 < new_number - number < _NEXT_IN_ORDER


class Renewed(Detector):
    """Fires when what a call shows has come back under a new name for the fourth time in a row.

    A pod is deleted and the next one crashes in the same way; a record that a sync restores gets another id; each
    captcha is typed, and the next one is shown. No call and no result is ever the same, since the name differs. The
    look itself is the same call, and shows the same but for one name and for figures that do not move one way. Since
    the look before, a call has used the name that is gone, and that was new there. Every other call of the lap is known
    from the laps before, names and figures aside. The entries of a queue that show nothing but their ids look the same:
    the finding leads to nudges only.

    >>> from trajectory_guard.core.demonstration import fires
    >>> pods = ("api-x7k2p", "api-9fzq4", "api-m3w8d", "api-t5b1c", "api-q2n6v", "api-h8r4j", "api-w1z7k", "api-d6s3y")
    >>> laps = ((f"get_pods(app=api) -> {pod} 0/1 CrashLoopBackOff", f"delete_pod(name={pod}) -> deleted {pod}")
    ...         for pod in pods)
    >>> fires("renewed_name", [step for lap in laps for step in lap])
    step 14: 4 times, 1.00, likely, OBSERVE
    step 15: 4 times, 1.00, likely, NUDGE

    Reference: recorded and written runs in which a controller puts back what the agent removes.
    """

    name: ClassVar[str] = "renewed"
    rules: ClassVar[tuple[str, ...]] = ("renewed_name",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = PingPong.weight
    asked_at: ClassVar[int] = PROGRESS | WORKED | FAILED
    advice: ClassVar[tuple[str, ...]] = (
        "What you remove or replace comes back under another name: find out what creates it, and why.",
        "Change the cause, such as a controller, a template, a sync or missing settings, and not one more copy.",
        "If you cannot change the cause, say what comes back, and ask.",
    )
    recommendation: ClassVar[str] = "Something outside restores what the agent removes: give it access to the cause."
    thresholds: ClassVar[Mapping[str, int]] = {"laps": _LAPS}
    __slots__ = ("at", "call", "come", "first", "forms", "laps", "new", "shown", "trend", "used")

    def __init__(self) -> None:
        self._rest()

    def _rest(self) -> None:
        self.call = UNKNOWN  # the look whose results are compared
        self.at = self.first = -1  # its newest step, and the step with which the laps began
        self.shown = _Shape(0, frozenset(), ())
        self.come: frozenset[tuple[int, int]] = frozenset()  # the name that was new in it
        self.used: frozenset[tuple[int, int]] = frozenset()  # names from it that calls have used since
        self.forms: tuple[int, ...] = ()  # of the other calls in these laps
        self.new = False  # one of them was new in this lap
        self.laps = 0
        self.trend = (0, 0)  # bits: numbers that rose, or fell, in each lap

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare what a look shows with the time before, or note what is done between two looks."""
        if seen.call == self.call:
            return self._look_again(seen) if self.call else None
        if self.call:
            if seen.index - self.at < _LONGEST_LAP:
                return self._go_on(seen)
            self._rest()
        if seen.made >= _MADE and seen.differs and not seen.in_a_row:
            self._begin(seen)
        return None

    def _begin(self, seen: Observation) -> None:
        result = seen.step.result
        if result and len(result) <= _MAX_CHARS and (shown := _shape(result)).names:
            self.call, self.at, self.first, self.shown = seen.call, seen.index, seen.index, shown

    def _look_again(self, seen: Observation) -> DetectionResult | None:
        result = seen.step.result
        if not result or len(result) > _MAX_CHARS:
            self._rest()
            return None
        before, shown = self.shown, _shape(result)
        gone, come = before.names - shown.names, shown.names - before.names
        renewed = not self.new and shown.form == before.form and self.used >= gone and _replaces(gone, come)
        if self.laps and gone != self.come:  # one of several was dealt with after the other, as in a rolling restart
            self.laps, self.first = 0, seen.index
        rose, fell = self.trend if self.laps else (~0, ~0)
        pairs = list(enumerate(zip(before.numbers, shown.numbers, strict=False)))
        self.trend = (
            rose & sum([1 << at for at, (then, now) in pairs if now > then]),
            fell & sum([1 << at for at, (then, now) in pairs if now < then]),
        )
        self.laps = self.laps + 1 if renewed else 0
        if not renewed:
            self.first = seen.index
        self.shown, self.come, self.at, self.used, self.new = shown, come, seen.index, frozenset(), False
        return self._found(seen)

    def _go_on(self, seen: Observation) -> DetectionResult | None:
        args, result = text_of(seen.step.args), seen.step.result or ""
        if len(args) + len(result) > _MAX_CHARS:
            self.new = True
            return None
        asked = _shape(args)
        self.used |= asked.names & self.shown.names
        answered = _shape(result, without_noise=True)
        form = checksum(f"{seen.tool} {asked.form} {answered.form}")
        if form not in self.forms:
            self.forms, self.new = (*self.forms, form)[-_KEPT_FORMS:], True
        elif not answered.names <= (self.shown.names | asked.names):
            self.new = True
        return None if self.new else self._found(seen)

    def _found(self, seen: Observation) -> DetectionResult | None:
        if self.laps < _LAPS or any(self.trend):
            return None
        return self.found(
            seen, 1.0, "renewed_name", Certainty.LIKELY, count=self.laps, first_step=self.first, varied=True,
            only_nudge=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """How often the same came back; the names differ."""
        return (
            f"What was dealt with by its name has come back under another name {found.count} times in a row, otherwise "
            f"unchanged; the newest call, {call}, returned {answer}."
        )

    def dump(self) -> Any:
        """The look, what it showed, and the laps; None if no look is compared."""
        if not self.call:
            return None
        shown, come, used = (sorted(map(list, names)) for names in (self.shown.names, self.come, self.used))
        return [
            self.call.hex(), self.at, self.first, self.shown.form, shown, list(self.shown.numbers), come, used,
            list(self.forms), self.new, self.laps, list(self.trend),
        ]  # fmt: skip

    def load(self, data: Any) -> None:
        """See ``dump``."""
        call, self.at, self.first, form, names, numbers, come, used, forms, self.new, self.laps, (rose, fell) = data
        self.call, self.shown = bytes.fromhex(call), _Shape(form, frozenset(map(_pair, names)), tuple(numbers))
        self.come, self.used = frozenset(map(_pair, come)), frozenset(map(_pair, used))
        self.forms, self.trend = tuple(forms), (rose, fell)


def _pair(saved: list[int]) -> tuple[int, int]:
    form, number = saved
    return form, number
