"""Replay of recorded trajectories: the interventions that would have become due, and their steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.cli.recordings.inputs import Diagnostics, Limits, Recorded, read
from trajectory_guard.cli.recordings.spool import Spool
from trajectory_guard.cli.recordings.streams import file_bytes
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard.spending.prices import price
from trajectory_guard.telemetry import INTERVENTION

if TYPE_CHECKING:
    from trajectory_guard.cli.report.data import Summary


def evaluate(recorded: Recorded, engine: Engine) -> Outcome:
    """Run the engine over one trajectory. A model call is a step from its first repeat on, with the one it repeats."""
    state = engine.new_state(recorded.id)
    steps: list[StepRecord] = []
    verdicts: list[Verdict | None] = []
    calls: dict[str, StepRecord] = {}
    for step in recorded.steps:
        index = state.index
        verdict = engine.observe(state, step)
        if step.model_scope is not None:
            if verdict is None:
                calls[step.step_id] = step
                continue
            if verdict.step_index > index:
                steps.append(calls.get(state.step_ids[index].hex(), step))
                verdicts.append(None)
        steps.append(step)
        verdicts.append(verdict)
    for label in list(state.runs):
        engine.finish_recovery(state, label)
    return Outcome(recorded.id, steps, verdicts, recorded.source, state.recoveries)


def trajectories(
    paths: Iterable[str],
    diagnostics: Diagnostics,
    limits: Limits | None = None,
    dialects: tuple[Dialect, ...] = DIALECTS,
) -> Iterator[Recorded]:
    """Trajectories of all files: step lines as they come, those of spans when all spans are read. Ids are unique."""
    yield from unique_trajectories(_all_trajectories(paths, diagnostics, limits, dialects), diagnostics)


def _all_trajectories(
    paths: Iterable[str], diagnostics: Diagnostics, limits: Limits | None, dialects: tuple[Dialect, ...]
) -> Iterator[Recorded]:
    with Spool(limits, dialects) as spool:
        yield from read_all(paths, diagnostics, spool, limits)
        spool.collect(diagnostics)
        diagnostics.phase("evaluating", spool.count_trajectories())
        for recorded in spool.trajectories():
            diagnostics.progress(1)
            yield recorded


def read_all(
    paths: Iterable[str], diagnostics: Diagnostics, spool: Spool, limits: Limits | None = None
) -> Iterator[Recorded]:
    """Read every file; spans go to ``spool``, trajectories of step lines are yielded."""
    paths = list(paths)
    diagnostics.phase("reading", sum(map(file_bytes, paths)))
    for path in paths:
        for item in read(path, diagnostics, limits):
            if isinstance(item, Recorded):
                yield item
            else:
                if INTERVENTION in item.attributes:
                    diagnostics.intervened(item.attributes)
                spool.add(item, path)


def reaches(one: Outcome | Summary, level: str | None) -> bool:
    """Whether a trajectory gets to the level of ``--fail-on``; None is never reached."""
    if level is None:
        return False
    return (one.first_stop if level == "stop" else one.first_nudge) is not None


def replay(
    paths: Iterable[str], config: GuardConfig, diagnostics: Diagnostics, limits: Limits | None = None
) -> Iterator[Outcome]:
    """Evaluate every trajectory in the files."""
    found = trajectories(paths, diagnostics, limits, table_with(config.dialects))
    for outcome in replay_with([Engine(config.engine_settings(), price=price)], found, diagnostics):
        yield outcome[0]


def replay_with(
    engines: Sequence[Engine], found: Iterable[Recorded], diagnostics: Diagnostics
) -> Iterator[list[Outcome]]:
    """Evaluate every trajectory with several engines: an outcome from each."""
    has_calls = False
    for recorded in found:
        has_calls = has_calls or any(step.model_scope is None for step in recorded.steps)
        outcomes = _outcomes(engines, recorded, diagnostics)
        if outcomes:
            yield outcomes
    if not has_calls and not diagnostics.errors:
        diagnostics.notes.append("no tool call found; `trajectory-guard doctor` says what the files lack")


def _outcomes(engines: Sequence[Engine], recorded: Recorded, diagnostics: Diagnostics) -> list[Outcome]:
    try:
        outcomes = [evaluate(recorded, engine) for engine in engines]
    except Exception as error:  # noqa: BLE001  one odd run must not cost the others
        reason = f"trajectory {recorded.id!r} cannot be evaluated: {type(error).__name__}: {error}"
        diagnostics.fail(recorded.source, reason, recorded.line)
        return []
    if recorded.steps and not any(outcome.steps for outcome in outcomes):
        return []  # model calls only, of which none repeats another one
    return outcomes


def unique_trajectories(found: Iterable[Recorded], diagnostics: Diagnostics) -> Iterator[Recorded]:
    """Give a second trajectory of the same id another one: step lines are separate runs, whatever they are called."""
    numbers: dict[int, int] = {}  # by hash of the id: ids can be long, and there can be millions
    for recorded in found:
        name, number = recorded.id, numbers.get(hash(recorded.id), 0)
        while hash(name) in numbers:
            number += 1
            name = f"{recorded.id}#{number}"
        numbers[hash(recorded.id)] = max(number, 1)
        numbers.setdefault(hash(name), 1)
        if name != recorded.id:
            note = f"a trajectory with id {recorded.id!r} came before; this one is called {name!r}"
            diagnostics.note(recorded.source, note, recorded.line)
            steps = [step._replace(trajectory_id=name) for step in recorded.steps]
            recorded = recorded._replace(id=name, steps=steps)
        yield recorded
