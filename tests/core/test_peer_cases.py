"""Cases restated from the test suites of other loop detectors: what all agree on, and where they contradict each other."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.helpers import DATA, evaluate_run, first_level, lines
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings, ToolSettings

CASES = {case["id"]: case for case in lines(DATA / "peer_cases.jsonl")}

DISPUTED: dict[str, bool] = {
    # case: whether this detector intervenes; the projects disagree, so this is a record and no verdict
    "nudgeops-edit-test-frozen": True,
    "reivo-x4": True,
    "reivo-abc3": True,
    "reivo-ab2": False,
    "operon-pangrams": False,
    "gemini-same4": True,
    "gemini-abc3": True,
    "gemini-abab-x-abab": True,
    "roo-same3": True,
    "roo-same-other-same": False,
    "roo-limit5-5": True,
    "pydeep-same3": False,
    "pydeep-abab": False,
    "pydeep-noop3": False,
    "oma-aaba": False,
}


def tier(name: str, expect: str | None = None) -> list[str]:
    return [one for one, case in CASES.items() if case["tier"] == name and expect in (None, case["expect"])]


def intervenes(case: dict[str, Any], settings: EngineSettings | None = None) -> bool:
    verdicts = evaluate_run(case, settings)
    if case["when"] == "end":
        return verdicts[-1] is not None and verdicts[-1].level is not Level.OBSERVE
    return first_level(verdicts) is not None


def test_the_tiers_are_complete() -> None:
    assert (len(tier("core", "loop")), len(tier("core", "ok")), len(tier("declared")), len(tier("disputed"))) == (
        43,
        34,
        1,
        15,
    )


@pytest.mark.parametrize("name", tier("core", "loop"))
def test_every_undisputed_loop_is_nudged(name: str) -> None:
    assert intervenes(CASES[name])


@pytest.mark.parametrize("name", tier("core", "ok"))
def test_nothing_undisputed_is_a_false_alarm(name: str) -> None:
    assert not intervenes(CASES[name])


@pytest.mark.parametrize("name", tier("declared"))
def test_a_declared_poll_is_left_alone(name: str) -> None:
    settings = EngineSettings(tools={CASES[name]["steps"][0]["tool"].casefold(): ToolSettings(poll=True)})
    assert CASES[name]["expect"] == "ok"
    assert not intervenes(CASES[name], settings)


def test_the_disputed_cases_are_evaluated_as_recorded() -> None:
    assert {name: intervenes(CASES[name]) for name in tier("disputed")} == DISPUTED


@pytest.mark.parametrize("name", tier("core"))
def test_no_case_is_stopped_before_it_was_nudged(name: str) -> None:
    verdicts = evaluate_run(CASES[name])
    nudge, stop = first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)
    assert stop is None or (nudge is not None and nudge < stop)


UNSEEN = tuple(lines(DATA / "peer_cases_unseen.jsonl"))
MISSED = {
    # short values, which may be those of something under way, and entities that may be of a list
    "nudgeops-u-synonyms", "reivo-u-5-of-window", "oma-u-a3",
}  # fmt: skip


def test_cases_of_the_same_kinds_by_another_writer() -> None:
    """A third of them (the first byte of the MD5 of the id is a multiple of three) was read by nobody since."""
    core = [one for one in UNSEEN if one["tier"] == "core"]
    healthy = [one["id"] for one in core if one["expect"] == "ok" and intervenes(one)]
    missed = {one["id"] for one in core if one["expect"] == "loop" and not intervenes(one)}
    kept_aside = {name for name in missed if hashlib.md5(name.encode(), usedforsecurity=False).digest()[0] % 3 == 0}
    assert healthy == []
    assert missed - kept_aside <= MISSED
    assert len(kept_aside) <= 2
