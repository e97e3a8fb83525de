"""Failures that last: one that is reported again after each piece of work, and nothing but failures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from struct import iter_unpack, pack
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.alike_failures import FIGURE, MAX_FIGURES, NUMBERED, moves_on
from trajectory_guard.core.content.durations import keep_falling, times_in
from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.content.outcome import begins_with_complaint, looks_like_error
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_I, TYPE_V, DetectionResult, Detector
from trajectory_guard.core.detectors.entry_lists import runs_program
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.detectors.insanity import only_says_done
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, SUCCESS, Certainty
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import is_lookup, is_thinking

_OFTEN: Final = 6
_FAR: Final = 16
"""Reports of one failure, from which on it is found each time: few failures are mended at so late a try."""
_TURNS: Final = 16
_SEVERAL: Final = 2
_CALL_CHARS: Final = 8
_TOOL: Final = 0xFFFF
"""The part of the checksum of a tool that is kept: enough to distinguish the few tools of one run."""
_WINDOW: Final = 48
_QUIET_STEPS: Final = 32
_KEPT: Final = 6
_KEPT_REPORTS: Final = 4
_MIN_CHARS: Final = 40
"""A shorter text names a class of failures, as a status does: many things may fail so."""
_REPORT_CHARS: Final = 1_024
_REQUEST_CHARS: Final = 4_096
_MIN_NAME_CHARS: Final = 4
_MAX_NAMES: Final = 64
_MEMBER: Final = re.compile(r"\"[^\"\n]{1,80}\"\s{0,9}:")
_LETTERS: Final = 12
"""Figures with their names, of which one counts errors, are readings: they say nothing of what went wrong."""
_SHORT_ID: Final = re.compile(r"\b(?=[a-f]{0,6}\d)(?=\d{0,6}[a-f])[0-9a-f]{3,7}\b")
_SIZES: Final = 8
_TRIES: Final = 3
_RETRY_STEPS: Final = 16


class _Report(NamedTuple):
    """A failure as a tool reports it.

    Fields:
        key: checksum of the tool and of the text, words with a digit in them aside.
        call: beginning of the symbol, hex, of the newest call that was answered so.
        batch: ordinal of its batch.
        steps: index of the newest step of each series of such answers; figures, times: those of the text at each.
        quiet_until: step before which it is not found again; quiet: length of that interval.
        times_reported: number of those series; since: step of the first of them.
        tool: the part of its checksum that is kept.
    """

    key: int
    call: str
    batch: int
    steps: tuple[int, ...]
    figures: tuple[tuple[float, ...], ...]
    times: tuple[tuple[float, ...], ...]
    quiet_until: int = 0
    quiet: int = _QUIET_STEPS
    times_reported: int = 0
    since: int = -1
    tool: int = 0


class RecurringFailure(Detector):
    """Fires when a tool reports one failure for the sixth time within 48 steps, with other steps in between.

    Figures in the report are ignored, and so are ids that the request names, and the arguments: a pod is deleted and
    comes back under another name with the same crash, a build fails in the same words after each edit, a job is started
    anew and ends as the one before it. Reports in a row count once: those are tries, which ``same_error`` counts. A
    report of which a figure goes one way, or which the same call does not make any more, is progress. Brief texts,
    errors that pass by themselves and waits do not count. It leads to nudges only, and is found again after 32 further
    steps, then after ever more, and from the 16th report on at each one, until the tool brings something new (a shell
    does with any command).

    >>> from trajectory_guard.core.demonstration import fires
    >>> crash = "Error: the variable DB_URL of the container is not set; exit code 1 of pod"
    >>> fires("recurring_failure", (
    ...     call for pod in ("a1", "b2", "c3", "d4", "e5", "f6", "g7")
    ...     for call in (f"logs(pod={pod}) -> {crash} {pod}", f"delete(pod={pod}) -> pod {pod} deleted")
    ... ))
    step 12: 6 times, 1.00, acknowledged, NUDGE

    Reference: situations of this kind in ``docs/detection.md``.
    """

    name: ClassVar[str] = "recurring_failure"
    rules: ClassVar[tuple[str, ...]] = ("recurring_failure",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = ErrorStreak.advice
    recommendation: ClassVar[str] = ErrorStreak.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"often": _OFTEN}
    __slots__ = ("acted_at", "reports", "sizes")

    def __init__(self) -> None:
        self.acted_at = -1  # the newest step that was not a thought
        self.reports: tuple[_Report, ...] = ()
        self.sizes = b""  # of the newest successes: tool, length, and how often such were read in vain

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count the reports of this failure, or note that the call does not report it any more."""
        if is_thinking(seen.step.tool_name):
            return None
        before, self.acted_at = self.acted_at, seen.index
        text = seen.step.result or ""
        if seen.certainty is Certainty.WAITING or seen.step.stated or not seen.call:
            return None
        failed = text[_MIN_CHARS - 1 :] != "" and self._reports_failure(seen, text)
        if not failed:
            if self.reports and seen.outcome == SUCCESS:
                self._note_success(seen)
            return None
        words, figures = _read(both_ends(text, _REPORT_CHARS), seen.values)
        if sum(map(str.isalpha, _MEMBER.sub("", words))) < _LETTERS:
            return None
        key = checksum(f"{seen.tool}\0{words}")
        new = _Report(key, "", -1, (), (), (), tool=checksum(seen.tool) & _TOOL)
        report = next((one for one in self.reports if one.key == key), new)
        others = tuple([one for one in self.reports if one is not report])
        again = report.steps[-1:] == (before,) or (seen.same_batch and report.batch == seen.batch)
        kept = len(report.steps) - again
        report = report._replace(
            call=seen.call.hex()[:_CALL_CHARS], batch=seen.batch, times_reported=report.times_reported + (not again),
            since=report.since if report.times_reported else seen.index,
            steps=(*report.steps[:kept], seen.index)[-_KEPT:],
            figures=(*report.figures[:kept], figures)[-_KEPT:],
            times=(*report.times[:kept], tuple(times_in(text)))[-_KEPT:],
        )  # fmt: skip
        self.reports = (*others[1 - _KEPT_REPORTS :], report)
        return self._found(seen, report)

    def _note_success(self, seen: Observation) -> None:
        """End the failures of this call, and count those of its tool anew, unless the tool runs commands."""
        call, tool = seen.call.hex()[:_CALL_CHARS], checksum(seen.tool) & _TOOL
        works = seen.progress and not runs_program(seen)
        self.reports = tuple([
            one._replace(times_reported=0) if works and one.tool == tool else one
            for one in self.reports if one.call != call
        ])  # fmt: skip

    def _reports_failure(self, seen: Observation, text: str) -> bool:
        """Whether a result reports a failure. Of successes only those are read that are as long as one before them."""
        if seen.outcome == DENIED:
            return False  # a decision on this call
        if seen.outcome == ERROR or seen.signature is not None:
            return True
        if seen.outcome != SUCCESS:
            return False
        tool, size, tries = checksum(seen.tool) & 0xFFFF, min(len(text), 0xFFFF), -1
        least, most = size - size // _SIZES, size + size // _SIZES
        for other, length, tried in iter_unpack("<HHH", self.sizes):
            if least <= length <= most and tries < tried and other == tool:
                tries = tried
        complains = False
        if 0 <= tries < _TRIES or (tries >= 0 and seen.index % _RETRY_STEPS == 0):
            is_article = seen.made_alike > 1 and is_lookup(seen.step.tool_name)  # read again, it may speak of failures
            complains = looks_like_error(text) or (
                not is_article and (begins_with_complaint(text, seen.values) or seen.fails_in_words)
            )
            tries = min(tries + 1, _TRIES)
        newest = pack("<HHH", tool, size, 0 if complains or tries < 0 else tries)
        self.sizes = (self.sizes + newest)[-_SIZES * len(newest) :]
        return complains

    def _found(self, seen: Observation, report: _Report) -> DetectionResult | None:
        steps = [at for at in report.steps if at > seen.index - _WINDOW]
        if len(steps) < _OFTEN or (seen.index < report.quiet_until and report.times_reported < _FAR):
            return None
        if moves_on(report.figures[-len(steps) :]) or keep_falling(report.times[-len(steps) :]):
            return None
        quiet = report._replace(quiet_until=seen.index + report.quiet, quiet=2 * report.quiet)
        self.reports = (*self.reports[:-1], quiet)
        count, first = max((report.times_reported, report.since), (len(steps), steps[0]))
        return self.found(
            seen, 1.0, "recurring_failure", Certainty.ACKNOWLEDGED, count=count, first_step=first,
            steps=tuple(steps), varied=True, calls=seen.index - first + 1, alike=count, at_least=True,
        )  # fmt: skip

    def dump(self) -> Any:
        """The reports that are remembered, and the lengths of the newest results."""
        if not self.reports and not self.sizes:
            return None
        return [self.acted_at, self.reports, to_text(self.sizes)]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.acted_at, reports, sizes = data
        self.reports = tuple(
            _Report(key, call, batch, tuple(steps), tuple(map(tuple, figures)), tuple(map(tuple, times)), *others)
            for key, call, batch, steps, figures, times, *others in reports
        )
        self.sizes = from_text(sizes)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of reports and the newest call."""
        calls = f"{found.count} of the last {found.calls} calls"
        return f"At least {calls} reported the same failure; {call} returned {answer}."


class OnlyFailures(Detector):
    """Fires when sixteen model turns in a row brought nothing but failures, each in words of its own.

    A wall is described in many ways: ``same_error`` asks for one error class, and this rule for none. Thoughts in
    between do not count as success, nor do look-ups that find nothing, if they are made with several tools: one alone
    may go through a list. A call that fails otherwise than it did the last time ends the series, since something has
    moved on, and a wait (``certainty`` waiting) that is looked at again does not fire. It leads to nudges only: the
    entries of a long list may all fail.

    >>> from trajectory_guard.core.demonstration import fires
    >>> ways = "curl wget pip npm git ftp ssh scp rsync nc ping dig host telnet apt conda brew".split()
    >>> fires("only_failures", (f"run(with={way}) -> [error] {way}: {way[::-1]} {len(way)}" for way in ways))
    step 15: 16 times, 1.00, likely, OBSERVE
    step 16: 17 times, 1.00, likely, NUDGE

    Reference: failures in a row of healthy situations, fourteen at most (``docs/detection.md``).
    """

    name: ClassVar[str] = "only_failures"
    rules: ClassVar[tuple[str, ...]] = ("only_failures",)
    loop_type: ClassVar[str] = TYPE_V
    weight: ClassVar[float] = ErrorStreak.weight
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "Nothing has worked for many calls: stop trying further ways, and say what they have in common.",
        "Check what all of them need: a connection, a right, a running service, a valid session.",
        "If it cannot be had, finish what does not need it, and report what is missing.",
    )
    recommendation: ClassVar[str] = ErrorStreak.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"turns": _TURNS}
    __slots__ = ("looked", "steps")

    def __init__(self) -> None:
        self.steps: tuple[int, ...] = ()  # the newest failure of each turn
        self.looked: tuple[int, ...] = ()  # checksums of the tools of those turns that found nothing, 0 for the others

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count the turns that brought nothing but failures."""
        looked = seen.outcome == EMPTY and seen.signature is None and not (seen.step.stated or only_says_done(seen))
        if (seen.signature is None and not looked) or seen.result_changed:
            if not is_thinking(seen.step.tool_name):
                self.steps = self.looked = ()
            return None
        kept = slice(-1) if seen.same_batch else slice(1 - 2 * _TURNS, None)
        self.steps = (*self.steps[kept], seen.index)
        self.looked = (*self.looked[kept], checksum(seen.tool) & _TOOL if looked else 0)
        polls = seen.certainty is Certainty.WAITING and seen.made > 1
        if len(self.steps) < _TURNS or polls or seen.same_batch:
            return None
        looked_with = set(self.looked[-_TURNS:])
        if len(looked_with) < _SEVERAL and looked_with != {0}:
            return None  # a list that is looked up with one tool
        return self.found(
            seen, 1.0, "only_failures", Certainty.LIKELY, count=len(self.steps), first_step=self.steps[0],
            steps=self.steps[-_TURNS:], varied=True, calls=seen.index - self.steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def dump(self) -> Any:
        """The failures in a row."""
        return [self.steps, self.looked if any(self.looked) else ()] if self.steps else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        steps, looked = data
        self.steps, self.looked = tuple(steps), tuple(looked) or (0,) * len(steps)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        return f"At least {found.count} turns in a row brought nothing but failures; {call} returned {answer}."


def _read(text: str, values: Sequence[str]) -> tuple[str, tuple[float, ...]]:
    """A report without its figures and the ids that the request names, and the first figure of each of these words."""
    asked = frozenset(NUMBERED.findall("\n".join(values)[:_REQUEST_CHARS])[:_MAX_NAMES])
    figures: list[float] = []

    def without_figures(found: re.Match[str]) -> str:
        word = found[0]
        figures.append(0.0 if word in asked else float(FIGURE.findall(word)[0]))
        return "#" if word in asked else FIGURE.sub("#", word)  # another id is another thing that failed

    for word in sorted(asked, key=lambda word: (-len(word), word)):  # the longest first: a name may hold another one
        if len(word) >= _MIN_NAME_CHARS:
            text = text.replace(word, "#")  # before a mask takes the space in front of it
    words = NUMBERED.sub(without_figures, mask_text(text))
    named = [one for one in _SHORT_ID.findall(text) if one not in asked]  # masked like the longer ids of requests
    return " ".join([words, *named[:MAX_FIGURES]]), tuple(figures[: MAX_FIGURES + 1])
