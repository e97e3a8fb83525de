"""Texts that come back when work is handed over: each brings a fact, or one more reason to pass the work on.

A short text is work if it says something that no text before it has said. In a circle of agents each lap has new words,
too, so that words alone count only in an answer, and only where they neither negate nor send the work on. Figures and
names count everywhere: reasons have none, counters and clocks aside. Other new words prove neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.content.result_text import width
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.similarity.vocabulary import BINDING_WORDS, NEGATING_ENDINGS, NEGATIONS, STOP_WORDS
from trajectory_guard.core.steps import Delivered
from trajectory_guard.core.wordlists import groups, words

MAX_CHARS: Final = 1_000
"""Only the beginning of a longer text is read."""
_TOKEN: Final = re.compile(r"[\w.,:/%-]+")
_LETTERS: Final = (
    r"(?:[^\W\d_]|(?![\d\u0964\u0965])[\u0300-\u036f\u0900-\u0dff\u0f18-\u0fbc\u102b-\u108d\u17b4-\u17d3])+"
)
"""Letters with the marks that are written on them: vowel signs of Indic scripts, which are no letters to ``\\w``."""
_WORD: Final = re.compile(rf"{_LETTERS}(?:['’]{_LETTERS})*")
_INTEGER: Final = re.compile(r"[^\W\d]{0,2}(\d{1,6})")
_OPENING: Final = " \"'“„«(["
_ENDS: Final = ("", ".", "!", "?", ":", "\n")
"""A word behind one of these begins a sentence, so that its capital does not mark a name."""
_DIGITS: Final = re.compile(r"\d+")
_PASSING: Final = words("passing")
_SAYING_LITTLE: Final = STOP_WORDS | BINDING_WORDS | NEGATIONS | _PASSING
_UNSPACED: Final = tuple(one for one in _PASSING | NEGATIONS if width(one) > len(one))
_NOUNS_IN_CAPITALS: Final = frozenset(groups("binding")["de"]) - STOP_WORDS
"""Words of German, where a capital does not make a name."""


class Said(NamedTuple):
    """One text, as it is compared with those before it.

    Fields:
        words: casefolded; figures: words and numbers that hold a digit; names: words in capitals within a sentence.
        integers: the plain whole numbers among the figures, by figure.
        template: the text without its figures.
    """

    words: frozenset[str]
    figures: frozenset[str]
    names: frozenset[str]
    integers: dict[str, int]
    template: str


class _Fresh(NamedTuple):
    """What a text has that is new: facts, names, content words; ``counts``: a figure of any kind, be it a count."""

    facts: bool
    names: bool
    words: bool
    counts: bool


_NOTHING_FRESH: Final = _Fresh(facts=False, names=False, words=False, counts=False)


@lru_cache(maxsize=512)
def said_in(text: str) -> Said:
    """The words and figures of a text."""
    text = text[:MAX_CHARS]
    found = [(match.start(), match[0]) for match in _WORD.finditer(text)]
    folded = frozenset(word.casefold() for _, word in found)
    names: frozenset[str] = frozenset()
    if _NOUNS_IN_CAPITALS.isdisjoint(folded):
        names = frozenset(
            word.casefold()
            for at, word in found
            if len(word) > 1 and word[0].isupper() and text[:at].rstrip(_OPENING)[-1:] not in _ENDS
        )
    figures = frozenset(one.strip(".,:/-") for one in _TOKEN.findall(text) if _DIGITS.search(one))
    integers = {one: int(match[1]) for one in figures if (match := _INTEGER.fullmatch(one))}
    return Said(folded, figures, names, integers, _DIGITS.sub("0", text.strip().casefold()))


def delivered(
    answer: str, remark: str, request: str, before_request: Sequence[str], participants: Collection[str]
) -> Delivered:
    """What came back with a hand-over.

    Parameters:
        answer: what the agent answered before it handed over; empty if it handed over at once.
        remark: its words beside the hand-over.
        request: what it had been asked: words and arguments of the hand-over before this one.
        before_request: the texts before that, oldest first.
        participants: words of the names of the agents, casefolded.

    >>> delivered("Berlin has 3.7 million.", "", "", ["Population?", "Rome: 2.8 million people."], ()).name
    'RESULT'
    >>> delivered("That is a question for billing.", "", "", ["Refund me."], {"billing"}).name
    'WORDS'
    >>> delivered("Yes.", "", "Is the gate of yard B-7 open?", ["Check all the gates.", "Yes."], ()).name
    'RESULT'
    >>> delivered("Not mine.", "", "", ["Refund me.", "It is not mine."], ()).name
    'NOTHING'
    """
    participants = frozenset(participants) - STOP_WORDS - BINDING_WORDS  # of "transfer_to_billing" one word is a name
    earlier = [*before_request, request]
    said = _fresh(answer, earlier, participants)
    if said.facts or ((said.names or said.words) and not _passes_on(answer, participants)):
        return Delivered.RESULT
    beside = _fresh(remark, [*earlier, answer], participants)
    if beside.facts or (beside.names and not _passes_on(remark, participants)):
        return Delivered.RESULT
    asked = _fresh(request if answer.strip() else "", before_request, participants)
    is_question = any(mark in request for mark in "?？؟") and len(said_in(answer).words) == 1
    if asked.facts or (asked.names and not _passes_on(request, participants)) or (is_question and asked.words):
        return Delivered.RESULT
    return Delivered.WORDS if any((*said, *beside, *asked)) else Delivered.NOTHING


def states_facts(text: str, earlier: Sequence[str], participants: Collection[str]) -> bool:
    """Whether a text states a figure or a name that no text before it holds, and does not pass the work on.

    >>> states_facts("The lamp weighs 480 g.", ["Describe the lamp."], ())
    True
    >>> states_facts("Not good enough, try again.", ["Describe the lamp."], ())
    False
    """
    fresh = _fresh(text, earlier, participants)
    return fresh.facts or (fresh.names and not _passes_on(text, participants))


def says_more(args: object, known: Sequence[int], participants: Collection[str]) -> tuple[bool, tuple[int, ...]]:
    """Whether the arguments of a hand-over say what no hand-over before it said, and the memory after it.

    A figure or a name is more, and so are many new words, as those of a draft. Few may be one more way to pass the work
    on. Of a reason neither a name nor a figure counts, but for the number of another thing.

    Parameters:
        known: checksums of what was said before, the newest last; bounded by ``_KEPT_SAYINGS``.
        participants: words of the names of the agents, casefolded.

    >>> said = says_more({"task": "Check ticket T-7"}, (), ())[1]
    >>> says_more({"task": "Check ticket T-7"}, said, ())[0], says_more({"task": "Check ticket T-9"}, said, ())[0]
    (False, True)
    >>> says_more({"reason": "Somebody else should look into it"}, said, ())[0]
    False
    """
    before, said_now, more = frozenset(known), list[int](), False
    for key, text in islice(args.items(), _MAX_ARGUMENTS) if isinstance(args, dict) else ():
        if isinstance(text, str) and text:
            said, is_reason = said_in(text), str(key).casefold().replace("_", "") in _REASONS
            more = more or _adds_to(before, text, said, participants, is_reason=is_reason)
            said_now += map(checksum, (said.template, *sorted(said.figures), *sorted(said.words)))
    return more, tuple(dict.fromkeys([*known, *said_now]))[-_KEPT_SAYINGS:]


def _adds_to(before: Container[int], text: str, said: Said, participants: Collection[str], *, is_reason: bool) -> bool:
    figures = _figures_in(text, said, repeats=checksum(said.template) in before)
    if any(checksum(one) not in before for one in figures if not is_reason or _NUMBER_OF_THING.search(one)):
        return True
    content = said.words - _SAYING_LITTLE - frozenset(participants)
    words = [one for one in content if checksum(one) not in before]
    names = 0 if is_reason else len(said.names.intersection(words))
    is_draft = len(words) >= max(_MANY_WORDS, len(content) // 2)
    return names > 1 or ((is_draft or names > 0) and not _passes_on(text, participants))


_REASONS: Final = frozenset(groups("tools")["reason"])
_NUMBER_OF_THING: Final = re.compile(r"\d{3}")
_MANY_WORDS: Final = 6
_KEPT_SAYINGS: Final = 256
_MAX_ARGUMENTS: Final = 16


def _fresh(text: str, earlier: Iterable[str], participants: Collection[str]) -> _Fresh:
    """What the text has that none of the earlier ones and no participant has."""
    if not text.strip():
        return _NOTHING_FRESH
    said, before = said_in(text), [said_in(one) for one in earlier]
    known = frozenset().union(participants, *(one.words for one in before))
    figures = _figures_in(text, said, repeats=any(one.template == said.template for one in before))
    figures = figures.difference(*(one.figures for one in before))
    counted = {number + 1 for one in [one for one in before if one.integers][-3:] for number in one.integers.values()}
    facts = any(said.integers.get(one) not in counted for one in figures)
    content = said.words - known - _SAYING_LITTLE
    has_words = any(len(word) > 2 or width(word) > len(word) for word in content)
    return _Fresh(facts, bool(said.names - known), has_words, bool(figures))


def _figures_in(text: str, said: Said, *, repeats: bool) -> frozenset[str]:
    """The figures of a text; of one that repeats a sentence, without those that may be a clock."""
    return said_in(mask_text(text[:MAX_CHARS])).figures if repeats else said.figures


def _passes_on(text: str, participants: Collection[str]) -> bool:
    """Whether the text says no, or names somebody else to do it."""
    found = said_in(text).words
    if not found.isdisjoint(_PASSING) or not found.isdisjoint(NEGATIONS) or not found.isdisjoint(participants):
        return True
    return not text.isascii() and (
        any(one in text for one in _UNSPACED) or any(word.endswith(NEGATING_ENDINGS) for word in found)
    )
