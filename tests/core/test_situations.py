"""Named situations come out right. Floors, not aims: what is still wrong is listed by ``python -m tests.bench.situations --ids``."""

from __future__ import annotations

import pytest

from tests.bench.situations import Outcome, judge_situation, situations

FLOORS = {"given": 0.95, "first": 0.93, "second": 0.9, "third": 0.88, "fourth": 0.9}
"""Share that has to come out right. ``tests/data/README.md`` says which were at hand when the rules were written."""
STOPPED = {
    "given": set[str](),
    "first": {"many_lookups/anonymous-access-audit"},
    "second": {"transient_errors/сервис-недоступен"},
    "third": {"transient/exchange-delay", "transient/motor-driver-busy"},
    "fourth": {"acknowledged_on_purpose/scroll-to-the-end", "waiting/android-emulator-boot"},
}
"""Runs that are stopped and should not be. No other may join them."""


@pytest.mark.parametrize("name", FLOORS)
def test_situations_come_out_right_and_hardly_any_is_stopped_wrongly(name: str) -> None:
    found: list[Outcome] = [judge_situation(one) for one in situations(name)]
    assert sum(one.right for one in found) >= FLOORS[name] * len(found)
    assert {one.id for one in found if one.wrongly_stopped} <= STOPPED[name]
