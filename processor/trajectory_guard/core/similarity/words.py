"""The content of a text: content words by stem and concept, and marks that must be equal (numbers, names, ids)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from . import vocabulary as vocab
from .american import in_american
from .courtesies import without_courtesies
from .dates import unify_moments
from .scripts import MARKS, excluding_signs, letters_of, negating_signs, pieces, plain, with_usual_digits

STOP, SOFT, HARD, ANCHOR = range(4)
"""Role of a word in a comparison: noise, decoration, content, or a mark that must be equal."""

_TOKEN: Final = re.compile(
    r"(?<![^\s(\[$€£])-?\d+(?:[.,]\d+)*(?![.-]*\w)"  # a number, signed only if nothing stands before the sign
    rf"|[\w{MARKS}]+(?:[-'\u2019./:@_]+[\w{MARKS}]+)*(?:\+\+|\#)?"  # a word, an id, a path, an address, C++, C#
    r"|[<>]=?|[!=]=+|=|[$€£%*^~&|+]+"
)
_NUMBER: Final = re.compile(r"\Av?(-?\d+(?:[.,]\d+)*)(st|nd|rd|th)?$")
_AMOUNT: Final = re.compile(rf"\A(\d+(?:[.,]\d+)*)([a-z]{{1,3}}|€|[^\W\da-z_][^\W\da-z_{MARKS}]*[{MARKS}]*)$")
_THOUSANDS: Final = re.compile(r"\A\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_JOINED_PREFIXES: Final = frozenset(
    ["e", "re", "co", "pre", "un", "kick", "log", "sign", "check", "back", "set", "web", "multi", "sub", "anti"]
)
_VOWEL: Final = re.compile(r"[aeiouy]")


class Word(NamedTuple):
    """One token: ``role`` is STOP, SOFT, HARD or ANCHOR, ``concept`` what it is compared as."""

    role: int
    concept: str


class TextFeatures(NamedTuple):
    """The compared parts of a text. ``sequence`` holds the concepts of content words and anchors in order.

    ``negations`` counts the words that negate, ``doubtful`` those that negate in some languages or some words only.
    ``named`` holds each name with the form in which it is written: Park Avenue is no synonym of another street.
    ``bounds`` holds the kinds of bounds that figures set: ``before 2024-05-01``, ``over 500 EUR``.
    ``ending`` is the link that ends the text, as in ``what is it used for``.
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


def tokens(text: str) -> list[str]:
    """The words, numbers and meaningful symbols of ``text``; punctuation and spaces are dropped, dates unified."""
    return _TOKEN.findall(_PHONE.sub(_digits, unify_moments(with_usual_digits(text))))


_PHONE: Final = re.compile(r"(?<![\w+])\+\d(?:[\s().-]{0,3}\d){6,16}(?![\d.-])", re.ASCII)


def _digits(match: re.Match[str]) -> str:
    return "".join(char for char in match[0] if char.isdigit())


