"""Type II: a call that means the same, again without success."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.content.restatement import names_click, restates, says_done
from trajectory_guard.core.content.result_text import (
    carries_content,
    is_acknowledgement,
    width,
)
from trajectory_guard.core.detectors.base import TYPE_II, UNPRODUCTIVE, DetectionResult, Detector, DetectorSettings
from trajectory_guard.core.detectors.open_pairs import OPEN, Answer, doubt_of, overlap, same_names, share_content
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.inquiry import ADVANCES
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.similarity import NormalForm, Relation, compare, normalize
from trajectory_guard.core.similarity.cascade import Settle
from trajectory_guard.core.similarity.keys import commands_in, is_material
from trajectory_guard.core.similarity.leaves import TEXT
from trajectory_guard.core.steps import EMPTY, ERROR, SUCCESS, Certainty
from trajectory_guard.core.text_bounds import chars_of
from trajectory_guard.core.tools import is_communication, is_handoff, is_lookup, makes_something

_COUNT: Final = 3
_WINDOW: Final = 10
_KEPT: Final = 16
_MAX_ATTEMPTS: Final = 5
_MAX_ATTEMPT_CHARS: Final = 60
_MAX_LAZY_CHARS: Final = 512


def _is_material(form: NormalForm) -> bool:
    """Whether the text is what a tool works on, as by the names of argument and tool, and not a question to it: what a
    check, a filter or a translation finds nothing in, one after the other, is a batch.
    """
    texts = [leaf for leaf in form.leaves if leaf.kind == TEXT]
    return bool(texts) and all(is_material(leaf.key) for leaf in texts) and _ASKS.search(form.tool) is None


_ASKS: Final = re.compile(r"search|quer|ask|retriev|look_?up|question|faq|wiki|knowledge")


class _Wording:
    """The normal form of a call, computed when it is first needed: most unproductive calls are never compared."""

    __slots__ = ("_args", "_form", "_tool")

    def __init__(self, tool: str, args: Any) -> None:
        self._tool = tool
        self._args = args
        self._form: NormalForm | None = None
        if chars_of(args, _MAX_LAZY_CHARS) > _MAX_LAZY_CHARS:
            self.form  # noqa: B018  # the normal form is bounded, long arguments are not

    @classmethod
    def of_form(cls, form: NormalForm) -> _Wording:
        wording = cls(form.tool, None)
        wording._form = form
        return wording

    @property
    def form(self) -> NormalForm:
        if self._form is None:
            self._form = normalize(self._tool, self._args)
            self._args = bool(self._args)
        return self._form

    @property
    def says_nothing(self) -> bool:
        """Whether the call has arguments, but none that can be compared: settings and rationales only."""
        return not self.form.leaves and bool(self._args)


class _Attempt(NamedTuple):
    """An unproductive call: index and batch, symbols of call and outcome, digest of the thought, and its wording.

    With ``redact`` the digest of the normal form stands for the wording.
    """

    at: int
    batch: int
    call: str
    outcome: str
    thought: str
    redacted: str
    wording: _Wording | None

    @property
    def form(self) -> NormalForm | None:
        return None if self.wording is None else self.wording.form

    @property
    def digest(self) -> str:
        return self.redacted if self.wording is None else self.wording.form.digest.hex()

    def relation_to(self, form: NormalForm) -> Relation:
        if self.wording is None:
            return Relation.SAME if self.redacted == form.digest.hex() else Relation.DIFFERENT
        own = self.wording.form
        return Relation.SAME if own.digest == form.digest else compare(form, own).relation


def _makes_another(seen: Observation) -> bool:
    """Whether the call makes something, and its result acknowledges that: other words make another thing."""
    step = seen.step
    return makes_something(step.tool_name, step.args) and is_acknowledgement((step.result or "").strip())


def _hands_over_another(seen: Observation) -> bool:
    """Whether the call hands over content, and its result only acknowledges that: other words may be another piece.

    A sentence may say in any language that nothing was found: beside a single text, only a word or a flag acknowledges.
    """
    result = seen.step.result or ""
    text = result.strip()
    if seen.outcome != SUCCESS or not result or result[_ACKNOWLEDGEMENT_CHARS:] or not is_acknowledgement(text):
        return False
    if is_lookup(seen.step.tool_name) or not carries_content(seen.step.args, seen.values):
        return False
    return len(seen.values) > 1 or text[:1] == "{" or len(text.split()) == 1


_ACKNOWLEDGEMENT_CHARS: Final = 128


def is_silent_command(seen: Observation) -> bool:
    """Whether a command printed nothing, and is none whose silence means that nothing was found."""
    if (seen.step.result or "").strip():
        return False
    commands = commands_in(seen.tool, seen.step.args)
    return bool(commands) and not _looks(commands)


def only_says_done(seen: Observation) -> bool:
    """Whether an action, or a command that is no look, returned nothing, or an acknowledgement: it shows no state."""
    if seen.only_says_done is None:
        seen.only_says_done = _only_says_done(seen)
    return seen.only_says_done


def _only_says_done(seen: Observation) -> bool:
    step, text = seen.step, (seen.step.result or "").strip()
    if step.result is None or seen.outcome not in (SUCCESS, EMPTY) or is_lookup(step.tool_name):
        return False
    if names_click(text, step.tool_name, step.args):
        return True
    commands = commands_in(seen.tool, step.args) if not text else ()
    if any(" && " in one for one in commands):
        return not _looks([one.rpartition("&&")[2] for one in commands])
    if is_handoff(step.tool_name) or carries_content(step.args, seen.values):
        return False
    if not text:
        return not _looks(commands)
    if is_acknowledgement(text) and (text[:1] == "{" or text.count(" ") < _WORDS):
        return True
    if not step.args and says_done(text):
        return True
    return restates(text, step.tool_name, step.args)


_WORDS: Final = 2
"""What is longer, and quotes nothing of the call, may be the name of a place: "Kitchen. An empty table."."""


def _looks(commands: Iterable[str]) -> bool:
    return any(is_lookup(one.split(maxsplit=1)[0]) and "<<" not in one for one in commands if one.strip())


def is_value(text: str) -> bool:
    """Whether a result is one word: a label or a figure, and so an answer."""
    words = text.split()
    return len(words) < 2 and width(text.strip()) < _MIN_REMARK_WIDTH


_MIN_REMARK_WIDTH: Final = 12


def _answer_of(seen: Observation) -> Answer:
    """The properties of the result that weigh the open pairs of its call."""
    found = seen.outcome not in (EMPTY, ERROR)
    tells = found and (seen.describes_state or is_value(seen.step.result or ""))
    return Answer(seen.outcome, is_silent_command(seen), seen.echoes, tells)


class Insanity(Detector):
    """Fires when at least three of the last ten steps were unproductive calls that mean the same.

    Unproductive: an error, an empty result, or one that was there before. "Means the same" is decided by the
    structured comparator (``core.similarity``), or by the agent's own words: equal thoughts announce equal intent.
    A pair that the comparator leaves open counts half, where short queries of one tool, which name the same numbers and
    identifiers, keep coming back with one and the same short result; a quarter where their capitalised words differ,
    and where commands that look for one file or text print nothing. A sentence model, where there is one, turns an open
    pair into a certain one. Other entities, negations and refinements never count.

    >>> from trajectory_guard.core.demonstration import fires
    >>> queries = ("flights from Berlin to Rome", "flights Berlin to Rome", "the flights from Berlin to Rome")
    >>> fires("same_meaning", (f"search(query={query}) -> [empty] " for query in queries))
    step 2: 3 times, 1.00, likely, OBSERVE

    Reference: original TrajectoryGuard plan (3 of the last 10); comparator measured in ``docs/detection.md``.
    """

    name: ClassVar[str] = "insanity"
    rules: ClassVar[tuple[str, ...]] = ("same_meaning", "reformulation")
    loop_type: ClassVar[str] = TYPE_II
    weight: ClassVar[float] = 1.5
    asked_at: ClassVar[int] = UNPRODUCTIVE
    advice: ClassVar[tuple[str, ...]] = (
        "Other words for the same question will not change the result.",
        "Look for something else: a broader term, a neighbouring topic, or a different tool or source.",
        "If you have all you can get, answer with it, or say what is missing and ask.",
    )
    recommendation: ClassVar[str] = (
        "Check whether the tool can find what the agent looks for, and say so in the tool's description."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"calls": _COUNT, "window": _WINDOW}
    __slots__ = ("recent", "redact", "settle")

    def __init__(self, *, redact: bool = False, settle: Settle | None = None) -> None:
        self.redact = redact
        self.settle = settle
        self.recent: tuple[_Attempt, ...] = ()

    @classmethod
    def from_settings(cls, settings: DetectorSettings) -> Detector:
        """With the sentence model, if there is one."""
        return cls(redact=settings.redact, settle=settings.settle)

    def update(self, seen: Observation) -> DetectionResult | None:
        """Compare an unproductive call with those before it."""
        if seen.progress or not seen.call or not seen.result:
            return None
        wording = _Wording(seen.step.tool_name, seen.step.args)
        oldest = seen.index - _WINDOW * seen.variation_pace
        recent = tuple([attempt for attempt in self.recent[-_KEPT:] if attempt.at > oldest])
        call, outcome = seen.call.hex(), self._outcome(seen)
        result = None
        if self.redact or [one for one in recent if one.outcome == outcome and one.call != call]:
            if wording.says_nothing:
                return None
            result = self._evaluate(seen, recent, wording.form, outcome)
        redacted = wording.form.digest.hex() if self.redact else ""
        attempt = _Attempt(
            seen.index, seen.batch, call, outcome, seen.thought_key, redacted, None if self.redact else wording
        )
        self.recent = (*recent, attempt)
        return result

    def _outcome(self, seen: Observation) -> str:
        if seen.outcome == EMPTY:
            return EMPTY  # an echo of the request around nothing is nothing
        if seen.signature:
            return text_digest(seen.signature)
        return (seen.form or seen.result).hex()

    def _evaluate(
        self, seen: Observation, recent: tuple[_Attempt, ...], form: NormalForm, outcome: str
    ) -> DetectionResult | None:
        call, digest, thought = seen.call.hex(), form.digest.hex(), seen.thought_key
        worded = not (is_communication(seen.step.tool_name) or _makes_another(seen))  # other words, another message
        same, openly, equal, reworded = [seen.index], [], True, False
        items = _is_material(form)
        doubt, related = 0.0, seen.outcome in (EMPTY, ERROR) and not items
        listed = seen.alike_table or seen.advances >= ADVANCES  # the next cell of a table, or the next page
        answer = _answer_of(seen) if worded and not listed else None
        for attempt in recent:
            if attempt.outcome != outcome or attempt.batch == seen.batch:
                continue  # the calls of one batch were all requested before any of them was answered
            if attempt.call == call:
                same.append(attempt.at)
                continue
            if attempt.wording is not None and attempt.wording.says_nothing:
                continue
            relation = attempt.relation_to(form) if worded or attempt.digest == digest else Relation.DIFFERENT
            if relation is Relation.SAME:
                same.append(attempt.at)
                reworded, equal = True, equal and attempt.digest == digest
                continue
            if listed:
                continue
            before = attempt.form
            weight = 0.0
            if answer is not None and before is not None and attempt.at >= seen.last_progress:
                weight = doubt_of(form, before, answer, relation is Relation.MAYBE)
            if worded and thought and thought == attempt.thought and weight == 0.0 and same_names(form, before):
                weight, related = OPEN, True
            if weight > 0.0 and self._settled(form, before):
                same.append(attempt.at)
                reworded, equal = True, False
            elif weight > 0.0:
                openly.append(attempt.at)
                doubt += weight
                akin = relation is Relation.MAYBE or overlap(form, before)
                related |= akin and not (items and before and not share_content(form.text, before.text))
        if not reworded and not (openly and related):
            return None  # equal calls only: type I; or texts that have nothing in common: a batch
        certainty = Certainty.CERTAIN if equal and not openly else Certainty.LIKELY
        certainty = Certainty.ACKNOWLEDGED if openly and seen.alike_list else certainty  # it may be a list of look-ups
        return self._result(seen, sorted(same), openly, len(same) + doubt, certainty, (*recent, form))

    def _settled(self, form: NormalForm, before: NormalForm | None) -> bool:
        """Whether the sentence model, if there is one, says that an open pair means the same. It is never overruled."""
        if self.settle is None or before is None:
            return False
        return bool(self.settle(form.text, before.text))

    def _result(
        self, seen: Observation, same: list[int], openly: list[int], weight: float, certainty: Certainty,
        forms: tuple[Any, ...],
    ) -> DetectionResult | None:  # fmt: skip
        steps = tuple(sorted(same + openly))
        needed = _COUNT * seen.variation_pace
        if openly and seen.alike_list and len(steps) > _COUNT:
            needed *= 2  # ever different things are asked for, as in a list of look-ups
        if weight < needed - 1 or len(steps) < needed:
            return None
        return self.found(
            seen, 1.0 if weight >= needed - 0.5 else 0.5,
            "same_meaning" if len(same) >= needed else "reformulation", certainty, count=len(steps),
            first_step=steps[0], steps=steps,
            attempts=() if self.redact or seen.step.shown_args is not None else self._attempts(forms, steps),
            varied=certainty is not Certainty.CERTAIN, at_least=self._may_be_more(seen, steps, forms[:-1]),
            only_nudge=_hands_over_another(seen),
        )  # fmt: skip

    def _may_be_more(self, seen: Observation, steps: tuple[int, ...], recent: tuple[_Attempt, ...]) -> bool:
        """Whether there may be further attempts: the first of them, if its result was new; one that was not recognised;
        one before the window.
        """
        if seen.outcome not in (EMPTY, ERROR):
            return True
        oldest, outcomes = (
            seen.index - _WINDOW * seen.variation_pace,
            {one.outcome for one in recent if one.at in steps},
        )
        others = [one for one in recent if one.at not in steps and one.outcome in outcomes]
        return 0 <= oldest >= steps[0] - 1 or bool(others)

    def _attempts(self, forms: tuple[Any, ...], steps: tuple[int, ...]) -> tuple[str, ...]:
        """The newest wordings, shortened; each once."""
        *earlier, current = forms
        texts = [attempt.form.text for attempt in earlier if attempt.at in steps and attempt.form is not None]
        lines = [" ".join(text.split()) for text in (*texts, current.text)]
        unique = list(dict.fromkeys(line for line in lines if line))
        return tuple(
            line if len(line) <= _MAX_ATTEMPT_CHARS else line[: _MAX_ATTEMPT_CHARS - 1] + "…"
            for line in unique[-_MAX_ATTEMPTS:]
        )

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of wordings, examples, and the result."""
        number = f"at least attempt number {found.count}" if found.at_least else f"attempt number {found.count}"
        text = f"{call} is {number} at the same thing and, like the others, returned {answer}."
        if len(found.attempts) > 1:
            text += " Tried so far: " + "; ".join(f'"{line}"' for line in found.attempts) + "."
        return text

    def dump(self) -> Any:
        """Recent unproductive calls in normal form."""
        return [
            [*attempt[:6], attempt.wording and attempt.wording.form.to_plain()]
            for attempt in self.recent
            if attempt.wording is None or not attempt.wording.says_nothing
        ] or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.recent = tuple(
            _Attempt._make([*attempt, _Wording.of_form(NormalForm.from_plain(plain)) if plain is not None else None])
            for *attempt, plain in data
        )
