"""Whether two answers of an agent say the same: clocks aside, and a number that is counted up by one."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.content.masking import mask_text
from trajectory_guard.core.fingerprints import text_digest

MAX_CHARS: Final = 4_000
"""Only the beginning of a longer answer is compared."""
_LEAST_WORDS: Final = 3
_DIGITS: Final = re.compile(r"\d{1,9}")
_WORD: Final = re.compile(r"[^\W\d_]+")


def says_same(before: str, after: str) -> bool:
    """Whether the later of two answers in a row says what the one before it says.

    >>> says_same("Attempt 3: I will look into it.", "Attempt 4: I will look into it.")
    True
    >>> says_same("The loss is now 17.", "The loss is now 43."), says_same("17", "18")
    (False, False)
    """
    before, after = mask_text(before[:MAX_CHARS]), mask_text(after[:MAX_CHARS])
    if before == after:
        return True
    if _template(before) != _template(after) or len(_WORD.findall(before)) < _LEAST_WORDS:
        return False
    counted = zip(_DIGITS.findall(before), _DIGITS.findall(after), strict=True)
    return all(int(new) - int(old) in (0, 1) for old, new in counted)


def digest(text: str) -> str:
    """Digest, hex, that all answers share which say the same; others may share it, too."""
    return text_digest(_template(mask_text(text[:MAX_CHARS])))


def _template(masked: str) -> str:
    return _DIGITS.sub("0", masked).casefold()
