"""The rules of the house: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.helpers import COLLECTOR_PACKAGE, PACKAGE

ROOT = "trajectory_guard"
MODULES = {
    ".".join((ROOT, *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
COLLECTOR_ROOT = "trajectory_guard_collector"
COLLECTOR = {
    ".".join((COLLECTOR_ROOT, *path.relative_to(COLLECTOR_PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(COLLECTOR_PACKAGE.rglob("*.py"))
}
EVERYTHING = MODULES | COLLECTOR
MAX_FILE_LINES, MAX_FUNCTION_LINES = 500, 80


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> set[str]:
    """Absolute names of all modules a module imports, anywhere in its code."""
    path = EVERYTHING[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            found.add(".".join([*base, node.module] if node.module else base))
    return found


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in {
        one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)
    }


def loaded_code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below ``node`` except what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not is_for_type_checkers(child):
            yield child
            yield from loaded_code(child)


@cache
def own_imports(module: str) -> frozenset[str]:
    """Modules of the two packages that a module imports when it is loaded, or later from within a function."""
    path = EVERYTHING[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in loaded_code(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(
                [
                    *(package[: len(package) - node.level + 1] if node.level else []),
                    *([node.module] if node.module else []),
                ]
            )
            names = {f"{base}.{alias.name}" for alias in node.names}
            found.update((names & EVERYTHING.keys()) or {base})
    return frozenset(found & EVERYTHING.keys() - {module})


def path_to(module: str, package: str) -> list[str]:
    """The shortest chain of imports from a module of the collector to ``package``; empty if there is none."""
    chains = [[module]]
    seen = {module}
    for chain in chains:
        if within(chain[-1], package):
            return chain
        for name in sorted((own_imports(chain[-1]) & COLLECTOR.keys()) - seen):
            seen.add(name)
            chains.append([*chain, name])
    return []


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    reachable: dict[str, set[str]] = {}
    for module in EVERYTHING:
        pending, seen = [module], set()
        while pending:
            pending += (new := own_imports(pending.pop()) - seen)
            seen |= new
        reachable[module] = seen
    groups = {
        frozenset(other for other in reachable[module] if module in reachable[other])
        for module in EVERYTHING
        if module in reachable[module]
    }
    return sorted(map(sorted, groups))


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def layer(name: str) -> list[str]:
    return [module for module in MODULES if within(module, f"{ROOT}.{name}")]


READERS = ("dialects", "spans", "transcripts")
"""Packages that turn span data into records."""


def readers() -> list[str]:
    return [module for name in READERS for module in layer(name)]


def foreign(module: str) -> set[str]:
    """Packages that a module imports besides itself and the standard library."""
    return {
        name for name in imports(module) if name.split(".")[0] not in sys.stdlib_module_names and name != "__future__"
    }


def test_the_layers_exist() -> None:
    assert len(layer("core")) > 10
    assert len(layer("dialects")) > 10


def outside(module: str, *allowed: str) -> set[str]:
    """Packages that a module imports besides itself, the standard library, and those that its layer may know."""
    return {name for name in foreign(module) if not any(within(name, one) for one in allowed)}


def importers(modules: list[str], *packages: str) -> dict[str, set[str]]:
    """Which of ``modules`` import anything of ``packages``, and what."""
    found = {
        name: {one for one in imports(name) if any(within(one, package) for package in packages)} for name in modules
    }
    return {name: names for name, names in found.items() if names}


def test_core_is_pure() -> None:
    allowed = (f"{ROOT}.core", "orjson")
    offenders = {module: found for module in layer("core") if (found := outside(module, *allowed))}
    assert offenders.pop(f"{ROOT}.core.build") == {"mypy_extensions"}  # which is not needed to run
    # works on vectors it is handed, and loads numpy for them when it is first used
    vectors = f"{ROOT}.core.similarity.cascade"
    assert offenders in ({}, {vectors: {"numpy"}})
    assert "numpy" not in {
        alias.name for node in tree(MODULES[vectors]).body if isinstance(node, ast.Import) for alias in node.names
    }


def test_core_has_no_clock_no_threads_and_no_network() -> None:
    never = {"time", "threading", "socket", "asyncio", "http", "subprocess", "random"}
    parsers_of_texts = {"urllib", "logging", "datetime"}  # core.similarity reads addresses and dates
    offenders = {}
    for module in layer("core"):
        forbidden = never if within(module, f"{ROOT}.core.similarity") else never | parsers_of_texts
        found = {name.split(".")[0] for name in imports(module)} & forbidden
        if found:
            offenders[module] = found
    assert offenders == {}


def test_configuration_imports_pydantic_and_constants_of_core_only() -> None:
    allowed = (
        "pydantic",
        "yaml",
        "tomli",
        "tomllib",  # no part of Python 3.10
        "typing_extensions",
        f"{ROOT}.config",
        f"{ROOT}.text_files",
        f"{ROOT}.core.cursor",
        f"{ROOT}.core.detectors",
        f"{ROOT}.core.settings",
        f"{ROOT}.core.text",
        f"{ROOT}.quality.settings",
        f"{ROOT}.spending.budget",
        f"{ROOT}.spending.ledger",
        f"{ROOT}.dialects.custom",
    )  # to check what is declared
    assert {module: found for module in layer("config") if (found := outside(module, *allowed))} == {}


def test_the_rules_of_spending_are_pure() -> None:
    """Ledger, budgets and outliers: no clock, threads, files or telemetry. The stores and ``Spending`` are around them."""
    pure = [f"{ROOT}.spending.{name}" for name in ("ledger", "budget", "outliers", "duplicates")]
    allowed = (*pure, f"{ROOT}.core.tracking.tables", f"{ROOT}.core.text")
    assert {module: found for module in pure if (found := outside(module, *allowed))} == {}
    never = {"time", "threading", "socket", "asyncio", "sqlite3", "logging", "datetime", "random"}
    assert {module: found for module in pure if (found := imports(module) & never)} == {}


def test_only_the_judge_of_quality_has_threads_of_its_own() -> None:
    """Settings and the reading of log-probabilities are pure."""
    pure = [f"{ROOT}.quality.{name}" for name in ("settings", "logprobs")]
    allowed = ("pydantic", f"{ROOT}.core.quality")
    assert {module: found for module in pure if (found := outside(module, *allowed))} == {}
    assert {module for module in layer("quality") if "asyncio" in imports(module)} == {f"{ROOT}.quality.judge"}


def test_dialects_know_core_and_attribute_names_only() -> None:
    allowed = tuple(f"{ROOT}.{name}" for name in ("core", *READERS))
    assert {module: found for module in readers() if (found := outside(module, *allowed))} == {}


def test_dialects_know_neither_engine_nor_detectors() -> None:
    forbidden = [f"{ROOT}.core.{part}" for part in ("engine", "detectors", "policy", "reading", "run")]
    assert importers(readers(), *forbidden) == {}


def test_the_library_never_imports_the_collector() -> None:
    assert importers(list(MODULES), "trajectory_guard_collector") == {}


def test_scoring_and_state_never_import_the_gateway_directly_or_through_others() -> None:
    parts = [f"{COLLECTOR_ROOT}.{name}" for name in ("scoring", "state")]
    modules = [name for name in COLLECTOR if any(within(name, part) for part in parts)]
    assert len(modules) > 8
    assert [chain for name in modules if (chain := path_to(name, f"{COLLECTOR_ROOT}.gateway"))] == []


def test_the_stream_worker_never_imports_the_gateway_and_nothing_imports_it() -> None:
    fleet = f"{COLLECTOR_ROOT}.fleet"
    modules = [name for name in COLLECTOR if within(name, fleet)]
    assert len(modules) > 8
    assert [chain for name in modules if (chain := path_to(name, f"{COLLECTOR_ROOT}.gateway"))] == []
    assert importers([name for name in COLLECTOR if not within(name, fleet)], fleet) == {}


def test_one_module_knows_the_stream_engine() -> None:
    assert list(importers(list(EVERYTHING), "quixstreams")) == [f"{COLLECTOR_ROOT}.fleet.engine"]


def test_one_module_knows_what_is_private_in_langgraph_and_langchain() -> None:
    frameworks = ("langgraph", "langchain", "langchain_core", "langsmith")
    private = {
        (module, name)
        for module, path in EVERYTHING.items()
        for node in ast.walk(tree(path))
        for name in names_imported(node)
        if name.split(".")[0] in frameworks and any(part.startswith("_") for part in name.split("."))
    }
    assert {module for module, _ in private} == {f"{ROOT}.gates.langgraph_internals"}


def names_imported(node: ast.AST) -> list[str]:
    """Full names that an import brings, those of modules included."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_one_module_knows_the_private_parts_of_a_tool_node() -> None:
    parts = {"_afunc", "_awrap_tool_call", "_func", "_tools_by_name", "_wrap_tool_call"}
    users = {
        module
        for module in layer("gates")
        for node in ast.walk(tree(MODULES[module]))
        if isinstance(node, ast.Attribute) and node.attr in parts
    }
    assert users == {f"{ROOT}.gates.langgraph_internals"}


