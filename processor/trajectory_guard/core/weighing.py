"""The strongest evidence that a repeat can give at a step, and how many repeats that evidence asks for."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from trajectory_guard.core.content.durations import measures
from trajectory_guard.core.content.envelope import may_change
from trajectory_guard.core.content.masking import shares_done
from trajectory_guard.core.content.onward import has_more, invites_next, remains
from trajectory_guard.core.content.outcome import names_error
from trajectory_guard.core.content.pending import has_ended_badly, is_pending
from trajectory_guard.core.content.restatement import says_done, text_in_fields
from trajectory_guard.core.content.result_text import (
    MAX_FORM_CHARS,
    carries_content,
    is_acknowledgement,
    is_brief,
    is_remark,
    is_report,
    is_short,
    reports_status,
)
from trajectory_guard.core.content.transient import is_held_up, is_lasting
from trajectory_guard.core.failures import ERROR_CHARS, is_content, may_pass
from trajectory_guard.core.history import BLANK
from trajectory_guard.core.observation import LONG_PAUSE_S, Observation
from trajectory_guard.core.run import Run
from trajectory_guard.core.settings import ToolSettings
from trajectory_guard.core.similarity.keys import commands_in
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, PACE, PACE_OF_MOVES, SUCCESS, Certainty, weakest
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.text_bounds import is_digest
from trajectory_guard.core.tools import (
    asks_to_wait,
    is_finisher,
    is_handoff,
    is_lookup,
    is_status_lookup,
    is_waiting,
    makes_something,
    moves_cursor,
    points_at_view,
    returns_content,
    takes_next,
)
from trajectory_guard.core.tracking import scope

_PACE_BESIDE_OTHERS: Final = 2
_PACE_WITHOUT_PAUSE: Final = 5 / 3
_ASKING_WORDS: Final = 3  # a task in words, as another agent is given: its work takes long, and is no wait
_PACE_OF_DRAWS: Final = 3  # each value comes again by chance, and says nothing of the next one
_KEPT_WAITS: Final = 8
_WORK_OF_A_LAP: Final = 2
_PACE_OF_LAPS: Final = 5 / 3
_PACE_OF_DOUBT: Final = 2.0  # something may have moved on: failures in other words, a share that is not complete
_PASSED_BY_NOW: Final = 16
_CHANGED_BY_NOW: Final = 48
_DONE_BY_NOW: Final = 192
_KEPT_LAGS: Final = 6


def weigh(run: Run, seen: Observation, policy: ToolSettings | None, poll_patience: int) -> None:
    """Set the strongest evidence that this step can give, and the factor on the required number of repeats."""
    if seen.repeats > 1:
        run.pause_s = _pause_s(run.pause_s, seen)
    pause_s = run.pause_s if seen.in_a_row and seen.repeats > 1 else seen.gap_s
    paced = scope.is_paced(run, seen.gap_s) or (
        scope.may_be_paced(run, seen.gap_s) and len((seen.step.result or "").split()) == 1  # a state
    )
    seen.certainty = _certainty(seen, policy, pause_s, paced=paced)
    seen.pace = _pace(seen, pause_s)
    works = False
    has_index = seen.copy_of < 0  # a copy gets none: its index would be that of the next step
    if seen.certainty is Certainty.WAITING:
        if has_index:
            run.waits = (*run.waits[1 - _KEPT_WAITS :], run.index)
        if has_index and (paced or _says_that_it_waits(seen, policy)):
            run.last_stated_wait = run.index
    elif seen.repeats > 1 and _is_lap_with_wait(run, seen):
        works = _is_working_lap(run, seen)
        _weigh_lap(run, seen, works=works)
    if seen.moves_on or seen.has_effect:
        seen.certainty = weakest(seen.certainty, Certainty.ACKNOWLEDGED)
        laps = 1 if seen.outcome == ERROR else PACE_OF_MOVES
        seen.pace = max(seen.pace, PACE[Certainty.ACKNOWLEDGED] * laps)
    if seen.certainty is Certainty.WAITING:
        if has_index:
            run.last_waiting = run.index
        _give_time(seen, poll_patience, works=works)
    elif seen.others_progress:  # their progress may have changed the state that this call reads
        seen.certainty = weakest(seen.certainty, Certainty.LIKELY)
        seen.pace = max(seen.pace, _PACE_BESIDE_OTHERS)
    elif (
        seen.repeats > 1
        and not (seen.in_a_row or seen.twice)
        and BLANK in run.history.results.data  # the next question costs a call
        and run.history.results.hides(seen.repeated_at[-2] + 1)
    ):
        seen.certainty = weakest(seen.certainty, Certainty.ACKNOWLEDGED)  # what came back meanwhile may be new
        seen.unseen_work = seen.new_calls_since_repeat or run.history.calls.hides(seen.repeated_at[-2] + 1)
        seen.pace = max(seen.pace, PACE[Certainty.ACKNOWLEDGED])


# --- the factor on the number of repeats -------------------------------------------------------------------------


def _pace(seen: Observation, pause_s: float) -> float:
    """The factor for a step by itself, before the laps and waits that it is part of are known."""
    pace = seen.waiting_pace if seen.certainty is Certainty.WAITING else 1.0 * PACE[seen.certainty]
    in_between = not seen.in_a_row and (seen.new_calls_since_repeat or seen.recurrences > seen.repeats)
    acknowledged = seen.certainty is Certainty.ACKNOWLEDGED and not (seen.is_bare_acknowledgement or in_between)
    if acknowledged and not (seen.noisy and seen.outcome == SUCCESS and measures((seen.step.result or "").strip())):
        # detected as early as any repeat: only escalation is slow
        slow = seen.fails_otherwise or (pause_s >= scope.RETRY_PAUSE_S and _is_partly_done(seen))
        pace = _PACE_OF_DOUBT if slow else 1.0
        if not seen.in_a_row and _comes_in_no_order(seen) and is_acknowledgement((seen.step.result or "").strip()):
            pace = 1.0 * PACE[Certainty.ACKNOWLEDGED] * PACE_OF_MOVES  # moves of a game, strokes of a pen, keys
    elif seen.certainty is Certainty.ACKNOWLEDGED and seen.is_acknowledged_move:
        pace *= PACE_OF_MOVES
    elif seen.varies:
        pace *= _PACE_OF_DRAWS
    if seen.new_work_since_repeat and not seen.asks and not names_error(seen.step.result or ""):
        pace = max(pace, PACE[Certainty.ACKNOWLEDGED])  # a look around between pieces of work
    return pace


def _comes_in_no_order(seen: Observation) -> bool:
    """Whether a call was repeated after ever other numbers of steps. A lap has the same number of steps each time."""
    at = seen.repeated_at[-_KEPT_LAGS:]
    lags = {later - earlier for earlier, later in pairwise(at)}
    return len(lags) > 1


def _weigh_lap(run: Run, seen: Observation, *, works: bool) -> None:
    """A repeat closes a lap that a wait is part of: the whole lap waits, unless most of it is work."""
    if works and run.last_stated_wait <= seen.repeated_at[-2]:
        seen.certainty, seen.pace = weakest(seen.certainty, Certainty.ACKNOWLEDGED), _PACE_OF_LAPS
    else:
        seen.certainty, seen.pace = Certainty.WAITING, _PACE_OF_LAPS if works else seen.waiting_pace


def _give_time(seen: Observation, poll_patience: int, *, works: bool) -> None:
    """Fit the pace of a wait to the time that the agent leaves between its looks."""
    spent_s = seen.gap_s + seen.step.duration
    if seen.outcome == ERROR:
        if spent_s < scope.RETRY_PAUSE_S:
            seen.pace = min(seen.pace, _PACE_WITHOUT_PAUSE)  # the error may pass, but the agent gives it no time to
    elif not works:
        seen.pace *= min(poll_patience, max(1.0, spent_s * poll_patience / scope.PACED_S))


def _says_that_it_waits(seen: Observation, policy: ToolSettings | None) -> bool:
    """Whether more than the name of a tool, an age or a long duration shows that a step waits for something."""
    step, text = seen.step, (seen.step.result or "").strip()
    if seen.outcome == ERROR or seen.signature is not None or (policy is not None and policy.poll):
        return True
    return is_waiting(step.tool_name, step.args) or is_pending(text)


def _is_partly_done(seen: Observation) -> bool:
    """Whether the result states a share that is not complete, as a look at something slow does."""
    return any(done < whole for done, whole in shares_done(seen.step.result or ""))


def _is_under_way(seen: Observation, text: str) -> bool:
    """Whether a brief answer says of one thing how much of it is done, and that this is not all."""
    if seen.outcome != SUCCESS or not is_brief(text) or returns_content(seen.step.tool_name):
        return False
    member = _PROGRESS.search(text) if text[:1] == "{" else None
    if member is not None:
        return float(member[1]) < _WHOLE
    shares = shares_done(text) if not seen.noisy else []  # one that moves with each call counts them
    return len(shares) == 1 and shares[0][0] < shares[0][1]


_WHOLE: Final = 100
_PROGRESS: Final = re.compile(
    r'"(?:progress|percent(?:age)?|pct)(?:_?(?:complete|completed|done))?"\s{0,4}:\s{0,4}"?(\d{1,3}(?:\.\d{1,9})?)(?![\d.])',
    re.IGNORECASE,
)


_SETS_OFF: Final = "\n-=*_"
"""A blank line, or a rule."""


def _is_report(seen: Observation, text: str) -> bool:
    """Whether one line answers an action that may have had its effect, unlike that on a place of an unchanged view."""
    tool, args = seen.step.tool_name, seen.step.args
    if not is_report(text) or text[:1] in ("{", "[") or returns_content(tool) or is_digest(text):
        return False
    said, _, below = text.partition("\n")
    if below and not (below[0] in _SETS_OFF and is_acknowledgement(said) and not names_error(text)):
        return False  # more than a remark that is set off from it
    return moves_cursor(tool, args) or not (points_at_view(tool) or carries_content(args, seen.values))


def _may_say_done(seen: Observation, text: str, said: str) -> bool:
    """Whether an action's answer may only say that it was done. ``said``: the text in its fields."""
    if seen.in_a_row or seen.varies:
        return is_remark(said) or _is_report(seen, said)
    return not seen.step.args and says_done(text)  # in turns with others: pick, place, pick, place


