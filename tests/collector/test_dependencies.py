"""``trajectory-guard[collector]`` alone installs what the collector imports, and ``[fleet]`` what the worker does."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.helpers import TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = TESTS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = ("trajectory_guard", "trajectory_guard_collector")
SHARED = {"google", "opentelemetry", "pydantic_core"}
"""Namespaces of several distributions, and what belongs to one of the others."""


def declared(*extras: str) -> set[str]:
    needed = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    return {re.match(r"[\w.-]+", one).group().lower().replace("_", "-") for one in needed}  # type: ignore[union-attr]


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def third_party(*, worker: bool) -> set[str]:
    """Packages that the collector imports, or the stream worker beside those."""
    files = [file for file in (ROOT / "collector").rglob("*.py") if ("fleet" in file.relative_to(ROOT).parts) is worker]
    tops = {name.split(".")[0] for file in files for name in imported(file)}
    return tops - {*sys.stdlib_module_names, *OWN, *SHARED}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot tell what distribution a module is of")
def test_what_is_imported_is_declared() -> None:
    modules, distributions = third_party(worker=False), packages_distributions()
    assert len(modules) > 10
    assert [
        module
        for module in sorted(modules)
        if not {name.lower().replace("_", "-") for name in distributions[module]} & declared("collector")
    ] == []


def test_what_the_stream_worker_imports_is_declared() -> None:
    modules = third_party(worker=True) - third_party(worker=False)
    assert modules
    assert {module.replace("_", "-") for module in modules} - declared("fleet") == set()
