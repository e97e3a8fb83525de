"""MLflow tracing: the type of a span, its inputs and outputs, and the tokens of a model call, each as JSON.

Its autologging names spans after the function that runs: ``FunctionTool.acall``, ``alice.on_messages``. The name of a
tool stands in the attributes or the output then, that of an agent before the function or, of smolagents, in the
attributes. To the spans of frameworks that follow the conventions themselves it adds attributes of its own.
"""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.dialects.base import (
    Dialect,
    Identity,
    Messages,
    ModelCalls,
    RawUsage,
    json_object,
    json_text,
    text_or_empty,
)
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "mlflow.spanType"
_INPUT, _OUTPUT = "mlflow.spanInputs", "mlflow.spanOutputs"
_TOKENS: Final = "mlflow.chat.tokenUsage"
_FUNCTIONS: Final = (".acall", ".call")
_METHODS: Final = (".run", ".on_messages", ".on_messages_stream", ".forward")
_MODELS: Final = frozenset(('"CHAT_MODEL"', '"LLM"'))


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == '"TOOL"'


def _tool_name(span: SpanView) -> str | None:
    attributes = span.attributes
    named = attributes.get("gen_ai.tool.name") or json_text(attributes.get("name"))
    if not named and span.name.endswith(_FUNCTIONS):
        named = json_object(attributes.get(_OUTPUT)).get("tool_name")
    return text_or_empty(named) or span.name.removeprefix("Tool.") or None


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == '"AGENT"'


def _agent_name(span: SpanView) -> str | None:
    if not _is_agent(span):
        return None
    name = span.name
    for method in _METHODS:
        name = name.removesuffix(method)
    return json_text(span.attributes.get("name")) or name


def _is_call(span: SpanView) -> bool | None:
    kind: Any = span.attributes.get(_TYPE)
    return kind in _MODELS if isinstance(kind, str) else None


def _usage(span: SpanView) -> RawUsage | None:
    tokens = json_object(span.attributes.get(_TOKENS))
    cost = json_object(span.attributes.get("mlflow.llm.cost"))
    return RawUsage(tokens.get("input_tokens"), tokens.get("output_tokens"), cost.get("total_cost")) if tokens else None


MLFLOW = Dialect(
    name="mlflow",
    matches=_matches,
    markers=(_TYPE,),
    tool_name=_tool_name,
    arguments=(_INPUT,),
    results=(_OUTPUT,),
    identity=Identity(agent_markers=(_TYPE,), is_agent=_is_agent, agent_name=_agent_name),
    models=ModelCalls(
        is_call=_is_call, call_markers=(_TYPE,), usage_markers=(_TOKENS,), usage=_usage, names=("mlflow.llm.model",)
    ),
    messages=Messages(
        raw_inputs=(_INPUT,),
        raw_outputs=(_OUTPUT,),
        tools=("mlflow.chat.tools",),
        workflow_inputs=(_INPUT,),
        family_markers=(_TYPE,),
    ),
)
