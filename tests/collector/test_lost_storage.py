"""Files of the storage that are deleted or replaced while a collector has them open: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from grpc import StatusCode

from tests.collector.backends import (
    Counted,
    GrpcBackend,
    delivering,
    grpc_backend,
    otlp,
    refuse,
    settings,
    spans,
    until,
)
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.gateway.delivery.router import Delivery
from trajectory_guard_collector.gateway.storage.database import FILE_NAME
from trajectory_guard_collector.gateway.storage.store import Store

LOG = f"{FILE_NAME}-wal"


def _remove(*names: str) -> Callable[[Path], None]:
    def remove(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return remove


REMOVED: dict[str, Callable[[Path], object]] = {
    "file": _remove(FILE_NAME),
    "log": _remove(LOG),
    "file and log": _remove(FILE_NAME, LOG),
    "directory": shutil.rmtree,
    "moved": lambda directory: directory.rename(directory.with_name("elsewhere")),
}


async def delivered_after_a_crash(directory: Path, backend: GrpcBackend) -> set[int]:
    """What a collector delivers that starts with the files as they are now."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    config = settings({"otlp": otlp(backend)}, storage=str(copy))
    store = Store(config.queue)
    await store.start()
    backend.always = None
    async with delivering(config, Counted(), store):
        await until(lambda: store.used_bytes == 0)
    await store.stop()
    return set(backend.spans)


async def started(directory: Path, backend: GrpcBackend, saved: list[None]) -> tuple[Store, Delivery]:
    config = settings({"otlp": otlp(backend)}, storage=str(directory))
    store = Store(config.queue, saved_anew=lambda: saved.append(None))
    await store.start()
    delivery = Delivery(config, Counted(), store)
    await delivery.start()
    return store, delivery


async def deliver(delivery: Delivery, numbers: Iterable[int]) -> None:
    for number in numbers:
        await delivery.deliver(spans([number]))


@pytest.mark.parametrize("removed", REMOVED)
async def test_what_was_acknowledged_survives_the_loss_of_the_files(tmp_path: Path, removed: str) -> None:
    directory, saved = tmp_path / "storage", []
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        store, delivery = await started(directory, backend, saved)
        await deliver(delivery, range(3))
        REMOVED[removed](directory)
        await deliver(delivery, range(3, 6))
        assert len(saved) == 1
        assert (store.ready(), sorted(one.name for one in directory.iterdir())) == (None, [FILE_NAME, LOG])
        assert directory.stat().st_mode & 0o077 == (directory / FILE_NAME).stat().st_mode & 0o077 == 0
        assert await delivered_after_a_crash(directory, backend) == set(range(6))
        await delivery.stop(0.1)
        await store.stop()
        assert [one.name for one in directory.iterdir()] == [FILE_NAME]


async def test_a_file_that_took_the_place_is_not_overwritten_and_data_is_refused(tmp_path: Path) -> None:
    directory, saved = tmp_path / "storage", []
    async with grpc_backend() as backend:
        backend.always = refuse(StatusCode.UNAVAILABLE)
        store, delivery = await started(directory, backend, saved)
        await deliver(delivery, range(3))
        (tmp_path / "other").write_bytes(b"somebody's")
        (tmp_path / "other").replace(directory / FILE_NAME)
        with pytest.raises(OverloadedError, match="was replaced while it was open"):
            await delivery.deliver(spans([3]))
        assert "was replaced" in (store.ready() or "")
        assert (saved, (directory / FILE_NAME).read_bytes()) == ([], b"somebody's")
        (directory / FILE_NAME).rename(tmp_path / "other")
        await until(lambda: store.ready() is None)
        await delivery.deliver(spans([4]))
        assert len(saved) == 1
        assert await delivered_after_a_crash(directory, backend) == {0, 1, 2, 4}
        await delivery.stop(0.1)
        await store.stop()
