"""Long histories are summarised while the agent works: a summary is no person's message, and begins nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode

from tests.gates.agents import STOP_AT, TASK, agent_node, lookup, new_board, search, thread
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.langgraph import apply_guard
from trajectory_guard.gates.messages import is_guard_message

LIMIT = 30


@tool
def write_file(path: str) -> str:
    """Write a file."""
    return "written"


class Script:
    """A model that asks for the same few calls in turn, whatever it is shown, until it has been called often enough."""

    def __init__(self, *asked: tuple[str, dict[str, Any]], times: int = LIMIT) -> None:
        self.asked, self.times, self.calls = asked, times, 0

    def __call__(self, messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        if self.calls >= self.times:
            return AIMessage("I give up.")
        name, args = self.asked[self.calls % len(self.asked)]
        self.calls += 1
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{self.calls}", "type": "tool_call"}])


SAME = ("search", {"query": "return policy"})


def summarised(trigger: int, keep: int) -> SummarizationMiddleware:
    model = ScriptedChatModel(policy=lambda messages, turn: AIMessage("They searched."))
    return SummarizationMiddleware(model=model, trigger=("messages", trigger), keep=("messages", keep))


class Shorten(AgentMiddleware[Any, Any]):
    """An application's own: older messages give way to a message without any mark."""

    def __init__(self, trigger: int, keep: int, make: Any) -> None:
        self.trigger, self.keep, self.make = trigger, keep, make

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return shortened(state["messages"], self.trigger, self.keep, self.make)


def shortened(messages: list[Any], trigger: int, keep: int, make: Any) -> dict[str, Any] | None:
    if len(messages) < trigger:
        return None
    at = len(messages) - keep
    while messages[at].type == "tool":  # a result stays with its request
        at -= 1
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), make(), *messages[at:]]}


ways = {
    "langchain": lambda: summarised(8, 4),
    "langchain, little kept": lambda: summarised(5, 2),
    "langchain, late": lambda: summarised(12, 6),
    "unmarked": lambda: Shorten(6, 3, lambda: HumanMessage("Summary: the manual was searched.")),
    "unmarked, other language": lambda: Shorten(6, 2, lambda: HumanMessage("到目前为止:搜索了手册,没有结果。")),
    "unmarked, every time": lambda: Shorten(4, 2, lambda: HumanMessage("Resumen: nada todavía.")),
    "system message": lambda: Shorten(6, 3, lambda: SystemMessage("Summary: the manual was searched.")),
}


def agent(policy: Policy, board: FlagBoard, *middleware: Any, guard_first: bool = False) -> Any:
    guard = TrajectoryGuardMiddleware(board=board)
    order = [guard, *middleware] if guard_first else [*middleware, guard]
    return create_agent(
        ScriptedChatModel(policy=policy), [search, lookup, write_file], middleware=order, checkpointer=InMemorySaver()
    )


@pytest.mark.parametrize("way", ways)
@pytest.mark.parametrize(
    ("guard_first", "with_spans"),
    [
        pytest.param(False, False, id="guard last, messages"),
        pytest.param(True, True, id="guard first, spans"),
        pytest.param(True, False, id="guard first, messages", marks=pytest.mark.slow),
        pytest.param(False, True, id="guard last, spans", marks=pytest.mark.slow),
    ],
)
def test_a_loop_goes_on_through_summaries(way: str, guard_first: bool, with_spans: bool, run: Any, traced: Any) -> None:
    board, policy = traced() if with_spans else new_board(), Script(SAME)
    out = run(agent(policy, board, ways[way](), guard_first=guard_first), TASK, thread())
    status = out["loop_status"]
    assert (status["status"], status["steps_taken"], status["nudges_sent"]) == ("stopped", STOP_AT, 1)
    assert policy.calls == STOP_AT


@pytest.mark.parametrize("way", ["langchain", "unmarked", "system message"])
def test_a_lap_longer_than_what_is_kept_is_found(way: str) -> None:
    policy = Script(*(("lookup", {"key": f"page {at}"}) for at in range(6)), times=60)
    out = agent(policy, new_board(), ways[way]()).invoke(TASK, thread())
    assert out["loop_status"]["status"] == "stopped"
    assert policy.calls < 40


@pytest.mark.parametrize("way", ways)
def test_a_required_action_that_was_done_stays_done(way: str) -> None:
    board = new_board(cursor=True, required_actions=("write_file",))
    policy = Script(("write_file", {"path": "a"}), *(("lookup", {"key": f"page {at}"}) for at in range(13)), times=14)
    out = agent(policy, board, ways[way]()).invoke(TASK, thread())
    cursor = out["loop_status"]["cursor"]
    assert (cursor["missing_required_actions"], cursor["position"]) == ([], "task.1.step.14")
    assert board.counts["required_missing.write_file"] == 0
    assert out["loop_status"]["steps_taken"] == 14


@pytest.mark.parametrize("way", ways)
def test_a_person_who_asks_again_begins_a_new_turn(way: str) -> None:
    """Two equal calls in each turn, and summaries in between: nothing adds up."""
    guarded = agent(policy := Script(SAME, times=2), new_board(cursor=True), ways[way]())
    for turn in range(1, 7):
        policy.calls = 0
        out = guarded.invoke({"messages": [("user", f"And for shoe number {turn}?")]}, thread())
        assert out["loop_status"]["status"] == "ok"
        assert not any(is_guard_message(one) for one in out["messages"])
        assert out["loop_status"]["cursor"]["position"] == f"task.{turn}.step.2"


def test_a_graph_whose_tool_node_summarises() -> None:
    policy, tools = Script(SAME), ToolNode([search])

    def work(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        messages = [*state["messages"], *tools.invoke(state, config)["messages"]]
        return shortened(messages, 6, 2, lambda: HumanMessage("Bisher: nichts.")) or {"messages": messages}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", work)
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    guarded = apply_guard(builder, agent="agent", board=new_board()).compile(checkpointer=InMemorySaver())
    guarded.invoke(TASK, thread())
    assert guarded.get_state(thread()).values["loop_status"]["status"] == "stopped"
    assert policy.calls == STOP_AT


def test_a_sub_agent_that_is_summarised() -> None:
    policy, board = Script(SAME), new_board()
    inner = agent(policy, board, summarised(6, 3))

    def delegate(state: MessagesState) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": [("user", "Look it up.")]})["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("delegate", delegate)
    builder.add_edge(START, "delegate")
    builder.compile(checkpointer=InMemorySaver()).invoke(TASK, thread())
    assert policy.calls == STOP_AT
