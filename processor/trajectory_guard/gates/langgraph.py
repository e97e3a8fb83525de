"""``apply_guard``: a gate before the agents of a graph, and ``TrajectoryGuardNode``, the gate as a node of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from trajectory_guard.extras import missing

try:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph import END
    from langgraph.graph.message import add_messages
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error
from typing_extensions import TypedDict

from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.text import nearest
from trajectory_guard.gates.compiled import guard_builder
from trajectory_guard.gates.graph_gate import (
    ENDINGS,
    INTENDED,
    Ending,
    GraphGate,
    NudgeRole,
    Outcome,
    get,
    thread_id_of,
)
from trajectory_guard.gates.loop_error import LoopDetectedError
from trajectory_guard.gates.own_keys import MAX_SCRATCHPAD, bounded_append, replace
from trajectory_guard.gates.refusal import RefusalRules
from trajectory_guard.gates.rewire import Builder, GraphShapeError
from trajectory_guard.gates.state_keys import BRANCH, channels_of
from trajectory_guard.gates.state_of import StateOf
from trajectory_guard.gates.status import LoopStatus
from trajectory_guard.process.own_threads import beside_the_loop

GUARD_NODE = "trajectory_guard"
_log = logging.getLogger(telemetry.LOGGER)


class AgentState(TypedDict, total=False):
    """Graph state for new graphs; existing graphs keep their own and get the last two keys from ``apply_guard``.

    ``trajectory_scratchpad`` and ``loop_status`` are the guard's memory; neither goes to the model.
    """

    messages: Annotated[list[BaseMessage], add_messages]
    trajectory_scratchpad: Annotated[list[dict[str, Any]], bounded_append]
    loop_status: Annotated[LoopStatus, replace]


class TrajectoryGuardNode(Runnable[Any, Any]):
    """A graph node that lets the run continue, nudges the agent, or stops it before the next model call.

    Put it where the tools' results go back to the agent, without edges of its own: it routes by ``Command``.

        builder.add_node("guard", TrajectoryGuardNode(agent="agent"))
        builder.add_edge("tools", "guard")

    A node costs a super-step of ``recursion_limit`` and a checkpoint for every round of tools; ``apply_guard`` costs
    neither. Works under ``invoke`` and ``ainvoke``, with and without a checkpointer, in sub-graphs, and under any
    number of threads. An error of its own is contained and counted: the run continues.

    Parameters:
        config: thresholds and mode; by default those of the process.
        agent: node to continue with.
        on_stop: effect of a stop. ``"end"`` ends the run with a closing message; ``"raise"`` raises
            ``LoopDetectedError``; ``"interrupt"`` asks a person through LangGraph's ``interrupt`` (needs a
            checkpointer, otherwise ends); any other value is the node to go to.
        nudge_role: role of the nudge message. ``"user"`` is accepted after tool results by OpenAI, Anthropic and Google
            (see ``docs/nudge-role.md``); ``"tool"`` appends it to the last tool result; ``"system"`` adds a system
            message, which Anthropic and Google reject or drop in many cases.
        messages_key: state key that holds the messages.
        whole_list: that key has no reducer, or one that only replaces, so that a node writes all messages and not just
            new ones. In a graph the node finds this out itself.
        state_of: from the graph state to the state that the tools act on, where their results do not show it: a page,
            an accessibility tree, a board. Returns text, bytes, a JSON value, or None if it does not know. Called after
            tool calls; volatile parts such as clocks are masked, and only a fingerprint is kept. It decides in place of
            the results whether the calls of the newest model turn changed anything. A plain function, also under
            ``ainvoke``; its errors are counted, and the first is logged.
        board: the flag board; by default the one of the process.

    Raises, when it runs: ``GraphShapeError`` if the graph has no node ``agent`` or ``on_stop``; errors of ``on_stop``.

    A person who is asked by ``"interrupt"`` resumes with ``True`` or ``"continue"`` to go on and clear the suspicion,
    with any other text to hand it to the agent as a nudge, or with ``False`` or ``"stop"`` to end the run.
    """

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        agent: str = "agent",
        on_stop: Ending | str = "end",
        nudge_role: NudgeRole = "user",
        messages_key: str = "messages",
        whole_list: bool = False,
        state_of: StateOf | None = None,
        board: FlagBoard | None = None,
    ) -> None:
        self._gate = GraphGate(
            config,
            on_stop=on_stop,
            nudge_role=nudge_role,
            messages_key=messages_key,
            whole_list=whole_list,
            state_of=state_of,
            board=board,
        )
        self.gate = self._gate.gate
        self.gate.is_own_node = True
        self.agent = agent
        self.name = GUARD_NODE
        self._has_warned = False

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Command[Any]:
        """Decide on ``input``, the graph state."""
        return self._run(input, config or {})

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Command[Any]:
        """As ``invoke``. With a collector or budgets the decision does I/O, and runs on a thread."""
        if not self.gate.does_io:
            return self._run(input, config or {})
        return await beside_the_loop(partial(self._run, input, config or {}), self.gate.contain)

    def __call__(self, state: Any, config: RunnableConfig | None = None) -> Command[Any]:
        """For direct use in the application's own loop: ``.update`` is the state update, ``.goto`` the next node."""
        return self._run(state, config or {})

    def _check_targets(self, config: Mapping[str, Any]) -> None:
        """LangGraph ends a run without an answer, and raises nothing, where a ``Command`` goes to no node."""
        channels = channels_of(config)
        nodes = {name.removeprefix(BRANCH) for name in channels if name.startswith(BRANCH)}
        for argument, name in (("agent", self.agent), ("on_stop", self._gate.on_stop)):
            if nodes and name not in nodes and not (argument == "on_stop" and name in ENDINGS):
                endings = "'end', 'raise', 'interrupt', " if argument == "on_stop" else ""
                raise GraphShapeError(
                    f"TrajectoryGuardNode({argument}={name!r}): no such node{nearest(name, nodes)}; "
                    f"pass one of {endings}{', '.join(map(repr, sorted(nodes)))}"
                )

        remembers = not channels or "loop_status" in channels or thread_id_of(config) is not None
        if self._gate.nudge_role == "tool" and not remembers and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "trajectory_guard: nudge_role='tool' leaves no message to recognise a nudge by: give the state a key "
                "'loop_status', or the run a thread_id, or this node nudges again and again and never stops"
            )

    def _run(self, state: Any, config: Mapping[str, Any]) -> Command[Any]:
        gate = self._gate
        self._check_targets(config)
        messages = get(state, gate.messages_key) or []
        try:
            with gate.deciding(config):
                gate.follow_branch(messages, get(state, "loop_status"), config)
                decision = gate.decide(messages, get(state, "loop_status"), config, state)
            return self._command(gate.act(decision, config), messages, config)
        except INTENDED:
            raise
        except Exception:
            self.gate.contain()
            return Command(goto=self.agent)

    def _command(self, outcome: Outcome, messages: Sequence[Any], config: Mapping[str, Any]) -> Command[Any]:
        gate, (decision, nudge, ends) = self._gate, outcome
        if ends or nudge is not None:
            gate = gate.writing_to(channels_of(config).get(gate.messages_key))
        update: dict[str, Any] = {
            "trajectory_scratchpad": decision.scratchpad,
            "loop_status": decision.status,
        }
        if ends:
            said = [gate.closing(decision, messages)]
            update[gate.messages_key] = gate.written([*messages, *said], said, messages)
            return Command(goto=END if gate.on_stop in ENDINGS else gate.on_stop, update=update)
        if nudge is not None:
            shown, new = gate.nudged(messages, nudge)
            update[gate.messages_key] = gate.written(shown, new, messages)
        return Command(goto=self.agent, update=update)


