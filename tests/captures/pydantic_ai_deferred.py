"""Spans of Pydantic AI (pydantic-ai-slim 2.68.0; 1.10.0 with ``old``) of calls that a tool puts off: for a person, who
allows one and refuses one, and for another program; the model is scripted.

    python -m tests.captures.pydantic_ai_deferred OUT.json [nocontent | old]

2.68.0 reads the settings of ``version=5``, its default; 1.10.0 needs OpenTelemetry below 1.38.
"""

# no postponed annotations: the framework reads the types of the tools

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search

ASKED: list[Any] = [
    [("call_1", "kb_search", {"query": "refund"})],
    [
        ("call_2", "drop_table", {"table": "orders"}),
        ("call_3", "drop_table", {"table": "users"}),
        ("call_4", "render", {"page": 7}),
    ],
    "done",
]


def model() -> FunctionModel:
    answers = list(ASKED)

    def answer(messages: Any, info: Any) -> ModelResponse:
        given = answers.pop(0)
        if isinstance(given, str):
            return ModelResponse(parts=[TextPart(given)], model_name="scripted-1")
        parts = [ToolCallPart(name, args, tool_call_id=call_id) for call_id, name, args in given]
        return ModelResponse(parts=parts, model_name="scripted-1")

    return FunctionModel(answer, model_name="scripted-1")


def drop_table(ctx: RunContext, table: str) -> str:
    """Drop."""
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return f"dropped {table}"


def render(page: int) -> str:
    """Render."""
    raise CallDeferred


async def main(settings: InstrumentationSettings, options: dict[str, Any]) -> None:
    alice: Agent[None, Any] = Agent(
        model(), name="alice", output_type=[str, DeferredToolRequests], tools=[kb_search, drop_table, render], **options
    )
    first = await alice.run("clean up")
    answers = DeferredToolResults(approvals={"call_2": True, "call_3": ToolDenied()}, calls={"call_4": "page 7: a cat"})
    await alice.run(message_history=first.all_messages(), deferred_tool_results=answers)


if __name__ == "__main__":
    exporter, (file, *switches) = record(), sys.argv[1:]
    settings = InstrumentationSettings(include_content="nocontent" not in switches)
    if "old" in switches:
        chosen: dict[str, Any] = {"instrument": settings}
    else:
        from pydantic_ai.capabilities import Instrumentation

        chosen = {"capabilities": [Instrumentation(settings=settings)]}
    asyncio.run(main(settings, chosen))
    write(exporter, file)
