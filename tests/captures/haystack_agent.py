"""Spans of Haystack (haystack-ai 3.4.0) by its own tracer (opentelemetry-haystack 2.0.0); the model is scripted.

    python -m tests.captures.haystack_agent OUT.json [openinference]

``HAYSTACK_CONTENT_TRACING_ENABLED=true`` turns content on. ``openinference`` adds the spans of
openinference-instrumentation-haystack 0.1.46 beside them.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from haystack import Pipeline, component, tracing
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import AlwaysAskPolicy, BlockingConfirmationStrategy, ConfirmationHook
from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult
from haystack.tools import ComponentTool, tool
from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
from opentelemetry import trace

from tests.captures.otlp_file import record, write


@component
class Scripted:
    """Answers with the next entry: text, or calls as (id, tool, arguments)."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any) -> dict[str, Any]:
        answer = self.answers.pop(0)
        meta = {"model": "scripted-1", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
        if isinstance(answer, str):
            return {"replies": [ChatMessage.from_assistant(answer, meta={**meta, "finish_reason": "stop"})]}
        calls = [ToolCall(tool_name=name, arguments=arguments, id=call_id) for call_id, name, arguments in answer]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls, meta={**meta, "finish_reason": "tool_calls"})]}


@tool
def search_orders(customer: Annotated[str, "whose"]) -> dict[str, Any]:
    """Search."""
    return {"orders": [f"A-1 for {customer}"]}


@tool
def read_config(path: Annotated[str, "which"]) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


@tool
def list_files(path: Annotated[str, "where"]) -> list[str]:
    """List."""
    return []


@tool
def kb_search(query: Annotated[str, "what"]) -> str:
    """Search."""
    return "No results found"


@tool
def lookup_none(key: Annotated[str, "which"]) -> str:
    """Look up."""
    return ""


@tool
def touch(path: Annotated[str, "which"]) -> None:
    """Touch."""


@tool
def now() -> str:
    """Time."""
    return "noon"


@tool
def delete_all(scope: Annotated[str, "where"]) -> str:
    """Delete."""
    return "deleted"


class Refusal:
    """A person who refuses every call."""

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        return ConfirmationUIResult(action="reject", feedback="not today")


ZOE = {"customer": "Zoë"}


def main() -> None:
    bob = Agent(
        chat_generator=Scripted([("call_12", "search_orders", {"customer": "Bob"})], "bob found A-1"),
        tools=[search_orders],
    )
    ask_bob = ComponentTool(
        component=bob, name="ask_bob", description="finds orders", outputs_to_string={"source": "last_message"}
    )
    strategy = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Refusal())
    alice = Agent(
        chat_generator=Scripted(
            [("call_1", "search_orders", ZOE)],
            [("call_2", "search_orders", ZOE)],
            [("call_3", "read_config", {"path": "/etc/app.yaml"})],
            [
                ("call_4", "list_files", {"path": "/tmp"}),
                ("call_5", "kb_search", {"query": "refund"}),
                ("call_6", "lookup_none", {"key": "x"}),
                ("call_7", "touch", {"path": "/tmp/a"}),
            ],
            [("call_8", "now", {})],
            [("call_u", "no_such_tool", {"a": 1})],
            [("call_b", "ask_bob", {"messages": [{"role": "user", "content": [{"text": "orders of Bob?"}]}]})],
            "first answer",
            # the second user turn
            [("call_10", "search_orders", ZOE)],
            [("call_11", "delete_all", {"scope": "prod"})],
            "not deleted",
        ),
        tools=[search_orders, read_config, list_files, kb_search, lookup_none, touch, now, delete_all, ask_bob],
        system_prompt="You help.",
        hooks={"before_tool": [ConfirmationHook(confirmation_strategies={"delete_all": strategy})]},
    )
    pipeline = Pipeline()
    pipeline.add_component("alice", alice)
    messages = [ChatMessage.from_user("find the orders")]
    messages = pipeline.run({"alice": {"messages": messages}})["alice"]["messages"]
    messages = [*messages, ChatMessage.from_user("search again and delete all")]
    pipeline.run({"alice": {"messages": messages}})


if __name__ == "__main__":
    exporter = record()
    if "openinference" in sys.argv[2:]:
        from openinference.instrumentation.haystack import HaystackInstrumentor

        HaystackInstrumentor().instrument()
    tracing.enable_tracing(OpenTelemetryTracer(trace.get_tracer("haystack")))
    main()
    write(exporter, sys.argv[1])
