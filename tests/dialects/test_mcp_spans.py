"""Calls of MCP servers: the span of the transport within the tool span, and results as content blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.collector.in_process import evaluate_in_process
from tests.helpers import extract_step, span_view
from trajectory_guard.core.policy import Level
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.spans.content import decode_result
from trajectory_guard.transcripts.assemble import extract_steps

ROOT = span_view(
    {"openinference.span.kind": "AGENT", "session.id": "s"}, "agent", span_id="f" * 16, start=0.0, end=999.0
)


def framework(at: int, name: str = "search", result: str = "No results", **args: Any) -> SpanView:
    """A tool span of a framework."""
    attributes = {
        "openinference.span.kind": "TOOL", "tool.name": name, "input.value": json.dumps(args or {"q": "x"}),
        "output.value": result,
    }  # fmt: skip
    return span_view(attributes, name, span_id=f"1{at:015x}", parent_id="f" * 16, start=at + 1.0, end=at + 1.5)


def transport(at: int, name: str = "MCP send tools/call search", parent: str = "") -> SpanView:
    """The span of the client of the MCP SDK for Python within it."""
    return span_view(
        {"mcp.method.name": "tools/call", "jsonrpc.request.id": str(at)}, name, span_id=f"2{at:015x}", scope="mcp-python-sdk",
        parent_id=parent or f"1{at:015x}", start=at + 1.1, end=at + 1.4, kind="client",
    )  # fmt: skip


def levels(spans: list[SpanView]) -> list[Level]:
    return [verdict.level for verdict in evaluate_in_process(spans).values()]


@pytest.mark.parametrize(
    "sent", ["MCP send tools/call search", "tools/call search", "MCP send tools/call docs_search", "tools/call"]
)
def test_a_loop_through_an_mcp_server_is_found_as_without_the_span_of_the_transport(sent: str) -> None:
    calls = [framework(at) for at in range(8)]
    spans = [ROOT, *calls, *(transport(at, sent) for at in range(8))]
    assert levels(spans) == levels([ROOT, *calls])
    assert Level.STOP in levels(spans)
    assert [step.tool_name for step in extract_steps(spans)] == ["search"] * 8


def test_one_error_through_an_mcp_server_is_found_as_without_the_span_of_the_transport() -> None:
    calls = [framework(at, "boom", "Error executing tool boom", n=at) for at in range(32)]
    spans = [ROOT, *calls, *(transport(at, "MCP send tools/call boom") for at in range(32))]
    assert levels(spans) == levels([ROOT, *calls])
    assert Level.STOP in levels(spans)


def test_without_a_framework_the_span_of_the_transport_is_the_call() -> None:
    step = extract_step(transport(1), ancestors=[ROOT])
    assert step is not None
    assert (step.dialect, step.tool_name) == ("mcp", "search")


def test_an_agent_called_as_a_tool_makes_calls_of_its_own() -> None:
    outer = framework(1, "research")
    inner = span_view(
        {"openinference.span.kind": "AGENT"}, "sub", span_id="a" * 16, parent_id=outer.span_id, start=2.0, end=2.5
    )
    call = transport(1, parent="a" * 16)._replace(start=2.1, end=2.2)
    assert [step.tool_name for step in extract_steps([ROOT, outer, inner, call])] == ["research", "search"]


BLOCK = {"type": "text", "text": "No results"}
WRITTEN: list[Any] = [
    BLOCK, [BLOCK], {**BLOCK, "annotations": None, "_meta": None}, {"content": [BLOCK], "isError": False},
    {"content": [BLOCK], "structuredContent": {"result": "No results"}, "isError": False, "_meta": None},
]  # fmt: skip


@pytest.mark.parametrize("value", WRITTEN)
@pytest.mark.parametrize("as_text", [True, False])
def test_content_blocks_of_text_are_the_text(value: Any, as_text: bool) -> None:
    payload = decode_result(json.dumps(value) if as_text else value)
    assert payload.text == "No results"
    assert not payload.error


def test_several_blocks_are_a_line_each_and_a_failure_is_one() -> None:
    failed = decode_result(json.dumps({"content": [BLOCK, {"type": "text", "text": "boom"}], "isError": True}))
    assert (failed.text, failed.error) == ("No results\nboom", True)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "text", "text": "a", "rows": 3}, {"type": "image", "data": "iVBOR"}, [BLOCK, {"type": "image", "data": "x"}],
        {"text": "a"}, {"content": "a text", "id": 7}, {"content": [{"name": "x"}]}, [], ["text"],
    ],
)  # fmt: skip
def test_other_results_are_left_as_they_are(value: Any) -> None:
    text = json.dumps(value)
    assert decode_result(text).text == text


def test_a_result_in_a_content_block_that_finds_nothing_is_empty() -> None:
    blocks = framework(1, result=json.dumps(BLOCK))
    step = extract_step(blocks, ancestors=[ROOT])
    assert step is not None
    assert (step.outcome_type, step.result) == ("empty", "No results")


@pytest.mark.parametrize("text", ["Error executing tool boom: no such file", "Error calling tool 'boom': no such file"])
def test_the_text_that_servers_give_a_call_that_raised_is_an_error(text: str) -> None:
    step = extract_step(framework(1, "boom", json.dumps({"type": "text", "text": text})), ancestors=[ROOT])
    assert step is not None
    assert step.outcome_type == "error"


SESSION = span_view(
    {"traceloop.span.kind": "session"}, "mcp.client.session", span_id="5" * 16, parent_id="f" * 16, start=0.5, end=900.0,
    scope="opentelemetry.instrumentation.mcp.instrumentation",
)  # fmt: skip


def served(at: int, **fields: Any) -> SpanView:
    """The span of a server in the same process, which stands below the client's session and not below the call."""
    span = transport(at, "tools/call search", SESSION.span_id)
    return span._replace(**{"span_id": f"3{at:015x}", "kind": "server", "scope": "fastmcp", **fields})


def test_a_call_within_a_clients_session_is_the_clients() -> None:
    spans = [ROOT, SESSION, framework(1), transport(1), served(1)]
    assert [step.dialect for step in extract_steps(spans)] == ["openinference"]


@pytest.mark.parametrize("without", [SESSION, None])
def test_a_client_or_a_server_alone_reports_the_call(without: SpanView | None) -> None:
    alone = served(1) if without is SESSION else served(1, kind="client")
    spans = [one for one in (ROOT, SESSION, alone) if one is not without]
    assert [step.tool_name for step in extract_steps(spans)] == ["search"]
