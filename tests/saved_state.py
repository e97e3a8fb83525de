"""Saved state as another version of the engine writes it."""

from __future__ import annotations

from trajectory_guard.core.state import FORMAT_VERSION

_WITHIN = rb"\"v\":%d,"


def of_another_version(data: bytes) -> bytes:
    """Saved data of the collector or of a worker, with the engine's states in it as of another version."""
    return data.replace(_WITHIN % FORMAT_VERSION, _WITHIN % (FORMAT_VERSION - 1))
