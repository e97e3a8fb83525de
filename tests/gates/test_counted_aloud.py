"""An agent that repeats itself on purpose says so to the guard: it counts aloud, as the nudge asks, and is not stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from trajectory_guard import TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

from .agents import Policy, agent_builder, calls, closing, new_board, nudges, rounds, tool_runs

LIMIT = {"recursion_limit": 1_000}


@tool
def print_label(order: str) -> str:
    """Print the label of an order once."""
    return "printed"


@tool
def look(order: str) -> str:
    """Look at the tray of the printer."""
    return "The tray holds labels of order A-17, face down, and the printer is ready for the next one."


def labels(total: int, said: str, *, lap: Sequence[str] = ("print_label",), batch: int = 1) -> Policy:
    """The laps of calls that the task asks for; from the first nudge on the model says which one of how many it is."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        done = rounds(messages)
        number, place = divmod(done, len(lap))
        if number * batch >= total:
            return AIMessage("All labels are printed.")
        message = calls(messages, *[(lap[place], {"order": "A-17"})] * batch)
        if nudges(messages) and place == 0:
            first = number * batch + 1
            message.content = said.format(number=first, to=first + batch - 1, total=total)
        return message

    return policy


def _graph(policy: Policy, board: Any) -> Any:
    return apply_guard(agent_builder(policy, tools=[print_label, look]), board=board).compile()


def _agent(policy: Policy, board: Any) -> Any:
    model = ScriptedChatModel(policy=policy)
    return create_agent(model, [print_label, look], middleware=[TrajectoryGuardMiddleware(board=board)])


CASES = [
    pytest.param(labels(24, "{number} of {total}"), 24, id="each call"),
    pytest.param(labels(24, "Étiquette {number}/{total}."), 24, id="in another language"),
    pytest.param(labels(60, "Label {number} of {total}"), 60, id="many"),
    pytest.param(labels(14, "{number} of {total}", lap=("print_label", "look", "look")), 42, id="a lap"),
    pytest.param(labels(60, "{number}-{to} of {total}", batch=5), 60, id="parallel calls"),
]


@pytest.mark.parametrize("build", [_graph, _agent])
@pytest.mark.parametrize("spans", [False, True], ids=["messages", "spans"])
@pytest.mark.parametrize(("policy", "made"), CASES)
def test_what_the_task_asks_for_is_done_to_its_end(
    policy: Policy, made: int, spans: bool, build: Callable[..., Any], traced: Callable[..., Any]
) -> None:
    graph = build(policy, traced() if spans else new_board())
    messages = graph.invoke({"messages": [("user", "Print the labels of order A-17.")]}, LIMIT)["messages"]

    assert 'for example "4 of 20"' in str(nudges(messages)[0].content)
    assert closing(messages) == []
    assert tool_runs(messages) == made


def test_without_a_count_the_same_calls_are_stopped() -> None:
    graph = _graph(labels(40, "Once more."), new_board())
    messages = graph.invoke({"messages": [("user", "Print the labels of order A-17.")]}, LIMIT)["messages"]

    assert len(closing(messages)) == 1
    assert tool_runs(messages) < 40


def test_a_count_is_heard_where_no_text_may_be_kept(traced: Callable[..., Any]) -> None:
    graph = _graph(labels(24, "Label {number} of {total} for Ms Smith"), traced(redact=True))
    messages = graph.invoke({"messages": [("user", "Print the labels of order A-17.")]}, LIMIT)["messages"]

    assert closing(messages) == []
    assert tool_runs(messages) == 24
