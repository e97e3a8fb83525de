"""``trajectory-guard flag``: read, raise and clear the flag of a trajectory on a collector."""

from __future__ import annotations

import argparse
import getpass
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trajectory_guard.cli.output import BAD_INPUT, FINE, complain, print_json
from trajectory_guard.config.values import url_mistake, without_userinfo
from trajectory_guard.core.text import clip
from trajectory_guard.http_requests import open_url
from trajectory_guard.process.own_threads import within

_TIMEOUT_S: Final = 10.0
"""Seconds for the whole request, however slowly the reply comes."""
_MAX_BYTES: Final = 1 << 20
_MAX_REASON_CHARS: Final = 400
_WHERE: Final = "--collector is the base URL of the collector's telemetry.endpoint, such as http://localhost:8888"


def add_flag(commands: Any) -> None:
    """Register the subcommand ``flag``."""
    parser = commands.add_parser("flag", help="show, raise or clear the flag of a trajectory on a collector")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("show", "print the flag of a trajectory"),
        ("raise", "nudge or stop the agent of a trajectory at its next model call"),
        ("clear", "clear every flag of a trajectory, and its scores"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("id", metavar="ID", help="trajectory id, or a trace, thread or session id")
        action.add_argument("--collector", required=True, metavar="URL", help="such as http://localhost:8888")
        action.add_argument("--token-file", metavar="FILE", help="file with a bearer token in its first line")
        action.add_argument(
            "--resource", action="append", default=[], metavar="KEY=VALUE",
            help="an attribute of the resource of the agent, such as service.namespace=eu, where several tenants have "
            "the id; may be repeated, once for each attribute of trajectories.separate_by that is not empty",
        )  # fmt: skip
        if name == "raise":
            action.add_argument("--level", choices=("nudge", "stop"), default="nudge", help="default: nudge")
        if name != "show":
            action.add_argument(
                "--reason", required=name == "raise", default="", metavar="TEXT",
                help="for the log, and at a nudge for the agent",
            )  # fmt: skip
            action.add_argument("--actor", metavar="NAME", help="who does it; by default the user of this machine")
        action.set_defaults(run=run_flag)


def run_flag(options: argparse.Namespace) -> int:
    """Run the subcommand ``flag``; returns the exit status."""
    try:
        headers = _headers(options.token_file)
        method, said = _said(options)
        where = urllib.parse.quote(options.id, safe="", errors="replace") + _query(options.resource)
        print_json(_ask(options.collector, where, method, said, headers))
    except (_FlagError, OSError, ValueError) as error:
        complain(f"flag {options.action}: {_in_words(error, options)}")
        return BAD_INPUT
    return FINE


class _FlagError(Exception):
    """The collector has refused the request; the message is its reason."""


class _TokenError(_FlagError):
    """The collector does not know the token, or wants one."""


def _headers(token_file: str | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        lines = Path(token_file).read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError:
        raise ValueError(f"{token_file}: is not UTF-8 text") from None
    if not lines:
        raise ValueError(f"{token_file}: no token in it")
    return {"Authorization": f"Bearer {lines[0]}"}


def _said(options: argparse.Namespace) -> tuple[str, Mapping[str, str] | None]:
    if options.action == "show":
        return "GET", None
    said = {"reason": options.reason, "actor": options.actor if options.actor is not None else _user()}
    if options.action == "clear":
        return "DELETE", said
    return "POST", {"level": options.level.upper(), **said}


def _query(resource: Sequence[str]) -> str:
    """The attributes of the tenant as the query of a URL."""
    named = [one.partition("=") for one in resource]
    for key, equals, _ in named:
        if not (key and equals):
            raise ValueError(f"--resource: expected KEY=VALUE, got {clip(key)!r}")
    query = [(f"resource.{key}", value) for key, _, value in named]
    return f"?{urllib.parse.urlencode(query, errors='replace')}" if query else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for this user, as in some containers
        return ""


def _ask(
    base: str, where: str, method: str, said: Mapping[str, str] | None, headers: Mapping[str, str]
) -> dict[str, Any]:
    if mistake := url_mistake(base):
        raise ValueError(f"--collector: {mistake}, got {without_userinfo(base)[:80]!r}")
    url = f"{base.rstrip('/')}/v1/flags/{where}"
    data = json.dumps(said).encode("ascii") if said is not None else None
    more = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(url, data, {**headers, **more}, method=method)

    def answered() -> bytes:
        try:
            with open_url(request, timeout_s=_TIMEOUT_S) as reply:
                return bytes(reply.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            raise (_TokenError if error.code == 401 else _FlagError)(_refusal(error)) from None

    try:
        text = within(answered, _TIMEOUT_S, "trajectory_guard-flag")
    except http.client.HTTPException:
        raise ValueError(f"{base}: answers in another protocol; {_WHERE}") from None
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ValueError(f"{base}: the reply is not a flag; {_WHERE}")
    return answer


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        reason = json.loads(error.read(_MAX_BYTES))["error"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code}: {clip(str(error.reason))}; {_WHERE}"
    return f"{error.code}: {clip(str(reason), _MAX_REASON_CHARS)}"


def _in_words(error: Exception, options: argparse.Namespace) -> str:
    if isinstance(error, _TokenError):
        given = "a token is needed" if options.token_file is None else f"{options.token_file}: the token is unknown"
        keys = "flags.auth or receivers.otlp.auth" if options.action == "show" else "flags.auth"
        return f"401: {given}; --token-file names a file with a token of {keys} of the collector"
    if isinstance(error, TimeoutError | urllib.error.URLError):
        return f"{options.collector}: no answer from the collector: {getattr(error, 'reason', error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)