def test_identification_never_reaches_the_evaluation_of_steps() -> None:
    """They may run on different machines."""
    name = f"{COLLECTOR_ROOT}.scoring.identification"
    assert name in COLLECTOR
    for part in ("scoring.registry", "scoring.events", "scoring.scorer", "state"):
        assert path_to(name, f"{COLLECTOR_ROOT}.{part}") == []


def test_the_collector_never_imports_the_command_line() -> None:
    assert importers(list(COLLECTOR), f"{ROOT}.cli") == {}


@pytest.mark.parametrize("modules", [MODULES, COLLECTOR], ids=["processor", "collector"])
def test_folders_import_each_other_one_way(modules: dict[str, Path]) -> None:
    folder = {name: ".".join(name.split(".")[:2]) for name in modules if name.count(".") > 1}
    arrows = {(folder[name], folder[other]) for name in folder for other in own_imports(name) & folder.keys()}
    assert {arrow for arrow in arrows if arrow[0] < arrow[1] and arrow[::-1] in arrows} == set()


def test_folders_of_the_core_import_each_other_one_way() -> None:
    folder = {name: name.split(".")[2] for name in layer("core") if name.count(".") > 2}
    arrows = {(folder[name], folder[other]) for name in folder for other in own_imports(name) & folder.keys()}
    assert {arrow for arrow in arrows if arrow[0] < arrow[1] and arrow[::-1] in arrows} == set()


