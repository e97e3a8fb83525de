"""Memory of trajectories: what is kept, what is given back, and what is still known afterwards."""

from __future__ import annotations

import gc
import time
import tracemalloc
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import (
    START_NS,
    by_name,
    comparable,
    loop,
    new_scorer,
    request,
    span,
    span_id,
    tool,
    trace_id,
    verdicts,
    views,
)
from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.scoring.seen import SeenSpans
from trajectory_guard_collector.scoring.traces import SpanNode, TraceTable
from trajectory_guard_collector.state.codec import dump, load
from trajectory_guard_collector.telemetry.metrics import Metrics

MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def healthy(count: int, start: int = 0) -> list[bytes]:
    return [request(tool(f"h{at}", {"q": at}, f"answer {at}", at=at)) for at in range(start, start + count)]


def test_a_long_trajectory_keeps_only_what_can_be_put_in_order() -> None:
    scorer = new_scorer(reorder_steps=64)
    for data in healthy(1_000):
        scorer.score(data)
    trajectory = next(iter(scorer.registry))
    assert trajectory.steps == 1_000
    assert 64 <= len(trajectory.items) <= 64 + 2 * 64
    assert len(scorer.registry._items) == len(trajectory.items)


def test_trimming_changes_no_verdict() -> None:
    requests = [request(one) for one in (*loop(3), *loop(200, prefix="x", start=10.0, tool_name="other"))]
    requests[40:40] = healthy(90, start=500)
    ordered = sorted(requests, key=lambda data: views(data)[0].end)
    expected = comparable(evaluate_in_process([view for data in ordered for view in views(data)]))
    scorer = new_scorer(reorder_steps=16)
    for data in ordered:
        scorer.score(data)
    found = comparable(verdicts(scorer))
    assert found
    assert found == {key: expected[key] for key in found}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=30, max_size=120), st.randoms(use_true_random=False))
def test_late_steps_within_the_window_are_put_in_order(questions: list[int], random: object) -> None:
    spans = [tool(f"s{at}", {"q": q}, f"answer {q}", at=at) for at, q in enumerate(questions)]
    requests = [request(one) for one in spans]
    late = requests[:]
    for at in range(0, len(late) - 8, 8):  # shuffle within eight neighbours
        part = late[at : at + 8]
        random.shuffle(part)  # type: ignore[attr-defined]
        late[at : at + 8] = part
    scorer, ordered = new_scorer(reorder_steps=8), new_scorer(reorder_steps=8)
    for data in late:
        scorer.score(data)
    for data in requests:
        ordered.score(data)
    scorer.finish()
    first, second = next(iter(scorer.registry)), next(iter(ordered.registry))
    assert (first.steps, first.score, first.episode) == (second.steps, second.score, second.episode)


def test_steps_older_than_the_window_are_evaluated_as_they_come_and_counted() -> None:
    scorer = new_scorer(reorder_steps=8)
    for data in healthy(200, start=10):
        scorer.score(data)
    scorer.score(request(tool("old", {"q": "old"}, "old", at=0)))
    assert next(iter(scorer.registry)).steps == 201
    assert counted(scorer.metrics, "trajectory_guard_late_steps_total", how="too_late") == 1


def test_a_clock_that_jumps_back_does_not_reorder_the_past() -> None:
    scorer = new_scorer(reorder_s=300)
    for one in loop(2, start=10_000.0):
        scorer.score(request(one))
    scorer.score(request(tool("third", at=1.0)))
    assert verdicts(scorer)[span_id("third").hex()].step_index == 2


def test_a_clock_that_jumps_forward_and_back_loses_no_step() -> None:
    scorer = new_scorer(reorder_s=300)
    for at, jump in enumerate((0.0, 1e6, 0.0, 1e6, 0.0, -1e6)):
        scorer.score(request(tool(f"s{at}", at=1e7 + jump + at)))
    assert next(iter(scorer.registry)).steps == 6


def test_idle_trajectories_give_their_steps_back_and_go_on() -> None:
    clock = Clock()
    scorer = new_scorer(clock=clock, reorder_s=60)
    spans = loop(5)
    for one in spans[:2]:
        scorer.score(request(one))
    clock.now = 100.0
    scorer.score(request(tool("else", conversation="d")))
    trajectory = scorer.registry.find("c")
    assert trajectory is not None
    assert trajectory.items == []
    assert scorer.score(request(spans[0])).data == request(spans[0])  # delivered again: changes nothing
    assert trajectory.steps == 2
    for one in spans[2:]:
        scorer.score(request(one))
    assert trajectory.current.last is not None
    assert (trajectory.steps, trajectory.current.last.level) == (5, "STOP")


