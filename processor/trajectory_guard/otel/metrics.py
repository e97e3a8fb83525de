"""The guard's metrics: observable instruments over the board's plain counters; evaluating a step calls none of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter_provider
from opentelemetry.util.types import AttributeValue

from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.runtime import SharedBoard
from trajectory_guard.version import __version__

if TYPE_CHECKING:
    from trajectory_guard.spending.booked import BookedModel

Callback = Callable[[CallbackOptions], Iterable[Observation]]
_Source = TypeVar("_Source")
Reading = Callable[[FlagBoard], Iterable[Observation]]


class _Counted(Protocol):
    """The counters of a board."""

    counts: Counter[str]

    @property
    def loop_cost_usd(self) -> Mapping[str, float]: ...


CountReading = Callable[[_Counted], Iterable[Observation]]


class _Ended:
    """The sums of boards that no longer exist. Without them a counter would fall when a board is freed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.loop_cost_usd: dict[str, float] = {}
        self._new: deque[_Counts] = deque()  # the garbage collector may free a board while the sums are read
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()  # several readers may ask at once

    def follow(self, board: FlagBoard) -> None:
        """Take over what ``board`` has counted when it is freed."""
        finalize(board, self._new.append, _Counts(board.counts, board.loop_cost_usd)).atexit = False

    def catch_up(self) -> _Ended:
        """Itself, with all boards that have been freed until now."""
        with self._lock:
            while self._new:
                counts, cost = self._new.popleft()
                self.counts.update(counts)
                for certainty, usd in cost.items():
                    self.loop_cost_usd[certainty] = self.loop_cost_usd.get(certainty, 0.0) + usd
        return self


class _Counts(NamedTuple):
    counts: Mapping[str, int]
    loop_cost_usd: Mapping[str, float]


class _Boards(NamedTuple):
    """The boards that one meter reports, the sums of those before them, and its latency histogram."""

    boards: WeakSet[FlagBoard]
    ended: _Ended
    latency: Histogram


class _Registry:
    """The boards of each meter. They share its instruments: the SDK ignores a second instrument of one name."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Meter, _Boards] = WeakKeyDictionary()
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    def add(self, meter: Meter, board: FlagBoard) -> Histogram:
        with self._lock:
            known = next((boards for one, boards in self._known.items() if _real(one) is _real(meter)), None)
            if known is None:
                known = _Boards(WeakSet(), _Ended(), _latency(meter))
                self._known[meter] = known
                _create(meter, known.boards, known.ended)
            if board not in known.boards:
                known.boards.add(board)
                known.ended.follow(board)
            return known.latency

    def reports(self, board: FlagBoard) -> bool:
        """Whether a meter reports a board."""
        return any(board in known.boards for known in list(self._known.values()))


def _latency(meter: Meter) -> Histogram:
    metric = telemetry.LATENCY
    return meter.create_histogram(
        metric.name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=telemetry.LATENCY_BOUNDS_S
    )


def _real(meter: Meter) -> object:
    """The meter itself, or that behind a proxy; all proxies are one as long as the application has set no provider."""
    return getattr(meter, "_real_meter", meter) or type(meter)


_registry: Final = _Registry()


def register(meter: Meter, board: FlagBoard) -> Histogram:
    """Report a board on ``meter`` by all instruments of ``telemetry.METRICS``; returns the latency histogram (seconds).

    Several boards of one meter are reported as one: counters are added up.
    """
    return _registry.add(meter, board)


def meter_of(provider: MeterProvider | None = None) -> Meter:
    """The guard's meter; by default that of the global provider."""
    return (provider or get_meter_provider()).get_meter(telemetry.SCOPE, __version__)


def register_globally(board: FlagBoard) -> None:
    """Report the process's board on the global provider, unless it is reported: a gate may use it alone."""
    if isinstance(board, SharedBoard) and not _registry.reports(board):
        register(meter_of(), board)


