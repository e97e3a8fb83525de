"""The protocol every detector follows, and what a detector is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol
from zlib import crc32

from trajectory_guard.core.history import History, Symbol
from trajectory_guard.core.masking import masked_hash
from trajectory_guard.core.steps import StepRecord

TYPE_I: Final = "TYPE_I_STUTTER"
TYPE_II: Final = "TYPE_II_INSANITY"
TYPE_III: Final = "TYPE_III_PHANTOM"
TYPE_IV: Final = "TYPE_IV_PINGPONG"
TYPE_V: Final = "TYPE_V_ERROR_STREAK"
TYPE_VI: Final = "TYPE_VI_MONOLOGUE"
_SHAPE_STEP_CHARS: Final = 16
_SHAPE_HEAD_CHARS: Final = 24
_TRIES: Final = 2
_RETRY_STEPS: Final = 16
LOOP_TYPES: Final = (TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI)


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """What one detector says of one step.

    A ``soft`` finding may lead to a nudge, never to a stop.
    ``details`` names the rule that fired and its evidence: ``rule``, ``count``, ``first_step`` (index of the first
    step of the loop) and ``steps`` (indices), plus what the rule needs to explain itself.
    """

    loop_type: str
    confidence: float
    details: Mapping[str, Any] = field(default_factory=dict)
    soft: bool = False

    @property
    def detected(self) -> bool:
        """Whether anything was found."""
        return self.confidence > 0


class FrozenRun:
    """The current run of steps that all came back with one and the same answer, volatile parts aside.

    Attributes:
        result: symbol of that answer, hex; empty if the last answer is unknown.
        first: index of the first step of the run.
        distinct: how many different calls the run holds.
        calls: those calls (the newest five); tools: their tools, case-folded (the newest four).
        shape: checksum of the first characters of the last answer, and its length: only answers of one shape are worth
            masking.
        masked: masked form of the last answer, hex; empty if it was not worked out.
        misses: how often masking told answers of this shape apart.
    """

    __slots__ = ("calls", "distinct", "first", "masked", "misses", "result", "shape", "tools")

    def __init__(self) -> None:
        self.result = ""
        self.first = -1
        self.distinct = 0
        self.calls: list[str] = []
        self.tools: list[str] = []
        self.shape = 0
        self.masked = ""
        self.misses = 0

    def update(self, seen: Observation) -> bool:
        """Take in a step; an unknown call or answer ends the run. True if only volatile parts of the answer are new."""
        if not seen.result or not seen.call:
            self.result, self.shape, self.masked = "", 0, ""
            self.distinct, self.calls, self.tools = 0, [], []
            return False
        answer = seen.result.hex()
        same_but_noise = answer != self.result and self._same_but_noise(seen.index, seen.step.result or "")
        if answer != self.result and not same_but_noise:
            self.result, self.first, self.distinct, self.calls, self.tools = answer, seen.index, 0, [], []
        name = seen.call.hex()
        if name not in self.calls:
            self.distinct += 1
            self.calls = [*self.calls[-4:], name]
        if seen.tool not in self.tools:
            self.tools = [*self.tools[-3:], seen.tool]
        return same_but_noise

    def _same_but_noise(self, index: int, text: str) -> bool:
        """Compares masked forms, from the second answer of one shape on: masking every answer would cost too much.

        Where answers of one shape turned out to differ, only every ``_RETRY_STEPS``-th step tries again.
        """
        head = text[:_SHAPE_HEAD_CHARS].encode("utf-8", "replace")
        shape = (crc32(head) << 32) + len(text) // _SHAPE_STEP_CHARS if len(text) > _SHAPE_HEAD_CHARS else 0
        if not shape or shape != self.shape:
            self.shape, self.masked, self.misses = shape, "", 0
            return False
        if self.misses >= _TRIES and index % _RETRY_STEPS > 1:
            self.masked = ""
            return False
        before, self.masked = self.masked, masked_hash(text).hex()
        self.misses = 0 if before == self.masked else self.misses + bool(before)
        return before == self.masked

    def to_plain(self) -> list[Any]:
        """All fields in slot order, JSON-able."""
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_plain(cls, data: list[Any]) -> FrozenRun:
        """Restore ``to_plain``."""
        run = cls()
        for name, value in zip(cls.__slots__, data, strict=True):
            setattr(run, name, value)
        return run


class Observation:
    """One step as the detectors see it: the record plus what the engine worked out about it.

    Attributes:
        step: the record; tool: its tool name, case-folded.
        index: ordinal of the step in its trajectory, from 0.
        call, result: symbols of the call and of what came back; empty if unknown.
        signature: masked error class, None unless the outcome is an error, or an answer seen before reads like one.
        news: something new came back; resets every suspicion. Without news a step was unproductive: an error seen
            before, nothing, or an answer that was there before.
        repeats: how often this call returned this result since the last news, this step included.
        first_repeat: index of the first of those, -1 if none.
        moved: the call was made before, and this time another answer came back.
        worked: a call that had not been made before came between this repeat and the one before it.
        others_progress: other agents brought news since this call was made last.
        pending: the answer says that something is still under way, so asking again is not absurd.
        gap_s: seconds between the end of the previous equal call and this one; 0 if unknown.
        last_news: index of the newest step that brought news, -1 if there was none.
        frozen: the run of steps with this very answer, this step included.
        same_batch: the step overlaps or shares a model turn with the one before it.
    """

    __slots__ = (
        "call",
        "first_repeat",
        "frozen",
        "gap_s",
        "index",
        "last_news",
        "moved",
        "news",
        "others_progress",
        "pending",
        "repeats",
        "result",
        "same_batch",
        "signature",
        "step",
        "tool",
        "worked",
    )

    def __init__(self, step: StepRecord, index: int, call: Symbol, result: Symbol, frozen: FrozenRun) -> None:
        self.step = step
        self.tool = step.tool_name.casefold()
        self.index = index
        self.call = call
        self.result = result
        self.frozen = frozen
        self.signature: str | None = None
        self.news = False
        self.repeats = 0
        self.first_repeat = -1
        self.moved = False
        self.worked = False
        self.others_progress = False
        self.pending = False
        self.gap_s = 0.0
        self.last_news = -1
        self.same_batch = False


class Detector(Protocol):
    """Judges a trajectory step by step; ``name`` is its key in the registry and in saved state.

    One instance belongs to one trajectory. It is deterministic, bounded in memory, and its state is plain data.
    """

    name: ClassVar[str]
    loop_type: ClassVar[str]
    __slots__ = ()

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """Take in one step; ``history`` ends before it. Returns a result only if something was found."""
        ...

    def dump(self) -> Any:
        """State as JSON-able data; None if it equals that of a new detector."""
        ...

    def load(self, data: Any) -> None:
        """Take over a state that ``dump`` returned."""
        ...
