"""The acting agent, the conversation, the batch and the run of a tool span: from the span and its ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import json_object
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, recognise

_METADATA_KEYS: Final = ("session_id", "conversation_id", "thread_id")


def conversation_id(attributes: Mapping[str, Any], table: DialectTable = DIALECTS) -> str | None:
    """Conversation, session or thread id on one span, None if it has none. Declared keys are asked first."""
    for key in table.declared_conversations:
        value = attributes.get(key)
        if value is not None and value != "":
            return str(value)
    for key in table.key_set(attributes).conversations:
        value = attributes[key]
        if value is not None and value != "":
            return _unquote(value)
    metadata = _metadata(attributes, table)
    if metadata:
        for key in _METADATA_KEYS:
            if metadata.get(key):
                return _unquote(metadata[key])
    return None


def all_conversation_ids(attributes: Mapping[str, Any], table: DialectTable = DIALECTS) -> Iterator[str]:
    """Every id on the span that may name the conversation: a gate may know it by another one than the tracer."""
    for key in table.key_set(attributes).conversations:
        value = attributes[key]
        if value:
            yield _unquote(value)
    metadata = _metadata(attributes, table)
    for key in _METADATA_KEYS:
        if metadata.get(key):
            yield _unquote(metadata[key])


def _metadata(attributes: Mapping[str, Any], table: DialectTable) -> Mapping[str, Any]:
    """Metadata of the run that a vendor writes as one JSON object; empty if the span has none."""
    for key in table.metadata_objects:
        if key in attributes:
            return json_object(attributes[key])
    return {}


def batch_label(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Label shared by the calls of one LangGraph super-step (one model turn); None outside LangGraph."""
    attributes = span.attributes
    step = next((attributes[key] for key in table.step_keys if key in attributes), None)
    namespace = next((attributes[key] for key in table.namespace_keys if key in attributes), "")
    if step is None:
        metadata = _metadata(attributes, table)
        step, namespace = metadata.get("langgraph_step"), metadata.get("langgraph_checkpoint_ns", "")
    if step is None:
        return None
    return f"{span.trace_id}/{_unquote(namespace).rpartition('|')[0]}/{step}"


def agent_name(span: SpanView, ancestors: Iterable[SpanView], table: DialectTable = DIALECTS) -> str | None:
    """Stable name of the acting agent: from the tool span, else the nearest agent span above it."""
    attributes = span.attributes
    named = attributes.get("gen_ai.agent.name")
    if isinstance(named, str) and named not in table.placeholders:
        return named
    for key in table.agent_keys:
        if attributes.get(key):
            return _unquote(attributes[key])
    metadata = _metadata(attributes, table)
    if metadata.get("lc_agent_name"):
        return str(metadata["lc_agent_name"])
    namespaces = (attributes.get(key) for key in table.namespace_keys)
    return (
        _of_namespace((*namespaces, metadata.get("langgraph_checkpoint_ns")))
        or _from_wrapped_metadata(span, table)
        or _from_ancestors(ancestors, table)
    )


def _of_namespace(namespaces: Iterable[Any]) -> str | None:
    """``alice:<uuid>|tools:<uuid>``: the enclosing sub-graph is the agent."""
    for value in namespaces:
        if isinstance(value, str) and "|" in value:
            return _unquote(value).split(":", 1)[0] or None
    return None


def _from_wrapped_metadata(span: SpanView, table: DialectTable) -> str | None:
    for read in table.wrapped_metadata:
        metadata = read(span)
        if metadata:
            name = metadata.get("lc_agent_name")
            return str(name) if name else _of_namespace((metadata.get("langgraph_checkpoint_ns"),))
    return None


def _from_ancestors(ancestors: Iterable[SpanView], table: DialectTable) -> str | None:
    nameless = False
    for ancestor in ancestors:
        name = _agent_span_name(ancestor, table)
        if name is not None:
            return name
        if nameless and recognise(ancestor, table) is not None:
            return None  # an agent without a name runs inside this tool call: whoever made the call is another one
        nameless = nameless or is_agent_span(ancestor, table)
    return None


def _agent_span_name(span: SpanView, table: DialectTable) -> str | None:
    """Name of the agent that a span stands for. The first row that can say decides."""
    attributes = span.attributes
    for marker, read, of_agents in table.agent_names:
        if marker in attributes:
            name = read(span)
            if name is not None:
                known = name not in table.placeholders and not (of_agents and _is_graph(span, table))
                return name if known else None
    return None


def _is_graph(span: SpanView, table: DialectTable) -> bool:
    """The span of a whole LangGraph graph where the instrumentation presents it as an agent."""
    return span.scope in table.graph_scopes or not table.graph_markers.isdisjoint(span.attributes)


def instance_of(span: SpanView, ancestors: Iterable[SpanView], table: DialectTable = DIALECTS) -> str | None:
    """Label of the agent instance that acts in a tool span; None if the span does not distinguish instances.

    LangGraph names the sub-graph's execution in the checkpoint namespace (``alice:<uuid>|tools:<uuid>``); elsewhere it
    is the id of the nearest agent span above the tool span.
    """
    attributes = span.attributes
    values = [attributes[key] for key in table.namespace_keys if key in attributes]
    if not values:
        values.append(_metadata(attributes, table).get("langgraph_checkpoint_ns", ""))
    for value in values:
        enclosing = _unquote(value).rpartition("|")[0]
        if enclosing:
            return enclosing
    for one in ancestors:
        if is_agent_span(one, table) and not _is_graph_node(one, table):
            return one.span_id
    return None


def _is_graph_node(span: SpanView, table: DialectTable) -> bool:
    """A node of a LangGraph graph that an instrumentation presents as an agent: a step of a run, not the run."""
    scope = span.scope
    return "langchain" in scope or "langgraph" in scope or _is_graph(span, table) or span.name in table.placeholders


def is_agent_span(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Whether a span stands for one agent at work, or for one run of a graph, from input to answer."""
    attributes = span.attributes
    for marker, test in table.agent_tests:  # noqa: SIM110  a generator would cost more than the tests
        if marker in attributes and test(span):
            return True
    return False


def _unquote(value: Any) -> str:
    """Langfuse writes metadata as JSON text: ``"\\"thread-A\\""``."""
    text = str(value)
    if len(text) > 1 and text[0] == '"' and text[-1] == '"':
        try:
            return str(parse_json(text))
        except ValueError:
            return text
    return text
