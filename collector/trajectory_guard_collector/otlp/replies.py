"""Replies to senders in the terms of the OTLP specification: export responses, ``google.rpc.Status``, retry hints, and
their form over HTTP in the request's encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from trajectory_guard_collector.errors import BadDataError, OverloadedError, RefusedError, TooLargeError
from trajectory_guard_collector.otlp.signals import Signal

_RESPONSES: Final[Mapping[Signal, type[Message]]] = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.METRICS: ExportMetricsServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
}
_REJECTED: Final = {
    Signal.TRACES: "rejected_spans",
    Signal.METRICS: "rejected_data_points",
    Signal.LOGS: "rejected_log_records",
}
_OTHERWISE: Final = (Code.UNAVAILABLE, 503)
_RETRY_AFTER_S: Final = 1.0
ENDPOINTS: Final = ", ".join(signal.path for signal in Signal)
"""Paths at which data is taken."""
_SHOWN: Final = 100
"""Characters of a path in a message."""


class RejectedItems(NamedTuple):
    """Items of a request that were dropped, and that the sender must not send again, and the reason."""

    items: int
    reason: str


class UnauthenticatedError(RefusedError):
    """No bearer token, or none that is known."""

    def __init__(self) -> None:
        super().__init__("missing or unknown bearer token")


class MediaTypeError(BadDataError):
    """A body that is neither protobuf nor JSON."""


class NoEndpointError(BadDataError):
    """A request for an unknown path."""


class NoMethodError(BadDataError):
    """A request with a method that its path does not have."""


_CODES: Final[Mapping[type[RefusedError], tuple[Code.ValueType, int]]] = {
    BadDataError: (Code.INVALID_ARGUMENT, 400),
    MediaTypeError: (Code.INVALID_ARGUMENT, 415),
    NoEndpointError: (Code.NOT_FOUND, 404),
    NoMethodError: (Code.UNIMPLEMENTED, 405),
    OverloadedError: (Code.RESOURCE_EXHAUSTED, 429),
    TooLargeError: (Code.RESOURCE_EXHAUSTED, 413),
    UnauthenticatedError: (Code.UNAUTHENTICATED, 401),
}


def codes(refusal: RefusedError) -> tuple[Code.ValueType, int]:
    """``google.rpc`` code and HTTP status of a refusal."""
    return next((_CODES[kind] for kind in type(refusal).__mro__ if kind in _CODES), _OTHERWISE)


def retry_after_s(refusal: RefusedError) -> float | None:
    """Seconds after which the sender should try again, None if that is its own decision.

    Overload always comes with a time: without one, RESOURCE_EXHAUSTED means "never again" to senders.
    """
    if refusal.retry_after_s is None and isinstance(refusal, OverloadedError):
        return _RETRY_AFTER_S
    return refusal.retry_after_s


def retry_info(refusal: RefusedError) -> RetryInfo | None:
    """``google.rpc.RetryInfo`` of a refusal, if it has a time."""
    seconds = retry_after_s(refusal)
    if seconds is None:
        return None
    delay = Duration()
    delay.FromMilliseconds(math.ceil(seconds * 1_000))
    return RetryInfo(retry_delay=delay)


def status(refusal: RefusedError) -> Status:
    """``google.rpc.Status`` of a refusal, with its ``RetryInfo``."""
    message = Status(code=codes(refusal)[0], message=refusal.message)
    if (info := retry_info(refusal)) is not None:
        message.details.add().Pack(info)
    return message


def export_response(signal: Signal, rejected: RejectedItems | None) -> Message:
    """``Export{Trace,Metrics,Logs}ServiceResponse``, with ``partial_success`` if items were rejected."""
    response = _RESPONSES[signal]
    if rejected is None:
        return response()
    return response(partial_success={_REJECTED[signal]: rejected.items, "error_message": rejected.reason})


class Encoding(NamedTuple):
    """One of OTLP's two encodings.

    Fields:
        media_type: its name.
        encode: writes a message in it.
    """

    media_type: str
    encode: Callable[[Message], bytes]


def _to_protobuf(message: Message) -> bytes:
    return message.SerializeToString()


def _to_json(message: Message) -> bytes:
    return MessageToJson(message, indent=None).encode()


PROTOBUF: Final = Encoding("application/x-protobuf", _to_protobuf)
JSON: Final = Encoding("application/json", _to_json)
_BY_MEDIA_TYPE: Final = {encoding.media_type: encoding for encoding in (PROTOBUF, JSON)}
_SUPPORTED: Final = ", ".join(_BY_MEDIA_TYPE)


def encoding_of(content_type: str) -> Encoding:
    """The encoding a ``Content-Type`` names; parameters do not matter.

    Raises:
        MediaTypeError: it is not one of OTLP's.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in _BY_MEDIA_TYPE:
        raise MediaTypeError(f"Content-Type {content_type!r} is not supported; supported: {_SUPPORTED}")
    return _BY_MEDIA_TYPE[media_type]


def error_encoding(content_type: str) -> Encoding:
    """The encoding of an error about a request whose own may be none of OTLP's; JSON then."""
    try:
        return encoding_of(content_type)
    except MediaTypeError:
        return JSON


def reply(status_code: int, message: Message, encoding: Encoding) -> Response:
    """A response with a message as its body."""
    return Response(encoding.encode(message), status_code, media_type=encoding.media_type)


def refused(refusal: RefusedError, encoding: Encoding) -> Response:
    """The response to a refused request: ``google.rpc.Status``, and when to try again in whole seconds."""
    response = reply(codes(refusal)[1], status(refusal), encoding)
    if (seconds := retry_after_s(refusal)) is not None:
        response.headers["retry-after"] = str(max(1, math.ceil(seconds)))
    if isinstance(refusal, MediaTypeError):
        response.headers["accept"] = _SUPPORTED
    if isinstance(refusal, UnauthenticatedError):
        response.headers["www-authenticate"] = "Bearer"
    return response


def shown_path(request: Request) -> str:
    """The path of a request in quotes: its beginning, what cannot be printed escaped."""
    return repr(request.url.path[:_SHOWN])


async def no_endpoint(request: Request, error: Exception) -> Response:
    """OTLP reply to a request for an unknown path."""
    refusal = NoEndpointError(f"nothing at {shown_path(request)}; data is taken at {ENDPOINTS}")
    return refused(refusal, error_encoding(request.headers.get("content-type", "")))


async def no_method(request: Request, error: Exception) -> Response:
    """OTLP reply to a request with a method that its path does not have."""
    headers = (error.headers if isinstance(error, HTTPException) else None) or {}
    allowed = headers.get("Allow", "")
    refusal = NoMethodError(f"{shown_path(request)} takes {allowed}, not {request.method}")
    response = refused(refusal, error_encoding(request.headers.get("content-type", "")))
    response.headers["allow"] = allowed
    return response
