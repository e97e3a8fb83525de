"""An agent node that passes a gate before it runs, in its own super-step.

LangGraph runs a node as a sequence: the node itself, then the writers that send its output to the state and along its
edges. ``GuardedNode`` puts the gate in front of that sequence and leaves the sequence as it is, so that nodes of every
kind, edges, retries, streams and sub-graphs work as before. The guard's own updates ride on the node's first write.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import cached_property, partial
from typing import Any, NamedTuple

from pydantic import BaseModel

from trajectory_guard.extras import missing

try:
    from langchain_core.messages import RemoveMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.runnables.config import ensure_config
    from langgraph.errors import ParentCommand
    from langgraph.graph import END
    from langgraph.graph.message import REMOVE_ALL_MESSAGES
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

from trajectory_guard.gates.gate import GateDecision
from trajectory_guard.gates.graph_gate import ENDINGS, INTENDED, GraphGate, get
from trajectory_guard.gates.langgraph_internals import (
    CONFIG_KEY_READ,
    CONFIG_KEY_SEND,
    RESUME,
    ChannelWrite,
    ChannelWriteEntry,
    PregelNode,
    RunnableCallable,
    RunnableSeq,
    StreamMessagesHandler,
)
from trajectory_guard.gates.message_form import Update, all_messages, in_form_of, update_of
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.gates.open_decisions import OpenDecisions
from trajectory_guard.gates.own_keys import MEMORY, split_status
from trajectory_guard.gates.state_keys import without_response

Write = tuple[str, Any]


class GuardedNode(PregelNode):
    """A node of a compiled graph with a gate in front of it.

    Parameters:
        decisions: of all agents of the graph: one may stand in for another that failed.
    """

    def __init__(
        self, plain: PregelNode, gate: GraphGate, decisions: OpenDecisions, *, entered_guarded: bool = False
    ) -> None:
        self.__dict__.update(plain.copy({}).__dict__)
        self._plain, self._gate, self._entered_guarded = plain, gate, entered_guarded
        self._decisions = decisions

    @cached_property
    def node(self) -> Runnable[Any, Any] | None:
        """The gate, then the node and its writers."""
        inner = self._plain.node
        if inner is None:
            return None
        return GuardedAgent(inner, self._gate, self._plain, self._decisions, entered_guarded=self._entered_guarded)

    def copy(self, update: dict[str, Any]) -> GuardedNode:
        """As ``PregelNode.copy``, with the gate."""
        return GuardedNode(self._plain.copy(update), self._gate, self._decisions, entered_guarded=self._entered_guarded)

    def entered_after_a_gate(self) -> GuardedNode:
        """The node in a sub-graph before which a gate of the parent decides."""
        return GuardedNode(self._plain, self._gate, self._decisions, entered_guarded=True)


class _Passage(NamedTuple):
    """The node to run after the gate, and the guard's additions to that node's first write."""

    runnable: Runnable[Any, Any]
    input: Any
    config: RunnableConfig
    writes: AbstractContextManager[Any]


class GuardedAgent(Runnable[Any, Any]):
    """The gate and the node's own sequence as one runnable: every way of running a node goes through here.

    Parameters:
        inner: the node and its writers.
        gate: decides.
        plain: the node, for its first writer, which stores updates and follows ``Command``, but no edges.
        decisions: as for ``GuardedNode``.
        entered_guarded: the node is in a sub-graph, and a gate of the parent has decided when it was entered.
    """

    def __init__(
        self, inner: Runnable[Any, Any], gate: GraphGate, plain: PregelNode, decisions: OpenDecisions, *,
        entered_guarded: bool = False,
    ) -> None:  # fmt: skip
        self._inner, self._gate, self._plain = inner, gate, plain
        self._entered_guarded = entered_guarded
        self._open = decisions
        self._is_timed = plain.timeout is not None

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Pass the gate, then run the node."""
        passage = self._enter(input, config or ensure_config())
        with passage.writes:
            return passage.runnable.invoke(passage.input, passage.config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As ``invoke``."""
        passage = await self._aenter(input, config or ensure_config())
        with passage.writes:
            return await passage.runnable.ainvoke(passage.input, passage.config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any | None) -> Iterator[Any]:
        """As ``invoke``; LangGraph streams nodes where a caller listens to events."""
        passage = self._enter(input, config or ensure_config())
        with passage.writes:
            yield from passage.runnable.stream(passage.input, passage.config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any | None
    ) -> AsyncIterator[Any]:
        """As ``stream``."""
        passage = await self._aenter(input, config or ensure_config())
        chunks: Any = passage.runnable.astream(passage.input, passage.config, **kwargs)
        with passage.writes:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk

    # --- passing the gate --------------------------------------------------------------------------------------

    async def _aenter(self, input: Any, config: RunnableConfig) -> _Passage:
        """The decision does no I/O unless a collector or budgets are configured; it then runs on a thread."""
        gate = self._gate.gate
        if not gate.does_io:
            return self._enter(input, config)
        enter = partial(self._enter, input, config)
        return await self._open.on_a_thread(enter, config, gate.contain, timed=self._is_timed)

    def _enter(self, input: Any, config: RunnableConfig) -> _Passage:
        try:
            found = self._decide(input, config)
            if found is not None:
                messages, decision = found
                decision, nudge, ends = self._gate.act(decision, config)
                if ends:
                    return self._end(messages, decision, input, config)
                return self._go_on(messages, decision, nudge, input, config)
        except INTENDED:
            raise
        except Exception:
            self._open.close(config)
            self._gate.gate.contain()
        return self._unasked(input, config)

    def _decide(self, input: Any, config: RunnableConfig) -> tuple[Sequence[Any], GateDecision] | None:
        """The intervention that is due, and the messages behind the decision; None at the start of a turn.

        A node that is retried, or runs again once a person has answered, gets the same decision as before; so does one
        to which an error handler leads.
        """
        messages = self._messages(input, config) or ()
        decision = self._open.find(config)
        if decision is not None:
            return messages, decision
        with self._gate.deciding(config):
            self._gate.follow_branch(messages, _status_in(config), config)
            if not self._gate.has_to_decide(messages, config) or (self._entered_guarded and _is_entry(config)):
                return None
            decision = self._open.find_left(config, messages)
            if decision is None:
                decision = self._gate.decide(messages, _status_in(config), config, input)
        self._open.keep(config, decision, messages)
        return messages, decision

    def _messages(self, input: Any, config: RunnableConfig) -> Any:
        key = self._gate.messages_key
        messages = get(input, key)
        if messages is None:  # the node's input has other keys of the state
            messages = config["configurable"][CONFIG_KEY_READ]([key]).get(key)
        return messages

    def _unasked(self, input: Any, config: RunnableConfig) -> _Passage:
        """The node at the start of a turn, where nothing is decided: board and cursor learn what it requests."""
        gate = self._gate
        configurable = config["configurable"]
        send = configurable[CONFIG_KEY_SEND]
        before: Sequence[Any] = ()
        status: dict[str, Any] = {}
        try:
            before = self._messages(input, config) or ()
            if gate.keeps_cursor:
                status = _status_in(config)
                gate.began(before, status, config)
        except Exception:
            gate.gate.contain()
            return _Passage(self._inner, input, config, nullcontext())

        def recorded(writes: Sequence[Write]) -> None:
            try:
                for key, value in writes:
                    if key == gate.messages_key:
                        gate.requested(before, all_messages((), value, "whole"), config)
                        if gate.keeps_cursor:
                            gate.wrote(all_messages(before, value, gate.form), status, config)
            except Exception:
                gate.gate.contain()
            send(writes)

        config = {**config, "configurable": {**configurable, CONFIG_KEY_SEND: recorded}}
        return _Passage(self._inner, input, config, nullcontext())

    def _go_on(
        self, messages: Sequence[Any], decision: GateDecision, nudge: str | None, input: Any, config: RunnableConfig
    ) -> _Passage:
        shown, new = self._gate.nudged(messages, nudge) if nudge is not None else (list(messages), [])
        if new:
            input = with_messages(input, self._gate.messages_key, in_form_of(messages, shown))
            try:
                keep_out_of_streams(new, config)
            except Exception:  # users see the nudge then, and the agent does
                self._gate.gate.contain()
        writes = _Writes(
            self._gate, config, decision, in_form_of(messages, shown), new, self._open, timed=self._is_timed
        )
        return _Passage(self._inner, input, writes.config, writes)

    def _end(self, messages: Sequence[Any], decision: GateDecision, input: Any, config: RunnableConfig) -> _Passage:
        """A replacement for the node: its name, its first writer, none of its edges."""
        gate = self._gate
        closing = gate.closing(decision, messages)
        is_said = bool(messages) and get(messages[-1], "content") == get(closing, "content")  # by the agent before
        said = [] if is_said else [closing]
        goto = END if gate.on_stop in ENDINGS else gate.on_stop
        update = {
            gate.messages_key: gate.written([*messages, *said], said, messages),
            **without_response(config, input),
        }
        command: Command[Any] = Command(goto=goto, update=update)
        policy = getattr(self._plain, "trace_policy", None)  # what the node lets traces record; newer than 1.2.0
        stand_in = RunnableSeq(
            RunnableCallable(lambda state: command, trace=False),
            self._plain.writers[0],
            **({"trace_policy": policy} if policy is not None else {}),
        )
        writes = _Writes(gate, config, decision, messages, [], self._open, timed=self._is_timed)
        return _Passage(stand_in, input, writes.config, writes)


def _status_in(config: RunnableConfig) -> dict[str, Any]:
    """The gate's saved status, of both keys of the graph state."""
    kept = config["configurable"][CONFIG_KEY_READ](["loop_status", MEMORY])
    return {**(kept.get("loop_status") or {}), **(kept.get(MEMORY) or {})}


def _is_entry(config: Mapping[str, Any]) -> bool:
    """Whether this is the first super-step of a sub-graph's run."""
    return (config.get("metadata") or {}).get("langgraph_step") == 1


# --- what goes into the state ------------------------------------------------------------------------------------


class _Writes:
    """Replaces LangGraph's ``send`` for one run of a node, and adds the guard's updates to the first write.

    The nudge goes in front of the messages that the node itself writes, in one update: two updates of one key would
    change the form of ``stream_mode="updates"``, and a key without a reducer takes one only.
    """

    def __init__(
        self,
        gate: GraphGate,
        config: RunnableConfig,
        decision: GateDecision,
        shown: Sequence[Any],
        new: list[Any],
        open_decisions: OpenDecisions,
        *,
        timed: bool,
    ) -> None:
        self._open, self._timed = open_decisions, timed
        self._gate, self._decision = gate, decision
        self._written: Any = ()
        configurable = config["configurable"]
        self._send: Callable[[list[Write]], None] = configurable[CONFIG_KEY_SEND]
        self._key = gate.messages_key
        self._shown, self._new = shown, new
        status, memory = split_status(decision.status)
        self._own: list[Write] = [("loop_status", status), (MEMORY, memory)]
        if decision.scratchpad:
            self._own.append(("trajectory_scratchpad", decision.scratchpad))
        self.config: RunnableConfig = {**config, "configurable": {**configurable, CONFIG_KEY_SEND: self}}

    def __call__(self, writes: Sequence[Write]) -> None:
        if any(key == RESUME for key, _ in writes):  # ``interrupt`` notes an answer: the node may ask once more
            self._send(list(writes))
            return
        try:
            out = self._with_own(writes)
        except Exception:
            self._gate.gate.contain()
            out, self._new = list(writes), []
        self._send(out)
        self._own = []

    def _with_own(self, writes: Sequence[Write]) -> list[Write]:
        """The writes of the node, with the guard's updates."""
        out: list[Write] = []
        for key, value in writes:
            if key == self._key and update_of(value) is not None:
                self._written = value
            out += self._with_nudge(value) if key == self._key and self._new else [(key, value)]
        if self._own and self._written and self._gate.keeps_cursor:
            self._record()
        return [*out, *self._own]

    def _record(self) -> None:
        """Enter what the node requests in the cursor, and save the cursor with it."""
        own = dict(self._own)
        messages = all_messages(self._shown, self._written, self._gate.form)
        found = self._gate.wrote(messages, {**own["loop_status"], **own[MEMORY]}, self.config)
        for key, more in zip(("loop_status", MEMORY), split_status(found), strict=True):
            own[key] = {**own[key], **more}
        self._own = list(own.items())

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """A node that failed or waits writes nothing and keeps its decision; a node that hands over has ended."""
        if isinstance(error, ParentCommand):
            try:
                error.args = (self._handed_over(error.args[0]), *error.args[1:])
            except Exception:
                self._gate.gate.contain()
        elif error is not None:
            self._open.left_by(error, self.config, timed=self._timed)
            return
        self._finish()
        self._gate.answered(self._decision, self._written)
        self._open.close(self.config)

    def _handed_over(self, command: Command[Any]) -> Command[Any]:
        """A sub-graph hands over by a command that LangGraph writes without this writer: the nudge has to be in it."""
        if not self._new or not isinstance(command.update, dict) or self._key not in command.update:
            return command
        writes: list[Write] = []
        for key, value in command.update.items():
            writes += self._with_nudge(value) if key == self._key else [(key, value)]
        return dataclasses.replace(command, update=dict(writes) if len(writes) == len(command.update) else writes)

    def _finish(self) -> None:
        """The node wrote no messages, or nothing at all."""
        if self._new:
            written, self._new = self._gate.written(self._shown, self._new, self._shown), []
            self([(self._key, written)])
        elif self._own:
            self([])

    def _with_nudge(self, value: Any) -> list[Write]:
        """The write of the node's messages with the nudge, which is given with it; or one of its own in front of it."""
        update = update_of(value)
        if update is None:  # the nudge goes into the next write
            return [(self._key, value)]
        if update.is_single and self._gate.form == "one":
            writes = [(self._key, self._new[0]), (self._key, value)]
        else:
            writes = [(self._key, self._joined_with_nudge(update))]
        self._new = []
        return writes

    def _joined_with_nudge(self, update: Update) -> Any:
        messages = update.messages
        replaces = update.replaces or (not update.is_single and self._gate.form == "whole")
        if replaces or any(_removes_all(message) for message in messages):
            return update.with_messages(self._with_nudge_in(messages))
        return update.with_messages(messages if self._is_in(messages) else [*self._new, *messages])

    def _with_nudge_in(self, value: list[Any]) -> list[Any]:
        """``value`` replaces all messages: after those that were there before, or else before the node's last one."""
        if self._is_in(value):
            return value
        before = len(self._shown) - 1
        if value[:before] != list(self._shown[:before]):
            before = max(0, len(value) - 1)
        return [*value[:before], *self._new, *value[before:]]

    def _is_in(self, value: list[Any]) -> bool:
        """Whether the node returns the messages that it received."""
        new = self._new[0]
        known = getattr(new, "id", None)
        return any(one is new or (known and getattr(one, "id", None) == known) for one in value)


def _removes_all(message: Any) -> bool:
    return isinstance(message, RemoveMessage) and message.id == REMOVE_ALL_MESSAGES


def keep_out_of_streams(messages: Sequence[Any], config: RunnableConfig) -> None:
    """``stream_mode="messages"`` shows every message a node writes, unless it has seen it: users read that stream.

    The node may be that of a parent, which returns what its sub-graph has written.
    """
    nudges = [message.id for message in messages if is_guard_message(message) and message.id]
    for handler in getattr(config.get("callbacks"), "handlers", None) or ():
        if isinstance(handler, StreamMessagesHandler):
            handler.seen.update(nudges)


def with_messages(input: Any, key: str, messages: Sequence[Any]) -> Any:
    """A node's input of any type with other messages; unchanged if it has none."""
    if isinstance(input, Mapping):
        return {**input, key: messages} if key in input else input
    if getattr(input, key, None) is None:
        return input
    if isinstance(input, BaseModel):
        return input.model_copy(update={key: messages})
    if dataclasses.is_dataclass(input) and not isinstance(input, type):
        return dataclasses.replace(input, **{key: messages})
    other = copy.copy(input)
    setattr(other, key, messages)
    return other


# --- the way back from the tools ---------------------------------------------------------------------------------


def way_back(agent: str) -> Runnable[Any, Any]:
    """A writer for a tool node that no edge leaves: on to the agent, unless the tools say themselves where to go."""
    edge = ChannelWriteEntry(f"branch:to:{agent}", None)

    def route(output: Any, config: RunnableConfig) -> Any:
        if not any(isinstance(one, Command) and one.goto for one in _parts(output)):
            ChannelWrite.do_write(config, [edge])
        return output

    return ChannelWrite.register_writer(RunnableCallable(route, name=f"to {agent}", trace=False), [(edge, None)])


def _parts(output: Any) -> Sequence[Any]:
    return output if isinstance(output, (list, tuple)) else (output,)
