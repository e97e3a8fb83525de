"""A stopped agent has no structured response: neither one of its own, nor that of the user turn before."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.prebuilt import create_react_agent
from langgraph.prebuilt.chat_agent_executor import AgentStateWithStructuredResponsePydantic
from pydantic import BaseModel

from tests.gates.agents import agent_builder, calls, new_board, repeats, search
from trajectory_guard import apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled

THREAD: Any = {"configurable": {"thread_id": "1"}}


class Answer(BaseModel):
    number: int


class StructuredModel(ScriptedChatModel):
    def with_structured_output(self, schema: Any, **options: Any) -> Runnable[Any, Any]:
        return RunnableLambda(lambda messages: schema(number=7))


def answers_at_first(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    if messages[0] is messages[-1]:
        return AIMessage("seven")
    return calls(messages, ("search", {"query": "x"}))


def agent(policy: Any, **options: Any) -> Any:
    options.setdefault("checkpointer", InMemorySaver())
    return create_react_agent(StructuredModel(policy=policy), [search], response_format=Answer, **options)


class AnswerOrNone(AgentStateWithStructuredResponsePydantic):
    """A state that LangGraph checks whenever a node reads it."""

    structured_response: Answer | None = None  # type: ignore[assignment]


@pytest.mark.parametrize("more", [{}, {"version": "v1"}, {"state_schema": AnswerOrNone}], ids=["v2", "v1", "own state"])
def test_the_response_of_the_turn_before_is_gone(more: dict[str, Any]) -> None:
    graph = guard_compiled(agent(answers_at_first, **more), board=new_board())
    first = graph.invoke({"messages": [("user", "first")]}, THREAD)
    assert first["structured_response"] == Answer(number=7)
    stopped = graph.invoke({"messages": [("user", "second")]}, THREAD)
    assert stopped["messages"][-1].text.startswith("I could not get any further")
    assert stopped["structured_response"] is None
    assert graph.get_state(THREAD).values["structured_response"] is None


def test_an_agent_stopped_in_its_first_turn_has_none_either() -> None:
    graph = agent(repeats(8), checkpointer=None)
    stopped = guarded_invoke(graph, {"messages": [("user", "first")]}, board=new_board())
    assert stopped["structured_response"] is None


class Responses(MessagesState):
    structured_response: Annotated[list[int], operator.add]


def test_a_key_of_a_graph_built_by_hand_stays() -> None:
    """Another node may write it in the same super-step, or its reducer takes no None."""
    builder = agent_builder(repeats(8), state=Responses)
    graph = apply_guard(builder, board=new_board()).compile()
    stopped = graph.invoke({"messages": [("user", "first")], "structured_response": [7]})
    assert stopped["messages"][-1].text.startswith("I could not get any further")
    assert stopped["structured_response"] == [7]
