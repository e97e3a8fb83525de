"""Type I: the same call again: with the same answer, across progress, or although it was refused.

Of type IV: known calls in changing order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from zlib import crc32

from trajectory_guard.core.content.durations import measures
from trajectory_guard.core.content.result_text import is_acknowledgement
from trajectory_guard.core.detectors.base import (
    ALWAYS,
    COPIED,
    REFUSED,
    REPEATED,
    TYPE_I,
    TYPE_IV,
    DetectionResult,
    Detector,
)
from trajectory_guard.core.detectors.insanity import is_silent_command, is_value
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.observation import MAX_DENIALS, Observation
from trajectory_guard.core.steps import EMPTY, ERROR, SUCCESS, Certainty
from trajectory_guard.core.tools import is_lookup, is_thinking

_CERTAIN_AT: Final = 3
_CERTAIN_AFTER_WORK: Final = 5
_PART_OF_WORK: Final = 8
REFUSAL: Final = "a refusal"
"""The answer to a call that was refused, in a text."""
NO_OTHER: Final = "the same result"
"""The answer to a call that a gate did not run, in a text: that of the call before."""


class Stutter(Detector):
    """Fires when a repeated call returns a result that it returned before, without progress in between.

    Does not fire while other calls bring progress in between, when the answer moves (polling, paging), or when the
    arguments or the result are unknown. The second occurrence is a hint (confidence 0.5, likely), the third is certain.
    Calls of another kind in between that had not been made before (an edit between two test runs) make it work at first
    and stutter only at the fifth equal answer; that is likely evidence, never certain. A look-up between pieces of new
    work, and a command that prints nothing, stutter at the eighth.
    Of equal calls in one model message the ninth and each further one count: eight may be those of workers.
    Where the step can only prove less (an acknowledged action, a wait), as many times the repeats are asked for.

    >>> from trajectory_guard.core.demonstration import fires
    >>> hours = "search(q=hours) -> Closed on Mondays. Open from Tuesday to Sunday, nine to five."
    >>> fires("same_call_same_result", [hours] * 5)
    step 1: 2 times, 0.50, likely, OBSERVE
    step 2: 3 times, 1.00, certain, NUDGE
    step 3: 4 times, 1.00, certain, NUDGE
    step 4: 5 times, 1.00, certain, STOP

    Reference: result-aware repeat counting, as peers were forced to adopt after release; thresholds chosen on
    recorded runs (``docs/detection.md``).
    """

    name: ClassVar[str] = "stutter"
    rules: ClassVar[tuple[str, ...]] = ("same_call_same_result",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = REPEATED | COPIED
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Work with the result you already have.",
        "If it is not what you need, change the arguments or use another tool.",
        "If there is no other way, answer with what you have, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = (
        "Check why the tool's answer does not satisfy the agent: prompt, tool description, or missing data."
    )
    thresholds: ClassVar[Mapping[str, int]] = {
        "certain_at": _CERTAIN_AT,
        "after_work": _CERTAIN_AFTER_WORK,
        "part_of_work": _PART_OF_WORK,
    }
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of repeats with what the evidence asks for."""
        if seen.repeats < 2:
            return None
        new_calls = seen.new_calls_since_repeat and not seen.others_progress
        after_work = _PART_OF_WORK if seen.belongs_to_work else _CERTAIN_AFTER_WORK
        base = after_work if new_calls else _CERTAIN_AT
        needed = base * (seen.pace_after_work if new_calls else seen.pace)
        confidence = 1.0 if seen.repeats >= needed else 0.5 if seen.repeats >= needed - 1 else 0.0
        return self.found(
            seen, confidence, "same_call_same_result",
            Certainty.ACKNOWLEDGED if new_calls else Certainty.LIKELY if confidence < 1.0 else Certainty.CERTAIN,
            count=seen.repeats, first_step=seen.first_repeat, steps=seen.repeated_at, at_least=seen.forgets,
            only_nudge=seen.unseen_work or (new_calls and _may_suffice(seen)) or _is_measured(seen),
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the call, how often it was made, and how often it returned this result."""
        return f"{call} was {_made(found, answer)}."


def _may_suffice(seen: Observation) -> bool:
    """Whether something new was done since, and the result that stays neither says that it failed nor shows a view.

    A check that passes after each piece of work returns the same each time: it is the work that moves on. After actions
    on a view, as clicks are, a page that stays as it was says that they had no effect, unless a new text was entered:
    records are entered one by one. An empty list may be what is wanted, unless something was asked for.
    """
    if seen.outcome == ERROR or seen.signature is not None or seen.fails_in_words:
        return False
    if seen.outcome == EMPTY and not is_silent_command(seen):
        return seen.acted_since_repeat and _asks_for_no_more_than_a_state(seen.step.args)
    worked = seen.new_work_since_repeat or seen.acted_since_repeat or seen.completes_entry
    return worked or not seen.describes_state


def _is_measured(seen: Observation) -> bool:
    """Whether a command printed a measurement, of which many may be wanted: for a mean, and for its error."""
    text = (seen.step.result or "").strip()
    return seen.noisy and seen.repeats < _SAMPLES and seen.outcome == SUCCESS and text[:1] != "{" and measures(text)


def _asks_for_no_more_than_a_state(args: Any) -> bool:
    """Whether a look-up takes whatever is in some state: alerts that are firing, at most 50 unread mails."""
    if not isinstance(args, dict):
        return not args
    return all(isinstance(value, (bool, int)) or _STATE.search(str(key)) is not None for key, value in args.items())


_SAMPLES: Final = 64
_STATE: Final = re.compile(r"(?:\A|_)(?:filter|severity|state|status)\Z", re.IGNORECASE)


def _made(found: DetectionResult, answer: str, among: str = "") -> str:
    """How often the call was made, and how often with this result: all calls count, those of the first visit too.

    The tally begins again after a pause and in a new trace. The repeats that the finding counts are calls all the same,
    but the results of those before are not in the tally. A call that was refused, or that a gate answered, may never
    have run.
    """
    calls, alike = max(found.calls, found.count), found.alike
    if found.calls < found.count:
        alike = 0
    least = "at least " if found.at_least else ""
    made = "requested" if answer == NO_OTHER else "called"
    times = f"{made} {least}{calls} times{among}"
    if alike >= calls and least:
        return f"{times}, and returned {answer} each of the last {calls} times"
    if alike >= calls and answer == REFUSAL:
        return f"proposed {calls} times{among} and refused each time"
    if alike >= calls:
        return f"{times} and returned {answer} each time"
    if alike > 1:
        return f"{times}, and {least}{alike} times it returned {answer}"
    last = "the last call returned nothing" if answer == "nothing" else f"the last result was {answer}"
    if found.count < calls:
        return f"{times}, and the last {found.count} results differ in details only; {last}"
    return f"{times} and brought nothing new; {last}"


_OFTEN: Final = 8
_OFTEN_EMPTY: Final = 6
_QUIET_STEPS: Final = 32
_KEPT: Final = 4


class Recurrence(Detector):
    """Type I across progress: a call keeps returning one result while other calls bring new ones.

    Only look-ups that name what they ask for count, and calls that fail or find nothing: a look at the inbox, the
    state of a repository, a login are part of each piece of work. Fires once at the eighth equal result within memory,
    at the sixth where nothing was found; one earlier it is a hint. It fires again after 32 further steps, then after
    ever more. The other calls are progress of their own, but they do not change what this call returns. Where
    something may be under way it waits as long as any other rule.

    >>> from trajectory_guard.core.demonstration import fires
    >>> pages = ("red lamps", "blue chairs", "old maps", "new tools", "wet paint", "dry goods")
    >>> fires("recurring_result", (
    ...     call for page in pages
    ...     for call in (f"open(page={len(page)}) -> All about {page}.", "find(q=refund) -> [empty] ")
    ... ))
    step 9: 5 times, 0.50, likely, OBSERVE
    step 11: 6 times, 1.00, likely, NUDGE

    Reference: counts of equal results in 229 healthy recorded runs (``docs/detection.md``).
    """

    name: ClassVar[str] = "recurrence"
    rules: ClassVar[tuple[str, ...]] = ("recurring_result",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = REPEATED
    advice: ClassVar[tuple[str, ...]] = Stutter.advice
    recommendation: ClassVar[str] = Stutter.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"often": _OFTEN, "often_empty": _OFTEN_EMPTY}
    __slots__ = ("found_before",)

    def __init__(self) -> None:
        self.found_before: tuple[tuple[str, int, int], ...] = ()  # call and result, quiet until which step, how long

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the number of equal results within memory with what the evidence asks for."""
        if seen.recurrences <= seen.repeats or not (seen.asks or seen.fails_in_words) or is_silent_command(seen):
            return None
        needed = (_OFTEN_EMPTY if seen.outcome == EMPTY else _OFTEN) * seen.pace
        if seen.recurrences < needed - 1:
            return None
        key = (seen.call + seen.result).hex()
        known = next((one for one in self.found_before if one[0] == key), None)
        if known is not None and seen.index < known[1]:
            return None
        full = seen.recurrences >= needed
        if full:
            quiet = 2 * known[2] if known is not None else _QUIET_STEPS
            others = tuple(one for one in self.found_before if one is not known)
            self.found_before = (*others[1 - _KEPT :], (key, seen.index + quiet, quiet))
        return self.found(
            seen, 1.0 if full else 0.5, "recurring_result", Certainty.LIKELY, count=seen.recurrences,
            first_step=seen.recurred_at[0], steps=seen.recurred_at, at_least=seen.forgets,
        )  # fmt: skip

    def dump(self) -> Any:
        """The results that were found already."""
        return self.found_before or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.found_before = tuple((key, until, quiet) for key, until, quiet in data)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """As for the same call in a row."""
        return f"{call} was {_made(found, answer, ' among other calls')}."


_REREAD: Final = 8
_RANGE: Final = re.compile(r"(?<![\w.:/])(?<!\w-)\d{1,9}(?:,\d{1,9}p?)?(?![\w.:/-])")
"""Figures that stand by themselves, as those of a range of lines do, and those of a name, a date or a size do not."""


class Reread(Detector):
    """Type I in pieces: lines that are known already are read again, in other ranges.

    Fires when eight calls of one tool in a row, equal but for their figures, returned nothing but lines that were there
    before, each in another order or selection: a file is read in windows that overlap, a table page by page although
    its pages are known. Neither thoughts in between count as work, nor other calls that return known lines only. It
    leads to nudges only: the text may be read again on purpose, before it is changed.

    >>> from trajectory_guard.core.demonstration import fires
    >>> lines = [f"total_{name} = price * amount" for name in "abcdef"]
    >>> ranges = ((0, 6), (0, 4), (1, 5), (2, 6), (0, 3), (1, 4), (3, 6), (0, 5), (1, 6), (2, 5))
    >>> fires("known_lines", (f"view(from={at}, to={to}) -> " + "\\n".join(lines[at:to]) for at, to in ranges))
    step 8: 8 times, 1.00, likely, NUDGE
    step 9: 9 times, 1.00, likely, NUDGE
    """

    name: ClassVar[str] = "reread"
    rules: ClassVar[tuple[str, ...]] = ("known_lines",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = ALWAYS
    may_stop: ClassVar[bool] = False
    advice: ClassVar[tuple[str, ...]] = (
        "You have read these lines already: write down what you know from them, and what is missing.",
        "Act on it, or look at something that you have not seen yet.",
        "If there is no other way, answer with what you have, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = (
        "Return files whole, or larger parts of them, and keep what was read in the context."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"calls": _REREAD}
    __slots__ = ("asked", "steps")

    def __init__(self) -> None:
        self.asked = 0  # checksum of the tool and of what was asked for, figures aside
        self.steps: tuple[int, ...] = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count the calls in a row that returned known lines only."""
        if seen.certainty is Certainty.WAITING:
            return None  # a look at something under way, whose lines come and go
        if not (seen.known_lines and seen.call) or seen.signature is not None:
            if not is_thinking(seen.step.tool_name):
                self.steps = ()
            return None
        asked = checksum(_RANGE.sub("#", "\0".join((seen.tool, *seen.values))))
        if asked != self.asked and len(self.steps) > 1:
            return None  # another look at known lines neither belongs to the series nor ends it
        kept = self.steps[-2 * _REREAD :] if asked == self.asked else ()
        self.asked, self.steps = asked, (*(kept[:-1] if seen.same_batch else kept), seen.index)
        if len(self.steps) < _REREAD or seen.same_batch:
            return None
        return self.found(
            seen, 1.0, "known_lines", Certainty.LIKELY, count=len(self.steps), first_step=self.steps[0],
            steps=self.steps, varied=True, calls=seen.index - self.steps[0] + 1, alike=0, at_least=True,
        )  # fmt: skip

    def dump(self) -> Any:
        """What was asked for, and the steps in a row."""
        return [self.asked, self.steps] if self.steps else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.asked, steps = data
        self.steps = tuple(steps)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of calls and the newest one."""
        calls = f"At least {found.count} calls in a row"
        return f"{calls} returned only lines that had been read before; {call} returned {answer}."


class DeniedAgain(Detector):
    """Fires when a call with equal arguments is refused a second time: the first refusal was an answer already.

    The second proposal is reason for a nudge at once, the fourth may end the run. A refusal in new words counts anew: a
    person may say that something else comes first, and to be asked again. From the eighth on all count, whatever they
    say, and as acknowledged. Does not fire for other arguments, and a new user turn clears what was refused before: a
    person may change their mind. Progress elsewhere does not.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("denied_again", ["delete(path=/data) -> [denied] not allowed"] * 4)
    step 1: 2 times, 1.00, certain, NUDGE
    step 2: 3 times, 1.00, certain, NUDGE
    step 3: 4 times, 1.00, certain, STOP
    """

    name: ClassVar[str] = "denied"
    rules: ClassVar[tuple[str, ...]] = ("denied_again",)
    loop_type: ClassVar[str] = TYPE_I
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = REFUSED
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Accept the decision: do not propose this call again unless you are asked to.",
        "Reach the goal in a way that does not need it, or ask what would be acceptable.",
        "If it cannot be done without it, say so.",
    )
    recommendation: ClassVar[str] = "Check whether the agent learns why its calls are refused."
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """The engine counts refusals, because they outlive a run."""
        if seen.denied_times < 2:
            return None
        at = seen.denied_at or (seen.index,)  # within one batch, all refusals before it may belong to other runs
        return self.found(
            seen, 1.0, "denied_again", Certainty.ACKNOWLEDGED if seen.denied_otherwise else Certainty.CERTAIN,
            count=seen.denied_times, first_step=at[0], steps=at, at_least=seen.denied_times >= MAX_DENIALS,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the call and the number of refusals."""
        times = f"at least {max(found.count, found.alike)}" if found.at_least else found.count
        return f"{call} was proposed {times} times and refused each time."


_KNOWN_WINDOW: Final = 24
_KNOWN: Final = 14
_DIFFERENT: Final = 4
_NEWEST: Final = 6
_KNOWN_OF_NEWEST: Final = 4
_MAX_PROGRESS: Final = 3


_Again = tuple[int, int, int, int]
"""A step that repeated an earlier one: its index, a checksum of the call, the steps since that call was made last, and
how often this number has changed from one such step to the next, since the run began."""


def _writes(seen: Observation) -> bool:
    """Whether a call hands over a text of some length, other than to a search."""
    texts = [value[:_MAX_TEXT_CHARS] for value in seen.values[:_MAX_TEXTS]]
    wide = sum([char >= "\u2e80" for text in texts for char in text])  # scripts without spaces: two signs a word
    if sum([len(text.split()) for text in texts]) + wide // 2 < _TEXT_WORDS:
        return False
    return not is_lookup(seen.step.tool_name)


_TEXT_WORDS: Final = 12
_MAX_TEXTS: Final = 16
_MAX_TEXT_CHARS: Final = 400


class KnownCalls(Detector):
    """Fires when at least fourteen of the last 24 steps repeated one of four or more earlier calls with its result.

    An agent repeats a few known calls in changing order, and makes a new one now and then. No call comes often enough
    in a row for type I, and no lap equals the one before. More than three steps that bring something new make it work:
    a shop whose products are opened one by one shows the same lists in between. A routine is none either: where steps
    come again in the order in which they came before (log in, open, do something new, log out), the distances to their
    earlier calls are equal, and at most a third of the distances may be. At least four of the newest six steps have to
    count: an agent that does new things by now has recovered. A call that writes a new text to a file or sends it to a
    person restarts the count, because an agent reads its notes again for each piece of work. Steps that wait, actions
    that are only acknowledged, and single values do not count. The finding is likely at most, since an agent may walk
    back through known places. A call that directly follows an equal one is left to type I, and of one batch only the
    first call counts.

    >>> from trajectory_guard.core.demonstration import fires
    >>> levers = "abcdef" + "fbxdcaebydacfzbdfaecvb"
    >>> fires("known_calls", (f"pull(lever={one}) -> Lever {one} clicks, and the door stays shut." for one in levers))
    step 23: 14 times, 1.00, likely, NUDGE
    step 24: 15 times, 1.00, likely, NUDGE
    step 25: 16 times, 1.00, likely, NUDGE
    step 27: 17 times, 1.00, likely, NUDGE

    Reference: walks of game agents and attackers among known places, found by reading (``docs/detection.md``).
    """

    name: ClassVar[str] = "known_calls"
    rules: ClassVar[tuple[str, ...]] = ("known_calls",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = 1.5
    asked_at: ClassVar[int] = ALWAYS
    advice: ClassVar[tuple[str, ...]] = (
        "You know what these calls return: write down what you know, and what is missing.",
        "Do something that you have not done yet, or leave this part of the task.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has tried, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"known": _KNOWN, "window": _KNOWN_WINDOW, "different": _DIFFERENT}
    __slots__ = ("again", "progressed")

    def __init__(self) -> None:
        self.again: tuple[_Again, ...] = ()
        self.progressed: tuple[int, ...] = ()  # steps that brought something new, the newest four

    def update(self, seen: Observation) -> DetectionResult | None:
        """Add the step to those of the window, and count them."""
        if seen.recurrences < 2:
            if self.again and _writes(seen):
                self.again = self.progressed = ()
            elif self.again and seen.progress:
                self.progressed = (*self.progressed[-_MAX_PROGRESS:], seen.index)
            return None
        if seen.in_a_row or seen.same_batch or seen.certainty is Certainty.WAITING:
            return None
        if seen.outcome == SUCCESS:
            text = (seen.step.result or "").strip()
            if is_acknowledgement(text) or is_value(text):
                return None
        again, lag = self.again, seen.index - seen.recurred_at[-2]
        changes = again[-1][3] + (again[-1][2] != lag) if again else 0
        again = (*again, (seen.index, crc32(seen.call), lag, changes))
        while again[0][0] <= seen.index - _KNOWN_WINDOW:
            again = again[1:]
        self.again = again
        count = len(again)
        if count < _KNOWN or again[-_KNOWN_OF_NEWEST][0] <= seen.index - _NEWEST:
            return None
        is_routine = 3 * (changes - again[0][3]) < 2 * (count - 1)
        if is_routine or len({one[1] for one in again}) < _DIFFERENT:
            return None
        if len([at for at in self.progressed if at >= again[0][0]]) > _MAX_PROGRESS:
            return None
        steps = tuple([one[0] for one in again])
        return self.found(
            seen, 1.0, "known_calls", Certainty.LIKELY, count=count, first_step=steps[0], steps=steps,
            calls=_KNOWN_WINDOW, varied=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of steps, the newest call and its result."""
        return (
            f"{found.count} of the last {found.calls} calls had been made before, and returned what they returned "
            f"then; the newest, {call}, returned {answer}."
        )

    def dump(self) -> Any:
        """The steps of the window that count, and those that brought something new."""
        return (self.again, self.progressed) if self.again else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        again, progressed = data
        self.again = tuple([(at, call, lag, changes) for at, call, lag, changes in again])
        self.progressed = tuple(progressed)
