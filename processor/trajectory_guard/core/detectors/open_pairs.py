"""Pairs of calls of which the comparator leaves open whether they mean the same: how much such a pair counts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from trajectory_guard.core.content.result_text import width
from trajectory_guard.core.similarity import NormalForm
from trajectory_guard.core.similarity.keys import is_position
from trajectory_guard.core.similarity.leaves import COMMAND, TEXT, WORD, Leaf
from trajectory_guard.core.similarity.shell import seeks_the_same
from trajectory_guard.core.similarity.texts import quotes_another
from trajectory_guard.core.similarity.vocabulary import FUNCTION_WORDS, STOP_WORDS
from trajectory_guard.core.steps import EMPTY, ERROR
from trajectory_guard.core.text import shared_start

MAX_QUERY_CHARS: Final = 120
MAX_QUERY_WORDS: Final = 16
_IDENTIFIER: Final = re.compile(r"\d|_|[a-z][./:@#][a-z]|[A-Z][A-Z]")
OPEN: Final = 0.5
_OPEN_NAMES: Final = 0.25
_MIN_STEM_CHARS: Final = 4


def _is_query(form: NormalForm) -> bool:
    """Short enough to be what is looked for, not something that is handed over, and more than one name."""
    return 0 < len(form.text) <= MAX_QUERY_CHARS and _reads_as_query(form.text, form.leaves[0].kind == TEXT)


@lru_cache(maxsize=256)
def _reads_as_query(text: str, is_text: bool) -> bool:
    if "\n" in text:
        return False
    words = text.split()
    return len(words) <= MAX_QUERY_WORDS and (len(words) > 1 or not text.isascii() or is_text)


@lru_cache(maxsize=256)
def _identifiers(text: str) -> frozenset[str]:
    """Numbers, identifiers and codes that a query names: another one is another thing to look for."""
    return frozenset(word.strip(".,;:!?'\"()").lower() for word in text.split() if _IDENTIFIER.search(word))


@lru_cache(maxsize=256)
def _capitalised(text: str) -> frozenset[str]:
    """Words that may be names."""
    return frozenset(word.strip(".,;:!?'\"()").lower() for word in text.split() if word[:1].isupper())


@lru_cache(maxsize=256)
def _grams(text: str) -> frozenset[str]:
    """Features that two wordings of one request share in any script: beginnings of words, or pairs of characters."""
    found = set()
    for word in text.casefold().split():
        if word.isascii() or (word[0].isalpha() and width(word) == len(word)):
            if len(word) >= _MIN_STEM_CHARS:
                found.add(word[:_MIN_STEM_CHARS])
        else:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
    return frozenset(found)


def _are_akin(text: str, other: str) -> bool:
    """Whether two wordings share most of what the shorter one says, in any script."""
    grams, others = _grams(text), _grams(other)
    return bool(grams and others) and 2 * len(grams & others) >= min(len(grams), len(others))


def share_content(text: str, other: str) -> bool:
    """Whether two wordings have more in common than words that bind."""
    return not (_grams(text) & _grams(other)) <= _BINDING_GRAMS


_BINDING_GRAMS: Final = frozenset(word[:_MIN_STEM_CHARS] for word in STOP_WORDS | FUNCTION_WORDS)


def _is_slot_swap(text: str, other: str) -> bool:
    """Whether one word, or in scripts without spaces one part, is replaced: the next item of a list of look-ups."""
    if quotes_another(text, other):
        return True
    words, others = text.casefold().split(), other.casefold().split()
    if len(words) > 1 and len(others) > 1:
        return len(words) == len(others) and sum([one != two for one, two in zip(words, others, strict=True)]) == 1
    start = shared_start(text, other)
    end = shared_start(text[start:][::-1], other[start:][::-1])
    short = min(len(text), len(other))
    return start + end < short and 2 * (start + end) >= short


def overlap(form: NormalForm, other: NormalForm | None) -> bool:
    """Whether two wordings have a word, or in scripts without spaces a pair of characters, in common."""
    return other is not None and not _grams(form.text).isdisjoint(_grams(other.text))


def same_names(form: NormalForm, other: NormalForm | None) -> bool:
    """Whether two calls name the same numbers and names."""
    if other is None or form.keys != other.keys or not _same_values_elsewhere(form, other):
        return False
    text, before = form.text, other.text
    return _identifiers(text) == _identifiers(before) and _capitalised(text) == _capitalised(before)


def _same_values_elsewhere(form: NormalForm, other: NormalForm) -> bool:
    """Whether two calls differ in worded values only."""
    return not [1 for pair in _differing(form, other) for leaf in pair if leaf.kind not in (TEXT, WORD)]


def _differing(form: NormalForm, other: NormalForm) -> list[tuple[Leaf, Leaf]]:
    """The leaves in which two forms of equal keys differ."""
    return [pair for pair in zip(form.leaves, other.leaves, strict=True) if pair[0] != pair[1]]


def _commands_seek_the_same(form: NormalForm, other: NormalForm) -> bool:
    """Whether two calls differ in commands only, which look for the same thing."""
    if form.keys != other.keys:
        return False
    differing = _differing(form, other)
    return bool(differing) and all(
        one.value.startswith(COMMAND) and two.value.startswith(COMMAND) and seeks_the_same(one.value, two.value)
        for one, two in differing
    )


def _is_paging(form: NormalForm, other: NormalForm) -> bool:
    """Whether two calls differ in the position in a list only: behind its end every page is empty."""
    if form.keys != other.keys:
        return False
    differing = _differing(form, other)
    return bool(differing) and all(is_position(leaf.key.rpartition(".")[2]) for leaf, _ in differing)


class Answer(NamedTuple):
    """The properties of an answer that the weight of an open pair depends on.

    Fields:
        outcome: that of the step.
        silent: a command printed nothing, which does not mean that nothing was found.
        echoes: the result quotes a value of the request.
        tells: a success shows a state, or is a value, and so an answer.
    """

    outcome: str
    silent: bool
    echoes: bool
    tells: bool


@lru_cache(maxsize=256)
def doubt_of(form: NormalForm, before: NormalForm, answer: Answer, is_open: bool) -> float:
    """How much an open pair counts: short queries for something that keeps coming back with one short result.

    Parameters:
        is_open: the comparator leaves it open whether the two mean the same.
    """
    if answer.outcome == EMPTY and _commands_seek_the_same(form, before):
        return _OPEN_NAMES
    if answer.silent:
        return 0.0
    found_nothing = answer.outcome in (EMPTY, ERROR)
    if found_nothing and _is_paging(form, before):
        return OPEN
    known = OPEN if is_open else 0.0
    if form.keys != before.keys or not _same_values_elsewhere(form, before):
        return known
    text, other = form.text, before.text
    if not (_is_query(form) and _is_query(before)):
        return known
    if answer.tells and not answer.echoes:
        return known
    if is_open:
        return OPEN
    if not _is_slot_swap(text, other) and _are_akin(text, other) and _identifiers(text) == _identifiers(other):
        return OPEN
    if not found_nothing and (answer.echoes or not share_content(text, other)):
        return known
    names, others = _identifiers(text), _identifiers(other)
    if names != others:
        return _OPEN_NAMES if names < others or others < names else known
    if _capitalised(text) == _capitalised(other):
        return OPEN
    return _OPEN_NAMES if overlap(form, before) else 0.0  # names that share nothing: a list of look-ups
