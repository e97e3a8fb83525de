"""The rules once more, over the facts of a certificate: each check says what does not follow from them.

A check is a pure function of plain data. It shares no code with the detectors, so that a mistake in one of them does
not hide in the other; the ladder is the policy's own (``policy.is_justified``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import stdev
from typing import Any, Final, NamedTuple

from trajectory_guard.core.detectors import REGISTRY
from trajectory_guard.core.detectors.reported import NOTHING_NEW_SAID, QUALITY_DROP, STATE_INVARIANT
from trajectory_guard.core.policy import Level, is_justified
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import Certainty

POLICY_KEYS: Final = (
    "max_nudges", "max_polls", "max_score", "max_wait_s", "nudge_threshold", "renudge", "stop_patience",
    "stop_threshold",
)  # fmt: skip
_CLOSE: Final = 1e-9
_Problems = Iterator[str]


class Row(NamedTuple):
    """A step of the loop: index in the trajectory, fingerprints of call and result (hex, empty if unknown), batch."""

    place: int
    call: str
    result: str
    batch: int


class Claim(NamedTuple):
    """The statement of a certificate about its finding.

    Fields:
        times: its count; confidence, certainty: as in the finding.
        rows: its remembered steps, oldest first; earlier: how many more there were than these show.
        facts: further facts of the rule; thresholds: the numbers it compares with.
        factor: the setting ``weight`` of the tool, with which the confidence was multiplied.
    """

    times: int
    confidence: float
    certainty: Certainty
    rows: Sequence[Row]
    earlier: int
    facts: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    factor: float

    @property
    def pace(self) -> float:
        """Factor on the number of repeats that the evidence required."""
        return float(self.facts["pace"])

    def is_confident(self, confidence: float) -> bool:
        """Whether the stated confidence is this one, times the factor of the tool."""
        return abs(self.confidence - min(1.0, confidence * self.factor if self.factor != 1.0 else confidence)) < _CLOSE


class Rule(NamedTuple):
    """How a rule is checked: ``replay`` where its certificate is replayable, ``consistent`` in every case."""

    replay: Callable[[Claim], _Problems] | None
    consistent: Callable[[Claim], _Problems]


def known_rules(rule: str, further: Collection[str] = ()) -> bool:
    """Whether there is a check of ``rule``, a registered detector has it, or it is among ``further``."""
    registered = rule in RULES or any(rule in kind.rules for kind in REGISTRY.values())
    return registered or rule in further


def problems_of(rule: str, replay: bool, parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Everything that does not follow from the facts.

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: a fact is missing, or of another type.
    """
    if "level" not in facts:
        return list(_reported_problems(rule, parameters))
    known = RULES.get(rule, _UNKNOWN)
    claim = _claim(parameters, facts)
    found = [*_common(parameters, facts, claim), *known.consistent(claim)]
    if replay and known.replay is None:
        found.append(f"rule {rule} cannot be computed again from fingerprints")
    elif replay and known.replay is not None:
        found += known.replay(claim)
    if rule in (NOTHING_NEW_SAID, STATE_INVARIANT, QUALITY_DROP):
        found += _reported_problems(rule, facts["measured"])
    return found


def rows_of(loop: Mapping[str, Any]) -> list[Row]:
    """The steps of a loop as a certificate holds them: a table of fingerprints, and places in it."""
    table = [str(one) for one in loop["fingerprints"]]
    return [
        Row(int(at), _entry(table, call), _entry(table, result), int(batch))
        for at, call, result, batch in loop["steps"]
    ]


def _entry(table: list[str], place: Any) -> str:
    if type(place) is not int or place < -1:
        raise ValueError(f"{place!r} is no place in the table of fingerprints")
    return "" if place == -1 else table[place]


