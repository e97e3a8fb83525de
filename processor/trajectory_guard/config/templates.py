"""Templates of the guard's texts: plain ``str.format`` fields."""

from __future__ import annotations

import string
from typing import Final

TEMPLATE_FIELDS: Final = ("count", "reason", "rule", "score", "text", "tool", "types")


def template_mistake(template: str) -> str | None:
    """The error in a template, None if it is valid.

    >>> template_mistake("{tool} was called {count} times"), template_mistake("{tols}")
    (None, "unknown field 'tols'; known are count, reason, rule, score, text, tool, types")
    """
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        return str(error)
    unknown = next((name for name in fields if name not in TEMPLATE_FIELDS), None)
    return f"unknown field {unknown!r}; known are {', '.join(TEMPLATE_FIELDS)}" if unknown is not None else None
