"""The stream worker beside the collector, on the same loads in the same run: spans a second on one core."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench import collector
from tests.bench.measure import Effort
from tests.bench.recorded_load import recorded_load
from tests.bench.report import Row

PYTHON: Final = "FLEET_PYTHON"
"""Variable that names a Python with the extra ``fleet``."""
ROOT: Final = Path(__file__).parents[2]
_ENVIRONMENT: Final = ROOT / ".venv-fleet" / "bin" / "python"
_TIMEOUT_S: Final = 600.0


class Subject(NamedTuple):
    """A load, how much of it, spans a second to reach, and the same with the collector."""

    load: str
    what: str
    amount: int
    target: float
    beside: Callable[[], collector.Result]


def rows(effort: Effort) -> Iterator[Row]:
    """The table's lines; one line with the reason where the worker cannot be run."""
    python = _python()
    if python is None:
        reason = f"the extra 'fleet' is missing: `make test-fleet` makes .venv-fleet, or set {PYTHON}"
        yield Row("stream worker", None, versus=f"skipped: {reason}")
        return
    for subject in _subjects(full=effort.rounds > 20):
        found = _figures(python, subject)
        if "skipped" in found:
            yield Row("stream worker", None, versus=f"skipped: {found['skipped']}")
            return
        ours, peer = found["seconds"] / found["spans"] * 1e6, subject.beside()
        worked = found["spans"] / found["processor_seconds"]
        yield Row(
            f"stream worker, a span{subject.what}, one core, backlog ({1e6 / ours:,.0f} spans/s,"
            f" {worked:,.0f} a second of processor time, {found['evaluations']:.2f} evaluations a step)",
            ours,
            reference=peer.us_per_span,
            versus=f"collector ({1e6 / peer.us_per_span:,.0f} spans/s)",
            most=1e6 / subject.target,
            failed=bool(peer.failed),
        )


def _subjects(*, full: bool) -> tuple[Subject, ...]:
    copies = 4 if full else 1
    return (
        Subject("wide", ", 10 % tools", 160 if full else 40, 25_000,
                lambda: asyncio.run(collector.throughput("collector", 12.0 if full else 3.0))),
        Subject("recorded", " of recorded runs", copies, 6_000,
                lambda: asyncio.run(collector.recorded("collector", recorded_load(copies=copies)))),
    )  # fmt: skip


def _python() -> str | None:
    """A Python that has the stream engine."""
    named = os.environ.get(PYTHON)
    if named:
        return named
    if _ENVIRONMENT.exists():
        return str(_ENVIRONMENT)
    return sys.executable if find_spec("quixstreams") is not None else None


def _figures(python: str, subject: Subject) -> dict[str, Any]:
    """Figures of ``tests.bench.stream_worker``, or ``skipped``.

    Raises:
        RuntimeError: it failed.
    """
    path = os.pathsep.join(str(ROOT / part) for part in ("", "processor", "collector"))
    done = subprocess.run(
        [python, "-m", "tests.bench.stream_worker", subject.load, str(subject.amount)], cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"tests.bench.stream_worker {subject.load}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
