"""The part of one call that the engine reads: bounded in characters, and without pictures and other binary data.

Masking, normal forms and the search for words cost time for every character, on the thread of the host. A longer call
is compared by fingerprints: equal ones are still certain to be equal, but a call with other words is another call.

Binary data is compared whole and by digest, never read as text: a mask finds clocks and ids in any text that is long
enough, and in random letters it finds them by chance. So it is replaced, before anything reads a result, by its kind,
its size and a digest of all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from string import ascii_letters, digits, whitespace
from typing import Any, Final
from zlib import crc32

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.core.text import MAX_DECIMAL_BITS, as_data, clip, clip_middle, text_of

MAX_UNDERSTOOD_CHARS: Final = 8_192
"""Default of ``max_understood_chars``, in characters."""
FINGERPRINT_KEY: Final = "fingerprint"
"""Stands for the arguments that were too long."""
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")


def within_limit(step: StepRecord, limit: int) -> StepRecord:
    """``step`` itself, or a copy cut to ``limit`` characters with ``FINGERPRINT`` evidence.

    Arguments that are too long become their hash. Of a result that is too long both ends stay, and a digest of what
    stood between them. A step that was cut before is not cut again.
    """
    if step.evidence is Evidence.FINGERPRINT:
        return step
    args, result = step.args, step.result or ""
    given = chars_of(args, limit) if args else 0
    if given + len(result) <= limit:
        return step
    left = limit - given
    if left < 0:
        step = step._replace(args={FINGERPRINT_KEY: step.tool_args_hash}, shown_args=_shortened(args))
        left = limit
    if len(result) > left:
        step = step._replace(result=both_ends_and_digest(result, left))
    return step._replace(evidence=Evidence.FINGERPRINT)


_SHOWN_CHARS: Final = 240
_SHOWN_ITEMS: Final = 8
_SHOWN_DEPTH: Final = 4


def _shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with both ends of its long texts, and the first and the last items of its long lists, for people."""
    if isinstance(value, str):
        return clip_middle(value, _SHOWN_CHARS)
    if depth >= _SHOWN_DEPTH and isinstance(value, (dict, list, tuple)):
        return "…" if value else value
    if isinstance(value, dict):
        shown = list(value.items())[:_SHOWN_ITEMS]
        more = {"…": "…"} if len(value) > _SHOWN_ITEMS else {}
        return {clip_middle(text_of(key)): _shortened(one, depth + 1) for key, one in shown} | more
    if isinstance(value, (list, tuple)):
        some = value if len(value) <= _SHOWN_ITEMS else [*value[: _SHOWN_ITEMS - 1], "…", value[-1]]
        return [_shortened(one, depth + 1) for one in some]
    if type(value) is int and value.bit_length() > MAX_DECIMAL_BITS:
        return clip_middle(text_of(value), _SHOWN_CHARS)
    return value


_COUNTED: Final = frozenset((dict, list, tuple, int))


def chars_of(value: Any, limit: int) -> int:
    """Characters that a JSON value holds at least; counting ends where they are more than ``limit``."""
    total = 0
    stack = [value]
    while stack and total <= limit:
        item = stack.pop()
        kind = type(item)
        if kind is str:
            total += len(item)
        elif kind is dict:
            total += 6 * len(item)  # quotes, colon and comma, and no value is without a character
            if total <= limit:
                total += sum(map(len, [one for one in (*item, *item.values()) if type(one) is str]))
                stack += [value for value in item.values() if type(value) in _COUNTED]
        elif kind is list or kind is tuple:
            total += 3 * len(item)
            if total <= limit:
                stack.extend(item)
        elif kind is int:
            total += item.bit_length() >> 2
    return total


def both_ends_and_digest(text: str, limit: int) -> str:
    """``text`` of up to ``limit`` characters, else both its ends and a digest of what stood between them.

    Ends are of whole kilobytes, so that answers to calls of unlike length are still cut alike. The digest is written
    in letters that no mask takes for a hexadecimal number. A checksum without the digits follows it.
    """
    if len(text) <= limit:
        return text
    end = limit // 2048 * 1024 or limit // 8
    middle = text[end : len(text) - end].encode("utf-8", "surrogatepass")
    digest = f"{sha256(middle).hexdigest()[:32]}{crc32(middle.translate(None, b'0123456789')):08x}".translate(_LETTERS)
    return f"{text[:end]}\u2026{digest}\u2026{text[len(text) - end :]}"


