"""Canonical arguments and fingerprints of results, by which two calls or two results are equal.

Hashes are exact and cheap and come first. Masking (clocks, durations, ids, counters, temporary paths, line
numbers) costs tens of microseconds, so it is done only for errors and where an equal call came back with a different
answer.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final
from zlib import crc32

import orjson

from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text import MAX_DECIMAL_BITS, repr_of, text_of

MAX_DEPTH: Final = 64
"""Nesting beyond this many levels is not compared: such arguments count as unknown."""
MAX_TEXT_CHARS: Final = 65_536
"""Longer texts are hashed by their first and last half of this many characters, and their length."""
MAX_CANONICAL_BYTES: Final = 16_384
"""Longer arguments are hashed as they are: keys sorted, but JSON within text not unfolded. Not configurable, since
processes compare their hashes."""

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_LONG_INTEGER: Final = re.compile(r"\d{19}")
_IS_DIGIT: Final = bytes(chr(code).isdigit() for code in range(128)).ljust(256, b"\0")
"""By the code of a character: 1 for a digit."""
_STRIDE: Final = 6
"""Of 19 characters in a row at least three are sampled."""
_SAMPLED: Final = b"\1\1\1"
_SAMPLED_RUNS: Final = re.compile(_SAMPLED + b"+")
Symbol = bytes
"""Eight bytes of a hash; ``UNKNOWN`` for a value that was not visible."""
UNKNOWN: Final[Symbol] = b""
_JSON_START = frozenset('{["')


def parse_json(text: str) -> Any:
    """Decode JSON ``text``; raises ValueError. Falls back to the standard library for NaN and big integers."""
    try:
        value = orjson.loads(text)
    except ValueError:
        if "NaN" not in text and "Infinity" not in text and "\\u" not in text and is_unicode(text):
            raise  # the standard library reads no more than orjson here, and says no at several times the cost
        return json.loads(text)
    # orjson reads an integer beyond 64 bits as a float
    return json.loads(text) if _has_long_integer(text) else value


def object_in(text: str) -> dict[str, Any]:
    """The JSON object that ``text`` is, not to be changed; empty if it is none, or is malformed."""
    return _object_in(text) if len(text) <= _KEPT_CHARS else _parsed_object(text)


_KEPT_CHARS: Final = 16_384
"""No longer text is kept for the next reader of the same result."""


@lru_cache(maxsize=8)  # a result is looked at by several readers
def _object_in(text: str) -> dict[str, Any]:
    return _parsed_object(text)


def _parsed_object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def object_text(text: str) -> str:
    """The JSON object that a JSON text holds, ``text`` itself if it holds none: some instrumentations encode twice.

    >>> object_text('"{\\\\"a\\\\": 1}"'), object_text('"noon"')
    ('{"a": 1}', '"noon"')
    """
    inner: Any = text
    for _ in range(_MAX_ENCODED):
        try:
            inner = parse_json(inner)
        except (ValueError, RecursionError):
            break
        if not isinstance(inner, str) or inner[:1] not in ('"', "{"):
            break
        if inner[:1] == "{":
            return inner
    return text


_MAX_ENCODED: Final = 3


def parse_names(text: str) -> Any:
    """As ``parse_json``, for names: halves of surrogate pairs become question marks.

    A text that was cut off within an emoji has one. No exporter, file or reply could encode it, and an exporter that
    cannot encode one span drops all spans of its batch.

    >>> parse_names('{"thread_id": "thread-\\\\ud83d"}')
    {'thread_id': 'thread-?'}
    """
    value = parse_json(text)
    if "\\ud" in text or "\\uD" in text:
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def parse_json_or_lines(text: str) -> Any:
    """As ``parse_json``, or, where each line is JSON of its own, as many logs are, a list of the lines.

    The value is not to be changed.

    >>> parse_json_or_lines('{"event": "start"}\\n{"event": "end"}\\n')
    [{'event': 'start'}, {'event': 'end'}]
    """
    try:
        return (text[:1] == "{" and object_in(text)) or parse_json(text)
    except ValueError:
        first, rest = text.split("\n", 1) if "\n" in text else (text, "")
        if not rest or first.rstrip()[-1:] not in ("}", "]"):
            raise
        return [parse_json(line) for line in text.splitlines() if line.strip()]


def is_unicode(text: str) -> bool:
    """Whether ``text`` has no lone surrogates, which orjson does not read."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _has_long_integer(text: str) -> bool:
    """Whether ``text`` has 19 digits in a row. A search of all of it would take six times as long as decoding it."""
    samples = text[::_STRIDE].encode("ascii", "replace").translate(_IS_DIGIT)
    if _SAMPLED not in samples:
        return False  # as most texts
    for run in _SAMPLED_RUNS.finditer(samples):
        first, last = run.start() * _STRIDE, run.end() * _STRIDE
        if _LONG_INTEGER.search(text, max(0, first - _STRIDE), last) is not None:
            return True
    return False


