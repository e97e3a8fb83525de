"""Type II: a call that means the same, again without success."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.detectors.base import TYPE_II, DetectionResult, Observation
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.history import History
from trajectory_guard.core.masking import mask_text
from trajectory_guard.core.similarity import NormalForm, Relation, compare, normalize
from trajectory_guard.core.similarity.cascade import Settle
from trajectory_guard.core.steps import EMPTY
from trajectory_guard.core.tools import is_communication

MAX_THOUGHT_CHARS: Final = 2_000
MAX_QUERY_CHARS: Final = 120
MAX_QUERY_WORDS: Final = 16
_NAME: Final = re.compile(r"\d|_|[A-Z]|[a-z][./:@#][a-z]")


def _is_query(text: str) -> bool:
    """Short enough to be what is looked for, not something that is told."""
    return 0 < len(text) <= MAX_QUERY_CHARS and len(text.split()) <= MAX_QUERY_WORDS and "\n" not in text


def _names(text: str) -> frozenset[str]:
    """What a query names: numbers, identifiers, capitalised words. Other names are other things to look for."""
    return frozenset(word.strip(".,;:!?'\"()").lower() for word in text.split() if _NAME.search(word))


class _Attempt(NamedTuple):
    """An unproductive call: step index, symbols of call and outcome, digest of the thought, and its normal form."""

    at: int
    call: str
    outcome: str
    thought: str
    digest: str
    form: NormalForm | None

    def relation_to(self, form: NormalForm) -> Relation:
        if self.digest == form.digest.hex():
            return Relation.SAME
        return Relation.DIFFERENT if self.form is None else compare(form, self.form).relation


class Insanity:
    """Fires when at least ``count`` of the last ``window`` steps were unproductive calls that mean the same.

    Unproductive: an error, an empty answer, or one that was there before. "Means the same" is decided by the
    structured comparator (``core.similarity``), or by the agent's own words: equal thoughts announce equal intent.
    Where the comparator cannot decide (two wordings with little in common), the doubt counts half, and only for
    short queries that all came back empty. Entity swaps, negations and refinements never count.

    Parameters:
        count: equal-meaning calls, in steps, this one included.
        window: steps looked back.
        settle: asked whether two texts the comparator is unsure of mean the same; True makes the call count in full.
        redact: keep digests instead of normal forms; calls then mean the same only if their normal forms are equal.

    Reference: original TrajectoryGuard plan (3 of the last 10); comparator measured in ``docs/detection.md``.
    """

    name: ClassVar[str] = "insanity"
    loop_type: ClassVar[str] = TYPE_II
    __slots__ = ("count", "recent", "redact", "settle", "window")

    def __init__(self, count: int = 3, window: int = 10, *, redact: bool = False, settle: Settle | None = None) -> None:
        self.count = count
        self.window = window
        self.redact = redact
        self.settle = settle
        self.recent: list[_Attempt] = []

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        if seen.news or not seen.call or not seen.result:
            return None
        form = self._form(seen)
        thought = self._thought(seen)
        oldest = seen.index - self.window
        self.recent = [attempt for attempt in self.recent if attempt.at > oldest]
        result = self._judge(seen, form, thought)
        kept = None if self.redact else form
        self.recent.append(_Attempt(seen.index, seen.call.hex(), self._outcome(seen), thought, form.digest.hex(), kept))
        return result

    def _form(self, seen: Observation) -> NormalForm:
        """Normal form of the call; an equal call has an equal one, and working it out costs more than the rest."""
        call = seen.call.hex()
        known = next((attempt.form for attempt in self.recent if attempt.call == call), None)
        return known if known is not None else normalize(seen.tool, seen.step.args)

    def _thought(self, seen: Observation) -> str:
        text = (seen.step.thought or "")[:MAX_THOUGHT_CHARS]
        return digest64(text_bytes(mask_text(text).casefold())).hex() if text.strip() else ""

    def _outcome(self, seen: Observation) -> str:
        return digest64(text_bytes(seen.signature)).hex() if seen.signature else seen.result.hex()

    def _judge(self, seen: Observation, form: NormalForm, thought: str) -> DetectionResult | None:
        outcome, call = self._outcome(seen), seen.call.hex()
        same, maybe, doubtful, reworded = [seen.index], [], [], False
        for attempt in self.recent:
            if attempt.outcome != outcome:
                continue
            if attempt.call == call:
                same.append(attempt.at)
                continue
            relation = attempt.relation_to(form)
            if relation is Relation.SAME or (thought and thought == attempt.thought):
                same.append(attempt.at)
                reworded = True
            elif relation is Relation.MAYBE:
                maybe.append(attempt)
            elif self._reformulation(seen, form, attempt):
                doubtful.append(attempt.at)
        settled = self._settled(form, maybe) if len(same) < self.count <= len(same) + len(maybe) else []
        same += settled
        doubtful += [attempt.at for attempt in maybe if attempt.at not in settled]
        return self._result(seen, sorted(same), doubtful, reworded or bool(settled))

    def _settled(self, form: NormalForm, maybe: list[_Attempt]) -> list[int]:
        """Which of the doubtful calls mean the same, by the model's word. All are asked, so that all get known."""
        if self.settle is None:
            return []
        asked = [(one.at, self.settle(form.text, one.form.text)) for one in maybe if one.form is not None]
        return [at for at, same in asked if same]

    def _reformulation(self, seen: Observation, form: NormalForm, attempt: _Attempt) -> bool:
        """Another short query for something that keeps coming back empty, with no news in between."""
        if seen.step.outcome_type != EMPTY or attempt.at <= seen.last_news or attempt.form is None:
            return False
        if is_communication(seen.step.tool_name) or not (_is_query(form.text) and _is_query(attempt.form.text)):
            return False
        return _names(form.text) == _names(attempt.form.text)

    def _result(
        self, seen: Observation, same: list[int], doubtful: list[int], reworded: bool
    ) -> DetectionResult | None:
        weight = len(same) + len(doubtful) / 2
        steps = sorted(same + doubtful)
        if not reworded and not doubtful:
            return None  # equal calls only: type I
        if weight < self.count - 1 or len(steps) < self.count:
            return None
        certain = len(same) >= self.count
        rule = "same_meaning" if certain else "reformulation"
        details = {"rule": rule, "count": len(steps), "first_step": steps[0], "steps": steps}
        confidence = 1.0 if weight >= self.count - 0.5 else 0.5
        return DetectionResult(TYPE_II, confidence, details, soft=not certain)

    def dump(self) -> Any:
        """Recent unproductive calls in normal form."""
        return [[*attempt[:5], attempt.form and attempt.form.to_plain()] for attempt in self.recent] or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.recent = []
        for at, call, outcome, thought, digest, plain in data:
            form = NormalForm.from_plain(plain) if plain is not None else None
            self.recent.append(_Attempt(at, call, outcome, thought, digest, form))
