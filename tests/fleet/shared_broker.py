"""One broker for all processes in which tests run: the first of them starts it, the last one ends it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fleet.broker import Broker


@contextmanager
def shared_broker(directory: Path) -> Iterator[str]:
    """The address of the broker of a directory, which the processes have in common.

    Raises:
        NoKafkaError: Kafka cannot be run here.
    """
    directory.mkdir(exist_ok=True)
    with _alone(directory):
        known = _known(directory) or _started(directory)
        _write(directory, {**known, "users": known["users"] + 1})
    try:
        yield known["address"]
    finally:
        with _alone(directory):
            known = _known(directory)
            if known["users"] > 1:
                _write(directory, {**known, "users": known["users"] - 1})
            else:
                os.kill(known["pid"], signal.SIGKILL)
                (directory / "broker.json").unlink()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _known(directory: Path) -> dict[str, Any]:
    file = directory / "broker.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _write(directory: Path, known: dict[str, Any]) -> None:
    (directory / "broker.json").write_text(json.dumps(known))


def _started(directory: Path) -> dict[str, Any]:
    one = Broker(Path(tempfile.mkdtemp(dir=directory)))
    one.start()
    assert one.process is not None
    return {"address": one.address, "pid": one.process.pid, "users": 0}
