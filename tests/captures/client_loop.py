"""A loop of an application around a client of a model: the scripted answers, the tools, and their results as messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.captures.model_server import Answer

ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "list_files", {"path": "/tmp"}), ("call_5", "read_config", {"path": "/etc/app.yaml"})],
    "first answer",
]
RESULTS = {"search_orders": '{"orders": ["A-1 for Zoë"]}', "list_files": "[]", "read_config": "Error: no such file"}


def functions(names: Iterable[str] = RESULTS) -> list[Any]:
    """Tools as chat completions take them."""
    return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]


def results_of(calls: Iterable[Any] | None) -> list[dict[str, Any]]:
    """The messages that answer the calls of a chat completion."""
    return [{"role": "tool", "tool_call_id": call.id, "content": RESULTS[call.function.name]} for call in calls or ()]