def test_history_is_bounded_over_all_trajectories() -> None:
    scorer = new_scorer(max_history_mib=0.05)
    for at in range(400):
        scorer.score(request(tool(f"s{at}", {"q": at}, "x" * 500, conversation=f"c{at % 100}", at=at)))
    assert scorer.registry.kept_bytes <= 0.05 * 1024 * 1024 + 4_000
    assert sum(trajectory.steps for trajectory in scorer.registry) == 400


def test_trajectories_are_bounded_by_number_and_evictions_counted() -> None:
    scorer = new_scorer(GuardConfig(max_trajectories=10))
    for at in range(50):
        scorer.score(request(tool(f"s{at}", conversation=f"c{at}", trace=f"t{at}", at=at)))
    assert len(scorer.registry) == 10
    assert counted(scorer.metrics, "trajectory_guard_evictions_total", trajectory_guard_eviction_reason="full") == 40


@pytest.mark.parametrize(
    "idle_s, reason", [(0.0, "full"), (299.0, "full"), (301.0, "full_idle"), (3_000.0, "full_idle")]
)
def test_trajectories_that_are_at_rest_and_give_way_to_new_ones_are_counted_apart(idle_s: float, reason: str) -> None:
    now = [0.0]
    scorer = new_scorer(GuardConfig(max_trajectories=10), clock=lambda: now[0])
    for at in range(20):
        now[0] += idle_s if at == 10 else 0.0
        scorer.score(request(tool(f"s{at}", conversation=f"c{at}", trace=f"t{at}", at=at)))
    by_reason = "trajectory_guard_eviction_reason"
    evicted = partial(counted, scorer.metrics, "trajectory_guard_evictions_total")
    found = [evicted(**{by_reason: one}) for one in ("full", "full_idle")]
    assert found == ([10, 0] if reason == "full" else [0, 10])


def test_short_memory_evicts_idle_trajectories_once_nothing_else_can_be_freed() -> None:
    """They would keep the memory above its limit, and all senders refused, until ``idle_ttl_s``, an hour by default."""
    clock = Clock()
    scorer = new_scorer(clock=clock)
    for at in range(40):
        clock.now += 0.0 if at != 20 else 301.0
        scorer.score(request(tool(f"s{at}", conversation=f"c{at}", trace=f"t{at}", at=at)))
    while scorer.registry.kept_bytes:
        assert scorer.shed()
    assert len(scorer.registry) == 40
    for left in (30, 22, 20):
        assert scorer.shed()
        scorer.maintain()
        assert len(scorer.registry) == left
    assert not scorer.shed()  # the others are in use
    scorer.maintain()
    assert [trajectory.key[1] for trajectory in scorer.registry] == [f"c{at}" for at in range(20, 40)]
    assert counted(scorer.metrics, "trajectory_guard_evictions_total", trajectory_guard_eviction_reason="memory") == 20


def test_idle_trajectories_are_evicted() -> None:
    clock = Clock()
    scorer = new_scorer(GuardConfig(idle_ttl_s=100), clock=clock)
    scorer.score(request(tool("s")))
    clock.now = 200.0
    scorer.score(request(tool("t", conversation="d")))
    assert [trajectory.key[1] for trajectory in scorer.registry] == ["d"]
    assert counted(scorer.metrics, "trajectory_guard_evictions_total", trajectory_guard_eviction_reason="idle") == 1