def _is_lap_with_wait(run: Run, seen: Observation) -> bool:
    """Whether a look at something was made since the last equal step, or was that step, before another long pause."""
    before = seen.repeated_at[-2]
    return run.last_waiting > before or (run.last_waiting == before and seen.gap_s >= scope.PACED_S)


def _is_working_lap(run: Run, seen: Observation) -> bool:
    """Whether at least two of the steps since the last equal one are not looks, and the lap has no long pause."""
    before = seen.repeated_at[-2]
    steps, waits = seen.index - before, sum(at > before for at in run.waits)
    started = run.history.start_of(before)
    paced = started is None or seen.step.timestamp - started >= steps * scope.PACED_S
    return steps - waits >= _WORK_OF_A_LAP and not paced


def _pause_s(before_s: float, seen: Observation) -> float:
    """Idle seconds before the repeats of the current call, on average. A deliberate pause may jitter by a half."""
    if not seen.in_a_row or seen.repeats <= 2:
        return seen.gap_s
    mean_s = (before_s + seen.gap_s) / 2
    if before_s >= scope.RETRY_PAUSE_S <= 2 * seen.gap_s:
        return max(mean_s, scope.RETRY_PAUSE_S)
    return mean_s


# --- the strength of the evidence --------------------------------------------------------------------------------


