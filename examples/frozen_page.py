"""An agent clicks button after button on a page that does not change; the tool says "clicked" each time.

The results look like success, so only the page shows the loop: ``state_of`` hands it to the guard.

Run: python examples/frozen_page.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

from itertools import count

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call, was_nudged

SECONDS = count(7)


def page(state):
    """The page after the clicks; with Playwright: ``return browser_page.content()``. Its clock counts for nothing."""
    return f"<main>Tickets. Please sign in first.</main><footer>It is 10:21:{next(SECONDS):02d}.</footer>"


@tool
def click(button: str) -> str:
    """Click on a button of the page."""
    return f"clicked {button!r}"


def policy(messages, turn):
    """A model that tries one button after the other until it reads a nudge."""
    if was_nudged(messages):
        return AIMessage("The page does not react to any button: it asks for a sign-in first. Shall I sign in?")
    buttons = ("Buy", "Buy now", "Continue", "Next", "Checkout", "Order", "Pay", "Confirm", "Submit", "Send")
    return call("click", {"button": buttons[turn % len(buttons)]}, turn)


def main() -> None:
    model = ScriptedChatModel(policy=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([click]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    apply_guard(builder, state_of=page)
    graph = builder.compile()
    result = graph.invoke({"messages": [("user", "Buy two tickets.")]}, {"configurable": {"thread_id": "example"}})
    for message in result["messages"]:
        print(f"{message.type:>6}: {message.content or [c['args'] for c in getattr(message, 'tool_calls', [])]}")


if __name__ == "__main__":
    main()
