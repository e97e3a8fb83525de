"""Bounded tables, and a table of names that detects ambiguous ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedTable(OrderedDict[K, V]):
    """A mapping that forgets the entry set or touched longest ago when it grows beyond ``limit`` entries.

    Parameters:
        limit: entries.
        on_evicted: called with the value of each entry that is forgotten.

    >>> table = BoundedTable(2)
    >>> table["a"], table["b"] = 1, 2
    >>> table.touch("a")
    1
    >>> table["c"] = 3
    >>> list(table), table.evicted
    (['a', 'c'], 1)
    >>> table.shed()
    >>> list(table), table.evicted
    (['c'], 2)
    """

    __slots__ = ("_on_evicted", "evicted", "limit")

    def __init__(self, limit: int, *, on_evicted: Callable[[V], None] | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.evicted = 0
        self._on_evicted = on_evicted

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            self.move_to_end(key)
        super().__setitem__(key, value)
        while len(self) > self.limit:
            self.evict_oldest()

    def evict_oldest(self) -> None:
        """Forget the entry set or touched longest ago."""
        _, oldest = self.popitem(last=False)
        self.evicted += 1
        if self._on_evicted is not None:
            self._on_evicted(oldest)

    def shed(self) -> None:
        """Forget the half of the entries that was set or touched longest ago, to free memory."""
        for _ in range(len(self) // 2):
            self.evict_oldest()

    def touch(self, key: K) -> V | None:
        """The value of a key, which counts as used now; None if there is none."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]


class NameTable(Generic[K, V]):
    """Maps a name to its owner: a trace to its conversation, a thread or session id to its trajectory.

    A name with several owners, such as a trace around several conversations, is ambiguous and resolves to none from
    then on. The names learned last are kept.

    Attributes:
        find: the owner of a name, None if the name is unknown or shared.

    >>> names = NameTable(10)
    >>> names.learn("trace", "conversation"), names.find("trace")
    (True, 'conversation')
    >>> names.learn("trace", "another"), names.find("trace"), names.is_shared("trace")
    (True, None, True)
    """

    def __init__(self, limit: int) -> None:
        self._owners: BoundedTable[K, V | None] = BoundedTable(limit)
        self.find: Final[Callable[[K], V | None]] = self._owners.get  # asked several times a step: no call in between

    @property
    def limit(self) -> int:
        """Names that are kept."""
        return self._owners.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._owners.limit = limit

    def __contains__(self, name: K) -> bool:
        return name in self._owners

    def learn(self, name: K, owner: V) -> bool:
        """Map ``name`` to its owner; returns whether the mapping is new."""
        if name not in self._owners:
            self._owners[name] = owner
            return True
        known = self._owners[name]
        if known is None or known == owner:
            return False
        self._owners[name] = None
        return True

    def forget(self, name: K) -> None:
        """Remove the mapping of a name."""
        self._owners.pop(name, None)

    def is_shared(self, name: K) -> bool:
        """Whether a name has several owners."""
        return name in self._owners and self._owners[name] is None
