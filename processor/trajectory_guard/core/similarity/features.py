"""The content of a text: content words by stem and concept, and marks that must be equal (numbers, names, ids)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from . import vocabulary as vocab
from .courtesies import without_courtesies
from .scripts import excluding_signs, negating_signs, pieces, plain
from .words import ANCHOR, HARD, SOFT, STOP, analyse, parts, rewrite_phrases, singular, stem, tokens


class TextFeatures(NamedTuple):
    """The compared parts of a text. ``sequence`` holds the concepts of content words and anchors in order.

    ``negations`` counts the words that negate, ``doubtful`` those that negate in some languages or some words only.
    ``named`` holds each name with the form in which it is written: Park Avenue is no synonym of another street.
    ``bounds`` holds the kinds of bounds that figures set: ``before 2024-05-01``, ``over 500 EUR``.
    ``ending`` is the link that ends the text, as in ``what is it used for``. ``moods`` says whether something must or
    may be, will or was. ``compounds`` holds neighbours with nothing between them, not even an article.
    """

    sequence: tuple[str, ...]
    hard: frozenset[str]
    soft: frozenset[str]
    anchors: tuple[str, ...]
    names: frozenset[str]
    named: frozenset[tuple[str, str]]
    vocabulary: frozenset[str]
    negations: int
    implicit: frozenset[str]
    questions: frozenset[str]
    directions: frozenset[tuple[str, str]]
    around: frozenset[tuple[str, str, str]]
    participles: frozenset[str]
    english: bool = True
    links: frozenset[tuple[str, str]] = frozenset()
    frame: tuple[str, ...] = ()
    letters: str = ""
    doubtful: int = 0
    bounds: frozenset[str] = frozenset()
    ending: str = ""
    moods: frozenset[str] = frozenset()
    compounds: frozenset[tuple[str, str]] = frozenset()


def _starts_sentence(text: str) -> frozenset[str]:
    return frozenset(match for match in _SENTENCE_START.findall(text))


_SENTENCE_START: Final = re.compile(r"(?:^|[.!?:;\n]\s{0,8}|[\"'(]\s{0,8})([A-Z]\w*)")


def _capitalises_nouns(words: list[str], english: bool) -> bool:
    """Whether capitals say nothing here because nouns have them, as in German."""
    return not english and 3 * sum(word[:1].isupper() for word in words[1:]) >= len(words)


def is_english(text: str) -> bool:
    """Whether nothing speaks against a text being English.

    >>> is_english("opening hours of the library"), is_english("horario de la biblioteca"), is_english("図書館")
    (True, False, False)
    """
    return _is_english(text, tokens(text))


def _is_english(text: str, words: list[str]) -> bool:
    """Whether nothing speaks against English: letters beyond ASCII, or a function word of another language."""
    lows = [word.lower() for word in words]
    stops = sum(low in vocab.STOP_WORDS and low not in _ELSEWHERE for low in lows)
    others = sum(low in vocab.FUNCTION_WORDS and low not in vocab.STOP_WORDS for low in lows)
    return others <= stops and (text.isascii() or stops > 1)


_ELSEWHERE: Final = vocab.FUNCTION_WORDS | vocab.BINDING_WORDS | frozenset("aeiouy")
"""Words that prove nothing for English: ``a``, ``in``, ``no`` and ``me`` are words of other languages as well."""


@lru_cache(maxsize=256)
def features(text: str) -> TextFeatures:
    """The comparable content of ``text``."""
    found = without_courtesies([plain(raw) for raw in tokens(text)])
    spelled = [pair for raw in found for pair in pieces(raw)]
    binding = frozenset(piece for piece, binds in spelled if binds)
    words = _rewrite_measures(rewrite_phrases([piece for raw, _ in spelled for piece in parts(raw)]))
    english = _is_english(text, words)
    builder = _Builder(_starts_sentence(text), _capitalises_nouns(words, english), english)
    builder.letters = _letters(words if text.isascii() else found)
    builder.doubtful = negating_signs(text)
    builder.negations = excluding_signs(text)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word in binding:
            builder.bind(word)
        else:
            builder.take(f"{word}." if word in ("a", "A") and following.lower() in _NO_NOUN else word)
    return builder.finish()


def _letters(found: list[str]) -> str:
    """A text without the spaces and hyphens that some write and others do not, except around numbers."""
    return _SPACES.sub("", _HYPHENS.sub("", " ".join(found))).casefold()


_HYPHENS: Final = re.compile(r"(?<=[^\W\d_])(?:[-'\u2019.](?=[^\W\d_])|-(?=\d))")
_SPACES: Final = re.compile(r"(?<=\D) (?!-)|(?<=\d) (?![-\d])")


def _rewrite_measures(words: list[str]) -> list[str]:
    """Words for units of measure after a number as symbols: ``24 hours`` as ``24 h``."""
    return [_measure(word) if at and words[at - 1][-1:].isdigit() else word for at, word in enumerate(words)]


def _measure(word: str) -> str:
    return word.lower() if word in _LETTER_UNITS else vocab.MEASURES.get(word.lower(), word)


_LETTER_UNITS: Final = frozenset("VWL")
"""Volt, watt and litre: others name a part, as in "section 5 A"."""


_BINDING: Final = frozenset(plain(word).casefold() for word in vocab.BINDING_WORDS)
ASKING: Final = frozenset(plain(word).casefold() for word in vocab.FUNCTION_WORDS) - _BINDING
"""Longer function words of other languages, among them those that ask: another one may be another question."""
_NUMBERS_ELSEWHERE: Final = {plain(word).casefold(): number for word, number in vocab.NUMBERS_ELSEWHERE.items()}


def _binds(low: str) -> bool:
    """Whether a word of another language is an article, a preposition or the like; of short words, the common ones."""
    return low in _BINDING or low in ASKING or (len(low) == 1 and low in "aeiouyàéèôùиовксуя")


_NEGATES_SOMEWHERE: Final = frozenset(("no", "ne"))
"""Negations of one language that are other words of its neighbours: ``no`` in Portuguese, ``ne`` in Turkish."""
_NO_NOUN: Final = frozenset(("", "with", "to", "by", "in", "on", "and", "or", "from", "for", "of", "is", "at"))
"""Words that cannot follow an article: before one of these, "a" is a name."""


def begin_alike(word: str, other: str) -> bool:
    """Whether two words share at least their first four characters, and two thirds of the longer one."""
    if word[:_MIN_STEM] != other[:_MIN_STEM] or min(len(word), len(other)) < _MIN_STEM:
        return False
    same = next((at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two), None)
    return 3 * (same if same is not None else min(len(word), len(other))) >= 2 * min(max(len(word), len(other)), _LONG)


_ARTICLES: Final = frozenset(("the", "a", "an", "my", "your"))
_OPERATORS: Final = frozenset(("and", "or", "not", "in", "is", "to", "near"))
"""Words that are often written in capitals in queries."""
_TIMES: Final = frozenset(("future", "past"))
_CURRENCIES: Final = frozenset(vocab.UNITS.values())
_MIN_STEM: Final = 4
_LONG: Final = 9


class _Builder:
    """Collects the features of one text, word by word."""

    def __init__(self, sentence_starts: frozenset[str], title_case: bool, english: bool) -> None:
        self._starts = sentence_starts
        self._english = english
        self._title_case = title_case
        self.sequence: list[str] = []
        self.sets: dict[str, set[str]] = {
            name: set() for name in ("hard", "soft", "names", "words", "implicit", "asked", "past", "bounds", "moods")
        }
        self.anchors: list[str] = []
        self.negations = 0
        self.directions: set[tuple[str, str]] = set()
        self.named: set[tuple[str, str]] = set()
        self.around: set[tuple[str, str, str]] = set()
        self.links: set[tuple[str, str]] = set()
        self.frame: list[str] = []
        self.letters = ""
        self.doubtful = 0
        self.compounds: set[tuple[str, str]] = set()
        self._link = ""
        self._is_next = False  # nothing stands between the newest content word and the next token

    def take(self, raw: str) -> None:
        low = raw.lower().replace("\u2019", "'")
        role, name = analyse(low)
        if role == STOP and len(raw) > 1 and raw.isupper() and low not in _OPERATORS and not self._title_case:
            role = HARD  # "WHO", "IT" and "US" are names
        if role == HARD and not self._english:
            if low.isalpha():
                name = stem(low)  # "temps" is no temperature
            if low in _NUMBERS_ELSEWHERE:
                role, name = ANCHOR, _NUMBERS_ELSEWHERE[low]
            elif _binds(low) and (not raw[:1].isupper() or (len(raw) == 1 and raw in self._starts)):
                role = STOP
        self.sets["words"].add(name)
        if low not in _ARTICLES:
            self.frame.append(name)
        if not self._english and low in _NEGATES_SOMEWHERE:
            self.doubtful += 1
        elif low in vocab.NEGATIONS or low.endswith("n't"):
            self.negations += 1
        elif low in vocab.IMPLICIT_NEGATIONS:
            self.sets["implicit"].add(name)
        is_sign = len(raw) == 1 and raw.isupper() and raw not in "AI" and (self._english or raw not in self._starts)
        if role == STOP and not is_sign:
            self._take_stop(low)
        else:
            self._take_content(raw, role, name)

    def bind(self, raw: str) -> None:
        """A particle or an ending in kana: it shows a negation, and nothing else."""
        self.sets["words"].add(raw)
        self.frame.append(raw)
        self.negations += any(raw.endswith(word) for word in vocab.NEGATING_ENDINGS)

    def _take_stop(self, low: str) -> None:
        self._is_next = False
        if low in vocab.QUESTION_WORDS:
            self.sets["asked"].add(low)
        if low in vocab.MOODS:
            self.sets["moods"].add(vocab.MOODS[low])
        if not self._english:
            self._link = f"{self._link} {low}".lstrip()  # an article must not hide the preposition before it
        elif low not in _ARTICLES:
            self._link = low

    def _take_content(self, raw: str, role: int, name: str) -> None:
        if self._link:
            if self._link in vocab.DIRECTIONS:
                self.directions.add((name, self._link))
            if self.sequence and self._link not in vocab.SYMMETRIC:
                self.around.add((self.sequence[-1], self._link, name))
            if self._link in vocab.BOUNDING and (role == ANCHOR or name in _CURRENCIES):
                self.sets["bounds"].add(vocab.BOUNDING[self._link])
            self.links.add((name, self._link))
            self._link = ""
        if self._is_next:
            self.compounds.add((self.sequence[-1], name))
        self._is_next = True
        self.sequence.append(name)
        if role == ANCHOR or (len(raw) == 1 and raw.isupper()):
            self.anchors.append(name)
        elif role == SOFT:
            self.sets["soft"].add(name)
        else:
            self.sets["hard"].add(name)
        is_name = role >= HARD and self._is_name(raw)
        if role == HARD and raw.endswith("ed") and not raw.endswith("eed") and not is_name:
            self.sets["past"].add(name)
        if is_name:
            self.sets["names"].add(name)
            if role == HARD:  # a month is one in any form
                form = raw.lower().removesuffix("'s")
                self.named.add((name, singular(vocab.IRREGULAR.get(form, form))))

    def _is_name(self, raw: str) -> bool:
        if not raw[:1].isupper() or len(raw) < 2:
            return False
        return raw not in self._starts and not self._title_case

    def finish(self) -> TextFeatures:
        if self.sets["past"] and self.sets["moods"].isdisjoint(_TIMES):
            self.sets["moods"].add("past")
        sets = {name: frozenset(items) for name, items in self.sets.items()}
        return TextFeatures(
            tuple(self.sequence), sets["hard"], sets["soft"], tuple(sorted(self.anchors)), sets["names"],
            frozenset(self.named), sets["words"],
            self.negations, sets["implicit"], sets["asked"], frozenset(self.directions), frozenset(self.around),
            sets["past"], self._english, frozenset(self.links), tuple(self.frame), self.letters,
            self.doubtful, sets["bounds"], self._link if self._link in vocab.PREPOSITIONS else "",
            sets["moods"], frozenset(self.compounds),
        )  # fmt: skip
