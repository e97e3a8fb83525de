"""Type VI: the same model message again, or one claim to be done after the other."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from trajectory_guard.core.detectors.base import TYPE_VI, DetectionResult, Observation
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.history import History
from trajectory_guard.core.masking import mask_text

_FINISHERS: Final = frozenset(
    (
        "answer", "attempt_completion", "complete", "complete_task", "completed", "conclude", "done", "end", "end_task",
        "exit", "final", "final_answer", "finalize", "finish", "finish_task", "finished", "mark_complete", "mark_done",
        "mark_task_complete", "quit", "submit", "submit_answer", "submit_final", "submit_final_answer", "submit_result",
        "submit_solution", "submit_task", "task_complete", "task_completed", "task_done", "task_finished", "terminate",
    )
)  # fmt: skip
_MIN_THOUGHT_CHARS: Final = 12


class Monologue:
    """Fires when the model says the same thing for the ``count``-th time, or declares itself done ``count`` times.

    A claim to be done is a call of a tool whose name says so (finish, submit, final_answer, task_done and the like);
    had it been accepted, the run would have ended. Repeated text counts only between steps that brought nothing new,
    and not while something is still under way: who waits says the same.
    Claims that come back with different verdicts (a grader that answers) are attempts, not monologue, unless nothing
    but the claim's own text comes back.

    Parameters:
        count: equal messages, or claims, that make it certain.
        window: number of recent messages remembered.

    Reference: repeated completion claims are the most common loop of strong 2025 models (``docs/detection.md``).
    """

    name: ClassVar[str] = "monologue"
    loop_type: ClassVar[str] = TYPE_VI
    __slots__ = ("claims", "count", "thoughts", "window")

    def __init__(self, count: int = 3, window: int = 10) -> None:
        self.count = count
        self.window = window
        self.thoughts: list[list[Any]] = []  # [index, digest] of recent messages
        self.claims: list[int] = []  # indices of claims to be done

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        return self._claim(seen) or self._message(seen)

    def _claim(self, seen: Observation) -> DetectionResult | None:
        if seen.tool.replace("-", "_") not in _FINISHERS or seen.step.outcome_type == "error":
            return None
        self.claims = [*self.claims[-self.window :], seen.index]
        if len(self.claims) < self.count:
            return None
        details = {
            "rule": "claims_done", "count": len(self.claims), "first_step": self.claims[0], "steps": list(self.claims)
        }  # fmt: skip
        return DetectionResult(TYPE_VI, 1.0, details)

    def _message(self, seen: Observation) -> DetectionResult | None:
        text = seen.step.thought
        if not text or len(text) < _MIN_THOUGHT_CHARS:
            return None
        key = digest64(text_bytes(mask_text(text[:2_000]).casefold())).hex()
        self.thoughts = [*self.thoughts[-(self.window - 1) :], [seen.index, key]]
        steps = [index for index, other in self.thoughts if other == key and index >= seen.last_news]
        if len(steps) < self.count or seen.news or seen.pending:
            return None
        details = {"rule": "same_message", "count": len(steps), "first_step": steps[0], "steps": steps}
        return DetectionResult(TYPE_VI, 0.5, details)

    def dump(self) -> Any:
        """Recent messages and claims."""
        return [self.thoughts, self.claims] if self.thoughts or self.claims else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.thoughts, self.claims = [list(entry) for entry in data[0]], list(data[1])
