"""Pipecat: model calls by the semantic conventions, with messages and tools under keys without a prefix."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Messages

PIPECAT = Dialect(name="pipecat", messages=Messages(tools=("tools",)))
