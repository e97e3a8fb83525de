"""Flags for other processes: may this agent go on, should it be nudged, or must it stop?

``GET /v1/flags/{trajectory}`` on the collector's own HTTP server returns the intervention that is due now. With
``after``, the index of the step on which the reader has acted last (-1: none yet), it returns the one that became due
since, and a nudge that was not given yet precedes a stop. ``by_hand`` is the same for flags that people raise: the
ordinal of the one acted on last. The answer also has the budgets that concern the reader (``api.budgets``). ``POST``
raises such a flag, ``DELETE`` clears every flag of the trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trajectory_guard.by_hand import RULE, HandFlag
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.logs import log_flag
from trajectory_guard_collector.api.budgets import FleetBudgets
from trajectory_guard_collector.authentication import Authenticator, BearerAuth
from trajectory_guard_collector.scoring.registry import Fleet
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics

_MAX_NAME: Final = 4_096
_MAX_BODY: Final = 16_384
_KEYS: Final = frozenset(("level", "reason", "actor"))
_RANK: Final = {Level.OBSERVE: 0, Level.NUDGE: 1, Level.STOP: 2}
PATH: Final = "/v1/flags/{trajectory:name}"


class _AnyName(StringConvertor):
    regex = r"[\s\S]*"  # starlette's own ``path`` ends at a line break, but a name may contain one


register_url_convertor("name", _AnyName())


class _Mistake(ValueError):
    """A request that cannot be answered; the message says why."""


class _Readers:
    """Flags may be read by agents and by the people who raise them."""

    def __init__(self, agents: Authenticator, people: Authenticator) -> None:
        self._agents, self._people = agents, people

    def check(self, header: str | None) -> bool:
        return self._agents.check(header) or (self._people.required and self._people.check(header))


class FlagService:
    """Answers requests for flags.

    Parameters:
        fleet: the trajectories.
        guard: the mode, which limits the level of flags, and the score at which health is 0.
        metrics: counts requests by status, and flags raised and cleared.
        budgets: the budgets of the fleet.
        save: writes changed trajectories to disk; None without storage.
    """

    def __init__(
        self,
        fleet: Fleet,
        guard: GuardConfig,
        metrics: Metrics,
        budgets: FleetBudgets,
        save: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._fleet = fleet
        self._guard = guard
        self._metrics = metrics
        self._budgets = budgets
        self._save = save

    def routes(self, agents: Authenticator, people: Authenticator) -> list[Route]:
        """The endpoints: flags are read with a token of either, raised and cleared with one of ``people``.

        Agents hold the tokens of senders: with one of those, an agent that is misled could clear its own flag. Without
        tokens for people, nobody can raise or clear a flag.
        """
        readers: Any = _Readers(agents, people)
        write = self._change if people.required else self._nobody_may
        return [
            Route(PATH, self._answer, methods=["GET"], middleware=[Middleware(BearerAuth, auth=readers)]),
            Route(PATH, write, methods=["POST", "DELETE"], middleware=[Middleware(BearerAuth, auth=people)]),
        ]

    # --- reading ---------------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        try:
            name = _name(request)
            after, hands = _number(request, "after", "the index of a step"), _number(request, "by_hand", "an ordinal")
        except _Mistake as mistake:
            return self._reply({"error": str(mistake)}, 400)
        return self._flag_reply(request, name, after, hands)

    def _flag_reply(self, request: Request, name: str, after: int | None = None, hands: int | None = None) -> Response:
        budget = self._budgets.answer(name, request.query_params)
        return self._reply({**self.flag(name, after, hands), "budget": budget}, 200)

    def flag(self, name: str, after: int | None = None, hands: int | None = None) -> dict[str, Any]:
        """The flag of a trajectory, in the form of the JSON reply.

        Parameters:
            name: trajectory id, or a trace, thread or session id it is known by.
            after: index of the step acted on last; None asks for the intervention that is due now.
            hands: ordinal of the flag by hand that was acted on last; None asks for the one that stands now.
        """
        trajectory = self._fleet.find(name)
        if trajectory is None:
            return {"trajectory": name, "known": False, "level": Level.OBSERVE.value, "score": 0.0, "health": 1.0}
        verdict = _due(trajectory, after, self._guard.mode)
        level = verdict.level if verdict is not None else Level.OBSERVE
        hand = _hand(trajectory, hands, level, self._guard.mode)
        finding = _raised(trajectory, hand) if hand is not None else _finding(verdict) if verdict is not None else {}
        return {
            "trajectory": trajectory.key[1],
            "known": True,
            "level": (hand.level if hand is not None else level).value,
            "score": trajectory.score,
            "health": 1.0 - trajectory.score / self._guard.max_score,
            "steps": trajectory.steps,
            "episode": trajectory.episode,
            "nudges": trajectory.nudges,
            **finding,
        }

    # --- raising and clearing --------------------------------------------------------------------------------

    async def _nobody_may(self, request: Request) -> Response:
        return self._reply({"error": "flags.auth has no tokens: nobody may raise or clear flags"}, 403)

    async def _change(self, request: Request) -> Response:
        try:
            name, said = _name(request), await _said(request)
            trajectory = self._fleet.find(name)
            if trajectory is None:
                return self._reply({"error": f"no trajectory {name[:80]!r} is known"}, 404)
            if request.method == "DELETE":
                self._clear(trajectory, said)
            else:
                self._raise(trajectory, said)
        except ValueError as mistake:
            return self._reply({"error": str(mistake)}, 400)
        if self._save is not None:
            await self._save()
        return self._flag_reply(request, name)

    def _raise(self, trajectory: Trajectory, said: dict[str, Any]) -> None:
        given = HandFlag.of(said.get("level"), said.get("reason"), said.get("actor", ""), mode=self._guard.mode)
        flag = self._fleet.raise_flag(trajectory, given)
        self._metrics.add(catalogue.HAND_FLAGS, action="raised")
        log_flag("RAISED", trajectory.key[1], str(flag.level), flag.reason, flag.actor)

    def _clear(self, trajectory: Trajectory, said: dict[str, Any]) -> None:
        checked = HandFlag.of(Level.NUDGE, said.get("reason") or "-", said.get("actor", ""))
        self._fleet.clear_flag(trajectory)
        self._metrics.add(catalogue.HAND_FLAGS, action="cleared")
        log_flag("CLEARED", trajectory.key[1], "", checked.reason, checked.actor)

    def _reply(self, body: dict[str, Any], status: int) -> Response:
        self._metrics.add(catalogue.FLAG_REQUESTS, status=str(status))
        return JSONResponse(body, status, headers={"Cache-Control": "no-store"})


# --- requests ------------------------------------------------------------------------------------------------


def _name(request: Request) -> str:
    name = str(request.path_params["trajectory"])
    if len(name) > _MAX_NAME:
        raise _Mistake(f"a trajectory's name has at most {_MAX_NAME} characters")
    return name


def _number(request: Request, key: str, meaning: str) -> int | None:
    asked = request.query_params.get(key)
    try:
        return int(asked) if asked is not None else None
    except ValueError:
        raise _Mistake(f"{key} is {meaning}") from None


async def _said(request: Request) -> dict[str, Any]:
    """The JSON object in the body; empty where ``DELETE`` has none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise _Mistake(f"the body has at most {_MAX_BODY} bytes")
    if not body and request.method == "DELETE":
        return {}
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not said.keys() <= _KEYS:
        raise _Mistake("the body is a JSON object with level, reason and actor")
    return said


