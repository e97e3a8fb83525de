"""LlamaIndex workflows: what a tool span lacks stands in the steps around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_guard.dialects.span import SpanView
from trajectory_guard.spans.identity import json_object
from trajectory_guard.transcripts.reprs import parse_repr


def wrapped_call(span: SpanView) -> tuple[str, Any] | None:
    """Call id and arguments in the ``call_tool`` step of a workflow (OpenInference), None if the span is none."""
    text = span.attributes.get("input.value")
    if not isinstance(text, str) or "ToolCall(tool_name=" not in text:
        return None
    outer = json_object(text.lstrip())
    event = parse_repr(str(outer.get("ev", "")))
    if not isinstance(event, dict) or not isinstance(event.get("tool_id"), str):
        return None
    return event["tool_id"], event.get("tool_kwargs")


def agents_by_call(spans: Iterable[SpanView]) -> dict[tuple[str, str], str]:
    """(trace, call id) to agent, from the steps that name the current agent and its calls (OpenLLMetry).

    ``spans`` are in order of time; the first step that lists a call decides.
    """
    found: dict[tuple[str, str], str] = {}
    for span in spans:
        text = span.attributes.get("traceloop.entity.output")
        if not isinstance(text, str) or '"current_agent_name"' not in text or '"tool_id"' not in text:
            continue
        output = json_object(text.lstrip())
        agent, calls = output.get("current_agent_name"), output.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            call_id = call.get("tool_id") if isinstance(call, Mapping) else None
            if isinstance(agent, str) and agent and isinstance(call_id, str):
                found.setdefault((span.trace_id, call_id), agent)
    return found
