"""A program of its own: an agent without tools that writes the same draft again, under real instrumentation.

Usage: writing_agent.py NAME[,NAME], with names as for ``looping_agent.py``. Prints what happened as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import apply_guard, instrument, shared_board
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

ROUNDS = 16


class Letter(MessagesState):
    """Drafts are counted, and not kept as messages."""

    rounds: int


def build() -> StateGraph[Any, Any, Any, Any]:
    model = ScriptedChatModel(policy=lambda messages, turn: AIMessage("Dear customer, we are sorry to hear that."))

    def write(state: Letter) -> dict[str, Any]:
        model.invoke([message for message in state["messages"] if message.type == "human"])
        return {"rounds": state.get("rounds", 0) + 1}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Letter)
    builder.add_node("write", write)
    builder.add_edge(START, "write")
    builder.add_conditional_edges(
        "write", lambda state: END if state["rounds"] >= ROUNDS else "write", {END: END, "write": "write"}
    )
    return builder


def main(names: list[str]) -> dict[str, Any]:
    other = importlib.import_module("looping_agent")  # beside this file
    provider = TracerProvider()
    instrument(provider)
    trace.set_tracer_provider(provider)
    callbacks = [callback for name in names for callback in other.switch_on(name, provider)]

    def config(**configurable: str) -> Any:
        return {"configurable": configurable, "callbacks": callbacks, "recursion_limit": 60}

    task: Any = {"messages": [("user", "Write an apology to the customer.")]}
    saved = apply_guard(build(), agent="write").compile(checkpointer=InMemorySaver())
    results = {
        "invoke": saved.invoke(task, config(thread_id="one")),
        "ainvoke": asyncio.run(saved.ainvoke(task, config(thread_id="two"))),
    }
    runs = {how: [other.outline(result["messages"]), result["rounds"]] for how, result in results.items()}
    return {"runs": runs, "counts": dict(shared_board().counts)}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print("\n" + json.dumps(main(sys.argv[1].split(","))), flush=True)
    os._exit(0)  # exporters without a collector would wait at exit
