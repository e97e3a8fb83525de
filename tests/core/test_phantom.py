"""Type III, and type II by effect: different calls that all lead to one and the same answer."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, fired, first_level, record
from trajectory_guard.core.detectors import TYPE_II, TYPE_III, TYPE_V
from trajectory_guard.core.policy import Level

PAGE = "Cart: 1 item. Size not selected. Please choose a size to continue."


def test_fires_at_the_third_tool_that_shows_one_frozen_page() -> None:
    steps = [
        record("click", {"id": "buy"}, PAGE),
        record("scroll", {"to": "end"}, PAGE),
        record("type", {"text": "M"}, PAGE),
    ]
    verdicts = evaluate(steps)
    assert fired(verdicts, TYPE_III) == [2]
    assert fired(verdicts, TYPE_II) == [2]
    assert verdicts[2].detections[-1].names == ("click", "scroll", "type")


def test_grows_with_the_run_of_one_tool_and_is_certain_at_the_fifth_call() -> None:
    verdicts = evaluate(record("click", {"id": n}, PAGE) for n in range(6))
    found = {at: verdict.detections[-1].confidence for at, verdict in enumerate(verdicts) if TYPE_III in verdict.types}
    assert found == {2: 0.6, 3: 0.8, 4: 1.0, 5: 1.0}


def test_an_error_describes_no_state_and_is_left_to_type_v() -> None:
    verdicts = evaluate(
        record("run", {"cmd": f"make target{n}"}, "error: compiler not installed", "error") for n in range(5)
    )
    assert fired(verdicts, TYPE_III) == []
    assert fired(verdicts, TYPE_V) == [2, 3, 4]


def test_seven_empty_membership_checks_are_left_alone() -> None:
    verdicts = evaluate(record("is_member", {"id": n}, "[]", "empty") for n in range(100, 107))
    assert first_level(verdicts) is None


def test_seven_look_ups_of_distinct_names_that_find_nothing_are_left_alone() -> None:
    names = ("Berlin", "Paris", "Madrid", "Oslo", "Lisbon", "Vienna", "Dublin")
    verdicts = evaluate(record("lookup_customer", {"name": name}, "No results found", "empty") for name in names)
    assert first_level(verdicts) is None


def test_does_not_fire_on_three_attachments_that_are_all_accepted() -> None:
    assert fired(evaluate(record("attach", {"file": f"{n}.pdf"}, "True") for n in range(3)), TYPE_III) == []


def test_a_batch_of_writes_that_say_ok_may_be_long() -> None:
    verdicts = evaluate(record("create_user", {"name": f"user{n}"}, "ok") for n in range(8))
    assert fired(verdicts, TYPE_III) == []


def test_a_batch_of_quiet_commands_is_no_frozen_state() -> None:
    steps = [record("bash", {"cmd": cmd}, "", "empty") for cmd in ("mkdir a", "cd a", "git init")]
    assert first_level(evaluate(steps)) is None


def test_one_new_answer_ends_the_run() -> None:
    steps = [record("click", {"id": n}, PAGE if n != 2 else "Checkout: enter your address.") for n in range(5)]
    assert fired(evaluate(steps), TYPE_III) == []


def test_does_not_fire_on_equal_calls() -> None:
    assert fired(evaluate(record("click", {"id": 1}, PAGE) for _ in range(6)), TYPE_III) == []


def test_an_unknown_answer_ends_the_run() -> None:
    steps = [record("click", {"id": n}, PAGE if n != 2 else None) for n in range(5)]
    assert fired(evaluate(steps), TYPE_III) == []


def test_unknown_arguments_are_not_different_calls() -> None:
    assert fired(evaluate(record("click", None, PAGE) for _ in range(9)), TYPE_III) == []


def test_is_likely_evidence_that_stops_after_two_ignored_nudges_only() -> None:
    verdicts = evaluate(record("click", {"id": n}, PAGE) for n in range(60))
    stop = first_level(verdicts, Level.STOP)
    assert stop is not None
    assert {str(found.certainty) for verdict in verdicts[: stop + 1] for found in verdict.detections} == {"likely"}
    of_state = [one for verdict in verdicts for one in verdict.detections if one.rule != "same_answer"]
    assert {str(found.certainty) for found in of_state} == {"likely"}
    assert [verdict.ordinal for verdict in verdicts[:stop] if verdict.nudge] == [1, 2]


CHECKERS = ("run_eslint", "run_tsc", "run_prettier")


@pytest.mark.parametrize(
    "result",
    ["0 findings in this file, scan completed", '{"status":"ok","issues":[],"summary":"No problems were found."}'],
)
def test_several_checkers_may_say_the_same_of_file_after_file(result: str) -> None:
    steps = [record(tool, {"file": f"src/part{n}.ts"}, result) for n in range(30) for tool in CHECKERS]
    assert first_level(evaluate(steps)) is None


def test_several_checkers_that_go_round_one_file_are_found() -> None:
    steps = [record(tool, {"file": "src/part.ts"}, "No problems were found in this file.") for tool in CHECKERS * 6]
    assert first_level(evaluate(steps)) is not None


def test_buttons_on_a_page_that_does_not_move_are_no_checkers() -> None:
    page = "Cart: 1 item. Please choose a size to continue."
    steps = [record(tool, {"element_id": at}, page) for at in range(4) for tool in ("click", "hover")]
    assert first_level(evaluate(steps)) == 2
