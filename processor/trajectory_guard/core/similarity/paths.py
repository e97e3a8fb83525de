"""One spelling for a path, a URL or a CSS selector, and the few pairs of spellings that name one thing."""

from __future__ import annotations

import posixpath
import re
from typing import Final
from urllib.parse import unquote, unquote_plus, urlsplit

from trajectory_guard.core.wordlists import groups

_GROUPS: Final = groups("paths")
CACHE_BUSTERS: Final = frozenset(_GROUPS["cache_buster"])
"""Query keys whose value only keeps a cache from answering."""
_TRACKING = ("utm_",)
_DEFAULT_PORT: Final = {"http": ":80", "https": ":443"}
_SYSTEM_ROOTS: Final = frozenset(_GROUPS["system"])
_HOMES: Final = frozenset(_GROUPS["home"])
_WORKSPACES: Final = frozenset(_GROUPS["workspace"])


_HOME_VARIABLE: Final = re.compile(r"\A\$(?:HOME|\{HOME\})(?=/|\Z)")


def normalize_path(path: str) -> str:
    """``path`` with forward slashes, without ``.``, ``..``, doubled and trailing slashes; case is kept."""
    path = path.strip().strip("\"'")
    if path.startswith("file://"):
        path = unquote(path[7:])
    path = _HOME_VARIABLE.sub("~", path)
    if "\\" in path and "/" not in path:
        path = path.replace("\\", "/")
    if path[1:2] == ":" and path[:1].isalpha():
        path = path.lower()  # files on a drive with a letter are found in any case
    path = posixpath.normpath(path) if path else "."
    return path[1:] if path.startswith("//") else path


def same_path(a: str, b: str) -> bool:
    """Whether two normal paths name one file: equal, or one is relative and the absolute one ends with it.

    The leading part must look like a workspace root: one directory ("/repo"), or up to three under a home. A path
    of one part ("setup.py") needs a root with a project name, and nothing in a system directory ("/etc") counts: there
    the same name in two places is the rule.
    """
    if a == b:
        return True
    if a.startswith("~/") != b.startswith("~/"):
        named, home = (a, b) if b.startswith("~/") else (b, a)
        return _HOME.match(named) is not None and _HOME.sub("~/", named) == home
    if a.startswith("/") == b.startswith("/"):
        return False
    absolute, relative = (a, b) if a.startswith("/") else (b, a)
    if relative.startswith(("..", "~")) or relative == "." or not absolute.endswith("/" + relative):
        return False
    root = absolute[1 : -len(relative) - 1].lower().split("/")
    if root[0] in _SYSTEM_ROOTS:
        return False
    if len(root) > 1:
        return root[0] in _HOMES and len(root) <= 3 and ("/" in relative or root[-1] in _WORKSPACES)
    return "/" in relative or root[0] in _WORKSPACES


_HOME: Final = re.compile(r"\A(?:/root|/(?:home|Users)/[^/]+)/")


def split_url(url: str) -> tuple[str, list[tuple[str, str]]]:
    """The address in one spelling, and its query as decoded (key, value) pairs without cache-busters.

    Raises:
        ValueError: the text is not a URL that the standard library can split.
    """
    parts = urlsplit(url.strip())
    scheme = parts.scheme.lower()
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORT.get(scheme, "\0"))
    path = unquote_plus(parts.path.replace("+", "%2B")).rstrip("/")
    fragment = "#" + parts.fragment if parts.fragment not in ("", "top") else ""  # HTML: "top" is the page itself
    return f"{scheme}://{host}{path}{fragment}", [pair for pair in _query(parts.query) if pair[0]]


def _query(text: str) -> list[tuple[str, str]]:
    pairs = []
    for part in text.split("&")[:64]:
        key, _, value = part.partition("=")
        if key.lower() not in CACHE_BUSTERS and not key.lower().startswith(_TRACKING):
            pairs.append((unquote_plus(key), unquote_plus(value)))
    return pairs


# --- CSS selectors -------------------------------------------------------------------------------------------

_ATTRIBUTE: Final = re.compile(r"\[ ?([\w-]+)(?: ?([~|^$*]?=) ?(?:\"([^\"]*)\"|'([^']*)'|([^\]\[\s]*)))? ?\]")
_COMBINATOR: Final = re.compile(r"[>+~,]")
_TAG: Final = re.compile(r"^(?:\*|[a-zA-Z][\w-]*)(?=[.#\[:])")


def normalize_selector(selector: str) -> str:
    """A CSS selector with one kind of quotes and spacing; an XPath only loses outer spaces."""
    text = selector.strip().removeprefix("css=")
    if text.startswith(("/", "(", "xpath=", "text=")):
        return text if '"' in text else text.replace("'", '"')
    text = _ATTRIBUTE.sub(_attribute, " ".join(text.split()))
    return " ".join(_COMBINATOR.sub(r" \g<0> ", text).split())


def _attribute(match: re.Match[str]) -> str:
    name, operator = match[1], match[2]
    value = next((part for part in match.groups()[2:] if part is not None), "")
    if name == "id" and operator == "=" and value.replace("-", "").replace("_", "").isalnum():
        return "#" + value
    return f"[{name}{operator or ''}{value}]".replace(" ", "\u00a0")


def same_selector(a: str, b: str) -> bool:
    """Whether two normal selectors most likely mean one element.

    Equal, or equal up to a tag name that one side leaves out where a class, id or attribute stands, and up to
    ``>`` for "inside": ``div.form > button`` and ``.form button``. Two different tags are two elements.
    """
    left, right = a.replace(" > ", " ").split(" "), b.replace(" > ", " ").split(" ")
    return len(left) == len(right) and all(_same_compound(one, other) for one, other in zip(left, right, strict=True))


def _same_compound(a: str, b: str) -> bool:
    return a == b or (a == _TAG.sub("", b)) or (b == _TAG.sub("", a))
