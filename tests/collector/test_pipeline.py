"""The way of every batch through the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.collector.kit import all_spans, by_name, loop, new_scorer, request, span, span_id, tool
from trajectory_guard import telemetry
from trajectory_guard_collector.app.pipeline import Pipeline
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.errors import BadDataError, OverloadedError
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.items import EventKind
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.state.wal import request_of, wal_entry_of


class Backend:
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.keys: list[bytes] = []
        self.wal_entries: list[bytes | None] = []

    async def deliver(self, batch: Batch, *, key: bytes = b"", wal_entry: bytes | None = None) -> None:
        self.batches.append(batch)
        self.keys.append(key)
        self.wal_entries.append(wal_entry)


def pipeline(backend: Backend, scorer: RequestScorer | None = None, **more: Any) -> Pipeline:
    scorer = scorer or new_scorer()
    return Pipeline(scorer, backend, scorer.metrics, **more)


def traces(data: bytes) -> Batch:
    return Batch(Signal.TRACES, data, len(all_spans(data)))


async def test_metrics_and_logs_are_forwarded_untouched() -> None:
    backend = Backend()
    for signal in (Signal.METRICS, Signal.LOGS):
        batch = Batch(signal, b"whatever it is", 3)
        await pipeline(backend).accept(batch)
    assert [batch.data for batch in backend.batches] == [b"whatever it is"] * 2


async def test_traces_are_tagged_and_counted_with_the_guards_own_spans() -> None:
    backend = Backend()
    data = request(*loop(3))
    await pipeline(backend).accept(traces(data))
    (batch,) = backend.batches
    assert by_name(batch.data)[span_id("s2")][telemetry.INTERVENTION] == "NUDGE"
    assert batch.items == len(all_spans(batch.data)) == 5


async def test_a_redelivered_batch_has_the_same_key_and_another_one_has_not() -> None:
    backend = Backend()
    line = pipeline(backend)
    for data in (request(tool("a")), request(tool("b")), bytes(bytearray(request(tool("a"))))):
        await line.accept(traces(data))
    first, other, again = backend.keys
    assert first == again != other


async def test_short_memory_is_a_reason_to_wait() -> None:
    line = pipeline(Backend(), refuse=lambda: "memory")
    with pytest.raises(OverloadedError, match="memory") as refused:
        await line.accept(traces(request(tool("a"))))
    assert refused.value.retry_after_s == 1.0


async def test_what_is_no_request_is_refused_for_good() -> None:
    with pytest.raises(BadDataError):
        await pipeline(Backend()).accept(Batch(Signal.TRACES, b"\x0a\xff", 1))


async def test_an_error_of_the_guard_does_not_cost_the_telemetry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend, scorer = Backend(), new_scorer()

    def broken(*args: Any) -> None:
        raise ZeroDivisionError("engine")

    monkeypatch.setattr(scorer.registry.engine, "observe", broken)
    data = request(*loop(3))
    await pipeline(backend, scorer).accept(traces(data))
    assert backend.batches[0].data == data
    where = {"trajectory_guard_error_where": "evaluate.trajectory"}
    assert scorer.metrics.registry.get_sample_value("trajectory_guard_errors_total", where) == 1
    assert len(scorer.registry) == 0
    monkeypatch.undo()
    await pipeline(backend, scorer).accept(traces(request(*loop(3, prefix="later"))))
    assert by_name(backend.batches[1].data)[span_id("later2")][telemetry.INTERVENTION] == "NUDGE"


async def test_a_trajectory_that_cannot_be_evaluated_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, scorer = Backend(), new_scorer()
    observe = scorer.registry.engine.observe

    def picky(state: Any, step: Any) -> Any:
        if step.trajectory_id == "bad":
            raise ValueError("bad")
        return observe(state, step)

    monkeypatch.setattr(scorer.registry.engine, "observe", picky)
    for one in (*loop(2), tool("bad", conversation="bad"), loop(3)[2]):
        await pipeline(backend, scorer).accept(traces(request(one)))
    assert by_name(backend.batches[-1].data)[span_id("s2")][telemetry.INTERVENTION] == "NUDGE"


async def test_one_odd_span_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, scorer = Backend(), new_scorer()
    take = scorer.identifier._take

    def picky(seen: Any) -> None:
        if seen.span_id == span_id("odd"):
            raise ValueError("odd")
        take(seen)

    monkeypatch.setattr(scorer.identifier, "_take", picky)
    await pipeline(backend, scorer).accept(traces(request(*loop(2), tool("odd"), loop(3)[2])))
    assert by_name(backend.batches[0].data)[span_id("s2")][telemetry.INTERVENTION] == "NUDGE"


async def test_listeners_hear_of_the_parts_before_one_that_is_refused() -> None:
    heard: list[LoopEvent] = []
    backend = Backend()
    line = pipeline(backend, listeners=[heard.extend])
    good = request(*loop(6), *(span(f"o{at}", {"http.method": "GET"}, trace="other") for at in range(2_500)))
    malformed = b"\x0a\x06\x12\x04\x12\x02\x4a\xff"  # an attribute without an end
    with pytest.raises(BadDataError):
        await line.accept(Batch(Signal.TRACES, good + malformed, 2_507))
    found = [event.kind for event in heard]
    assert found == [EventKind.START, EventKind.NUDGE, EventKind.STOP]
    await line.accept(traces(good))
    assert [event.kind for event in heard] == found
    assert sum(one.name.startswith("trajectory_guard") for one in all_spans(backend.batches[0].data)) == 3


async def test_listeners_get_each_event_once_and_may_fail() -> None:
    heard: list[LoopEvent] = []

    def fails(events: Sequence[LoopEvent]) -> None:
        raise RuntimeError("listener")

    line = pipeline(Backend(), listeners=[fails, heard.extend])
    for _ in range(2):
        for one in loop(5):
            await line.accept(traces(request(one)))
    assert [events.kind for events in heard] == ["start", "nudge", "stop"]


async def test_large_batches_let_others_in_between_and_lose_nothing() -> None:
    backend, scorer = Backend(), new_scorer()
    line = pipeline(backend, scorer, wal_entry_of=wal_entry_of)
    others = [span(f"o{at}", {"http.route": "/"}) for at in range(9_000)]
    data = request(*others[:5_000], *loop(3), *others[5_000:])
    turns = 0

    async def others_turn() -> None:
        nonlocal turns
        while not backend.batches:
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(line.accept(traces(data)), others_turn())
    (batch,) = backend.batches
    assert turns > 4
    assert {one.span_id for one in all_spans(data)} <= {one.span_id for one in all_spans(batch.data)}
    assert batch.items == len(all_spans(batch.data))
    assert by_name(batch.data)[span_id("s2")][telemetry.INTERVENTION] == "NUDGE"
    assert backend.wal_entries[0] is not None
    assert len(all_spans(request_of(backend.wal_entries[0]))) == 3


async def test_large_batches_without_findings_pass_as_the_same_object() -> None:
    backend = Backend()
    data = request(*(span(f"o{at}", {"http.route": "/"}) for at in range(3_000)))
    await pipeline(backend).accept(traces(data))
    assert backend.batches[0].data is data


# --- requests that take long to evaluate ------------------------------------------------------------------------------


def of_kind(backend: Backend, level: str) -> int:
    spans = [one for batch in backend.batches for one in by_name(batch.data).values()]
    return sum(one.get(telemetry.INTERVENTION) == level for one in spans if telemetry.TOOL in one)


def state(scorer: RequestScorer, name: str = "c") -> tuple[Any, ...]:
    found = scorer.registry.find(name)
    assert found is not None
    current = [
        verdict.step_index if verdict is not None else None
        for verdict in (found.current.last, found.current.nudge, found.current.stop)
    ]
    return found.steps, found.score, found.episode, found.nudges, current


@pytest.mark.parametrize("count", [60, 2_500], ids=["at once", "in parts"])
async def test_a_request_that_takes_too_long_to_evaluate_is_forwarded_and_evaluated_after_it(count: int) -> None:
    backend, scorer, whole = Backend(), new_scorer(), new_scorer()
    line = pipeline(backend, scorer, evaluate_s=0.0)
    data = request(*loop(count))
    await line.accept(traces(data))
    assert [batch.data for batch in backend.batches] == [data]
    assert scorer.registry.is_behind
    await line.maintain()
    whole.score(data)
    assert not scorer.registry.is_behind
    assert state(scorer) == state(whole)
    assert of_kind(backend, "NUDGE") >= 1
    assert of_kind(backend, "STOP") == 1
    postponed = scorer.metrics.registry.get_sample_value("trajectory_guard_postponed_evaluations_total")
    assert postponed is not None
    assert postponed >= 1


async def test_other_requests_are_evaluated_and_tagged_meanwhile() -> None:
    backend, scorer = Backend(), new_scorer()
    await pipeline(backend, scorer, evaluate_s=0.0).accept(traces(request(*loop(60))))
    line = pipeline(backend, scorer)
    await line.accept(traces(request(*loop(3, prefix="o", conversation="other", trace="other"))))
    assert by_name(backend.batches[-1].data)[span_id("o2")][telemetry.INTERVENTION] == "NUDGE"
    assert scorer.registry.is_behind
    await line.accept(traces(request(*loop(1, prefix="more", start=60.0))))
    assert state(scorer)[0] == 61
    assert not scorer.registry.is_behind


async def test_steps_that_take_too_much_memory_are_not_postponed() -> None:
    backend, scorer = Backend(), new_scorer(max_history_mib=0.01)
    line = pipeline(backend, scorer, evaluate_s=0.0)
    await line.accept(traces(request(*loop(60))))
    assert state(scorer)[0] > 50


async def test_what_is_left_is_evaluated_at_the_end() -> None:
    backend, scorer = Backend(), new_scorer()
    line = pipeline(backend, scorer, evaluate_s=0.0)
    await line.accept(traces(request(*loop(60))))
    await line.finish()
    assert state(scorer)[0] == 60
    assert of_kind(backend, "STOP") == 1


async def test_a_restart_evaluates_what_was_left() -> None:
    backend, scorer, after = Backend(), new_scorer(), new_scorer()
    await pipeline(backend, scorer, evaluate_s=0.0, wal_entry_of=wal_entry_of).accept(traces(request(*loop(60))))
    (wal_entry,) = backend.wal_entries
    assert wal_entry is not None
    after.score(request_of(wal_entry))
    assert state(after)[0] == 60


async def test_a_request_in_progress_that_is_given_up_loses_no_step() -> None:
    scorer = new_scorer()
    at_once(scorer.scoring(request(*loop(60)), evaluate_s=0.0))
    catching_up = scorer.catching_up(10.0)
    next(catching_up)
    catching_up.close()
    assert scorer.registry.is_behind
    scorer.finish()
    assert state(scorer)[0] == 60
