"""Agents that are graphs of their own, and hand the work on: each is new whenever it is called, the loop is between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from trajectory_guard import LoopDetectedError, TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.messages import is_guard_message

from .agents import calls, new_board, outline, thread

ROUNDS = 30
LIMIT = {"recursion_limit": 200}
DRAFT = "The draft has five chapters, and chapter three is still missing."
REVIEW = "The reviewer asks for chapter three before anything else is done."
Builder = StateGraph[Any, Any, Any, Any]
Says = Callable[[int], str]


def a_tool(name: str, answer: str) -> BaseTool:
    return StructuredTool.from_function(lambda subject: answer, name=name, description=name, args_schema=_SUBJECT)


_SUBJECT = {"type": "object", "properties": {"subject": {"type": "string"}}, "required": ["subject"]}


def an_agent(name: str, looks_up: BaseTool, says: Says, middleware: Sequence[Any] = ()) -> Any:
    """An agent that looks something up and then says something, each time it is called."""
    turns = itertools.count()

    def policy(messages: Any, _: int) -> AIMessage:
        if messages[-1].type == "tool":
            return AIMessage(says(next(turns)), name=name)
        return calls(messages, (looks_up.name, {"subject": "chapters"}))

    return create_agent(ScriptedChatModel(policy=policy), [looks_up], name=name, middleware=middleware)


def ring(agents: dict[str, Any], rounds: int = ROUNDS) -> Builder:
    """Agents that share the messages, and are called in turn."""
    builder, names = StateGraph(MessagesState), list(agents)
    for name, agent in agents.items():
        builder.add_node(name, agent)
    builder.add_edge(START, names[0])
    for name, other in itertools.pairwise(names):
        builder.add_edge(name, other)

    def goes_on(state: Any) -> str:
        asked = [at for at, one in enumerate(state["messages"]) if one.type == "human" and not is_guard_message(one)]
        answers = [one for one in state["messages"][asked[-1] :] if one.type == "ai" and not one.tool_calls]
        return END if len(answers) >= rounds else names[0]

    builder.add_conditional_edges(names[-1], goes_on, [names[0], END])
    return builder


def same(_: int) -> str:
    return "Please go on with chapter three."


def new(turn: int) -> str:
    return f"Here is version {turn}, with {turn * 17} more words."


@pytest.fixture(params=["apply_guard", "middleware"])
def guarded(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A graph of these agents, guarded in one way or the other."""

    def build(make: Callable[..., dict[str, Any]], rounds: int = ROUNDS, **options: Any) -> Any:
        board: FlagBoard = new_board()
        saver = InMemorySaver() if options else None
        if request.param == "apply_guard":
            return apply_guard(ring(make(), rounds), board=board, **options).compile(checkpointer=saver)
        middleware = [TrajectoryGuardMiddleware(board=board, **options)]
        return ring(make(middleware), rounds).compile(checkpointer=saver)

    return build


def writer_and_critic(says: Says) -> Callable[..., dict[str, Any]]:
    def make(middleware: Sequence[Any] = ()) -> dict[str, Any]:
        return {
            "writer": an_agent("writer", a_tool("read_draft", DRAFT), says, middleware),
            "critic": an_agent("critic", a_tool("get_review", REVIEW), says, middleware),
        }

    return make


@pytest.mark.parametrize("config", [LIMIT, thread(**LIMIT)], ids=["no thread id", "thread id"])
def test_work_that_goes_round_in_the_same_words_is_nudged_and_stopped(guarded: Any, config: Any) -> None:
    messages = guarded(writer_and_critic(same)).invoke({"messages": [HumanMessage("Write it.")]}, config)["messages"]
    seen = outline(messages)
    assert seen.count("N") == 2
    assert seen.index("N") < seen.rindex("N") < seen.index("S")


