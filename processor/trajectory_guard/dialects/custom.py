"""A dialect declared in configuration: attribute names only, no code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trajectory_guard.dialects.base import Dialect, Identity, Keys, named_by
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable

_NAMES: Final = ("tool_name", "arguments", "result", "call_id", "agent", "conversation")
_KEYS: Final = ("name", "match", *_NAMES)
_EXAMPLE: Final = '{"name": "acme", "match": {"acme.kind": "tool"}, "tool_name": "acme.tool"}'


def custom_dialect(mapping: Mapping[str, Any], *, where: str = "dialect") -> Dialect:
    """A row for the table from a plain mapping.

    Parameters:
        mapping: ``name`` (reported with every step) and ``match`` (attribute name to the value it must have, or to
            true: present and not false; all must hold) are required. ``tool_name``, ``arguments``, ``result``,
            ``call_id``, ``agent`` and ``conversation`` are names of attributes, each one name or a list of names tried
            in order. Without ``tool_name`` the span's name is the tool; what else is left out is looked for under the
            common names.
        where: how errors name the mapping.

    Raises:
        ValueError: the mapping cannot be used; the message names key and value.

    >>> acme = custom_dialect({"name": "acme", "match": {"acme.kind": "tool"}, "tool_name": "acme.tool"})
    >>> acme.tool_name(SpanView("span", {"acme.kind": "tool", "acme.tool": "search"}, "t", "s"))
    'search'
    """
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{where}: expected a mapping such as {_EXAMPLE}, got {mapping!r}")
    _refuse_unknown(mapping, where)
    name = mapping.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{where}.name: expected a short name, got {name!r}")
    match = _match(mapping.get("match"), where)
    keys = {key: _attributes(mapping.get(key), f"{where}.{key}") for key in _NAMES}
    return Dialect(
        name=name.strip(),
        matches=_matcher(match),
        markers=tuple(match),
        tool_name=named_by(*keys["tool_name"]),
        arguments=keys["arguments"],
        results=keys["result"],
        call_ids=keys["call_id"],
        identity=Identity(agents=keys["agent"], conversations=keys["conversation"]),
        declared=True,
    )


def _refuse_unknown(mapping: Mapping[str, Any], where: str) -> None:
    for key in mapping:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_KEYS)}"
            raise ValueError(f"{where}: unknown key {key!r}; {hint}")


def _match(match: Any, where: str) -> dict[str, Any]:
    if not isinstance(match, Mapping) or not match:
        raise ValueError(
            f'{where}.match: expected at least one attribute, as in {{"acme.kind": "tool"}}, got {match!r}'
        )
    for key, value in match.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"{where}.match: attribute names are text, got {key!r}")
        if value is False or not isinstance(value, (str, bool, int, float)):
            raise ValueError(f"{where}.match.{key}: expected a value or true, got {value!r}")
    return dict(match)


def _attributes(value: Any, where: str) -> Keys:
    if value is None:
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(one, str) and one for one in names):
        raise ValueError(f"{where}: expected an attribute name, got {value!r}")
    return tuple(names)


def _matcher(match: Mapping[str, Any]) -> Callable[[SpanView], bool]:
    wanted = tuple(match.items())

    def matches(span: SpanView) -> bool:
        attributes = span.attributes
        for key, value in wanted:
            found = attributes.get(key)
            if found is None or found is False or (value is not True and found != value):
                return False
        return True

    return matches


def table_with(declared: Iterable[Mapping[str, Any]]) -> DialectTable:
    """The table with declared dialects before the built-in ones; the built-in table itself if there are none."""
    rows = tuple(custom_dialect(mapping, where=f"dialects[{index}]") for index, mapping in enumerate(declared))
    return DialectTable((*rows, *DIALECTS)) if rows else DIALECTS
