"""Type V: one class of error through changing calls."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.content.envelope import failed_status
from trajectory_guard.core.content.result_text import WORD
from trajectory_guard.core.detectors.base import FAILED, PROGRESS, TYPE_V, WORKED, DetectionResult, Detector
from trajectory_guard.core.detectors.entry_lists import (
    EntryList,
    Lists,
    Words,
    address_in,
    commands_of,
    entry_of,
    list_of,
    other_targets,
    runs_program,
    tells_of,
    with_failure,
    with_success,
    words_of,
)
from trajectory_guard.core.failures import UNSTATED, line_of
from trajectory_guard.core.fingerprints import checksum, text_digest
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import DENIED, ERROR, SUCCESS, Certainty
from trajectory_guard.core.text import both_ends, text_of
from trajectory_guard.core.tools import is_thinking

_COUNT: Final = 3
_WINDOW: Final = 10
_LISTED: Final = 6
_OF_A_TOOL_THAT_WORKS: Final = 9
_VARIED_RETRIES: Final = 2.4  # without a pause the fifth try is one too many
_TRIES: Final = 2  # of one entry of a list
_KILLED: Final = 4  # as with time-outs: the fifth is one too many
_MANY_WAYS: Final = 3
_NAME_WORDS: Final = 3
_HIDDEN: Final = 16
_HIDDEN_WINDOW: Final = 3 * _HIDDEN
_MAX_TOOLS: Final = 4
_KEPT: Final = 16
_MAX_WORDS: Final = 32
_MAX_BLAMED: Final = 4
_ONE_CAUSE: Final = 6
_KEPT_CAUSES: Final = 12
_MIN_NAME_CHARS: Final = 3
_MAX_NAME_CHARS: Final = 80
_MAX_LINE_CHARS: Final = 160
_MAX_COMMAND_CHARS: Final = 400
_SEARCHED_CHARS: Final = 4_096  # searching a megabyte takes a tenth of a second


class _Failure(NamedTuple):
    """A failed step whose text or class is known: index, digests of its error class, tool and call.

    Fields:
        named: the error names what was asked for.
        passing: it is of a kind that passes, and says nothing of the next call.
        asks_anew: it asked for something that was not asked for before.
        names: checksums of the parts of a shell command that the last line of the error names.
        asked: checksums of the words of the request; blamed: those of them that the error names. Of the newest only.
        causes: checksums of the pairs of words that follow each other in the error, the words of the request aside.
        line: checksum of the error, the words of the request included: without them it differs with the request.
        batch: ordinal of its batch.
        request: as in ``Observation``.
        entry: digest of the list that the call may be an entry of.
        address: checksum of the address that it names; 0 without one.
        moves_on: a command that is the one before, on another target.
        finds: likewise, and its text is no complaint but what it found there.
    """

    at: int
    key: str
    tool: str
    call: str
    named: bool
    passing: bool = False
    asks_anew: bool = False
    names: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    blamed: tuple[int, ...] = ()
    causes: tuple[int, ...] = ()
    line: int = 0
    batch: int = 0
    request: int = 0
    entry: str = ""
    address: int = 0
    moves_on: bool = False
    finds: bool = False

    def is_like(self, other: _Failure) -> bool:
        """Whether two failures have one error class, with the words of the request or without them."""
        return self.key == other.key or (self.tool == other.tool and self.line == other.line)

    def uncovers(self, before: _Failure) -> bool:
        """Whether the part that was at fault before is gone, and another part, which was there already, is now."""
        gone, new = set(before.blamed) - set(self.asked), set(self.blamed) - set(before.blamed)
        return bool(gone) and bool(new) and new <= set(before.asked)


class _Streak(NamedTuple):
    """Model turns in a row with nothing but failures that all show one line, whatever was called.

    Fields:
        line: as in ``_Failure``; 0 where neither text nor class is known.
        tool: digest of the newest tool; several: there were others.
        batch: ordinal of the newest batch.
        steps: index of the newest step of each turn, of the sixteen that a finding names, and one more.
    """

    line: int = 0
    tool: str = ""
    several: bool = False
    batch: int = -1
    steps: tuple[int, ...] = ()

    def with_step(self, seen: Observation, tool: str, line: int) -> _Streak:
        """The streak with a failed step; a new one if it failed otherwise, or if another step came in between."""
        if line != self.line or self.steps[-1:] != (seen.index - 1,):
            return _Streak(line, tool, several=False, batch=seen.batch, steps=(seen.index,))
        steps = self.steps[:-1] if seen.batch == self.batch else self.steps[-_KEPT:]
        return _Streak(line, tool, self.several or tool != self.tool, seen.batch, (*steps, seen.index))


class _FailingTool(NamedTuple):
    """A tool that has failed in one way ever since it last succeeded, where nothing shows what it was asked for.

    Fields:
        tool: its digest; error: symbol of what came back, empty if nothing was shown.
        batch: ordinal of the newest batch in which it failed.
        steps: index of its newest failure in each batch, of the sixteen newest batches.
    """

    tool: str
    error: str
    batch: int
    steps: tuple[int, ...]


class ErrorStreak(Detector):
    """Fires when at least three of the last ten steps failed with the same masked error.

    Names, numbers and paths in the message are ignored, the arguments too: an agent that drifts from one variant to the
    next against one wall is caught. Different errors are not: they are information, and so is a validation error that
    asks for another property of the call than the one before. Six tries are allowed where every call asks for something
    that was not asked for before, as in a list of look-ups (commands: where every error names another missing part),
    where changing calls are refused, and where no arguments are recorded; nine there, if the tool has worked in this
    run. A list is left alone up to the 30th failure in a row if the tool has found something in this run, or fails in
    several ways, and as long as the share of its entries that fail explains so many in a row. Progress of the same tool
    ends the streak, and so does an error that names another part of the call than the one before, which is gone by
    then: one fault after the other is being mended. A command that is run after each edit and fails otherwise is
    work, but not at the sixth time, if nothing but figures differs, and each goes up and down. Errors that pass by
    themselves (time-outs, rate limits, 5xx) are waiting; without a pause, and where one thing is tried in ever new
    ways, the fifth try is one too many. So is the fifth command that was killed by a time limit. Six model turns in
    which all calls failed with one line count whatever tools were called, and so do six whose failures show neither
    text nor class. So does one tool that fails like that, or with one text where no arguments are recorded, in
    sixteen turns of at most 48 steps, and never succeeds in between; what succeeds in between may be work, so this
    leads to nudges only.

    >>> from trajectory_guard.core.demonstration import fires
    >>> names = ("user", "users", "user_id", "id")
    >>> fires("same_error", (f"run(column={name}) -> [error] KeyError: '{name}'" for name in names))
    step 2: 3 times, 0.75, acknowledged, OBSERVE
    step 3: 4 times, 1.00, acknowledged, NUDGE

    Reference: masked error class, 3 of 10, had no false alarm on 4,172 recorded steps (``docs/detection.md``).
    """

    name: ClassVar[str] = "error_streak"
    rules: ClassVar[tuple[str, ...]] = ("same_error", "transient_error")
    loop_type: ClassVar[str] = TYPE_V
    weight: ClassVar[float] = 1.25
    asked_at: ClassVar[int] = FAILED | PROGRESS | WORKED
    advice: ClassVar[tuple[str, ...]] = (
        "Read the error: it is the same however you call. Do what it asks for: a format, a right, a missing part.",
        "If it does not say, look up how the tool wants to be called (schema, help, an example) before the next try.",
        "If it cannot work, use another tool or report the error.",
    )
    recommendation: ClassVar[str] = (
        "Check the tool's schema and error text: the agent cannot learn from it how to succeed."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"failures": _COUNT, "listed": _LISTED, "hidden": _HIDDEN}
    __slots__ = ("acted_at", "fails", "fruitless", "lists", "recent", "streak", "words")

    def __init__(self) -> None:
        self.acted_at = -1  # the newest step that neither failed nor was a thought
        self.recent: tuple[_Failure, ...] = ()
        self.fruitless: tuple[_Failure, ...] = ()  # commands that failed since one brought something new
        self.streak = _Streak()
        self.lists: Lists = ()
        self.fails: tuple[_FailingTool, ...] = ()  # the tool that failed last at the end
        self.words: Words = ()  # of the newest command that failed

    def update(self, seen: Observation) -> DetectionResult | None:
        """Count failures of one class among the last steps."""
        if seen.signature is None:
            again = seen.index - 1 in seen.repeated_at  # the step before it once more, which is no work
            if self.recent and not again and not is_thinking(seen.step.tool_name):
                self.acted_at = seen.index
            if self.lists and seen.made < 2 and seen.outcome == SUCCESS:
                self._note_entry(seen)
            if self.fails:
                tool = text_digest(seen.tool)
                self.fails = tuple(one for one in self.fails if one.tool != tool)
            if (seen.progress or seen.may_be_new) and (self.recent or self.fruitless):
                self._forget_what_works(seen)
            return None
        if seen.signature == UNSTATED:
            return self._of_unknown_cause(seen)
        if seen.result_changed and not self._knows(seen):
            tool = text_digest(seen.tool)
            # the same command fails otherwise than before, as tests do that are being mended
            self.recent = tuple(one for one in self.recent if one.tool != tool)
            if seen.failed_alike_at:
                return self._found_at(seen, 1.0, seen.failed_alike_at, Certainty.ACKNOWLEDGED)
            return None
        program = runs_program(seen)
        entry = entry_of(seen, program=program)
        if entry and seen.made < 2:
            self.lists = with_failure(self.lists, entry)
        known = list_of(self.lists, entry)
        failure, oldest = self._failure(seen, entry, program=program), seen.index - _WINDOW * seen.variation_pace
        recent = self.recent[1 - _KEPT :]
        last = recent[-1] if recent else None
        if last is not None and last.key == failure.key and failure.uncovers(last):
            recent = tuple([one for one in recent if one.key != failure.key])  # one fault after the other is mended
        self.recent = (*[_without_words(one) if one.asked else one for one in recent if one.at > oldest], failure)
        guess = last is not None and _guesses(seen.step.args, set(last.asked))
        if failure.causes:
            self._note_fruitless(failure)
        found = None
        if known is None or seen.made > _TRIES or not known.is_explained():
            alike = [one for one in self.recent if one.is_like(failure)]
            found = self._evaluate(seen, alike, known, guess=guess, program=program)
            if found is None and failure.causes and not failure.finds:
                found = self._of_one_cause(seen, failure)
        self.streak = self.streak.with_step(seen, failure.tool, failure.line)
        unseen = not seen.call and seen.certainty is not Certainty.WAITING
        failing = self._of_one_tool(seen) if unseen else None
        return found or (self._of_every_tool(seen) if self.streak.several else None) or failing

    def _knows(self, seen: Observation) -> bool:
        """Whether a step failed as this one does, and nothing was done since but to fail and to think.

        Where this very call failed in these words the last time, the figures in them may have got better.
        """
        key, call = _key(seen), seen.call.hex()
        last = [one.key for one in self.recent if one.call == call][-1:]
        return last != [key] and any(one.key == key and one.at > self.acted_at for one in self.recent)

    def _note_entry(self, seen: Observation) -> None:
        """A new call succeeded: entries of the same list that failed before it are no series of tries."""
        known = list_of(self.lists, entry_of(seen, program=runs_program(seen)))
        if known is not None:
            self.lists = with_success(self.lists, known)
            self.recent = tuple([one for one in self.recent if one.entry != known.name])
            self.fruitless = tuple([one for one in self.fruitless if one.entry != known.name])

    def _forget_what_works(self, seen: Observation) -> None:
        """A call brought something new: of its tool only failures of other lists, guesses and waits still count."""
        self.fruitless = ()
        tool, listed = text_digest(seen.tool), not runs_program(seen)
        self.recent = tuple(one for one in self.recent if one.tool != tool or not (one.named or listed or one.passing))

    def _note_fruitless(self, failure: _Failure) -> None:
        """Add a command that failed to those that have since one brought something new."""
        kept = [one for one in self.fruitless if one.tool == failure.tool][1 - _KEPT_CAUSES :]
        if kept and failure.uncovers(kept[-1]):
            kept = []
        self.fruitless = (*[_without_words(one) if one.asked else one for one in kept], failure)

    def _of_one_cause(self, seen: Observation, failure: _Failure) -> DetectionResult | None:
        """Ever new commands that fail in other words for one reason, which is a pair of words that all errors share."""
        needed = _ONE_CAUSE + (seen.certainty is Certainty.WAITING) * _ONE_CAUSE // 2
        if len(self.fruitless) < needed:
            return None
        shared = ([one.at for one in self.fruitless if cause in one.causes] for cause in failure.causes)
        steps = max(shared, key=len)
        if len(steps) < needed or 4 * len(steps) < 3 * (seen.index - steps[0] + 1):
            return None
        return self._found_at(seen, 1.0, steps, Certainty.LIKELY if seen.call else Certainty.ACKNOWLEDGED)

    def _of_unknown_cause(self, seen: Observation) -> DetectionResult | None:
        """Failures that show neither text nor class: only where nothing but failures came for six model turns."""
        self.streak = self.streak.with_step(seen, text_digest(seen.tool), 0)
        found = self._of_every_tool(seen)
        failing = self._of_one_tool(seen)
        if found is not None:
            return found._replace(alike=0, at_least=len(self.streak.steps) > _KEPT)
        return failing

    def _of_one_tool(self, seen: Observation) -> DetectionResult | None:
        """A tool that fails again and again, whatever succeeds in between, where nothing shows what was asked for."""
        tool, error = text_digest(seen.tool), seen.result.hex()
        known = next((one for one in self.fails if one.tool == tool), _FailingTool(tool, error, -1, ()))
        if error and known.error and error != known.error:
            known = _FailingTool(tool, error, -1, ())
        steps = known.steps[:-1] if seen.batch == known.batch else known.steps[1 - _HIDDEN :]
        steps = (*steps, seen.index)
        others = tuple([one for one in self.fails if one.tool != tool])
        self.fails = (*others[1 - _MAX_TOOLS :], _FailingTool(tool, error or known.error, seen.batch, steps))
        if seen.same_batch or len(steps) < _HIDDEN or steps[0] <= seen.index - _HIDDEN_WINDOW:
            return None
        found = self._found_at(seen, 1.0, steps, Certainty.ACKNOWLEDGED)
        return found._replace(alike=0, only_nudge=True) if found is not None else None

    def _of_every_tool(self, seen: Observation) -> DetectionResult | None:
        """Nothing but one failure for six model turns: a budget is used up, a session has ended, a host is gone."""
        if seen.same_batch:
            return None
        waits = seen.certainty is Certainty.WAITING
        needed = _COUNT * seen.waiting_pace if waits else _LISTED * seen.variation_pace
        steps = self.streak.steps
        if len(steps) < needed:
            return None
        found = self._found_at(seen, 1.0, steps[-_KEPT:], Certainty.ACKNOWLEDGED)
        if found is not None and self.streak.several:
            return found._replace(only_nudge=False)  # no list is read with several tools that all fail
        return found

    def _failure(self, seen: Observation, entry: str, *, program: bool) -> _Failure:
        text = both_ends(seen.step.result or "", _SEARCHED_CHARS)
        key = _key(seen)
        passing = seen.certainty is Certainty.WAITING
        named = not seen.killed and _names_argument(seen, text)
        asks_anew = seen.asks_anew and seen.request not in [one.request for one in self.recent if one.key == key]
        names: tuple[int, ...] = ()
        last = _last_line(text)
        if program:
            names = _named_parts(seen, last)
            asks_anew = not set(names) <= {name for one in self.recent if one.key == key for name in one.names}
        request = "\n".join(seen.values)[:_SEARCHED_CHARS]
        words, address = dict.fromkeys(WORD.findall(request)), address_in(request)
        asked = {word: checksum(word) for word in islice(words, _MAX_WORDS)}
        line = line_of(seen)
        command = " ".join(map(text_of, commands_of(seen)))[:_MAX_COMMAND_CHARS] if program else ""
        words_now = words_of(command)
        targets, self.words = other_targets(command, words_now, self.words), words_now
        blamed = tuple(asked[word] for word in dict.fromkeys(WORD.findall(last)) if word in asked)
        return _Failure(
            seen.index, key, text_digest(seen.tool), seen.call.hex(), named, passing, asks_anew, names,
            tuple(asked.values()), blamed[:_MAX_BLAMED], _causes(seen, asked, line) if program else (),
            checksum(line), seen.batch, seen.request, entry,
            checksum(address) if address else 0, bool(targets), bool(targets) and tells_of(text, targets),
        )  # fmt: skip

    def _evaluate(
        self, seen: Observation, alike: list[_Failure], known: EntryList | None, *, guess: bool, program: bool
    ) -> DetectionResult | None:
        # the calls of one batch were all requested before any of them failed
        waits = seen.certainty is Certainty.WAITING
        hidden = not seen.call and not waits  # each call may have asked for another thing
        streak = [one for one in alike if one.batch != seen.batch or one is alike[-1]]
        unlike = len({one.call for one in streak}) == len(streak)
        listed = unlike and 4 * len([one for one in streak[1:] if not one.asks_anew]) < len(streak)
        may_fail = known is not None and not known.fails_throughout()
        if listed and not program and may_fail and (seen.has_found or self._fails_in_many_ways(streak[-1])):
            return None  # the tool tells one entry from another: that this one does not exist is what it found out
        entries = listed or (unlike and guess and not program)
        finds = unlike and all(one.finds for one in streak[1:])
        if waits and unlike:
            # each entry of a list is tried for the first time; other words for one thing are tries of the same
            listed = listed or all(one.moves_on for one in streak[1:])
            needed = _COUNT * seen.waiting_pace if listed else _VARIED_RETRIES * seen.pace
        elif listed or finds or (unlike and streak[-1].named and program):
            needed = _LISTED * seen.variation_pace
        else:
            needed = (_KILLED if seen.killed else _COUNT) * seen.variation_pace
        if hidden:
            needed = (_OF_A_TOOL_THAT_WORKS if seen.has_found else _LISTED) * seen.variation_pace
        if len(streak) < needed:
            return None
        # the entries of a list may well all fail for one reason, and so may guesses at a name or a code
        worked = known is not None and known.worked > 0
        addresses = unlike and streak[-1].address != 0 and len({one.address for one in streak}) == len(streak)
        doubtful = hidden or (entries and not seen.counts_up) or worked or addresses
        certainty = Certainty.ACKNOWLEDGED if doubtful else Certainty.LIKELY
        found = self._found_at(seen, 1.0 if len(streak) > needed else 0.75, [one.at for one in alike], certainty)
        if found is None:
            return None
        # the host was reached, and says no to each of the things it was asked
        answers = listed and failed_status(seen.step.result or "") > 0
        may_fail = may_fail or (finds and known is None)
        return found._replace(only_nudge=True) if answers or (may_fail and (finds or addresses)) else found

    def _fails_in_many_ways(self, failure: _Failure) -> bool:
        return len({one.key for one in self.recent if one.tool == failure.tool}) >= _MANY_WAYS

    def _found_at(
        self, seen: Observation, confidence: float, steps: Sequence[int], certainty: Certainty = Certainty.LIKELY
    ) -> DetectionResult | None:
        rule = "transient_error" if seen.certainty is Certainty.WAITING else "same_error"
        calls = seen.index - steps[0] + 1
        # a text is read as an error only once it has come back; what lies before the window is forgotten
        more = calls == len(steps) and (seen.outcome != ERROR or calls >= _WINDOW * seen.variation_pace)
        # a tool that has found something works: a call that may ask for another entry of a list may rightly fail
        is_decision = seen.outcome == DENIED and seen.made < 2  # on a call that nobody has decided on before
        may_be_listed = seen.has_found and (not seen.call or (seen.signature == UNSTATED and seen.made < 2))
        return self.found(
            seen, confidence, rule, certainty, count=len(steps), first_step=steps[0], steps=tuple(steps),
            varied=True, calls=calls, alike=len(steps), at_least=more, only_nudge=may_be_listed or is_decision,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of failed calls and their error."""
        calls = found.calls or found.count
        least = "At least the" if found.at_least else "The"
        failed = f"{least} last {calls} calls" if found.count >= calls else f"{found.count} of the last {calls} calls"
        alike = " in the same way" if found.alike else ""
        return f"{failed} failed{alike}; {call} returned {answer}."

    def dump(self) -> Any:
        """Recent failures."""
        if not (self.recent or self.fruitless or self.streak.steps or self.fails or self.lists):
            return None
        tables = (self.recent, self.fruitless, self.fails, self.lists)
        failures = [[list(one) for one in kept] for kept in tables]
        return [self.acted_at, *failures, self.words, list(self.streak)]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.acted_at, recent, fruitless, fails, lists, words, (*streak, steps) = data
        self.words = tuple([(option, value, is_target) for option, value, is_target in words])
        self.lists = tuple(map(EntryList._make, lists))
        self.recent, self.fruitless = tuple(map(_restored, recent)), tuple(map(_restored, fruitless))
        self.fails = tuple([_FailingTool(tool, error, batch, tuple(at)) for tool, error, batch, at in fails])
        self.streak = _Streak._make([*streak, tuple(steps)])


