"""The guard's metrics: observable instruments over the board's plain counters; evaluating a step calls none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from trajectory_guard import telemetry
from trajectory_guard.store import FlagBoard

Callback = Callable[[CallbackOptions], Iterable[Observation]]


def register(meter: Meter, board: FlagBoard) -> Histogram:
    """Create all instruments of ``telemetry.METRICS`` on ``meter``; returns the latency histogram (seconds)."""
    plain = {
        telemetry.STEPS: "steps", telemetry.RECOVERIES: "recoveries", telemetry.DUPLICATES: "duplicates",
        telemetry.FINGERPRINTED: "fingerprinted",
        telemetry.LOOP_STEPS: "loop_steps", telemetry.LOOP_TOKENS: "loop_tokens",
    }  # fmt: skip
    for metric, key in plain.items():
        _counter(meter, metric, _value(board, key))
    families = {
        telemetry.DETECTIONS: "detections.", telemetry.INTERVENTIONS: "interventions.",
        telemetry.REFUSALS: "refusals.", telemetry.HAND_FLAGS: "flags.",
        telemetry.EPISODES: "episodes.", telemetry.EVICTIONS: "evicted_", telemetry.ERRORS: "errors.",
        telemetry.EXPIRED: "expired_", telemetry.SETTLED: "settle.", telemetry.SCORES: "scores.",
        telemetry.SCORE_ATTEMPTS_FAILED: "score_attempts.",
    }  # fmt: skip
    for metric, prefix in families.items():
        _counter(meter, metric, _family(board, prefix, metric.attributes[0]))
    _counter(meter, telemetry.LOOP_COST, lambda options: [Observation(board.loop_cost_usd)])
    meter.create_observable_gauge(
        telemetry.ACTIVE.name,
        [lambda options: [Observation(len(board))]],
        telemetry.ACTIVE.unit,
        telemetry.ACTIVE.meaning,
    )
    return meter.create_histogram(telemetry.LATENCY.name, telemetry.LATENCY.unit, telemetry.LATENCY.meaning)


def _counter(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    meter.create_observable_counter(metric.name, [callback], metric.unit, metric.meaning)


def _value(board: FlagBoard, key: str) -> Callback:
    return lambda options: [Observation(board.counts[key])]


def _family(board: FlagBoard, prefix: str, attribute: str) -> Callback:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(count, {attribute: key.removeprefix(prefix)})
            for key, count in list(board.counts.items())
            if key.startswith(prefix)
        ]

    return observe
