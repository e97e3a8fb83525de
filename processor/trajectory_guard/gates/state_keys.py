"""The channels of a running graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard.gates.graph_gate import configurable_of
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_READ

BRANCH: Final = "branch:to:"
"""The beginning of the names of channels that lead to a node."""


def channels_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The channels of the running graph; none outside a graph, or if LangGraph hides them."""
    read = configurable_of(config).get(CONFIG_KEY_READ)
    parts = (part for part in getattr(read, "args", ()) if isinstance(part, Mapping))
    return next((part for part in parts if any(str(key).startswith(BRANCH) for key in part)), {})
