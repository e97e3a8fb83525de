"""The flags of a group over HTTP, without brokers: what is answered before anything was read, and who may ask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

pytest.importorskip("confluent_kafka", reason="the extra 'fleet' is not installed")

from tests.fleet.broker import free_port
from tests.fleet.test_flags import record
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.api.flags import FlagService
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet import flag_reader as module
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.endpoints import serving
from trajectory_guard_collector.fleet.flag_reader import FlagReader, KafkaFlags
from trajectory_guard_collector.fleet.flag_server import flag_server
from trajectory_guard_collector.telemetry.metrics import Metrics

PEOPLE = {"Authorization": "Bearer people"}
GATES = {"Authorization": "Bearer gates"}


def config(**flags: Any) -> FleetConfig:
    tokens = {"readers": {"bearer_tokens": ["gates"]}, "auth": {"bearer_tokens": ["people"]}}
    return FleetConfig.model_validate(
        {"kafka": {"brokers": [f"127.0.0.1:{free_port()}"]}, "flags": {**tokens, **flags}}
    )


@pytest.fixture
def reader() -> FlagReader:
    return FlagReader(config(), Metrics(more=catalogue.METRICS))


@pytest.fixture
def client(reader: FlagReader, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(module, "_DELIVERY_S", 1.5)  # no broker takes a flag by hand
    one = config()
    service = FlagService(KafkaFlags(one, reader), one.guard, Metrics(more=catalogue.METRICS), ("team",))
    return TestClient(Starlette(routes=service.routes(Authenticator(one.flags.readers), Authenticator(one.flags.auth))))


def test_until_the_flags_are_read_no_answer_says_that_all_is_well(client: TestClient, reader: FlagReader) -> None:
    asked = client.get("/v1/flags/c", headers=GATES)
    assert (asked.status_code, asked.json()) == (
        503, {"error": "the flags are being read", "separate_by": ["team"]},
    )  # fmt: skip
    assert client.post("/v1/flags/c", json={"level": "STOP", "reason": "x"}, headers=PEOPLE).status_code == 503
    reader._unread = set()
    unknown = client.get("/v1/flags/c", headers=GATES).json()
    assert (unknown["known"], unknown["separate_by"]) == (False, ["team"])


def test_gates_read_and_people_do_both(client: TestClient, reader: FlagReader) -> None:
    reader._unread = set()
    reader.table.put(record("c"), time.time())
    for headers, status in (({}, 401), (GATES, 200), (PEOPLE, 200), ({"Authorization": "Bearer wrong"}, 401)):
        assert client.get("/v1/flags/c", headers=headers).status_code == status
    for method in ("POST", "DELETE"):
        assert client.request(method, "/v1/flags/c", headers=GATES).status_code == 401


def test_a_flag_by_hand_that_no_broker_takes_was_not_raised(client: TestClient, reader: FlagReader) -> None:
    reader._unread = set()
    reader.table.put(record("c"), time.time())
    reply = client.post("/v1/flags/c", json={"level": "STOP", "reason": "enough"}, headers=PEOPLE)
    assert reply.status_code == 503
    assert reply.json()["error"].startswith("the flag is not confirmed: ")


def test_a_file_of_tokens_and_a_port_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    metrics = Metrics(more=catalogue.METRICS)
    file = {"bearer_tokens_file": str(tmp_path / "none")}
    with (
        pytest.raises(ConfigError, match=r"flags\.readers\.bearer_tokens_file"),
        flag_server(config(readers=file), metrics),
    ):
        pass
    endpoint = f"127.0.0.1:{free_port()}"
    with (
        serving(endpoint, Starlette()),
        pytest.raises(StartError, match=rf"flags\.endpoint: {endpoint}: cannot listen"),
        flag_server(config(endpoint=endpoint), metrics),
    ):
        pass
    with flag_server(config(endpoint=None), metrics) as reader:
        assert reader is None
