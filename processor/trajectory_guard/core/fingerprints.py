"""Canonical arguments and fingerprints of results: when are two calls, or two answers, the same?

Hashes are exact and cheap and come first. Masking (clocks, durations, ids, counters, temporary paths, line
numbers) costs tens of microseconds, so it is done only for errors and where an equal call came back with a different
answer.
"""

from __future__ import annotations

import json
import math
import re
from hashlib import blake2b, sha256
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 64
"""Nesting beyond this many levels is not compared: such arguments count as unknown."""
MAX_TEXT_CHARS: Final = 65_536
"""Longer results are fingerprinted by their first and last half of this many characters, and their length."""

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_JSON_START = frozenset('{["')


def parse_json(text: str) -> Any:
    """Decode JSON ``text``; raises ValueError. Falls back to the standard library for NaN and big integers."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def canonical_bytes(value: Any) -> bytes:
    """``value`` as UTF-8 JSON: keys sorted at every level, JSON text unfolded, numbers and spacing in one form.

    Raises:
        ValueError: the value is nested deeper than ``MAX_DEPTH`` or cannot be written as JSON.
    """
    if _needs_unfolding(value):
        value = _unfold(value, 0)
    try:
        return orjson.dumps(value, option=_SORTED)
    except TypeError:
        return _slow_canonical(value)


def args_hash(args: Any) -> str | None:
    """SHA-256 hex of the canonical arguments; None if they are unknown or not comparable."""
    if args is None:
        return None
    try:
        return sha256(canonical_bytes(args)).hexdigest()
    except (ValueError, RecursionError):
        return None


def _needs_unfolding(value: Any) -> bool:
    if type(value) is dict:
        for item in value.values():
            kind = type(item)
            if kind is str:
                if item[:1] in _JSON_START or item[-1:].isspace() or item[:1].isspace():
                    return True
            elif kind is not int and kind is not bool and item is not None:
                return True
        return False
    return True


def _unfold(value: Any, depth: int) -> Any:
    """Strings that hold a JSON object or array become that value; whole floats become integers; text is stripped."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {str(key): _unfold(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unfold(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _unfold_text(value, depth)
    if isinstance(value, float):
        return _plain_number(value)
    return value


def _unfold_text(text: str, depth: int) -> Any:
    stripped = text.strip()
    if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]"):
        try:
            return _unfold(parse_json(stripped), depth + 1)
        except ValueError:
            return stripped
    return stripped


