"""No regular expression of the packages takes longer than linear time, whatever text it is given."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest

import trajectory_guard
import trajectory_guard_collector
from tests.regex_attacks import slowest

PACKAGES: Final = (trajectory_guard, trajectory_guard_collector)
RE_CALLS: Final = frozenset(("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"))
# those of the stream engine need the extra fleet; operon-ai supports Python 3.11 and later
UNREAD: Final = (
    "__main__", "fleet.admin", "fleet.engine", "fleet.flag_reader", "fleet.flag_server", "fleet.run", "fleet.score_sender",
    "fleet.stall",
    *(("integrations.a2a",) if sys.version_info < (3, 11) else ()),
)  # fmt: skip


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith(UNREAD):
                yield importlib.import_module(found.name)


def patterns_in(value: Any, name: str, owner: str, depth: int = 0) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Compiled expressions within a module's global: in containers, classes, closures, defaults, caches."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif depth > 4:
        return
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from patterns_in(item, f"{name}[{key!r}]", owner, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for place, item in enumerate(value):
            yield from patterns_in(item, f"{name}[{place}]", owner, depth + 1)
    elif isinstance(value, type) and value.__module__ == owner:
        for key, item in list(vars(value).items()):
            yield from patterns_in(item, f"{name}.{key}", owner, depth + 1)
    elif isinstance(value, (staticmethod, classmethod)):
        yield from patterns_in(value.__func__, name, owner, depth + 1)
    elif isinstance(inspect.unwrap(value) if callable(value) else value, FunctionType):
        function = inspect.unwrap(value)
        held = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        for item in (*held, function.__defaults__, function.__kwdefaults__):
            yield from patterns_in(item, name, owner, depth + 1)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def patterns_written(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Expressions handed to ``re`` within functions, which no global holds: evaluated in the module's namespace."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr in RE_CALLS):
            continue
        where = f"{module.__name__}:{node.lineno}"
        try:
            pattern = eval(compile(ast.Expression(node.args[0]), where, "eval"), dict(vars(module)))
        except NameError:
            continue  # made from arguments: what it made is found in a global, or by ``lazy``
        flags = [
            word for word in (*node.args[1:], *(word.value for word in node.keywords)) if "re." in ast.unparse(word)
        ]
        given = [eval(compile(ast.Expression(flag), where, "eval"), dict(vars(module))) for flag in flags]
        yield where, re.compile(pattern, given[0] if given else 0)


def lazy() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Expressions that functions put together."""
    from trajectory_guard.core.similarity import code

    for style in code._LINE_COMMENT:
        for unclosed in ((), ("double",), ("double", "single"), tuple(code._LONG)):
            yield f"code._token_pattern({style!r}, {unclosed})", code._token_pattern(style, frozenset(unclosed))


def every_pattern() -> dict[tuple[Any, int], tuple[str, re.Pattern[Any]]]:
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any]]] = {}
    for module in modules():
        named = [
            pair
            for name, value in list(vars(module).items())
            if not name.startswith("__")
            for pair in patterns_in(value, f"{module.__name__}.{name}", module.__name__)
        ]
        for name, pattern in (*named, *patterns_written(module)):
            found.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    for name, pattern in lazy():
        found.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    return found


@pytest.mark.slow
def test_every_regular_expression_takes_linear_time() -> None:
    found = every_pattern()
    assert len(found) > 90, "the search for expressions finds too few: is it broken?"
    slow = {name: text for name, pattern in found.values() if (text := slowest(pattern)) is not None}
    assert not slow, "\n".join(f"{name}: {text}" for name, text in slow.items())


@pytest.mark.newest
def test_functions_that_put_expressions_together_are_known() -> None:
    """``lazy`` lists what ``re.compile`` gets that is neither a literal nor in a global."""
    unknown = []
    for module in modules():
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(source)) if "import re\n" in source else ():
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                unknown += [
                    f"{module.__name__}.{function.name}"
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                    and ast.unparse(node.func) in {f"re.{name}" for name in RE_CALLS}
                    and not isinstance(node.args[0], ast.Constant)
                    and "re.escape" not in ast.unparse(node.args[0])
                ]
    assert sorted(set(unknown)) == [
        "trajectory_guard.core.content.masking._any",  # its results are globals
        "trajectory_guard.core.similarity.code._token_pattern",
        "trajectory_guard.core.wordlists.beginnings",  # its results are globals
    ]


MONTH: Final = r"(?:Jan|Feb)[a-z]*\.?\s+\d{1,2}\b(?:,?\s+(?:\d{4}\b)?)?"


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(MONTH + r"\s*\d{1,2}:\d{2}:\d{2}", id="two blanks next to each other"),
        pytest.param(r"\[\s*([\w-]+)\s*([~|^$*]?=)?\s*(?:\"([^\"]*)\"|([^\]\s]*))\s*\]", id="cubic"),
        pytest.param(r"\s*([>+~,])\s*", id="a start that matches at every blank"),
        pytest.param(
            r"\W*\d+(?:[.,]\d{1,3})*\W*[A-Za-z]{0,4}\W*|[A-Za-z' -]+", id="an optional part between two repeats"
        ),
        pytest.param(r"^[^\s@]+@[^\s@]+\.[^\s@]+$", id="a dot that both sides accept"),
        pytest.param(r"#[^\n]*|\"(?:\\.|[^\"\\\n])*\"|.", id="a quote without its partner at every place"),
        pytest.param(r"--[^\n]*|/\*.*?\*/|\S", id="a comment without an end at every place"),
        pytest.param(r"(?m)^\s*(?:def |class )", id="lines of blanks"),
        pytest.param(r"(?m)^\s{2,}\w+.*[=(]", id="a word within any text"),
        pytest.param(r"\w+ [-+]?= \w", id="a word from each of its letters"),
        pytest.param(r"\n\s*(?:You ONLY have access)", id="blank lines"),
        pytest.param(r"(\d+(?:\.\d+)?)\s*%", id="a number from each of its digits"),
        pytest.param(r"(?:a+)+$", id="exponential"),
        pytest.param(rb"x\s*\s*y", id="bytes"),
        pytest.param(
            r"(?ms)^[ \t]*Action:[ \t]*(?P<name>[^\n,]{1,100}?)[ \t]*\n[ \t]*Action Input:[ \t]*(?P<input>.*?)\n"
            r"[ \t]*Observation:(?P<seen>.*?)(?=^[ \t]*(?:Thought|Action):|\Z)",
            id="lazy repeats in a row",
        ),
    ],
)
def test_slow_expressions_are_found(pattern: Any) -> None:
    assert slowest(re.compile(pattern, re.DOTALL)) is not None


@pytest.mark.parametrize(
    "pattern", [r"\s+", r"\A\s*x", r"(?<!\d)\d+%", r"\w{1,40}@\w", r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"?"]
)
def test_linear_expressions_pass(pattern: str) -> None:
    assert slowest(re.compile(pattern)) is None
