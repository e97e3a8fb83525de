"""Between a transport and the pipeline."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.collector.kit import request, tool
from tests.collector.receiver_helpers import Recorder, Room
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.gateway.receivers.request_handler import RequestHandler, Unlimited
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.metrics import Metrics


async def test_a_refusal_that_nobody_hears_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A sender that timed out before a backend did: while the backend is down there are many of them."""
    decided, heard = asyncio.Event(), asyncio.Event()

    async def accept(batch: Batch) -> None:
        heard.set()
        await decided.wait()
        raise UnavailableError("the backend is down")

    handler = RequestHandler("grpc", accept, Metrics(), memory=Unlimited(), max_requests=1)
    sender = asyncio.create_task(handler.submit(Signal.TRACES, request(tool("s"))))
    await heard.wait()
    sender.cancel()
    await asyncio.gather(sender, return_exceptions=True)
    decided.set()
    for _ in range(10):
        await asyncio.sleep(0)
    del sender
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_room_is_asked_for_the_usual_size_of_requests() -> None:
    """gRPC does not say how large a request will be."""
    room, data = Room(), request(tool("s"))
    handler = RequestHandler("grpc", Recorder().accept, Metrics(), memory=room, max_requests=10)
    for _ in range(40):
        with handler.reading():
            pass
        await handler.submit(Signal.TRACES, data)
    assert room.asked[0] == 4 << 20, "after a start all senders come at once"
    assert room.asked == sorted(room.asked, reverse=True)
    assert len(data) <= room.asked[-1] < len(data) + 100
    with handler.reading(50_000):
        assert room.asked[-1] == 50_000, "what is declared counts if it is more"