@pytest.mark.parametrize("gives_way", ["idle", "memory"])
def test_steps_before_one_that_moved_away_are_given_back(gives_way: str) -> None:
    """Nothing waits in the trajectory, and the state behind its newest step is gone with the one that moved."""
    clock = Clock()
    scorer = new_scorer(GuardConfig(idle_ttl_s=100), clock=clock)
    for at in range(20):
        first = tool(f"a{at}", {"q": at}, "x" * 2_000, conversation=f"c{at}", trace=f"t{at}", at=at)
        newer = tool(f"b{at}", {"q": at}, "y" * 2_000, conversation=None, trace=f"t{at}", parent=f"p{at}", at=at + 0.1)
        scorer.score(request(first, newer))
        named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": f"d{at}"}
        scorer.score(request(span(f"p{at}", named, trace=f"t{at}", at=at + 0.2)))
    if gives_way == "memory":
        clock.now = 50.0
        while scorer.shed():
            scorer.maintain()
    clock.now = 1_000.0
    scorer.maintain()
    assert len(scorer.registry) == 0
    assert scorer.registry.kept_bytes == 0
    assert scorer.registry.known(trace_id("t0") + span_id("a0")) is None


def test_a_late_span_of_a_flagged_conversation_stays_flagged_after_eviction() -> None:
    scorer = new_scorer(GuardConfig(max_trajectories=1))
    for one in loop(5, start=10.0):
        scorer.score(request(one))
    scorer.score(request(tool("else", conversation="d")))  # evicts "c"
    late = by_name(scorer.score(request(tool("late", {"q": 9}, "x", at=5.0))).data)[span_id("late")]
    assert late[telemetry.INTERVENTION] == "STOP"
    again = by_name(scorer.score(request(tool("late", {"q": 9}, "x", at=5.0))).data)[span_id("late")]
    assert again == late
    new = by_name(scorer.score(request(tool("new", {"q": 9}, "x", at=60.0))).data)[span_id("new")]
    assert telemetry.INTERVENTION not in new


def test_where_memory_is_short_the_flags_longest_evicted_are_forgotten() -> None:
    scorer = new_scorer(GuardConfig(max_trajectories=1))
    for name in "abcde":
        scorer.score(request(*loop(5, prefix=name, conversation=name, trace=name, start=10.0)))
    scorer.shed()
    tags = {}
    for name in "da":
        late = tool(f"late {name}", {"q": 9}, "x", at=5.0, conversation=name, trace=name)
        tags[name] = by_name(scorer.score(request(late)).data)[span_id(f"late {name}")].get(telemetry.INTERVENTION)
    assert tags == {"d": "STOP", "a": None}


@pytest.mark.parametrize("times", ["future", "none"])
def test_a_flagged_conversation_is_evaluated_again_after_eviction(times: str) -> None:
    scorer = new_scorer(GuardConfig(max_trajectories=1))
    flagged, new = loop(5, start=10.0), loop(5, prefix="n", start=time.time() - START_NS / 1e9 + 60.0)
    if times == "future":
        flagged.append(tool("future", {"q": 2}, "x", at=3e9))
    else:
        for one in (*flagged, *new):
            one.start_time_unix_nano = one.end_time_unix_nano = 0
    scorer.score(request(*flagged))
    scorer.score(request(tool("else", conversation="d")))  # evicts "c"
    scorer.score(request(*new))
    assert verdicts(scorer)[span_id("n0").hex()].level is Level.OBSERVE
    assert verdicts(scorer)[span_id("n4").hex()].level is Level.STOP


def test_traces_are_bounded_by_number_and_by_spans() -> None:
    table = TraceTable(max_traces=4, max_spans_per_trace=8, max_bytes=MIB)
    for at in range(100):
        trace = table.get(bytes([at % 10]) * 16)
        table.remember(trace, bytes([at]) * 8, SpanNode(b""))
    assert len(table) == 4
    one = table.get(b"x" * 16)
    for at in range(100):
        table.remember(one, bytes([at]) * 8, SpanNode(b""))
    assert len(one.spans) == 8


def test_spans_before_the_first_agent_span_of_their_trace_are_bounded() -> None:
    table = TraceTable(max_traces=4, max_spans_per_trace=8, max_bytes=MIB)
    for at in range(100):
        table.early.add(bytes([at]) * 16, bytes([at]) * 8, b"p" * 8)
    assert [len(table.get(bytes([at]) * 16).spans) for at in (0, 95, 96, 97, 98, 99)] == [0, 0, 1, 1, 1, 1]
    table.early.add(b"x" * 16, b"s" * 1_000_000, b"p" * 8)
    for at in range(100):
        table.early.add(b"y" * 16, bytes([at]) * 8, b"p" * 8)
    table.early.add(b"z" * 16, b"s" * 8, b"p" * 8)
    assert [len(table.get(one * 16).spans) for one in (b"x", b"y", b"z")] == [0, 0, 1]
    table.early.add(b"w" * 16, b"s" * 8, b"p" * 8)
    table.shed()
    assert len(table.get(b"w" * 16).spans) == 0


