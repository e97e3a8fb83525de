"""``debug``: batches on standard output."""

from __future__ import annotations

import sys
from typing import TextIO

from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.base import ExportResult
from trajectory_guard_collector.otlp.signals import Batch


class DebugExporter:
    """Accepts all batches. With ``verbosity: batches`` it prints a line per batch.

    Parameters:
        name: name in the configuration.
        config: ``verbosity`` and ``signals`` count.
        stream: receives the lines; standard output by default.
    """

    def __init__(self, name: str, config: ExporterConfig, *, stream: TextIO | None = None) -> None:
        self.name = name
        self.signals = frozenset(config.signals)
        self._prints = config.verbosity == "batches"
        self._stream = stream

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def export(self, batch: Batch) -> ExportResult:
        """Print the line."""
        if self._prints:
            line = f"{self.name}: {batch.signal}: {batch.items} {batch.signal.items}, {len(batch.data)} bytes"
            print(line, file=self._stream or sys.stdout, flush=True)
        return ExportResult()
