"""A real Apache Kafka for tests, from the jars on Maven Central: one node, or several."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytest.importorskip("confluent_kafka", reason="the extra 'fleet' is not installed")

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

VERSION: Final = "4.3.1"
DIRECTORY: Final = "KAFKA_DIR"
"""Variable that names the directory in which the jars are kept."""
REQUIRED: Final = "KAFKA_REQUIRED"
"""Variable that makes a missing Kafka a failure instead of a skipped test."""
PATIENCE_S: Final = 120.0
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-run</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.segment.bytes": "67108864",
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_REPLICATION: Final = (
    "default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
)  # fmt: skip
_IN_SYNC: Final = ("min.insync.replicas", "transaction.state.log.min.isr")


def unavailable(reason: str) -> None:
    """Skip, with the reason; where nothing may be missing, fail."""
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


class NoKafkaError(Exception):
    """Kafka cannot be run here, and why."""


def jars() -> Path:
    """The directory with Kafka's jars; fetches them first if they are not there.

    Raises:
        NoKafkaError: Java or Maven is missing, or Maven Central is out of reach.
    """
    if shutil.which("java") is None:
        raise NoKafkaError("Java is missing: apt-get install default-jre-headless (17 or newer)")
    home = Path(os.environ.get(DIRECTORY) or Path(__file__).parents[2] / ".ci" / "tools" / "kafka")
    libs = home / "libs"
    if not (home / "complete").exists():
        if shutil.which("mvn") is None:
            raise NoKafkaError(f"Maven is missing, and {DIRECTORY} ({home}) has no Kafka: apt-get install maven")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(_POM.format(version=VERSION))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise NoKafkaError(f"Kafka {VERSION} cannot be fetched from Maven Central: {done.stdout.strip()[:300]}")
        (home / "complete").touch()
    return libs


def free_port() -> int:
    """A port that nobody listens on, below those of outgoing connections: one of them could take the port of a server
    that is being started again."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Nodes(NamedTuple):
    """The nodes of a cluster: ports of their controllers by id."""

    controllers: Mapping[int, int]

    @property
    def voters(self) -> str:
        """``controller.quorum.voters``."""
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.controllers.items())

    def settings(self) -> dict[str, str]:
        """Every record on all nodes; one of several may be missing."""
        count = len(self.controllers)
        return {**dict.fromkeys(_REPLICATION, str(count)), **dict.fromkeys(_IN_SYNC, str(max(1, count - 1)))}


class Broker:
    """A node that is broker and controller, on free ports of this machine.

    Parameters:
        directory: where its settings, its log and its data are.
        node, nodes: which one of a cluster it is; alone by default.
        listeners: security protocols of further listeners, by name; ``listening`` has their addresses.
        settings: further settings.
        users: passwords of SCRAM users.

    Raises:
        NoKafkaError: Kafka cannot be run here.
    """

    def __init__(
        self,
        directory: Path,
        *,
        node: int = 1,
        nodes: Nodes | None = None,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._libs, self._directory = jars(), directory
        nodes = nodes or Nodes({node: free_port()})
        self.listening = {name: f"127.0.0.1:{free_port()}" for name in ("PLAINTEXT", *(listeners or {}))}
        self.address = self.listening["PLAINTEXT"]
        addresses = ",".join(f"{name}://{address}" for name, address in self.listening.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(listeners or {})}
        self._settings = directory / "server.properties"
        lines = {
            **_SETTINGS,
            **nodes.settings(),
            "node.id": str(node),
            "controller.quorum.voters": nodes.voters,
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{nodes.controllers[node]}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "log.dirs": str(directory / "data"),
            **(settings or {}),
        }
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        scram = [
            part
            for name, password in (users or {}).items()
            for part in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]")
        ]
        format_ = ["format", "-t", _CLUSTER_ID, "-c", str(self._settings), *scram]
        subprocess.run(self._java("kafka.tools.StorageTool", *format_), check=True, capture_output=True, timeout=120)
        self.process: subprocess.Popen[bytes] | None = None

    def _java(self, *arguments: str) -> list[str]:
        # The first compiler alone: a broker that lives for minutes on shared cores does not earn the second one's work.
        options = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", *options, logging, "-cp", f"{self._libs}/*", *arguments]

    def launch(self) -> None:
        """Start, or start again, without waiting."""
        with (self._directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self._java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        self.launch()
        self.wait()

    def wait(self, brokers: int = 1) -> None:
        """Wait until it answers, and knows of so many brokers."""
        assert self.process is not None
        until = time.monotonic() + PATIENCE_S
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while True:
            try:
                if len(client.list_topics(timeout=2.0).brokers) >= brokers:
                    return
            except KafkaException:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                text = (self._directory / "server.log").read_text(errors="replace")
                pytest.fail(f"Kafka does not start: {text[-2_000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End at once, as a machine that fails."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def restart(self) -> None:
        """End as it should, as for an update, and start again."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.start()

    def stop(self) -> None:
        """End; nothing on its disk is needed any more, so it is not asked to put that in order."""
        if self.process is not None:
            self.kill()


def started_cluster(directory: Path, count: int) -> list[Broker]:
    """Brokers that hold every record each, all of them started.

    Raises:
        NoKafkaError: Kafka cannot be run here.
    """
    nodes = Nodes({node: free_port() for node in range(1, count + 1)})

    def made(node: int) -> Broker:
        place = directory / f"node-{node}"
        place.mkdir()
        return Broker(place, node=node, nodes=nodes)

    with ThreadPoolExecutor(count) as pool:
        brokers = list(pool.map(made, nodes.controllers))
    for one in brokers:
        one.launch()
    for one in brokers:
        one.wait(count)
    return brokers


def addresses(brokers: Sequence[Broker]) -> str:
    """``bootstrap.servers``."""
    return ",".join(one.address for one in brokers)
