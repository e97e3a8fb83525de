"""The four agents of the demo: real LangGraph graphs with real tools, only the model is scripted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel, call, was_nudged


class DemoAgent(NamedTuple):
    """One agent of the demo: title, demonstrated behaviour, task, model and tools."""

    title: str
    shows: str
    task: str
    policy: Policy
    tools: Callable[[], list[BaseTool]]


def build_graph(policy: Policy, tools: Sequence[BaseTool]) -> StateGraph[Any, Any, Any, Any]:
    """A plain agent graph, as in LangGraph's own documentation: agent → tools → agent."""
    model = ScriptedChatModel(policy=policy).bind_tools(tools)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


# --- an agent that rewords its search, and listens ------------------------------------------------------------

_WORDINGS = (
    "return policy", "policy for returns", "what is the return policy", "returns policy", "the policy on returns",
    "return policies",
)  # fmt: skip


def _support_tools() -> list[BaseTool]:
    @tool(description="Search the manual.")
    def search(query: str) -> str:
        return "No results found"

    @tool(description="Look up a topic in the FAQ.")
    def check_faq(topic: str) -> str:
        return f"{topic}: goods can be returned within 30 days with the receipt."

    return [search, check_faq]


def _recovers(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    last = messages[-1]
    if last.type == "tool" and "30 days" in str(last.content):
        return AIMessage("You can return goods within 30 days if you have the receipt.")
    if was_nudged(messages):
        return call("check_faq", {"topic": "returns"}, turn, "The manual has nothing. I will try the FAQ instead.")
    return call("search", {"query": _WORDINGS[turn % len(_WORDINGS)]}, turn, "Let me search the manual.")


def _stubborn(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    return call("search", {"query": "return policy"}, turn, "I will search the manual once more.")


# --- an agent that edits and tests -----------------------------------------------------------------------------


def _repair_tools() -> list[BaseTool]:
    failures = ["test_total, test_tax, test_round", "test_tax, test_round", "test_round"]
    edits: list[str] = []

    @tool(description="Run the test suite.")
    def run_tests() -> str:
        left = failures[len(edits)] if len(edits) < len(failures) else ""
        return f"FAILED {left}" if left else "all 3 tests passed"

    @tool(description="Change a file.")
    def edit_file(path: str, change: str) -> str:
        edits.append(change)
        return f"{path} written"

    return [run_tests, edit_file]


def _repairs(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    if "passed" in str(messages[-1].content):
        return AIMessage("All tests pass now.")
    if turn % 2 == 0:
        return call("run_tests", {}, turn, "Run the tests.")
    return call("edit_file", {"path": "invoice.py", "change": f"fix {turn // 2 + 1}"}, turn, "Fix the next failure.")


# --- an agent that waits ---------------------------------------------------------------------------------------


def _deploy_tools() -> list[BaseTool]:
    answers = iter(["status: queued", "status: running", "status: running", "status: running", "status: running"])

    @tool(description="Status of a deployment job.")
    def job_status(job: str) -> str:
        return next(answers, "status: finished")

    return [job_status]


def _waits(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
    if "finished" in str(messages[-1].content):
        return AIMessage("The deployment is finished.")
    return call("job_status", {"job": "deploy-17"}, turn, "Is it done yet?")


AGENTS = (
    DemoAgent(
        "Recovers", "rewords an empty search until it is nudged, then finds another way",
        "What is the return policy?", _recovers, _support_tools,
    ),
    DemoAgent(
        "Ignores the nudge", "repeats one call despite the nudge, and is stopped before the next model call",
        "What is the return policy?", _stubborn, _support_tools,
    ),
    DemoAgent("Edits and tests", "the same test command again and again, but each time less fails: left alone",
              "Make the tests pass.", _repairs, _repair_tools),
    DemoAgent("Polls", "asks for a job's status until it is done: waiting is not being stuck",
              "Is the deployment done?", _waits, _deploy_tools),
)  # fmt: skip
STUBBORN = AGENTS[1]
