"""Tools of MCP servers: the protocol's own span is no second step, and the text inside content blocks is the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from tests.helpers import span_view
from trajectory_guard import FlagBoard, GuardConfig, TrajectoryGuardProcessor
from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.core.content.outcome import looks_like_error
from trajectory_guard.core.steps import EMPTY, ERROR
from trajectory_guard.gates.messages import new_steps
from trajectory_guard.spans.content import decode_result
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard.transcripts.transcript import ToolResult, result_text

EXECUTE = {"gen_ai.operation.name": "execute_tool"}
CALL = {"mcp.method.name": "tools/call", "jsonrpc.request.id": "3"}
OUTER, INNER = "1" * 16, "2" * 16


@pytest.fixture
def board() -> FlagBoard:
    return FlagBoard(GuardConfig())


def levels(
    board: FlagBoard, result: str, args: Callable[[int], Any], *, client: str | None = None, rounds: int = 30
) -> tuple[list[int], int, int]:
    """Rounds after which a loop of one's own is nudged, the round after which it is stopped (0: never), and steps."""
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=TracerProvider()))
    tracer, mcp = provider.get_tracer("openinference.instrumentation.openai_agents"), provider.get_tracer("mcp")
    nudged, stopped = list[int](), 0
    with tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT", "session.id": "c"}):
        for number in range(1, rounds + 1):
            attributes = {
                "openinference.span.kind": "TOOL", "tool.name": "boom", "session.id": "c",
                "input.value": json.dumps(args(number)), "output.value": result,
            }  # fmt: skip
            with tracer.start_as_current_span("boom", attributes=attributes):
                if client is not None:
                    with mcp.start_as_current_span(client, kind=SpanKind.CLIENT, attributes=CALL):
                        pass
            flag = board.take("c")
            if flag.verdict is not None and flag.verdict.nudge:
                nudged.append(number)
            if str(flag.level) == "STOP":
                stopped = number
                break
    return nudged, stopped, flag.steps


LOOPS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "the same call": ("No results", lambda number: {"q": "x"}),
    "one error through changing calls": ("Error executing tool boom", lambda number: {"n": number}),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("block", [False, True], ids=["text", "block"])
@pytest.mark.parametrize("client", ["MCP send tools/call boom", "tools/call boom", "tools/call"])
def test_a_loop_is_stopped_as_early_with_the_span_of_the_protocol_as_without(
    loop: str, block: bool, client: str
) -> None:
    result, args = LOOPS[loop]
    plain = levels(FlagBoard(GuardConfig()), result, args)
    assert plain[1], "a loop without MCP is stopped"
    inside = json.dumps({"type": "text", "text": result}) if block else result
    assert levels(FlagBoard(GuardConfig()), inside, args, client=client) == plain


def test_a_nudge_quotes_the_text_and_not_the_block(board: FlagBoard) -> None:
    result = json.dumps({"type": "text", "text": "item 7 costs 12 EUR"})
    levels(board, result, lambda number: {"q": "x"}, rounds=3)
    verdict = board.read("c").verdict
    last = verdict or board._entries["c"].flags[board._entries["c"].state.current].last
    assert last is not None
    assert "item 7 costs 12 EUR" in last.reason
    assert "type" not in last.reason


@pytest.mark.parametrize("tool", ["search", "weather_search", "mcp__weather__search", "use_mcp_tool"])
def test_the_span_of_the_protocol_repeats_the_tool_span_around_it_under_any_name(tool: str) -> None:
    outer = span_view({**EXECUTE, "gen_ai.tool.name": tool}, span_id=OUTER)
    client = span_view(CALL, "MCP send tools/call search", span_id=INNER, parent_id=OUTER, kind="client")
    server = span_view(CALL, "MCP handle tools/call search", span_id="3" * 16, parent_id=INNER, kind="server")
    assert [(one.span_id, one.tool_name) for one in extract_steps([server, client, outer])] == [(OUTER, tool)]


def test_an_agent_inside_a_tool_calls_its_servers_itself() -> None:
    outer = span_view({**EXECUTE, "gen_ai.tool.name": "research"}, span_id=OUTER)
    agent = span_view({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "reader"}, "invoke_agent reader", span_id=INNER, parent_id=OUTER)  # fmt: skip
    client = span_view(CALL, "MCP send tools/call search", span_id="3" * 16, parent_id=INNER, kind="client")
    assert sorted(one.tool_name for one in extract_steps([client, agent, outer])) == ["research", "search"]


