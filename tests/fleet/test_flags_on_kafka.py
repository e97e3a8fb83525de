"""Gates that ask stream workers on a real Kafka: the answers are those of one process, whichever worker is asked."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from langchain_core.messages import HumanMessage

from tests.bench.recorded_load import recorded_load
from tests.collector.kit import loop, request, tool
from tests.collector.test_flags import agent, guarded
from tests.fleet.answers import NUMBERS, questions, scored
from tests.fleet.kit import Record, compared, expected_verdicts, records_of
from tests.fleet.workers import FleetRun, Worker, wait_until
from trajectory_guard_collector.api.flag_replies import flag_reply
from trajectory_guard_collector.api.flags import RegistryFlags

pytestmark = pytest.mark.slow
NewRun = Callable[..., FleetRun]
PEOPLE = {"flags": {"auth": {"bearer_tokens": ["people"]}}}


def spans(*some: Any) -> list[Record]:
    return [record for one in some for record in records_of(request(one))]


def level_is(worker: Worker, name: str, level: str, **query: Any) -> None:
    wait_until(
        lambda: worker.flag(name, **query)["level"] == level,
        lambda: f"{name}: {worker.flag(name, **query)}, expected {level}: {worker.log[-2_000:]}",
    )


def change(worker: Worker, method: str, name: str, token: str = "people", **said: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps(said).encode() if said else None
    headers = {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"{worker.flags_url}/v1/flags/{name}", body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=10.0) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.smoke
def test_an_agent_is_nudged_and_stopped_whichever_worker_it_asks(new_run: NewRun) -> None:
    """Its own calls are fine: the loop is between services, and only the workers see it."""
    run = new_run(PEOPLE)
    workers = [run.start(name) for name in ("one", "two")]
    for worker in workers:
        worker.wait_until_ready()
    config: Any = {"configurable": {"thread_id": "shared"}}
    run.feed(spans(*loop(3, conversation="shared", trace="one")))
    for worker in workers:
        level_is(worker, "shared", "NUDGE", after=-1)
    graphs = [agent(guarded(worker.flags_url), rounds=4) for worker in workers]
    state = {"messages": [HumanMessage("go")]}
    nudged = graphs[0].invoke(state, config, output_keys=["messages", "loop_status"])
    said = [message for message in nudged["messages"] if isinstance(message, HumanMessage)]
    assert len(said) == 2  # the question and one nudge
    assert "search" in said[1].content
    assert nudged["messages"][-1].content == "done"
    run.feed(spans(*loop(5, conversation="shared", trace="one", prefix="t", start=3.0)))
    for worker in workers:
        level_is(worker, "shared", "STOP")
    for graph in graphs:
        stopped = graph.invoke({"messages": [HumanMessage("go")]}, config, output_keys=["messages", "loop_status"])
        assert stopped["loop_status"]["status"] == "stopped"
        assert stopped["messages"][-1].content.startswith("I could not")
    healthy = graphs[1].invoke(state, {"configurable": {"thread_id": "another"}})
    assert healthy["messages"][-1].content == "done"


def test_a_person_stops_and_clears_through_either_worker(new_run: NewRun) -> None:
    run = new_run(PEOPLE)
    workers = [run.start(name) for name in ("one", "two")]
    alone = run.start("flags", command="flags")
    for worker in (*workers, alone):
        worker.wait_until_ready()
    run.feed(spans(*(tool(f"s{at}", {"q": at}, f"answer {at}", at=at, conversation="mine") for at in range(3))))
    for worker in (*workers, alone):
        wait_until(lambda worker=worker: worker.flag("mine")["known"], lambda: "the conversation is unknown")
    assert change(alone, "POST", "nobody", level="STOP", reason="x")[0] == 404
    assert change(alone, "POST", "mine", token="agents", level="STOP", reason="x")[0] == 401
    assert change(alone, "POST", "mine", level="BURN", reason="x")[0] == 400
    status, written = change(workers[0], "POST", "mine", level="STOP", reason="enough", actor="maria")
    assert (status, written["trajectory_id"], written["accepted"], written["level"]) == (202, "mine", "raise", "STOP")
    for worker in (*workers, alone):
        level_is(worker, "mine", "STOP")
        assert worker.flag("mine")["by_hand"] == {"reason": "enough", "actor": "maria", "ordinal": 1}
    stopped = agent(guarded(alone.flags_url), rounds=4).invoke(
        {"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "mine"}}
    )
    assert stopped["messages"][-1].content.startswith("A person has ended this run.")
    assert change(workers[1], "DELETE", "mine")[0] == 202
    for worker in (*workers, alone):
        level_is(worker, "mine", "OBSERVE")
    assert [worker.terminate() for worker in (*workers, alone)] == [0, 0, 0]


TENANTS = ["service.namespace", "deployment.environment.name"]


@cache
def load() -> tuple[list[Record], Any, dict[str, dict[str, Any]]]:
    requests = recorded_load(copies=1, seed=3).requests[:8]
    return [record for data in requests for record in records_of(data)], scored(requests), expected_verdicts(requests)


def answers_differ(worker: Worker) -> list[Any]:
    """The questions that the worker answers differently from one process."""
    scorer, found = load()[1], []
    find = RegistryFlags(scorer.registry).find
    for name in (one.key[1] for one in scorer.registry):
        state = find(name)
        for after, hands in questions(state):
            expected = flag_reply(name, state, after, hands, mode="enforce", max_score=5.0)
            query = {key: value for key, value in (("after", after), ("by_hand", hands)) if value is not None}
            given = worker.flag(name, **query)
            assert (given.pop("budget"), given.pop("separate_by")) == (None, TENANTS)
            if state is None or state.current[1:] == (None, None):
                for key in NUMBERS:
                    expected.pop(key), given.pop(key)
            for plain in (expected, given):
                plain.get("spent", {}).pop("cost_usd", None)
            if json.loads(json.dumps(expected)) != given:
                found.append((name, after, expected, given))
    return found


@pytest.mark.parametrize("guarantee", [pytest.param("at-least-once", marks=pytest.mark.nightly), "exactly-once"])
def test_kill_9_changes_no_answer(new_run: NewRun, guarantee: str) -> None:
    records, _, expected = load()
    run = new_run(guarantee=guarantee, transaction_timeout_s=4.0)
    first, second = run.start("one"), run.start("two")
    second.wait_until_ready()
    half = random.Random(7).randrange(len(records) // 3, 2 * len(records) // 3)
    run.feed(records[:half])
    wait_until(lambda: compared(run.verdicts(), expected)[0] < 0.9 * len(expected), lambda: first.log[-2_000:])
    first.kill()
    run.feed(records[half:])
    third = run.start("three")
    run.wait_for(expected)
    for worker in (second, third):
        worker.wait_until_ready()
        wait_until(
            lambda worker=worker: not answers_differ(worker), lambda worker=worker: str(answers_differ(worker)[:2])
        )
        assert answers_differ(worker) == []
