"""Type II by answer: ever different calls of one tool, and every answer says the same beside what was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final

from trajectory_guard.core.content.http_requests import READING_METHODS, request_in
from trajectory_guard.core.content.listings import hits_form
from trajectory_guard.core.content.result_text import is_acknowledgement, is_remark, is_report, may_acknowledge
from trajectory_guard.core.detectors.base import SERIES, TYPE_II, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import Insanity, is_silent_command, is_value
from trajectory_guard.core.fingerprints import object_in
from trajectory_guard.core.inquiry import FAR, names_thing, reads_tables
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import EMPTY, SUCCESS, Certainty
from trajectory_guard.core.tools import is_communication, is_lookup, points_at_view
from trajectory_guard.core.written import holds_token

_CALLS: Final = 6
_EXPLORED: Final = 9
_PAST_END: Final = 8
_PAGES: Final = 8
_FAR_DONE: Final = 120
"""Rows that were written, sent or done in order, each with the same acknowledgement: more than most lists have."""
_FAR_LOOKED: Final = 2 * FAR
"""Empty pages, hours or cursors that were read in order: more than the hours of two days."""
_ROWS_OF_A_PAGE: Final = 3
MADE_NOW_AND_THEN: Final = 2
"""Calls of one action among many new ones: it may be done once more."""


_LONG_LIST: Final = 128
"""Look-ups that find nothing, from which on even a list of them is worth a nudge: the names may be guesses."""


class SameAnswer(Detector):
    """Fires when six different calls of one tool in a row get one answer, whatever the answer quotes of the request.

    A setting is turned, a name is guessed, a question is worded anew, and nothing comes of it: the answer is empty, or
    it is the same without the words of the request. A tool that has found something in this run may find nothing eight
    times. Where each call asks for something that was not asked for before, the calls are a list of look-ups, and do
    not count below the 129th; nor do calls that hand over new texts, if their answer names a file of the request. Only
    one page at eight addresses in a row counts: it is a login, a test for robots or an empty shell before all of them;
    it is nudged, and stopped from the 120th on. Where each is the next page, offset or hour, or follows a cursor,
    thirty in a row count, slowly; so do eight empty ones where pages before them held something, unless they ask for a
    time, and six pages that list the same things. Of days, hours and serial numbers that find nothing thirty lead to a
    nudge, and the 120th to a stop. They do not count if other answers hold ids or checksums, which may be what was
    asked for, or if each call names a thing by its id. Messages, single values, actions and commands that return
    nothing at all, and answers that may acknowledge an action count, slowly, from the 120th in order on; where a tool
    without the name of a look-up answers in one line, they may be nudged before. Errors have rules of their own.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("same_answer", (f"ocr(image=scan.png, dpi={dpi}) -> [empty] []" for dpi in (150, 200, 300, 400, 600, 96)))
    step 4: 5 times, 0.50, acknowledged, OBSERVE
    step 5: 6 times, 1.00, acknowledged, NUDGE

    Reference: patience of the rule for errors that name what was asked for (``error_streak``).
    """

    name: ClassVar[str] = "same_answer"
    rules: ClassVar[tuple[str, ...]] = ("same_answer",)
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = 1.5
    asked_at: ClassVar[int] = SERIES
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = Insanity.advice
    recommendation: ClassVar[str] = Insanity.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"calls": _CALLS, "calls_that_explore": _EXPLORED}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Look at the current series of equal answers."""
        far = min(seen.advances, seen.alike)
        listed = far >= _CALLS <= seen.same_pages and seen.has_found and _rows_of(seen) >= _ROWS_OF_A_PAGE
        past_end = far >= _PAST_END and seen.has_found and seen.outcome == EMPTY and not _is_dated(seen)
        enough = far >= FAR or past_end
        answers = enough and not (seen.writes or names_thing(seen)) and _is_answer(seen)
        shows = answers and _shows_something(seen)
        if listed or ((answers or far >= _FAR_DONE) and not _brings_token(seen)):
            certainty = Certainty.LIKELY if far >= _FAR_LOOKED and shows else Certainty.ACKNOWLEDGED
            nothing = not past_end if seen.outcome == EMPTY else _is_one_line(seen)
            may_be_items = nothing and any(map(_is_numbered, seen.values))  # as the days of a year
            may_stop = listed or far >= _FAR_DONE or (shows and not may_be_items)  # rows may be written in order
            return self.found(
                seen, 1.0, "same_answer", certainty, count=seen.alike, first_step=seen.alike_first, varied=True,
                calls=min(seen.alike, seen.memory), at_least=True,
                only_nudge=not may_stop,
            )  # fmt: skip
        if seen.alike >= _PAGES - 1 and seen.signature is None and _shows_page(seen):
            return self.found(
                seen, 1.0, "same_answer", Certainty.LIKELY, count=seen.alike, first_step=seen.alike_first, varied=True,
                calls=min(seen.alike, seen.memory), at_least=True,
                only_nudge=seen.alike < _FAR_DONE,  # copies lie at many addresses
            )  # fmt: skip
        if seen.alike_list and _is_due(seen.alike) and seen.signature is None and _finds_nothing(seen):
            return self.found(
                seen, 1.0, "same_answer", Certainty.LIKELY, count=seen.alike, first_step=seen.alike_first, varied=True,
                calls=min(seen.alike, seen.memory), at_least=True, only_nudge=True,
            )  # fmt: skip
        if (
            seen.alike < _CALLS - 1
            or seen.alike_list
            or seen.alike_items
            or seen.signature is not None
            or not _is_answer(seen)
        ):
            return None
        # a tool that has found something in this run works, and what it does not find may rightly not be there
        explores = seen.has_found and seen.outcome == EMPTY
        needed = (_EXPLORED if explores else _CALLS) * seen.variation_pace
        if seen.alike < needed - 1:
            return None
        certainty = Certainty.ACKNOWLEDGED if seen.outcome == EMPTY or not _shows_something(seen) else Certainty.LIKELY
        return self.found(
            seen, 1.0 if seen.alike >= needed else 0.5, "same_answer", certainty, count=seen.alike,
            first_step=seen.alike_first, varied=True, calls=min(seen.alike, seen.memory), at_least=True,
            only_nudge=_may_be_done(seen),
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of calls and their answer: the first of them may have been new, parallel calls
        count once, and no more are known to differ than are remembered.
        """
        return f"At least {found.calls} different calls in a row got the same answer; {call} returned {answer}."


def _may_be_done(seen: Observation) -> bool:
    """Whether the answer may say of each action that it was done, in whatever words and figures."""
    tool, text = seen.step.tool_name, (seen.step.result or "").strip()
    if seen.outcome != SUCCESS or is_lookup(tool):
        return False
    if may_acknowledge(text):
        return True
    if seen.made > MADE_NOW_AND_THEN or seen.alike >= _FAR_DONE or points_at_view(tool) or _may_ask(seen):
        return False
    return is_report(text) and not (seen.fails_in_words or seen.looks_like_error)


def _may_ask(seen: Observation) -> bool:
    """Whether the arguments ask for something, or hold an id that may be all that is new."""
    request = request_in(seen.step.args)
    reads = request is not None and request[0] in READING_METHODS
    return reads or reads_tables(seen.values) or any(map(holds_token, seen.values))


def _is_due(alike: int) -> bool:
    """Whether a list that finds nothing has become twice as long as when it was last found, or is that for the first
    time; two steps in a row, since one alone does not reach the threshold.
    """
    times, since = divmod(alike, _LONG_LIST)
    return since < 2 and times > 0 and times & (times - 1) == 0


def _finds_nothing(seen: Observation) -> bool:
    """Whether the answer is empty, or one sentence without a figure, to something else than a message or an action."""
    if is_communication(seen.step.tool_name):
        return False
    text = (seen.step.result or "").strip()
    if seen.outcome == EMPTY:
        return not is_silent_command(seen) and text.lower() not in _NO_VALUE - {"null"}
    return is_remark(text) and (is_lookup(seen.step.tool_name) or not is_acknowledgement(text))


def _rows_of(seen: Observation) -> int:
    """Number of different things that the result lists, which no acknowledgement of a write does."""
    text = seen.step.result or ""
    if seen.listed:
        return len(set(hits_form(text, seen.values).split("\n")))
    lists = (value for value in object_in(text).values() if isinstance(value, list))
    names = [{name for name in one if isinstance(name, str) and not holds_token(name)} for one in lists]
    return max(map(len, names), default=0)  # beside the id of the request, and none of their own


def _brings_token(seen: Observation) -> bool:
    """Whether the result holds an id or a checksum that may be what was asked for: not the cursor behind a cursor, and
    not the id of a request that found nothing."""
    return seen.outcome != EMPTY and holds_token(seen.step.result or "") and not any(map(holds_token, seen.values))


def _shows_something(seen: Observation) -> bool:
    """Whether the call shows what is there, or that nothing is: one line of a tool without the name of a look-up may
    as well say that something was done."""
    text = (seen.step.result or "").strip()
    return seen.outcome == EMPTY or is_lookup(seen.step.tool_name) or ("\n" in text and text[0] not in "{[")


def _is_one_line(seen: Observation) -> bool:
    """Whether the result is short enough to say of one thing that there is nothing of it."""
    text = (seen.step.result or "").strip()
    return len(text) < _PAGE_CHARS and "\n" not in text


def _is_numbered(value: str) -> bool:
    """Whether a value is more than a number and no token: a date, an hour, a serial number."""
    return not value.isdigit() and any(map(str.isdigit, value)) and not holds_token(value)


def _is_dated(seen: Observation) -> bool:
    """Whether the call asks for a time: of many days and hours a few hold something."""
    return any(_DATED.search(value) is not None for value in seen.values)


_DATED: Final = re.compile(r"(?<!\d)(?:\d{4}-\d\d(?!\d)|\d\d:\d\d(?!\d)|1\d{9}(?!\d))")
"""A month, a day, an hour or a second."""


def _shows_page(seen: Observation) -> bool:
    """Whether a look-up at an address returned a page: at ever other addresses one page is a wall before them all."""
    text = (seen.step.result or "").strip()
    if seen.outcome != SUCCESS or text[:1] in ("{", "[") or not is_lookup(seen.step.tool_name):
        return False
    is_page = len(text) >= _PAGE_CHARS or text.count("\n") >= _PAGE_LINES
    return is_page and any("://" in value for value in seen.values)


_PAGE_CHARS: Final = 80
_PAGE_LINES: Final = 3
_NO_VALUE: Final = frozenset(("", "null", "none", "undefined"))
"""How languages write down that a function has returned nothing."""


def _is_answer(seen: Observation) -> bool:
    """Whether the step asked for something, as far as its tool and its result tell."""
    if is_communication(seen.step.tool_name) or seen.step.stated:
        return False
    text = (seen.step.result or "").strip()
    if seen.outcome == EMPTY:
        return text.lower() not in _NO_VALUE or (is_lookup(seen.step.tool_name) and not is_silent_command(seen))
    return not is_value(text) and (is_lookup(seen.step.tool_name) or not is_acknowledgement(text))
