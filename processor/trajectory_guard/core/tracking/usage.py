"""Usage and user message of model calls, for the next tool call: one rule for live spans, collector and replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.scope import GRAPH, falls, in_other_words, place_of, superstep
from trajectory_guard.core.tracking.tasks import Tasks, after_model_call, in_own_loop

Pending = dict[str, dict[str, Usage]]
MAX_ASKED: Final = 16
"""Traces of a trajectory whose user message is remembered."""
MAX_TURNS: Final = 8
"""User messages of a trace between two of its tool calls that are remembered."""


class Asked(NamedTuple):
    """User messages of a trace, or of a conversation in it, as labels. JSON-able.

    Fields:
        first: that of its first model call.
        scope: instrumentation scope of model calls whose input grows, as in a conversation that is sent anew with each
            call; None as long as no input held more than the words of the user.
        turns: labels of the messages that model calls of that scope have served since, each with the start of the first
            of these calls in seconds; the newest last.
        graph: label of the newest batch of tool calls of a graph; answers: label of the message that it served.
    """

    first: str
    scope: str | None = None
    turns: tuple[tuple[str, float], ...] = ()
    graph: str = ""
    answers: str = ""

    @property
    def newest(self) -> str:
        """The message that the newest model calls serve, as far as it is known."""
        return self.turns[-1][0] if self.turns else self.first

    def in_graph(self, batch: str) -> Asked:
        """The same behind a tool call of a graph, whose nodes may call models in words of their own.

        The newest message is another user's turn where the number of the super-step does not rise, so that the graph
        was invoked again, or where the message stands further on in its conversation than the one before it.
        """
        answers = self.answers or self.first
        if in_other_words(self.newest, answers):
            again = batch == self.graph or falls(self.graph, batch)
            if again or place_of(self.newest) > place_of(answers):
                answers = self.newest
        return self._replace(graph=batch, answers=answers)

    def at(self, start: float) -> Asked:
        """The same when a tool call ends that began at ``start``: its own code has asked the model since then."""
        turns = self.turns
        while turns and turns[-1][1] >= start:
            turns = turns[:-1]
        return self._replace(turns=turns[-1:]) if turns is not self.turns or len(turns) > 1 else self


class UsageLedger:
    """Pending usage of model calls by trace and instrumentation scope, each trace's user messages, and its tasks.

    The next tool call of the trace that ends takes the usage. Two instrumentations report every model call twice: the
    one that reports the most tokens is believed. Plain data; the caller bounds ``pending`` by forgetting traces.

    The user message that a trace answers is that of its first model call; an agent with a conversation of its own
    within the trace has one of its own. A graph may be invoked with several messages in one trace (``Asked.in_graph``).
    Where neither agent nor graph is known, a program may answer several messages in one trace, too: the model is called
    with other words of the user, in a new conversation, or behind an answer without a tool call in this one. Inputs
    that never grow are no conversation: such programs put all that they know in one message, which changes with each
    call.
    """

    __slots__ = ("asked", "pending", "tasks")

    def __init__(
        self, pending: Pending | None = None, asked: dict[str, Asked] | None = None, tasks: Tasks | None = None
    ) -> None:
        self.pending: Pending = {} if pending is None else pending
        self.asked: dict[str, Asked] = {} if asked is None else asked
        self.tasks: Tasks = {} if tasks is None else tasks

    def add(
        self, trace_id: str, scope: str, usage: Usage, conversation: str = "", task: str | None = None, end: float = 0.0
    ) -> None:
        """Add the usage of a model call that has ended.

        Parameters:
            conversation: id of the conversation of the call; empty if the span names none.
            task: label of the task that made the call, None if its span names none; end: end of the call in seconds.
        """
        if task is not None or self.tasks:
            after_model_call(self.tasks, task, end - usage.seconds, end)
        by_scope = self.pending.setdefault(trace_id, {})
        if usage.asked is not None:
            self._note(f"{trace_id}/{conversation}", scope, usage, end - usage.seconds, answered=scope in by_scope)
        by_scope[scope] = usage.plus(by_scope[scope]) if scope in by_scope else usage

    def _note(self, place: str, scope: str, usage: Usage, start: float, *, answered: bool) -> None:
        """Remember the user message of a model call.

        Parameters:
            start: of the call in seconds; answered: no tool call has followed the model call before it.
        """
        asked, known = usage.asked or "", self.asked.get(place)
        if known is None:
            self.asked[place] = Asked(asked, None if usage.opening else scope)
            if len(self.asked) > MAX_ASKED:
                del self.asked[next(iter(self.asked))]
        elif known.scope is None:
            if not usage.opening:
                self.asked[place] = known._replace(scope=scope)
        elif scope == known.scope and (usage.opening or answered) and in_other_words(asked, known.newest):
            self.asked[place] = known._replace(turns=(*known.turns[1 - MAX_TURNS :], (asked, start)))

    def wants_asked(self, trace_id: str, scope: str, conversation: str, opens: Callable[[], bool]) -> bool:
        """Whether the user message of a model call that has ended can say anything new: most calls go on with a task.

        Parameters:
            opens: whether its input has nothing behind the words of the user; the others as of ``add``.
        """
        known = self.asked.get(f"{trace_id}/{conversation}")
        if known is None or known.scope is None:
            return True
        return scope == known.scope and (scope in self.pending.get(trace_id, ()) or opens())

    def charge(self, step: StepRecord, *conversations: str) -> StepRecord:
        """The step with the usage of the model calls before it, the user message that its trace answers, and its turn.

        Parameters:
            conversations: those it may belong to, as of ``add``, the surest first; by default the one without a name.
        """
        if step.task is not None and step.batch is not None:
            step = in_own_loop(self.tasks, step.task, step)
        asked = self._asked(step, conversations)
        by_scope = self.pending.pop(step.trace_id or "", None)
        if by_scope:
            usage = max(by_scope.values(), key=lambda one: (one.tokens, one.seconds))
            return step._replace(usage=usage, asked=asked)
        return step if asked is None else step._replace(asked=asked)

    def name_model_call(self, call: StepRecord, *conversations: str) -> StepRecord:
        """A model call with the user message that its trace answers; it carries its own usage. Arguments as above."""
        if call.task in self.tasks and self.tasks[call.task].instance:
            call = call._replace(run=self.tasks[call.task].instance)
        return call._replace(asked=self._asked(call, conversations))

    def discard_pending(self, call: StepRecord) -> None:
        """Forget the pending usage of the trace: the call became a step, to which its usage was charged."""
        self.pending.pop(call.trace_id or "", None)

    def _asked(self, step: StepRecord, conversations: tuple[str, ...]) -> str | None:
        if not self.asked:
            return None
        places = (f"{step.trace_id or ''}/{conversation}" for conversation in conversations or ("",))
        place = next((place for place in places if place in self.asked), None)
        if place is None:
            return None
        known = self.asked[place]
        is_invocation = step.run is not None and step.run[:1] == GRAPH
        in_graph = step.batch if superstep(step.batch) >= 0 and not is_invocation else None
        if step.model_scope is None and (known.turns or in_graph is not None):
            known = known.at(step.timestamp)
            known = self.asked[place] = known if in_graph is None else known.in_graph(in_graph)
        if in_graph is not None:
            return known.answers or known.first
        if step.run is not None or step.batch is not None or step.agent_id is not None:
            return known.first
        return known.newest

    def copy(self) -> UsageLedger:
        """An independent copy."""
        pending = {trace: dict(by_scope) for trace, by_scope in self.pending.items()}
        return UsageLedger(pending, dict(self.asked), dict(self.tasks))
