"""No loop goes on for ever: what comes back after nudge upon nudge is stopped, whatever rule finds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.certificates import Certificate
from trajectory_guard.core.policy import VAIN_FOR, VAIN_WITHIN, Level
from trajectory_guard.core.settings import EngineSettings, ToolSettings
from trajectory_guard.core.steps import StepRecord

SETTINGS = EngineSettings()


def bursts(count: int, work: int = 3) -> Iterator[StepRecord]:
    """An agent that runs into one wall in ever other ways, is nudged, does something new, and comes back to the wall."""
    for at in range(count):
        for way in range(6):
            cause = f"disk quota of the volume data exceeded, while {at}-{way} was written"
            yield record("run", {"cmd": f"python build_{at}_{way}.py"}, f"OSError: {cause}", "error")
        for part in range(work):
            yield record(
                "edit",
                {"file": f"build_{at}_{part}.py", "text": f"size = {at * 7 + part}"},
                f"file {at}.{part} written anew",
            )


def levels(steps: Iterator[StepRecord], settings: EngineSettings = SETTINGS) -> list[Level]:
    numbered = [one._replace(step_id=f"{at + 1:016x}", timestamp=at * 4.0) for at, one in enumerate(steps)]
    return [one.level for one in evaluate(numbered, settings) if one is not None]


def test_a_rule_that_leads_to_nudges_only_ends_in_a_stop_after_many_of_them() -> None:
    found = levels(bursts(40))
    nudged, stopped = found.index(Level.NUDGE), found.index(Level.STOP)
    assert VAIN_FOR <= stopped - nudged <= VAIN_WITHIN + 40


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, max_nudges=None),
        replace(SETTINGS, may_stop=False),
        replace(SETTINGS, tools={"run": ToolSettings(never_stop=True)}),
    ],
    ids=["switched off", "no stops", "never at these tools"],
)
def test_it_can_be_switched_off(settings: EngineSettings) -> None:
    found = levels(bursts(40), settings)
    assert Level.NUDGE in found
    assert Level.STOP not in found


def test_fewer_nudges_are_enough_if_so_configured() -> None:
    sooner, later = (
        levels(bursts(40, work=20), replace(SETTINGS, max_nudges=most)).index(Level.STOP) for most in (2, 6)
    )
    assert sooner < later


def test_nudges_that_lie_far_apart_are_none_in_vain() -> None:
    """A long run that is nudged now and then, and works in between."""
    assert Level.STOP not in levels(bursts(40, work=60))


def test_its_certificate_says_how_many_nudges_there_were() -> None:
    steps = [one._replace(step_id=f"{at + 1:016x}", timestamp=at * 4.0) for at, one in enumerate(bursts(40))]
    stop = next(one for one in evaluate(steps) if one is not None and one.level is Level.STOP)
    assert isinstance(stop.certificate, Certificate)
    assert stop.certificate.verify().holds
    assert stop.certificate.facts["ladder"]["given"] >= 6
    forged = stop.certificate.facts["ladder"] | {"given_for": 10}
    again = Certificate.made(
        stop.certificate.rule, stop.certificate.basis, stop.certificate.parameters,
        {**stop.certificate.facts, "ladder": forged},
    )  # fmt: skip
    assert not again.verify().holds