def test_traces_are_bounded_in_bytes() -> None:
    """Twenty thousand traces of four spans with 64 attributes each could take gigabytes."""
    scorer = new_scorer(GuardConfig(max_trajectories=5), max_flagged=5, max_traces_mib=2.0)
    keys = [f"key.{at}" for at in range(60)]

    def evaluate_many(start: int, count: int) -> int:
        for at in range(start, start + count):
            extra = dict.fromkeys(keys, f"{at}" + "x" * 490)
            extra = {key: f"{value}{key}" for key, value in extra.items()}
            scorer.score(request(tool(f"s{at}", conversation=None, trace=f"t{at}", parent="never", at=at, extra=extra)))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    evaluate_many(0, 10)
    tracemalloc.start()
    try:
        grown = evaluate_many(10, 120)
    finally:
        tracemalloc.stop()
    assert 30 < len(scorer.identifier.traces) < 60
    assert 0.5 * scorer.identifier.traces.size < grown < 1.5 * 2.0 * MIB


def test_one_trace_cannot_outgrow_the_bytes_of_all() -> None:
    table, step = TraceTable(max_traces=9, max_spans_per_trace=1_000, max_bytes=20_000), views(request(tool("s")))[0]
    trace = table.get(b"x" * 16)
    for at in range(100):
        table.remember(trace, at.to_bytes(8, "big"), SpanNode(b"", step))
        table.remember(trace, at.to_bytes(8, "big"), SpanNode(b"", step))
    assert 5 < len(trace.spans) < 12
    assert table.size == sum(note.size for note in trace.spans.values()) <= 20_000


@pytest.mark.slow
def test_memory_is_flat_over_many_trajectories_of_one_step() -> None:
    scorer = new_scorer(GuardConfig(max_trajectories=50), max_traces=50, max_flagged=50)

    def evaluate_many(start: int, count: int) -> int:
        for at in range(start, start + count):
            scorer.score(request(tool(f"s{at}", {"q": at}, f"a {at}", conversation=f"c{at}", trace=f"t{at}", at=at)))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = evaluate_many(0, 600)
        after = evaluate_many(600, 2_000)
    finally:
        tracemalloc.stop()
    assert after < before * 1.1


def test_spans_that_repeat_an_ancestor_for_ever_do_no_harm() -> None:
    scorer = new_scorer()
    for at in range(50):
        scorer.score(request(tool(f"s{at}", {"q": at}, parent="missing", at=at)))
        scorer.score(request(span("missing", {"gen_ai.agent.name": "bob"}, parent="missing")))
    assert next(iter(scorer.registry)).steps == 50


def test_steps_that_wait_for_a_parent_that_never_comes_hold_no_texts() -> None:
    scorer = new_scorer(reorder_steps=8)
    for at in range(400):
        one = tool(f"s{at}", {"q": at}, "x" * 900, parent="never", conversation=None, at=at)
        scorer.score(request(one))
    waiting = [
        item
        for trace in scorer.identifier.traces._traces.values()
        for items in trace.waiting.values()
        for item in items
    ]
    assert len(waiting) == 400
    assert sum(item.step.result is not None for item in waiting) <= 8 + 2 * 64


