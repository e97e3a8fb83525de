"""The structure that a harness puts around an answer: elements, a header of fields, a box.

No list of names says which harness writes what. A frame says nothing of the answer: each of its fields names the tool,
counts or times the exchange, or says that all went well. Whatever holds a field that says more stays as it is.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trajectory_guard.core.content.masking import is_volatile_key
from trajectory_guard.core.content.wrappers import EXIT_KEYS
from trajectory_guard.core.similarity.keys import names_exchange

_MAX_CHARS: Final = 8_192
_MAX_DEPTH: Final = 4
_MAX_FIELDS: Final = 12
_TAG: Final = re.compile(r"\s{0,9}<([A-Za-z][\w:.-]{0,40})((?:\s[^<>]{1,200})?)>")
_OF_PAGE: Final = re.compile(
    r"\s{0,9}<(?:html|head|body|main|div|span|section|article|aside|nav|header|footer|form|table|svg|a|b|p|ul|ol|h\d)\b",
    re.IGNORECASE,
)
"""The beginning of a page, or of a part of it."""
_ATTRIBUTE: Final = re.compile(r"""\s{0,9}([\w:.-]{1,40})=(?:"([^"]{0,120})"|'([^']{0,120})')""")
_FIELD: Final = re.compile(r"[^\w\n]{0,3}([^\W\d][\w .-]{0,30}?)\s{0,2}[:=]\s{0,3}(\S[^\n]{0,120})?")
_RULE: Final = re.compile(r"\s{0,3}([-=*_~─━═])\1{2,119}\s{0,3}")
_SAYS_NOTHING: Final = re.compile(
    r"(?:tool|function|command)(?:[_ -]?(?:name|type|version|id))?|(?:tool[_ -]?)?call[_ -]?id"
    r"|content[_ -](?:type|length)|mime[_ -]?type|encoding|charset|server|node|host",
    re.IGNORECASE,
)
"""Names of fields that do not tell one record from another, as ``id`` and ``name`` do."""
_WELL: Final = frozenset(
    ("0", "200", "ok", "success", "succeeded", "successful", "true", "completed", "done", "none", "null")
)
_OF_FAILURE: Final = re.compile(r"(?:is_?)?(?:error|failed|truncated)s?", re.IGNORECASE)
_STATUS_KEYS: Final = EXIT_KEYS | {"statuscode", "status_code", "status-code", "status code"}
_NOT: Final = frozenset(("", "0", "false", "no", "none", "null", "[]"))


class Field(NamedTuple):
    """A named part of a frame."""

    name: str
    value: str

    def says_nothing(self, tool: str) -> bool:
        """Whether it names the tool, counts or times the exchange, or says that all went well."""
        value = self.value.strip().casefold()
        if _OF_FAILURE.fullmatch(self.name) is not None:
            return value in _NOT
        if value in _WELL or value == tool.casefold():
            return True
        brief = len(value) <= 64 and "\n" not in value
        return brief and (
            _SAYS_NOTHING.fullmatch(self.name) is not None or is_volatile_key(self.name) or names_exchange(self.name)
        )


def without_structure(text: str, tool: str) -> str:
    """A text without the structure around its one answer; ``text`` itself if there is none.

    >>> without_structure("<reply><tool>search</tool><body>saved</body></reply>", "search")
    'saved'
    >>> without_structure("tool: search\\nduration: 0.31\\n---\\nsaved", "search")
    'saved'
    >>> without_structure("<reply><state>queued</state><body>saved</body></reply>", "search")
    '<state>queued</state><body>saved</body>'
    >>> without_structure("┌────────┐\\n│ saved  │\\n└────────┘", "search")
    'saved'
    """
    if len(text) > _MAX_CHARS or _OF_PAGE.match(text) is not None:
        return text
    for _ in range(_MAX_DEPTH):
        inner = _inside(text, tool)
        if inner == text or not inner.strip():
            break
        text = inner
    return text


def _inside(text: str, tool: str) -> str:
    """A text without the outermost of its structures."""
    start = text.lstrip()[:1]
    if start == "<":
        return _in_element(text, tool)
    if "\n" not in text:
        return text
    if start == ">":
        return _without_margin(text)
    if start in _BORDERS:
        return _without_box(text)
    return _without_fields(text, tool)


def _in_element(text: str, tool: str) -> str:
    """The one element that says something, of those that a text consists of."""
    said: list[Field] = []
    well: list[Field] = []
    rest = text.strip()
    for _ in range(_MAX_FIELDS):
        if not rest:
            break
        tag = _TAG.match(rest)
        if tag is None or not all(Field(*one).says_nothing(tool) for one in _attributes(tag[2])):
            return text
        end = f"</{tag[1]}>"
        at = rest.find(end, tag.end())
        if at < 0:
            return text
        if rest.find(f"<{tag[1]}", tag.end(), at) >= 0:  # one of the same name within it
            at = rest.rfind(end)
        part = Field(tag[1], rest[tag.end() : at])
        if part.name.lower() in _STATUS_KEYS and not part.says_nothing(tool):
            return text  # of a failure: with what is beside it, it says which
        if not part.says_nothing(tool):
            said.append(part)
        elif part.value.strip().casefold() in _WELL:
            well.append(part)
        rest = rest[at + len(end) :].strip()
    said = said or well[-1:]  # an answer may say no more than that
    return said[0].value.strip() if not rest and len(said) == 1 else text


def _attributes(text: str) -> list[tuple[str, str]]:
    """Names and values in the beginning of an element; one that says something if they cannot be read."""
    found = [(name, double or single) for name, double, single in _ATTRIBUTE.findall(text)]
    return found if not _ATTRIBUTE.sub("", text).strip() else [("?", "?")]


def _without_fields(text: str, tool: str) -> str:
    """A text without the lines of fields at its beginning."""
    lines = text.strip("\n").split("\n")
    first = 1 if _RULE.fullmatch(lines[0]) is not None else 0
    place = first
    while place < min(len(lines), _MAX_FIELDS) and (field := _FIELD.fullmatch(lines[place])) is not None:
        if not Field(field[1], field[2] or "").says_nothing(tool):
            break
        place += 1
    if first < place < len(lines) and (not lines[place].strip() or _RULE.fullmatch(lines[place]) is not None):
        return "\n".join(lines[place + 1 :]).strip("\n")
    return text


_BORDERS: Final = ("┌", "╭", "╔", "┏", "│", "║", "┃")
_SIDES: Final = "│║┃┆┊"


def _without_box(text: str) -> str:
    """The text in a box."""
    lines = text.strip().split("\n")
    inside = [line.strip() for line in lines if line.strip()[:1] in _SIDES]
    edges = [line for line in lines if line.strip()[:1] not in _SIDES]
    if not inside or not all("─" in line or "═" in line or "━" in line for line in edges):
        return text
    if any(line[-1:] not in _SIDES or any(side in line[1:-1] for side in _SIDES) for line in inside):
        return text  # the cells of a table
    return "\n".join([line[1:-1].strip() for line in inside])


def _without_margin(text: str) -> str:
    """The text that is quoted line by line."""
    lines = text.strip().split("\n")
    return "\n".join([line[1:].removeprefix(" ") for line in lines]) if all(line[:1] == ">" for line in lines) else text
