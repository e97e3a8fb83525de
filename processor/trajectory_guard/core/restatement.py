"""Results that only restate the call: "Scrolled down the page by one page"."""

from __future__ import annotations

import re
from typing import Any, Final

from trajectory_guard.core.result_text import MAX_FORM_CHARS, WORD, values_of
from trajectory_guard.core.text import text_of
from trajectory_guard.core.wordlists import words


def restates(text: str, tool: str, args: Any) -> bool:
    """Whether a result says nothing but what the call says: its words are those of the tool's name and the arguments.

    Up to three letters may be any word; a negation, and a figure that the call does not hold, say something.

    >>> restates("Scrolled down the page by one page", "scroll", {"down": True, "num_pages": 1.0})
    True
    >>> restates("Page not scrolled", "scroll_page", {}), restates("Oslo weather: 14", "weather", {"city": "Oslo"})
    (False, False)
    """
    if len(text) > _RESTATED_CHARS:
        return False
    names = " ".join(map(text_of, (tool, *args) if isinstance(args, dict) else (tool,)))
    call = " ".join((*_PARTS_OF_NAME.sub(" ", names).split(), *values_of(args)))
    called = set(WORD.findall(call.casefold()[: 2 * MAX_FORM_CHARS].replace("_", " ")))
    said = [word for word in WORD.findall(text.casefold()) if any(map(str.isalnum, word))]
    if not _NEGATIONS.isdisjoint(said):
        return False
    informative = [word for word in said if len(word) >= _LEAST_WORD_CHARS or any(map(str.isdigit, word))]
    return bool(informative) and all(word in called or _is_form_of(word, called) for word in informative)


def _is_form_of(word: str, called: set[str]) -> bool:
    """Whether a word begins as one of the call does: scrolled, scroll; sent, send."""
    if any(map(str.isdigit, word)):
        return False
    lengths = ((one, max(_LEAST_WORD_CHARS - 1, (2 * min(len(word), len(one)) + 2) // 3)) for one in called)
    return any(len(one) >= shared and word[:shared] == one[:shared] for one, shared in lengths)


_RESTATED_CHARS: Final = 160
_LEAST_WORD_CHARS: Final = 4
_PARTS_OF_NAME: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.\-]")
_NEGATIONS: Final = words("negations")
