"""A node of a graph that runs the loop of an agent itself: all its calls share one super-step, observed only."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from trajectory_guard.cli.demo.scripted import ScriptedChatModel

from .agents import calls, rounds, search
from .test_graph_started_again import RUNS, Job, get_ticket, job, load_policy, reply, works_on_the_ticket

__all__ = ["job"]
_ids = count()


class State(TypedDict, total=False):
    prompt: str
    laps: int
    done: Annotated[list[str], operator.add]


def model(call: Callable[[list[BaseMessage]], list[tuple[str, dict[str, Any]]]]) -> ScriptedChatModel:
    """A model that requests what ``call`` says, and is done when that is nothing."""
    return ScriptedChatModel(
        policy=lambda messages, turn: calls(messages, *call(messages)) if call(messages) else AIMessage("Done.")
    )


def agent(asked: ScriptedChatModel, *tools: BaseTool) -> Callable[[State], State]:
    """A node that asks the model and runs the tools, until the model requests none."""
    by_name = {one.name: one for one in tools}

    def node(state: State) -> State:
        messages: list[BaseMessage] = [HumanMessage(state["prompt"])]
        while (answer := asked.invoke(messages)).tool_calls:
            messages.append(answer)
            messages += [
                ToolMessage(by_name[one["name"]].invoke(one["args"]), tool_call_id=one["id"])
                for one in answer.tool_calls
            ]
        return {"done": [state["prompt"]]}

    return node


def searches(times: int) -> ScriptedChatModel:
    return model(lambda messages: [("search", {"query": "refund"})] if rounds(messages) < times else [])


def graph_of(node: Callable[[State], State]) -> Any:
    builder = StateGraph(State)
    builder.add_node("agent", node)
    builder.add_edge(START, "agent")
    return builder.compile()


def test_a_loop_is_nudged_and_stopped(job: Job) -> None:
    graph_of(agent(searches(8), search)).invoke({"prompt": "Find the refund policy"})
    assert job.interventions() == ["NUDGE", "STOP"]


def test_a_loop_whose_model_calls_another_library_reports_is_nudged_and_stopped(job: Job) -> None:
    """The client of a provider within a node: its spans know nothing of the graph."""
    client = job.provider.get_tracer("client")

    def node(state: State) -> State:
        for _ in range(8):
            with client.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}) as span:
                span.set_attribute("gen_ai.usage.input_tokens", 100)
            search.invoke({"query": "refund"})
        return {"done": [state["prompt"]]}

    with job.provider.get_tracer("app").start_as_current_span("request"):
        graph_of(node).invoke({"prompt": "Find the refund policy"})
    assert job.interventions() == ["NUDGE", "STOP"]


def test_the_calls_of_one_turn_count_once(job: Job) -> None:
    asked = model(lambda messages: [("search", {"query": "refund"})] * 6 if rounds(messages) < 2 else [])
    graph_of(agent(asked, search)).invoke({"prompt": "Find the refund policy"})
    assert job.interventions() == []


def test_workers_side_by_side_are_agents_of_their_own(job: Job) -> None:
    builder = StateGraph(State)
    builder.add_node("worker", agent(model(works_on_the_ticket), load_policy, get_ticket, reply))
    builder.add_conditional_edges(START, lambda _: [Send("worker", {"prompt": f"ticket {at}"}) for at in range(RUNS)])
    builder.compile().invoke({}, {"max_concurrency": 4})
    assert job.interventions() == []


def test_a_job_over_many_tickets_begins_each_of_them_with_the_same_call(job: Job) -> None:
    graph = graph_of(agent(model(works_on_the_ticket), load_policy, get_ticket, reply))
    with job.provider.get_tracer("job").start_as_current_span("nightly job"):
        for number in range(RUNS):
            graph.invoke({"prompt": f"Work on ticket {number}"})
    assert job.interventions() == []


@pytest.mark.parametrize("turns", [1, 2])
def test_a_loop_of_the_graph_around_the_node_is_found(job: Job, turns: int) -> None:
    """A node that asks the model and runs the tool, to which the graph leads back; with two turns each time, too."""
    asked = searches(turns)
    node = agent(asked, search)

    builder = StateGraph(State)
    builder.add_node("agent", lambda state: {**node(state), "laps": state.get("laps", 0) + 1})
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if state["laps"] < 8 else "__end__")
    builder.compile().invoke({"prompt": "Find the refund policy"})
    assert job.interventions()[:2] == ["NUDGE", "STOP"]


def test_a_model_that_a_tool_calls_begins_no_turn(job: Job) -> None:
    """Six equal calls of one turn, one after another, each of which asks a model."""
    judge = ScriptedChatModel(policy=lambda messages, turn: AIMessage("No cat."))

    @tool
    def look(picture: str) -> str:
        """Describe a picture."""
        return str(judge.invoke(f"{picture}: is it a cat? {next(_ids)}").content)

    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, "tools")
    wanted = calls([], *[("look", {"picture": "1"})] * 6)
    builder.compile().invoke({"messages": [wanted]}, {"max_concurrency": 1})
    assert job.interventions() == []


def leads_back(node: Callable[[State], State], laps: int) -> Any:
    """A graph that leads back to its node, which is prompted with the number of the lap."""
    builder = StateGraph(State)
    builder.add_node(
        "agent",
        lambda state: {**node({"prompt": f"ticket {state.get('laps', 0)}"}), "laps": state.get("laps", 0) + 1},
    )
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if state["laps"] < laps else "__end__")
    return builder.compile()


def test_a_graph_that_leads_back_to_the_node_for_each_ticket_is_left_alone(job: Job) -> None:
    """The first call of each ticket is the same; from the second lap on it is no longer taken for one of the graph."""
    leads_back(agent(model(works_on_the_ticket), load_policy, get_ticket, reply), 20).invoke({})
    assert job.interventions() == []


def test_rounds_of_workers_that_begin_with_the_same_call_are_left_alone(job: Job) -> None:
    worker = agent(model(works_on_the_ticket), load_policy, get_ticket, reply)
    builder = StateGraph(State)
    builder.add_node("worker", worker)
    builder.add_node("next", lambda state: {"laps": state.get("laps", 0) + 1})
    builder.add_edge(START, "next")
    builder.add_edge("worker", "next")
    builder.add_conditional_edges(
        "next",
        lambda state: (
            [Send("worker", {"prompt": f"ticket {3 * state['laps'] + at}"}) for at in range(3)]
            if state["laps"] < 12
            else "__end__"
        ),
    )
    builder.compile().invoke({}, {"max_concurrency": 3, "recursion_limit": 100})
    assert job.interventions() == []


def test_nodes_one_after_the_other_that_begin_with_the_same_call_are_left_alone(job: Job) -> None:
    builder = StateGraph(State)
    for at in range(8):
        node = agent(model(works_on_the_ticket), load_policy, get_ticket, reply)
        builder.add_node(f"desk{at}", lambda state, node=node, at=at: node({"prompt": f"ticket {at}"}))
        builder.add_edge(f"desk{at - 1}" if at else START, f"desk{at}")
    builder.compile().invoke({})
    assert job.interventions() == []


def test_a_loop_of_later_calls_of_a_node_to_which_the_graph_leads_back_is_found(job: Job) -> None:
    """Each task reads another ticket first, then searches in vain."""

    def stuck(messages: list[BaseMessage]) -> list[tuple[str, dict[str, Any]]]:
        number = str(messages[0].content).split()[-1]
        plan: list[tuple[str, dict[str, Any]]] = [("get_ticket", {"number": number}), ("search", {"query": "refund"})]
        return plan[rounds(messages) : rounds(messages) + 1]

    leads_back(agent(model(stuck), get_ticket, search), 20).invoke({})
    assert "NUDGE" in job.interventions()
