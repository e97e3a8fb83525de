"""Loops and healthy work in telemetry that hides arguments, results or the texts of errors: unknown is not equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord


def nudged(verdicts: list[Verdict | None]) -> int | None:
    return first_level(verdicts, Level.NUDGE)


def failing(times: int, outcome: str = "error", **fields: Any) -> list[StepRecord]:
    return [record(("read", "find")[at % 2], None, None, outcome, t=3.0 * at, **fields) for at in range(times)]


@pytest.mark.parametrize("outcome", ["error", "denied"])
def test_failures_of_which_nothing_shows_are_found_where_nothing_else_happens(outcome: str) -> None:
    verdicts = evaluate(failing(30, outcome))
    first = next(verdict for verdict in verdicts if verdict is not None and verdict.nudge)
    assert first.step_index == 6
    assert "The last 7 calls failed;" in first.reason
    assert "in the same way" not in str(first.nudge)
    assert first_level(verdicts, Level.STOP) == 24


def beside(works: list[StepRecord], laps: int, fails: int = 1, tool: str = "read") -> list[StepRecord]:
    """Laps of failures of one tool and successes of others, without a sign of what they are about."""
    fresh = [[record(one.tool_name, None, None, "success", t=0.0) for one in works] for _ in range(laps)]
    failed = [[record(tool, None, None, "error", t=0.0) for _ in range(fails)] for _ in range(laps)]
    return [step for lap in zip(failed, fresh, strict=True) for part in lap for step in part]


WRITE = record("write", None, None, "success")


@pytest.mark.parametrize(
    "run",
    [
        [step for _ in range(7) for step in (*failing(4), *beside([WRITE], 1, fails=0))],  # two tools, 14 times each
        beside([WRITE], 15),
        beside([WRITE, WRITE, WRITE], 30),
        [step for _ in range(8) for step in (*beside([WRITE], 12), *beside([record("read", None, None)], 1, fails=0))],
        failing(12, batch="one model turn"),
    ],
    ids=["two tools", "fifteen times", "now and then", "it works at times", "one turn"],
)
def test_failures_of_which_nothing_shows_say_little_beside_other_work(run: list[StepRecord]) -> None:
    assert nudged(evaluate(run)) is None


@pytest.mark.parametrize("works, fails", [([WRITE], 1), ([WRITE], 3), ([WRITE, record("look", None, None)], 4)])
def test_a_tool_that_never_works_is_nudged_though_nothing_shows_why(works: list[StepRecord], fails: int) -> None:
    verdicts = evaluate(beside(works, 60 // fails, fails))
    first = next(verdict for verdict in verdicts if verdict is not None and verdict.nudge)
    assert "16 of the last" in first.reason
    assert first_level(verdicts, Level.STOP) is None


BUILD = "error: environment tabularx is undefined (main.tex, line 77)"


def builds(texts: Iterable[str], worked: str | None = None) -> list[StepRecord]:
    """Edits and builds in turns, without arguments; ``worked``: what every fifth build returns, which succeeds."""
    found = []
    for at, text in enumerate(texts):
        passes = worked is not None and at % 5 == 4
        found += [record("edit", None, "saved"), record("build", None, worked if passes else text,
                                                        "success" if passes else "error")]  # fmt: skip
    return found


def test_a_tool_that_never_works_is_nudged_where_its_error_shows_and_its_arguments_do_not() -> None:
    """Five of the last ten calls fail however long it goes on, and six are needed there."""
    verdicts = evaluate(builds([BUILD] * 20))
    assert 2 * 16 - 1 <= (nudged(verdicts) or 0) <= 2 * 18 - 1
    assert first_level(verdicts, Level.STOP) is None
    assert nudged(evaluate(builds([BUILD] * 15))) is None
    assert nudged(evaluate(builds(f"{40 - at} errors, {at} warnings" for at in range(40)))) is None
    assert nudged(evaluate(builds([BUILD] * 40, worked="built main.pdf"))) is None


@pytest.mark.parametrize("args", [lambda at: {"id": at}, lambda at: {}, lambda at: None], ids=["new", "same", "unseen"])
def test_a_tool_that_works_now_and_then_is_left_alone_though_its_failures_show_nothing(args: Any) -> None:
    """It only says "ok" when it does, which is nothing new."""
    checks = [
        record("validate", args(at), "ok" if at % 2 else None, "success" if at % 2 else "error", t=3.0 * at)
        for at in range(60)
    ]
    assert [verdict.reason for verdict in evaluate(checks) if verdict is not None and "failed" in verdict.reason] == []


def test_hand_offs_between_which_unseen_work_lies_are_no_circle() -> None:
    desks = [record(f"transfer_to_{to}", None, None) for to in ("coder", "tester") * 15]
    work = [record("run", None, None) for _ in desks]
    assert nudged(evaluate([step for lap in zip(desks, work, strict=True) for step in lap])) is None
    assert nudged(evaluate(desks)) is not None
    assert first_level(evaluate(desks), Level.STOP) == 24


NOT_FOUND = "404: no such user"


def looked_up(names: list[str | None], result: str | None = NOT_FOUND, outcome: str = "error") -> list[StepRecord]:
    """Look-ups of one tool; None: its arguments are not recorded."""
    return [record("get_user", None if one is None else {"name": one}, result, outcome) for one in names]


def test_failures_of_unseen_requests_may_be_those_of_a_list() -> None:
    """An exception shows its text, where content capture is off, too: each call may have named another user."""
    assert nudged(evaluate(looked_up([None] * 5))) is None
    verdicts = evaluate(looked_up([None] * 40))
    assert nudged(verdicts) is not None
    assert (first_level(verdicts, Level.STOP) or 0) >= 20
    worked = [step for _ in range(8) for step in (*looked_up([None] * 4), *looked_up([None], None, "success"))]
    assert nudged(evaluate(worked)) is None  # the tool works, so it can distinguish entries


@pytest.mark.parametrize("shown", [True, False])
def test_a_check_that_fails_again_after_unseen_results_is_no_certain_loop(shown: bool) -> None:
    """A bisection: what the checks say that pass is not recorded."""
    said = (lambda text: text) if shown else (lambda text: None)
    steps = []
    for at in range(9):
        fails = at % 3 != 2
        steps.append(record("bash", {"command": "make test"}, "FAIL: export" if fails else said(f"passed {at}"),
                            "error" if fails else "success"))  # fmt: skip
        steps.append(record("bash", {"command": f"git bisect {'bad' if fails else 'good'}"}, said(f"left: {9 - at}")))
    assert first_level(evaluate(steps), Level.STOP) is None


CHECKS = {
    "edits whose results are not recorded": lambda at: record(
        "edit", {"at": at, "to": f"value {at}"}, None, t=6.0 * at
    ),
    "edits of which nothing is recorded": lambda at: record("edit", None, None, t=6.0 * at),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_a_check_that_passes_after_each_unseen_edit_is_not_stopped(kind: str) -> None:
    """Telemetry that leaves long results out shows what the check says, and not what the edits did."""
    passes = [record("lint", {}, "All checks passed!", t=6.0 * at + 3.0) for at in range(100)]
    work = [CHECKS[kind](at) for at in range(100)]
    verdicts = evaluate([step for lap in zip(work, passes, strict=True) for step in lap])
    assert first_level(verdicts, Level.STOP) is None


def test_the_same_unseen_edit_before_the_same_check_is_stopped() -> None:
    edit = [record("edit", {"to": "value"}, None, t=6.0 * at) for at in range(40)]
    fails = [record("lint", {}, "E501 in a.py", t=6.0 * at + 3.0) for at in range(40)]
    verdicts = evaluate([step for lap in zip(edit, fails, strict=True) for step in lap])
    assert first_level(verdicts, Level.STOP) is not None


def test_claims_with_unseen_answers_are_nudged_late_and_never_stopped() -> None:
    verdicts = evaluate([record("answer", {"text": f"{at * 7}"}, None) for at in range(40)])
    assert nudged(verdicts) == 8
    assert first_level(verdicts, Level.STOP) is None


def test_claims_of_unseen_tasks_with_work_between_them_are_left_alone() -> None:
    tasks = [record(tool, None, None) for _ in range(60) for tool in ("read", "complete_task")]
    assert first_level(evaluate(tasks), Level.NUDGE) is None
    claims = evaluate([record("complete_task", None, None) for _ in range(60)])
    assert nudged(claims) is not None
    assert first_level(claims, Level.STOP) is None


def test_unseen_entries_of_a_list_that_mostly_fail_are_never_stopped() -> None:
    """Names that are looked up one after the other: one in five is found, and what was asked for is not recorded."""
    for text in ("NXDOMAIN: no such name", None):
        names = [
            record("resolve", None, None if at % 5 == 0 else text, "success" if at % 5 == 0 else "error", t=2.0 * at)
            for at in range(60)
        ]
        assert first_level(evaluate(names), Level.STOP) is None
