"""Type IV: calls in a cycle, A B A B, or in any order, without progress; and agents that hand work over in a circle.

The sequence of the visits of agents is a trajectory of its own, in which each visit is one step. Each agent instance is
evaluated in its own run, where nothing repeats if every call is a new instance. The loop then consists of the work
handed over: writer, critic, writer, critic, all with the same calls and results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.content.outcome import names_error
from trajectory_guard.core.content.result_text import is_acknowledgement
from trajectory_guard.core.detectors.base import ALWAYS, TYPE_IV, DetectionResult, Detector
from trajectory_guard.core.detectors.insanity import only_says_done
from trajectory_guard.core.fingerprints import checksum, digest64, text_bytes, text_digest
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import (
    DENIED,
    EMPTY,
    ERROR,
    PACE_OF_MOVES,
    SUCCESS,
    Certainty,
    Evidence,
    StepRecord,
    weakest,
)
from trajectory_guard.core.text import clip_middle
from trajectory_guard.core.tools import is_handoff, is_lookup, is_path, receiver_of, takes_next

MAX_PERIOD: Final = 6
_LAPS: Final = 3
_HANDOFF_LAPS: Final = 3
_UNRECORDED: Final = 96
"""So many hand-offs in a row may each give another piece of work, where nobody sees what they give."""
_SPOKEN_VISITS: Final = 64
"""So many visits may repeat while agents write answers in between: what they look up is the same for each new draft."""
_SPOKEN_LAPS: Final = 8
_SAME_VISITS: Final = 8
_UNHEARD: Final = 2
"""Factor for visits without a sign of an answer in between: the instances may work side by side, each on its own."""
_MAX_NAME_CHARS: Final = 64
_MAX_NAMES: Final = 4
_MASK: Final = (1 << 63) - 1


class PingPong(Detector):
    """Fires when the last steps repeat with a period of 2 to 6, each with the result it had one lap earlier.

    A lap counts only if its results equal those of the lap before, so edit-test rounds whose failures change and
    hand-offs that bring new text stay quiet. The calls of one model turn form one element of the cycle whatever
    their order, and a period of one is stutter, not ping-pong. Half a lap beyond the second has half the confidence,
    the third complete lap all of it. A lap proves no more than its weakest step: look and wait is a cycle, too. Actions
    without arguments and short looks may be a round over many places: it takes six times as many laps, unless one tool
    acts or looks twice in each of them, as where two actions undo each other. Agents that write an answer in each lap
    are nudged only, from the eighth lap on and for 64 visits; those that are asked something new in a trace of their
    own are so for ever: a program may give them item after item.

    An agent that the others only talk to, or that is a new instance at each of its turns, makes no cycle. It is nudged
    after nine visits that made the same calls with the same results, if each was given the same user message, or all
    have found nothing; after seventeen, if no answer was seen in between. The work may be another one each time.

    >>> from trajectory_guard.core.demonstration import fires
    >>> lap = [
    ...     "edit(line=7) -> Line 7 of the file orders.py is now: total = price * count, as before.",
    ...     "test(all=yes) -> 2 failed, 9 passed: test_total and test_discount in tests/test_orders.py.",
    ... ]
    >>> fires("cycle", lap * 4)
    step 4: 2 times, 0.50, certain, NUDGE
    step 5: 3 times, 1.00, certain, NUDGE
    step 6: 3 times, 1.00, certain, STOP
    step 7: 4 times, 1.00, certain, STOP

    Reference: suffix cycles in the call sequence; lap counts compared in ``docs/detection.md``.
    """

    name: ClassVar[str] = "pingpong"
    rules: ClassVar[tuple[str, ...]] = ("cycle", "same_visits")
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = 1.5
    advice: ClassVar[tuple[str, ...]] = (
        "Break the cycle: do something that is not part of it.",
        "Decide with what is known now, or name the one fact that is missing.",
        "Accept the current result, or ask a person to decide.",
    )
    recommendation: ClassVar[str] = "Check the hand-off rules: no participant owns the decision."
    thresholds: ClassVar[Mapping[str, int]] = {"laps": _LAPS, "same_visits": _SAME_VISITS}
    __slots__ = ("closed", "current", "matched", "of_agents", "proofs", "spoke_at", "tools")

    def __init__(self, *, of_agents: bool = False) -> None:
        self.of_agents = of_agents  # the steps are visits of agents: their names make the cycle
        self.spoke_at = -MAX_PERIOD  # the newest visit before which an agent wrote an answer
        self.closed: tuple[int, ...] = ()  # symbols of the last MAX_PERIOD batches, newest last
        self.proofs: tuple[str, ...] = ()  # certainty of the last MAX_PERIOD + 1 batches, the open one last
        self.tools: tuple[str, ...] = ()  # tool names of the last MAX_PERIOD steps
        self.current = 0  # symbol of the batch still open; -1 if part of it is unknown
        self.matched: tuple[int, ...] = ()  # by period - 1: how many batches in a row equalled the one a period ago

    def update(self, seen: Observation) -> DetectionResult | None:
        """Extend the current batch, or close it and begin the next."""
        symbol = 0
        if seen.call and seen.result:
            symbol = int.from_bytes(blake2b(seen.call + seen.result, digest_size=8).digest(), "big") & _MASK
        proof: Certainty = seen.certainty
        elsewhere = seen.made > 1 and proof is not Certainty.WAITING and not self.of_agents
        if elsewhere and (only_says_done(seen) or (seen.outcome == SUCCESS and takes_next(seen.step.tool_name))):
            proof = Certainty.ACKNOWLEDGED  # the next entry of a queue may equal the one before
        elif proof is Certainty.ACKNOWLEDGED:  # other values in a cycle are likely a state that stays
            proof = Certainty.LIKELY
        if seen.same_batch and self.current:
            self.current = (self.current + symbol) & _MASK if symbol and self.current > 0 else -1
            proof = weakest(Certainty(self.proofs[-1]), proof) if self.proofs else proof
            self.proofs = (*self.proofs[:-1], proof)
        else:
            if self.current:
                self._close()
            self.current = symbol or -1
            self.proofs = (*self.proofs[-MAX_PERIOD:], proof)
        if self.of_agents and has_spoken(seen.step):
            self.spoke_at = seen.index
        name = (self.of_agents and seen.step.agent_id) or seen.step.tool_name
        self.tools = (*self.tools[1 - MAX_PERIOD :], name)
        return self._longest(seen) if self.current in self.closed else None

    def _close(self) -> None:
        current, closed = self.current, self.closed
        if current > 0 and current in closed:  # unknown is not equal to unknown
            counts = zip(self.matched or (0,) * MAX_PERIOD, reversed(closed), strict=False)
            matched = [count + 1 if one == current else 0 for count, one in counts]
            self.matched = (*matched, *(0,) * (MAX_PERIOD - len(matched)))
        else:
            self.matched = ()
        self.closed = (*closed[1 - MAX_PERIOD :], current)

    def _longest(self, seen: Observation) -> DetectionResult | None:
        closed = self.closed
        if self.current < 0:
            return None  # partly unknown
        if closed[-1] == self.current:
            return self._same_visits(seen) if self.of_agents else None
        for period in range(2, len(closed) + 1):
            if closed[-period] == self.current:
                run = (self.matched[period - 1] if self.matched else 0) + 1
                if run > period:
                    return self._cycle(seen, period, run)
        return None

    def _cycle(self, seen: Observation, period: int, run: int) -> DetectionResult | None:
        laps = 1 + run / period
        proof = self._proof(period)
        needed = _LAPS * seen.pace_of(proof)
        if seen.moves_on and not self.of_agents and len({*self.tools[-period:]}) == period:
            proof = weakest(proof, Certainty.ACKNOWLEDGED)
            needed = _LAPS * seen.pace_of(proof) * PACE_OF_MOVES
        apart = seen.step.usage is not None and seen.step.usage.answers > 1
        may_work = self.spoke_at > seen.index - period and (apart or run < _SPOKEN_VISITS)
        if may_work:
            needed = max(needed, _SPOKEN_LAPS)
        if laps < needed - 1 + 1 / period:
            return None
        first = max(0, seen.index - run - period + 1)
        return self.found(
            seen, 1.0 if laps >= needed else 0.5, "cycle", proof, count=int(laps), first_step=first,
            names=self.tools[-period:], period=period, varied=True, only_nudge=may_work,
        )  # fmt: skip

    def _proof(self, period: int) -> Certainty:
        """That of its weakest step; beside a step that shows more, actions are likely stuck whatever each one does."""
        proofs = set(map(Certainty, self.proofs[-period:]))
        if Certainty.WAITING in proofs:
            return Certainty.WAITING
        return proofs.pop() if len(proofs) == 1 else Certainty.LIKELY

    def _same_visits(self, seen: Observation) -> DetectionResult | None:
        """One agent whose visits all made the same calls with the same results, for one message or in vain."""
        visits = (self.matched[0] if self.matched else 0) + 2
        usage = seen.step.usage
        for_one_message = usage is not None and usage.asked is not None
        if not for_one_message and (seen.outcome != EMPTY or (usage is not None and usage.answers > 1)):
            return None  # it did something, or was asked something new by a user
        if visits < _SAME_VISITS * (1 if for_one_message or self.spoke_at == seen.index else _UNHEARD):
            return None
        return self.found(
            seen, 1.0, "same_visits", Certainty.LIKELY, count=visits, first_step=max(0, seen.index + 1 - visits),
            names=self.tools[-1:], period=1, only_nudge=True,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """The tools of a lap, and the number of laps."""
        if found.rule == "same_visits":
            return f"{clip_middle(found.names[0])} has made the same calls {found.count} times with the same results."
        tools = " → ".join(map(clip_middle, found.names))
        if found.period > 1 and len(set(found.names)) == 1:
            tools = f"of {clip_middle(found.names[0])} with {found.period} arguments in turn"
        return f"The calls {tools} have repeated {found.count} times with the same results."

    def dump(self) -> Any:
        """Cycle symbols, what they prove, and run lengths; of agents, when one has spoken."""
        if not self.current:
            return None
        spoke = [self.spoke_at] if self.spoke_at >= 0 else []
        return [self.closed, self.current, self.matched, self.tools, self.proofs, *spoke]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        closed, self.current, matched, tools, proofs, *spoke = data
        self.spoke_at = spoke[0] if spoke else -MAX_PERIOD
        self.closed, self.matched, self.tools, self.proofs = tuple(closed), tuple(matched), tuple(tools), tuple(proofs)


class HandOffs(Detector):
    """Type IV over agents: agents hand work over in a circle, with new words each time.

    Counts hand-offs that follow each other without any other call that brings progress: steps of hand-off tools
    (``transfer_to_billing``, ``handoff``, ``delegate``) or of the framework, and steps that name the next agent. Fires
    when the sequence of agents repeats with a period of 2 to 4 for the third lap, whatever the reasons say. Does not
    fire where an agent does something new before it hands over, and starts again where a user turn may have begun.

    >>> from trajectory_guard.core.demonstration import fires
    >>> reasons = ("invoice", "who is it", "money", "not ours", "again", "refund", "please", "no")
    >>> desks = ("billing", "support") * 4
    >>> fires("handoffs", (f"transfer_to_{to}(reason={why}) -> done" for to, why in zip(desks, reasons, strict=True)))
    step 5: 3 times, 1.00, likely, OBSERVE
    step 6: 3 times, 1.00, likely, NUDGE
    step 7: 4 times, 1.00, likely, NUDGE

    Reference: circular hand-offs of the original TrajectoryGuard plan.
    """

    name: ClassVar[str] = "handoffs"
    rules: ClassVar[tuple[str, ...]] = ("handoffs",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = 1.5
    advice: ClassVar[tuple[str, ...]] = (
        "Do not hand over again: decide with what is known now.",
        "Name the one fact that is missing, and ask the person for it.",
        "If no participant can do it, say so.",
    )
    recommendation: ClassVar[str] = PingPong.recommendation
    thresholds: ClassVar[Mapping[str, int]] = {"laps": _HANDOFF_LAPS}
    __slots__ = ("agent", "agents", "in_a_row", "named", "symbols")
    _KEPT: ClassVar[int] = 16

    def __init__(self) -> None:
        self.symbols: tuple[str, ...] = ()
        self.agents: tuple[tuple[int, str], ...] = ()
        self.in_a_row = 0  # length of the series, of which the newest are kept
        self.agent = ""  # of the last step
        self.named: tuple[str, ...] = ()  # digests of the short texts that it was given, where there are several agents

    def update(self, seen: Observation) -> DetectionResult | None:
        """Extend the series of hand-offs, or end it."""
        agent, before = seen.step.agent_id or "", self.agent
        named_next = bool(self.named) and agent != before and name_digest(agent) in self.named
        several = bool(self.named) or ("" != before != agent)
        self.agent, self.named = agent, names_in(seen) if several else ()
        if not is_handoff(seen.step.tool_name) and not named_next:
            if seen.progress or seen.may_be_new:
                self.symbols, self.agents = (), ()
            return None
        if seen.delivers:
            self.symbols, self.agents = (), ()
            return None
        if has_answered(seen.step):
            self.symbols, self.agents = (), ()
        return self._extend(seen)

    def _extend(self, seen: Observation) -> DetectionResult | None:
        agent, receiver = seen.step.agent_id or "", receiver_of(seen.step.tool_name, seen.step.args)
        text, name = seen.step.result or "", _plain(receiver or seen.step.tool_name.rpartition("_to_")[2])
        names_next = len(text) <= _MAX_NAME_CHARS and bool(name) and name in _plain(text)  # in whatever words
        brought = "" if names_next or is_acknowledgement(text) else seen.form.hex() or seen.result.hex()
        symbol = digest64(text_bytes(f"{seen.tool}\0{agent}\0{receiver}\0{brought}"))
        if self.agents and self.agents[-1][0] < seen.segment:
            self.symbols, self.agents = (), ()  # another user turn may have begun: who works at it is decided anew
        self.in_a_row = self.in_a_row + 1 if self.symbols else 1
        self.symbols = (*self.symbols[1 - self._KEPT :], symbol.hex())
        self.agents = (*self.agents[1 - self._KEPT :], (seen.index, agent or receiver or seen.step.tool_name))
        for period in (2, 3, 4):
            run = _run(self.symbols, period)
            if run >= period * (_HANDOFF_LAPS - 1):
                return self._circle(seen, period, run)
        return None

    def _circle(self, seen: Observation, period: int, run: int) -> DetectionResult | None:
        names = tuple(name for _, name in self.agents[-period:])
        if len(set(names)) < 2:
            return None
        steps = tuple(at for at, _ in self.agents[-(run + period) :])
        # what came back is unknown, or one agent may deal tasks to several in turn
        dealt = not seen.step.agent_id and receiver_of(seen.step.tool_name, seen.step.args)
        certainty = Certainty.LIKELY if seen.result and not dealt else Certainty.ACKNOWLEDGED
        return self.found(
            seen, 1.0, "handoffs", certainty, count=(run + period) // period, first_step=steps[0], steps=steps,
            names=names, period=period, varied=True, at_least=run + 2 * period > self._KEPT,
            only_nudge=seen.step.evidence is not Evidence.FULL and self.in_a_row < _UNRECORDED,
        )  # fmt: skip

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the agents of the cycle and the number of laps."""
        least = "at least " if found.at_least else ""
        agents = " → ".join(map(clip_middle, found.names))
        return f"The work has gone round {least}{found.count} times ({agents}) without a result."

    def dump(self) -> Any:
        """The series."""
        if not (self.symbols or self.agent or self.named):
            return None
        return [self.symbols, self.agents, self.named, self.agent, self.in_a_row]

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.symbols, self.agents = tuple(data[0]), tuple((at, name) for at, name in data[1])
        self.named, self.agent, self.in_a_row = tuple(data[2]), data[3], data[4]


