"""Reading an answer: is it empty, does it read like an error, and which class of error is it?"""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.masking import mask_text

_EMPTY_TEXTS: Final = frozenset(
    ("", "[]", "{}", "null", "none", '""', "''", "()", "nan", "undefined", "(none)", "n/a", "[[]]", "no output")
)
_EMPTY_PHRASE: Final = re.compile(
    r"^(?:\W*)(?:no|zero|0)\s+(?:\w+\s+){0,2}?(?:results?|match(?:es)?|hits?|records?|rows?|documents?|items?|data|entries"
    r"|files?|output)(?:\s+(?:were|was|found|available|returned|for\b[^,.;\d]{0,60}))*\W*$|^\W*(?:nothing|none|not)\s+found\W*$",
    re.IGNORECASE,
)
_RESULT_KEYS: Final = (
    "result",
    "results",
    "data",
    "items",
    "output",
    "hits",
    "matches",
    "rows",
    "documents",
    "content",
)


def is_empty_result(result: str) -> bool:
    """Whether a payload says that nothing was found: blank, an empty container, or a phrase such as "No results found".

    >>> is_empty_result('{"results": []}'), is_empty_result("No results found."), is_empty_result("0 failed")
    (True, True, False)
    """
    if len(result) > 160:
        return False
    text = result.strip()
    if text.lower() in _EMPTY_TEXTS or _EMPTY_PHRASE.match(text):
        return True
    if text[:1] == "{" and len(text) < 120:
        return _is_empty_wrapper(text)
    return False


def _is_empty_wrapper(text: str) -> bool:
    try:
        value = parse_json(text)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    found = [value[key] for key in _RESULT_KEYS if key in value]
    return bool(found) and all(item in ([], {}, "", None) for item in found) and len(value) <= len(found) + 2


_QUOTED: Final = re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`|\[[^\]\n]{0,200}\]")
_PATHS: Final = re.compile(
    r"(?:[A-Za-z]:|(?<![\w.~-]))(?:[\w.~-]*/[\w.~-]+)+/?|\b[\w-]{1,80}\.(?:py|js|ts|go|rs|java|c|cpp|h|json|ya?ml|txt|md)\b"
)
_NUMBERS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_ERROR_LINE: Final = re.compile(
    r"\b\w*(?:Error|Exception|Errno|Failure|Fault|Warning)\b|\berror\b|\bfailed\b|\bnot found\b"
    r"|\bcannot\b|\binvalid\b|\bdenied\b",
    re.IGNORECASE,
)


def error_signature(result: str | None, error_class: str | None) -> str | None:
    """The class of an error: the line that states it, with names, numbers and paths masked; None if unknown.

    >>> error_signature("Traceback ...\\nKeyError: 'user_7'", None) == error_signature("KeyError: 'user_9'", "KeyError")
    True
    """
    if not result:
        return error_class.lower() if error_class else None
    line = _telling_line(result)
    line = _PATHS.sub("<path>", _QUOTED.sub("<q>", mask_text(line)))
    return _NUMBERS.sub("#", line).lower()[:160] or None


_ERROR_LIKE: Final = re.compile(
    r"^\W*(?:error|exception|traceback|fatal|failed|failure|invalid|usage(?=:)|cannot|could not|unable to"
    r"|unknown|unrecognized)\b"
    r"|^[\w./-]{1,40}: (?:.{0,80}\b)?(?:unmatched|invalid|cannot|can't|no such|not found|denied|unrecognized|unknown"
    r"|missing|illegal|bad|failed|error|unexpected|expected|undefined)\b",
    re.IGNORECASE,
)


def looks_like_error(result: str) -> bool:
    """Whether a result that was reported as a success reads like an error message.

    >>> looks_like_error("grep: Unmatched ( or \\\\("), looks_like_error("12 errors fixed")
    (True, False)
    """
    return len(result) <= 400 and _ERROR_LIKE.search(result.strip()) is not None


def both_ends(text: str, limit: int) -> str:
    """``text``, of a long one both ends (together ``limit`` characters): an error says what it is in its last line."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n{text[-half:]}"


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text[-4096:].splitlines() if line.strip()]
    if not lines:
        return ""
    for line in reversed(lines):
        if _ERROR_LINE.search(line) and not line.startswith(("File ", "^")):
            return line[:400]
    return lines[0][:400]
