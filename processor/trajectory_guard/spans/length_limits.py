"""The length limits of a sender, learned from its spans: no field of them states any.

An SDK cuts attributes off at ``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT``. The parts that are left of two results may then be
equal while the results are not. JSON that breaks off shows that it was cut; two different texts that break off at one
length show the limit. A remark behind a whole value is no sign of a cut: it may make many results equally long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.dialects.span import SpanView, with_cut_off

_LEAST_CHARS: Final = 64
_MAX_CANDIDATES: Final = 64
_MAX_LIMITS: Final = 4
_OPENING: Final = re.compile(r"\A\[{0,2}\s{0,9}\{\s{0,99}[\"']")
"""An object, in lists or not. Other text that begins with a bracket may be a line of a log."""
_CLOSING: Final = frozenset("}] \n")
_STRING: Final = re.compile(
    r"""\"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)|'[^'\\]*(?:\\(?:.|\Z)[^'\\]*)*(?:'|\Z)""", re.DOTALL
)
"""A string, or the beginning of one that breaks off."""
_BRACKET: Final = re.compile(r"[][{}]")
_NESTING: Final = {"{": 1, "[": 1, "}": -1, "]": -1}


class LengthLimits:
    """The lengths at which the texts of one sender are cut off."""

    __slots__ = ("_candidates", "_limits")

    def __init__(self) -> None:
        self._candidates: dict[int, int] = {}  # checksum of the first text of this length that broke off
        self._limits: frozenset[int] = frozenset()

    def mark(self, view: SpanView) -> SpanView:
        """The view with ``CutOff`` in place of texts as long as a limit that is known by now."""
        self._learn(view.attributes)
        for event in view.events:
            self._learn(event.attributes)
        if not self._limits:
            return view
        is_cut = self._limits.__contains__
        events = [event._replace(attributes=with_cut_off(event.attributes, is_cut)) for event in view.events]
        return view._replace(attributes=with_cut_off(view.attributes, is_cut), events=events)

    def _learn(self, attributes: Mapping[str, Any]) -> None:
        for value in attributes.values():
            if type(value) is str and value[:1] in ("{", "[") and value[-1] not in _CLOSING and _OPENING.match(value):
                self._note(value)

    def _note(self, text: str) -> None:
        chars = len(text)
        if chars < _LEAST_CHARS or chars in self._limits:
            return
        found = checksum(text)
        if self._candidates.get(chars) == found or len(self._limits) == _MAX_LIMITS or not _breaks_off(text):
            return
        if self._candidates.setdefault(chars, found) != found:
            self._limits |= {chars}
        if len(self._candidates) > _MAX_CANDIDATES:
            del self._candidates[next(iter(self._candidates))]


def _breaks_off(text: str) -> bool:
    """Whether a text that begins with a bracket ends before this bracket is closed."""
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return 0 not in accumulate(_NESTING[bracket] for bracket in brackets)
