"""Several agents in one application: supervisor, swarm, deep agents, agents behind tools; and the functional API."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from trajectory_guard import (
    GraphShapeError,
    TrajectoryGuardMiddleware,
    TrajectoryGuardNode,
    apply_guard,
    guarded_invoke,
)
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled
from trajectory_guard.gates.graph_check import check_graph

from .agents import (
    SEARCHED_IN_VAIN,
    TASK,
    agent_builder,
    calls,
    new_board,
    nudges,
    obeys,
    outline,
    repeats,
    search,
    thread,
)

Builder = StateGraph[Any, Any, Any, Any]
LIMIT = {"recursion_limit": 60}


def _model(policy: Any) -> ScriptedChatModel:
    return ScriptedChatModel(policy=policy)


def _always(name: str) -> Any:
    return lambda messages, turn: calls(messages, (name, {}))


def _supervisor() -> Builder:
    """The supervisor asks its researcher again and again, who has nothing to say."""
    worker = create_agent(_model(lambda messages, turn: AIMessage("I found nothing.")), [search], name="researcher")
    return create_supervisor([worker], model=_model(_always("transfer_to_researcher")))


def _swarm() -> Builder:
    """Alice and Bob hand over to each other."""
    alice = create_agent(_model(_always("transfer_to_bob")), [create_handoff_tool(agent_name="bob")], name="alice")
    bob = create_agent(_model(_always("transfer_to_alice")), [create_handoff_tool(agent_name="alice")], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice")


_WORDS = [
    "sales",
    "prices",
    "customers",
    "models",
    "batteries",
    "screens",
    "recalls",
    "warranty",
    "autumn",
    "Europe",
    "Asia",
    "range",
]


def _text(number: int) -> str:
    """A piece of work of its own, some 400 characters long."""
    dice = random.Random(number)
    return f"Chapter {number}. " + " ".join(f"{dice.choice(_WORDS)} {dice.randint(10, 99)}" for _ in range(40))


@tool
def look_up(subject: str) -> str:
    """Find something out."""
    return _text(len(subject) + sum(map(ord, subject)))


def _busy_supervisor(**options: Any) -> Builder:
    """Writer and critic work in turns: each message of theirs is a new text."""
    pieces = itertools.count(1)

    def write(messages: Any, turn: int) -> AIMessage:
        return AIMessage(_text(next(pieces)))

    def lead(messages: Any, turn: int) -> AIMessage:
        return (
            calls(messages, (f"transfer_to_{('writer', 'critic')[turn % 2]}", {})) if turn < 12 else AIMessage("Done.")
        )

    workers = [create_agent(_model(write), [look_up], name=name) for name in ("writer", "critic")]
    return create_supervisor(workers, model=_model(lead), **options)


def _busy_swarm() -> Builder:
    """Each agent finds something new before it hands over."""
    rounds = itertools.count()

    def work(other: str) -> Any:
        def act(messages: Any, turn: int) -> AIMessage:
            at = next(rounds)
            if at >= 24:
                return AIMessage("Done.")
            wanted = (f"transfer_to_{other}", {}) if at % 2 else ("look_up", {"subject": f"subject {at}"})
            return calls(messages, wanted)

        return act

    def agent(name: str, other: str) -> Any:
        return create_agent(_model(work(other)), [look_up, create_handoff_tool(agent_name=other)], name=name)

    return create_swarm([agent("alice", "bob"), agent("bob", "alice")], default_active_agent="alice")


@pytest.mark.parametrize(
    "build_busy",
    [
        _busy_supervisor,
        lambda: _busy_supervisor(output_mode="full_history"),
        lambda: _busy_supervisor(add_handoff_back_messages=False),
        _busy_swarm,
    ],
    ids=["supervisor", "full history", "no hand-back", "swarm"],
)
def test_agents_that_work_before_they_hand_over_are_left_alone(build_busy: Callable[[], Builder]) -> None:
    messages = apply_guard(build_busy(), board=new_board()).compile().invoke(TASK, {"recursion_limit": 200})["messages"]
    assert messages[-1].content == "Done."
    assert not nudges(messages)


@pytest.fixture(params=[_supervisor, _swarm], ids=["supervisor", "swarm"])
def build(request: pytest.FixtureRequest) -> Callable[[], Builder]:
    return request.param


# Found: gates were in the sub-graphs only, and hand-offs leave those by a command to the parent.
@pytest.mark.parametrize("config", [LIMIT, thread(**LIMIT)], ids=["no thread id", "thread id"])
def test_hand_offs_in_circles_are_nudged_and_stopped(build: Callable[[], Builder], config: Any) -> None:
    applied = apply_guard(build(), board=new_board()).compile().invoke(TASK, config)["messages"]
    wrapped = guarded_invoke(build().compile(), TASK, config, board=new_board())

    assert wrapped["loop_status"]["status"] == "stopped"
    for messages in (applied, wrapped["messages"]):
        assert outline(messages).endswith("S")
        assert len(nudges(messages)) in (1, 2)  # equal results are certain, remarks such as "transferred" only likely


async def test_the_same_where_nodes_are_streamed(build: Callable[[], Builder]) -> None:
    graph = apply_guard(build(), board=new_board()).compile()

    events = [event async for event in graph.astream_events(TASK, LIMIT, version="v2")]

    assert outline(events[-1]["data"]["output"]["messages"]).endswith("S")


def test_a_worker_that_loops_is_stopped_and_its_supervisor_goes_on() -> None:
    """The worker is no node but is called by a function."""
    worker = create_agent(_model(lambda m, t: calls(m, ("search", {"query": "x"}))), [search], name="researcher")

    def leads(messages: Any, turn: int) -> AIMessage:
        if any(message.name == "researcher" for message in messages):
            return AIMessage("Nothing was found.")
        return calls(messages, ("transfer_to_researcher", {}))

    def supervisor() -> Builder:
        return create_supervisor([worker], model=_model(leads), output_mode="full_history")

    for graph in (
        apply_guard(supervisor(), board=new_board()).compile(),
        guard_compiled(supervisor().compile(), board=new_board()),
    ):
        messages = graph.invoke(TASK, LIMIT)["messages"]
        assert sum(message.name == "search" for message in messages) == 5
        assert messages[-1].content == "Nothing was found."
    assert not [
        finding for finding in check_graph(worker) if finding.code == "guarded"
    ]  # the worker itself is as it was


# --- deep agents -----------------------------------------------------------------------------------------------


def _deep_agent(*middleware: Any) -> Any:
    deepagents = pytest.importorskip("deepagents")

    def main(messages: Any, turn: int) -> AIMessage:
        if any(message.type == "tool" for message in messages):
            return AIMessage("final")
        return calls(messages, ("task", {"description": "research", "subagent_type": "researcher"}))

    def stuck(messages: Any, turn: int) -> AIMessage:
        return AIMessage("gave up") if len(messages) > 60 else calls(messages, ("search", {"query": "x"}))

    researcher = {
        "name": "researcher", "description": "r", "system_prompt": "r", "tools": [search], "model": _model(stuck)
    }  # fmt: skip
    return deepagents.create_deep_agent(
        model=_model(main), tools=[], middleware=list(middleware), subagents=[researcher]
    )


def _answer_of_the_sub_agent(result: Any) -> str:
    (answer,) = [message.content for message in result["messages"] if message.type == "tool"]
    return str(answer)


# Found: the middleware of the main agent did not reach its sub-agents, which ran to their own recursion limit.
def test_the_middleware_of_a_deep_agent_guards_its_sub_agents_too() -> None:
    result = _deep_agent(TrajectoryGuardMiddleware(board=new_board())).invoke(TASK, thread())

    assert _answer_of_the_sub_agent(result) == SEARCHED_IN_VAIN


async def test_the_same_under_ainvoke() -> None:
    result = await _deep_agent(TrajectoryGuardMiddleware(board=new_board())).ainvoke(TASK, thread())

    assert _answer_of_the_sub_agent(result) == SEARCHED_IN_VAIN


def test_guarded_invoke_guards_the_sub_agents_of_a_deep_agent_and_leaves_it_as_it_was() -> None:
    agent = _deep_agent()

    guarded = guarded_invoke(agent, TASK, thread(), board=new_board())
    unguarded = agent.invoke(TASK, thread())

    assert _answer_of_the_sub_agent(guarded) == SEARCHED_IN_VAIN
    assert _answer_of_the_sub_agent(unguarded) == "gave up"


# --- agents behind tools ---------------------------------------------------------------------------------------

WORKER = create_agent(_model(repeats(30)), [search], name="worker")


def _delegating(ask: Any, *middleware: Any) -> Any:
    def leads(messages: Any, turn: int) -> AIMessage:
        if any(message.type == "tool" for message in messages):
            return AIMessage("final")
        return calls(messages, ("ask", {"question": "?"}))

    return create_agent(_model(leads), [ask], middleware=middleware)


def test_an_agent_that_a_tool_holds_is_guarded_with_the_agent_that_has_the_tool() -> None:
    worker = create_agent(_model(repeats(30)), [search], name="worker")

    @tool
    def ask(question: str) -> str:
        """Ask the worker."""
        return str(worker.invoke({"messages": [("user", question)]})["messages"][-1].content)

    result = _delegating(ask, TrajectoryGuardMiddleware(board=new_board())).invoke(TASK)

    assert _answer_of_the_sub_agent(result) == SEARCHED_IN_VAIN


def test_an_agent_behind_a_global_name_is_guarded() -> None:
    @tool
    def ask(question: str) -> str:
        """Ask the worker."""
        return str(WORKER.invoke({"messages": [("user", question)]})["messages"][-1].content)

    agent = _delegating(ask, TrajectoryGuardMiddleware(board=new_board()))

    results = [agent.invoke(TASK), agent.invoke(TASK)]

    assert all("could not get any further" in _answer_of_the_sub_agent(result) for result in results)


# --- functional API --------------------------------------------------------------------------------------------


@entrypoint(checkpointer=InMemorySaver())
def workflow(question: str) -> Any:
    """An agent's loop as a function, with the gate called by hand."""
    state: dict[str, Any] = {"messages": [("user", question)]}
    graph, guard, status = agent_builder(repeats()), TrajectoryGuardNode(board=new_board()), None
    agent, tools = graph.nodes["agent"].runnable, graph.nodes["tools"].runnable
    messages = MessagesLike(state["messages"])
    while True:
        messages.add(agent.invoke({"messages": messages.all})["messages"])  # type: ignore[union-attr]
        if not messages.all[-1].tool_calls:
            return messages.all
        messages.add(tools.invoke({"messages": messages.all})["messages"])  # type: ignore[union-attr]
        command = guard({"messages": messages.all, "loop_status": status})
        status = command.update["loop_status"]
        messages.add(command.update.get("messages", []))
        if command.goto != "agent":
            return messages.all


