"""The durable queue when the disk fills up and when the process is killed: with real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpc import StatusCode

from tests.collector.backends import Counted, GrpcBackend, delivering, grpc_backend, otlp, refuse, settings, until
from trajectory_guard_collector.gateway.storage.store import Store


@asynccontextmanager
async def reopened(directory: Path, backend: GrpcBackend) -> AsyncIterator[Store]:
    """A store that delivers the requests which a process that is gone has left."""
    config = settings({"otlp": otlp(backend)}, storage=str(directory))
    store = Store(config.queue)
    await store.start()
    try:
        async with delivering(config, Counted(), store):
            yield store
    finally:
        await store.stop()


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from tests.collector.backends import Counted, settings, spans, until
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.gateway.storage.store import Store

async def main(port, directory):
    config = settings({"otlp": {"endpoint": f"http://127.0.0.1:{port}"}}, storage=directory)
    store = Store(config.queue)
    await store.start()
    delivery = Delivery(config, Counted(), store)
    await delivery.start()
    number = 0
    async def fill():
        nonlocal number
        while True:
            await delivery.deliver(spans([number], padding=100_000))
            print(number, flush=True)
            number += 1
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    try:
        await asyncio.wait_for(fill(), 30)
    except OverloadedError as error:
        print("refused", error.retry_after_s, store.ready() is not None, flush=True)
    refused = 0
    for _ in range(60):
        try:
            await delivery.deliver(spans([number], padding=100_000))
        except OverloadedError:
            refused += 1
        else:
            print(number, flush=True)
            number += 1
    print("refused again", refused > 20, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await until(lambda: store.ready() is None)
    for _ in range(20):
        await delivery.deliver(spans([number], padding=100_000))
        print(number, flush=True)
        number += 1
    print("ready", store.ready(), flush=True)
    await delivery.stop(0.1)
    await store.stop()

asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
"""


async def test_a_disk_that_fills_up_refuses_and_recovers_and_keeps_what_was_acknowledged(tmp_path):
    """The limit on the size of files makes real writes of the operating system fail in the middle of a transaction."""
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FULL_DISK, str(backend.port), str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        lines = output.decode().splitlines()
        assert process.returncode == 0
        assert "refused 1.0 True" in lines
        assert "refused again True" in lines
        assert lines[-1] == "ready None"
        acknowledged = {int(line) for line in lines if line.isdigit()}
        assert len(acknowledged) > 20
        backend.always = None
        async with reopened(tmp_path, backend) as store:
            await until(lambda: store.used_bytes == 0)
    assert set(backend.spans) == acknowledged


async def killed_after(backend: GrpcBackend, directory: Path, first: int, acknowledgements: int) -> list[int]:
    """Spans that a writer had acknowledged when it was killed with SIGKILL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.collector.durable_writer", str(backend.port), str(directory), str(first)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    acknowledged = [int(await asyncio.wait_for(process.stdout.readline(), 60)) for _ in range(acknowledgements)]
    process.kill()
    rest = await process.stdout.read()
    await process.wait()
    return acknowledged + [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]


async def test_ten_kills_lose_nothing_that_was_acknowledged(tmp_path):
    acknowledged: set[int] = set()
    async with grpc_backend() as backend:
        for kill in range(10):
            backend.always = refuse(StatusCode.UNAVAILABLE) if kill % 3 == 0 else None
            acknowledged.update(await killed_after(backend, tmp_path, kill * 1_000_000, 5 + 17 * kill))
        backend.always = None
        async with reopened(tmp_path, backend) as store:
            await until(lambda: set(backend.spans) >= acknowledged)
            logged = {int.from_bytes(row, "big") for _, row in await store.wal_rows()}
    assert len(acknowledged) >= sum(5 + 17 * kill for kill in range(10))
    assert acknowledged <= logged
    assert backend.spans.total() <= 1.5 * len(backend.spans) + 100
