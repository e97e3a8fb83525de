"""British spelling, as American spelling has it."""

from __future__ import annotations

import re
from typing import Final


def in_american(word: str) -> str:
    """A word of British spelling in its American one; other words with these letters map to no word that exists.

    >>> in_american("neighbourhood"), in_american("centre"), in_american("anaemia"), in_american("hour")
    ('neighborhood', 'center', 'anemia', 'hour')
    """
    return word if _BRITISH.search(word) is None else _BRITISH.sub(_american, word)


def _american(found: re.Match[str]) -> str:
    return _AMERICAN[found[0]]


_AMERICAN: Final = {
    "our": "or", "tre": "ter", "tred": "tered", "bre": "ber", "ogue": "og", "yze": "yse", "yzi": "ysi", "ence": "ense",
    "aem": "em", "paed": "ped", "naec": "nec", "caes": "ces", "naesth": "nesth", "rchaeo": "rcheo", "oes": "es",
    "oed": "ed", "foet": "fet", "rrhoea": "rrhea",
}  # fmt: skip
_BRITISH: Final = re.compile(
    r"(?<=[a-z]{2})our(?=(?:s|ed|ing|er|ers|ful|less|able|ite|ites|al|hood|hoods)?\Z)|(?<=[a-z]{2})tred?(?=s?\Z)"
    r"|(?<=fi)bre(?=s?\Z)|(?<=cali)bre(?=s?\Z)|(?<=[aio]l)ogue(?=s?\Z)|(?<=al)yz[ei]|(?<=\bdef)ence|(?<=\boff)ence"
    r"|(?<=\blic)ence|(?<=\bpret)ence|aem(?=[io])|paed(?=i)|naec(?=ol)|caes(?=ar[ei])|naesth|rchaeo|\boes(?=oph|tr)"
    r"|\boed(?=em)|\bfoet|rrhoea"
)
"""``colour``, ``centre``, ``fibre``, ``catalogue``, ``defence``, ``analyze`` (turned into ``analyse``), and the
vowels of medicine: ``anaemia``, ``paediatric``, ``oestrogen``."""
