"""Messages spread over dotted attributes: ``llm.output_messages.0.message.role``, ``gen_ai.completion.0.content``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_INDEX: Final = 10_000
"""Larger list positions are taken for names, not for positions."""


def unflatten(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The list under ``prefix`` (``"llm.input_messages."``), in order of position; holes are left out, and so are names
    beside the positions (``gen_ai.prompt.prompt_filter_results``).

    OpenInference's wrapper levels (``message.``, ``tool_call.``, ``message_content.``) are left out.
    """
    root: dict[str, Any] = {}
    size = len(prefix)
    for key, value in attributes.items():
        if isinstance(key, str) and key.startswith(prefix) and key[size : size + 1].isdigit():
            _set(root, key[size:].split("."), value)
    found = _lists(root)
    return found if isinstance(found, list) else []


def first_place(attributes: Mapping[str, Any], prefix: str) -> int | None:
    """The lowest position under ``prefix``; None without one."""
    size = len(prefix)
    places = {key[size:].partition(".")[0] for key in attributes if isinstance(key, str) and key.startswith(prefix)}
    return min((int(name) for name in places if _is_place(name)), default=None)


def _set(node: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = node.get(name)
        if not isinstance(inner, dict):
            inner = node[name] = {}
        node = inner
    node.setdefault(path[-1], value)


_WRAPPERS: Final = ("message", "tool_call", "message_content", "tool")


def _is_place(name: str) -> bool:
    return name.isdigit() and len(name) < 6 and int(name) < MAX_INDEX


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if next(iter(node), "").isdigit() and all(_is_place(name) for name in node):
        return [_lists(node[name]) for name in sorted(node, key=int)]
    merged: dict[str, Any] = {}
    for name, item in node.items():
        value = _lists(item) if isinstance(item, dict) else item
        if name in _WRAPPERS and isinstance(value, dict):
            merged = {**value, **merged}
        else:
            merged[name] = value
    return merged
