"""A change and its reversal in turn are found; variants that are measured, moves, and work between changes are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_more_remains import moves_of_hanoi
from tests.helpers import evaluate, evaluate_saved, first_level, record
from trajectory_guard.core.detectors.pingpong import Undone
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

LAPS = 24


def rules(verdict: Verdict | None) -> set[str]:
    return {found.rule for found in verdict.detections} if verdict is not None else set()


def edited_and_edited_back() -> Iterator[StepRecord]:
    """The pool is too large, then too small; ids and times in the logs are new each time."""
    sizes = ("poolSize: 50", "poolSize: 20")
    for at in range(LAPS):
        old, new = sizes[at % 2], sizes[1 - at % 2]
        yield record("edit_file", {"path": "helm/values.yaml", "old": old, "new": new}, "1 replacement")
        yield record("run", {"command": "helm upgrade api ./helm"}, f"REVISION: {at + 3}, deployed as {at * 977:x}")
        said = ("too many clients already", "no connection within 5000 ms")[at % 2]
        yield record("run", {"command": "kubectl logs deploy/api"}, f"pod api-{at * 7919:x} FATAL: {said}")


def patched_and_patched_back() -> Iterator[StepRecord]:
    lines = ("    return total * rate", "    return total / rate")
    for at in range(LAPS):
        old, new = lines[at % 2], lines[1 - at % 2]
        patch = f"*** Update File: src/billing.py\n@@ def total\n-{old}\n+{new}\n*** End Patch"
        yield record("apply_patch", {"input": patch}, "Success. Updated the following files:\nM src/billing.py")
        yield record(
            "shell", {"command": "pytest -q"}, f"E  assert {41 + at % 5} == {17 + at}\n1 failed in {at % 9}.1s"
        )


def replaced_in_the_shell() -> Iterator[StepRecord]:
    for at in range(LAPS):
        one, other = ("debug", "release") if at % 2 else ("release", "debug")
        yield record("bash", {"command": f"sed -i 's/{one}/{other}/' build/options.cmake"}, "")
        yield record(
            "bash", {"command": "cmake --build build"}, f"ld: undefined symbol _x{at * 31 % 7}, error {at * 13}"
        )


def two_texts_written_in_turn() -> Iterator[StepRecord]:
    texts = (
        "server { listen 80; root /srv/www; index index.html; }",
        "server { listen 443 ssl; root /srv/www; index a; }",
    )
    for at in range(LAPS):
        yield record("write_file", {"path": "/etc/nginx/site.conf", "content": texts[at % 2]}, "File written.")
        yield record("reload", {"unit": "nginx"}, f"[{at * 71}] Job failed, see id {at * 9973:x}", "error")


def moved_there_and_back() -> Iterator[StepRecord]:
    places = ("src/utils/dates.ts", "src/lib/dates.ts")
    for at in range(LAPS):
        source, target = places[at % 2], places[1 - at % 2]
        yield record("run", {"command": f"git mv {source} {target}"}, "")
        yield record("run", {"command": "npm run build"}, f"error TS{2300 + at}: cannot resolve module {at * 7}")


def in_japanese() -> Iterator[StepRecord]:
    values = ("待機時間 = 30", "待機時間 = 90")
    for at in range(LAPS):
        yield record(
            "編集", {"ファイル": "設定/本番.ini", "前": values[at % 2], "後": values[1 - at % 2]}, "置換しました"
        )
        yield record("実行", {"コマンド": "検証"}, f"要求{at * 977}件のうち{at * 31 % 17}件がエラー")


LOOPS = [
    edited_and_edited_back,
    patched_and_patched_back,
    replaced_in_the_shell,
    two_texts_written_in_turn,
    moved_there_and_back,
    in_japanese,
]


@pytest.mark.parametrize("steps", LOOPS)
def test_a_change_that_is_undone_again_and_again_is_nudged_and_then_stopped(
    steps: Callable[[], Iterable[StepRecord]],
) -> None:
    verdicts = evaluate(list(steps()))
    assert any("undone" in rules(one) for one in verdicts)
    nudged, stopped = first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)
    assert nudged is not None
    assert stopped is not None
    assert nudged < stopped


def tower_of_hanoi() -> Iterator[StepRecord]:
    for source, target in moves_of_hanoi(6, "A", "C", "B"):
        yield record("move_disk", {"from": source, "to": target}, "ok")


def shuttle_between_two_places() -> Iterator[StepRecord]:
    for at in range(30):
        yield record("pick", {"box": at}, f"box {at} is on the fork")
        yield record("drive", {"from": "dock 1", "to": "shelf 4"}, "arrived")
        yield record("place", {"level": at % 5}, f"box {at} stands on level {at % 5}")
        yield record("drive", {"from": "shelf 4", "to": "dock 1"}, "arrived")


def flag_set_for_each_test() -> Iterator[StepRecord]:
    """Tests of an older format need a flag, and each of them is run with and without it."""
    for at in range(24):
        off, on = "legacy: false", "legacy: true"
        yield record("edit", {"path": "test.yaml", "old": off, "new": on}, "ok")
        yield record("run_test", {"name": f"format_{at:x}", "legacy": True}, f"passed {at * 31 % 90} checks")
        yield record("edit", {"path": "test.yaml", "old": on, "new": off}, "ok")
        yield record("run_test", {"name": f"format_{at:x}", "legacy": False}, f"passed {at * 37 % 80} checks")


def mutations() -> Iterator[StepRecord]:
    """Each mutant is put in, tested and taken out again."""
    for at in range(24):
        good, bad = f"if a[{at}] < b", f"if a[{at}] <= b"
        yield record("edit", {"path": "sort.py", "old": good, "new": bad}, "ok")
        yield record("run", {"command": "pytest -q"}, f"{at % 3} failed, {90 - at % 3} passed")
        yield record("edit", {"path": "sort.py", "old": bad, "new": good}, "ok")


def branches_to_and_fro() -> Iterator[StepRecord]:
    for at in range(20):
        branch = ("main", "release/2.1")[at % 2]
        yield record("git", {"command": f"git checkout {branch}"}, f"Switched to branch '{branch}'")
        yield record("git", {"command": f"git cherry-pick {at * 99991:07x}"}, f"[{branch} {at * 8191:x}] fix {at}")


@pytest.mark.parametrize(
    "steps", [tower_of_hanoi, shuttle_between_two_places, flag_set_for_each_test, mutations, branches_to_and_fro]
)
def test_changes_that_belong_to_other_work_are_none(steps: Callable[[], Iterable[StepRecord]]) -> None:
    verdicts = evaluate(list(steps()))
    assert not any("undone" in rules(one) for one in verdicts)
    assert first_level(verdicts, Level.STOP) is None


def test_two_variants_that_are_measured_in_turn_are_not_stopped() -> None:
    """Five measurements of each, as somebody makes them who wants to know the spread."""
    sizes, steps = ("workers = 8", "workers = 4"), []
    for at in range(10):
        old, new = sizes[at % 2], sizes[1 - at % 2]
        steps.append(record("edit", {"path": "app.toml", "old": old, "new": new}, "1 replacement"))
        steps.append(
            record("bench", {"requests": 5000}, f"{1203 + at * at * 7 % 90} requests/s, p99 {at * 3 % 7 + 31} ms")
        )
    assert first_level(evaluate(steps), Level.STOP) is None


@pytest.mark.parametrize("steps", LOOPS)
@settings(max_examples=8)
@given(st.data())
def test_a_saved_detector_goes_on_where_it_was(steps: Callable[[], Iterable[StepRecord]], data: st.DataObject) -> None:
    run = list(steps())
    at = data.draw(st.integers(1, len(run) - 1))
    assert evaluate_saved(run, at) == evaluate(run)[at:]


def test_a_choice_among_letters_is_the_answer_to_one_question_of_many() -> None:
    steps = [record("submit_answer", {"answer": "ABCD"[at * at // 3 % 4]}, "Saved.") for at in range(30)]
    verdicts = evaluate(steps)
    assert not any("claims_done" in rules(one) for one in verdicts[4:])  # from the third letter on
    assert first_level(verdicts, Level.STOP) is None


def test_a_fresh_detector_saves_nothing() -> None:
    assert Undone().dump() is None


def test_a_test_that_fails_in_two_ways_in_turn_is_no_measurement() -> None:
    """Durations that differ make a check that passes a measurement, and not one that fails."""
    steps = []
    for at in range(30):
        old, new = ("x = 1", "x = 2") if at % 2 == 0 else ("x = 2", "x = 1")
        steps.append(record("edit_file", {"path": "src/billing.py", "old": old, "new": new}, "The edit was applied."))
        text = f"FAILED test_total - assert {41 + 2 * (at % 2)} == 42\n1 failed, 21 passed in 0.{at * 7 % 90 + 10}s"
        steps.append(record("run_tests", {}, text))
    assert first_level(evaluate(steps), Level.STOP) is not None
