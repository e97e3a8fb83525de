"""The record of one tool call, which all parts of the package exchange, and how strong its evidence may be."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Literal, NamedTuple


class Certainty(str, Enum):
    """Strength of the evidence behind a finding, strongest first."""

    CERTAIN = "certain"
    """The same call with the same observation, a cycle with the same observations, a call that was refused before."""
    LIKELY = "likely"
    """Reworded calls, one class of error or one state through changing calls, answers that are equal but for noise."""
    ACKNOWLEDGED = "acknowledged"
    """The same action, answered by a bare acknowledgement that shows no state: it may well have done its work."""
    WAITING = "waiting"
    """Something is under way, or fails for a passing reason: repeating the call is what waiting looks like."""

    def __str__(self) -> str:
        return self.value


_RANK: Final = {one: rank for rank, one in enumerate(Certainty)}


def weakest(first: Certainty, second: Certainty) -> Certainty:
    """The weaker of two.

    >>> str(weakest(Certainty.CERTAIN, Certainty.WAITING))
    'waiting'
    """
    return first if _RANK[first] >= _RANK[second] else second


def strongest(first: Certainty, second: Certainty) -> Certainty:
    """The stronger of two."""
    return first if _RANK[first] <= _RANK[second] else second


PACE: Final = {Certainty.CERTAIN: 1, Certainty.LIKELY: 1, Certainty.ACKNOWLEDGED: 3, Certainty.WAITING: 3}
"""Factor on the number of repeats that a rule requires, by strength of evidence."""
PACE_OF_MOVES: Final = 2
"""Further factor where each move leads on: only its end would show, and a long page or a round has many places."""


Outcome = Literal["success", "empty", "error", "denied", "interrupted"]

SUCCESS: Final = "success"
EMPTY: Final = "empty"
ERROR: Final = "error"
DENIED: Final = "denied"
INTERRUPTED: Final = "interrupted"
OUTCOMES: Final[tuple[Outcome, ...]] = ("success", "empty", "error", "denied", "interrupted")

REFUSED_BY_GUARD: Final = "trajectory_guard.refused"
"""``error_class`` of a call that a gate answered itself because it had been made before: it counts as a repeat."""
NOT_RUN: Final = "Not run by trajectory_guard: "
"""Beginning of such an answer, by which spans and plain messages, which carry no mark of the gate, show it."""


class Evidence(str, Enum):
    """How much of a call the telemetry showed. Less evidence means lower confidence, never a guess."""

    FULL = "full"
    NO_RESULT = "no_result"
    NAME_ONLY = "name_only"
    FINGERPRINT = "fingerprint_only"
    """All was visible, but too long to be understood: arguments or result are compared by hashes."""

    def __str__(self) -> str:
        return self.value


TOO_MANY: Final = 1_000_000_000_000
"""Numbers of tokens, or of dollars, from which on they are taken for a mistake. A whole number: compiled code compares
others with it that are too large for a float."""
_LATEST_S: Final = 1e15
"""Seconds from which on they are taken for a mistake."""


class ModelTokens(NamedTuple):
    """Tokens that calls of one model consumed and for which the telemetry names no price."""

    model: str
    input_tokens: int
    output_tokens: int


HANDOFF_SUFFIX: Final = ".handoff"
"""Suffix of the dialect of a step that stands for a hand-off without a tool."""


class Delivered(Enum):
    """The kind of text that comes back with a hand-over."""

    NOTHING = 0
    """Nothing that was not said before."""
    WORDS = 1
    """New words, which may be work, or one more reason to pass it on."""
    RESULT = 2
    """Something new: a fact, a name, an answer."""


class Usage(NamedTuple):
    """Consumption of the model calls that led to a step. Zero where the telemetry shows none.

    Fields:
        input_tokens, output_tokens: tokens of all calls together.
        cost_usd: cost in USD as the telemetry reports it.
        seconds: running time of the calls, which is no idle time of the agent.
        unpriced: tokens by model of the calls without a cost; their cost is computed when it is read.
        asked: label of the user message at which the model works, None if the call's input was not captured.
        answers: calls of them after which the model was called again without a tool call in between, so that they were
            answers.
        opening: the input of the newest call has nothing behind the words of the user: a conversation begins with it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    unpriced: tuple[ModelTokens, ...] = ()
    asked: str | None = None
    answers: int = 0
    opening: bool = False

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Both together; one of them was followed by the other, without a tool call in between."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
            self.seconds + other.seconds,
            merged(self.unpriced, other.unpriced),
            self.asked or other.asked,
            self.answers + other.answers + 1,
            self.opening,
        )


