"""Every Python block of these pages runs as it is printed, with the names only that each page takes for granted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import record
from trajectory_guard import GuardConfig, StagnationGate, runtime, shared_board, uninstrument
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call
from trajectory_guard.core.explain.interventions import Spent, stop_payload

ROOT = Path(__file__).parent.parent
PAGES = ("docs/cursor.md", "docs/quality.md", "docs/spending.md", "docs/certificates.md", "processor/README.md")

MARKS = {
    "operon_ai": "a2a", "openai": "AsyncOpenAI", "langchain_openai": "openai:", "pydantic_ai": "from pydantic_ai",
    "agents": "from agents", "smolagents": "from smolagents",
}  # fmt: skip
"""Packages that a block needs, by a text in it."""


@tool
def search(query: str) -> str:
    """Search."""
    return "No results"


def think(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("assistant", "I will look for the return policy once more.")]}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def stuck(gate: Any) -> None:
    """Drive the gate of a page until it fires."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("think", gate.wrap(think))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", gate.edge(forward="think", break_to=END))
    graph.compile().invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}, "recursion_limit": 20})


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Models, tools, graphs and objects that an application has already."""
    monkeypatch.chdir(tmp_path)  # of ledgers
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("GUARD_TOKEN", "none")
    model = ScriptedChatModel(policy=lambda messages, turn: call("search", {"query": "returns"}, turn))
    yield {
        "model": model,
        "small_model": model,
        "tools": [search],
        "think": think,
        "agent_node": think,
        "agent_node_with_a_small_model": think,
        "browser_page": SimpleNamespace(content=lambda: "<p>"),
        "proposal": SimpleNamespace(tool_name="shell", args={"cmd": "ls"}, id="1", execute=lambda: "a b c"),
        "decision": SimpleNamespace(allowed=False),
    }
    uninstrument()


def builder() -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [("assistant", "Done.")]})
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


@pytest.mark.parametrize(("page", "place"), [(page, at) for page in PAGES for at in range(len(blocks(page)))])
def test_a_block_runs_as_it_is_printed(page: str, place: int, names: dict[str, Any]) -> None:
    code = blocks(page)[place]
    for package in MARKS:
        if re.search(MARKS[package], code):
            pytest.importorskip(package)
    names["builder"] = builder()
    if "raise_flag" in code:
        shared_board().observe(record(trajectory="conversation-7"))
    if "gate.certificates" in code:
        names["gate"] = StagnationGate(threshold=0.2, critical_duration=2)
        stuck(names["gate"])
    exec(compile(code, page, "exec"), names)
    assert [name for name in shared_board().counts if name.startswith("errors.")] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_blocks(page: str) -> None:
    assert blocks(page)


def test_an_account_is_read_with_and_without_a_ledger(names: dict[str, Any]) -> None:
    from trajectory_guard import GuardConfig

    (code,) = [one for one in blocks("docs/spending.md") if "Account(" in one]
    exec(code, names)
    assert names["spending"] is None
    runtime._process = runtime.Process()
    shared_board(GuardConfig(track_spending=True))
    exec(code, names)
    assert names["balance"].calls == 0


@pytest.mark.parametrize(
    "text", re.findall(r"```yaml\n(.*?)```", (ROOT / "processor/README.md").read_text(encoding="utf-8"), re.DOTALL)
)
def test_a_configuration_on_the_page_of_the_processor_can_be_copied_into_a_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "guard.yaml"
    file.write_text(text, encoding="utf-8")
    assert GuardConfig.from_file(file) != GuardConfig()


PROGRAMS = {
    "trajectory-guard": "trajectory_guard",
    "trajectory-guard-collector": "trajectory_guard_collector",
    "trajectory-guard-fleet": "trajectory_guard_collector.fleet",
}
WRITTEN = [ROOT / "README.md", *(ROOT / name / "README.md" for name in ("processor", "collector", "dashboards"))]
WRITTEN += sorted((ROOT / "docs").glob("*.md"))


def commands() -> set[tuple[str, str, str]]:
    """Program, sub-command and option of every command line on any page."""
    found = set()
    for page in WRITTEN:
        fenced = re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        lines = [line for block in fenced for line in block.splitlines()]
        lines += re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
        for part in (one for line in lines for one in line.partition(" #")[0].split("&&")):
            program, *words = part.strip().removeprefix("$ ").split(" ")
            if program in PROGRAMS and words and words[0].isalpha():
                nested = words[0] == "flag" and len(words) > 1 and words[1].isalpha()
                options = re.findall(r"(?<=\s)--?[a-z][\w-]*", " ".join(words)) if nested or words[0] != "flag" else []
                found |= {(program, " ".join(words[: 1 + nested]), option) for option in options or [""]}
    return found


@pytest.fixture(scope="module")
def helps() -> Callable[[str, str], str]:
    """What a sub-command says of itself; empty if there is none of this name."""

    @cache
    def said(program: str, command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAMS[program], *command.split(), "--help"], capture_output=True, text=True, check=False,
            timeout=120, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    return said


@pytest.mark.parametrize(("program", "command", "option"), sorted(commands()))
def test_a_command_line_on_a_page_is_one_that_the_program_takes(
    program: str, command: str, option: str, helps: Callable[[str, str], str]
) -> None:
    said = helps(program, command)
    assert said, f"{program} {command}"
    assert re.search(rf"(?<![\w-]){option}(?![\w-])", said), f"{program} {command} {option}"


def test_there_are_command_lines_on_the_pages() -> None:
    assert len(commands()) >= 20


SETTINGS = [
    "\n".join(settings)
    for line in (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8").splitlines()
    if (settings := re.findall(r"`([\w.]+ = [^`]+)`", line))
]
"""The settings of each row: one may need another."""


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_settings_on_the_page_of_complaints_can_be_copied_into_a_file(setting: str, tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text(setting, encoding="utf-8")
    assert GuardConfig.from_file(file) != GuardConfig()


def test_the_page_of_the_processor_lists_every_key_of_the_stop_payload() -> None:
    page = (ROOT / "processor" / "README.md").read_text(encoding="utf-8")
    table = page.partition("| key of the stop payload |")[2].partition("\n\n")[0]
    payload = stop_payload(
        reason="", types=[], rule="", score=0.0, nudges_sent=0, steps_taken=0, similar_actions=[], spent=Spent(),
        recommendation="", certificate={},
    )  # fmt: skip
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(payload)
    assert all(f"`{key}`" in table for key in Spent._fields)
