"""Model calls that repeat: equal input, equal answer, and no tool step of the run in between.

A model call is a step of its own only from its first repeat on, so that an agent that works keeps its steps and their
indices. Until then a few digests stand for the newest call of a run.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.grids import counts_in
from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.observation import MAX_THOUGHT_CHARS
from trajectory_guard.core.steps import StepRecord

TOOL_NAME: Final = "model"
"""``tool_name`` of the step of a model call."""
IN_MESSAGES: Final = "messages"
"""``model_scope`` of answers that a gate has compared itself: each of them is a step."""
_MAX_SCOPES: Final = 4


class Series(NamedTuple):
    """Equal model calls in a row, as one instrumentation reports them.

    Fields:
        scope: instrumentation scope of the spans.
        key: digest of input and answer, hex; empty if one of them is unknown, or parallel calls differ.
        times: batches of calls in the series.
        end: end of the newest batch in seconds.
        step_id, trace_id, start, first_end: the first call of the series, with its times in seconds.
        believed: its repeats are steps, and those of the other instrumentations of the run are not.
        thought: what the model says with the tools that its newest answer requests.
    """

    scope: str
    key: str
    times: int
    end: float
    step_id: str
    trace_id: str | None
    start: float
    first_end: float
    believed: bool = False
    thought: str = ""

    def first_step(self, newest: StepRecord) -> StepRecord:
        """The first call of the series as a step; ``newest`` is the call that repeats it."""
        return newest._replace(
            step_id=self.step_id, span_id=self.step_id, trace_id=self.trace_id, timestamp=self.start,
            duration=self.first_end - self.start, usage=None,
        )  # fmt: skip


Newest = tuple[Series, ...]
"""The newest model calls of one run, a series for each instrumentation."""


def advance(newest: Newest, call: StepRecord, *, redact: bool = False) -> tuple[Newest, Series | None]:
    """The series after a model call, and the one that this call repeats; None if it repeats none.

    Calls that overlap in time (samples of one prompt, votes, parallel branches) are one batch, which counts once, and
    not at all if its answers differ. Of two instrumentations that report the same calls, the one that reports a repeat
    first is believed.

    Parameters:
        newest: the newest model calls of the run; empty after a tool step.
        call: the step of a model call (``StepRecord.model_scope``).
        redact: of what the model says, keep nothing but what it counts.
    """
    scope, key, end = call.model_scope or "", key_of(call), call.timestamp + call.duration
    own = next((one for one in newest if one.scope == scope), None)
    others = tuple(one for one in newest if one.scope != scope)
    thought = (call.thought or "")[:MAX_THOUGHT_CHARS]
    thought = counts_in(thought) if redact else thought
    if own is not None and call.timestamp < own.end:
        if key != own.key:
            own = own._replace(key="", times=0, believed=False)
        return (*others, own._replace(end=max(own.end, end), thought=thought)), None
    if own is not None and key and key == own.key:
        own = own._replace(times=own.times + 1, end=end, believed=not any(one.believed for one in others))
        return (*others, own), own if own.believed else None
    same_call = tuple(one for one in others if call.timestamp < one.end)
    first = Series(scope, key, 1, end, call.step_id, call.trace_id, call.timestamp, end, thought=thought)
    return (*same_call[1 - _MAX_SCOPES :], first), None


def with_thought(step: StepRecord, newest: Newest) -> StepRecord:
    """A tool step with what the model said when it asked for it, as the newest model calls before it show."""
    thought = next((one.thought for one in reversed(newest) if one.thought), "")
    return step._replace(thought=thought) if thought and not step.thought else step


def key_of(call: StepRecord) -> str:
    """Digest of input and answer; empty if one of them is unknown, or if the answer requests a tool."""
    if call.tool_args_hash is None or call.state_snapshot_hash is None:
        return ""
    return digest64(f"{call.tool_args_hash}\0{call.state_snapshot_hash}".encode("utf-8", "replace")).hex()


def to_plain(newest: Newest) -> list[list[Any]]:
    """JSON-able."""
    return [list(one) for one in newest]


def from_plain(plain: list[list[Any]]) -> Newest:
    """Restore ``to_plain``."""
    return tuple(Series(*one) for one in plain)
