"""Matching of requested calls with the tool spans that stand for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.spans.content import SINGLE
from trajectory_guard.transcripts.requested_calls import Place, RequestedCall, is_named, shares_scope

_MAX_SCAN: Final = 64
"""Calls of one name compared argument by argument before giving up."""


def match_steps(requested: Sequence[RequestedCall], steps: Iterable[StepRecord]) -> None:
    """Give every requested call its tool span: by call id, by arguments, else by its place in time.

    A transcript shows no place in time.
    """
    index = _Steps(steps)
    ends = _next_model_start(requested)
    ways: tuple[Callable[[RequestedCall], StepRecord | None], ...] = (
        index.by_id,
        lambda one: index.take(one, None),
        index.by_id_elsewhere,
        lambda one: None if one.transcript else index.take(one, ends.get(id(one))),
    )
    for find in ways:
        for one in requested:
            if one.step is None:
                one.step = find(one)


def _next_model_start(requested: Sequence[RequestedCall]) -> dict[int, float]:
    """For each call, when the next model call of its trace that requested a call began."""
    later: dict[str, tuple[SpanView, float]] = {}
    found: dict[int, float] = {}
    for one in reversed(requested):
        trace = one.span.trace_id
        span, bound = later.get(trace, (one.span, float("inf")))
        if span is not one.span:
            bound = span.start
        found[id(one)] = bound
        later[trace] = (one.span, bound)
    return found


class _Steps:
    """Tool spans by call id and by name, each handed out once."""

    def __init__(self, steps: Iterable[StepRecord]) -> None:
        self._ids: dict[str, list[StepRecord]] = defaultdict(list)
        self._names: dict[str, list[StepRecord]] = defaultdict(list)
        self._used: set[str] = set()
        for step in steps:
            self._names[step.tool_name.casefold()].append(step)
            if step.call_id is not None:
                self._ids[step.call_id].append(step)

    def by_id(self, requested: RequestedCall) -> StepRecord | None:
        """The first step with the call's id in the same trace or trajectory; all of these are used up."""
        found = None
        for call_id in requested.ids:
            for step in self._ids.get(call_id, ()):
                if _same_name(step, requested) and shares_scope(_place(step), requested.place):
                    self._used.add(step.step_id)
                    found = found or step
        return found

    def by_id_elsewhere(self, requested: RequestedCall) -> StepRecord | None:
        """A later, unused step with the call's id and arguments in another trace: a call that waited for approval."""
        for call_id in requested.ids:
            for step in self._ids.get(call_id, ())[:_MAX_SCAN]:
                named = is_named(_place(step)) and is_named(requested.place)
                if (
                    step.step_id in self._used
                    or named
                    or step.timestamp < requested.time
                    or not _same_name(step, requested)
                ):
                    continue
                if same_arguments(step.args, requested.args):
                    self._used.add(step.step_id)
                    return step
        return None

    def take(self, requested: RequestedCall, before: float | None) -> StepRecord | None:
        """The first unused step of that name after the model call began: with fitting arguments, or any one ``before``
        the next model call."""
        scanned = 0
        if not requested.call.name:
            return None
        for step in self._names.get(requested.call.name.casefold(), ()):
            if step.step_id in self._used or not shares_scope(_place(step), requested.place):
                continue
            if step.timestamp < requested.span.start or (step.timestamp > requested.span.end and requested.transcript):
                continue
            fits = same_arguments(step.args, requested.args) if before is None else step.timestamp < before
            if fits:
                self._used.add(step.step_id)
                return step
            scanned += 1
            if scanned >= _MAX_SCAN:
                return None
        return None


def _same_name(step: StepRecord, requested: RequestedCall) -> bool:
    return not requested.call.name or step.tool_name.casefold() == requested.call.name.casefold()


def _place(step: StepRecord) -> Place:
    return Place(step.trace_id or "", step.trajectory_id)


def same_arguments(one: Any, other: Any) -> bool:
    """Whether two decoded arguments can be of one call: equal, one unknown, a name dropped, or defaults filled in."""
    if one is None or other is None or one == other or args_hash(one) == args_hash(other):
        return True
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    if SINGLE in one or SINGLE in other:
        return len(one) == len(other) == 1 and next(iter(one.values())) == next(iter(other.values()))
    fewer, more = (one, other) if len(one) <= len(other) else (other, one)
    return bool(fewer) and all(key in more and more[key] == value for key, value in fewer.items())
