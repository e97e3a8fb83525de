"""A real single-node Apache Kafka for tests, from the jars on Maven Central."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("confluent_kafka", reason="the extra 'fleet' is not installed")

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

VERSION: Final = "4.3.1"
DIRECTORY: Final = "KAFKA_DIR"
"""Variable that names the directory in which the jars are kept."""
REQUIRED: Final = "KAFKA_REQUIRED"
"""Variable that makes a missing Kafka a failure instead of a skipped test."""
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-run</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
log.segment.bytes=67108864
log.cleaner.dedupe.buffer.size=16777216
"""


def unavailable(reason: str) -> None:
    """Skip, with the reason; where nothing may be missing, fail."""
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


def jars() -> Path:
    """The directory with Kafka's jars; fetches them first if they are not there."""
    home = Path(os.environ.get(DIRECTORY) or Path(__file__).parents[2] / ".ci" / "tools" / "kafka")
    libs = home / "libs"
    if not (home / "complete").exists():
        if shutil.which("mvn") is None:
            unavailable(f"Maven is missing, and {DIRECTORY} ({home}) has no Kafka: apt-get install maven")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(_POM.format(version=VERSION))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            unavailable(f"Kafka {VERSION} cannot be fetched from Maven Central: {done.stdout.strip()[:300]}")
        (home / "complete").touch()
    return libs


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Broker:
    """A broker on a free port of this machine."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("java") is None:
            unavailable("Java is missing: apt-get install default-jre-headless (17 or newer)")
        self._libs = jars()
        self._directory = directory
        self.address = f"127.0.0.1:{(port := free_port())}"
        self._settings = directory / "server.properties"
        self._settings.write_text(
            _SETTINGS.format(port=port, controller=free_port(), data=directory / "data"), encoding="utf-8"
        )
        self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._settings))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _command(self, *arguments: str) -> list[str]:
        options = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return ["java", *options, "-cp", f"{self._libs}/*", *arguments]

    def _java(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        with (self._directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self._command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)
        until = time.monotonic() + 120.0
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while True:
            try:
                client.list_topics(timeout=2.0)
                return
            except KafkaException:  # noqa: PERF203
                if self.process.poll() is not None or time.monotonic() > until:
                    text = (self._directory / "server.log").read_text(errors="replace")
                    pytest.fail(f"Kafka does not start: {text[-2_000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
