"""Word lists are text files in ``core/words``: one group a line, sorted; ``#`` begins a comment.

They are read once, at import.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files


def words(name: str) -> frozenset[str]:
    """All words of a list."""
    return frozenset(word for line in _lines(name) for word in line.split())


def groups(name: str) -> dict[str, tuple[str, ...]]:
    """Words by the name of their group, of a list whose lines are ``name: word word ...``."""
    return {head: tuple(members.split()) for head, members in _named(name)}


def runs(name: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Runs of words by the name of their group, of a list whose lines are ``name: run of words | run ...``."""
    return {head: tuple(tuple(run.split()) for run in members.split("|")) for head, members in _named(name)}


def _named(name: str) -> Iterator[tuple[str, str]]:
    for line in _lines(name):
        head, _, members = line.partition(":")
        yield head, members


def _lines(name: str) -> Iterator[str]:
    text = (files("trajectory_guard.core") / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))
