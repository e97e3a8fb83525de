"""What the names of attributes say of a span saves work and changes nothing: a reading that asks every row agrees."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import batch_label, capture, capture_names, extract_step, fewer_examples, span_view
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.tracking.scope import SUPERSTEP_CHARS
from trajectory_guard.dialects.base import Dialect, json_object
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise
from trajectory_guard.spans import identity
from trajectory_guard.spans.duplicates import ancestors
from trajectory_guard.spans.extract import is_inner_duplicate, model_usage

ACME = {
    "name": "acme", "match": {"acme.kind": "tool"}, "tool_name": "acme.tool", "agent": "acme.agent",
    "conversation": ["acme.conversation", "session.id"],
}  # fmt: skip
TABLES = (DIALECTS, table_with([ACME]))
_METADATA_KEYS = ("session_id", "conversation_id", "thread_id")
_NO_NAME = (None, "", "null", "None", "undefined")


# --- the reading that asks every row ---------------------------------------------------------------------------


def plain_dialect(span: SpanView, table: DialectTable) -> Dialect | None:
    attributes = span.attributes
    declared = next((row for row in table.declared_rows if row.matches(span)), None)
    if declared is not None:
        return declared
    if any(attributes.get(key) is not None and test(attributes[key]) for key, test in table.not_a_tool):
        return None
    if any(attributes.get(key) == value for key, value in table.copies):
        return None
    in_scope = (row for row in table.tool_rows if not row.scopes or span.scope.startswith(row.scopes))
    return next((row for row in in_scope if row.matches(span)), None)


def plain_metadata(attributes: Mapping[str, Any], table: DialectTable) -> Mapping[str, Any]:
    return next((json_object(attributes[key]) for key in table.metadata_objects if key in attributes), {})


def plain_text(value: Any) -> str:
    text = str(value)
    try:
        return str(parse_json(text)) if len(text) > 1 and text[0] == text[-1] == '"' else text
    except ValueError:
        return text


def plain_ids(attributes: Mapping[str, Any], table: DialectTable) -> list[str]:
    metadata = plain_metadata(attributes, table)
    found = [attributes.get(key) for key in table.conversations] + [metadata.get(key) for key in _METADATA_KEYS]
    return [plain_text(value) for value in found if value and value not in _NO_NAME]


def plain_conversation(attributes: Mapping[str, Any], table: DialectTable) -> str | None:
    for key in table.declared_conversations:
        if attributes.get(key) not in _NO_NAME:
            return str(attributes[key])
    for key in table.conversations:
        if attributes.get(key) not in _NO_NAME:
            return plain_text(attributes[key])
    metadata = plain_metadata(attributes, table)
    named = (metadata[key] for key in _METADATA_KEYS if metadata.get(key))
    return next((plain_text(value) for value in named if value not in _NO_NAME), None)


def plain_batch(span: SpanView, table: DialectTable) -> str | None:
    attributes, metadata = span.attributes, plain_metadata(span.attributes, table)
    step = next((attributes[key] for key in table.step_keys if key in attributes), None)
    namespace = next((attributes[key] for key in table.namespace_keys if key in attributes), "")
    if step is None:
        step, namespace = metadata.get("langgraph_step"), metadata.get("langgraph_checkpoint_ns", "")
    graph = f"{span.trace_id}/{span.resource.get('service.name', '')}/{plain_text(namespace).rpartition('|')[0]}"
    return None if step is None else f"{graph}/{str(step).rjust(SUPERSTEP_CHARS)}"


def plain_is_agent(span: SpanView, table: DialectTable) -> bool:
    if any(key in span.attributes and test(span) for key, test in table.agent_tests):
        return not any(denies(span) for scopes, denies in table.no_agents if span.scope.startswith(scopes))
    return plain_by_span_name(span, table) is not None


def plain_is_graph(span: SpanView, table: DialectTable) -> bool:
    return span.scope in table.graph_scopes or any(key in span.attributes for key in table.graph_markers)


def plain_is_node(span: SpanView, table: DialectTable) -> bool:
    of_graph = "langchain" in span.scope or "langgraph" in span.scope or plain_is_graph(span, table)
    return of_graph or span.name in table.placeholders


def plain_instance(span: SpanView, above: Sequence[SpanView], table: DialectTable) -> str | None:
    graph = plain_graph(span, table)
    in_graph = False
    for at, span_above in enumerate(above):
        called_by = above[at + 1 : at + 2]
        if not plain_is_agent(span_above, table):
            if plain_dialect(span_above, table) is not None and not in_graph:
                return span_above.span_id if graph in (None, plain_graph(span_above, table)) else graph
            continue
        if graph:
            return graph
        if not plain_is_node(span_above, table):
            return plain_resumed(span_above, above[at + 1 :], table)
        if called_by and plain_dialect(called_by[0], table) is not None and not plain_is_agent(called_by[0], table):
            return span_above.span_id  # no node of the graph that makes this call
        in_graph = True
    questions = frozenset(scope for row in table for scope in row.identity.question_scopes)
    return graph or next((one.span_id for one in above if one.scope in questions), None)


def plain_graph(span: SpanView, table: DialectTable) -> str | None:
    values = [span.attributes[key] for key in table.namespace_keys if key in span.attributes]
    values = values or [plain_metadata(span.attributes, table).get("langgraph_checkpoint_ns", "")]
    return next((graph for value in values if (graph := plain_text(value).rpartition("|")[0])), None)


def plain_resumed(span: SpanView, above: Sequence[SpanView], table: DialectTable) -> str:
    if any(row.identity.resumes and span.scope.startswith(row.scopes) for row in table):
        for outer in above:
            if plain_dialect(outer, table) is not None:
                break
            if plain_is_agent(outer, table) and not plain_is_node(outer, table):
                return f"{outer.span_id}/{plain_agent_span_name(span, table) or span.name}"
    return span.span_id


def plain_by_span_name(span: SpanView, table: DialectTable) -> str | None:
    for row in table:
        read = row.identity.agent_by_span_name
        if read is not None and span.scope.startswith(row.scopes) and read(span) is not None:
            return read(span)
    return None


def plain_namespace_agent(values: Sequence[Any]) -> str | None:
    value = next((one for one in values if isinstance(one, str) and "|" in one), None)
    return None if value is None else plain_text(value).split(":", 1)[0] or None


def plain_agent_span_name(span: SpanView, table: DialectTable) -> str | None:
    named = plain_by_span_name(span, table)
    if named is not None:
        return named or None
    for key, read, tested in table.agent_names:
        name = read(span) if key in span.attributes else None
        if name is not None:
            return None if name in table.placeholders or (tested and plain_is_graph(span, table)) else name
    return None


def plain_agent(span: SpanView, above: Sequence[SpanView], table: DialectTable) -> str | None:
    attributes, metadata = span.attributes, plain_metadata(span.attributes, table)
    handing = [row.identity for row in table.handoffs if any(key in attributes for key in row.identity.handoff_markers)]
    for key in dict.fromkeys(key for one in handing for key in one.handed_by):
        if attributes.get(key):
            return plain_text(attributes[key])
    named = attributes.get("gen_ai.agent.name")
    if isinstance(named, str) and named not in table.placeholders:
        return named
    for key in table.agent_keys:
        if attributes.get(key):
            return plain_text(attributes[key])
    if metadata.get("lc_agent_name"):
        return str(metadata["lc_agent_name"])
    namespaces = [attributes.get(key) for key in table.namespace_keys] + [metadata.get("langgraph_checkpoint_ns")]
    found = plain_namespace_agent(namespaces)
    for _, read in table.wrapped_metadata:
        inner = read(span)
        if not found and inner:
            named = inner.get("lc_agent_name")
            found = str(named) if named else plain_namespace_agent([inner.get("langgraph_checkpoint_ns")])
            break
    if found:
        return found
    nameless = False
    for one in above:
        name = plain_agent_span_name(one, table)
        if name is not None:
            return name
        if nameless and plain_dialect(one, table) is not None:
            return None
        nameless = nameless or plain_is_agent(one, table)
    return None


def plain_has_usage(span: SpanView, table: DialectTable) -> Dialect | None:
    """The row whose model call a span is."""
    rows = [(row, row.models.has_usage or row.models.is_call) for row in table]
    asked = sorted((pair for pair in rows if pair[1] is not None), key=lambda pair: pair[0].models.usage is None)
    known = next((row for row, test in asked if test is not None and test(span)), None)
    if known is not None or any(row.models.is_call is not None and row.models.is_call(span) is False for row in table):
        return known
    weak = [(row, row.models.may_be_call) for row, test in rows if test is None]
    return next((row for row, may_be_call in weak if may_be_call is not None and may_be_call(span)), None)


def plain_is_duplicate(span: SpanView, above: Sequence[SpanView], table: DialectTable) -> bool:
    own = plain_dialect(span, table)
    if own is None:
        return False
    carries = "mcp.method.name" in span.attributes or span.scope.endswith(".mcp.instrumentation")
    for place, one in enumerate(above):
        row = plain_dialect(one, table)
        if row is None:
            continue
        repeats = carries or row.tool_name(one) == own.tool_name(span)
        if repeats and not any(plain_is_agent(between, table) for between in above[:place]):
            return True
    served = span.kind == "server" or (bool(above) and above[0].name == "mcp.server")
    sessions = [one for one in above if one.attributes.get("traceloop.span.kind") == "session"]
    return served and carries and any(one.scope.endswith(".mcp.instrumentation") for one in sessions)


# --- the comparison --------------------------------------------------------------------------------------------


def assert_read_alike(span: SpanView, above: Sequence[SpanView], table: DialectTable) -> None:
    attributes = span.attributes
    row = recognise(span, table)
    assert row is plain_dialect(span, table)
    assert identity.conversation_id(attributes, table) == plain_conversation(attributes, table)
    assert list(identity.all_conversation_ids(attributes, table)) == plain_ids(attributes, table)
    assert batch_label(span, table) == plain_batch(span, table)
    assert identity.is_agent_span(span, table) == plain_is_agent(span, table)
    live = [identity.LiveView.of(one, table) for one in above]
    for spans in (above, live, live):  # the last time the answers are known
        assert identity.agent_name(span, spans, table) == plain_agent(span, above, table)
        assert identity.instance_of(span, spans, table) == plain_instance(span, above, table)
        assert is_inner_duplicate(span, spans, table) == plain_is_duplicate(span, above, table)
    usage, of_row = model_usage(span, table), plain_has_usage(span, table)
    read = of_row.models.usage if of_row is not None else None
    assert (usage is None) == (of_row is None or (read is not None and read(span) is None))
    step = extract_step(span, ancestors=live, dialects=table)
    assert (step is None) == (row is None or row.tool_name(span) is None)
    assert step is None or step == extract_step(span, ancestors=above, dialects=table)


@pytest.mark.parametrize("name", capture_names())
def test_spans_of_captures_are_read_as_if_every_row_was_asked(name: str) -> None:
    spans = capture(name)
    by_id = {(one.trace_id, one.span_id): one for one in spans}
    for span in spans:
        for table in TABLES:
            assert_read_alike(span, list(ancestors(span, by_id)), table)


ROWS = TABLES[1]
NAMES = sorted(
    {
        *ROWS.interesting, *ROWS.name_keys, *ROWS.agent_keys, *ROWS.step_keys, *ROWS.namespace_keys, *ROWS.graph_markers,
        *(key for pairs in (ROWS.not_a_tool, ROWS.copies, ROWS.failed_when, ROWS.refused_when) for key, _ in pairs),
        *(key for row in ROWS for key in (*row.arguments, *row.results, *row.call_ids, *row.models.call_markers)),
        "gen_ai.tool.name", "gen_ai.tool.call.id", "tool_arguments", "traceloop.entity.name", "traceloop.entity.input",
        "acme.kind", "acme.tool", "acme.agent", "error.type", "trajectory_guard.denied", "haystack.component.type",
    }
)  # fmt: skip
LIKELY = (
    "gen_ai.operation.name", "gen_ai.tool.name", "tool.name", "openinference.span.kind", "traceloop.span.kind", "metadata",
    "langfuse.observation.type", "mcp.method.name", "logfire.msg_template", "langsmith.span.kind", "ai.operationId",
    "traceloop.entity.input", "gen_ai.agent.name", "acme.kind", "output.value", "gen_ai.system", "logfire.span_type",
)  # fmt: skip
VALUES = (
    "tool", "execute_tool", "invoke_agent", "chat", "TOOL", "AGENT", "LLM", "agent", "task", "generation", "llm", "x", "",
    "tools/call", "pending_span", "reject", "(merged tools)", "Function: {name}", "Agent run: x", "handoff", "null", "{}",
    True, False, None, 0, 3, '"quoted"', '"', "LangGraph", "alice:1|tools:2", ":1|tools:2", "ai.generateText", "chat_client",
    "ai.generateText.doGenerate", "Agent", "[REDACTED]", "Tool execution blocked by hook.", "Tool not found", ("a", "b"),
    '{"session_id": "s", "lc_agent_name": "n", "langgraph_step": 3, "langgraph_checkpoint_ns": "al:1|t:2"}',
    '{"thread_id": "\\"t9\\""}', '{"input_str": "x", "metadata": {"lc_agent_name": "wrapped"}, "inputs": {"a": 2}}',
    '{"input_str": "x", "metadata": {"langgraph_checkpoint_ns": "q:1|z:2"}}',
)  # fmt: skip
SCOPES = (
    "", "app", "openlit", "openlit.x", "gcp.vertex.agent", "gcp.vertex.agent.x", "strands.telemetry.tracer",
    "openinference.instrumentation.crewai", "openinference.instrumentation.google_adk", "openai_agents",
    "opentelemetry.instrumentation.langchain", "openinference.instrumentation.langchain",
)  # fmt: skip
SPAN_NAMES = (
    "execute_tool x", "running tool: y", "invoke_agent z", "LangGraph", "x.run", "haystack.agent.step.llm",
    "haystack.agent.hook.human_in_the_loop.strategy", "agent_run [alice]", "agent_run []",
)  # fmt: skip
VIEWS = st.builds(
    lambda attributes, name, scope, status: span_view(attributes, name, scope=scope, status=status),
    st.dictionaries(st.sampled_from(LIKELY) | st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=7),
    st.sampled_from(SPAN_NAMES), st.sampled_from(SCOPES), st.sampled_from(("unset", "ok", "error")),
)  # fmt: skip


@fewer_examples(1)
@given(VIEWS, st.lists(VIEWS, max_size=3), st.sampled_from(TABLES))
def test_spans_of_any_keys_are_read_as_if_every_row_was_asked(
    span: SpanView, above: list[SpanView], table: DialectTable
) -> None:
    assert_read_alike(span, above, table)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "execute_tool"}, {"gen_ai.operation.name": "chat"}, {"tool.name": "search"},
        {"gen_ai.system": "gcp", "gen_ai.operation.name": "chat"}, {"gcp.vertex.agent.llm_request": "{}", "gen_ai.usage.input_tokens": 1},
        {"logfire.msg_template": "Function: {name}"},
        {"logfire.msg_template": "Function: {name}", "logfire.span_type": "pending_span"},
    ],
)  # fmt: skip
def test_spans_of_any_scope_are_read_as_if_every_row_was_asked(scope: str, attributes: dict[str, Any]) -> None:
    for table in TABLES:
        assert_read_alike(span_view(attributes, scope=scope), (), table)


def test_values_are_read_from_each_span_though_its_keys_are_known() -> None:
    for operation, name in (("execute_tool", "semconv"), ("chat", None), ("execute_tool", "semconv")):
        row = recognise(span_view({"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"}))
        assert (row and row.name) == name


@pytest.mark.parametrize(("chars", "kept"), [(200, 2), (300, 0)])
def test_names_are_kept_until_memory_is_short_and_long_ones_never(chars: int, kept: int) -> None:
    table, name = DialectTable(DIALECTS), "".join(("k", "e" * chars))
    attributes = {name: "v"}
    before = sys.getrefcount(name)
    table.key_set(attributes)
    table.has_input_keys(attributes)
    assert sys.getrefcount(name) == before + kept
    table.shed()
    assert sys.getrefcount(name) == before


def test_answers_about_a_live_span_hold_for_one_table_only() -> None:
    above = span_view({"acme.kind": "tool", "acme.tool": "search"})
    live = identity.LiveView.of(above, TABLES[1])
    assert [identity.dialect_above(live, table) is not None for table in (*TABLES, *TABLES)] == [False, True] * 2


def test_names_that_nothing_asks_for_make_no_new_key_set() -> None:
    table = DialectTable(DIALECTS)
    history = {f"gen_ai.prompt.{at}.content": "hello" for at in range(300)}
    known = table.key_set({"gen_ai.operation.name": "chat"})
    assert table.key_set({"gen_ai.operation.name": "chat", **history}) is known
    assert table.key_set({**history, "gen_ai.operation.name": "execute_tool"}) is known
    assert table.key_set({"gen_ai.operation.name": "chat", "metadata": "{}"}) is not known


def test_key_sets_are_bounded_in_number() -> None:
    table = DialectTable(DIALECTS)
    for number in range(3_000):
        table.key_set({f"key.{number}": 1})
        table.key_set({name: 1 for at, name in enumerate(sorted(table.interesting)) if number >> at & 1})
    assert len(table._key_sets) <= 1_024
    assert len(table._by_asked) <= 1_024
