"""A tool that shows a picture writes it as the user, where the model's API takes none as a result: nobody has spoken."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from tests.gates.agents import agent_node, calls, nudges
from trajectory_guard import FlagBoard, GuardConfig, TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.messages import Shown, new_steps, turn_of, with_shown

LONG = {"recursion_limit": 300}


def picture(pixels: str) -> dict[str, Any]:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + pixels.encode() * 50).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def screen(pixels: Callable[[int], str]) -> BaseTool:
    """A tool that presses a key and shows the screen; ``pixels`` by how often it was called."""
    pressed = 0

    @tool
    def press(key: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Press a key."""
        nonlocal pressed
        pressed += 1
        shown = HumanMessage([{"type": "text", "text": "The screen now:"}, picture(pixels(pressed))])
        return Command(update={"messages": [ToolMessage("ok", tool_call_id=tool_call_id), shown]})

    return press


def presses(times: int) -> Policy:
    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        if sum(message.type == "tool" for message in messages) >= times:
            return AIMessage("Done.")
        return calls(messages, ("press", {"key": "PageDown"}))

    return policy


def with_apply_guard(board: FlagBoard, policy: Policy, press: BaseTool) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode([press]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return apply_guard(builder, agent="agent", board=board).compile(checkpointer=InMemorySaver())


def with_middleware(board: FlagBoard, policy: Policy, press: BaseTool) -> Any:
    return create_agent(
        ScriptedChatModel(policy=policy), [press], middleware=[TrajectoryGuardMiddleware(board=board)],
        checkpointer=InMemorySaver(),
    )  # fmt: skip


guarded = pytest.mark.parametrize("build", [with_apply_guard, with_middleware])


def run(
    build: Callable[..., Any], pixels: Callable[[int], str], times: int = 40, board: FlagBoard | None = None
) -> list[BaseMessage]:
    graph = build(board or FlagBoard(GuardConfig()), presses(times), screen(pixels))
    config = {"configurable": {"thread_id": "1"}, **LONG}
    return list(graph.invoke({"messages": [("user", "Find the footer.")]}, config)["messages"])


@guarded
def test_the_same_key_and_the_same_screen_again_and_again_is_a_loop(build: Callable[..., Any]) -> None:
    messages = run(build, lambda _: "a")
    assert nudges(messages)
    assert messages[-1].text.startswith("I could not get any further with this: press was called")
    assert sum(message.type == "tool" for message in messages) < 20


@guarded
def test_screens_that_change_are_progress(build: Callable[..., Any]) -> None:
    messages = run(build, lambda pressed: str(pressed * 37))
    assert messages[-1].text == "Done."
    assert nudges(messages) == []


@guarded
@pytest.mark.parametrize("changes", [False, True], ids=["the same screen", "other screens"])
def test_spans_show_what_a_tool_shows(
    build: Callable[..., Any], traced: Callable[..., FlagBoard], changes: bool
) -> None:
    messages = run(build, lambda pressed: str(pressed * 37) if changes else "a", board=traced())
    assert bool(nudges(messages)) is not changes
    assert (messages[-1].text == "Done.") is changes


HISTORY: list[BaseMessage] = [
    HumanMessage([{"type": "text", "text": "What is this?"}, picture("a")], id="1"),
    AIMessage("", id="2", tool_calls=[{"name": "press", "args": {}, "id": "c"}]),
    ToolMessage("ok", tool_call_id="c", id="3"),
]


@pytest.mark.parametrize(
    ("more", "turn"),
    [
        ([HumanMessage([picture("b")], id="4")], "1"),
        ([HumanMessage([picture("b")], id="4"), HumanMessage([picture("c")], id="5")], "1"),
        ([HumanMessage("Stop, do it in another way.", id="4")], "4"),
        ([HumanMessage([{"type": "text", "text": "Stop."}], id="4")], "4"),
        ([AIMessage("It is a cat.", id="4"), HumanMessage([picture("b")], id="5")], "5"),
    ],
    ids=["a picture", "two pictures", "words behind results", "words in a block", "a picture after an answer"],
)
def test_a_person_speaks_in_words_or_after_an_answer(more: list[BaseMessage], turn: str) -> None:
    assert turn_of(with_shown([*HISTORY, *more])) == turn


def test_what_nobody_replaces_is_passed_on_as_it_is() -> None:
    assert with_shown(HISTORY[1:]) is not None
    assert [one.__class__ is Shown for one in with_shown(HISTORY)] == [False] * 3


def test_a_picture_belongs_to_the_newest_of_the_calls_with_its_id() -> None:
    """Some models count their calls from the beginning in every turn."""
    request = AIMessage("", tool_calls=[{"name": "press", "args": {}, "id": "c"}])
    answer = ToolMessage("ok", tool_call_id="c")
    turns = [request.model_copy(update={"id": "1"}), answer, request.model_copy(update={"id": "2"}), answer]
    messages = with_shown([HumanMessage("Press."), *turns, HumanMessage([picture("b")])])
    first, second = new_steps(messages, trajectory_id="t", known=lambda _: False, now=0.0)
    assert first.result == "ok"
    assert "image" in str(second.result)
