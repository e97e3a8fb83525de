"""The keys of a running graph's state: whether what a node writes there is added, or takes the place of what was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage

from trajectory_guard.gates.graph_gate import configurable_of
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_READ, MISSING

BRANCH: Final = "branch:to:"
"""The beginning of the names of channels that lead to a node."""


def channels_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The channels of the running graph; none outside a graph, or if LangGraph hides them."""
    read = configurable_of(config).get(CONFIG_KEY_READ)
    parts = (part for part in getattr(read, "args", ()) if isinstance(part, Mapping))
    return next((part for part in parts if any(str(key).startswith(BRANCH) for key in part)), {})


def takes_whole_list(channel: Any) -> bool:
    """Whether nodes write all messages and not just new ones: the newest value of that key replaces the one before."""
    before, new = [HumanMessage("before", id="before")], [AIMessage("new", id="new")]
    try:
        tried = channel.from_checkpoint(MISSING)
        tried.update([before])
        tried.update([new])
        tried.finish()
        return bool(tried.get() == new)
    except Exception:  # noqa: BLE001  a key of other things than messages, which shows nothing here
        return False
