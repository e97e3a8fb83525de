"""Signals that no exporter of a collector takes: their senders are told, in the terms of OTLP, that they are dropped."""

from __future__ import annotations

from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.collector.backends import grpc_backend, otlp
from tests.collector.receiver_helpers import parsed, request_of, to_json
from tests.collector.service_helpers import running
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.otlp.signals import Signal

RESPONSES: dict[Signal, Any] = {
    Signal.TRACES: ExportTraceServiceResponse, Signal.METRICS: ExportMetricsServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
}  # fmt: skip
REJECTED = {Signal.METRICS: "rejectedDataPoints", Signal.LOGS: "rejectedLogRecords"}
PROTOBUF, JSON = "application/x-protobuf", "application/json"


async def ask(collector: Collector, signal: Signal, how: str, data: bytes | None = None) -> dict[str, Any]:
    """The reply to a request of three items over gRPC or, in one of its encodings, HTTP."""
    data = request_of(signal) if data is None else data
    if how == "grpc":
        async with grpc.aio.insecure_channel(collector.endpoints["otlp/grpc"]) as channel:
            reply = await channel.unary_unary(f"/{signal.grpc_service}/Export")(data, timeout=20)
        return MessageToDict(RESPONSES[signal].FromString(reply))
    async with httpx.AsyncClient() as client:
        url = f"http://{collector.endpoints['otlp/http']}{signal.path}"
        body = data if how == PROTOBUF else to_json(parsed(signal))
        response = await client.post(url, content=body, headers={"content-type": how})
    assert (response.status_code, response.headers["content-type"]) == (200, how)
    return response.json() if how == JSON else MessageToDict(RESPONSES[signal].FromString(response.content))


@pytest.mark.parametrize("how", ["grpc", PROTOBUF, JSON])
@pytest.mark.parametrize("signal", [Signal.METRICS, Signal.LOGS])
@pytest.mark.parametrize("stored", [False, True])
async def test_they_are_a_partial_success(signal: Signal, how: str, stored: bool, tmp_path: Any) -> None:
    queue = {"queue": {"storage": str(tmp_path)}} if stored else {}
    async with grpc_backend() as backend:
        async with running(exporters={"otlp": otlp(backend, signals=["traces"])}, **queue) as collector:
            told = await ask(collector, signal, how)
            count = collector.metrics.registry.get_sample_value
            labels = {"receiver": "otlp", "transport": "grpc" if how == "grpc" else "http"}
            assert count(f"otelcol_receiver_refused_{signal.items}_total", labels) == 3
            assert not count(f"otelcol_receiver_accepted_{signal.items}_total", labels)
        assert not backend.requests
    assert told == {
        "partialSuccess": {REJECTED[signal]: "3", "errorMessage": f"no exporter of this collector takes {signal}"}
    }


@pytest.mark.parametrize("how", ["grpc", PROTOBUF, JSON])
async def test_spans_are_taken_all_the_same_since_they_are_evaluated(how: str) -> None:
    async with grpc_backend() as backend, running(exporters={"otlp": otlp(backend, signals=["logs"])}) as collector:
        assert await ask(collector, Signal.TRACES, how) == {}


async def test_a_request_without_items_loses_nothing() -> None:
    async with grpc_backend() as backend, running(exporters={"otlp": otlp(backend, signals=["traces"])}) as collector:
        assert await ask(collector, Signal.LOGS, "grpc", b"") == {}