# --- replies -------------------------------------------------------------------------------------------------


def _due(trajectory: Trajectory, after: int | None, mode: str) -> Verdict | None:
    """The verdict to act on: ``guard.mode`` allows nudges and stops, nudges only, or nothing, as in process."""
    nudge = trajectory.nudge if mode != "observe" else None
    stop = trajectory.stop if mode == "enforce" else None
    if after is None:
        return stop or nudge
    return next((one for one in (nudge, stop) if one is not None and one.step_index > after), None)


def _hand(trajectory: Trajectory, acted_on: int | None, level: Level, mode: str) -> HandFlag | None:
    """The flag by hand to act on, unless the engine's own is of a higher level; the mode limits it as well."""
    hand = trajectory.by_hand
    if hand is None or hand.ordinal <= (acted_on or 0) or _RANK[hand.level] < _RANK[level]:
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
        "reason": verdict.reason,
        "nudge": verdict.nudge,
        "spent": verdict.spent._asdict(),
        "certificate": verdict.certificate.to_plain() if verdict.certificate is not None else None,
    }


def _raised(trajectory: Trajectory, flag: HandFlag) -> dict[str, Any]:
    return {
        "step": trajectory.steps - 1,
        "step_id": "",
        "tool": "",
        "run": "",
        "types": [],
        "rule": RULE,
        "reason": flag.why,
        "nudge": flag.nudge,
        "spent": Spent()._asdict(),
        "by_hand": {"reason": flag.reason, "actor": flag.actor, "ordinal": flag.ordinal},
    }
