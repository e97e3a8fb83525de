"""Calls that are answered without being run, in real graphs: hopeless ones, and those that a person has refused."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from opentelemetry.sdk.trace import TracerProvider

from tests.gates.agents import (
    TASK,
    agent_node,
    async_context,
    calls,
    lookup,
    new_board,
    no_call_is_split_from_its_answer,
    nudges,
    repeats,
    rounds,
    thread,
)
from trajectory_guard import (
    FlagBoard,
    RefusalRules,
    TrajectoryGuardMiddleware,
    TrajectoryGuardProcessor,
    apply_guard,
    arefuse_pointless,
    guard_compiled,
    refuse_pointless,
)
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel

MISSING = "FileNotFoundError: report.csv does not exist"


class Scripted:
    """A search tool that gives its answers one after the other, the last one again and again, and counts its runs."""

    def __init__(self, *answers: str, name: str = "search") -> None:
        self.runs = 0

        def search(query: str) -> str:
            """Search the manual."""
            self.runs += 1
            answer = answers[min(self.runs, len(answers)) - 1]
            if answer.startswith(("FileNotFoundError", "503", "User rejected")):
                raise ValueError(answer)
            return answer

        self.tool: BaseTool = StructuredTool.from_function(search, name=name)
        self.tool.handle_tool_error = True


def graph_of(
    policy: Policy,
    tools: Sequence[BaseTool],
    board: FlagBoard,
    *,
    saver: Any = None,
    wrapped: bool = False,
    **guard: Any,
) -> Any:
    """agent → tools → agent with a gate; ``wrapped``: the tool node is given the wrapper, instead of the gate."""
    wrappers: dict[str, Any] = {}
    if wrapped:
        wrappers = {"wrap_tool_call": refuse_pointless(board=board), "awrap_tool_call": arefuse_pointless(board=board)}
    else:
        guard = {"refuse_pointless": True, **guard}
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=True, **wrappers))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return apply_guard(builder, board=board, **guard).compile(checkpointer=saver)


def agent_of(policy: Policy, tools: Sequence[BaseTool], board: FlagBoard, *, saver: Any = None, **guard: Any) -> Any:
    """The same agent by ``create_agent``, with middleware."""
    guarded = TrajectoryGuardMiddleware(board=board, **{"refuse_pointless": True, **guard})
    return create_agent(
        ScriptedChatModel(policy=policy), list(tools), middleware=[guarded, Errors()], checkpointer=saver
    )


class Errors(AgentMiddleware[Any, Any, Any]):
    """Turns exceptions of tools into answers, as ``handle_tool_errors`` does."""

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(request)
        except ValueError as error:
            call = request.tool_call
            return ToolMessage(f"Error: {error}", tool_call_id=call["id"], name=call["name"], status="error")

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return await handler(request)
        except ValueError as error:
            call = request.tool_call
            return ToolMessage(f"Error: {error}", tool_call_id=call["id"], name=call["name"], status="error")


def wrapped_graph(policy: Policy, tools: Sequence[BaseTool], board: FlagBoard, **options: Any) -> Any:
    return graph_of(policy, tools, board, wrapped=True, **options)


SURFACES = pytest.mark.parametrize("make", [agent_of, graph_of, wrapped_graph])


def answers(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def refusals(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [one for one in answers(messages) if str(one.content).startswith("Not run by trajectory_guard: ")]


def asks(*turns: Sequence[tuple[str, dict[str, Any]]]) -> Policy:
    """A model that requests these calls, turn after turn, whatever comes back."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        done = rounds(messages)
        return calls(messages, *turns[done]) if done < len(turns) else AIMessage("Done.")

    return policy


# --- hopeless calls --------------------------------------------------------------------------------------------


@SURFACES
@pytest.mark.parametrize("answer", ["No results found", MISSING])
def test_every_surface_refuses_alike(make: Any, answer: str) -> None:
    counted, board = Scripted(answer), new_board()
    messages = make(repeats(), [counted.tool], board).invoke(TASK)["messages"]

    assert counted.runs == 2  # of five, after which the run is stopped
    assert [one.status for one in refusals(messages)] == ["error"] * 3
    assert len(answers(messages)) == 5
    assert len(nudges(messages)) == 1
    assert no_call_is_split_from_its_answer(messages)
    assert board.counts["steps"] == 5
    assert sum(board.counts[f"refusals.{kind}"] for kind in ("failed", "empty")) == 3


