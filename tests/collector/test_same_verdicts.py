"""One engine, many shells: the collector says what the span processor says, however the spans arrive."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import (
    HOURS,
    capture_request,
    comparable,
    loop,
    loop_within_a_node,
    request,
    run_requests,
    score_all,
    singles,
    span,
    split,
    tool,
    views,
)
from tests.helpers import DATA, capture, capture_names, lines, one_in
from trajectory_guard.cli.recordings.inputs import Diagnostics
from trajectory_guard.cli.replay import replay
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level

RUNS = list(lines(DATA / "trajectories_sample.jsonl.gz"))


def deliveries(requests: list[bytes], seed: str) -> dict[str, list[bytes]]:
    """The same spans in order, merged, shuffled, backwards, those without agents first, delivered twice, and twice in
    another order."""
    shuffled = requests[:]
    random.Random(seed).shuffle(shuffled)
    return {
        "in order": requests,
        "one request": [b"".join(requests)],
        "batches of three": split(shuffled, [3] * len(requests)),
        "shuffled": shuffled,
        "backwards": requests[::-1],
        "those without agents first": sorted(requests, key=lambda data: bool(views(data))),
        "every span twice": [one for data in requests for one in (data, data)],
        "again in another order": requests + shuffled,
    }


@pytest.mark.parametrize("name", one_in(4, capture_names()))
def test_captures_are_evaluated_as_in_process(name: str) -> None:
    expected = comparable(evaluate_in_process(capture(name)))
    for how, requests in deliveries(singles(capture_request(name)), name).items():
        assert comparable(score_all(requests)) == expected, how


def test_agents_that_only_the_names_of_spans_show_are_told_apart() -> None:
    name = "google-adk-1.14__agents"
    expected = comparable(evaluate_in_process(capture(name)))
    for how, requests in deliveries(singles(capture_request(name)), name).items():
        found = score_all(requests)
        assert comparable(found) == expected, how
        assert len({verdict.run for verdict in found.values()}) == 4, how


@pytest.mark.slow
def test_the_captures_have_steps_and_findings() -> None:
    found = [verdict for name in capture_names() for verdict in evaluate_in_process(capture(name)).values()]
    assert len(found) > 500
    assert sum(bool(verdict.detections) for verdict in found) > 40
    assert [
        verdict.reason for verdict in found if verdict.tool == "model"
    ] == []  # no capture holds repeated model calls


def replayed(requests: list[bytes], folder: Path) -> dict[str, Verdict]:
    """Verdicts by span id when the spans are read from a file."""
    file = folder / "spans.pb"
    file.write_bytes(b"".join(requests))
    outcomes = replay([str(file)], GuardConfig(), Diagnostics())
    return {one.step_id: one for outcome in outcomes for one in outcome.verdicts if one is not None}


def unplaced(compared: tuple[Any, ...]) -> tuple[Any, ...]:
    """A verdict without the index of its step."""
    return (compared[0], *compared[2:])


@pytest.mark.slow
def test_captures_are_replayed_as_the_collector_evaluates_them(tmp_path: Path) -> None:
    """A replay reads transcripts too: compared are captures in which it finds the same steps.

    It puts the calls of one batch in the order in which they began, not in which they ended. In one capture the
    messages show empty results, which the spans leave out.
    """
    alike, different = 0, {}
    for name in set(capture_names()) - {"agent-framework-openinference__main"}:
        requests = singles(capture_request(name))
        found, expected = comparable(replayed(requests, tmp_path)), comparable(score_all(requests))
        if found.keys() == expected.keys():
            alike += 1
            pairs = {key: (name, unplaced(found[key]), unplaced(expected[key])) for key in found}
            different.update({key: pair for key, pair in pairs.items() if pair[1] != pair[2]})
    assert alike >= 80
    assert different == {}


def spending_run(where: str) -> list[bytes]:
    """Model calls that report tokens, and the tool calls they ask for, below an agent's span that ends last."""
    found = []
    for at in range(8):
        usage = {"gen_ai.usage.input_tokens": 1_000 + at, "gen_ai.usage.output_tokens": 20, "gen_ai.request.model": "m"}
        asked = {"gen_ai.operation.name": "chat", **usage}
        found.append(span(f"{where}/chat{at}", asked, trace=where, parent=f"{where}/agent", at=2.0 * at, dur=1.0))
        found.append(
            tool(f"{where}/tool{at}", conversation=None, trace=where, parent=f"{where}/agent", at=2.0 * at + 1)
        )
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner", "gen_ai.conversation.id": "c"}
    return [request(one) for one in (*found, span(f"{where}/agent", agent, trace=where, dur=100.0))]


def test_spending_and_runs_are_the_same_everywhere(tmp_path: Path) -> None:
    requests = [*spending_run("first"), *spending_run("second")]
    everywhere = [view for data in requests for view in views(data)]
    expected = comparable(evaluate_in_process(everywhere))
    found = evaluate_in_process(everywhere).values()
    assert max(one.spent.tokens for one in found) == sum(1_020 + at for at in range(1, 8))
    assert len({one.run for one in found}) == 2
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, "spending").items():
        assert comparable(score_all(delivered)) == expected, how


