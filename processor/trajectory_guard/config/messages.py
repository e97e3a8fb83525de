"""Mistakes in a value, in the words of somebody who writes a configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.core.text import nearest

_WORDS: Final = re.compile(r"\^\((\w+(?:\|\w+)+)\)\$")
"""A pattern that is a choice of words."""
_SENTENCES: Final = {
    "missing": "required",
    "callable_type": "expected a function",
    "dict_type": "expected a mapping",
    "mapping_type": "expected a mapping",
    "model_type": "expected a mapping",
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
UNKNOWN_KEY: Final = "unknown key"
_MOST_LISTED: Final = 12
"""Keys that a message lists at most."""
_OF_SEVERAL: Final = ("expected a list", "expected a mapping")


class Mistake(NamedTuple):
    """One mistake in a configuration.

    Fields:
        path: the key, those above it before it with dots; empty if the message names it, or none is meant.
        message: the reason, with the value.
        source: the file, or whatever else the configuration was read from; empty if the message names it.
    """

    path: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        parts = (self.source, self.path, self.message)
        if self.message.startswith(UNKNOWN_KEY):
            parts = (self.source, f"{UNKNOWN_KEY} {self.path!r}{self.message.removeprefix(UNKNOWN_KEY)}", "")
        return ": ".join(filter(None, parts))


class ConfigError(ValueError):
    """A configuration that cannot be used. Its text has one line per mistake, with source, key and value.

    Parameters:
        mistakes: the mistakes; one that is text has neither path nor source.

    Attributes:
        mistakes: all of them.
    """

    def __init__(self, *mistakes: Mistake | str) -> None:
        super().__init__(*mistakes)
        self.mistakes = tuple(Mistake("", one) if isinstance(one, str) else one for one in mistakes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.mistakes))

    def at(self, source: str) -> ConfigError:
        """The same mistakes in another source."""
        return ConfigError(*(one._replace(source=source) for one in self.mistakes))


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


def unknown_key(name: str, known: Collection[str]) -> str:
    """The message about a key that is unknown in its place, with the nearest one or, where they are few, with all.

    >>> unknown_key("pol", ("poll", "weight")), unknown_key("x", ("poll", "weight"))
    ("unknown key (did you mean 'poll'?)", 'unknown key; known: poll, weight')
    """
    listed = f"; known: {', '.join(known)}" if 0 < len(known) <= _MOST_LISTED else ""
    return UNKNOWN_KEY + (nearest(name, known) or listed)


def in_variables(
    mistakes: Iterable[Mistake], variables: Mapping[str, str], values: Mapping[str, Any]
) -> Iterator[Mistake]:
    """Mistakes of a configuration, each with the variable that the value came from, as far as it came from one.

    Parameters:
        mistakes: with the keys of the configuration as paths.
        variables: names of variables that are set, by key.
        values: what they say, by key.
    """
    for one in mistakes:
        key, _, rest = one.path.partition(".")
        if key not in variables:
            yield one
            continue
        is_text = isinstance(values[key], str) and one.message.startswith(_OF_SEVERAL)
        message = f"{one.message}; a variable has it as JSON" if is_text else one.message
        yield Mistake(rest, message, f"environment variable {variables[key]}")


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def wrong_type(name: str, wanted: str, given: Any) -> TypeError:
    """The error for an argument of a wrong type."""
    return TypeError(f"{name}: expected {wanted}, got {given!r:.80} ({type(given).__name__})")
