"""Spans of a program as one OTLP/JSON request: the form of ``tests/data/spans``. Needs the SDK and its OTLP encoder."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_IDS = ("traceId", "spanId", "parentSpanId")


def record(resource: Mapping[str, str] | None = None) -> InMemorySpanExporter:
    """Make a provider the global one, and return the exporter that keeps its spans in the order of their ends."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "capture-app", **(resource or {})}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def write(exporter: InMemorySpanExporter, file: str) -> None:
    """Write the recorded spans."""
    request = MessageToDict(encode_spans(exporter.get_finished_spans()), use_integers_for_enums=True)
    Path(file).write_text(json.dumps(_with_hex_ids(request), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _with_hex_ids(value: Any) -> Any:
    """Protobuf writes bytes as base64, OTLP/JSON wants ids in hex."""
    if isinstance(value, list):
        return [_with_hex_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: base64.b64decode(one).hex() if key in _IDS else _with_hex_ids(one) for key, one in value.items()}
