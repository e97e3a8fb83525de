"""Plain data in slots: saved by field name."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound="Plain")


@cache
def fields_of(kind: type) -> tuple[str, ...]:
    """Names of the attributes that the instances of a class have a slot for, its bases' first.

    A class in Python lists its own in ``__slots__``; a compiled one has them all in ``__mypyc_attrs__`` instead.
    """
    layouts = (vars(one).get("__mypyc_attrs__", vars(one).get("__slots__", ())) for one in reversed(kind.__mro__))
    return tuple(dict.fromkeys(name for names in layouts for name in names if name != "__dict__"))


def to_text(data: bytes) -> str:
    """Bytes in JSON: base64 takes two thirds of the room of hex."""
    return base64.b64encode(data).decode("ascii")


def from_text(text: str) -> bytes:
    """Restore ``to_text``.

    Raises:
        ValueError: the text is not base64.
    """
    return base64.b64decode(text, validate=True)


class Plain:
    """A value whose fields are its slots: JSON-able, tuples or bytes; made without arguments it has its defaults."""

    __slots__ = ()

    def to_plain(self) -> dict[str, Any]:
        """The fields that differ from their defaults by name, bytes in base64: in a young run these are few."""
        defaults = _defaults(type(self))  # type: ignore[arg-type]
        return {
            name: to_text(value) if type(value) is bytes else value
            for name, default in defaults.items()
            if (value := getattr(self, name)) != default
        }

    @classmethod
    def from_plain(cls: type[_Kind], data: Mapping[str, Any]) -> _Kind:
        """Restore ``to_plain``."""
        one = cls()
        for name, default in _defaults(cls).items():  # type: ignore[arg-type]
            if name in data:
                setattr(one, name, _restored(data[name], default))
        return one


def _restored(value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(value)
    return from_text(value) if isinstance(default, bytes) else value


@cache
def _defaults(kind: type[Plain]) -> dict[str, Any]:
    one = kind()
    return {name: getattr(one, name) for name in fields_of(kind)}  # type: ignore[arg-type]
