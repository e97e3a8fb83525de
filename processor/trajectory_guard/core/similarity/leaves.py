"""Arguments as a flat list of comparable leaves: which key, what kind of value, in which one spelling."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.text import repr_of, text_of
from trajectory_guard.core.tools import is_lookup

from . import keys
from .code import CODE as CODE_ENDINGS
from .code import PROSE, looks_like_code, normalize_code
from .dates import normalize_moment
from .maths import normalize_math
from .paths import normalize_path, normalize_selector, split_url
from .scripts import has_unspaced, letters_of, with_usual_digits
from .shell import normalize_shell
from .sql import looks_like_sql, normalize_sql
from .values import normalize_value
from .words import fold, plain_number

EXACT, WORD, TEXT, PATH, SELECTOR = "x", "w", "t", "p", "s"
"""Kinds of leaf. EXACT must be equal; WORD is exact unless the other side is TEXT; TEXT is compared by its words."""
COMMAND: Final = "sh "
"""Before the value of a leaf that is a command line in normal form."""

MAX_LEAVES: Final = 64
"""Leaves beyond this many are kept as one hash."""
MAX_WALKED: Final = 512
"""Arguments of more leaves than this are kept as one hash altogether."""
MAX_DEPTH: Final = 12
"""Values nested deeper than this many levels are kept as one hash."""
MAX_EXACT_CHARS: Final = 120
"""Longer exact values are kept as a prefix and a hash."""
MAX_SOURCE_CHARS: Final = 16_384
"""Longer strings are not parsed: they are kept as a prefix and a hash."""


class Leaf(NamedTuple):
    """One argument: its dotted key, the kind of its value, and the value in one spelling."""

    key: str
    kind: str
    value: str


class _Context(NamedTuple):
    tool: str
    ending: str
    knobs: bool
    budget: int


def shorten(text: str, limit: int = MAX_EXACT_CHARS) -> str:
    """``text`` itself, or a prefix, the length and a 64-bit hash of it."""
    if len(text) <= limit:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: limit // 2]}\u2026{len(text)}\u2026{digest}"


def flatten(tool: str, args: Any, text_budget: int) -> list[Leaf]:
    """The leaves of ``args``, sorted by key; settings are left out unless nothing else is there."""
    ending = _file_ending(args)
    context = _Context(tool, ending, keys.tool_sets_values(tool), text_budget)
    found = _collect(args, context)
    if not found and not context.knobs:
        found = _collect(args, context._replace(knobs=True))
    return _within_budget(sorted(found), text_budget)


def _collect(args: Any, context: _Context) -> list[Leaf]:
    """Leaves in the order of their keys; what is beyond ``MAX_LEAVES`` becomes one hash, whatever order it came in."""
    found: list[Leaf] = []
    for leaf in _walk("", "", args, context, 0, not context.knobs):
        found.append(leaf)
        if len(found) > MAX_WALKED:
            return [Leaf("", EXACT, _deep(args))]
    found.sort()
    if len(found) > MAX_LEAVES:
        rest = shorten(repr([tuple(leaf) for leaf in found[MAX_LEAVES:]]), 0)
        found[MAX_LEAVES:] = [Leaf("\u2026", EXACT, rest)]
    return found


def _file_ending(args: Any) -> str:
    """The ending of the file that a call is about, "" if none is named."""
    if isinstance(args, dict):
        for key in ("path", "file_path", "file", "filename", "filepath", "notebook_path"):
            name = args.get(key)
            if isinstance(name, str) and len(name) < 1024:
                last = name.rstrip("/ ").rsplit("/", 1)[-1].lower()
                return last.rsplit(".", 1)[-1] if "." in last else last
    return ""


def _walk(prefix: str, name: str, value: Any, context: _Context, depth: int, settings: bool) -> Iterator[Leaf]:
    """Leaves of one value. ``settings``: whether a technical setting may still be dropped at this level."""
    if value is None or value == "" or value is Ellipsis:
        return
    if isinstance(value, str):
        yield from _text_leaves(prefix, name, value, context, depth)
    elif isinstance(value, dict):
        yield from _walk_object(prefix, value, context, depth, settings)
    elif isinstance(value, (list, tuple)):
        yield from _walk_list(prefix, name, value, context, depth)
    else:
        yield Leaf(prefix, EXACT, scalar(value))


def _walk_object(prefix: str, value: dict[Any, Any], context: _Context, depth: int, settings: bool) -> Iterator[Leaf]:
    if depth >= MAX_DEPTH:
        yield Leaf(prefix, EXACT, _deep(value))
        return
    for raw, item in value.items():
        key = raw if isinstance(raw, str) else scalar(raw)
        if len(key) > 200:
            key = shorten(key, 100)
        kind = keys.classify_key(key)
        if kind == keys.PLAIN and keys.is_amount(key) and (is_lookup(context.tool) or not context.tool.isascii()):
            kind = keys.KNOB
        if settings and kind == keys.KNOB and not isinstance(item, (dict, list)):
            if depth or not (
                is_lookup(context.tool) and keys.names_exchange(key) and keys.is_asked_by(context.tool, key, value)
            ):
                continue
            kind = keys.PLAIN
        if kind == keys.RATIONALE and _is_rationale(key, context.tool, depth):
            continue
        if isinstance(item, (str, int, float)) and keys.is_clock(key, item):
            continue
        plain = keys.squash(key)
        if keys.is_default(plain, item):
            continue
        yield from _walk(
            f"{prefix}.{plain}" if prefix else plain, key, item, context, depth + 1, settings and keys.is_wrapper(key)
        )


def _is_rationale(key: str, tool: str, depth: int) -> bool:
    return depth == 0 and not (keys.is_plain_reason(key) and keys.tool_acts(tool))


def _walk_list(prefix: str, name: str, value: Any, context: _Context, depth: int) -> Iterator[Leaf]:
    """A list of one item is that item; texts under a name like "tags" are a set; all else keeps its order."""
    if depth >= MAX_DEPTH:
        yield Leaf(prefix, EXACT, _deep(value))
    elif len(value) == 1:
        yield from _walk(prefix, name, value[0], context, depth + 1, False)
    elif all(isinstance(item, str) for item in value) and keys.is_unordered(name):
        for item in value:
            yield from _walk(prefix + "[]", name, item, context, depth + 1, False)
    elif name and keys.is_unordered(name) and all(type(item) in (int, float) for item in value):
        for item in value[:4096]:
            yield Leaf(prefix + "[]", EXACT, scalar(item))
    elif all(isinstance(item, (int, float)) for item in value):
        if value:
            yield Leaf(prefix, EXACT, shorten(",".join(scalar(item) for item in value[:4096]) + f"#{len(value)}"))
    else:
        for position, item in enumerate(value):
            yield from _walk(f"{prefix}[{position}]", name, item, context, depth + 1, False)


def _deep(value: Any) -> str:
    """A hash of what is nested too deeply to look at; without recursion, so it cannot overflow."""
    digest = blake2b(digest_size=8)
    stack = [value]
    for _ in range(20_000):
        if not stack:
            break
        item = stack.pop()
        if isinstance(item, dict):
            for key in sorted(item, key=repr_of):
                stack.extend((item[key], text_of(key)))
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        digest.update(type(item).__name__.encode())
        if not isinstance(item, (dict, list, tuple)):
            digest.update(scalar(item).encode("utf-8", "surrogatepass"))
    return "deep:" + digest.hexdigest()


def scalar(value: Any) -> str:
    """A number, a truth value or a foreign object as text; never raises."""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**128) < value < 2**128 else shorten(hex(value))
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, str):
        return value
    try:
        return shorten(repr(value))
    except Exception:  # noqa: BLE001 - a foreign __repr__ may raise anything, and a comparison must not
        return f"<{type(value).__name__}>"


# --- strings -------------------------------------------------------------------------------------------------

_URL: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]{1,15}://\S", re.ASCII)
_HOST: Final = re.compile(r"\A(?:[a-zA-Z0-9-]{1,63}\.){1,8}[a-zA-Z]{2,24}(?::\d{1,5})?(?:[/?#]\S{0,2000})?\Z", re.ASCII)
"""An address that a browser completes with ``https://``."""
_NUMBER: Final = re.compile(r"^-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?$", re.ASCII)
_NUMBERS: Final = re.compile(r"\A-?\d+(?:\.\d+)?(?:\s*,\s*-?\d+(?:\.\d+)?)+\Z", re.ASCII)
_LOCALE: Final = re.compile(r"\A[a-z]{2}[_-][A-Z]{2}\Z")
_MAILBOX: Final = re.compile(r"\A[^<>@\n]{0,80}<([^<>@\s]{1,64}@[^<>@\s]{1,255})>\Z")
"""A name and an address of e-mail: the address says who it is."""
_CLOSE_LIST: Final = re.compile(r"\A[^\W\d_]{3,40}(?:,[^\W\d_]{2,40}){1,8}\Z")
_PATHLIKE: Final = re.compile(r"^(?:[A-Za-z]:\\|\.{0,2}/|~/)?[\w.@+-]+(?:[/\\][\w.@+*-]+)*[/\\]?$")


