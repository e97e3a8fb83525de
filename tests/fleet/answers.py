"""The answers of ``GET /v1/flags`` of one process, and of many by their records of flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trajectory_guard.config import GuardConfig
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply
from trajectory_guard_collector.api.flags import RegistryFlags
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.fleet.config import OrderWindow
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.telemetry.metrics import Metrics

Find = Callable[[str], "FlagState | None"]
UNKNOWN = "nobody"
NUMBERS = ("score", "health", "steps", "episode", "nudges")


def scored(requests: Iterable[bytes], limits: Trajectories | None = None) -> RequestScorer:
    """One process that has evaluated requests."""
    scorer = RequestScorer(GuardConfig(), limits or OrderWindow().limits(128.0), Metrics())
    for data in requests:
        scorer.score(data)
    scorer.finish()
    return scorer


def names_in(scorer: RequestScorer) -> list[str]:
    """All names by which a process knows trajectories, and one that it does not."""
    names = {*scorer.registry._names._owners, *(one.key[1] for one in scorer.registry), UNKNOWN}
    return sorted(names)


def questions(found: FlagState | None) -> list[tuple[int | None, int | None]]:
    """``after`` and ``by_hand`` before, between and behind everything that stands."""
    if found is None:
        return [(None, None), (-1, 0)]
    steps = {one.step_index for one in (found.current.nudge, found.current.stop) if one is not None}
    return [(after, hands) for after in (None, -1, *sorted(steps), 1 << 30) for hands in (None, 0, 1)]


def answer(find: Find, name: str, after: int | None, hands: int | None, mode: str = "enforce") -> dict[str, Any]:
    """An answer as gates act on it: of trajectories on which nothing stands the numbers do not matter."""
    found = find(name)
    plain = flag_reply(name, found, after, hands, mode=mode, max_score=5.0)
    if found is None or not (found.by_hand or found.current.stands(found.ended)):
        return {key: value for key, value in plain.items() if key not in NUMBERS}
    if "spent" in plain:  # prices are looked up beside the evaluation, and are not known yet after a restart
        plain["spent"].pop("cost_usd")
    return plain


def differences(scorer: RequestScorer, find: Find, names: Iterable[str] | None = None) -> list[Any]:
    """The questions that one process and many answer differently."""
    one = RegistryFlags(scorer.registry).find
    return [
        (name, *question, expected, given)
        for name in (names_in(scorer) if names is None else names)
        for question in questions(one(name))
        if (expected := answer(one, name, *question)) != (given := answer(find, name, *question))
    ]
