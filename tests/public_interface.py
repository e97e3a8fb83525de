"""The public interface in words: names, signatures, fields. ``python -m tests.public_interface`` writes the file.

A change of ``tests/data/public_interface.txt`` in a review is a change for users: it belongs into ``CHANGELOG.md``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final, ForwardRef, get_origin

from pydantic import BaseModel

import trajectory_guard
from trajectory_guard import telemetry
from trajectory_guard.core import detectors

STATED: Final = Path(__file__).parent / "data" / "public_interface.txt"
METHODS: Final = {
    "Cursor": "append merge missing report text to_plain from_plain",
    "Engine": "new_state load_state observe",
    "FlagBoard": "take read observe score judge_answer raise_flag clear_flag cursor",
    "TrajectoryGuardMiddleware": "",
    "TrajectoryGuardNode": "",
    "TrajectoryGuardProcessor": "on_start on_end force_flush shutdown",
    "TrajectoryState": "to_bytes from_bytes",
    "Verdict": "certainty intervenes rule types",
    "ConfigError": "at",
    "GuardConfig": "from_env from_file from_mapping",
    "BudgetSettings": "",
    "ModelPrice": "",
    "BudgetGate": "wrap",
    "RefusalRules": "",
    "Observation": "",
    "Usage": "tokens",
    "Budget": "words",
    "BudgetStatus": "",
    "EngineSettings": "",
    "HandFlag": "why",
    "SameResultRun": "",
}
"""Methods that are public, of classes that have others for the guard's own use; of all other classes all are."""
SUBMODULES: Final[dict[ModuleType, tuple[str, ...]]] = {detectors: ("Detector", "DetectorSettings", "register")}
"""Public names of submodules that pages tell users to import from."""
_MODULE: Final = re.compile(r"\b[A-Za-z_][\w.]*\.(?=\w)")


def lines() -> Iterator[str]:
    """The interface, one line a name."""
    for name in sorted(trajectory_guard.__all__):
        yield from _stated("trajectory_guard", name, getattr(trajectory_guard, name))
    for module, names in SUBMODULES.items():
        for name in names:
            yield from _stated(module.__name__, name, getattr(module, name))
    yield f"span {telemetry.SPAN_NAME}"
    yield from (f"attribute {one.key}: {one.type}" for one in telemetry.ATTRIBUTES)
    for metric in telemetry.METRICS:
        yield f"metric {metric.name}: {metric.instrument} in {metric.unit}, by {', '.join(metric.attributes) or '-'}"


def _stated(module: str, name: str, value: Any) -> Iterator[str]:
    whole = f"{module}.{name}"
    if get_origin(value) is not None:  # an alias
        yield f"{whole} = {_MODULE.sub('', str(value))}"
    elif isinstance(value, type):
        yield from _class(whole, name, value)
    elif callable(value):
        yield f"{whole}{signature(value)}"
    else:
        yield f"{whole}: {type(value).__name__}"


def _class(whole: str, name: str, kind: type[Any]) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield f"{whole}: {', '.join(kind.__members__)}"
        return
    yield f"class {whole}{_made(kind)}"
    for one, member in methods(kind, name):
        yield f"  {whole}.{one}" if isinstance(member, property) else f"  {whole}.{one}{signature(member)}"


def methods(kind: type[Any], name: str) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, which is public under this name."""
    wanted = METHODS.get(name)
    own = {name for one in kind.__mro__ if one.__module__.startswith("trajectory_guard") for name in vars(one)}
    public = sorted(own) if wanted is None else wanted.split()
    for one in public:
        member = inspect.getattr_static(kind, one)
        if one.startswith("_") or one in getattr(kind, "_fields", ()) or type(member).__name__ == "member_descriptor":
            continue
        if isinstance(member, property):
            yield one, member
        elif callable(getattr(kind, one)):
            yield one, getattr(kind, one)


def _made(kind: type[Any]) -> str:
    """How an object is made, as far as the class says so itself."""
    if issubclass(kind, BaseModel):  # the types are those of ``config_keys``, which tests/test_types.py compares
        return f"(*, {', '.join(kind.model_fields)})"
    if issubclass(kind, dict):
        return f": {', '.join(kind.__annotations__)}"
    if issubclass(kind, BaseException) and "__init__" not in vars(kind):
        return f" of {kind.__mro__[1].__name__}"
    return signature(kind)


def signature(value: Callable[..., Any]) -> str:
    """A signature as the source has it; defaults that are no plain values are an ellipsis.

    >>> def found(text: str, /, *more: int, limit: int = 3, key: Callable[..., Any] = len) -> bool: ...
    >>> signature(found)
    '(text: str, /, *more: int, limit: int = 3, key: Callable[..., Any] = …) -> bool'
    """
    whole = inspect.signature(value)
    plain = whole.replace(
        parameters=[
            one.replace(annotation=_Text(annotation_text(one.annotation)), default=_default(one.default))
            if one.annotation is not one.empty
            else one.replace(default=_default(one.default))
            for one in whole.parameters.values()
            if one.name not in ("self", "cls")
        ],
        return_annotation=whole.empty,
    )
    returns = annotation_text(whole.return_annotation)
    shown = re.sub(r"\s+", " ", str(plain))
    return shown if isinstance(value, type) or returns == "" else f"{shown} -> {returns}"


class _Text:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.__module__ = "builtins"

    def __repr__(self) -> str:
        return self._text


def annotation_text(given: Any) -> str:
    """An annotation as the source has it."""
    if given is inspect.Parameter.empty:
        return ""
    if isinstance(given, ForwardRef):
        return given.__forward_arg__
    return given if isinstance(given, str) else getattr(given, "__name__", repr(given))


def _default(given: Any) -> Any:
    if given is inspect.Parameter.empty:
        return given
    if isinstance(given, Enum):
        return _Text(f"{type(given).__name__}.{given.name}")
    plain = given is None or type(given) in (bool, int, float, str) or given in ((), [])
    return given if plain else _Text("…")


def main() -> None:
    """Write the file."""
    STATED.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")


if __name__ == "__main__":
    main()