_LIST_MARK: Final = re.compile(r"[,;]")
_LISTED: Final = re.compile(r"[\w.@:-]{1,64}\Z")
"""An item of a list that is written as one text: ``id,name``."""


def _text_leaves(prefix: str, name: str, text: str, context: _Context, depth: int) -> Iterator[Leaf]:
    if len(text) > MAX_SOURCE_CHARS:
        yield Leaf(prefix, EXACT, shorten(text))
        return
    stripped = text.strip()
    if not stripped:
        return
    kind = keys.classify_key(name) if name else keys.PLAIN
    if (
        stripped[0] in "{["
        and stripped[-1] in "}]"
        and depth < MAX_DEPTH
        and kind not in (keys.CODE, keys.SELECTOR, keys.MATH)
    ):
        try:
            value = parse_json(stripped)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, (dict, list)):
            yield from _walk(prefix, name, value, context, depth + 1, False)
            return
    if name and _LIST_MARK.search(stripped) and keys.is_unordered(name) and kind == keys.PLAIN:
        parts = [part.strip() for part in _LIST_MARK.split(stripped)]
        if all(_LISTED.match(part) for part in parts):
            for part in parts:
                yield _string_leaf(prefix + "[]", kind, part, part, context)
            return
    if keys.is_address(name) and _HOST.match(stripped):
        stripped = f"https://{stripped}"
    if stripped.startswith("file:///"):
        yield Leaf(prefix, PATH, shorten(normalize_path(stripped), 240))
    elif _URL.match(stripped) and not stripped.startswith("file:"):
        yield from _url_leaves(prefix, stripped, context, depth)
    else:
        yield _string_leaf(prefix, kind, stripped, text, context)


