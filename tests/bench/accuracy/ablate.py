"""What each rule buys: the same data, judged with one rule switched off at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from trajectory_guard.core.detectors.heartbeat import Heartbeat

from tests.bench.accuracy.data import OWN, PEERS, Run
from tests.bench.accuracy.metrics import Judged, figures, judge_all, middle
from tests.bench.accuracy.systems import ours
from tests.bench.accuracy.tables import Table
from trajectory_guard.config import GuardConfig
from trajectory_guard.core import engine as engine_module
from trajectory_guard.core import volatile
from trajectory_guard.core.detectors import LOOP_TYPES, ErrorStreak, Insanity, Monologue, SameEffect, insanity, phantom
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.similarity import Comparison, Relation
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import ERROR


class Ablation(NamedTuple):
    """A rule that is off: how, what it says in the table, and what the rule is for."""

    name: str
    buys: str
    off: Callable[[], AbstractContextManager[Any]] = nullcontext
    settings: dict[str, Any] = {}  # noqa: RUF012  never written to
    prepare: Callable[[Run], Run] | None = None


def _replaced(target: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, value)  # says so itself if the rule has moved


def _never(*args: Any, **kwargs: Any) -> Any:
    """Stand-in for a rule that finds nothing."""
    return None


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


def _exact_hash(result: str, **_: Any) -> bytes:
    return digest64(text_bytes(result))


def _exact_steps(run: Run) -> Run:
    """The run with errors hashed as they are, which the reader of recorded runs does not do."""
    steps = [
        step._replace(state_snapshot_hash=_exact_hash(step.result).hex())
        if step.outcome_type == ERROR and step.result is not None
        else step
        for step in run.steps
    ]
    return run._replace(steps=steps)


def _exact_error(result: str | None, error_class: str | None) -> str | None:
    return result or error_class


@contextmanager
def _nothing_masked() -> Iterator[None]:
    with patch.object(engine_module, "masked_hash", _exact_hash), patch.object(volatile, "_is_noise", _no):
        yield


@contextmanager
def _work_forgotten() -> Iterator[None]:
    remember = Engine._remember

    def forgetful(self: Engine, state: TrajectoryState, *rest: Any) -> None:
        remember(self, state, *rest)
        state.last_fresh = -1

    with patch.object(Engine, "_remember", forgetful):
        yield


@contextmanager
def _news_forgotten() -> Iterator[None]:
    remember = Engine._remember

    def forgetful(self: Engine, state: TrajectoryState, *rest: Any) -> None:
        remember(self, state, *rest)
        state.last_news = -1

    with patch.object(Engine, "_remember", forgetful):
        yield


def _equal_forms_only(first: Any, second: Any) -> Comparison:
    return Comparison(Relation.SAME if first.digest == second.digest else Relation.DIFFERENT, "normal forms")


def _streak_without_patience() -> AbstractContextManager[Any]:
    return patch.object(ErrorStreak.__init__, "__defaults__", (3, 10, 1))


_TYPE_BUYS = {
    "TYPE_I_STUTTER": "the plainest loop: one call, one answer, again",
    "TYPE_II_INSANITY": "rewordings of one failing call, and tools that all lead to one state",
    "TYPE_III_PHANTOM": "different calls, one answer: pages that do not move",
    "TYPE_IV_PINGPONG": "cycles of two to six calls or agents",
    "TYPE_V_ERROR_STREAK": "one wall met with ever new calls",
    "TYPE_VI_MONOLOGUE": "claims to be done that are not accepted, and one message said again",
}
ABLATIONS = (
    *(Ablation(f"{kind} off", _TYPE_BUYS[kind], settings={"weights": {kind: 0.0}}) for kind in LOOP_TYPES),
    Ablation("volatile parts not masked", "repeats whose answers carry a clock, an id or a duration", _nothing_masked,
             prepare=_exact_steps),
    Ablation("changing parts not learned", "repeats whose answers carry noise of no known form",
             _replaced(volatile, "_is_noise", _no)),
    Ablation("idle turns off", "one useless call, run after run, for hours", _replaced(Heartbeat, "update", _never)),
    Ablation("news does not reset", "silence while other calls bring something new in between", _news_forgotten),
    Ablation("work in between does not count", "edit and test, with one failure that stays for a while", _work_forgotten),
    Ablation("no patience for waiting", "silence while something is still running, and at a slow pace",
             settings={"poll_patience": 1}),
    Ablation("no patience for transient errors", "retries after timeouts and rate limits", _streak_without_patience),
    Ablation("calls of one turn not grouped", "one model answer with many calls counts once",
             _replaced(Engine, "_joins_batch", _no)),
    Ablation("error messages not reduced to a class", "one error seen through changing names, numbers and paths",
             _replaced(engine_module, "error_signature", _exact_error)),
    Ablation("errors reported as successes believed", "failures of tools that answer an error text with success",
             _replaced(engine_module, "looks_like_error", _no)),
    Ablation("same effect off", "different tools that all lead to one described state",
             _replaced(SameEffect, "update", _never)),
    Ablation("reformulation off", "free text in ever new words that finds nothing", _replaced(Insanity, "_reformulation", _no)),
    Ablation("equal thoughts do not count", "the agent's own word that it does the same again",
             _replaced(Insanity, "_thought", lambda self, seen: "")),
    Ablation("comparator off (equal normal forms only)", "rewordings beyond spelling",
             _replaced(insanity, "compare", _equal_forms_only)),
    Ablation("acknowledgements count as state", "silence on series of writes that all answer ok",
             _replaced(phantom, "describes_state", lambda seen: seen.step.outcome_type == "success")),
    Ablation("claims to be done off", "the commonest loop of strong models", _replaced(Monologue, "_claim", _never)),
    Ablation("equal messages off", "the same sentence with every step", _replaced(Monologue, "_message", _never)),
)  # fmt: skip

_COLUMNS = (
    "off", "recorded: hits", "median delay", "healthy nudged", "stopped", "unknown nudged", "core caught", "core false", "own caught",
    "own false", "what the rule buys",
)  # fmt: skip


def ablation_table(runs: Sequence[Run]) -> Table:
    """One row an ablation; changes against the full engine."""
    full = _counts(judge_all(runs, ours()))
    rows: list[Sequence[Any]] = [("nothing", *map(_plain, full), "")]
    for one in ABLATIONS:
        seen = [one.prepare(run) for run in runs] if one.prepare is not None else runs
        with one.off():
            counts = _counts(judge_all(seen, ours(GuardConfig(**one.settings))))
        rows.append((one.name, *map(_change, counts, full), one.buys))
    note = "First row: counts of the full engine. Other rows: what changes when the rule is off; a dot is no change."
    return Table("ablations", "Ablations", _COLUMNS, rows, note)


def _counts(judged: Sequence[Judged]) -> tuple[float, ...]:
    recorded = figures([one for one in judged if one.run.source not in (PEERS, OWN)])
    core = figures([one for one in judged if one.run.tier == "core"])
    own = figures([one for one in judged if one.run.source == OWN])
    return (
        recorded.hit, middle(recorded.after_first) or 0.0, recorded.nudged, recorded.stopped, recorded.unknown_nudged, core.hit,
        core.nudged, own.hit, own.nudged,
    )  # fmt: skip


def _plain(value: float) -> str:
    return f"{value:g}"


def _change(now: float, before: float) -> str:
    return f"{now - before:+g}" if now != before else "·"
