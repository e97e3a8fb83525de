"""The guard's metrics: observable instruments over the board's plain counters; evaluating a step calls none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation, get_meter_provider

from trajectory_guard import telemetry
from trajectory_guard.runtime import SharedBoard
from trajectory_guard.store import FlagBoard

if TYPE_CHECKING:
    from trajectory_guard.spending.ledger import ModelSum

Callback = Callable[[CallbackOptions], Iterable[Observation]]
_registered: Final[WeakSet[FlagBoard]] = WeakSet()


def register_globally(board: FlagBoard) -> None:
    """Create the instruments of the process's board on the global provider, unless a processor has created them.

    A gate may use that board without any processor. Boards of gates' own are not registered: a meter keeps what it
    observes for good.
    """
    if isinstance(board, SharedBoard) and board not in _registered:
        register(get_meter_provider().get_meter(telemetry.SCOPE), board)


def register(meter: Meter, board: FlagBoard) -> Histogram:
    """Create all instruments of ``telemetry.METRICS`` on ``meter``; returns the latency histogram (seconds)."""
    _registered.add(board)
    plain = {
        telemetry.STEPS: "steps", telemetry.RECOVERIES: "recoveries", telemetry.DUPLICATES: "duplicates",
        telemetry.FINGERPRINTED: "fingerprinted",
    }  # fmt: skip
    for metric, key in plain.items():
        _counter(meter, metric, _value(board, key))
    families = {
        telemetry.DETECTIONS: "detections.",
        telemetry.REFUSALS: "refusals.", telemetry.HAND_FLAGS: "flags.",
        telemetry.EVICTIONS: "evicted_", telemetry.ERRORS: "errors.",
        telemetry.EXPIRED: "expired_", telemetry.SETTLED: "settle.", telemetry.SCORES: "scores.",
        telemetry.SCORE_ATTEMPTS_FAILED: "score_attempts.", telemetry.SPENDING_EVENTS: "spending.",
        telemetry.REQUIRED_MISSING: "required_missing.",
        telemetry.BUDGET_ALERTS: "budget_alerts.", telemetry.BUDGET_ACTIONS: "budget_actions.",
        telemetry.QUALITY_EVENTS: "quality.",
    }  # fmt: skip
    for metric, prefix in families.items():
        _counter(meter, metric, _family(board, prefix, metric.attributes[0]))
    by_certainty = {
        telemetry.INTERVENTIONS: "interventions.", telemetry.EPISODES: "episodes.",
        telemetry.LOOP_STEPS: "loop_steps.", telemetry.LOOP_TOKENS: "loop_tokens.",
    }  # fmt: skip
    for metric, prefix in by_certainty.items():
        _counter(meter, metric, _by_certainty(board, f"certainty.{prefix}", metric.attributes))
    _counter(meter, telemetry.LOOP_COST, _cost(board))
    _gauge(meter, telemetry.ACTIVE, lambda options: [Observation(len(board))])
    _register_spending(meter, board)
    _gauge(meter, telemetry.QUALITY_MEAN, _quality(board))
    return meter.create_histogram(telemetry.LATENCY.name, telemetry.LATENCY.unit, telemetry.LATENCY.meaning)


def _register_spending(meter: Meter, board: FlagBoard) -> None:
    """Without a ledger these have no series."""

    def by_model(value: Callable[[ModelSum, int | None], float | None]) -> Callback:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for model, sums, micro in board.spending.booked_here() if board.spending is not None else ():
                found = value(sums, micro)
                if found is not None:
                    yield Observation(found, {telemetry.MODEL: model})

        return observe

    def ratios(options: CallbackOptions) -> Iterable[Observation]:
        for state in board.spending.shown() if board.spending is not None else ():
            attributes = {
                telemetry.BUDGET_SCOPE: state.account.scope, telemetry.BUDGET_NAME: state.account.name,
                telemetry.BUDGET_LIMIT: state.budget.words,
            }  # fmt: skip
            yield Observation(state.used, attributes)

    _counter(meter, telemetry.SPENDING_TOKENS, by_model(lambda sums, micro: sums.input_tokens + sums.output_tokens))
    _counter(meter, telemetry.SPENDING_COST, by_model(lambda sums, micro: None if micro is None else micro / 1e6))
    open_tokens = by_model(lambda sums, micro: sums.open_input + sums.open_output if micro is None else None)
    _gauge(meter, telemetry.SPENDING_UNPRICED, open_tokens)
    _gauge(meter, telemetry.BUDGET_RATIO, ratios)


def _quality(board: FlagBoard) -> Callback:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        for source, name, mean in board.quality.shown() if board.quality is not None else ():
            yield Observation(mean, {"source": source, telemetry.EVALUATION: name})

    return observe


def _gauge(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    meter.create_observable_gauge(metric.name, [callback], metric.unit, metric.meaning)


def _counter(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    meter.create_observable_counter(metric.name, [callback], metric.unit, metric.meaning)


def _value(board: FlagBoard, key: str) -> Callback:
    return lambda options: [Observation(board.counts[key])]


def _by_certainty(board: FlagBoard, prefix: str, attributes: tuple[str, ...]) -> Callback:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(count, dict(zip(attributes, key.removeprefix(prefix).split("."), strict=True)))
            for key, count in list(board.counts.items())
            if key.startswith(prefix)
        ]

    return observe


def _cost(board: FlagBoard) -> Callback:
    return lambda options: [
        Observation(usd, {telemetry.LOOP_CERTAINTY: one}) for one, usd in list(board.loop_cost_usd.items())
    ]


def _family(board: FlagBoard, prefix: str, attribute: str) -> Callback:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(count, {attribute: key.removeprefix(prefix)})
            for key, count in list(board.counts.items())
            if key.startswith(prefix)
        ]

    return observe