def _certainty(seen: Observation, policy: ToolSettings | None, pause_s: float, *, paced: bool) -> Certainty:
    """How much a repeat proves, by what the call is and what came back. The first reason that applies decides."""
    step, text = seen.step, (seen.step.result or "").strip()
    if (policy is not None and policy.poll) or is_waiting(step.tool_name, step.args):
        return Certainty.WAITING
    if seen.outcome == SUCCESS and has_ended_badly(text):
        return Certainty.ACKNOWLEDGED  # however old it grows, and however long the pause before each look
    if seen.under_way:  # something grows older; a lap of several calls that succeed does more than wait for it
        waits = seen.in_a_row or paced or seen.outcome == ERROR
        return Certainty.WAITING if waits else Certainty.ACKNOWLEDGED
    if seen.counts_calls and seen.made < _DONE_BY_NOW:
        return Certainty.WAITING  # something may be done with each of them
    if seen.outcome == SUCCESS and seen.made < _DONE_BY_NOW:
        if is_finisher(step.tool_name) and invites_next(text):
            return Certainty.WAITING  # the same answer to another question
        works = takes_next(step.tool_name) or not (is_lookup(step.tool_name) or points_at_view(step.tool_name))
        if works and remains(text):
            return Certainty.WAITING  # the next batch
    if seen.outcome == DENIED:
        return Certainty.CERTAIN
    if seen.outcome == ERROR or seen.signature is not None:
        return _of_failure(seen, text, pause_s)
    without_pause = pause_s + step.duration < scope.RETRY_PAUSE_S
    if seen.varies and is_brief(text):  # a reading, a draw: each value came before, and nobody knows which is next
        return Certainty.ACKNOWLEDGED if without_pause and seen.made >= _DONE_BY_NOW else Certainty.WAITING
    if seen.unclear:
        return Certainty.ACKNOWLEDGED  # the agents have said something new
    if is_handoff(step.tool_name) and (seen.idle or not seen.in_a_row):
        return Certainty.LIKELY  # the agents' own results do not show
    if step.duration >= _LEAST_WAIT_S and _has_waited(seen, text):
        return Certainty.WAITING
    in_haste = without_pause and seen.repeats >= _CHANGED_BY_NOW
    looks_again = is_status_lookup(step.tool_name) or (seen.in_a_row and seen.asks and _is_under_way(seen, text))
    if not step.stated and looks_again and not in_haste:
        return Certainty.WAITING
    if seen.outcome == EMPTY and seen.in_a_row:
        awaited = _of_nothing_yet(seen, pause_s)
        if awaited is not None:
            return awaited
    if paced and step.result is None:
        return Certainty.WAITING  # a look at something that may have moved on
    if not text:
        belongs = seen.new_calls_since_repeat and not (
            seen.in_a_row or is_lookup(step.tool_name)
        )  # to each piece of work
        # a key, a step, an undo: silence acknowledges it; that of a command may say that it found nothing
        acts = not is_lookup(step.tool_name) and (seen.in_a_row or not commands_in(seen.tool, step.args))
        acknowledged = belongs or acts or moves_cursor(step.tool_name, step.args)
        return Certainty.ACKNOWLEDGED if acknowledged else Certainty.CERTAIN
    if seen.outcome == EMPTY or step.stated:
        return Certainty.CERTAIN
    stands = without_pause and seen.repeats >= _DONE_BY_NOW
    return _of_answer(seen, text, pause_s, paced=paced, stands=stands)


