"""Requests without their courtesies: "hello", "please" and "thanks", at the edges of a text, in many languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trajectory_guard.core.wordlists import runs

from .scripts import has_unspaced, plain

_LEAST_CHARS: Final = 3
"""Characters that must be left without the courtesy: "Hola" alone is a name, or a word that is looked for."""


_BY_PLACE: Final = runs("courtesy")


def _phrases(*places: str) -> tuple[tuple[str, ...], ...]:
    """The phrases of these places as words, the longest first."""
    found = (run for name, of_name in _BY_PLACE.items() if name.partition("-")[0] in places for run in of_name)
    folded = {tuple([plain(word).lower() for word in run]) for run in found}
    return tuple(sorted(folded, key=lambda one: (-len("".join(one)), one)))


def _by_edge(phrases: Iterable[tuple[str, ...]], edge: int) -> dict[str, list[tuple[str, ...]]]:
    table: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        table.setdefault(phrase[edge], []).append(phrase)
    return table


def _unspaced(phrases: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Those of scripts without spaces, which stand at the edge of a longer word."""
    return tuple([phrase[0] for phrase in phrases if len(phrase) == 1 and has_unspaced(phrase[0])])


_AT_BEGIN: Final = _phrases("ask", "greet")
_AT_END: Final = _phrases("ask", "thank")
_BEGIN: Final = _by_edge(_AT_BEGIN, 0)
_END: Final = _by_edge(_AT_END, -1)
_UNSPACED_BEGIN: Final = _unspaced(_AT_BEGIN)
_UNSPACED_END: Final = _unspaced(_AT_END)


def without_courtesies(words: list[str]) -> list[str]:
    """The words of a text, as ``plain`` spells them, without the courtesies with which it begins and ends.

    >>> without_courtesies("Hola me podrias decir como cancelar mi suscripcion gracias".split())
    ['como', 'cancelar', 'mi', 'suscripcion']
    >>> without_courtesies(["请问怎么申请退款", "谢谢"]), without_courtesies(["Hola"])
    (['怎么申请退款'], ['Hola'])
    """
    while True:
        shorter = _shortened(words)
        if shorter is None or sum(map(len, shorter)) < _LEAST_CHARS:
            return words
        words = shorter


def _shortened(words: list[str]) -> list[str] | None:
    """The words without one courtesy; None if there is none at the edges."""
    if not words:
        return None
    first, last = words[0].lower(), words[-1].lower()
    for phrase in _BEGIN.get(first, ()):
        if _lower(words[: len(phrase)]) == phrase:
            return words[len(phrase) :]
    for phrase in _END.get(last, ()):
        if _lower(words[-len(phrase) :]) == phrase:
            return words[: -len(phrase)]
    for courtesy in _UNSPACED_BEGIN if has_unspaced(first) else ():
        if first.startswith(courtesy):
            return [words[0][len(courtesy) :], *words[1:]]
    for courtesy in _UNSPACED_END if has_unspaced(last) else ():
        if last.endswith(courtesy):
            return [*words[:-1], words[-1][: -len(courtesy)]]
    return None


def _lower(words: list[str]) -> tuple[str, ...]:
    return tuple([word.lower() for word in words])
