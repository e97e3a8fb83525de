"""The collector and rotel as processes on localhost, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.rotel_binary import rotel_agent, rotel_environment, why_rotel_cannot_run

FULL = os.environ.get("FAULTS") == "full"
"""All tests, and ten times and more as many connections, steps and trajectories: ``make test-nightly``."""
only_full = pytest.mark.skipif(not FULL, reason="runs with FAULTS=full")
FAST = {"initial_interval_s": 0.05, "max_interval_s": 0.3}
_MIB = 1 << 20
_START_S = 30.0
_ID = rb"\n    ID             : (\w{16})\n    Name           : (?!trajectory_guard\.)"
_TAG = rb"\n     -> (trajectory_guard\.[\w.]+): \w+\((.*)\)"
_AFTER_NAME = b"\n    Kind           :"


class Resources(NamedTuple):
    """Resources of a process: file descriptors, threads, resident bytes."""

    fds: int
    threads: int
    rss: int


_given: set[int] = set()


def free_port() -> int:
    """A port nobody uses, given once, that no outgoing connection will be given before it is listened on."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port


def poll(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Return once something holds that nothing announces."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


_Started = TypeVar("_Started", bound="_Process")


class _Process(ABC):
    """A process that can be killed and started again with the same command."""

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.streams: dict[str, int] = {}
        """Descriptors for ``stdout`` and ``stderr`` in place of the log."""
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments to run."""

    @abstractmethod
    def start(self: _Started) -> _Started:
        """Run it, and return once it is there for others."""

    def launch(self) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, **self._environment}
        with self.log.open("ab") as log:
            streams: dict[str, Any] = {"stdout": log, "stderr": log, **self.streams}
            self._process = subprocess.Popen(self.command(), env=environment, **streams)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: nothing can be finished."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self, timeout_s: float = 40.0) -> int | None:
        """SIGTERM, and wait; the exit status."""
        if self._process is None:
            return None
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def held(self) -> Resources:
        process = psutil.Process(self.pid)
        return Resources(process.num_fds(), process.num_threads(), process.memory_info().rss)

    def limit_files(self, size: int) -> None:
        """No file may grow beyond this many bytes; -1 for any size."""
        psutil.Process(self.pid).rlimit(psutil.RLIMIT_FSIZE, (size, -1))

    def peak_rss(self) -> int:
        """Most resident bytes since the start, or since ``reset_peak``."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


class Collector(_Process):
    """``trajectory-guard-collector run``, on the same ports after every start."""

    def __init__(
        self, folder: Path, exporters: Mapping[str, Any], *, auth: Mapping[str, Any] | None = None,
        grpc: Mapping[str, Any] | None = None, http: Mapping[str, Any] | None = None,
        telemetry: Mapping[str, Any] | None = None, **sections: Any,
    ) -> None:  # fmt: skip
        super().__init__(folder / "collector.log")
        self._client = httpx.Client(timeout=20.0, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self.grpc_port, self.http_port, self.admin_port = free_port(), free_port(), free_port()
        self._config = folder / "collector.json"
        protocols = {
            "grpc": {"endpoint": f"127.0.0.1:{self.grpc_port}", **(grpc or {})},
            "http": {"endpoint": f"127.0.0.1:{self.http_port}", **(http or {})},
        }
        self._config.write_text(
            json.dumps({
                "receivers": {"otlp": {"protocols": protocols, **({"auth": auth} if auth else {})}},
                "telemetry": {"endpoint": f"127.0.0.1:{self.admin_port}", **(telemetry or {})},
                "exporters": {name: {"retry_on_failure": FAST, **section} for name, section in exporters.items()},
                **sections,
            })
        )  # fmt: skip

    def command(self) -> list[str]:
        return [sys.executable, "-m", "trajectory_guard_collector.cli", "run", "--config", str(self._config)]

    def start(self) -> Collector:
        self.launch()
        poll(self._started, "the collector is ready", _START_S)
        return self

    def _started(self) -> bool:
        assert self.running, self.log.read_text()[-2_000:]
        return self.ready() is None

    @property
    def grpc_target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def url(self, path: str = "/v1/traces") -> str:
        return f"http://127.0.0.1:{self.http_port}{path}"

    def _admin(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self._client.get(self.admin_url(path), headers=headers)

    def admin_url(self, path: str) -> str:
        """On the port of its telemetry and of flags."""
        return f"http://127.0.0.1:{self.admin_port}{path}"

    def ready(self) -> str | None:
        """None if it takes data, else why not."""
        try:
            answer = self._admin("/readyz")
        except httpx.TransportError as error:
            return f"no answer: {error}"
        return None if answer.status_code == 200 else str(answer.json()["reason"])

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the series with these labels."""
        families = text_string_to_metric_families(self._admin("/metrics").text)
        found = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(one.value for one in found if labels.items() <= one.labels.items())

    def errors(self) -> float:
        """Errors of its own that were contained."""
        return self.metric("trajectory_guard_errors_total")

    def flag(self, trajectory: str, **headers: str) -> dict[str, Any]:
        answer = self._admin(f"/v1/flags/{trajectory}", headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def rows(self, query: str = "") -> dict[str, dict[str, Any]]:
        """``/debug/trajectories``, by trajectory."""
        shown = self._admin(f"/debug/trajectories?format=json&limit=1000&q={query}").json()
        return {row["trajectory_id"]: row for row in shown["trajectories"]}


class Rotel(_Process):
    """rotel, an OTLP collector that is not ours. It writes every span it takes to its log, and forwards or drops it."""

    def __init__(self, folder: Path, *arguments: str, to: str | None = None, max_mib: int = 64) -> None:
        if why := why_rotel_cannot_run():
            pytest.skip(why)
        super().__init__(folder / f"rotel-{free_port()}.log", rotel_environment())
        self.grpc_port, self.http_port = free_port(), free_port()
        self._ids: Counter[str] = Counter()
        self._read = 0
        self._arguments = [*arguments, "--otlp-grpc-max-recv-msg-size-mib", str(max_mib)]
        self._arguments += ["--exporter", "otlp", "--otlp-exporter-endpoint", to] if to else ["--exporter", "blackhole"]

    def command(self) -> list[str]:
        return [
            str(rotel_agent()), "start",
            "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc_port}", "--otlp-http-endpoint", f"127.0.0.1:{self.http_port}",
            "--debug-log", "traces", "--debug-log-verbosity", "detailed", *self._arguments,
        ]  # fmt: skip

    def start(self) -> Rotel:
        self.launch()
        poll(lambda: is_listening(self.grpc_port) and is_listening(self.http_port), "rotel listens", _START_S)
        return self

    @property
    def grpc_url(self) -> str:
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def ids(self) -> Counter[str]:
        """How often each span was taken, by span id; the guard's own spans are left out."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        new = new[: new.rfind(_AFTER_NAME) + 1]
        self._read += len(new)
        self._ids.update(found.decode() for found in re.findall(_ID, new))
        return self._ids

    def tags(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each span taken: its id, and what the guard has written on it, as rotel prints it."""
        for part in self._spans():
            found = re.search(_ID, part)
            if found:
                yield found[1].decode(), _tags_in(part)

    def guard_spans(self) -> Iterator[dict[str, str]]:
        """The attributes of each span that is the guard's own."""
        yield from (_tags_in(part) for part in self._spans() if not re.search(_ID, part))

    def _spans(self) -> list[bytes]:
        return re.split(rb"\nSpan #\d+(?=\n)", self.log.read_bytes())[1:]

    def wait_for(self, ids: set[str], timeout_s: float) -> None:
        """Return once every one of these spans was taken."""
        end = time.monotonic() + timeout_s
        while missing := ids - self.ids().keys():
            assert time.monotonic() < end, f"{len(missing)} of {len(ids)} spans are lost"
            time.sleep(0.1)


def _tags_in(span: bytes) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in re.findall(_TAG, span)}


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def started(process: _Started) -> AsyncIterator[_Started]:
    """A process for the time of a test. The event loop turns meanwhile: a proxy in it may be what the process needs."""
    try:
        yield await asyncio.to_thread(process.start)
    finally:
        await asyncio.to_thread(process.stop)


async def eventually(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Return once something holds that nothing announces; the event loop turns meanwhile."""
    await asyncio.to_thread(poll, holds, what, timeout_s)


async def arrived(rotel: Rotel, ids: Iterable[str], timeout_s: float = 40.0) -> None:
    """Return once rotel has taken every one of these spans."""
    await asyncio.to_thread(rotel.wait_for, set(ids), timeout_s)