@async_context
@SURFACES
async def test_every_surface_refuses_alike_under_asyncio(make: Any) -> None:
    counted, board = Scripted(MISSING), new_board()
    messages = (await make(repeats(), [counted.tool], board).ainvoke(TASK))["messages"]
    assert (counted.runs, len(refusals(messages))) == (2, 3)


@SURFACES
def test_three_of_four_calls_are_saved_where_nothing_stops_the_agent(make: Any) -> None:
    counted, board = Scripted(MISSING), new_board(mode="nudge")
    messages = make(repeats(42), [counted.tool], board).invoke(TASK, {"recursion_limit": 200})["messages"]
    assert len(answers(messages)) == 42
    assert counted.runs == 2 + 40 // 4
    assert board.counts["refusals.failed"] == 30


@SURFACES
def test_a_change_out_of_sight_is_noticed_at_the_limit(make: Any) -> None:
    """The file is written by somebody else while the agent is refused: the next call that runs finds it."""
    counted, board = Scripted(MISSING, MISSING, "region,total\nnorth,17\nsouth,23"), new_board(mode="nudge")
    messages = make(repeats(7), [counted.tool], board).invoke(TASK)["messages"]
    assert [str(one.content)[:7] for one in answers(messages)[2:6]] == ["Not run"] * 3 + ["region,"]


@SURFACES
@pytest.mark.parametrize("off", [{"refuse_pointless": False}, {"mode": "observe"}])
def test_nothing_is_refused_unless_asked_for(make: Any, off: dict[str, Any]) -> None:
    mode = off.get("mode", "nudge")
    counted, board = Scripted(MISSING), new_board(mode=mode)
    if make is wrapped_graph and mode != "observe":
        pytest.skip("the wrapper is the request")
    options = {} if mode == "observe" else off
    make(repeats(6), [counted.tool], board, **options).invoke(TASK)
    assert counted.runs == 6


def test_rules_are_given_as_they_are_on_every_surface() -> None:
    rules = RefusalRules(after=4, limit=1)
    for make in (agent_of, graph_of):
        counted, board = Scripted(MISSING), new_board(mode="nudge")
        make(repeats(8), [counted.tool], board, refuse_pointless=rules).invoke(TASK)
        assert counted.runs == 6  # 1 2 3 4 - 6 - 8
    with pytest.raises(ValueError, match="after: 1 is below 2"):
        RefusalRules(after=1)
    with pytest.raises(ValueError, match="limit: 0 is below 1"):
        refuse_pointless(limit=0)


@SURFACES
@pytest.mark.parametrize(
    "answers_, name",
    [
        (["503 Service Unavailable"], "search"),
        (["job 7: still running"], "search"),
        ([MISSING], "get_job_status"),
        ([MISSING], "wait_for_file"),
        ([""], "press_key"),  # an action that returns nothing was done
        (["null"], "increment"),
        ([MISSING, "FileNotFoundError: notes.txt does not exist"] * 4, "search"),
        ([MISSING, "17 rows"] * 4, "search"),
    ],
)
def test_calls_that_may_lead_to_something_run(make: Any, answers_: list[str], name: str) -> None:
    counted, board = Scripted(*answers_, name=name), new_board(mode="nudge")
    make(asks(*[[(name, {"query": "x"})]] * 7), [counted.tool], board).invoke(TASK)
    assert counted.runs == 7


@SURFACES
@pytest.mark.parametrize("policy", [{"poll": True}, {"never_stop": True}, {"ignore": True}])
def test_tools_declared_to_be_repeated_run(make: Any, policy: dict[str, Any]) -> None:
    counted, board = Scripted(MISSING), new_board(mode="nudge", tools={"search": policy})
    make(repeats(6), [counted.tool], board).invoke(TASK)
    assert counted.runs == 6


