"""Workers of this version on state that one of another version has stored."""

from __future__ import annotations

import logging

import pytest

from tests.collector.kit import loop, request, tool
from tests.fleet.kit import compared, expected_verdicts, records_of
from tests.fleet.simulation import Simulation
from tests.saved_state import of_another_version
from trajectory_guard_collector.fleet.records import current_verdicts
from trajectory_guard_collector.scoring.operations import OperationKind


def upgrade(run: Simulation) -> None:
    """Another version has stored what the engine knows of each trajectory."""
    for names in run._stored.values():
        names.update({name: (of_another_version(data), expires) for name, (data, expires) in names.items()})
    run.restart()


def fed(run: Simulation, requests: list[bytes]) -> None:
    run.feed(record for data in requests for record in records_of(data))
    run.drain()


def errors(run: Simulation) -> float:
    return (
        run.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "state.trajectory"}
        )
        or 0
    )


def test_an_upgrade_in_the_middle_of_loops_changes_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    """All steps are kept, and are evaluated again."""
    caplog.set_level(logging.WARNING)
    runs = [loop(6, conversation=f"c{nth}", trace=f"t{nth}", prefix=f"s{nth}-") for nth in range(20)]
    requests = [request(one) for steps in zip(*runs, strict=True) for one in steps]
    run = Simulation([])
    fed(run, requests[:60])
    upgrade(run)
    nudged = len(run.written["guard_spans"])
    fed(run, requests[60:])
    assert compared(run.written["verdicts"], expected_verdicts(requests)) == (0, 0, 0)
    assert len(run.written["guard_spans"]) == nudged + 20, "the stops alone are new"
    assert not run.written["dead_letters"]
    assert errors(run) == 20
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) <= 1


def test_the_steps_after_an_upgrade_of_a_long_trajectory_have_verdicts() -> None:
    """Steps beyond the window are gone, and the engine has forgotten them: it counts on, and finds loops from here."""
    before = [request(tool(f"a{at}", {"q": at}, f"answer {at}", at=at)) for at in range(60)]
    stuck = [request(one) for one in loop(5, start=100.0)]
    run = Simulation([], reorder_steps=8)
    fed(run, before)
    upgrade(run)
    fed(run, stuck)
    verdicts = current_verdicts(run.written["verdicts"]).values()
    assert sorted(one["step_index"] for one in verdicts) == list(range(65))
    assert [one["level"] for one in run.written["verdicts"][-5:]] == ["OBSERVE", "OBSERVE", "NUDGE", "NUDGE", "STOP"]
    assert errors(run) == 1


def test_flags_by_hand_outlive_an_upgrade_and_can_be_cleared_after_it() -> None:
    run = Simulation([])
    for name in ("raised", "cleared"):
        fed(run, [request(one) for one in loop(3, conversation=name, trace=name, prefix=name)])
    run.by_hand(OperationKind.RAISE, "raised", level="STOP", reason="the order was cancelled", actor="maria")
    run.drain()
    upgrade(run)
    run.by_hand(OperationKind.CLEAR, "cleared", reason="it is fine", actor="maria")
    run.drain()
    fed(run, [request(tool("next", {"q": 9}, "new", at=50.0, conversation="raised", trace="raised"))])
    raised, cleared = (run.flags.find(name) for name in ("raised", "cleared"))
    assert raised is not None
    assert raised.by_hand is not None
    assert raised.by_hand.reason == "the order was cancelled"
    assert cleared is not None
    assert cleared.current.nudge is None
    assert not run.written["dead_letters"]