_CUT: Final = re.compile(r"\u2026[g-v]{32}(?=[g-v]{8}\u2026)")


def without_exact_digest(text: str) -> str:
    """A text cut by ``both_ends_and_digest``, known by what stood between its ends but for the digits there.

    The middle is too long to be masked: clocks and durations in it must not make a new answer of the same log.

    >>> first, second = (f"{'a' * 99}done at {clock}{'b' * 99}" for clock in ("04:41:18", "04:41:47"))
    >>> first, second = both_ends_and_digest(first, 64), both_ends_and_digest(second, 64)
    >>> first == second, without_exact_digest(first) == without_exact_digest(second)
    (False, True)
    """
    return _CUT.sub("\u2026", text, count=1) if "\u2026" in text else text


# --- binary data ---------------------------------------------------------------------------------------------

_STEP: Final = 100
MIN_CHARS: Final = 2 * _STEP
"""Shorter texts hold no block."""
_HEAD_CHARS: Final = 512
_MIN_DISTINCT: Final = 8  # a ruler and a row of zeros are no data
_MAX_SHOWN: Final = 3
_MIN_COMMAS: Final = 4  # of a list of bytes, a number a line
_MAX_BREAKS: Final = 2  # lines of base64 have 60 characters and more
_WINDOW: Final = re.compile(rf"(?P<letters>[\w+/=\\\r\n-]{{{_STEP}}})|[\d,\s]{{{_STEP}}}", re.ASCII)
_URI: Final = r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*,[^\s\"'<>)]{64,}"
_WRAPPED: Final = r"[\w+/\\-]{60,}(?:\r?\n[\w+/\\-]{60,})*(?:\r?\n[\w+/\\-]{1,75})?={0,2}"
_NUMBERS: Final = r"\[\s*(?:\d{1,3}\s*,\s*){64,}\d{1,3}\s*\]"
_BLOCK: Final = re.compile(rf"(?<![\w+/=\\-])(?:{_URI}|{_WRAPPED})|{_NUMBERS}", re.ASCII)
_ESCAPED: Final = re.compile(r"\bb'(?:[^'\\]|\\.)*'|\bb\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_MAGIC: Final = {
    "iVBORw0KGgo": "image", "/9j/": "image", "R0lGOD": "image", "UklGR": "image", "Qk0": "image", "JVBERi0": "PDF file",
    "SUkq": "image", "T2dnUw": "recording", "SUQz": "recording", "UEsDB": "archive",
}  # fmt: skip
_MIME: Final = re.compile(r"\b(image|audio|video)/[\w.+-]+")
_MARK: Final = re.compile(r"(?P<name>[A-Za-z ]{1,20} \(\d+ k?B\)) [g-v]{32}\u2026")


def with_digests(text: str) -> str:
    """``text`` with each binary block replaced by its kind, its size and a digest of all of it.

    Blocks: data URIs, base64 and hexadecimal data of 200 characters and more, broken into lines or not, lists of bytes,
    literals of bytes, and text that was decoded from something that is none.

    >>> block = "iVBORw0KGgo" + "aGVsbG8gd29ybGQ" * 20
    >>> with_digests("see " + block)
    'see image (233 B) hnojutqorulgqlnskmgmmsvjonkhsvhq…'
    """
    if len(text) < MIN_CHARS:
        return text
    if "\ufffd" in text and _is_undecoded(text):
        return _mark("binary data", text, len(text))
    if "\\" in text and "\\x" in text:
        text = _ESCAPED.sub(_of_literal, text)
    if not _may_hold_block(text):
        return text
    mime = cache(lambda: _MIME.search(text))  # looked for once, and only beside a block
    return _BLOCK.sub(lambda match: _of_block(match, mime), text)


def is_digest(text: str) -> bool:
    """Whether a part of a result is the digest of binary data, which is never noise."""
    return "\u2026" in text and _DIGEST.search(text) is not None


_DIGEST: Final = re.compile(r"[g-v]{32}\u2026")
"""Data within JSON, or a list that was written down, is followed by quotes, brackets and further members."""


def named_blocks(text: str) -> str | None:
    """A result with binary data in words: its kinds and sizes, and the texts beside them; None if it holds none.

    >>> named_blocks('[{"type": "image", "base64": "image (102 kB) ' + "g" * 32 + '…"}]')
    'an image (102 kB)'
    """
    if "B) " not in text:
        return None
    marks = [f"{_article(match['name'])} {match['name']}" for match in _MARK.finditer(text)]
    if not marks:
        return None
    names = marks[:_MAX_SHOWN] + ([f"{len(marks) - _MAX_SHOWN} more"] if len(marks) > _MAX_SHOWN else [])
    words = _texts_of_blocks(text) if text[:1] in ("[", "{") else " ".join(_MARK.sub("", text).split())
    return ", ".join(([f'"{clip(as_data(words))}"'] if words else []) + names)


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


def _texts_of_blocks(text: str) -> str:
    """The texts of a list of content blocks."""
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return ""
    blocks = value if isinstance(value, list) else []
    texts = [one.get("text") for one in blocks if isinstance(one, dict)]
    return " ".join(one for one in texts if isinstance(one, str) and _MARK.search(one) is None)


def _may_hold_block(text: str) -> bool:
    """Whether some stretch without the marks of a sentence is long enough: a few looks spare most texts a search."""
    if "data:" in text:
        return True
    samples = text[::_STRIDE].encode("ascii", "replace")
    for class_ in _CLASSES if "[" in text else _CLASSES[:1]:
        shape = samples.translate(class_)
        if _SAMPLED in shape:
            for run in _SAMPLED_RUNS.finditer(shape):
                if _has_dense_window(text, max(0, run.start() - 1) * _STRIDE, run.end() * _STRIDE):
                    return True
    return False


def _class_of(characters: str) -> bytes:
    """A table for ``translate``: one for these characters, zero for all others."""
    return bytes(chr(code) in characters for code in range(256))


_STRIDE: Final = 8
_SAMPLED: Final = b"\1" * (MIN_CHARS // _STRIDE)
"""Every eighth character is tested first: that rejects most texts without a full scan."""
_SAMPLED_RUNS: Final = re.compile(_SAMPLED + b"+")
_CLASSES: Final = (_class_of(f"{ascii_letters}{digits}_+/=\\\r\n-"), _class_of(f"{digits},{whitespace}"))
"""Letters of data, and those of a list of bytes."""


def _has_dense_window(text: str, start: int, end: int) -> bool:
    """Whether a part of a text, a hundred characters long, looks like the inside of a block."""
    for at in range(start + -start % _STEP, end, _STEP):
        found = _WINDOW.match(text, at)
        if found is not None and _is_dense(found):
            return True
    return False


def _is_dense(window: re.Match[str]) -> bool:
    """Whether a stretch is not made of blanks or line breaks, which both look like the inside of a block."""
    if window.lastgroup == "letters":
        return window[0].count("\n") <= _MAX_BREAKS
    return window[0].count(",") >= _MIN_COMMAS


def _is_undecoded(text: str) -> bool:
    return text.count("\ufffd") * 20 > len(text)


def _of_block(match: re.Match[str], mime: Callable[[], re.Match[str] | None]) -> str:
    block = match[0]
    if block.startswith("data:"):
        data, kind = block.partition(",")[2], _MIME.match(match["mime"] or "")
        return _mark(_kind_of(data, kind), block, len(data) * 3 // 4)
    if len(block) < MIN_CHARS:
        return block
    if block[0] == "[":
        return _mark(_kind_of("", mime()), block, block.count(",") + 1)
    if len(set(block[:_HEAD_CHARS])) < _MIN_DISTINCT:
        return block
    return _mark(_kind_of(block, mime()), block, len(block) * 3 // 4)


def _of_literal(match: re.Match[str]) -> str:
    block = match[0]
    escapes = block.count("\\x")
    if len(block) < MIN_CHARS or escapes * 16 < len(block):
        return block
    return _mark("image" if "PNG" in block[:12] else "binary data", block, len(block) - 3 * escapes)


def _kind_of(data: str, mime: re.Match[str] | None) -> str:
    found = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    if found is None and mime is not None:
        found = "image" if mime[1] == "image" else "recording"
    return found or "binary data"


def _mark(kind: str, block: str, size: int) -> str:
    """Letters that no mask takes for a hexadecimal number, and an end by which ``is_digest`` knows them."""
    digest = sha256(block.encode("utf-8", "surrogatepass")).hexdigest()[:32].translate(_LETTERS)
    return f"{kind} ({size // 1024} kB) {digest}\u2026" if size >= 1024 else f"{kind} ({size} B) {digest}\u2026"
