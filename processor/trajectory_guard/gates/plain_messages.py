"""Messages of states that hold ``{"role", "content"}`` or ``(role, text)``, converted once for all decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, convert_to_messages

_MAX_KEPT: Final = 4_096
_MAX_CHARS: Final = 4_000
"""Longer content is converted each time: what is kept outlives its run."""


class _Kept(NamedTuple):
    """A message, what it held when it was converted, and the result."""

    plain: Any
    content: Any
    message: BaseMessage


class PlainMessages:
    """Converts messages, and keeps the newest results by the identity of the plain objects: 4,096 to 8,192 of them.

    A gate reads the whole history several times for one decision, and in each round. It needs no lock: threads that
    convert the same message do so to the same effect.
    """

    def __init__(self) -> None:
        self._newer: dict[int, _Kept] = {}
        self._older: dict[int, _Kept] = {}

    def converted(self, messages: Sequence[Any]) -> list[BaseMessage]:
        """``messages`` as LangChain messages.

        Raises:
            ValueError, NotImplementedError, TypeError: of ``convert_to_messages``.
        """
        return [one if isinstance(one, BaseMessage) else self._one(one) for one in messages]

    def _one(self, plain: Any) -> BaseMessage:
        key = id(plain)
        kept = self._newer.get(key)
        if kept is None and (kept := self._older.get(key)) is not None:
            self._keep(key, kept)
        if kept is not None and kept.plain is plain and kept.content == plain:
            return kept.message
        (message,) = convert_to_messages([plain])
        if isinstance(message.content, str) and len(message.content) <= _MAX_CHARS:
            self._keep(key, _Kept(plain, dict(plain) if isinstance(plain, dict) else plain, message))
        return message

    def _keep(self, key: int, kept: _Kept) -> None:
        if len(self._newer) >= _MAX_KEPT:
            self._older, self._newer = self._newer, {}
        self._newer[key] = kept
