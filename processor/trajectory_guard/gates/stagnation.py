"""``StagnationGate``: notices that a node of a graph says the same again and again, also where no tool is called."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config.messages import wrong_type
from trajectory_guard.core.content.novelty import Said, novelty, said
from trajectory_guard.core.detectors import TYPE_VI, DetectionResult
from trajectory_guard.core.detectors.reported import NOTHING_NEW_SAID
from trajectory_guard.core.explain.certificates import REPLAYABLE, Certificate, fingerprint
from trajectory_guard.core.steps import Certainty
from trajectory_guard.gates.wrapping import EPHEMERAL_THREAD, MAX_THREADS, OutputGate, ThreadMemory

STAGNATION_THEOREM: Final = "behavioral_stability_windowed"
"""Stable: every window of severities stays within the threshold. Named as operon names it."""
MAX_INTEGRALS: Final = 256
MAX_STEPS: Final = 32
_SOURCE: Final = "trajectory_guard.gates.stagnation"
_TEXT_KEYS: Final = ("content", "text")


class Embedder(Protocol):
    """Computes a vector from a text, such as a sentence model does."""

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; all vectors have one length."""


class _Memory(ThreadMemory):
    """Outputs of one thread: their forms, how new each was, and how many in a row were hardly new."""

    __slots__ = ("count", "integrals", "outputs", "streak")

    def __init__(self, window: int) -> None:
        super().__init__()
        self.outputs: deque[Any] = deque(maxlen=window)
        self.integrals: deque[float] = deque(maxlen=MAX_INTEGRALS)
        self.streak = 0
        self.count = 0


class StagnationGate(OutputGate[_Memory]):
    """Fires when outputs of wrapped nodes stop saying anything new; routes the run elsewhere, and certifies why.

    Each output is compared with those before it in the same thread (``core.novelty``). The gate fires at the
    ``critical_duration``-th output in a row that is hardly new, which is the third of three near-identical outputs by
    default, and recovers at the first output that is new. Slow progress (a counter that moves, a sentence more) is new.

    The finding goes to the board with the evidence *likely*: a nudge is due at once, a stop after two of them.

    Parameters:
        threshold: novelty, from 0 to 1, below which an output is hardly new.
        critical_duration: how many such outputs in a row it takes.
        window_size: outputs that one is compared with.
        embedder: computes vectors; then the novelty is 1 - the largest cosine. Without one, characters and words count.
        board: where findings go; by default the board of the process.
        max_threads: threads remembered; the one unused for longest is forgotten first.
    """

    name = "stagnation"

    def __init__(
        self, threshold: float = 0.2, critical_duration: int = 2, window_size: int = 10, *,
        embedder: Embedder | None = None, board: FlagBoard | None = None, max_threads: int = MAX_THREADS,
    ) -> None:  # fmt: skip
        if not isinstance(threshold, (int, float)):
            raise wrong_type("threshold", "a number", threshold)
        if not 0.0 < threshold <= 1.0:
            raise ValueError(f"threshold: above 0 and at most 1, got {threshold}")
        for name, value in (("critical_duration", critical_duration), ("window_size", window_size)):
            if not isinstance(value, int):
                raise wrong_type(name, "a whole number", value)
            if value < 1:
                raise ValueError(f"{name}: at least 1, got {value}")
        super().__init__(board=board, max_threads=max_threads)
        self._threshold, self._duration, self._window = threshold, critical_duration, window_size
        self._embedder = embedder

    @property
    def is_stagnant(self) -> bool:
        """Whether outputs without a thread id stagnate; see ``is_stagnant_for``."""
        return self._fired(EPHEMERAL_THREAD)

    def is_stagnant_for(self, thread_id: str) -> bool:
        """Whether the outputs of a thread stagnate now."""
        return self._fired(thread_id)

    def integrals_for(self, thread_id: str | None = None) -> list[float]:
        """How new the outputs of a thread were, oldest first (at most 256): the values that the gate decides on."""
        with self._lock:
            memory = self._threads.get(EPHEMERAL_THREAD if thread_id is None else str(thread_id))
            return list(memory.integrals) if memory is not None else []

    def wrap(
        self, node: Callable[..., Any], *, text_extractor: Callable[[Any], str] | None = None
    ) -> Callable[..., Any]:
        """A node for ``add_node`` that returns what ``node`` returns.

        Parameters:
            text_extractor: the text of an output; by default that of its newest message, else all its values.
        """
        extract = text_extractor or text_of_output
        return self._wrap(node, lambda output, thread, name: self._observe(str(extract(output)), thread, name))

    def observe(self, text: str, *, thread_id: str | None = None) -> bool:
        """Compare a text that no wrapped node returned; returns whether the thread stagnates."""
        thread = EPHEMERAL_THREAD if thread_id is None else str(thread_id)
        self._observe(text, thread, "observe")
        return self._fired(thread)

    # --- measuring -------------------------------------------------------------------------------------------

    def _new_memory(self) -> _Memory:
        return _Memory(self._window)

    def _observe(self, text: str, thread: str, node: str) -> None:
        form: Any = said(text) if self._embedder is None else _unit(self._embedder.embed(text))
        with self._lock:
            memory = self._memory(thread)
            integral = self._novelty(form, memory.outputs)
            memory.outputs.append(form)
            memory.integrals.append(integral)
            memory.count += 1
            before, memory.streak = memory.streak, memory.streak + 1 if self._is_low(integral) else 0
            fired, streak = memory.streak >= self._duration, memory.streak
            measured = self._measured(list(memory.integrals)[-self._duration :]) if fired else {}
            if fired and not memory.fired:
                memory.certificates.append(self._certificate(measured, thread, memory.count))
            memory.fired = fired
        if streak or before:  # an output that is new matters to the board only where it ends a series
            fingerprinted = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            self._report(thread, node, fingerprinted, _finding(streak) if fired else None, measured)

    def _is_low(self, integral: float) -> bool:
        """In the form in which the certificate is checked, so that the two never differ by rounding."""
        return 1.0 - integral > 1.0 - self._threshold

    def _novelty(self, form: Any, before: Collection[Any]) -> float:
        if isinstance(form, Said):
            return novelty(form, before)
        if not before:
            return 1.0
        nearest: float = max(sum(one * other for one, other in zip(form, known, strict=True)) for known in before)
        return round(min(1.0, max(0.0, 1.0 - nearest)), 6)

    def _measured(self, integrals: Sequence[float]) -> dict[str, Any]:
        """In the domain of severities, as operon's verifier of this theorem expects it."""
        return {"signal_values": tuple(1.0 - one for one in integrals), "threshold": 1.0 - self._threshold}

    def _certificate(self, measured: Mapping[str, Any], thread: str, outputs: int) -> Certificate:
        facts = {
            "theorem": STAGNATION_THEOREM,
            "conclusion": f"Stagnation at output {outputs}: the last {self._duration} outputs were hardly new.",
            "source": _SOURCE,
            "thread": fingerprint(thread),
            "outputs": outputs,
        }
        return Certificate.made(NOTHING_NEW_SAID, REPLAYABLE, measured, facts)


