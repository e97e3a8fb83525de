"""What listens in the place of a collector, and answers with JSON that is no flag: the run goes on."""

from __future__ import annotations

import json
import math
import socket
import threading
from typing import Any

import pytest

from tests.gates.test_collector_that_stalls import listening
from trajectory_guard.gates.remote import Caller, RemoteFlags

FLAG = {
    "level": "NUDGE", "trajectory_id": "c", "step_id": "a" * 16, "step": 3, "score": 3.0, "health": 0.4,
    "types": ["TYPE_I_STUTTER"], "rule": "same_call_same_result", "certainty": "certain", "episode": 1, "reason": "-",
    "nudge": "Try something else.", "nudges": 1, "tool": "search", "steps": 4,
    "spent": {"steps": 2, "seconds": 1.0, "tokens": 3, "cost_usd": 0.1},
}  # fmt: skip
HAND = {"reason": "enough", "actor": "maria", "ordinal": 1}
ODD: dict[str, dict[str, Any]] = {
    "an endless step": {**FLAG, "step": math.inf},
    "an endless number of nudges": {**FLAG, "nudges": -math.inf},
    "a score beyond all numbers": {**FLAG, "score": 10**400},
    "an endless ordinal": {**FLAG, "by_hand": {**HAND, "ordinal": math.inf}},
    "a nudge that is no text": {**FLAG, "nudge": ["Try something else."]},
    "steps that are no number": {**FLAG, "spent": {**FLAG["spent"], "steps": "two"}},  # type: ignore[dict-item]
    "money that is missing": {**FLAG, "spent": {**FLAG["spent"], "cost_usd": None}},  # type: ignore[dict-item]
}


def asked(answer: dict[str, Any]) -> tuple[Any, int]:
    """The reply to a gate, and how often there was none."""

    def reply(connection: socket.socket, _: threading.Event) -> None:
        body = json.dumps(answer).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    failures: list[int] = []
    with listening(reply) as (url, _):
        return RemoteFlags(url, None, 30.0, lambda: failures.append(1)).ask("c", 0, 0, Caller()), len(failures)


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_that_is_no_flag_is_none(odd: str) -> None:
    assert asked(ODD[odd]) == (None, 1)


def test_an_answer_that_is_one_is_a_flag() -> None:
    found, failures = asked(FLAG)
    assert found.flag.verdict.nudge == FLAG["nudge"]
    assert failures == 0


@pytest.mark.parametrize("token", ["hunter2\n", "hunter2\r\nx: y", "hunter2\n\n"])
def test_a_token_that_cannot_be_sent_is_not_shown(token: str, caplog: pytest.LogCaptureFixture) -> None:
    """``http.client`` quotes the header that it refuses."""
    failures: list[int] = []
    assert RemoteFlags("http://127.0.0.1:9", token, 5.0, lambda: failures.append(1)).ask("c", 0, 0, Caller()) is None
    assert failures == [1]
    assert "[REDACTED]" in caplog.text
    assert "hunter2" not in caplog.text
