"""Replies of OTLP/HTTP, in the request's encoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from trajectory_guard_collector.errors import RefusedError
from trajectory_guard_collector.otlp.refusals import (
    MediaTypeError,
    NoEndpointError,
    NoMethodError,
    UnauthenticatedError,
    codes,
    retry_after_s,
    status,
)
from trajectory_guard_collector.otlp.signals import Signal


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
_ENDPOINTS: Final = ", ".join(signal.path for signal in Signal)
_SHOWN: Final = 100
"""Characters of a path in a message."""


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


async def no_endpoint(request: Request, error: Exception) -> Response:
    """OTLP reply to a request for an unknown path."""
    path = request.url.path[:_SHOWN]
    refusal = NoEndpointError(f"nothing at {path!r}; data is taken at {_ENDPOINTS}")
    return refused(refusal, error_encoding(request.headers.get("content-type", "")))


async def no_method(request: Request, error: Exception) -> Response:
    """OTLP reply to a request with a method that its path does not have."""
    headers = (error.headers if isinstance(error, HTTPException) else None) or {}
    allowed = headers.get("Allow", "")
    refusal = NoMethodError(f"{request.url.path[:_SHOWN]!r} takes {allowed}, not {request.method}")
    response = refused(refusal, error_encoding(request.headers.get("content-type", "")))
    response.headers["allow"] = allowed
    return response
