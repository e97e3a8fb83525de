"""Langfuse's tags on a span: those that an application has set, and those of the guard beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable


def with_tags(before: object, new: Iterable[str]) -> list[str]:
    """The tags that a span has, as plain data in any form that Langfuse reads, and then those that are new to it."""
    return [*dict.fromkeys([*_tags_in(before), *new])]


def _tags_in(plain: object) -> list[str]:
    """Tags as an application wrote them: a list, a JSON list, a comma-separated list or one string."""
    if isinstance(plain, str):
        try:
            decoded = json.loads(plain)
        except ValueError:
            decoded = [part.strip() for part in plain.split(",")]
        plain = decoded if isinstance(decoded, list) else [plain]
    return [str(one) for one in plain if one not in (None, "")] if isinstance(plain, (list, tuple)) else []
