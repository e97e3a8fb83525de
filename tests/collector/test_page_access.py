"""Access to ``/debug/trajectories``, over real connections."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collector.service_helpers import running
from trajectory_guard_collector.app.service import Collector

PAGE = "/debug/trajectories"
SENDER, PERSON = "t0ken-of-senders", "t0ken-of-people"


async def get(collector: Collector, host: str = "127.0.0.1", **request: Any) -> httpx.Response:
    port = collector.endpoints["telemetry"].rpartition(":")[2]
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        return await client.get(f"http://{host}:{port}{request.pop('path', PAGE)}", **request)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[Collector]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{SENDER}\n")
    people = {"auth": {"bearer_tokens": [PERSON]}}
    async with running(auth={"bearer_tokens_file": str(tokens)}, flags=people) as collector:
        yield collector


@pytest.mark.parametrize("given", [{}, {"headers": bearer("another")}, {"auth": ("me", "another")}, {"headers": {"Authorization": "Basic ?"}}])  # fmt: skip
async def test_with_tokens_the_page_is_closed_to_others(protected: Collector, given: dict[str, Any]) -> None:
    reply = await get(protected, **given)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Basic ")
    assert "receivers.otlp.auth" in reply.json()["error"]
    assert (await get(protected, path="/healthz")).status_code == 200
    assert (await get(protected, path="/metrics")).status_code == 200


@pytest.mark.parametrize("token", [SENDER, PERSON])
async def test_every_token_that_reads_flags_opens_the_page(protected: Collector, token: str) -> None:
    assert (await get(protected, headers=bearer(token), params={"format": "json"})).json()["total"] == 0
    assert (await get(protected, auth=("anybody", token))).status_code == 200  # in a browser
    assert (await get(protected, headers=bearer(token), path="/v1/flags/x")).status_code == 200


async def test_tokens_of_people_alone_close_the_page_too() -> None:
    async with running(flags={"auth": {"bearer_tokens": [PERSON]}}) as collector:
        assert (await get(collector)).status_code == 401
        assert (await get(collector, headers=bearer(PERSON))).status_code == 200


def address_of_this_machine() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("endpoint", ["0.0.0.0:0", "[::]:0"])
async def test_without_tokens_this_machine_sees_the_page_and_others_do_not(endpoint: str) -> None:
    async with running(telemetry={"endpoint": endpoint}) as collector:
        assert (await get(collector)).status_code == 200
        forwarded = await get(collector, headers={"X-Forwarded-For": "203.0.113.7"})
        assert forwarded.status_code == 403
        assert "telemetry.open_page" in forwarded.json()["error"]
        address = address_of_this_machine()
        if address is not None and not address.startswith("127."):
            assert (await get(collector, address)).status_code == 403
            assert (await get(collector, address, path="/readyz")).status_code == 200


async def test_the_page_can_be_open_to_all() -> None:
    async with running(
        telemetry={"endpoint": "127.0.0.1:0", "open_page": True}, auth={"bearer_tokens": [SENDER]}
    ) as one:
        assert (await get(one)).status_code == 200
        assert (await get(one, headers={"X-Forwarded-For": "203.0.113.7"})).status_code == 200


@pytest.mark.parametrize("host", ["rebound.example", "rebound.example:8888", "10.0.0.7", ""])
async def test_a_site_whose_name_points_to_this_machine_does_not_see_the_page(host: str) -> None:
    async with running() as collector:
        assert (await get(collector, headers={"Host": host})).status_code in (400, 403)
        assert (await get(collector, headers={"Host": "localhost:8888"})).status_code == 200
        assert (await get(collector, headers={"Host": "[::1]:8888"})).status_code == 200