def test_an_idempotent_tool_is_refused_as_any_other_and_its_blank_answer_is_one() -> None:
    for policy, runs in (({}, 5), ({"idempotent": True}, 2)):
        counted, board = Scripted("", name="fetched"), new_board(mode="nudge", tools={"fetched": policy})
        graph_of(asks(*[[("fetched", {"query": "x"})]] * 5), [counted.tool], board).invoke(TASK)
        assert counted.runs == runs


@SURFACES
def test_a_call_runs_again_once_something_else_was_done(make: Any) -> None:
    """Tests that fail in the same way, and edits in between that are answered alike: each run may be the one."""
    counted, board = Scripted(MISSING), new_board(mode="nudge")

    @tool
    def edit(text: str) -> str:
        """Edit a file."""
        return "ok"

    turns = [[("search", {"query": "x"})] if at % 2 else [("edit", {"text": str(at)})] for at in range(12)]
    make(asks(*turns), [counted.tool, edit], board).invoke(TASK)
    assert counted.runs == 6


@SURFACES
def test_a_new_user_turn_begins_without_evidence(make: Any) -> None:
    counted, board = Scripted(MISSING), new_board()
    graph = make(repeats(3), [counted.tool], board, saver=InMemorySaver())
    for runs in (2, 4):
        graph.invoke(TASK, thread())
        assert counted.runs == runs


@SURFACES
def test_threads_do_not_see_each_other(make: Any) -> None:
    counted, board = Scripted(MISSING), new_board()
    graph = make(repeats(3), [counted.tool], board, saver=InMemorySaver())
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda at: graph.invoke(TASK, thread(at)), range(16)))
    assert all(len(refusals(result["messages"])) == 1 for result in results)
    assert counted.runs == 32


def test_successful_repeats_are_refused_after_a_nudge_on_certain_evidence_only() -> None:
    page = "Opening hours\nclosed on Mondays\nopen from Tuesday to Sunday between nine and five, all year round"
    for answer, runs in ((page, 3), ("on", 8)):
        counted, board = Scripted(answer, name="switch"), new_board(mode="nudge")
        rules = RefusalRules(limit=100)
        asked = asks(*[[("switch", {"query": "x"})]] * 8)
        graph_of(asked, [counted.tool], board, refuse_pointless=rules).invoke(TASK)
        assert counted.runs == runs


def test_spans_alone_are_enough() -> None:
    """No gate: the wrapper reads what the span processor has put on the board."""
    board, provider = new_board(mode="nudge"), TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    tracer, runs = provider.get_tracer("test"), []

    def search(query: str) -> str:
        """Search the manual."""
        runs.append(query)
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        hidden = {
            "gen_ai.tool.call.arguments": json.dumps({"query": query}),
            "gen_ai.tool.call.result": "No results found",
        }
        with tracer.start_as_current_span("execute_tool search", attributes={**named, **hidden}):
            return "No results found"

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(6)))
    builder.add_node(
        "tools", ToolNode([StructuredTool.from_function(search)], wrap_tool_call=refuse_pointless(board=board))
    )
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    with tracer.start_as_current_span("agent"):
        messages = builder.compile().invoke(TASK)["messages"]
    assert (len(runs), len(refusals(messages))) == (3, 3)  # two, three answers, and one more look


def test_without_gate_and_spans_nothing_is_refused() -> None:
    counted, board = Scripted(MISSING), new_board()
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(4)))
    node = ToolNode([counted.tool], handle_tool_errors=True, wrap_tool_call=refuse_pointless(board=board))
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    builder.compile().invoke(TASK)
    assert counted.runs == 4
    assert board.counts["errors.gate"] == 0


# --- the answer ------------------------------------------------------------------------------------------------


def test_the_answer_sums_up_what_failed() -> None:
    other, counted, board = Scripted("No results found", name="find"), Scripted(MISSING), new_board()
    one, two = ("search", {"query": "report"}), ("find", {"query": "summary"})
    messages = graph_of(asks([one], [two], [one], [one]), [counted.tool, other.tool], board).invoke(TASK)["messages"]
    (said,) = refusals(messages)
    lines = str(said.content).splitlines()
    assert lines[0] == (
        'Not run by trajectory_guard: search({"query": "report"}) has failed 2 times in a row in the same way, '
        "and nothing has changed since."
    )
    assert lines[1].startswith('Last answer: "')
    assert MISSING in lines[1]
    assert lines[2] == 'Also without success in this turn: find({"query": "summary"}).'
    assert lines[3] == "What to do instead:"


