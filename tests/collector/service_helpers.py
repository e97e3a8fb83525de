"""Collectors in the process of the test, on ports of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.config.models import CollectorConfig


def service_config(*, auth: Mapping[str, Any] | None = None, **sections: Any) -> CollectorConfig:
    """Every port free, no configuration otherwise."""
    protocols = {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    return CollectorConfig.model_validate({
        "receivers": {"otlp": {"protocols": protocols, "auth": auth or {}}},
        "telemetry": {"endpoint": "127.0.0.1:0"},
        **sections,
    })  # fmt: skip


@asynccontextmanager
async def running(**sections: Any) -> AsyncIterator[Collector]:
    """A collector that listens, stopped in the end."""
    collector = Collector(service_config(**sections))
    await collector.start()
    try:
        yield collector
    finally:
        await collector.stop()
