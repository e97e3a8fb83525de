"""Spans as Java and .NET agents write them by the official conventions: written by hand from the specification, no real run.

    python -m tests.captures.conventions OUT.json java|dotnet [nocontent]

Source: open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-agent-spans.md and gen-ai-spans.md (mid 2026): names,
kinds, attributes and requirement levels. ``java`` writes structured values, as the specification asks for where an SDK
can; ``dotnet`` writes JSON text, and wraps the tools of a turn into ``orchestrate_tools`` as Microsoft.Extensions.AI does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.captures.otlp_file import record, write

JAVA = "java" in sys.argv[2:]
CONTENT = "nocontent" not in sys.argv[2:]
SCOPE = "io.opentelemetry.instrumentation" if JAVA else "Experimental.Microsoft.Extensions.AI"
FAILURE = "java.io.FileNotFoundException" if JAVA else "System.IO.FileNotFoundException"

Call = tuple[str, str, dict[str, Any]]


def shaped(value: Any) -> Any:
    """A structured value: as it is, or as JSON text."""
    return value if JAVA or isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Agent:
    """One agent at work; keeps the messages of the conversation."""

    def __init__(self, name: str, conversation: str | None) -> None:
        self.name, self.conversation = name, conversation
        self.tracer = trace.get_tracer(SCOPE)
        self.messages: list[dict[str, Any]] = []

    @contextmanager
    def invoke(self, words: str) -> Iterator[None]:
        self.messages.append({"role": "user", "parts": [{"type": "text", "content": words}]})
        attributes = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "openai", "gen_ai.agent.name": self.name,
            "gen_ai.agent.id": f"asst_{self.name}", "gen_ai.request.model": "m-1",
        }  # fmt: skip
        if self.conversation is not None:
            attributes["gen_ai.conversation.id"] = self.conversation
        with self.tracer.start_as_current_span(f"invoke_agent {self.name}", attributes=attributes):
            yield

    def chat(self, answer: str | list[Call]) -> None:
        """One model call."""
        said = isinstance(answer, str)
        parts: list[dict[str, Any]] = (
            [{"type": "text", "content": answer}]
            if isinstance(answer, str)
            else [{"type": "tool_call", "id": one, "name": name, "arguments": args} for one, name, args in answer]
        )
        message = {"role": "assistant", "parts": parts, "finish_reason": "stop" if said else "tool_call"}
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m-1",
            "gen_ai.response.model": "m-1", "gen_ai.response.finish_reasons": [message["finish_reason"]],
            "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
        }  # fmt: skip
        if CONTENT:
            attributes["gen_ai.input.messages"] = shaped(self.messages)
            attributes["gen_ai.output.messages"] = shaped([message])
        with self.tracer.start_as_current_span("chat m-1", kind=SpanKind.CLIENT, attributes=attributes):
            pass
        self.messages.append({"role": "assistant", "parts": parts})

    @contextmanager
    def tools(self) -> Iterator[None]:
        if JAVA:
            yield
            return
        with self.tracer.start_as_current_span(
            "orchestrate_tools", attributes={"gen_ai.operation.name": "orchestrate_tools"}
        ):
            yield

    @contextmanager
    def tool(self, call: Call, result: Any, error: str | None = None) -> Iterator[None]:
        call_id, name, arguments = call
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function", "gen_ai.tool.description": "a tool",
        }  # fmt: skip
        if CONTENT:
            attributes["gen_ai.tool.call.arguments"] = shaped(arguments)
        with self.tracer.start_as_current_span(f"execute_tool {name}", attributes=attributes) as span:
            yield
            if error is not None:
                span.set_attribute("error.type", FAILURE)
                span.set_status(StatusCode.ERROR, error)
            elif CONTENT:
                span.set_attribute("gen_ai.tool.call.result", shaped(result))
        self.answer(call, error or result)

    def answer(self, call: Call, response: Any) -> None:
        part = {"type": "tool_call_response", "id": call[0], "response": response}
        self.messages.append({"role": "tool", "parts": [part]})

    def turn(self, *calls: tuple[Call, Any, str | None]) -> None:
        self.chat([call for call, _, _ in calls])
        with self.tools():
            for call, result, error in calls:
                with self.tool(call, result, error):
                    pass


ORDERS = {"orders": ["A-1 for Zoë"]}


def main() -> None:
    alice = Agent("alice", "chat-7")
    with alice.invoke("find the orders"):
        alice.turn((("call_1", "search_orders", {"customer": "Zoë"}), ORDERS, None))
        alice.turn((("call_2", "search_orders", {"customer": "Zoë"}), ORDERS, None))
        alice.turn((("call_3", "read_config", {"path": "/etc/app.yaml"}), None, "no such file: /etc/app.yaml"))
        alice.turn(
            (("call_4", "list_files", {"path": "/tmp"}), [], None),
            (("call_5", "kb_search", {"query": "refund"}), "No results found", None),
            (("call_6", "lookup_none", {"key": "x"}), "", None),
        )
        alice.turn((("call_7", "now", {}), "noon", None))
        delegated: Call = ("call_8", "ask_bob", {"question": "orders of Bob?"})
        alice.chat([delegated])
        with alice.tools(), alice.tool(delegated, "bob found A-1"):
            bob = Agent("bob", None)
            with bob.invoke("orders of Bob?"):
                bob.turn((("call_9", "search_orders", {"customer": "Bob"}), {"orders": ["A-1 for Bob"]}, None))
                bob.chat("bob found A-1")
        alice.chat("first answer")
    with alice.invoke("search again and delete all"):
        alice.turn((("call_10", "search_orders", {"customer": "Zoë"}), ORDERS, None))
        refused: Call = ("call_11", "delete_all", {"scope": "prod"})
        alice.chat([refused])
        alice.answer(refused, "The user rejected the call.")  # the conventions know no span for it
        alice.chat("not deleted")


if __name__ == "__main__":
    exporter = record({"telemetry.sdk.language": "java" if JAVA else "dotnet"})
    main()
    write(exporter, sys.argv[1])
