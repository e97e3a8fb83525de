"""The unit of work of the collector: a serialized OTLP request of one signal."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

_SERVICES: Final = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}


class Signal(str, Enum):
    """One of the three OTLP signals."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"

    def __str__(self) -> str:
        return self.value

    @property
    def path(self) -> str:
        """URL path of OTLP/HTTP."""
        return f"/v1/{self.value}"

    @property
    def grpc_service(self) -> str:
        """Full name of the gRPC service; its only method is ``Export``."""
        return _SERVICES[self.value]

    @property
    def items(self) -> str:
        """Name of the signal's items in the collector's metric names."""
        return {"traces": "spans", "metrics": "metric_points", "logs": "log_records"}[self.value]


class Batch(NamedTuple):
    """One export request.

    Fields:
        signal: traces, metrics or logs.
        data: ``Export{Trace,Metrics,Logs}ServiceRequest`` in protobuf's wire format, never changed in place.
        items: number of spans, data points or log records in it.
    """

    signal: Signal
    data: bytes
    items: int
