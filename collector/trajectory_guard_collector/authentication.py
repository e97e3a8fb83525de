"""Bearer tokens: who may send, read and change."""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.models import Auth
from trajectory_guard_collector.config.tokens import SENDERS, read_tokens
from trajectory_guard_collector.otlp.replies import UnauthenticatedError, error_encoding, refused

_LOOK_INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)


class Authenticator:
    """Checks ``Authorization`` headers against the accepted tokens. Accepts every sender if none are configured.

    The tokens file is read again when it changes, checked at most once a second. If it disappears or loses its tokens
    later, the last tokens stay in use.

    Parameters:
        config: an ``auth`` section; path: its place in the configuration.
        clock: seconds, monotonic.
        failed: called when a changed file cannot be used.

    Raises:
        ConfigError: the tokens file cannot be read or has no token in it.
    """

    def __init__(
        self,
        config: Auth,
        *,
        path: str = SENDERS,
        clock: Callable[[], float] = time.monotonic,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._failed = failed
        self._path = path
        self.required = config.required
        self._fixed = tuple(map(_digest, config.fixed))
        self._file = Path(config.bearer_tokens_file) if config.bearer_tokens_file is not None else None
        self._clock = clock
        self._looked_at = clock()
        self._seen: tuple[int, ...] | None = None
        self._from_file: tuple[bytes, ...] = ()
        if self._file is not None:
            self._load(self._file)

    def check(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has an accepted token."""
        if not self.required:
            return True
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        self._refresh()
        given = _digest(token.strip())
        matches = [hmac.compare_digest(given, known) for known in self._fixed + self._from_file]
        return any(matches)  # all tokens are compared, so that the time does not reveal the matching one

    def _refresh(self) -> None:
        now = self._clock()
        if self._file is None or now - self._looked_at < _LOOK_INTERVAL_S:
            return
        self._looked_at = now
        try:
            self._load(self._file)
        except ConfigError as error:
            self._failed()
            logger.error("%s; the previous tokens stay in use", error)

    def _load(self, file: Path) -> None:
        seen = _fingerprint(file)
        if seen is None or seen != self._seen:
            self._from_file = tuple(map(_digest, read_tokens(file, self._path)))
            self._seen = seen


class Checks(Protocol):
    """An object that knows tokens."""

    def check(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has an accepted token."""


class BearerAuth:
    """Answers 401 to requests without a known token, whatever they ask for; calls ``turned_away`` for each."""

    def __init__(self, app: ASGIApp, *, auth: Checks, turned_away: Callable[[], object] = lambda: None) -> None:
        self._app = app
        self._auth = auth
        self._turned_away = turned_away

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        headers = Headers(scope=scope)
        given = headers.getlist(
            "authorization"
        )  # with two headers, readers of the first and readers of the last would disagree
        if self._auth.check(given[0] if len(given) == 1 else None):
            await self._app(scope, receive, send)
            return
        self._turned_away()
        encoding = error_encoding(headers.get("content-type", ""))
        await refused(UnauthenticatedError(), encoding)(scope, receive, send)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _fingerprint(file: Path) -> tuple[int, ...] | None:
    """Changes with every write of the file; None if the file is missing."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
