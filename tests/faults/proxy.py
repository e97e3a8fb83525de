"""A TCP proxy in front of a backend that misbehaves when told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

_CHUNK = 65_536


class Fault(NamedTuple):
    """The proxy's treatment of a connection.

    Fields:
        name: for people.
        reply: bytes to answer with once something has come, before the connection is cut; nothing goes on.
        delay_s: pause before each chunk goes on.
        lossy: answers are not passed back: the backend has the batch, but nobody hears of it.
        silent: nothing goes on, nothing is answered, the connection stays.
    """

    name: str
    reply: bytes | None = None
    delay_s: float = 0.0
    lossy: bool = False
    silent: bool = False


def http(status: str, body: str = "", *headers: str) -> bytes:
    """An HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


FINE = Fault("fine")
CUT = Fault("cuts connections", reply=b"")
SILENT = Fault("is silent", silent=True)
SLOW = Fault("is slow", delay_s=0.15)
LOSSY = Fault("takes batches and does not say so", lossy=True)
GARBAGE = Fault("answers garbage", reply=bytes(range(256)) * 40)
WEB_PAGE = Fault("is a web server", reply=http("502 Bad Gateway", "<html>no", "content-type: text/html"))
BUSY = Fault("is busy", reply=http("503 Service Unavailable", "later"))
THROTTLING = Fault("is throttling", reply=http("429 Too Many Requests", "", "retry-after: 1"))
NOT_FOUND = Fault("has another path", reply=http("404 Not Found"))
DENIED = Fault("wants other credentials", reply=http("401 Unauthorized"))
BROKEN = Fault("is broken", reply=http("500 Internal Server Error", "Traceback"))


class Proxy:
    """Forwards connections to a port, or does what ``fault`` says. Setting a fault cuts the connections there are."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.seen = 0
        self._to = port
        self._fault = FINE
        self._open: set[asyncio.Task[None]] = set()

    @property
    def fault(self) -> Fault:
        return self._fault

    def set(self, fault: Fault) -> None:
        """From now on."""
        self._fault, self.seen = fault, 0
        for task in self._open:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self._fault
        if fault.reply is not None:
            await reader.read(_CHUNK)
            self.seen += 1
            writer.write(fault.reply)
            await writer.drain()
            return
        if fault.silent:
            self.seen += 1
            while await reader.read(_CHUNK):
                pass
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            self.seen += 1
            await _first_of(self._pipe(reader, back), self._pipe(there, writer, lossy=fault.lossy))
        finally:
            back.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, lossy: bool = False) -> None:
        while data := await reader.read(_CHUNK):
            if self._fault.delay_s:
                await asyncio.sleep(self._fault.delay_s)
            if not lossy:
                writer.write(data)
                await writer.drain()


async def _first_of(*pipes: object) -> None:
    tasks = [asyncio.ensure_future(pipe) for pipe in pipes]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a port, for the time of a test."""
    made = Proxy(port)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.set(CUT)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 5)
