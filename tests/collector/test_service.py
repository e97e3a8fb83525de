"""The collector as a whole, in the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.collector.backends import GrpcBackend, grpc_backend
from tests.collector.kit import HOURS, all_spans, loop, request, tool
from tests.collector.service_helpers import running, service_config
from trajectory_guard import telemetry
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.errors import StartError


def send_loop(collector: Collector, transport: str, calls: int = 5) -> None:
    """An application with an SDK exporter whose agent repeats itself."""
    endpoint = collector.endpoints[f"otlp/{transport}"]
    exporter: Any = (
        GrpcExporter(endpoint=endpoint, insecure=True)
        if transport == "grpc"
        else HttpExporter(endpoint=f"http://{endpoint}/v1/traces")
    )
    provider = TracerProvider(resource=Resource({"service.name": f"app-{transport}"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("POST /chat"):
        for _ in range(calls):
            with tracer.start_as_current_span("execute_tool search") as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", "search")
                span.set_attribute("gen_ai.conversation.id", f"conv-{transport}")
                span.set_attribute("gen_ai.tool.call.arguments", '{"q": 1}')
                span.set_attribute("gen_ai.tool.call.result", HOURS)
    provider.shutdown()


def taken(backend: GrpcBackend) -> list[Span]:
    return [span for _, data in backend.taken for span in all_spans(data)]


async def get(collector: Collector, path: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://{collector.endpoints['telemetry']}{path}")


@pytest.mark.parametrize("transport", ["grpc", "http"])
async def test_a_loop_is_found_tagged_printed_and_counted(transport: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with grpc_backend() as backend:
        exporters = {"otlp": {"endpoint": f"http://{backend.endpoint}"}, "debug": {}}
        async with running(exporters=exporters) as collector:
            await asyncio.to_thread(send_loop, collector, transport)
            rows = (await get(collector, "/debug/trajectories?format=json")).json()["trajectories"]
            metrics = (await get(collector, "/metrics")).text
    assert [(row["trajectory_id"], row["level"], row["service"]) for row in rows] == [
        (f"conv-{transport}", "STOP", f"app-{transport}")
    ]
    assert f'trajectory_guard_steps_total{{service_name="app-{transport}"}} 5.0' in metrics
    assert 'trajectory_guard_trajectories_by_score{bucket="stop"} 1.0' in metrics
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["loop", "NUDGE", "STOP"]
    levels = [
        item.value.string_value
        for span in taken(backend)
        for item in span.attributes
        if item.key == telemetry.INTERVENTION and span.name.startswith("execute_tool")
    ]
    assert sorted(levels) == ["NUDGE", "NUDGE", "OBSERVE", "STOP"]


async def test_a_sender_cannot_forge_a_printed_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "c\nSTOP      shop  other  score 5.00\x1b]0;title\x07\x9b2J\u202e"
    async with running() as collector:
        for one in loop(3, conversation=forged):
            await post(collector, request(one))
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == ["loop", "NUDGE"]
    assert all(line.isprintable() for line in shown.splitlines())


async def test_durations_that_stand_for_never_are_taken() -> None:
    never = 2**31 - 1
    keepalive = {f"{key}_s": never for key in ("max_connection_idle", "max_connection_age", "time", "timeout")}
    grpc_section = {"endpoint": "127.0.0.1:0", "read_timeout_s": never, "keepalive": keepalive}
    http_section = {"endpoint": "127.0.0.1:0", "read_timeout_s": never, "idle_timeout_s": never}
    retry = {"initial_interval_s": never, "max_interval_s": never}
    async with grpc_backend() as backend:
        exporter = {"endpoint": f"http://127.0.0.1:{backend.port}", "timeout_s": never, "retry_on_failure": retry}
        async with running(
            receivers={"otlp": {"protocols": {"grpc": grpc_section, "http": http_section}}},
            exporters={"otlp": exporter}, queue={"deadline_s": never}, shutdown_timeout_s=never,
        ) as collector:  # fmt: skip
            for transport in ("grpc", "http"):
                await asyncio.to_thread(send_loop, collector, transport)
        assert {span.name for span in taken(backend)} >= {"POST /chat", "execute_tool search"}


async def test_readiness_and_health_follow_the_life_of_the_service() -> None:
    collector = Collector(service_config())
    assert collector.ready() == "starting"
    await collector.start()
    assert (await get(collector, "/readyz")).status_code == 200
    assert (await get(collector, "/healthz")).status_code == 200
    await collector.stop()
    assert collector.ready() == "shutting down"
    await collector.stop()


async def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        protocols = {"http": {"endpoint": f"127.0.0.1:{port}"}}
        collector = Collector(service_config(receivers={"otlp": {"protocols": protocols}}))
        with pytest.raises(StartError, match=rf"protocols\.http\.endpoint.*{port}"):
            await collector.start()
        await collector.stop()


async def test_two_collectors_do_not_share_a_storage(tmp_path: Path) -> None:
    async with running(queue={"storage": str(tmp_path)}):
        other = Collector(service_config(queue={"storage": str(tmp_path)}))
        with pytest.raises(StartError, match=r"collector\.db"):
            await other.start()
        await other.stop()


@pytest.mark.parametrize("damage", ["DROP TABLE kv", "DROP TABLE journal", "UPDATE sqlite_master SET rootpage = 9999"])
async def test_a_storage_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    async with running(queue={"storage": str(tmp_path)}) as collector:
        await asyncio.to_thread(send_loop, collector, "http")
    with contextlib.closing(sqlite3.connect(tmp_path / "collector.db")) as database:
        database.executescript(f"PRAGMA writable_schema = ON; {damage};")
    collector = Collector(service_config(queue={"storage": str(tmp_path)}))
    with pytest.raises(StartError, match=rf"queue\.storage: {tmp_path}/collector\.db: "):
        await collector.start()
    await collector.stop()


async def test_scores_and_batches_survive_a_restart(tmp_path: Path) -> None:
    """The backend is down at first; the second collector delivers what the first one took."""
    data = [request(one) for one in loop(5)]
    async with grpc_backend() as backend:
        dead = {"otlp": {"endpoint": "http://127.0.0.1:1", "retry_on_failure": {"initial_interval_s": 0.05}}}
        async with running(queue={"storage": str(tmp_path)}, exporters=dead, shutdown_timeout_s=0.5) as first:
            for one in data[:4]:
                assert (await post(first, one)).status_code == 200
        alive = {"otlp": {"endpoint": f"http://{backend.endpoint}"}}
        async with running(queue={"storage": str(tmp_path)}, exporters=alive) as second:
            assert (await post(second, data[4])).status_code == 200
            row = (await get(second, "/debug/trajectories?format=json")).json()["trajectories"][0]
            assert (row["steps"], row["level"]) == (5, "STOP")
        await backend.until(lambda: len(backend.spans) >= 8)
    names = [span.name for span in taken(backend)]
    assert names.count("execute_tool search") == 5


@pytest.mark.slow
async def test_while_it_restores_it_is_alive_and_asks_senders_to_try_again(tmp_path: Path) -> None:
    """After a crash the write-ahead log is evaluated again: data comes back later, flags are not answered wrongly."""
    sent = [
        request(*(tool(f"{at}/{of}", conversation=f"c{of}", trace=f"c{of}", at=at) for of in range(40)))
        for at in range(100)
    ]
    queue = {"storage": str(tmp_path)}
    async with running(queue=queue) as first:
        for data in sent:
            assert (await post(first, data)).status_code == 200
    collector, listens = Collector(service_config(queue=queue)), asyncio.Event()
    starting = asyncio.create_task(collector.start(listens.set))
    try:
        await listens.wait()
        refused, unready, alive, flag, failed = await asyncio.gather(
            post(collector, sent[-1]), get(collector, "/readyz"), get(collector, "/healthz"),
            get(collector, "/v1/flags/c1"), refusal_of_grpc(collector, sent[-1]),
        )  # fmt: skip
        await starting
        assert (await get(collector, "/readyz")).status_code == 200
        assert (await post(collector, sent[-1])).status_code == 200
        row = (await get(collector, "/debug/trajectories?format=json&q=c1")).json()["trajectories"][0]
        level = (await get(collector, "/v1/flags/c1")).json()["level"]
    finally:
        await collector.stop()
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert alive.status_code == 200
    assert unready.status_code == 503
    assert unready.json()["reason"].startswith("restoring the saved state")
    assert (flag.status_code, "restoring the saved state" in flag.json()["error"]) == (503, True)
    assert failed.code() is grpc.StatusCode.UNAVAILABLE
    assert "google.rpc.retryinfo-bin" in dict(failed.trailing_metadata() or ())
    assert (row["steps"], level) == (100, "STOP")


async def refusal_of_grpc(collector: Collector, data: bytes) -> grpc.aio.AioRpcError:
    async with grpc.aio.insecure_channel(collector.endpoints["otlp/grpc"]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(data)
    return failed.value


async def test_stopped_while_it_restores_it_loses_and_publishes_nothing(tmp_path: Path) -> None:
    sent = [
        request(*(tool(f"{at}/{of}", conversation=f"c{of}", trace=f"c{of}", at=at) for of in range(40)))
        for at in range(30)
    ]
    queue = {"storage": str(tmp_path / "queue")}
    async with running(queue=queue) as first:
        for data in sent:
            assert (await post(first, data)).status_code == 200
    async with grpc_backend() as backend:
        exporters = {"otlp": {"endpoint": f"http://{backend.endpoint}"}}
        second, listens = Collector(service_config(queue=queue, exporters=exporters)), asyncio.Event()
        starting = asyncio.create_task(second.start(listens.set))
        await listens.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await second.stop()
        assert taken(backend) == []
        async with running(queue=queue, exporters=exporters) as third:
            rows = (await get(third, "/debug/trajectories?format=json")).json()["trajectories"]
    assert {(row["steps"], row["level"]) for row in rows} == {(30, "STOP")}
    assert len(rows) == 40


async def post(collector: Collector, data: bytes) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        headers = {"content-type": "application/x-protobuf"}
        return await client.post(f"http://{collector.endpoints['otlp/http']}/v1/traces", content=data, headers=headers)
