"""Tenants: a reader of flags gets those of its own, with whatever attributes the collector separates them by."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.collector.kit import always_replying, loop, new_scorer, request
from tests.collector.service_helpers import running
from tests.collector.test_booking import chat
from tests.collector.test_flags import flag, post, url
from tests.collector.test_flags_by_hand import PEOPLE, STOP, ask
from trajectory_guard.cli.main import main
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.gates.remote import Caller, CollectorReply, RemoteFlags
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.state import codec
from trajectory_guard_collector.tenants import tenant_of

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
    async with always_replying({"level": "OBSERVE", "separate_by": odd}) as url:
        asked = remote(url)
        assert await asyncio.to_thread(asked.ask, "c", -1, 0, Caller()) is None


# --- different values are different tenants ------------------------------------------------------------------

PAIRS = [
    ({NAMES[0]: "prod"}, {NAMES[1]: "prod"}),
    ({NAMES[0]: "a/b"}, {NAMES[0]: "a", NAMES[1]: "b"}),
    ({NAMES[0]: "a/"}, {NAMES[0]: "a"}),
    ({NAMES[0]: "/a"}, {NAMES[1]: "a"}),
    ({NAMES[0]: "a%2Fb"}, {NAMES[0]: "a/b"}),
    ({NAMES[0]: "/"}, {}),
    ({NAMES[0]: "None"}, {NAMES[0]: None}),
    ({NAMES[0]: "x" * 5_000}, {NAMES[0]: "x" * 5_001}),
]


def spelled(resource: dict[str, Any]) -> dict[str, str]:
    return {f"resource.{name}": resource.get(name) or "" for name in NAMES}


@pytest.mark.parametrize("pair", [*PAIRS, *(pair[::-1] for pair in PAIRS)], ids=repr)
async def test_the_loop_of_one_resource_is_no_flag_for_another(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    looping, healthy = pair
    message = ExportTraceServiceRequest.FromString(request(*loop(3)))
    for name, value in looping.items():
        message.resource_spans[0].resource.attributes.append(
            KeyValue(key=name, value=AnyValue(string_value=value) if value is not None else AnyValue())
        )
    async with running(guard={"budgets": [{"scope": "service", "tokens": 100}]}) as collector:
        await post(collector, message.SerializeToString())
        assert (await flag(collector, "c", **spelled(healthy)))["known"] is False
        assert (await flag(collector, "c", **spelled(looping)))["level"] == "NUDGE"
        await post(collector, request(chat("x", (90, 0)), resource={key: one or "" for key, one in looping.items()}))
        for resource, used in ((looping, 0.9), (healthy, 0.0)):
            assert (await flag(collector, "new", service="app", **spelled(resource)))["budget"]["used"] == used


@given(st.lists(st.tuples(*[st.text("a/%2F5", max_size=4)] * 3), min_size=2, max_size=2, unique=True))
def test_different_values_are_different_tenants(values: list[tuple[str, ...]]) -> None:
    names = ("a", "b", "c")
    one, other = (tenant_of(dict(zip(names, some, strict=True)), names) for some in values)
    assert one != other


@pytest.mark.parametrize(
    ("resource", "tenant"),
    [
        ({NAMES[0]: "eu", NAMES[1]: "prod"}, "eu/prod"),
        ({NAMES[0]: "eu"}, "eu"),
        ({NAMES[1]: "prod"}, "/prod"),
        ({}, ""),
    ],
)
async def test_the_page_names_tenants_as_they_are_read_by_people(resource: dict[str, str], tenant: str) -> None:
    async with running() as collector, httpx.AsyncClient() as client:
        await post(collector, request(*loop(3), resource=resource))
        page = await client.get(f"{url(collector)}/debug/trajectories", params={"format": "json"})
        assert [one["tenant"] for one in page.json()["trajectories"]] == [tenant]


async def test_budgets_of_two_tenants_are_two_series() -> None:
    accounts = [
        ("eu/x", {}),
        ("x", {NAMES[0]: "eu"}),
        ("y", {NAMES[0]: "eu", NAMES[1]: "x"}),
        ("x/y", {NAMES[0]: "eu"}),
    ]
    async with running(guard={"budgets": [{"scope": "service", "tokens": 100}]}) as collector:
        for place, (service, resource) in enumerate(accounts):
            spans = chat(str(place), (10 + place, 0), trace=str(place))
            await post(collector, request(spans, service=service, resource=resource))
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{url(collector)}/metrics")).text
    found = re.findall(r'ratio\{.*budget_name="([^"]*)".*\} (\S+)', text)
    assert sorted(found) == [("eu%2Fx", "0.1"), ("eu/x", "0.11"), ("eu/x%2Fy", "0.13"), ("eu/x/y", "0.12")]


def test_saved_state_whose_key_may_be_that_of_two_tenants_is_not_read() -> None:
    scorer = new_scorer()
    scorer.score(request(*loop(3), resource={NAMES[0]: "prod"}))
    trajectory = scorer.registry.get(("prod", "c"))
    assert trajectory is not None
    data = codec.dump(trajectory, {})
    assert data is not None
    assert codec.load(data)[0].key == ("prod", "c")
    with pytest.raises(StateFormatError, match="version 5"):
        codec.load(data.replace(b'{"v":%d,"key"' % codec.FORMAT_VERSION, b'{"v":5,"key"'))


# --- one id of several tenants -------------------------------------------------------------------------------

CHOOSE = (
    "several tenants have a trajectory 'c': name the attributes of one in the query, "
    "resource.service.namespace=…&resource.deployment.environment.name=… "
    "(trajectory-guard flag: --resource service.namespace=…)"
)


async def two_tenants(collector: Collector) -> None:
    for tenant in ("eu", "us"):
        resource = {NAMES[0]: tenant, NAMES[1]: "prod"}
        await post(collector, request(*loop(2, prefix=tenant, trace=tenant), resource=resource))


async def test_an_id_of_several_tenants_is_no_unknown_one_and_the_reply_says_how_to_choose() -> None:
    async with running(flags=PEOPLE) as collector:
        await two_tenants(collector)
        for method, said in (("POST", STOP), ("DELETE", None)):
            reply = await ask(collector, method, said)
            assert (reply.status_code, reply.json()["error"]) == (409, CHOOSE)
        shown = await flag(collector, "c")
        assert (shown["known"], shown["level"], shown["ambiguous"]) == (False, "OBSERVE", CHOOSE)
        eu = {"resource.service.namespace": "eu", "resource.deployment.environment.name": "prod"}
        assert (await ask(collector, "POST", STOP, **eu)).status_code == 200
        levels = [
            (await flag(collector, "c", **{**eu, "resource.service.namespace": one}))["level"] for one in ("eu", "us")
        ]
        assert levels == ["STOP", "OBSERVE"]


async def test_a_tenant_that_has_no_such_trajectory_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with running(flags=PEOPLE) as collector:
        await two_tenants(collector)
        reply = await ask(collector, "POST", STOP, **{"resource.service.namespace": "eu"})
        assert (reply.status_code, reply.json()["error"]) == (
            404,
            "no trajectory 'c' of tenant 'eu' is known; service.namespace, deployment.environment.name make up the tenant",
        )
        only = {"resource.service.namespace": "asia"}
        await post(collector, request(*loop(2, conversation="d", trace="d"), resource={NAMES[0]: "eu"}))
        reply = await ask(collector, "DELETE", name="d", **only)
        assert (reply.status_code, reply.json()["error"][:47]) == (
            404,
            "no trajectory 'd' of tenant 'asia' is known; se",
        )
        assert "a gate of tenant" not in caplog.text  # a person asked
        assert "ambiguous" not in await flag(collector, "c", **only)
        assert "ambiguous" not in await flag(collector, "unknown")


@pytest.mark.parametrize("separate_by", [NAMES, []])
async def test_a_trace_around_several_conversations_is_no_unknown_name(separate_by: list[str]) -> None:
    async with running(flags=PEOPLE, trajectories={"separate_by": separate_by}) as collector:
        spans = [*loop(2), *loop(2, prefix="d", conversation="d")]
        await post(collector, request(*spans))
        trace = spans[0].trace_id.hex()
        for query in ({}, {"resource.service.namespace": ""}):
            reply = await ask(collector, "POST", STOP, name=trace, **query)
            why = f"several trajectories have the name '{trace}': ask for one by its id"
            assert (reply.status_code, reply.json()["error"]) == (409, why)
            assert (await flag(collector, trace, **query))["ambiguous"] == why


async def test_the_command_chooses_among_tenants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("people", encoding="utf-8")
    async with running(flags=PEOPLE) as collector:
        await two_tenants(collector)
        await post(collector, request(*loop(2, prefix="n", trace="n"), resource={NAMES[1]: "a=b/c&d é"}))

        async def command(action: str, *resource: str) -> int:
            words = [word for one in resource for word in ("--resource", one)]
            more = ["--reason", "enough"] if action == "raise" else []
            where = ["--collector", url(collector), "--token-file", str(token)]
            return await asyncio.to_thread(main, ["flag", action, "c", *where, *words, *more])

        assert await command("raise") == 2
        assert capsys.readouterr().err == f"trajectory-guard: flag raise: 409: {CHOOSE}\n"
        assert await command("show") == 0
        assert json.loads(capsys.readouterr().out)["ambiguous"] == CHOOSE
        us = ("service.namespace=us", "deployment.environment.name=prod")
        for some in (us, ("deployment.environment.name=a=b/c&d é", "service.namespace=")):
            for action, level in (("raise", "NUDGE"), ("show", "NUDGE"), ("clear", "OBSERVE")):
                assert await command(action, *some) == 0
                assert json.loads(capsys.readouterr().out)["level"] == level
        for wrong in ("us", "=us", ""):
            assert await command("show", wrong) == 2
            assert "--resource: expected KEY=VALUE, got " in capsys.readouterr().err
