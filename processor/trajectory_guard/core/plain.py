"""Plain data in slots: saved by field name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

_Kind = TypeVar("_Kind", bound="Plain")


class Plain:
    """A value whose fields are its slots, each JSON-able or a tuple; made without arguments it has its defaults."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def to_plain(self) -> dict[str, Any]:
        """All fields by name, JSON-able."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_plain(cls: type[_Kind], data: Mapping[str, Any]) -> _Kind:
        """Restore ``to_plain``; raises KeyError where a field is missing."""
        one = cls()
        for name in cls.__slots__:
            setattr(one, name, tuple(data[name]) if isinstance(getattr(one, name), tuple) else data[name])
        return one