def test_new_words_in_each_round_are_work_and_lead_to_nudges_only(guarded: Any) -> None:
    messages = guarded(writer_and_critic(new)).invoke({"messages": [HumanMessage("Write it.")]}, LIMIT)["messages"]
    assert "N" in outline(messages)
    assert "S" not in outline(messages)


def test_a_long_draft_may_grow_at_its_end(guarded: Any) -> None:
    """What is new stands behind an introduction of some pages, which each version repeats."""

    def grows(turn: int) -> str:
        return "The lighthouse stands on a rock far from the shore. " * 40 + "One more chapter. " * turn

    messages = guarded(writer_and_critic(grows)).invoke({"messages": [HumanMessage("Write it.")]}, LIMIT)["messages"]
    assert "S" not in outline(messages)


def test_items_that_the_graph_itself_hands_out_are_work() -> None:
    number = itertools.count()
    agents = writer_and_critic(same)()
    builder = ring({"load": lambda _: {"messages": [SystemMessage(f"Item {next(number)} of the list")]}, **agents})
    graph = apply_guard(builder, board=new_board()).compile()
    messages = graph.invoke({"messages": [HumanMessage("Do them all.")]}, LIMIT)["messages"]
    assert "S" not in outline(messages)


def test_the_next_request_of_the_thread_begins_anew(guarded: Any) -> None:
    graph = guarded(writer_and_critic(same), 8)
    for number in range(4):
        task = {"messages": [HumanMessage(f"Write number {number}.")]}
        before = len(graph.get_state(thread()).values["messages"]) if graph.checkpointer and number else 0
        seen = outline(graph.invoke(task, thread(**LIMIT))["messages"][before:])
        assert "S" not in seen
        assert seen.count("N") <= 1


def test_the_stop_of_agents_may_be_an_error(guarded: Any) -> None:
    graph = guarded(writer_and_critic(same), on_stop="raise")
    with pytest.raises(LoopDetectedError) as raised:
        graph.invoke({"messages": [HumanMessage("Write it.")]}, thread(**LIMIT))
    assert raised.value.payload["types"] == ["TYPE_IV_PINGPONG"]


def test_a_person_may_let_the_agents_go_on(guarded: Any) -> None:
    graph = guarded(writer_and_critic(same), on_stop="interrupt")
    first = graph.invoke({"messages": [HumanMessage("Write it.")]}, thread(**LIMIT))
    assert first["__interrupt__"]
    done = sum(one.type == "tool" for one in graph.get_state(thread()).values["messages"])
    second = graph.invoke(Command(resume="continue"), thread(**LIMIT))
    assert sum(one.type == "tool" for one in second["messages"]) > done + 4


def researcher_and_critic(middleware: Sequence[Any] = ()) -> dict[str, Any]:
    vain = an_agent("researcher", a_tool("search", "No results found."), lambda turn: f"Nothing, {turn}", middleware)
    remarks = itertools.count()

    def critic(_: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(f"Please try again, remark {next(remarks)}.", name="critic")]}

    return {"researcher": vain, "critic": critic}


def test_an_agent_that_finds_nothing_whenever_it_is_called_is_nudged(guarded: Any) -> None:
    """The others only talk, so that nobody hands over to it; a stop is for the person who reads the answers."""
    messages = guarded(researcher_and_critic, 2 * ROUNDS).invoke({"messages": [HumanMessage("Find it.")]}, LIMIT)[
        "messages"
    ]
    assert 2 <= outline(messages).count("N") <= 3
    assert "S" not in outline(messages)
    assert "researcher has made the same calls" in next(one.content for one in messages if "same calls" in one.content)


