"""What has to happen in a forked child: locks that other threads of the parent held are held by nobody there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final

_methods: Final[set[weakref.WeakMethod[Callable[[], object]]]] = set()


def after_fork(method: Callable[[], object]) -> None:
    """Have a bound method called in forked children, as long as its object lives."""
    _methods.add(weakref.WeakMethod(method, _methods.discard))


def now_and_after_fork(method: Callable[[], object]) -> None:
    """Call a bound method, and have it called in forked children, as long as its object lives."""
    method()
    after_fork(method)


def _in_child() -> None:
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
