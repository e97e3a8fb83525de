"""Between a transport and the pipeline."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.collector.kit import request, tool
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.metrics import Metrics
from trajectory_guard_collector.receivers.intake import Intake, never
from trajectory_guard_collector.signals import Batch, Receipt, Signal


async def test_a_refusal_that_nobody_hears_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A sender that timed out before a backend did: while the backend is down there are many of them."""
    decided, heard = asyncio.Event(), asyncio.Event()

    async def accept(batch: Batch, transport: str) -> Receipt:
        heard.set()
        await decided.wait()
        raise UnavailableError("the backend is down")

    intake = Intake("grpc", accept, Metrics(), refuse=never, max_requests=1)
    sender = asyncio.create_task(intake.submit(Signal.TRACES, request(tool("s"))))
    await heard.wait()
    sender.cancel()
    await asyncio.gather(sender, return_exceptions=True)
    decided.set()
    for _ in range(10):
        await asyncio.sleep(0)
    del sender
    gc.collect()
    assert "never retrieved" not in caplog.text