def merged(first: tuple[ModelTokens, ...], second: tuple[ModelTokens, ...]) -> tuple[ModelTokens, ...]:
    """Tokens by model of both, each model once.

    >>> merged((ModelTokens("a", 1, 2),), (ModelTokens("a", 3, 4), ModelTokens("b", 5, 6)))
    (ModelTokens(model='a', input_tokens=4, output_tokens=6), ModelTokens(model='b', input_tokens=5, output_tokens=6))
    """
    if not first or not second:
        return first or second
    total = {one.model: one for one in first}
    for one in second:
        known = total.get(one.model, ModelTokens(one.model, 0, 0))
        total[one.model] = ModelTokens(
            one.model, known.input_tokens + one.input_tokens, known.output_tokens + one.output_tokens
        )
    return tuple(total.values())


class StepRecord(NamedTuple):
    """One tool call at its boundary, a model call that may repeat, or a hand-off without a tool. Immutable.

    A NamedTuple because one is built per span on the hot path.

    Hashes compare calls and results; ``args`` and ``result`` travel with the record only so that the engine
    can explain and, where hashes differ, compare. The engine keeps neither beyond short excerpts.

    Fields:
        step_id: span id in hex, or a UUID. A second record with the same id is ignored.
        trajectory_id: conversation id, else thread or session id, else trace id.
        tool_name: as emitted; compared case-folded.
        tool_args_hash: SHA-256 hex of the canonical arguments. None: the engine computes it from ``args``; unknown
            without them.
        state_snapshot_hash: fingerprint of the result, or of a state the application supplies. None: the engine
            computes it from ``result``; unknown without it.
        outcome_type: success, empty, error, denied or interrupted.
        agent_id: stable name of the acting agent, or None.
        timestamp: start of the call, seconds since the epoch (or since the start of a recording).
        duration: seconds.
        call_id: the model's tool call id, if known.
        args: decoded arguments, None if unknown.
        result: decoded payload text, None if unknown.
        error_class: exception type or ``error.type``, if the telemetry names one.
        evidence: how much was visible.
        usage: tokens and cost of the model call before this step, where known.
        batch: label of the model turn that issued the call, None if only times identify the batch.
        turn: label of the user turn, None if unknown.
        asked: label of the user message that the trace answers, from the input of its model calls; None if unknown.
        run: label of the agent instance that acts (its agent span, its checkpoint namespace), None if unknown.
        stated: ``state_snapshot_hash`` is a state that the application supplied, not the result's text.
        thought: text the model wrote with the call, None if unknown.
        model_scope: the step is a model call, reported by this instrumentation scope: its arguments are the input, its
            result is the answer. None: it is a tool call.
        shown_args: arguments that were too long for ``args``, shortened for people; None if ``args`` are whole.
        task: label of the execution of a LangGraph node in which the call is made, None outside of such graphs.
    """

    step_id: str
    trajectory_id: str
    tool_name: str
    tool_args_hash: str | None = None
    state_snapshot_hash: str | None = None
    outcome_type: Outcome = SUCCESS
    agent_id: str | None = None
    timestamp: float = 0.0
    duration: float = 0.0
    call_id: str | None = None
    dialect: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    args: Any = None
    result: str | None = None
    error_class: str | None = None
    evidence: Evidence = Evidence.FULL
    usage: Usage | None = None
    batch: str | None = None
    turn: str | None = None
    thought: str | None = None
    run: str | None = None
    stated: bool = False
    asked: str | None = None
    model_scope: str | None = None
    shown_args: Any = None
    task: str | None = None

    @property
    def is_toolless(self) -> bool:
        """Whether the framework itself hands over to another agent, without any tool."""
        return self.dialect is not None and self.dialect.endswith(HANDOFF_SUFFIX)


def with_known_times(step: StepRecord) -> StepRecord:
    """``step``, with 0 for times that are negative or no number: no state that holds such a sum could be loaded."""
    start, seconds = step.timestamp, step.duration
    if 0.0 <= start < _LATEST_S and 0.0 <= seconds < _LATEST_S:
        return step
    return step._replace(
        timestamp=start if 0.0 <= start < _LATEST_S else 0.0, duration=seconds if 0.0 <= seconds < _LATEST_S else 0.0
    )


def is_refused_by_guard(step: StepRecord) -> bool:
    """Whether a gate answered the call itself: what came back is that of the call before, and no new failure."""
    return step.error_class == REFUSED_BY_GUARD or (step.result is not None and step.result.startswith(NOT_RUN))
