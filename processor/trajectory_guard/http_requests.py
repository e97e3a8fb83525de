"""HTTP requests to a collector, which carry its token: they are answered by the configured host, or by none."""

from __future__ import annotations

import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextvars import copy_context
from functools import cache
from http.client import HTTPMessage
from typing import IO, Any, TypeVar

T = TypeVar("T")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """``urllib`` would send the same headers, the token among them, to whatever host a reply names."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        there = urllib.parse.urlsplit(newurl)
        host = there.netloc.rpartition("@")[2]
        reason = f"redirects to {there.scheme}://{host}, which is not followed"
        raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)


@cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def open_url(request: urllib.request.Request, *, timeout_s: float) -> Any:
    """The reply, to be closed by the caller; proxies as the environment names them.

    Raises:
        urllib.error.HTTPError: another status than 200 to 299; for a redirect, the reason names the host.
        OSError, http.client.HTTPException: no reply.
    """
    return _opener().open(request, timeout=timeout_s)


def on_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Do work on a daemon thread: the time-out of a socket bounds neither the look-up of a name nor the sum."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  the thread that waits raises it
            done.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return done


def within(work: Callable[[], T], timeout_s: float, name: str) -> T:
    """The result of work that may take so long.

    Raises:
        TimeoutError: it takes longer; it may go on.
    """
    done = on_thread(work, name)
    try:
        return done.result(timeout_s)
    except LateError:
        if done.done():
            raise  # of the work itself
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
