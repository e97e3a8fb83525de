"""Flags for other processes: may this agent go on, should it be nudged, or must it stop?

``GET /v1/flags/{trajectory}`` on the collector's own HTTP server returns the intervention that is due now. With
``after``, the index of the step on which the reader has acted last (-1: none yet), it returns the one that became due
since, and a nudge that was not given yet precedes a stop.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.gateway.receivers.auth import Authenticator
from trajectory_guard_collector.gateway.receivers.http_wrappers import BearerAuth
from trajectory_guard_collector.scoring.registry import Fleet
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics

_MAX_NAME: Final = 4_096
PATH: Final = "/v1/flags/{trajectory:name}"


class _AnyName(StringConvertor):
    regex = r"[\s\S]*"  # starlette's own ``path`` ends at a line break, but a name may contain one


register_url_convertor("name", _AnyName())


class FlagService:
    """Answers requests for flags.

    Parameters:
        fleet: the trajectories.
        guard: the mode, which limits the level of flags, and the score at which health is 0.
        metrics: counts requests by status.
    """

    def __init__(self, fleet: Fleet, guard: GuardConfig, metrics: Metrics) -> None:
        self._fleet = fleet
        self._guard = guard
        self._metrics = metrics

    def route(self, auth: Authenticator) -> Route:
        """The endpoint for readers whose token ``auth`` accepts."""
        return Route(PATH, self._answer, methods=["GET"], middleware=[Middleware(BearerAuth, auth=auth)])

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["trajectory"]
        if len(name) > _MAX_NAME:
            return self._reply({"error": f"a trajectory's name has at most {_MAX_NAME} characters"}, 400)
        asked = request.query_params.get("after")
        try:
            after = int(asked) if asked is not None else None
        except ValueError:
            return self._reply({"error": "after is the index of a step"}, 400)
        return self._reply(self.flag(name, after), 200)

    def flag(self, name: str, after: int | None = None) -> dict[str, Any]:
        """The flag of a trajectory, in the form of the JSON reply.

        Parameters:
            name: trajectory id, or a trace, thread or session id it is known by.
            after: index of the step acted on last; None asks for the intervention that is due now.
        """
        trajectory = self._fleet.find(name)
        if trajectory is None:
            return {"trajectory": name, "known": False, "level": Level.OBSERVE.value, "score": 0.0, "health": 1.0}
        verdict = _due(trajectory, after, self._guard.mode)
        return {
            "trajectory": trajectory.key[1],
            "known": True,
            "level": (verdict.level if verdict is not None else Level.OBSERVE).value,
            "score": trajectory.score,
            "health": 1.0 - trajectory.score / self._guard.max_score,
            "steps": trajectory.steps,
            "episode": trajectory.episode,
            "nudges": trajectory.nudges,
            **(_finding(verdict) if verdict is not None else {}),
        }

    def _reply(self, body: dict[str, Any], status: int) -> Response:
        self._metrics.add(catalogue.FLAG_REQUESTS, status=str(status))
        return JSONResponse(body, status, headers={"Cache-Control": "no-store"})


def _due(trajectory: Trajectory, after: int | None, mode: str) -> Verdict | None:
    """The verdict to act on: ``guard.mode`` allows nudges and stops, nudges only, or nothing, as in process."""
    nudge = trajectory.nudge if mode != "observe" else None
    stop = trajectory.stop if mode == "enforce" else None
    if after is None:
        return stop or nudge
    return next((one for one in (nudge, stop) if one is not None and one.step_index > after), None)


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
