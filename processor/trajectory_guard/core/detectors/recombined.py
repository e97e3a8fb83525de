"""Type II by what is asked: every word of the calls was asked before, and every answer was there before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from sys import byteorder
from typing import Any, ClassVar, Final

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_II, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import Insanity
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.masking import mask_text
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.pending import is_pending
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.result_text import is_acknowledgement
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import is_status_lookup, is_thinking, is_waiting

_STEPS: Final = 12
_KNOWN: Final = 9
_PAUSE_S: Final = 30.0
_MIN_CHARS: Final = 24
_LETTERS: Final = 12
_READ_CHARS: Final = 600
"""Of an answer to a call that asks something new: a longer one is not remembered, since masking it takes its time."""
_MAX_CHARS: Final = 4_096
_MAX_WORDS: Final = 24
"""A request of more words hands over a text: it is one word by itself."""
_KEPT_WORDS: Final = 192
_KEPT_ANSWERS: Final = 32
_WIDTH: Final = 2
_MIN_QUOTED: Final = 3
_WORD: Final = re.compile(r"[^\W_]+(?:[.,:/_-][^\W_]+)*")
_ID: Final = re.compile(r"\b(?=\w{0,64}\d)(?=\w{0,64}[^\W\d_])\w{6,64}\b|\b\d{9,64}\b")


class Recombined(Detector):
    """Fires when ten of the last twelve steps asked nothing new, and were answered as it was answered before.

    A call asks nothing new if each of its words and figures was part of a request to the same tool before, in whatever
    combination: the flags of a command, the settings of an order, the buttons of a form. Ids, clocks and the words of
    the request are no part of an answer. Thoughts, acknowledgements and brief values count neither way, unless their
    call asks something new. Where a quarter of the steps wait, or pause for half a minute, nothing is found. It leads
    to nudges only.

    >>> from trajectory_guard.core.demonstration import fires
    >>> flags = ("", "--force", "--legacy", "--force --legacy", "--legacy --force")
    >>> fires("nothing_new_asked", (
    ...     f"run(command=audit {flags[at % 5]} {flags[at // 5]}) -> 4 vulnerabilities (3 high), and no fix is available"
    ...     for at in range(20)
    ... ))

    Reference: situations of this kind in ``docs/detection.md``.
    """

    name: ClassVar[str] = "recombined"
    rules: ClassVar[tuple[str, ...]] = ("nothing_new_asked",)
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = Insanity.weight
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = Insanity.advice
    recommendation: ClassVar[str] = Insanity.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"steps": _STEPS, "known": _KNOWN}
    __slots__ = ("answers", "marks", "steps", "words")

    def __init__(self) -> None:
        self.words = b""  # checksums of what was asked
        self.answers = b""  # and of what was answered to calls that asked nothing new
        self.marks = ""  # of the newest steps: k known, w a wait, x new
        self.steps: tuple[int, ...] = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the words of the call, and where they are known the answer, with what was there before."""
        if is_thinking(seen.step.tool_name):
            return None
        asks_new = not seen.call or self._asks_new(seen)
        is_read = not (asks_new and (seen.step.result or "")[_READ_CHARS:])
        mark = self._mark(seen) if is_read else "x"
        if asks_new:
            mark = "x"
        if not mark:
            return None
        if seen.same_batch and self.marks:
            mark = max(mark, self.marks[-1])
            self.marks, self.steps = self.marks[:-1], self.steps[:-1]
        self.marks, self.steps = (self.marks + mark)[-_STEPS:], (*self.steps, seen.index)[-_STEPS:]
        if mark != "k" or self.marks.count("k") < _KNOWN or 4 * self.marks.count("w") > _STEPS:
            return None
        known = tuple([at for at, one in zip(self.steps, self.marks, strict=True) if one == "k"])
        return self.found(
            seen, 1.0, "nothing_new_asked", Certainty.LIKELY, count=len(known), first_step=known[0], steps=known,
            varied=True, calls=seen.index - known[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def _asks_new(self, seen: Observation) -> bool:
        words: list[str] = []
        for value in seen.values:
            found = [one.group() for one in islice(_WORD.finditer(value), _MAX_WORDS + 1)]
            words += found if len(found) <= _MAX_WORDS else [value]
        asked = [checksum(f"{seen.tool}\0{word}") & 0xFFFF for word in (words or [""])]
        known = set(memoryview(self.words).cast("H"))
        new = [one for one in dict.fromkeys(asked) if one not in known]
        if new:
            data = b"".join([one.to_bytes(_WIDTH, byteorder) for one in new])
            self.words = (self.words + data)[-_KEPT_WORDS * _WIDTH :]
        return bool(new)

    def _mark(self, seen: Observation) -> str:
        """The mark of a step by its answer; empty if that counts neither way."""
        step, text = seen.step, (seen.step.result or "").strip()
        if seen.gap_s >= _PAUSE_S or seen.certainty is Certainty.WAITING or is_waiting(step.tool_name, step.args):
            return "w"
        if is_status_lookup(step.tool_name) or is_pending(text):
            return "w"
        if not text or is_acknowledgement(text):
            return ""
        if len(text) < _MIN_CHARS:
            return "" if self._knows_answer(seen, text) else "x"
        answer = mask_text(both_ends(text, _MAX_CHARS)).casefold()
        for value in seen.values:
            if len(value) >= _MIN_QUOTED:
                answer = answer.replace(value[:_MAX_CHARS].casefold(), "~")
        answer = _ID.sub("#", answer)
        if sum(map(str.isalpha, answer)) < _LETTERS:
            return "" if self._knows_answer(seen, text) else "x"  # figures, the checksum of an image
        return "k" if self._knows_answer(seen, answer) else "x"

    def _knows_answer(self, seen: Observation, answer: str) -> bool:
        key = checksum(f"{seen.tool}\0{answer}") & 0xFFFF
        if key in memoryview(self.answers).cast("H"):
            return True
        self.answers = (self.answers + key.to_bytes(_WIDTH, byteorder))[-_KEPT_ANSWERS * _WIDTH :]
        return False

    def dump(self) -> Any:
        """What was asked and answered, and the newest marks."""
        if not self.words:
            return None
        return [to_text(self.words), to_text(self.answers), self.marks, self.steps]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        words, answers, self.marks, steps = data
        self.words, self.answers, self.steps = from_text(words), from_text(answers), tuple(steps)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of steps and the newest call."""
        return (
            f"{found.count} of the last {found.calls} calls asked only what had been asked before, in other "
            f"combinations, and got answers that were known; {call} returned {answer}."
        )
