"""Tenants: a reader of flags gets those of its own, with whatever attributes the collector separates them by."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.collector.kit import loop, request
from tests.collector.service_helpers import running
from tests.collector.test_flags import flag, post, url
from tests.collector.test_flags_by_hand import PEOPLE, STOP, ask
from trajectory_guard.gates.remote import Caller, CollectorReply, RemoteFlags
from trajectory_guard_collector.app.service import Collector

NAMES = ["service.namespace", "deployment.environment.name"]


async def gate_asks(asked: RemoteFlags, resource: dict[str, Any], after: int = -1) -> CollectorReply:
    answer = await asyncio.to_thread(asked.ask, "c", after, 0, Caller("app", "", resource))
    assert answer is not None
    return answer


def remote(collector: Collector | str) -> RemoteFlags:
    address = collector if isinstance(collector, str) else url(collector)
    return RemoteFlags(address, None, 10.0, lambda: None)


def requests(collector: Collector) -> float:
    name = "trajectory_guard_flag_requests_total"
    return collector.metrics.registry.get_sample_value(name, {"status": "200"}) or 0.0


@pytest.mark.parametrize(
    ("separate_by", "resource"),
    [
        (["team"], {"team": "a"}),
        ([*NAMES, "team"], {NAMES[0]: "eu", NAMES[1]: "prod", "team": "a"}),
        (["team", "service.name"], {"team": "a", "service.name": "app"}),
        (["zone", "team"], {"team": "a", "zone": ("b", "c")}),
        (["shard", "team"], {"team": "a/b", "shard": 7}),
    ],
)
async def test_a_gate_gets_the_flags_of_its_tenant_at_the_first_question(
    separate_by: list[str], resource: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(trajectories={"separate_by": separate_by}, flags=PEOPLE) as collector:
        await post(collector, request(*loop(3), service="app", resource=resource))
        asked = remote(collector)
        nudge = (await gate_asks(asked, resource)).flag
        assert nudge is not None
        assert (str(nudge.level), requests(collector)) == ("NUDGE", 2.0)
        raised = await ask(collector, "POST", STOP)
        assert raised.status_code == 200
        before = requests(collector)
        stop = (await gate_asks(asked, resource, after=2)).flag
        assert stop is not None
        assert stop.by_hand is not None
        assert requests(collector) == before + 1  # the gate knows the attributes now
        other = (await gate_asks(asked, {**resource, "team": "another"}, after=1)).flag
        assert other is None
        assert "the resource of the gate's process lacks" in caplog.text


@pytest.mark.parametrize("separate_by", [NAMES, NAMES[:1], NAMES[::-1], [], ["service.namespace", "service.namespace"]])
async def test_a_gate_that_sends_enough_asks_once(separate_by: list[str]) -> None:
    async with running(trajectories={"separate_by": separate_by}) as collector:
        await post(collector, request(*loop(3), resource={NAMES[0]: "eu"}))
        assert (await gate_asks(remote(collector), {NAMES[0]: "eu"})).flag is not None
        assert requests(collector) == 1.0


async def test_each_reply_names_the_attributes_to_send() -> None:
    async with running(trajectories={"separate_by": ["team"]}, flags=PEOPLE) as collector:
        assert (await flag(collector, "c"))["separate_by"] == ["team"]
        for method, body, token, status in (
            ("POST", STOP, "people", 404), ("DELETE", None, "people", 404), ("POST", b"nonsense", "people", 400),
        ):  # fmt: skip
            reply = await ask(collector, method, body, token=token)
            assert (reply.status_code, reply.json()["separate_by"]) == (status, ["team"])
    async with running(trajectories={"separate_by": ["team"]}) as collector:
        refused = await ask(collector, "POST", STOP, token=None)
        assert (refused.status_code, refused.json()["separate_by"]) == (403, ["team"])


async def test_the_log_blames_the_resource_of_a_gate_only_if_the_gate_has_sent_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(trajectories={"separate_by": ["team", "zone"]}) as collector:
        await post(collector, request(*loop(3), resource={"team": "a", "zone": "b"}))
        assert (await flag(collector, "c", **{"resource.team": "a"}))["known"] is False
        assert "the question lacks attributes: zone." in caplog.text
        assert "the resource of the gate's process lacks" not in caplog.text
        assert (await flag(collector, "c", **{"resource.team": "a", "resource.zone": ""}))["known"] is False
        assert "the resource of the gate's process lacks attributes that its spans have" in caplog.text


@pytest.mark.parametrize("odd", [3, "team", {"team": 1}, True])
async def test_a_collector_that_names_no_attributes_in_a_list_gives_no_answer(odd: Any) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"level": "OBSERVE", "separate_by": odd}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
        asked = remote(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await asyncio.to_thread(asked.ask, "c", -1, 0, Caller()) is None
