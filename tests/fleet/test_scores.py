"""Scores by records: after all is read they are those of one process, in any order of commits and crashes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.collector.kit import loop, request, tool
from tests.collector.kit import span as a_span
from tests.fleet.answers import scored
from tests.fleet.simulation import PARTITIONS, Simulation
from tests.fleet.test_stages import drive, recorded, records
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Langfuse, Reply, langfuse, rate_limited
from trajectory_guard.integrations.langfuse.client import Connection
from trajectory_guard.integrations.langfuse.scores import LangfuseScore, ScoreBook, environment_of
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.fleet import catalogue
from trajectory_guard_collector.fleet.cli import main
from trajectory_guard_collector.fleet.config import OrderWindow
from trajectory_guard_collector.fleet.records import PoisonError
from trajectory_guard_collector.fleet.score_delivery import ScoreDelivery, StoppedError
from trajectory_guard_collector.fleet.score_records import score_of
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.telemetry.metrics import Metrics

ORDERS = st.integers(0, 2**32)
Held = dict[str, tuple[str, float, str | None, str | None]]


def of_one_process(requests: Iterable[bytes]) -> Held:
    """The scores that a collector sends that waits for no late steps, as no worker does, by id: the newest of each."""
    limits = OrderWindow().limits(128.0).model_copy(update={"reorder_wait_s": 0.0})
    scorer, book, held = scored([], limits), ScoreBook(10_000), {}

    def take(scorer: RequestScorer, events: Iterable[Any]) -> None:
        for one in events:
            item = one.item
            for score in book.changes(
                one.verdict, item.view.trace_id, scorer.identifier.session_of(item), scope=item.tenant,
                at=item.order[0], environment=environment_of(item.view.attributes, item.origin.attributes),
            ):  # fmt: skip
                held[score.id] = (score.name, score.value, score.trace_id, score.session_id)

    for data in requests:
        take(scorer, scorer.score(data).events)
    take(scorer, scorer.finish().events)
    return held


def of_records(run: Simulation) -> Held:
    scores = map(score_of, run.written["scores"])
    return {one.id: (one.name, one.value, one.trace_id, one.session_id) for one in scores}


@given(seed=ORDERS, live_mib=st.sampled_from([0.0, 64.0]))
@settings(max_examples=4, phases=(Phase.generate,))
def test_recorded_runs_with_crashes_give_the_scores_of_one_process(seed: int, live_mib: float) -> None:
    """In the order in which one process evaluates: 5 s out of order, some spans twice, half named by a root that ends
    last."""
    requests, chance = recorded()[0], random.Random(seed)
    run = Simulation([], live_mib=live_mib)
    for data in requests:
        run.feed(records([data]))
        if chance.random() < 0.2:
            run.read("spans", chance.randrange(PARTITIONS), 1_000)
            run.read("operations", chance.randrange(PARTITIONS), 1_000)
            run.restart()
        elif chance.random() < 0.2:
            for topic, partition in run.topics:
                run.read(topic, partition, 1_000)
            run.lose_commit()
        run.drain()
    expected = of_one_process(requests)
    assert of_records(run) == expected
    assert len(expected) > 200


@given(seed=ORDERS)
@settings(max_examples=4, phases=(Phase.generate,))
def test_out_of_order_nothing_that_stands_goes_without_a_score(seed: int) -> None:
    """A finding that a late step moves is written where it was first made: which ones depends on the arrival."""
    requests = recorded()[0]
    run = Simulation([])
    drive(run, records(requests), random.Random(seed), crashes=0.1)
    scorer = scored(requests)
    flagged = {one.key[1] for one in scorer.registry if one.current.nudge or one.current.stop}
    targets = {session or trace for _, _, trace, session in of_records(run).values()}
    assert len(flagged) > 10
    assert flagged <= targets


@given(seed=ORDERS)
def test_loops_with_crashes_give_the_scores_of_one_process(seed: int) -> None:
    chance = random.Random(seed)
    some = [
        *loop(chance.randrange(3, 9)),
        *(tool(f"f{at}", {"q": at}, f"answer {at}", at=10.0 + at) for at in range(4)),
    ]
    more = loop(5, prefix="t", start=30.0, conversation=None, extra={"langfuse.session.id": "other"}, trace="two")
    requests = [request(one) for one in [*some, *more]]
    run = Simulation([], live_mib=chance.choice([0.0, 1.0]))
    drive(run, records(requests), chance, crashes=0.2, commits=0.3)
    assert of_records(run) == of_one_process(requests)
    assert "other" in {session for *_, session in of_records(run).values()}


def test_the_session_of_a_span_above_is_that_of_the_step() -> None:
    root = a_span("root", {"langfuse.session.id": "above"}, dur=9.0)
    run = Simulation(records([request(root), *(request(one) for one in loop(4, conversation=None, parent="root"))]))
    run.drain()
    assert {session for *_, session in of_records(run).values()} == {None, "above"}


def test_a_second_delivery_and_healthy_agents_write_no_scores() -> None:
    once = records([request(one) for one in loop(4)])
    run = Simulation(once)
    run.drain()
    before = len(run.written["scores"])
    assert before == 4  # health and loop, for the trace and for the session
    run.feed(once)
    run.feed(records([request(tool(f"f{at}", {"q": at}, f"answer {at}", at=at, conversation="d")) for at in range(9)]))
    run.drain()
    assert len(run.written["scores"]) == before


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"v":2}', b'{"v":1,"id":"a"}', b'{"v":1,"what":3}'])
def test_a_damaged_record_says_so(data: bytes) -> None:
    with pytest.raises(PoisonError, match="record of"):
        score_of(data)


# --- sending -------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as backend:
        yield backend


@pytest.fixture(params=["list", "single"])
def either(request: pytest.FixtureRequest) -> Iterator[Langfuse]:
    with langfuse(form=request.param) as backend:
        yield backend


class Waits:
    """Waits for no time, and notes for how long it should have."""

    def __init__(self, *, stop_after: int = 1_000) -> None:
        self.seconds: list[float] = []
        self._stop_after = stop_after

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) > self._stop_after:
            raise StoppedError


def delivery(server: Langfuse, waits: Waits, metrics: Metrics | None = None, **retry: float) -> ScoreDelivery:
    project, pauses = Connection(server.url, PUBLIC_KEY, SECRET_KEY), Retry(initial_interval_s=2.0, **retry)
    return ScoreDelivery(project, pauses, 30.0, metrics or Metrics(more=catalogue.METRICS), waits)


def some_scores(count: int, **fields: Any) -> list[LangfuseScore]:
    plain: dict[str, Any] = {
        "name": "trajectory_health", "value": 0.4, "data_type": "NUMERIC", "timestamp": 1_700_000_000.0,
        "session_id": None, "comment": "", "metadata": {}, **fields,
    }  # fmt: skip
    return [LangfuseScore(id=f"score-{at}", trace_id=f"{at:032x}", **plain) for at in range(count)]


def test_all_are_sent_spread_over_time_and_of_one_id_the_newest(either: Langfuse) -> None:
    waits = Waits()
    older = [one._replace(value=0.9) for one in some_scores(20)]
    assert list(delivery(either, waits).send([*older, *some_scores(20)])) == []
    assert {one["value"] for one in either.scores.values()} == {0.4}
    assert len(either.written) == 20
    assert either.violations == []
    requests = len(either.requests)
    assert sum(seconds > 1.9 for seconds in waits.seconds) >= min(requests - 1, 1)


@pytest.mark.parametrize("trouble", [rate_limited(7), Reply(500), Reply(503), Reply(401)])
def test_trouble_is_waited_out_and_nothing_is_lost(server: Langfuse, trouble: Reply) -> None:
    server.script.extend([trouble] * 5)
    waits, metrics = Waits(), Metrics(more=catalogue.METRICS)
    assert list(delivery(server, waits, metrics).send(some_scores(3))) == []
    assert len(server.written) == 3
    pauses = waits.seconds[1:6]
    assert min(pauses) > {429: 6.9, 401: 29.0}.get(trouble.status, 0.9)
    text = metrics.render()[0].decode()
    assert f'{{error_type="{trouble.status}",exporter="langfuse"}} 5.0' in text
    assert 'trajectory_guard_scores_sent_total{exporter="langfuse"} 3.0' in text


@pytest.mark.parametrize(("retry", "longest"), [({}, 300.0), ({"max_retry_after_s": 45.0}, 45.0)])
def test_langfuse_asks_for_no_longer_pause_than_the_worker_allows(
    server: Langfuse, retry: dict[str, float], longest: float
) -> None:
    """A ``Retry-After`` with a wrong date, as of a proxy, would stop the scores of the whole group for years."""
    server.script.extend([rate_limited(10**9)] * 2)
    waits = Waits()
    assert list(delivery(server, waits, **retry).send(some_scores(1))) == []
    assert len(server.written) == 1
    assert longest - 5.0 < max(waits.seconds) <= longest


def test_a_score_that_is_rejected_is_named_and_costs_no_other(either: Langfuse) -> None:
    good, bad = some_scores(4), some_scores(6, value=2.0, data_type="BOOLEAN")[4:]
    metrics = Metrics(more=catalogue.METRICS)
    rejected = list(delivery(either, Waits(), metrics).send([*bad[:1], *good, *bad[1:]]))
    assert {score.id for score, _ in rejected} == {one.id for one in bad}
    assert all("invalid" in reason.lower() for _, reason in rejected), rejected
    assert set(either.scores) == {one.id for one in good}
    assert 'trajectory_guard_scores_failed_total{exporter="langfuse"} 2.0' in metrics.render()[0].decode()


@pytest.mark.parametrize(
    "said", [{"value": math.nan}, {"value": -math.inf}, {"metadata": {"spent": [math.nan]}}, {"timestamp": 1e30}]
)
def test_a_score_that_is_no_json_is_named_and_costs_no_other(either: Langfuse, said: dict[str, Any]) -> None:
    """It was taken for a reply that makes no sense, and held up the scores of the whole group for ever."""
    good, bad = some_scores(4), some_scores(5)[4]._replace(**said)
    rejected = list(delivery(either, Waits(stop_after=20)).send([*good[:2], bad, *good[2:]]))
    assert [score.id for score, _ in rejected] == [bad.id]
    assert "this score cannot be sent" in rejected[0].reason
    assert set(either.scores) == {one.id for one in good}


def test_it_ends_while_langfuse_is_down(server: Langfuse) -> None:
    server.always = Reply(503)
    with pytest.raises(StoppedError):
        list(delivery(server, Waits(stop_after=3)).send(some_scores(3)))


def test_without_keys_no_score_can_be_sent(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")
    assert main(["scores"]) == 2
    assert capsys.readouterr().err == (
        "trajectory-guard-fleet: langfuse.public_key: required to send scores\n"
        "trajectory-guard-fleet: langfuse.secret_key: required to send scores\n"
    )
