"""Requests that ask to change the protocol. They are answered in this one: Java's HTTP client asks by default."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import httpx
import pytest
from google.rpc.status_pb2 import Status

from tests.collector.receiver_helpers import Running, http_server, to_json, traces
from tests.collector.test_http_limits import LIMIT_S, WHOLE, closed, connect, status
from trajectory_guard_collector.otlp.signals import Signal

SPANS = traces().SerializeToString()
BATCH = (Signal.TRACES, SPANS, 3)
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"


def head(more: bytes, target: bytes = b"POST /v1/traces", kind: bytes = b"application/x-protobuf") -> bytes:
    return target + b" HTTP/1.1\r\nHost: x\r\n" + H2C + b"Content-Type: " + kind + b"\r\n" + more + b"\r\n"


def sized(body: bytes = SPANS, more: bytes = b"") -> bytes:
    return head(b"Content-Length: %d\r\n" % len(body) + more) + body


CHUNKED = head(b"Transfer-Encoding: chunked\r\n") + b"".join(
    b"%x\r\n%b\r\n" % (len(part), part) for part in (SPANS[:7], SPANS[7:], b"")
)


async def talk(running: Running, pieces: Sequence[bytes], replies: int) -> list[int]:
    """Send pieces, each in a packet of its own; the replies' statuses."""
    reader, writer = await connect(running)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.001)
    found = [await status(reader) for _ in range(replies)]
    writer.close()
    return found


@pytest.mark.parametrize("request_", [sized(), CHUNKED], ids=["sized", "chunked"])
async def test_the_body_is_read_however_it_is_cut(request_: bytes) -> None:
    whole = len(request_)
    body = request_.index(b"\r\n\r\n") + 4
    cuts = [(), (body,), (body - 2,), (40,), (body + 5,), (40, body, body + 5), tuple(range(1, whole, 3))]
    async with http_server() as running:
        for cut in cuts:
            edges = [0, *cut, whole]
            pieces = [request_[start:end] for start, end in pairwise(edges)]
            assert await talk(running, [*pieces, WHOLE], 2) == [200, 200]
        assert running.recorder.batches == [BATCH] * 2 * len(cuts)


async def test_requests_in_one_packet() -> None:
    async with http_server() as running:
        requests = [sized(), WHOLE, CHUNKED, sized(), CHUNKED, WHOLE]
        assert await talk(running, [b"".join(requests)], len(requests)) == [200] * len(requests)
        assert running.recorder.batches == [BATCH] * len(requests)


async def test_large_body() -> None:
    large = traces(20_000).SerializeToString()
    async with http_server() as running:
        assert await talk(running, [sized(large), sized()], 2) == [200, 200]
        assert [batch.data for batch in running.recorder.batches] == [large, SPANS]


async def test_json() -> None:
    body = to_json(traces())
    asked = head(b"Content-Length: %d\r\n" % len(body), kind=b"application/json") + body
    async with http_server() as running:
        assert await talk(running, [asked], 1) == [200]
        assert running.recorder.batches == [BATCH]


async def test_sender_that_waits_to_be_told_to_go_on() -> None:
    async with http_server() as running:
        reader, writer = await connect(running)
        asked = sized(more=b"Expect: 100-continue\r\n")
        writer.write(asked[: -len(SPANS)])
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(SPANS)
        assert await status(reader) == 200
        writer.close()
        assert running.recorder.batches == [BATCH]


@pytest.mark.parametrize("sent", [sized()[:-1], sized()[:60], CHUNKED[:-1]])
async def test_the_deadline_holds(sent: bytes) -> None:
    async with http_server(read_timeout_s=0.2) as running:
        reader, writer = await connect(running)
        writer.write(sent)
        assert await closed(reader) == b""
        writer.close()
        assert running.total("otelcol_receiver_requests_total", transport="http", status="read_timeout") == 1
        assert running.recorder.batches == []


async def test_web_sockets_are_answered_plainly() -> None:
    asked = b"GET /v1/traces HTTP/1.1\r\nHost: x\r\n" + WEBSOCKET + b"\r\n"
    async with http_server() as running:
        assert await talk(running, [asked, WHOLE], 2) == [405, 200]


async def test_tunnels_are_refused_and_closed() -> None:
    async with http_server() as running:
        reader, writer = await connect(running)
        writer.write(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + WHOLE)
        assert (await closed(reader)).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert running.recorder.batches == []


async def test_a_body_that_was_not_read_whole_is_never_acknowledged() -> None:
    """Whatever the reason: the sender still has it."""
    async with http_server() as running:
        transport = httpx.ASGITransport(running.server._server._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            headers = {"content-type": "application/x-protobuf", "content-length": str(len(SPANS))}
            response = await client.post("/v1/traces", content=b"", headers=headers)
        assert response.status_code == 503
        assert f"0 of {len(SPANS)} bytes" in Status.FromString(response.content).message
        assert running.recorder.batches == []
