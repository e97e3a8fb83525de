"""No loop goes on for ever: what comes back after nudge upon nudge is stopped, whatever rule finds it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.explain.certificates import Certificate
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


def levels(steps: Iterable[StepRecord], settings: EngineSettings = SETTINGS) -> list[Level]:
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


def ranges(count: int) -> Iterator[StepRecord]:
    """One file of a hundred lines, read again and again in ever other ranges."""
    dice = random.Random(4)
    lines = [f"{at}: line number {at} has {at * 7919 % 1000}" for at in range(101)]
    for _ in range(count):
        first, last = dice.randint(1, 50), dice.randint(51, 100)
        yield record("read_file", {"path": "a.py", "start": first, "end": last}, "\n".join(lines[first:last]))


def test_findings_that_lead_to_nudges_only_end_in_a_stop_after_twice_as_many() -> None:
    found = levels(ranges(300))
    assert Level.STOP in found
    assert Level.STOP not in levels(ranges(300), replace(SETTINGS, max_nudges=None))


@pytest.mark.parametrize("values", [3, 4])
def test_one_call_whose_answers_only_come_again_ends_in_a_stop(values: int) -> None:
    dice = random.Random(values)
    tips = [
        f"Tip {'abcd'[at]}: check the {['cable', 'driver', 'printer', 'network'][at]} and try it again"
        for at in range(4)
    ]
    found = levels(record("get_tip", {"topic": "printer"}, dice.choice(tips[:values])) for _ in range(400))
    assert found.index(Level.NUDGE) > 64
    assert Level.STOP in found


def test_draws_with_pauses_between_them_are_left_alone() -> None:
    dice = random.Random(5)
    draws = [record("read_sensor", {"id": "t1"}, f"{dice.randint(20, 22)} C", t=30.0 * at) for at in range(400)]
    assert Level.STOP not in {one.level for one in evaluate(draws) if one is not None}


@pytest.mark.parametrize("key", ["request_id", "correlation_id", "trace_id", "idempotency_key", "X-Request-Id"])
@pytest.mark.parametrize("answer", ["[]", "No results found.", '{"items": [], "total": 0}'])
def test_an_id_of_the_request_asks_for_nothing_else(key: str, answer: str) -> None:
    dice = random.Random(6)
    found = levels(record("search", {"q": "refund", key: f"{dice.getrandbits(128):032x}"}, answer) for _ in range(12))
    assert Level.STOP in found


def flip_flop(rounds: int) -> Iterator[StepRecord]:
    """Two edits that undo each other, and a test run behind each whose duration differs."""
    dice = random.Random(7)
    for at in range(rounds):
        old, new = ("x", "y") if at % 2 else ("y", "x")
        yield record("edit_file", {"path": "a.py", "old": old, "new": new}, "edited")
        error = ("TypeError: unsupported operand", "NameError: name 'foo' is not defined")[at % 2]
        yield record("run_tests", {}, f"{error}\n1 failed in {dice.random():.2f}s")


def shuffled_rows(rounds: int) -> Iterator[StepRecord]:
    """Known rows of a table in ever other orders, each time by another query."""
    dice = random.Random(7)
    for at in range(rounds):
        rows = "\n".join(f"{one},n{one}" for one in dice.sample(range(5), 5))
        yield record("run_sql", {"q": f"SELECT * FROM t ORDER BY random() LIMIT {10 + at}"}, f"id,name\n{rows}")


@pytest.mark.parametrize("steps", [flip_flop(400), shuffled_rows(800)], ids=["flip-flop", "shuffled rows"])
def test_nudges_that_lie_ever_further_apart_end_in_a_stop_if_nothing_new_came_between(
    steps: Iterable[StepRecord],
) -> None:
    assert Level.STOP in levels(steps)
