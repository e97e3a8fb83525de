"""ASGI middleware for every HTTP request: authentication and counting."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trajectory_guard_collector.gateway.receivers.auth import Authenticator
from trajectory_guard_collector.gateway.receivers.http_replies import error_encoding, refused
from trajectory_guard_collector.gateway.receivers.otlp_errors import UnauthenticatedError
from trajectory_guard_collector.gateway.receivers.request_handler import count_request
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

_PATHS: Final = frozenset(signal.path for signal in Signal)


class BearerAuth:
    """Answers 401 to requests without a known token, whatever they ask for."""

    def __init__(self, app: ASGIApp, *, auth: Authenticator) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        headers = Headers(scope=scope)
        given = headers.getlist(
            "authorization"
        )  # with two headers, readers of the first and readers of the last would disagree
        if self._auth.check(given[0] if len(given) == 1 else None):
            await self._app(scope, receive, send)
            return
        encoding = error_encoding(headers.get("content-type", ""))
        await refused(UnauthenticatedError(), encoding)(scope, receive, send)


class CountRequests:
    """Counts OTLP requests by the status they were answered with."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count_request(self._metrics, "http", str(message["status"]))
            await send(message)

        await self._app(scope, receive, send_counted if scope["path"] in _PATHS else send)
