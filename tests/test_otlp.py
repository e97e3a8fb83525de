"""OTLP/JSON to spans: both spellings of keys, ids and enums; clear errors."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from tests.helpers import DATA
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.otlp import any_value, hex_id, spans_from_json

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


def request(span: dict[str, Any], *, scope: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "app"}}]},
                "scopeSpans": [{"scope": scope or {"name": "lib", "version": "1"}, "spans": [span]}],
            }
        ]
    }


def only(value: dict[str, Any]) -> SpanView:
    (span,) = spans_from_json(value)
    return span


CAMEL = {
    "traceId": TRACE,
    "spanId": SPAN,
    "parentSpanId": PARENT,
    "name": "execute_tool x",
    "kind": 3,
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": 1700000001500000000,
    "attributes": [{"key": "a", "value": {"intValue": "7"}}],
    "events": [{"name": "exception", "attributes": [{"key": "exception.type", "value": {"stringValue": "E"}}]}],
    "status": {"code": 2, "message": "no"},
}


def test_a_span_is_read_whole() -> None:
    span = only(request(CAMEL))
    assert (span.trace_id, span.span_id, span.parent_id) == (TRACE, SPAN, PARENT)
    assert (span.start, span.end) == (1_700_000_000.0, 1_700_000_001.5)
    assert (span.kind, span.status, span.status_description) == ("client", "error", "no")
    assert (span.attributes, span.events[0].attributes) == ({"a": 7}, {"exception.type": "E"})
    assert (span.scope, span.scope_version, span.resource) == ("lib", "1", {"service.name": "app"})


def test_snake_case_base64_ids_and_enum_names_read_the_same() -> None:
    snake = {
        "trace_id": base64.b64encode(bytes.fromhex(TRACE)).decode(),
        "span_id": base64.b64encode(bytes.fromhex(SPAN)).decode(),
        "parent_span_id": base64.b64encode(bytes.fromhex(PARENT)).decode(),
        "name": "execute_tool x",
        "kind": "SPAN_KIND_CLIENT",
        "start_time_unix_nano": "1700000000000000000",
        "end_time_unix_nano": "1700000001500000000",
        "attributes": [{"key": "a", "value": {"int_value": "7"}}],
        "events": CAMEL["events"],
        "status": {"code": "STATUS_CODE_ERROR", "message": "no"},
    }
    both = request(snake)
    group = both["resourceSpans"][0]
    spelled = {"resource_spans": [{"resource": group["resource"], "scope_spans": group["scopeSpans"]}]}
    assert only(both) == only(spelled) == only(request(CAMEL))


def test_upper_case_ids_become_lower_case() -> None:
    assert only(request({**CAMEL, "traceId": TRACE.upper(), "spanId": SPAN.upper()})).span_id == SPAN


@pytest.mark.parametrize(
    "kind, wanted",
    [
        (0, "internal"),
        (1, "internal"),
        (2, "server"),
        ("SPAN_KIND_PRODUCER", "producer"),
        ("5", "consumer"),
        ("odd", "internal"),
    ],
)
def test_kinds(kind: Any, wanted: str) -> None:
    assert only(request({**CAMEL, "kind": kind})).kind == wanted


@pytest.mark.parametrize(
    "code, wanted", [(0, "unset"), (1, "ok"), (2, "error"), ("STATUS_CODE_OK", "ok"), (9, "unset")]
)
def test_status_codes(code: Any, wanted: str) -> None:
    assert only(request({**CAMEL, "status": {"code": code}})).status == wanted


def test_a_root_span_has_no_parent() -> None:
    assert only(request({**CAMEL, "parentSpanId": ""})).parent_id is None
    assert only(request({key: value for key, value in CAMEL.items() if key != "parentSpanId"})).parent_id is None


@pytest.mark.parametrize("missing", ["traceId", "spanId"])
def test_a_span_without_its_ids_is_refused_by_name(missing: str) -> None:
    broken = {key: value for key, value in CAMEL.items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        list(spans_from_json(request(broken)))


@pytest.mark.parametrize("value", ["xyz", "12", "g" * 16, "!!!!", 12])
def test_an_id_that_is_none_is_refused_with_its_value(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not an id of 16 hex digits"):
        hex_id(value, 16)


@pytest.mark.parametrize("value", [{}, {"spans": []}, {"resourceSpans": None}, {"resourceSpans": {}}])
def test_what_is_no_trace_request_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="resourceSpans"):
        list(spans_from_json(value))


def test_a_list_of_log_events_is_refused() -> None:
    events = json.loads(
        gzip.decompress((DATA / "spans" / "openllmetry-langchain-events__stategraph_sync.logs.json.gz").read_bytes())
    )
    with pytest.raises(ValueError, match="resourceSpans"):
        list(spans_from_json(events))


@pytest.mark.parametrize("group", [None, 7, "x", []])
def test_a_group_that_is_no_object_is_refused(group: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any clear message will do
        list(spans_from_json({"resourceSpans": [group]}))


def test_values_of_every_kind() -> None:
    items = [
        {"stringValue": "x"},
        {"boolValue": True},
        {"intValue": "9007199254740993"},
        {"doubleValue": 0.5},
        {"doubleValue": "NaN"},
    ]
    decoded = any_value({"arrayValue": {"values": items}})
    assert decoded[:4] == ["x", True, 9007199254740993, 0.5]
    assert decoded[4] != decoded[4]
    assert any_value({"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}) == {"k": "v"}
    assert any_value({}) is None


def test_bad_times_count_as_zero() -> None:
    span = only(request({**CAMEL, "startTimeUnixNano": "soon", "endTimeUnixNano": None}))
    assert (span.start, span.end) == (0.0, 0.0)
