"""Type III: different calls that leave the described state unchanged, or lead only to states that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from trajectory_guard.core.content.result_text import is_remark, is_report
from trajectory_guard.core.detectors.base import SERIES, TYPE_II, TYPE_III, DetectionResult, Detector
from trajectory_guard.core.detectors.same_answer import MADE_NOW_AND_THEN
from trajectory_guard.core.inquiry import ADVANCES, FAR, names_thing, reads_tables
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty
from trajectory_guard.core.text import clip_middle
from trajectory_guard.core.tools import (
    acts_on_view,
    changes_database,
    is_communication,
    is_lookup,
    is_path,
    is_status_lookup,
    points_at_view,
)
from trajectory_guard.core.written import is_about_its_own, names_its_host

_KNOWN_STEPS: Final = 10
_KNOWN_FOR_SURE: Final = 14
_CALLS: Final = 3
_CERTAIN_AT: Final = 5
_CERTAIN_AT_TOOLS: Final = 3
_REPORT_CHARS: Final = 400
_REPORT_LINES: Final = 3
_EDITS: Final = 400  # a catalogue of texts is translated entry by entry
_OBJECT_CHARS: Final = 160
_RECORD_CHARS: Final = 120  # several lines are a listing or a page, which should differ


class Phantom(Detector):
    """Fires when three or more different calls in a row come back with one and the same described state.

    The state the answers describe is frozen although the actions differ. Confidence grows with the run and is full at
    the fifth call, or at the third where different tools describe one state. Bare acknowledgements, short values and
    empty answers describe no state: writes that all say "ok" and look-ups that all find nothing are a batch. Messages
    and notes (``send_message``, ``think``) expect no answer and never count. Calls that were hardly made before, and
    neither look nor point at a place of a view, lead to nudges only; of keys and moves those that a short report
    answers. A state that the application supplies (``trajectory_guard.state``) always counts.

    >>> from trajectory_guard.core.demonstration import fires
    >>> page = "Cart: 1 item. Please choose a size to continue."
    >>> fires("same_state", (f"{tool}(at=size) -> {page}" for tool in ("click", "scroll", "type")))
    step 2: 3 times, 1.00, likely, NUDGE

    Reference: phantom progress of the original TrajectoryGuard plan; hardening in ``docs/detection.md``.
    """

    name: ClassVar[str] = "phantom"
    rules: ClassVar[tuple[str, ...]] = ("same_state",)
    loop_type: ClassVar[str] = TYPE_III
    weight: ClassVar[float] = 0.5
    asked_at: ClassVar[int] = SERIES
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Check whether your actions take effect at all before trying further ones.",
        "Go back to the last step that changed something, and take another route.",
        "If the state cannot be changed with these tools, say so.",
    )
    recommendation: ClassVar[str] = (
        "Check whether the tools report failure: actions had no effect but looked successful."
    )
    thresholds: ClassVar[Mapping[str, int]] = {
        "calls": _CALLS,
        "full_at": _CERTAIN_AT,
        "full_at_tools": _CERTAIN_AT_TOOLS,
    }
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Look at the current run of equal answers."""
        run = seen.same_results
        if not _shows_one_state(seen, _CALLS):
            return None
        full_at = _CERTAIN_AT_TOOLS if len(run.tools) > 1 else _CERTAIN_AT
        return self.found(
            seen, min(1.0, run.distinct / full_at), "same_state", Certainty.LIKELY, count=run.distinct,
            first_step=run.first, names=run.tools, varied=True, calls=min(run.different, seen.memory),
            at_least=run.different > seen.memory, only_nudge=_may_be_work(seen),
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of calls and the state that all of them returned."""
        tools, calls = ", ".join(map(clip_middle, found.names)), found.calls or found.count
        number = f"At least {calls}" if found.at_least else str(calls)
        return f"{number} different calls in a row ({tools}) all returned {answer}: nothing changes."


def _shows_one_state(seen: Observation, calls: int) -> bool:
    """Whether at least so many different calls in a row came back with one description of a state."""
    if seen.same_results.distinct < calls or not seen.describes_state or _is_batch(seen):
        return False
    return not seen.entered_since_repeat  # an empty form again, once a record was entered


def _may_be_work(seen: Observation) -> bool:
    """Whether the call may have done another thing than those before: it is new, no look, and no action on a view,
    unless a key or a move is answered by a short report.
    """
    tool = seen.step.tool_name
    if seen.made > MADE_NOW_AND_THEN or seen.same_results.different >= _EDITS:
        return False
    shows = points_at_view(tool) or (acts_on_view(tool) and not is_report(seen.step.result or ""))
    return not (seen.step.stated or shows or is_lookup(tool))


def _is_batch(seen: Observation) -> bool:
    """Whether equal results are no wonder: messages, and short records from one look-up tool about many things.

    Never so for a state that the application supplies.
    """
    tool, text = seen.step.tool_name, seen.step.result or ""
    if seen.step.stated:
        return False
    if is_communication(tool):
        return True
    if seen.made < 2 and (changes_database(seen.step.args, text) or is_about_its_own(text, seen.values)):
        return True
    if seen.made < 2 and not acts_on_view(tool) and names_its_host(text, seen.values):
        return True
    if seen.alike_list and seen.made < 2 and reads_tables(seen.values):
        return True  # what was counted in each of many tables
    if seen.writes and seen.alike_items:
        return seen.same_results.different < _EDITS  # edits of one file, and not one look at it
    if len(seen.same_results.tools) > 1:
        return _checks_an_item(seen, text) or _only_remarks(seen, text)
    if len(text) > _REPORT_CHARS or text.strip().count("\n") > _REPORT_LINES:
        if is_lookup(tool):
            return seen.alike_list and not acts_on_view(tool) and _reads_what_it_names(seen)
        return seen.made < 2 and seen.alike_items and seen.same_results.different < FAR  # a form, field by field
    if len(text) > _RECORD_CHARS or "\n" in text:
        many = seen.alike_list or seen.alike_items
        paged = is_lookup(tool) and seen.advances >= ADVANCES  # one page again, whatever its number
        return many and not paged and not acts_on_view(tool)  # what was done to each of many
    if is_lookup(tool) or is_status_lookup(tool):
        return True
    counted = seen.advances >= ADVANCES and seen.alike < FAR  # row by row
    return seen.alike_items or (not acts_on_view(tool) and (counted or seen.alike_list))


def _checks_an_item(seen: Observation, text: str) -> bool:
    """Whether a call is made for the first time, names a file or the id of a thing, and gets one line as its result.

    Several checkers say the same of file after file. A page that buttons do not move is no such line.
    """
    if seen.made > 1 or "\n" in text or len(text) > _REPORT_CHARS or seen.same_results.different >= _EDITS:
        return False
    return not acts_on_view(seen.step.tool_name) and (any(map(is_path, seen.values)) or names_thing(seen))


def _only_remarks(seen: Observation, text: str) -> bool:
    """Whether a call that was not made before is answered with a sentence without figures, as any other is.

    Several tools of one service say so of all that they did. A page that buttons do not move is shown by its fields.
    """
    if seen.made > 1 or not seen.values or seen.same_results.different >= _EDITS:
        return False
    if acts_on_view(seen.step.tool_name):
        return is_remark(text)
    return is_remark(" ".join(text.split())) or (text[:1] == "{" and len(text) <= _OBJECT_CHARS)


def _reads_what_it_names(seen: Observation) -> bool:
    """Whether each call reads one thing by its name: copies of a file may lie in many folders. Neither pages, whose
    numbers go on, nor searches, whose words say the same in other ways, are names."""
    if seen.advances >= ADVANCES or seen.listed or any(" " in value for value in seen.values):
        return False
    return any(value and not any(map(str.isdigit, value)) for value in seen.values)


class SameEffect(Detector):
    """Type II by effect: calls that all lead to one and the same described state do the same, which is nothing.

    Fires at the third different call where at least two tools took part, at the fourth where one tool did, and only if
    the answer describes a state (a page, a listing, a board), not an acknowledgement or a value.

    >>> from trajectory_guard.core.demonstration import fires
    >>> page = "Cart: 1 item. Please choose a size to continue."
    >>> fires("same_effect", (f"click(on={button}) -> {page}" for button in ("buy", "pay", "next", "ok")))
    step 3: 4 times, 0.50, likely, OBSERVE
    """

    name: ClassVar[str] = "same_effect"
    rules: ClassVar[tuple[str, ...]] = ("same_effect",)
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = 1.5
    asked_at: ClassVar[int] = SERIES
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = Phantom.advice
    recommendation: ClassVar[str] = Phantom.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"calls": _CALLS + 1, "calls_of_tools": _CALLS}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Look at the current run of equal answers."""
        run = seen.same_results
        several = len(run.tools) > 1
        if not _shows_one_state(seen, _CALLS if several else _CALLS + 1):
            return None
        return self.found(
            seen, 1.0 if several else 0.5, "same_effect", Certainty.LIKELY, count=run.distinct, first_step=run.first,
            names=run.tools, varied=True, calls=min(run.different, seen.memory),
            at_least=run.different > seen.memory,
            only_nudge=_may_be_work(seen) or (seen.made < 2 and seen.old_states_in_a_row > run.distinct),
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """As for type III."""
        return Phantom.explain(found, call, answer)


class Wandering(Detector):
    """Type III without a period: step after step, nothing is seen that was not there before.

    No call is repeated often and no order repeats, as in a walk through rooms that are known: one call leads to ever
    different states, and all of them are old. Fires at the tenth such step in a row, with full confidence from the
    fourteenth on, and is likely at most: a way back through known places is no loop. A state that is new ends the
    series, and so does a call that was not made before. Short values and acknowledgements do not count.

    >>> from trajectory_guard.core.demonstration import fires
    >>> walk = "abcdefgh" + "hfdbgacehdbfgaec"
    >>> room = "You are in room {}: two doors, a table, and a lamp."
    >>> steps = [f"go(way={way}) -> {room.format(at)}" for way, at in zip(walk[1:], walk, strict=False)]
    >>> fires("nothing_new", steps)
    step 17: 10 times, 0.50, likely, OBSERVE
    step 18: 11 times, 0.50, likely, OBSERVE
    step 19: 12 times, 0.50, likely, OBSERVE
    step 20: 13 times, 0.50, likely, OBSERVE
    step 21: 14 times, 1.00, likely, OBSERVE
    step 22: 15 times, 1.00, likely, NUDGE

    Reference: walks of game agents through known places, found by reading (``docs/detection.md``).
    """

    name: ClassVar[str] = "wandering"
    rules: ClassVar[tuple[str, ...]] = ("nothing_new",)
    loop_type: ClassVar[str] = TYPE_III
    weight: ClassVar[float] = 0.5
    asked_at: ClassVar[int] = SERIES
    shared: ClassVar[bool] = True
    advice: ClassVar[tuple[str, ...]] = (
        "Everything you look at is known to you already: write down what you know, and what is missing.",
        "Do something that you have not done yet, or leave this part of the task.",
        "If nothing is left to try, answer with what you have, or ask.",
    )
    recommendation: ClassVar[str] = "Give the agent a memory of what it has seen, or a list of what is left to try."
    thresholds: ClassVar[Mapping[str, int]] = {"known_steps": _KNOWN_STEPS, "known_for_sure": _KNOWN_FOR_SURE}
    __slots__ = ()

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare the length of the series with what the evidence asks for."""
        if seen.old_states_in_a_row < _KNOWN_STEPS or not seen.describes_state or _is_batch(seen):
            return None
        first = max(0, seen.index - seen.old_states_in_a_row + 1)
        return self.found(
            seen, 1.0 if seen.old_states_in_a_row >= _KNOWN_FOR_SURE else 0.5, "nothing_new", Certainty.LIKELY,
            count=seen.old_states_in_a_row, first_step=first, varied=True, only_nudge=seen.made < 2,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of steps and the newest result."""
        return f"The last {found.count} calls led only to what had been seen before; {call} returned {answer}."
