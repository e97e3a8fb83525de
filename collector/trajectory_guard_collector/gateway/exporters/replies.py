"""Parsing of backend replies to exports."""

from __future__ import annotations

from typing import Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from trajectory_guard.core.text import printable
from trajectory_guard.hidden import Hidden
from trajectory_guard_collector.gateway.exporters.base import ExportResult
from trajectory_guard_collector.otlp.signals import Batch, Signal

_MAX_SHOWN_CHARS: Final = 300
_PAGES: Final = ("text/html", "application/xhtml+xml")
_REPLIES: Final[dict[Signal, tuple[type[Message], str]]] = {
    Signal.TRACES: (ExportTraceServiceResponse, "rejected_spans"),
    Signal.METRICS: (ExportMetricsServiceResponse, "rejected_data_points"),
    Signal.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
}


def read_reply(batch: Batch, body: bytes, hidden: Hidden, *, json: bool = False) -> ExportResult:
    """Items that the backend rejected: ``partial_success`` of an ``Export…ServiceResponse``.

    Parameters:
        batch: the batch that was sent.
        body: the reply.
        hidden: hides what the backend may repeat of the request's headers.
        json: the reply is OTLP/JSON.

    Raises:
        ValueError: the reply is something else.
    """
    reply_type, rejected_field = _REPLIES[batch.signal]
    reply = reply_type()
    try:
        if json:
            json_format.Parse(body, reply, ignore_unknown_fields=True)
        else:
            reply.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError) as error:
        shown = hidden.hide(body.decode("latin-1"))[:40].encode("latin-1")
        raise ValueError(f"the reply to the export is not an OTLP response: {shown!r}") from error
    partial = reply.partial_success  # type: ignore[attr-defined]
    rejected = int(getattr(partial, rejected_field))
    return ExportResult(rejected=max(0, min(rejected, batch.items)), message=hidden.hide(partial.error_message))


def is_page(body: bytes, content_type: str) -> bool:
    """Whether an HTTP reply is a web page, by its content type (in lower case) or by how it begins."""
    return content_type.startswith(_PAGES) or body[:64].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def error_text(body: bytes, content_type: str, hidden: Hidden) -> str:
    """Body of an HTTP error as one short line: the message of a ``google.rpc.Status``, else its text."""
    if "protobuf" in content_type:
        try:
            return one_line(Status.FromString(body).message, hidden)
        except DecodeError:
            pass  # a proxy's own page under the wrong name, or cut off
    return one_line(body.decode("utf-8", "replace"), hidden)


def one_line(text: str, hidden: Hidden) -> str:
    """The beginning of a text from a backend, without secrets, line breaks and control characters."""
    return printable(" ".join(hidden.hide(text)[: 2 * _MAX_SHOWN_CHARS].split()))[:_MAX_SHOWN_CHARS]
