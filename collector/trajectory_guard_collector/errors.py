"""Errors that refuse a batch, in the terms of the OTLP specification: may the sender try again, and when?"""

from __future__ import annotations

from trajectory_guard.errors import PortableError


class RefusedError(PortableError):
    """A batch that was not accepted. The sender still has it.

    Parameters:
        message: for the sender; names what is wrong.
        retry_after_s: seconds the sender should wait, None if it should not try again or may choose.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class BadDataError(RefusedError):
    """The batch will never be accepted: INVALID_ARGUMENT, 400."""


class TooLargeError(BadDataError):
    """The batch is beyond a limit; sent again in smaller parts it would be accepted: 413."""


class OverloadedError(RefusedError):
    """Memory, queue or disk is full for now: RESOURCE_EXHAUSTED with RetryInfo, 429 with Retry-After."""


class UnavailableError(RefusedError):
    """Shutting down, or a backend is down: UNAVAILABLE, 503."""


class StartError(Exception):
    """The collector cannot start: a port is taken, the storage is locked. The message names the key and the value."""
