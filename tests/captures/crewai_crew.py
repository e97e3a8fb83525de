"""Spans of CrewAI (crewai 1.15.30) by openinference-instrumentation-crewai 1.1.21; the model is scripted.

    python -m tests.captures.crewai_crew OUT.json react|native [listener]

``react``: a model without function calling, which writes its calls as text. ``listener``: the instrumentation listens to
CrewAI's events instead of wrapping its functions.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events import crewai_event_bus
from crewai.events.types.llm_events import LLMCallType
from crewai.hooks import before_tool_call
from crewai.llms.base_llm import llm_call_context
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor

from tests.captures.otlp_file import record, write

NATIVE = "native" in sys.argv[2:]
_numbers = itertools.count(1)


class Scripted(BaseLLM):
    """Answers with the next entry: text, or calls as (tool, arguments)."""

    answers: list[Any]

    def supports_function_calling(self) -> bool:
        return NATIVE

    def call(self, messages: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Answer, and report the call as the clients of CrewAI do."""
        whose = {key: kwargs.get(key) for key in ("from_task", "from_agent")}
        with llm_call_context():
            self._emit_call_started_event(messages, tools=tools, **whose)
            answer = self._answer(self.answers.pop(0))
            kind = LLMCallType.LLM_CALL if isinstance(answer, str) else LLMCallType.TOOL_CALL
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            self._emit_call_completed_event(answer, kind, messages=messages, usage=usage, **whose)
        return answer

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, str):
            return answer if NATIVE else f"Thought: done\nFinal Answer: {answer}"
        if NATIVE:
            return [
                {"id": f"call_{next(_numbers)}", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for name, arguments in answer
            ]
        ((name, arguments),) = answer
        return f"Thought: next\nAction: {name}\nAction Input: {json.dumps(arguments)}"


@tool("search_orders")
def search_orders(customer: str) -> str:
    """Search."""
    return json.dumps({"orders": [f"A-1 for {customer}"]})


@tool("read_config")
def read_config(path: str) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


@tool("list_files")
def list_files(path: str) -> list[str]:
    """List."""
    return []


@tool("kb_search")
def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


@tool("lookup_none")
def lookup_none(key: str) -> str:
    """Look up."""
    return ""


@tool("delete_all")
def delete_all(scope: str) -> str:
    """Delete."""
    return "deleted"


@before_tool_call
def hook(context: Any) -> bool | None:
    """A hook that cancels one tool."""
    return False if context.tool_name == "delete_all" else None


ZOE = {"customer": "Zoe"}
PATH = {"path": "/tmp"}
DELEGATED = {"task": "orders of Bob?", "context": "he asked", "coworker": "bob"}


def main() -> None:
    empty = [[("list_files", PATH), ("kb_search", {"query": "refund"}), ("lookup_none", {"key": "x"})]]
    if not NATIVE:
        empty = [[one] for one in empty[0]]
    first = [
        [("search_orders", ZOE)],
        [("read_config", {"path": "/etc/app.yaml"})],
        [("search_orders", ZOE)],
        *empty,
        [("no_such_tool", {"a": 1})],
        [("delegate_work_to_coworker", DELEGATED)],
        "first answer",
    ]
    second = [[("search_orders", ZOE)], [("delete_all", {"scope": "prod"})], "not deleted"]
    bob = Agent(
        role="bob", goal="find", backstory="b", tools=[search_orders],
        llm=Scripted(model="scripted-1", answers=[[("search_orders", {"customer": "Bob"})], "bob found A-1"]),
    )  # fmt: skip
    alice = Agent(
        role="alice", goal="help", backstory="b", allow_delegation=True, max_iter=15, max_retry_limit=0,
        tools=[search_orders, read_config, list_files, kb_search, lookup_none, delete_all],
        llm=Scripted(model="scripted-1", answers=first + second),
    )  # fmt: skip
    for words in ("find the orders", "search again and delete all"):
        task = Task(description=words, expected_output="text", agent=alice)
        Crew(name="support", agents=[alice, bob], tasks=[task]).kickoff()


if __name__ == "__main__":
    exporter = record()
    CrewAIInstrumentor().instrument(use_event_listener="listener" in sys.argv[2:])
    main()
    crewai_event_bus.flush()  # handlers of events end the spans, in threads of their own
    write(exporter, sys.argv[1])
