"""The gate before a tool call: ``refuse_pointless`` for a ``ToolNode``, and what the other surfaces share with it."""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from trajectory_guard.core.names import bounded_name
from trajectory_guard.extras import missing

try:
    from langchain_core.messages import ToolMessage
    from langgraph.prebuilt import ToolNode
    from langgraph.prebuilt.tool_node import AsyncToolCallWrapper, ToolCallRequest, ToolCallWrapper
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("refuse_pointless", error, "langgraph"), name=error.name) from error

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.steps import DENIED
from trajectory_guard.core.tracking.scope import label_of
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.gates.boundaries import NO_EXECUTION, Execution, NoExecution
from trajectory_guard.gates.call_ids import own_id
from trajectory_guard.gates.gate import Gate, current_trace
from trajectory_guard.gates.graph_gate import as_messages, configurable_of, get, namespace_of, thread_id_of
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_READ, Unhandled, with_wrappers, wrappers_of
from trajectory_guard.gates.messages import MARK, requesting, turn_of
from trajectory_guard.gates.refusal import Refusal, RefusalRules, decide, past_of
from trajectory_guard.logs import log_refusal
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock

Answer = ToolMessage | Command[Any]
Execute = Callable[[ToolCallRequest], Answer]
AsyncExecute = Callable[[ToolCallRequest], Awaitable[Answer]]
_MAX_FORWARDED: Final = 4_096


