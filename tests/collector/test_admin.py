"""The collector's own HTTP server, asked over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.api.access import Readers
from trajectory_guard_collector.api.admin import DEFAULT_LIMIT, MAX_LIMIT, AdminServer
from trajectory_guard_collector.api.page import PageView, render
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.models import Auth, Telemetry
from trajectory_guard_collector.gateway.receivers.http_limits import HttpLimits
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics

NOBODY = Readers(Authenticator(Auth()), Authenticator(Auth()))
NOW = 1_700_000_000.0
HOSTILE = "<script>alert(1)</script>\"'&\u202e\x00"


def row(trajectory: str, score: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {
        "trajectory_id": trajectory, "service": "shop", "agents": ["planner"], "steps": 4, "score": score,
        "health": 1 - score / 5, "level": "OBSERVE", "episode": 0, "nudges": 0, "types": [], "reason": "",
        "last_seen": NOW, "trace_id": "0af7651916cd43dd8448eb211c80319c", **fields,
    }  # fmt: skip


class World:
    """The collector's parts that the server reports on."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.reason: str | None = None
        self.rows: list[dict[str, Any]] = []


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    server = AdminServer(
        Telemetry(endpoint="127.0.0.1:0"), world.metrics, lambda: world.reason, lambda: world.rows, NOBODY
    )
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as one:
        yield one
    await server.stop()


# --- health and metrics ----------------------------------------------------------------------------------------------


async def test_it_is_alive_also_while_it_is_not_ready(client: httpx.AsyncClient, world: World) -> None:
    world.reason = "queue.storage is full"
    assert (await client.get("/healthz")).status_code == 200
    refused = await client.get("/readyz")
    assert (refused.status_code, refused.json()) == (503, {"status": "not ready", "reason": "queue.storage is full"})
    world.reason = None
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_metrics_are_given_in_the_format_that_is_asked_for(client: httpx.AsyncClient, world: World) -> None:
    world.metrics.watch(catalogue.ACTIVE, lambda: 7)
    text = await client.get("/metrics")
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\ntrajectory_guard_trajectories_active 7.0\n" in text.text
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    other = await client.get("/metrics", headers={"accept": accept})
    assert other.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = parse_openmetrics(other.text)  # type: ignore[no-untyped-call]
    assert any(family.name == "otelcol_process_uptime_seconds" for family in families)


async def test_only_reading_is_possible(client: httpx.AsyncClient) -> None:
    assert (await client.post("/metrics")).status_code == 405
    assert (await client.get("/debug")).status_code == 404
    assert (await client.get("/", follow_redirects=True)).url.path == "/debug/trajectories"


