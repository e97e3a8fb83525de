"""A true OpenTelemetry Collector before the worker and behind it, configured as ``docs/fleet.md`` says.

Skipped unless ``OTELCOL`` names its binary; ``tests/faults/test_otel_collector.py`` says how to build one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.recorded_load import recorded_load
from tests.faults.processes import _Process, is_listening, poll
from tests.fleet.broker import free_port
from tests.fleet.kit import expected_verdicts
from tests.fleet.workers import FleetRun, wait_until
from tests.helpers import TESTS
from trajectory_guard_collector.gateway.receivers.decoding import from_json
from trajectory_guard_collector.otlp.signals import Signal

OTELCOL = os.environ.get("OTELCOL", "")
ROOT = TESTS.parent
NewRun = Callable[..., FleetRun]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not OTELCOL, reason="OTELCOL names no OpenTelemetry Collector")]


def documented() -> dict[str, Any]:
    """The exporter and the receiver for Kafka of ``docs/fleet.md``."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8"), re.DOTALL)
    exporter, receiver = map(yaml.safe_load, blocks)
    return {"exporter": exporter["exporters"]["kafka"], "receiver": receiver["receivers"]["kafka"]}


class Otelcol(_Process):
    """Takes spans over gRPC into Kafka, and guard spans out of Kafka into a file."""

    def __init__(self, folder: Path, run: FleetRun) -> None:
        super().__init__(folder / "otelcol.log")
        self.port, self._file, self._config = free_port(), folder / "guard.jsonl", folder / "otelcol.json"
        kafka, topics = documented(), run.config.topics
        brokers = run.address.split(",")
        exporter = {
            **kafka["exporter"],
            "brokers": brokers,
            "traces": {"topic": topics.spans, "encoding": "otlp_proto"},
        }
        receiver = {**kafka["receiver"], "brokers": brokers, "group_id": f"{run.config.kafka.group}-otelcol"}
        receiver["traces"] = {"topics": [topics.guard_spans], "encoding": "otlp_proto"}
        file = {"path": str(self._file), "append": True, "flush_interval": "50ms"}
        self._config.write_text(
            json.dumps({
                "receivers": {
                    "otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{self.port}"}}}, "kafka": receiver,
                },
                "exporters": {"kafka": exporter, "file": file},
                "service": {
                    "telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {
                        "traces": {"receivers": ["otlp"], "exporters": ["kafka"]},
                        "traces/guard": {"receivers": ["kafka"], "exporters": ["file"]},
                    },
                },
            })
        )  # fmt: skip

    def command(self) -> list[str]:
        return [OTELCOL, "--config", str(self._config)]

    def start(self) -> Otelcol:
        self.launch()
        poll(self._started, "otelcol listens", 60.0)
        return self

    def _started(self) -> bool:
        assert self.running, self.log.read_text()[-2_000:]
        return is_listening(self.port)

    def send(self, requests: Iterable[bytes]) -> None:
        """Send requests; each is acknowledged."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            call = channel.unary_unary(f"/{Signal.TRACES.grpc_service}/Export")
            for data in requests:
                call(data, timeout=60)

    def guard_spans(self) -> set[str]:
        """Ids of the spans in the file."""
        text = self._file.read_text() if self._file.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return set().union(*(span_ids(from_json(Signal.TRACES, line.encode())) for line in lines))


def span_ids(data: bytes) -> set[str]:
    groups = ExportTraceServiceRequest.FromString(data).resource_spans
    return {span.span_id.hex() for group in groups for scoped in group.scope_spans for span in scoped.spans}


def test_spans_reach_the_worker_and_guard_spans_the_backend(new_run: NewRun, tmp_path: Path) -> None:
    requests = recorded_load(copies=1).requests
    expected = expected_verdicts(requests)
    run = new_run()
    worker = run.start("one")
    otelcol = Otelcol(tmp_path, run).start()
    try:
        otelcol.send(requests)
        run.wait_for(expected)
        assert worker.metric("trajectory_guard_fleet_dead_letters_total") == 0
        written: set[str] = set()
        while new := run.read(run.config.topics.guard_spans):
            written = written.union(*(span_ids(one.value()) for one in new))
        assert written
        wait_until(lambda: otelcol.guard_spans() >= written, lambda: f"{len(written - otelcol.guard_spans())} missing")
        assert otelcol.guard_spans() == written
    finally:
        otelcol.stop()
    assert worker.terminate() == 0


def test_otelcol_accepts_the_configuration_of_the_deployment() -> None:
    command = [OTELCOL, "validate", "--config", str(ROOT / "deploy" / "otelcol.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