@pytest.mark.parametrize("at_once", [1, None], ids=["one after the other", "at the same time"])
@pytest.mark.parametrize("own", [False, True], ids=["the same messages", "messages of their own"])
def test_agents_side_by_side_that_look_the_same_up_are_left_alone(own: bool, at_once: int | None) -> None:
    """Two agents for each of a dozen things: none was given what another one did."""
    agents = writer_and_critic(same)()
    builder = StateGraph(MessagesState)
    for name, agent in agents.items():
        builder.add_node(name, agent)

    def to_all(state: Any) -> list[Send]:
        things = [HumanMessage(f"Write about thing {number}.") for number in range(12)]
        return [Send(name, {"messages": [one] if own else state["messages"]}) for one in things for name in agents]

    builder.add_conditional_edges(START, to_all, list(agents))
    graph = apply_guard(builder, board=new_board()).compile()
    messages = graph.invoke({"messages": [HumanMessage("Write about all.")]}, thread(max_concurrency=at_once))[
        "messages"
    ]
    assert sum(one.type == "tool" for one in messages) == 24
    assert not {"N", "S"} & set(outline(messages))


def test_agents_that_are_given_a_task_alone_are_left_alone() -> None:
    """Each has messages of its own: nothing shows that one goes on with the work of the other."""
    agents = writer_and_critic(new)()
    board, builder = new_board(), StateGraph(MessagesState)
    chapter = itertools.count()

    def calls_both(state: Any) -> dict[str, Any]:
        number = next(chapter)
        task = {"messages": [HumanMessage(f"Chapter {number}, please.")]}
        return {"messages": [agent.invoke(task)["messages"][-1] for agent in agents.values()]}

    builder.add_node("both", calls_both)
    builder.add_edge(START, "both")
    builder.add_conditional_edges("both", lambda s: END if len(s["messages"]) > 2 * ROUNDS else "both", ["both", END])
    graph = apply_guard(builder, agent="both", board=board).compile()
    messages = graph.invoke({"messages": [HumanMessage("Write the book.")]}, thread(**LIMIT))["messages"]
    assert not {"N", "S"} & set(outline(messages))


def with_critic(
    policy: Any, tool: BaseTool, remark: Callable[[], Any], is_done: Callable[[str], bool] = lambda said: False
) -> Any:
    """One guarded graph: an agent with a tool, and a critic that sends each of its answers back."""
    model = ScriptedChatModel(policy=policy)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([tool]))
    builder.add_node("critic", lambda _: {"messages": [remark()]})

    def route(state: Any) -> str:
        newest = state["messages"][-1]
        ends = is_guard_message(newest) or is_done(newest.content)
        return END if ends else "tools" if newest.tool_calls else "critic"

    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", "critic", END])
    builder.add_edge("tools", "agent")
    builder.add_edge("critic", "agent")
    return apply_guard(builder, board=new_board()).compile()


@pytest.mark.parametrize("critic", [AIMessage, SystemMessage])
@pytest.mark.parametrize("says", [same, new])
def test_an_agent_that_a_critic_sends_back_to_the_same_call_is_stopped(critic: Any, says: Says) -> None:
    """It answers after each call, and was nudged after each of them: an answer that is turned down ends no loop."""
    drafts = itertools.count()

    def policy(messages: Any, _: int) -> AIMessage:
        if messages[-1].type == "tool":
            return AIMessage(says(next(drafts)))
        return calls(messages, ("search", {"subject": "returns"}))

    search = a_tool("search", "The page on returns says that shoes can be sent back within thirty days.")
    graph = with_critic(policy, search, lambda: critic(content="Not good enough, try again."))
    seen = outline(graph.invoke({"messages": [HumanMessage("How do I return shoes?")]}, LIMIT)["messages"])
    expected = (9, 2, 1) if says is new else (5, 1, 1)  # another version is another reason to look it up
    assert (seen.count("t"), seen.count("N"), seen.count("S")) == expected


