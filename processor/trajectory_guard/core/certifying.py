"""Makes the certificate of an intervention from an evaluated step. Called only at the step at which one becomes due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trajectory_guard.core.certificates import FROZEN, REPLAYABLE, Certificate
from trajectory_guard.core.detectors import DetectionResult, detector_of
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.history import BATCH_MASK
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.policy import Decision, Level
from trajectory_guard.core.replayed_rules import (
    POLICY_KEYS,
    RULES,
    Row,
    batches_of,
    different_calls,
    matched_batches,
    problems_of,
)
from trajectory_guard.core.run import Run
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import EMPTY

_MAX_ROWS: Final = 64


def certify(
    found: DetectionResult, seen: Observation, run: Run, decision: Decision, settings: EngineSettings, *,
    trajectory_id: str, step_id: bytes, weights: Mapping[str, float], place: int,
    measured: Mapping[str, Any] | None = None,
) -> Certificate:  # fmt: skip
    """The certificate of the strongest finding at the step at which a nudge or a stop became due.

    A finding whose fingerprints differ although the engine has found them equal (volatile parts were masked) is frozen.

    Parameters:
        found: the finding, with indices of the run.
        run: the run before the step is remembered, with its score after the step.
        place: index of the step in the trajectory; step_id: its fingerprint, the span id where there is one.
        measured: what a gate has measured itself, which its rule is checked on.
    """
    policy, tool = {name: getattr(settings, name) for name in POLICY_KEYS}, settings.tool(seen.step.tool_name)
    score = run.score
    parameters = {
        "policy": policy,
        "thresholds": dict(detector_of(found).thresholds),
        "tool_weight": tool.weight if tool is not None else 1.0,
        "weights": {kind: weights[kind] for kind in sorted(score.hits)},
    }
    rows, unknown = _rows(_steps(found, seen, run), seen, run, place)
    loop = _LOOPS.get(found.rule, _plain_loop)(found, seen, rows, unknown)
    if found.rule == "same_call_same_result" and tool is not None and tool.idempotent:
        loop["idempotent"] = True  # the second equal result counts as the third
        loop["earlier"] -= (found.count, loop["earlier"]) == (3, 1)
    facts = {
        "trajectory": fingerprint(trajectory_id),
        "run": fingerprint(run.label),
        "step": place,
        "step_id": step_id.hex(),
        "level": str(Level.STOP if decision.stop_due else Level.NUDGE),
        "ordinal": decision.nudge,
        "loop_type": found.loop_type,
        "certainty": str(found.evidence),
        "confidence": found.confidence,
        "count": found.count,
        "first_step": run.history.place_of(found.first_step, place),
        "score": {"before": score.base, "hits": dict(score.hits), "after": score.value},
        "ladder": dict(decision.standing or {}),
        "loop": loop,
    }
    if measured is not None:
        facts["measured"] = dict(measured)
    return Certificate.made(found.rule, _basis(found.rule, parameters, facts), parameters, facts, settings.key_bytes)


def fingerprint(text: str) -> str:
    """A name as 16 hex digits."""
    return digest64(text_bytes(text)).hex()


def _basis(rule: str, parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    if rule not in RULES or RULES[rule].replay is None:
        return FROZEN
    return FROZEN if problems_of(rule, True, parameters, facts) else REPLAYABLE


# --- the steps of a loop -----------------------------------------------------------------------------------------


def _steps(found: DetectionResult, seen: Observation, run: Run) -> Sequence[int]:
    """Indices of the steps of a loop: those of the finding, or the series that it is about."""
    if found.steps:
        return found.steps
    first = run.history.calls.start if found.rule == "cycle" else found.first_step
    return range(max(first, run.history.calls.start, seen.index + 1 - _MAX_ROWS), seen.index + 1)


def _rows(steps: Sequence[int], seen: Observation, run: Run, place: int) -> tuple[list[Row], int]:
    """The newest of these steps with their fingerprints, and how many are forgotten or too many to show."""
    history, newest = run.history, steps[-_MAX_ROWS:]
    rows = [
        Row(history.place_of(at, place), history.calls[at].hex(), history.results[at].hex(), history.batch_of(at))
        for at in newest
        if history.calls.start <= at < seen.index
    ]
    if newest and newest[-1] == seen.index:
        rows.append(Row(place, seen.call.hex(), seen.result.hex(), run.score.batch & BATCH_MASK))
    return rows, len(steps) - len(rows)


def _loop(rows: Sequence[Row], earlier: int, **facts: Any) -> dict[str, Any]:
    table = list(dict.fromkeys(one for row in rows for one in (row.call, row.result) if one))
    places = {one: at for at, one in enumerate(table)}
    steps = [[row.place, places.get(row.call, -1), places.get(row.result, -1), row.batch] for row in rows]
    return {"fingerprints": table, "steps": steps, "earlier": earlier, **facts}


_Loop = Callable[[DetectionResult, Observation, list[Row], int], dict[str, Any]]


def _plain_loop(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    """The steps of a finding that is counted in steps."""
    return _loop(rows, max(0, found.count - len(rows)))


def _series(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    """The steps of a finding that is not counted in steps; ``earlier`` are those that are forgotten."""
    return _loop(rows, unknown, period=found.period)


def _repeats(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    earlier = max(0, found.count - len({row.batch for row in rows}))
    if found.rule == "same_model_call":
        return _loop(rows, earlier, pace=seen.variation_pace)
    blank, worked = not (seen.step.result or "").strip(), seen.worked and not seen.others_progress
    if found.rule == "recurring_result":
        return _loop(rows, earlier, pace=seen.pace, empty=seen.outcome == EMPTY)
    return _loop(rows, earlier, pace=seen.pace, worked=worked, blank=blank)


def _one_state(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    return _loop(rows, max(0, found.count - different_calls(rows)), tools=len(found.names))


def _answers(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    return _loop(rows, unknown, pace=seen.variation_pace)


def _cycle(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    stated = seen.index - found.first_step - found.period + 1
    batches = batches_of(rows)
    matched = min(matched_batches(batches, found.period), stated)
    kept = sum(len(batch) for batch in batches[-(matched + found.period) :])
    shown = rows[-kept:] if kept else []
    pace = seen.pace_of(found.evidence)
    return _loop(shown, stated - matched, period=found.period, matched=stated, pace=pace)


_LOOPS: Final[Mapping[str, _Loop]] = {
    "same_call_same_result": _repeats,
    "recurring_result": _repeats,
    "same_model_call": _repeats,
    "same_state": _one_state,
    "same_effect": _one_state,
    "same_answer": _answers,
    "cycle": _cycle,
    "nothing_new": _series,
    "handoffs": _series,
}
