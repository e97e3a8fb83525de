"""Type VI: the same model message again, or one claim to be done after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trajectory_guard.core.content.onward import invites_next
from trajectory_guard.core.detectors.base import FETCHED, SPOKEN, TYPE_VI, DetectionResult, Detector, fetches
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import ERROR, SUCCESS, Certainty
from trajectory_guard.core.tools import claimed_item, is_communication, is_finisher

_MIN_THOUGHT_CHARS: Final = 12
_COUNT: Final = 3
_COUNT_HIDDEN: Final = 9
_COUNT_VARIED: Final = 5
_WINDOW: Final = 10
_CONFIDENCE: Final = 0.8
"""Too little for a nudge at first, and enough for one, and for a stop, if it fires at every second step only."""

_LETTERS: Final = 2
"""Characters of an answer that chooses among few."""
_CHOICES: Final = 3
"""So many different ones are answers to several questions."""


class Monologue(Detector):
    """Fires when the model says the same thing for the third time, or declares itself done three times in one run.

    A claim to be done is a call of a tool whose name says so (finish, submit, final_answer, task_done and the like);
    had it been accepted, the run would have ended. A call that names what is done (the number of a task, an order) is
    one of many: only its repeats count. One whose answer asks for the next question is no claim. A claim that is
    answered with something new (a grader's verdict) is an attempt and does not count. Where arguments or results are
    not recorded, each claim may be that of another task: nine of them lead to a nudge, and none to a stop. Repeated
    text counts only between steps that brought nothing new, and not while something is still under way: a waiting agent
    repeats its message.

    >>> from trajectory_guard.core.demonstration import fires
    >>> fires("claims_done", (f"submit(answer={number}) -> noted" for number in ("four", "five", "six")))
    step 2: 3 times, 1.00, likely, NUDGE

    Reference: repeated completion claims are the most common loop of strong 2025 models (``docs/detection.md``).
    """

    name: ClassVar[str] = "monologue"
    rules: ClassVar[tuple[str, ...]] = ("claims_done", "same_message")
    loop_type: ClassVar[str] = TYPE_VI
    weight: ClassVar[float] = 2.0
    asked_at: ClassVar[int] = SPOKEN | FETCHED
    advice: ClassVar[tuple[str, ...]] = (
        "Saying it again does not move the task.",
        "Find out why the last attempt to finish was not accepted, and change that.",
        "If nothing is left to do, give the final answer in plain text now.",
    )
    recommendation: ClassVar[str] = "Check what ends a run: the agent's claim to be done is not accepted or not heard."
    thresholds: ClassVar[Mapping[str, int]] = {
        "claims": _COUNT,
        "claims_hidden": _COUNT_HIDDEN,
        "messages": _COUNT,
        "messages_varied": _COUNT_VARIED,
    }
    __slots__ = ("choices", "claimed", "claims", "fetched", "items", "thoughts")

    def __init__(self) -> None:
        self.thoughts: tuple[tuple[int, str], ...] = ()  # index and digest of recent messages
        self.claims: tuple[int, ...] = ()  # indices of the newest claims to be done
        self.claimed = 0  # how many there were since one was answered with something new
        self.fetched = False  # a call that was made before has brought something new since the newest claim
        self.items: tuple[str, ...] = ()  # digests of what the newest claims named
        self.choices: tuple[int, ...] = ()  # checksums of the letters that were chosen

    def update(self, seen: Observation) -> DetectionResult | None:
        """Claims first: a claim usually comes with a message."""
        return self._claim(seen) or self._message(seen)

    def _claim(self, seen: Observation) -> DetectionResult | None:
        if not is_finisher(seen.name):
            self.fetched = self.fetched or fetches(seen)
            return None
        if seen.outcome == ERROR:
            return None
        if invites_next(seen.step.result or ""):
            self.claimed, self.claims = 0, ()
            return None  # it was the answer to one question of many
        item = claimed_item(seen.step.args)
        if item and item not in self.items:
            self.items = (*self.items[1 - _WINDOW :], item)
            return None  # one more task of many
        if seen.result and self._is_choice(seen.values):
            self.claimed, self.claims = 0, ()
            return None  # the answer to one question of many
        if self.fetched:
            self.fetched = False
            return None  # the claim is that of the piece of work that was fetched
        hidden = not (seen.call and seen.result)
        fresh = seen.progress and not seen.echo
        if hidden and self.claims and (self.claims[-1] < seen.index - 1 or self.claims[-1] < seen.segment):
            fresh = True  # the work between two claims may have been that of another task
        self.claimed = 1 if fresh else self.claimed + 1
        self.claims = (seen.index,) if fresh else (*self.claims[-_WINDOW:], seen.index)
        if self.claimed < (_COUNT_HIDDEN if hidden else _COUNT):
            return None
        return self.found(
            seen, 1.0, "claims_done", Certainty.LIKELY, count=self.claimed, first_step=self.claims[0],
            steps=self.claims, varied=True, only_nudge=hidden,
        )  # fmt: skip

    def _is_choice(self, values: tuple[str, ...]) -> bool:
        """Whether a claim chooses a letter, as at least three different ones have been chosen."""
        letters = "".join(values).casefold()
        if not (letters.isalpha() and len(letters) <= _LETTERS):
            return False
        if len(self.choices) < _CHOICES and (choice := checksum(letters)) not in self.choices:
            self.choices = (*self.choices, choice)
        return len(self.choices) == _CHOICES

    def _message(self, seen: Observation) -> DetectionResult | None:
        text = seen.step.thought
        if not text or len(text) < _MIN_THOUGHT_CHARS:
            return None
        key = seen.thought_key
        if seen.same_batch and self.thoughts and self.thoughts[-1][1] == key:
            self.thoughts = self.thoughts[:-1]  # parallel calls come with one message
        self.thoughts = (*self.thoughts[1 - _WINDOW :], (seen.index, key))
        steps = tuple(at for at, other in self.thoughts if other == key and at >= seen.last_progress)
        varied = seen.repeats < 2 and not _says_it(seen, text)
        if varied and seen.outcome == SUCCESS and seen.step.result is not None and not seen.describes_state:
            return None  # a list is worked off, and each item commented alike
        if len(steps) < (_COUNT_VARIED if varied else _COUNT) or seen.progress or seen.certainty is Certainty.WAITING:
            return None
        certainty = Certainty.ACKNOWLEDGED if varied else Certainty.LIKELY
        return self.found(
            seen, _CONFIDENCE, "same_message", certainty, count=len(steps), first_step=steps[0], steps=steps,
            varied=True, only_nudge=varied and not seen.result,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the repeated message and the count."""
        if found.rule == "claims_done":
            return f"The work was declared done {found.count} times, and the run goes on; {call} returned {answer}."
        return f"{found.count} of the last messages say the same, and nothing new came back."

    def dump(self) -> Any:
        """Recent messages and claims."""
        if not (self.thoughts or self.claims or self.items or self.fetched or self.choices):
            return None
        return [self.thoughts, self.claims, self.claimed, self.items, self.fetched, self.choices]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.thoughts, self.claims = tuple((at, key) for at, key in data[0]), tuple(data[1])
        self.claimed, self.items, self.fetched, self.choices = data[2], tuple(data[3]), data[4], tuple(data[5])


def _says_it(seen: Observation, thought: str) -> bool:
    """Whether the call says what the model says: its tool is how the model speaks."""
    if not is_communication(seen.step.tool_name):
        return False
    words = thought.casefold().split()
    return any(value.casefold().split() == words for value in seen.values if len(value) <= 2 * len(thought))
