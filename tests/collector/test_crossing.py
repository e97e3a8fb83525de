"""How many files of the collector one request crosses on its way to the reply: a reader has to hold them in mind."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import grpc.aio
import httpx
import pytest

from tests.collector.kit import loop, request
from tests.collector.service_helpers import running
from tests.helpers import COLLECTOR_PACKAGE, TESTS
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.otlp.signals import Signal

MAX_FILES = 26
"""Files of the collector's package, its log format, the writer of its lines and the reader of saved state included; the
engine's and the dialects' are not among them."""
PAGE = TESTS.parent / "docs" / "architecture.md"
Send = Callable[[bytes], Awaitable[Any]]


async def files_crossed(send: Send, data: bytes) -> set[str]:
    """Files of the collector with a function that ran until the reply. The client is no part of the package."""
    found: set[str] = set()
    root = f"{COLLECTOR_PACKAGE}/"

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root):
            found.add(name.removeprefix(root))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        await send(data)
    finally:
        sys.setprofile(before)
    return found


@asynccontextmanager
async def http_sender(collector: Collector) -> Any:
    address = f"http://{collector.endpoints['otlp/http']}{Signal.TRACES.path}"
    async with httpx.AsyncClient() as client:

        async def send(data: bytes) -> None:
            reply = await client.post(address, content=data, headers={"content-type": "application/x-protobuf"})
            assert reply.status_code == 200

        yield send


@asynccontextmanager
async def grpc_sender(collector: Collector) -> Any:
    async with grpc.aio.insecure_channel(collector.endpoints["otlp/grpc"]) as channel:
        yield channel.unary_unary(f"/{Signal.TRACES.grpc_service}/Export")


@pytest.mark.parametrize("sender", [http_sender, grpc_sender])
async def test_a_request_with_a_nudge_crosses_few_files_of_the_collector(
    sender: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    crossed = []
    async with running(exporters={"debug": {}}) as collector, sender(collector) as send:
        for name in ("first", "second", "third", "fourth", "fifth"):
            steps = [request(one) for one in loop(3, prefix=name, trace=name, conversation=name)]
            for data in steps[:-1]:
                await send(data)
            assert "NUDGE" not in capsys.readouterr().out
            crossed.append(await files_crossed(send, steps[-1]))
            assert "NUDGE" in capsys.readouterr().out
    always = set.intersection(*crossed)  # a task of the service that happens to run meanwhile is no part of the path
    assert {"scoring/trajectory.py", "app/pipeline.py"} < always
    assert len(always) <= MAX_FILES, "\n".join(sorted(always))


def test_the_architecture_gives_their_number() -> None:
    assert f"holds their number at {MAX_FILES}," in PAGE.read_text(encoding="utf-8")
