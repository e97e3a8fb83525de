"""Lines are written in order and in full while somebody reads; else dropped, counted and reported, and nobody waits."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

from tests.faults.processes import poll
from trajectory_guard_collector.telemetry.line_writer import LineWriter
from trajectory_guard_collector.telemetry.logs import Output
from trajectory_guard_collector.telemetry.metrics import Metrics

SMALL_MIB = 0.01
NUMBERED = """
import logging, os, sys
from trajectory_guard_collector.telemetry import logs
output = logs.configure("info")
logs.log_uncaught()
for number in range(20_000):
    logging.info("%d", number)
    output.print_line(str(number))
{end}
"""
UNCAUGHT = """
import logging, threading, warnings
from trajectory_guard_collector.telemetry import logs
logs.configure("info")
logs.log_uncaught()

class Broken:
    def __del__(self):
        raise ValueError("in a finalizer")

warnings.warn("a warning")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
Broken()
logging.info("%d", "no number")
"""


class Pipe:
    """A pipe, written through a stream."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream: TextIO = os.fdopen(writer, "w", encoding="utf-8")

    def fill(self) -> int:
        """Leave no room; returns the number of bytes to read before there is."""
        os.set_blocking(self.stream.fileno(), False)
        filled = 0
        try:
            while True:
                filled += os.write(self.stream.fileno(), b"." * 4_096)
        except BlockingIOError:
            return filled
        finally:
            os.set_blocking(self.stream.fileno(), True)

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += os.read(self.reader, size - len(found))
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reader)


def run(code: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environ
    )


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "logging.shutdown(); os._exit(3)", "raise ValueError"])
def test_every_line_is_there_in_order_however_the_process_ends(end: str) -> None:
    done = run(NUMBERED.format(end=end))
    assert done.returncode == {"": 0, "raise ValueError": 1}.get(end, 3)
    numbers = [json.loads(line)["message"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert numbers == done.stdout.splitlines() == [str(number) for number in range(20_000)]


def test_what_python_would_write_by_itself_is_logged() -> None:
    done = run(UNCAUGHT)
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert [entry["logger"] for entry in entries if "a warning" in entry["message"]] == ["py.warnings"]
    by_end = {entry["exception"].splitlines()[-1]: entry["message"] for entry in entries if "exception" in entry}
    assert by_end["ZeroDivisionError: division by zero"] == "a thread has failed: worker"
    assert "Broken.__del__" in by_end["ValueError: in a finalizer"]
    assert by_end["TypeError: %d format: a real number is required, not str"] == "cannot be logged: '%d'"


def test_lines_that_nobody_reads_are_dropped_counted_and_reported_once(pipe: Pipe) -> None:
    filled, reports = pipe.fill(), []
    reported = threading.Event()

    def resumed(dropped: int) -> None:
        reports.append(dropped)
        reported.set()

    writer = LineWriter(pipe.stream, max_mib=SMALL_MIB, resumed=resumed)
    for number in range(1_000):
        writer.put(f"{number:099}")
    kept = 1_000 - writer.dropped
    assert 0 < kept <= SMALL_MIB * (1 << 20) / 100
    assert pipe.read(filled) == b"." * filled
    assert pipe.read(100 * kept).decode().splitlines() == [f"{number:099}" for number in range(kept)]
    assert reported.wait(30)
    writer.put("again")
    assert pipe.read(6) == b"again\n"
    writer.flush(30)
    assert reports == [writer.dropped] == [1_000 - kept]


def test_flushing_ends_though_nobody_reads_and_waits_no_second_time(pipe: Pipe) -> None:
    filled, writer = pipe.fill(), LineWriter(pipe.stream)
    writer.put("one")
    writer.flush(0.01)
    writer.flush(3_600.0)
    pipe.read(filled)
    assert pipe.read(4) == b"one\n"


def test_a_descriptor_that_does_not_block_gets_every_line_too(pipe: Pipe) -> None:
    """Whoever shares a terminal may have made it so; most programs lose lines then."""
    os.set_blocking(pipe.stream.fileno(), False)
    writer = LineWriter(pipe.stream)
    for number in range(5_000):
        writer.put(f"{number:099}")
    assert pipe.read(500_000).decode().splitlines() == [f"{number:099}" for number in range(5_000)]
    assert writer.dropped == 0


def test_a_stream_that_refuses_lines_costs_these_lines_and_no_others() -> None:
    class Refuses(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError("no space left on device")
            return super().write(text)

    stream = Refuses()
    reports: list[int] = []
    writer = LineWriter(stream, resumed=reports.append)
    writer.put("lost")
    writer.flush(30)
    stream.full = False
    writer.put("written")
    writer.flush(30)
    assert (writer.dropped, reports, stream.getvalue()) == (1, [1], "written\n")


def test_a_process_without_standard_error_discards_its_lines() -> None:
    writer = LineWriter(None)
    writer.put("a line")
    writer.flush(30)
    assert writer.dropped == 0


def test_dropped_lines_are_counted_for_each_stream_and_reported_in_the_log(pipe: Pipe) -> None:
    filled, log, metrics = pipe.fill(), io.StringIO(), Metrics()
    output = Output(max_mib=SMALL_MIB, stdout=pipe.stream, stderr=log)
    output.count_dropped(metrics)

    def counted(stream: str) -> float | None:
        metrics.refresh()
        return metrics.registry.get_sample_value("trajectory_guard_dropped_lines_total", {"stream": stream})

    assert (counted("stdout"), counted("stderr")) == (0.0, 0.0)
    for _ in range(200):
        output.print_line("x" * 99)
    dropped = counted("stdout")
    assert dropped
    pipe.read(filled + 100 * (200 - round(dropped)))
    poll(lambda: log.getvalue().endswith("\n"), "the log says so")
    entry: dict[str, Any] = json.loads(log.getvalue())
    assert (entry["level"], entry["dropped"], entry["stream"]) == ("warning", dropped, "stdout")
    assert entry["message"].startswith(f"{dropped:.0f} lines were dropped: nobody read standard output")
    assert (counted("stdout"), counted("stderr")) == (dropped, 0.0)
