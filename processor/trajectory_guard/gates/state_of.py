"""The state that an application supplies beside the messages: a page, a board, an accessibility tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from trajectory_guard.containment import contain
from trajectory_guard.core.fingerprints import canonical_bytes, digest64
from trajectory_guard.core.masking import state_hash
from trajectory_guard.store import FlagBoard

StateOf = Callable[[Any], Any]
"""From the graph state to the state of the world after the tool calls: text, bytes or a JSON value; None if unknown."""


def read_state(state_of: StateOf, graph_state: Any, board: FlagBoard) -> str | None:
    """Fingerprint of the state that ``state_of`` supplies; None if it knows none, or fails.

    Errors are counted on the board, and the first of them is logged.
    """
    try:
        return fingerprint(state_of(graph_state))
    except Exception:  # noqa: BLE001  the application's own function must not end its run
        contain(board.counts, "state_of", "state_of failed; the steps are evaluated without it")
        return None


def fingerprint(value: Any) -> str | None:
    """Fingerprint of a supplied state, volatile parts masked; None for None.

    JSON as text, as bytes and as a value is alike. Bytes that hold no text are compared as they are.

    Raises:
        TypeError: the value is none of these.

    >>> fingerprint({"url": "/cart", "updated_at": 17}) == fingerprint(b'{"updated_at": 18, "url": "/cart"}')
    True
    """
    if value is None:
        return None
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("state_of must be a plain function: it returned an awaitable")
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return digest64(value).hex()
    if isinstance(value, str):
        return state_hash(value)
    if not isinstance(value, (dict, list, tuple, int, float, bool)):
        raise TypeError(f"state_of must return text, bytes, a JSON value or None, got {type(value).__name__}")
    return state_hash(canonical_bytes(value).decode("utf-8", "replace"))
