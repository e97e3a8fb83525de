"""Several requests on one connection, sent without waiting for replies: these come whole and in order, within limits."""

from __future__ import annotations

import asyncio

import pytest

from tests.collector.receiver_helpers import Recorder, eventually, http_server
from tests.collector.test_http_limits import HEAD, LIMIT_S, WHOLE, closed, connect, status
from trajectory_guard_collector.errors import BadDataError, UnavailableError

UNKNOWN = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
LONG_HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\n"
CHUNKED = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "no request": b"\x00\x01\x02 nonsense\r\n\r\n",
    "a broken body": CHUNKED + b"zz\r\nabc",
    "a broken length": b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
}


async def statuses(reader: asyncio.StreamReader, count: int) -> list[int]:
    return [await status(reader) for _ in range(count)]


@pytest.mark.parametrize("pieces", [1, 7, 100])
async def test_replies_come_in_order(pieces: int) -> None:
    recorder = Recorder(None, UnavailableError("later"), None, BadDataError("never"))
    async with http_server(recorder) as running:
        reader, writer = await connect(running)
        data = WHOLE + WHOLE + UNKNOWN + WHOLE + WHOLE + WHOLE
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await asyncio.sleep(0)
        assert await statuses(reader, 6) == [200, 503, 404, 200, 400, 200]
        writer.close()


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_request_costs_no_reply_to_those_before_it(broken: str) -> None:
    """Its reply came first, and the sender of the first request took it for that of its own."""
    recorder = Recorder()
    recorder.gate.clear()
    async with http_server(recorder) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE + WHOLE + BROKEN[broken])
        await eventually(lambda: recorder.waiting == 1)
        recorder.gate.set()
        assert await statuses(reader, 3) == [200, 200, 400]
        assert await closed(reader) == b""
        assert recorder.items == 6
        writer.close()


async def test_a_head_that_is_too_large_costs_no_reply_to_those_before_it() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    async with http_server(recorder) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE)
        await eventually(lambda: recorder.waiting == 1)
        writer.write(LONG_HEAD)
        await eventually(
            lambda: running.total("otelcol_receiver_requests_total", transport="http", status="headers_too_large") == 1
        )
        recorder.gate.set()
        assert await status(reader) == 200
        assert await closed(reader) == b""
        writer.close()


async def test_the_deadline_of_a_request_begins_when_it_is_read() -> None:
    """While the one before was in work nothing was read, and the time of the next one ran."""
    recorder = Recorder()
    recorder.gate.clear()
    async with http_server(recorder, read_timeout_s=0.5) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE + WHOLE[:-5])
        await eventually(lambda: recorder.waiting == 1)
        writer.write(WHOLE[-5:])
        await asyncio.sleep(1.0)
        recorder.gate.set()
        assert await statuses(reader, 2) == [200, 200]
        writer.write(WHOLE + WHOLE[:-5])
        assert await status(reader) == 200
        assert await closed(reader) == b""  # the rest does not come
        assert running.total("otelcol_receiver_requests_total", transport="http", status="read_timeout") == 1
        writer.close()


async def test_each_request_has_its_limits() -> None:
    async with http_server(max_request_body_size_mib=0.5) as running:
        reader, writer = await connect(running)
        large = HEAD % 600_000 + bytes(600_000)
        writer.write(WHOLE + large + WHOLE + large + WHOLE)
        assert await statuses(reader, 5) == [200, 413, 200, 413, 200]
        writer.close()


@pytest.mark.slow
async def test_a_client_that_does_not_stop_is_read_as_fast_as_it_is_answered() -> None:
    """With each reply further requests were read, so that more and more of them waited in memory."""
    recorder = Recorder()
    async with http_server(recorder) as running:
        reader, writer = await connect(running)
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                writer.write(UNKNOWN * 200)
                await writer.drain()
                sent += 200

        flooding = asyncio.create_task(flood())
        try:
            for answered in range(20_000):
                assert await status(reader) == 404
                (connection,) = running.server._server._server.server_state.connections
                assert len(connection.pipeline) < 8_000, f"{answered} of {sent}"
        finally:
            flooding.cancel()
            writer.transport.abort()


@pytest.mark.slow
async def test_a_stop_answers_what_was_accepted() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    async with http_server(recorder) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE + WHOLE[:-5])
        await eventually(lambda: recorder.waiting == 1)
        stopping = asyncio.create_task(running.server.stop(LIMIT_S))
        await asyncio.sleep(3.5)
        recorder.gate.set()
        assert await status(reader) == 200
        await stopping
        assert recorder.items == 3
        writer.close()
