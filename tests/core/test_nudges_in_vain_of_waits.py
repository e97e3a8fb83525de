"""Nudges about waits that end, one after the other, are not added up; those about one that does not end are."""

from __future__ import annotations

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord


def upgrade(at: int) -> list[StepRecord]:
    """One node of a rolling upgrade: a few looks until it is ready. Messages do not tell how long each took."""
    node = f"ip-10-0-{at * 37 % 251}-{at * 91 % 247}"
    look = {"args": f"get node {node} --no-headers"}
    return [
        record("kubectl", {"args": f"drain {node} --ignore-daemonsets"}, f"node/{node} drained"),
        record("upgrade_node", {"node": node}, "upgrade started"),
        *(record("kubectl", look, f"{node}   NotReady,SchedulingDisabled   <none>   90d   v1.28") for _ in range(4)),
        record("kubectl", look, f"{node}   Ready,SchedulingDisabled   <none>   90d   v1.29"),
        record("kubectl", {"args": f"uncordon {node}"}, f"node/{node} uncordoned"),
    ]


def test_waits_that_end_are_not_added_up() -> None:
    verdicts = evaluate([step for at in range(40) for step in upgrade(at)])
    assert first_level(verdicts, Level.STOP) is None


def test_a_loop_around_ever_new_work_still_ends() -> None:
    """The check stays as it is, whatever is tried in between."""
    steps = []
    for at in range(80):
        steps += [
            record("check", {"of": "the build"}, "Build 77 is red: 3 of 90 tests fail in module billing.")
            for _ in range(4)
        ]
        steps.append(
            record("note", {"text": f"{at:b} tried another way, number {at * 7919}"}, f"note {at * 104729} is kept")
        )
    assert first_level(evaluate(steps), Level.STOP) is not None
