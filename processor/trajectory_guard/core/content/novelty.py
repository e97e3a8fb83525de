"""How much an output says that the outputs before it did not say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from trajectory_guard.core.content.masking import mask_noise
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.text_bounds import both_ends_and_digest

MAX_CHARS: Final = 8_192
_GRAM: Final = 3
_WORD: Final = re.compile(r"\w+")
_NEW_WORD: Final = 0.1
_NEW_NUMBER: Final = 0.2


class Said(NamedTuple):
    """An output in a form that can be compared and holds no text: checksums of its words and of groups of characters.

    Fields:
        grams: three characters each, volatile parts masked.
        words: words, in scripts without spaces pairs of characters; numbers: those with a digit.
    """

    grams: frozenset[int]
    words: frozenset[int]
    numbers: frozenset[int]


def said(text: str) -> Said:
    """The comparable form of an output; of a long one both ends."""
    masked = " ".join(mask_noise(both_ends_and_digest(text, MAX_CHARS)).casefold().split())
    words, numbers = set(), set()
    for word in _WORD.findall(masked):
        if any(one.isdigit() for one in word):
            numbers.add(checksum(word))
        elif word.isascii() or len(word) < _GRAM:
            words.add(checksum(word))
        else:
            words.update(checksum(word[at : at + 2]) for at in range(len(word) - 1))
    padded = f"  {masked} " if masked else ""
    grams = frozenset(checksum(padded[at : at + _GRAM]) for at in range(len(padded) - _GRAM + 1))
    return Said(grams, frozenset(words), frozenset(numbers))


def novelty(now: Said, before: Iterable[Said]) -> float:
    """How new an output is, from 0 (said before) to 1 (nothing of it was said before, or it is the first).

    The larger of two measures: the share of its characters, in groups of three, in which it differs from the output
    most like it; and 0.1 for each word, 0.2 for each number, that no output before it held. The second one keeps slow
    progress apart from standstill: a sentence more in a long draft, or the next item of a list, is something new.

    >>> novelty(said("Still looking for the policy."), [said("Still looking for the policy!")]) < 0.2
    True
    >>> novelty(said("Row 8 of 90 is done."), [said("Row 7 of 90 is done.")]) < 0.2
    False
    """
    known = list(before)
    if not known:
        return 1.0
    distance = min(_distance(now.grams, one.grams) for one in known)
    words = now.words.difference(*(one.words for one in known))
    numbers = now.numbers.difference(*(one.numbers for one in known))
    added = _NEW_WORD * len(words) + _NEW_NUMBER * len(numbers)
    return round(min(1.0, max(distance, added)), 6)


def _distance(one: frozenset[int], other: frozenset[int]) -> float:
    union = len(one | other)
    return 1.0 - len(one & other) / union if union else 0.0
