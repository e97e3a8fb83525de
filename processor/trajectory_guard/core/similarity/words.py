"""The words of a text: tokens, stems and concepts, and the role that each plays in a comparison."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from . import vocabulary as vocab
from .american import in_american
from .dates import unify_moments
from .scripts import MARKS, excluding_signs, letters_of, pieces, plain, with_usual_digits

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
    word = singular(in_american(word))
    return word if word in vocab.WHOLE else _strip_suffix(word)


def singular(word: str) -> str:
    """An English word without the ending of its plural."""
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


def parts(raw: str) -> list[str]:
    """A token cut into words: hyphenated words, amounts with a unit; ids and paths stay whole."""
    low = raw.lower()
    if low.isalpha():
        return [raw]
    if low.endswith(("n't", "n\u2019t")):
        return ["cannot" if low[:2] == "ca" else "not"]
    elided = _ELIDED.match(low)
    if elided:
        return parts(raw[elided.end() :])
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


def rewrite_phrases(words: list[str]) -> list[str]:
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
