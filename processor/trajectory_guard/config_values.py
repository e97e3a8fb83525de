"""Checks of single values of a configuration: numbers, addresses and secrets."""

from __future__ import annotations

import re
import urllib.parse
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, SecretStr


def takes_number(annotation: Any) -> bool:
    """Whether a value is a number, or None, and no truth value, which Python treats as 0 or 1.

    >>> takes_number(float | None), takes_number(bool), takes_number(dict[str, int])
    (True, False, False)
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return (int in kinds or float in kinds) and bool not in kinds


def url_mistake(url: str) -> str | None:
    """The mistake in the base URL of a server, None if there is none.

    >>> url_mistake("http://localhost:8888"), url_mistake("http://"), url_mistake("http://host:port")
    (None, 'names no host', 'has a port that is no number from 1 to 65535')
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        return str(error)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https"):
        return "expected http:// or https://"
    if not host or any(char.isspace() for char in url):
        return "names no host" if not host else "has a blank in it"
    if parts.username is not None or parts.password is not None:
        return "holds credentials, which are no part of an address: give a token instead"
    if port == 0:
        return "has a port that is no number from 1 to 65535"
    return "expected no query and no fragment" if parts.query or parts.fragment else None


def without_userinfo(text: str) -> str:
    """A text in which no address shows a user and a password.

    >>> without_userinfo("ftp://ann:p4ss@localhost:1")
    'ftp://***@localhost:1'
    """
    return _USERINFO.sub("//***@", text)


_USERINFO: Final = re.compile(r"//[^/@\s]{1,500}@")


def base_url(url: str | None) -> str | None:
    """The base URL of a server, which has to name a host."""
    mistake = url_mistake(url) if url is not None else None
    if mistake is not None:
        raise ValueError(f"{mistake}; expected an http(s) URL such as http://localhost:8888")
    return url


def not_blank(secret: SecretStr | None) -> SecretStr | None:
    """A key or token. An empty one protects nothing, and mostly is a variable that was not set."""
    if secret is not None and not secret.get_secret_value().strip():
        raise ValueError("must not be empty")
    return secret


BaseUrl = Annotated[str | None, AfterValidator(base_url)]
Secret = Annotated[SecretStr | None, AfterValidator(not_blank)]


_Text = TypeVar("_Text", str, None)
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]")


def why_no_path(text: str) -> str | None:
    """The reason why a path is surely not the one that is meant: a place that only a shell would expand.

    >>> why_no_path("$HOME/guard") is None, why_no_path("./~guard") is None
    (False, True)
    """
    if not (text.startswith("~") or any(map(_VARIABLE.match, text.split("/")))):
        return None
    return "~ and $NAME are not expanded here: write the whole path, or ${env:NAME} in a file of the collector"


def is_path(text: _Text) -> _Text:
    """The path of a file or a directory, or None."""
    if text is not None and (reason := why_no_path(text)) is not None:
        raise ValueError(reason)
    return text


PathText = Annotated[str, AfterValidator(is_path)]
OptionalPath = Annotated[str | None, AfterValidator(is_path)]