def _plain_number(number: float) -> Any:
    if math.isnan(number) or math.isinf(number):
        return repr(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _slow_canonical(value: Any) -> bytes:
    """For what orjson refuses: integers beyond 64 bits, lone surrogates, foreign types."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr, ensure_ascii=True)
    return text.encode("utf-8", "backslashreplace")


def digest64(data: bytes) -> bytes:
    """A stable 8-byte hash."""
    return blake2b(data, digest_size=8).digest()


def text_bytes(text: str) -> bytes:
    """``text`` as bytes that stand for it, bounded by ``MAX_TEXT_CHARS``; never raises."""
    if len(text) > MAX_TEXT_CHARS:
        half = MAX_TEXT_CHARS // 2
        text = f"{text[:half]}\0{len(text)}\0{text[-half:]}"
    return text.encode("utf-8", "surrogatepass")


def result_hash(outcome: str, result: str | None) -> str | None:
    """Exact fingerprint (16 hex digits) of an outcome and its payload; None if the payload is unknown.

    The text of an error is masked first: cell numbers, clocks and ids in it say nothing about progress.
    """
    if result is None:
        return None
    if outcome == "error":
        return masked_hash(result).hex()
    return blake2b(text_bytes(result), digest_size=8, person=outcome.encode()).hexdigest()


# --- masking -------------------------------------------------------------------------------------------------

_VOLATILE_KEY: Final = re.compile(
    r"""^(?:.*[_-])?(?:ts|time|timestamp|datetime|date|clock|now|at|duration|elapsed|took|latency|uptime|runtime
    |ms|millis|seconds|secs|pid|tid|uuid|guid|nonce|etag|seq|sequence|attempt|attempts|retry|retries|retry_count
    |request|requestid|trace|traceid|span|spanid|session|sessionid|correlation|messageid|port|rss|expires
    |ttl|random|age)$
    |^.*(?:_at|_ts|_ms|_time|timestamp|_id_trace|durationms|elapsedms|request_?id|trace_?id|span_?id|session_?id
    |message_?id|correlation_?id|_pid)$""",
    re.VERBOSE | re.IGNORECASE,
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?\s?(?:[ap]m\b)?(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\b)?"
_DATE = (
    r"\d{4}[-/]\d{2}[-/]\d{2}(?:[T ](?:" + _CLOCK + r"))?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
    r"\s+\d{1,2}\b(?:,?\s+(?:\d{4}\b)?)?(?:\s*" + _CLOCK + r")?(?:\s+[A-Z]{3,4})?(?:\s+\d{4}\b)?"
)
_MASKS: Final = re.compile(
    "|".join(
        (
            r"(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)",
            rf"(?P<date>{_DATE})",
            rf"(?P<clock>\b{_CLOCK})",
            r"(?P<tmp>(?:/private)?/(?:var/)?tmp/[^\s'\"<>|:,)]+|\\Temp\\[^\s'\"]+)",
            r"(?P<addr>\b0x[0-9a-fA-F]{4,}\b)",
            r"(?P<hex>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b|\b(?=[0-9A-F]*\d)(?=[0-9A-F]*[A-F])[0-9A-F]{12,64}\b)",
            r"(?P<epoch>\b1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b)",
            r"(?P<lasted>\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|msec|millis(?:econds?)?|s|secs?|seconds?|mins?|minutes?|hours?|hrs?|days?)\b"
            r"(?:\s+(?:ago|elapsed))?)",
            r"(?P<cell>\b(?:In|Out)\s?\[\d+\])",
            r"(?P<count>\b(?i:attempt|retry|retries|try|tries|iteration|round|turn|pid|process|thread|tid|port|seq"
            r"|sequence|req(?:uest)?|trace|span|session|msg|message|event|run|line|ln|lineno|row|step|call|invocation"
            r"|timestamp|time|ts|seed|nonce|worker|conn(?:ection)?)"
            r"(?:\s?(?:id|no|number|num|count))?[\s:=#.(\[]{1,3}\d+(?:\.\d+)?\b)",
        )
    )
)
_FIRST_PASS_HINT: Final = re.compile(r"\d")
_SPACES: Final = re.compile(r"\s+")


def mask_text(text: str) -> str:
    """``text`` with its volatile parts replaced by their kind, spaces folded.

    Covers uuids, dates, clocks, temporary paths, addresses, hex ids, epoch stamps, durations and counted things
    ("attempt 3", "line 14", "pid 77"). Plain numbers stay: "3 failed" and "2 failed" differ, and so do "40 %" and
    "60 %".

    >>> mask_text("attempt 4: timed out after 30.2s at 2026-03-01T10:00:00Z")
    '<count>: timed out after <lasted> at <date>'
    """
    if _FIRST_PASS_HINT.search(text):
        text = _MASKS.sub(_mask_name, text)
    return _SPACES.sub(" ", text).strip()


def _mask_name(match: re.Match[str]) -> str:
    return f"<{match.lastgroup}>"


def is_volatile_key(key: str) -> bool:
    """Whether a JSON member of this name usually changes from call to call without meaning anything."""
    return _VOLATILE_KEY.match(_CAMEL.sub("_", key)) is not None


def mask_value(value: Any, depth: int = 0) -> Any:
    """A JSON value without volatile members, its texts masked."""
    if depth > MAX_DEPTH:
        return "<deep>"
    if isinstance(value, dict):
        return {key: mask_value(item, depth + 1) for key, item in value.items() if not is_volatile_key(key)}
    if isinstance(value, list):
        return [mask_value(item, depth + 1) for item in value]
    if isinstance(value, str):
        return mask_text(value)
    return value


def masked_hash(result: str) -> bytes:
    """Hash of ``result`` with volatile parts masked, as JSON where it is JSON, else as text."""
    text = result if len(result) <= MAX_TEXT_CHARS else result[:MAX_TEXT_CHARS]
    if text[:1] in ("{", "["):
        try:
            return digest64(canonical_bytes(mask_value(parse_json(text))))
        except (ValueError, RecursionError):
            pass
    return digest64(text_bytes(mask_text(text)))


# --- outcomes ------------------------------------------------------------------------------------------------

_EMPTY_TEXTS: Final = frozenset(
    ("", "[]", "{}", "null", "none", '""', "''", "()", "nan", "undefined", "(none)", "n/a", "[[]]", "no output")
)
_EMPTY_PHRASE: Final = re.compile(
    r"^(?:\W*)(?:no|zero|0)\s+(?:\w+\s+){0,2}?(?:results?|match(?:es)?|hits?|records?|rows?|documents?|items?|data|entries"
    r"|files?|output)(?:\s+(?:were|was|found|available|returned|for\b.{0,80}))*\W*$|^\W*(?:nothing|none|not)\s+found\W*$",
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
    r"(?:[A-Za-z]:)?(?:[\w.~-]*/[\w.~-]+)+/?|\b[\w-]+\.(?:py|js|ts|go|rs|java|c|cpp|h|json|ya?ml|txt|md)\b"
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
    r"^\W*(?:error|exception|traceback|fatal|failed|failure|invalid|usage:|cannot|could not|unable to"
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


def _telling_line(text: str) -> str:
    lines = (
        [line.strip() for line in text[-4096:].splitlines() if line.strip()]
        if len(text) > 400
        else [line.strip() for line in text.splitlines() if line.strip()]
    )
    if not lines:
        return ""
    for line in reversed(lines):
        if _ERROR_LINE.search(line) and not line.startswith(("File ", "^")):
            return line[:400]
    return lines[0][:400]
