"""Results that only restate the call: "Scrolled down the page by one page"."""

from __future__ import annotations

import re
from typing import Any, Final

from trajectory_guard.core.content.result_text import MAX_FORM_CHARS, WORD, confirms, may_acknowledge, values_of
from trajectory_guard.core.fingerprints import object_in
from trajectory_guard.core.text import text_of
from trajectory_guard.core.tools import acts_on_view
from trajectory_guard.core.wordlists import words


def restates(text: str, tool: str, args: Any) -> bool:
    """Whether a result says nothing but what the call says: its words are those of the tool's name and the arguments.

    Up to three letters may be any word; a negation, and a figure that the call does not hold, say something.

    >>> restates("Scrolled down the page by one page", "scroll", {"down": True, "num_pages": 1.0})
    True
    >>> restates("Page not scrolled", "scroll_page", {}), restates("Oslo weather: 14", "weather", {"city": "Oslo"})
    (False, False)
    """
    said = _said_without_negation(text)
    called = _words_of(tool, args)
    return bool(said) and all(word in called or _is_form_of(word, called) for word in said)


def names_call(text: str, tool: str, args: Any) -> bool:
    """Whether a line says what the call says, and maybe where: a value of the arguments, or what the tool does.

    A figure that the call does not hold tells a place.

    >>> names_call("Pressed key Down in the main window", "press", {"key": "Down"})
    True
    >>> names_call("Down: no such key", "press", {"key": "Down"}), names_call("Next: page 12 of 12", "next", {})
    (False, False)
    """
    said, called = _said_without_negation(text), _words_of(tool, args)
    figures = [word for word in said if any(map(str.isdigit, word))]
    return "\n" not in text and any(word in called for word in said) and called.issuperset(figures)


def names_click(text: str, tool: str, args: Any) -> bool:
    """Whether a short line tells what was clicked, pressed or typed, and shows nothing of the view behind it.

    >>> names_click("Clicked button with index 57: Load more", "click_element", {"index": 57})
    True
    >>> names_click("Cart: 1 item, please choose a size", "click", {"element": 1})
    False
    """
    if len(text) > _CLICK_CHARS or not acts_on_view(tool) or any(map(text.__contains__, _OF_VIEWS)):
        return False
    said = _said_without_negation(text)
    return bool(said) and _is_form_of(said[0], _words_of(tool, None)) and names_call(text, tool, args)


def _words_of(tool: str, args: Any) -> set[str]:
    """The words of the tool's name and of the names and values of the arguments, case-folded."""
    names = " ".join(map(text_of, (tool, *args) if isinstance(args, dict) else (tool,)))
    call = " ".join((*_PARTS_OF_NAME.sub(" ", names).split(), *values_of(args)))
    return set(WORD.findall(call.casefold()[: 2 * MAX_FORM_CHARS].replace("_", " ")))


def _said_without_negation(text: str) -> list[str]:
    """The words of a short text that say something, case-folded; none if one is a negation."""
    if len(text) > _RESTATED_CHARS:
        return []
    said = [word for word in WORD.findall(text.casefold().replace("_", " ")) if any(map(str.isalnum, word))]
    if not _NEGATIONS.isdisjoint(said):
        return []
    return [word for word in said if len(word) >= _LEAST_WORD_CHARS or any(map(str.isdigit, word))]


def _is_form_of(word: str, called: set[str]) -> bool:
    """Whether a word begins as one of the call does: scrolled, scroll; sent, send."""
    if any(map(str.isdigit, word)):
        return False
    lengths = ((one, max(_LEAST_WORD_CHARS - 1, (2 * min(len(word), len(one)) + 2) // 3)) for one in called)
    return any(len(one) >= shared and word[:shared] == one[:shared] for one, shared in lengths)


_RESTATED_CHARS: Final = 160
_LEAST_WORD_CHARS: Final = 4
_CLICK_CHARS: Final = 80
_OF_VIEWS: Final = "|[{"
_PARTS_OF_NAME: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.\-]")
_NEGATIONS: Final = words("negations")


def says_done(text: str) -> bool:
    """Whether a sentence, or an object that confirms something in its fields, may say no more than that it was done.

    >>> says_done('{"ok": true, "message": "Object was placed on the belt."}'), says_done('{"mode": "idle"}')
    (True, False)
    """
    return (text[:1] != "{" or confirms(text)) and may_acknowledge(text_in_fields(text))


def text_in_fields(text: str) -> str:
    """The text and the figures in a flat object, as a line says them: an acknowledgement in fields; else ``text``.

    >>> text_in_fields('{"success": true, "message": "The map was zoomed in.", "items": 3}')
    'The map was zoomed in. 3'
    >>> text_in_fields('{"rows": [{"a": 1}, {"a": 2}]}')
    '{"rows": [{"a": 1}, {"a": 2}]}'
    """
    if text[:1] != "{" or len(text) > MAX_FORM_CHARS:
        return text
    values = object_in(text).values()
    if not values or any(isinstance(value, (dict, list)) and value for value in values):
        return text
    return " ".join([str(value) for value in values if value and value is not True])
