"""Workers on a real broker, each a process of its own: records in, verdicts out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

pytest.importorskip("confluent_kafka", reason="the extra 'fleet' is not installed")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.fleet.broker import free_port
from tests.fleet.kit import Record, compared
from tests.helpers import COLLECTOR_PACKAGE, PACKAGE
from trajectory_guard_collector.fleet.admin import Topology
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.topics import Roles

PARTITIONS = 4
PATIENCE_S = 120.0


_MOVED: Final = (
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip


def wait_until(condition: Callable[[], Any], what: Callable[[], str], seconds: float = PATIENCE_S) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


class Worker:
    """One process: a worker, or the program of another command."""

    def __init__(
        self, config: FleetConfig, directory: Path, name: str, file_bytes: int | None = None, command: str = "run"
    ) -> None:
        self.port, self.flags_port = free_port(), free_port()
        self._log = directory / f"{name}.log"
        file = directory / f"{name}.json"
        plain = config.model_dump(mode="json", exclude={"guard"})
        if (password := config.kafka.security.password) is not None:
            plain["kafka"]["security"]["password"] = password.get_secret_value()
        plain["state"]["dir"] = str(directory / f"state-{name}")
        plain["telemetry"]["endpoint"] = f"127.0.0.1:{self.port}"
        plain["flags"] = config.flags.model_dump(mode="json") | {"endpoint": f"127.0.0.1:{self.flags_port}"}
        plain["flags"]["auth"]["bearer_tokens"] = list(config.flags.auth.fixed) or None
        for key in ("public_key", "secret_key"):
            secret = getattr(config.langfuse, key)
            plain["langfuse"][key] = secret.get_secret_value() if secret is not None else None
        file.write_bytes(orjson.dumps(plain))
        self.restarts = 0
        self._file_bytes = file_bytes
        self._command = [sys.executable, "-m", "trajectory_guard_collector.fleet.cli", command, "--config", str(file)]
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(one.parent) for one in (PACKAGE, COLLECTOR_PACKAGE)),
        }
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        limit = ["prlimit", f"--fsize={self._file_bytes}"] if self._file_bytes is not None else []
        with self._log.open("ab") as log:
            return subprocess.Popen([*limit, *self._command], env=self._environ, stdout=log, stderr=log)

    def restart_if_failed(self) -> None:
        """As a supervisor does: status 1 asks for it."""
        if self.process.poll() == 1:
            self.restarts += 1
            self.process = self._started()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def flags_url(self) -> str:
        return f"http://127.0.0.1:{self.flags_port}"

    def get(self, path: str, base: str = "") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{base or f'http://127.0.0.1:{self.port}'}{path}", timeout=5.0) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def flag(self, name: str, **query: Any) -> dict[str, Any]:
        """The answer to a gate."""
        path = f"/v1/flags/{urllib.parse.quote(name, safe='')}?{urllib.parse.urlencode(query)}"
        status, text = self.get(path, self.flags_url)
        assert status == 200, (status, text, self.log[-2_000:])
        return dict(orjson.loads(text))

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"the worker ended: {self.log[-2_000:]}"
        return self.get("/readyz")[0] == 200

    def wait_until_ready(self) -> None:
        wait_until(self.is_ready, lambda: f"not ready: {self.log[-2_000:]}")

    def metric(self, name: str) -> float:
        """The sum of all series of a metric."""
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def terminate(self) -> int:
        """Ask it to stop, once it listens: a Python that has not begun with the program dies of the signal."""
        wait_until(lambda: self.process.poll() is not None or self.get("/metrics")[0] == 200, lambda: self.log[-2_000:])
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the worker does not stop: {self.log[-2_000:]}") from None


class FleetRun:
    """Topics and a group of their own, and the workers on them."""

    def __init__(
        self, address: str, directory: Path, name: str, sections: Mapping[str, Any] | None = None, **processing: Any
    ) -> None:
        self.address, self._directory = address, directory
        names = {role: f"{name}-{role}" for role in Roles._fields}
        given = dict(sections or {})
        self.config = FleetConfig.model_validate({
            "kafka": {"brokers": address.split(","), "group": name, "session_timeout_s": 6.0},
            "topics": {**names, "partitions": PARTITIONS, **given.pop("topics", {})},
            "processing": {"commit_interval_s": 0.5, **processing},
            **given,
        })  # fmt: skip
        Topology(self.config).create_missing()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "partitioner": "murmur2",
                "log_level": 0,
                "reconnect.backoff.max.ms": 1_000,
                "linger.ms": 5,
            }
        )
        self.workers: list[Worker] = []
        self.records: dict[str, list[Any]] = {}
        self._readers: dict[str, Consumer] = {}

    def start(self, name: str, *, file_bytes: int | None = None, command: str = "run", **kafka: Any) -> Worker:
        config = self.config.model_copy(update={"kafka": self.config.kafka.model_copy(update=kafka)})
        worker = Worker(config, self._directory, name, file_bytes, command)
        self.workers.append(worker)
        return worker

    def state_of(self, name: str) -> Path:
        """The state directory of a worker."""
        return self._directory / f"state-{name}"

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
        for reader in self._readers.values():
            reader.close()

    # --- records ---------------------------------------------------------------------------------------------

    def feed(self, records: Iterable[Record], at_ms: Callable[[int], int] = lambda nth: 0) -> None:
        """Write records; ``at_ms``: time of each in milliseconds since the epoch, 0 for now."""
        for nth, (key, value) in enumerate(records):
            self._producer.produce(self.config.topics.spans, value, key, timestamp=at_ms(nth))
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _reader(self, topic: str) -> Consumer:
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = Consumer({
                "bootstrap.servers": self.address, "group.id": "none", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 1_000, "log_level": 0,
            })  # fmt: skip
            reader.assign([TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
        return reader

    def read(self, topic: str) -> list[Any]:
        """All messages of a topic by now, as they are."""
        found = self._reader(topic).consume(5_000, 0.2)
        return [one for one in found if one.error() is None]

    def dead_letters(self) -> list[Any]:
        """All dead letters by now."""
        known = self.records.setdefault("dead_letters", [])
        while new := self.read(self.config.topics.dead_letters):
            known += new
        return known

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self._producer.produce(topic, value, key)
        assert self._producer.flush(60) == 0

    def verdicts(self) -> list[dict[str, Any]]:
        """All verdict records by now."""
        known = self.records.setdefault("verdicts", [])
        while new := self.read(self.config.topics.verdicts):
            known += [orjson.loads(one.value()) for one in new]
        return known

    def is_drained(self) -> bool:
        """Whether the group has committed every record of both stages."""
        topics = (self.config.topics.spans, self.config.topics.operations)
        client = Consumer({
            "bootstrap.servers": self.address, "group.id": self.config.kafka.group, "enable.partition.eof": True,
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0,
        })  # fmt: skip
        try:
            wanted = [TopicPartition(topic, one) for topic in topics for one in range(PARTITIONS)]
            try:
                committed = client.committed(wanted, timeout=10.0)
            except KafkaException as error:  # the group's coordinator has just moved
                if error.args[0].code() in _MOVED:
                    return False
                raise
            client.assign([TopicPartition(one.topic, one.partition, max(0, one.offset)) for one in committed])
            ended: set[tuple[str, int]] = set()
            until = time.monotonic() + 10.0
            while len(ended) < len(wanted) and time.monotonic() < until:
                message = client.poll(0.2)
                if message is None:
                    continue
                if message.error() is None:
                    return False  # a record that is not committed; markers of transactions are no records
                if message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
            return len(ended) == len(wanted)
        finally:
            client.close()

    def wait_for(self, expected: Mapping[str, Mapping[str, Any]], *, supervised: bool = False) -> None:
        """Wait until every record is committed. The verdicts that hold then are those of one process."""

        self.wait_for_verdicts(expected, 1.0, supervised=supervised)

        def is_done() -> bool:
            self._supervise(supervised)
            return self.is_drained()

        wait_until(is_done, lambda: f"not drained; logs: {self._logs()}")
        assert compared(self.verdicts(), expected) == (0, 0, 0), self._logs()

    def wait_for_verdicts(
        self, expected: Mapping[str, Mapping[str, Any]], share: float, *, supervised: bool = False
    ) -> None:
        """Wait until there is a verdict on so many of the steps."""

        def are_there() -> bool:
            self._supervise(supervised)
            return compared(self.verdicts(), expected)[0] <= (1.0 - share) * len(expected)

        wait_until(
            are_there,
            lambda: f"missing, extra, different: {compared(self.verdicts(), expected)}; logs: {self._logs()}",
        )

    def _supervise(self, supervised: bool) -> None:
        if not supervised:
            assert any(worker.process.poll() is None for worker in self.workers), f"no worker lives: {self._logs()}"
            return
        for worker in self.workers:
            worker.restart_if_failed()

    def _logs(self) -> str:
        return "\n".join(worker.log[-1_500:] for worker in self.workers)
