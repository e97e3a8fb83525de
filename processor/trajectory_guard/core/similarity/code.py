"""Program text in one form: without comments, spacing and quote style; block levels kept where they carry meaning."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from trajectory_guard.core.fingerprints import canonical_bytes, parse_json
from trajectory_guard.core.wordlists import groups

from .sql import unfenced

_GROUPS: Final = groups("extensions")
_HASH_COMMENTS: Final = frozenset(_GROUPS["hash_comments"])
_SLASH_COMMENTS: Final = frozenset(_GROUPS["slash_comments"])
_DASH_COMMENTS: Final = frozenset(_GROUPS["dash_comments"])
_INDENTED: Final = frozenset(_GROUPS["indented"])
_SCRIPT: Final = frozenset(_GROUPS["script"])
PROSE: Final = frozenset(_GROUPS["prose"])
"""Endings of files that are no program: only outer spacing and the end of lines are unified."""
CODE: Final = _HASH_COMMENTS | _SLASH_COMMENTS | _DASH_COMMENTS | PROSE | {"json", "ipynb", "jsonl"}

_LINE_COMMENT: Final = {"#": r"#[^\n]*", "/": r"//[^\n]*", "-": r"--[^\n]*"}
_LONG: Final = {
    "block": r"/\*.*?(?:\*/|(?P<block>\Z))",
    "double3": r"\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|(?P<double3>\\?\Z))",
    "single3": r"'''(?:\\.|[^\\])*?(?:'''|(?P<single3>\\?\Z))",
    "tick": r"`[^`\\]*(?:\\.[^`\\]*)*(?:`|(?P<tick>\\?\Z))",
}
"""Comments and strings that may run over many lines; the named group matches if they have no end."""
_SHORT: Final = {
    "double": r"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*(?:\"|(?P<double>))",
    "single": r"'[^'\\\n]*(?:\\.[^'\\\n]*)*(?:'|(?P<single>))",
}
"""Strings that end with their line."""
_REST = r"\n|[ \t]+|\d[\w.]*|\w+|[-+*/%&|^=!<>?:.]{1,3}|."
MAX_TOKENS: Final = 6_000
"""Beyond so many tokens a program is kept as it stands."""
_MAX_UNCLOSED: Final = 256
"""After so many quotes without a partner the rest of a text is no program: it is kept as it stands."""
_LOOKS_LIKE_CODE: Final = re.compile(
    r"^[^\S\n]*(?:def |class |import |from \w+ import|function\b|const |let |var |public |private |package |#include"
    r"|fn |func |@\w+\n|if \(|return\b)"
    r"|[;{}]\s*(?:\n|$)|=>|\w\([^)\n]{0,80}\)\s*[:{;]|\w [-+]?= \w|\w\(\S{0,80}\)$"
    r"|^(?:[^\S\n]{2,}|[^\S\n]*\n[^\S\n]|[^\S\n]+\n|[^\S\n]*\n[^\S\n]*\n)\w[^\n=(]*[=(]",
    re.MULTILINE,
)
_PYTHON_LIKE: Final = re.compile(
    r"^(?:import [\w., ]+|from [\w.]+ import [\w., ()*]+)$"
    r"|^[^\S\n]*(?:def |class |for |if |while |with |try|else|elif |except).*:[^\S\n]*(?:#.*)?$",
    re.MULTILINE,
)
_OPEN, _CLOSE = "([{", ")]}"


def looks_like_code(text: str) -> bool:
    """Whether a text without a known file name reads as program text."""
    return _LOOKS_LIKE_CODE.search(text[:4000]) is not None


def guess_language(text: str) -> str:
    """A file ending for program text of unknown language: ``py`` where blocks are indented, else ``js``."""
    return "py" if _PYTHON_LIKE.search(text[:4000]) or ("\n" not in text and "#" in text) else "js"


def normalize_code(text: str, ending: str) -> str:
    """The canonical form of ``text`` for a file of this ending (``"py"``); an unknown ending is guessed."""
    text = unfenced(text)
    if ending in ("json", "ipynb"):
        try:
            return canonical_bytes(parse_json(text)).decode("utf-8", "replace")
        except (ValueError, RecursionError):
            ending = "js"
    if ending in PROSE:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())
    if ending not in CODE:
        ending = guess_language(text)
    style = "/" if ending in _SLASH_COMMENTS else "-" if ending in _DASH_COMMENTS else "#"
    tokens = [token for token in _tokens(text, style) if not _is_comment(token, style)]
    if ending in _INDENTED:
        return _join_indented(tokens)
    return _join_free(tokens, drop_semicolons=ending in _SCRIPT, keep_lines=style == "#")


@lru_cache(maxsize=256)
def _token_pattern(style: str, unclosed: frozenset[str]) -> re.Pattern[str]:
    """One token of a program; quotes of an ``unclosed`` kind are tokens of their own."""
    kinds = {name: source for name, source in (_LONG | _SHORT).items() if name not in unclosed}
    if style != "/":
        kinds.pop("block", None)
    return re.compile("|".join([_LINE_COMMENT[style], *kinds.values(), _REST]), re.DOTALL)


def _tokens(text: str, style: str) -> list[str]:
    """The tokens of a program; a quote without its partner is one.

    A token without an end after one opening has none after the next, as far as the search went: it is not searched
    again before that place, so that the time stays linear.
    """
    found: list[str] = []
    searched: dict[str, int] = {}  # kind without an end -> place up to which there is none
    at = 0
    for _ in range(_MAX_UNCLOSED):
        pause = min(searched.values(), default=len(text))
        for match in _token_pattern(style, frozenset(searched)).finditer(text, at):
            if match.lastgroup is not None or match.start() >= pause:
                break
            found.append(match[0])
            if len(found) >= MAX_TOKENS:
                return [*found, text[match.end() :]]
        else:
            return found
        at, kind = match.start(), match.lastgroup
        searched = {name: end for name, end in searched.items() if end > at}
        if kind is not None and at < pause:
            searched[kind] = len(text) if kind in _LONG else match.end()
    return [*found, text[at:]]


def _is_comment(token: str, style: str) -> bool:
    return (
        token.startswith({"#": ("#",), "/": ("//", "/*"), "-": ("--",)}[style]) and len(token) > 1
    ) or token == style == "#"


def _quotes(token: str) -> str:
    if token[0] not in "'\"" or len(token) < 2:
        return token
    width = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    inner = token[width:-width]
    return token if '"' in inner or "\\" in inner else '"' * width + inner + '"' * width


def _join_free(tokens: list[str], *, drop_semicolons: bool, keep_lines: bool) -> str:
    """Tokens of a language in which line ends and indentation mean nothing, or (``keep_lines``) line ends only."""
    words: list[str] = []
    for token in tokens:
        if token == "\n":
            if drop_semicolons and words[-1:] == [";"]:
                words.pop()
            if keep_lines and words and words[-1] != "\n":
                words.append("\n")
        elif not token.isspace():
            words.append(_quotes(token))
    while words and words[-1] in ("\n", ";" if drop_semicolons else "\n"):
        words.pop()
    return " ".join(words)


def _join_indented(tokens: list[str]) -> str:
    """Tokens with block levels by the stack of indents: tabs and spaces are equal, another block is not."""
    words: list[str] = []
    stack = [0]
    line_start, indent, depth = True, 0, 0
    for token in tokens:
        if token == "\n":
            line_start, indent = line_start or depth == 0, 0
            continue
        if token.isspace():
            indent = len(token.expandtabs(4)) if line_start and not depth else indent
            continue
        if line_start:
            words.append(_level(stack, indent))
            line_start = False
        depth = max(0, depth + (token in _OPEN) - (token in _CLOSE))
        words.append(_quotes(token))
    return " ".join(words)


def _level(stack: list[int], indent: int) -> str:
    while len(stack) > 1 and indent < stack[-1]:
        stack.pop()
    if indent > stack[-1]:
        stack.append(indent)
    return f"\n{len(stack) - 1}"
