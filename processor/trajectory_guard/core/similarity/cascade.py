"""The last stage of the similarity cascade: an embedding model decides where the comparator could not.

The model sees natural language alone and only pairs the comparator calls MAYBE, so it can turn doubt into "same" but
never overrides a difference. Nothing here loads a model: an embed function is handed in. numpy is imported at the
first vector.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from typing import Any, Final, TypeAlias

from .features import is_english

Settle: TypeAlias = Callable[[str, str], "bool | None"]
"""``settle(a, b)``: True same meaning, False different, None not known (yet). Symmetric."""
Embed: TypeAlias = Callable[[str], Any]
"""One text to one vector, a sequence of floats. One text a call: a quantised model's vector depends on its batch."""
Vector: TypeAlias = Any
"""A float32 numpy array of length 1."""

MAX_TEXT_CHARS: Final = 512
"""Characters of a text that a model is given: about 128 tokens of English."""
CONTEXT_CHARS: Final = 128
"""Characters kept before the first difference of two texts that are too long to be given in full."""
MAX_VECTORS: Final = 2_048
"""Vectors remembered: at 384 dimensions about 4 MiB."""


def focus(a: str, b: str) -> tuple[str, str]:
    """The input of a model for two texts: the lines that differ, cut to ``MAX_TEXT_CHARS``.

    Lines that both texts hold say nothing about their difference and would only raise the similarity. Where a text
    is still too long, the cut starts shortly before the first difference, so that it cannot hide it.
    """
    left, right = a.splitlines(), b.splitlines()
    common = Counter(left) & Counter(right)
    if common:
        a, b = _without(left, common), _without(right, common)
    if max(len(a), len(b)) <= MAX_TEXT_CHARS:
        return a.strip(), b.strip()
    start = _start(a, b)
    return a[start : start + MAX_TEXT_CHARS].strip(), b[start : start + MAX_TEXT_CHARS].strip()


def _without(lines: list[str], common: Counter[str]) -> str:
    left = Counter(common)
    kept = []
    for line in lines:
        if left[line] > 0:
            left[line] -= 1
        else:
            kept.append(line)
    return "\n".join(kept)


def _start(a: str, b: str) -> int:
    """Offset of the word that begins at most ``CONTEXT_CHARS`` before the first difference."""
    differs = next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    start = max(0, differs - CONTEXT_CHARS)
    space = a.find(" ", start, differs) if start else -1
    return space + 1 if space >= 0 else start


def both_english(a: str, b: str) -> bool:
    """Whether a threshold that was found on English pairs says anything about two texts."""
    return is_english(a) and is_english(b)


def text_key(text: str) -> bytes:
    """16 bytes that stand for a text in caches and queues."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def unit(vector: Any) -> Vector:
    """A vector as float32 of length 1.

    Raises:
        ValueError: the vector is empty, zero, not finite, or not one-dimensional.
    """
    numpy: Any = import_module("numpy")
    array = numpy.asarray(vector, dtype=numpy.float32)
    length = float(numpy.linalg.norm(array))
    if array.ndim != 1 or not 0.0 < length < float("inf"):
        raise ValueError(f"not a usable embedding: shape {array.shape}, length {length}")
    return array / numpy.float32(length)


class VectorCache:
    """Vectors by text, the least recently used dropped first. Not thread-safe: callers lock."""

    __slots__ = ("_vectors", "limit")

    def __init__(self, limit: int = MAX_VECTORS) -> None:
        if limit < 2:
            raise ValueError(f"limit: {limit} is below 2, the vectors of one pair")
        self.limit = limit
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def __contains__(self, key: bytes) -> bool:
        return key in self._vectors

    def get(self, key: bytes) -> Vector | None:
        """The vector under a ``text_key``, None if it is not there."""
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: Vector) -> None:
        """Remember a unit vector."""
        self._vectors[key] = vector
        self._vectors.move_to_end(key)
        if len(self._vectors) > self.limit:
            self._vectors.popitem(last=False)


class Settler:
    """Settles pairs at once, in the calling thread: for replay, the command line and tests.

    Parameters:
        embed: one text to one vector; need not be normalised.
        tau: cosine in (0, 1] from which two texts mean the same; comes from calibration, never from another model.
        any_language: whether ``tau`` was found on pairs of the languages in use; else only English texts are settled.

    >>> def letters(text): return [text.count(letter) for letter in "abc"]
    >>> Settler(letters, 0.9).settle("abc", "cba")
    True
    """

    def __init__(self, embed: Embed, tau: float, *, any_language: bool = False) -> None:
        if not 0.0 < tau <= 1.0:
            raise ValueError(f"tau: {tau} is not in (0, 1]")
        self.embed = embed
        self.tau = tau
        self.any_language = any_language
        self._cache = VectorCache()

    def settle(self, a: str, b: str) -> bool | None:
        """Whether two texts mean the same; None if there is nothing to compare. Errors of ``embed`` pass through."""
        left, right = focus(a, b)
        if not left or not right or not (self.any_language or both_english(a, b)):
            return None
        return self.cosine(left, right) >= self.tau

    def cosine(self, a: str, b: str) -> float:
        """Cosine of two texts as they are, -1 to 1."""
        return float(self._vector(a) @ self._vector(b))

    def _vector(self, text: str) -> Vector:
        key = text_key(text)
        vector = self._cache.get(key)
        if vector is None:
            vector = unit(self.embed(text))
            self._cache.put(key, vector)
        return vector