@pytest.mark.parametrize("introduction", [0, 40])
def test_a_guide_that_is_read_before_each_version_stops_no_revision(introduction: int) -> None:
    """One graph: the writer reads its guide, writes the next version, and the critic asks for something else."""
    versions, remarks = itertools.count(), itertools.count()
    cities = ["Paris", "Berlin", "Rome", "Madrid", "Vienna", "Lisbon", "Prague", "Oslo", "Athens"]

    def policy(messages: Any, _: int) -> AIMessage:
        if [one for one in messages if not is_guard_message(one)][-1].type != "tool":
            return calls(messages, ("read_guide", {"subject": "style"}))
        number = next(versions)
        lead = "The lighthouse stands on a rock far from the shore. " * introduction
        return AIMessage(f"{lead}Version {number}: the lamp from {cities[number]} costs {37 * number + 11} EUR.")

    guide = a_tool("read_guide", "Style guide: short sentences, active voice, British spelling, twelve words.")
    graph = with_critic(
        policy,
        guide,
        lambda: AIMessage(f"Now mention {cities[next(remarks) + 1]}, too."),
        lambda said: "Version 7" in said,
    )
    messages = graph.invoke({"messages": [HumanMessage("Write it.")]}, LIMIT)["messages"]
    assert "Version 7" in messages[-1].content
    assert outline(messages).count("N") <= 2


def a_ring(members: str) -> Callable[..., dict[str, Any]]:
    """Agents that each look up the same every time, and say the same."""
    looks_up = {name: a_tool(f"read_{name}", f"{name}: {DRAFT}") for name in members}

    def make(middleware: Sequence[Any] = ()) -> dict[str, Any]:
        return {name: an_agent(name, tool, same, middleware) for name, tool in looks_up.items()}

    return make


@pytest.mark.parametrize("called_by", ["edges", "functions"])
@pytest.mark.parametrize("members", ["ab", "abcd"])
def test_a_graph_that_goes_on_after_the_stop_of_its_agents_ends(members: str, called_by: str) -> None:
    """Each is stopped once, and whoever called it may do something else; the next gate of the graph ends it."""

    def as_function(agent: Any) -> Callable[[Any], Any]:
        def call(state: Any) -> dict[str, Any]:
            return {"messages": agent.invoke(state)["messages"][len(state["messages"]) :]}

        return call

    agents = a_ring(members)()
    if called_by == "functions":
        agents = {name: as_function(agent) for name, agent in agents.items()}
    graph = apply_guard(ring(agents, 100), board=new_board()).compile(checkpointer=InMemorySaver())
    for request in range(2):
        before = len(graph.get_state(thread()).values.get("messages", ()))
        seen = outline(graph.invoke({"messages": [HumanMessage("Go.")]}, thread(**LIMIT))["messages"][before:])
        after = seen[seen.index("S") :]
        assert seen.count("N") == 2, request
        assert after.count("t") <= len(members), request
        assert after.count("S") <= len(members) + 1, request
        assert seen.endswith("S"), request


def test_agents_with_middleware_alone_call_no_model_after_their_stop() -> None:
    """Nothing of the guard's stands in the graph around them, which goes on."""
    board, asked = new_board(), itertools.count()

    def says(turn: int) -> str:
        next(asked)
        return same(turn)

    agents = {
        name: an_agent(name, a_tool(f"read_{name}", f"{name}: {DRAFT}"), says, [TrajectoryGuardMiddleware(board=board)])
        for name in "ab"
    }
    messages = ring(agents, 100).compile().invoke({"messages": [HumanMessage("Go.")]}, {"recursion_limit": 500})
    assert outline(messages["messages"]).count("S") > 50
    assert next(asked) < 20


