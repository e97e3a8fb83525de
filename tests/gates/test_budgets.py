"""Budgets before the model call: in agents of ``create_agent``, and in hand-built graphs with ``guard.wrap``."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from trajectory_guard import (
    AgentState,
    BudgetExceededError,
    BudgetGate,
    FlagBoard,
    TrajectoryGuardMiddleware,
    apply_guard,
)
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.budgets import BLOCKED_TEXT, REFUSED_TEXT
from trajectory_guard.spending.ledger import DAY, Account, LedgerEntry
from trajectory_guard.spending.spending import today
from trajectory_guard.telemetry import LOGGER

from .agents import TASK, agent_builder, agent_node, async_context, lookup, outline, repeats, search, thread, works

LIMIT = 1_000
Run = Callable[..., dict[str, Any]]


RUNS = pytest.mark.parametrize("run", ["invoke", pytest.param("ainvoke", marks=async_context)], indirect=True)
"""Where the agent has to know its name, or its model calls have to leave spans."""


@pytest.fixture(params=["memory", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"spending_file": str(tmp_path / "spending.db")}


def board_with(spent: int, *, trajectory: str = "somebody", **config: Any) -> FlagBoard:
    """A board with a budget of 1,000 tokens a day, of which so many are spent."""
    config = {"budgets": [{"scope": "day", "tokens": LIMIT}], **config}
    board = FlagBoard(GuardConfig(**config))
    spend(board, spent, trajectory=trajectory)
    return board


def spend(board: FlagBoard, tokens: int, *, trajectory: str = "somebody", agent: str = "") -> None:
    assert board.spending is not None
    if tokens:
        at = f"{trajectory}-{time.perf_counter_ns()}"
        board.spending.book(LedgerEntry(at, trajectory, agent, "shop", today(time.time()), "large", tokens, 0))


def model(name: str = "large", steps: int = 1, policy: Policy | None = None) -> ScriptedChatModel:
    return ScriptedChatModel(policy=policy or works(steps), model_name=name)


def agent_of(board: FlagBoard, *, large: Any = None, saver: Any = None, name: str | None = None, **options: Any) -> Any:
    return create_agent(
        large or model(), [search, lookup], middleware=[TrajectoryGuardMiddleware(board=board, **options)],
        checkpointer=saver, name=name,
    )  # fmt: skip


def models_asked(messages: list[Any]) -> list[str]:
    return [message.response_metadata.get("model_name", "-") for message in messages if message.type == "ai"]


# --- the middleware --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "level", "asked"),
    [
        (0, "normal", ["large", "large"]),
        (799, "normal", ["large", "large"]),
        (800, "aggressive", ["small", "small"]),
        (950, "new_sessions_only", ["-"]),
        (1000, "blocked", ["-"]),
    ],
)
def test_levels_of_a_new_session(spent: int, level: str, asked: list[str], run: Run, where: dict[str, Any]) -> None:
    agent = agent_of(board_with(spent, **where), cheaper=model("small"))

    result = run(agent)

    assert models_asked(result["messages"]) == asked
    assert result["loop_status"]["budget"]["level"] == level


def test_a_session_that_has_begun_goes_on_until_the_budget_is_used_up(run: Run) -> None:
    board = board_with(0)
    agent = agent_of(board, saver=InMemorySaver(), cheaper=model("small"))
    run(agent, TASK, thread())
    spend(board, 960)

    second = run(agent, TASK, thread())
    other = run(agent, TASK, thread("another"))
    spend(board, 40)
    third = run(agent, TASK, thread())

    assert models_asked(second["messages"])[2:] == ["small", "small"]
    assert [message.text for message in other["messages"] if message.type == "ai"] == [REFUSED_TEXT]
    assert third["messages"][-1].text == BLOCKED_TEXT
    assert third["messages"][-1].response_metadata["trajectory_guard"]["action"] == "blocked"
    assert board.counts["budget_actions.blocked"] == board.counts["budget_actions.refused"] == 1
    assert board.counts["budget_actions.routed"] == 2


def test_a_session_that_was_refused_is_still_a_new_one(run: Run) -> None:
    agent = agent_of(board_with(960), saver=InMemorySaver())
    for _ in range(2):
        assert run(agent, TASK, thread())["messages"][-1].text == REFUSED_TEXT


def test_a_run_is_blocked_between_two_steps(run: Run) -> None:
    board = board_with(0)

    def spends(messages: Any, turn: int) -> AIMessage:
        spend(board, 500)
        return repeats(20)(messages, turn)

    result = run(agent_of(board, large=model(policy=spends)))

    assert outline(result["messages"])[:3] == "hat"
    assert result["messages"][-1].text == BLOCKED_TEXT
    assert models_asked(result["messages"]) == ["large", "large", "-"]


def test_without_budgets_nothing_is_asked_and_nothing_reported(run: Run) -> None:
    result = run(agent_of(FlagBoard(GuardConfig())))
    assert "budget" not in result.get("loop_status", {})


@pytest.mark.parametrize(
    "cheaper",
    [
        model("small"), {"large": model("small")}, {"other": model("other"), "large": model("small")},
        lambda request: model("small"),
    ],
)  # fmt: skip
def test_ways_to_name_the_cheaper_model(cheaper: Any, run: Run) -> None:
    result = run(agent_of(board_with(850), cheaper=cheaper))
    assert models_asked(result["messages"]) == ["small", "small"]


@pytest.mark.parametrize("cheaper", [None, {}, {"other": model("small")}, lambda request: None, lambda request: 1 / 0])
def test_without_a_cheaper_model_the_run_goes_on_with_its_own(cheaper: Any, run: Run) -> None:
    board = board_with(850)
    result = run(agent_of(board, cheaper=cheaper))
    assert models_asked(result["messages"]) == ["large", "large"]
    assert board.counts["budget_actions.routed"] == 0


def test_a_cheaper_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import langchain.chat_models

    monkeypatch.setattr(langchain.chat_models, "init_chat_model", lambda name: model(f"made {name}"))
    result = agent_of(board_with(850), cheaper={"large": "openai:small"}).invoke(TASK)
    assert models_asked(result["messages"]) == ["made openai:small"] * 2


def test_raise(run: Run) -> None:
    with pytest.raises(BudgetExceededError, match=r"1,000 of 1,000 tokens used by all services on .* \(blocked\)"):
        run(agent_of(board_with(1000), on_stop="raise"))


@pytest.mark.parametrize(("mode", "asked"), [("nudge", ["small"] * 2), ("observe", ["large"] * 2)])
def test_modes_hold_for_budgets(mode: str, asked: list[str], run: Run) -> None:
    result = run(agent_of(board_with(1000, mode=mode), cheaper=model("small")))
    assert models_asked(result["messages"]) == asked
    assert result["loop_status"]["budget"]["level"] == "blocked"


@pytest.mark.parametrize(
    ("text", "said"), [("Closed.", "Closed."), (lambda status: f"{status.state.amount}", "1,000 of 1,000 tokens")]
)
def test_a_text_of_ones_own(text: Any, said: str, run: Run) -> None:
    assert run(agent_of(board_with(1000), budget_text=text))["messages"][-1].text == said


def test_a_text_that_fails_is_replaced(run: Run) -> None:
    board = board_with(1000)
    assert run(agent_of(board, budget_text=lambda status: 1 / 0))["messages"][-1].text == BLOCKED_TEXT
    assert board.counts["errors.gate"] == 1


@RUNS
def test_a_budget_of_an_agent_holds_for_the_name_of_create_agent(run: Run) -> None:
    board = board_with(0, budgets=[{"scope": "agent", "tokens": LIMIT}])
    spend(board, 1000, agent="writer")
    assert models_asked(run(agent_of(board, name="writer"))["messages"]) == ["-"]
    assert models_asked(run(agent_of(board, agent_name="writer"))["messages"]) == ["-"]
    assert models_asked(run(agent_of(board, name="reader"))["messages"]) == ["large", "large"]


def test_a_log_filter_that_raises_lifts_no_budget(run: Run) -> None:
    def fails(record: logging.LogRecord) -> bool:
        raise RuntimeError("an error of the application's filter")

    logger = logging.getLogger(LOGGER)
    before = logger.level
    logger.addFilter(fails)
    logger.setLevel(logging.INFO)
    try:
        assert run(agent_of(board_with(1000)))["messages"][-1].text == BLOCKED_TEXT
    finally:
        logger.removeFilter(fails)
        logger.setLevel(before)


def test_a_ledger_that_cannot_be_read_stops_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_with(1000)
    monkeypatch.setattr(board.spending, "status", lambda *names, **options: 1 / 0)
    result = run(agent_of(board))
    assert models_asked(result["messages"]) == ["large", "large"]


def test_nudges_and_stops_work_beside_budgets(run: Run) -> None:
    result = run(agent_of(board_with(850), large=model(policy=repeats()), cheaper=model("small", policy=repeats())))
    assert outline(result["messages"]) == "hatatatNatatS"
    assert result["loop_status"]["budget"]["level"] == "aggressive"
    assert result["loop_status"]["status"] == "stopped"


@pytest.mark.parametrize("mode", ["values", "updates", "messages"])
def test_streams(mode: str) -> None:
    plain = create_agent(model(), [search, lookup])
    guarded = agent_of(board_with(0))
    blocked = agent_of(board_with(1000))

    def texts(agent: Any) -> list[str]:
        chunks = list(agent.stream(TASK, stream_mode=mode))
        if mode == "messages":
            return [chunk[0].text for chunk in chunks]
        parts = chunks if mode == "values" else [update for chunk in chunks for update in chunk.values()]
        return [part["messages"][-1].text for part in parts]

    assert texts(guarded) == texts(plain)
    assert texts(blocked)[-1] == BLOCKED_TEXT


# --- guard.wrap --------------------------------------------------------------------------------------------------


def hand_built(
    board: FlagBoard, node: Any = None, *, cheaper: Any = None, state: Any = MessagesState, **options: Any
) -> Any:
    builder = agent_builder(works(1), state=state)
    guard = BudgetGate(board=board, **options)
    del builder.nodes["agent"]
    builder.add_node("agent", guard.wrap(node or agent_node(works(1)), cheaper=cheaper))
    return builder


def small_node(state: MessagesState) -> dict[str, Any]:
    return {"messages": [model("small").invoke(state["messages"])]}


class CallableNode:
    def __call__(self, state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        assert "configurable" in config
        return agent_node(works(1))(state)


class AsyncCallableNode:
    async def __call__(self, state: MessagesState) -> dict[str, Any]:
        return agent_node(works(1))(state)


async def async_node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    assert "configurable" in config
    return agent_node(works(1))(state)


def partly(suffix: str, state: MessagesState) -> dict[str, Any]:
    assert suffix == "x"
    return agent_node(works(1))(state)


NODES: dict[str, Any] = {
    "function": lambda state: agent_node(works(1))(state),
    "object": CallableNode(),
    "runnable": RunnableLambda(agent_node(works(1))),
    "partial": functools.partial(partly, "x"),
}
ASYNC_NODES: dict[str, Any] = {"coroutine": async_node, "async object": AsyncCallableNode()}


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize(("spent", "end"), [(0, "a"), (1000, "S")])
def test_nodes_of_every_kind(kind: str, spent: int, end: str, run: Run, where: dict[str, Any]) -> None:
    result = run(hand_built(board_with(spent, **where), NODES[kind]).compile())
    said = result["messages"][-1].text
    assert (said == BLOCKED_TEXT) == (end == "S")
    assert len(result["messages"]) == (4 if end == "a" else 2)


@pytest.mark.parametrize("kind", ASYNC_NODES)
@pytest.mark.parametrize(("spent", "length"), [(0, 4), (1000, 2)])
def test_nodes_that_are_coroutines(kind: str, spent: int, length: int) -> None:
    graph = hand_built(board_with(spent), ASYNC_NODES[kind]).compile()
    assert len(asyncio.run(graph.ainvoke(TASK))["messages"]) == length


def test_the_cheaper_node_runs_instead(run: Run) -> None:
    board = board_with(850)
    result = run(hand_built(board, cheaper=small_node).compile())
    assert models_asked(result["messages"]) == ["small", "small"]
    assert board.counts["budget_actions.routed"] == 2


class WholeList(TypedDict):
    """A state without reducers: every node writes all messages."""

    messages: list[Any]


def test_a_refusal_keeps_a_conversation_without_reducer() -> None:
    gate = BudgetGate(board=board_with(LIMIT))
    builder = agent_builder(repeats(), state=WholeList)
    builder.nodes["agent"].runnable = gate.wrap(builder.nodes["agent"].runnable)

    assert outline(builder.compile().invoke({"messages": [HumanMessage("hi")]})["messages"]) == "hS"


def test_new_sessions_are_refused_and_others_go_on(run: Run) -> None:
    board = board_with(0)
    graph = hand_built(board).compile(checkpointer=InMemorySaver())
    run(graph, TASK, thread())
    spend(board, 960)
    assert len(run(graph, TASK, thread())["messages"]) == 8
    assert run(graph, TASK, thread("new"))["messages"][-1].text == REFUSED_TEXT


def test_a_graph_may_raise(run: Run) -> None:
    with pytest.raises(BudgetExceededError):
        run(hand_built(board_with(1000), on_refusal="raise").compile())


class Draft(TypedDict):
    text: str


def test_a_state_without_messages_raises() -> None:
    builder: Any = StateGraph(Draft)
    builder.add_node("write", BudgetGate(board=board_with(1000)).wrap(lambda state: {"text": "new"}))
    builder.add_edge(START, "write")
    with pytest.raises(BudgetExceededError):
        builder.compile().invoke({"text": ""})


def test_together_with_apply_guard(run: Run) -> None:
    for spent, expected in ((0, "hatatatNatatS"), (1000, "hS")):
        board = board_with(spent)
        builder = hand_built(board, agent_node(repeats()), state=AgentState)
        apply_guard(builder, board=board)
        result = run(builder.compile())
        assert outline(result["messages"]) == expected
        if spent == 0:
            assert result["loop_status"]["budget"]["level"] == "normal"


class OwnInput(TypedDict):
    messages: list[Any]


def goes_by_command(state: OwnInput) -> Command[Literal["next"]]:
    assert set(state) == {"messages"}
    return Command(goto="next", update={"messages": [AIMessage("over to next")]})


class Wide(MessagesState):
    other: str


def test_what_langgraph_reads_from_a_function_stays_readable() -> None:
    """The hint of its input, the nodes that its command leads to, its name and its parameters."""
    builder: Any = StateGraph(Wide)
    builder.add_node(BudgetGate(board=board_with(0)).wrap(goes_by_command))
    builder.add_node("next", lambda state: {"messages": [AIMessage("done")]})
    builder.add_edge(START, "goes_by_command")
    graph = builder.compile()
    result = graph.invoke({"messages": [("user", "hi")], "other": "x"})
    assert [message.text for message in result["messages"]] == ["hi", "over to next", "done"]
    assert ("goes_by_command", "next") in {(edge.source, edge.target) for edge in graph.get_graph().edges}


def test_tokens_still_stream_out_of_a_wrapped_node() -> None:
    def texts(graph: Any) -> list[str]:
        return [chunk.text for chunk, _ in graph.stream(TASK, stream_mode="messages")]

    assert texts(hand_built(board_with(0)).compile()) == texts(agent_builder(works(1)).compile())


def test_compiled_graphs_and_other_things_are_not_wrapped() -> None:
    guard = BudgetGate(board=board_with(0))
    with pytest.raises(TypeError, match="not a compiled graph"):
        guard.wrap(agent_builder(works(1)).compile())
    with pytest.raises(TypeError, match="got str"):
        guard.wrap("agent")
    with pytest.raises(ValueError, match="on_refusal"):
        BudgetGate(on_refusal="stop", board=board_with(0))


# --- with a real instrumentation -----------------------------------------------------------------------------


@RUNS
def test_spending_of_a_real_agent_blocks_it(traced: Any, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    board = traced(
        budgets=[{"scope": "trajectory", "tokens": 300}, {"scope": "agent", "tokens": 100_000}],
        model_prices={"large": {"input": 2.5, "output": 10}},
    )
    agent = agent_of(board, large=model(policy=works(40)), saver=InMemorySaver(), name="researcher")
    with caplog.at_level(logging.WARNING):
        result = run(agent, TASK, thread("customer-1"))

    assert result["messages"][-1].text == BLOCKED_TEXT
    assert board.spending is not None
    spent = board.spending.balance(Account("trajectory", "customer-1"))
    used = [message.usage_metadata for message in result["messages"] if message.type == "ai" and message.usage_metadata]
    assert spent.tokens == sum(one["total_tokens"] for one in used)
    assert spent.calls == len(used)
    assert spent.unpriced == {}
    assert board.spending.balance(Account("agent", "researcher")).calls == len(used)
    assert [record for record in caplog.records if '"percent": 100' in record.message]
    other = run(agent, TASK, thread("customer-2"))
    assert other["messages"][-1].text == BLOCKED_TEXT
    assert board.spending.balance(Account(DAY, "", today(time.time()))).calls > len(used)
