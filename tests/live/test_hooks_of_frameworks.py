"""The hooks of frameworks in ``processor/README.md``: each block runs as it is printed, if its packages are installed.

An agent that repeats itself is nudged and, if it goes on, stopped; one that listens answers after the nudge. The models
are scripted and offline. Needs pydantic-ai-slim, openai-agents with openinference-instrumentation-openai-agents, or
smolagents with openinference-instrumentation-smolagents.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import PACKAGE
from trajectory_guard import instrument, uninstrument

README = PACKAGE.parents[1] / "processor" / "README.md"
NOTHING = "No results were found."
MANY = 30
"""Requests after which a scripted model answers in any case."""


@pytest.fixture
def provider() -> Iterator[None]:
    """The global provider: a framework keeps the first one that it sees."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    instrument()
    yield
    uninstrument()


def block(package: str) -> dict[str, Any]:
    """What the block that imports a package defines."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [one for one in blocks if f"\nfrom {package} import" in f"\n{one}"]
    names: dict[str, Any] = {}
    exec(compile(code, str(README), "exec"), names)
    return names


class Script:
    """Decides what a model does: search again, or answer."""

    def __init__(self, *, listens: bool) -> None:
        self.listens = listens
        self.requests = 0
        self._ids = itertools.count()

    def answers(self, messages: object) -> bool:
        self.requests += 1
        return self.requests > MANY or (self.listens and "[Trajectory guard]" in str(messages))

    def call_id(self) -> str:
        return f"call-{next(self._ids)}"


def pydantic_ai(script: Script, conversation: str) -> str:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages: Any, info: Any) -> Any:
        if script.answers(messages):
            return ModelResponse(parts=[TextPart("Answer.")])
        return ModelResponse(parts=[ToolCallPart("search", {"query": "returns"}, script.call_id())])

    names = block("pydantic_ai")
    agent = Agent(FunctionModel(model))
    agent.tool_plain(search)
    return str(asyncio.run(names["run_guarded"](agent, "How do I return a parcel?", conversation)))


def openai_agents(script: Script, conversation: str) -> str:
    agents = pytest.importorskip("agents")
    pytest.importorskip("openinference.instrumentation.openai_agents")
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(agents.Model):  # type: ignore[misc, name-defined, unused-ignore]
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            if script.answers(input):
                text = ResponseOutputText(text="Answer.", type="output_text", annotations=[])
                output: Any = ResponseOutputMessage(
                    id="m", role="assistant", status="completed", type="message", content=[text]
                )
            else:
                arguments = json.dumps({"query": "returns"})
                output = ResponseFunctionToolCall(
                    name="search", arguments=arguments, call_id=script.call_id(), type="function_call"
                )
            return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    names = block("agents")
    agent = agents.Agent(name="shop", model=Scripted(), tools=[agents.function_tool(search)])
    return str(asyncio.run(names["run_guarded"](agent, "How do I return a parcel?", conversation)))


def smolagents(script: Script, conversation: str) -> str:
    smol = pytest.importorskip("smolagents")
    pytest.importorskip("openinference.instrumentation.smolagents")
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction

    class Scripted(smol.Model):  # type: ignore[misc, name-defined, unused-ignore]
        def generate(self, messages: Any, **_: Any) -> Any:
            name, arguments = "search", {"query": "returns"}
            if script.answers(messages):
                name, arguments = "final_answer", {"answer": "Answer."}
            function = ChatMessageToolCallFunction(name=name, arguments=arguments)
            call = ChatMessageToolCall(id=script.call_id(), type="function", function=function)
            return ChatMessage(role="assistant", content="", tool_calls=[call])

    names = block("smolagents")
    return str(names["run_guarded"]([smol.tool(search)], Scripted(), "How do I return a parcel?", conversation))


def search(query: str) -> str:
    """Search.

    Args:
        query: words to look for
    """
    return NOTHING


FRAMEWORKS: list[Callable[[Script, str], str]] = [pydantic_ai, openai_agents, smolagents]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_that_listens_answers_after_the_nudge(framework: Callable[[Script, str], str], provider: None) -> None:
    script = Script(listens=True)
    assert framework(script, f"{framework.__name__}-listens") == "Answer."
    assert script.requests == 4


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_that_goes_on_is_stopped(framework: Callable[[Script, str], str], provider: None) -> None:
    script = Script(listens=False)
    said = framework(script, f"{framework.__name__}-goes-on")
    assert said.startswith("I could not finish this: search(")
    assert "was called 5 times" in said
    assert script.requests == 5