def _finding(streak: int) -> DetectionResult:
    """The first output of the series, which the others repeat, was new when it came and is counted, but no step."""
    steps = tuple(range(1 - min(streak, MAX_STEPS), 1))
    return DetectionResult(TYPE_VI, 1.0, NOTHING_NEW_SAID, Certainty.LIKELY, streak + 1, 1 - streak, steps)


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.sqrt(sum(one * one for one in vector)) or 1.0
    return tuple(one / length for one in vector)


# --- the text of an output ---------------------------------------------------------------------------------------


def text_of_output(output: Any) -> str:
    """The words of an output: of messages the newest one with its tool calls, else all values, no ids or usage."""
    update = getattr(output, "update", None)
    if update is not None and not callable(update):  # a Command of LangGraph
        output = update
    if isinstance(output, Mapping) and output.get("messages"):
        rest = {key: value for key, value in output.items() if key != "messages"}
        messages = output["messages"]
        newest = messages[-1] if isinstance(messages, Sequence) and not isinstance(messages, str) else messages
        return "\n".join(one for one in (_plain_text(newest), text_of_output(rest) if rest else "") if one)
    if isinstance(output, Sequence) and not isinstance(output, (str, bytes)) and output and _is_message(output[-1]):
        return _plain_text(output[-1])
    return _plain_text(output)


def _is_message(value: Any) -> bool:
    return hasattr(value, "content") and hasattr(value, "type")


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if _is_message(value):
        calls = [{"name": one.get("name"), "args": one.get("args")} for one in getattr(value, "tool_calls", None) or ()]
        parts = value.content if isinstance(value.content, list) else [value.content]
        texts = [one if isinstance(one, str) else _part_text(one) for one in parts]
        return "\n".join([*texts, *(json.dumps(one, default=str, sort_keys=True) for one in calls)])
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):  # ("assistant", "text")
        return value[1]
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_plain_text(one)}" for key, one in value.items() if key != "id")
    if isinstance(value, (list, tuple)):
        return "\n".join(map(_plain_text, value))
    return str(value)


def _part_text(part: Any) -> str:
    if isinstance(part, Mapping):
        return next((str(part[key]) for key in _TEXT_KEYS if part.get(key)), "")
    return str(part)
