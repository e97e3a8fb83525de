"""Which tests are slow, how many examples property tests try, and the environment that makes all of them cheaper."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.thinned import ONE_IN

# The same examples on every run, and no example database.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# ``make test-nightly`` runs every property with these, so the fast part needs no more than twenty.
settings.register_profile("thorough", settings.get_profile("repeatable"), max_examples=120)
settings.load_profile("repeatable")

# Modules, tests and their parameters stay to the end. Looking through them again and again for garbage took a third of
# the time of collecting, and a tenth of that of the tests.
gc.disable()

TESTS = Path(__file__).parent
# Every HTTP client reads the certificates of all authorities, for 35 ms, and the tests make a thousand clients, hardly any
# of which uses TLS. Those that do name their authority. Processes that tests start inherit this.
os.environ["SSL_CERT_FILE"] = str(TESTS / "data" / "authority.pem")
os.environ.pop("SSL_CERT_DIR", None)
collect_ignore = ["captures"]  # programs that need packages of their own

SLOW = (
    "cli/test_missing_extras.py",
    "collector/test_durable_queue_faults.py",
    "faults",
    "live",
    "dashboards/test_alert_rules.py",
    "dashboards/test_dashboard_schema.py",
    "dashboards/test_dashboards_live.py",
    "dashboards/test_demonstration.py",
    "dashboards/test_tempo_live.py",
)
"""Folders and modules that start many processes, wait for clocks, or hold very much in memory."""

LONGEST = (
    "faults/test_extremes.py",
    "faults/test_full.py",
    "dashboards/test_dashboards_live.py",
    "dashboards/test_alert_rules.py",
    "faults/test_peers.py",
    "core/test_situations.py",
    "test_linear_patterns.py",
)
"""Modules that take a minute each: begun last, they would keep one process busy while the others have nothing to do."""


@cache
def is_among(names: tuple[str, ...], path: Path) -> bool:
    return any(path.is_relative_to(TESTS / name) for name in names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of ``SLOW`` before ``-m`` selects, except for those that stand for their module in the fast part.

    And of those in ``ONE_IN`` all parameters but some.
    """
    met: Counter[str] = Counter()
    for item in items:
        nightly = item.get_closest_marker("nightly") is not None
        if nightly or (is_among(SLOW, item.path) and item.get_closest_marker("smoke") is None):
            item.add_marker("slow")
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        every = ONE_IN.get(name)
        if every is not None and item.get_closest_marker("slow") is None:
            if not every or met[name] % every:
                item.add_marker("slow")
            met[name] += 1
    items.sort(key=lambda item: is_among(LONGEST, item.path), reverse=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on, garbage is looked for among the objects of the tests alone."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """``TESTS_END``, in seconds since 1970: ``.ci/run`` sets it, so that a slow machine has a result in time."""
    if time.time() > float(os.environ.get("TESTS_END", "inf")):
        pytest.skip("the time that .ci/run has is used up")


class _QuickAsyncio:
    """``asyncio`` with sleeps of a tenth of the time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        await asyncio.sleep(delay / 10)


@pytest.fixture(autouse=True, scope="session")
def _uvicorn_stops_at_once() -> Generator[None, None, None]:
    """Uvicorn looks ten times a second whether it should stop, and a collector stops two servers: 0.4 s a test."""
    import uvicorn.server

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", _QuickAsyncio())
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports of hostile input may hold text that is no Unicode; pytest-xdist could not send them."""
    report = yield
    report.sections = [(name, sendable(text)) for name, text in report.sections]
    if report.failed and (text := str(report.longrepr)) != sendable(text):
        report.longrepr = sendable(text)
    return report


def sendable(text: str) -> str:
    """``text`` with halves of characters written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
