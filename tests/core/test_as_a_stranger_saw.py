"""Healthy work that was stopped or nudged when strangers tried the guard, and loops of the same look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, stopped
from tests.helpers import judge, record
from trajectory_guard.core.engine import Verdict

Call = tuple[str, Any, str]


def run(calls: list[Call], gap_s: float, *, error_class: str | None = None) -> list[Verdict | None]:
    outcomes = {"[]": "empty", "{}": "empty", "null": "empty"}
    return judge(
        record(
            tool, args, text if error_class is None else None, "error" if error_class else outcomes.get(text, "success"),
            t=1_700_000_000 + number * (gap_s + 0.3), dur=0.3, error_class=error_class,
        )
        for number, (tool, args, text) in enumerate(calls)
    )  # fmt: skip


STATES = [
    "training", "indexing", "validating", "submitted", "started", "EXECUTING", "awaiting approval", "pending_review",
    "in Bearbeitung", "en cours", "进行中", "処理中", "выполняется", "işleniyor", "em andamento", "جارٍ التنفيذ",
]  # fmt: skip


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "plain"])
@pytest.mark.parametrize("state", STATES)
def test_a_state_that_says_that_work_goes_on_is_polled(state: str, escaped: bool) -> None:
    text = json.dumps({"id": 1, "status": state}, ensure_ascii=escaped)
    assert stopped(run([("get_job", {"id": 1}, text)] * 40, 5.0)) is None


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "livré", "完了"])
def test_a_state_that_is_final_is_no_wait(state: str) -> None:
    text = json.dumps({"id": 1, "status": state}, ensure_ascii=False)
    assert stopped(run([("get_job", {"id": 1}, text)] * 40, 2.0)) is not None


@pytest.mark.parametrize(
    "flag",
    [{"ready": False}, {"done": False}, {"finished": False, "error": None}, {"is_complete": False}, {"ended_at": None}],
)
def test_a_flag_that_says_not_yet_is_polled(flag: dict[str, Any]) -> None:
    assert stopped(run([("get_run", {"id": "t1"}, json.dumps(flag))] * 40, 2.0)) is None


@pytest.mark.parametrize(
    "text",
    [
        "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server",
        "ssh: connect to host db-1 port 22: No route to host", "curl: (6) Could not resolve host: app.example",
        "read: connection reset by peer", "Error: socket hang up", "ping: sendmsg: Network is unreachable",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gap_s", [2.0, 60.0])
def test_a_service_that_is_not_up_yet_is_polled(text: str, gap_s: float) -> None:
    assert stopped(run([("bash", {"command": "curl -sS localhost:8080/health"}, text)] * 40, gap_s)) is None


@pytest.mark.parametrize("text", ["[]", "{}", "null", "no data", '{"items": [], "next": null}'])
@pytest.mark.parametrize(
    "tool", ["poll_queue", "receive_message", "kafka_poll", "read_inbox", "dequeue", "consumeBatch"]
)
def test_a_queue_that_is_empty_is_read_again(tool: str, text: str) -> None:
    assert stopped(run([(tool, {"queue": "q"}, text)] * 40, 2.0)) is None


@pytest.mark.parametrize("text", ["[]", "null"])
@pytest.mark.parametrize("tool", ["search", "find_customer", "send_to_queue", "delete_message"])
def test_another_call_that_finds_nothing_is_stopped(tool: str, text: str) -> None:
    assert stopped(run([(tool, {"name": "q"}, text)] * 40, 2.0)) is not None


@pytest.mark.parametrize("code", ["408", "425", "429", "500", "502", "503", "504"])
def test_a_status_code_as_the_class_of_an_error_is_read(code: str) -> None:
    assert stopped(run([("get", None, "")] * 25, 30.0, error_class=code)) is None


@pytest.mark.parametrize("code", ["400", "401", "404", "501"])
def test_a_status_code_that_lasts_is_stopped(code: str) -> None:
    assert stopped(run([("get", None, "")] * 25, 3.0, error_class=code)) is not None


def digest(number: int) -> str:
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


SHARED: dict[str, Call] = {
    "configuration": ("get_config", {}, '{"region": "eu", "limit": 20, "mode": "fast"}'),
    "inbox": ("check_inbox", {}, "[]"),
    "repository": ("bash", {"command": "git status"}, "On branch main\nnothing to commit, working tree clean"),
    "question": ("ask_user", {"q": "Continue?"}, "yes"),
    "login": ("anmelden", {"konto": "svc"}, "angemeldet"),
}
ITEMS: dict[str, Callable[[int], Call]] = {
    "records": lambda n: ("lookup", {"id": n}, f"Customer {n * 7919 % 1000} lives in street {n * 31 % 97}"),
    "checksums": lambda n: ("get_hash", {"id": n}, digest(n)),
    "checksums in records": lambda n: ("lookup", {"id": n}, json.dumps({"id": n, "sha": digest(n)})),
    "files": lambda n: ("write_file", {"path": f"f{n}.txt", "text": f"this is part {n} of it"}, "ok"),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("shared", SHARED)
def test_one_call_beside_every_item_of_a_batch_is_left_alone(shared: str, items: str) -> None:
    verdicts = run([call for n in range(14) for call in (SHARED[shared], ITEMS[items](n))], 2.0)
    assert nudged(verdicts) is None


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("shared", SHARED)
def test_and_is_not_stopped_in_a_long_batch(shared: str, items: str) -> None:
    verdicts = run([call for n in range(22) for call in (SHARED[shared], ITEMS[items](n))], 2.0)
    assert stopped(verdicts) is None
