"""Spelling and words across scripts: accents, full-width letters, and writing without spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

MARKS: Final = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09d7"
    "\u0a01-\u0a03\u0a3c-\u0a51\u0abc-\u0ad0\u0b01-\u0b57\u0b82\u0bbe-\u0bd7\u0c00-\u0c56\u0c81-\u0cd6\u0d00-\u0d57"
    "\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3\u200c\u200d"
)
"""Combining signs, as in a character class: in Indic scripts the vowels. ``\\w`` does not match them."""
_LETTERS: Final = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe"}
    | {"Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ı": "i"}
    | dict.fromkeys("\u0623\u0625\u0622\u0671", "\u0627")  # alef with hamza, with madda, wasla
    | {
        "\u0649": "\u064a",
        "\u06cc": "\u064a",
        "\u06a9": "\u0643",
        "\u0640": None,
    }  # final and Persian yeh, kaf; tatweel
)
"""Letters without a decomposition in Unicode, and their usual replacement where they cannot be typed."""
_POINTS: Final = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u064b-\u0652\u0670]")
"""Hebrew and Arabic vowel signs, which are optional."""
_OPTIONAL_MARKS: Final = re.compile("(?<=[\u0370-\u03ff])[\u0301\u0308]+|(?<=[\u0415\u0435])\u0308")
"""In the decomposed form: Greek accents, and the dots of the Cyrillic yo, which is often written as ye."""
_COMBINING: Final = re.compile(f"[{MARKS}]+")
_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3005\u3007"
_KATAKANA: Final = "\u30a0-\u30ff\u31f0-\u31ff"
_HIRAGANA: Final = "\u3040-\u309f"
_UNSPACED: Final = re.compile(rf"[{_HAN}{_KATAKANA}{_HIRAGANA}]")
_SIGN: Final = re.compile(rf"[{_HAN}{_KATAKANA}]")
_HIRAGANA_RUN: Final = re.compile(rf"[{_HIRAGANA}]+\Z")
_RUN: Final = re.compile(rf"[{_HAN}]+|[{_KATAKANA}]+|[{_HIRAGANA}]+|[^{_HAN}{_KATAKANA}{_HIRAGANA}]+")


def has_unspaced(text: str) -> bool:
    """Whether a text holds Chinese or Japanese, which put no spaces between words."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def signs(text: str) -> frozenset[str]:
    """The Chinese signs and katakana of a text, which carry its content; hiragana binds."""
    return frozenset(_SIGN.findall(text)) if has_unspaced(text) else frozenset()


_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")
_NEGATING_SIGN: Final = re.compile("[\u4e0d\u6ca1\u6c92\u65e0\u7121\u672a\u975e\u522b\u5225\u52ff\u4e0d]")


def with_usual_digits(text: str) -> str:
    """``text`` with the digits 0 to 9 in place of those of other scripts.

    >>> with_usual_digits("\u0665\u0660 km"), with_usual_digits("\u0967\u0968")
    ('50 km', '12')
    """
    return text if text.isascii() else _OTHER_DIGIT.sub(lambda found: str(unicodedata.decimal(found[0])), text)


def negating_signs(text: str) -> int:
    """How many signs of a text negate in Chinese. In a word they need not: another count is a doubt, no proof."""
    return 0 if text.isascii() else len(_NEGATING_SIGN.findall(text))


def excluding_signs(text: str) -> int:
    """How often a text uses the operator of search engines and mail that excludes: ``-has:attachment``."""
    return len(_EXCLUDING_SIGN.findall(text)) if " -" in text else 0


_EXCLUDING_SIGN: Final = re.compile(r"(?<=\s)-(?=[^\W\d_])")


@lru_cache(maxsize=4096)
def plain(word: str) -> str:
    """A word without accents and in half-width letters; combining signs of other scripts stay.

    >>> plain("Münchner"), plain("Reykjavík"), plain("Straße"), plain("ＵＳＢ４"), plain("जयपुर") == "जयपुर"
    ('Muenchner', 'Reykjavik', 'Strasse', 'USB4', True)
    >>> plain("Łódź"), plain("أخبار") == plain("اخبار"), plain("ещё") == plain("еще"), plain("чай") == "чай"
    ('Lodz', True, True, True)
    """
    if word.isascii():
        return word
    word = unicodedata.normalize("NFC", unicodedata.normalize("NFKC", word)).translate(_LETTERS)
    kept: list[str] = []
    for char in _OPTIONAL_MARKS.sub("", _POINTS.sub("", unicodedata.normalize("NFD", word))):
        if "\u0300" <= char <= "\u036f" and kept and kept[-1].isascii():
            continue
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


def letters_of(word: str) -> str:
    """A word without combining signs, so that ``len`` and ``isalpha`` say in every script what they say in Latin.

    >>> len(letters_of("की")), "की".isalpha(), letters_of("की").isalpha()
    (1, False, True)
    """
    return word if word.isascii() else _COMBINING.sub("", word)


def pieces(word: str) -> Iterator[tuple[str, bool]]:
    """A word cut where its script changes, long runs of Han characters into pairs; with each, whether it only binds.

    >>> [piece for piece, _ in pieces("Python读取文件")], list(pieces("東京の"))
    (['Python', '读取', '取文', '文件'], [('東京', False), ('の', True)])
    """
    if not has_unspaced(word):
        yield word, False
        return
    for run in _RUN.findall(word):
        if _HIRAGANA_RUN.match(run):
            yield run, True
        elif len(run) > 2 and _UNSPACED.match(run) and run[0] >= "\u3400":
            for at in range(len(run) - 1):
                yield run[at : at + 2], False
        else:
            yield run, False
