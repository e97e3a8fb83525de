"""Values nested deeper than protobuf decodes: they cost neither their request nor the spans beside them."""

from __future__ import annotations

import httpx
import pytest

from tests.collector.kit import HOURS, loop, new_scorer, request, span_id, tool, verdicts
from tests.collector.service_helpers import running
from tests.collector.test_hostile_requests import field
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.otlp.structure import count

DEEPEST_LISTS, DEEPEST_MAPS = 49, 32


def lists(levels: int) -> bytes:
    """An ``AnyValue``: lists within each other."""
    value = field(1, b"x")
    for _ in range(levels):
        value = field(5, field(1, value))
    return value


def maps(levels: int) -> bytes:
    """An ``AnyValue``: maps within each other."""
    value = field(1, b"x")
    for _ in range(levels):
        value = field(6, field(1, field(1, b"k") + field(2, value)))
    return value


def attribute(value: bytes) -> bytes:
    return field(1, b"extra") + field(2, value)


def with_spans(data: bytes, *spans: bytes) -> bytes:
    """The request with serialized spans in a resource of its own."""
    return data + field(1, field(2, b"".join(field(2, span) for span in spans)))


@pytest.mark.parametrize(
    "value", [lists(DEEPEST_LISTS + 1), maps(DEEPEST_MAPS + 1), lists(5_000)], ids=["lists", "maps", "very deep"]
)
def test_a_deep_span_is_forwarded_unread_and_the_others_are_evaluated(value: bytes) -> None:
    deep = tool("deep", {"q": 2}, HOURS, at=9.0).SerializeToString() + field(9, attribute(value))
    data, scorer = with_spans(request(*loop(3)), deep), new_scorer()
    assert at_once(count(Signal.TRACES, data)) == 4
    scored = scorer.score(data)
    assert deep in Request.FromString(scored.data).resource_spans[1].scope_spans[0].spans
    assert scored.agent_spans == 3
    assert verdicts(scorer)[span_id("s2").hex()].level is Level.NUDGE
    counted = scorer.metrics.registry.get_sample_value(
        "trajectory_guard_errors_total", {"trajectory_guard_error_where": "parse.depth"}
    )
    assert counted == 1


@pytest.mark.parametrize("value", [lists(DEEPEST_LISTS), maps(DEEPEST_MAPS)], ids=["lists", "maps"])
def test_the_deepest_value_that_can_be_decoded_is_read(value: bytes) -> None:
    data = with_spans(b"", tool("deep").SerializeToString() + field(9, attribute(value)))
    assert new_scorer().score(data).agent_spans == 1


def test_a_deep_span_that_is_to_be_tagged_later_costs_no_verdict() -> None:
    scorer = new_scorer()
    scorer.score(request(*loop(3, parent="agent")))
    deep = tool("agent", at=9.0).SerializeToString() + field(9, attribute(lists(60)))
    data = with_spans(request(tool("s3", at=3.0)), deep)
    scored = scorer.score(data)
    assert deep in Request.FromString(scored.data).resource_spans[1].scope_spans[0].spans
    assert span_id("s3").hex() in verdicts(scorer)


@pytest.mark.parametrize("where", ["resource", "scope"])
def test_a_deep_value_around_spans_costs_none_of_them(where: str) -> None:
    message, scorer = Request.FromString(request(*loop(3))), new_scorer()
    group = message.resource_spans[0]
    if where == "resource":
        group.resource += field(1, attribute(maps(60)))
    else:
        group.scope_spans[0].scope += field(3, attribute(maps(60)))
    scorer.score(message.SerializeToString())
    assert verdicts(scorer)[span_id("s2").hex()].level is Level.NUDGE
    assert {item.service for trajectory in scorer.registry for item in trajectory.items} == {"app"}


async def test_a_collector_takes_deep_values_of_all_signals() -> None:
    point = field(7, attribute(maps(60)))
    sent = {
        "traces": with_spans(b"", tool("t").SerializeToString() + field(9, attribute(maps(60)))),
        "logs": field(1, field(2, field(2, field(5, maps(60))))),
        "metrics": field(1, field(2, field(2, field(1, b"m") + field(5, field(1, point))))),
    }
    async with running() as collector, httpx.AsyncClient(trust_env=False, timeout=10) as client:
        for signal, data in sent.items():
            assert at_once(count(Signal(signal), data)) == 1
            url = f"http://{collector.endpoints['otlp/http']}/v1/{signal}"
            reply = await client.post(url, content=data, headers={"content-type": "application/x-protobuf"})
            assert reply.status_code == 200, (signal, reply.content)