@pytest.mark.parametrize("make", [graph_of, agent_of])
@pytest.mark.parametrize("answer, brought", [(MISSING, "failed each time"), ("No results found", "found nothing")])
def test_the_closing_text_counts_answered_calls_as_requests(make: Any, answer: str, brought: str) -> None:
    """Two of the five ran: "was called 5 times" would be wrong, and would look so beside the traces of the tool."""
    counted, board = Scripted(answer), new_board()
    messages = make(repeats(8), [counted.tool], board).invoke(TASK)["messages"]
    assert (counted.runs, len(refusals(messages))) == (2, 3)
    said, payload = messages[-1].content, messages[-1].response_metadata["trajectory_guard"]
    assert f"search was requested 5 times with the same arguments and {brought}." in said
    assert "was requested 5 times" in payload["reason"]


def test_redacted_answers_quote_nothing() -> None:
    counted, board = Scripted(MISSING), new_board(redact=True)
    messages = graph_of(repeats(3), [counted.tool], board).invoke(TASK)["messages"]
    (said,) = refusals(messages)
    assert "policy" not in str(said.content)
    assert "report.csv" not in str(said.content)
    assert "search, with these arguments, has failed 2 times" in str(said.content)


def test_an_error_of_ours_lets_the_tool_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (agent_of, graph_of, wrapped_graph):
        counted, board = Scripted(MISSING), new_board(mode="nudge")
        monkeypatch.setattr(board, "recall", lambda *args, **more: 1 / 0)
        make(repeats(4), [counted.tool], board).invoke(TASK)
        assert (counted.runs, board.counts["errors.gate"]) == (4, 3)


def test_an_error_of_the_tool_is_the_hosts() -> None:
    def broken(query: str) -> str:
        """Search."""
        raise KeyError(query)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(2)))
    board = new_board()
    builder.add_node(
        "tools",
        ToolNode(
            [StructuredTool.from_function(broken, name="search")],
            handle_tool_errors=False,
            wrap_tool_call=refuse_pointless(board=board),
        ),
    )
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    with pytest.raises(KeyError):
        builder.compile().invoke(TASK)
    assert board.counts["errors.gate"] == 0


# --- wrappers of the application -------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [("wrap_tool_call",), ("awrap_tool_call",), ("wrap_tool_call", "awrap_tool_call")])
def test_wrappers_of_a_tool_node_still_run(given: tuple[str, ...]) -> None:
    seen: list[str] = []

    def wrap(request: Any, execute: Any) -> Any:
        seen.append("sync")
        return execute(request)

    async def awrap(request: Any, execute: Any) -> Any:
        seen.append("async")
        return await execute(request)

    both = {"wrap_tool_call": wrap, "awrap_tool_call": awrap}
    counted, board = Scripted(MISSING), new_board()
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(3)))
    builder.add_node("tools", ToolNode([counted.tool], handle_tool_errors=True, **{key: both[key] for key in given}))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    plain = builder.compile()
    graph = guard_compiled(plain, board=board, refuse_pointless=True)

    graph.invoke(TASK)
    assert seen == (["sync"] * 2 if "wrap_tool_call" in given else [])
    seen.clear()
    asyncio.run(graph.ainvoke(TASK))
    assert seen == ["async" if "awrap_tool_call" in given else "sync"] * 2
    assert counted.runs == 4
    plain.invoke(TASK)
    assert counted.runs == 7  # the graph that was given stays as it is


def test_a_function_that_the_host_has_put_around_a_tool_node_still_runs() -> None:
    search, ran = Scripted("No results"), Counter[str]()
    node = ToolNode([search.tool])

    class Around:  # a function that refers to the node would let LangGraph search it for graphs without end
        def __init__(self, original: Callable[..., Any]) -> None:
            self.original = original

        def __call__(self, *given: Any, **more: Any) -> Any:
            ran["around"] += 1
            return self.original(*given, **more)

    node.func = Around(node.func)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats()))
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    apply_guard(builder, refuse_pointless=True, board=new_board()).compile().invoke(TASK)
    assert ran["around"] == search.runs > 1


