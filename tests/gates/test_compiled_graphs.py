"""``guarded_invoke`` and its twins: a compiled graph is guarded as it is, and stays as it is."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.store.memory import InMemoryStore

from trajectory_guard import (
    FlagBoard,
    GraphShapeError,
    GuardConfig,
    LoopDetectedError,
    TrajectoryGuardMiddleware,
    guard_compiled,
    guarded_ainvoke,
    guarded_astream,
    guarded_invoke,
    guarded_stream,
)
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates import compiled

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    CountedSearch,
    agent_builder,
    lookup,
    new_board,
    obeys,
    outline,
    repeats,
    search,
    thread,
    works,
)

TIMES = 8
UNGUARDED = "h" + "at" * TIMES + "a"


def _state_graph(policy: Policy, **options: Any) -> Any:
    return agent_builder(policy).compile(**options)


def _create_agent(policy: Policy, **options: Any) -> Any:
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup], **options)


def _react_v1(policy: Policy, **options: Any) -> Any:
    return create_react_agent(ScriptedChatModel(policy=policy), [search, lookup], version="v1", **options)


def _react_v2(policy: Policy, **options: Any) -> Any:
    return create_react_agent(ScriptedChatModel(policy=policy), [search, lookup], version="v2", **options)


def _react_with_hook(policy: Policy, **options: Any) -> Any:
    return create_react_agent(
        ScriptedChatModel(policy=policy),
        [search, lookup],
        pre_model_hook=lambda state: {"llm_input_messages": state["messages"]},
        **options,
    )


def _in_a_sub_graph(policy: Policy, **options: Any) -> Any:
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    outer.add_node("research", agent_builder(policy).compile())
    outer.add_node("report", lambda state: None)
    outer.add_edge(START, "research")
    outer.add_edge("research", "report")
    return outer.compile(**options)


GRAPHS = [_state_graph, _create_agent, _react_v1, _react_v2, _react_with_hook, _in_a_sub_graph]


@pytest.fixture(params=GRAPHS, ids=lambda build: build.__name__.strip("_"))
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


async def _last(chunks: AsyncIterator[Any]) -> Any:
    return [chunk async for chunk in chunks][-1]


@pytest.mark.parametrize("saver", [True, False], ids=["checkpointer", "no checkpointer"])
async def test_all_four_ways_guard_every_graph_and_leave_it_unguarded(build: Any, saver: bool) -> None:
    for policy, expected in ((repeats(TIMES), NUDGED_THEN_STOPPED), (obeys, NUDGED_THEN_FINISHED)):
        graph = build(policy, **({"checkpointer": InMemorySaver()} if saver else {}))
        options: dict[str, Any] = {"board": new_board()}

        results = [
            guarded_invoke(graph, TASK, thread("a"), **options),
            await guarded_ainvoke(graph, TASK, thread("b"), **options),
            list(guarded_stream(graph, TASK, thread("c"), stream_mode="values", **options))[-1],
            await _last(guarded_astream(graph, TASK, thread("d"), stream_mode="values", **options)),
        ]

        assert [outline(result["messages"]) for result in results] == [expected] * 4


async def test_a_stream_that_is_closed_early_leaves_no_node_running() -> None:
    running: list[str] = []

    async def slow(state: Any) -> None:
        running.append("slow")
        try:
            await asyncio.Event().wait()
        finally:
            running.remove("slow")

    builder = agent_builder(works(1))
    builder.add_node("slow", slow)
    builder.add_edge(START, "slow")
    chunks = guarded_astream(builder.compile(), TASK, board=new_board())

    await anext(chunks)
    assert running == ["slow"]
    await chunks.aclose()  # type: ignore[attr-defined]

    assert not running


def test_the_original_stays_as_it_was(build: Any) -> None:
    graph = build(repeats(TIMES))
    before = (sorted(graph.nodes), sorted(graph.channels), sorted(graph.builder.nodes), sorted(graph.builder.edges))

    guarded_invoke(graph, TASK, board=new_board())

    after = (sorted(graph.nodes), sorted(graph.channels), sorted(graph.builder.nodes), sorted(graph.builder.edges))
    assert after == before
    assert outline(graph.invoke(TASK)["messages"]) == UNGUARDED


@pytest.mark.parametrize("called", [False, True])
def test_sub_graphs_that_save_no_checkpoints_are_guarded_like_others(called: bool) -> None:
    inner = agent_builder(repeats(TIMES)).compile(checkpointer=False)
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    outer.add_node("research", (lambda state: inner.invoke(state)) if called else inner)
    outer.add_edge(START, "research")
    graph = outer.compile(checkpointer=InMemorySaver())

    result = guarded_invoke(graph, TASK, thread(), board=new_board())

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert outline(graph.invoke(TASK, thread("unguarded"))["messages"]) == UNGUARDED


def test_the_result_is_that_of_invoke_with_the_loop_status() -> None:
    graph = _state_graph(works(2))

    guarded = guarded_invoke(graph, TASK, board=new_board())

    assert set(guarded) == {*graph.invoke(TASK), "loop_status"}
    assert guarded["loop_status"]["steps_taken"] == 2


def test_the_thread_is_saved_in_the_graphs_own_checkpointer() -> None:
    graph = _state_graph(repeats(TIMES), checkpointer=InMemorySaver())

    guarded_invoke(graph, TASK, thread(), board=new_board())

    assert outline(graph.get_state(thread()).values["messages"]) == NUDGED_THEN_STOPPED


# --- options -------------------------------------------------------------------------------------------------


def test_options_of_invoke_pass_through() -> None:
    graph = _state_graph(repeats(TIMES))

    updates = list(guarded_stream(graph, TASK, stream_mode=["updates", "values"], board=new_board()))
    with pytest.raises(GraphRecursionError):
        guarded_invoke(graph, TASK, {"recursion_limit": 4}, board=new_board())
    paused = guarded_invoke(
        _state_graph(repeats(TIMES), checkpointer=InMemorySaver()),
        TASK,
        thread(),
        interrupt_before=["tools"],
        board=new_board(),
    )

    assert {mode for mode, _ in updates} == {"updates", "values"}
    assert outline(paused["messages"]) == "ha"


def test_what_the_graph_was_compiled_with_stays() -> None:
    store = InMemoryStore()
    graph = (
        agent_builder(repeats(TIMES))
        .compile(checkpointer=InMemorySaver(), store=store, interrupt_before=["tools"], name="helper")
        .with_config(tags=["mine"], recursion_limit=50)
    )

    guarded = guard_compiled(graph, board=new_board())

    assert (guarded.name, guarded.store, guarded.checkpointer) == ("helper", store, graph.checkpointer)
    assert (guarded.interrupt_before_nodes, guarded.config) == (["tools"], graph.config)
    assert outline(guarded.invoke(TASK, thread())["messages"]) == "ha"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("observe", UNGUARDED), ("nudge", "hatatatNatatatNatata"), ("enforce", NUDGED_THEN_STOPPED)],
)
def test_modes(mode: str, expected: str) -> None:
    graph = _state_graph(repeats(TIMES))

    assert outline(guarded_invoke(graph, TASK, mode=mode, board=new_board())["messages"]) == expected
    strict = GuardConfig(mode="enforce")
    assert (
        outline(guarded_invoke(graph, TASK, mode=mode, guard_config=strict, board=new_board())["messages"]) == expected
    )


async def assert_each_way_refuses(refused: Any, **options: Any) -> None:
    graph = _state_graph(works(1))
    with refused:
        guarded_invoke(graph, TASK, **options)
    with refused:
        list(guarded_stream(graph, TASK, **options))
    with refused:
        await guarded_ainvoke(graph, TASK, **options)
    with refused:
        await _last(guarded_astream(graph, TASK, **options))


async def test_an_unknown_mode_is_refused_and_the_known_ones_are_named() -> None:
    refused = pytest.raises(ValueError, match="mode: 'block' is none of 'enforce', 'nudge', 'observe'")
    await assert_each_way_refuses(refused, mode="block")


async def test_a_misspelled_option_of_the_gate_is_not_ignored() -> None:
    """LangGraph ignores options that it does not know."""
    refused = pytest.raises(TypeError, match=r"on_stp: no such option \(did you mean 'on_stop'\?\)")
    await assert_each_way_refuses(refused, on_stp="raise")


def test_a_configuration_of_the_guard_in_the_place_of_that_of_langgraph_is_refused() -> None:
    with pytest.raises(TypeError, match="pass the GuardConfig as guard_config="):
        guarded_invoke(_state_graph(works(1)), TASK, GuardConfig())


def test_stopping_options_and_names_pass_through() -> None:
    graph = _state_graph(repeats(TIMES))

    with pytest.raises(LoopDetectedError):
        guarded_invoke(graph, TASK, on_stop="raise", board=new_board())
    with pytest.raises(GraphShapeError, match="'act': no such node"):
        guarded_invoke(graph, TASK, tools="act", board=new_board())
    named = guarded_invoke(graph, TASK, tools="tools", agent="agent", nudge_role="system", board=new_board())
    assert outline(named["messages"]) == NUDGED_THEN_STOPPED


def test_a_graph_that_does_not_fit_is_refused() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("only", lambda state: None)
    builder.add_edge(START, "only")

    with pytest.raises(GraphShapeError, match=r"no tool node found.*'only'"):
        guarded_invoke(builder.compile(), TASK)
    refused = (
        r"expected a compiled LangGraph graph, got StateGraph: \.compile\(\) it first, or call apply_guard\(builder\)"
    )
    with pytest.raises(GraphShapeError, match=refused):
        guarded_invoke(builder, TASK)  # type: ignore[arg-type]
    with pytest.raises(GraphShapeError, match=refused):
        guard_compiled(builder)  # type: ignore[arg-type]


# --- more than one run -----------------------------------------------------------------------------------------


def test_a_graph_is_rewired_once_for_equal_options() -> None:
    graph, board = _state_graph(works(1)), new_board()

    guarded_invoke(graph, TASK, board=board)
    guarded_invoke(graph, TASK, board=board)
    assert len(compiled._cache[graph]) == 1
    guarded_invoke(graph, TASK, board=board, mode="observe")
    assert len(compiled._cache[graph]) == 2


# Found: the key masked secrets, so two collectors with different tokens shared one gate.
def test_configurations_are_compared_by_value_secrets_included() -> None:
    graph = _state_graph(works(1))
    configs = {
        token: GuardConfig(collector_url="http://127.0.0.1:9", collector_token=token, collector_timeout_s=0.01)
        for token in ("one", "two")
    }
    boards = {token: FlagBoard(config) for token, config in configs.items()}

    for token in ("one", "two", "one"):
        compiled._guarded(graph, None, {"guard_config": configs[token].model_copy(), "board": boards[token]})

    assert len(compiled._cache[graph]) == 2


def test_boards_are_distinguished_by_identity_and_at_most_eight_copies_are_kept() -> None:
    graph, boards = _state_graph(works(1)), [new_board() for _ in range(10)]

    first = compiled._guarded(graph, None, {"board": boards[0]})
    for board in (*boards, boards[-1]):
        compiled._guarded(graph, None, {"board": board})

    assert len(compiled._cache[graph]) == 8
    assert compiled._guarded(graph, None, {"board": boards[0]}) is not first


def test_a_graph_nobody_uses_any_more_is_freed() -> None:
    graph = _state_graph(works(1))
    guarded_invoke(graph, TASK, board=new_board())
    gone = weakref.ref(graph)

    del graph
    gc.collect()

    assert gone() is None


def test_a_conversation_goes_on_over_calls_of_guarded_invoke() -> None:
    graph, board = _state_graph(repeats(2), checkpointer=InMemorySaver()), new_board()

    for _ in range(2):
        result = guarded_invoke(graph, TASK, thread(), board=board)

    assert result["loop_status"]["steps_taken"] == 4


def test_only_the_tools_of_the_sub_graph_that_loops_are_stopped() -> None:
    """Two researchers one after the other: the first works, the second is stuck."""
    counted = CountedSearch()
    outer: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    outer.add_node("first", agent_builder(works(3)).compile())
    outer.add_node("second", agent_builder(lambda m, t: repeats(3 + TIMES)(m, t), tools=[counted.tool]).compile())
    outer.add_edge(START, "first")
    outer.add_edge("first", "second")

    messages = guarded_invoke(outer.compile(), TASK, thread(), board=new_board())["messages"]

    assert outline(messages) == "hatatata" + NUDGED_THEN_STOPPED[1:]
    assert counted.runs == STOP_AT


def test_a_create_agent_graph_with_the_middleware_need_not_be_guarded_again() -> None:
    """Guarding it twice still nudges and stops once."""
    board = new_board()
    graph = create_agent(
        ScriptedChatModel(policy=repeats(TIMES)), [search], middleware=[TrajectoryGuardMiddleware(board=board)]
    )

    assert outline(guarded_invoke(graph, TASK, thread(), board=board)["messages"]) == NUDGED_THEN_STOPPED