def _claim(parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> Claim:
    loop = facts["loop"]
    return Claim(
        int(facts["count"]), float(facts["confidence"]), Certainty(facts["certainty"]), rows_of(loop),
        int(loop["earlier"]), loop, parameters["thresholds"], float(parameters["tool_weight"]),
    )  # fmt: skip


# --- what all interventions have in common -----------------------------------------------------------------------


def _common(parameters: Mapping[str, Any], facts: Mapping[str, Any], claim: Claim) -> _Problems:
    level, policy, score = Level(facts["level"]), parameters["policy"], facts["score"]
    settings = EngineSettings(**{name: policy[name] for name in POLICY_KEYS})
    weights, hits = parameters["weights"], score["hits"]
    gain = sum(float(weights[kind]) * float(confidence) for kind, confidence in hits.items())
    after = float(score["after"])
    if abs(after - min(settings.max_score, float(score["before"]) + gain)) > _CLOSE:
        yield f"score {after} is not the score before plus weight times confidence"
    if claim.confidence > float(hits[facts["loop_type"]]) + _CLOSE or not 0 < claim.confidence <= 1:
        yield f"confidence {claim.confidence} is not among those that were scored"
    if after < (settings.stop_threshold if level is Level.STOP else settings.nudge_threshold):
        yield f"score {after} is below the threshold"
    ladder = facts["ladder"]
    if level is Level.OBSERVE or not is_justified(level, ladder, settings):
        yield f"{level} was not due at this place on the ladder"
    if facts["ordinal"] != (ladder["nudges"] + 1 if level is Level.NUDGE else 0):
        yield "the ordinal of the nudge is not the next one"
    if claim.times > ladder["repeats"] or claim.times < 1:
        yield f"count {claim.times} is not between 1 and {ladder['repeats']}, the repeats on the ladder"
    yield from _order(facts, claim)


def _order(facts: Mapping[str, Any], claim: Claim) -> _Problems:
    places = [row.place for row in claim.rows]
    if places != sorted(set(places)):
        yield "the steps are not in order"
    if places and places[-1] > int(facts["step"]):
        yield "a step lies behind the one that is certified"
    if int(facts["first_step"]) > int(facts["step"]) or claim.earlier < 0:
        yield "the loop begins after its end, or has less than no earlier steps"


# --- rules that are computed again -------------------------------------------------------------------------------


def _equal(claim: Claim, *, results: bool = True) -> _Problems:
    """All steps have one known call, and one known result."""
    if len({row.call for row in claim.rows}) != 1 or not claim.rows[0].call:
        yield "the calls are not equal"
    if results and (len({row.result for row in claim.rows}) != 1 or not claim.rows[0].result):
        yield "the results are not equal"


def _counted(claim: Claim) -> _Problems:
    """Copies within one batch count once."""
    shown = len({row.batch for row in claim.rows}) + claim.earlier
    if claim.times != shown and not (claim.facts.get("idempotent") and (shown, claim.times) == (2, 3)):
        yield f"{shown} steps are shown, and the count is {claim.times}"


def _same_call_same_result(claim: Claim) -> _Problems:
    yield from _equal(claim)
    yield from _counted(claim)
    worked = claim.facts["worked"]
    name = "certain_at" if not worked else "part_of_work" if claim.facts["part_of_work"] else "after_work"
    needed = claim.thresholds[name] * claim.pace
    confidence = 1.0 if claim.times >= needed else 0.5 if claim.times >= needed - 1 else 0.0
    if not claim.is_confident(confidence):
        yield f"confidence {claim.confidence} does not follow from count {claim.times} where {needed} are needed"
    if claim.certainty is Certainty.CERTAIN and (worked or confidence < 1.0):
        yield "the evidence is not certain"


def _recurring_result(claim: Claim) -> _Problems:
    yield from _equal(claim)
    yield from _counted(claim)
    needed = claim.thresholds["often_empty" if claim.facts["empty"] else "often"] * claim.pace
    if not claim.is_confident(1.0 if claim.times >= needed else 0.5 if claim.times >= needed - 1 else 0.0):
        yield f"confidence {claim.confidence} does not follow from count {claim.times} where {needed} are needed"


def _same_model_call(claim: Claim) -> _Problems:
    yield from _equal(claim)
    yield from _counted(claim)
    needed = claim.thresholds["likely_at"] * claim.pace
    if claim.times < max(2, needed - 1) or not claim.is_confident(1.0 if claim.times >= needed else 0.5):
        yield f"confidence {claim.confidence} does not follow from count {claim.times} where {needed} are needed"


def _denied_again(claim: Claim) -> _Problems:
    yield from _equal(claim, results=False)
    if claim.times != len(claim.rows) + claim.earlier or claim.times < 2:
        yield f"{len(claim.rows)} refusals are shown, and the count is {claim.times}"
    if not claim.is_confident(1.0):
        yield f"confidence {claim.confidence} does not follow"


def different_calls(rows: Sequence[Row]) -> int:
    """Number of different calls; parallel siblings are one step."""
    calls: set[str] = set()
    count, batch = 0, None
    for row in rows:
        if row.call not in calls:
            count += row.batch != batch
        calls.add(row.call)
        batch = row.batch
    return count


def _one_state(claim: Claim) -> _Problems:
    if len({row.result for row in claim.rows}) != 1 or not claim.rows[0].result:
        yield "the results are not equal"
    if not all(row.call for row in claim.rows) or claim.times != different_calls(claim.rows) + claim.earlier:
        yield f"{different_calls(claim.rows)} different calls are shown, and the count is {claim.times}"


def _same_state(claim: Claim) -> _Problems:
    yield from _one_state(claim)
    full_at = claim.thresholds["full_at_tools" if claim.facts["tools"] > 1 else "full_at"]
    if claim.times < claim.thresholds["calls"] or not claim.is_confident(min(1.0, claim.times / full_at)):
        yield f"confidence {claim.confidence} does not follow from count {claim.times}"


def _same_effect(claim: Claim) -> _Problems:
    yield from _one_state(claim)
    several = claim.facts["tools"] > 1
    needed = claim.thresholds["calls_of_tools" if several else "calls"]
    if claim.times < needed or not claim.is_confident(1.0 if several else 0.5):
        yield f"confidence {claim.confidence} does not follow from count {claim.times}"


def batches_of(rows: Sequence[Row]) -> list[tuple[tuple[str, str], ...]]:
    """Calls and results batch by batch; within one batch their order does not matter."""
    batches: list[list[tuple[str, str]]] = []
    last = None
    for row in rows:
        if row.batch != last or not batches:
            batches.append([])
        batches[-1].append((row.call, row.result))
        last = row.batch
    return [tuple(sorted(batch)) for batch in batches]


def matched_batches(batches: Sequence[tuple[tuple[str, str], ...]], period: int) -> int:
    """How many of the newest batches equal the one a period before them, without an unknown call or result."""
    matched = 0
    while matched + period < len(batches):
        batch = batches[-1 - matched]
        if batch != batches[-1 - matched - period] or not all(call and result for call, result in batch):
            break
        matched += 1
    return matched


def _cycle(claim: Claim) -> _Problems:
    period, stated = int(claim.facts["period"]), int(claim.facts["matched"])
    batches = batches_of(claim.rows)
    matched = matched_batches(batches, period)
    if not 2 <= period <= 6 or matched < 1 or matched != len(batches) - period:
        yield "the shown steps do not repeat with this period"
    if len(set(batches[-period:])) < 2:
        yield "a cycle has at least two different steps"
    if stated != matched + claim.earlier:
        yield f"{matched} steps equal those a lap before them, {claim.earlier} earlier ones are stated, not {stated}"
    laps, needed = 1 + stated / period, claim.thresholds["laps"] * claim.pace
    if claim.times != int(laps) or laps < needed - 1 + 1 / period:
        yield f"count {claim.times} does not follow from {laps} laps where {needed} are needed"
    if not claim.is_confident(1.0 if laps >= needed else 0.5):
        yield f"confidence {claim.confidence} does not follow from {laps} laps"


# --- rules whose finding is frozen -------------------------------------------------------------------------------


def _at_least(name: str, *, rows: bool = True) -> Callable[[Claim], _Problems]:
    """The count reaches the threshold of this name; ``rows``: it is that of the steps."""

    def check(claim: Claim) -> _Problems:
        if claim.times < claim.thresholds[name]:
            yield f"count {claim.times} is below {claim.thresholds[name]}"
        if rows and claim.times != len(claim.rows) + claim.earlier:
            yield f"{len(claim.rows)} steps are shown, and the count is {claim.times}"

    return check


def _same_answer(claim: Claim) -> _Problems:
    needed = claim.thresholds["calls"] * claim.pace
    if claim.times < needed - 1:
        yield f"count {claim.times} is below {needed - 1}"
    if not claim.is_confident(1.0 if claim.times >= needed else 0.5):
        yield f"confidence {claim.confidence} does not follow from count {claim.times}"


def _nothing_new(claim: Claim) -> _Problems:
    thresholds = claim.thresholds
    if claim.times < thresholds["known_steps"]:
        yield f"count {claim.times} is below {thresholds['known_steps']}"
    if not claim.is_confident(1.0 if claim.times >= thresholds["known_for_sure"] else 0.5):
        yield f"confidence {claim.confidence} does not follow from count {claim.times}"


def _known_calls(claim: Claim) -> _Problems:
    yield from _at_least("known")(claim)
    different = len({row.call for row in claim.rows})
    if not claim.earlier and different < claim.thresholds["different"]:
        yield f"{different} different calls are below {claim.thresholds['different']}"


def _long_cycle(claim: Claim) -> _Problems:
    yield from _at_least("laps", rows=False)(claim)
    period, thresholds = int(claim.facts["period"]), claim.thresholds
    if not thresholds["shortest_lap"] <= period <= thresholds["longest_lap"]:
        yield f"a lap of {period} steps is none of this rule"


def _handoffs(claim: Claim) -> _Problems:
    yield from _at_least("laps", rows=False)(claim)
    if int(claim.facts["period"]) not in (2, 3, 4):
        yield "the work goes round between two to four agents"


def _anything(_: Claim) -> _Problems:
    yield from ()


RULES: Final[Mapping[str, Rule]] = {
    "same_call_same_result": Rule(_same_call_same_result, _anything),
    "recurring_result": Rule(_recurring_result, _anything),
    "same_model_call": Rule(_same_model_call, _anything),
    "denied_again": Rule(_denied_again, _anything),
    "same_state": Rule(_same_state, _anything),
    "same_effect": Rule(_same_effect, _anything),
    "same_answer": Rule(None, _same_answer),
    "cycle": Rule(_cycle, _anything),
    "same_visits": Rule(None, _at_least("same_visits")),
    "nothing_new": Rule(None, _nothing_new),
    "unseen_results": Rule(None, _at_least("calls")),
    "known_calls": Rule(None, _known_calls),
    "long_cycle": Rule(None, _long_cycle),
    "renewed_name": Rule(None, _at_least("laps", rows=False)),
    "same_meaning": Rule(None, _at_least("calls")),
    "reformulation": Rule(None, _at_least("calls")),
    "same_error": Rule(None, _at_least("failures")),
    "transient_error": Rule(None, _at_least("failures")),
    "known_lines": Rule(None, _at_least("calls")),
    "recurring_failure": Rule(None, _at_least("often")),
    "standstill": Rule(None, _at_least("same", rows=False)),
    "long_standstill": Rule(None, _at_least("same", rows=False)),
    "undone": Rule(None, _at_least("turns", rows=False)),
    "only_failures": Rule(None, _at_least("turns")),
    "never_works": Rule(None, _at_least("failures")),
    "same_message": Rule(None, _at_least("messages")),
    "only_thoughts": Rule(None, _at_least("thoughts")),
    "only_plans": Rule(None, _at_least("plans", rows=False)),
    "claims_done": Rule(None, _at_least("claims")),
    "handoffs": Rule(None, _handoffs),
    NOTHING_NEW_SAID: Rule(_anything, _anything),
    STATE_INVARIANT: Rule(None, _anything),
    QUALITY_DROP: Rule(_anything, _anything),
}
"""Every rule that is not registered by a user; a rule that is missing here is frozen."""
_UNKNOWN: Final = Rule(None, _anything)


def _reported_problems(rule: str, measured: Mapping[str, Any]) -> _Problems:
    """The measured values show what the gate says: a violation."""
    if rule == NOTHING_NEW_SAID:
        values, threshold = [float(one) for one in measured["signal_values"]], float(measured["threshold"])
        if not values or not min(values) > threshold:
            yield "not every window is above the threshold"
    elif rule == STATE_INVARIANT:
        results = [(str(name), passed) for name, passed in measured["invariant_results"]]
        if not results or measured["all_passed"] is not False or all(passed is True for _, passed in results):
            yield "no invariant is violated"
        if any(type(passed) is not bool for _, passed in results):
            yield "an invariant is neither kept nor violated"
    elif rule == QUALITY_DROP:
        scores, recent = [float(one) for one in measured["scores"]], int(measured["recent"])
        if recent < 1 or len(scores) < 2 * recent or not all(0.0 <= one <= 1.0 for one in scores):
            yield "these are not enough scores from 0 to 1"
            return
        now = sum(scores[-recent:]) / recent
        before = sum(scores[:-recent]) / (len(scores) - recent)
        spread = stdev(scores[:-recent]) if len(scores) - recent > 1 else 0.0
        error = spread * math.sqrt(1 / recent + 1 / (len(scores) - recent))
        least = max(float(measured["drop"]), float(measured["deviations"]) * error)
        if before - now < least - _CLOSE or now >= float(measured["floor"]):
            yield "the scores have not dropped that far"
    else:
        yield f"rule {rule} is none of a gate"