class ToolGate:
    """Answers requested calls that would be made in vain, by what the board and the messages know of them.

    Parameters:
        gate: whose board is read; mode, redaction and policies of tools are those of its configuration.
        rules: when a call is answered; None: never.
        messages_key: state key that holds the messages.
    """

    def __init__(self, gate: Gate, rules: RefusalRules | None, *, messages_key: str = "messages") -> None:
        self.gate = gate
        self.rules = rules
        self._messages_key = messages_key
        self._forwarded: BoundedTable[tuple[str, str], bool] = BoundedTable(_MAX_FORWARDED)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    # --- a call on its way to the tool -------------------------------------------------------------------------

    def refusal(self, request: ToolCallRequest) -> ToolMessage | None:
        """The answer to a call that is not run; None if it has to run. Errors are contained: then it runs."""
        if self.rules is None:
            return None
        try:
            call, config = request.tool_call, request.runtime.config
            messages = as_messages(_messages_in(request.state, self._messages_key))
            trajectory = self._trajectory(_status_of(request.state, config), config)
            refusal = self._evaluate(call, messages, trajectory, config)
            if refusal is not None:
                return self._message(call, refusal, trajectory, messages, config)
            self._forward(config, requesting(messages, call))
        except Exception:  # noqa: BLE001  an error of ours must not cost the host its tool call
            self.gate.contain()
        return None

    def answers_before_review(
        self, messages: Sequence[Any], status: Mapping[str, Any], config: Mapping[str, Any]
    ) -> list[ToolMessage]:
        """Answers to the newest model message, if a person has refused every call that it requests; else none."""
        messages = as_messages(messages)
        calls = getattr(messages[-1], "tool_calls", None) if messages else None
        if not calls or getattr(messages[-1], "invalid_tool_calls", None):
            return []
        trajectory = self._trajectory(status, config)
        found = [self._evaluate(call, messages, trajectory, config, before_review=True) for call in calls]
        refusals = [one for one in found if one is not None]
        if len(refusals) < len(calls):
            return []
        return [
            self._message(call, one, trajectory, messages, config) for call, one in zip(calls, refusals, strict=True)
        ]

    def _evaluate(
        self, call: Mapping[str, Any], messages: Sequence[Any], trajectory: str, config: Mapping[str, Any], *,
        before_review: bool = False,
    ) -> Refusal | None:  # fmt: skip
        """The decision on a call.

        Parameters:
            messages: the messages in the graph state, with the model's request.
            before_review: no person can have been asked yet whether this call may run; only refused calls matter then.
        """
        if self.rules is None or self.gate.config.mode == "observe":
            return None
        tool, args = str(call["name"]), call.get("args")
        past = past_of(messages, tool, args)
        if past.outcome is None or (before_review and past.outcome != DENIED):
            return None
        board, instance, turn = self.gate.board, namespace_of(config), turn_of(messages)
        run = label_of(instance, turn) if turn is not None else board.branches.run_of(trajectory, instance)
        nudged = board.last_verdict(trajectory, run) if board.in_nudged_episode(trajectory, run) else None
        return decide(
            tool, args, past, board.recall(trajectory, run, tool, args, now=time.time()), self.rules,
            policy=board.engine.settings.tool(tool), nudged=nudged,
            denied_here=before_review or past.outcome != DENIED or self._was_forwarded(config, past.step_id),
            redact=self.gate.config.redact,
        )  # fmt: skip

    def _message(
        self, call: Mapping[str, Any], refusal: Refusal, trajectory: str, messages: Sequence[Any],
        config: Mapping[str, Any],
    ) -> ToolMessage:  # fmt: skip
        self.gate.board.counts[f"refusals.{refusal.kind}"] += 1
        log_refusal(trajectory, str(call["name"]), refusal.kind, refusal.times)
        if trajectory and self.gate.board.config.cursor:
            why = refusal.text.partition("\n")[0]
            self.gate.boundaries.refused(trajectory, namespace_of(config), messages, call, why)
        return ToolMessage(
            refusal.text, tool_call_id=own_id(call), name=call["name"], status="error",
            additional_kwargs={MARK: {"refused": True}},
        )  # fmt: skip

    def _trajectory(self, status: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """The trajectory of the run: as the gate before the model names it, or as spans do; empty if none is known."""
        names = (thread_id_of(config), status.get("trajectory_id"), current_trace())
        return self.gate.board.resolve(*names) or ""

    def execution(self, request: ToolCallRequest) -> Execution | NoExecution:
        """Enters what becomes of a call that is run, if a cursor is kept and the trajectory is known."""
        if not self.gate.board.config.cursor:
            return NO_EXECUTION
        try:
            config = request.runtime.config
            trajectory = self._trajectory(_status_of(request.state, config), config)
            if not trajectory:
                return NO_EXECUTION
            messages = as_messages(_messages_in(request.state, self._messages_key))
            return self.gate.boundaries.execution(
                trajectory, namespace_of(config), messages, request.tool_call, request.state,
                by_guard=self.rules is not None and self.gate.config.mode != "observe",
            )  # fmt: skip
        except Exception:  # noqa: BLE001  an error of ours must not cost the host its tool call
            self.gate.contain()
            return NO_EXECUTION

    # --- refusals from behind this gate ------------------------------------------------------------------------

    # A call that was refused before it came here (a review between model and tools) comes here only once a person has
    # allowed it. A call that came here first was refused by the tool itself or on its way, and would be again.

    def _forward(self, config: Mapping[str, Any], step_ids: Sequence[str]) -> None:
        with self._lock:
            for step_id in step_ids:
                self._forwarded[_place_of(config), step_id] = True

    def _was_forwarded(self, config: Mapping[str, Any], step_id: str) -> bool:
        with self._lock:
            return (_place_of(config), step_id) in self._forwarded

    # --- around a tool node --------------------------------------------------------------------------------------

    def around(self, inner: ToolCallWrapper | None) -> ToolCallWrapper:
        """A ``wrap_tool_call`` that answers pointless calls, and passes the others on to ``inner``."""

        def wrap_tool_call(request: ToolCallRequest, execute: Execute) -> Answer:
            refused = self.refusal(request)
            if refused is not None:
                return refused
            with self.execution(request) as entered:
                return entered.done(execute(request) if inner is None else inner(request, execute))

        return wrap_tool_call

    def async_around(self, inner: AsyncToolCallWrapper | None) -> AsyncToolCallWrapper:
        """As ``around``, for ``awrap_tool_call``. The decision does no I/O."""

        async def awrap_tool_call(request: ToolCallRequest, execute: AsyncExecute) -> Answer:
            refused = self.refusal(request)
            if refused is not None:
                return refused
            with self.execution(request) as entered:
                return entered.done(await (execute(request) if inner is None else inner(request, execute)))

        return awrap_tool_call

    def tool_node(self, node: ToolNode) -> ToolNode:
        """A copy of a tool node that answers pointless calls; wrappers that it has come after this gate."""
        wrap, awrap = wrappers_of(node)
        around = self.around(wrap) if wrap is not None else _raising(self.around(None))
        if wrap is not None and awrap is None:  # asyncio uses the synchronous wrapper, and still has to
            return with_wrappers(copy.copy(node), around, None)
        async_around = self.async_around(awrap) if awrap is not None else _async_raising(self.async_around(None))
        return with_wrappers(copy.copy(node), around, async_around)


def _raising(wrapper: ToolCallWrapper) -> ToolCallWrapper:
    """A wrapper whose errors leave the tool node: those of the tool that reach it are handled already."""

    def wrap_tool_call(request: ToolCallRequest, execute: Execute) -> Answer:
        try:
            return wrapper(request, execute)
        except Exception as error:  # noqa: BLE001  raised again by the node
            raise Unhandled(error) from None

    return wrap_tool_call


def _async_raising(wrapper: AsyncToolCallWrapper) -> AsyncToolCallWrapper:
    """As ``_raising``."""

    async def awrap_tool_call(request: ToolCallRequest, execute: AsyncExecute) -> Answer:
        try:
            return await wrapper(request, execute)
        except Exception as error:  # noqa: BLE001  raised again by the node
            raise Unhandled(error) from None

    return awrap_tool_call


def refuse_pointless(
    config: GuardConfig | None = None,
    *,
    after: int = RefusalRules.after,
    limit: int = RefusalRules.limit,
    denied: bool = RefusalRules.denied,
    messages_key: str = "messages",
    board: FlagBoard | None = None,
) -> ToolCallWrapper:
    """A wrapper that answers hopeless and refused calls without running them.

        ToolNode(tools, wrap_tool_call=refuse_pointless(), awrap_tool_call=arefuse_pointless())

    Earlier results of a call are read from the board, which a gate in the graph or ``instrument()`` fills, and from
    the messages of the user turn; both have to agree. Graphs that are guarded by ``apply_guard`` or middleware need no
    wrapper: ``refuse_pointless=True`` there does the same.

    Parameters:
        config, board: as for ``TrajectoryGuardNode``; with the mode ``observe`` every call runs.
        after, limit, denied: as for ``RefusalRules``.
        messages_key: state key that holds the messages.
    """
    return _gate(config, RefusalRules(after=after, limit=limit, denied=denied), messages_key, board).around(None)


def arefuse_pointless(
    config: GuardConfig | None = None,
    *,
    after: int = RefusalRules.after,
    limit: int = RefusalRules.limit,
    denied: bool = RefusalRules.denied,
    messages_key: str = "messages",
    board: FlagBoard | None = None,
) -> AsyncToolCallWrapper:
    """``refuse_pointless`` for ``awrap_tool_call``: without it, a graph under asyncio runs its tools synchronously."""
    return _gate(config, RefusalRules(after=after, limit=limit, denied=denied), messages_key, board).async_around(None)


def _gate(config: GuardConfig | None, rules: RefusalRules, messages_key: str, board: FlagBoard | None) -> ToolGate:
    return ToolGate(Gate(config, board=board), rules, messages_key=messages_key)


def _place_of(config: Mapping[str, Any]) -> str:
    """The run of a graph: its thread, and the (sub-)graph of its checkpoint namespace."""
    return bounded_name(f"{thread_id_of(config)}|{namespace_of(config)}")


def _messages_in(state: Any, key: str) -> Sequence[Any]:
    found = state if isinstance(state, list) else get(state, key)
    return found if isinstance(found, (list, tuple)) else ()


def _status_of(state: Any, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The gate's ``loop_status``: in the state of the call, or else in the graph's."""
    status = get(state, "loop_status") if not isinstance(state, list) else None
    if not status and (read := configurable_of(config).get(CONFIG_KEY_READ)) is not None:
        with suppress(KeyError):  # no gate in this graph
            status = read(["loop_status"]).get("loop_status")
    return status if isinstance(status, Mapping) else {}
