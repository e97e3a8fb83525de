"""Access to the page of trajectories: with a token, or, where there are none, from this machine."""

from __future__ import annotations

import binascii
from base64 import b64decode
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from trajectory_guard_collector.authentication import Authenticator

_CHALLENGE: Final = 'Basic realm="trajectory_guard", charset="UTF-8", Bearer'
_NEEDS_TOKEN: Final = (
    "this page needs a token of receivers.otlp.auth or flags.auth: as `Authorization: Bearer <token>`, or in a browser"
    " as the password, with any name"
)
_NEEDS_SETTING: Final = (
    "without tokens this page is shown to clients on this machine only: set tokens (receivers.otlp.auth or flags.auth),"
    " or telemetry.open_page: true"
)
_FORWARDED: Final = ("forwarded", "x-forwarded-for")


class Readers:
    """Flags and trajectories may be read by agents, and by the people who raise flags."""

    def __init__(self, agents: Authenticator, people: Authenticator) -> None:
        self._agents, self._people = agents, people
        self.required = agents.required or people.required

    def check(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header opens what everybody may read where agents need no token."""
        return not self._agents.required or self.knows(header)

    def knows(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has a token of agents or people."""
        return any(one.required and one.check(header) for one in (self._agents, self._people))


class Writers:
    """Flags are raised and cleared by people only: a token that agents hold as well, as after a change of a file, is
    none of theirs.
    """

    def __init__(self, agents: Authenticator, people: Authenticator) -> None:
        self._agents, self._people = agents, people

    def check(self, header: str | None) -> bool:
        """Whether this ``Authorization`` header has a token of people, and none of agents."""
        return self._people.check(header) and not (self._agents.required and self._agents.check(header))


class PageAccess:
    """Answers 401 to requests without a known token; where there are no tokens, 403 to other machines.

    A browser cannot send a bearer token, so that it is accepted as the password of Basic, too.

    Parameters:
        readers: the known tokens.
        is_open: everybody may see the page.
    """

    def __init__(self, app: ASGIApp, *, readers: Readers, is_open: bool) -> None:
        self._app, self._readers, self._is_open = app, readers, is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        headers = Headers(scope=scope)
        if self._is_open:
            await self._app(scope, receive, send)
        elif self._readers.required:
            given = headers.getlist("authorization")
            if len(given) == 1 and self._readers.knows(_as_bearer(given[0])):
                await self._app(scope, receive, send)
            else:
                challenge = {"WWW-Authenticate": _CHALLENGE}
                await JSONResponse({"error": _NEEDS_TOKEN}, 401, headers=challenge)(scope, receive, send)
        elif _is_local(scope) and _names_this_machine(headers) and not any(name in headers for name in _FORWARDED):
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"error": _NEEDS_SETTING}, 403)(scope, receive, send)


def _as_bearer(header: str) -> str:
    """The header, with the password of Basic as a bearer token.

    >>> _as_bearer("Basic bWU6c2VjcmV0"), _as_bearer("Bearer secret"), _as_bearer("Basic ?")
    ('Bearer secret', 'Bearer secret', '')
    """
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        password = b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
    return f"Bearer {password}"


def _names_this_machine(headers: Headers) -> bool:
    """Whether a request is for this machine by a name of its own: another site may let its name point here."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine."""
    client = scope.get("client")
    return client is not None and _is_loopback(client[0])


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
