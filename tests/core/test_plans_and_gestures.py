"""Plans that are only rewritten, gestures of each piece of work, hosts that a result names, code that waits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.core.test_relay import outline
from tests.helpers import evaluate, record
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tools import is_waiting

SAID = ("Survey the code", "Inventory the calls", "Map the modules", "Find all usages", "List the places", "Read along")


def plan(at: int, states: Sequence[str], *, key: str = "status", name: str = "todos") -> dict[str, Any]:
    """A plan in other words each time."""
    return {name: [{"content": f"{SAID[(at + 2 * place) % 6]}", key: one} for place, one in enumerate(states)]}


def written(tool: str, plans: Sequence[dict[str, Any]], answer: str = "Plan updated") -> list[StepRecord]:
    return [record(tool, one, answer, t=10.0 * at, batch=str(at)) for at, one in enumerate(plans)]


STARTED = ["in_progress", "pending", "pending", "pending"]


@pytest.mark.parametrize(
    ("tool", "plans", "answer"),
    [
        ("update_plan", [plan(at, STARTED[: 3 + at % 2], name="plan") for at in range(30)], "Plan updated"),
        (
            "TodoWrite",
            [plan(at, ["pending"] * (3 + at % 3)) for at in range(30)],
            "Todos have been modified successfully. Proceed with the current tasks if applicable",
        ),
        ("write_todos", [plan(at, ["pending"] * 4) for at in range(30)], "Updated todo list"),
        ("manage_todo_list", [plan(at, ["not-started"] * 5, key="state") for at in range(30)], "Aufgaben gespeichert."),
        ("set_checklist", [plan(at, [False] * 4, key="done") for at in range(30)], "保存しました"),  # type: ignore[arg-type]
    ],
)
def test_a_plan_that_is_only_rewritten_is_nudged_and_stopped(
    tool: str, plans: list[dict[str, Any]], answer: str
) -> None:
    found = outline(evaluate(written(tool, plans, answer)))
    assert "N" in found[:12]
    assert "S" in found


def test_steps_that_are_ticked_off_are_progress() -> None:
    ticked = [plan(0, ["completed"] * at + ["pending"] * (20 - at)) for at in range(20)]
    assert outline(evaluate(written("TodoWrite", ticked))).strip(".") == ""


def test_a_plan_that_is_rewritten_between_pieces_of_work_is_left_alone() -> None:
    steps = []
    for at in range(30):
        steps.append(record("update_plan", plan(at, STARTED), "Plan updated", t=20.0 * at))
        steps.append(record("read", {"path": f"src/part_{at}.kt"}, f"class Part{at * 7919:b}", t=20.0 * at + 9))
    assert outline(evaluate(steps)).strip(".") == ""


@pytest.mark.parametrize("answer", ["ok", '{"success": true}', "done"])
def test_a_gesture_of_each_piece_of_work_is_left_alone(answer: str) -> None:
    steps = []
    for at in range(15):
        steps.append(record("aspirate", {"volume": 50, "from": "reservoir"}, answer, t=8.0 * at))
        steps.append(
            record("dispense", {"volume": 50, "well": f"{'ABCDEFGH'[at % 8]}{1 + at // 8}"}, answer, t=8.0 * at + 4)
        )
    assert outline(evaluate(steps)).strip(".") == ""


def test_the_certificate_of_a_gesture_has_the_pace_that_was_asked_for() -> None:
    steps = []
    for at in range(40):
        steps.append(record("aspirate", {"volume": 50}, "ok", t=8.0 * at))
        steps.append(record("dispense", {"well": f"W{at}x"}, "ok", t=8.0 * at + 4))
    found = next(one for one in evaluate(steps) if one is not None and one.nudge)
    assert found.certificate is not None
    facts, thresholds = found.certificate.facts, found.certificate.parameters["thresholds"]
    needed = thresholds["after_work"] * facts["loop"]["pace"]
    assert needed <= facts["count"] < needed + 1
    assert found.certificate.verify().holds


def scanned(hosts: Sequence[str], dice: random.Random) -> list[StepRecord]:
    report = "Scan report for {}\nHost is up ({}s latency).\n98 closed ports\n22/tcp open ssh\n443/tcp open https\nDone in {} s"
    return [
        record(
            "run_nmap", {"target": host, "args": "-sV"},
            report.format(host, round(dice.uniform(0.001, 0.004), 4), round(dice.uniform(5, 20), 2)), t=15.0 * at,
        )
        for at, host in enumerate(hosts)
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["10.20.31.{}", "web-{}.example.com", "fe80.lab.{}"])
def test_reports_on_many_hosts_that_say_the_same_are_left_alone(host: str) -> None:
    dice = random.Random(5)
    assert outline(evaluate(scanned([host.format(dice.randrange(256)) for _ in range(24)], dice))).strip(".") == ""


def test_reports_on_a_few_hosts_again_and_again_are_not() -> None:
    dice = random.Random(5)
    assert "N" in outline(evaluate(scanned([f"10.20.31.{7 + at % 3}" for at in range(30)], dice)))


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ('const r = await tools.write_stdin({session_id:36178,chars:"",yield_time_ms:1000}); text(r.output)', True),
        ('await tools.write_stdin({"session_id": 7, "chars": ""})', True),
        ('terminal.send(terminal_id="t1", input="")', True),
        ('await tools.write_stdin({session_id:7,chars:"ls\\n"})', False),
        ('await tools.exec_command({cmd:"npm test",workdir:""})', False),
    ],
)
def test_code_that_hands_nothing_to_a_session_waits(code: str, waits: bool) -> None:
    assert is_waiting("exec", {"input": code}) is waits
