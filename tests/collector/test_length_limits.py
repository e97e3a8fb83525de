"""Senders whose SDK cuts attributes off at a length limit: the collector learns it from JSON that breaks off."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.kit import new_scorer, request, span, tool, verdicts
from tests.collector.service_helpers import service_config
from trajectory_guard.core.policy import Level
from trajectory_guard.dialects.span import CutOff, SpanEvent, SpanView
from trajectory_guard.spans.length_limits import LengthLimits
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.scoring.scorer import RequestScorer

LIMIT = 300
HEAD = "\n".join(f"step {at} of the build is done" for at in range(20))


def model_calls(count: int) -> Iterator[Span]:
    """Model calls whose messages are cut off at the limit."""
    for at in range(count):
        messages = [{"role": "user", "parts": [{"type": "text", "content": f"{at * 7919}: how is the build? {HEAD}"}]}]
        attributes = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.conversation.id": "c",
            "gen_ai.input.messages": json.dumps(messages)[:LIMIT],
        }  # fmt: skip
        yield span(f"m{at}", attributes, span_name="chat m", at=2.0 * at)


def reads_of_a_growing_log(count: int, *, start: float = 10.0) -> list[Span]:
    """The same call again and again; what is new in its results lies beyond the limit."""
    lines = [HEAD]
    found = []
    for at in range(count):
        lines.append(f"compiled module {at}")
        found.append(tool(f"t{at}", {"job": 1}, "\n".join(lines)[:LIMIT], tool_name="read_log", at=start + 2.0 * at))
    return found


def levels(requests: Iterable[bytes], scorer: RequestScorer | None = None) -> set[Level]:
    scorer = scorer or new_scorer(learns_limits=True)
    for data in requests:
        scorer.score(data)
    scorer.finish()
    return {verdict.level for verdict in verdicts(scorer).values()}


def test_a_healthy_agent_under_a_length_limit_is_left_alone() -> None:
    assert levels(map(request, [*model_calls(2), *reads_of_a_growing_log(12)])) == {Level.OBSERVE}
    assert Level.STOP in levels(
        map(request, reads_of_a_growing_log(12))
    )  # without a sign of the limit nothing tells the two apart


def test_the_collector_learns_and_others_do_not() -> None:
    data = [request(one) for one in (*model_calls(2), *reads_of_a_growing_log(12))]
    assert levels(data, Collector(service_config()).scorer) == {Level.OBSERVE}
    assert Level.STOP in levels(data, new_scorer())  # stream workers read other requests each, and have to agree


def test_a_limit_is_that_of_its_sender() -> None:
    spans = [*model_calls(2), *reads_of_a_growing_log(12)]
    data = [request(one, service="one" if at < 2 else "another") for at, one in enumerate(spans)]
    assert Level.STOP in levels(data)


def test_loops_of_short_results_are_found_under_a_limit() -> None:
    looping = [
        tool(f"t{at}", {"q": 1}, "Closed on Mondays. Open from Tuesday to Sunday.", at=10.0 + 2.0 * at)
        for at in range(6)
    ]
    assert Level.STOP in levels(map(request, [*model_calls(2), *looping]))


def view(value: object, *, of_event: bool = False) -> SpanView:
    attributes = {"key": value}
    events = [SpanEvent("event", attributes)] if of_event else []
    return SpanView("s", {} if of_event else attributes, "t", "s", events=events)


@pytest.mark.parametrize("of_event", [False, True], ids=["attributes", "events"])
def test_two_texts_that_break_off_at_one_length_show_the_limit(of_event: bool) -> None:
    limits, texts = LengthLimits(), ['{"a": "' + letter * 93 for letter in "xyz"]
    marked = [limits.mark(view(text, of_event=of_event)) for text in texts]
    kept = [one.events[0].attributes if of_event else one.attributes for one in marked]
    assert [isinstance(one["key"], CutOff) for one in kept] == [False, True, True]
    assert isinstance(limits.mark(view("p" * 100)).attributes["key"], CutOff)  # plain text of that very length
    assert not isinstance(limits.mark(view("p" * 99)).attributes["key"], CutOff)


@pytest.mark.parametrize(
    "texts",
    [
        ['{"a": "' + "x" * 93] * 3,
        ['{"a": "' + letter * 91 + '"}' for letter in "xyz"],
        ["plain " + letter * 94 for letter in "xyz"],
        [
            f'{{"order": {at}, "note": "an \\"open\\" {{ in it"}} (see the manual for what may be done)'
            for at in range(5)
        ],
        [f"[{{'order': {at}, 'note': \"it's open\"}}] and nothing else was found in the database" for at in range(5)],
        [f"[08:14:2{at}] the build is under way, and step {at} of it is being done by the worker" for at in range(5)],
        ['{"' + letter * 20 for letter in "xyz"],
        ['{"a": "' + "x" * (93 + at) for at in range(5)],
    ],
    ids=[
        "one text",
        "whole JSON",
        "plain texts",
        "remarks behind JSON",
        "remarks behind Python",
        "lines of a log",
        "short texts",
        "other lengths",
    ],
)
def test_nothing_else_shows_a_limit(texts: list[str]) -> None:
    limits = LengthLimits()
    assert not [one for text in texts if isinstance(one := limits.mark(view(text)).attributes["key"], CutOff)]


def test_what_is_learned_is_bounded() -> None:
    limits = LengthLimits()
    for chars in range(64, 2_000):
        for letter in "xy":
            limits.mark(view('{"' + letter * chars))
    assert len(limits._limits) <= 4
    assert len(limits._candidates) <= 64
