"""One real broker for all tests of a session, also where several processes run them, and topics of its own for each test.

Tests that need the stream engine or Kafka's client begin with ``importorskip``: they are imported within the fixtures.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fleet.broker import Broker
    from tests.fleet.workers import FleetRun


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    from tests.fleet.broker import NoKafkaError, unavailable
    from tests.fleet.shared_broker import shared_broker

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all processes of this run
    try:
        with shared_broker(folder / "kafka") as address:
            yield address
    except NoKafkaError as error:
        unavailable(str(error))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that a test may kill."""
    from tests.fleet.broker import Broker, NoKafkaError, unavailable

    try:
        one = Broker(tmp_path)
    except NoKafkaError as error:
        unavailable(str(error))
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture
def new_run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., FleetRun]]:
    """Makes a run with topics and a group of its own: a topic that is deleted and made again stops producers."""
    from tests.fleet.workers import FleetRun

    runs: list[FleetRun] = []

    def make(sections: Mapping[str, Any] | None = None, *, address: str | None = None, **processing: Any) -> FleetRun:
        name = "".join(one if one.isalnum() else "-" for one in request.node.name)[:60]
        address = address or request.getfixturevalue("broker")
        runs.append(FleetRun(address, tmp_path, f"{name}-{secrets.token_hex(4)}", sections, **processing))
        return runs[-1]

    yield make
    for run in runs:
        run.close()
