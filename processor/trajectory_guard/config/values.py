"""Checks of single values of a configuration: numbers, addresses and secrets."""

from __future__ import annotations

import re
import urllib.parse
from types import UnionType
from typing import Annotated, Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, SecretStr


def takes_number(annotation: Any) -> bool:
    """Whether a value is a number, or None, and no truth value, which Python treats as 0 or 1.

    >>> takes_number(float | None), takes_number(bool), takes_number(dict[str, int])
    (True, False, False)
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return (int in kinds or float in kinds) and bool not in kinds


def no_truth_value(value: Any) -> Any:
    """The value, which may become a number unless it is ``true`` or ``false``.

    Raises:
        ValueError: it is one of them.
    """
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


Number = Annotated[float, BeforeValidator(no_truth_value)]
"""A number within a mapping; those that stand alone are checked by their model."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class ReadOnlyDict(dict[_Key, _Value]):
    """A mapping of a frozen configuration. Unlike ``MappingProxyType`` it can be pickled, copied and dumped.

    >>> ReadOnlyDict(a=1) == {"a": 1}
    True
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a configuration is frozen: make another one with the values that you need")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[ReadOnlyDict[_Key, _Value]], tuple[dict[_Key, _Value]]]:
        return type(self), (dict(self),)  # at once: item by item it would be refused


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


def without_blanks(secret: SecretStr | None) -> SecretStr | None:
    """A key or token without blanks at its ends: a file that it is read from mostly ends with a line break.

    An empty one protects nothing, and mostly is a variable that was not set.
    """
    if secret is None:
        return None
    text = secret.get_secret_value().strip()
    if not text:
        raise ValueError("must not be empty")
    return SecretStr(text)


BAD_HEADER_VALUE: Final = "must be one line of printable ASCII characters, without spaces at its ends"


def can_be_sent(value: str) -> bool:
    """Whether a text can be the value of a header (RFC 9110, ``field-value``, in ASCII)."""
    return value.isascii() and value.isprintable() and value == value.strip()


def is_sendable(token: SecretStr | None) -> SecretStr | None:
    """A token that can be sent; for validators."""
    if token is not None and not can_be_sent(token.get_secret_value()):
        raise ValueError(f"a token {BAD_HEADER_VALUE}")
    return token


BaseUrl = Annotated[str | None, AfterValidator(base_url)]
Secret = Annotated[SecretStr | None, AfterValidator(without_blanks)]
Token = Annotated[Secret, AfterValidator(is_sendable)]


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
