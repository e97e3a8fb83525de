"""Program text in one form: without comments, spacing and quote style; block levels kept where they carry meaning."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.fingerprints import canonical_bytes, parse_json

from .wordlist import words as word_list

_HASH_COMMENTS: Final = frozenset(
    word_list("py pyi sh bash zsh rb yaml yml toml r pl tf dockerfile mk cfg ini conf ps1 ex exs nim jl")
)
_SLASH_COMMENTS: Final = frozenset(
    word_list(
        "js jsx ts tsx mjs cjs java c h cc cpp cxx hpp cs go rs swift kt kts scala php css scss less dart groovy "
        "proto vue m sol zig"
    )
)
_DASH_COMMENTS: Final = frozenset(word_list("sql lua hs elm"))
_INDENTED: Final = frozenset(word_list("py pyi yaml yml nim pug sass coffee"))
_SCRIPT: Final = frozenset(word_list("js jsx ts tsx mjs cjs"))
PROSE: Final = frozenset(word_list("md txt rst adoc tex csv tsv log text html htm xml svg"))
"""Endings of files that are no program: only outer spacing and the end of lines are unified."""
CODE: Final = _HASH_COMMENTS | _SLASH_COMMENTS | _DASH_COMMENTS | PROSE | {"json", "ipynb", "jsonl"}

_STRINGS = (
    r"\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"
)
_REST = r"|\n|[ \t]+|\d[\w.]*|\w+|[-+*/%&|^=!<>?:.]{1,3}|."
_TOKENS: Final = {
    "#": re.compile(r"#[^\n]*|" + _STRINGS + _REST, re.DOTALL),
    "/": re.compile(r"//[^\n]*|/\*.*?\*/|" + _STRINGS + _REST, re.DOTALL),
    "-": re.compile(r"--[^\n]*|" + _STRINGS + _REST, re.DOTALL),
}
_LOOKS_LIKE_CODE: Final = re.compile(
    r"^\s*(?:def |class |import |from \w+ import|function\b|const |let |var |public |private |package |#include|fn "
    r"|func |@\w+\n|if \(|return\b)"
    r"|[;{}]\s*(?:\n|$)|=>|\w\([^)\n]{0,80}\)\s*[:{;]|^\s{2,}\w+.*[=(]|\w+ [-+]?= \w|\w\(\S{0,80}\)$",
    re.MULTILINE,
)
_PYTHON_LIKE: Final = re.compile(
    r"^\s*(?:def |class |for |if |while |with |try|else|elif |except).*:\s*(?:#.*)?$", re.MULTILINE
)
_OPEN, _CLOSE = "([{", ")]}"


def looks_like_code(text: str) -> bool:
    """Whether a text without a telling file name reads as program text."""
    return _LOOKS_LIKE_CODE.search(text[:4000]) is not None


def guess_language(text: str) -> str:
    """A file ending for program text of unknown language: ``py`` where blocks are indented, else ``js``."""
    return "py" if _PYTHON_LIKE.search(text[:4000]) or ("\n" not in text and "#" in text) else "js"


def normalize_code(text: str, ending: str) -> str:
    """The canonical form of ``text`` for a file of this ending (``"py"``); an unknown ending is guessed."""
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
    tokens = [token for token in _TOKENS[style].findall(text) if not _is_comment(token, style)]
    if ending in _INDENTED:
        return _join_indented(tokens)
    return _join_free(tokens, drop_semicolons=ending in _SCRIPT, keep_lines=style == "#")


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
    """Tokens with block levels by the stack of indents: tabs and any number of spaces meet, another block does not."""
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
