"""LlamaIndex workflows: the steps around a tool span show the call id, arguments and agent that it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_guard.dialects.base import first, json_object
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable
from trajectory_guard.transcripts.reprs import parse_repr


def wrapped_call(span: SpanView, table: DialectTable = DIALECTS) -> tuple[str, Any] | None:
    """Call id and arguments in the ``call_tool`` step of a workflow, None if the span is none."""
    text = first(span.attributes, table.workflow_inputs)
    if not isinstance(text, str) or ("ToolCall(tool_name=" not in text and '"tool_kwargs"' not in text):
        return None
    event = json_object(text.lstrip()).get("ev", "")
    if not isinstance(event, Mapping):  # MLflow writes an object, OpenInference its repr
        event = parse_repr(str(event))
    if not isinstance(event, Mapping) or not isinstance(event.get("tool_id"), str):
        return None
    return event["tool_id"], event.get("tool_kwargs")


def agents_by_call(spans: Iterable[SpanView], table: DialectTable = DIALECTS) -> dict[tuple[str, str], str]:
    """(trace, call id) to agent, from the steps that name the current agent and its calls.

    ``spans`` are in order of time; the first step that lists a call decides.
    """
    found: dict[tuple[str, str], str] = {}
    for span in spans:
        text = first(span.attributes, table.workflow_outputs)
        if not isinstance(text, str) or '"current_agent_name"' not in text or '"tool_id"' not in text:
            continue
        output = json_object(text.lstrip())
        agent, calls = output.get("current_agent_name"), output.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            call_id = call.get("tool_id") if isinstance(call, Mapping) else None
            if isinstance(agent, str) and agent and isinstance(call_id, str):
                found.setdefault((span.trace_id, call_id), agent)
    return found
