"""The gate as middleware for ``langchain.agents.create_agent``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from trajectory_guard.extras import missing

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ToolCallRequest, hook_config
    from langchain.agents.middleware.types import OmitFromInput, PrivateStateAttr
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the middleware", error, "langgraph"), name=error.name) from error
from typing_extensions import NotRequired

from trajectory_guard.config import GuardConfig
from trajectory_guard.flags import FlagBoard
from trajectory_guard.gates.langgraph import NudgeRole, TrajectoryGuardNode, bounded_append
from trajectory_guard.gates.messages import MARK, is_tool_message


class GuardedState(AgentState[Any]):
    """Agent state with the guard's two keys; neither can be set from outside."""

    # the reducer has to come last: LangGraph looks at nothing else
    trajectory_scratchpad: NotRequired[Annotated[list[dict[str, Any]], PrivateStateAttr, bounded_append]]
    loop_status: NotRequired[Annotated[dict[str, Any], OmitFromInput]]


class TrajectoryGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards an agent made by ``create_agent``: nudges before the model call, stops instead of it.

        agent = create_agent(model, tools, middleware=[TrajectoryGuardMiddleware()])

    Parameters:
        config, on_stop, nudge_role, board: as for ``TrajectoryGuardNode``; ``on_stop`` is ``"end"``, ``"raise"`` or
            ``"interrupt"``.
        refuse_pointless: answer a call that is known to be pointless (made before, with the same answer, in a
            trajectory that was nudged for it) with a refusal instead of running the tool.
    """

    state_schema = GuardedState

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        on_stop: str = "end",
        nudge_role: NudgeRole = "user",
        refuse_pointless: bool = False,
        board: FlagBoard | None = None,
    ) -> None:
        super().__init__()
        if on_stop not in ("end", "raise", "interrupt"):
            raise ValueError(f"on_stop: {on_stop!r} is none of 'end', 'raise', 'interrupt'")
        self._node = TrajectoryGuardNode(config, agent="model", on_stop=on_stop, nudge_role=nudge_role, board=board)
        self._refuse = refuse_pointless

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Decide after the tools have answered; at the start of a turn there is nothing to decide."""
        messages = state.get("messages") or []
        if not messages or not is_tool_message(messages[-1]):
            return None
        command = self._node._run(state, _config(runtime))
        update = dict(command.update) if isinstance(command.update, Mapping) else {}
        if command.goto != "model":
            update["jump_to"] = "end"
        return update or None

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As ``before_model``."""
        if self._node.gate.remote is None:
            return self.before_model(state, runtime)
        return await asyncio.to_thread(self.before_model, state, runtime)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run the tool, or refuse if the call is known to be pointless."""
        return self._refusal(request) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As ``wrap_tool_call``."""
        return self._refusal(request) or await handler(request)

    def _refusal(self, request: ToolCallRequest) -> ToolMessage | None:
        if not self._refuse:
            return None
        try:
            status = request.state.get("loop_status") or {}
            known = self._node.gate.is_pointless(str(status.get("trajectory_id") or ""), request.tool_call)
        except Exception:
            self._node.gate.contain()
            return None
        if not known:
            return None
        call = request.tool_call
        text = f"Not run: {call['name']} with these arguments has returned the same before. Do something else."
        return ToolMessage(
            text,
            tool_call_id=call["id"],
            name=call["name"],
            status="error",
            additional_kwargs={MARK: {"refused": True}},
        )


def _config(runtime: Any) -> RunnableConfig:
    """The run's configuration. Under asyncio Python 3.10 has it nowhere; then what the runtime knows of it."""
    try:
        return get_config()
    except RuntimeError:
        info = getattr(runtime, "execution_info", None)
        known = {name: getattr(info, name, None) for name in ("thread_id", "checkpoint_ns")}
        return {"configurable": {name: value for name, value in known.items() if value is not None}}
