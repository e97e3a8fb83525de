"""kill -9 while receiving: nothing acknowledged is lost, nothing unacknowledged is forgotten, scores go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.collector.kit import request, score_all, span, tool
from tests.faults.expected import assert_ends, finding_in, finding_of, last_of
from tests.faults.processes import Collector, Rotel, arrived, eventually, started
from tests.faults.senders import GrpcSender, HttpSender, Sender, assert_well, ids

STEPS = 30


def conversation(name: str) -> list[bytes]:
    """Loops, recovers, and loops again; other spans around each step."""
    requests = []
    for at in range(STEPS):
        fresh = at % 10 in (5, 6, 7)
        args, result = ({"q": at}, f"answer {at}") if fresh else ({"q": "same"}, "nothing")
        step = tool(f"{name}-{at}", args, result, conversation=name, trace=name, at=at)
        others = [span(f"{name}-{at}/{of}", {"k": "v"}, trace=name, at=at) for of in range(9)]
        requests.append(request(step, *others))
    return requests


class Load:
    """Senders at work, each with a conversation."""

    def __init__(self, collector: Collector) -> None:
        self.conversations = {f"conv-{number}": conversation(f"conv-{number}") for number in range(4)}
        self.acknowledged = 0
        self._collector = collector
        self._enough = asyncio.Event()

    @property
    def requests(self) -> list[bytes]:
        return [data for requests in self.conversations.values() for data in requests]

    async def run(self) -> None:
        await asyncio.gather(*(self._send(at, one) for at, one in enumerate(self.conversations.values())))

    async def _send(self, number: int, requests: Sequence[bytes]) -> None:
        target = self._collector
        sender: Sender = (
            GrpcSender(target.grpc_port) if number % 2 else HttpSender(target.url(), compressed=number == 0)
        )
        for data in requests:
            await sender.send(data)
            self.acknowledged += 1
            self._enough.set()
        await sender.close()

    async def until(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged:
            self._enough.clear()
            await asyncio.wait_for(self._enough.wait(), 30)

    async def with_kills(self, kills: int) -> None:
        """Everything is sent while the collector is killed now and then."""
        sending = asyncio.create_task(self.run())
        for number in range(1, kills + 1):
            await self.until(number * len(self.requests) // (kills + 1))
            self._collector.kill()
            await asyncio.to_thread(self._collector.start)
        await sending


def wanted(load: Load) -> set[str]:
    return {one for data in load.requests for one in ids(data)}


async def test_with_storage_nothing_acknowledged_is_lost_and_scores_go_on(tmp_path: Path) -> None:
    queue = {"storage": str(tmp_path / "queue")}
    async with (
        started(Rotel(tmp_path)) as rotel,
        started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, queue=queue)) as collector,
    ):
        load = Load(collector)
        await load.with_kills(3)
        await arrived(rotel, wanted(load))

        expected = score_all(load.requests)
        tags = list(rotel.tags())
        seen = {one: finding_in(found) for one, found in tags}
        assert {one: seen[one] for one in expected} == {one: finding_of(verdict) for one, verdict in expected.items()}
        assert all(finding_in(found) == seen[one] for one, found in tags), "a span was tagged twice, and differently"
        await assert_ends(collector, last_of(expected))
        assert {verdict.level.value for verdict in expected.values()} == {"OBSERVE", "NUDGE", "STOP"}
        assert collector.errors() == 0
        await assert_well(collector, "after the kills")


async def test_killed_while_the_backend_is_down_everything_acknowledged_arrives_later(tmp_path: Path) -> None:
    queue = {"storage": str(tmp_path / "queue")}
    rotel = Rotel(tmp_path)
    async with started(Collector(tmp_path, {"otlphttp": {"endpoint": rotel.http_url}}, queue=queue)) as collector:
        load = Load(collector)
        await load.with_kills(1)
        assert collector.metric("otelcol_exporter_queue_size") > 0
        collector.kill()
        async with started(rotel):
            await asyncio.to_thread(collector.start)
            await arrived(rotel, wanted(load))
            assert collector.errors() == 0


async def test_without_storage_senders_have_what_was_not_acknowledged(tmp_path: Path) -> None:
    async with (
        started(Rotel(tmp_path)) as rotel,
        started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}})) as collector,
    ):
        load = Load(collector)
        await load.with_kills(1)
        await arrived(rotel, wanted(load))
        await assert_well(collector, "after the kills")


class Application:
    """A process of somebody else's, instrumented with OpenTelemetry's SDK."""

    def __init__(self, exporter: Any) -> None:
        self.made: set[str] = set()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=20, max_queue_size=100_000)
        )
        self._tracer = self._provider.get_tracer("app")
        self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            with self._tracer.start_as_current_span("work") as one:
                self.made.add(f"{one.get_span_context().span_id:016x}")
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self._working.cancel()
        await asyncio.to_thread(self._provider.shutdown)


async def test_the_sdk_retries_what_a_killed_collector_had_not_acknowledged(tmp_path: Path) -> None:
    async with (
        started(Rotel(tmp_path)) as rotel,
        started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}})) as collector,
    ):
        applications = [
            Application(GrpcExporter(endpoint=collector.grpc_target, insecure=True, timeout=30)),
            Application(HttpExporter(endpoint=collector.url(), timeout=30)),
        ]
        await eventually(lambda: len(rotel.ids()) > 200, "some have arrived")
        collector.kill()
        await asyncio.to_thread(collector.start)
        before = len(rotel.ids())
        await eventually(lambda: len(rotel.ids()) > 2 * before, "more have arrived")
        await asyncio.gather(*(application.stop() for application in applications))
        made = {one for application in applications for one in application.made}
        await arrived(rotel, made)
        assert made <= rotel.ids().keys()