def _without_words(failure: _Failure) -> _Failure:
    """A failure that is no longer the newest: only that one's words are compared."""
    return failure._replace(asked=(), blamed=())


def _restored(values: Sequence[Any]) -> _Failure:
    """A failure as JSON gives it back: its tuples are lists there."""
    return _Failure._make(tuple(value) if isinstance(value, list) else value for value in values)


def _causes(seen: Observation, asked: Container[str], line: str) -> tuple[int, ...]:
    """Checksums of pairs of words of an error that may be its cause: neither what was asked nor a mask in its line."""
    masks = _MASK.findall(line)
    words = [word for word in WORD.findall((seen.signature or "").casefold())[:_MAX_WORDS] if word not in asked]
    pairs = [(one, two) for one, two in pairwise(words) if one not in masks and two not in masks]
    return tuple(dict.fromkeys(checksum(f"{one} {two}") for one, two in pairs if one.isalpha() and two.isalpha()))


_MASK: Final = re.compile(r"<([a-z]{1,8})>")


def _guesses(args: Any, asked: Container[int]) -> bool:
    """Whether a call is nothing but short names, codes and numbers, and another name or code than before is tried.

    Parameters:
        asked: checksums of the words of the call before.
    """
    if not isinstance(args, dict) or not all(isinstance(value, (str, int, float)) for value in args.values()):
        return False
    texts = [value for value in args.values() if isinstance(value, str)]
    if not all(map(_GUESS.match, texts)):
        return False
    words = WORD.findall("\n".join(texts))
    return any(not word.isdecimal() and checksum(word) not in asked for word in words)


_GUESS_CHARS: Final = 40
_GUESS: Final = re.compile(rf"\A[^\s/\\]{{0,{_GUESS_CHARS}}}\Z")


def _key(seen: Observation) -> str:
    """Tool and error class, whatever the endpoint: a host that is gone fails at all."""
    return text_digest(f"{seen.name}\0{seen.signature}")


def _named_parts(seen: Observation, line: str) -> tuple[int, ...]:
    """Checksums of the parts of a shell command that a line of an error names, at most four."""
    commands = map(text_of, commands_of(seen))
    asked = set(WORD.findall("\n".join(commands)[:_SEARCHED_CHARS]))
    named = [word for word in dict.fromkeys(WORD.findall(line)) if word in asked and not word.isdigit()]
    return tuple(checksum(word) for word in named[:4])


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2][:_MAX_LINE_CHARS]


def _names_argument(seen: Observation, text: str) -> bool:
    """Whether an error message quotes what was asked for, or a person refused it."""
    return seen.outcome == "denied" or any(
        _MIN_NAME_CHARS <= len(value) <= _MAX_NAME_CHARS and len(value.split()) <= _NAME_WORDS and value in text
        for value in seen.values
    )
