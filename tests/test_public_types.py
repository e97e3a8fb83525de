"""Users annotate their own code with the types that the public interface names: each can be imported."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel

import trajectory_guard
from tests import public_interface
from tests.helpers import PACKAGE

OURS: Final = "trajectory_guard"
PAGE: Final = PACKAGE.parents[1] / "docs" / "interface.md"
Place = tuple[str, str]
"""A module of ours, and a name that it defines."""
Annotation = tuple[str, str, str]
"""Where it stands, the module whose names it uses, and its text."""


def test_each_type_of_ours_that_a_signature_names_is_public() -> None:
    public = dict(public_names())
    named = {
        place: where
        for (module, name), value in public.items()
        for where, reads, text in annotations(module, name, value)
        for place in places_in(reads, text)
    }
    assert (f"{OURS}.gates.graph_gate", "NudgeRole") in named
    assert {place: where for place, where in named.items() if place not in public} == {}


def public_names() -> Iterator[tuple[Place, Any]]:
    """All names that users may import: those of the package, and those of submodules that the page names."""
    listed = re.findall(rf"`from ({OURS}\.[\w.]+) import ([\w, ]+)`", PAGE.read_text(encoding="utf-8"))
    for module, names in [(OURS, trajectory_guard.__all__), *((one, names.split(", ")) for one, names in listed)]:
        for name in names:
            place = home(module, name)
            assert place is not None, f"{module}.{name}"
            yield place, getattr(import_module(module), name)


def home(module: str, name: str) -> Place | None:
    """Where a name that a module of ours uses is defined; None if that is not in one of ours."""
    while name in imported(module):
        module, name = imported(module)[name]
        if module.split(".")[0] != OURS:
            return None
    return (module, name) if name in vars(import_module(module)) else None


@cache
def imported(module: str) -> dict[str, Place]:
    """What a module imports by name, for type checkers alone included, and where from."""
    found: dict[str, Place] = {}
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom):
            above = ".".join(module.split(".")[: -node.level]) + "." if node.level else ""
            found |= {one.asname or one.name: (f"{above}{node.module}", one.name) for one in node.names}
    return found


def places_in(module: str, text: str) -> Iterator[Place]:
    """The types of ours in an annotation; a type variable stands for the user's own."""
    for name in names_in(text):
        place = home(module, name)
        if place is not None:
            value = getattr(import_module(place[0]), place[1])
            if not (inspect.isfunction(value) or inspect.ismodule(value) or isinstance(value, TypeVar)):
                yield place


def names_in(text: str) -> set[str]:
    """The names in an annotation, those in quotes included; the words of a ``Literal`` are none.

    >>> sorted(names_in("Callable[[str], 'Flag | None'] | Literal['end']"))
    ['Callable', 'Flag', 'Literal', 'str']
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(re.sub(r"Literal\[[^]]*\]", "Literal", text) or "None", mode="eval")):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= names_in(node.value)
    return found


# --- what a public name is made of -------------------------------------------------------------------------------


def annotations(module: str, name: str, value: Any) -> Iterator[Annotation]:
    """The annotations of a public name: of parameters, results and fields, and the right side of an alias."""
    if get_origin(value) is not None:
        yield name, module, alias(module, name)
    elif inspect.isfunction(value):
        yield from of_callable(name, value, module)
    elif isinstance(value, type) and not issubclass(value, Enum):
        yield from of_class(module, name, value)


def alias(module: str, name: str) -> str:
    """The right side of an alias, as the source has it."""
    for node in ast.parse(inspect.getsource(import_module(module))).body:
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [name]:
            return ast.unparse(node.value)
    raise LookupError(f"{module}.{name}")


def of_class(module: str, name: str, kind: type[Any]) -> Iterator[Annotation]:
    """As ``annotations``, of a class: how it is made, and its public methods and properties."""
    if issubclass(kind, BaseModel):  # its fields by their values: the aliases in them are about validation
        for key, field in kind.model_fields.items():
            yield from ((f"{name}.{key}", one.__module__, one.__name__) for one in classes_in(field.annotation))
    elif issubclass(kind, dict):
        yield from texts(name, module, kind.__annotations__)
    else:
        maker = next(one for one in kind.__mro__ if {"__init__", "__new__"} & set(vars(one)))
        if maker.__module__.startswith(OURS):
            yield from of_callable(name, kind, maker.__module__)
    for method, member in public_interface.methods(kind, name) if not issubclass(kind, dict) else ():
        read = member.fget if isinstance(member, property) else member
        yield from of_callable(f"{name}.{method}", read, inspect.unwrap(read).__module__)


def classes_in(annotation: Any) -> Iterator[type[Any]]:
    """The classes of ours in a type."""
    if isinstance(annotation, type) and annotation.__module__.startswith(OURS):
        yield annotation
    for one in get_args(annotation):
        yield from classes_in(one)


def of_callable(name: str, value: Any, module: str) -> Iterator[Annotation]:
    """As ``annotations``, of one signature."""
    signature = inspect.signature(value)
    given = {one.name: one.annotation for one in signature.parameters.values()}
    yield from texts(name, module, {**given, "its result": signature.return_annotation})


def texts(name: str, module: str, given: Mapping[str, Any]) -> Iterator[Annotation]:
    """As ``annotations``, of parameters or fields."""
    for one, annotation in given.items():
        yield f"{name}: {one}", module, public_interface.annotation_text(annotation)