def test_tools_of_sub_graphs_are_refused_as_well() -> None:
    counted, board = Scripted(MISSING), new_board()
    inner = StateGraph(MessagesState)
    inner.add_node("agent", agent_node(repeats(4)))
    inner.add_node("tools", ToolNode([counted.tool], handle_tool_errors=True))
    inner.add_edge(START, "agent")
    inner.add_conditional_edges("agent", tools_condition)
    inner.add_edge("tools", "agent")
    outer = StateGraph(MessagesState)
    outer.add_node("team", inner.compile())
    outer.add_edge(START, "team")
    messages = guard_compiled(outer.compile(), board=board, refuse_pointless=True).invoke(TASK)["messages"]
    assert (counted.runs, len(refusals(messages))) == (2, 2)


def test_a_graph_whose_tools_stand_in_no_tool_node_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def tools(state: MessagesState) -> Any:
        return {"messages": []}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(1)))
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    apply_guard(builder, board=new_board(), refuse_pointless=True).compile()
    assert "node 'tools' has no ToolNode; its calls always run" in caplog.text


def test_tools_that_exist_under_asyncio_only() -> None:
    runs = []

    async def search(query: str) -> str:
        """Search."""
        runs.append(query)
        return "No results found"

    board = new_board()
    only = StructuredTool.from_function(coroutine=search, name="search", description="Search.")
    for make in (agent_of, graph_of, wrapped_graph):
        runs.clear()
        messages = asyncio.run(make(repeats(3), [only], board).ainvoke(TASK))["messages"]
        assert (len(runs), len(refusals(messages))) == (2, 1)


# --- calls that a person refused -------------------------------------------------------------------------------

DELETE: tuple[str, dict[str, Any]] = ("delete", {"query": "/data"})


def reviewed(board: FlagBoard, policy: Policy, tools: Sequence[BaseTool], mode: str = "batched", **guard: Any) -> Any:
    review = HumanInTheLoopMiddleware(interrupt_on={"delete": True}, interrupt_mode=mode)  # type: ignore[arg-type]
    guarded = TrajectoryGuardMiddleware(board=board, **{"refuse_pointless": True, **guard})
    model = ScriptedChatModel(policy=policy)
    return create_agent(model, list(tools), middleware=[guarded, review], checkpointer=InMemorySaver())


def converse(graph: Any, decisions: Sequence[str], mode: str = "batched", task: Any = TASK) -> tuple[int, list[Any]]:
    """Run a turn; a person answers with these decisions in order. Returns how often they were asked, and the messages."""
    asked, result = 0, graph.invoke(task, thread())
    while "__interrupt__" in result:
        decision: Any = {"type": decisions[min(asked, len(decisions) - 1)]}
        asked += 1
        result = graph.invoke(Command(resume={"decisions": [decision]} if mode == "batched" else decision), thread())
    return asked, result["messages"]


@pytest.mark.newest
@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_a_call_that_a_person_refused_is_answered_before_they_are_asked_again(mode: str) -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    asked, messages = converse(reviewed(board, asks(*[[DELETE]] * 4), [counted.tool], mode), ["reject"], mode)
    assert (asked, counted.runs) == (1, 0)  # three of four proposals disturb nobody
    assert len(refusals(messages)) == 3
    assert "was refused in this turn" in str(refusals(messages)[0].content)
    assert no_call_is_split_from_its_answer(messages)
    assert board.counts["refusals.denied"] == 3


@pytest.mark.newest
def test_a_call_that_never_ran_is_in_no_text_one_that_was_called() -> None:
    counted, board = Scripted("gone", name="delete"), new_board()
    graph = reviewed(board, asks(*[[DELETE]] * 20), [counted.tool])
    _, messages = converse(graph, ["reject"])
    stop = graph.get_state(thread()).values["loop_status"]["stop"]

    assert counted.runs == 0
    assert stop["reason"] == 'delete({"query": "/data"}) was proposed at least 8 times and refused each time.'
    said = "delete was requested at least 8 times with the same arguments and was refused each time."
    assert said in messages[-1].content


