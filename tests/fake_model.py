"""Deterministic stand-ins for an embedding model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

DIM = 16


def direction(name: str) -> list[float]:
    """A vector that depends on a name only; those of two names are nearly at right angles."""
    source = random.Random(name)
    return [source.gauss(0.0, 1.0) for _ in range(DIM)]


def first_word(text: str) -> list[float]:
    """Texts mean the same if they begin with the same word; the rest moves the vector a little."""
    words = text.split() or [""]
    noise = direction(text)
    return [one + 0.1 * other for one, other in zip(direction(words[0]), noise, strict=True)]


def blind(text: str) -> list[float]:
    """A model to which all texts are nearly the same, in no useful order."""
    return [one + 0.2 * other for one, other in zip(direction(""), direction(text), strict=True)]


def knowing(pairs: Iterable[Sequence[object]]) -> Callable[[str], list[float]]:
    """A model that knows which of these texts mean the same."""
    topics: dict[str, str] = {}
    for a, b, same in pairs:
        if same:
            topics[str(b)] = topics.setdefault(str(a), str(a))
    return lambda text: direction(topics.get(text, text))
