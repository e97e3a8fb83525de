"""An agent that repeats a hopeless call and a refused one: most of its calls are answered without being run.

The tools count how often they really run. Then a person who watches the run stops it by hand.

Run: python examples/refused_calls.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard import apply_guard, shared_board
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

RUNS = {"open_report": 0, "delete_data": 0, "look_up": 0}


@tool
def open_report(path: str) -> str:
    """Open a report."""
    RUNS["open_report"] += 1
    raise FileNotFoundError(f"{path} does not exist")


@tool
def delete_data(path: str) -> str:
    """Delete data, if the policy of the company allows it."""
    RUNS["delete_data"] += 1
    raise PermissionError("permission denied by user: nothing is deleted today")


@tool
def look_up(key: str) -> str:
    """Look something up."""
    RUNS["look_up"] += 1
    if key == "order 5":  # meanwhile, in another window
        shared_board().raise_flag("demo", "stop", "The customer has cancelled.", actor="maria")
    return f"{key}: ready since March {RUNS['look_up']}, on shelf {7 * RUNS['look_up']}"


def policy(messages, turn):
    """A model that does not listen: four times a missing file, some orders, three times a refused call, more orders."""
    done = sum(message.type == "ai" for message in messages)
    if done < 4:
        return call("open_report", {"path": "report.csv"}, turn)
    if 7 <= done < 10:
        return call("delete_data", {"path": "/data"}, turn)
    return call("look_up", {"key": f"order {done - 3 if done < 7 else done - 6}"}, turn)


def main() -> None:
    model = ScriptedChatModel(policy=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([open_report, delete_data, look_up], handle_tool_errors=True))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, refuse_pointless=True).compile(InMemorySaver())

    config = {"configurable": {"thread_id": "demo"}, "recursion_limit": 60}
    messages = graph.invoke({"messages": [("user", "Clean up.")]}, config)["messages"]
    for message in messages:
        requested = ", ".join(f"{one['name']}({one['args']})" for one in getattr(message, "tool_calls", []))
        print(f"{message.type:>5}  {requested or str(message.content).splitlines()[0]}")
    for name, runs in RUNS.items():
        asked = sum(one["name"] == name for message in messages for one in getattr(message, "tool_calls", []))
        print(f"{name}: requested {asked} times, run {runs} times")


if __name__ == "__main__":
    main()
