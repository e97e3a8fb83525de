"""HTTP requests to a collector, which carry its token: they are answered by the configured host, or by none."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from http.client import HTTPMessage
from typing import IO, Any


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
