"""The reply to ``GET /v1/flags/{trajectory}``, which the collector gives from its trajectories, and a stream worker
from the records of all workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.hand_flag import RULE, HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.api.query import RESOURCE
from trajectory_guard_collector.scoring.current import CurrentVerdicts, RunVerdicts, newest_of
from trajectory_guard_collector.scoring.items import Key
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.tenants import tenant_of

_SERVICE: Final = "service.name"


class FlagState(NamedTuple):
    """A trajectory, as far as a reply needs it.

    Fields:
        key: tenant and id.
        steps, score, episode, nudges: values after its newest step.
        current: the verdicts to act on; by_hand: the flag that a person raised, None if none stands.
        ended: ids of the traces whose root span has ended.
    """

    key: Key
    steps: int
    score: float
    episode: int
    nudges: int
    current: CurrentVerdicts
    by_hand: HandFlag | None
    ended: tuple[str, ...] = ()

    @classmethod
    def of(cls, one: Trajectory) -> FlagState:
        """The state of a trajectory of this process."""
        return cls(one.key, one.steps, one.score, one.episode, one.nudges, one.current, one.by_hand, one.ended)


def tenant_asked(query: Mapping[str, str], separate_by: Sequence[str]) -> str | None:
    """The tenant of the caller, by ``service`` and ``resource.<key>`` of a query; None if it names no resource.

    >>> tenant_asked({"service": "shop", "resource.service.namespace": "eu"}, ("service.namespace", "service.name"))
    'eu/shop'
    """
    resource = {key.removeprefix(RESOURCE): one for key, one in query.items() if key.startswith(RESOURCE)}
    if not resource:
        return None
    return tenant_of({_SERVICE: query.get("service", ""), **resource}, separate_by)


def unsent_by(query: Mapping[str, str], separate_by: Sequence[str]) -> list[str]:
    """The attributes that form the tenant and that a query leaves out; an empty one is sent.

    >>> unsent_by({"service": "shop", "resource.team": ""}, ("service.name", "team", "service.namespace"))
    ['service.namespace']
    """
    return [one for one in separate_by if RESOURCE + one not in query and not (one == _SERVICE and "service" in query)]


def flag_reply(
    name: str, trajectory: FlagState | None, after: int | None, hands: int | None, *, mode: str, max_score: float,
    agent: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The flag of a trajectory, in the form of the JSON reply.

    Parameters:
        name: the name that was asked for.
        trajectory: None if none is known by that name.
        after: index of the step acted on last; None asks for the intervention that is due now.
        hands: ordinal of the flag by hand that was acted on last; None asks for the one that stands now.
        mode: ``guard.mode``, which limits the level; max_score: the score at which health is 0.
        agent: the flag of this agent is asked for; None asks for that of the agent that acted last.
    """
    if trajectory is None:
        return {"trajectory_id": name, "known": False, "level": Level.OBSERVE.value, "score": 0.0, "health": 1.0}
    standing = trajectory.current.standing(agent, trajectory.ended)
    verdict = _due(standing, _known_after(trajectory, after), mode)
    level = verdict.level if verdict is not None else Level.OBSERVE
    hand = _hand(trajectory.by_hand, hands, level, mode)
    finding = _raised(trajectory, hand) if hand is not None else _finding(verdict) if verdict is not None else {}
    return {
        "trajectory_id": trajectory.key[1],
        "known": True,
        "level": (hand.level if hand is not None else level).value,
        "score": trajectory.score,
        "health": 1.0 - trajectory.score / max_score,
        "steps": trajectory.steps,
        "episode": trajectory.episode,
        "nudges": trajectory.nudges,
        **finding,
    }


def _known_after(trajectory: FlagState, after: int | None) -> int | None:
    """``after``, or -1 if the trajectory has no such step: its ordinals have begun again since that reply.

    It was evicted meanwhile, the collector restarted without storage, its steps moved to a conversation, or turned out
    to be second records of one call. A nudge given twice is better than a stop that nobody sees.
    """
    standing = (trajectory.current.nudge, trajectory.current.stop)
    newest = max((one.step_index for one in standing if one is not None), default=-1)
    return -1 if after is not None and after >= max(trajectory.steps, newest + 1) else after


def _due(standing: Sequence[RunVerdicts], after: int | None, mode: str) -> Verdict | None:
    """The verdict to act on: ``guard.mode`` allows nudges and stops, nudges only, or nothing, as in process."""
    nudges = [one.nudge for one in standing if one.nudge is not None and mode != "observe"]
    stops = [one.stop for one in standing if one.stop is not None and mode == "enforce"]
    if after is None:
        return newest_of(stops) or newest_of(nudges)
    return newest_of([one for one in nudges if one.step_index > after]) or newest_of(
        [one for one in stops if one.step_index > after]
    )


def _hand(hand: HandFlag | None, acted_on: int | None, level: Level, mode: str) -> HandFlag | None:
    """The flag by hand to act on, unless the engine's own is of a higher level; the mode limits it as well."""
    if hand is None or hand.ordinal <= (acted_on or 0) or hand.level.rank < level.rank:
        return None
    return None if mode == "observe" or (mode == "nudge" and hand.level is Level.STOP) else hand


def _finding(verdict: Verdict) -> dict[str, Any]:
    return {
        "step": verdict.step_index,
        "step_id": verdict.step_id,
        "tool": verdict.tool,
        "run": verdict.run,
        "types": verdict.types,
        "rule": verdict.rule,
        "certainty": str(verdict.certainty or ""),
        "reason": verdict.reason,
        "nudge": verdict.nudge,
        "spent": verdict.spent._asdict(),
        "certificate": verdict.certificate.to_plain() if verdict.certificate is not None else None,
    }


def _raised(trajectory: FlagState, flag: HandFlag) -> dict[str, Any]:
    return {
        "step": trajectory.steps - 1,
        "step_id": "",
        "tool": "",
        "run": "",
        "types": [],
        "rule": RULE,
        "certainty": "",
        "reason": flag.why,
        "nudge": flag.nudge,
        "spent": Spent()._asdict(),
        "by_hand": {"reason": flag.reason, "actor": flag.actor, "ordinal": flag.ordinal},
    }
