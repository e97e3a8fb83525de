"""Which step pays for a model call: one rule for live spans, collector and replay."""

from __future__ import annotations

from trajectory_guard.core.steps import Usage

Pending = dict[str, dict[str, Usage]]


class UsageLedger:
    """Usage of model calls that no step has taken yet, by trace and instrumentation scope.

    The next tool call of the trace that ends takes it. Two instrumentations report every model call twice: the one that
    reports the most tokens is believed. Plain data; the caller bounds it by forgetting traces.
    """

    __slots__ = ("pending",)

    def __init__(self, pending: Pending | None = None) -> None:
        self.pending: Pending = {} if pending is None else pending

    def add(self, trace_id: str, scope: str, usage: Usage) -> None:
        """A model call has ended."""
        by_scope = self.pending.setdefault(trace_id, {})
        by_scope[scope] = usage.plus(by_scope[scope]) if scope in by_scope else usage

    def take(self, trace_id: str | None) -> Usage | None:
        """What the model calls before a tool call consumed; None if there were none."""
        by_scope = self.pending.pop(trace_id or "", None)
        if not by_scope:
            return None
        return max(by_scope.values(), key=lambda usage: (usage.tokens, usage.seconds))

    def copy(self) -> UsageLedger:
        """An independent copy."""
        return UsageLedger({trace: dict(by_scope) for trace, by_scope in self.pending.items()})
