"""Values that a gate writes into the state of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from typing_extensions import TypedDict  # pydantic, asked for a graph's schema, takes no other before Python 3.12

from trajectory_guard.board.flags import Flag
from trajectory_guard.board.quality import is_advice
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.interventions import args_excerpt, recommendation, stop_payload
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.hand_flag import RULE
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

_RECENT: Final = 10
_CALLS: Final = 32
_NUDGES_KNOWN: Final = 8


class LoopStatus(TypedDict, total=False):
    """``loop_status`` in the state of a guarded graph, as the table in the README of the package explains it.

    Empty before the first decision. A hand-placed ``TrajectoryGuardNode`` keeps further keys in it, for itself.
    """

    status: str
    score: float
    health: float
    types: list[str]
    nudges_sent: int
    last_intervention: str | None
    steps_taken: int
    trajectory_id: str
    run: str
    stop: dict[str, Any] | None
    budget: dict[str, Any]
    cursor: dict[str, Any]


_decided: Final[ContextVar[list[Mapping[str, Any]] | None]] = ContextVar("trajectory_guard_decided", default=None)


@contextmanager
def statuses() -> Iterator[list[Mapping[str, Any]]]:
    """Collects the status after every decision of the gates below, those in sub-graphs included."""
    found: list[Mapping[str, Any]] = []
    token = _decided.set(found)
    try:
        yield found
    finally:
        _decided.reset(token)


def note_status(status: Mapping[str, Any]) -> None:
    """Hand a status to the ``statuses`` around it, which keeps the one that stopped a run, or else the newest."""
    found = _decided.get()
    if found is not None and not (found and found[-1].get("status") == "stopped"):
        found[:] = [status]


def scratchpad_entry(step: StepRecord, *, redact: bool = False) -> dict[str, Any]:
    """A step as plain data for the graph state, for a verifier or a later turn."""
    action = step.tool_name if redact else f"{step.tool_name}({args_excerpt(step.args)})"
    return {
        "step_id": step.step_id,
        "call_id": step.call_id,
        "tool_name": step.tool_name,
        "tool_args_hash": step.tool_args_hash,
        "state_snapshot_hash": step.state_snapshot_hash,
        "agent_id": step.agent_id,
        "outcome_type": step.outcome_type,
        "timestamp": step.timestamp,
        "action": action,
    }


class Delivery(NamedTuple):
    """What a gate delivers: a nudge, a stop with its payload and closing text, or nothing."""

    level: Level = Level.OBSERVE
    nudge: str | None = None
    payload: dict[str, Any] | None = None
    closing: str = ""


NOTHING: Final = Delivery()


def payload_of(
    flag: Flag, verdict: Verdict, scratchpad: Sequence[Mapping[str, Any]], before: Mapping[str, Any], *, redact: bool
) -> dict[str, Any]:
    """The payload of a stop.

    Parameters:
        scratchpad: entries of the steps that are new to the graph state.
        before: status that the gate left in the graph state before.
        redact: leave out the reason, which quotes arguments and results; a person's own words stay.
    """
    recent = _recent(before, scratchpad)
    return stop_payload(
        reason="" if redact and flag.by_hand is None else verdict.reason,
        types=verdict.types if flag.by_hand is None else [],
        rule=verdict.rule if flag.by_hand is None else RULE,
        recommendation=recommendation(verdict.detections),
        score=verdict.score,
        nudges_sent=flag.nudges,
        steps_taken=flag.steps,
        similar_actions=recent[-min(len(recent), verdict.spent.steps + 1, 10) :],
        spent=verdict.spent,
        certificate=verdict.certificate.to_plain() if verdict.certificate is not None else None,
    )


def status_after(
    trajectory: str, run: str, flag: Flag, due: Delivery, before: Mapping[str, Any],
    scratchpad: Sequence[Mapping[str, Any]], *, max_score: float, collector_hand: int, state: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The status that follows on ``before``.

    Parameters:
        run: label of the run that the gate has decided on.
        scratchpad: entries of the steps that are new to the graph state.
        collector_hand: number of the newest flag by hand that the collector has sent.
        state: the engine's state of the run, packed as text.
    """
    verdict, level, is_of_quality = flag.verdict, due.level, is_advice(flag.verdict)
    nudged = level is Level.NUDGE and not is_of_quality  # because of a loop
    digests, advice_digests = before.get("nudge_digests"), before.get("advice_digests")
    if due.nudge is not None:
        digests = [*(digests or ()), text_digest(due.nudge)][-_NUDGES_KNOWN:]
        if is_of_quality:
            advice_digests = [*(advice_digests or ()), digests[-1]][-_NUDGES_KNOWN:]
    calls = [*(before.get("calls") or ()), *(entry["step_id"] for entry in scratchpad)]
    return {
        "status": {Level.STOP: "stopped", Level.NUDGE: "nudged"}.get(level, "ok"),
        "score": flag.score,
        "health": 1.0 - flag.score / max_score,
        "types": verdict.types if verdict is not None else [],
        "nudges_sent": flag.nudges,
        "nudges_given": int(before.get("nudges_given", 0)) + nudged,
        "nudge_digests": digests,
        "nudged_run": run if nudged else before.get("nudged_run"),
        **({"advice_digests": advice_digests} if advice_digests else {}),
        "collector_step": verdict.step_index
        if verdict is not None and flag.remote
        else before.get("collector_step", -1),
        "collector_hand": max(int(before.get("collector_hand", 0)), collector_hand),
        "last_intervention": str(level) if level is not Level.OBSERVE else before.get("last_intervention"),
        "steps_taken": flag.steps,
        "trajectory_id": trajectory,
        "run": run,
        "called_in": run if scratchpad else before.get("called_in"),
        "stop": due.payload,
        "recent": _recent(before, scratchpad)[-_RECENT:],
        "calls": calls[-max(_CALLS, len(scratchpad)) :],  # of a whole model turn at least
        "state": state,
        **({"budget": flag.budget.to_plain()} if flag.budget is not None else {}),
    }


def _recent(before: Mapping[str, Any], scratchpad: Sequence[Mapping[str, Any]]) -> list[str]:
    return [*(before.get("recent") or ()), *(entry["action"] for entry in scratchpad)]
