"""The channels of a running graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph.channels import LastValue
from pydantic import BaseModel, TypeAdapter, ValidationError

from trajectory_guard.gates.graph_gate import configurable_of
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_READ

BRANCH: Final = "branch:to:"
"""The beginning of the names of channels that lead to a node."""

_RESPONSE: Final = "structured_response"
_RESPONDS: Final = f"{BRANCH}generate_{_RESPONSE}"
"""Leads to the node by which an agent of ``create_react_agent(response_format=...)`` ends."""


def channels_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The channels of the running graph; none outside a graph, or if LangGraph hides them."""
    read = configurable_of(config).get(CONFIG_KEY_READ)
    parts = (part for part in getattr(read, "args", ()) if isinstance(part, Mapping))
    return next((part for part in parts if any(str(key).startswith(BRANCH) for key in part)), {})


def without_response(config: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """An update that takes the structured response of an earlier user turn from the state; empty if none is due.

    A stopped agent does not reach the node that writes it. In a graph built by hand another node may write this key in
    the same super-step, which LangGraph refuses: there it stays.

    Parameters:
        state: as the agent's node receives it; a state that is a model is checked whenever a node reads it.
    """
    channels = channels_of(config)
    channel = channels.get(_RESPONSE)
    if _RESPONDS not in channels or type(channel) is not LastValue:
        return {}
    if isinstance(state, BaseModel):
        try:
            TypeAdapter(channel.typ).validate_python(None)
        except ValidationError:
            return {}
    return {_RESPONSE: None}
