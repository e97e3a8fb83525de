"""Usage and user message of model calls, for the next tool call: one rule for live spans, collector and replay."""

from __future__ import annotations

from typing import Final

from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.tasks import Tasks, after_model_call, in_own_loop

Pending = dict[str, dict[str, Usage]]
MAX_ASKED: Final = 16
"""Traces of a trajectory whose user message is remembered."""


class UsageLedger:
    """Pending usage of model calls by trace and instrumentation scope, each trace's user message, and its tasks.

    The next tool call of the trace that ends takes the usage. Two instrumentations report every model call twice: the
    one that reports the most tokens is believed. The user message that a trace answers is that of its first model call;
    an agent with a conversation of its own within the trace has one of its own. Plain data; the caller bounds
    ``pending`` by forgetting traces.
    """

    __slots__ = ("asked", "pending", "tasks")

    def __init__(
        self, pending: Pending | None = None, asked: dict[str, str] | None = None, tasks: Tasks | None = None
    ) -> None:
        self.pending: Pending = {} if pending is None else pending
        self.asked: dict[str, str] = {} if asked is None else asked
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
        by_scope[scope] = usage.plus(by_scope[scope]) if scope in by_scope else usage
        place = f"{trace_id}/{conversation}"
        if usage.asked is not None and place not in self.asked:
            self.asked[place] = usage.asked
            if len(self.asked) > MAX_ASKED:
                del self.asked[next(iter(self.asked))]

    def knows(self, trace_id: str, conversation: str = "") -> bool:
        """Whether the user message of the trace is known already; ``conversation`` as in ``add``."""
        return f"{trace_id}/{conversation}" in self.asked

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
        return next((self.asked[place] for place in places if place in self.asked), None)

    def copy(self) -> UsageLedger:
        """An independent copy."""
        pending = {trace: dict(by_scope) for trace, by_scope in self.pending.items()}
        return UsageLedger(pending, dict(self.asked), dict(self.tasks))
