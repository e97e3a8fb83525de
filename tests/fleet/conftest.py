"""One real broker for all tests of a session, and topics of its own for each test.

Tests that need the stream engine or Kafka's client begin with ``importorskip``: they are imported within the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fleet.broker import Broker
    from tests.fleet.workers import FleetRun


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    from tests.fleet.broker import Broker

    one = Broker(tmp_path_factory.mktemp("kafka"))
    yield one
    one.stop()


@pytest.fixture
def new_run(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., FleetRun]]:
    """Makes a run with topics and a group of its own: a topic that is deleted and made again stops producers."""
    from tests.fleet.workers import FleetRun

    runs: list[FleetRun] = []

    def make(sections: Mapping[str, Any] | None = None, **processing: Any) -> FleetRun:
        name = "".join(one if one.isalnum() else "-" for one in request.node.name)[:60]
        runs.append(FleetRun(broker, tmp_path, f"{name}-{len(runs)}", sections, **processing))
        return runs[-1]

    yield make
    for run in runs:
        run.close()