def test_whoever_called_the_agents_may_call_another_one_and_then_them_again() -> None:
    """After the stop of one of two agents a third one brings something new: from then on they may work again."""
    news = itertools.count()
    finds = StructuredTool.from_function(
        lambda subject: f"The site number {7919 * next(news)} has opened today, says the paper.",
        name="search", description="search", args_schema=_SUBJECT,
    )  # fmt: skip

    agents = {**a_ring("ab")(), "c": an_agent("c", finds, new)}

    def route(state: Any) -> str:
        answers = [one for one in state["messages"] if one.type == "ai" and not one.tool_calls]
        said = ["S" if is_guard_message(one) else one.name for one in answers]
        if "S" not in said:
            return "b" if said[-1] == "a" else "a"
        after = said[said.index("S") :]
        return "c" if "c" not in after else {"c": "a", "a": "b", "b": END, "S": END}[after[-1]]

    builder = StateGraph(MessagesState)
    for name, agent in agents.items():
        builder.add_node(name, agent)
        builder.add_conditional_edges(name, route, ["a", "b", "c", END])
    builder.add_edge(START, "a")
    graph = apply_guard(builder, board=new_board()).compile()
    messages = graph.invoke({"messages": [HumanMessage("Go.")]}, LIMIT)["messages"]
    speakers = [one.name for one in messages if one.type == "ai" and not one.tool_calls]
    assert speakers[-4:] == [None, "c", "a", "b"]


def test_a_person_who_stops_the_agents_is_not_asked_for_ever() -> None:
    graph = apply_guard(ring(a_ring("ab")(), 100), board=new_board(), on_stop="interrupt")
    compiled = graph.compile(checkpointer=InMemorySaver())
    state, asked = compiled.invoke({"messages": [HumanMessage("Go.")]}, thread(**LIMIT)), 0
    while state.get("__interrupt__") and asked < 9:
        state, asked = compiled.invoke(Command(resume="stop"), thread(**LIMIT)), asked + 1
    assert 1 <= asked <= 4
    assert not compiled.get_state(thread()).next


def test_the_node_that_a_stop_leads_to_may_be_an_agent() -> None:
    """It sums up, and hands back to the agents of the circle, once."""
    rounds = itertools.count()
    agents = {**a_ring("ab")(), "summary": an_agent("summary", a_tool("list_files", "orders.py, tests.py"), new)}
    builder = ring({name: agents[name] for name in "ab"}, 100)
    builder.add_node("summary", agents["summary"])
    builder.add_conditional_edges("summary", lambda _: "a" if next(rounds) == 0 else END, ["a", END])
    graph = apply_guard(builder, board=new_board(), on_stop="summary").compile()
    messages = graph.invoke({"messages": [HumanMessage("Go.")]}, LIMIT)["messages"]
    assert [one.name for one in messages if one.type == "ai" and not one.tool_calls][-1] == "summary"


class Desk(MessagesState):
    todo: list[Any]


class Shy(list[Any]):
    def __getitem__(self, at: Any) -> Any:
        raise RuntimeError("nobody may look at it")


def with_todo(next_todo: Callable[[Any], Any], todo: Any) -> str:
    """The same agents around a list of the application's own, which the messages do not show."""
    builder = StateGraph(Desk)
    for name, agent in writer_and_critic(same)().items():
        builder.add_node(name, agent)
    builder.add_node("next", lambda state: {"todo": next_todo(state["todo"])})
    builder.add_edge(START, "writer")
    builder.add_edge("writer", "critic")
    builder.add_edge("critic", "next")
    builder.add_conditional_edges("next", lambda state: "writer" if len(state["todo"]) else END, ["writer", END])
    state = {"messages": [HumanMessage("Write them.")], "todo": todo}
    return outline(apply_guard(builder, board=new_board()).compile().invoke(state, LIMIT)["messages"])


def test_work_that_the_state_of_the_graph_shows_is_work() -> None:
    items = [f"item {number}" for number in range(20)]
    seen = with_todo(lambda todo: todo[1:], items)
    assert "S" not in seen
    assert seen.count("t") >= 2 * len(items)


@pytest.mark.parametrize("todo", [["one item"], Shy(["one item"])], ids=["stays", "fails to be looked at"])
def test_a_state_that_stays_shows_no_work(todo: Any) -> None:
    assert with_todo(lambda _: todo, todo).endswith("S")
