"""Hides secrets in texts of others: an error of a library, or the reply of a server, may repeat what was sent to it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "[REDACTED]"
_LONG: Final = 6
_SCHEMES: Final = frozenset({"basic", "bearer", "token", "apikey", "digest"})


class Hidden:
    """Replaces secrets wherever they stand; short ones by themselves only, so that ``1`` does not spoil each number.

    Parameters:
        secrets: values of headers, keys. Of ``Bearer token`` the token is hidden without its scheme, too.

    >>> Hidden(["Bearer a'b"]).hide('illegal value b"Bearer a\\'b"; a\\'b is no token')
    'illegal value b"[REDACTED]"; [REDACTED] is no token'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for part in _parts(secret) for form in _forms(part)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(_alone(re.escape(one), one) for one in longest_first)) if forms else None

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        return self._pattern.sub(HIDDEN, text) if self._pattern is not None else text


def basic(user: str, password: str) -> str:
    """The value of ``Authorization`` for a name and a password."""
    return f"Basic {credentials(user, password)}"


def credentials(user: str, password: str) -> str:
    """A name and a password in base64, as ``Authorization`` has them behind its scheme."""
    return b64encode(f"{user}:{password}".encode()).decode()


def _parts(secret: str) -> list[str]:
    whole = secret.strip()
    scheme, _, credentials = whole.partition(" ")
    parts = [whole, credentials.strip()] if scheme.lower() in _SCHEMES else [whole]
    return [part for part in parts if part and part.lower() not in _SCHEMES]


def _forms(part: str) -> set[str]:
    """The text itself, and as ``repr`` and JSON write it."""
    return {part, repr(part)[1:-1], repr(part + "'")[1:-2], json.dumps(part)[1:-1]}


def _alone(pattern: str, form: str) -> str:
    if len(form) >= _LONG:
        return pattern
    before = r"(?<![A-Za-z0-9])" if form[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if form[-1].isalnum() else ""
    return before + pattern + after
