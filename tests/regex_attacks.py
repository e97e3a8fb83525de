"""Hostile texts for a regular expression, made from its parsed form, and whether they take longer than linear time.

A backtracking matcher is slow where a repeat can be left and entered in many ways: two neighbouring repeats that accept
the same text, a repeat inside a repeat, or a search whose start matches at every place and then runs on. All of these
show on a text that pumps what a repeat accepts, behind what reaches the repeat, before something that does not match.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from time import thread_time
from typing import Any, Final, NamedTuple

if sys.version_info >= (3, 11):
    from re import _constants as ops
    from re import _parser as parser
else:
    import sre_constants as ops
    import sre_parse as parser

_UNBOUNDED: Final = 32
"""A repeat of more than this many rounds is pumped."""
_SAMPLES: Final = 4
_PUMPS: Final = 10
_MARKS: Final = 8
_PROBES: Final = " \na1_-.,:=/\\'\"`[({<>)]}@#%!?~$^&*;|+A0eZ\t\u00e9"
_TAILS: Final = ("", "\0", "!", "\n", "x ")
_MAX_ATTACKS: Final = 200
_LEAST_EACH: Final = 10
_SIZES: Final = (18, 120, 600, 3_000)
_LARGEST: Final = 15_000
"""Scanned only where the growth up to here may be that of a repeat of bounded length."""
_FLOOR_S: Final = 0.0012
_MOMENT_S: Final = 0.01
_ENOUGH: Final = 600
_QUICK_S: Final = 30e-9
"""A text of so many characters that takes less than this per character is not scanned in a larger size."""
_STEEP: Final = 11.0
"""Time may grow by five where the text does; quadratic time grows by twenty-five."""
_ROUNDS: Final = 5


class Slow(NamedTuple):
    """A text ``head + unit * rounds + tail`` on which a pattern takes too long: seconds at a fifth of it, and for all."""

    head: str
    unit: str
    tail: str
    fifth: float
    whole: float


def slowest(pattern: re.Pattern[Any]) -> Slow | None:
    """The first hostile text on which scanning takes longer than linear time, None if there is none."""
    for head, unit, tail in attacks(pattern):
        found = _grows(pattern, head, unit, tail)
        if found is not None:
            return found
    return None


def _grows(pattern: re.Pattern[Any], head: str, unit: str, tail: str) -> Slow | None:
    """Scans ever longer texts until one takes so long that growth can be told from noise.

    Within its bounds a repeat of bounded length may grow in any way, on a slow machine above the floor, too: a text
    that takes a moment is slow only if the next size, beyond these bounds, is slow as well.
    """
    before = 0.0
    for size in _SIZES:
        seconds = _scan(pattern, _text(head, unit, tail, size))
        if seconds > _FLOOR_S and seconds > before * _STEEP / 2:
            found = _confirmed(pattern, head, unit, tail, size)
            if found is None or found.whole > _MOMENT_S or size == _SIZES[0]:
                return found
            if size == _SIZES[-1]:
                return _confirmed(pattern, head, unit, tail, _LARGEST)
        elif size >= _ENOUGH and seconds < size * _QUICK_S:
            return None
        before = seconds
    return None


def _confirmed(pattern: re.Pattern[Any], head: str, unit: str, tail: str, size: int) -> Slow | None:
    """The same text at a fifth of its size and in full, in every one of several rounds: a busy machine is no proof."""
    short, long = _text(head, unit, tail, size // 5), _text(head, unit, tail, size)
    before = seconds = 0.0
    for _ in range(_ROUNDS):
        before = min(_scan(pattern, short) for _ in range(5))
        seconds = min(_scan(pattern, long) for _ in range(3))
        if seconds <= max(before * _STEEP, _FLOOR_S):
            return None
    return Slow(head, unit, tail, before, seconds)


def _text(head: str, unit: str, tail: str, size: int) -> str:
    return head + unit * (size // len(unit) + 1) + tail


def _scan(pattern: re.Pattern[Any], text: str) -> float:
    """Seconds of this thread to find every match, as ``sub`` and ``findall`` do; ``search`` does no more."""
    data: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    started = thread_time()
    for _ in pattern.finditer(data):
        pass
    return thread_time() - started


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """``(head, unit, tail)`` for every repeat: what reaches it, what it and its neighbours accept, what breaks it."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    accepted = _Samples(_marks(tree))
    places = list(accepted.repeats(list(tree), ""))
    found: dict[tuple[str, str, str], None] = {}
    for head, units, nexts in places:
        tails = list(dict.fromkeys((*_TAILS[:2], *(one[:-1] for one in nexts if one), *accepted.telling, *_TAILS[2:])))
        pumped = [
            ("", head),
            *((before, head[len(before) :] + unit) for unit in units for before in (head, "") if head),
        ]
        pumped += [("", unit) for unit in units if not head]
        pairs = [(at + 2 * of, one, tail) for at, one in enumerate(pumped) for of, tail in enumerate(tails) if one[1]]
        pairs.sort(key=lambda pair: pair[0])
        for _, (before, unit), tail in pairs[: max(_LEAST_EACH, _MAX_ATTACKS // len(places))]:
            found.setdefault((before, unit, tail))
    return list(found)


def _marks(tree: Iterable[Any]) -> str:
    """The punctuation that a pattern names, in its order: the characters on which its parts may disagree."""
    found: dict[str, None] = {}
    for item in tree:
        kind, value = item
        if kind is ops.LITERAL or kind is ops.NOT_LITERAL:
            found.setdefault(chr(value))
        elif kind is ops.IN:
            found.update((chr(one), None) for what, one in value if what is ops.LITERAL)
        for inner in _inside(item):
            found.update((char, None) for char in _marks(inner))
    return "".join(char for char in found if not char.isalnum())[:_MARKS]


def _is_pumped(item: Any) -> bool:
    return item[0] in _REPEATS and (item[1][1] is ops.MAXREPEAT or item[1][1] > _UNBOUNDED)


_REPEATS: Final = tuple(
    getattr(ops, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(ops, name)
)


def _inside(item: Any) -> Iterable[list[Any]]:
    kind, value = item
    if kind in _REPEATS:
        yield list(value[2])
    elif kind is ops.SUBPATTERN:
        yield list(value[3])
    elif kind is ops.BRANCH:
        for branch in value[1]:
            yield list(branch)
    elif kind in (ops.ASSERT, ops.ASSERT_NOT):
        yield list(value[1])
    elif hasattr(ops, "ATOMIC_GROUP") and kind is ops.ATOMIC_GROUP:
        yield list(value)


class _Samples:
    """Short texts that parsed items accept. ``telling``: punctuation of the pattern, tried before other characters."""

    def __init__(self, telling: str) -> None:
        self.telling = telling
        self._probes = "".join(dict.fromkeys(telling + _PROBES))

    def repeats(self, items: list[Any], head: str) -> Iterator[tuple[str, list[str], list[str]]]:
        """For each place in a sequence that repeats: the text before it, texts to pump, and what would come after."""
        for position, item in enumerate(items):
            after = self.of(items[position + 1 : position + 3])
            if _is_pumped(item):
                self._probes = "".join(dict.fromkeys(head[-1:] + self._probes))  # what opens it may stand in it
                own = self.of(list(item[1][2]), most=_PUMPS)
                around = [one + other for one in own[:3] for other in after[:2]]
                yield head, [unit for unit in dict.fromkeys((*own, *around)) if unit], after
            for inner in _inside(item):
                yield from self.repeats(inner, head)
            head += self.of([item])[0]
        if head and len(items) > 1:
            yield "", [head], []

    def of(self, items: Iterable[Any], most: int = _SAMPLES) -> list[str]:
        """Texts that a sequence accepts, the shortest way through first."""
        texts = [""]
        for item in items:
            texts = [text + more for more in self._one(item, most) for text in texts][:most]
        return texts

    def _one(self, item: Any, most: int) -> list[str]:
        kind, value = item
        if kind is ops.LITERAL:
            return [chr(value)]
        if kind is ops.ANY:
            return [*self._probes[:most], "\n"]
        if kind is ops.NOT_LITERAL:
            return [char for char in self._probes if ord(char) != value][:most]
        if kind is ops.IN:
            return self._of_set(value)[:most]
        if kind in _REPEATS:
            least, _, body = value
            bodies = self.of(list(body), most)
            return [text * least for text in bodies] if least else ["", *bodies]
        if kind is ops.BRANCH:
            return [text for branch in value[1] for text in self.of(list(branch), max(1, most // 4))]
        if kind is ops.SUBPATTERN:
            return self.of(list(value[3]), most)
        if kind is getattr(ops, "ATOMIC_GROUP", None):
            return self.of(list(value), most)
        return [""]  # a place, an assertion, a reference

    def _of_set(self, items: list[Any]) -> list[str]:
        """Characters that a set accepts, as different from each other as can be."""
        accepts = re.compile(_set_source(items))
        found = [char for char in self._probes if accepts.match(char)]
        return found or [chr(code) for code in range(0x3000) if accepts.match(chr(code))][:1] or [""]


_CATEGORIES: Final = {
    ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_NOT_DIGIT: r"\D", ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S", ops.CATEGORY_WORD: r"\w", ops.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _set_source(items: list[Any]) -> str:
    source = ""
    for kind, value in items:
        if kind is ops.NEGATE:
            source = "^" + source
        elif kind is ops.LITERAL:
            source += re.escape(chr(value))
        elif kind is ops.RANGE:
            source += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            source += _CATEGORIES[value]
    return f"[{source}]"
