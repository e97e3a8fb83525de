"""The state of one trajectory: a bounded plain value with a versioned byte form.

A trajectory consists of runs (``core.run``). A run holds the memory that ends with it. The trajectory holds the memory
that outlives a run: noise profiles, refusals of the current user turn, and the ordinals of episodes, nudges and steps.
``Before`` is a snapshot of it, for a step that fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson

from trajectory_guard.core.calls import CallRecord, completed
from trajectory_guard.core.content.delivery import says_more
from trajectory_guard.core.content.result_text import is_brief
from trajectory_guard.core.content.surroundings import NO_SURROUNDINGS, Surroundings
from trajectory_guard.core.content.volatile import MAX_NOISE_PROFILES
from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.fingerprints import checksum, digest64, parse_json
from trajectory_guard.core.history import Ring
from trajectory_guard.core.inquiry import Advance, Inquiry
from trajectory_guard.core.observation import Observation, SameResultRun
from trajectory_guard.core.plain import fields_of, from_text, to_text
from trajectory_guard.core.policy import Ladder, RunScore
from trajectory_guard.core.run import Run
from trajectory_guard.core.steps import Delivered, StepRecord
from trajectory_guard.core.tools import is_communication, is_handoff, is_thinking, receiver_of
from trajectory_guard.core.tracking import model_calls
from trajectory_guard.core.tracking.scope import graph_instance
from trajectory_guard.core.visits import Visit, relay_detectors

FORMAT_VERSION: Final = 32
MAX_RUNS: Final = 8
"""Runs of a trajectory that are remembered, busy or not."""
MAX_BUSY_RUNS: Final = 32
"""Runs that are remembered while all of them act: agents side by side, each in turn."""
BUSY_STEPS: Final = 64
"""Steps of the trajectory since its own newest one after which a run is no longer busy."""
_MAX_WORK: Final = 16
_READ_OF_DENIAL: Final = 1_000


class StateFormatError(ValueError):
    """Raised for saved state that this version cannot read. The message gives the cause; nothing was changed."""


class Denial(NamedTuple):
    """One refusal of a call.

    Fields:
        run, at: label of the run and index of the step; words: checksum of what was said (``Denial.words_of``).
    """

    run: str
    at: int
    words: int = 0

    @staticmethod
    def words_of(text: str | None) -> int:
        """A checksum of the words of a refusal without figures, as ids have; 0 if nothing is known of it.

        >>> words = Denial.words_of
        >>> words("Rejected call_1") == words("rejected call_2") != words("Not yet, Ann has to sign off first")
        True
        """
        if not text:
            return 0
        words = [one.casefold() for one in text[:_READ_OF_DENIAL].split() if not any(map(str.isdigit, one))]
        return checksum(" ".join(words))


class TrajectoryState:
    """The guard's memory of one trajectory.

    Attributes:
        trajectory_id: as in the records.
        index: steps taken so far, in all runs.
        capacity: steps remembered per run.
        runs: the runs used last by label, newest last, at most ``MAX_RUNS``, and others that are busy; evicted_runs:
            number of runs evicted; restarts: of runs that took the place of one of their label, not saved.
        twice: two instrumentations report the calls, and the first one hides what the other one shows.
        turns: label of the current user turn by agent instance.
        step_ids: ids of recent steps, to ignore steps that are delivered twice.
        noise: noise profiles of repeated calls whose results differ (``volatile.NoiseProfile`` as lists).
        denied: refused calls of the current user turn: symbol (hex), and each refusal.
        episodes, nudges, recoveries: counts over the whole trajectory.
        current: label of the run that acted last.
        visit: the current visit of the acting agent instance (``core.visits``); relay: the run that
            consists of the visits, None before the first visit has ended.
        model_calls: the newest model calls by label of the run, of runs without a tool step since.
        handed_at: index of the newest step that handed the work over; -1 before the first.
        idle_at: index of the newest step before which an agent had answered without anything new; spoke_at: without
            more than new words; -1 before it.
        worked_at: index of the newest step since the first hand-over that brought something new, other than by handing
            over; -1 before it. work: digests of the newest such calls with their results, those of all runs.
        around: what stands around all results.
        handed_words: checksums of what the arguments of hand-offs have said (``core.delivery.says_more``).
    """

    __slots__ = (
        "around", "capacity", "current", "denied", "episodes", "evicted_runs", "handed_at", "handed_words", "idle_at",
        "index", "model_calls", "noise", "nudges", "recoveries", "relay", "restarts", "runs", "spoke_at", "step_ids",
        "trajectory_id", "turns", "twice", "visit", "work", "worked_at",
    )  # fmt: skip

    def __init__(self, trajectory_id: str, capacity: int) -> None:
        self.trajectory_id = trajectory_id
        self.capacity = capacity
        self.index = 0
        self.runs: dict[str, Run] = {}
        self.turns: dict[str, str] = {}
        self.step_ids = Ring(capacity)
        self.noise: dict[str, list[Any]] = {}
        self.denied: dict[str, tuple[Denial, ...]] = {}
        self.episodes = self.nudges = self.recoveries = self.evicted_runs = self.restarts = 0
        self.current = ""
        self.visit: Visit | None = None
        self.relay: Run | None = None
        self.model_calls: dict[str, model_calls.Newest] = {}
        self.worked_at = self.handed_at = self.idle_at = self.spoke_at = -1
        self.work: tuple[str, ...] = ()
        self.handed_words: tuple[int, ...] = ()
        self.around = NO_SURROUNDINGS
        self.twice = False

    @property
    def run(self) -> Run | None:
        """The run that acted last, None before the first step."""
        return self.runs.get(self.current)

    @property
    def score(self) -> float:
        """Score of the run that acted last, in [0, max_score]."""
        run = self.run
        return run.score.value if run is not None else 0.0

    def begin_turn(self, instance: str, turn: str) -> None:
        """Record the new user turn of an agent instance. Calls refused in an earlier turn may be made again."""
        self.turns = {**{key: known for key, known in self.turns.items() if key != instance}, instance: turn}
        if len(self.turns) > MAX_BUSY_RUNS:  # that of the agent at the top is the turn of all
            del self.turns[next(filter(None, self.turns))]
        if not instance:
            self.denied = {}

    def note_work(self, observation: Observation) -> None:
        """Record whether the step at ``index`` hands the work over, or brings something new for a later hand-over."""
        step = observation.step
        if is_handoff(step.tool_name):
            self.handed_at = self.index
            if observation.progress and not observation.delivers and not is_brief(step.result or ""):
                self.worked_at = self.index  # what the agent before has written came back with it
        elif (
            self.handed_at >= 0 and (observation.progress or _acts_anew(observation)) and self._is_new_work(observation)
        ):
            self.worked_at = self.index

    def _is_new_work(self, observation: Observation) -> bool:
        """Whether no agent instance made this call with this result lately: to its own run, each call is new."""
        if not observation.call or not observation.result:
            return True
        work = digest64(observation.call + observation.result).hex()
        known = work in self.work
        self.work = (*[one for one in self.work if one != work], work)[-_MAX_WORK:]
        return not known

    def note_handed_words(self, step: StepRecord) -> None:
        """Take what the arguments of a hand-off say for work, if no hand-off has said it before."""
        names = f"{step.tool_name} {receiver_of(step.tool_name, step.args)} {step.agent_id or ''}".casefold()
        more, self.handed_words = says_more(step.args, self.handed_words, re.findall(r"[^\W_]+", names))
        if more:
            self.worked_at = self.index

    def note_delivery(self, brings: Delivered) -> None:
        """Record what an agent brings back before the next step hands the work over."""
        if brings is Delivered.RESULT:
            self.worked_at = self.index
        elif brings is Delivered.WORDS:
            self.spoke_at = self.index
        else:
            self.idle_at = self.index

    def keep_deliveries_of(self, before: TrajectoryState) -> None:
        """Keep what agents had brought back before the first step, from a state without steps."""
        for name in ("idle_at", "spoke_at", "worked_at"):
            setattr(self, name, max(getattr(self, name), getattr(before, name)))

    def keep_runs_of(self, other: TrajectoryState) -> None:
        """Keep the runs of another state of this trajectory that this one does not have, as the oldest ones."""
        runs = [run for label, run in other.runs.items() if label not in self.runs]
        runs += self.runs.values()
        self.runs = {run.label: run for run in runs[-MAX_BUSY_RUNS:]}

    def go_on_with(self, newer: TrajectoryState) -> None:
        """Take over the runs of another state, whose steps came after those of this one; it is used up."""
        relay = [newer.relay] if newer.relay is not None else []
        for run in (*newer.runs.values(), *relay):
            run.history.move(self.index)
            run.ladder.episode += self.episodes if run.ladder.episode else 0
        for run in newer.runs.values():
            self.enter_run(run)
        self.turns = dict([*self.turns.items(), *newer.turns.items()][-MAX_BUSY_RUNS:])
        self.noise = dict([*self.noise.items(), *newer.noise.items()][-MAX_NOISE_PROFILES:])
        self.denied = {**self.denied, **newer.denied}
        for at in range(newer.step_ids.start, newer.step_ids.start + len(newer.step_ids)):
            self.step_ids.append(newer.step_ids[at])
        self.work = (*[one for one in self.work if one not in newer.work], *newer.work)[-_MAX_WORK:]
        self.twice, self.handed_words = self.twice or newer.twice, newer.handed_words or self.handed_words
        self.around = self.around.and_then(newer.around)
        for name in ("handed_at", "idle_at", "spoke_at", "worked_at"):
            if getattr(newer, name) >= 0:
                setattr(self, name, self.index + getattr(newer, name))
        visit = newer.visit
        self.visit = visit._replace(first=visit.first + self.index) if visit is not None else None
        self.current, self.relay = newer.current, newer.relay
        for name in ("episodes", "nudges", "recoveries", "evicted_runs", "index"):
            setattr(self, name, getattr(self, name) + getattr(newer, name))

    def uncount(self, steps: int) -> None:
        """Take the newest ordinals back: these steps do not count, or are about to be evaluated again."""
        self.index = max(0, self.index - steps)
        self.step_ids.truncate(steps)

    def take_over(self, step: StepRecord, earlier: CallRecord, *, evaluated: bool) -> StepRecord:
        """The fuller record of a call, with what only the one before it says.

        Parameters:
            evaluated: the one before was evaluated. If nothing else was in its run, that step is taken back.
        """
        run = self.run
        if evaluated and run is not None and run.index == 1 and run.last_end == earlier.end and not run.ladder.episode:
            del self.runs[run.label]
            self.uncount(1)
            if not self.index:
                self.visit = None
        return completed(step, earlier)

    def rename_run(self, label: str, new_label: str, instance: str, turn: str | None) -> None:
        """Move a run to the label of an agent instance in a user turn, once that label is known."""
        self.note_model_calls(new_label, self.model_calls.get(label, ()))
        self.note_model_calls(label, ())
        run = self.runs.pop(label)
        run.label = new_label
        self.runs[new_label] = run
        if self.current == label:
            self.current = new_label
        if self.visit is not None and self.visit.run == label:
            self.visit = self.visit._replace(run=new_label)
        self.denied = {
            call: tuple(one._replace(run=new_label) if one.run == label else one for one in denials)
            for call, denials in self.denied.items()
        }
        if turn is not None and self.turns.get(instance) != turn:
            denied = self.denied
            self.begin_turn(instance, turn)
            self.denied = denied

    def run_named(self, label: str) -> Run | None:
        """A run by its label, or the run of the visits of agents by its own; None if it is unknown."""
        relay = self.relay
        return relay if relay is not None and relay.label == label else self.runs.get(label)

    def enter_run(self, run: Run) -> Run | None:
        """Make a run the newest; beyond ``MAX_RUNS`` those that are no longer busy are evicted, the most idle first.

        If too many are busy, those that were first stay: if each had to make room for the next one, nothing that any of
        them repeats would be seen.

        Returns the run that had its label before.
        """
        before = self.runs.pop(run.label, None)
        self.runs[run.label] = run
        while len(self.runs) > MAX_RUNS:
            evicted = next(iter(self.runs))
            if self._is_busy(evicted):
                if len(self.runs) <= MAX_BUSY_RUNS:
                    break
                *_, evicted, _ = self.runs
            del self.runs[evicted]
            self.evicted_runs += 1
        return before

    def _is_busy(self, label: str) -> bool:
        """Whether a run may act again soon: it has acted lately, and its agent is not in another user turn."""
        places = self.runs[label].history.places
        if not places or self.index - places[-1] > BUSY_STEPS:
            return False
        instance = graph_instance(label)
        return not any(graph_instance(other) == instance for other in self.runs if other != label)

    def note_model_calls(self, label: str, newest: model_calls.Newest) -> None:
        """Replace the newest model calls of a run; none: it has made a tool step, or ended."""
        if newest or label in self.model_calls:
            others = [(name, series) for name, series in self.model_calls.items() if name != label]
            self.model_calls = dict([*others, (label, newest)][-MAX_BUSY_RUNS:] if newest else others)

    def to_bytes(self, only: str | None = None) -> bytes:
        """Versioned byte form, UTF-8 JSON; ``from_bytes`` restores a state that behaves identically.

        Parameters:
            only: label of the only run to write; None writes all runs.
        """
        plain = {
            "v": FORMAT_VERSION,
            "id": self.trajectory_id,
            "capacity": self.capacity,
            "index": self.index,
            "runs": [run.to_plain() for run in self.runs.values() if only is None or run.label == only],
            "turns": list(self.turns.items()),
            "step_ids": [to_text(self.step_ids.data), self.step_ids.start],
            "noise": list(self.noise.items()),
            "denied": list(self.denied.items()),
            "counts": [self.episodes, self.nudges, self.recoveries, self.evicted_runs],
            "current": self.current,
            "visit": self.visit.to_plain() if self.visit is not None else None,
            "relay": self.relay.to_plain() if self.relay is not None and only is None else None,
        }
        if self.handed_at >= 0:
            plain["handed"] = [self.worked_at, self.handed_at, *self.work]
        if self.handed_words:
            plain["handed_words"] = list(self.handed_words)
        if self.around != NO_SURROUNDINGS:
            plain["around"] = self.around.to_plain()
        if self.idle_at >= 0:
            plain["idle"] = self.idle_at
        if self.spoke_at >= 0:
            plain["spoke"] = self.spoke_at
        if self.twice:
            plain["twice"] = True
        calls = {label: model_calls.to_plain(one) for label, one in self.model_calls.items() if only in (None, label)}
        if calls:
            plain["model_calls"] = list(calls.items())
        body = _dump(plain)
        return b'%s,"sum":"%s"}' % (body[:-1], _checksum(body).encode())

    @classmethod
    def from_bytes(cls, data: bytes, detectors: Callable[[], tuple[Detector, ...]]) -> TrajectoryState:
        """Restore ``to_bytes``.

        Parameters:
            detectors: makes the detectors of one run.

        Raises:
            StateFormatError: the bytes are not a saved state, or have an unknown version.
        """
        try:
            plain = parse_json(data.decode("utf-8"))
            version = plain["v"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StateFormatError(f"not a saved trajectory state: {error}") from None
        if version != FORMAT_VERSION:
            raise StateFormatError(f"state format version {version!r} is unknown (this version reads {FORMAT_VERSION})")
        try:
            if plain.pop("sum") != _checksum(_dump(plain)):
                raise ValueError("its checksum does not fit")
            return cls._from_plain(plain, detectors)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StateFormatError(f"damaged trajectory state: {type(error).__name__}: {error}") from None

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], detectors: Callable[[], tuple[Detector, ...]]) -> TrajectoryState:
        state = cls(plain["id"], plain["capacity"])
        state.index = plain["index"]
        state.runs = {one["label"]: Run.from_plain(one, detectors()) for one in plain["runs"]}
        state.turns = dict(plain["turns"])
        state.step_ids = Ring(plain["capacity"], from_text(plain["step_ids"][0]), plain["step_ids"][1])
        state.noise = dict(plain["noise"])
        state.denied = {call: tuple(Denial(*one) for one in denials) for call, denials in plain["denied"]}
        state.episodes, state.nudges, state.recoveries, state.evicted_runs = plain["counts"]
        state.current = plain["current"]
        state.worked_at, state.handed_at, *work = plain.get("handed", (-1, -1))
        state.work = tuple(work)
        state.idle_at, state.spoke_at = plain.get("idle", -1), plain.get("spoke", -1)
        state.twice, state.handed_words = plain.get("twice", False), tuple(plain.get("handed_words", ()))
        state.around = Surroundings.from_plain(plain["around"]) if "around" in plain else NO_SURROUNDINGS
        if plain["visit"] is not None:
            state.visit = Visit.from_plain(plain["visit"])
        if plain["relay"] is not None:
            state.relay = Run.from_plain(plain["relay"], relay_detectors())
        state.model_calls = {label: model_calls.from_plain(one) for label, one in plain.get("model_calls", ())}
        return state


def _checksum(body: bytes) -> str:
    """Checksum, hex: ``from_bytes`` detects damage and tampering on load, not many steps later."""
    return digest64(body).hex()


def _dump(plain: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS, default=as_list)
    except TypeError:  # text that is no valid Unicode, as a trajectory id may be
        return json.dumps(plain, sort_keys=True).encode("ascii")


def as_list(value: Any) -> list[Any]:
    """A named tuple as a list: ``orjson`` takes plain tuples only. Raises ``TypeError`` for anything else."""
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_UNSET: Final = object()
_of_run: Final = attrgetter(*fields_of(Run))
_of_series: Final = attrgetter(*fields_of(SameResultRun))
_of_inquiry: Final = attrgetter(*fields_of(Inquiry))
_of_advance: Final = attrgetter(*fields_of(Advance))
_of_score: Final = attrgetter(*fields_of(RunScore))
_of_ladder: Final = attrgetter(*fields_of(Ladder))


class Before:
    """The memory that evaluating a step may change, as it was before: values are replaced, never changed in place."""

    __slots__ = ("_of_state", "_runs", "_state")

    def __init__(self, state: TrajectoryState, run: Run) -> None:
        self._state = state
        self._of_state = (state.noise, state.denied, state.model_calls, state.handed_words, state.worked_at)
        self._runs = [(run, *_memory_of(run))]

    def keep(self, run: Run) -> None:
        """Note the values of another run; called before the step is evaluated in it."""
        self._runs += ((run, *_memory_of(run)),)

    def restore(self) -> None:
        """Put everything back."""
        state = self._state
        state.noise, state.denied, state.model_calls, state.handed_words, state.worked_at = self._of_state
        for run, parts, memories in self._runs:
            for name, value in zip(fields_of(Run), parts[0], strict=True):
                setattr(run, name, value)
            held = (run.same_results, run.inquiry, run.advance, run.score, run.ladder)
            for part, values in zip(held, parts[1:], strict=True):
                for name, value in zip(fields_of(type(part)), values, strict=True):  # type: ignore[arg-type]
                    setattr(part, name, value)
            for detector, values in zip(run.remembering, memories, strict=True):
                names = fields_of(type(detector))  # type: ignore[arg-type]
                for name, value in zip(names, values, strict=False):
                    if value is not _UNSET:
                        setattr(detector, name, value)
                own = values[len(names)]
                if isinstance(own, dict):
                    for name, value in own.items():
                        setattr(detector, name, value)


_Parts = tuple[tuple[Any, ...], ...]
_Memories = list[tuple[Any, ...]]


def _memory_of(run: Run) -> tuple[_Parts, _Memories]:
    """The values of a run and of its parts, and those of its detectors that have a memory."""
    parts = (
        _of_run(run), _of_series(run.same_results), _of_inquiry(run.inquiry), _of_advance(run.advance),
        _of_score(run.score), _of_ladder(run.ladder),
    )  # fmt: skip
    try:
        return parts, [_reader_of(type(one))(one) for one in run.remembering]  # type: ignore[arg-type]
    except AttributeError:  # a slot that has no value yet
        return parts, [_values_of(one) for one in run.remembering]


@cache
def _reader_of(kind: type[Detector]) -> Callable[[Detector], tuple[Any, ...]]:
    """As ``_values_of``, for a kind of detectors: one function in C where there are slots only.

    It returns the class twice behind the values: with fewer than two names it would return no tuple.
    """
    if kind.__dictoffset__:
        return _values_of
    return attrgetter(*fields_of(kind), "__class__", "__class__")  # type: ignore[arg-type]


def _values_of(one: Detector) -> tuple[Any, ...]:
    """The values of the slots of a detector, ``_UNSET`` where there is none, and a copy of its dict behind them."""
    values = [getattr(one, name, _UNSET) for name in fields_of(type(one))]  # type: ignore[arg-type]
    return (*values, dict(getattr(one, "__dict__", {})))


def _acts_anew(seen: Observation) -> bool:
    """Whether an agent did something that it had not done before, though the result only acknowledges it.

    A thought, or words without a recipient, are no work: agents in a circle have new ones in each lap.
    """
    if seen.made != 1 or not seen.acts or is_thinking(seen.name):
        return False
    return not is_communication(seen.name) or len(seen.values) > 1
