"""The collector's own HTTP server: metrics, health, flags and a page of live trajectories."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from trajectory_guard_collector.api.access import PageAccess, Readers
from trajectory_guard_collector.api.page import PATH, SECURITY_HEADERS, PageView, render
from trajectory_guard_collector.api.query import query_mistake
from trajectory_guard_collector.config.models import Telemetry
from trajectory_guard_collector.gateway.receivers.http_limits import BoundedServer, HttpLimits
from trajectory_guard_collector.gateway.receivers.tls import Certificates
from trajectory_guard_collector.telemetry.metrics import Metrics

logger: Final = logging.getLogger(__name__)
Row = Mapping[str, Any]
MAX_LIMIT: Final = 1_000
DEFAULT_LIMIT: Final = 100
_KEY: Final = "telemetry.endpoint"
_LIMITS: Final = HttpLimits(max_connections=128, read_timeout_s=10.0, idle_timeout_s=60.0, newest_stay=True)
_GRACE_S: Final = 2.0
_PARAMETERS: Final = ("q", "limit", "refresh", "format")
_SEARCHED: Final = ("trajectory_id", "service", "agents", "types", "trace_id", "level")


class AdminServer:
    """Serves telemetry to people and Prometheus, and flags to agents.

    ``/metrics``, ``/healthz`` and ``/readyz`` need no token: expose the port inside only.

    Parameters:
        telemetry: endpoint and certificates, and whether everybody may see the page.
        metrics: what ``/metrics`` shows.
        ready: None if the collector can accept data, else the reason why not; for ``/readyz``.
        trajectories: a row for each trajectory in memory, with the keys ``trajectory``, ``service``, ``agents``,
            ``steps``, ``score``, ``health``, ``level``, ``episode``, ``nudges``, ``types``, ``reason``, ``last_seen``
            (unix seconds) and ``trace_id``. Called in the event loop.
        readers: the tokens with which the page may be seen.
        max_score: the score that fills the bar of the page.
        routes: further endpoints, such as that of flags.
        limits: of connections and times. A probe must get its answer however many others are connected.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        metrics: Metrics,
        ready: Callable[[], str | None],
        trajectories: Callable[[], Sequence[Row]],
        readers: Readers,
        *,
        max_score: float = 5.0,
        routes: Sequence[BaseRoute] = (),
        limits: HttpLimits = _LIMITS,
    ) -> None:
        self._metrics = metrics
        self._ready = ready
        self._trajectories = trajectories
        certified = telemetry.tls is not None and telemetry.tls.client_ca_file is not None
        self._access = Middleware(PageAccess, readers=readers, is_open=telemetry.open_page or certified)
        self._max_score = max_score
        self._server: BoundedServer | None = None
        if telemetry.endpoint is not None:
            certificates = partial(Certificates, telemetry.tls, "telemetry.tls", metrics) if telemetry.tls else None
            self._server = BoundedServer(self._app(routes), telemetry.endpoint, _KEY, limits, certificates=certificates)

    async def start(self) -> int:
        """Listen; returns the port, 0 if the endpoint is off.

        Raises:
            ConfigError: the endpoint cannot be listened on, or a certificate cannot be used.
        """
        return 0 if self._server is None else await self._server.start()

    async def stop(self) -> None:
        """Stop listening; running requests have two seconds to finish. Idempotent; may be called at any time."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed(_GRACE_S)

    def _app(self, routes: Sequence[BaseRoute]) -> Starlette:
        return Starlette(
            routes=[
                Route("/", lambda request: RedirectResponse(PATH)),
                Route("/metrics", self._metrics_page),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route(PATH, self._trajectories_page, middleware=[self._access]),
                *routes,
            ],
            exception_handlers={Exception: self._failed},
        )

    async def _metrics_page(self, request: Request) -> Response:
        self._metrics.refresh()
        content, content_type = await asyncio.to_thread(self._metrics.render, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type})

    async def _healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _readyz(self, request: Request) -> Response:
        reason = self._ready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, status_code=503)

    async def _trajectories_page(self, request: Request) -> Response:
        mistake = query_mistake(request.query_params, _PARAMETERS)
        if mistake is not None:
            raise HTTPException(400, mistake)
        query, limit = request.query_params.get("q", "").strip(), _limit(request)
        everything = self._trajectories()
        found = [row for row in everything if _matches(row, query.casefold())]
        rows = heapq.nlargest(limit, found, key=_urgency)
        if _wants_json(request):
            body = {"total": len(everything), "matching": len(found), "trajectories": [_finite(row) for row in rows]}
            return JSONResponse(body, headers={"Cache-Control": "no-store"})
        refreshes = request.query_params.get("refresh") != "0"
        view = PageView(rows, len(found), len(everything), query, limit, self._max_score, time.time(), refreshes)
        return HTMLResponse(render(view), headers=dict(SECURITY_HEADERS))

    async def _failed(self, request: Request, error: Exception) -> Response:
        self._metrics.error("admin")
        return JSONResponse({"error": f"{type(error).__name__} while answering {request.url.path}"}, status_code=500)


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT)) and 1 <= int(text) <= MAX_LIMIT):
        raise HTTPException(400, f"limit: expected a number from 1 to {MAX_LIMIT}, got {text[:20]!r}")
    return int(text)


def _wants_json(request: Request) -> bool:
    wanted = request.query_params.get("format")
    if wanted not in (None, "json", "html"):
        raise HTTPException(400, f"format: expected html or json, got {wanted[:20]!r}")
    return wanted == "json" or (wanted is None and "application/json" in request.headers.get("accept", ""))


def _matches(row: Row, query: str) -> bool:
    return not query or any(query in _searchable(row.get(key)).casefold() for key in _SEARCHED)


def _searchable(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")


def _urgency(row: Row) -> tuple[float, float]:
    return row.get("score") or 0.0, row.get("last_seen") or 0.0


def _finite(row: Row) -> dict[str, Any]:
    return {key: None if isinstance(one, float) and not math.isfinite(one) else one for key, one in row.items()}