def _of_failure(seen: Observation, text: str, pause_s: float) -> Certainty:
    """A call that failed, or whose answer reads like an error."""
    if seen.killed:
        return Certainty.LIKELY  # the limit is the host's own: it does not pass, the next call has to be shorter
    if may_pass(seen) or (text[:1] == "{" and is_pending(text.replace("_", " "))):
        return Certainty.WAITING
    if seen.in_a_row:
        changes = seen.outcome == ERROR and text[:1] == "{" and may_change(text)
        if changes and pause_s >= scope.RETRY_PAUSE_S:
            return Certainty.WAITING
        if seen.noisy:
            return Certainty.ACKNOWLEDGED  # it failed in other words: it may go on from where it failed before
        if pause_s >= scope.RETRY_PAUSE_S:
            return Certainty.ACKNOWLEDGED  # a deliberate wait before each retry may have a reason
        seen.held_up = seen.repeats < _PASSED_BY_NOW and is_held_up(both_ends(text, ERROR_CHARS))
        if seen.held_up:
            return Certainty.ACKNOWLEDGED
        known = seen.repeats >= _PASSED_BY_NOW or is_lasting(both_ends(text, ERROR_CHARS), seen.step.error_class)
        if seen.outcome == ERROR and (not known or (changes and seen.repeats < _PASSED_BY_NOW)):
            return Certainty.ACKNOWLEDGED  # an error in unknown words may be one that passes
    return Certainty.LIKELY if seen.outcome == SUCCESS else Certainty.CERTAIN


