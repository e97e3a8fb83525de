"""Who acted, and in which conversation: from the span, its ancestors, or its trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.dialects.base import Keys
from trajectory_guard.dialects.span import SpanView

_CONVERSATION: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
    "langfuse.observation.metadata.thread_id",
    "langfuse.trace.metadata.thread_id",
    "langsmith.metadata.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.conversation_id",
    "langfuse.session.id",
    "gcp.vertex.agent.session_id",
    "group_id",
    "conversation.id",
    "thread.id.conversation",
)
CONVERSATION_KEYS: Final = frozenset(_CONVERSATION) | {"metadata"}
AGENT_MARKERS: Final = frozenset(
    (
        "gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "langfuse.observation.type",
        "logfire.msg_template",
    )
)  # fmt: skip
"""A span with none of these keys is no agent's; see ``is_agent_span``."""
_METADATA_KEYS: Final = ("session_id", "conversation_id", "thread_id")
_AGENT_KEYS: Final = (
    "traceloop.association.properties.lc_agent_name",
    "langfuse.observation.metadata.lc_agent_name",
    "langsmith.metadata.lc_agent_name",
)
_CHECKPOINT_KEYS: Final = (
    "traceloop.association.properties.langgraph_checkpoint_ns",
    "langfuse.observation.metadata.langgraph_checkpoint_ns",
    "langsmith.metadata.langgraph_checkpoint_ns",
)
_GRAPHS_AS_AGENTS: Final = frozenset(
    ("opentelemetry.instrumentation.langchain", "openinference.instrumentation.langchain")
)
_NOT_AN_AGENT: Final = frozenset(("OpenAI Agent", "agent", "LangGraph", ""))


def conversation_id(attributes: Mapping[str, Any], declared: Keys = ()) -> str | None:
    """Conversation, session or thread id on one span, None if it has none. ``declared`` keys are asked first."""
    for key in declared:
        value = attributes.get(key)
        if value is not None and value != "":
            return str(value)
    for key in _CONVERSATION:
        value = attributes.get(key)
        if value is not None and value != "":
            return _unquote(value)
    metadata = json_object(attributes.get("metadata"))
    if metadata:
        for key in _METADATA_KEYS:
            if metadata.get(key):
                return _unquote(metadata[key])
    return None


