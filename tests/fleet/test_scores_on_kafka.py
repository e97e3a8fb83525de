"""Scores of stream workers on a real Kafka: Langfuse gets those of one process, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from tests.collector.kit import loop, request, tool
from tests.fleet.broker import Broker
from tests.fleet.kit import expected_verdicts, records_of
from tests.fleet.test_scores import of_one_process
from tests.fleet.workers import FleetRun, Worker, wait_until
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Langfuse, Reply, langfuse

pytestmark = pytest.mark.slow
NewRun = Callable[..., FleetRun]


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as backend:
        yield backend


def sections(server: Langfuse) -> dict[str, Any]:
    retry = {"initial_interval_s": 0.05, "max_interval_s": 0.2}
    keys = {"public_key": PUBLIC_KEY, "secret_key": SECRET_KEY}
    return {
        "langfuse": {
            "enabled": True, "endpoint": server.url, "batches_per_minute": 6_000.0, "retry_on_failure": retry, **keys,
        }
    }  # fmt: skip


def requests_of(conversations: range) -> list[bytes]:
    """Loops of which every second one is left, and healthy agents."""
    found = []
    for number in conversations:
        names: dict[str, Any] = {"conversation": f"c{number}", "trace": f"trace-{number}"}
        some = loop(6, prefix=f"s{number}-", **names) if number % 3 else []
        more = [
            tool(f"f{number}-{at}", {"q": at}, f"answer {at}", at=10.0 + at, **names) for at in range(4 * (number % 2))
        ]
        found += [request(one) for one in [*some, *more]]
    return found


def held(server: Langfuse) -> dict[str, Any]:
    return {
        one["id"]: (one["name"], one["value"], one.get("traceId"), one.get("sessionId"))
        for one in server.scores.values()
    }


@pytest.mark.smoke
def test_langfuse_that_is_down_and_a_sender_that_dies_lose_no_score(new_run: NewRun, server: Langfuse) -> None:
    first, second = requests_of(range(12)), requests_of(range(12, 24))
    run = new_run(sections(server))
    worker, sender = run.start("one"), run.start("scores", command="scores")
    for one in (worker, sender):
        one.wait_until_ready()
    run.produce(run.config.topics.scores, b"k", b"no score")
    run.feed([record for data in first for record in records_of(data)])
    expected = of_one_process(first)
    wait_until(
        lambda: held(server) == expected, lambda: f"{len(held(server))} of {len(expected)}: {sender.log[-2_000:]}"
    )

    server.always = Reply(503)
    run.feed([record for data in second for record in records_of(data)])
    run.wait_for(expected_verdicts([*first, *second]))  # the worker does not wait for Langfuse
    refused = len(server.requests)
    wait_until(lambda: len(server.requests) > refused + 2, lambda: sender.log[-2_000:])
    assert held(server) == expected
    wait_until(lambda: lag(sender) > 0, lambda: "the scores that wait are no lag")
    sender.kill()
    server.always = None
    sender = run.start("scores-again", command="scores")
    expected = of_one_process([*first, *second])
    wait_until(
        lambda: held(server) == expected, lambda: f"{len(held(server))} of {len(expected)}: {sender.log[-2_000:]}"
    )
    wait_until(lambda: sender.metric("trajectory_guard_fleet_ready") and not lag(sender), lambda: sender.log[-2_000:])
    (letter,) = run.dead_letters()
    headers = {name: value.decode() for name, value in letter.headers()}
    assert (letter.value(), headers["trajectory_guard.topic"]) == (b"no score", run.config.topics.scores)
    assert "changed to" not in str(server.violations)
    assert [one.terminate() for one in (worker, sender)] == [0, 0]


def lag(sender: Worker) -> float:
    return sender.metric("trajectory_guard_fleet_lag")


def test_a_sender_waits_out_a_broker_that_restarts(new_run: NewRun, own_broker: Broker, server: Langfuse) -> None:
    first, second = requests_of(range(6)), requests_of(range(6, 12))
    run = new_run(sections(server), address=own_broker.address)
    worker, sender = run.start("one", session_timeout_s=30.0), run.start("scores", command="scores")
    for one in (worker, sender):
        one.wait_until_ready()
    run.feed([record for data in first for record in records_of(data)])
    wait_until(lambda: held(server) == of_one_process(first), lambda: sender.log[-2_000:])
    own_broker.kill()
    own_broker.start()
    run.feed([record for data in second for record in records_of(data)])
    expected = of_one_process([*first, *second])

    def is_done() -> bool:
        for one in run.workers:
            one.restart_if_failed()
        return held(server) == expected

    wait_until(is_done, lambda: f"{len(held(server))} of {len(expected)}: {sender.log[-2_000:]}")
    # flags take a way of their own, and a worker that had to be restarted reads all of them again
    worker.wait_until_ready()
    wait_until(lambda: worker.flag("c7")["known"], lambda: worker.log[-2_000:])
    assert worker.flag("c7")["level"] in ("STOP", "OBSERVE")
    assert sender.terminate() == 0