BuilderT = TypeVar("BuilderT", bound=Builder)
"""A builder, whose types of state, context, input and output stay as they are."""


def apply_guard(
    builder: BuilderT,
    config: GuardConfig | None = None,
    *,
    tools: str | Sequence[str] | None = None,
    agent: str | Sequence[str] | None = None,
    on_stop: Ending | str = "end",
    nudge_role: NudgeRole = "user",
    messages_key: str = "messages",
    state_of: StateOf | None = None,
    refuse_pointless: bool | RefusalRules = False,
    board: FlagBoard | None = None,
) -> BuilderT:
    """Put a gate before every agent of an existing, not yet compiled graph. Changes and returns the builder.

    The gate runs inside the agent's own super-step, once the tools have answered: the graph keeps its nodes, edges,
    streams and ``recursion_limit``. Nodes and edges may still be added; which nodes are agents is settled when the
    graph is compiled: those that tools return to, and those that hold sub-graphs which hand over to each other
    (supervisor, swarm). Sub-graphs are guarded as well. Where no edge leads out of the tools at all, they get one back
    to the agent that calls them. The state gains ``trajectory_scratchpad`` and ``loop_status``. ``invoke`` returns the
    keys of the graph's own output schema; ``output_keys=["messages", "loop_status"]`` asks for more.

    Parameters:
        tools: the tool node, or several; by default every node that holds a ``ToolNode``, else the node ``tools``.
        agent: the node the tools return to, or several; by default found from the edges. In a graph without tools, the
            node that calls the model.
        config, on_stop, nudge_role, messages_key, state_of, board: as for ``TrajectoryGuardNode``. ``state_of`` gets
            the state as the agent's node receives it: in a sub-graph that of the sub-graph.
        refuse_pointless: answer calls that failed or found nothing in the same way before, or that were refused in this
            turn, without running them; ``RefusalRules`` says when. For tools in a ``ToolNode``; others always run.

    Raises:
        GraphShapeError: the graph has no such nodes, holds no messages, or is guarded already. Says what was found and
            which argument settles it; the graph is unchanged. ``compile`` raises it for what only the whole graph
            shows: no way from tools to an agent, an agent that nothing leads to, an ``on_stop`` node that is missing.
        TypeError, ValueError: an argument has a wrong type or value; it is named.
        ConfigError: the variables hold a mistake, or this process was given another configuration before.
    """
    gate = GraphGate(
        config, on_stop=on_stop, nudge_role=nudge_role, messages_key=messages_key, state_of=state_of,
        refuse_pointless=refuse_pointless, board=board,
    )  # fmt: skip
    guard_builder(builder, gate, tools=tools, agent=agent)
    return builder


__all__ = [
    "MAX_SCRATCHPAD",
    "AgentState",
    "GraphShapeError",
    "LoopDetectedError",
    "TrajectoryGuardNode",
    "apply_guard",
    "bounded_append",
    "replace",
]
