"""Requests of HTTP in the arguments of a tool: where they go, and what they send."""

from __future__ import annotations

import re
from typing import Any, Final

from trajectory_guard.core.fingerprints import object_in


def request_in(args: Any) -> tuple[str, str, dict[str, Any]] | None:
    """Method and address of the request of HTTP that a call sends, and what else it gives; None if it is no such call.

    Headers and other credentials are left out, and so is what is not given.

    >>> request_in({"request": {"method": "post", "url": "/v3/schedules", "headers": {}, "body": {"a": 1}}})
    ('POST', '/v3/schedules', {'body': {'a': 1}})
    """
    request: Any = args.get("request", args) if isinstance(args, dict) else None
    if isinstance(request, str) and request[:1] == "{" and len(request) <= _MAX_REQUEST_CHARS:
        request = object_in(request)
    if not isinstance(request, dict):
        return None
    method = request.get("method")
    if not isinstance(method, str) or method.upper() not in _METHODS:
        return None
    named = next((key for key in _ADDRESSES if isinstance(request.get(key), str)), "")
    if not named or not request[named]:
        return None
    rest = {key: item for key, item in without_headers(request).items() if key not in ("method", named)}
    return method.upper(), request[named], {key: item for key, item in rest.items() if item is not None}


def without_headers(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call that names an address, without its headers and other credentials; others as they are.

    >>> without_headers({"url": "/a", "headers": {"X-Key": "k"}}), without_headers({"file": "a.csv", "headers": ["x"]})
    ({'url': '/a'}, {'file': 'a.csv', 'headers': ['x']})
    """
    if _CREDENTIALS.isdisjoint(args) or not any(isinstance(args.get(key), str) for key in _ADDRESSES):
        return args
    return {key: item for key, item in args.items() if key not in _CREDENTIALS}


def endpoint_of(args: dict[str, Any]) -> str:
    """Method and address, without its query and ids, of a request of HTTP that writes; empty for any other call.

    A tool that sends any request is as many tools as there are endpoints to write to: one of them may refuse each body
    while the others work. What is read may be a list of addresses.

    >>> endpoint_of({"method": "POST", "url": "/v3/plans/p-17/commit?dry=1"}), endpoint_of({"url": "/v3/schedules"})
    (' POST /v3/plans/#/commit', '')
    """
    request = request_in(args)
    if request is None or request[0] not in _WRITING_METHODS:
        return ""
    return f" {request[0]} {_IDS.sub('/#', request[1].partition('?')[0][:_MAX_ADDRESS_CHARS])}"


_IDS: Final = re.compile(r"/(?!v\d{1,2}(?:/|\Z))[^/\d:]{0,80}\d[^/]{0,80}")
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
READING_METHODS: Final = frozenset(("GET", "HEAD"))
_WRITING_METHODS: Final = frozenset(("POST", "PUT", "PATCH"))
_CREDENTIALS: Final = frozenset(("auth", "cookies", "headers"))
_ADDRESSES: Final = ("url", "uri", "path", "endpoint")
_MAX_REQUEST_CHARS: Final = 16_384
_MAX_ADDRESS_CHARS: Final = 200
