"""Normal forms of calls, and whether two of them mean the same.

Reads arguments only; the caller compares the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from .features import TextFeatures, features
from .initials import write_out
from .leaves import EXACT, PATH, SELECTOR, TEXT, WORD, Leaf, flatten
from .paths import same_path, same_selector
from .texts import compare_texts, quotes_another
from .words import fold

MAX_TEXT_CHARS: Final = 2_048
"""Characters of natural language that a normal form keeps; texts beyond are kept as prefix and hash."""
FORMAT_VERSION: Final = 1
"""Version of the plain form; another version is refused by ``NormalForm.from_plain``."""


class Relation(str, Enum):
    """How two calls relate. MAYBE: an embedding model may decide, without one it counts as different."""

    SAME = "same"
    DIFFERENT = "different"
    MAYBE = "maybe"

    def __str__(self) -> str:
        return self.value


class Comparison(NamedTuple):
    """A relation and one short sentence that says why."""

    relation: Relation
    reason: str


class NormalForm:
    """A call in the form that is compared: its tool and its arguments, each in one spelling. Treat as immutable.

    Equal content is equal and hashes alike. The words of texts are analysed at the first comparison that needs them
    and kept.
    """

    __slots__ = ("_digest", "_features", "_hash", "_text", "keys", "leaves", "tool")

    def __init__(self, tool: str, leaves: Iterable[Leaf]) -> None:
        self.tool = tool
        self.leaves = tuple(leaves)
        self.keys = tuple(leaf.key for leaf in self.leaves)
        self._digest: bytes | None = None
        self._features: dict[tuple[int, ...], TextFeatures] = {}
        self._text: str | None = None
        self._hash: int | None = None

    @property
    def digest(self) -> bytes:
        """8 bytes; two forms with one digest are the same call."""
        if self._digest is None:
            rows = [self.tool, *((leaf.key, *_folded(leaf)) for leaf in self.leaves)]
            self._digest = blake2b(repr(rows).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return self._digest

    @property
    def text(self) -> str:
        """The worded values alone, one a line: what an embedding model should be given; "" if none.

        Single words are among them: "IBM" may stand against a text. Where both calls have one, ``focus`` drops it.
        """
        if self._text is None:
            self._text = "\n".join(leaf.value for leaf in self.leaves if leaf.kind in _WORDED)
        return self._text

    def features(self, positions: tuple[int, ...]) -> TextFeatures:
        """The combined content of the texts at these positions."""
        found = self._features.get(positions)
        if found is None:
            found = features(self.joined(positions))
            if len(self._features) >= 4:
                self._features.clear()
            self._features[positions] = found
        return found

    def joined(self, positions: tuple[int, ...]) -> str:
        """The values at these positions, one a line."""
        if len(positions) == 1:
            return self.leaves[positions[0]].value
        return "\n".join(self.leaves[position].value for position in positions)

    def to_plain(self) -> list[Any]:
        """``[version, tool, [[key, kind, value], ...]]``, ready for JSON."""
        return [FORMAT_VERSION, self.tool, [list(leaf) for leaf in self.leaves]]

    @classmethod
    def from_plain(cls, plain: Any) -> NormalForm:
        """The form that ``to_plain`` wrote.

        Raises:
            ValueError: this is no plain form, or one of another version.
        """
        try:
            version, tool, rows = plain
            leaves = [Leaf(*row) for row in rows]
        except (TypeError, ValueError):
            raise ValueError("not a plain normal form: expected [version, tool, [[key, kind, value], ...]]") from None
        if version != FORMAT_VERSION:
            raise ValueError(f"normal form of version {version!r}, expected {FORMAT_VERSION}")
        if not isinstance(tool, str) or not all(isinstance(part, str) for row in rows for part in row):
            raise ValueError("not a plain normal form: tool, keys, kinds and values must be text")
        return cls(tool, leaves)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NormalForm):
            return NotImplemented
        return self.tool == other.tool and self.leaves == other.leaves

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.tool, self.leaves))
        return self._hash

    def __repr__(self) -> str:
        shown = ", ".join(f"{leaf.key}={leaf.value[:40]!r}" for leaf in self.leaves[:4])
        return f"NormalForm({self.tool}: {shown})"


def _folded(leaf: Leaf) -> tuple[str, str]:
    if leaf.kind == TEXT or leaf.kind == WORD:
        return "t", fold(leaf.value)
    return leaf.kind, leaf.value


def normalize(tool: str, args: Any) -> NormalForm:
    """The normal form of a call. ``args`` is any decoded JSON value; never raises on one.

    Technical settings (timeouts, retries, top_k) and rationales (thought, purpose) are left out; keys and lists of
    texts are sorted; numbers, paths, URLs, SQL, shell, code, selectors and arithmetic are written in one way.
    """
    tool = tool.casefold()
    try:
        leaves = flatten(tool, args, MAX_TEXT_CHARS)
    except RecursionError:
        leaves = [Leaf("", EXACT, "too deep")]
    return NormalForm(tool, leaves)


_SAME_FORM: Final = Comparison(Relation.SAME, "the same call in normal form")


def compare(a: NormalForm, b: NormalForm) -> Comparison:
    """Whether the second call repeats the first; the relation is symmetric.

    Any differing number, id, date, path, address or program text makes calls different; texts are compared by their
    content. Results are not compared: two equal calls may be polling.
    """
    if a.tool != b.tool:
        return Comparison(Relation.DIFFERENT, f"another tool: {a.tool} / {b.tool}")
    if a.leaves == b.leaves:
        return _SAME_FORM
    if a.keys != b.keys:
        return Comparison(Relation.DIFFERENT, _key_difference(a, b))
    if a.digest == b.digest:
        return _SAME_FORM
    return _compare_leaves(a, b)


def _key_difference(a: NormalForm, b: NormalForm) -> str:
    alone = sorted(set(a.keys) ^ set(b.keys))
    return (
        f"only one side has {', '.join(key or 'a value' for key in alone[:3])}" if alone else "lists of another length"
    )


@lru_cache(maxsize=256)  # an agent that goes round comes back to the wordings that it has tried
def _compare_leaves(a: NormalForm, b: NormalForm) -> Comparison:
    texts: list[int] = []
    for position, (left, right) in enumerate(zip(a.leaves, b.leaves, strict=True)):
        if left == right:
            continue
        if "," in left.value:
            if "," not in right.value and _is_inverted(right, left):
                continue
        elif "," in right.value and _is_inverted(left, right):
            continue
        if left.kind in _WORDED and right.kind in _WORDED and (left.kind == TEXT or right.kind == TEXT):
            if quotes_another(left.value, right.value):
                return Comparison(Relation.DIFFERENT, f"another name is quoted: {_excerpt(left)} / {_excerpt(right)}")
            texts.append(position)
        elif not _same_leaf(left, right):
            return Comparison(Relation.DIFFERENT, f"{_label(left.key)} differs: {_excerpt(left)} / {_excerpt(right)}")
    if not texts:
        return Comparison(Relation.SAME, "other spellings of one call")
    if moved := _moved_value(a, b, texts):
        return Comparison(Relation.DIFFERENT, f"a value stands under another key: {moved}")
    chosen = tuple(texts)
    relation, reason = compare_texts(a.features(chosen), b.features(chosen))
    if relation != Relation.SAME:
        relation, reason = _compare_written_out(a.joined(chosen), b.joined(chosen)) or (relation, reason)
    return Comparison(Relation(relation), reason)


def _moved_value(a: NormalForm, b: NormalForm, positions: list[int]) -> str:
    """A value that stands under another key there: from Rome to Oslo is not from Oslo to Rome."""
    under = {fold(a.leaves[position].value): position for position in positions} if len(positions) > 1 else {}
    for position in positions:
        other = b.leaves[position]
        if a.leaves[under.get(fold(other.value), position)].key != other.key:
            return _excerpt(other)
    return ""


def _compare_written_out(a: str, b: str) -> tuple[str, str] | None:
    """The comparison with abbreviations written out, None if there is none."""
    left, right = write_out(a, b)
    return None if (left, right) == (a, b) else compare_texts(features(left), features(right))


_WORDED: Final = frozenset((TEXT, WORD))


def _same_leaf(left: Leaf, right: Leaf) -> bool:
    if _is_grouped(left.value, right.value) or _is_grouped(right.value, left.value):
        return True
    if left.kind != right.kind:
        return _has_hyphens_for_spaces(left, right) or _has_hyphens_for_spaces(right, left)
    if left.kind == PATH:
        return same_path(left.value, right.value)
    if left.kind == SELECTOR:
        return same_selector(left.value, right.value)
    return left.kind == WORD and fold(left.value) == fold(right.value)


def _has_hyphens_for_spaces(name: Leaf, hyphenated: Leaf) -> bool:
    """Whether a name of several words is written with hyphens there: ``Paris Gare de Lyon``, ``Paris-Gare-de-Lyon``."""
    worded = name.kind in _WORDED and hyphenated.kind == EXACT
    return worded and not _DIGIT.search(name.value) and fold(name.value) == fold(hyphenated.value.replace("-", " "))


_DIGIT: Final = re.compile(r"\d")


def _is_inverted(name: Leaf, sorted_name: Leaf) -> bool:
    """Whether a name without a comma is written for sorting there: ``Berg, Joost van den``, ``Joost van den Berg``."""
    last, _, first = sorted_name.value.partition(",")
    return "," not in first and fold(f"{first} {last}") == fold(name.value)


def _is_grouped(whole: str, grouped: str) -> bool:
    """Whether an id of many digits is written in groups there: ``552 081 317``, ``123.456.789-09``; or one of letters
    and digits: ``34 ABC 123``.
    """
    if _BETWEEN_KINDS.sub("", grouped).casefold() == whole.casefold() != grouped.casefold():
        return True
    joined = _GROUPING.sub("", grouped).lower()
    return joined == whole.lower() and joined.isalnum() and sum(map(str.isdigit, joined)) >= _MIN_DIGITS


_BETWEEN_KINDS: Final = re.compile(r" (?:(?<=[^\W\d_] )(?=\d)|(?<=\d )(?=[^\W\d_]))")
_GROUPING: Final = re.compile(r"[ ./-](?<=\w.)(?=\w)")
"""The character before a separator is looked at behind it: so a search skips to the separators."""
_MIN_DIGITS: Final = 8
"""Digits from which groups of them are parts of one number: 192.168.1.1 and 19.21.68.1 have fewer or other parts."""


def _label(key: str) -> str:
    return f"the value of {key}" if key else "the value"


def _excerpt(leaf: Leaf) -> str:
    return leaf.value[:40]