def test_spans_without_times_are_evaluated_as_they_come() -> None:
    scorer = new_scorer()
    for at in range(4):
        one = tool(f"s{at}")
        one.start_time_unix_nano = one.end_time_unix_nano = 0
        scorer.score(request(one))
    assert [verdicts(scorer)[span_id(f"s{at}").hex()].step_index for at in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("times", ["none", "too late"])
def test_the_order_of_steps_that_are_evaluated_as_they_come_takes_no_more_room_with_each(times: str) -> None:
    scorer = new_scorer()
    scorer.score(request(tool("first", at=3e9)))
    for at in range(300):
        one = tool(f"s{at}", {"q": at}, f"answer {at}", at=at)
        if times == "none":
            one.start_time_unix_nano = one.end_time_unix_nano = 0
        scorer.score(request(one))
    trajectory = next(iter(scorer.registry))
    ids = [item.span for item in trajectory.items]
    assert ids[-200:] == [trace_id("trace") + span_id(f"s{at}") for at in range(100, 300)]
    assert max(len(item.order[1]) for item in trajectory.items) < 32


def test_spans_without_ids_are_forwarded_counted_and_not_evaluated() -> None:
    scorer = new_scorer()
    one = tool("s")
    one.span_id = b""
    data = request(one, tool("t"))
    assert scorer.score(data).data is data
    assert counted(scorer.metrics, "trajectory_guard_errors_total", trajectory_guard_error_where="evaluate.ids") == 1
    assert next(iter(scorer.registry)).steps == 1


def test_interrupted_and_ignored_calls_are_no_duplicates() -> None:
    scorer = new_scorer(GuardConfig(tools={"search": {"ignore": True}}))  # type: ignore[dict-item]
    for one in loop(3):
        scorer.score(request(one))
    assert counted(scorer.metrics, "trajectory_guard_duplicates_total") == 0
    scorer = new_scorer()
    scorer.score(request(tool("a"), tool("b", extra={"gen_ai.tool.call.id": "call-a"})))
    assert counted(scorer.metrics, "trajectory_guard_duplicates_total") == 1


# --- second deliveries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count, again", [(1_500, slice(None)), (1_500, slice(20)), (1_500, slice(200, 900))])
@pytest.mark.parametrize("conversation", ["c", None])
def test_spans_of_a_long_trajectory_that_are_delivered_again_are_counted_once(
    count: int, again: slice, conversation: str | None
) -> None:
    scorer = new_scorer(reorder_steps=16)
    spans = [tool(f"l{at}", {"q": at}, f"answer {at}", at=at, conversation=conversation) for at in range(count)]
    scorer.score(request(*spans))
    for _ in range(3):
        scorer.score(request(*spans[again]))
    assert [one.steps for one in scorer.registry] == [count]
    assert counted(scorer.metrics, "trajectory_guard_duplicates_total") == 3 * len(spans[again])
    assert counted(scorer.metrics, "trajectory_guard_late_steps_total", how="too_late") == 0


def test_late_steps_delivered_again_are_counted_once() -> None:
    scorer = new_scorer(reorder_steps=8)
    scorer.score(request(*(tool(f"l{at}", {"q": at}, f"answer {at}", at=10 + at) for at in range(1_400))))
    late = [tool(f"late{at}", {"z": at}, f"late {at}", at=at / 100) for at in range(50)]
    for _ in range(3):
        scorer.score(request(*late))
    assert next(iter(scorer.registry)).steps == 1_450


def test_the_memory_for_second_deliveries_is_bounded_and_given_up_when_memory_is_short() -> None:
    seen = SeenSpans(2_000)
    ids = [at.to_bytes(8, "big") for at in range(10_000)]
    for one in ids:
        seen.append(one)
    assert 2_000 <= len(seen) < 2_000 + 2 * 1_024
    assert all(one in seen for one in ids[-2_000:])
    assert not any(one in seen for one in ids[:6_000])
    assert seen.newest(1_024) == b"".join(ids[-1_024:])
    seen.shed()
    assert 0 < len(seen) < 2_048
    assert ids[-1] in seen


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=40), st.binary(min_size=8, max_size=8))
def test_an_id_is_found_if_it_was_added_and_not_where_two_ids_meet(ids: list[bytes], other: bytes) -> None:
    seen = SeenSpans(1_024)
    for one in ids:
        seen.append(one)
    joined = b"".join(ids)
    straddling = {joined[at : at + 8] for at in range(4, max(4, len(joined) - 8), 8)}
    assert all(one in seen for one in ids)
    assert all((one in seen) == (one in ids) for one in (other, *straddling))
    assert seen.newest(1_024) == joined


def test_old_spans_are_recognised_by_a_saved_trajectory_too() -> None:
    scorer = new_scorer(reorder_steps=8)
    for data in healthy(1_200):
        scorer.score(data)
    data = dump(next(iter(scorer.registry)), {})
    assert data is not None
    trajectory, _ = load(data)
    later = new_scorer(reorder_steps=8)
    later.registry.restore(trajectory, {})
    for data in healthy(600, start=600):
        later.score(data)
    assert trajectory.steps == 1_200
