"""A plain Python loop around a model, without any framework: nudged once, and stopped if it goes on.

The tools are reported as spans by hand; any instrumentation of your model client or framework does instead.

Run: python examples/plain_loop.py   (offline; needs no extra)
"""

import json
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import TrajectoryGuardProcessor, shared_board

provider = TracerProvider()
provider.add_span_processor(TrajectoryGuardProcessor())
tracer = provider.get_tracer("my_agent")
Message = dict[str, Any]
MAX_TURNS = 30


def search(query: str) -> str:
    """A tool that never finds anything."""
    return "No results"


def run_tool(conversation: str, name: str, arguments: dict[str, Any]) -> str:
    """Run a tool inside a span that says what the guard needs to know."""
    with tracer.start_as_current_span(f"execute_tool {name}") as span:
        result = {"search": search}[name](**arguments)
        span.set_attributes({
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": conversation,
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.arguments": json.dumps(arguments),
            "gen_ai.tool.call.result": result,
        })  # fmt: skip
    return result


def run_agent(conversation: str, question: str, ask_model: Callable[[list[Message]], Message]) -> str:
    """One run. Its span keeps the tool calls in one trace: a new trace may be a new question, and is never stopped."""
    with tracer.start_as_current_span("invoke_agent") as span:
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": conversation})
        return loop(conversation, question, ask_model)


def loop(conversation: str, question: str, ask_model: Callable[[list[Message]], Message]) -> str:
    """``ask_model`` answers with a tool call, or with ``content`` once it is done."""
    messages: list[Message] = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        flag = shared_board().take(conversation)  # before each call of the model
        if flag.level == "STOP" and flag.verdict is not None:
            return f"I could not finish this: {flag.verdict.reason}"
        if flag.verdict is not None and flag.verdict.nudge:  # the text is there once a nudge; the level stays
            print(flag.verdict.nudge)
            messages.append({"role": "user", "content": flag.verdict.nudge})
        answer = ask_model(messages)
        messages.append(answer)
        if "tool" not in answer:
            return str(answer["content"])
        result = run_tool(conversation, answer["tool"], answer["arguments"])
        messages.append({"role": "tool", "content": result})
    return "I have run out of turns."


def stubborn(messages: list[Message]) -> Message:
    """A model that asks the same whatever it is told."""
    return {"role": "assistant", "tool": "search", "arguments": {"query": "returns"}}


def sensible(messages: list[Message]) -> Message:
    """A model that asks the same until it is told that this leads nowhere."""
    told = any(message["role"] == "user" and "[Trajectory guard]" in message["content"] for message in messages)
    if told:
        return {"role": "assistant", "content": "I found no page about returns. Shall I ask a colleague?"}
    return stubborn(messages)


if __name__ == "__main__":
    for number, model in enumerate((sensible, stubborn)):
        print(f"{model.__name__}: {run_agent(f'conversation-{number}', 'How do I return a parcel?', model)}")
