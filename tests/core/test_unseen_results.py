"""Loops that show in the requests alone, and a message that is said at every second step."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord


def nudges(steps: list[StepRecord]) -> list[tuple[int, str]]:
    """Index and rule of each nudge; no run here is stopped."""
    verdicts = evaluate(steps)
    assert first_level(verdicts, Level.STOP) is None
    return [(at, one.rule) for at, one in enumerate(verdicts) if one is not None and one.nudge is not None]


def press(key: object, at: float) -> StepRecord:
    return record("computer", {"action": "key", "key": key}, None, t=at, dur=0.1)


def test_two_clicks_in_turns_are_nudged_ever_more_rarely_and_never_stopped() -> None:
    found = nudges([press(at % 2, 2.0 * at) for at in range(120)])
    assert found[0] == (13, "unseen_results")
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(found)]
    assert gaps == sorted(gaps)
    assert len(found) <= 5


def test_what_is_said_of_them_is_true() -> None:
    verdicts = evaluate([press(at % 2, 2.0 * at) for at in range(14)])
    newest = verdicts[-1]
    assert isinstance(newest, Verdict)
    assert newest.nudge is not None
    assert "12 turns" in newest.nudge
    assert "not recorded" in newest.nudge
    assert "returned nothing" not in newest.nudge
    assert newest.first_step == 2


def test_a_look_between_new_actions_is_no_loop() -> None:
    look = {"action": "screenshot"}
    steps = [record("computer", look if at % 2 else {"action": "click", "x": at}, None, t=2.0 * at) for at in range(80)]
    assert nudges(steps) == []


def test_calls_that_are_unknown_too_say_nothing() -> None:
    assert nudges([record("computer", None, None, t=2.0 * at) for at in range(80)]) == []


def test_calls_without_arguments_may_have_hidden_ones() -> None:
    assert nudges([record("next_page", {}, None, t=2.0 * at) for at in range(80)]) == []


def test_a_known_result_in_between_leaves_it_to_the_other_rules() -> None:
    steps = [press(at % 2, 2.0 * at) for at in range(60)]
    steps[9::10] = [record("read", {"page": at}, f"This is page {at} of the book.", t=20.0 * at) for at in range(6)]
    assert nudges(steps) == []


@pytest.mark.parametrize(("tool", "pause_s"), [("get_status", 2.0), ("check_inbox", 45.0), ("wait", 6.0)])
def test_waits_have_more_time(tool: str, pause_s: float) -> None:
    found = nudges([record(tool, {"id": 7}, None, t=pause_s * at, dur=0.1) for at in range(40)])
    assert [at for at, _ in found if at < 30] == []


def test_copies_in_one_model_message_count_once() -> None:
    steps = [press(at % 3, float(at))._replace(batch=f"b{at // 15}") for at in range(60)]
    assert nudges(steps) == []


def test_a_message_at_every_second_step_adds_up_to_a_nudge() -> None:
    """Half of the score is lost at each step without a finding: twice a half would only ever come close to a nudge."""
    said = "I will press the key once more and look what happens."
    steps = [
        press(at, 2.0 * at)._replace(thought=said if at % 2 else f"Now I look at part {at:b} of the screen.")
        for at in range(40)
    ]
    verdicts = evaluate(steps)
    assert any(one is not None and one.rule == "same_message" and one.nudge is not None for one in verdicts)