def all_conversation_ids(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Every id on the span that may name the conversation: a gate may know it by another one than the tracer."""
    for key in _CONVERSATION:
        value = attributes.get(key)
        if value:
            yield _unquote(value)
    metadata = json_object(attributes.get("metadata"))
    for key in _METADATA_KEYS:
        if metadata.get(key):
            yield _unquote(metadata[key])


_STEP_KEYS: Final = (
    "traceloop.association.properties.langgraph_step",
    "langfuse.observation.metadata.langgraph_step",
    "langsmith.metadata.langgraph_step",
)


def batch_label(span: SpanView) -> str | None:
    """Label shared by the calls of one LangGraph super-step (one model turn); None outside LangGraph."""
    attributes = span.attributes
    step = next((attributes[key] for key in _STEP_KEYS if key in attributes), None)
    namespace = next((attributes[key] for key in _CHECKPOINT_KEYS if key in attributes), "")
    if step is None and "metadata" in attributes:
        metadata = json_object(attributes["metadata"])
        step, namespace = metadata.get("langgraph_step"), metadata.get("langgraph_checkpoint_ns", "")
    if step is None:
        return None
    return f"{span.trace_id}/{_unquote(namespace).rpartition('|')[0]}/{step}"


def agent_name(span: SpanView, ancestors: Iterable[SpanView]) -> str | None:
    """Stable name of the acting agent: from the tool span, else the nearest agent span above it."""
    attributes = span.attributes
    named = attributes.get("gen_ai.agent.name")
    if isinstance(named, str) and named not in _NOT_AN_AGENT:
        return named
    for key in _AGENT_KEYS:
        if attributes.get(key):
            return _unquote(attributes[key])
    metadata = json_object(attributes.get("metadata"))
    if metadata.get("lc_agent_name"):
        return str(metadata["lc_agent_name"])
    return _from_checkpoint(attributes, metadata) or _from_wrapped_metadata(attributes) or _from_ancestors(ancestors)


def _from_checkpoint(attributes: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """``alice:<uuid>|tools:<uuid>``: the enclosing sub-graph is the agent."""
    values = [attributes.get(key) for key in _CHECKPOINT_KEYS] + [metadata.get("langgraph_checkpoint_ns")]
    for value in values:
        if isinstance(value, str) and "|" in value:
            return _unquote(value).split(":", 1)[0] or None
    return None


def _from_wrapped_metadata(attributes: Mapping[str, Any]) -> str | None:
    """OpenLLMetry before 0.50 keeps LangGraph's metadata inside the input wrapper only."""
    if "gen_ai.operation.name" in attributes:
        return None
    text = attributes.get("traceloop.entity.input")
    if not isinstance(text, str) or not text.startswith('{"input_str"'):
        return None
    metadata = json_object(text).get("metadata")
    if not isinstance(metadata, dict):
        return None
    name = metadata.get("lc_agent_name")
    return str(name) if name else _from_checkpoint({}, metadata)


def _from_ancestors(ancestors: Iterable[SpanView]) -> str | None:
    for ancestor in ancestors:
        name = _agent_span_name(ancestor)
        if name is not None:
            return name
    return None


def _agent_span_name(span: SpanView) -> str | None:
    attributes = span.attributes
    name: Any = None
    if attributes.get("gen_ai.operation.name") == "invoke_agent":
        name = attributes.get("gen_ai.agent.name") or _name_after(span.name, "invoke_agent ")
        name = None if _is_graph(span) else name
    elif attributes.get("openinference.span.kind") == "AGENT":
        name = attributes.get("agent.name") or attributes.get("graph.node.id") or _strip_method(span.name)
        name = None if _is_graph(span) or "tool.name" in attributes else name
    elif attributes.get("traceloop.span.kind") == "agent":
        name = attributes.get("gen_ai.agent.name") or attributes.get("traceloop.entity.name")
        name = None if _is_graph(span) else name
    elif attributes.get("langfuse.observation.type") == "agent":
        name = None if _is_graph(span) else span.name
    elif str(attributes.get("logfire.msg_template", "")).startswith("Agent run: "):
        name = attributes.get("name") or attributes.get("agent_name")
    elif "gen_ai.agent.name" in attributes and attributes.get("gen_ai.operation.name") is None:
        name = attributes.get("gen_ai.agent.name")
    return name if isinstance(name, str) and name not in _NOT_AN_AGENT else None


def _is_graph(span: SpanView) -> bool:
    """The span of a whole LangGraph graph where the instrumentation presents it as an agent."""
    return span.scope in _GRAPHS_AS_AGENTS or "langfuse.trace.metadata.ls_integration" in span.attributes


def instance_of(span: SpanView, ancestors: Iterable[SpanView]) -> str | None:
    """Label of the agent instance that acts in a tool span; None if nothing tells instances apart.

    LangGraph names the sub-graph's execution in the checkpoint namespace (``alice:<uuid>|tools:<uuid>``); elsewhere it
    is the id of the nearest agent span above the tool span.
    """
    attributes = span.attributes
    values = [attributes[key] for key in _CHECKPOINT_KEYS if key in attributes]
    if not values and "metadata" in attributes:
        values.append(json_object(attributes["metadata"]).get("langgraph_checkpoint_ns", ""))
    for value in values:
        enclosing = _unquote(value).rpartition("|")[0]
        if enclosing:
            return enclosing
    return next((one.span_id for one in ancestors if is_agent_span(one) and not _is_graph_node(one)), None)


def _is_graph_node(span: SpanView) -> bool:
    """A node of a LangGraph graph that an instrumentation presents as an agent: a step of a run, not the run."""
    return "langchain" in span.scope or "langgraph" in span.scope or _is_graph(span) or span.name in _NOT_AN_AGENT


def is_agent_span(span: SpanView) -> bool:
    """Whether a span stands for one agent at work, or for one run of a graph, from input to answer."""
    attributes = span.attributes
    return (
        attributes.get("gen_ai.operation.name") == "invoke_agent"
        or (attributes.get("openinference.span.kind") == "AGENT" and "tool.name" not in attributes)
        or attributes.get("traceloop.span.kind") == "agent"
        or attributes.get("langfuse.observation.type") == "agent"
        or str(attributes.get("logfire.msg_template", "")).startswith("Agent run: ")
    )


def _name_after(name: str, prefix: str) -> str | None:
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def _strip_method(name: str) -> str:
    for suffix in (".run", ".agent", ".arun", "._execute_core", ".invoke", ".kickoff"):
        name = name.removesuffix(suffix)
    return name


def _unquote(value: Any) -> str:
    """Langfuse writes metadata as JSON text: ``"\\"thread-A\\""``."""
    text = str(value)
    if len(text) > 1 and text[0] == '"' and text[-1] == '"':
        try:
            return str(parse_json(text))
        except ValueError:
            return text
    return text


def json_object(value: Any) -> Mapping[str, Any]:
    """An attribute that holds a JSON object as text, decoded; empty if it does not."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, str) or not value.startswith("{"):
        return {}
    return _parsed(value)


@lru_cache(maxsize=4)
def _parsed(text: str) -> Mapping[str, Any]:
    """One span asks for one text up to four times; the mapping is shared and must not be changed."""
    try:
        decoded = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