@pytest.mark.newest
@async_context
async def test_a_refused_call_is_answered_before_they_are_asked_again_under_asyncio() -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    graph = reviewed(board, asks(*[[DELETE]] * 4), [counted.tool])
    assert "__interrupt__" in await graph.ainvoke(TASK, thread())
    result = await graph.ainvoke(Command(resume={"decisions": [{"type": "reject"}]}), thread())
    assert "__interrupt__" not in result
    assert (counted.runs, len(refusals(result["messages"]))) == (0, 3)


@pytest.mark.newest
@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_without_the_option_the_person_is_asked_every_time(mode: str) -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    graph = reviewed(board, asks(*[[DELETE]] * 4), [counted.tool], mode, refuse_pointless=False)
    assert converse(graph, ["reject"], mode)[0] == 4


@pytest.mark.newest
@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("rules", [RefusalRules(limit=1), RefusalRules(denied=False)])
def test_a_call_that_a_person_allows_in_the_end_runs(mode: str, rules: RefusalRules) -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    graph = reviewed(board, asks(*[[DELETE]] * 3), [counted.tool], mode, refuse_pointless=rules)
    asked, messages = converse(graph, ["reject", "approve"], mode)
    assert counted.runs >= 1
    assert asked >= 2
    assert answers(messages)[-1].content == "gone"


@pytest.mark.newest
def test_a_call_refused_beside_another_one_is_the_persons_to_decide() -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    policy = asks([DELETE], [DELETE, ("lookup", {"key": "a"})])
    asked, _ = converse(reviewed(board, policy, [counted.tool, lookup]), ["reject", "approve"])
    assert (asked, counted.runs) == (2, 1)


@pytest.mark.newest
@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_in_the_next_turn_the_person_is_asked_again(mode: str) -> None:
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")
    graph = reviewed(board, asks(*[[DELETE]] * 2), [counted.tool], mode)
    assert converse(graph, ["reject"], mode)[0] == 1
    asked, _ = converse(graph, ["approve"], mode)
    assert (asked, counted.runs) == (2, 2)  # and each proposal of a call that is allowed


@SURFACES
def test_an_error_that_a_tool_returns_as_text_is_answered_like_one_that_it_raises(make: Any) -> None:
    counted, board = Scripted("Error: unknown item A-1", name="lookup"), new_board(mode="nudge")
    messages = make(asks(*[[("lookup", {"query": "A-1"})]] * 4), [counted.tool], board).invoke(TASK)["messages"]
    assert (counted.runs, len(refusals(messages))) == (2, 2)
    assert "has failed 2 times" in str(refusals(messages)[0].content)


@SURFACES
def test_a_tool_that_refuses_by_itself_is_not_asked_again(make: Any) -> None:
    counted, board = Scripted("User rejected the call", name="delete"), new_board(mode="nudge")
    messages = make(asks(*[[DELETE]] * 4), [counted.tool], board).invoke(TASK)["messages"]
    assert (counted.runs, len(refusals(messages))) == (1, 3)


def test_a_review_between_model_and_tools_is_final() -> None:
    """A node that asks a person stands before the tools: what comes to the tools has been allowed."""
    counted, board = Scripted("gone", name="delete"), new_board(mode="nudge")

    def review(state: MessagesState) -> Command[Any]:
        call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
        if interrupt("delete?") == "yes":
            return Command(goto="tools")
        said = ToolMessage("User rejected the call", tool_call_id=call["id"], name="delete", status="error")
        return Command(goto="agent", update={"messages": [said]})

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(asks(*[[DELETE]] * 3)))
    builder.add_node("review", review, destinations=("tools", "agent"))
    builder.add_node("tools", ToolNode([counted.tool], handle_tool_errors=True))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda state: "review" if state["messages"][-1].tool_calls else "__end__", ["review", "__end__"]
    )
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=board, refuse_pointless=True, agent="agent").compile(InMemorySaver())

    graph.invoke(TASK, thread())
    for said in ("no", "yes", "yes"):
        graph.invoke(Command(resume=said), thread())
    assert counted.runs == 2
