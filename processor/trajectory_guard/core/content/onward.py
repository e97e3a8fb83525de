"""Work that goes on to the next one of many: what an answer names, what it asks for, and what a command says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from trajectory_guard.core.content.masking import is_volatile_key
from trajectory_guard.core.content.result_text import is_brief, values_of
from trajectory_guard.core.content.volatile import is_volatile_throughout
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.tools import takes_next
from trajectory_guard.core.wordlists import beginnings


def only_names_one(text: str) -> bool:
    """Whether a brief object holds one value, and that is an id: the id of an entry, and nothing beside it.

    An id beside something else, or one of the request or the session, may be noise.

    >>> entry = "781f9c58-d664-5fa9-e8a8-529f035efa25"
    >>> only_names_one(f'{{"job_id": "{entry}"}}'), only_names_one(f'{{"job": null, "request_id": "{entry}"}}')
    (True, False)
    >>> only_names_one(f'{{"request_id": "{entry}"}}'), only_names_one('{"taken_at": "2026-03-01T10:21:07"}')
    (False, False)
    """
    if text[:1] != "{" or not is_brief(text):
        return False
    try:
        leaves = list(_leaves(parse_json(text), ""))
    except (ValueError, RecursionError):
        return False
    return len(leaves) == 1 and _is_id(*leaves[0])


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values of an object with their names, without flags that say that all went well."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, key)
    elif value is not True:
        yield name, value


def _is_id(name: str, value: Any) -> bool:
    if not isinstance(value, str) or is_volatile_key(name):
        return False
    return is_volatile_throughout(value) and _CLOCK.search(value) is None


_CLOCK: Final = re.compile(r"\d:\d\d")


def fetches_next(tool: str, args: Any) -> bool:
    """Whether a call takes the next one of many: the next entry of a queue, or what a command stopped in front of."""
    return takes_next(tool) or goes_on(args)


def has_more(text: str) -> bool:
    """Whether an object says in a field that more follows.

    >>> has_more('{"loaded": 20, "has_more": true}'), has_more('{"hasNextPage": false}')
    (True, False)
    """
    return _HAS_MORE.search(text) is not None


_HAS_MORE: Final = re.compile(r'"has_?(?:more|next)(?:_?page)?"\s{0,4}:\s{0,4}true', re.IGNORECASE)


def remains(text: str) -> bool:
    """Whether a brief answer says how much was done and that more is left: that of one batch of many, in any language.

    The number of tries that are left is none of it.

    >>> remains("Migrated 500 users. More users remain."), remains('{"deleted": 1000, "is_truncated": true}')
    (True, True)
    >>> remains("Se movieron 50 correos; quedan más."), remains("Wrong code. 2 attempts remain.")
    (True, False)
    >>> remains("Done. 0 rows remain."), remains("No more rows.")
    (False, False)
    """
    if len(text) > _MAX_CHARS or text.count("\n") > _MAX_LINES or _DONE.search(text) is None:
        return False
    if text[:1] == "{":
        return _FLAG.search(text) is not None or has_more(text)
    left = _LEFT.search(text) or _LEFT_ELSEWHERE.search(text)
    return left is not None and _NONE_LEFT.search(text) is None


_MAX_LINES: Final = 6
_DONE: Final = re.compile(r"(?<![\w.,:-])[1-9]\d{0,8}(?![\w:-])", re.ASCII)
_FLAG: Final = re.compile(
    r'"(?:more|is_?truncated|incomplete|more_(?:available|results|remain(?:ing|s)?))"\s{0,4}:\s{0,4}true'
    r'|"(?:eof|is_?last|exhausted|end_?of_?(?:file|data|queue))"\s{0,4}:\s{0,4}false'
    r'|"next_?(?:page_?)?(?:token|cursor)"\s{0,4}:\s{0,4}"[^"]',
    re.IGNORECASE,
)
_LEFT: Final = re.compile(
    r"\b(?:more|further|other) [^.\n]{0,40}(?:remain|left\b|to (?:go|do|process|migrate)|available|pending|waiting)"
    r"|\bremain(?:s|ing)?\b|\bare more\b|\bmore to \w|\brun (?:it |this )?again\b",
    re.IGNORECASE,
)
_LEFT_ELSEWHERE: Final = beginnings("remaining")
_NONE_LEFT: Final = re.compile(
    r"\b(?:no|none|nothing|0|zero) (?:\w{1,20} ){0,2}(?:remain|left\b|more\b)|\bno (?:more|further)\b"
    r"|remain(?:s|ing)?\W{1,3}(?:no\b|none\b|0\b|false\b)"
    r"|\b(?:attempts?|chances?|credits?|lives|tries|quota|requests?|seconds?|minutes?|hours?|days?)\b",
    re.IGNORECASE,
)


def goes_on(args: Any) -> bool:
    """Whether a command goes on with the next one of what it was stopped in, as git does with the next commit.

    >>> goes_on({"command": "git rebase --continue"}), goes_on({"command": "git rebase main"})
    (True, False)
    """
    return any(" --" in one[:_MAX_CHARS] and _GOES_ON.search(one[:_MAX_CHARS]) is not None for one in values_of(args))


_MAX_CHARS: Final = 400
_GOES_ON: Final = re.compile(r"\s--(?:continue|next|skip)(?![\w-])")


def invites_next(text: str) -> bool:
    """Whether a brief answer asks for the next one of many: a question, a task, an entry; another try is none.

    >>> invites_next("Answer saved. Please go on with the next question."), invites_next("Weiter zur nächsten Frage!")
    (True, True)
    >>> invites_next("Wrong. Use the next attempt wisely."), invites_next("Not accepted. Please go on.")
    (False, False)
    """
    return is_brief(text) and (_NEXT.search(text) is not None or _NEXT_ELSEWHERE.search(text) is not None)


_NEXT: Final = re.compile(r"(?<![^\W_])next(?![^\W_])(?! (?:attempt|chance|steps?|time|tries|try)\b)", re.IGNORECASE)
_NEXT_ELSEWHERE: Final = beginnings("onward")
