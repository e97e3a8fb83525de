"""The rules of the house: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import COLLECTOR_PACKAGE, PACKAGE

ROOT = "trajectory_guard"
MODULES = {
    ".".join((ROOT, *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
COLLECTOR = {
    ".".join(("trajectory_guard_collector", *path.relative_to(COLLECTOR_PACKAGE).with_suffix("").parts)): path
    for path in sorted(COLLECTOR_PACKAGE.rglob("*.py"))
}
EVERYTHING = MODULES | COLLECTOR
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_MEDIAN_LINES = 400, 60, 10


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(module: str) -> set[str]:
    """Absolute names of all modules a module imports, anywhere in its code."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            found.add(".".join([*base, node.module] if node.module else base))
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def layer(name: str) -> list[str]:
    return [module for module in MODULES if within(module, f"{ROOT}.{name}")]


def foreign(module: str) -> set[str]:
    """What a module imports besides itself and the standard library."""
    return {
        name for name in imports(module) if name.split(".")[0] not in sys.stdlib_module_names and name != "__future__"
    }


def test_the_layers_exist() -> None:
    assert len(layer("core")) > 10
    assert len(layer("dialects")) > 10


@pytest.mark.parametrize("module", layer("core"))
def test_core_is_pure(module: str) -> None:
    allowed = (f"{ROOT}.core", f"{ROOT}.config", "orjson")
    outside = {name for name in foreign(module) if not any(within(name, one) for one in allowed)}
    if (
        module == f"{ROOT}.core.similarity.cascade"
    ):  # works on vectors it is handed, and loads numpy for them when it is first used
        assert outside <= {"numpy"}
        assert "numpy" not in {
            alias.name for node in tree(MODULES[module]).body if isinstance(node, ast.Import) for alias in node.names
        }
    else:
        assert outside == set()


@pytest.mark.parametrize("module", layer("core"))
def test_core_has_no_clock_no_threads_and_no_network(module: str) -> None:
    names = {name.split(".")[0] for name in imports(module)}
    assert names.isdisjoint(
        {"time", "threading", "socket", "asyncio", "http", "urllib", "subprocess", "logging", "random", "datetime"}
    ) or (
        module.startswith(f"{ROOT}.core.similarity")
        and names.isdisjoint({"time", "threading", "socket", "asyncio", "http", "subprocess", "random"})
    )


def test_configuration_imports_pydantic_and_constants_of_core_only() -> None:
    allowed = (
        "pydantic",
        "yaml",
        "tomli",
        "tomllib",  # no part of Python 3.10
        f"{ROOT}.core.budget",
        f"{ROOT}.core.detectors",
        f"{ROOT}.dialects.custom",
    )  # to check what is declared
    assert {name for name in foreign(f"{ROOT}.config") if not any(within(name, one) for one in allowed)} == set()


@pytest.mark.parametrize("module", layer("dialects"))
def test_dialects_know_core_and_attribute_names_only(module: str) -> None:
    allowed = (f"{ROOT}.core", f"{ROOT}.dialects")
    assert {name for name in foreign(module) if not any(within(name, one) for one in allowed)} == set()


@pytest.mark.parametrize("module", layer("dialects"))
def test_dialects_know_neither_engine_nor_detectors(module: str) -> None:
    assert not any(
        within(name, f"{ROOT}.core.{part}") for name in imports(module) for part in ("engine", "detectors", "scoring")
    )


@pytest.mark.parametrize("module", MODULES)
def test_the_library_never_imports_the_collector(module: str) -> None:
    assert not any(within(name, "trajectory_guard_collector") for name in imports(module))


@pytest.mark.parametrize("module", [f"{ROOT}.{name}" for name in ("flags", "otlp", "telemetry")])
def test_shared_parts_know_no_framework(module: str) -> None:
    assert not any(
        name.split(".")[0] in ("langgraph", "langchain", "langchain_core", "langfuse", "opentelemetry")
        for name in imports(module)
    )


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
for name in ("core.engine", "dialects.assemble", "otlp"):
    importlib.import_module("trajectory_guard." + name)
print([name for name in sys.modules if name.split(".")[0] == "opentelemetry"])
"""
    assert run_python(code).strip() == "[]"


# --- size ----------------------------------------------------------------------------------------------------


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length in lines, docstring and decorators left out, of every function of a file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            yield node.name, (node.end_lineno or node.lineno) - body[0].lineno + 1 + (body[0].lineno > node.lineno)


@pytest.mark.parametrize("module", EVERYTHING)
def test_no_file_is_too_long(module: str) -> None:
    assert len(EVERYTHING[module].read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("module", EVERYTHING)
def test_no_function_is_too_long(module: str) -> None:
    lengths = {
        node.name: (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree(EVERYTHING[module]))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_the_median_function_is_short() -> None:
    assert statistics.median(lines for path in EVERYTHING.values() for _, lines in functions(path)) <= MAX_MEDIAN_LINES
