"""MLflow tracing: the type of a span, its inputs and outputs, and the tokens of a model call, each as JSON."""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, Identity, Messages, ModelCalls, RawUsage, json_object
from trajectory_guard.dialects.span import SpanView

_TYPE: Final = "mlflow.spanType"
_INPUT, _OUTPUT = "mlflow.spanInputs", "mlflow.spanOutputs"
_TOKENS: Final = "mlflow.chat.tokenUsage"
_MODELS: Final = frozenset(('"CHAT_MODEL"', '"LLM"'))


def _matches(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == '"TOOL"'


def _is_agent(span: SpanView) -> bool:
    return span.attributes.get(_TYPE) == '"AGENT"'


def _agent_name(span: SpanView) -> str | None:
    return span.name if _is_agent(span) else None


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
    arguments=(_INPUT,),
    results=(_OUTPUT,),
    identity=Identity(agent_markers=(_TYPE,), is_agent=_is_agent, agent_name=_agent_name),
    models=ModelCalls(
        is_call=_is_call, call_markers=(_TYPE,), usage_markers=(_TOKENS,), usage=_usage, names=("mlflow.llm.model",)
    ),
    messages=Messages(
        raw_inputs=(_INPUT,), raw_outputs=(_OUTPUT,), tools=("mlflow.chat.tools",), family_markers=(_TYPE,)
    ),
)
