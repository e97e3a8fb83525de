"""The parameters of a request's query: a mistyped one is an error, since its default may be the opposite of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from trajectory_guard.core.text import nearest

RESOURCE: Final = "resource."
"""Parameters that begin so are attributes of the caller's resource."""
_SHOWN: Final = 80
_NAMED: Final = 5


def query_mistake(given: Iterable[str], known: Collection[str], *, resource: bool = False) -> str | None:
    """The mistake in the names of query parameters, None if all are known.

    Parameters:
        resource: whether the query may have ``resource.<key>``, too.

    >>> query_mistake(["after", "resource.team"], ("after", "agent"), resource=True)
    >>> query_mistake(["aftr", "x"], ("after", "agent"))
    "unknown query parameter 'aftr' (did you mean 'after'?), 'x'; known: after, agent"
    """
    wrong = [one for one in given if one not in known and not (resource and one.startswith(RESOURCE))]
    if not wrong:
        return None
    named = ", ".join(f"{one[:_SHOWN]!r}{nearest(one[:_SHOWN], known)}" for one in wrong[:_NAMED])
    return f"unknown query parameter {named}; known: {', '.join([*known, *([RESOURCE + '<key>'] if resource else [])])}"
