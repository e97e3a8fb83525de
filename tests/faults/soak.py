"""A collector under steady load for minutes: ``python -m tests.faults.soak --minutes 10``.

Paced applications, loops among them, a backend that fails now and then, storage on. Prints what the process holds as
time goes on. Exit status 1 if memory grows (the last third of the time above the second third by more than 10 %), a
span is lost, or an error of its own was contained.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import grpc

from tests.bench import fleet_load
from tests.collector.kit import loop, request
from tests.faults.processes import Collector, eventually, started
from tests.faults.senders import GrpcSender
from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.otlp.signals import Signal

SPANS_PER_S = 5_000
SENDERS = 4
APPLICATION_S = 20.0
LOOP_STEPS = 20
LOOPING = 0.05
SAMPLE_S = 5.0
PRINTED_S = 30.0
GROWTH = 1.10
MIB = 1 << 20
TIMEOUT_S = 2.0
SICK = [
    (20.0, "healthy"),
    (3.0, "unavailable"),
    (20.0, "healthy"),
    (4.0, "silent"),
    (20.0, "healthy"),
    (3.0, "forgetful"),
]
"""Seconds of each mood of the backend, over and over. A forgetful one takes a batch and answers UNAVAILABLE."""


class Sample(NamedTuple):
    """One measurement: the process, its disk, and its own metrics."""

    seconds: float
    rss_mib: float
    fds: int
    threads: int
    disk_mib: float
    trajectories: int
    queue_mib: float
    sent: int
    received: int
    stops: int


class Backend:
    """Counts spans by id, in moods."""

    def __init__(self) -> None:
        self.ids: set[bytes] = set()
        self.mood = "healthy"
        self.port = 0

    async def export(self, data: bytes, context: Any) -> bytes:
        if self.mood == "unavailable":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if self.mood == "silent":
            await asyncio.sleep(2 * TIMEOUT_S)
        for group in Request.FromString(data).resource_spans:
            for scoped in group.scope_spans:
                self.ids.update(_span_id(span) for span in scoped.spans)
        if self.mood == "forgetful":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "what was that?")
        return b""

    async def change_moods(self) -> None:
        while True:
            for seconds, self.mood in SICK:
                await asyncio.sleep(seconds)


def _span_id(span: bytes) -> bytes:
    """Trace id and span id are the first fields of a span, and written first by every implementation."""
    assert span[:2] == b"\x0a\x10"
    assert span[18:20] == b"\x12\x08"
    return span[20:28]


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[Backend]:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(backend.export)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(Signal.TRACES.grpc_service, {"Export": handler}),)
    )
    backend.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield backend
    finally:
        await server.stop(0)


class Soak:
    """One run.

    Parameters:
        collector: started.
        backend: where it sends to.
        folder: its storage.
    """

    def __init__(self, collector: Collector, backend: Backend, folder: Path) -> None:
        self.collector = collector
        self.backend = backend
        self.folder = folder
        self.sent: set[bytes] = set()
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._applications = 0

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        moods = asyncio.create_task(self.backend.change_moods())
        work = [self._apply_load(end) for _ in range(SENDERS)]
        await asyncio.gather(*work, self._loop(end), self._watch(end))
        moods.cancel()
        self.backend.mood = "healthy"
        await eventually(lambda: self.collector.metric("otelcol_exporter_queue_size") == 0, "the queue is empty", 60.0)

    async def _apply_load(self, end: float) -> None:
        """An application after the other, each with conversations of its own."""
        sender = GrpcSender(self.collector.grpc_port)
        while time.monotonic() < end:
            self._applications += 1
            application = fleet_load.Sender(self._applications)
            until = min(end, time.monotonic() + APPLICATION_S)
            await self._paced(until, SENDERS * fleet_load.SPANS / SPANS_PER_S, application.next, sender.send)
        await sender.close()

    async def _loop(self, end: float) -> None:
        """Agents that repeat themselves, a share of all steps."""
        sender, number = GrpcSender(self.collector.grpc_port), 0
        steps_per_s = SPANS_PER_S / fleet_load.TOOL_EVERY * LOOPING

        def agent() -> bytes:
            nonlocal number
            number += 1
            name = f"looping-{number}"
            return request(*loop(LOOP_STEPS, prefix=f"{name}/", conversation=name, trace=name))

        await self._paced(end, LOOP_STEPS / steps_per_s, agent, sender.send)
        await sender.close()

    async def _paced(
        self, end: float, pause_s: float, make: Callable[[], bytes], send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        due = time.monotonic()
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            data = make()
            await send(data)
            groups = Request.FromString(data).resource_spans
            self.sent.update(_span_id(span) for group in groups for one in group.scope_spans for span in one.spans)
            due += pause_s

    async def _watch(self, end: float) -> None:
        print("".join(f"{name:>13}" for name in Sample._fields), flush=True)
        printed = 0.0
        while time.monotonic() < end:
            await asyncio.sleep(SAMPLE_S)
            sample = await asyncio.to_thread(self._sample)
            self.samples.append(sample)
            if sample.seconds - printed >= PRINTED_S:
                printed = sample.seconds
                print("".join(f"{value:13,.0f}" for value in sample), flush=True)

    def _sample(self) -> Sample:
        held, metric = self.collector.held(), self.collector.metric
        return Sample(
            seconds=time.monotonic() - self._began,
            rss_mib=held.rss / MIB,
            fds=held.fds,
            threads=held.threads,
            disk_mib=sum(file.stat().st_size for file in self.folder.iterdir()) / MIB,
            trajectories=int(metric("trajectory_guard_trajectories_active")),
            queue_mib=metric("otelcol_exporter_queue_size") / MIB,
            sent=len(self.sent),
            received=len(self.backend.ids),
            stops=int(metric("trajectory_guard_interventions_total", trajectory_guard_intervention="STOP")),
        )

    def faults(self) -> list[str]:
        """Violations of the soak's bounds, in words."""
        third = len(self.samples) // 3
        second = fmean(one.rss_mib for one in self.samples[third : 2 * third])
        last = fmean(one.rss_mib for one in self.samples[2 * third :])
        lost, errors = len(self.sent - self.backend.ids), self.collector.errors()
        print(f"RSS {second:.1f} MiB in the second third, {last:.1f} in the last ({last / second - 1:+.1%}); ", end="")
        print(f"{len(self.sent):,} spans sent, {lost} lost, {errors:.0f} errors")
        return [
            *([f"memory grew from {second:.1f} to {last:.1f} MiB"] if last > GROWTH * second else []),
            *([f"{lost} spans were lost"] if lost else []),
            *([f"{errors:.0f} errors"] if errors else []),
            *(["no loop was stopped"] if not self.samples[-1].stops else []),
        ]


async def soak(minutes: float) -> list[str]:
    """Run for some minutes; what was wrong."""
    # Bounds that are reached within the first third, so that what grows afterwards grows for ever.
    memory_s = minutes * 60 / 10
    sections = {
        "guard": {"idle_ttl_s": memory_s, "max_trajectories": 5_000},
        "trajectories": {"reorder_s": memory_s, "max_flagged": 1_000, "max_traces": 2_000},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serving(Backend()) as backend:
            exporters = {"otlp": {"endpoint": f"http://127.0.0.1:{backend.port}", "timeout_s": TIMEOUT_S}}
            queue = {"storage": str(folder / "queue"), "max_size_mib": 512}
            async with started(Collector(folder, exporters, queue=queue, **sections)) as collector:
                run = Soak(collector, backend, folder / "queue")
                await run.run(minutes * 60)
                return run.faults()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    faults = asyncio.run(soak(parser.parse_args().minutes))
    for fault in faults:
        print(f"FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
