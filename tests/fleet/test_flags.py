"""Flags by records: their answers are those of one process, in any order of partitions, commits and crashes."""

from __future__ import annotations

import random

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.collector.kit import capture_request, loop, request, singles, split, tool
from tests.collector.kit import span as a_span
from tests.fleet.answers import answer, differences, names_in, scored
from tests.fleet.simulation import Simulation
from tests.fleet.test_stages import drive, recorded, records
from tests.helpers import capture_names
from trajectory_guard_collector.fleet.flag_records import flag_record_of
from trajectory_guard_collector.fleet.flag_table import FlagTable
from trajectory_guard_collector.fleet.records import PoisonError
from trajectory_guard_collector.scoring.operations import Kind

ORDERS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", capture_names())
def test_captures_give_the_answers_of_one_process(name: str) -> None:
    requests = singles(capture_request(name))
    run = Simulation([], live_mib=0.0)
    drive(run, records(requests), random.Random(1), crashes=0.1)
    assert differences(scored(requests), run.flags.find) == []


@given(seed=ORDERS, live_mib=st.sampled_from([0.0, 64.0]))
@settings(max_examples=6, phases=(Phase.generate,))
def test_recorded_runs_with_crashes_give_the_answers_of_one_process(seed: int, live_mib: float) -> None:
    requests = recorded()[0]
    scorer = scored(requests)
    run = Simulation([], live_mib=live_mib)
    drive(run, records(requests), random.Random(seed), crashes=0.1)
    assert differences(scorer, run.flags.find) == []
    assert sum(answer(run.flags.find, name, None, None)["level"] != "OBSERVE" for name in names_in(scorer)) > 10


@given(seed=ORDERS)
def test_loops_in_any_order_with_crashes_give_the_answers_of_one_process(seed: int) -> None:
    chance = random.Random(seed)
    root = a_span("root", {"session.id": "named late"}, trace="two", at=0.0, dur=60.0)
    spans = [
        *loop(14, trace="one"),
        *loop(9, trace="two", prefix="t", conversation=None, start=3.0, parent="root"),
        root,
        *loop(5, trace="three", prefix="u", conversation="named late", start=20.0),
    ]
    chance.shuffle(spans)
    requests = split([request(one) for one in spans], [chance.randrange(1, 4) for _ in spans])
    run = Simulation([], live_mib=chance.choice([0.0, 1.0]))
    drive(run, records(requests), chance, crashes=0.2, commits=0.3)
    assert differences(scored(requests), run.flags.find) == []
