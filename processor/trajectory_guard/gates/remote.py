"""Flags from a collector: evaluated on the spans of all processes, for a gate that sees one process only."""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from trajectory_guard import telemetry
from trajectory_guard.by_hand import HandFlag
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import LOOP_TYPES, DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.entry import Flag

_PAUSE_S: Final = 5.0
"""Seconds without a request after one that failed: a dead collector costs one timeout now and then, not one a step."""
_MAX_BYTES: Final = 65_536
_log: Final = logging.getLogger(telemetry.LOGGER)


class RemoteFlags:
    """Client of a collector's ``GET /v1/flags/{trajectory}``. Never raises: no answer in time means "go on".

    Parameters:
        url: base URL of the collector's ``telemetry.endpoint``, such as ``http://localhost:8888``.
        token: bearer token, None if the collector asks for none.
        timeout_s: seconds to wait for an answer.
        failed: called when there was none.
        clock: monotonic seconds; for tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        failed: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._failed = failed
        self._clock = clock
        self._silent_until = float("-inf")
        self._logged = False

    @classmethod
    def of(cls, config: GuardConfig, failed: Callable[[], None]) -> RemoteFlags | None:
        """The client that ``config`` describes; None if it names no collector."""
        if config.collector_url is None:
            return None
        token = config.collector_token.get_secret_value() if config.collector_token is not None else None
        return cls(config.collector_url, token, config.collector_timeout_s, failed)

    def ask(self, trajectory_id: str, after: int, hands: int = 0) -> Flag | None:
        """The flag raised after the step with this index in the collector's count; None without a flag or an answer.

        Parameters:
            hands: ordinal of the flag raised by hand that was acted on last, 0 if none was.
        """
        if self._clock() < self._silent_until:
            return None
        try:
            return _flag(self._get(trajectory_id, after, hands))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._fail(error)
            return None

    def _get(self, trajectory_id: str, after: int, hands: int) -> Mapping[str, Any]:
        name = urllib.parse.quote(trajectory_id, safe="")
        request = urllib.request.Request(
            f"{self._url}/v1/flags/{name}?after={after}&by_hand={hands}", headers=self._headers
        )
        with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
            answer = json.loads(reply.read(_MAX_BYTES))
        if not isinstance(answer, dict):
            raise TypeError(f"an object is expected, got {type(answer).__name__}")
        return answer

    def _fail(self, error: Exception) -> None:
        self._silent_until = self._clock() + _PAUSE_S
        self._failed()
        if not self._logged:
            self._logged = True
            _log.warning("trajectory_guard: no flags from %s, the run goes on (logged once): %s", self._url, error)


def _flag(answer: Mapping[str, Any]) -> Flag | None:
    level = Level(answer["level"])
    if level is Level.OBSERVE:
        return None
    score = float(answer["score"])
    hand = answer.get("by_hand")
    if hand is not None:
        flag = HandFlag.of(level, hand["reason"], hand["actor"], ordinal=int(hand["ordinal"]))
        return Flag(level, None, score, int(answer["nudges"]), int(answer["steps"]), remote=True, by_hand=flag)
    rule = str(answer.get("rule", ""))  # that of the first type; a collector of an earlier version names none
    found = tuple(
        DetectionResult(kind, 1.0, rule if place == 0 else "")
        for place, kind in enumerate(answer["types"])
        if kind in LOOP_TYPES
    )
    spent = answer.get("spent") or {}
    verdict = Verdict(
        str(answer["trajectory"]), str(answer["step_id"]), int(answer["step"]), score, float(answer["health"]), level,
        found, episode=int(answer["episode"]), reason=str(answer["reason"]), nudge=answer["nudge"],
        spent=Spent(**spent), nudges=int(answer["nudges"]), tool=str(answer["tool"]), run=str(answer.get("run", "")),
    )  # fmt: skip
    return Flag(level, verdict, score, verdict.nudges, int(answer["steps"]), remote=True)
