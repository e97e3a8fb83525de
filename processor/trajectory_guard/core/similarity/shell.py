"""A shell command line in one form: quotes, bundled flags, ``./`` and a few equal spellings."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"\s+|\d?>&\d|&>|\d?>>?|<<<?|<|&&|\|\||[|;&()]|(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s'\"\\|;&()<>])+|.", re.DOTALL
)
_QUOTED: Final = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_SEPARATORS: Final = frozenset(("&&", "||", "|", ";", "&", "(", ")", "\n"))

_BUNDLING: Final = {
    "ls": "", "rm": "", "cp": "", "mv": "", "ps": "", "du": "d", "df": "", "wc": "", "cat": "", "mkdir": "m", "ln": "",
    "grep": "ABCefm", "egrep": "ABCefm", "head": "nc", "tail": "nc", "sort": "kto", "uniq": "", "cut": "dfc",
    "free": "",
    "uname": "", "chown": "", "touch": "", "tree": "L", "rmdir": "", "diff": "U", "rsync": "e", "tee": "",
    "which": "", "pwd": "", "pytest": "kmnpcroW",
}  # fmt: skip
"""Commands whose short flags may be bundled, with those of their flags that take a value."""
_LONG_FLAGS: Final = {
    "--all": "-a", "--recursive": "-r", "--force": "-f", "--human-readable": "-h", "--ignore-case": "-i",
    "--line-number": "-n",
    "--invert-match": "-v", "--lines": "-n", "--parents": "-p", "--reverse": "-r", "--count": "-c",
    "--files-with-matches": "-l",
    "--numeric-sort": "-n", "--unique": "-u", "--word-regexp": "-w", "--bytes": "-c",
}  # fmt: skip
_COUNTED: Final = frozenset(("head", "tail"))
_ONE_CASE: Final = {"grep": {"-R": "-r"}, "rm": {"-R": "-r"}, "cp": {"-R": "-r"}}
_MODULES: Final = frozenset(
    ("pytest", "pip", "mypy", "ruff", "black", "flake8", "isort", "coverage", "tox", "pylint", "unittest")
)
_DIRECTORY_FLAGS: Final = {"git": "-C", "make": "-C", "npm": "--prefix", "yarn": "--cwd", "pnpm": "-C", "tar": "-C"}
_SUBCOMMANDS: Final = {("npm", "i"): "install", ("npm", "t"): "test", ("npm", "add"): "install", ("pip",
"uninstall"): "uninstall",
                       ("git", "co"): "checkout", ("git", "st"): "status", ("kubectl", "po"): "pods"}  # fmt: skip


MAX_TOKENS: Final = 2_048
"""Longer scripts are compared by their words alone."""
MAX_FOLDERS: Final = 64
"""A script of more commands than this keeps each ``cd`` where it stands."""


def normalize_shell(text: str) -> str:
    """The canonical form of a command line; what is not understood stays in its order."""
    parts: list[str] = []
    folder = ""
    tokens = _TOKEN.findall(text.strip().rstrip(";").rstrip())
    if len(tokens) > MAX_TOKENS:
        return " ".join(text.split())
    commands = _split(tokens)
    follow = len(commands) <= MAX_FOLDERS
    for position, (words, separator) in enumerate(commands):
        if (
            follow
            and words[:1] == ["cd"]
            and len(words) == 2
            and separator in ("&&", ";")
            and position + 1 < len(commands)
        ):
            folder = posixpath.normpath(posixpath.join(folder, words[1]))
            continue
        parts.append(_render(words, folder))
        parts.append(separator)
    return " ".join(part for part in _without_cat(parts) if part)


def _split(tokens: list[str]) -> list[tuple[list[str], str]]:
    """Simple commands as (words, separator after it). Merging stderr into stdout is presentation and is dropped."""
    commands: list[tuple[list[str], str]] = []
    words: list[str] = []
    for token in tokens:
        if token.isspace() and "\n" not in token:
            continue
        separator = ";" if token.isspace() else token
        if token.isspace() or token in _SEPARATORS:
            if words or separator != ";":
                commands.append((words, separator))
            words = []
        elif token not in ("2>&1", "&>1"):
            words.append(_unquote(token))
    return [*commands, (words, "")]


def _unquote(token: str) -> str:
    if "'" not in token and '"' not in token and "\\" not in token:
        return _clean_path(token)
    return _QUOTED.sub(_bare, token).replace(" ", "\u00a0").replace("\n", "\u0085")


def _bare(match: re.Match[str]) -> str:
    """A quoted part without its quotes; marks stay where the quotes keep the shell from reading the text."""
    single, double, escaped = match.groups()
    if escaped is not None:
        return escaped if escaped == " " else "\\" + escaped
    inner = double if single is None else single
    if single is not None and _EXPANDED.search(inner):
        return f"\u2018{inner}\u2019"
    return f"\u201c{inner}\u201d" if _GLOB.search(inner) else inner


_EXPANDED: Final = re.compile(r"[$`\\]")
_GLOB: Final = re.compile(r"[*?\[~\\|;&<>]")


def _clean_path(token: str) -> str:
    if token.startswith("./") and len(token) > 2:
        token = token[2:]
    if token.endswith("/") and len(token) > 1 and not token.endswith("://"):
        token = token.rstrip("/") or "/"
    return token


def _render(words: list[str], folder: str) -> str:
    if not words:
        return ""
    words = _program(words)
    words, inner = _take_directory(words)
    folder = posixpath.normpath(posixpath.join(folder, inner)) if inner else folder
    program = words[0] if words else ""
    arguments = _flags(program, words[1:]) if program in _BUNDLING else _spread(words[1:])
    prefix = [f"@{folder}"] if folder and folder != "." else []
    return " ".join([*prefix, program, *arguments])


def _program(words: list[str]) -> list[str]:
    """``python -m pytest`` runs pytest; short names of subcommands are written out."""
    if len(words) > 2 and words[0] in ("python", "python3", "py") and words[1] == "-m" and words[2] in _MODULES:
        words = words[2:]
    if len(words) > 1 and (words[0], words[1]) in _SUBCOMMANDS:
        words = [words[0], _SUBCOMMANDS[words[0], words[1]], *words[2:]]
    return words


def _take_directory(words: list[str]) -> tuple[list[str], str]:
    """The words without the option that sets the working directory, and that directory."""
    flag = _DIRECTORY_FLAGS.get(words[0])
    if flag:
        for position in range(1, len(words)):
            if words[position] == flag and position + 1 < len(words):
                return words[:position] + words[position + 2 :], words[position + 1]
            if flag.startswith("--") and words[position].startswith(flag + "="):
                return words[:position] + words[position + 1 :], words[position][len(flag) + 1 :]
    return words, ""


def _spread(arguments: list[str]) -> list[str]:
    """``--option=value`` as two words; ``-5`` of ``git log`` as ``-n 5``."""
    result: list[str] = []
    for word in arguments:
        if word.startswith("--") and "=" in word:
            result.extend(word.split("=", 1))
        elif arguments[0] == "log" and word[:1] == "-" and word[1:].isdigit():
            result.extend(("-n", word[1:]))
        else:
            result.append(word)
    return result


def _flags(program: str, arguments: list[str]) -> list[str]:
    """Flags of a well-known program, unbundled and sorted, before its operands in their order."""
    taking = _BUNDLING[program]
    flags: list[str] = []
    operands: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in (">", ">>", "<", "2>", "--"):
            operands.extend((word, *words))
        elif word.startswith("--"):
            flags.append(_long_flag(program, word))
        elif word[:1] == "-" and len(word) > 1:
            flags.extend(_unbundle(program, word, taking, words))
        else:
            operands.append(word)
    folded = _ONE_CASE.get(program, {})
    return sorted(folded.get(flag, flag) for flag in flags) + operands


def _long_flag(program: str, word: str) -> str:
    name, _, value = word.partition("=")
    if program in ("grep", "egrep") and name == "--reverse":
        return word
    return _LONG_FLAGS.get(name, name) + (f" {value}" if value else "")


def _unbundle(program: str, word: str, taking: str, rest: Iterator[str]) -> list[str]:
    if program in _COUNTED and word[1:].isdigit():
        return [f"-n {word[1:]}"]
    flags: list[str] = []
    for position, letter in enumerate(word[1:], 1):
        if letter in taking:
            value = word[position + 1 :] or next(rest, "")
            return [*flags, f"-{letter} {value}"]
        flags.append("-" + letter)
    return flags


def _without_cat(parts: list[str]) -> list[str]:
    """``cat file | grep x`` as ``grep x file``: the same reading of one file."""
    if len(parts) >= 3 and parts[1] == "|" and parts[0].startswith("cat ") and parts[0].count(" ") == 1:
        program = parts[2].split(" ", 1)[0]
        if program in ("grep", "egrep", "head", "tail", "sort") and "-" not in parts[0][:5]:
            return [f"{parts[2]} {parts[0][4:]}", *parts[3:]]
    return parts
