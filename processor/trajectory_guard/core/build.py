"""The compiled build: whether this is one, and what mypyc has to know of a class."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from typing import TypeVar

_Class = TypeVar("_Class")

try:
    from mypy_extensions import mypyc_attr
except ImportError:  # only the compiler reads it

    def mypyc_attr(**attributes: object) -> Callable[[_Class], _Class]:  # type: ignore[misc]
        """Return the class as it is."""
        return lambda kind: kind


def is_compiled() -> bool:
    """Whether the engine runs as machine code (``TRAJECTORY_GUARD_COMPILE=1`` when the package was built)."""
    spec = find_spec("trajectory_guard.core.engine")
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


def with_build(version: str) -> str:
    """A version as ``--version`` prints it, with the kind of build."""
    return f"{version} (compiled)" if is_compiled() else version


__all__ = ["is_compiled", "mypyc_attr", "with_build"]
