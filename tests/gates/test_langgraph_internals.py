"""The internals of LangGraph that ``gates/`` build on. None of them is public API."""

from __future__ import annotations

import ast
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

from tests.test_public_surface import NEEDS_LANGGRAPH, run_python
from trajectory_guard.extras import missing
from trajectory_guard.gates import langgraph_internals

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
ADVICE = (
    "langgraph {version} has no {missing}: adapt gates/langgraph_internals.py, run tests/gates, and only then raise the"
    " upper bound of langgraph there and in pyproject.toml"
)


def private_names() -> dict[str, list[str]]:
    """Names by module of LangGraph, as ``langgraph_internals`` imports them."""
    tree = ast.parse(Path(langgraph_internals.__file__).read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {node.module: [one.name for one in node.names] for node in imported if "._" in (node.module or "")}  # type: ignore[misc]


MODULES = private_names()
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
    assert len(MODULES) >= 6
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
    assert wanted == Requirement(langgraph_internals.SUPPORTED)
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


def test_a_version_that_lacks_a_private_name_is_refused_in_the_same_words_at_every_way_to_a_gate() -> None:
    """The version that was found, the name that it lacks, and the versions that fit."""
    lost = [(module, names[0]) for module, names in MODULES.items()]
    code = f"""
import importlib, sys
import langchain.agents.middleware, langgraph.prebuilt
import trajectory_guard
for module, name in {lost!r}:
    found = importlib.import_module(module)
    kept = vars(found).pop(name)
    for gate in {NEEDS_LANGGRAPH!r}:
        try:
            getattr(trajectory_guard, gate)
        except ImportError as error:
            print(name, "|", gate, "|", error)
    setattr(found, name, kept)
"""
    said = [line.split(" | ") for line in run_python(code).splitlines()]
    assert {(name, gate) for name, gate, _ in said} == {(name, gate) for _, name in lost for gate in NEEDS_LANGGRAPH}
    for name, _, message in said:
        refused = f"the LangGraph gate does not know langgraph {version('langgraph')} (cannot import name {name!r}"
        assert message.startswith(refused)
        assert message.endswith(f"for {langgraph_internals.SUPPORTED}")
