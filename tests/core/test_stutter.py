"""Type I: the same call again with the same answer, and nothing new in between."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.helpers import evaluate, fired, first_level, record
from trajectory_guard.core.detectors import TYPE_I
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord

CALL = {"q": "opening hours"}
HOURS = "Closed on Mondays. Open from Tuesday to Sunday, nine to five."


def same(times: int, **fields: Any) -> list[StepRecord]:
    return [record("search", CALL, **{"result": "closed on Mondays", **fields}) for _ in range(times)]


def test_fires_as_a_hint_at_the_second_and_for_certain_at_the_third_equal_call() -> None:
    verdicts = evaluate(same(4))
    assert fired(verdicts, TYPE_I) == [1, 2, 3]
    assert [verdict.detections[0].confidence for verdict in verdicts[1:]] == [0.5, 1.0, 1.0]
    assert verdicts[2].detections[0].count == 3
    assert verdicts[2].detections[0].first_step == 0


@pytest.mark.parametrize(
    "result, outcome", [("", "empty"), ("no such file", "error"), ("refused", "denied"), ("[]", "empty")]
)
def test_fires_whatever_the_equal_answer_is(result: str, outcome: str) -> None:
    assert fired(evaluate(same(3, result=result, outcome=outcome)), TYPE_I) == [1, 2]


def test_fires_when_an_error_differs_in_volatile_parts_only() -> None:
    steps = [record("run", CALL, f"failed after {n}.3 s, pid {700 + n}", "error") for n in range(3)]
    assert fired(evaluate(steps), TYPE_I) == [1, 2]


def test_fires_from_the_third_equal_call_when_the_answer_differs_in_volatile_parts_only() -> None:
    steps = [
        record("inspect", CALL, f'{{"door": "blocked", "duration_ms": {n * 7}, "pid": {900 + n}}}') for n in range(8)
    ]
    assert fired(evaluate(steps), TYPE_I) == [2, 3, 4, 5, 6, 7]


def test_fires_whatever_the_key_order_spacing_and_case_of_the_tool_name() -> None:
    steps = [
        record("Search", {"a": 1, "b": [1, 2]}, "x" * 20),
        record("search", {"b": [1.0, 2], "a": 1}, "x" * 20),
        record("SEARCH", {"b": "[1,  2]", "a": 1}, "x" * 20),
    ]
    assert fired(evaluate(steps), TYPE_I) == [1, 2]


def test_does_not_fire_on_a_single_call() -> None:
    assert fired(evaluate(same(1)), TYPE_I) == []


def test_does_not_fire_while_the_answer_moves() -> None:
    polling = [record("job_status", {"id": 7}, f"{percent} % done") for percent in range(0, 100, 10)]
    assert fired(evaluate(polling), TYPE_I) == []


@pytest.mark.parametrize(
    "text", ["processed {} of 9", "step {} of 9 done", "{} failed", "page {} of 9", "order {} shipped"]
)
def test_does_not_fire_while_a_counter_that_means_progress_moves(text: str) -> None:
    verdicts = evaluate(record("job_status", {"id": 7}, text.format(n)) for n in range(1, 9))
    assert fired(verdicts, TYPE_I) == []


def test_does_not_fire_on_paging_with_a_cursor_inside_the_tool() -> None:
    pages = [record("read_next_page", {}, f"text of page {n}: {'abcdefgh'[n % 8] * 30} {n}") for n in range(50)]
    assert fired(evaluate(pages), TYPE_I) == []


def test_does_not_fire_on_paging_by_offset() -> None:
    pages = [record("read_file", {"path": "a.py", "offset": 200 * n}, f"def function_{n}(): ...") for n in range(20)]
    assert fired(evaluate(pages), TYPE_I) == []


def test_does_not_fire_on_a_read_after_each_write_that_changed_something() -> None:
    steps = []
    for n in range(4):
        steps += [
            record("edit", {"line": n, "text": f"v{n}"}, f"changed line {n}"),
            record("test", {}, f"{4 - n} failed, {n} passed"),
        ]
    assert fired(evaluate(steps), TYPE_I) == []


def test_does_not_fire_on_verifying_again_after_progress() -> None:
    steps = []
    for n in range(4):
        steps += [record("git_status", {}, "clean"), record("read", {"path": f"f{n}"}, f"content of file {n}")]
    assert fired(evaluate(steps), TYPE_I) == []


def test_does_not_fire_when_a_timeout_is_followed_by_success() -> None:
    steps = [
        record("bash", {"cmd": "make"}, "command timed out", "error", t=0.0, dur=60),
        record("restart", {}, "restarted", t=61.0),
        record("bash", {"cmd": "make"}, "build finished, 214 files", t=62.0, dur=50),
    ]
    assert fired(evaluate(steps), TYPE_I) == []


def test_does_not_fire_on_unknown_arguments_or_results() -> None:
    assert fired(evaluate(record("search", None, "same answer") for _ in range(9)), TYPE_I) == []
    assert fired(evaluate(record("search", CALL, None) for _ in range(9)), TYPE_I) == []


def test_does_not_fire_on_one_call_by_different_agents() -> None:
    steps = [record("search", CALL, "closed on Mondays", agent=agent) for agent in ("alice", "bob", "carol")]
    assert fired(evaluate(steps), TYPE_I) == []


def test_slow_polling_is_given_nine_times_as_many_tries() -> None:
    """Three times for a short answer after a pause, and three times again where the pause is deliberate."""
    slow = [record("check_mail", {}, "inbox unchanged", t=300.0 * n) for n in range(32)]
    assert fired(evaluate(slow), TYPE_I) == list(range(25, 32))
    quick = [record("check_mail", {}, "inbox: 0 of 12 unread", t=1.0 * n) for n in range(12)]
    assert fired(evaluate(quick), TYPE_I) == list(range(1, 12))


def test_a_bare_acknowledgement_is_given_three_times_as_many_tries() -> None:
    pressed = [record("press", {"button": "Buy"}, "Pressed") for n in range(12)]
    assert fired(evaluate(pressed), TYPE_I) == list(range(7, 12))


def test_equal_calls_that_take_long_but_follow_each_other_at_once_are_no_polling() -> None:
    long = [
        record(
            "rebuild",
            {},
            "0 of 214 files were rebuilt. " * 9,
            t=61.0 * n,
            dur=60.0,
        )
        for n in range(5)
    ]
    assert fired(evaluate(long), TYPE_I) == [1, 2, 3, 4]


def test_an_answer_that_says_still_running_is_given_three_times_as_many_tries() -> None:
    assert fired(evaluate(same(12, result="status: in progress")), TYPE_I) == list(range(7, 12))


def test_patience_is_configurable() -> None:
    waiting = same(12, result="status: in progress")
    assert fired(evaluate(waiting, EngineSettings(poll_patience=2)), TYPE_I)[0] == 4
    slow = [record("check_mail", {}, "inbox unchanged", t=20.0 * n) for n in range(12)]
    assert fired(evaluate(slow, EngineSettings(poll_patience=2)), TYPE_I)[0] == 10
    assert fired(evaluate(slow, EngineSettings(poll_patience=1)), TYPE_I)[0] == 1


def test_the_pause_across_which_evidence_is_likely_at_most_is_configurable() -> None:
    steps = [record("search", CALL, HOURS, t=4.0 * n) for n in range(5)]

    def certainties(settings: EngineSettings) -> list[str]:
        return [str(verdict.certainty) for verdict in evaluate(steps, settings)[2:]]  # the second one is a hint

    assert certainties(EngineSettings()) == ["certain"] * 3
    assert certainties(EngineSettings(slow_gap_s=3.0)) == ["likely"] * 3


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_copies_of_a_call_within_one_model_turn_count_once(copies: int) -> None:
    labelled = [record("search", CALL, "closed on Mondays", batch="1") for _ in range(copies)]
    assert fired(evaluate(labelled), TYPE_I) == []
    overlapping = [record("search", CALL, "closed on Mondays", t=10.0 + n / 10, dur=1.0) for n in range(copies)]
    assert fired(evaluate(overlapping), TYPE_I) == []


BATCHES = {
    "postgres": ("DELETE FROM log WHERE id IN (SELECT id FROM log WHERE old LIMIT 5000)", "DELETE 5000"),
    "mysql": ("delete from sessions where expires < now() limit 10000", "Query OK, 10000 rows affected (0.41 sec)"),
    "sql server": ("UPDATE TOP (500) orders SET migrated = 1 WHERE migrated = 0", '{"rowcount": 500}'),
    "oracle": ("DELETE FROM audit_trail WHERE stamped < SYSDATE - 90 AND ROWNUM <= 2000", "2000 rows deleted."),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_statement_that_takes_the_next_rows_each_time_is_no_repeat(kind: str) -> None:
    query, answer = BATCHES[kind]
    full = [record("run_sql", {"query": query}, answer, t=at * 6.0) for at in range(40)]
    assert first_level(evaluate(full)) is None
    bound = next(one for one in re.findall(r"\d+", answer) if len(one) > 2)
    empty = [record("run_sql", {"query": query}, answer.replace(bound, "0"), t=at * 6.0) for at in range(6)]
    assert first_level(evaluate(empty)) is not None


TIMINGS = {
    "criterion": "parse_large  time: [18.{0} ms 18.{1} ms 18.{2} ms]",
    "a line a case": "join_large: 41{0}.{1} ms",
    "hyperfine": "Time (mean ± σ): 14{0}.{1} ms ± 2.{2} ms",
    "in German": "Antwortzeit: 2{0},{1} s",
}


@pytest.mark.parametrize("kind", TIMINGS)
def test_a_benchmark_may_be_run_eight_times(kind: str) -> None:
    times = [(3, 4, 5), (4, 5, 6), (7, 1, 3), (5, 8, 9), (2, 6, 7), (9, 1, 2), (6, 3, 8), (1, 7, 4)]
    steps = [
        record("shell", {"cmd": "bench --case large"}, TIMINGS[kind].format(*digits), t=at * 9.0)
        for at, digits in enumerate(times * 3)
    ]
    verdicts = evaluate(steps)
    assert first_level(verdicts[:8]) is None
    assert first_level(verdicts, Level.STOP) is None