@lru_cache(maxsize=256)
def fold(text: str) -> str:
    """``text`` without case, spacing and punctuation: equal for two spellings of one text."""
    signs = "-" * excluding_signs(text)
    return " ".join([piece for token in tokens(text) for piece, _ in pieces(plain(token))]).casefold() + signs


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A light English stem: ``"reporting"``, ``"reported"`` and ``"reports"`` become one, ``"report"`` stays."""
    if word in vocab.IRREGULAR:
        return stem(vocab.IRREGULAR[word])
    if word in vocab.WHOLE or len(word) < 4 or not word.isascii():
        return word
    if word.endswith("'s"):
        return stem(word[:-2])
    word = _singular(in_american(word))
    return word if word in vocab.WHOLE else _strip_suffix(word)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


_SUFFIXES: Final = (
    ("ational", 5, "at"), ("ization", 4, "iz"), ("isation", 4, "iz"), ("ations", 4, "at"), ("ation", 4, "at"),
    ("ition", 4, "it"), ("ments", 4, ""), ("ment", 4, ""), ("ising", 4, "iz"), ("izing", 4, "iz"), ("ised", 4, "iz"),
    ("ized", 4, "iz"), ("ize", 4, "iz"), ("ise", 5, "iz"), ("ility", 5, "l"), ("ances", 5, ""), ("ance", 5, ""),
    ("tion", 4, "t"), ("sion", 4, "s"), ("ing", 3, ""), ("ated", 4, "at"), ("ate", 4, "at"), ("ied", 3, "y"),
    ("ed", 3, ""),
    ("ness", 4, ""), ("ably", 4, "abl"), ("able", 5, "abl"), ("ally", 4, "al"), ("ly", 4, ""),
    ("er", 4, ""),
)  # fmt: skip


def _strip_suffix(word: str) -> str:
    for suffix, least, repair in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= least and _VOWEL.search(word[: -len(suffix)]):
            return _finish(_restore(word[: -len(suffix)]) if suffix in ("ed", "ing") else word[: -len(suffix)] + repair)
    return _finish(word)


_SHORT_ROOT: Final = re.compile(r"[^aeiouy][aeiouy][^aeiouywx]$")


def _restore(root: str) -> str:
    """The verb of a cut participle: ``mov(ed)`` is "move", ``logg(ed)`` is "log"."""
    if len(root) == 4 and root[-1] == root[-2] and root[-1] not in "lsz":
        return root[:-1]
    return root + "e" if len(root) == 3 and _SHORT_ROOT.match(root) else root


def _finish(root: str) -> str:
    if len(root) > 4 and root[-1] == root[-2] and (root[-1] not in "lsz" or (root[-1] == "l" and len(root) > 5)):
        return root[:-1]
    root = root[:-1] if len(root) > 4 and root.endswith("e") else root
    return _DOUBLED.sub(r"\1", root) if len(root) >= _LONG_ROOT else root


_DOUBLED: Final = re.compile(r"([b-df-hj-np-tv-z])\1")
_LONG_ROOT: Final = 8
"""From this length on, a doubled consonant distinguishes no two words and is often misspelled: ``accommodation``."""


_CONCEPTS: Final = {stem(word): stem(head) for head, others in vocab.SYNONYMS.items() for word in others}


def concept(word: str) -> str:
    """The stem of ``word``, or the head of its group of synonyms."""
    root = stem(word)
    return _CONCEPTS.get(root, root)


GENERIC: Final = frozenset(concept(word) for word in vocab.GENERIC_WORDS)


@lru_cache(maxsize=4096)
def analyse(low: str) -> Word:
    """Role and concept of one token in lower case."""
    if low in vocab.ORDINALS:
        return Word(ANCHOR, vocab.ORDINALS[low])
    if low in vocab.NUMBER_WORDS and low != "one":
        return Word(ANCHOR, vocab.NUMBER_WORDS[low])
    if low in vocab.CALENDAR or (low[-1:] == "s" and low[:-1] in vocab.CALENDAR):
        return Word(ANCHOR, vocab.CALENDAR.get(low) or vocab.CALENDAR[low[:-1]])
    if low in vocab.UNITS:
        return Word(HARD, vocab.UNITS[low])
    if low in vocab.STOP_WORDS or low in vocab.NEGATIONS:
        return Word(STOP, stem(low))
    if low in vocab.SOFT_WORDS:
        return Word(SOFT, concept(low))
    if low.isalpha():
        return Word(HARD, concept(low))
    return _analyse_odd(low)


def _analyse_odd(low: str) -> Word:
    number = _NUMBER.match(low)
    if number:
        return Word(ANCHOR, "#" + number[1] if number[2] else plain_number(number[1]))
    if low.endswith(("'s", "\u2019s")) and low[:-2].isalpha():
        return Word(*analyse(low[:-2]))
    letters = low.replace("'", "").replace("\u2019", "").replace("-", "")
    if letters_of(letters).isalpha():
        return Word(HARD, concept(letters))
    if _INITIALS.match(low):
        return Word(HARD, low.replace(".", ""))
    return Word(ANCHOR, low) if any(char.isalnum() for char in low) else Word(HARD, low)


_INITIALS: Final = re.compile(r"\A(?:[^\W\d_]\.)+[^\W\d_]\.?\Z")
"""``J.R.R`` and ``u.s``: letters that stand for words."""


def plain_number(text: str) -> str:
    """``"1,000"`` and ``"1000.0"`` as ``"1000"``; other text as it is."""
    if _THOUSANDS.match(text):
        text = text.replace(",", "")
    if "." in text and text.count(".") == 1 and "," not in text:
        text = text.rstrip("0").rstrip(".")
    return text


def _pieces(raw: str) -> list[str]:
    """A token cut into words: hyphenated words, amounts with a unit; ids and paths stay whole."""
    low = raw.lower()
    if low.isalpha():
        return [raw]
    if low.endswith(("n't", "n\u2019t")):
        return ["cannot" if low[:2] == "ca" else "not"]
    elided = _ELIDED.match(low)
    if elided:
        return _pieces(raw[elided.end() :])
    suffixed = _SUFFIXED.match(raw)
    if suffixed:
        return [suffixed[1]]
    if _THOUSAND.match(low):
        return [f"{low[:-1]}000"]
    amount = _AMOUNT.match(low)
    if amount and amount[2] not in ("st", "nd", "rd", "th"):
        return [amount[1], amount[2]]
    counted = _COUNTED.match(raw)
    if counted:
        return [counted[1], counted[2]]
    if "-" in raw and low.replace("-", "").replace("'", "").isalpha():
        first, *rest = raw.split("-")
        if first.lower() in _JOINED_PREFIXES:
            return [raw.replace("-", "")]
        return [first, *rest]
    if "/" in raw and low.replace("/", "").isalpha() and raw.count("/") == 1:
        return raw.split("/")
    return [raw.rstrip(".:") or raw]


_COUNTED: Final = re.compile(r"\A(\d{1,3})-([^\W\d_]{4,20})\Z")
"""``2-bedroom``: a number and a word, not an id."""
_THOUSAND: Final = re.compile(r"\A\d{1,3}k\Z", re.ASCII)
_ELIDED: Final = re.compile(r"(?:[cdjlmnst]|qu|un|(?:a|da|de|ne|su)ll)['\u2019](?=[^\W\d_]{2})")
"""French and Italian articles and pronouns before a vowel: ``l'eau``, ``dell'acqua``."""
_SUFFIXED: Final = re.compile(r"\A([^\W\d_a-z][^\W\d_]{1,40})['\u2019](?!(?:s|t|d|m|ll|re|ve)\Z)[^\W\d_A-Z]{1,5}\Z")
"""A Turkish name and its case: ``Trabzon'da``."""


