"""Flags by records: their answers are those of one process, in any order of partitions, commits and crashes."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.collector.kit import capture_request, loop, request, singles, tool
from tests.collector.kit import span as a_span
from tests.fleet.answers import answer, differences, names_in, scored
from tests.fleet.simulation import PARTITIONS, Simulation
from tests.fleet.test_stages import drive, recorded, records, shuffled_loops
from tests.helpers import capture_names
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard_collector.api.flags import RegistryFlags
from trajectory_guard_collector.fleet.flag_records import FLAG_VERSION, flag_record_of
from trajectory_guard_collector.fleet.flag_table import FlagTable
from trajectory_guard_collector.fleet.records import PoisonError
from trajectory_guard_collector.scoring.operations import OperationKind

ORDERS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", capture_names())
def test_captures_give_the_answers_of_one_process(name: str) -> None:
    requests = singles(capture_request(name))
    run = Simulation([], live_mib=0.0)
    drive(run, records(requests), random.Random(1), crashes=0.1)
    assert differences(scored(requests), run.flags.find) == []


@given(seed=ORDERS, live_mib=st.sampled_from([0.0, 64.0]))
@settings(max_examples=3, phases=(Phase.generate,))
def test_recorded_runs_with_crashes_give_the_answers_of_one_process(seed: int, live_mib: float) -> None:
    every = recorded()[0]
    for requests in (every[: len(every) // 2], every):  # half of the runs go on, then all are over
        scorer = scored(requests)
        run = Simulation([], live_mib=live_mib)
        drive(run, records(requests), random.Random(seed), crashes=0.1)
        assert differences(scorer, run.flags.find) == []
        flagged = [answer(run.flags.find, name, None, None)["level"] != "OBSERVE" for name in names_in(scorer)]
        assert requests is every or sum(flagged) > 10


@given(seed=ORDERS)
def test_loops_in_any_order_with_crashes_give_the_answers_of_one_process(seed: int) -> None:
    chance = random.Random(seed)
    requests = shuffled_loops(chance)
    run = Simulation([], live_mib=chance.choice([0.0, 1.0]))
    drive(run, records(requests), chance, crashes=0.2, commits=0.3)
    assert differences(scored(requests), run.flags.find) == []


def test_a_late_step_that_retracts_a_finding_retracts_the_flag() -> None:
    run = Simulation(records([request(one) for one in loop(3)]))
    run.drain()
    assert answer(run.flags.find, "c", None, None)["level"] == "NUDGE"
    run.feed(records([request(tool("late", {}, "another", at=0.5))]))
    run.drain()
    assert answer(run.flags.find, "c", None, None) == {"trajectory_id": "c", "known": True, "level": "OBSERVE"}


def test_a_step_that_moves_takes_the_flag_with_it() -> None:
    spans = loop(5, conversation=None, parent="root")
    trace = spans[0].trace_id.hex()
    run = Simulation(records([request(one) for one in spans]))
    run.drain()
    assert answer(run.flags.find, trace, None, None)["trajectory_id"] == trace
    run.feed(records([request(a_span("root", {"session.id": "c"}, parent="service", dur=9.0))]))
    run.drain()
    for name in (trace, "c"):
        found = answer(run.flags.find, name, None, None)
        assert (found["trajectory_id"], found["level"]) == ("c", "STOP")


@pytest.mark.parametrize("live_mib", [0.0, 64.0])
def test_a_healthy_agent_costs_one_record_and_one_for_each_name(live_mib: float) -> None:
    """Each reader reads the records of all workers. Also where trajectories are read again from the store."""
    run = Simulation([], live_mib=live_mib)
    for at in range(30):
        for name in ("one", "two"):
            trace = f"trace-{at // 10}-{name}"
            step = tool(f"{name}{at}", {"q": at}, f"answer {at}", at=at, trace=trace, conversation=name)
            run.feed(records([request(step)]))
            run.drain()
    written = [flag_record_of(one) for one in run.written["flags"]]
    assert [len(one.names) for one in written] == [2, 2, 3, 3, 4, 4]


def test_a_second_delivery_writes_no_flag() -> None:
    once = records([request(one) for one in loop(6)])
    run = Simulation(once)
    run.drain()
    before = len(run.written["flags"])
    run.feed(once)
    run.drain()
    assert len(run.written["flags"]) == before


def test_the_record_of_a_slow_agent_is_renewed_before_readers_forget_it() -> None:
    run = Simulation([], step_ms=1_000_000)
    for at in range(12):
        run.feed(records([request(tool(f"s{at}", {"q": at}, f"answer {at}", at=at * 1_000.0))]))
        run.drain()
        assert answer(run.flags.find, "c", None, None)["known"], at
    run.feed([(b"0" * 32, b"")] * 5)  # time passes
    assert not answer(run.flags.find, "c", None, None)["known"]


def test_the_state_of_an_earlier_version_gets_its_flag_with_the_next_step() -> None:
    spans = loop(5)
    resource = {"service.namespace": "eu"}
    run = Simulation(records([request(one, resource=resource) for one in spans[:4]]))
    run.drain()
    for (stage, _), names in run._stored.items():
        if stage == "operations":
            plain = orjson.loads(names["h"][0])
            del plain["head"]["flag"], plain["head"]["scores"], plain["head"]["trajectory"]["compacted"]
            names["h"] = (orjson.dumps(plain), names["h"][1])
    run.flags = FlagTable(10, 3_600.0, lambda reason: None, clock=lambda: run._now_s)
    run.restart()
    run.feed(records([request(spans[4], resource=resource)]))
    run.drain()
    assert answer(run.flags.find, "c", None, None)["level"] == "STOP"
    assert "state.trajectory" not in run.metrics.render()[0].decode()


def test_names_beyond_the_bound_are_forgotten_and_counted_and_the_own_one_stays() -> None:
    run = Simulation([])
    forgotten: list[None] = []
    run.evaluating._max_names, run.evaluating._on_evicted = 3, lambda: forgotten.append(None)
    run.feed(records([request(tool(f"s{at}", {"q": at}, at=at, trace=f"trace-{at}")) for at in range(6)]))
    run.drain()
    names = flag_record_of(run.written["flags"][-1]).names
    assert len(names) == 3
    assert "c" in names
    assert len(forgotten) == 4


# --- by hand -------------------------------------------------------------------------------------------------


def test_flags_by_hand_are_carried_out_in_the_order_of_the_steps_and_once() -> None:
    run = Simulation(records([request(one) for one in loop(5)]))
    run.drain()
    record = run.by_hand(OperationKind.RAISE, "c", level="STOP", reason="enough", actor="maria")
    partition = next(one for one in run.topics.items() if one[0][0] == "operations" and one[1])[0]
    run.topics[partition].append(run.topics[partition][-1])  # the producer has tried twice
    run.drain()
    found = answer(run.flags.find, "c", None, None)
    assert found["by_hand"] == {"reason": "enough", "actor": "maria", "ordinal": 1}
    assert orjson.loads(record)[1] == ["", "c"]
    run.restart()
    run.drain()
    assert answer(run.flags.find, "c", 4, 0)["by_hand"]["ordinal"] == 1
    assert answer(run.flags.find, "c", 4, 1)["level"] == "OBSERVE"
    run.feed(records([request(tool("s5", at=5.0))]))
    for partition in range(PARTITIONS):
        run.read(
            "spans", partition, 10
        )  # the step stands before the record of the person, and is cleared with the others
    run.by_hand(OperationKind.CLEAR, "c", reason="all is well")
    run.drain()
    assert answer(run.flags.find, "c", None, None)["level"] == "OBSERVE"
    run.by_hand(OperationKind.RAISE, "c", level="NUDGE", reason="look here")
    run.drain()
    assert answer(run.flags.find, "c", None, None)["by_hand"]["ordinal"] == 2


@given(seed=ORDERS)
def test_flags_by_hand_with_crashes_are_those_of_one_process(seed: int) -> None:
    chance = random.Random(seed)
    run, scorer = Simulation([]), scored([])
    one = RegistryFlags(scorer.registry)
    for at, span in enumerate(loop(12)):
        run.feed(records([request(span)]))
        scorer.score(request(span))
        run.drain()
        act = chance.choice(["raise", "clear", None, None])
        if act == "raise":
            flag = HandFlag.of("NUDGE" if at % 2 else "STOP", f"reason {at}", "maria")
            asyncio.run(one.raise_flag(("", "c"), flag))
            run.by_hand(OperationKind.RAISE, "c", level=flag.level.value, reason=flag.reason, actor=flag.actor)
        elif act == "clear":
            asyncio.run(one.clear_flag(("", "c"), "", ""))
            run.by_hand(OperationKind.CLEAR, "c", reason="-")
        if chance.random() < 0.3:
            for partition in range(PARTITIONS):
                run.read("operations", partition, 10)
            chance.choice([run.restart, run.lose_commit])()
    run.drain()
    assert differences(scorer, run.flags.find) == []


@pytest.mark.parametrize(
    "said", [{"level": "BURN", "reason": "x"}, {"level": "STOP", "reason": 3}, {"level": "STOP", "reason": "x" * 3_000}]
)
def test_a_flag_by_hand_that_nobody_can_raise_is_poison(said: dict[str, Any]) -> None:
    run = Simulation(records([request(one) for one in loop(2)]))
    run.drain()
    run.by_hand(OperationKind.RAISE, "c", **said)
    with pytest.raises(PoisonError, match="no flag by hand"):
        run.drain()


# --- the table -----------------------------------------------------------------------------------------------


def record(name: str, revision: int = 1, *, names: tuple[str, ...] = (), tenant: str = "", **more: Any) -> bytes:
    plain = {
        "v": FLAG_VERSION, "tenant": tenant, "trajectory_id": name, "names": [name, *names], "revision": revision,
        "gone": False, "steps": revision, "score": 0.0, "episode": 0, "nudges": 0,
        "current": {"last": None, "runs": []}, "ended": [], "by_hand": None, **more,
    }  # fmt: skip
    return orjson.dumps(plain)


def table(size: int = 10, now: float = 1_000.0) -> tuple[FlagTable, list[str]]:
    evicted: list[str] = []
    return FlagTable(size, 100.0, evicted.append, clock=lambda: now), evicted


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_name_of_several_conversations_finds_none_and_a_trace_of_its_own_gives_way(order: tuple[int, ...]) -> None:
    one, _ = table()
    some = [record("trace"), record("a", names=("trace", "shared")), record("b", names=("shared",))]
    for at in order:
        one.put(some[at], 1_000.0)
    assert [found and found.key[1] for found in map(one.find, ("trace", "shared", "a", "b"))] == ["a", None, "a", "b"]


def test_equal_ids_of_tenants_are_distinguished_by_the_caller_and_else_find_none() -> None:
    spans = [loop(3), loop(2, prefix="t", trace="two")]
    requests = [
        request(*some, resource={"service.namespace": name}) for some, name in zip(spans, ("eu", "us"), strict=True)
    ]
    run, scorer = Simulation(records(requests)), scored(requests)
    run.drain()
    for find in (run.flags.find, RegistryFlags(scorer.registry).find):
        found = [find("c", tenant) for tenant in ("eu", "us", "asia", None)]
        assert [one and (one.key, one.current.nudge is not None) for one in found] == [
            (("eu", "c"), True), (("us", "c"), False), None, None,
        ]  # fmt: skip
        assert find(spans[0][0].trace_id.hex()) == found[0]


def test_the_table_tells_a_name_of_several_trajectories_from_an_unknown_one() -> None:
    one, _ = table()
    some = [record("trace"), record("a", names=("trace", "thread")), record("b", names=("thread",))]
    for data in [*some, record("c", tenant="eu"), record("c", tenant="us"), record("old", tenant="eu")]:
        one.put(data, 1_000.0)
    one.put(record("old", tenant="us"), 800.0)
    names = ("trace", "thread", "a", "c", "old", "nobody")
    assert [one.sharing(name) for name in names] == [None, 0, None, 2, 1, None]


def test_the_highest_revision_holds_and_one_that_is_gone_is_unknown() -> None:
    one, _ = table()
    for revision in (3, 7, 5):
        one.put(record("a", revision, names=(f"n{revision}",)), 1_000.0)
    assert [found and found.steps for found in map(one.find, ("a", "n7", "n5", "n3"))] == [7, 7, None, None]
    one.put(record("a", 8, gone=True), 1_000.0)
    one.put(record("a", 6), 1_000.0)  # of a worker that was excluded meanwhile
    assert one.find("a") is None


def test_the_table_is_bounded_by_count_and_idle_time() -> None:
    one, evicted = table(3)
    for name in "abcd":
        one.put(record(name), 1_000.0)
    assert (len(one), one.find("a"), evicted) == (3, None, ["full"])
    one.put(record("old"), 800.0)
    assert one.find("old") is None
    one.expire()
    assert (len(one), evicted) == (2, ["full", "full", "idle"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        record("a", v=99),
        record("a", current={"last": None, "runs": [{"run": "", "nudge": 3, "stop": None}]}),
        record("a", by_hand=["BURN"]),
        record("a", steps="many"),
        record("a", score=None),
        record("a", by_hand=[]),
        record("a").replace(b'"revision":1', b'"revision":Infinity'),
        record("a").replace(b'"revision":1', b'"revision":NaN'),
        record("a", names=({"a": 1},)),  # type: ignore[arg-type]
    ],
)
def test_a_damaged_record_says_so(data: bytes) -> None:
    one, _ = table()
    with pytest.raises(PoisonError, match="record of"):
        one.put(data, 1_000.0)
    assert len(one) == 0
