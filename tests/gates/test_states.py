"""The gate fits into any keyed state and leaves the user's own keys and reducers as they are."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessageChunk,
    HumanMessage,
    message_chunk_to_message,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.channels import DeltaChannel, UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tests.helpers import TESTS
from trajectory_guard import AgentState, LoopStatus, TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    new_board,
    obeys,
    outline,
    repeats,
    search,
    thread,
)

Builder = StateGraph[Any, Any, Any, Any]


def last_six(before: list[AnyMessage], new: list[AnyMessage]) -> list[AnyMessage]:
    return [*before, *new][-6:]


class TrimmedState(TypedDict):
    messages: Annotated[list[AnyMessage], last_six]


class TypedState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    budget: int


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
    budget: int = 0


@dataclass
class DataclassState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    budget: int = 0


def _spending(state: Any) -> dict[str, int]:
    return {"budget": (state["budget"] if isinstance(state, dict) else state.budget) - 1}


@pytest.mark.parametrize("state", [TypedState, PydanticState, DataclassState])
def test_states_of_every_kind_keep_their_keys(state: type) -> None:
    builder = agent_builder(repeats(), state=state)
    builder.add_node("spend", _spending)
    builder.edges.discard((START, "agent"))
    builder.add_edge(START, "spend")
    builder.add_edge("spend", "agent")
    graph = apply_guard(builder, board=new_board()).compile(checkpointer=InMemorySaver())

    result = graph.invoke({**TASK, "budget": 7}, thread())

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert result["budget"] == 6
    assert set(result) == {"messages", "budget"}
    saved = graph.get_state(thread()).values
    assert len(saved["trajectory_scratchpad"]) == STOP_AT
    assert saved["loop_status"]["status"] == "stopped"


def test_a_reducer_of_the_users_own_is_kept() -> None:
    """``operator.add`` on messages: the nudge is appended once, nothing is written twice."""

    class Talk(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    graph = apply_guard(agent_builder(obeys, state=Talk), board=new_board()).compile()

    assert outline(graph.invoke({"messages": [HumanMessage("hi")]})["messages"]) == NUDGED_THEN_FINISHED


class StreamingModel(ScriptedChatModel):
    """Streams the calls of its answer as a provider does: each in a chunk of its own."""

    def _stream(self, messages: list[Any], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        answer = self.policy(messages, self.turns)
        yield ChatGenerationChunk(message=AIMessageChunk(answer.content))
        for place, one in enumerate(answer.tool_calls):
            part = tool_call_chunk(name=one["name"], args=json.dumps(one["args"]), id=one["id"], index=place)
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[part]))


@pytest.mark.parametrize("policy", [repeats(), obeys])
def test_a_node_may_write_the_sum_of_the_chunks_it_has_streamed(policy: Any) -> None:
    """``add_messages`` makes a whole message of them; other reducers keep a message of another type."""

    class Talk(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    model = StreamingModel(policy=policy)

    def agent(state: Talk) -> dict[str, Any]:
        return {"messages": [reduce(operator.add, model.stream(state["messages"]))]}

    builder: Builder = StateGraph(Talk)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=new_board()).compile()

    found = graph.invoke({"messages": [HumanMessage("hi")]})["messages"]

    assert any(isinstance(message, AIMessageChunk) for message in found)
    whole = [message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one for one in found]
    assert outline(whole) == (NUDGED_THEN_FINISHED if policy is obeys else NUDGED_THEN_STOPPED)


def test_a_reducer_that_trims_is_kept() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        return call("search", {"query": "x"}, turn)

    graph = apply_guard(agent_builder(policy, state=TrimmedState), board=new_board()).compile()

    assert outline(graph.invoke({"messages": [HumanMessage("hi")]})["messages"]) == NUDGED_THEN_STOPPED[-6:]


class WithoutReducer(TypedDict):
    messages: list[AnyMessage]


class ReplacedByReducer(TypedDict):
    messages: Annotated[list[AnyMessage], lambda before, new: new]


class NotSaved(TypedDict):
    messages: Annotated[list[AnyMessage], UntrackedValue(list)]


class ReplacedInBatches(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(lambda before, writes: writes[-1] if writes else before)]


REPLACING = pytest.mark.parametrize("state", [WithoutReducer, ReplacedByReducer, NotSaved, ReplacedInBatches])
"""The list that a node writes takes the place of all messages."""


def _graph_without_reducer(policy: Any, state: type = WithoutReducer) -> Builder:
    """A state in which every node writes all messages."""
    model, tools = ScriptedChatModel(policy=policy), ToolNode([search])
    builder: Builder = StateGraph(state)
    builder.add_node("agent", lambda state: {"messages": [*state["messages"], model.invoke(state["messages"])]})
    builder.add_node("tools", lambda state: {"messages": [*state["messages"], *tools.invoke(state)["messages"]]})
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


def _last(graph: Any) -> str:
    """The outline of the last state; not every key is in the result of ``invoke``."""
    *_, last = graph.stream({"messages": [HumanMessage("hi")]}, stream_mode="values")
    return outline(last["messages"])


@REPLACING
@pytest.mark.parametrize(("policy", "expected"), [(obeys, NUDGED_THEN_FINISHED), (repeats(), NUDGED_THEN_STOPPED)])
def test_a_message_key_without_reducer_does_not_lose_the_conversation(state: type, policy: Any, expected: str) -> None:
    graph = apply_guard(_graph_without_reducer(policy, state), board=new_board()).compile()

    assert _last(graph) == expected


@REPLACING
def test_nor_does_it_to_a_node_wired_by_hand(state: type) -> None:
    builder = _graph_without_reducer(repeats(), state)
    builder.add_node("guard", TrajectoryGuardNode(agent="agent", board=new_board()))
    builder.edges.discard(("tools", "agent"))
    builder.add_edge("tools", "guard")

    assert _last(builder.compile()) == NUDGED_THEN_STOPPED


def test_a_nudge_appended_to_the_tool_result_keeps_a_conversation_without_reducer() -> None:
    graph = apply_guard(_graph_without_reducer(repeats(3)), nudge_role="tool", board=new_board()).compile()

    messages = graph.invoke({"messages": [HumanMessage("hi")]})["messages"]

    assert outline(messages) == "hatatata"
    assert messages[-2].content.startswith("No results found\n\n[Trajectory guard]")


def test_messages_under_another_key() -> None:
    class Talk(TypedDict):
        history: Annotated[list[AnyMessage], add_messages]

    def route(state: Any) -> str:
        return tools_condition(state, messages_key="history")

    builder: Builder = StateGraph(Talk)
    builder.add_node("agent", agent_node(repeats(), "history"))
    builder.add_node("tools", ToolNode([search], messages_key="history"))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "__end__"])
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, messages_key="history", board=new_board()).compile()

    result = graph.invoke({"history": [("user", "hi")]})

    assert outline(result["history"]) == NUDGED_THEN_STOPPED
    assert "messages" not in graph.channels


def test_a_loop_status_and_scratchpad_the_user_declared_are_used() -> None:
    graph = apply_guard(agent_builder(repeats(), state=AgentState), board=new_board()).compile()

    result = graph.invoke(TASK)

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert result["loop_status"]["status"] == "stopped"
    assert [entry["tool_name"] for entry in result["trajectory_scratchpad"]] == ["search"] * STOP_AT


def test_a_graph_with_the_guards_own_state_shows_its_schema() -> None:
    """LangGraph's server, Studio and ``as_tool`` ask for it."""
    graph = apply_guard(agent_builder(obeys, state=AgentState), board=new_board()).compile()

    for schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert set(schema["properties"]) == {"messages", "loop_status", "trajectory_scratchpad"}


