"""The address of a Langfuse server: an ``endpoint`` may be its base URL or the path of its OTLP API."""

from __future__ import annotations

from typing import Final

from trajectory_guard.integrations.langfuse.client import CLOUD
from trajectory_guard_collector.otlp.signals import Signal

LANGFUSE_PATHS: Final = (f"/api/public/otel{Signal.TRACES.path}", "/api/public/otel")
"""API paths of an endpoint that are removed to get the address of the Langfuse server."""


def base_url(endpoint: str | None) -> str:
    """Address of the Langfuse server of an ``endpoint``, without a path of its API.

    >>> base_url("https://langfuse.example.com/api/public/otel/")
    'https://langfuse.example.com'
    """
    base = (endpoint or CLOUD).rstrip("/")
    for given in LANGFUSE_PATHS:
        base = base.removesuffix(given)
    return base
