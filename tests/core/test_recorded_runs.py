"""A sample of recorded runs of real agents: no healthy one is nudged, and what is caught stays caught.

The labels were set by a structural rule with hindsight, so they are a guard against regressions and not a measure.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import DATA, first_level, judge_run, lines
from trajectory_guard.core.policy import Level

RUNS = {run["id"]: run for run in lines(DATA / "trajectories_sample.jsonl.gz")}
HEALTHY = [name for name, run in RUNS.items() if run["label"]["loop"] is False]
LOOPS = [name for name, run in RUNS.items() if run["label"]["loop"] is True]

NOT_CAUGHT = {
    "intercode/ic_sql_multiturn_gpt-3.5_10_turns_handicap/938",
    "iso/sglang/trae/gpt-5/2025-11-14_21-05-32/sglang_012_27168308",
    "iso/sglang/trae/gpt-5/2025-11-16_09-27-51/sglang_076_f06e90c2",
    "mint/chat-bison-001/max5_p2+tool+cd/decision_making/alfworld/94",
}
"""Loops of the sample that the guard misses today. Take a run out when it is caught; never put one in."""


def test_the_sample_holds_what_it_should() -> None:
    assert len(HEALTHY) >= 30
    assert len(LOOPS) >= 20
    assert {name.split("/")[0] for name in RUNS} == {"iso", "intercode", "tau", "mint", "hotpot", "sweagent_demo"}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_never_nudged(name: str) -> None:
    assert first_level(judge_run(RUNS[name])) is None


@pytest.mark.parametrize("name", [name for name in LOOPS if name not in NOT_CAUGHT])
def test_a_loop_is_nudged_after_its_first_step_and_before_the_run_ends(name: str) -> None:
    run: dict[str, Any] = RUNS[name]
    began = min(pattern["first"] for pattern in run["label"]["patterns"])
    nudged = first_level(judge_run(run))
    assert nudged is not None
    assert nudged >= began


def test_most_loops_are_nudged_within_three_steps_of_their_evidence() -> None:
    delays = []
    for name in LOOPS:
        verdicts, evidence = judge_run(RUNS[name]), min(pattern["fire"] for pattern in RUNS[name]["label"]["patterns"])
        nudged = first_level(verdicts)
        if nudged is not None:
            delays.append(nudged - evidence)
    assert sorted(delays)[len(delays) // 2] <= 3


def test_what_is_still_missed_is_listed() -> None:
    assert {name for name in LOOPS if first_level(judge_run(RUNS[name])) is None} == NOT_CAUGHT


def test_no_run_is_stopped_before_it_was_nudged() -> None:
    for run in RUNS.values():
        verdicts = judge_run(run)
        nudge, stop = first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)
        assert stop is None or (nudge is not None and nudge < stop)
