"""From a step to a verdict: the engine alone, at several lengths of history, healthy and looping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from tests.bench import shapes
from tests.bench.measure import Effort, Figures, Probe, interleave
from tests.bench.report import Row
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.steps import StepRecord

LENGTHS = (10, 100, 1_000, 10_000)
FLAT = 1.5
COPIES = 32
_KINDS: tuple[tuple[str, Callable[[int], StepRecord], tuple[int, ...], float], ...] = (
    ("healthy step", shapes.healthy, LENGTHS, 10.0),
    ("looping step, same call", shapes.repeated, LENGTHS, 30.0),
    ("looping step, reworded and failing", shapes.reworded, LENGTHS[:-1], 250.0),
)
"""Kinds of steps, the lengths of history before them, and the target in µs. The texts of the last kind recur, as those
of an agent that goes round do, so that their words are remembered."""
_ids = count(1 << 40)


def rows(effort: Effort) -> Iterator[Row]:
    """Per kind of step: one row per length of history, and how flat they are."""
    for name, step_at, lengths, most in _KINDS:
        figures = _measure(step_at, lengths, effort.rounds)
        for length in lengths:
            yield Row(f"engine, {name}, at step {length:,}", figures.median(str(length)), "us", most=most)
        first, last = (figures.median(str(length)) for length in (lengths[0], lengths[-1]))
        yield Row(f"engine, {name}: flat", last, "us", first, f"at step {lengths[0]}", FLAT, True)


def _measure(step_at: Callable[[int], StepRecord], lengths: tuple[int, ...], rounds: int) -> Figures:
    engine = Engine()
    probes = [Probe(str(length), _copies(engine, step_at, length), _observe(engine)) for length in lengths]
    return interleave(probes, rounds)


def _observe(engine: Engine) -> Callable[[tuple[Any, StepRecord]], object]:
    return lambda item: engine.observe(*item)


def _copies(engine: Engine, step_at: Callable[[int], StepRecord], length: int) -> Callable[[], list[Any]]:
    """States that have seen ``length`` steps and up to ``COPIES`` more, each with the step that comes next.

    Some work is due every few steps only; over ``COPIES`` steps in a row it enters the mean.
    """
    state = engine.new_state("bench")
    saved: list[tuple[bytes, StepRecord]] = []
    for index in range(length + COPIES):
        if index >= length:
            saved.append((state.to_bytes(), step_at(index)))
        engine.observe(state, step_at(index))

    def prepare() -> list[Any]:
        return [(engine.load_state(data), step._replace(step_id=f"{next(_ids):016x}")) for data, step in saved]

    return prepare
