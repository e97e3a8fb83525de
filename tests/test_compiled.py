"""The compiled build (``make test-compiled`` runs the engine's tests on it) and the list of what it leaves as Python."""

from __future__ import annotations

import ast
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from trajectory_guard import __version__
from trajectory_guard.core import engine
from trajectory_guard.core.build import is_compiled, mypyc_attr, with_build

HOOK = Path(__file__).parent.parent / "hatch_build.py"


def constants() -> dict[str, object]:
    """The lists in the build hook, which cannot be imported without hatchling."""
    found = {}
    for node in ast.parse(HOOK.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
            found[node.targets[0].id] = value.value if isinstance(value, ast.Constant) else ast.literal_eval(value)
    return found


def test_modules_that_stay_python_exist() -> None:
    lists = constants()
    root = HOOK.parent / str(lists["ROOT"])
    assert all((root / name).is_dir() for name in lists["COMPILED"])  # type: ignore[attr-defined]
    assert [name for name in lists["INTERPRETED"] if not (root / name).is_file()] == []  # type: ignore[attr-defined]


def test_class_bodies_assign_one_name_at_a_time_as_mypyc_demands() -> None:
    lists = constants()
    root = HOOK.parent / str(lists["ROOT"])
    found = [
        f"{path.relative_to(root)}:{statement.lineno}"
        for folder in lists["COMPILED"]  # type: ignore[attr-defined]
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign) and len(statement.targets) > 1
    ]
    assert found == []


def test_the_kind_of_build_is_that_of_the_engine() -> None:
    assert engine.__spec__ is not None
    assert is_compiled() == isinstance(engine.__spec__.loader, ExtensionFileLoader)
    assert with_build(__version__) == (f"{__version__} (compiled)" if is_compiled() else __version__)


def test_the_version_names_a_compiled_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_guard.core.build.is_compiled", lambda: True)
    assert with_build("1.2") == "1.2 (compiled)"


def test_what_mypyc_reads_leaves_a_class_as_it_is() -> None:
    class Plain:
        pass

    assert mypyc_attr(allow_interpreted_subclasses=True)(Plain) is Plain
