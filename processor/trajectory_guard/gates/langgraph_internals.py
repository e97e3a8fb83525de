"""The parts of LangGraph that are not public, and that gates cannot do without: nothing else in the package names them.

    langgraph             0.5   0.6   1.0   1.1   1.2   (newest of each, and 1.2.0)
    names of modules      no    yes   yes   yes   yes
    parts of a ToolNode   no    no    yes   yes   yes

The gates are tested with ``SUPPORTED`` only. For another version: adapt this module, run ``tests/gates``, and change
``SUPPORTED`` together with the bounds in ``pyproject.toml``.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.extras import missing

SUPPORTED: Final = "langgraph >=1.2,<1.3"

try:
    from langgraph._internal._constants import (
        CONFIG_KEY_CHECKPOINTER,  # in the configuration of a run: whether it is saved, and can wait for a person
        CONFIG_KEY_READ,  # reads the state, also what the node before has just written; a node sees its own keys only
        CONFIG_KEY_RUNTIME,  # whether a configuration is that of a graph that runs
        CONFIG_KEY_SEND,  # takes the writes of a node: the status of the guard goes with them, or in their place
        CONFIG_KEY_TASK_ID,  # names the execution of a node, which an interrupt or a retry begins once more
        RESUME,  # the key of a write that notes a person's answer
    )
    from langgraph._internal._runnable import (
        RunnableCallable,  # a node as LangGraph keeps it; one without a trace adds no span of its own
        RunnableSeq,  # a node with its writers, as a stand-in for a node that is not to run
        coerce_to_runnable,  # makes a runnable of whatever ``add_node`` takes
    )
    from langgraph._internal._typing import MISSING  # a channel without a checkpoint
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel._messages import StreamMessagesHandler  # streams messages; has to leave out the guard's own
    from langgraph.pregel._read import PregelNode  # a node of a compiled graph; the guarded node is one
    from langgraph.pregel._utils import find_subgraph_pregel  # the compiled graph that a node runs
    from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry  # the edge by which a gate leads elsewhere
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph", fits=SUPPORTED), name=error.name) from error

__all__ = [
    "CONFIG_KEY_CHECKPOINTER",
    "CONFIG_KEY_READ",
    "CONFIG_KEY_RUNTIME",
    "CONFIG_KEY_SEND",
    "CONFIG_KEY_TASK_ID",
    "MISSING",
    "RESUME",
    "SUPPORTED",
    "ChannelWrite",
    "ChannelWriteEntry",
    "PregelNode",
    "RunnableCallable",
    "RunnableSeq",
    "StreamMessagesHandler",
    "Unhandled",
    "coerce_to_runnable",
    "find_subgraph_pregel",
    "tools_of",
    "with_wrappers",
    "wrappers_of",
]


def tools_of(node: ToolNode) -> dict[str, Any]:
    """The tools of a tool node by name."""
    return node._tools_by_name


def wrappers_of(node: ToolNode) -> tuple[Any, Any]:
    """``wrap_tool_call`` and ``awrap_tool_call`` of a tool node, None where it has none."""
    return node._wrap_tool_call, node._awrap_tool_call


class Unhandled(BaseException):
    """Carries an error of a tool out of a tool node whose ``handle_tool_errors`` does not handle it.

    A node without wrappers raises such an error. One with a wrapper hands every ``Exception`` of it to the model.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


def with_wrappers(twin: ToolNode, wrap: Any, awrap: Any) -> ToolNode:
    """A copy of a tool node, with other wrappers around its calls; what they raise as ``Unhandled`` leaves the node.

    Where the application has put a function of its own in the place of ``func`` or ``afunc``, that one goes on to run,
    and calls the original node.
    """
    twin._wrap_tool_call, twin._awrap_tool_call = wrap, awrap
    run, arun = twin._run_one, twin._arun_one

    def run_one(*args: Any, **named: Any) -> Any:
        try:
            return run(*args, **named)
        except Unhandled as unhandled:
            error = unhandled.error
        raise error

    async def arun_one(*args: Any, **named: Any) -> Any:
        try:
            return await arun(*args, **named)
        except Unhandled as unhandled:
            error = unhandled.error
        raise error

    twin._run_one, twin._arun_one = run_one, arun_one  # type: ignore[method-assign]
    methods: dict[str, Any] = {"func": twin._func, "afunc": twin._afunc}
    for name, own in methods.items():
        if getattr(getattr(twin, name), "__func__", None) is own.__func__:  # bound to the original
            setattr(twin, name, own)
    return twin
