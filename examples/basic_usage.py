"""The smallest integration: one line for the spans, one for the graph.

Run: python examples/basic_usage.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import apply_guard, instrument
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call, was_nudged


@tool
def search(query: str) -> str:
    """Search the manual."""
    return "No results found"


def policy(messages, turn):
    """A model that repeats itself until it reads a nudge."""
    if was_nudged(messages):
        from langchain_core.messages import AIMessage

        return AIMessage("I could not find it in the manual.")
    return call("search", {"query": "return policy"}, turn)


def main() -> None:
    instrument()
    model = ScriptedChatModel(policy=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    apply_guard(builder)
    graph = builder.compile()
    result = graph.invoke(
        {"messages": [("user", "What is the return policy?")]}, {"configurable": {"thread_id": "example"}}
    )
    for message in result["messages"]:
        print(f"{message.type:>6}: {message.content or [c['name'] for c in getattr(message, 'tool_calls', [])]}")


if __name__ == "__main__":
    main()
