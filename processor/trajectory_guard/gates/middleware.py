"""The gate as middleware for ``langchain.agents.create_agent``."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final

from trajectory_guard.extras import missing

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, ToolCallRequest
    from langchain.agents.middleware.types import ExtendedModelResponse, OmitFromInput, PrivateStateAttr
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.pregel._messages import StreamMessagesHandler
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the middleware", error, "langgraph"), name=error.name) from error
from typing_extensions import NotRequired

from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.agent_node import MEMORY, bounded_append, split_status
from trajectory_guard.gates.compiled import guarded_tool
from trajectory_guard.gates.gate import Decision
from trajectory_guard.gates.graph_check import unguarded_in_tool
from trajectory_guard.gates.graph_gate import GraphGate, NudgeRole
from trajectory_guard.gates.messages import MARK
from trajectory_guard.gates.state_of import StateOf
from trajectory_guard.store import FlagBoard

_MAX_OPEN: Final = 1024
_MAX_TOOLS: Final = 256
_log: Final = logging.getLogger(telemetry.LOGGER)


def _newest(before: Any, new: Any) -> Any:
    return new


class GuardedState(AgentState[Any]):
    """Agent state with the guard's keys; none can be set from outside."""

    # the reducer has to come last: LangGraph looks at nothing else
    trajectory_scratchpad: NotRequired[Annotated[list[dict[str, Any]], PrivateStateAttr, bounded_append]]
    loop_status: NotRequired[Annotated[dict[str, Any], OmitFromInput]]
    trajectory_guard_memory: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, _newest]]


class TrajectoryGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards an agent made by ``create_agent``: nudges before the model call, stops instead of it.

        agent = create_agent(model, tools, middleware=[TrajectoryGuardMiddleware()])

    It runs inside the model's own super-step. Agents that the tools of this one call, such as the sub-agents of
    ``deepagents``, are guarded with it where the tool's function holds them; a warning names those that it finds and
    cannot reach, because they stand behind a global name.

    Parameters:
        config, on_stop, nudge_role, state_of, board: as for ``TrajectoryGuardNode``; ``on_stop`` is ``"end"``,
            ``"raise"`` or ``"interrupt"``.
        refuse_pointless: answer a call that is known to be pointless (made before, with the same result, in a
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
        state_of: StateOf | None = None,
        board: FlagBoard | None = None,
    ) -> None:
        super().__init__()
        if on_stop not in ("end", "raise", "interrupt"):
            raise ValueError(f"on_stop: {on_stop!r} is none of 'end', 'raise', 'interrupt'")
        self._gate = GraphGate(config, on_stop=on_stop, nudge_role=nudge_role, state_of=state_of, board=board)
        self._refuse = refuse_pointless
        self._open: OrderedDict[str, Decision] = OrderedDict()
        self._tools: OrderedDict[str, tuple[Any, Any]] = OrderedDict()

    # --- the model call ----------------------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Decide after the tools have answered; at the start of a turn there is nothing to decide."""
        config = _config(request.runtime)
        decision = self._decide(request, config)
        if decision is None:
            return handler(request)
        said, asked, update = self._act(request, decision, config)
        response = handler(asked) if asked is not None else ModelResponse([])
        self._gate.answered(decision, response.result)
        self._close(config)
        return _extended(response, said, update)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """As ``wrap_model_call``. The decision does no I/O; a request to a collector runs on a thread."""
        config = _config(request.runtime)
        if self._gate.gate.remote is None:
            decision = self._decide(request, config)
        else:
            decision = await asyncio.to_thread(self._decide, request, config)
        if decision is None:
            return await handler(request)
        said, asked, update = self._act(request, decision, config)
        response = await handler(asked) if asked is not None else ModelResponse([])
        self._gate.answered(decision, response.result)
        self._close(config)
        return _extended(response, said, update)

    def _decide(self, request: ModelRequest[Any], config: RunnableConfig) -> Decision | None:
        """The intervention that is due. A call retried, or repeated after a person's answer, gets the same decision."""
        try:
            task = _task(config)
            if task in self._open:
                return self._open[task]
            messages = request.state.get("messages") or []
            if not self._gate.has_to_decide(messages, config):
                return None
            state: Mapping[str, Any] = request.state
            status = {**(state.get("loop_status") or {}), **(state.get(MEMORY) or {})}
            decision = self._gate.decide(messages, status, config, state)
            if task:
                self._open[task] = decision
            while len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
        except Exception:
            self._gate.gate.contain()
            return None
        return decision

    def _act(
        self, request: ModelRequest[Any], decision: Decision, config: RunnableConfig
    ) -> tuple[list[Any], ModelRequest[Any] | None, dict[str, Any]]:
        """The guard's messages, the request to go on with (None ends the run), and the state update."""
        decision, nudge, ends = self._gate.act(decision, config)
        status, memory = split_status(decision.status)
        update: dict[str, Any] = {"loop_status": status, MEMORY: memory}
        if decision.scratchpad:
            update["trajectory_scratchpad"] = decision.scratchpad
        if ends:
            update["jump_to"] = "end"
            return [self._gate.closing(decision)], None, update
        if nudge is None:
            return [], request, update
        shown, new = self._gate.nudged(request.messages, nudge)
        _keep_out_of_streams(new, config)
        return new, request.override(messages=shown), update

    def _close(self, config: RunnableConfig) -> None:
        self._open.pop(_task(config), None)

    # --- tool calls --------------------------------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run the tool, or refuse if the call is known to be pointless."""
        return self._refusal(request) or handler(self._covered(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As ``wrap_tool_call``."""
        return self._refusal(request) or await handler(self._covered(request))

    def _refusal(self, request: ToolCallRequest) -> ToolMessage | None:
        if not self._refuse:
            return None
        try:
            status = request.state.get("loop_status") or {}
            known = self._gate.gate.is_pointless(str(status.get("trajectory_id") or ""), request.tool_call)
        except Exception:
            self._gate.gate.contain()
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

    def _covered(self, request: ToolCallRequest) -> ToolCallRequest:
        """The request with a tool whose agents are guarded too, such as sub-agents of deep agents."""
        tool = request.tool
        if tool is None:
            return request
        try:
            if tool.name not in self._tools or self._tools[tool.name][0] is not tool:
                self._tools[tool.name] = (tool, guarded_tool(tool, self._gate))
                self._warn(self._tools[tool.name][1])
                while len(self._tools) > _MAX_TOOLS:
                    self._tools.popitem(last=False)
            twin = self._tools[tool.name][1]
            return request if twin is tool else request.override(tool=twin)
        except Exception:
            self._gate.gate.contain()
            return request

    def _warn(self, tool: Any) -> None:
        if agents := unguarded_in_tool(tool):
            _log.warning(
                "trajectory_guard: tool %r calls agents that no gate guards: %s; give each of them "
                "middleware=[TrajectoryGuardMiddleware()]",
                tool.name,
                ", ".join(agents),
            )


def _extended(response: Any, before: Sequence[Any], update: dict[str, Any]) -> ExtendedModelResponse[Any]:
    """The model's response, preceded by the guard's messages."""
    if before:
        response = dataclasses.replace(response, result=[*before, *response.result])
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _keep_out_of_streams(messages: Sequence[Any], config: RunnableConfig) -> None:
    """``stream_mode="messages"`` shows every message a node writes, unless it has seen it: users read that stream."""
    handlers = getattr(config.get("callbacks"), "handlers", None) or ()
    for handler in handlers:
        if isinstance(handler, StreamMessagesHandler):
            handler.seen.update(message.id for message in messages if message.id)


def _task(config: RunnableConfig) -> str:
    return str((config.get("configurable") or {}).get("__pregel_task_id") or "")


def _config(runtime: Any) -> RunnableConfig:
    """The run's configuration. Under asyncio Python 3.10 has it nowhere; then what the runtime knows of it."""
    try:
        return get_config()
    except RuntimeError:
        info = getattr(runtime, "execution_info", None)
        known = {name: getattr(info, name, None) for name in ("thread_id", "checkpoint_ns")}
        return {"configurable": {name: value for name, value in known.items() if value is not None}}
