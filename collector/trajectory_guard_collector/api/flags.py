"""Flags for other processes: may this agent go on, should it be nudged, or must it stop?

``GET /v1/flags/{trajectory}`` on the HTTP receiver says what is due now. With ``after``, the index of the step that the
asker has acted on last (-1: none yet), it says what became due since, and a nudge that was not given yet comes before a
stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.config.models import Flags
from trajectory_guard_collector.scoring.events import News
from trajectory_guard_collector.scoring.registry import Fleet
from trajectory_guard_collector.scoring.trajectory import Told, Trajectory
from trajectory_guard_collector.telemetry.metrics import Metrics

_MAX_NAME: Final = 4_096
PATH: Final = "/v1/flags/{trajectory:name}"


class _AnyName(StringConvertor):
    regex = r"[\s\S]*"  # starlette's own ``path`` ends at a line break, which is as good in a name as a slash


register_url_convertor("name", _AnyName())


class FlagBook:
    """Answers questions for flags, at once or when there is news.

    Parameters:
        config: bounds of waiting.
        fleet: the trajectories.
        guard: what flags may say, and the score at which health is 0.
        metrics: counts questions by status.
    """

    def __init__(self, config: Flags, fleet: Fleet, guard: GuardConfig, metrics: Metrics) -> None:
        self._config = config
        self._fleet = fleet
        self._guard = guard
        self._metrics = metrics
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._waiters = 0

    def routes(self) -> list[Route]:
        """What to mount on the HTTP receiver."""
        return [Route(PATH, self._answer, methods=["GET"])] if self._config.enabled else []

    def tell(self, news: Sequence[News]) -> None:
        """Wake who waits for these trajectories."""
        for one in news:
            if self._waiting and one.told in (Told.NUDGE, Told.STOP):
                for name in (one.verdict.trajectory_id, one.item.view.trace_id):
                    for event in self._waiting.get(name, ()):
                        event.set()

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["trajectory"]
        if len(name) > _MAX_NAME:
            return self._reply({"error": f"a trajectory's name has at most {_MAX_NAME} characters"}, 400)
        try:
            asked = request.query_params.get("after")
            after = int(asked) if asked is not None else None
            wait_s = float(request.query_params.get("wait", 0.0))
            if not 0.0 <= wait_s < float("inf"):
                raise ValueError
        except ValueError:
            return self._reply({"error": "after is the index of a step, wait a number of seconds"}, 400)
        answer = self.flag(name, after)
        if answer["level"] == Level.OBSERVE.value and wait_s > 0.0:
            if self._waiters >= self._config.max_waiting:
                return self._reply({"error": "flags.max_waiting readers are waiting"}, 429, {"Retry-After": "1"})
            await self._wait(name, min(wait_s, self._config.max_wait_s))
            answer = self.flag(name, after)
        return self._reply(answer, 200)

    async def _wait(self, name: str, seconds: float) -> None:
        trajectory = self._fleet.find(name)
        names = {name, trajectory.key[1]} if trajectory is not None else {name}
        event = asyncio.Event()
        self._waiters += 1
        for one in names:
            self._waiting.setdefault(one, set()).add(event)
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        finally:
            self._waiters -= 1
            for one in names:
                self._waiting[one].discard(event)
                if not self._waiting[one]:
                    del self._waiting[one]

    def flag(self, name: str, after: int | None = None) -> dict[str, Any]:
        """The flag of a trajectory, as the answer says it.

        Parameters:
            name: trajectory id, or a trace, thread or session id it is known by.
            after: index of the step acted on last; None asks for what is due now.
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
            **(_told(verdict) if verdict is not None else {}),
        }

    def _reply(self, body: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> Response:
        self._metrics.flag_request(str(status))
        return JSONResponse(body, status, headers={"Cache-Control": "no-store", **(headers or {})})


def _due(trajectory: Trajectory, after: int | None, mode: str) -> Verdict | None:
    """What an agent is told: ``guard.mode`` allows nudges and stops, nudges only, or nothing, as in process."""
    nudge = trajectory.nudge if mode != "observe" else None
    stop = trajectory.stop if mode == "enforce" else None
    if after is None:
        return stop or nudge
    return next((one for one in (nudge, stop) if one is not None and one.step_index > after), None)


def _told(verdict: Verdict) -> dict[str, Any]:
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
    }