_LEAST_WAIT_S: Final = 3.0
"""Running time in seconds from which on a call may have waited."""
_BLOCKING_S: Final = 20.0


def _took_its_time(args: object, duration: float, *, short: bool) -> bool:
    """Whether a call waited, whatever its name: as long as its arguments say, or very long for a short result.

    Parameters:
        duration: running time in seconds.
        short: the result is blank or a remark.

    >>> _took_its_time({"segundos": 60}, 60.2, short=True), _took_its_time({"n": 3}, 0.2, short=True)
    (True, False)
    """
    if not short or duration < _LEAST_WAIT_S:
        return False
    if duration >= _BLOCKING_S:
        return True
    values = args.values() if isinstance(args, dict) else (args,)
    asked = (value for value in values if isinstance(value, (int, float)) and 0 < value < 2 * _BLOCKING_S)
    return any(0.8 * value <= duration <= 1.25 * value + 1.0 for value in asked)


def _has_waited(seen: Observation, text: str) -> bool:
    """Whether a call that took long has waited, and not worked on a task in words."""
    if not _took_its_time(seen.step.args, seen.step.duration, short=not text or is_brief(text)):
        return False
    return sum(map(str.isalpha, " ".join(seen.values)[:ERROR_CHARS].split())) < _ASKING_WORDS


def _of_nothing_yet(seen: Observation, pause_s: float) -> Certainty | None:
    """A look that finds nothing again, where something may be to turn up: a message, a file, a value."""
    if asks_to_wait(seen.step.args):
        return Certainty.WAITING  # a long poll of a queue that is empty
    if seen.step.stated or pause_s < scope.RETRY_PAUSE_S:
        return None
    return Certainty.WAITING if pause_s >= LONG_PAUSE_S else Certainty.ACKNOWLEDGED


def _of_answer(seen: Observation, text: str, pause_s: float, *, paced: bool, stands: bool) -> Certainty:
    """A call that succeeded and returned something. ``stands``: what it says is under way has not moved for long."""
    step = seen.step
    made_more = seen.noisy and makes_something(step.tool_name, step.args)
    content = is_content(step.tool_name, text)
    says_state = not (content or stands or made_more or is_finisher(step.tool_name)) and step.model_scope is None
    if says_state and is_pending(text):
        return Certainty.WAITING
    if paced and (is_brief(text) or reports_status(text) or shares_done(text)):
        return Certainty.WAITING
    if seen.is_bare_acknowledgement:
        return Certainty.ACKNOWLEDGED
    if is_acknowledgement(text) and carries_content(step.args, seen.values) and not commands_in(seen.tool, step.args):
        return Certainty.LIKELY  # sending the same content again has no further effect
    short = is_short(text)
    if (short and not is_lookup(step.tool_name)) or reports_status(text):
        return Certainty.ACKNOWLEDGED  # a value or a remark of unknown meaning: it may be that of something under way
    if seen.in_a_row and pause_s >= scope.RETRY_PAUSE_S and is_brief(text):
        return Certainty.ACKNOWLEDGED  # a pause before each look may be a wait for a change
    if made_more or (seen.noisy and measures(text)):
        return Certainty.ACKNOWLEDGED  # it may be repeated on purpose: for a mean, or for several of a kind
    said = text if text[MAX_FORM_CHARS:] else text_in_fields(text)
    if said is not text and has_more(text):
        return Certainty.ACKNOWLEDGED  # the tool keeps the place: another page, or batch, may have the same words
    if not is_lookup(step.tool_name) and _may_say_done(seen, text, said):
        return Certainty.ACKNOWLEDGED  # in whatever words and figures, it may say no more than that something was done
    if takes_next(step.tool_name) and not is_lookup(step.tool_name):
        return Certainty.ACKNOWLEDGED  # the next entry of a queue may equal the one before
    return Certainty.LIKELY if seen.noisy or short else Certainty.CERTAIN