def _url_leaves(prefix: str, text: str, context: _Context, depth: int) -> Iterator[Leaf]:
    try:
        address, query = split_url(text)
    except ValueError:
        yield Leaf(prefix, EXACT, shorten(text))
        return
    yield Leaf(prefix, EXACT, shorten(address))
    for key, value in query:
        if depth < MAX_DEPTH and value:
            key = keys.squash(key)
            yield _string_leaf(f"{prefix}?{key}", keys.classify_key(key), value.strip(), value, context)
        else:
            yield Leaf(f"{prefix}?{keys.squash(key)}", EXACT, shorten(value))


def _string_leaf(key: str, kind: int, text: str, raw: str, context: _Context) -> Leaf:
    if kind in (keys.SQL, keys.SHELL, keys.MATH, keys.SELECTOR, keys.CODE):
        found = _program_leaf(key, kind, text, raw, context)
        if found is not None:
            return found
    if kind == keys.PATH:
        return Leaf(key, PATH, shorten(normalize_path(text), 240))
    if not text.isascii():
        text = with_usual_digits(unicodedata.normalize("NFKC", text))
    if kind != keys.TEXT:
        value = (normalize_moment(text) if text[0].isdigit() or " " in text else None) or normalize_value(text, key)
        if value is not None:
            return Leaf(key, EXACT, value)
    if _LOCALE.match(text):
        return Leaf(key, EXACT, text.replace("_", "-").lower())
    mailbox = _MAILBOX.match(text)
    if mailbox:
        return Leaf(key, EXACT, shorten(mailbox[1].lower()))
    if _CLOSE_LIST.match(text):
        text = text.replace(",", ", ")
    if _NUMBERS.match(text):
        numbers = [one.strip() for one in text.split(",")]
        plain = [plain_number(one) if "." in one and _NUMBER.match(one) else one for one in numbers]
        return Leaf(key, EXACT, shorten(",".join(plain)))
    if " " in text or "\n" in text or "\t" in text:
        return _phrase_leaf(key, kind, text, context)
    return _token_leaf(key, kind, text)