def test_a_loop_within_a_node_is_the_same_everywhere(tmp_path: Path) -> None:
    requests = [request(one) for one in (*loop_within_a_node(8), span("graph", {}, dur=100.0))]
    expected = comparable(evaluate_in_process([view for data in requests for view in views(data)]))
    assert {one.level for one in score_all(requests).values()} == set(Level)
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, "own loop").items():
        assert comparable(score_all(delivered)) == expected, how


def calls_within_tools(*, graph: str, agent: str) -> list[bytes]:
    """Reports about ever other topics; the tool fetches the same page again and again."""
    place = (
        {"metadata": json.dumps({"langgraph_step": 1, "langgraph_checkpoint_ns": f"{graph}tools:1"})} if graph else {}
    )
    found = []
    for at, topic in enumerate(["pears", "plums", "grapes", "figs", "dates", "limes"]):
        found += [
            tool(
                f"fetch {topic} {inner}", {"url": "index"}, "pending", tool_name="fetch", conversation=None,
                extra=place, parent=f"code {topic}", at=10.0 * at + inner, dur=0.5,
            )
            for inner in range(8)
        ]  # fmt: skip
        found.append(
            span(f"code {topic}", {"openinference.span.kind": "CHAIN"}, parent=f"report {topic}", at=10.0 * at, dur=8.7)
        )
        found.append(
            tool(
                f"report {topic}", {"topic": topic}, f"All there is to say about {topic}.", tool_name="report",
                conversation=None, extra=place, parent=agent, at=10.0 * at, dur=9.0,
            )
        )  # fmt: skip
    if agent:
        named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner", "gen_ai.conversation.id": "c"}
        found.append(span("agent", named, dur=100.0))
    return [request(one) for one in found]


@pytest.mark.parametrize("graph", ["", "writer:7|"])
@pytest.mark.parametrize("agent", ["", "agent"])
def test_calls_that_a_tool_makes_are_not_the_agents_in_any_shell(graph: str, agent: str, tmp_path: Path) -> None:
    requests = calls_within_tools(graph=graph, agent=agent)
    everywhere = [view for data in requests for view in views(data)]
    verdicts = evaluate_in_process(everywhere)
    reports = [one for one in verdicts.values() if one.tool == "report"]
    assert len(reports) == 6
    assert {one.level for one in reports} == {Level.OBSERVE}
    assert len({one.run for one in reports}) == 1
    assert {one.run for one in verdicts.values() if one.tool == "fetch"} == {one.step_id for one in reports}
    expected = comparable(verdicts)
    again = replayed(requests, tmp_path)  # places differ: it puts the calls in the order in which they began
    assert {key: (one.run, one.level, one.reason) for key, one in again.items()} == {
        key: (one.run, one.level, one.reason) for key, one in verdicts.items()
    }
    for how, delivered in deliveries(requests, "within").items():
        assert comparable(score_all(delivered)) == expected, how


@pytest.mark.parametrize("size", [5_000, 9_000, 40_000])
def test_long_results_are_the_same_everywhere(size: int, tmp_path: Path) -> None:
    """Both ends are equal throughout; of the longer ones only a digest of the middle tells them apart."""
    texts = [HOURS * (size // len(HOURS)) + f"{'AB'[at // 4]} only this differs " + HOURS * 100 for at in range(8)]
    requests = [request(tool(f"s{at}", {"q": 1}, text, at=at, parent="root")) for at, text in enumerate(texts)]
    expected = comparable(evaluate_in_process([view for data in requests for view in views(data)]))
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, f"long {size}").items():
        assert comparable(score_all(delivered)) == expected, how


@pytest.mark.parametrize("run", one_in(8, RUNS[::3], lambda run: str(run["id"])))
def test_recorded_runs_are_evaluated_as_in_process(run: dict) -> None:  # type: ignore[type-arg]
    requests = run_requests(run)
    expected = comparable(evaluate_in_process([view for data in requests for view in views(data)]))
    for how, delivered in deliveries(requests, run["id"]).items():
        assert comparable(score_all(delivered)) == expected, how


def test_runs_that_arrive_interleaved_do_not_touch_each_other() -> None:
    runs = [run_requests(run) for run in RUNS[1::6]]
    expected = {}
    for requests in runs:
        expected.update(comparable(evaluate_in_process([view for data in requests for view in views(data)])))
    everything = [data for requests in runs for data in requests]
    random.Random(7).shuffle(everything)
    assert comparable(score_all(split(everything, [40] * len(everything)))) == expected
    assert sum(bool(types) for _, _, _, _, types, *_ in expected.values()) > 20


def _mixed() -> list[bytes]:
    """Two conversations, one of which loops, recovers and loops again."""
    fresh = [tool(f"f{at}", {"q": at}, f"answer {at}", at=10 + at) for at in range(4)]
    other = [tool(f"o{at}", {"page": at}, f"page {at}", conversation="other", at=at + 0.2) for at in range(8)]
    return [request(one) for one in (*loop(4), *fresh, *loop(4, prefix="again", start=20.0), *other)]


@given(
    order=st.permutations(range(20)), sizes=st.lists(st.integers(1, 6), max_size=20), twice=st.sets(st.integers(0, 19))
)
def test_order_batches_and_repetition_do_not_matter(order: list[int], sizes: list[int], twice: set[int]) -> None:
    requests = _mixed()
    delivered = [requests[at] for at in order] + [requests[at] for at in sorted(twice)]
    assert comparable(score_all(split(delivered, sizes))) == comparable(score_all(requests))
