"""Bounds what is read of a reply: whatever answers at an address may never come to an end. Needs ``httpx``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import httpx

MAX_REPLY_BYTES: Final = 64 * 1024
"""Bytes of a reply that are read, as they are sent; a reply to fifteen scores has a few thousand."""


class _BoundedBody(httpx.SyncByteStream):
    """The beginning of a body."""

    def __init__(self, body: httpx.SyncByteStream, timeout_s: float) -> None:
        self._body, self._timeout_s = body, timeout_s

    def __iter__(self) -> Iterator[bytes]:
        size, deadline = 0, time.monotonic() + self._timeout_s
        for chunk in self._body:
            yield chunk
            size += len(chunk)
            if size >= MAX_REPLY_BYTES:
                return
            if time.monotonic() > deadline:  # httpx bounds each read, not all of them together
                raise httpx.ReadTimeout(f"the reply takes longer than {self._timeout_s:g} s")

    def close(self) -> None:
        self._body.close()


def bounded_reply(timeout_s: float) -> Callable[[httpx.Response], None]:
    """A hook of ``httpx.Client`` for responses: of a body the first 64 KiB are read, and none for longer than this."""

    def bound(response: httpx.Response) -> None:
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _BoundedBody(response.stream, timeout_s)

    return bound