def test_a_scratchpad_with_a_reducer_of_the_users_own_stays() -> None:
    class Talk(MessagesState):
        trajectory_scratchpad: Annotated[list[Any], operator.add]

    graph = apply_guard(agent_builder(repeats(3), state=Talk), board=new_board()).compile()

    result = graph.invoke({**TASK, "trajectory_scratchpad": ["mine"]})

    assert result["trajectory_scratchpad"][0] == "mine"
    assert len(result["trajectory_scratchpad"]) == 1 + 3


@pytest.mark.parametrize("state", [AgentState, MessagesState])
def test_a_node_wired_by_hand(state: type) -> None:
    """As in the node's own documentation; without the guard's keys in the state the board alone remembers."""
    builder = agent_builder(repeats(), state=state)
    builder.add_node("guard", TrajectoryGuardNode(agent="agent", board=new_board()))
    builder.edges.discard(("tools", "agent"))
    builder.add_edge("tools", "guard")

    messages = builder.compile().invoke(TASK, thread())["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED


def test_input_that_sets_the_guards_keys_does_no_harm() -> None:
    """A caller hands in what an earlier, unrelated run returned, or rubbish."""
    for rubbish in ({"state": "%%%"}, {"state": "e30="}, {"calls": None, "recent": None}, {"state": 7}, {}):
        board = new_board()
        graph = apply_guard(agent_builder(repeats(), state=AgentState), board=board).compile()

        messages = graph.invoke({**TASK, "loop_status": rubbish})["messages"]

        assert outline(messages) == NUDGED_THEN_STOPPED, rubbish
        assert board.counts["errors.gate"] == 0


def test_the_readme_has_a_row_for_every_key_of_loop_status() -> None:
    board = new_board(budgets=[{"scope": "day", "tokens": 10**9}], cursor=True)
    graph = apply_guard(agent_builder(repeats(8)), board=board).compile()
    status = graph.invoke(TASK, thread(), output_keys=["loop_status"])["loop_status"]
    readme = (TESTS.parent / "processor" / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| key of `loop_status` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(status) == set(LoopStatus.__annotations__)
