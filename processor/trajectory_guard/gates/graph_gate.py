"""The gate behind every LangGraph surface: it reads the state and adds messages and questions to it."""

from __future__ import annotations

import contextvars
import copy
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

from trajectory_guard.core.names import bounded_name
from trajectory_guard.extras import missing

try:
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        BaseMessageChunk,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        message_chunk_to_message,
    )
    from langchain_core.runnables.config import var_child_runnable_config
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import interrupt
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the LangGraph gate", error, "langgraph"), name=error.name) from error

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.cursor.boundary import PERSON
from trajectory_guard.core.policy import Level
from trajectory_guard.core.tracking.scope import label_of
from trajectory_guard.gates.arguments import check_gate_arguments
from trajectory_guard.gates.branches import (
    as_begun,
    follow_branch,
    follow_branch_below,
    follow_turn,
    note_request,
)
from trajectory_guard.gates.call_ids import share_ids, with_uses
from trajectory_guard.gates.gate import Gate, GateDecision, current_trace
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_CHECKPOINTER, CONFIG_KEY_TASK_ID
from trajectory_guard.gates.loop_error import LoopDetectedError
from trajectory_guard.gates.message_form import Form, all_messages, as_written, form_of
from trajectory_guard.gates.messages import (
    MARK,
    MAX_LOOK_BACK,
    is_answer,
    is_guard_message,
    is_of_person,
    is_tool_message,
    is_written_as_user,
    turn_of,
    with_shown,
)
from trajectory_guard.gates.own_keys import guard_channels
from trajectory_guard.gates.plain_messages import PlainMessages
from trajectory_guard.gates.quality import has_advice
from trajectory_guard.gates.refusal import RefusalRules
from trajectory_guard.gates.state_of import StateOf, read_state, sketch
from trajectory_guard.gates.status import note_status

NudgeRole = Literal["user", "system", "tool"]
Ending = Literal["end", "raise", "interrupt"]
"""``on_stop``, if it names no node."""
ENDINGS: Final[tuple[str, ...]] = get_args(Ending)
INTENDED: Final = (LoopDetectedError, GraphBubbleUp)
"""Exceptions by which a gate ends a run, or LangGraph waits or hands over. Any other one is an error of the gate's."""
_WHOLE: Final = frozenset((AIMessage, HumanMessage, SystemMessage, ToolMessage))
_PLAIN: Final = PlainMessages()


class Outcome(NamedTuple):
    """The outcome of a decision, independent of the graph.

    Fields:
        decision: the decision, with its status brought up to date.
        nudge: text for the agent, from the guard or from a person's answer; None if there is none.
        ends: the run must end here.
    """

    decision: GateDecision
    nudge: str | None
    ends: bool


