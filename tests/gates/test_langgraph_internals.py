"""The internals of LangGraph that ``gates/`` build on. None of them is public API."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from packaging.requirements import Requirement
from typing_extensions import TypedDict

from trajectory_guard.extras import missing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
ADVICE = (
    "langgraph {version} has no {missing}, which gates/ use: adapt them, run tests/gates, and only then raise the upper"
    " bound of langgraph in pyproject.toml"
)
MODULES = {
    "langgraph._internal._constants": (
        "CONFIG_KEY_READ",
        "CONFIG_KEY_RUNTIME",
        "CONFIG_KEY_SEND",
        "CONFIG_KEY_TASK_ID",
    ),
    "langgraph._internal._runnable": ("RunnableCallable", "RunnableSeq", "coerce_to_runnable"),
    "langgraph._internal._typing": ("MISSING",),
    "langgraph.pregel._messages": ("StreamMessagesHandler",),
    "langgraph.pregel._read": ("PregelNode",),
    "langgraph.pregel._utils": ("find_subgraph_pregel",),
    "langgraph.pregel._write": ("ChannelWrite", "ChannelWriteEntry"),
}
OF_A_TOOL_NODE = ("_afunc", "_awrap_tool_call", "_func", "_tools_by_name", "_wrap_tool_call", "afunc", "func")
OF_A_NODE = ("bound", "channels", "mapper", "triggers", "writers")


class State(TypedDict):
    text: str


@tool
def look(name: str) -> str:
    """Look something up."""
    return name


def absent(names: list[str]) -> str:
    return ADVICE.format(version=version("langgraph"), missing=", ".join(names))


def test_modules_and_names_are_there() -> None:
    gone = []
    for module, names in MODULES.items():
        found = importlib.import_module(module)
        gone += [f"{module}.{name}" for name in names if not hasattr(found, name)]
    assert not gone, absent(gone)


def test_attributes_are_there() -> None:
    builder = StateGraph(State)
    builder.add_node("one", lambda state: state)
    builder.add_edge(START, "one")
    builder.add_edge("one", END)
    node = builder.compile().nodes["one"]
    used = [(ToolNode([look]), OF_A_TOOL_NODE), (node, OF_A_NODE), (builder, ("channels", "nodes"))]
    gone = [f"{type(one).__name__}.{name}" for one, names in used for name in names if not hasattr(one, name)]
    assert not gone, absent(gone)


def test_a_builder_takes_a_subclass_as_its_class() -> None:
    builder = StateGraph(State)
    builder.__class__ = type("StateGraph", (StateGraph,), {})
    assert isinstance(builder, StateGraph)


def test_the_next_minor_version_is_not_installed_before_it_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = [
        one for text in project["optional-dependencies"]["langgraph"] if (one := Requirement(text)).name == "langgraph"
    ]
    major, minor, *_ = version("langgraph").split(".")
    assert wanted.specifier.contains(version("langgraph"))
    assert not wanted.specifier.contains(f"{major}.{int(minor) + 1}.0")


@pytest.mark.parametrize(
    "error, said",
    [
        (
            ImportError("cannot import name 'A' from 'langgraph._internal._constants'", name="langgraph._internal._constants"),
            f"the gate does not know langgraph {version('langgraph')} (cannot import name 'A' from",
        ),
        (
            ModuleNotFoundError("No module named 'langgraph.pregel._gone'", name="langgraph.pregel._gone"),
            f"the gate does not know langgraph {version('langgraph')} (No module named 'langgraph.pregel._gone'): install",
        ),
        (
            ModuleNotFoundError("No module named 'absent_package'", name="absent_package"),
            "the gate needs absent_package: install the extra 'langgraph'",
        ),
        (ImportError("broken"), "the gate cannot be loaded (broken): install"),
    ],
)  # fmt: skip
def test_a_version_that_does_not_fit_is_no_missing_extra(error: ImportError, said: str) -> None:
    assert missing("the gate", error, "langgraph").startswith(said)
