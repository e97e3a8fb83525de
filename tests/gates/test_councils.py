"""Model nodes that run side by side in one graph and write to one list of messages: what they ask at once is one turn."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from trajectory_guard import apply_guard

from .agents import closing, new_board, nudges, tool_runs

THINGS = ("lamp", "chair", "table", "shelf", "sofa")
LIMIT = {"recursion_limit": 100}


@tool
def get_price(sku: str) -> str:
    """Price of a product."""
    return f"price of {sku}: {sum(map(ord, sku))}.00 EUR, in stock, ships within {len(sku)} working days"


@tool
def stock(sku: str) -> str:
    """Stock of a product: the same sentence for each."""
    return "42 pieces in stock, which ship within two working days"


def asked(state: Any, members: int) -> int:
    return sum(bool(getattr(one, "tool_calls", None)) for one in state["messages"]) // members


def sent(state: Any) -> list[Send]:
    return [Send("tools", [call]) for call in state["messages"][-1].tool_calls]


def request(name: str, of_tool: str, sku: str, at: int) -> AIMessage:
    call = {"name": of_tool, "args": {"sku": sku}, "id": f"{name}-{at}", "type": "tool_call"}
    return AIMessage("", name=name, tool_calls=[call])


def council(members: int, of_tool: str, thing: Any) -> Any:
    """``members`` nodes that each ask for one thing in each round."""
    builder = StateGraph(MessagesState)
    names = [f"member {number}" for number in range(members)]

    def chair(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("All is priced.")] if asked(state, members) == len(THINGS) else []}

    def member(name: str) -> Any:
        def ask(state: MessagesState) -> dict[str, Any]:
            done = asked(state, members)
            return {"messages": [request(name, of_tool, thing(done), done)]}

        return ask

    builder.add_node("chair", chair)
    for name in names:
        builder.add_node(name, member(name))
        builder.add_conditional_edges(name, sent, ["tools"])
    builder.add_conditional_edges(
        "chair", lambda state: END if asked(state, members) == len(THINGS) else names, [*names, END]
    )
    builder.add_node("tools", ToolNode([get_price, stock]))
    builder.add_edge(START, "chair")
    builder.add_edge("tools", "chair")
    return apply_guard(builder, board=new_board()).compile()


def samplers(count: int) -> Any:
    """One node that is started ``count`` times in each round, each time for another thing."""
    builder = StateGraph(MessagesState)

    def sample(given: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [request("sampler", "stock", f"{given['round']}-{given['number']}", given["number"])]}

    def spread(state: MessagesState) -> Any:
        done = asked(state, count)
        return [Send("sample", {"round": done, "number": number}) for number in range(count)] if done < 3 else END

    builder.add_node("plan", lambda state: {})
    builder.add_node("sample", sample)
    builder.add_node("tools", ToolNode([stock]))
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", spread, ["sample", END])
    builder.add_conditional_edges("sample", sent, ["tools"])
    builder.add_edge("tools", "plan")
    return apply_guard(builder, board=new_board()).compile()


@pytest.mark.parametrize("of_tool", ["get_price", "stock"])
@pytest.mark.parametrize("members", [2, 3, 5])
def test_members_that_ask_the_same_at_once_are_no_loop(members: int, of_tool: str) -> None:
    graph = council(members, of_tool, lambda done: THINGS[done])
    messages = graph.invoke({"messages": [HumanMessage("Furnish the room.")]}, LIMIT)["messages"]

    assert nudges(messages) == closing(messages) == []
    assert tool_runs(messages) == members * len(THINGS)


def test_samplers_of_one_round_are_one_turn() -> None:
    messages = samplers(50).invoke({"messages": [HumanMessage("Count the stock.")]}, LIMIT)["messages"]

    assert nudges(messages) == closing(messages) == []
    assert tool_runs(messages) == 150


def test_a_council_that_asks_for_one_thing_in_each_round_is_nudged() -> None:
    graph = council(3, "get_price", lambda done: "lamp")
    messages = graph.invoke({"messages": [HumanMessage("Furnish the room.")]}, LIMIT)["messages"]

    assert nudges(messages)