async def test_an_error_is_reported_and_counted_and_the_server_goes_on(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [{"score": "not a number"}, {"score": 1.0}]
    failed = await client.get("/debug/trajectories")
    assert (failed.status_code, failed.json()) == (500, {"error": "TypeError while answering /debug/trajectories"})
    assert (
        'trajectory_guard_errors_total{trajectory_guard_error_where="admin"} 1.0' in (await client.get("/metrics")).text
    )


# --- clients that take and give nothing ------------------------------------------------------------------------------


@pytest.fixture
async def silent(client: httpx.AsyncClient) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """More connections than there may be, of clients that say nothing, or not enough."""
    port = client.base_url.port
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
    for number, (_, writer) in enumerate(opened):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost:"[: number % 20])
    yield [writer for _, writer in opened]
    for _, writer in opened:
        writer.close()


async def test_silent_clients_are_not_in_the_way_of_others(client: httpx.AsyncClient, silent: object) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/debug/trajectories"):
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /hea"])
async def test_clients_that_never_end_their_request_are_cut_off(world: World, sent: bytes) -> None:
    cut_off, _ = await _until_cut_off(world, sent, read_timeout_s=0.5, idle_timeout_s=60.0)
    assert cut_off > 0.45


async def test_clients_that_stay_silent_after_their_answer_are_cut_off(world: World) -> None:
    # The deadline of reading is long: a loop that a busy machine stalls must not cut off the request itself.
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    cut_off, received = await _until_cut_off(world, request, read_timeout_s=60.0, idle_timeout_s=0.5)
    assert cut_off > 0.45
    assert b"alive" in received


async def _until_cut_off(
    world: World, sent: bytes, *, read_timeout_s: float, idle_timeout_s: float
) -> tuple[float, bytes]:
    """Seconds until the server closed the connection, and what it sent before."""
    limits = HttpLimits(max_connections=4, read_timeout_s=read_timeout_s, idle_timeout_s=idle_timeout_s)
    server = AdminServer(Telemetry(endpoint="127.0.0.1:0"), world.metrics, lambda: None, list, NOBODY, limits=limits)
    port = await server.start()
    started = asyncio.get_running_loop().time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = b""
    # Where bytes are still unread when the server closes, the system resets the connection: cut off as well.
    with contextlib.suppress(ConnectionResetError):
        received = await asyncio.wait_for(reader.read(), 20)
    elapsed = asyncio.get_running_loop().time() - started
    writer.close()
    await server.stop()
    assert 'transport="http"' not in (world.metrics.render("")[0]).decode(), "not the receiver's"
    return elapsed, received


# --- starting and stopping -------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        server = AdminServer(Telemetry(endpoint=endpoint), Metrics(), lambda: None, list, NOBODY)
        with pytest.raises(ConfigError, match=rf"telemetry\.endpoint: cannot listen on '{endpoint}'"):
            await server.start()
        await server.stop()


async def test_it_can_be_off_and_stopped_twice() -> None:
    off = AdminServer(Telemetry(endpoint=None), Metrics(), lambda: None, list, NOBODY)
    assert await off.start() == 0
    await off.stop()
    on = AdminServer(Telemetry(endpoint="127.0.0.1:0"), Metrics(), lambda: None, list, NOBODY)
    port = await on.start()
    await on.stop()
    await on.stop()
    with pytest.raises(OSError):  # noqa: PT011
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


# --- trajectories ----------------------------------------------------------------------------------------------------


async def names(client: httpx.AsyncClient, **params: str) -> list[str]:
    reply = await client.get("/debug/trajectories", params={"format": "json", **params})
    assert reply.status_code == 200
    return [one["trajectory_id"] for one in reply.json()["trajectories"]]


async def test_the_worst_come_first_then_the_latest(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [row("old", 1.0, last_seen=1.0), row("calm"), row("worst", 4.5), row("new", 1.0, last_seen=2.0)]
    assert await names(client) == ["worst", "new", "old", "calm"]


async def test_json_has_the_rows_as_they_are(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [row("c-1", 2.5, types=["TYPE_I_STUTTER"]), row("c-2", float("nan"))]
    reply = await client.get("/debug/trajectories", headers={"accept": "application/json"})
    body = reply.json()
    assert (body["total"], body["matching"]) == (2, 2)
    assert {one["trajectory_id"]: one["score"] for one in body["trajectories"]} == {"c-1": 2.5, "c-2": None}
    assert {**world.rows[0]} in body["trajectories"]


@pytest.mark.parametrize("query", ["C-17", "desk", "refund", "ping", "abcdef", "nudge"])
async def test_search_looks_at_names_agents_types_traces_and_levels(
    client: httpx.AsyncClient, world: World, query: str
) -> None:
    wanted = row(
        "c-17",
        service="desk",
        agents=["a", "refund_agent"],
        types=["TYPE_IV_PINGPONG"],
        trace_id="ffabcdef",
        level="NUDGE",
    )
    world.rows = [row("other"), wanted]
    assert await names(client, q=query) == ["c-17"]


async def test_only_so_many_are_shown(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [row(f"c-{number}", number / 1_000) for number in range(MAX_LIMIT + 10)]
    assert len(await names(client)) == DEFAULT_LIMIT
    assert await names(client, limit="2") == [f"c-{MAX_LIMIT + 9}", f"c-{MAX_LIMIT + 8}"]


@pytest.mark.parametrize(
    "params",
    [
        *({"limit": text} for text in ("0", "-1", "9999", "0000000019999", "0" * 5_000 + "1", "x", "\u0662")),
        {"format": "xml"},
    ],
    ids=lambda params: next(iter(params.values()))[:16],
)
async def test_a_bad_parameter_is_named(client: httpx.AsyncClient, params: dict[str, str]) -> None:
    reply = await client.get("/debug/trajectories", params=params)
    assert reply.status_code == 400
    assert reply.text.startswith(next(iter(params)))


async def test_an_unknown_parameter_is_named(client: httpx.AsyncClient) -> None:
    reply = await client.get("/debug/trajectories", params={"limit": "3", "formt": "json"})
    assert (reply.status_code, reply.text) == (
        400, "unknown query parameter 'formt' (did you mean 'format'?); known: q, limit, refresh, format"
    )  # fmt: skip
    for path in ("/metrics?name[]=x", "/healthz?verbose", "/readyz?verbose"):  # as scrapers and probes may send them
        assert (await client.get(path)).status_code == 200


class Page(HTMLParser):
    """Tags and visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_the_page_shows_what_there_is(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [
        row("c-1", 4.25, level="STOP", episode=2, nudges=1, types=["TYPE_I_STUTTER"], reason="search, 5 times"),
        row("c-2"),
    ]
    reply = await client.get("/debug/trajectories")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(reply.text)
    for shown in (
        "2 in memory",
        "c-1",
        "4.25",
        "stop",
        "episode 2, 1 nudge",
        "TYPE_I_STUTTER",
        "search, 5 times",
        "planner",
    ):
        assert shown in page.text
    assert ("style", "width:85%") in page.attributes


async def test_the_page_needs_no_script_and_nothing_from_elsewhere(client: httpx.AsyncClient, world: World) -> None:
    world.rows = [row("c-1", 1.0)]
    reply = await client.get("/debug/trajectories")
    page = Page(reply.text)
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not any(key in ("src", "href", "action") and "//" in (value or "") for key, value in page.attributes)


async def test_the_page_reloads_itself_until_it_is_paused(client: httpx.AsyncClient) -> None:
    live = Page((await client.get("/debug/trajectories")).text)
    assert ("http-equiv", "refresh") in live.attributes
    paused = Page((await client.get("/debug/trajectories", params={"refresh": "0"})).text)
    assert ("http-equiv", "refresh") not in paused.attributes


@pytest.mark.parametrize("field", ["trajectory_id", "service", "level", "reason", "trace_id"])
def test_text_of_others_never_becomes_markup(field: str) -> None:
    rows = [{**row("c", agents=[HOSTILE], types=[HOSTILE]), field: HOSTILE}]
    html = render(PageView(rows, 1, 1, HOSTILE, 100, 5.0, NOW, True))
    page = Page(html)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text, "it is shown as text"
    assert "\u202e" not in html
    assert "\x00" not in html


def test_a_row_without_anything_is_shown() -> None:
    page = Page(render(PageView([{}], 1, 1, "", 100, 5.0, NOW, False)))
    assert "0.00" in page.text


@pytest.mark.parametrize(
    "seconds, shown", [(-5, "0 s"), (59, "59 s"), (120, "2 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_ages(seconds: float, shown: str) -> None:
    page = Page(render(PageView([row("c", last_seen=NOW - seconds)], 1, 1, "", 100, 5.0, NOW, False)))
    assert shown in page.text


@pytest.mark.parametrize(
    "shown, matching, total, query, reported",
    [
        (0, 0, 0, "", "No trajectory yet"), (0, 0, 9, "x<y", "No trajectory matches “x<y”"),
        (1, 1, 9, "x", "1 of 9 match"), (1, 4, 9, "x", "4 of 9 match, worst 1 shown"),
        (1, 1200, 1200, "", "worst 1 of 1,200"),
    ],
)  # fmt: skip
def test_the_page_says_how_much_it_shows(shown: int, matching: int, total: int, query: str, reported: str) -> None:
    rows = [row(f"c-{number}") for number in range(shown)]
    assert reported in Page(render(PageView(rows, matching, total, query, 100, 5.0, NOW, False))).text
