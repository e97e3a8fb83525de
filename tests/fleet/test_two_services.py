"""The demonstration of docs/fleet.md: a conversation that loops over two services and two workers is flagged once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fleet.kit import records_of
from tests.fleet.workers import FleetRun, wait_until
from tests.helpers import PACKAGE
from trajectory_guard import telemetry
from trajectory_guard_collector.fleet.records import current_verdicts

pytestmark = [pytest.mark.slow, pytest.mark.smoke]


@contextmanager
def otlp_receiver(run: FleetRun) -> Iterator[str]:
    """The URL of an OTLP receiver that writes to Kafka, as the OpenTelemetry Collector does."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            run.feed(records_of(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_loop_over_two_services_and_two_workers_is_flagged_once(new_run: Callable[..., FleetRun]) -> None:
    run = new_run()
    workers = [run.start(name) for name in ("one", "two")]
    for worker in workers:
        worker.wait_until_ready()
    with otlp_receiver(run) as url:
        flags = [part for worker in workers for part in ("--flags", worker.flags_url)]
        command = [sys.executable, str(PACKAGE.parents[1] / "examples" / "two_services.py"), "--otlp", url, *flags]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    levels = [line.rsplit(" ", 1)[1] for line in shown.splitlines() if line.startswith("turn")]
    assert levels[0] == "OBSERVE"
    assert "NUDGE" in levels
    assert levels[-1] == "STOP"
    assert "stopped, going in circles" in shown
    wait_until(run.is_drained, lambda: "records are left")
    requests = [ExportTraceServiceRequest.FromString(one.value()) for one in run.read(run.config.topics.guard_spans)]
    found = [
        span for one in requests for group in one.resource_spans for scope in group.scope_spans for span in scope.spans
    ]
    assert sum(span.name == telemetry.LOOP_SPAN_NAME for span in found) == 1
    assert {one["service"] for one in current_verdicts(run.verdicts()).values()} == {"writer", "critic"}
    assert all(worker.flag("order-42")["level"] == "STOP" for worker in workers)
    read = [worker.metric("trajectory_guard_fleet_records_total") for worker in workers]
    assert all(read), "one worker has read everything"
