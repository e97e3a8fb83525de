"""Tools below a model call that has ended: who called them is found above it."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.collector.in_process import RecordingBoard
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 2}


def trajectories(above_tools: dict[str, Any]) -> set[str]:
    """The trajectories of two calls of a tool below a span that has ended, in a conversation ``chat-7``."""
    board = RecordingBoard()
    provider = TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    tracer = provider.get_tracer("app")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "chat-7"}
    with tracer.start_as_current_span("invoke_agent", attributes=agent):
        for _ in range(2):
            with tracer.start_as_current_span("ended", attributes=above_tools) as asking:
                pass
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            with tracer.start_as_current_span(
                "execute_tool search", trace.set_span_in_context(asking), attributes=tool
            ):
                pass
    return {verdict.trajectory_id for verdict in board.verdicts.values()}


def test_the_conversation_is_found_above_a_model_call_that_has_ended() -> None:
    assert trajectories(CHAT) == {"chat-7"}


def test_only_model_calls_are_remembered_when_they_have_ended() -> None:
    assert "chat-7" not in trajectories({"http.request.method": "POST"})
