"""``langfuse``: Langfuse's OTLP endpoint."""

from __future__ import annotations

from typing import Final

from trajectory_guard.hidden import basic
from trajectory_guard_collector.config.langfuse import LANGFUSE_PATHS, base_url
from trajectory_guard_collector.config.models import Exporter as ExporterConfig
from trajectory_guard_collector.gateway.exporters.otlp_http import OtlpHttpExporter
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_INGESTION_VERSION: Final = "4"


def langfuse_exporter(name: str, config: ExporterConfig, log: ThrottledLog) -> OtlpHttpExporter:
    """Exporter for the traces of one Langfuse project.

    Langfuse refuses a whole request for one malformed span; delivery halves such a request until that span is alone.

    Parameters:
        name: name in the configuration.
        config: ``endpoint`` is the base URL (Langfuse Cloud, EU, by default); both keys are required.
        log: for replies that cannot be read.

    Raises:
        ValueError: a key is missing, or as by ``OtlpHttpExporter``; names it.
    """
    missing = [key for key in ("public_key", "secret_key") if getattr(config, key) is None]
    if missing or config.public_key is None or config.secret_key is None:
        raise ValueError(f"exporters.{name}.{missing[0]} is missing")
    keys = (config.public_key.get_secret_value(), config.secret_key.get_secret_value())
    return OtlpHttpExporter(
        name,
        config,
        log,
        urls={Signal.TRACES: base_url(config.endpoint) + LANGFUSE_PATHS[0]},
        headers={
            "authorization": basic(*keys),
            # Langfuse shows spans of this version at once; older ones wait for a batch job.
            "x-langfuse-ingestion-version": _INGESTION_VERSION,
        },
    )
