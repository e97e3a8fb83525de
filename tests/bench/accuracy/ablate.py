"""The worth of each rule: the same data, evaluated with one rule switched off at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.bench.accuracy.data import OWN, PEERS, Run
from tests.bench.accuracy.metrics import Evaluated, evaluate_all, figures, middle
from tests.bench.accuracy.systems import ours
from tests.bench.accuracy.tables import Table
from tests.bench.situations import SETS, evaluate_situation, situations
from trajectory_guard.core import engine, failures, reading, weighing
from trajectory_guard.core.content import volatile
from trajectory_guard.core.detectors import LOOP_TYPES, REGISTRY, Detector, Monologue, insanity
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.run import Run as EngineRun
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.similarity import Comparison, Relation
from trajectory_guard.core.steps import ERROR, Certainty
from trajectory_guard.core.tracking import scope


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
    with patch.object(volatile, "masked_hash", _exact_hash), patch.object(volatile, "_is_noise", _no):
        yield


@contextmanager
def _without_words() -> Iterator[None]:
    with (
        patch.object(weighing, "is_pending", _no), patch.object(weighing, "reports_status", _no),
        patch.object(failures, "is_pending", _no), patch.object(failures, "reports_status", _no),
    ):  # fmt: skip
        yield


@contextmanager
def _without_transient_errors() -> Iterator[None]:
    with patch.object(weighing, "may_pass", _no), patch.object(reading, "may_pass", _no):
        yield


@contextmanager
def _without_pauses() -> Iterator[None]:
    with patch.object(scope, "is_paced", _no), patch.object(scope, "RETRY_PAUSE_S", float("inf")):
        yield


def _certain(*args: Any, **kwargs: Any) -> Certainty:
    return Certainty.CERTAIN


def _equal_forms_only(first: Any, second: Any) -> Comparison:
    return Comparison(Relation.SAME if first.digest == second.digest else Relation.DIFFERENT, "normal forms")


def _detector_off(kind: type[Detector]) -> Ablation:
    """The row of a detector; the first line of its docstring says what its rules are for."""
    summary = (kind.__doc__ or "").partition("\n")[0].removeprefix("Fires when ").removesuffix(".")
    return Ablation(f"`{'`, `'.join(kind.rules)}` off", summary, _replaced(kind, "update", _never))


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
    Ablation("progress does not reset", "silence while other calls bring something new in between",
             _replaced(EngineRun, "note_progress", _never)),
    Ablation("all evidence is certain", "runs that wait, act on acknowledgements or try other ways",
             _replaced(weighing, "_certainty", _certain)),
    Ablation("transient errors are like others", "retries after timeouts, locks and rate limits",
             _without_transient_errors),
    Ablation("pauses mean nothing", "polling and back-off, whatever the words", _without_pauses),
    Ablation("no words for waiting", "polling at full speed whose answer says so in one of a few languages", _without_words),
    Ablation("loops between agents off", "work that goes round between fresh agents",
             _replaced(engine, "advance", lambda visit, *rest: (None, None))),
    Ablation("error messages not reduced to a class", "one error seen through changing names, numbers and paths",
             _replaced(failures, "error_signature", _exact_error)),
    Ablation("reformulation off", "free text in ever new words that finds nothing",
             _replaced(insanity, "doubt_of", lambda *rest: 0.0)),
    Ablation("equal thoughts do not count", "the agent's own word that it does the same again",
             _replaced(insanity, "same_names", _no)),
    Ablation("comparator off (equal normal forms only)", "rewordings beyond spelling",
             _replaced(insanity, "compare", _equal_forms_only)),
    Ablation("claims to be done off", "the commonest loop of strong models", _replaced(Monologue, "_claim", _never)),
    Ablation("equal messages off", "the same sentence with every step", _replaced(Monologue, "_message", _never)),
    *(_detector_off(kind) for kind in REGISTRY.values() if kind is not Monologue),  # its two rules stand above
)  # fmt: skip

_COLUMNS = (
    "off", "recorded: hits", "median delay", "healthy nudged", "stopped", "unknown nudged", "core caught", "core false", "own caught",
    "own false", "situations right", "wrong stops", "what the rule buys",
)  # fmt: skip


_WAITING = {
    "no words for waiting": "without words for waiting",
    "pauses mean nothing": "without pauses",
    "all evidence is certain": "with all evidence treated as certain",
}


class Paragraph(NamedTuple):
    """Prose of a document between markers."""

    name: str
    text: str

    def markdown(self) -> str:
        """The lines between the markers."""
        return self.text


def waiting_paragraph(wrong_stops: Mapping[str, str]) -> Paragraph:
    """What keeps waiting runs from a stop, in the figures of the table.

    Parameters:
        wrong_stops: the table's column of wrong stops, by the name of the row; a dot is no change.
    """
    counts = {name: int(wrong_stops[name].replace("·", "0")) for name in _WAITING}
    parts = ", ".join(f"{_WAITING[name]} **{count}**" for name, count in counts.items())
    return Paragraph(
        "waiting",
        f"Situations that are then stopped wrongly beyond those above: {parts} ([ablation](#what-each-rule-buys)).",
    )


def ablation_table(runs: Sequence[Run]) -> Table:
    """One row an ablation; changes against the full engine. Takes some eight seconds a row with all recorded runs."""
    named = [one for name in SETS for one in situations(name)]
    began = time.monotonic()
    full = (*_counts(evaluate_all(runs, ours())), *_named(named, EngineSettings()))
    minutes = (time.monotonic() - began) * len(ABLATIONS) / 60
    print(f"{len(ABLATIONS)} ablations, about {minutes:.1f} minutes", file=sys.stderr)
    rows: list[Sequence[Any]] = [("nothing", *map(_plain, full), "")]
    for one in ABLATIONS:
        seen = [one.prepare(run) for run in runs] if one.prepare is not None else runs
        with one.off():
            settings = EngineSettings(**one.settings)
            counts = (*_counts(evaluate_all(seen, ours(settings))), *_named(named, settings))
        rows.append((one.name, *map(_change, counts, full), one.buys))
    note = "First row: counts of the full engine. Other rows: what changes when the rule is off; a dot is no change."
    return Table("ablations", "Ablations", _COLUMNS, rows, note)


def _counts(evaluated: Sequence[Evaluated]) -> tuple[float, ...]:
    recorded = figures([one for one in evaluated if one.run.source not in (PEERS, OWN)])
    core = figures([one for one in evaluated if one.run.tier == "core"])
    own = figures([one for one in evaluated if one.run.source == OWN])
    return (
        recorded.hit, middle(recorded.after_first) or 0.0, recorded.nudged, recorded.stopped, recorded.unknown_nudged, core.hit,
        core.nudged, own.hit, own.nudged,
    )  # fmt: skip


def _named(named: Sequence[Mapping[str, Any]], settings: EngineSettings) -> tuple[float, float]:
    """Situations that come out right, and those that are stopped wrongly."""
    found = [evaluate_situation(one, settings) for one in named]
    return sum(one.right for one in found), sum(one.wrongly_stopped for one in found)


def _plain(value: float) -> str:
    return f"{value:g}"


def _change(now: float, before: float) -> str:
    return f"{now - before:+g}" if now != before else "·"
