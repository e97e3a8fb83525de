"""The tool hooks of a middleware class, out of sight while ``create_agent`` builds an agent that has no tools.

``create_agent`` adds a node for tools as soon as the class of a middleware overrides ``wrap_tool_call``, because the
hook might run tools that only it knows. The guard's hook knows none: in an agent without tools of its own the node
would answer calls that the caller has to answer (tools of a front end) with an error, and call the model again. The
class has to look then as if it overrode nothing, and at that time only ``create_agent`` itself knows the tools.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final, cast

from langchain.agents import factory
from langchain.agents.middleware import AgentMiddleware

from trajectory_guard.gates.async_hooks import Hook, WrappedMethod
from trajectory_guard.gates.rewire import check_own_keys

_NAMES: Final = ("wrap_tool_call", "awrap_tool_call")
_MAX_DEPTH: Final = 3
"""Before Python 3.12 the comprehension in which ``create_agent`` looks at the class has a frame of its own."""


class _ToolHook(WrappedMethod):
    """A method that the class denies to ``create_agent`` where the agent has no tools. Instances always have it.

    Raises, in ``create_agent``: ``GraphShapeError`` if the agent's state has something else under a key of the guard.
    """

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None:
            return self._function.__get__(instance, owner)
        building = being_built(sys._getframe(1))
        if building is None:
            return self._function
        check_own_keys(_schemas_in(building))  # nothing else of the guard runs before the agent does
        return self._function if _has_tool_node(building) else getattr(AgentMiddleware, self._function.__name__)


def for_agents_with_tools(function: Hook) -> Hook:
    """Decorator for ``wrap_tool_call`` and ``awrap_tool_call``: no reason for a node of tools that no agent has."""
    return cast(Hook, _ToolHook(function))


def being_built(frame: FrameType | None) -> Mapping[str, Any] | None:
    """The variables of the ``create_agent`` that looks at a class from this frame; None if none does."""
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return None
        if frame.f_code.co_name == "create_agent" and frame.f_globals is vars(factory):
            return frame.f_locals
        frame = frame.f_back
    return None


def _schemas_in(building: Mapping[str, Any]) -> Iterator[Any]:
    """The classes of the agent's state."""
    yield from (one.state_schema for one in building.get("middleware") or ())
    if (schema := building.get("state_schema")) is not None:
        yield schema


def _has_tool_node(building: Mapping[str, Any]) -> bool:
    """Whether the agent gets a node of tools without the guard: it has tools to run, or another middleware has hooks.

    Tools that are dictionaries run elsewhere: at the provider, or in the caller's front end.
    """
    middleware = building.get("middleware") or ()
    return (
        any(not isinstance(tool, dict) for tool in building.get("tools") or ())
        or any(getattr(one, "tools", None) for one in middleware)
        or any(_overrides(type(one)) for one in middleware)
    )


def _overrides(kind: type) -> bool:
    """Whether a class of middleware has tool hooks other than the guard's."""
    found = [inspect.getattr_static(kind, name, None) for name in _NAMES]
    plain = [inspect.getattr_static(AgentMiddleware, name) for name in _NAMES]
    return any(one is not base and not isinstance(one, _ToolHook) for one, base in zip(found, plain, strict=True))