@pytest.mark.parametrize(
    "name",
    ["tools/call search", "MCP send tools/call search", "MCP handle tools/call search", "MCP tools/call  search"],
)
def test_a_span_of_the_protocol_alone_is_named_after_its_tool(name: str) -> None:
    assert [one.tool_name for one in extract_steps([span_view(CALL, name)])] == ["search"]


TEXT = {"type": "text", "text": "No results"}
WRAPPED: dict[str, Any] = {
    "a block": json.dumps(TEXT),
    "indented": json.dumps(TEXT, indent=2),
    "a block with notes": json.dumps({**TEXT, "annotations": None, "_meta": {"a": 1}}),
    "a list": json.dumps([TEXT]),
    "a result": json.dumps({"content": [TEXT], "isError": False}),
    "a result with structure": json.dumps({"_meta": None, "content": [TEXT], "structuredContent": {"result": "No results"}, "isError": False}),
    "the literal of a list": str([TEXT]),
    "the repr of a list": "[TextContent(type='text', text='No results', annotations=None, meta=None)]",
    "the repr of a result": "meta=None content=[TextContent(type='text', text='No results', annotations=None)] structuredContent=None isError=False",
}  # fmt: skip
KEPT = [
    '{"type": "text", "name": "a field of a form"}',
    '{"type": "text", "text": "x", "required": true}',
    '[{"type": "text", "text": "x"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]',
    '{"content": "text of a page", "type": "text"}',
    '{"content": [{"type": "text", "text": "x"}], "title": "a page"}',
    '{"type": "text", "text": "cut off',
    "[TextContent(type='text', text='x'), ImageContent(type='image', data='aGk=')]",
    "text and type",
    "[]",
]


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_text_inside_content_blocks_is_the_result_everywhere(kind: str) -> None:
    raw = WRAPPED[kind]
    assert decode_result(raw).text == "No results"
    assert result_text(ToolResult("c1", raw)) == "No results"
    step = _step_of(raw)
    assert (step.result, step.outcome_type) == ("No results", EMPTY)


@pytest.mark.parametrize("raw", KEPT)
def test_anything_else_stays_as_it_is(raw: str) -> None:
    assert unwrap(raw) is None
    assert _step_of(raw).result == raw


@pytest.mark.parametrize("outer", [True, False, None])
@pytest.mark.parametrize("inner", [True, False])
def test_blocks_inside_blocks_are_opened_and_an_error_at_any_depth_is_one(outer: bool | None, inner: bool) -> None:
    passed_on = {
        "_meta": None, "content": [{**TEXT, "annotations": None}], "isError": inner, "structuredContent": {"result": 7},
    }  # fmt: skip
    value: dict[str, Any] = {"content": [{"type": "text", "text": json.dumps(passed_on, indent=2)}]}
    raw = json.dumps(value if outer is None else {**value, "isError": outer})
    found = unwrap(raw)
    assert found is not None
    assert found.text == "No results"
    assert found.error is (inner or bool(outer))
    assert decode_result(raw).error is (inner or bool(outer))


def test_a_message_inside_blocks_is_read_as_an_error() -> None:
    text = repr('{"content": [{"type": "text", "text": "{\\"error\\": \\"no page is open\\"}"}], "isError": false}')
    found = unwrap(f"meta=None content=[TextContent(type='text', text={text}, annotations=None)] isError=False")
    assert found is not None
    assert found.text == '{"error": "no page is open"}'
    assert looks_like_error(found.text)


def test_a_result_that_reports_an_error_failed_whatever_its_text_says() -> None:
    raw = json.dumps({"content": [{"type": "text", "text": "there are 7 of these"}], "isError": True})
    assert decode_result(raw).error is True
    assert _step_of(raw).outcome_type == ERROR
    assert _step_of(raw.replace("true", "false")).outcome_type != ERROR


def _step_of(content: str) -> Any:
    asked = AIMessage("", id="a1", tool_calls=[{"name": "search", "args": {"q": "x"}, "id": "c1"}])
    messages = [HumanMessage("q", id="h1"), asked, ToolMessage(content, tool_call_id="c1")]
    (step,) = new_steps(messages, trajectory_id="t", known=lambda _: False, now=1.0)
    return step
