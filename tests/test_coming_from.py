"""Every block of docs/coming-from.md runs as it is printed; those of other packages need the packages."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from trajectory_guard import runtime, shared_board
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call
from trajectory_guard.gates.messages import is_guard_message

DOCS = Path(__file__).parent.parent / "docs" / "coming-from.md"
PEERS = ("nudgeops", "operon_langgraph_gates", "reivo_guard")
LIMIT = {"recursion_limit": 60}
RUN = [
    ("NudgeOps", "from nudgeops import GuardConfig"),
    ("NudgeOps", "MessagesState"),
    ("NudgeOps", "UniversalGuard()"),
    ("NudgeOps", "execute_tool"),
    ("NudgeOps", "refuse_pointless=True"),
    ("Trajectory Cursor", "entries = []"),
    ("Trajectory Cursor", "cursor = Cursor()"),
    ("Trajectory Cursor", "recall=True"),
    ("operon-langgraph-gates", "from operon_langgraph_gates import"),
    ("operon-langgraph-gates", "from trajectory_guard import"),
    ("reivo-guard", "from reivo_guard"),
    ("reivo-guard", "create_agent"),
    ("reivo-guard", "BudgetGate()"),
    ("reivo-guard", "may_call"),
    ("reivo-guard", "quality_judge"),
]
"""The blocks of the page: a heading, and a text that only one of them below it contains."""


class State(TypedDict):
    thoughts: Annotated[list[str], operator.add]


@tool
def search(query: str) -> str:
    """Search."""
    return "No results"


def think(state: State) -> dict[str, list[str]]:
    return {"thoughts": ["I will look for the return policy once more."]}


def blocks() -> list[tuple[str, str]]:
    """Heading and code of each block, in the order of the page."""
    found, heading = [], ""
    for part in re.finditer(
        r"^## ([^\n]+)$|```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        heading = part[1] or heading
        if part[2]:
            found.append((heading, part[2]))
    return found


BLOCKS = blocks()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page takes for granted."""
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    model = ScriptedChatModel(policy=lambda messages, turn: call("search", {"query": "returns"}, turn))

    def call_model(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    return {
        "model": model,
        "small_model": model,
        "judge": lambda request, response: 0.4,
        "call_model": call_model,
        "call_small_model": call_model,
        "tools": [search],
        "messages": [HumanMessage("Find the return policy.")],
        "State": State,
        "think": think,
        "answer": lambda state: {"thoughts": ["Here it is."]},
        "escalate": lambda state: {"thoughts": ["A person takes over."]},
        "agent_of_nudgeops": lambda state: {"messages": [{"role": "assistant", "content": "I will look for it."}]},
        "tools_of_nudgeops": lambda state: {
            "tool_results": [{"tool_name": "search", "tool_args": {"query": "returns"}, "content": "No results"}]
        },
    }


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    for peer in PEERS:
        if f"from {peer}" in code:
            pytest.importorskip(peer, reason=f"{peer} does not support this Python")
    exec(compile(code, str(DOCS), "exec"), names)
    return names


def block(heading: str, text: str) -> str:
    """The only block below a heading that contains a text."""
    assert (heading, text) in RUN
    found = [code for title, code in BLOCKS if title == heading and text in code]
    assert len(found) == 1, (heading, text, len(found))
    return found[0]


def ask(graph: Any) -> list[Any]:
    return graph.invoke({"messages": [("user", "Find the return policy.")]}, LIMIT)["messages"]


def test_a_graph_of_nudgeops(names: dict[str, Any]) -> None:
    graph = run(block("NudgeOps", "from nudgeops import GuardConfig"), names)["graph"]
    assert graph.invoke({"messages": []}, LIMIT)["should_stop"]


def test_the_same_graph_here_is_nudged_and_stopped(names: dict[str, Any]) -> None:
    graph = run(block("NudgeOps", "MessagesState"), names)["graph"]
    messages = ask(graph)
    assert sum(is_guard_message(one) for one in messages if one.type == "human") == 1
    assert not messages[-1].tool_calls


def test_steps_of_any_framework(names: dict[str, Any]) -> None:
    assert run(block("NudgeOps", "UniversalGuard()"), dict(names))["decision"].action in ("NUDGE", "STOP")
    decision = run(block("NudgeOps", "execute_tool"), names)["decision"]
    assert decision.level == "NUDGE"
    assert "search" in decision.verdict.nudge


def test_hopeless_calls_are_answered_without_a_run(names: dict[str, Any]) -> None:
    runs = 0

    @tool
    def counted(query: str) -> str:
        """Search."""
        nonlocal runs
        runs += 1
        raise FileNotFoundError(query)

    model = ScriptedChatModel(policy=lambda messages, turn: call("counted", {"query": "returns"}, turn))
    code = block("NudgeOps", "MessagesState").replace("apply_guard(builder, GuardConfig(nudge_threshold=1.5))\n", "")
    code = code.replace("ToolNode(tools)", "ToolNode(tools, handle_tool_errors=True)")
    names |= {"tools": [counted], "call_model": lambda state: {"messages": [model.invoke(state["messages"])]}}
    run(code, names)
    run(block("NudgeOps", "refuse_pointless=True"), names)
    requested = sum(bool(one.tool_calls) for one in ask(names["graph"]) if isinstance(one, AIMessage))
    assert runs == 2 < requested


@pytest.mark.parametrize("text", ["entries = []", "cursor = Cursor()"])
def test_a_record_by_hand(text: str, names: dict[str, Any]) -> None:
    run(block("Trajectory Cursor", text), names)
    proposal = SimpleNamespace(tool="delete", args={"path": "/data"}, execute=lambda: "done")
    for allowed in (False, True):
        names["run_turn"](proposal, SimpleNamespace(allowed=allowed, reason="not today"))
    if "cursor" in names:
        names["entries"] = names["cursor"].entries
        assert names["cursor"].report().last_entry == "result(tool=delete, outcome=success, task=1)"
        assert "retry" in [one.kind for one in names["entries"]]
    assert len(names["entries"]) >= 5


def test_the_record_of_an_agent(names: dict[str, Any]) -> None:
    report = run(block("Trajectory Cursor", "recall=True"), names)["report"]
    assert report.missing_required_actions == ("write_file",)
    assert set(*report.path.values()) == {"search"}


@pytest.mark.parametrize("package", ["operon_langgraph_gates", "trajectory_guard"])
def test_stagnation_gates(package: str, names: dict[str, Any]) -> None:
    graph = run(block("operon-langgraph-gates", f"from {package} import"), names)["graph"]
    thoughts = graph.invoke({"thoughts": []}, {"configurable": {"thread_id": "t"}, **LIMIT})["thoughts"]
    assert thoughts[-1] == "A person takes over."
    assert len(names["gate"].certificates) == 1
    if package == "trajectory_guard":
        assert len(thoughts) == 4, "three near-identical outputs, and the person"


def test_before_and_after_a_model_call(names: dict[str, Any]) -> None:
    assert run(block("reivo-guard", "from reivo_guard"), names)["decision"].allowed


def test_budgets_of_an_agent_a_node_and_a_loop(names: dict[str, Any]) -> None:
    run(block("reivo-guard", "create_agent"), names)
    messages = names["agent"].invoke({"messages": [("user", "Find it.")]}, LIMIT)["messages"]
    assert any(is_guard_message(one) for one in messages), "the same middleware finds loops"
    assert shared_board().spending is not None
    from langgraph.graph import MessagesState, StateGraph

    names["builder"] = StateGraph(MessagesState)
    run(block("reivo-guard", "BudgetGate()"), names)
    assert "agent" in names["builder"].nodes
    assert run(block("reivo-guard", "may_call"), names)["may_call"]


def test_scores_of_a_judge_and_of_the_application(names: dict[str, Any]) -> None:
    run(block("reivo-guard", "quality_judge"), names)
    quality = shared_board().quality
    assert quality is not None
    assert quality.judge is not None


def test_every_block_is_run_by_a_test_above() -> None:
    assert [code for title, code in BLOCKS if not any(title == one and text in code for one, text in RUN)] == []


def test_every_test_that_the_page_names_is_there() -> None:
    table = DOCS.read_text(encoding="utf-8").partition("| feature | shown by |")[2]
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", table)
    assert len(named) > 30
    for file, test in named:
        source = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source if test else "def test_" in source, (file, test)