def canonical_bytes(value: Any) -> bytes:
    """``value`` as UTF-8 JSON: keys sorted at every level, JSON text unfolded, numbers and spacing in one form.

    Raises:
        ValueError: the value is nested deeper than ``MAX_DEPTH`` or cannot be written as JSON.
    """
    return sorted_bytes(_unfold(value, 0) if _needs_unfolding(value) else value)


def sorted_bytes(value: Any) -> bytes:
    """``value``, unfolded already, as UTF-8 JSON with keys sorted at every level. Errors: as of ``canonical_bytes``."""
    try:
        return orjson.dumps(value, option=_SORTED)
    except TypeError:
        return _slow_canonical(value)


def args_hash(args: Any) -> str | None:
    """SHA-256 hex of the canonical arguments; None if they are unknown or not comparable."""
    if args is None:
        return None
    try:
        try:
            data = orjson.dumps(args, option=_SORTED)
        except TypeError:
            data = canonical_bytes(args)
        else:
            if len(data) <= MAX_CANONICAL_BYTES and _needs_unfolding(args):
                data = canonical_bytes(args)
    except (ValueError, TypeError, RecursionError):
        return None
    return sha256(data).hexdigest()


def _needs_unfolding(value: Any) -> bool:
    if type(value) is dict:
        for item in value.values():
            kind = type(item)
            if kind is str:
                if item[:1] in _JSON_START or item.strip() != item:
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
        return {text_of(key): _unfold(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unfold(item, depth + 1) for item in value]
    if isinstance(value, str):
        return unfold_text(value, depth)
    if isinstance(value, float):
        return plain_number(value)
    return value


def unfold_text(text: str, depth: int) -> Any:
    """The JSON object or array that a text at this depth holds, unfolded; else the text without blanks around it."""
    stripped = text.strip()
    if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]"):
        try:
            return _unfold(parse_json(stripped), depth + 1)
        except ValueError:
            return stripped
    return stripped


def plain_number(number: float) -> Any:
    """An integer for a whole number, text for what JSON has no number for; else the number itself."""
    if math.isnan(number) or math.isinf(number):
        return repr(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _slow_canonical(value: Any) -> bytes:
    """For what orjson refuses: integers beyond 64 bits, lone surrogates, foreign types."""
    try:
        text = _SLOW.encode(value)
    except ValueError:  # an integer is too long for Python to write in decimal
        text = _SLOW.encode(_with_short_integers(value, 0))
    return text.encode("utf-8", "backslashreplace")


def _with_short_integers(value: Any, depth: int) -> Any:
    """``value`` with integers in hexadecimal that are too long to be written in decimal, in keys too."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {
            text_of(key) if type(key) is int else key: _with_short_integers(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_short_integers(item, depth + 1) for item in value]
    return text_of(value) if type(value) is int and value.bit_length() > MAX_DECIMAL_BITS else value


def _foreign(value: Any) -> Any:
    """Sets have no order of their own: theirs differs from process to process."""
    return sorted(map(repr_of, value)) if isinstance(value, (set, frozenset)) else repr_of(value)


_SLOW: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_foreign)


def digest64(data: bytes) -> bytes:
    """A stable 8-byte hash."""
    return blake2b(data, digest_size=8).digest()


def checksum(text: str) -> int:
    """32 bits of a text that stand for it where chance matches do no harm; never raises."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def text_bytes(text: str) -> bytes:
    """``text`` as bytes that stand for it, bounded by ``MAX_TEXT_CHARS``; never raises."""
    if len(text) > MAX_TEXT_CHARS:
        half = MAX_TEXT_CHARS // 2
        text = f"{text[:half]}\0{len(text)}\0{text[-half:]}"
    return text.encode("utf-8", "surrogatepass")


def text_digest(text: str) -> str:
    """``digest64`` of a text, hex: 16 digits that stand for it; never raises."""
    return blake2b(text_bytes(text), digest_size=8).hexdigest()


def id_symbol(step_id: str) -> Symbol:
    """Eight bytes that stand for the id of a step: those of a span id, else a digest."""
    try:
        symbol = bytes.fromhex(step_id)
    except ValueError:
        symbol = b""
    return symbol if len(symbol) == 8 else digest64(step_id.encode("utf-8", "replace"))


def call_symbol(step: StepRecord) -> Symbol:
    """Eight bytes computed from tool, agent and arguments; ``UNKNOWN`` without arguments."""
    if step.tool_args_hash is None:
        return UNKNOWN
    key = f"{step.tool_name.casefold()}\0{step.agent_id or ''}\0{step.tool_args_hash}"
    return blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()


def result_symbol(step: StepRecord) -> Symbol:
    """Eight bytes computed from outcome and result; ``UNKNOWN`` without a result."""
    if step.state_snapshot_hash is None:
        return UNKNOWN
    key = f"{step.outcome_type}\0{step.state_snapshot_hash}"
    return blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
