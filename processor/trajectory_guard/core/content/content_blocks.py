"""Results in content blocks: a tool of an MCP server answers with ``{"type": "text", "text": …}`` around its text.

Frameworks pass these on as they are: one block, a list of blocks, the whole ``CallToolResult``, or the Python repr of
one of these. The model reads the text inside, so that is what must be compared, classified and quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.literals import parse_literal

_HEAD_CHARS: Final = 256
_MAX_CHARS: Final = 262_144
_MAX_LITERAL_CHARS: Final = 20_000
"""Python literals take microseconds a mark to parse, JSON does not."""
_MAX_DEPTH: Final = 3
_TEXT_TYPES: Final = ("text", "output_text", "input_text")
_BESIDE_TEXT: Final = frozenset(("type", "text", "id", "index", "annotations", "_meta", "meta", "citations"))
_OF_RESULT: Final = frozenset(
    ("content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta", "type", "data")
)
_BARE_STARTS: Final = ('[{"text":', '[{"json":')
"""Blocks of Amazon Bedrock have no type."""
_OF_FLAG: Final = ("isError", "is_error")
_REPR_STARTS: Final = (
    "TextContent(",
    "[TextContent(",
    "CallToolResult(",
    "meta=None content=[",
    "content=[TextContent(",
)
_REPR_TEXT: Final = re.compile(
    r"TextContent\((?:type='text', )?text=(?P<text>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")", re.DOTALL
)
_REPR_OTHER: Final = ("ImageContent(", "AudioContent(", "EmbeddedResource(", "ResourceLink(")
_REPR_FLAG: Final = re.compile(r"\b(?:isError|is_error)=(True|False)")


class Unwrapped(NamedTuple):
    """The text inside content blocks.

    Attributes:
        text: texts of the blocks, one under the other.
        error: the flag of a ``CallToolResult``, None if there is none.
    """

    text: str
    error: bool | None = None


def unwrap(text: str) -> Unwrapped | None:
    """The text inside content blocks that are written as text; None if the text is anything else.

    >>> unwrap('{"type": "text", "text": "No results"}')
    Unwrapped(text='No results', error=None)
    >>> unwrap('{"content": [{"type": "text", "text": "no such id"}], "isError": true}')
    Unwrapped(text='no such id', error=True)
    >>> unwrap("[TextContent(type='text', text='No results', annotations=None)]")
    Unwrapped(text='No results', error=None)
    >>> unwrap('{"type": "text", "name": "a field of a form"}')
    >>> unwrap('[{"json": {"orders": []}}, {"text": "none"}]')
    Unwrapped(text='{"orders": []}\\nnone', error=None)

    A tool that passes on what the tool of another server returned has blocks inside its blocks; these are opened too,
    and an error at any depth is one.

    >>> inner = '{\\\\"type\\\\": \\\\"text\\\\", \\\\"text\\\\": \\\\"No results\\\\"}'
    >>> unwrap('{"content": [{"type": "text", "text": "' + inner + '"}], "isError": false}')
    Unwrapped(text='No results', error=False)
    """
    found = _unwrap_once(text)
    if found is None:
        return None
    for _ in range(_MAX_DEPTH):
        inner = _unwrap_once(found.text)
        if inner is None:
            break
        found = inner._replace(error=inner.error if found.error is None else bool(found.error or inner.error))
    return found


def _unwrap_once(text: str) -> Unwrapped | None:
    if not text or text[0] not in "{[TCmc \n" or len(text) > _MAX_CHARS:
        return None
    head = text[:_HEAD_CHARS]
    if text[0] == "{" and not _may_be_blocks(head):
        return None  # most results
    head = head.lstrip()
    if head.startswith(_REPR_STARTS):
        return _unwrap_repr(text)
    if head[:1] not in ("{", "[") or not (_may_be_blocks(head) or head.startswith(_BARE_STARTS)):
        return None
    try:
        return unwrap_value(parse_json(text))
    except (ValueError, RecursionError):
        pass
    if "'text'" not in head or len(text) > _MAX_LITERAL_CHARS:
        return None
    try:
        return unwrap_value(parse_literal(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def unwrap_value(value: Any, depth: int = 0) -> Unwrapped | None:
    """As ``unwrap``, for a decoded value."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, list) and value:
        texts = [_text_of(one) for one in value]
        if None in texts:
            texts = [_text_of_bare(one) for one in value]
        return Unwrapped("\n".join(one for one in texts if one is not None)) if None not in texts else None
    if not isinstance(value, Mapping):
        return None
    one = _text_of(value)
    if one is not None:
        return Unwrapped(one)
    content = value.get("content")
    if not isinstance(content, list) or not value.keys() <= _OF_RESULT:
        return None
    flag = next((bool(value[key]) for key in _OF_FLAG if isinstance(value.get(key), bool)), None)
    inner = unwrap_value(content, depth + 1) if content else Unwrapped("") if flag is not None else None
    return inner._replace(error=flag) if inner is not None else None


def _may_be_blocks(head: str) -> bool:
    return ("text" in head and "type" in head) or "isError" in head or "is_error" in head


def _text_of(block: Any) -> str | None:
    """The text of a text block, None if the value is none."""
    if not isinstance(block, Mapping) or block.get("type") not in _TEXT_TYPES or not block.keys() <= _BESIDE_TEXT:
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def _text_of_bare(block: Any) -> str | None:
    """The text of a block that has one key, ``text`` or ``json``; None if the value is none."""
    if not isinstance(block, Mapping) or len(block) != 1:
        return None
    if "json" in block:
        return json.dumps(block["json"], ensure_ascii=False)
    text = block.get("text")
    return text if isinstance(text, str) else None


def _unwrap_repr(text: str) -> Unwrapped | None:
    found = list(_REPR_TEXT.finditer(text))
    outside = _REPR_TEXT.sub("", text)
    if not found or any(other in outside for other in _REPR_OTHER):
        return None
    try:
        texts = [str(parse_literal(one["text"])) for one in found]
    except (ValueError, SyntaxError, MemoryError):
        return None
    flag = _REPR_FLAG.search(outside)
    return Unwrapped("\n".join(texts), None if flag is None else flag[1] == "True")
