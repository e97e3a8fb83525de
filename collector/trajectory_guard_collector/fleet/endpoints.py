"""The HTTP ports of the programs: ``/metrics``, ``/healthz`` and ``/readyz`` on one, flags on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trajectory_guard_collector.config.checks import parse_endpoint
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.telemetry.metrics import Metrics

_START_S: Final = 10.0
JOINING: Final = "joining the group or restoring state"


def application(
    metrics: Metrics,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
    why: str = JOINING,
) -> Starlette:
    """The endpoints.

    Parameters:
        alive: whether the program makes progress; ready: whether it does its work; why: why not, if it does not.
    """

    async def exposition(request: Request) -> Response:
        metrics.refresh()
        body, content_type = metrics.render(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    async def healthz(_: Request) -> Response:
        return _status(alive(), "ok", "stopped")

    async def readyz(_: Request) -> Response:
        return _status(ready(), "ready", why)

    return Starlette(routes=[Route("/metrics", exposition), Route("/healthz", healthz), Route("/readyz", readyz)])


def _status(fine: bool, yes: str, no: str) -> Response:
    return PlainTextResponse(yes if fine else no, 200 if fine else 503)


@contextmanager
def serving(endpoint: str | None, app: Starlette, key: str = "telemetry.endpoint") -> Iterator[None]:
    """Serve from a thread of its own; None: do not.

    Parameters:
        key: of the endpoint in the configuration.

    Raises:
        StartError: the port cannot be used.
    """
    if endpoint is None:
        yield
        return
    host, port = parse_endpoint(endpoint)
    server = uvicorn.Server(
        uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off")
    )
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            server.run()
        except (OSError, SystemExit) as error:  # uvicorn exits where a port is taken
            failed.append(error)

    thread = threading.Thread(target=serve, name=key, daemon=True)
    thread.start()
    until = time.monotonic() + _START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise StartError(f"{key}: {endpoint}: cannot listen there")
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_START_S)
