"""Spans of Strands Agents (strands-agents 1.62.0), which it emits by itself; the model is scripted.

    python -m tests.captures.strands_agents OUT.json [swarm]

By default content stands in span events. ``OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`` gives the newest
conventions, ``…,gen_ai_span_attributes_only`` no events, and ``gen_ai_unredacted_attributes=`` hides all content.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model
from strands.multiagent import Swarm

from tests.captures.otlp_file import record, write


class Scripted(Model):
    """Answers with the next entry: text, or calls as (id, tool, arguments)."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.config = {"model_id": "scripted-1"}

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return self.config

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        answer = self.answers.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(answer, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
            yield {"contentBlockStop": {}}
        else:
            for call_id, name, arguments in answer:
                yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
                yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"}}
        yield {
            "metadata": {
                "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
                "metrics": {"latencyMs": 1},
            }
        }


@tool
def search_orders(customer: str) -> dict[str, Any]:
    """Search."""
    return {"status": "success", "content": [{"json": {"orders": [f"A-1 for {customer}"]}}]}


@tool
def read_config(path: str) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


@tool
def list_files(path: str) -> list[str]:
    """List."""
    return []


@tool
def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


@tool
def lookup_none(key: str) -> str:
    """Look up."""
    return ""


@tool
def touch(path: str) -> None:
    """Touch."""


@tool
def now() -> str:
    """Time."""
    return "noon"


@tool
def soft_fail(x: str) -> dict[str, Any]:
    """A tool that reports its failure."""
    return {"status": "error", "content": [{"text": "quota exceeded"}]}


@tool
def send_mail(to: str) -> str:
    """Send."""
    return "sent"


@tool
def delete_all(scope: str) -> str:
    """Delete."""
    return "deleted"


def hook(event: BeforeToolCallEvent) -> None:
    """Cancels one tool by itself, and asks a person before another."""
    name = event.tool_use["name"]
    if name == "send_mail":
        event.cancel_tool = "The call was rejected by the user."
    elif name == "delete_all" and event.interrupt("approval", reason={"tool": name}) != "y":
        event.cancel_tool = "The user denied permission to delete."


ZOE = '{"customer": "Zoë"}'


def single() -> None:
    """Two user turns of one agent, with another agent as a tool; a person refuses a call in the second."""
    trace_attributes = {"session.id": "chat-7"}
    bob = Agent(
        name="bob", description="finds orders", callback_handler=None, tools=[search_orders],
        trace_attributes=trace_attributes,
        model=Scripted([("call_12", "search_orders", '{"customer": "Bob"}')], "bob found A-1"),
    )  # fmt: skip
    alice = Agent(
        name="alice", system_prompt="You help.", callback_handler=None, trace_attributes=trace_attributes,
        tools=[
            search_orders, read_config, list_files, kb_search, lookup_none, touch, now, soft_fail, send_mail,
            delete_all, bob.as_tool(),
        ],
        model=Scripted(
            [("call_1", "search_orders", ZOE)],
            [("call_2", "search_orders", ZOE)],
            [("call_3", "read_config", '{"path": "/etc/app.yaml"}')],
            [
                ("call_4", "list_files", '{"path": "/tmp"}'),
                ("call_5", "kb_search", '{"query": "refund"}'),
                ("call_6", "lookup_none", '{"key": "x"}'),
                ("call_7", "touch", '{"path": "/tmp/a"}'),
            ],
            [("call_8", "now", "{}")],
            [("call_s", "soft_fail", '{"x": "1"}')],
            [("call_u", "no_such_tool", '{"a": 1}')],
            [("call_9", "send_mail", '{"to": "a@example.org"}')],
            [("call_b", "bob", '{"input": "orders of Bob?"}')],
            "first answer",
            [("call_10", "search_orders", ZOE)],
            [("call_11", "delete_all", '{"scope": "prod"}')],
            "not deleted",
        ),
    )  # fmt: skip
    alice.hooks.add_callback(BeforeToolCallEvent, hook)
    alice("find the orders")
    asked = alice("search again and delete all")
    alice([{"interruptResponse": {"interruptId": one.id, "response": "n"}} for one in asked.interrupts])


@tool
async def wait_for(job: str) -> str:
    """Wait."""
    await asyncio.sleep(60)
    return "done"


async def cancelled() -> None:
    """An agent without a name, cancelled while its tool runs."""
    agent = Agent(
        callback_handler=None, tools=[wait_for], trace_attributes={"session.id": "chat-9"},
        model=Scripted([("call_13", "wait_for", '{"job": "a"}')], "never sent"),
    )  # fmt: skip
    try:
        await asyncio.wait_for(agent.invoke_async("wait"), 0.5)
    except (asyncio.TimeoutError, asyncio.CancelledError) as error:
        print("ended with:", type(error).__name__)
    await asyncio.sleep(0.1)


def swarm() -> None:
    """Alice hands over to bob."""
    alice = Agent(
        name="alice", callback_handler=None, tools=[search_orders],
        model=Scripted(
            [("call_1", "search_orders", ZOE)],
            [("call_h", "handoff_to_agent", '{"agent_name": "bob", "message": "orders of Bob?"}')],
            "handed over",
        ),
    )  # fmt: skip
    bob = Agent(
        name="bob", callback_handler=None, tools=[search_orders],
        model=Scripted([("call_2", "search_orders", '{"customer": "Bob"}')], "bob found A-1"),
    )  # fmt: skip
    Swarm([alice, bob], entry_point=alice, trace_attributes={"session.id": "chat-8"})("orders of Bob?")


if __name__ == "__main__":
    exporter = record()
    if "swarm" in sys.argv[2:]:
        swarm()
    else:
        single()
        asyncio.run(cancelled())
    write(exporter, sys.argv[1])
