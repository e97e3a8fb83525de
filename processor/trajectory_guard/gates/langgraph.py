"""The gate as a LangGraph node, and ``apply_guard``, which puts it between the tools and the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict

from trajectory_guard.extras import missing

try:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.channels import LastValue
    from langgraph.graph import END, StateGraph
    from langgraph.graph.message import add_messages
    from langgraph.types import Command, interrupt
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.flags import FlagBoard
from trajectory_guard.gates.gate import Decision, Gate, LoopDetectedError
from trajectory_guard.gates.messages import MARK, is_tool_message
from trajectory_guard.gates.rewire import GUARD_NODE, GraphShapeError, insert_gate

NudgeRole = Literal["user", "system", "tool"]
MAX_SCRATCHPAD: Final = 50


def bounded_append(before: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """Reducer: append, keeping the newest ``MAX_SCRATCHPAD`` entries."""
    return [*(before or []), *(new or [])][-MAX_SCRATCHPAD:]


def replace(before: Any, new: Any) -> Any:
    """Reducer: the new value."""
    return new


class AgentState(TypedDict, total=False):
    """Graph state for new graphs; existing graphs keep their own and get the last two keys from ``apply_guard``.

    ``trajectory_scratchpad`` and ``loop_status`` are the guard's memory; neither goes to the model.
    """

    messages: Annotated[list[BaseMessage], add_messages]
    trajectory_scratchpad: Annotated[list[dict[str, Any]], bounded_append]
    loop_status: Annotated[dict[str, Any], replace]


class TrajectoryGuardNode(Runnable[Any, Any]):
    """A graph node that lets the run continue, nudges the agent, or stops it before the next model call.

    Put it where the tools' results go back to the agent, without edges of its own: it routes by ``Command``.

        builder.add_node("guard", TrajectoryGuardNode(agent="agent"))
        builder.add_edge("tools", "guard")

    Works under ``invoke`` and ``ainvoke``, with and without a checkpointer, in sub-graphs, and under any number of
    threads. An error of its own is contained and counted: the run continues.

    Parameters:
        config: thresholds and mode; by default those of the process.
        agent: node to continue with.
        on_stop: what a stop does. ``"end"`` ends the run with a closing message; ``"raise"`` raises
            ``LoopDetectedError``; ``"interrupt"`` asks a person through LangGraph's ``interrupt`` (needs a
            checkpointer, otherwise ends); any other value is the node to go to.
        nudge_role: who says the nudge. ``"user"`` is accepted after tool results by OpenAI, Anthropic and Google
            (see ``docs/nudge-role.md``); ``"tool"`` appends it to the last tool result; ``"system"`` adds a system
            message, which Anthropic and Google reject or drop in many cases.
        messages_key: state key that holds the messages.
        whole_list: that key has no reducer, so that a node writes all messages and not just new ones.
        board: the flag board; by default the one of the process.

    A person who is asked by ``"interrupt"`` resumes with ``True`` or ``"continue"`` to go on and clear the suspicion,
    with any other text to hand it to the agent as a nudge, or with ``False`` or ``"stop"`` to end the run.
    """

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        agent: str = "agent",
        on_stop: str = "end",
        nudge_role: NudgeRole = "user",
        messages_key: str = "messages",
        whole_list: bool = False,
        board: FlagBoard | None = None,
    ) -> None:
        if nudge_role not in ("user", "system", "tool"):
            raise ValueError(f"nudge_role: {nudge_role!r} is none of 'user', 'system', 'tool'")
        self.gate = Gate(config, board=board)
        self.agent = agent
        self.on_stop = on_stop
        self.nudge_role = nudge_role
        self.messages_key = messages_key
        self.whole_list = whole_list
        self.name = GUARD_NODE

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Command[Any]:
        """Decide on ``input``, the graph state."""
        return self._run(input, config or {})

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Command[Any]:
        """As ``invoke``. Deciding does no I/O unless a collector is asked, which a thread does meanwhile."""
        if self.gate.remote is None:
            return self._run(input, config or {})
        return await asyncio.to_thread(self._run, input, config or {})

    def __call__(self, state: Any, config: RunnableConfig | None = None) -> Command[Any]:
        """For direct use, as in the original plan."""
        return self._run(state, config or {})

    def _run(self, state: Any, config: Mapping[str, Any]) -> Command[Any]:
        try:
            decision = self._decide(state, config)
        except Exception:
            self.gate.contain()
            return Command(goto=self.agent)
        if decision.level is Level.STOP:
            return self._stop(state, decision, config)
        update: dict[str, Any] = {"trajectory_scratchpad": decision.scratchpad, "loop_status": decision.status}
        if decision.nudge is not None:
            update[self.messages_key] = self._nudge(state, decision.nudge)
        return Command(goto=self.agent, update=update)

    def _decide(self, state: Any, config: Mapping[str, Any]) -> Decision:
        configurable = config.get("configurable") or {}
        return self.gate.decide(
            _get(state, self.messages_key) or [],
            _get(state, "loop_status"),
            configurable.get("thread_id"),
            peek=self.on_stop == "interrupt",
        )

    # --- nudging ---------------------------------------------------------------------------------------------

    def _nudge(self, state: Any, text: str) -> list[BaseMessage]:
        mark = {MARK: {"intervention": "NUDGE"}}
        messages = list(_get(state, self.messages_key) or [])
        last: Any = messages[-1] if messages else None
        if self.nudge_role == "tool" and is_tool_message(last) and isinstance(last.content, str):
            longer = last.model_copy(update={"content": f"{last.content}\n\n{text}"})
            if self.whole_list:
                return [*messages[:-1], longer]
            if last.id:  # the reducer replaces the message with this id
                return [longer]
        role = SystemMessage if self.nudge_role == "system" else HumanMessage
        return self._with(messages, role(text, additional_kwargs=mark))

    def _with(self, messages: Sequence[Any], new: BaseMessage) -> list[BaseMessage]:
        return [*messages, new] if self.whole_list else [new]

    # --- stopping --------------------------------------------------------------------------------------------

    def _stop(self, state: Any, decision: Decision, config: Mapping[str, Any]) -> Command[Any]:
        payload = decision.payload or {}
        if self.on_stop == "raise":
            raise LoopDetectedError(payload)
        if self.on_stop == "interrupt" and (config.get("configurable") or {}).get("__pregel_checkpointer") is not None:
            return self._ask(state, decision, interrupt(payload))
        if self.on_stop == "interrupt":
            self.gate.board.take(decision.trajectory_id)
        return self._end(state, decision, goto=END if self.on_stop in ("end", "interrupt") else self.on_stop)

    def _end(self, state: Any, decision: Decision, goto: str) -> Command[Any]:
        closing = AIMessage(closing_text(decision), response_metadata={MARK: decision.payload or {}})
        update = {
            self.messages_key: self._with(_get(state, self.messages_key) or [], closing),
            "trajectory_scratchpad": decision.scratchpad,
            "loop_status": decision.status,
        }
        return Command(goto=goto, update=update)

    def _ask(self, state: Any, decision: Decision, answer: Any) -> Command[Any]:
        board, trajectory = self.gate.board, decision.trajectory_id
        board.take(trajectory)
        if answer is False or answer == "stop":
            return self._end(state, decision, goto=END)
        board.absolve(trajectory)
        status = self.gate.refresh(decision.status, trajectory)
        update: dict[str, Any] = {"trajectory_scratchpad": decision.scratchpad, "loop_status": status}
        if isinstance(answer, str) and answer not in ("continue", ""):
            update[self.messages_key] = self._nudge(state, answer)
        return Command(goto=self.agent, update=update)


def closing_text(decision: Decision) -> str:
    """The message a stopped run ends with."""
    reason = (decision.payload or {}).get("explanation") or "The same steps kept repeating."
    return f"I stopped because I was going in circles. {reason}"


def _get(state: Any, key: str) -> Any:
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def apply_guard(
    builder: StateGraph[Any, Any, Any, Any],
    config: GuardConfig | None = None,
    *,
    tools: str | Sequence[str] | None = None,
    agent: str | None = None,
    on_stop: str = "end",
    nudge_role: NudgeRole = "user",
    messages_key: str = "messages",
    node_name: str = GUARD_NODE,
    board: FlagBoard | None = None,
) -> StateGraph[Any, Any, Any, Any]:
    """Put a gate between the tools and the agent of an existing, not yet compiled graph. Changes and returns it.

    Every way from a tool node to the agent (static, conditional or joined edge, or ``Command``) goes through the gate
    afterwards; everything else stays. The state gains ``trajectory_scratchpad`` and ``loop_status``.
    ``invoke`` returns the keys of the graph's own output schema; ``output_keys=["messages", "loop_status"]`` asks for
    more.

    Parameters:
        tools: the tool node, or several; by default every node that holds a ``ToolNode``, else the node ``tools``.
        agent: the node the tools return to; by default found from the edges.
        config, on_stop, nudge_role, messages_key, board: as for ``TrajectoryGuardNode``.

    Raises:
        GraphShapeError: the graph has no such nodes, no way from tools to agent, or is guarded already. Says what was
            found and which argument settles it; the graph is unchanged.
    """

    def gate_for(agent_node: str) -> TrajectoryGuardNode:
        return TrajectoryGuardNode(
            config,
            agent=agent_node,
            on_stop=on_stop,
            nudge_role=nudge_role,
            messages_key=messages_key,
            whole_list=isinstance(builder.channels[messages_key], LastValue),
            board=board,
        )

    extra = {END} if on_stop in ("end", "raise", "interrupt") else {on_stop, END}
    insert_gate(builder, gate_for, tools=tools, agent=agent, messages_key=messages_key, name=node_name, exits=extra)
    return builder


__all__ = [
    "AgentState",
    "GraphShapeError",
    "LoopDetectedError",
    "TrajectoryGuardNode",
    "apply_guard",
]