_TURNS: Final = 3
_KEPT_CHANGES: Final = 4
_NEW_ACTION: Final = 2
_LEAST_WORDS: Final = 4
_CONTENT_WORDS: Final = 8
_MAX_CHANGE_CHARS: Final = 4_000
_WORD: Final = re.compile(r"\w+")


class _Change(NamedTuple):
    """A change to a text that was made before and is made again, in turn with its reversal.

    Fields:
        key: checksum of what both have in common; forms: of the newest one and of the other one.
        turns: how often one followed the other; steps: their indices, the newest eight.
    """

    key: int
    forms: tuple[int, int]
    turns: int
    steps: tuple[int, ...]

    def then(self, form: int, index: int) -> _Change:
        """The same after one more change, in this form."""
        newest, other = self.forms
        if form == newest or (other and form != other):
            return _Change(self.key, (form, 0), 0, (index,))
        return _Change(self.key, (form, newest), self.turns + 1, (*self.steps[-2 * _TURNS :], index))


class Undone(Detector):
    """Type IV over changes: a change to a text and its reversal in turn, whatever the checks in between return.

    Counts calls that succeed, and that were made before: an edit and another call of the same words in another order
    (old and new text have changed places, in an edit, a patch, or a command), or two texts written to one place in
    turn. Fires when one has followed the other three times, and at each known call from then on. A new action in
    between takes back two of the three: it may be the work that the two belong to. The evidence is likely where a check
    in between fails, else acknowledged: two variants may be measured in turn.

    >>> from trajectory_guard.core.demonstration import fires
    >>> sizes = ("pool: 50", "pool: 20")
    >>> fires("undone", (
    ...     step for at in range(6) for step in (
    ...         f"edit(path=values.yaml, old={sizes[at % 2]}, new={sizes[1 - at % 2]}) -> 1 replacement",
    ...         f"logs(app=api) -> Error: the pool of api-{at * 7} is {('empty', 'too large')[at % 2]} at :{at * 31}",
    ...     )
    ... ))
    step 10: 3 times, 1.00, likely, OBSERVE
    step 11: 3 times, 1.00, likely, NUDGE

    Reference: situations of this kind in ``docs/detection.md``.
    """

    name: ClassVar[str] = "undone"
    rules: ClassVar[tuple[str, ...]] = ("undone",)
    loop_type: ClassVar[str] = TYPE_IV
    weight: ClassVar[float] = PingPong.weight
    asked_at: ClassVar[int] = ALWAYS
    advice: ClassVar[tuple[str, ...]] = (
        "You make and undo the same change: neither of the two states is the solution.",
        "Write down what fails in each of them, and change the cause that both have in common.",
        "If they contradict each other, say so, and ask which one to keep.",
    )
    recommendation: ClassVar[str] = (
        "Check whether two requirements contradict each other, and tell the agent which one counts."
    )
    thresholds: ClassVar[Mapping[str, int]] = {"turns": _TURNS}
    __slots__ = ("changes", "failed_at")

    def __init__(self) -> None:
        self.changes: tuple[_Change, ...] = ()
        self.failed_at = -1

    def update(self, seen: Observation) -> DetectionResult | None:
        """Add the change, or look whether one is undone again and again."""
        if seen.made < 2:
            if self.changes and not is_lookup(seen.step.tool_name):
                self._take_back()
            return None
        if seen.same_batch:
            return None
        if seen.outcome == ERROR or (self.changes and names_error(seen.step.result or "")):
            self.failed_at = seen.index
        elif not (seen.in_a_row or seen.outcome == DENIED or is_lookup(seen.step.tool_name)):
            self._note(seen)
        undone = [one for one in self.changes if one.turns >= _TURNS]
        if not undone or seen.index - undone[-1].steps[-1] > MAX_PERIOD:
            return None
        newest = undone[-1]
        steps = newest.steps if newest.steps[-1] == seen.index else (*newest.steps, seen.index)
        certainty = Certainty.LIKELY if self.failed_at >= newest.steps[0] else Certainty.ACKNOWLEDGED
        return self.found(
            seen, 1.0, "undone", certainty, count=newest.turns, first_step=newest.steps[0], steps=steps,
            varied=True, at_least=True,
        )  # fmt: skip

    def _take_back(self) -> None:
        """Something else was done: it may be what the changes are for."""
        less = [one._replace(turns=max(0, one.turns - _NEW_ACTION)) for one in self.changes]
        self.changes = tuple([one for one in less if one.turns])

    def _note(self, seen: Observation) -> None:
        key = _key_of_change(seen)
        if not key:
            return
        form = int.from_bytes(seen.call[:4], "little")
        known = next((one for one in self.changes if one.key == key), None)
        change = known.then(form, seen.index) if known is not None else _Change(key, (form, 0), 0, (seen.index,))
        others = [one for one in self.changes if one is not known]
        if len(others) == _KEPT_CHANGES:  # the oldest one that was not undone yet gives way
            others.remove(min(others, key=lambda one: one.turns))
        self.changes = (*others, change)

    @classmethod
    def explain(cls, found: DetectionResult, call: str, answer: str) -> str:
        """One sentence with the number of turns and the newest call."""
        times = f"at least {found.count} times"
        return f"A change and its reversal have followed each other {times}; {call} returned {answer}."

    def dump(self) -> Any:
        """The changes that were made again, and the newest failure."""
        return [[list(one) for one in self.changes], self.failed_at] if self.changes else None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        changes, self.failed_at = data
        self.changes = tuple([_Change(key, tuple(forms), turns, tuple(steps)) for key, forms, turns, steps in changes])