class MessagesLike:
    def __init__(self, messages: Any) -> None:
        from langchain_core.messages import convert_to_messages

        self.all = convert_to_messages(messages)

    def add(self, new: Any) -> None:
        self.all = [*self.all, *new]


def test_a_workflow_of_the_functional_api_calls_the_gate_in_its_loop() -> None:
    assert outline(workflow.invoke("hi", thread())) == "hatatatNatatS"


def test_guarded_invoke_says_what_to_do_with_a_workflow() -> None:
    with pytest.raises(GraphShapeError, match=r"functional API.*TrajectoryGuardNode\(\)\(state\)"):
        guarded_invoke(workflow, "hi", thread())  # type: ignore[arg-type]


# --- a look at the graph ---------------------------------------------------------------------------------------


def _codes(graph: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.subject) for finding in check_graph(graph)]


def test_check_graph_tells_guarded_from_unguarded_graphs() -> None:
    assert _codes(agent_builder(obeys)) == [("no_gate", "LangGraph")]
    assert _codes(apply_guard(agent_builder(obeys), board=new_board())) == [("guarded", "agent")]
    assert _codes(guard_compiled(agent_builder(obeys).compile(), board=new_board())) == [("guarded", "agent")]
    agent = create_agent(_model(obeys), [search], middleware=[TrajectoryGuardMiddleware(board=new_board())])
    assert [code for code, _ in _codes(agent)] == ["guarded"]


