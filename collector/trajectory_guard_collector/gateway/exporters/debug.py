"""``debug``: batches on standard output."""

from __future__ import annotations

from collections.abc import Callable

from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.base import ExportResult
from trajectory_guard_collector.otlp.signals import Batch


class DebugExporter:
    """Accepts all batches. With ``verbosity: batches`` it prints a line per batch.

    Parameters:
        name: name in the configuration.
        config: ``verbosity`` and ``signals`` count.
        write: receives the lines; prints them on standard output by default.
    """

    def __init__(self, name: str, config: ExporterConfig, *, write: Callable[[str], object] = print) -> None:
        self.name = name
        self.signals = frozenset(config.signals)
        self._prints = config.verbosity == "batches"
        self._write = write

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def export(self, batch: Batch) -> ExportResult:
        """Print the line."""
        if self._prints:
            self._write(f"{self.name}: {batch.signal}: {batch.items} {batch.signal.items}, {len(batch.data)} bytes")
        return ExportResult()
