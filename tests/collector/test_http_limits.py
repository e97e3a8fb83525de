from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterable
from itertools import cycle
from typing import Any

import psutil
import pytest
import uvloop
from starlette.responses import PlainTextResponse

from tests.collector.receiver_helpers import Recorder, Running, eventually, grpc_server, http_server, traces
from trajectory_guard_collector.gateway.receivers.http_limits import BoundedServer, HttpLimits

SPANS = traces().SerializeToString()
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
WHOLE = HEAD % len(SPANS) + SPANS
LIMIT_S = 20.0
"""For a loaded machine, and less than the time-outs by default: one that is ignored would fail."""


async def connect(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", running.port)


async def status(reader: asyncio.StreamReader) -> int:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:")).split(b":")[1]
    await reader.readexactly(int(length))
    return int(head.split()[1])


async def closed(reader: asyncio.StreamReader) -> bytes:
    """The bytes that come until the server closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), LIMIT_S)
    except ConnectionResetError:
        return b""


SLOW = {
    "nothing": b"",
    "empty lines": b"\r\n\r\n",
    "half a request line": b"POST /v1/tr",
    "half of the headers": HEAD[:60],
    "no body": HEAD % len(SPANS),
    "half a body": WHOLE[:-5],
    "half a chunk": b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
}


@pytest.mark.parametrize("sent", list(SLOW))
async def test_request_that_does_not_end_is_cut_off(sent: str) -> None:
    async with http_server(read_timeout_s=0.3) as running:
        started = asyncio.get_running_loop().time()
        reader, writer = await connect(running)
        writer.write(SLOW[sent])
        await closed(reader)
        assert asyncio.get_running_loop().time() - started > 0.2
        writer.close()
        await eventually(
            lambda: running.total("otelcol_receiver_requests_total", transport="http", status="read_timeout") == 1
        )
        assert running.recorder.batches == []


@pytest.mark.parametrize(
    "sent", [HEAD % 100_000, b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", b""]
)
async def test_one_byte_now_and_then_does_not_help(sent: bytes) -> None:
    async with http_server(read_timeout_s=0.3) as running:
        reader, writer = await connect(running)
        writer.write(sent)

        async def dribble() -> None:
            for byte in cycle(HEAD):  # not any byte: what cannot begin a request is refused at once
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dribbling = asyncio.create_task(dribble())
        await closed(reader)
        dribbling.cancel()
        writer.close()
        assert running.total("otelcol_receiver_requests_total", transport="http", status="read_timeout") == 1
        assert running.recorder.batches == []


async def test_second_request_has_a_deadline_too() -> None:
    async with http_server(read_timeout_s=0.3) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE + WHOLE[:-1])
        assert await status(reader) == 200
        assert await closed(reader) == b""
        writer.close()
        assert running.recorder.items == 3


@pytest.mark.slow
async def test_idle_connection_is_kept_and_then_closed() -> None:
    async with http_server(read_timeout_s=0.2, idle_timeout_s=1.5) as running:
        reader, writer = await connect(running)
        for _ in range(2):
            writer.write(WHOLE)
            assert await status(reader) == 200
            await asyncio.sleep(0.3)
        assert await closed(reader) == b""
        writer.close()
        assert running.total("otelcol_receiver_requests_total", transport="http", status="read_timeout") == 0


async def test_empty_lines_do_not_keep_an_idle_connection() -> None:
    async with http_server(read_timeout_s=0.3, idle_timeout_s=0.3) as running:
        reader, writer = await connect(running)
        writer.write(WHOLE)
        assert await status(reader) == 200
        writer.write(b"\r\n")
        assert await closed(reader) == b""
        writer.close()


async def test_slow_pipeline_is_not_a_slow_client() -> None:
    async with http_server(read_timeout_s=0.2) as running:
        running.recorder.gate.clear()
        reader, writer = await connect(running)
        writer.write(WHOLE)
        await eventually(lambda: running.recorder.waiting == 1)
        await asyncio.sleep(0.5)
        running.recorder.gate.set()
        assert await status(reader) == 200
        writer.close()


async def test_sender_that_goes_away_does_not_interrupt_the_pipeline() -> None:
    async with http_server() as running:
        running.recorder.gate.clear()
        _, writer = await connect(running)
        writer.write(WHOLE)
        await eventually(lambda: running.recorder.waiting == 1)
        writer.transport.abort()
        running.recorder.gate.set()
        await eventually(lambda: running.recorder.items == 3)
        assert running.errors("receiver") == 0


async def test_sender_that_goes_away_within_the_body_leaves_nothing() -> None:
    async with http_server() as running:
        _, writer = await connect(running)
        writer.write(WHOLE[:-5])
        await writer.drain()
        writer.transport.abort()
        await eventually(lambda: running.total("otelcol_receiver_requests_total", transport="http", status="503") == 1)
        assert running.recorder.batches == []
        assert running.errors("receiver") == 0


async def test_stop_does_not_wait_for_a_slow_sender() -> None:
    async with http_server() as running:
        reader, writer = await connect(running)
        writer.write(WHOLE.replace(b"Host", b"Expect: 100-continue\r\nHost", 1)[:-5])
        assert (await asyncio.wait_for(reader.readline(), LIMIT_S)).startswith(b"HTTP/1.1 100")
        assert await asyncio.wait_for(reader.readline(), LIMIT_S) == b"\r\n"
        await asyncio.wait_for(running.server.stop(0.2), LIMIT_S)
        assert await closed(reader) == b"", "a status that is not retryable would make it drop its data"
        writer.close()


ENDLESS: dict[str, tuple[bytes, Callable[[int], bytes]]] = {
    "headers": (b"POST /v1/traces HTTP/1.1\r\n", lambda n: b"x-%d: " % n + b"y" * 8000 + b"\r\n"),
    "one header": (b"POST /v1/traces HTTP/1.1\r\nx: ", lambda _: b"y" * 8000),
    "path": (b"POST /", lambda _: b"y" * 8000),
    "trailers": (
        b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        lambda n: b"x-%d: " % n + b"y" * 8000 + b"\r\n",
    ),
}


async def send_all(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()


@pytest.mark.parametrize("kind", list(ENDLESS))
async def test_endless_headers_are_cut_off(kind: str) -> None:
    start, more = ENDLESS[kind]
    async with http_server() as running:
        reader, writer = await connect(running)
        writer.write(start)
        with pytest.raises(ConnectionError):
            await send_all(writer, (more(number) for number in range(2_000)))
        await closed(reader)
        writer.close()


async def test_beyond_the_limit_the_longest_idle_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that nobody uses keep no sender out."""
    async with http_server(max_connections=3) as running:
        kept = [await connect(running) for _ in range(3)]
        for reader, writer in kept:
            writer.write(WHOLE)
            assert await status(reader) == 200
        reader, writer = await connect(running)
        assert await closed(kept[0][0]) == b""
        writer.write(WHOLE)
        assert await status(reader) == 200
        assert running.total("otelcol_receiver_requests_total", transport="http", status="too_many_connections") == 1
        assert "http.max_connections: 3 are open" in caplog.text
        for _, open_writer in [*kept, (reader, writer)]:
            open_writer.close()


async def test_beyond_the_limit_no_connection_in_work_is_closed() -> None:
    app, reported = Gate(), list[str]()
    server = BoundedServer(app, "127.0.0.1:0", "test", HttpLimits(2, 9.0, 9.0), cut_off=reported.append)
    port = await server.start()
    waiting = [await ask(port, "/wait") for _ in range(2)]
    await eventually(lambda: app.waiting == 2)
    refused, refused_writer = await ask(port, "/wait")
    assert await closed(refused) == b""
    app.open.set()
    for reader, _ in waiting:
        assert await status(reader) == 200
    assert reported == ["too_many_connections"]
    for writer in (refused_writer, *(one for _, one in waiting)):
        writer.close()


class Gate:
    """An application that answers ``/wait`` when it may, and everything else at once."""

    def __init__(self) -> None:
        self.waiting = 0
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            self.waiting += 1
            await self.open.wait()
        await PlainTextResponse("fine")(scope, receive, send)


async def ask(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
    return reader, writer


async def test_the_newest_connections_stay_where_that_is_wanted() -> None:
    """The longest idle one gives way, and the oldest of all if every one waits for its answer."""
    app, reported = Gate(), list[str]()
    server = BoundedServer(
        app, "127.0.0.1:0", "test", HttpLimits(3, 9.0, 9.0, newest_stay=True), cut_off=reported.append
    )
    port = await server.start()
    busy, busy_writer = await ask(port, "/wait")
    await eventually(lambda: app.waiting == 1)
    used = [await ask(port, "/") for _ in range(2)]
    for reader, _ in reversed(used):  # the first was used last
        assert await status(reader) == 200
    used[0][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await status(used[0][0]) == 200
    assert reported == []
    waiting = [await ask(port, "/wait")]
    assert await closed(used[1][0]) == b""
    waiting.append(await ask(port, "/wait"))
    assert await closed(used[0][0]) == b""
    await eventually(lambda: app.waiting == 3)
    waiting.append(await ask(port, "/wait"))
    assert await closed(busy) == b""
    await eventually(lambda: app.waiting == 4)
    app.open.set()
    for reader, _ in waiting:
        assert await status(reader) == 200
    assert reported == ["too_many_connections"] * 3
    for writer in (busy_writer, *(one for _, one in [*used, *waiting])):
        writer.close()
    server.close()
    await server.wait_closed(1.0)


def connections(running: Running) -> list[Any]:
    """Established connections of this process to the server's port."""
    found = psutil.Process().net_connections("tcp")
    return [one for one in found if one.laddr.port == running.port and one.status == psutil.CONN_ESTABLISHED]


@pytest.mark.parametrize("ending", ["whole request", "nothing", "half a request", "garbage"])
async def test_many_connections_in_sequence_leave_nothing_behind(ending: str) -> None:
    sent = {
        "whole request": WHOLE,
        "nothing": b"",
        "half a request": WHOLE[:-5],
        "garbage": b"\x16\x03\x01 garbage\r\n\r\n",
    }
    async with http_server() as running:
        process, tasks = psutil.Process(), len(asyncio.all_tasks())
        files = process.num_fds()
        for _ in range(100):
            reader, writer = await connect(running)
            writer.write(sent[ending])
            if ending == "whole request":
                assert await status(reader) == 200
            writer.close()
            await writer.wait_closed()
        await eventually(lambda: process.num_fds() <= files and len(asyncio.all_tasks()) <= tasks)
        gc.collect()
        assert running.recorder.items == (300 if ending == "whole request" else 0)
        reader, writer = await connect(running)
        writer.write(WHOLE)
        assert await status(reader) == 200
        writer.close()


async def test_many_grpc_connections_in_sequence_leave_nothing_behind() -> None:
    async with grpc_server() as running:
        process = psutil.Process()
        files = process.num_fds()
        for _ in range(100):
            _, writer = await connect(running)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            writer.close()
            await writer.wait_closed()
        await eventually(lambda: process.num_fds() <= files + 2)
        assert running.errors("receiver") == 0
        assert running.recorder.batches == []


def on_uvloop(work: Callable[[], Awaitable[None]]) -> None:
    """Run in an event loop of the kind the service uses, in a thread of its own."""
    failures: list[BaseException] = []

    def run() -> None:
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(work(), 30))
        except BaseException as error:
            failures.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(40)
    assert not thread.is_alive()
    assert failures == []


def test_deadline_holds_on_uvloop() -> None:
    async def cut_off(running: Running, sent: bytes) -> None:
        reader, writer = await connect(running)
        writer.write(sent)
        await closed(reader)
        writer.close()

    async def work() -> None:
        async with http_server(Recorder(), read_timeout_s=0.3) as running:
            await asyncio.gather(*(cut_off(running, sent) for sent in SLOW.values()))
            reader, writer = await connect(running)
            writer.write(WHOLE)
            assert await status(reader) == 200
            writer.close()

    on_uvloop(work)