def test_check_graph_names_hand_offs_and_sub_graphs_outside_the_gates() -> None:
    assert ("no_gate", "LangGraph") in _codes(_swarm())
    assert {code for code, _ in _codes(apply_guard(_swarm(), board=new_board()))} == {"guarded"}

    middleware = [TrajectoryGuardMiddleware(board=new_board())]
    guarded = create_agent(_model(obeys), [search], middleware=middleware, name="one")
    outer: Builder = StateGraph(MessagesState)
    outer.add_node("one", guarded, destinations=("two",))
    outer.add_node("two", create_agent(_model(obeys), [search], name="two"), destinations=("one",))
    outer.add_edge(START, "one")
    codes = _codes(outer)
    assert ("unguarded_hand_off", "one, two") in codes
    assert ("unguarded_sub_graph", "two") in codes


def test_check_graph_names_agents_behind_tools_and_things_that_are_no_graph() -> None:
    @tool
    def ask(question: str) -> str:
        """Ask the worker."""
        return str(WORKER.invoke({"messages": [("user", question)]})["messages"][-1].content)

    assert ("unguarded_sub_agent", "worker") in _codes(_delegating(ask))
    guarded = _delegating(ask, TrajectoryGuardMiddleware(board=new_board()))
    assert "unguarded_sub_agent" not in dict(_codes(guarded))
    assert [code for code, _ in _codes(workflow)] == ["not_a_graph"]
    assert [code for code, _ in _codes("graph")] == ["not_a_graph"]
