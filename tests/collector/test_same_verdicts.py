"""One engine, many shells: the collector says what the span processor says, however the spans arrive."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collector.in_process import judge_in_process
from tests.collector.kit import (
    capture_request,
    comparable,
    judge_all,
    loop,
    request,
    run_requests,
    singles,
    split,
    tool,
    views,
)
from tests.helpers import DATA, capture, capture_names, lines

RUNS = list(lines(DATA / "trajectories_sample.jsonl.gz"))


def deliveries(requests: list[bytes], seed: str) -> dict[str, list[bytes]]:
    """The same spans in order, merged, shuffled, backwards, delivered twice, and twice in another order."""
    shuffled = requests[:]
    random.Random(seed).shuffle(shuffled)
    return {
        "in order": requests,
        "one request": [b"".join(requests)],
        "batches of three": split(shuffled, [3] * len(requests)),
        "shuffled": shuffled,
        "backwards": requests[::-1],
        "every span twice": [one for data in requests for one in (data, data)],
        "again in another order": requests + shuffled,
    }


@pytest.mark.parametrize("name", capture_names())
def test_captures_are_judged_as_in_process(name: str) -> None:
    expected = comparable(judge_in_process(capture(name)))
    for how, requests in deliveries(singles(capture_request(name)), name).items():
        assert comparable(judge_all(requests)) == expected, how


def test_the_captures_have_steps_and_findings() -> None:
    found = [verdict for name in capture_names() for verdict in judge_in_process(capture(name)).values()]
    assert len(found) > 500
    assert sum(bool(verdict.detections) for verdict in found) > 40


@pytest.mark.parametrize("run", RUNS[::3], ids=lambda run: str(run["id"]))
def test_recorded_runs_are_judged_as_in_process(run: dict) -> None:  # type: ignore[type-arg]
    requests = run_requests(run)
    expected = comparable(judge_in_process([view for data in requests for view in views(data)]))
    for how, delivered in deliveries(requests, run["id"]).items():
        assert comparable(judge_all(delivered)) == expected, how


def test_runs_that_arrive_interleaved_do_not_touch_each_other() -> None:
    runs = [run_requests(run) for run in RUNS[1::3]]
    expected = {}
    for requests in runs:
        expected.update(comparable(judge_in_process([view for data in requests for view in views(data)])))
    everything = [data for requests in runs for data in requests]
    random.Random(7).shuffle(everything)
    assert comparable(judge_all(split(everything, [40] * len(everything)))) == expected
    assert sum(bool(types) for _, _, _, _, types, *_ in expected.values()) > 20


def _mixed() -> list[bytes]:
    """Two conversations, one of which loops, recovers and loops again."""
    fresh = [tool(f"f{at}", {"q": at}, f"answer {at}", at=10 + at) for at in range(4)]
    other = [tool(f"o{at}", {"page": at}, f"page {at}", conversation="other", at=at + 0.2) for at in range(8)]
    return [request(one) for one in (*loop(4), *fresh, *loop(4, prefix="again", start=20.0), *other)]


@settings(max_examples=60, deadline=None)
@given(
    order=st.permutations(range(20)), sizes=st.lists(st.integers(1, 6), max_size=20), twice=st.sets(st.integers(0, 19))
)
def test_order_batches_and_repetition_do_not_matter(order: list[int], sizes: list[int], twice: set[int]) -> None:
    requests = _mixed()
    delivered = [requests[at] for at in order] + [requests[at] for at in sorted(twice)]
    assert comparable(judge_all(split(delivered, sizes))) == comparable(judge_all(requests))
