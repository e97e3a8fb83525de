"""The state of one trajectory: a bounded plain value with a versioned byte form."""

from __future__ import annotations

import json
from array import array
from typing import Any, Final

import orjson

from trajectory_guard.core.detectors import Detector, FrozenRun
from trajectory_guard.core.fingerprints import digest64, parse_json
from trajectory_guard.core.history import WIDTH, History, Ring
from trajectory_guard.core.scoring import Episode

FORMAT_VERSION: Final = 1
MAX_LEARNED_CALLS: Final = 4
MAX_AGENTS: Final = 8
BATCH_MASK: Final = 0xFFFF


class StateFormatError(ValueError):
    """Saved state that this version cannot read. The message says why; nothing was changed."""


class TrajectoryState:
    """All the guard remembers of one trajectory.

    Attributes:
        trajectory_id: as in the records.
        index: steps taken so far.
        turn: label of the current user turn, None if unknown.
        agents: names of the agents that acted last (up to eight); agent_news: when each brought news last.
        last_news: index of the newest step that brought something new, -1 before the first.
        history: calls and results of the last steps.
        last_fresh: index of the newest call that had not been made before.
        chain: call and answer repeated last, how often, since which step, and in which batch last.
        starts, batches, tokens, costs: start time (s), batch ordinal, cumulative tokens and cost (USD) of those steps.
        step_ids: ids of recent steps, to ignore what is delivered twice.
        batch_end: earliest end (s) among the calls of the current batch; a step that starts before it belongs to it.
        batch_label: label of that batch, if the source names it.
        learned: what was learned of repeated calls whose answers differ (``volatile.Lesson`` as lists).
        episode: score and intervention state.
        began: start (s) of the step with which the newest episode began, 0 before the first.
        frozen: the current run of steps with one and the same answer.
        detectors: one instance of each registered detector.
    """

    __slots__ = (
        "agent_news",
        "agents",
        "batch_end",
        "batch_label",
        "batches",
        "began",
        "chain",
        "costs",
        "detectors",
        "episode",
        "frozen",
        "history",
        "index",
        "last_end",
        "last_fresh",
        "last_news",
        "learned",
        "starts",
        "step_ids",
        "tokens",
        "total_cost",
        "total_tokens",
        "trajectory_id",
        "turn",
    )

    def __init__(self, trajectory_id: str, capacity: int, detectors: tuple[Detector, ...]) -> None:
        self.trajectory_id = trajectory_id
        self.index = 0
        self.turn: str | None = None
        self.agents: tuple[str, ...] = ()
        self.agent_news: dict[str, int] = {}
        self.last_news = -1
        self.last_fresh = -1
        self.chain: tuple[str, int, int, int] = ("", 0, -1, -1)
        self.history = History(capacity)
        self.starts = array("d")
        self.batches = array("H")
        self.tokens = array("Q")
        self.costs = array("d")
        self.total_tokens = 0
        self.total_cost = 0.0
        self.step_ids = Ring(capacity)
        self.batch_end = float("-inf")
        self.batch_label: str | None = None
        self.last_end = 0.0
        self.learned: dict[str, list[Any]] = {}
        self.episode = Episode()
        self.began = 0.0
        self.frozen = FrozenRun()
        self.detectors = detectors

    @property
    def score(self) -> float:
        """Current loop score in [0, max_score]."""
        return self.episode.score

    def news_of(self, agent: str | None) -> int:
        """Index of the newest step at which this agent brought news; of any agent's where agents are unknown."""
        if agent is None or not self.agent_news.keys() - {agent}:
            return self.last_news
        return self.agent_news.get(agent, -1)

    def note_news(self, agent: str | None) -> None:
        """The current step brought news."""
        self.last_news = self.index
        if agent is not None:
            self.agent_news.pop(agent, None)
            self.agent_news[agent] = self.index
            if len(self.agent_news) > MAX_AGENTS:
                del self.agent_news[next(iter(self.agent_news))]

    def forget_repeats(self) -> None:
        """Start counting repeats anew, keeping the memory of what was called."""
        self.last_news = self.index
        self.agent_news = dict.fromkeys(self.agent_news, self.index)

    def start_turn(self, decay: float) -> None:
        """A person spoke: suspicion decays by this factor and old answers may be asked for again."""
        self.episode.score *= decay
        self.forget_repeats()

    def start_of(self, index: int) -> float | None:
        """Start time in seconds of a remembered step, None if it is forgotten."""
        offset = index - self.history.calls.start
        return self.starts[offset] if 0 <= offset < len(self.starts) else None

    def batch_of(self, index: int) -> int:
        """Ordinal (modulo 65,536) of the batch a remembered step belongs to."""
        return self.batches[index - self.history.calls.start]

    def spent_before(self, index: int) -> tuple[int, float]:
        """Tokens and USD spent before the step with this index (as far as remembered)."""
        offset = index - 1 - self.history.calls.start
        if not self.tokens or offset < 0:
            return (0, 0.0) if index <= 0 or not self.tokens else (self.tokens[0], self.costs[0])
        offset = min(offset, len(self.tokens) - 1)
        return self.tokens[offset], self.costs[offset]

    def absolve(self) -> None:
        """End the episode and start counting anew."""
        self.episode.absolve()
        self.forget_repeats()

    def to_bytes(self) -> bytes:
        """Versioned byte form, UTF-8 JSON; ``from_bytes`` restores a state that behaves identically."""
        plain = {
            "v": FORMAT_VERSION,
            "id": self.trajectory_id,
            "n": self.index,
            "turn": self.turn,
            "agents": [list(self.agents), list(self.agent_news.items())],
            "news": [self.last_news, self.last_fresh],
            "cap": self.step_ids.size // WIDTH,
            "start": self.history.calls.start,
            "calls": self.history.calls.data.hex(),
            "results": self.history.results.data.hex(),
            "starts": list(self.starts),
            "batches": list(self.batches),
            "chain": list(self.chain),
            "spent": [list(self.tokens), list(self.costs), self.total_tokens, self.total_cost],
            "ids": [self.step_ids.data.hex(), self.step_ids.start],
            "batch": [None if self.batch_end == float("-inf") else self.batch_end, self.batch_label, self.last_end],
            "learned": self.learned,
            "episode": self.episode.to_plain(),
            "began": self.began,
            "frozen": self.frozen.to_plain(),
            "detectors": {one.name: data for one in self.detectors if (data := one.dump()) is not None},
        }
        return _dump({**plain, "sum": _checksum(plain)})

    @classmethod
    def from_bytes(cls, data: bytes, detectors: tuple[Detector, ...]) -> TrajectoryState:
        """Restore ``to_bytes``.

        Raises:
            StateFormatError: the bytes are not a saved state, or of a version this code does not know.
        """
        try:
            plain = parse_json(data.decode("utf-8"))
            version = plain["v"]
        except (ValueError, KeyError, TypeError) as error:
            raise StateFormatError(f"not a saved trajectory state: {error}") from None
        if version != FORMAT_VERSION:
            raise StateFormatError(f"state format version {version!r} is unknown (this version reads {FORMAT_VERSION})")
        try:
            if plain.pop("sum") != _checksum(plain):
                raise ValueError("its checksum does not fit")
            return cls._from_plain(plain, detectors)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateFormatError(f"damaged trajectory state: {type(error).__name__}: {error}") from None

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], detectors: tuple[Detector, ...]) -> TrajectoryState:
        state = cls(plain["id"], plain["cap"], detectors)
        state.index, state.turn = plain["n"], plain["turn"]
        state.last_news, state.last_fresh = plain["news"]
        agents, agent_news = plain["agents"]
        state.agents, state.agent_news = tuple(agents), dict(agent_news)
        for name in ("calls", "results"):
            setattr(state.history, name, Ring(plain["cap"], bytes.fromhex(plain[name]), plain["start"]))
        state.starts, state.batches = array("d", plain["starts"]), array("H", plain["batches"])
        state.chain = tuple(plain["chain"])
        tokens, costs, state.total_tokens, state.total_cost = plain["spent"]
        state.tokens, state.costs = array("Q", tokens), array("d", costs)
        state.step_ids = Ring(plain["cap"], bytes.fromhex(plain["ids"][0]), plain["ids"][1])
        end, state.batch_label, state.last_end = plain["batch"]
        state.batch_end = float("-inf") if end is None else end
        state.learned = dict(plain["learned"])
        state.episode = Episode.from_plain(plain["episode"])
        state.began = plain["began"]
        state.frozen = FrozenRun.from_plain(plain["frozen"])
        for one in detectors:  # what this configuration switched off loses its state, nothing else
            if one.name in plain["detectors"]:
                one.load(plain["detectors"][one.name])
        return state


def _checksum(plain: dict[str, Any]) -> str:
    """Damage and tampering must be noticed when a state is loaded, not many steps later."""
    return digest64(_dump(plain)).hex()


def _dump(plain: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # text that is no valid Unicode, as a trajectory id may be
        return json.dumps(plain, sort_keys=True).encode("ascii")
