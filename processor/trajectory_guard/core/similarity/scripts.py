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
_GERMAN: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3005\u3007"
_KATAKANA: Final = "\u30a0-\u30ff\u31f0-\u31ff"
_HIRAGANA: Final = "\u3040-\u309f"
_UNSPACED: Final = re.compile(rf"[{_HAN}{_KATAKANA}{_HIRAGANA}]")
_RUN: Final = re.compile(rf"[{_HAN}]+|[{_KATAKANA}]+|[{_HIRAGANA}]+|[^{_HAN}{_KATAKANA}{_HIRAGANA}]+")
_HIRAGANA_RUN: Final = re.compile(rf"[{_HIRAGANA}]+\Z")


def has_unspaced(text: str) -> bool:
    """Whether a text holds Chinese or Japanese, which put no spaces between words."""
    return not text.isascii() and _UNSPACED.search(text) is not None


@lru_cache(maxsize=4096)
def plain(word: str) -> str:
    """A word without accents and in half-width letters; combining signs of other scripts stay.

    >>> plain("Münchner"), plain("Reykjavík"), plain("Straße"), plain("ＵＳＢ４"), plain("जयपुर") == "जयपुर"
    ('Muenchner', 'Reykjavik', 'Strasse', 'USB4', True)
    """
    if word.isascii():
        return word
    word = unicodedata.normalize("NFKC", word).translate(_GERMAN)
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", word):
        if "\u0300" <= char <= "\u036f" and kept and kept[-1].isascii():
            continue
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


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
