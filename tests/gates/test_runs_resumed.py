"""Runs that are interrupted and resumed, under real spans: each call is one step, however often its node is executed.

A resumed run goes on in a new trace, mostly with a tool call, before any gate has said whose trace it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, apply_guard
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import NUDGED_THEN_STOPPED, STOP_AT, TASK, agent_node, calls, new_board, outline, rounds, thread, tool_runs

Begin = Callable[[], FlagBoard]
"""Makes a board that spans feed, as a process does when it starts."""
HIDDEN = {"official, without content", "OpenInference, without content"}


@pytest.fixture(params=["official", "official, without content", "OpenInference", "OpenInference, without content"])
def begin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "OPENINFERENCE_"))]:
        monkeypatch.delenv(name)
    hides = request.param in HIDDEN
    instrumentor: Any
    if request.param.startswith("official"):
        from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor as Official

        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
        capture = "NO_CONTENT" if hides else "SPAN_ONLY"
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture)
        instrumentor = Official()
    else:
        from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference

        monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", str(hides).lower())
        monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", str(hides).lower())
        instrumentor = OpenInference()

    def process() -> FlagBoard:
        board, provider = new_board(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
        if instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.uninstrument()
        instrumentor.instrument(tracer_provider=provider)
        return board

    yield process
    instrumentor.uninstrument()


OFFICIAL = pytest.mark.parametrize("begin", ["official", "official, without content"], indirect=True)
WITH_CONTENT = pytest.mark.parametrize("begin", ["official", "OpenInference"], indirect=True)


class Desk:
    """Tools that count how often they ran: of a person who is asked, and of a line that breaks down each first time."""

    def __init__(
        self, result: Callable[[str], str] = lambda query: f"record of {query}: {sum(map(ord, query))}"
    ) -> None:
        self.runs = 0
        self.failures = 0

        def answer(query: str) -> str:
            self.runs += 1
            return result(query)

        @tool
        def search(query: str) -> str:
            """Search the manual."""
            return answer(query)

        @tool
        def ask(query: str) -> str:
            """Search the manual, if a person agrees."""
            interrupt(query)
            return answer(query)

        @tool
        def call(query: str) -> str:
            """Ask the shop."""
            self.failures += 1
            if self.failures % 2:
                raise ConnectionError("the line is down")
            return answer(query)

        self.tools: list[BaseTool] = [search, ask, call]


def in_turn(*names: str, times: int, numbered_anew: bool = False) -> Policy:
    """So many rounds with these calls, each about something else, then an answer."""

    def policy(messages: Any, turn: int) -> AIMessage:
        done = rounds(messages)
        if done >= times:
            return AIMessage("Done.")
        wanted = calls(messages, *[(name, {"query": f"item {len(messages)} {at}"}) for at, name in enumerate(names)])
        for at, one in enumerate(wanted.tool_calls if numbered_anew else ()):
            one["id"] = f"call_{done}_{at}"
        return wanted

    return policy


def repeating(name: str) -> Policy:
    return lambda messages, turn: (
        calls(messages, (name, {"query": "return policy"})) if rounds(messages) < 12 else AIMessage("I give up.")
    )


def builder(policy: Policy, desk: Desk, **of_tools: Any) -> StateGraph[Any, Any, Any, Any]:
    made: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    made.add_node("agent", agent_node(policy))
    made.add_node("tools", ToolNode(desk.tools, handle_tool_errors=False), **of_tools)
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", tools_condition)
    made.add_edge("tools", "agent")
    return made


def guarded(policy: Policy, desk: Desk, board: FlagBoard, saver: Any, *, middleware: bool = False, **how: Any) -> Any:
    if middleware:
        guard = TrajectoryGuardMiddleware(board=board)
        return create_agent(ScriptedChatModel(policy=policy), desk.tools, middleware=[guard], checkpointer=saver, **how)
    return apply_guard(builder(policy, desk), board=board).compile(checkpointer=saver, **how)


def goes_on(graph: Any) -> bool:
    """Resume a run once, if it waits for that."""
    state = graph.get_state(thread())
    if not state.next:
        return False
    with suppress(ConnectionError):
        graph.invoke(Command(resume=True) if state.interrupts else None, thread())
    return True


def finish(graph: Any, task: Any = TASK) -> Any:
    """The messages of a run that is resumed until it ends."""
    with suppress(ConnectionError):
        graph.invoke(task, thread())
    while goes_on(graph):
        pass
    return graph.get_state(thread()).values["messages"]


def no_more(query: str) -> str:
    return "No results found"


# Found: under the official instrumentation, whose tool spans do not name the thread, the first call of each new trace
# was evaluated twice in one run. The agent was nudged a step early, then after every call, and was never stopped.
@OFFICIAL
@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize(("name", "how"), [("search", {"interrupt_before": ["tools"]}), ("ask", {})])
def test_a_loop_that_a_person_allows_call_by_call_ends_as_any_other(
    begin: Begin, name: str, how: dict[str, Any], middleware: bool
) -> None:
    board, desk = begin(), Desk(no_more)
    graph = guarded(repeating(name), desk, board, InMemorySaver(), middleware=middleware, **how)

    assert outline(finish(graph)) == NUDGED_THEN_STOPPED
    assert board.read("thread").steps == desk.runs == STOP_AT


# Found: a process that took over a thread evaluated its first call twice, on top of the state that the other had saved.
@OFFICIAL
@pytest.mark.parametrize("middleware", [False, True])
def test_a_loop_whose_every_call_runs_in_another_process_ends_as_any_other(begin: Begin, middleware: bool) -> None:
    saver, desk = InMemorySaver(), Desk(no_more)
    guarded(repeating("ask"), desk, begin(), saver, middleware=middleware).invoke(TASK, thread())
    while goes_on(graph := guarded(repeating("ask"), desk, begin(), saver, middleware=middleware)):
        pass

    state = graph.get_state(thread()).values
    assert outline(state["messages"]) == NUDGED_THEN_STOPPED
    assert state["loop_status"]["steps_taken"] == desk.runs == STOP_AT


# Found: calls of a resumed run whose ids an earlier turn had used were counted in their trace and again in the messages.
@pytest.mark.parametrize("middleware", [False, True])
def test_turns_of_a_model_that_numbers_its_calls_anew_are_counted_once(begin: Begin, middleware: bool) -> None:
    board, desk = begin(), Desk()
    policy = in_turn("search", times=3, numbered_anew=True)
    graph = guarded(policy, desk, board, InMemorySaver(), middleware=middleware, interrupt_before=["tools"])

    for _ in range(3):
        found = finish(graph)

    assert board.read("thread").steps == tool_runs(found) == desk.runs == 9
    if middleware:  # which is within the trace that a call is reported in
        assert board.counts["steps"] == 9


# Found: a node of tools runs as a whole again if one of its calls waits for a person; other results made other calls.
def test_calls_beside_one_that_waits_for_a_person_count_once(begin: Begin) -> None:
    board, desk = begin(), Desk()
    desk.tools[0] = Desk(lambda query: f"{desk.runs} records of {query} by now").tools[0]
    graph = guarded(in_turn("search", "ask", "search", times=3), desk, board, InMemorySaver())

    found = finish(graph)

    assert graph.get_state(thread()).values["loop_status"]["steps_taken"] == tool_runs(found) == 9


# Found: a call that failed, and was made again by the graph instead of the model, was two steps.
@pytest.mark.parametrize("middleware", [False, True])
def test_a_call_that_fails_and_is_made_again_from_the_checkpoint_counts_once(begin: Begin, middleware: bool) -> None:
    board, desk = begin(), Desk()
    graph = guarded(in_turn("call", times=4), desk, board, InMemorySaver(), middleware=middleware)

    found = finish(graph)

    assert desk.failures == 8
    assert graph.get_state(thread()).values["loop_status"]["steps_taken"] == tool_runs(found) == 4


def test_a_call_that_fails_and_is_retried_by_its_node_counts_once(begin: Begin) -> None:
    board, desk = begin(), Desk()
    retried = builder(in_turn("call", times=4), desk, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.001))
    graph = apply_guard(retried, board=board).compile(checkpointer=InMemorySaver())

    graph.invoke(TASK, thread())

    assert desk.failures == 8
    assert board.counts["steps"] == board.read("thread").steps == desk.runs == 4


@WITH_CONTENT
def test_a_model_that_repeats_a_failing_call_under_one_id_is_found(begin: Begin) -> None:
    """Each of its calls was answered before the next: they are no second executions of one."""

    @tool
    def call(query: str) -> str:
        """Ask the shop."""
        raise ConnectionError("the line is down")

    def policy(messages: Any, turn: int) -> AIMessage:
        wanted = calls(messages, ("call", {"query": "return policy"}))
        wanted.tool_calls[0]["id"] = "call_1"
        return wanted if rounds(messages) < 12 else AIMessage("I give up.")

    board = begin()
    made: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    made.add_node("agent", agent_node(policy))
    made.add_node("tools", ToolNode([call], handle_tool_errors=True))
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", tools_condition)
    made.add_edge("tools", "agent")
    graph = apply_guard(made, board=board).compile(checkpointer=InMemorySaver())

    found = graph.invoke(TASK, thread())

    assert "N" in outline(found["messages"])
    assert board.read("thread").steps == tool_runs(found["messages"])


# Found: the first call of each further tool counted twice if spans hide arguments and ids.
def test_a_tool_that_is_called_later_counts_once(begin: Begin) -> None:
    board, desk = begin(), Desk()

    def policy(messages: Any, turn: int) -> AIMessage:
        return in_turn(("search", "ask", "call")[rounds(messages) % 3], times=6)(messages, turn)

    graph = guarded(policy, desk, board, InMemorySaver())
    desk.failures = 1

    found = finish(graph)

    assert graph.get_state(thread()).values["loop_status"]["steps_taken"] == tool_runs(found) == 6


# Found: the end of a trace in which a call waits for a person was taken for the agent's answer, and the run for
# recovered: an agent in a sub-graph was nudged after every call, and never stopped.
@WITH_CONTENT
@pytest.mark.parametrize("middleware", [False, True])
def test_a_loop_in_a_sub_graph_that_a_person_allows_call_by_call_ends_as_any_other(
    begin: Begin, middleware: bool
) -> None:
    board, desk = begin(), Desk(no_more)
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    outer.add_node("research", guarded(repeating("ask"), desk, board, None, middleware=middleware))
    outer.add_edge(START, "research")

    found = finish(outer.compile(checkpointer=InMemorySaver()))

    assert outline(found).count("N") == 1
    assert outline(found).endswith("S")
    assert board.counts["recoveries"] == 0
    assert board.read("thread").steps == tool_runs(found)


# Found: two agents that share a thread id take the board back to the checkpoint of each in turn. The first tool span of
# the next turn, which names no run, then went to the turn of that checkpoint, and the gate took all of it for its own.
@pytest.mark.parametrize("shows_model", [True, False], ids=["model spans", "tool spans only"])
def test_two_agents_that_share_a_thread_id_do_not_hear_each_other(begin: Begin, shows_model: bool) -> None:
    """The desk for orders and the one for bills each read the same three records for every question of a customer."""
    board = begin()

    def reads_three(messages: Any, turn: int) -> AIMessage:
        if _said(messages) == "Again!":
            return repeating("search")(messages, turn)
        done = rounds(messages)
        return calls(messages, ("search", {"query": f"record {done}"})) if done < 3 else AIMessage("Done.")

    def record(query: str) -> str:
        return f"{query.capitalize()} of customer 7: two books, one lamp, all of them delivered and paid for in March"

    def desk() -> Any:
        made = builder(reads_three, Desk(record))
        if not shows_model:
            made.nodes["agent"].runnable = RunnableLambda(
                lambda state: {"messages": [reads_three(state["messages"], 0)]}
            )
        return apply_guard(made, board=board).compile(checkpointer=InMemorySaver())

    desks = [desk(), desk()]
    for number in range(5):
        for one in desks:
            asked = one.invoke({"messages": [("user", f"Question {number}")]}, thread())["messages"]
            assert outline(asked) == "hatatata" * (number + 1)

    for one in desks:
        looped = one.invoke({"messages": [("user", "Again!")]}, thread())["messages"]
        assert outline(looped) == "hatatata" * 5 + NUDGED_THEN_STOPPED


def _said(messages: Any) -> str:
    return str(next(one.content for one in reversed(messages) if one.type == "human" and not is_guard_message(one)))