def _create(meter: Meter, boards: WeakSet[FlagBoard], ended: _Ended) -> None:
    def sources() -> list[_Counted]:
        return [*boards, ended.catch_up()]

    def total(of: CountReading) -> Callback:
        return _sums(sources, of)

    plain = {
        telemetry.STEPS: "steps", telemetry.RECOVERIES: "recoveries", telemetry.DUPLICATES: "duplicates",
        telemetry.FINGERPRINTED: "fingerprinted", telemetry.CERTIFICATES_LEFT_OUT: "certificates_left_out",
    }  # fmt: skip
    for metric, key in plain.items():
        _counter(meter, metric, total(partial(_value, key=key)))
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
        _counter(meter, metric, total(partial(_family, prefix=prefix, attribute=metric.attributes[0])))
    by_certainty = {
        telemetry.INTERVENTIONS: "interventions.", telemetry.EPISODES: "episodes.",
        telemetry.LOOP_STEPS: "loop_steps.", telemetry.LOOP_TOKENS: "loop_tokens.",
    }  # fmt: skip
    for metric, prefix in by_certainty.items():
        of = partial(_by_certainty, prefix=f"certainty.{prefix}", attributes=metric.attributes)
        _counter(meter, metric, total(of))
    _counter(meter, telemetry.LOOP_COST, total(_cost))
    _up_down(meter, telemetry.ACTIVE, _over(boards, lambda board: [Observation(len(board))]))
    _create_spending(meter, boards)
    _gauge(meter, telemetry.QUALITY_MEAN, _over(boards, _quality, join=_mean))


def _over(boards: WeakSet[FlagBoard], of: Reading, *, join: Callable[[list[float]], float] = sum) -> Callback:
    """Observations of all boards; those with equal attributes become one, of which ``join`` makes the value."""
    return _sums(lambda: list(boards), of, join=join)


def _sums(
    sources: Callable[[], list[_Source]], of: Callable[[_Source], Iterable[Observation]],
    *, join: Callable[[list[float]], float] = sum,
) -> Callback:  # fmt: skip
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        found: dict[tuple[tuple[str, AttributeValue], ...], list[float]] = {}
        for source in sources():
            for one in of(source):
                found.setdefault(tuple((one.attributes or {}).items()), []).append(one.value)
        return [Observation(join(values), dict(attributes)) for attributes, values in found.items()]

    return observe


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _create_spending(meter: Meter, boards: WeakSet[FlagBoard]) -> None:
    """Without a ledger these have no series."""

    def by_model(value: Callable[[BookedModel], float | None]) -> Callback:
        def read(board: FlagBoard) -> Iterable[Observation]:
            for booked in board.spending.booked_here() if board.spending is not None else ():
                found = value(booked)
                if found is not None:
                    yield Observation(found, {telemetry.MODEL: booked.model})

        return _over(boards, read)

    def ratios(board: FlagBoard) -> Iterable[Observation]:
        for state in board.spending.shown() if board.spending is not None else ():
            attributes = {
                telemetry.BUDGET_SCOPE: state.account.scope, telemetry.BUDGET_NAME: state.account.name,
                telemetry.BUDGET_LIMIT: state.budget.words,
            }  # fmt: skip
            yield Observation(state.used, attributes)

    _counter(meter, telemetry.SPENDING_TOKENS, by_model(lambda one: one.sums.input_tokens + one.sums.output_tokens))
    _counter(meter, telemetry.SPENDING_COST, by_model(lambda one: one.micro_usd and one.micro_usd / 1e6))
    _up_down(meter, telemetry.SPENDING_UNPRICED, by_model(lambda one: one.unpriced or None))
    _gauge(meter, telemetry.BUDGET_RATIO, _over(boards, ratios, join=max))


def _quality(board: FlagBoard) -> Iterable[Observation]:
    for source, name, mean in board.quality.shown() if board.quality is not None else ():
        yield Observation(mean, {telemetry.QUALITY_SOURCE: source, telemetry.EVALUATION: name})


def _gauge(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    meter.create_observable_gauge(metric.name, [callback], metric.unit, metric.meaning)


def _up_down(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    """An amount that falls, too, and that is added up over processes."""
    meter.create_observable_up_down_counter(metric.name, [callback], metric.unit, metric.meaning)


def _counter(meter: Meter, metric: telemetry.Metric, callback: Callback) -> None:
    meter.create_observable_counter(metric.name, [callback], metric.unit, metric.meaning)


def _value(board: _Counted, *, key: str) -> Iterable[Observation]:
    return [Observation(board.counts[key])]


def _by_certainty(board: _Counted, *, prefix: str, attributes: tuple[str, ...]) -> Iterable[Observation]:
    return [
        Observation(count, dict(zip(attributes, key.removeprefix(prefix).split("."), strict=True)))
        for key, count in list(board.counts.items())
        if key.startswith(prefix)
    ]


def _cost(board: _Counted) -> Iterable[Observation]:
    return [Observation(usd, {telemetry.LOOP_CERTAINTY: one}) for one, usd in list(board.loop_cost_usd.items())]


def _family(board: _Counted, *, prefix: str, attribute: str) -> Iterable[Observation]:
    return [
        Observation(count, {attribute: key.removeprefix(prefix)})
        for key, count in list(board.counts.items())
        if key.startswith(prefix)
    ]
