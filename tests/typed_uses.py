"""Right and wrong uses of the public API, for type checkers: an ignored error that is none fails ``make lint``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import SecretStr
from typing_extensions import assert_type

from trajectory_guard import (
    Account,
    BudgetGate,
    BudgetSettings,
    BudgetStatus,
    BudgetText,
    Cursor,
    Ending,
    Engine,
    EngineSettings,
    GuardConfig,
    Intervention,
    ModelPrice,
    NudgeRole,
    RefusalRules,
    StateOf,
    ToolPolicy,
    ToolSettings,
    TrajectoryGuardMiddleware,
    TrajectoryGuardNode,
    apply_guard,
    guard_compiled,
    guarded_invoke,
    instrument,
    shared_board,
)
from trajectory_guard.config.choices import Mode
from trajectory_guard.config.keys import GuardKeys

Builder = StateGraph[MessagesState, None, MessagesState, MessagesState]
Compiled = CompiledStateGraph[MessagesState, None, MessagesState, MessagesState]
DAY = BudgetSettings(scope="day", usd=5)


async def note(intervention: Intervention) -> None:
    print(intervention.text)


def right_configurations() -> GuardConfig:
    GuardConfig()
    GuardConfig(mode="observe", nudge_threshold=2, history_steps=64, redact=True, max_wait_s=None)
    GuardConfig(weights={"TYPE_I_STUTTER": 1}, tools={"status": {"poll": True}, "search": ToolPolicy(weight=0.5)})
    GuardConfig(budgets=[{"scope": "service", "usd": 5, "per": "day"}, DAY])
    GuardConfig(budgets=({"scope": "day", "tokens": 10_000},), model_prices={"small": {"input": 1, "output": 2.5}})
    GuardConfig(model_prices={"large": ModelPrice(input=1, output=2.5)}, budgets=None, tools=None, weights=None)
    GuardConfig(collector_url="http://localhost:8888", collector_token="secret", certificate_key=SecretStr("key"))
    GuardConfig(required_actions=["write_file"], quality_evaluations={"accuracy"}, dialects=[])
    GuardConfig(required_actions="write_file", on_intervention=note, nudge_text=lambda verdict: verdict.reason)
    GuardConfig(quality_judge=lambda request, response: 1.0, stop_text="stopped: {reason}")
    read = GuardConfig(tools={"search": {"poll": True}}, budgets=[DAY])
    polls: bool = read.tools["search"].poll
    whose: str = read.budgets[0].scope
    assert (polls, whose, read.mode == "enforce") == (True, "day", True)
    assert from_elsewhere("nudge", {"decay": 0.25}).decay == 0.25
    return read


def from_elsewhere(mode: Mode, decoded: dict[str, Any]) -> GuardConfig:
    keys: GuardKeys = {"mode": mode, "tools": {"search": {"idempotent": True}}}
    keys["decay"] = 0.25
    assert GuardConfig(**decoded) == GuardConfig.from_mapping(decoded)
    return GuardConfig(**keys)


def wrong_configurations(keys: GuardKeys) -> None:
    GuardConfig(nudge_treshold=2)  # type: ignore[call-arg]
    GuardConfig(mode="obsrve")  # type: ignore[arg-type]
    GuardConfig(history_steps="many")  # type: ignore[arg-type]
    GuardConfig(nudge_threshold=None)  # type: ignore[arg-type]
    GuardConfig(on_intervention="print")  # type: ignore[arg-type]
    GuardConfig(tools=["job_status"])  # type: ignore[arg-type]
    GuardConfig(tools={"job_status": {"pol": True}})  # type: ignore[dict-item]
    GuardConfig(tools={"job_status": {"weight": "high"}})  # type: ignore[dict-item]
    GuardConfig(budgets={"scope": "day", "usd": 5.0})  # type: ignore[arg-type]
    GuardConfig(budgets=[{"scope": "trajctory", "usd": 5.0}])  # type: ignore[list-item]
    GuardConfig(budgets=[{"scope": "agent", "usd": 5.0, "per": "week"}])  # type: ignore[list-item]
    GuardConfig(budgets=[{"usd": 5.0}])  # type: ignore[list-item]
    GuardConfig(model_prices={"small": {"input": 1.0}})  # type: ignore[dict-item]
    BudgetSettings(scope="week", usd=5.0)  # type: ignore[arg-type]
    BudgetSettings(scope="agent", usd=5.0, per="week")  # type: ignore[arg-type]
    ToolPolicy(pol=True)  # type: ignore[call-arg]
    ModelPrice(input="1", output=2.5)  # type: ignore[arg-type]
    GuardConfig.from_file(Path("guard.toml")).mode == "never"  # type: ignore[comparison-overlap]  # noqa: B015
    keys["mode"] = "never"  # type: ignore[typeddict-item]


def right_words(builder: Builder, graph: Any, config: GuardConfig) -> None:
    instrument(config=config)
    apply_guard(builder, config, on_stop="raise", nudge_role="system")
    apply_guard(builder, on_stop="a_node_of_the_graph")
    guard_compiled(graph, on_stop="interrupt")
    guarded_invoke(graph, {}, mode="nudge")
    TrajectoryGuardNode(agent="agent", on_stop="end")
    TrajectoryGuardMiddleware(on_stop="interrupt", nudge_role="tool")
    BudgetGate(on_refusal="raise")
    guard_compiled(graph, tools=("search", "read"), agent=("one", "two"))
    shared_board().read("conversation").within("nudge")
    Cursor().append("proposal", tool="search", args={"query": "returns"})
    Cursor().report(["save"], ordered=True)
    RefusalRules(after=3, denied=False)
    spending = shared_board().spending
    if spending is not None:
        print(spending.balance(Account("agent", "researcher")))


def kept_types(builder: Builder) -> Compiled:
    """A gate changes none of the types of a graph: what its state holds is checked behind it as before."""
    assert_type(apply_guard(builder), Builder)
    assert_type(guard_compiled(builder.compile()), Compiled)
    return apply_guard(builder).compile()


def in_own_annotations(builder: Builder, ending: Ending, role: NudgeRole, state_of: StateOf, limit: BudgetText) -> None:
    apply_guard(builder, on_stop=ending, nudge_role=role, state_of=state_of)
    BudgetGate(text=limit)
    Engine(EngineSettings(tools={"status": ToolSettings(poll=True)}))
    budget: BudgetStatus | None = shared_board().read("conversation").budget
    if budget is not None and budget.state is not None:
        print(budget.state.amount)


def wrong_words(builder: Builder, graph: Any) -> None:
    apply_guard(builder, nudge_role="assistant")  # type: ignore[arg-type]
    guard_compiled(graph, nudge_role="assistant")  # type: ignore[arg-type]
    guarded_invoke(graph, {}, mode="nudges")  # type: ignore[arg-type]
    TrajectoryGuardMiddleware(on_stop="stop")  # type: ignore[arg-type]
    BudgetGate(on_refusal="stop")  # type: ignore[arg-type]
    shared_board().read("conversation").within("nudges")  # type: ignore[arg-type]
    Cursor().append("proposed", tool="search")  # type: ignore[arg-type]
    Cursor().report(["save"], True)  # type: ignore[call-arg]
    RefusalRules(3)  # type: ignore[call-arg]