class GraphGate:
    """A gate with the settings it has in one graph.

    Parameters:
        config, board: as for ``Gate``.
        on_stop, nudge_role, messages_key, whole_list, state_of: as for ``TrajectoryGuardNode``.
        refuse_pointless: as for ``apply_guard``.

    Attributes:
        witness: a gate of this graph stands before every tool call; see ``Boundaries.read``.
        around_agents: nodes of this graph are graphs of their own.
    """

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        on_stop: Ending | str = "end",
        nudge_role: NudgeRole = "user",
        messages_key: str = "messages",
        whole_list: bool = False,
        state_of: StateOf | None = None,
        refuse_pointless: bool | RefusalRules = False,
        board: FlagBoard | None = None,
    ) -> None:
        if nudge_role not in get_args(NudgeRole):
            raise ValueError(f"nudge_role: {nudge_role!r} is none of 'user', 'system', 'tool'")
        check_gate_arguments(on_stop, state_of, messages_key)
        self.gate = Gate(config, board=board)
        self.on_stop = on_stop
        self.nudge_role = nudge_role
        self.messages_key = messages_key
        self._not_sketched = frozenset({messages_key, *guard_channels()})
        self._channel: Any = None
        self._form: Form | None = "whole" if whole_list else "new"
        self.state_of = state_of
        self.refuse = RefusalRules.of(refuse_pointless)
        self.witness = self.around_agents = False

    # --- the messages of the state -----------------------------------------------------------------------------

    def writing_to(self, channel: Any) -> GraphGate:
        """A copy of this gate for the channel that keeps the messages; None leaves it as it is."""
        own = copy.copy(self)
        if channel is not None and self._form != "whole":
            own._channel, own._form = channel, None
        return own

    @property
    def form(self) -> Form:
        """The form in which messages are written. It is found out where a message of the guard's is due."""
        if self._form is None:
            self._form = form_of(self._channel)
        return self._form

    def written(self, shown: Sequence[Any], new: list[Any], before: Any) -> Any:
        """As ``as_written``, in the form of this gate's channel."""
        return as_written(self.form, shown, new, before)

    # --- decisions ---------------------------------------------------------------------------------------------

    def decide(self, messages: Sequence[Any], status: Any, config: Mapping[str, Any], state: Any) -> GateDecision:
        """Decide on the run that ``config`` belongs to: its thread, and the (sub-)graph of its checkpoint namespace.

        Parameters:
            state: the state of the graph as the agent's node receives it, for ``state_of``.
        """
        supplied = partial(read_state, self.state_of, state, self.gate.board) if self.state_of is not None else None
        path = path_of(config)
        decision = self.gate.decide(
            as_messages(messages), status, thread_id_of(config),
            namespace=_namespace_in(path), path=path, peek=self.on_stop == "interrupt",
            read_state=supplied, witness=self.witness,
        )  # fmt: skip
        if self.around_agents:
            self._note_state(decision, state)
        return decision

    def _note_state(self, decision: GateDecision, state: Any) -> None:
        """Record what the state holds beside the messages; a value of the application's may fail to be looked at."""
        run = str(decision.status.get("run") or "")
        try:
            self.gate.board.note_state(decision.trajectory_id, run, partial(sketch, state, self._not_sketched))
        except Exception:
            self.gate.contain()

    def follow_branch(self, messages: Sequence[Any], status: Any, config: Mapping[str, Any]) -> None:
        """Before a decision, and before a model call without one: a checkpoint may be resumed once more, or a user turn
        begin.
        """
        has_saver = has_checkpointer(config)
        thread_id = thread_id_of(config)
        if thread_id is not None and (instance := namespace_of(config)):
            follow_branch_below(
                self.gate.board, thread_id, instance, as_messages(messages), status or {},
                place=place_of(config), task=str(configurable_of(config).get(CONFIG_KEY_TASK_ID) or ""),
            )  # fmt: skip
        elif thread_id is not None:
            messages = as_messages(messages)
            follow_branch(self.gate.board, thread_id, messages, status or {}, has_saver=has_saver)
            if messages and is_of_person(messages[-1]):
                follow_turn(self.gate.board, thread_id, messages, current_trace())

    def deciding(self, config: Mapping[str, Any]) -> AbstractContextManager[None]:
        """A context for ``follow_branch`` and ``decide``: no other run of the thread comes between the two.

        A gate that asks a collector, or reads a ledger, holds nobody up meanwhile.
        """
        thread_id = thread_id_of(config)
        if thread_id is None or self.gate.does_io:
            return nullcontext()
        return self.gate.board.branches.deciding(thread_id)

    def requested(self, messages: Sequence[Any], written: Sequence[Any], config: Mapping[str, Any]) -> None:
        """Remember the calls that the agent at the top has requested at the start of a turn.

        Parameters:
            messages: before those that it has written. They tell the turn: another run of the thread may have begun one
                meanwhile.
        """
        thread_id, board = thread_id_of(config), self.gate.board
        try:
            if written:
                run = None
                if thread_id is not None and not namespace_of(config):
                    turn = turn_of(as_begun(board, thread_id, as_messages(messages)))
                    run = board.branches.run_of(thread_id, "") if turn is None else label_of("", turn)
                note_request(board, thread_id, run, as_messages(written)[-1], current_trace())
        except Exception:
            self.gate.contain()

    def has_to_decide(self, messages: Sequence[Any], config: Mapping[str, Any]) -> bool:
        """Whether a decision is needed: not at the start of a turn, unless the model is asked the same again there.

        A flag that a person has raised waits for no tool call.
        """
        thread_id = thread_id_of(config)
        by_hand = thread_id is not None and self.gate.board.has_hand_flag(thread_id)
        begins = not something_happened(messages)
        if begins and (trace_id := current_trace()) is not None:
            self.gate.board.branches.note_begin(trace_id)
        if not begins or by_hand or self.gate.repeats_model_call(thread_id):
            return True
        if self.gate.board.quality is None:
            return False
        return has_advice(self.gate.board, as_messages(messages), thread_id, namespace_of(config))

    def act(self, decision: GateDecision, config: Mapping[str, Any]) -> Outcome:
        """Carry a decision out: nothing, a nudge, a question to a person, an error, or the end of the run.

        Raises:
            LoopDetectedError: the run must stop and ``on_stop`` is ``"raise"``.
            GraphInterrupt: the run must stop, and LangGraph asks a person.
        """
        outcome = self._outcome(decision, config)
        note_status(outcome.decision.status)
        return outcome

    def _outcome(self, decision: GateDecision, config: Mapping[str, Any]) -> Outcome:
        if decision.level is not Level.STOP:
            return Outcome(decision, decision.nudge, ends=False)
        payload = decision.payload or {}
        if self.on_stop == "raise":
            raise LoopDetectedError(payload)
        if self.on_stop not in ENDINGS:
            self.gate.board.forget_stops(decision.trajectory_id)
        if self.on_stop != "interrupt":
            return Outcome(decision, None, ends=True)
        answer = _ask(payload, config) if has_checkpointer(config) else False
        board, trajectory, run = self.gate.board, decision.trajectory_id, decision.status.get("run")
        board.take(trajectory, run)
        if answer is False or answer == "stop":
            board.stopped(trajectory, run or "")
            board.note_stop(trajectory, run or "", path_of(config))
            return Outcome(decision, None, ends=True)
        board.reset_episode(trajectory, run)
        decision = decision._replace(status=self.gate.refresh(decision.status, trajectory))
        own_words = answer if isinstance(answer, str) and answer not in ("continue", "") else None
        if own_words is not None and self.keeps_cursor:
            self.gate.boundaries.feedback(trajectory, run or "", namespace_of(config), "nudge", own_words, by=PERSON)
        return Outcome(decision, own_words, ends=False)

    def answered(self, decision: GateDecision, written: Any) -> None:
        """Process the messages that the agent wrote, in any form, after the gate let it pass; errors are contained."""
        try:
            self.gate.answered(decision, as_messages(all_messages((), written, "whole")))
        except Exception:
            self.gate.contain()

    # --- the cursor --------------------------------------------------------------------------------------------

    @property
    def keeps_cursor(self) -> bool:
        """Whether what happens is entered in the cursor of the trajectory."""
        return self.gate.board.config.cursor

    @property
    def recalls(self) -> bool:
        """Whether the model is shown the record; a gate that only observes changes no prompt."""
        return self.gate.board.config.recall and self.gate.config.mode != "observe"

    def began(self, messages: Sequence[Any], status: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Begin the task of a user turn, before the agent and those below it do anything."""
        try:
            thread_id = (config.get("configurable") or {}).get("thread_id")
            trajectory = self.gate.named_trajectory(messages, status, thread_id)
            if trajectory is not None:
                found = as_messages(messages)
                self.gate.read_boundaries(trajectory, namespace_of(config), found, status, witness=self.witness)
        except Exception:
            self.gate.contain()

    def wrote(
        self, messages: Sequence[Any], status: Mapping[str, Any], config: Mapping[str, Any], *, ends: bool = False
    ) -> dict[str, Any]:
        """Enter what the model requests in its newest message, before anything of it runs.

        Parameters:
            messages: all messages, with those that the agent has just written.
            ends: the agent has answered, although its last message requests a tool (for a structured answer).

        Returns:
            Keys for the saved status; none if the trajectory has no name yet, or an error was contained.
        """
        try:
            messages, instance = as_messages(messages), namespace_of(config)
            thread_id = (config.get("configurable") or {}).get("thread_id")
            trajectory = self.gate.named_trajectory(messages, status, thread_id)
            if trajectory is None:
                return {}
            self.gate.read_boundaries(trajectory, instance, messages, status, witness=self.witness, live=True)
            if not instance and messages and (ends or is_answer(messages[-1])) and not is_guard_message(messages[-1]):
                self.gate.boundaries.report_missing(trajectory)
            return {**self.gate.boundaries.status(trajectory, instance), "trajectory_id": trajectory}
        except Exception:
            self.gate.contain()
            return {}

    def recalled(self, messages: list[Any], decision: GateDecision, config: Mapping[str, Any]) -> list[Any]:
        """``messages`` for the model, with the record of the task behind them, in the role of a nudge.

        A nudge at the end takes the record in: two messages in a row of one role are not accepted everywhere.
        """
        if not self.recalls:
            return messages
        run = str(decision.status.get("run") or "")
        text = self.gate.boundaries.text(decision.trajectory_id, run, namespace_of(config))
        last: Any = messages[-1] if messages else None
        if not text or last is None:
            return messages
        if is_guard_message(last) and getattr(last, "type", None) in ("human", "system"):
            return [*messages[:-1], last.model_copy(update={"content": f"{last.content}\n\n{text}"})]
        return self.nudged(messages, text, mark={"record": True})[0]

    def nudged(
        self, messages: Sequence[Any], text: str, *, mark: Mapping[str, Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """``messages`` with the nudge, as the agent receives them, and the messages that are new to the state.

        Parameters:
            mark: says that the message is the guard's; by default that it is a nudge.
        """
        last: Any = messages[-1] if messages else None
        if (
            self.nudge_role == "tool"
            and is_tool_message(last)
            and isinstance(last.content, str)
            and (self.form == "whole" or (last.id and self.form == "new"))
        ):
            longer = last.model_copy(update={"content": f"{last.content}\n\n{text}"})
            return [*messages[:-1], longer], [longer]  # reducers replace the message with this id
        role = SystemMessage if self.nudge_role == "system" else HumanMessage
        nudge = like(
            last, role(text, additional_kwargs={MARK: mark or {"intervention": "NUDGE"}}, id=str(uuid.uuid4()))
        )
        return [*messages, nudge], [nudge]

    def closing(self, decision: GateDecision, messages: Sequence[Any] = ()) -> Any:
        """The message a stopped run ends with."""
        message = AIMessage(decision.closing, response_metadata={MARK: decision.payload or {}}, id=str(uuid.uuid4()))
        return like(messages[-1] if messages else None, message)


def _ask(payload: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """``interrupt`` finds the run's configuration in a context variable, which asyncio on Python 3.10 has lost."""
    context = contextvars.copy_context()
    context.run(var_child_runnable_config.set, config)  # type: ignore[arg-type]
    return context.run(interrupt, payload)


def configurable_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``configurable`` of a run's configuration; empty if it has none."""
    return config.get("configurable") or {}


def has_checkpointer(config: Mapping[str, Any]) -> bool:
    """Whether a run is saved, so that it can wait for a person or be taken up after an error."""
    return configurable_of(config).get(CONFIG_KEY_CHECKPOINTER) is not None


def thread_id_of(config: Mapping[str, Any]) -> str | None:
    """The thread id of a run, None if it has none."""
    thread_id = configurable_of(config).get("thread_id")
    return None if thread_id is None else str(thread_id)


def path_of(config: Mapping[str, Any]) -> str:
    """The path of tasks that lead to a node, that of the node itself included."""
    return str(configurable_of(config).get("checkpoint_ns") or "")


def namespace_of(config: Mapping[str, Any]) -> str:
    """The (sub-)graph run that a node belongs to: the path of tasks that lead to it, empty at the top."""
    return _namespace_in(path_of(config))


def _namespace_in(path: str) -> str:
    return bounded_name(path.rpartition("|")[0])


def place_of(config: Mapping[str, Any]) -> str:
    """The place of a task in its graph: super-step, and node or number of the ``Send``; empty if unknown."""
    metadata = config.get("metadata") or {}
    return f"{metadata['langgraph_step']}|{metadata.get('langgraph_path')}" if "langgraph_step" in metadata else ""


def something_happened(messages: Sequence[Any]) -> bool:
    """Whether a decision is needed: not at the start of a turn, where the last message is a person's."""
    if not messages:
        return False
    last = as_messages(messages[-1:])[0]
    if is_written_as_user(last) and isinstance(last.content, list):
        last = as_messages(messages[-MAX_LOOK_BACK:])[-1]  # the messages before it show who has written it
    return not is_of_person(last)


def as_messages(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` as LangChain messages; some states hold ``{"role", "content"}`` or ``(role, text)``.

    To be read, not to be passed on: ``Shown`` stands for what tools show beside their results, and a whole message for
    the sum of the chunks that a node has streamed, whose type has another name.

    Raises:
        TypeError: the entries cannot be messages.
    """
    if not _WHOLE.issuperset(map(type, messages)):  # as in few states
        messages = _converted(messages)
    for message in messages:
        if message.type != "ai":
            continue
        has_several = message.tool_calls[1:] or message.invalid_tool_calls
        if not message.id or (has_several and share_ids(message)):  # as in few states
            messages = with_uses(messages)
            break
    for message in messages:
        if message.content.__class__ is list and is_written_as_user(message):  # as few are
            return with_shown(messages)
    return messages


def _converted(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` of any form, as whole messages."""
    kinds = set(map(type, messages))
    if not all(issubclass(kind, BaseMessage) for kind in kinds):
        try:
            messages = _PLAIN.converted(messages)
        except Exception as error:
            named = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"messages are expected in the state, got {named}") from error
    if not any(isinstance(message, BaseMessageChunk) for message in messages):
        return messages
    return [message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one for one in messages]


def like(sample: Any, message: BaseMessage) -> Any:
    """``message`` in the form of its neighbour, where a state holds plain ``{"role", "content"}``.

    Providers refuse other keys in that form, so a nudge in it carries no mark and counts as a user's message.
    """
    if not isinstance(sample, dict) or "role" not in sample:
        return message
    return {"role": {"ai": "assistant", "human": "user"}.get(message.type, message.type), "content": message.content}


def get(state: Any, key: str) -> Any:
    """A key of a state of any kind, None if it has none."""
    is_mapping = state.__class__ is dict or isinstance(state, Mapping)
    return state.get(key) if is_mapping else getattr(state, key, None)
