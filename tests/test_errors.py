"""Every exception of both packages survives a copy and the way to another process, whatever its constructor takes."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import trajectory_guard
import trajectory_guard_collector
from trajectory_guard.config import Mistake

VALUES: dict[str, Any] = {
    "payload": {"reason": "why", "types": ["TYPE_I_STUTTER"], "spent": {"steps": 2}},
    "message": "it went wrong",
    "reason": "it cannot be read",
    "advice": "set model_path",
    "source": "trace.json",
    "path": "engine.decay",
    "line": 3,
    "partial": b"begun",
    "status": "503",
    "retry_after_s": 1.5,
    "patience_s": 2.5,
    "unreadable": True,
    "divisible": True,
    "is_ambiguous": True,
    "is_of_another": True,
    "items": 7,
    "mistakes": Mistake("guard.yaml", "mode", "expected enforce"),
}
"""A value for each parameter of their constructors."""


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:  # of an extra that is not installed
            if str(error.name).startswith("trajectory_guard"):
                raise


def exceptions() -> list[type[Exception]]:
    packages = (trajectory_guard, trajectory_guard_collector)
    found = {
        one
        for package in packages
        for module in modules(package)
        for one in vars(module).values()
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == module.__name__
    }
    return sorted(found, key=lambda one: f"{one.__module__}.{one.__qualname__}")


def made(kind: type[Exception]) -> Exception:
    """An exception of this class, with every argument that it takes."""
    if not inspect.isfunction(kind.__init__):  # that of a built-in exception
        return kind("it went wrong")
    args, named = [], {}
    for name, parameter in list(inspect.signature(kind).parameters.items()):
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = VALUES[name]
        else:
            args.append(VALUES[name])
    return kind(*args, **named)


def pickled(protocol: int) -> Callable[[Exception], Exception]:
    return lambda error: pickle.loads(pickle.dumps(error, protocol))


def difference(error: Exception, again: Callable[[Exception], Exception]) -> str:
    """How a copy differs from the exception; empty if it does not."""
    try:
        other = again(error)
    except (TypeError, AttributeError) as wrong:  # of a constructor that was called with the text alone
        return repr(wrong)
    before, after = ((type(one), str(one), one.args, vars(one)) for one in (error, other))
    return "" if before == after else f"{before} became {after}"


def test_a_copy_of_an_exception_says_the_same() -> None:
    kinds = exceptions()
    assert len({kind.__module__.partition(".")[0] for kind in kinds}) == 2
    assert len(kinds) > 30
    ways = (copy.copy, copy.deepcopy, *(pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)))
    found = {}
    for kind in kinds:
        error = made(kind)
        error.noted = "by the application"  # type: ignore[attr-defined]
        for again in ways:
            if problem := difference(error, again):
                found[kind.__name__] = problem
    assert found == {}
