"""Models that give one id to all parallel calls of a turn: a run gets the interventions that it gets with unique ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from tests.gates.agents import agent_builder, agent_node, closing, lookup, new_board, nudges, rounds, search, thread
from tests.helpers import record
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.call_ids import with_uses
from trajectory_guard.gates.messages import calls_of_turn, new_steps, requesting

ROUNDS = 12
TOOLS = [search, lookup]
Asked = tuple[str, dict[str, Any]]
Script = Callable[[int], Sequence[Asked]]
"""The calls of a round by its number."""
IDS: dict[str, Callable[[int, int], str]] = {
    "unique": lambda turn, place: f"call_{turn}_{place}",
    "empty": lambda turn, place: "",
    "one for all": lambda turn, place: "call_0",
    "one a round": lambda turn, place: f"call_{turn}",
    "one a pair": lambda turn, place: f"call_{turn}_{place // 2}",
}
SHARED = [name for name in IDS if name != "unique"]


def a_fixed_look_up_beside_new_ones(turn: int) -> Sequence[Asked]:
    return [("lookup", {"key": f"item {0 if place == 0 else turn * 3 + place}"}) for place in range(4)]


def new_look_ups(turn: int) -> Sequence[Asked]:
    return [("lookup", {"key": f"item {turn * 4 + place}"}) for place in range(4)]


def a_search_beside_a_new_look_up(turn: int) -> Sequence[Asked]:
    return [("search", {"query": "x"}), ("lookup", {"key": f"item {turn}"})]


def the_same_searches(turn: int) -> Sequence[Asked]:
    return [("search", {"query": f"query {place}"}) for place in range(3)]


def one_search_three_times(turn: int) -> Sequence[Asked]:
    return [("search", {"query": "x"})] * 3


HEALTHY = [a_fixed_look_up_beside_new_ones, new_look_ups, a_search_beside_a_new_look_up]
LOOPS = [the_same_searches, one_search_three_times]


def requests(script: Script, ids: str, times: int = ROUNDS) -> Policy:
    def policy(messages: Sequence[BaseMessage], _: int) -> AIMessage:
        turn, begun = rounds(messages), len([one for one in messages if one.type == "ai"])
        if turn >= times:
            return AIMessage("Done.")
        named = [
            {"name": name, "args": args, "id": IDS[ids](begun, place), "type": "tool_call"}
            for place, (name, args) in enumerate(script(turn))
        ]
        return AIMessage("", tool_calls=named)

    return policy


def by_apply_guard(policy: Policy, board: FlagBoard, **options: Any) -> Any:
    return apply_guard(agent_builder(policy, tools=TOOLS), board=board, **options).compile(InMemorySaver())


def by_middleware(policy: Policy, board: FlagBoard, **options: Any) -> Any:
    middleware = [TrajectoryGuardMiddleware(board=board, **options)]
    return create_agent(ScriptedChatModel(policy=policy), TOOLS, middleware=middleware, checkpointer=InMemorySaver())


def by_a_node(policy: Policy, board: FlagBoard) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_node("guard", TrajectoryGuardNode(board=board))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "guard")
    return builder.compile(InMemorySaver())


surfaces = pytest.mark.parametrize("make", [by_apply_guard, by_middleware, by_a_node])
forms = pytest.mark.parametrize("ids", SHARED)


def course(graph: Any, turns: int = 1) -> list[str]:
    """The types of the messages of a run, in which those of the guard have names of their own."""
    for turn in range(turns):
        messages = graph.invoke({"messages": [("user", f"question {turn}")]}, thread())["messages"]
    own = {id(one): "nudge" for one in nudges(messages)} | {id(one): "stop" for one in closing(messages)}
    return [own.get(id(one), one.type) for one in messages]


# --- what the guard does -----------------------------------------------------------------------------------------


@surfaces
@forms
@pytest.mark.parametrize("script", [*HEALTHY, *LOOPS])
def test_a_run_gets_the_interventions_that_it_gets_with_unique_ids(make: Any, ids: str, script: Script) -> None:
    expected = course(make(requests(script, "unique"), new_board()))
    assert course(make(requests(script, ids), new_board())) == expected
    assert expected.count("nudge") <= 1
    assert ("stop" in expected) == (script in LOOPS)


@pytest.mark.parametrize("make", [by_apply_guard, by_middleware])
@forms
def test_so_it_does_in_later_user_turns(make: Any, ids: str) -> None:
    script = a_fixed_look_up_beside_new_ones
    expected = course(make(requests(script, "unique", 5), new_board()), turns=3)
    assert course(make(requests(script, ids, 5), new_board()), turns=3) == expected


@surfaces
@forms
@pytest.mark.parametrize("script", HEALTHY)
def test_a_healthy_run_that_spans_show_too_goes_on(make: Any, ids: str, script: Script, traced: Any) -> None:
    board = traced()
    found = course(make(requests(script, ids), board))
    assert "stop" not in found
    assert found.count("nudge") <= 2  # spans end in any order, and so do those of calls with unique ids
    assert found.count("tool") == ROUNDS * len(script(0))
    assert board.counts["steps"] == found.count("tool")


@pytest.mark.parametrize("make", [by_apply_guard, by_middleware])
@forms
@pytest.mark.parametrize("script", LOOPS)
def test_a_loop_that_spans_show_too_is_stopped(make: Any, ids: str, script: Script, traced: Any) -> None:
    """A round later where ids are used again: from the second round on only messages show the calls, in other words."""
    board = traced()
    found = course(make(requests(script, ids), board))
    assert (found.count("nudge"), found[-1]) == (1, "stop")
    assert found.count("tool") == board.counts["steps"]
    assert found.count("tool") in ((15, 18) if ids == "one for all" else (15,))


@forms
def test_all_calls_are_read_where_the_application_supplies_a_state(ids: str, traced: Any) -> None:
    board = traced()
    guard = {"state_of": lambda state: len(state["messages"])}
    assert "stop" not in course(by_apply_guard(requests(new_look_ups, ids), board, **guard))
    assert board.counts["steps"] == ROUNDS * 4


@pytest.mark.parametrize("order", ["x1 x2 y1 y2", "x1 x2 y2 y1", "x1 y1 x2 y2", "y1 y2 x2 x1"])
def test_two_instrumentations_report_two_calls(order: str) -> None:
    board = new_board()
    for one in order.split():
        dialect, number = ("openinference" if one[0] == "x" else "openllmetry"), int(one[1])
        board.observe(
            record("lookup", {"key": f"item {number}"}, f"record {number}", call_id="call_0", dialect=dialect,
                   trace_id="trace", t=100.0 + number / 10, dur=1.0)
        )  # fmt: skip
    assert (board.counts["steps"], board.counts["duplicates"]) == (2, 2)


# --- calls on their way to the tool --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [by_apply_guard, by_middleware])
@pytest.mark.parametrize("ids", ["one for all", "one a round"])
def test_the_calls_that_are_refused_are_the_same(make: Any, ids: str) -> None:
    def refused(ids: str) -> list[bool]:
        graph = make(requests(the_same_searches, ids, 4), new_board(), refuse_pointless=True)
        messages = graph.invoke({"messages": [("user", "go")]}, thread())["messages"]
        return ["Not run by" in str(one.content) for one in messages if isinstance(one, ToolMessage)]

    assert refused(ids) == refused("unique")
    assert any(refused(ids))


@pytest.mark.newest
def test_calls_that_a_person_has_refused_keep_their_id_in_the_answer() -> None:
    """The guard answers them in front of the person, who is not asked again."""
    tool = StructuredTool.from_function(lambda path: f"{path} is gone", name="delete", description="Delete a file.")
    policy = requests(lambda turn: [("delete", {"path": "/x"}), ("delete", {"path": "/y"})], "one for all", 3)
    middleware = [
        TrajectoryGuardMiddleware(board=new_board(), refuse_pointless=True),
        HumanInTheLoopMiddleware(interrupt_on={"delete": True}),
    ]
    agent: Any = create_agent(
        ScriptedChatModel(policy=policy), [tool], middleware=middleware, checkpointer=InMemorySaver()
    )
    state = agent.invoke({"messages": [("user", "go")]}, thread())
    questions = 0
    while "__interrupt__" in state and questions < 5:
        questions += 1
        state = agent.invoke(Command(resume={"decisions": [{"type": "reject"}] * 2}), thread())
    answers = [one for one in state["messages"] if one.type == "tool"]
    assert questions == 1
    assert {one.tool_call_id for one in answers} == {"call_0"}
    assert len(answers) == 6


@pytest.mark.parametrize("make", [by_apply_guard, by_middleware])
@forms
def test_the_cursor_has_an_entry_for_each(make: Any, ids: str, traced: Any) -> None:
    def entries(ids: str, board: FlagBoard) -> Counter[tuple[str, str, str]]:
        course(make(requests(a_fixed_look_up_beside_new_ones, ids, 3), board))
        cursor = board.cursor("thread")
        assert cursor is not None
        assert board.counts["errors.cursor"] == 0
        assert cursor.report().open_calls == 0
        return Counter((one.kind, one.tool, one.outcome) for one in cursor.entries)

    expected = entries("unique", new_board(cursor=True))
    assert entries(ids, new_board(cursor=True)) == expected
    assert entries(ids, traced(cursor=True)) == expected


# --- how the calls are told apart ------------------------------------------------------------------------------------


def request(message_id: str | None, *asked: tuple[str, str], broken: Sequence[tuple[str, str]] = ()) -> AIMessage:
    return AIMessage(
        "", id=message_id,
        tool_calls=[{"name": "search", "args": {"query": query}, "id": name} for name, query in asked],
        invalid_tool_calls=[
            {"name": "search", "args": query, "id": name, "error": None, "type": "invalid_tool_call"}
            for name, query in broken
        ],
    )  # fmt: skip


def answers(*given: tuple[str, str]) -> list[BaseMessage]:
    return [ToolMessage(text, tool_call_id=name) for name, text in given]


def steps_of(messages: Sequence[Any]) -> list[tuple[str, str | None, Any, str | None]]:
    found = new_steps(with_uses(messages), trajectory_id="t", known=lambda _: False, now=0.0)
    return [(step.step_id, step.call_id, step.args, step.result) for step in found]


@pytest.mark.parametrize("message_id", ["m", None])
def test_each_call_has_the_result_at_its_place(message_id: str | None) -> None:
    asked = [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")]
    messages = [request(message_id, *asked), *answers(("a", "one"), ("a", "two"), ("b", "three"), ("a", "four"))]
    place = f"{message_id}/" if message_id else ""
    assert steps_of(messages) == [
        (f"{place}a", "a", {"query": "1"}, "one"), (f"{place}a~2", "a", {"query": "2"}, "two"),
        (f"{place}b", "b", {"query": "3"}, "three"), (f"{place}a~3", "a", {"query": "4"}, "four"),
    ]  # fmt: skip
    assert [call.text for call in calls_of_turn(with_uses(messages))] == ["four", "three", "two", "one"]


def test_the_ids_of_a_later_turn_are_other_ones() -> None:
    one = [request(None, ("a", "1"), ("a", "2")), *answers(("a", "one"), ("a", "two"))]
    names = [step_id for step_id, *_ in steps_of([*one, *one])]
    assert names == ["a", "a~2", "a#2", "a~2#2"]


def test_a_call_without_a_result_is_left_out() -> None:
    """As a malformed one, beside which the others run; the results of the next turn are not its own."""
    first = request("m", ("a", "1"), ("a", "2"), broken=[("a", "{")])
    messages = [first, *answers(("a", "one"), ("a", "two")), request("n", ("a", "3")), *answers(("a", "three"))]
    assert [(step_id, result) for step_id, _, _, result in steps_of(messages)] == [
        ("m/a", "one"), ("m/a~2", "two"), ("n/a", "three"),
    ]  # fmt: skip


def test_a_call_on_its_way_to_the_tool_is_recognised_by_its_arguments() -> None:
    messages = with_uses([request("m", ("a", "1"), ("a", "2"), ("a", "2"))])
    asked = {"name": "search", "id": "a"}
    assert requesting(messages, {**asked, "args": {"query": "1"}}) == ["m/a"]
    assert requesting(messages, {**asked, "args": {"query": "2"}}) == ["m/a~2", "m/a~3"]
    assert requesting(messages, {**asked, "args": {"query": "edited"}}) == ["m/a"]
    assert requesting(messages, {**asked, "id": "b", "args": {"query": "1"}}) == []


def test_the_messages_of_the_application_stay_as_they_are() -> None:
    messages = [request("m", ("a", "1"), ("a", "2")), *answers(("a", "one"), ("a", "two"))]
    before = [one.model_copy(deep=True) for one in messages]
    with_uses(messages)
    assert messages == before
