"""Supervisors and other hand-overs whose workers answer in short: pieces of work are left alone, circles are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from trajectory_guard import apply_guard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel

from .agents import calls, new_board, nudges, outline, search

Say = Callable[[int], str]
TASK = {"messages": [("user", "Please see to this, one after the other.")]}
TURNS = 16
CITIES = (
    "Paris", "Berlin", "Rome", "Madrid", "Vienna", "Lisbon", "Prague", "Oslo", "Athens", "Dublin", "Warsaw", "Bern",
    "Sofia", "Riga", "Tallinn", "Zagreb",
)  # fmt: skip
THINGS = (
    "Himmel blau", "Gras grün", "Schnee weiß", "Kohle schwarz", "Honig süß", "Essig sauer", "Eis kalt", "Feuer heiß",
    "Stein hart", "Watte weich", "Blei schwer", "Kork leicht", "Nacht dunkel", "Sonne hell", "Glas spröde", "Gummi zäh",
)  # fmt: skip
REFUSALS = (
    "I found nothing.", "That is not in my area.", "You should ask billing.", "It belongs to support.",
    "Sorry, no idea.", "Please try another department.", "I cannot help with that.", "Not in my records.",
)  # fmt: skip
REASONS = (
    "This is about a double charge.", "The account has to be verified first.", "The card was charged twice.",
    "Looks like a billing matter.", "The customer insists.", "It is the refund, I think.",
)  # fmt: skip


def silent(turn: int) -> str:
    return ""


def said(messages: Any, text: str, name: str) -> AIMessage:
    return calls(messages, (name, {})).model_copy(update={"content": text})


def supervised(
    answer: Say, ask: Say = silent, workers: tuple[str, ...] = ("billing",), turns: int = TURNS, **options: Any
) -> Any:
    """A supervisor that hands over to its workers in turn; they answer at once."""
    count = itertools.count()

    def work(messages: Any, turn: int) -> AIMessage:
        return AIMessage(answer(next(count)))

    def lead(messages: Any, turn: int) -> AIMessage:
        if turn >= turns:
            return AIMessage("Done.")
        return said(messages, ask(turn), f"transfer_to_{workers[turn % len(workers)]}")

    agents = [create_agent(ScriptedChatModel(policy=work), [search], name=name) for name in workers]
    return create_supervisor(agents, model=ScriptedChatModel(policy=lead), **options)


def swarm(remark: Say, agents: tuple[str, ...] = ("alice", "bob"), turns: int = TURNS) -> Any:
    """Agents that hand over in a circle, with words beside the call."""
    count = itertools.count()

    def agent(name: str, following: str) -> Any:
        def act(messages: Any, turn: int) -> AIMessage:
            at = next(count)
            return AIMessage("Done.") if at >= turns else said(messages, remark(at), f"transfer_to_{following}")

        return create_agent(
            ScriptedChatModel(policy=act), [search, create_handoff_tool(agent_name=following)], name=name
        )

    following = (*agents[1:], agents[0])
    return create_swarm(list(map(agent, agents, following)), default_active_agent=agents[0])


def by_hand(answer: Say) -> Any:
    """A graph in which a node answers what another one has handed over; both write to one list of messages."""
    count = itertools.count()

    def triage(state: Any) -> Any:
        at = sum(message.type == "tool" for message in state["messages"])
        wanted = ("transfer_to_desk", {})
        return {"messages": [calls(state["messages"], wanted) if at < TURNS else AIMessage("Done.")]}

    def passed(state: Any) -> Any:
        asked = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage("Transferred.", tool_call_id=call["id"]) for call in asked]}

    builder = StateGraph(MessagesState)
    builder.add_node("triage", triage)
    builder.add_node("passed", passed)
    builder.add_node("desk", lambda state: {"messages": [AIMessage(answer(next(count)), name="desk")]})
    builder.add_edge(START, "triage")
    builder.add_conditional_edges(
        "triage", lambda state: "passed" if state["messages"][-1].tool_calls else END, ["passed", END]
    )
    builder.add_edge("passed", "desk")
    builder.add_edge("desk", "triage")
    return builder


def guarded(builder: Any) -> list[Any]:
    options = {"agent": "triage", "tools": ("desk",)} if "triage" in builder.nodes else {}
    graph = apply_guard(builder, board=new_board(), **options).compile()
    messages: list[Any] = graph.invoke(TASK, {"recursion_limit": 200})["messages"]
    return messages


def fact(turn: int) -> str:
    return f"{CITIES[turn % TURNS]} has {turn * 37 % 89 / 10} million."


HEALTHY: dict[str, Callable[[], Any]] = {
    "one worker, facts": lambda: supervised(fact),
    "five workers, facts": lambda: supervised(fact, workers=("ann", "ben", "cid", "dan", "eve")),
    "facts, no hand-back": lambda: supervised(fact, add_handoff_back_messages=False),
    "numbers alone": lambda: supervised(lambda turn: str(turn * 7919 % 997)),
    "yes or no": lambda: supervised(lambda turn: ("Yes.", "No.")[turn % 2], lambda turn: f"Is {CITIES[turn]} large?"),
    "facts in German, without a figure": lambda: supervised(lambda turn: THINGS[turn]),
    "a swarm that names prices": lambda: swarm(lambda turn: f"{CITIES[turn]}: {turn * 37 % 89} EUR, over to you."),
    "a graph made by hand": lambda: by_hand(fact),
}
ROOMS = ("kitchen", "bedroom", "garage", "cellar", "attic", "hall", "bathroom", "balcony", "garden", "porch")
DONE = ("paused", "cancelled", "upgraded", "exported", "shared", "printed", "renamed", "merged", "archived", "restored")
TOLD = ("erstattet", "storniert", "geliefert", "bezahlt", "gedruckt", "versandt", "repariert", "ersetzt", "gebucht")
UNCLEAR: dict[str, Callable[[], Any]] = {
    "ten requests, one answer": lambda: supervised(
        lambda _: "Approved.", lambda turn: f"Now the {ROOMS[turn]}.", turns=10
    ),
    "ten counted requests": lambda: supervised(lambda _: "Approved.", lambda turn: f"Now room {turn + 1}.", turns=10),
    "answers to 'you'": lambda: supervised(lambda turn: f"You can have it {DONE[turn]} under settings.", turns=10),
    "answers that negate": lambda: supervised(lambda turn: f"No, the {ROOMS[turn]} has no smoke detector.", turns=10),
    "answers in polite German": lambda: supervised(lambda turn: f"Es wird Ihnen {TOLD[turn]}.", turns=9),
    "a story": lambda: swarm(lambda turn: f"Then the old wolf crept through the {ROOMS[turn]}.", turns=10),
}
CIRCLES: dict[str, Callable[[], Any]] = {
    "refusals in ever new words": lambda: supervised(lambda turn: REFUSALS[turn % 8]),
    "reasons and refusals": lambda: supervised(
        lambda turn: REFUSALS[turn % 8], lambda turn: REASONS[turn % 6], ("billing", "support")
    ),
    "one fact again and again": lambda: supervised(lambda turn: "Berlin has 3.7 million."),
    "a draft that is counted": lambda: supervised(lambda turn: f"Draft v{turn} is ready.", workers=("ann", "ben")),
    "a swarm with new reasons": lambda: swarm(lambda turn: REASONS[turn % 6]),
    "a swarm that counts": lambda: swarm(lambda turn: f"Attempt {turn}: over to you."),
    "a graph made by hand": lambda: by_hand(lambda turn: REFUSALS[turn % 8]),
}


@pytest.mark.parametrize("build", HEALTHY.values(), ids=HEALTHY)
def test_workers_that_answer_in_short_are_left_alone(build: Callable[[], Any]) -> None:
    messages = guarded(build())
    assert messages[-1].content == "Done."
    assert not nudges(messages)


@pytest.mark.parametrize("build", UNCLEAR.values(), ids=UNCLEAR)
def test_ten_answers_in_new_words_that_may_pass_the_work_on_stop_nobody(build: Callable[[], Any]) -> None:
    messages = guarded(build())
    assert messages[-1].content == "Done."
    assert len(nudges(messages)) <= 2


@pytest.mark.parametrize("build", CIRCLES.values(), ids=CIRCLES)
def test_work_that_goes_round_is_nudged_and_stopped(build: Callable[[], Any]) -> None:
    shape = outline(guarded(build()))
    assert "N" in shape
    assert shape.endswith("S")
