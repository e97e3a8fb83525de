"""ASGI middleware for every HTTP request: counting."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trajectory_guard_collector.gateway.receivers.request_handler import count_request
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

_PATHS: Final = frozenset(signal.path for signal in Signal)


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