def _rewrite_phrases(words: list[str]) -> list[str]:
    """Fixed expressions replaced by the word they stand for; capitals of other words stay."""
    result: list[str] = []
    position = 0
    while position < len(words):
        for length in _PHRASE_LENGTHS.get(words[position].lower(), ()):
            found = vocab.PHRASES.get(tuple(word.lower() for word in words[position : position + length]))
            if found is not None:
                result.extend(found)
                position += length
                break
        else:
            result.append(words[position])
            position += 1
    return result


def _phrase_lengths() -> dict[str, tuple[int, ...]]:
    table: dict[str, set[int]] = {}
    for phrase in vocab.PHRASES:
        table.setdefault(phrase[0], set()).add(len(phrase))
    return {first: tuple(sorted(lengths, reverse=True)) for first, lengths in table.items()}


_PHRASE_LENGTHS: Final = _phrase_lengths()


def _starts_sentence(text: str) -> frozenset[str]:
    return frozenset(match for match in _SENTENCE_START.findall(text))


_SENTENCE_START: Final = re.compile(r"(?:^|[.!?:;\n]\s{0,8}|[\"'(]\s{0,8})([A-Z]\w*)")


def _is_title_case(words: list[str]) -> bool:
    """Whether capitals say nothing here, as in "How To Reset The Password" or in shouted text."""
    if len(words) < 3:
        return False
    capitals = [word for word in words if word[:1].isupper()]
    return (
        len(capitals) > 2
        and len(capitals) >= 0.75 * len(words)
        and any(word.lower() in vocab.STOP_WORDS for word in capitals[1:])
    )


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
    words = _rewrite_measures(_rewrite_phrases([piece for raw, _ in spelled for piece in _pieces(raw)]))
    english = _is_english(text, words)
    builder = _Builder(_starts_sentence(text), _is_title_case(words) or _capitalises_nouns(words, english), english)
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
            name: set() for name in ("hard", "soft", "names", "words", "implicit", "asked", "past", "bounds")
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
        self._link = ""

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
        if low in vocab.QUESTION_WORDS:
            self.sets["asked"].add(low)
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
        self.sequence.append(name)
        if role == ANCHOR or (len(raw) == 1 and raw.isupper()):
            self.anchors.append(name)
        elif role == SOFT:
            self.sets["soft"].add(name)
        else:
            self.sets["hard"].add(name)
        is_name = role >= HARD and self._is_name(raw)
        if role == HARD and raw.endswith("ed") and not is_name:
            self.sets["past"].add(name)
        if is_name:
            self.sets["names"].add(name)
            if role == HARD:  # a month is one in any form
                form = raw.lower().removesuffix("'s")
                self.named.add((name, _singular(vocab.IRREGULAR.get(form, form))))

    def _is_name(self, raw: str) -> bool:
        if not raw[:1].isupper() or len(raw) < 2:
            return False
        return raw not in self._starts and not self._title_case

    def finish(self) -> TextFeatures:
        sets = {name: frozenset(items) for name, items in self.sets.items()}
        return TextFeatures(
            tuple(self.sequence), sets["hard"], sets["soft"], tuple(sorted(self.anchors)), sets["names"],
            frozenset(self.named), sets["words"],
            self.negations, sets["implicit"], sets["asked"], frozenset(self.directions), frozenset(self.around),
            sets["past"], self._english, frozenset(self.links), tuple(self.frame), self.letters,
            self.doubtful, sets["bounds"], self._link if self._link in vocab.HEADED else "",
        )  # fmt: skip
