"""The score of a run, and the ladder: from findings and score to a nudge, a second nudge, a stop, or a recovery.

It decides which intervention follows and how fast: the stronger the evidence, the shorter the ladder. Its functions are
pure functions of their arguments.

- *certain*: a nudge at the nudge threshold; a stop after ``stop_patience`` unproductive steps, at the stop threshold.
- *likely*: a nudge at the threshold, a second one after as many unproductive steps as led to the first, at least
  ``renudge``; a stop after as many again.
- *acknowledged*: as likely, at a third of the pace.
- *waiting*: a nudge at the threshold, and again when the count has doubled; never a stop, unless ``max_polls`` or
  ``max_wait_s`` is set.
- *nudges in vain*: when a further nudge is due, and ``max_nudges`` were given in the newest ``VAIN_WITHIN`` steps, the
  first of them ``VAIN_FOR`` steps ago or more, the run is stopped instead, whatever the rules. Waits do not count. If
  the finding leads to nudges only, because what was asked for may be something else, both numbers are doubled. Without
  progress between them as many nudges are enough however far apart, and then one more.

A step of progress resets the ladder, and not the count of nudges in vain: what an agent tries between them is progress.
Only a nudge about a call in a row, which then returns something new itself, is none of them: its wait is over.
Where a loop goes on around such pieces of work, the next nudge is due after four times ``renudge`` further findings.
Steps of one batch count once. Across an uncertain boundary (``begin_segment``), such as more successful calls than a
lap may have whose results are unknown, nudges keep their distance, but a stop needs its nudges, and the steps after
them, on this side of the boundary.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from trajectory_guard.core.detectors.base import DetectionResult
from trajectory_guard.core.plain import Plain
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import PACE, Certainty, strongest


class RunScore(Plain):
    """Score of one run, in [0, max_score].

    Attributes:
        value: the score after the last step.
        base: the score before the current batch.
        batch: ordinal of the current batch.
        hits: highest confidence by loop type within the current batch.
    """

    __slots__ = ("base", "batch", "hits", "value")

    def __init__(self) -> None:
        self.value = self.base = 0.0
        self.batch = 0
        self.hits: Mapping[str, float] = {}

    def decay(self, factor: float) -> None:
        """Multiply the score by ``factor``."""
        self.value *= factor
        self.base *= factor

    def clear(self) -> None:
        """Reset the score to 0; the ordinal of the batch stays."""
        self.value = self.base = 0.0
        self.hits = {}


class Scorer:
    """Applies weights, decay and cap.

    score = min(max_score, score + sum(weight * confidence)) with a finding, else score * decay. The calls of
    one batch count as one step of time: their findings are united and the decay is applied once.
    """

    __slots__ = ("decay", "max_score", "weights")

    def __init__(self, *, weights: Mapping[str, float], max_score: float, decay: float) -> None:
        self.weights = dict(weights)
        self.max_score = max_score
        self.decay = decay

    def apply(self, score: RunScore, found: Sequence[DetectionResult], *, new_batch: bool) -> None:
        """Update ``score`` with the findings of one step."""
        if new_batch:
            score.base, score.hits = score.value, {}
            score.batch += 1
        if found:
            hits = dict(score.hits)
            for result in found:
                hits[result.loop_type] = max(result.confidence, hits.get(result.loop_type, 0.0))
            score.hits = hits
        if score.hits:
            gain = sum([self.weights[kind] * confidence for kind, confidence in score.hits.items()])
            score.value = min(self.max_score, score.base + gain)
        else:
            score.value = score.base * self.decay


VAIN_FOR: Final = 64
VAIN_WITHIN: Final = 192
"""Both are steps. Recorded healthy runs had at most six nudges, within 50 steps; endless loops, over hundreds."""
_KEPT_GIVEN: Final = 30
_IN_PIECES: Final = 4
"""A loop that goes on around pieces of work never builds up again: so many times ``renudge`` findings are enough."""
QUIET_STEPS: Final = 2
LONGEST_LAP: Final = 6
"""Steps of the longest lap that decides where a loop ends: one step more without a finding lies outside of it."""


class Level(str, Enum):
    """The intervention level of a run after a step."""

    OBSERVE = "OBSERVE"
    NUDGE = "NUDGE"
    STOP = "STOP"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """The order of levels: 0 for OBSERVE, 2 for STOP."""
        return _RANK[self]


_RANK: Final = {level: rank for rank, level in enumerate(Level)}


class Ladder(Plain):
    """The position of one run on the escalation ladder. Bounded, plain data.

    Attributes:
        episode: ordinal of the loop episode, from 1; 0 before the first. Unique in the trajectory.
        active: a finding has opened the episode, and the run has not left it yet.
        first_step: index of the first step of the loop, -1 outside an episode.
        unproductive_steps: batches with a finding since the episode began or progress was made.
        steps_to_first_nudge: ``unproductive_steps`` when the first nudge became due.
        nudges: nudges due since the episode began or progress was made.
        side_nudges: those of them for rules that lead to nudges only; a stop counts the others.
        steps_since_nudge: unproductive steps since the last nudge.
        found_since_nudge: batches with a finding since then, in this episode, whatever progress was made in between.
        segment_nudges, segment_steps_since_nudge: the same on this side of the last uncertain boundary.
        repeats_at_nudge: repeats at the last nudge, of the finding it was about.
        nudged: a nudge became due in this episode, regardless of progress made since.
        nudge_delivered: a gate has delivered a nudge since progress was made.
        nudge_undelivered: a nudge is due and the gate has not delivered it yet: nothing escalates until it has.
        stopped: a stop became due and no progress was made since.
        quiet_steps: batches without a finding in a row; progressed: one of them brought progress.
        waited_from: start in seconds of the first step of the current wait, 0 if there is none.
        recovered_from, recovered_at: index of the first step of the loop that the run recovered from last, and its
            repeats at the nudge; -1 and 0 before the first.
        given_at: indices of the steps at which nudges became due, in whatever episode: the first and the newest of
            those within twice ``VAIN_WITHIN`` steps, those of waits aside.
    """

    __slots__ = (
        "active", "episode", "first_step", "found_since_nudge", "given_at", "nudge_delivered", "nudge_undelivered",
        "nudged", "nudges", "progressed", "quiet_steps", "recovered_at", "recovered_from", "repeats_at_nudge",
        "segment_nudges", "segment_steps_since_nudge", "side_nudges", "steps_since_nudge", "steps_to_first_nudge",
        "stopped", "unproductive_steps", "waited_from",
    )  # fmt: skip

    def __init__(self) -> None:
        self.episode = 0
        self.active = False
        self.first_step = -1
        self.unproductive_steps = self.steps_to_first_nudge = self.nudges = self.repeats_at_nudge = 0
        self.steps_since_nudge = self.found_since_nudge = self.side_nudges = 0
        self.segment_nudges = self.segment_steps_since_nudge = 0
        self.nudged = self.nudge_delivered = self.nudge_undelivered = self.stopped = self.progressed = False
        self.quiet_steps = 0
        self.waited_from = 0.0
        self.recovered_from = -1
        self.recovered_at = 0
        self.given_at: tuple[int, ...] = ()


class Decision(NamedTuple):
    """The intervention that is due after a step.

    Fields:
        level: the level of the run; it stays while the loop goes on.
        nudge: which nudge of the ladder became due at this step, from 1; 0 if none.
        stop_due: a stop became due at this step.
        recovered: this step ended an episode in which a nudge had been due.
        opened: this step began an episode; the caller numbers it.
        ladder_values: where the ladder stood when the nudge or the stop became due, for its certificate; else None.
    """

    level: Level = Level.OBSERVE
    nudge: int = 0
    stop_due: bool = False
    recovered: bool = False
    opened: bool = False
    ladder_values: Mapping[str, Any] | None = None


_NOTHING_DUE: Final = Decision()


def decisive(found: Sequence[DetectionResult], only_nudged: Container[str]) -> tuple[Sequence[DetectionResult], bool]:
    """The findings of a step that the ladder counts, and whether the nudges for them count towards a stop.

    A rule among ``only_nudged`` neither hastens nor hinders the stop that another one asks for.
    """
    kept = [one for one in found if one.rule not in only_nudged]
    return (kept, True) if kept else (found, False)


def decide(
    ladder: Ladder, found: Sequence[DetectionResult], score: float, settings: EngineSettings, *,
    new_batch: bool, progress: bool, now: float = 0.0, at: int = 0, may_stop: bool = True, may_be_new: bool = False,
    towards_stop: bool = True, insists: bool = True,
) -> Decision:  # fmt: skip
    """Advance ``ladder`` by one step and return the intervention that is due.

    Parameters:
        found: findings of the step, strongest first.
        score: loop score after the step.
        new_batch: the step does not overlap the one before it.
        progress: the step made progress.
        now: start of the step in seconds; at: its index in the run.
        may_stop: False for a tool with the setting ``never_stop``, and for a run that its gate, or without a gate the
            process, may not stop.
        may_be_new: the step succeeded, and nothing shows what it returned.
        towards_stop: False for findings of rules that lead to nudges only: no stop comes sooner by their nudges.
        insists: whether nudges for these findings count among those in vain.
    """
    if not found:
        if not ladder.active:
            if progress and ladder.segment_nudges:
                _reset_rungs(ladder)  # from here on the loop that the run recovered from is another one
            return _NOTHING_DUE
        return _without_finding(ladder, new_batch=new_batch, progress=progress, may_be_new=may_be_new)
    certainty = _certainty(found)
    opened = _open_episode(ladder, found)
    ladder.quiet_steps, ladder.progressed = 0, False
    if new_batch or opened:
        ladder.unproductive_steps += 1
        ladder.found_since_nudge += 1
        if not ladder.nudge_undelivered:
            ladder.steps_since_nudge += 1
            ladder.segment_steps_since_nudge += towards_stop
    if certainty is not Certainty.WAITING:
        ladder.waited_from = 0.0
    elif ladder.waited_from == 0.0:
        ladder.waited_from = now
    count = max([one.count for one in found])
    if score < settings.nudge_threshold:
        level = Level.STOP if ladder.stopped else Level.OBSERVE
        return Decision(level, opened=opened)
    in_vain = may_stop and insists and certainty is not Certainty.WAITING
    patience = 2 if found[0].only_nudge else 1  # what was asked for may be something else each time
    may_stop = may_stop and towards_stop and not found[0].only_nudge and score >= settings.stop_threshold
    if may_stop and not ladder.stopped and not ladder.nudge_undelivered:
        ladder.stopped = _stop_due(ladder, certainty, count, now, settings)
        if ladder.stopped:
            ladder_values = _ladder_values(ladder, certainty, count, now)
            return Decision(Level.STOP, stop_due=True, opened=opened, ladder_values=ladder_values)
    if ladder.stopped:
        return Decision(Level.STOP, opened=opened)
    near_stop = may_stop and certainty is Certainty.CERTAIN and ladder.segment_nudges > 0
    if (
        near_stop
        or _is_known_habit(ladder, found, count)
        or not _nudge_due(ladder, certainty, count, settings, towards_stop=towards_stop)
    ):
        return Decision(Level.NUDGE, opened=opened)
    ladder_values = {**_ladder_values(ladder, certainty, count, now), "towards_stop": towards_stop}
    if in_vain:
        given = [one for one in ladder.given_at if one > at - patience * VAIN_WITHIN]
        counted = len(given) // patience
        # without progress between them they lie ever further apart, and never as many within that many steps
        in_a_row = min(ladder.nudges, len(ladder.given_at)) + 1 - patience
        if counted < in_a_row:
            counted, given = in_a_row, list(ladder.given_at)
        if _is_vain(counted, at - given[0] if given else 0, settings):
            ladder.stopped = True
            ladder_values |= {"given": len(given), "given_for": at - given[0]}
            return Decision(Level.STOP, stop_due=True, opened=opened, ladder_values=ladder_values)
        ladder.given_at = (*given[:1], *given[1:][-_KEPT_GIVEN:], at)
    nudge = _note_nudge(ladder, count, towards_stop=towards_stop)
    return Decision(Level.NUDGE, nudge, opened=opened, ladder_values=ladder_values)


_LADDER_VALUES: Final = {
    "count": "repeats_at_nudge", "fired": "unproductive_steps", "lead": "steps_to_first_nudge", "nudged": "nudged",
    "nudges": "nudges", "segment_nudges": "segment_nudges", "segment_since": "segment_steps_since_nudge",
    "found": "found_since_nudge", "side": "side_nudges", "since": "steps_since_nudge",
}  # fmt: skip
"""Name of a value in a certificate, and of the attribute of the ladder. Issued certificates keep their names."""
_ADDED_LATER: Final = frozenset(("found", "side"))
"""Names of values that older certificates do not hold."""


def _ladder_values(ladder: Ladder, certainty: Certainty, count: int, now: float) -> dict[str, Any]:
    """The values that decide whether an intervention is due, as plain data."""
    waited_s = now - ladder.waited_from if certainty is Certainty.WAITING else 0.0
    known = {name: getattr(ladder, attribute) for name, attribute in _LADDER_VALUES.items()}
    return {**known, "certainty": str(certainty), "repeats": count, "waited_s": waited_s}


def is_justified(level: Level, values: Mapping[str, Any], settings: EngineSettings) -> bool:
    """Whether a nudge or a stop was due, recomputed from where the ladder stood (``Decision.ladder_values``).

    Raises:
        KeyError, TypeError, ValueError: a value is missing or has another type.
    """
    ladder = Ladder()
    for name, attribute in _LADDER_VALUES.items():
        kind = type(getattr(ladder, attribute))  # a number, or whether there was a nudge
        setattr(ladder, attribute, kind(int(values.get(name, 0) if name in _ADDED_LATER else values[name])))
    certainty, count, waited_s = Certainty(values["certainty"]), int(values["repeats"]), float(values["waited_s"])
    if level is Level.STOP and "given" not in values:
        return _stop_due(ladder, certainty, count, waited_s, settings)
    if level is Level.STOP and not _is_vain(int(values["given"]), int(values["given_for"]), settings):
        return False
    towards_stop = bool(values.get("towards_stop", True))
    return level is not Level.OBSERVE and _nudge_due(ladder, certainty, count, settings, towards_stop=towards_stop)


def _certainty(found: Sequence[DetectionResult]) -> Certainty:
    """The strongest evidence of the step; detectors have already weakened theirs for a waiting step."""
    certainty = found[0].certainty
    for one in found[1:]:
        certainty = strongest(certainty, one.certainty)
    return certainty


def _open_episode(ladder: Ladder, found: Sequence[DetectionResult]) -> bool:
    opened = not ladder.active
    if opened:
        ladder.active, ladder.stopped = True, False
        ladder.unproductive_steps = ladder.found_since_nudge = 0
        ladder.first_step = min(one.first_step for one in found)
        ladder.nudged = ladder.segment_nudges > 0 and ladder.first_step == ladder.recovered_from
        if not ladder.nudged:  # else the answer was none: somebody has sent the agent back to the same loop
            ladder.steps_to_first_nudge = 0
            _reset_rungs(ladder)
    return opened


def _reset_rungs(ladder: Ladder) -> None:
    """Reset the ladder to its first rung."""
    ladder.nudges = ladder.side_nudges = ladder.steps_since_nudge = ladder.repeats_at_nudge = 0
    ladder.segment_nudges = ladder.segment_steps_since_nudge = 0
    ladder.stopped = ladder.nudge_undelivered = ladder.nudge_delivered = False
    ladder.waited_from = 0.0


def _without_finding(ladder: Ladder, *, new_batch: bool, progress: bool, may_be_new: bool) -> Decision:
    """The decision on a step without a finding, in an episode."""
    if progress:
        _reset_rungs(ladder)
        ladder.unproductive_steps, ladder.progressed = 0, True
    ladder.quiet_steps += new_batch
    if may_be_new and ladder.quiet_steps > LONGEST_LAP:
        begin_segment(ladder)  # other work may have been done, though nothing shows it
    if ladder.quiet_steps >= QUIET_STEPS and ladder.progressed:
        return Decision(recovered=_close_episode(ladder))
    return _NOTHING_DUE


def _close_episode(ladder: Ladder) -> bool:
    ladder.active, ladder.first_step = False, -1
    return ladder.nudged


def _distance(ladder: Ladder, certainty: Certainty, settings: EngineSettings) -> int:
    """Unproductive steps that have to lie between two nudges, and between the last nudge and a stop."""
    return max(settings.renudge, ladder.steps_to_first_nudge) * PACE[certainty]


def _nudge_due(
    ladder: Ladder, certainty: Certainty, count: int, settings: EngineSettings, *, towards_stop: bool
) -> bool:
    if ladder.nudge_undelivered:
        return False
    if ladder.nudges == 0:
        # after progress was made, a loop has to build up again before the next nudge
        again = ladder.unproductive_steps >= settings.renudge
        return not ladder.nudged or again or ladder.found_since_nudge >= _IN_PIECES * settings.renudge
    nudges = ladder.nudges - ladder.side_nudges * towards_stop
    if nudges == 0:
        return ladder.steps_since_nudge >= settings.renudge
    if certainty is Certainty.WAITING:
        return count >= 2 * ladder.repeats_at_nudge
    # a third and further nudge is due only where no stop may follow: the distance doubles with each of them
    return ladder.steps_since_nudge >= _distance(ladder, certainty, settings) << max(0, nudges - 1)


def _is_vain(given: int, steps: int, settings: EngineSettings) -> bool:
    """Whether further nudges are useless: ``given`` were given without effect, the first of them ``steps`` ago."""
    return settings.max_nudges is not None and given >= settings.max_nudges and steps >= VAIN_FOR


def _is_known_habit(ladder: Ladder, found: Sequence[DetectionResult], count: int) -> bool:
    """Whether a run that heeded the nudge, and works between its repeats, has not yet repeated twice as often."""
    known = ladder.nudges == 0 and ladder.first_step == ladder.recovered_from
    return known and count < 2 * ladder.recovered_at and all(one.worked for one in found)


def _note_nudge(ladder: Ladder, count: int, *, towards_stop: bool) -> int:
    if ladder.nudges == 0:
        ladder.steps_to_first_nudge = ladder.unproductive_steps
    ladder.nudges += 1
    ladder.steps_since_nudge = ladder.found_since_nudge = 0
    if towards_stop:
        ladder.segment_nudges += 1
        ladder.segment_steps_since_nudge = 0
    else:
        ladder.side_nudges += 1
    ladder.repeats_at_nudge = count
    ladder.nudged = True
    return ladder.nudges


def _stop_due(ladder: Ladder, certainty: Certainty, count: int, now: float, settings: EngineSettings) -> bool:
    if ladder.segment_nudges == 0:
        return False
    if certainty is Certainty.CERTAIN:
        return ladder.segment_steps_since_nudge >= settings.stop_patience
    if certainty is Certainty.WAITING:
        polled = settings.max_polls is not None and count >= settings.max_polls
        waited = settings.max_wait_s is not None and now - ladder.waited_from >= settings.max_wait_s
        return polled or waited
    return ladder.segment_nudges >= 2 and ladder.segment_steps_since_nudge >= _distance(ladder, certainty, settings)


def begin_segment(ladder: Ladder) -> None:
    """Begin a segment at an uncertain boundary: findings before the boundary no longer justify a stop."""
    ladder.segment_nudges = ladder.segment_steps_since_nudge = 0
    ladder.stopped = False


def delivered(ladder: Ladder) -> None:
    """Record that the gate delivered the nudge to the agent; escalation counts from this step."""
    ladder.nudge_undelivered, ladder.nudge_delivered = False, True
    ladder.steps_since_nudge = ladder.segment_steps_since_nudge = 0


def finish_recovery(ladder: Ladder) -> bool:
    """Evaluate the recovery of a run that pauses or ends; if it recovered, close the episode and return True.

    It recovered if it was nudged, has not repeated since, and did something else: a step of progress, or (where a gate
    delivered the nudge, so that the agent has read it) an answer. While a further nudge waits for delivery, the answer
    is the repeat that made it due. A critic may turn the answer down, and the loop go on.
    """
    repeated = ladder.steps_since_nudge > 0 or ladder.nudge_undelivered
    heeded = not repeated and (ladder.progressed or ladder.nudge_delivered)
    if not (ladder.active and ladder.nudged and not ladder.stopped and heeded):
        return False
    ladder.recovered_from, ladder.recovered_at = ladder.first_step, ladder.repeats_at_nudge
    if ladder.progressed or not ladder.nudge_delivered:
        _end_episode(ladder)
    else:  # an answer alone: if the very same loop goes on, it goes on from this nudge
        ladder.active, ladder.first_step = False, -1
    return True


def resolve_nudge(ladder: Ladder) -> None:
    """Forget the newest nudge among those in vain: the call that it was about has returned what was waited for."""
    ladder.given_at = ladder.given_at[:-1]


def reset_episode(ladder: Ladder) -> None:
    """Restart the ladder because a person dismissed the finding; no recovery is counted."""
    ladder.given_at = ()
    _end_episode(ladder)


def _end_episode(ladder: Ladder) -> None:
    ladder.active, ladder.first_step, ladder.nudged = False, -1, False
    ladder.unproductive_steps = ladder.steps_to_first_nudge = 0
    _reset_rungs(ladder)
