"""Texts that are no UTF-8, as senders in other languages and their collectors let them pass."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.collector.kit import HOURS, by_name, loop, new_scorer, request, span_id, tool, verdicts
from tests.collector.service_helpers import running
from trajectory_guard import telemetry
from trajectory_guard.core.policy import Level
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.otlp.structure import count

TEXT = "Zo\u00eb"
CUT_OFF = b"Zo" + b"\xc3\x2e"
"""As long as ``TEXT``: the first byte of a character, and none that continues it."""
PLACES = {
    "value": {"extra": {"user": TEXT}},
    "key": {"extra": {TEXT: "user"}},
    "list": {"extra": {"users": ["a", TEXT]}},
    "arguments": {"args": {"user": TEXT}},
    "result": {"result": f"{HOURS} {TEXT}"},
}


def damaged(data: bytes) -> bytes:
    assert TEXT.encode() in data
    return data.replace(TEXT.encode(), CUT_OFF)


@pytest.mark.parametrize("place", PLACES)
def test_a_span_with_a_bad_text_is_evaluated_and_costs_no_other_span(place: str) -> None:
    odd = [tool(f"o{at}", conversation="odd", at=at, **PLACES[place]) for at in range(5)]
    if place == "arguments":  # JSON as most write it, with the characters themselves
        for one in odd:
            for item in one.attributes:
                if item.key == "gen_ai.tool.call.arguments":
                    item.value.string_value = json.dumps({"user": TEXT}, ensure_ascii=False)
    data = damaged(request(*odd, *loop(5)))
    assert at_once(count(Signal.TRACES, data)) == 10
    scorer = new_scorer()
    scorer.score(data)
    found = verdicts(scorer)
    assert found[span_id("s4").hex()].level is found[span_id("o4").hex()].level is Level.STOP


@pytest.mark.parametrize("where", ["resource", "scope"])
def test_a_bad_text_around_spans_costs_none_of_them(where: str) -> None:
    around = {"resource": {"team": TEXT}} if where == "resource" else {"scope": TEXT}
    scorer = new_scorer()
    scorer.score(damaged(request(*loop(3), **around)))  # type: ignore[arg-type]
    assert verdicts(scorer)[span_id("s2").hex()].level is Level.NUDGE


def test_spans_that_are_not_tagged_are_forwarded_as_they_came() -> None:
    odd = request(tool("odd", {"user": 1}, TEXT, conversation="odd"))
    data = damaged(odd + request(*loop(3)))
    tagged = new_scorer().score(data).data
    assert CUT_OFF in tagged
    assert sum(telemetry.LOOP_TYPE in tags for tags in by_name(tagged.replace(CUT_OFF, TEXT.encode())).values()) > 1


async def test_a_collector_takes_all_signals_with_bad_texts() -> None:
    logs, metrics = ExportLogsServiceRequest(), ExportMetricsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = TEXT
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name=TEXT).gauge.data_points.add(as_int=1)
    sent = {"traces": request(tool("t", {"q": 1}, TEXT)), "logs": logs.SerializeToString(), "metrics": metrics.SerializeToString()}  # fmt: skip
    async with running() as collector, httpx.AsyncClient(trust_env=False, timeout=10) as client:
        for signal, data in sent.items():
            url = f"http://{collector.endpoints['otlp/http']}/v1/{signal}"
            reply = await client.post(url, content=damaged(data), headers={"content-type": "application/x-protobuf"})
            assert reply.status_code == 200, (signal, reply.content)


def test_many_bad_texts_take_no_long_time() -> None:
    began = time.monotonic()
    data = damaged(request(*(tool(f"t{at}", {"q": 1}, TEXT * 100) for at in range(2_000))))
    assert at_once(count(Signal.TRACES, data)) == 2_000
    new_scorer().score(data)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("end", [2**64 - 1, 2**63, 0])
def test_a_loop_at_the_end_of_time_is_reported(end: int) -> None:
    spans = loop(5)
    for at, one in enumerate(spans):
        one.start_time_unix_nano = one.end_time_unix_nano = max(0, end - 5 + at)
    data = new_scorer().score(request(*spans)).data
    assert sum(telemetry.INTERVENTION in tags for tags in by_name(data).values()) > 3
