"""OpenInference (Arize): LangChain, OpenAI Agents, LlamaIndex, smolagents, Agno, CrewAI and manual tracers.

The span kind is not enough: a tool with "agent" in its name is AGENT, and a hand-off is TOOL. ``tool.name`` decides.
"""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, is_kind, text_or_empty
from trajectory_guard.dialects.span import SpanView

_KIND = "openinference.span.kind"
HANDOFF = "handoff to "
"""Beginning of the name of a span that stands for a hand-off; the agent that is to act next follows."""
_METHODS = (".run", ".agent", ".arun", "._execute_core", ".invoke", ".kickoff")


def _matches(span: SpanView) -> bool:
    attributes = span.attributes
    if "tool.name" in attributes:
        return attributes.get(_KIND) not in ("LLM", "EMBEDDING", "RETRIEVER", "RERANKER")
    return attributes.get(_KIND) == "TOOL"


def _tool_name(span: SpanView) -> str | None:
    name = span.attributes.get("tool.name")
    return name if isinstance(name, str) and name else None  # without a name: a hand-off, not a step


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "AGENT" and "tool.name" not in span.attributes


def _agent_name(span: SpanView) -> str | None:
    attributes = span.attributes
    if attributes.get(_KIND) != "AGENT":
        return None
    if "tool.name" in attributes:
        return ""
    name = attributes.get("agent.name") or attributes.get("graph.node.id")
    return text_or_empty(name) if name else _without_method(span.name)


def _without_method(name: str) -> str:
    for suffix in _METHODS:
        name = name.removesuffix(suffix)
    return name


def _handed_to(span: SpanView) -> str | None:
    if not span.name.startswith(HANDOFF) or span.attributes.get(_KIND) != "TOOL" or "tool.name" in span.attributes:
        return None
    return span.name.removeprefix(HANDOFF)  # stays where inputs and outputs are hidden


OPENINFERENCE = Dialect(
    name="openinference",
    matches=_matches,
    markers=("tool.name", _KIND),
    tool_name=_tool_name,
    arguments=("tool.arguments", "input.value"),
    results=("output.value",),
    call_ids=("tool.id",),
    single_argument=True,
    empty_arguments=True,
    failed_when={"tool.is_error": True},
    identity=Identity(
        conversations=("session.id",),
        metadata_objects=("metadata",),
        agent_markers=(_KIND,),
        is_agent=_is_agent,
        agent_name=_agent_name,
        name_keys=("agent.name", "graph.node.id"),
        graph_scopes=("openinference.instrumentation.langchain", "@arizeai/openinference-instrumentation-langchain"),
        turn_spans={"openinference.instrumentation.smolagents": "Step "},
        handed_to=_handed_to,
        handoff_markers=(_KIND,),
    ),
    models=ModelCalls(
        is_call=is_kind(_KIND, "LLM"),
        call_markers=(_KIND,),
        markers=("llm.input_messages.0.message.role", "llm.output_messages.0.message.role"),
        usage_markers=("llm.token_count.prompt", "llm.token_count.completion"),
        input_tokens=("llm.token_count.prompt",),
        output_tokens=("llm.token_count.completion",),
        costs=("llm.cost.total",),
        names=("llm.model_name",),
    ),
    messages=Messages(
        inputs=("llm.input_messages.",),
        outputs=("llm.output_messages.",),
        raw_inputs=("input.value",),
        raw_outputs=("output.value",),
        transcripts=("output.value",),
        tools=("llm.tools.",),
        workflow_inputs=("input.value",),
        family_markers=(_KIND,),
    ),
)


def _matches_framework(span: SpanView) -> bool:
    return span.attributes.get(_KIND) == "TOOL"


AGENT_FRAMEWORK = Dialect(
    name="openinference",
    matches=_matches_framework,
    markers=(_KIND,),
    scopes=("agent_framework",),
    tool_name=_tool_name,
    arguments=("tool.arguments", "input.value"),
    results=("output.value",),
)
"""Microsoft Agent Framework with OpenInference's processor: arguments have their names, and none are ``None``."""