def _program_leaf(key: str, kind: int, text: str, raw: str, context: _Context) -> Leaf | None:
    """The leaf of program text, or None where a value under such a key is prose after all."""
    if kind == keys.SQL or (kind != keys.CODE and looks_like_sql(text)):
        return Leaf(key, EXACT, shorten("sql " + normalize_sql(text)))
    if kind == keys.SHELL:
        return Leaf(key, EXACT, shorten(COMMAND + normalize_shell(text)))
    if kind == keys.SELECTOR:
        return Leaf(key, SELECTOR, shorten(normalize_selector(text), 240))
    if kind == keys.MATH:
        formula = normalize_math(text)
        return None if formula is None else Leaf(key, EXACT, shorten("= " + formula))
    known = context.ending in CODE_ENDINGS
    if context.ending not in PROSE and (known or looks_like_code(text)):
        return Leaf(key, EXACT, shorten("code " + normalize_code(raw, context.ending)))
    return Leaf(key, EXACT, shorten(normalize_code(raw, "txt"))) if known else None


def _phrase_leaf(key: str, kind: int, text: str, context: _Context) -> Leaf:
    if looks_like_sql(text):
        return Leaf(key, EXACT, shorten("sql " + normalize_sql(text)))
    if kind == keys.CODE and looks_like_code(text):
        return Leaf(key, EXACT, shorten("code " + normalize_code(text, context.ending)))
    moment = normalize_moment(text)
    if moment is not None:
        return Leaf(key, EXACT, moment)
    if "\n" in text and looks_like_code(text) and kind != keys.TEXT:
        return Leaf(key, EXACT, shorten("code " + normalize_code(text, context.ending)))
    return Leaf(key, TEXT, " ".join(text.split()))


def _token_leaf(key: str, kind: int, text: str) -> Leaf:
    """One word without spaces: a number, a date, an id, a path, or a word."""
    if _NUMBER.match(text):
        return Leaf(key, EXACT, plain_number(text))
    moment = normalize_moment(text) if text[0].isdigit() else None
    if moment is not None:
        return Leaf(key, EXACT, moment)
    if text.lower() in ("true", "false"):
        return Leaf(key, EXACT, text.lower())
    word = text.rstrip("?!.,;:")
    if len(text) >= _MIN_UNSPACED and has_unspaced(text):
        return Leaf(key, TEXT, text)
    if letters_of(word).isalpha() or (kind == keys.TEXT and word.replace("-", "").replace("'", "").isalpha()):
        return Leaf(key, TEXT if kind == keys.TEXT else WORD, word)
    if has_unspaced(text):
        return Leaf(key, TEXT, text)
    if "/" in text and _PATHLIKE.match(text):
        return Leaf(key, PATH, shorten(normalize_path(text), 240))
    if _is_email(text):
        return Leaf(key, EXACT, shorten(text.lower()))
    return Leaf(key, EXACT, shorten(_identifier(text)))


_MIN_UNSPACED: Final = 6
"""Characters from which a value in Chinese or Japanese is a text rather than one word."""


def _is_email(text: str) -> bool:
    name, _, host = text.partition("@")
    return bool(name) and "@" not in host and "." in host[1:-1] and len(text.split()) == 1


def _identifier(text: str) -> str:
    """An id without a leading ``#``; its case is kept only where it mixes both cases, as encoded tokens do."""
    text = text.removeprefix("#") or text
    letters = "".join(char for char in text if char.isalpha())
    mixed = not (letters.islower() or letters.isupper() or letters.istitle())
    return text if mixed else text.lower()


def _within_budget(leaves: list[Leaf], budget: int) -> list[Leaf]:
    """Texts beyond the budget, longest last to fit, become exact: a prefix and a hash of the folded text."""
    total = 0
    result: list[Leaf] = []
    for leaf in leaves:
        if leaf.kind in (TEXT, WORD):
            total += len(leaf.value)
            if total > budget:
                total -= len(leaf.value)
                leaf = Leaf(leaf.key, EXACT, shorten(fold(leaf.value), 64))
        result.append(leaf)
    return result
