"""Mistakes in a value, in the words of somebody who writes a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final = re.compile(r"\^\((\w+(?:\|\w+)+)\)\$")
"""A pattern that is a choice of words."""
_SENTENCES: Final = {
    "missing": "required",
    "tuple_type": "expected a list",
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "finite_number": "expected a finite number",
    "string_too_short": "must not be empty",
    "string_type": "expected text",
}
_BOUNDS: Final = {
    "greater_than": "more than", "greater_than_equal": "at least",
    "less_than": "less than", "less_than_equal": "at most",
}  # fmt: skip
_URL: Final = "^https?://"


def sentence(error: Mapping[str, Any]) -> str:
    """The sentence for one item of ``ValidationError.errors()``, without the value.

    >>> sentence({"type": "string_pattern_mismatch", "msg": "", "ctx": {"pattern": "^(total|day)$"}})
    "expected 'total' or 'day'"
    >>> sentence({"type": "greater_than_equal", "msg": "Input should be greater than or equal to 12"})
    'expected at least 12'
    """
    kind, context = error["type"], error.get("ctx", {})
    pattern = str(context.get("pattern", ""))
    if kind == "string_pattern_mismatch" and (choice := _WORDS.fullmatch(pattern)) is not None:
        return f"expected {_either([repr(word) for word in choice[1].split('|')])}"
    if kind == "string_pattern_mismatch" and pattern == _URL:
        return "expected an http(s) URL"
    if kind in _BOUNDS:
        return f"expected {_BOUNDS[kind]} {str(error['msg']).split()[-1]}"
    if kind in ("literal_error", "enum") and "expected" in context:
        return f"expected {context['expected']}"
    return _SENTENCES.get(kind) or str(error["msg"]).removeprefix("Value error, ")


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
