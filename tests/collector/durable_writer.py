"""Run as a process that is killed: delivers with storage, prints the id of every span that was acknowledged.

Usage: ``python -m tests.collector.durable_writer PORT DIRECTORY FIRST_ID``. With a first id it delivers one span after
the other, in four tasks, until it is killed; without, it drains what is on disk and ends.
"""

from __future__ import annotations

import asyncio
import sys

from tests.collector.backends import Counted, settings, spans
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.gateway.storage.store import Store


def configuration(port: int, directory: str) -> CollectorConfig:
    exporters = {"otlp": {"endpoint": f"http://127.0.0.1:{port}", "sending_queue": {"num_consumers": 2}}}
    return settings(exporters, storage=directory)


async def write(delivery: Delivery, first: int) -> None:
    number = first
    while True:
        await delivery.deliver(spans([number], padding=2000), wal_entry=number.to_bytes(8, "big"))
        print(number, flush=True)
        number += 4


async def main(port: int, directory: str, first: int | None) -> None:
    config = configuration(port, directory)
    store = Store(config.queue)
    await store.start()
    delivery = Delivery(config, Counted(), store)
    await delivery.start()
    if first is None:
        await delivery.stop(20.0)
        await store.stop()
    else:
        await asyncio.gather(*(write(delivery, first + at) for at in range(4)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None))