def test_no_import_circle_in_either_package() -> None:
    assert circles() == []


def test_shared_parts_know_no_framework() -> None:
    shared = [f"{ROOT}.{name}" for name in ("otlp", "telemetry", "logs")] + layer("spending")
    shared += layer("quality") + layer("board")
    frameworks = ("langgraph", "langchain", "langchain_core", "langfuse", "opentelemetry")
    assert importers(shared, *frameworks) == {}


def run_python(code: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_importing_the_package_loads_no_optional_dependency() -> None:
    optional = [
        "langgraph",
        "langchain",
        "langchain_core",
        "langfuse",
        "fastembed",
        "rich",
        "numpy",
        "yaml",
        "genai_prices",
        "openlit",
    ]
    code = f"import sys, trajectory_guard; print(sorted(set({optional!r}) & sys.modules.keys()))"
    assert run_python(code).strip() == "[]"


def test_core_and_dialects_load_without_opentelemetry() -> None:
    code = """
import sys, types, importlib
package = types.ModuleType("trajectory_guard"); package.__path__ = [p + "/trajectory_guard" for p in sys.path if p.endswith("processor")]
sys.modules["trajectory_guard"] = package
for name in ("core.engine", "transcripts.assemble", "otlp"):
    importlib.import_module("trajectory_guard." + name)
print([name for name in sys.modules if name.split(".")[0] == "opentelemetry"])
"""
    assert run_python(code).strip() == "[]"


def test_no_docstring_has_half_a_character() -> None:
    """Python 3.13 cannot compile such a docstring, whereas earlier versions can."""
    halves = [
        f"{module}:{getattr(node, 'name', '')}"
        for module, path in EVERYTHING.items()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and re.search("[\ud800-\udfff]", ast.get_docstring(node, clean=False) or "")
    ]
    assert halves == []


# --- size ----------------------------------------------------------------------------------------------------


def test_no_file_is_too_long() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in EVERYTHING.items()}
    assert {module: count for module, count in lengths.items() if count > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{module}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, path in EVERYTHING.items()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: count for name, count in lengths.items() if count > MAX_FUNCTION_LINES} == {}
