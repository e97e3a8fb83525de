"""Both stages through bytes: the verdicts are those of one process in any order of partitions, commits and crashes."""

from __future__ import annotations

import gzip
import random
from base64 import b64decode
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.recorded_load import recorded_load
from tests.collector.kit import all_spans, attributes, capture_request, loop, new_scorer, request, singles, split, tool
from tests.collector.kit import span as a_span
from tests.collector.test_long_runs import batches, root, run
from tests.fleet.kit import Record, compared, expected_verdicts, records_of
from tests.fleet.simulation import PARTITIONS, Simulation
from tests.helpers import DATA, capture_names
from trajectory_guard import telemetry
from trajectory_guard_collector.fleet.records import PoisonError, current_verdicts
from trajectory_guard_collector.scoring.parser import attributes_of

ORDERS = st.integers(0, 2**32)


@cache
def recorded() -> tuple[list[bytes], dict[str, dict[str, Any]]]:
    requests = recorded_load(copies=1, seed=3).requests[:6]
    return requests, expected_verdicts(requests)


def records(requests: list[bytes]) -> list[Record]:
    return [record for data in requests for record in records_of(data)]


def drive(
    run: Simulation, some: list[Record], chance: random.Random, *, crashes: float, commits: float = 0.1
) -> list[dict[str, Any]]:
    """Read some of each topic in any order, with commits and crashes in between, while more arrives; then the rest."""
    steps = 60
    for step in range(steps):
        run.feed(some[len(some) * step // steps : len(some) * (step + 1) // steps])
        run.read(chance.choice(["spans", "operations"]), chance.randrange(PARTITIONS), chance.randrange(1, 60))
        if chance.random() < commits:
            run.commit()
        if chance.random() < crashes:
            chance.choice([run.restart, run.lose_commit])()
    return run.drain()


@pytest.mark.parametrize("name", capture_names())
def test_captures_give_the_verdicts_of_one_process(name: str) -> None:
    requests = singles(capture_request(name))
    run = Simulation([], live_mib=0.0)
    assert compared(drive(run, records(requests), random.Random(1), crashes=0.1), expected_verdicts(requests)) == (
        0,
        0,
        0,
    )


def test_a_backlog_is_evaluated_once_a_step() -> None:
    requests, expected = recorded()
    run = Simulation(records(requests))
    assert compared(run.drain(), expected) == (0, 0, 0)
    assert sum(not one["retracted"] for one in run.written["verdicts"]) == len(expected)
    text = run.metrics.render()[0].decode()
    assert "trajectory_guard_reevaluated_steps_total 0.0" in text


@given(seed=ORDERS, live_mib=st.sampled_from([0.0, 64.0]))
@settings(max_examples=8, phases=(Phase.generate,))
def test_recorded_runs_with_crashes_give_the_verdicts_of_one_process(seed: int, live_mib: float) -> None:
    requests, expected = recorded()
    run = Simulation([], live_mib=live_mib)
    assert compared(drive(run, records(requests), random.Random(seed), crashes=0.1), expected) == (0, 0, 0)
    assert not run.written["dead_letters"]


def shuffled_loops(chance: random.Random) -> list[bytes]:
    """Requests in any order: a loop of two traces, one of which its root names late, and of one that names itself."""
    root = a_span("root", {"session.id": "named late"}, trace="two", at=0.0, dur=60.0)
    spans = [
        *loop(14, trace="one"),
        *loop(9, trace="two", prefix="t", conversation=None, start=3.0, parent="root"),
        root,
        *loop(5, trace="three", prefix="u", conversation="named late", start=20.0),
    ]
    chance.shuffle(spans)
    return split([request(one) for one in spans], [chance.randrange(1, 4) for _ in spans])


@given(seed=ORDERS)
def test_loops_in_any_order_with_crashes_give_the_verdicts_of_one_process(seed: int) -> None:
    chance = random.Random(seed)
    requests = shuffled_loops(chance)
    run = Simulation([], live_mib=chance.choice([0.0, 1.0]))
    written = drive(run, records(requests), chance, crashes=0.2, commits=0.3)
    assert compared(written, expected_verdicts(requests)) == (0, 0, 0)
    assert current_verdicts(chance.sample(written, len(written))) == current_verdicts(written)


@pytest.mark.parametrize("commits", [0.05, 0.5])
def test_runs_longer_than_the_window_give_the_verdicts_of_one_process(commits: float) -> None:
    """The root ends last and names the conversation, in which a second trace has gone on meanwhile."""
    first = run(trace="one", prefix="a")
    second = run(start=60, trace="two", conversation="conv", prefix="b")
    requests = [*batches([*first, *second[:60]], 7), request(root(trace="one", prefix="a")), *batches(second[60:], 7)]
    workers = Simulation([], reorder_s=300.0)
    written = drive(workers, records(requests), random.Random(4), crashes=0.0, commits=commits)
    expected = expected_verdicts([request(root(trace="one", prefix="a")), *batches([*first, *second], 1)])
    assert compared(written, expected) == (0, 0, 0)
    assert 'trajectory_guard_late_steps_total{how="too_late"}' not in workers.metrics.render()[0].decode()


def test_what_the_kafka_exporter_wrote_gives_the_verdicts_of_one_process() -> None:
    """Records of an OpenTelemetry Collector 0.158 (otlp_proto, partition_traces_by_id), and the requests it received."""
    with gzip.open(DATA / "fleet" / "kafkaexporter_records.jsonl.gz") as file:
        written = [orjson.loads(line) for line in file]
    with gzip.open(DATA / "fleet" / "kafkaexporter_requests.jsonl.gz") as file:
        requests = [b64decode(orjson.loads(line)["value"]) for line in file]
    run = Simulation((one["key"].encode(), b64decode(one["value"])) for one in written)
    expected = expected_verdicts(requests)
    assert len(expected) > 1_000
    assert compared(run.drain(), expected) == (0, 0, 0)


# --- what leaves the worker ----------------------------------------------------------------------------------


def test_a_step_that_moves_is_retracted_where_it_was() -> None:
    run = Simulation(records([request(one) for one in loop(3, conversation=None, parent="root")]))
    before = run.drain()
    assert {one["trajectory_id"] for one in current_verdicts(before).values()} == {before[0]["trace_id"]}
    run.feed(records([request(a_span("root", {"session.id": "c"}, dur=9.0))]))
    after = run.drain()
    assert {one["trajectory_id"] for one in current_verdicts(after).values()} == {"c"}
    retracted = [one for one in after if one["retracted"]]
    assert {one["span_id"] for one in retracted} == {one["span_id"] for one in before}
    assert all(one["trajectory_id"] == before[0]["trace_id"] for one in retracted)


def test_verdict_records_in_any_order_and_twice_say_the_same() -> None:
    requests, _ = recorded()
    written = drive(Simulation([]), records(requests), random.Random(5), crashes=0.1)
    mixed = [*written, *written[::3]]
    random.Random(7).shuffle(mixed)
    assert current_verdicts(mixed) == current_verdicts(written)


def test_guard_spans_are_tagged_for_langfuse_and_name_their_step() -> None:
    run = Simulation(records([request(one) for one in loop(6)]))
    verdicts = run.drain()
    nudges = {one["span_id"] for one in verdicts if one["nudge"]}
    spans = [one for data in run.written["guard_spans"] for one in all_spans(data)]
    assert {one.links[0].span_id.hex() for one in spans} >= nudges
    assert nudges
    tags = [attributes(one).get("langfuse.trace.tags") for one in spans if one.links[0].span_id.hex() in nudges]
    assert all("LOOP_DETECTED" in one for one in tags if one is not None)
    assert any(tags)


def test_guard_spans_have_the_resource_of_the_application() -> None:
    resource = {"service.namespace": "eu", "deployment.environment.name": "prod", "host.cpus": 8}
    run = Simulation(records([request(one, resource=resource) for one in loop(6)]))
    run.drain()
    groups = [
        group
        for data in run.written["guard_spans"]
        for group in ExportTraceServiceRequest.FromString(data).resource_spans
    ]
    assert groups
    for group in groups:
        assert attributes_of(group.resource.attributes) == {"service.name": "app", **resource}


def test_a_loop_over_two_services_and_many_traces_has_the_guard_spans_of_one_process() -> None:
    requests = [
        request(
            tool(f"s{at}", at=at, trace=f"trace-{at}", tool_name="hand over"), service=("planner", "writer")[at % 2]
        )
        for at in range(12)
    ]
    run = Simulation([])
    for data in requests:
        run.feed(records([data]))
        run.drain()
    scorer = new_scorer()
    names = (telemetry.SPAN_NAME, telemetry.LOOP_SPAN_NAME)
    of_one_process = [one for data in requests for one in all_spans(scorer.score(data).data) if one.name in names]
    found = [one for data in run.written["guard_spans"] for one in all_spans(data)]
    assert [one.span_id for one in found] == [one.span_id for one in of_one_process]
    assert [attributes(one) for one in found] == [attributes(one) for one in of_one_process]
    assert len(found) >= 2
    assert {one["service"] for one in run.written["verdicts"]} == {"planner", "writer"}
    assert len({place for place, log in run.topics.items() if place[0] == "spans" and log}) == PARTITIONS


def test_a_second_delivery_writes_nothing_new() -> None:
    once = records([request(one) for one in loop(6)])
    run = Simulation(once)
    before = len(run.drain())
    run.feed(once)
    assert len(run.drain()) == before
    assert "trajectory_guard_duplicates_total 6.0" in run.metrics.render()[0].decode()


# --- state ---------------------------------------------------------------------------------------------------


def test_state_is_written_where_it_changed() -> None:
    spans = loop(40)
    run = Simulation(records([request(one) for one in spans[:39]]))
    run.drain()
    seen: list[str] = []
    state = run.evaluating.live
    for entry in state._entries.values():
        before = dict(entry.written)
    run.feed(records([request(spans[39])]))
    run.drain()
    (entry,) = state._entries.values()
    seen = [name for name, one in entry.written.items() if before.get(name) != one]
    assert len([name for name in seen if name.startswith("i")]) == 1


def test_a_slow_conversation_outlives_the_time_to_live_of_its_first_steps() -> None:
    """A day apart, each step alone is younger than the time to live when the next one comes."""
    requests = [request(one) for one in loop(12)]
    run = Simulation([], ttl_s=100.0, step_ms=60_000, live_mib=0.0)
    for data in requests:
        run.feed(records([data]))
        run.drain()
        run.restart()
    assert "state.trajectory" not in run.metrics.render()[0].decode()
    assert compared(run.written["verdicts"], expected_verdicts(requests)) == (0, 0, 0)


def test_a_conversation_begins_anew_after_its_time_to_live() -> None:
    requests = [request(one) for one in loop(4)]
    run = Simulation([], ttl_s=100.0, step_ms=200_000)
    for data in requests:
        run.feed(records([data]))
        run.drain()
    assert [one["step_index"] for one in run.written["verdicts"]] == [0, 0, 0, 0]
    assert "state.trajectory" not in run.metrics.render()[0].decode()


def test_nothing_is_kept_of_traces_without_agents() -> None:
    run = Simulation(records([request(a_span(f"s{at}", {"http.route": "/"}, trace=f"t{at}")) for at in range(20)]))
    run.drain()
    assert run.stored_bytes == 0


def early_chain() -> list[bytes]:
    """A span without agent attributes, written before the tools below it. Two agents of the trace name conversations."""
    between = a_span("between", {"http.route": "/"}, parent="agent", dur=20.0)
    agents = [
        a_span(name, {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": conversation}, dur=30.0)
        for name, conversation in (("agent", "c"), ("other", "d"))
    ]
    return [request(one) for one in (between, *loop(3, conversation=None, parent="between"), *agents)]


@pytest.mark.parametrize("read_again", [False, True], ids=["read once", "read again after a commit that failed"])
def test_a_span_before_the_first_agent_span_of_its_trace_leads_to_the_agent(read_again: bool) -> None:
    requests = early_chain()
    run = Simulation(records(requests[:1]))
    run.drain()
    run.feed(records(requests[1:]))
    if read_again:
        for one in range(PARTITIONS):
            run.read("spans", one, 10)
        run.lose_commit()
    written = run.drain()
    assert compared(written, expected_verdicts(requests)) == (0, 0, 0)
    assert {one["trajectory_id"] for one in current_verdicts(written).values()} == {"c"}


def test_spans_of_traces_without_agents_are_forgotten_beyond_their_limit() -> None:
    requests = early_chain()
    other = [request(a_span(f"s{at}", {"http.route": "/"}, trace=f"t{at}")) for at in range(4)]
    run = Simulation([], max_early_spans=4)
    for some in (requests[:1], other, requests[1:]):
        run.feed(records(some))
        run.drain()
    assert {one["trajectory_id"] for one in current_verdicts(run.written["verdicts"]).values()} != {"c"}


def test_damaged_state_begins_anew_and_is_counted() -> None:
    run = Simulation(records([request(one) for one in loop(3)]))
    run.drain()
    for names in run._stored.values():
        names["h"] = (b'{"v":1,"parts":{"gone":1},"head":{}}', names["h"][1])
    run.restart()
    run.feed(records([request(tool("s3", at=3.0))]))
    assert run.drain()[-1]["step_index"] == 0
    text = run.metrics.render()[0].decode()
    assert 'trajectory_guard_error_where="state.trace"' in text
    assert 'trajectory_guard_error_where="state.trajectory"' in text


def test_a_span_too_large_for_a_record_costs_no_other_span() -> None:
    huge = request(tool("s1", at=1.0), service="x" * 1_000_000)
    ((_, value),) = records([huge])
    ((key, small),) = records([request(tool("s0"), tool("s2", at=2.0))])
    run = Simulation([(key, small + value)])
    with pytest.raises(PoisonError, match="bytes is too large for a record"):
        run.drain()
    run._offsets = {place: len(log) if place[0] == "spans" else 0 for place, log in run.topics.items()}
    assert [one["step_index"] for one in run.drain()] == [0, 1]


@pytest.mark.parametrize("damaged", [["remove", "zz"], ["refresh", None], ["name", 5], ["add", []]])
def test_a_damaged_operation_costs_no_other_one_of_its_record(damaged: list[Any]) -> None:
    ((key, value),) = records([request(*loop(3))])
    run = Simulation([(key, value)])
    for partition in range(PARTITIONS):
        run.read("spans", partition, 1)
    ((place, written),) = [(place, log) for place, log in run.topics.items() if place[0] == "operations" and log]
    ((key, value, at_ms),) = written
    version, name, operations = orjson.loads(value)
    written[0] = (key, orjson.dumps([version, name, [damaged, *operations]]), at_ms)
    with pytest.raises(PoisonError, match=f"1 of {len(operations) + 1} operations"):
        run.drain()
    run._offsets[place] += 1
    assert [one["step_index"] for one in run.drain()] == [0, 1, 2]


def test_operations_beyond_the_size_of_a_record_are_several_records() -> None:
    requests = [request(*loop(60), service="x" * 40_000)]
    run = Simulation(records(requests))
    assert compared(run.drain(), expected_verdicts(requests)) == (0, 0, 0)
    sizes = [len(value) for place, log in run.topics.items() if place[0] == "operations" for _, value, _ in log]
    assert len(sizes) == 3
    assert max(sizes) < 1_000_000
