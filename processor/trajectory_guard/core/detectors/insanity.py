"""Type II: a call that means the same, again without success."""

from __future__ import annotations

from typing import Any, ClassVar

from trajectory_guard.core.detectors.base import TYPE_II, DetectionResult, Observation
from trajectory_guard.core.fingerprints import digest64, mask_text, text_bytes
from trajectory_guard.core.history import History
from trajectory_guard.core.similarity import NormalForm, Relation, compare, normalize

MAX_THOUGHT_CHARS = 2_000


class Insanity:
    """Fires when at least ``count`` of the last ``window`` steps were unproductive calls that mean the same.

    Unproductive: an error, an empty answer, or one that was there before. "Means the same" is decided by the
    structured comparator (``core.similarity``), or by the agent's own words: equal thoughts announce equal intent.
    Where the comparator cannot decide (two wordings with little in common), the doubt counts half, and only for
    calls in free text that all came back empty. Entity swaps, negations and refinements never count.

    Parameters:
        count: equal-meaning calls, in steps, this one included.
        window: steps looked back.

    Reference: original TrajectoryGuard plan (3 of the last 10); comparator measured in ``docs/detection.md``.
    """

    name: ClassVar[str] = "insanity"
    loop_type: ClassVar[str] = TYPE_II
    __slots__ = ("count", "recent", "window")

    def __init__(self, count: int = 3, window: int = 10) -> None:
        self.count = count
        self.window = window
        self.recent: list[tuple[int, str, str, str, NormalForm]] = []  # index, call, outcome symbol, thought, form

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        if seen.news or not seen.call or not seen.result:
            return None
        form = normalize(seen.tool, seen.step.args)
        thought = self._thought(seen)
        oldest = seen.index - self.window
        self.recent = [entry for entry in self.recent if entry[0] > oldest]
        result = self._judge(seen, form, thought)
        self.recent.append((seen.index, seen.call.hex(), self._outcome(seen), thought, form))
        return result

    def _thought(self, seen: Observation) -> str:
        text = (seen.step.thought or "")[:MAX_THOUGHT_CHARS]
        return digest64(text_bytes(mask_text(text).casefold())).hex() if text.strip() else ""

    def _outcome(self, seen: Observation) -> str:
        return digest64(text_bytes(seen.signature)).hex() if seen.signature else seen.result.hex()

    def _judge(self, seen: Observation, form: NormalForm, thought: str) -> DetectionResult | None:
        outcome, same, doubtful = self._outcome(seen), [seen.index], []
        reworded = False
        for index, call, other_outcome, other_thought, other in self.recent:
            if other_outcome != outcome:
                continue
            if call == seen.call.hex():
                same.append(index)
                continue
            verdict = compare(form, other).relation
            if verdict is Relation.SAME or (thought and thought == other_thought):
                same.append(index)
                reworded = True
            elif verdict is Relation.MAYBE or (index > seen.last_news and self._reformulation(seen, form, other)):
                doubtful.append(index)
        return self._result(seen, sorted(same), doubtful, reworded)

    def _reformulation(self, seen: Observation, form: NormalForm, other: NormalForm) -> bool:
        """Another try in free text at something that keeps coming back empty."""
        return seen.step.outcome_type == "empty" and bool(form.text) and bool(other.text)

    def _result(
        self, seen: Observation, same: list[int], doubtful: list[int], reworded: bool
    ) -> DetectionResult | None:
        weight = len(same) + len(doubtful) / 2
        steps = sorted(same + doubtful)
        if not reworded and not doubtful:
            return None  # equal calls only: type I
        if weight < self.count - 0.5 or len(steps) < self.count:
            return None
        certain = weight - len(doubtful) / 2 >= self.count
        rule = "same_meaning" if certain else "reformulation"
        details = {"rule": rule, "count": len(steps), "first_step": steps[0], "steps": steps}
        return DetectionResult(TYPE_II, 1.0, details, soft=not certain)

    def dump(self) -> Any:
        """Recent unproductive calls in normal form."""
        return [[*entry[:4], entry[4].to_plain()] for entry in self.recent] or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.recent = [(e[0], e[1], e[2], e[3], NormalForm.from_plain(e[4])) for e in data]
