"""Timing: many short rounds, the things compared take turns in each, medians of rounds, loop overhead removed.

Machines drift (frequency, neighbours) by more than the differences of interest. Two figures are comparable only if
their rounds alternate, and a difference is the median of the differences within one round. Time is that of the
thread on the processor: by the wall, a busy machine interrupts long rounds and spares short ones.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import get_clock_info, perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple

WARM_UP_ROUNDS = 2
_clock_ns = thread_time_ns if get_clock_info("thread_time").resolution <= 1e-6 else perf_counter_ns


class Effort(NamedTuple):
    """How much to measure: ``rounds`` per probe, ``trajectories`` in memory, ``spans`` in a recorded file."""

    rounds: int
    trajectories: int
    spans: int

    def times(self, factor: float) -> int:
        """A share of the rounds, for probes that are costly to prepare."""
        return max(5, round(self.rounds * factor))


FULL = Effort(rounds=120, trajectories=500, spans=1_000_000)
QUICK = Effort(rounds=10, trajectories=10, spans=20_000)


class Probe(NamedTuple):
    """One thing to time.

    Fields:
        name: key of its figures.
        prepare: makes the inputs of one round; not timed.
        call: what is timed, once per input.
    """

    name: str
    prepare: Callable[[], Sequence[Any]]
    call: Callable[[Any], object]


class Figures:
    """Microseconds per call, by probe and round."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[float]] = {}

    def add(self, name: str, microseconds: float) -> None:
        self.rounds.setdefault(name, []).append(microseconds)

    def median(self, name: str) -> float:
        """Median over the rounds, in µs per call."""
        return median(self.rounds[name])

    def added(self, name: str, without: str) -> float:
        """Median over the rounds of what ``name`` cost more than ``without`` in the same round, in µs per call."""
        return median(a - b for a, b in zip(self.rounds[name], self.rounds[without], strict=True))


def interleave(probes: Sequence[Probe], rounds: int) -> Figures:
    """Time all ``probes`` in turns; the order rotates from round to round."""
    figures = Figures()
    with quiet_collector():
        for number in range(-WARM_UP_ROUNDS, rounds):
            start = number % len(probes)
            for probe in (*probes[start:], *probes[:start]):
                took = _round(probe)
                if number >= 0:
                    figures.add(probe.name, took)
            gc.collect(1)
    return figures


def _round(probe: Probe) -> float:
    inputs = probe.prepare()
    idle = _loop(_nothing, inputs)
    return (_loop(probe.call, inputs) - idle) / len(inputs) / 1_000


def _loop(call: Callable[[Any], object], inputs: Iterable[Any]) -> int:
    started = _clock_ns()
    for item in inputs:
        call(item)
    return _clock_ns() - started


def _nothing(item: Any) -> None:
    """The cost of the loop and of one empty call, which every probe pays."""


@contextmanager
def quiet_collector() -> Iterator[None]:
    """No cyclic garbage collection by itself: it would strike at random. What exists already is left out of it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
