"""Usage and user message of model calls, for the next tool call: one rule for live spans, collector and replay."""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.scope import in_other_words
from trajectory_guard.core.tracking.tasks import Tasks, after_model_call, in_own_loop

Pending = dict[str, dict[str, Usage]]
MAX_ASKED: Final = 16
"""Traces of a trajectory whose user message is remembered."""


class Asked(NamedTuple):
    """User messages of a trace, or of a conversation in it, as labels. JSON-able.

    Fields:
        first: that of its first model call.
        newest: that which its newest model calls serve, as far as it can be told.
        grown: an input was seen that holds more than the words of the user, as in a conversation that is sent anew with
            each call.
    """

    first: str
    newest: str
    grown: bool = False


class UsageLedger:
    """Pending usage of model calls by trace and instrumentation scope, each trace's user messages, and its tasks.

    The next tool call of the trace that ends takes the usage. Two instrumentations report every model call twice: the
    one that reports the most tokens is believed. Plain data; the caller bounds ``pending`` by forgetting traces.

    The user message that a trace answers is that of its first model call; an agent with a conversation of its own
    within the trace has one of its own. Where neither agent nor graph is known, a program may answer several messages
    in one trace: the model answered without a tool call, and was called again with other words of the user, in a new
    conversation or at the end of this one. Inputs that never grow are no conversation: such programs put all that they
    know in one message, which changes with each call.
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
            self._note(f"{trace_id}/{conversation}", usage.asked, opening=usage.opening, answered=scope in by_scope)
        by_scope[scope] = usage.plus(by_scope[scope]) if scope in by_scope else usage

    def _note(self, place: str, asked: str, *, opening: bool, answered: bool) -> None:
        """Remember a user message. ``answered``: the model call before this one was followed by no tool call."""
        known = self.asked.get(place)
        if known is None:
            self.asked[place] = Asked(asked, asked, grown=not opening)
            if len(self.asked) > MAX_ASKED:
                del self.asked[next(iter(self.asked))]
        elif not known.grown:
            if not opening:
                self.asked[place] = known._replace(grown=True)
        elif answered and in_other_words(asked, known.newest):
            self.asked[place] = known._replace(newest=asked)

    def wants_asked(self, trace_id: str, scope: str, conversation: str = "") -> bool:
        """Whether the user message of a model call that has ended may say anything new; parameters as of ``add``."""
        known = self.asked.get(f"{trace_id}/{conversation}")
        return known is None or not known.grown or scope in self.pending.get(trace_id, ())

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
            if usage.answers and not step.is_toolless:
                usage = usage._replace(answers=0)
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
        found = next((self.asked[place] for place in places if place in self.asked), None)
        if found is None:
            return None
        return found.newest if step.run is None and step.batch is None and step.agent_id is None else found.first

    def copy(self) -> UsageLedger:
        """An independent copy."""
        pending = {trace: dict(by_scope) for trace, by_scope in self.pending.items()}
        return UsageLedger(pending, dict(self.asked), dict(self.tasks))
