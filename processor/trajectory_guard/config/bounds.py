"""Bounds what a few bytes of a configuration file can grow to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_VALUES: Final = 100_000
"""Values a configuration file may hold, each alias of YAML counted as what it stands for."""
NESTED: Final = "nested too deeply"


def _inner_values(value: Any) -> Iterable[Any] | None:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else None


def bounded(value: Any, inner: Callable[[Any], Iterable[Any] | None] = _inner_values) -> Any:
    """``value``, unless it contains itself or more than ``MAX_VALUES`` values: a few aliases of YAML make billions.

    Parameters:
        inner: the values within one, None if it has none.

    Raises:
        ValueError: it does.
    """
    sizes: dict[int, int] = {}

    def size(one: Any) -> int:
        within = inner(one)
        if within is None:
            return 1
        known = sizes.get(id(one))
        if known is None:
            sizes[id(one)] = 0  # being counted
            known = sizes[id(one)] = 1 + sum(map(size, within))
        if known == 0:
            raise ValueError("a value contains itself")
        if known > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values, aliases counted as what they stand for")
        return known

    size(value)
    return value
