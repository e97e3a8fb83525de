"""Nobody reads standard error or standard output: the collector goes on, counts the lines it drops, and can be stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collector.kit import loop, request
from tests.collector.test_cli import SERVICE
from tests.faults.processes import Collector, poll
from tests.faults.senders import GrpcSender, HttpSender, Sender

DROPPED = "trajectory_guard_dropped_lines_total"
SMALL = {"max_unwritten_mib": 0.01}
LINES_OF_A_LOOP = 3
"""The debug exporter prints that a loop begins, the nudge and the stop."""


class FullPipe:
    """A pipe without room. It can be read later."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        for size in (4_096, 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(self.writer, b"\n" * size)
        os.set_blocking(self.writer, True)  # the flag belongs to the pipe, not to the descriptor
        self._read = b""
        self._thread: threading.Thread | None = None

    def drain(self) -> None:
        """Read from now on."""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self._reader, 65_536):
            self._read += data

    def lines(self) -> list[str]:
        """Whole lines that were read."""
        return [line.decode() for line in self._read[: self._read.rfind(b"\n") + 1].splitlines() if line]

    def close(self) -> None:
        os.close(self.writer)
        if self._thread is not None:
            self._thread.join(10)
        os.close(self._reader)


@contextmanager
def unread(folder: Path, streams: tuple[str, ...], exporter: dict[str, Any]) -> Iterator[tuple[Collector, FullPipe]]:
    """A collector that writes these streams to a full pipe; it waits for no reader when it starts."""
    pipe = FullPipe()
    collector = Collector(folder, {"debug": exporter}, telemetry=SMALL)
    collector.streams = dict.fromkeys(streams, pipe.writer)
    try:
        yield collector.start(), pipe
    finally:
        if collector.running:
            collector.kill()
        pipe.close()


async def send_loops(collector: Collector, count: int) -> None:
    """Loops of one conversation each, half of them over each protocol."""
    senders: list[Sender] = [GrpcSender(collector.grpc_port), HttpSender(collector.url())]
    for at in range(count):
        data = request(*loop(8, prefix=f"{at}-", conversation=f"c{at}", trace=f"t{at}"))
        await senders[at % 2].send(data, within_s=20.0)
    for sender in senders:
        await sender.close()


def healthy(collector: Collector) -> bool:
    return httpx.get(collector.admin_url("/healthz"), timeout=20.0).status_code == 200


def handles_signals(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    handled = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(handled.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def told(lines: list[str], stream: str) -> int:
    """The number of lines that were dropped, as the log says it."""
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return sum(entry["dropped"] for entry in entries if entry.get("stream") == stream)


@pytest.mark.parametrize(
    ("streams", "verbosity"),
    [
        pytest.param(("stderr",), "verdicts", marks=pytest.mark.smoke),
        (("stdout",), "verdicts"),
        (("stdout",), "batches"),
        (("stdout", "stderr"), "batches"),
    ],
)
def test_a_reader_that_stalls_stops_nothing(tmp_path: Path, streams: tuple[str, ...], verbosity: str) -> None:
    loops = 60
    with unread(tmp_path, streams, {"verbosity": verbosity}) as (collector, pipe):
        asyncio.run(send_loops(collector, loops))
        assert healthy(collector)
        assert collector.ready() is None
        assert collector.metric("otelcol_receiver_accepted_spans_total") == 8 * loops
        assert all(collector.metric(DROPPED, stream=stream) > 0 for stream in streams)
        pipe.drain()
        log = pipe.lines if "stderr" in streams else lambda: collector.log.read_text().splitlines()
        for stream in streams:
            dropped = collector.metric(DROPPED, stream=stream)
            poll(lambda: told(log(), stream) == dropped, "the log says how many lines were dropped")  # noqa: B023
        if streams == ("stdout",):
            printed = loops * (LINES_OF_A_LOOP + (verbosity == "batches"))
            poll(lambda: len(pipe.lines()) + told(log(), "stdout") == printed, "each line is read or counted")
        asyncio.run(send_loops(collector, 1))
        assert collector.stop() == 0
        assert any('"stopped"' in line for line in log())


@pytest.mark.parametrize("streams", [("stderr",), ("stdout",), ("stdout", "stderr")])
def test_sigterm_ends_a_collector_whose_reader_has_stalled(tmp_path: Path, streams: tuple[str, ...]) -> None:
    with unread(tmp_path, streams, {}) as (collector, _):
        asyncio.run(send_loops(collector, 2))
        started = time.monotonic()
        assert collector.stop() == 0
        assert time.monotonic() - started < 25.0  # shutdown_timeout_s


def test_a_second_sigterm_ends_it_at_once_though_nobody_reads() -> None:
    pipe = FullPipe()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SERVICE, "hangs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipe.writer, env=environ) as process:
        assert process.stdout is not None
        try:
            poll(lambda: handles_signals(process.pid), "it listens")
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == b"stopping\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 1
        finally:
            process.kill()
            pipe.close()


@pytest.mark.parametrize("override", ["queue.storag=/data", "memory_limiter.limit_mib=10"])
def test_a_bad_configuration_is_status_2_though_nobody_reads(override: str) -> None:
    pipe = FullPipe()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "trajectory_guard_collector.cli", "run", "--set", override]
    with subprocess.Popen(command, stderr=pipe.writer, env=environ) as process:
        try:
            assert process.wait(60) == 2
        finally:
            process.kill()
            pipe.close()
