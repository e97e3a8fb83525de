"""Requests are opened only as far as needed, and what is read is what the JSON encoding says."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.collector.kit import capture_request, new_scorer, request, span, tool, views
from tests.helpers import capture, capture_names
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.scoring.parser import RequestParser

UNKNOWN_FIELD = bytes([0xFA, 0x3F, 3]) + b"new"  # field 1023, three bytes


@pytest.mark.parametrize("name", capture_names())
def test_agent_spans_are_seen_as_in_json(name: str) -> None:
    expected = {(view.trace_id, view.span_id): view for view in capture(name)}
    seen = [one.view for one in RequestParser(DIALECTS).read(capture_request(name)).agent_spans]
    assert seen
    assert all(view == expected[view.trace_id, view.span_id] for view in seen)


def test_spans_that_say_nothing_of_agents_are_left_unread() -> None:
    data = request(span("a", {"http.request.method": "GET"}), span("b", {}), tool("t"))
    parsed = RequestParser(DIALECTS).read(data)
    assert [seen.view.name for seen in parsed.agent_spans] == ["execute_tool search"]
    assert len(parsed.opaque_spans) == 2
    assert parsed.count == 3


def test_declared_dialects_are_read() -> None:
    table = table_with(
        [{"name": "acme", "match": {"acme.kind": "tool"}, "tool_name": "acme.tool", "agent": "acme.who"}]
    )
    data = request(span("a", {"acme.kind": "tool", "acme.tool": "x"}), span("b", {"acme.who": "bob"}))
    assert len(RequestParser(table).read(data).agent_spans) == 2
    assert RequestParser(DIALECTS).read(data).agent_spans == []


def test_requests_without_agents_pass_as_the_same_object() -> None:
    data = request(*(span(f"s{at}", {"http.route": "/"}) for at in range(5)))
    scored = new_scorer().score(data)
    assert scored.data is data
    assert (scored.spans, scored.agent_spans) == (5, 0)


def test_requests_in_which_nothing_is_found_pass_as_the_same_object() -> None:
    data = request(tool("t"), span("s", {}))
    scored = new_scorer().score(data)
    assert scored.data is data
    assert scored.agent_spans == 1


def test_what_a_request_holds_beyond_the_known_fields_is_written_back() -> None:
    message = ExportTraceServiceRequest.FromString(request(tool("t")) + UNKNOWN_FIELD)
    group = message.resource_spans[0]
    group.schema_url = "https://example.org/resource"
    group.scope_spans[0].schema_url = "https://example.org/scope"
    group.resource.dropped_attributes_count = 3
    data = message.SerializeToString()
    again = ExportTraceServiceRequest.FromString(Request.FromString(data).SerializeToString())
    assert again == message
    assert UNKNOWN_FIELD in Request.FromString(data).SerializeToString()


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x05abc", request(tool("t"))[:-3]])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        new_scorer().score(data)


def test_messages_spread_over_an_agents_span_do_not_hide_that_it_is_an_agents() -> None:
    spread = {f"llm.output_messages.{at}.message.role": "assistant" for at in range(100)}
    data = request(span("a", {**spread, "openinference.span.kind": "AGENT", "session.id": "chat-7"}))
    (seen,) = RequestParser(DIALECTS).read(data).agent_spans
    assert seen.kept_view.attributes == {"openinference.span.kind": "AGENT", "session.id": "chat-7"}


@pytest.mark.parametrize(("chars", "shared"), [(200, True), (300, False)])
def test_spans_share_the_names_of_attributes_until_memory_is_short_and_long_ones_never(
    chars: int, shared: bool
) -> None:
    scorer, data = new_scorer(), request(tool("t", extra={"k" * chars: "v"}))

    def name() -> str:
        (seen,) = views(data)
        return next(key for key in seen.attributes if len(key) == chars)

    first = name()
    assert (name() is first) is shared
    scorer.shed()
    assert name() is not first
