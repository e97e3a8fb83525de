"""Exporters, one type for each kind of backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trajectory_guard_collector.config.checks import exporter_type
from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.base import Exporter
from trajectory_guard_collector.gateway.exporters.debug import DebugExporter
from trajectory_guard_collector.gateway.exporters.langfuse import langfuse_exporter
from trajectory_guard_collector.gateway.exporters.otlp_grpc import OtlpGrpcExporter
from trajectory_guard_collector.gateway.exporters.otlp_http import OtlpHttpExporter
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_Via = Callable[[Signal], str]
_Write = Callable[[str], object]
_TYPES: Final[Mapping[str, Callable[[str, ExporterConfig, ThrottledLog, _Via, _Write], Exporter]]] = {
    "otlp": lambda name, config, log, via, _: OtlpGrpcExporter(name, config, log, via=via),
    "otlphttp": lambda name, config, log, via, _: OtlpHttpExporter(name, config, log, via=via),
    "langfuse": lambda name, config, log, _, __: langfuse_exporter(name, config, log),
    "debug": lambda name, config, _, __, write: DebugExporter(name, config, write=write),
}


def build_exporters(
    configs: Mapping[str, ExporterConfig], log: ThrottledLog, via: _Via = lambda _: "", write: _Write = print
) -> list[Exporter]:
    """Create the configured exporters; none is started.

    Parameters:
        configs: configuration by name; the type is in the part of the name before a slash.
        log: logs the replies of backends.
        via: names the collectors that a request of a signal has passed, for the header ``config.headers.VIA``.
        write: receives the lines of debug exporters.

    Raises:
        ValueError: a type is unknown or a section cannot be used; names the exporter and the key.
    """
    return [_build(name, config, log, via, write) for name, config in configs.items()]


def _build(name: str, config: ExporterConfig, log: ThrottledLog, via: _Via, write: _Write) -> Exporter:
    kind = exporter_type(name)
    if kind not in _TYPES:
        raise ValueError(f"exporters.{name}: unknown type {kind!r}, known are {', '.join(_TYPES)}")
    return _TYPES[kind](name, config, log, via, write)
