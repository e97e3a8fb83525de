"""Callbacks for forked children, which must renew locks: no thread there will release those held at the fork."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, cast

_owners: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], object]]] = weakref.WeakKeyDictionary()


def after_fork(method: Callable[[], object]) -> None:
    """Have a bound method called in forked children, as long as its object lives; one method an object."""
    bound = cast(MethodType, method)
    _owners[bound.__self__] = bound.__func__


def now_and_after_fork(method: Callable[[], object]) -> None:
    """Call a bound method, and have it called in forked children, as long as its object lives."""
    method()
    after_fork(method)


def _in_child() -> None:
    for owner, method in list(_owners.items()):
        method(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
