"""The worker's own HTTP port."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from starlette.testclient import TestClient

from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.endpoints import application, serving
from trajectory_guard_collector.telemetry.metrics import Metrics


def test_probes_and_metrics() -> None:
    metrics = Metrics(more=catalogue.METRICS)
    said = {"alive": True, "ready": False}
    metrics.watch(catalogue.READY, lambda: float(said["ready"]))
    client = TestClient(application(metrics, lambda: said["alive"], lambda: said["ready"]))
    assert [client.get(path).status_code for path in ("/healthz", "/readyz", "/else")] == [200, 503, 404]
    assert client.get("/readyz").text == "joining the group or restoring state"
    assert "trajectory_guard_fleet_ready 0.0" in client.get("/metrics").text
    said.update(alive=False, ready=True)
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [503, 200]
    text = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert "trajectory_guard_fleet_ready 1.0" in text.text
    assert text.headers["content-type"].startswith("application/openmetrics-text")


def test_it_listens_while_the_worker_runs() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    app = application(Metrics(more=catalogue.METRICS), lambda: True, lambda: True)
    with (
        serving(f"127.0.0.1:{port}", app),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply,
    ):
        assert reply.read() == b"ready"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
    with serving(None, app):
        pass


def test_a_port_that_is_taken_is_named() -> None:
    app = application(Metrics(more=catalogue.METRICS), lambda: True, lambda: True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=f"telemetry.endpoint: {endpoint}: cannot listen"), serving(endpoint, app):
            pass
