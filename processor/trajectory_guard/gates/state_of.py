"""What a graph state holds beside the messages: what the application supplies of it, and a sketch of the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.content.masking import state_hash
from trajectory_guard.core.fingerprints import canonical_bytes, digest64, text_digest
from trajectory_guard.process.containment import contain

_MAX_SKETCHED: Final = 64
_MAX_CHARS: Final = 256
_NEWEST: Final = 2
_STEPS_LEFT: Final = frozenset({"remaining_steps", "is_last_step"})
"""Keys of LangGraph's own that change at every step."""
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


def sketch(state: Any, left_out: Collection[str]) -> str:
    """Digest of sizes, ends and newest parts of what a graph state holds, at a cost that its size does not change.

    >>> before = sketch({"todo": ["a", "b"], "messages": [1]}, {"messages"})
    >>> before == sketch({"todo": ["a", "b"], "messages": [1, 2]}, {"messages"}), before == sketch({"todo": ["a"]}, ())
    (True, False)
    """
    held = state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    kept = [(key, value) for key, value in islice(held.items(), _MAX_SKETCHED) if key not in left_out]
    return text_digest(repr([(key, _sketched(value, 2)) for key, value in kept if key not in _STEPS_LEFT]))


def _sketched(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, bytes)):
        return len(value), value[:_MAX_CHARS], value[-_MAX_CHARS:]
    if depth and isinstance(value, Mapping):
        newest = islice(reversed(value), _NEWEST) if isinstance(value, dict) else ()
        return len(value), [(str(key)[:_MAX_CHARS], _sketched(value[key], depth - 1)) for key in newest]
    if depth and isinstance(value, Sequence):
        return len(value), [_sketched(one, depth - 1) for one in value[-_NEWEST:]]
    if depth and hasattr(value, "__dict__"):
        return type(value).__name__, _sketched(value.__dict__, depth - 1)
    return type(value).__name__, len(value) if hasattr(value, "__len__") else 0