def _key_of_change(seen: Observation) -> int:
    """A checksum of the words of a change in any order, or of the place that a text is written to; 0 if it is none."""
    values = seen.values
    places = [one for one in values if " " not in one and is_path(one)]
    text = "\n".join([one for one in values if one not in places])[:_MAX_CHANGE_CHARS]
    words = _WORD.findall(text)
    if places and len(words) >= _CONTENT_WORDS:
        return checksum("\0".join((seen.tool, *places))) or 1
    if not (places or "/" in text or "." in text or "\n" in text) or len(words) + 2 * len(places) < _LEAST_WORDS:
        return 0
    return checksum("\0".join((seen.tool, *places, *sorted(words)))) or 1


@lru_cache(maxsize=1024)
def name_digest(text: str) -> str:
    """A digest of the name of an agent, however it is spelt: ``Legal-Team``, ``legal_team``."""
    return text_digest(_plain(text))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def names_in(seen: Observation) -> tuple[str, ...]:
    """Digests of the short texts that a call was given: the agent that acts next may be among them."""
    short = [value for value in seen.values if len(value) <= _MAX_NAME_CHARS]
    return tuple(map(name_digest, short[:_MAX_NAMES]))


def _run(symbols: tuple[str, ...], period: int) -> int:
    """How many of the newest symbols equal the one a period before them."""
    run = 0
    while run + period < len(symbols) and symbols[-1 - run] == symbols[-1 - run - period]:
        run += 1
    return run


def has_answered(step: StepRecord) -> bool:
    """Whether an agent answered the user before the framework handed over: somebody has spoken since."""
    return step.is_toolless and has_spoken(step)


def has_spoken(step: StepRecord) -> bool:
    """Whether a model wrote an answer before it, or another one, requested the call."""
    return step.usage is not None and step.usage.answers > 0
