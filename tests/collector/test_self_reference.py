"""Collectors that would send to themselves, directly or in a circle."""

from __future__ import annotations

import socket

import httpx
import pytest
from pydantic import ValidationError

from tests.collector.receiver_helpers import eventually, traces
from tests.collector.service_helpers import running, service_config
from trajectory_guard_collector.config.headers import VIA
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.gateway.hops import Hops
from trajectory_guard_collector.otlp.signals import Signal

HOST = socket.gethostname()


def config(receiver: str, exporter: str, kind: str) -> CollectorConfig:
    protocols = {"http": {"endpoint": receiver}} if kind == "otlphttp" else {"grpc": {"endpoint": receiver}}
    tls = {"tls": {"insecure": True}} if kind == "otlp" and "://" not in exporter else {}
    return CollectorConfig.model_validate({
        "receivers": {"otlp": {"protocols": protocols}}, "exporters": {kind: {"endpoint": exporter, **tls}},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("receiver", "exporter", "kind"),
    [
        *(("localhost:5001", f"http://{host}:5001", "otlphttp") for host in
          ("localhost", "LOCALHOST.", "127.0.0.1", "127.1", "127.8.8.8", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]")),
        *((receiver, f"http://{HOST}:5001/base", "otlphttp") for receiver in ("0.0.0.0:5001", ":5001", "[::]:5001")),
        *(("0.0.0.0:5001", endpoint, "otlp") for endpoint in
          ("localhost:5001", "http://127.0.0.1:5001", "dns:///localhost:5001", "ipv4:127.0.0.1:5001", "dns:localhost:5001")),
        ("localhost:4317", "http://localhost", "otlp"),
        ("localhost:80", "http://localhost", "otlphttp"),
    ],
)  # fmt: skip
def test_an_exporter_to_the_own_receiver_is_refused(receiver: str, exporter: str, kind: str) -> None:
    with pytest.raises(ValidationError, match="own receiver") as raised:
        config(receiver, exporter, kind)
    (mistake,) = raised.value.errors()
    assert mistake["loc"] == ("exporters", kind, "endpoint")
    assert "receivers.otlp.protocols." in mistake["msg"]


@pytest.mark.parametrize(
    ("receiver", "exporter"),
    [
        ("localhost:5001", "http://localhost:5002"),
        ("0.0.0.0:5001", "http://tempo:5001"),
        ("0.0.0.0:5001", "http://192.0.2.7:5001"),
        ("192.0.2.7:5001", "http://localhost:5001"),
        ("localhost:0", "http://localhost:80"),
    ],
)
def test_other_endpoints_are_fine(receiver: str, exporter: str) -> None:
    assert config(receiver, exporter, "otlphttp")


@pytest.mark.parametrize("kind", ["otlp", "otlphttp"])
async def test_a_circle_of_two_collectors_comes_to_rest(kind: str) -> None:
    protocol = "otlp/grpc" if kind == "otlp" else "otlp/http"
    with socket.create_server(("127.0.0.1", 0)) as kept:  # the first one's address, before it can be known
        port = kept.getsockname()[1]
    tls = {"tls": {"insecure": True}} if kind == "otlp" else {}
    scheme = "" if kind == "otlp" else "http://"
    back = {kind: {"endpoint": f"{scheme}127.0.0.1:{port}", **tls}}
    async with running(exporters=back) as second:
        on = {kind: {"endpoint": f"{scheme}{second.endpoints[protocol]}", **tls}}
        key = protocol.partition("/")[2]
        protocols = service_config().receivers.model_dump()["otlp"]["protocols"]
        protocols[key]["endpoint"] = f"127.0.0.1:{port}"
        async with running(exporters=on, receivers={"otlp": {"protocols": protocols}}) as first:

            def dropped() -> float:
                labels = {"trajectory_guard_error_where": "receiver.loop"}
                return first.metrics.registry.get_sample_value("trajectory_guard_errors_total", labels) or 0.0

            async with httpx.AsyncClient() as client:
                await client.post(
                    f"http://{first.endpoints['otlp/http']}/v1/traces",
                    content=traces(5).SerializeToString(),
                    headers={"content-type": "application/x-protobuf"},
                )
            await eventually(lambda: dropped() == 1.0)
            accepted = "otelcol_receiver_accepted_spans_total"
            labels = {"receiver": "otlp", "transport": key}
            again = first.metrics.registry.get_sample_value(accepted, labels) or 0.0
            assert again == (5.0 if key == "http" else 0.0)


def test_what_is_not_an_identity_is_not_passed_on() -> None:
    hops, other = Hops(), Hops()
    assert not hops.comes_back(Signal.TRACES, "x" * 100_000 + ",evil\r\nheader: 1,")
    assert hops.header(Signal.TRACES) == hops.own
    assert not hops.comes_back(Signal.TRACES, other.header(Signal.TRACES))
    assert other.comes_back(Signal.TRACES, hops.header(Signal.TRACES))
    assert VIA.islower()


def test_collectors_that_send_each_other_different_signals_are_no_circle() -> None:
    here, there = Hops(), Hops()
    assert not here.comes_back(Signal.TRACES, there.header(Signal.TRACES))
    assert not there.comes_back(Signal.METRICS, here.header(Signal.METRICS))
    assert not here.comes_back(Signal.TRACES, there.header(Signal.TRACES))
    assert there.comes_back(Signal.TRACES, here.header(Signal.TRACES))


def test_collectors_before_this_one_are_forgotten_after_a_while() -> None:
    now = 0.0
    hops = Hops(clock=lambda: now)
    hops.comes_back(Signal.TRACES, Hops().own)
    assert "," in hops.header(Signal.TRACES)
    now = 601.0
    assert hops.header(Signal.TRACES) == hops.own


def test_collectors_before_this_one_are_bounded() -> None:
    hops = Hops()
    for _ in range(100):
        hops.comes_back(Signal.TRACES, Hops().own)
    assert len(hops.header(Signal.TRACES).split(",")) == 33
