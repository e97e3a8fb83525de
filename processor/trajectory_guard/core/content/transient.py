"""Errors that pass: time-outs, limits on rates, locks, servers that cannot be reached."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final

from trajectory_guard.core.content.error_text import ERROR_WORDS
from trajectory_guard.core.content.outcome import ERROR_LINE, looks_like_error
from trajectory_guard.core.text import unescaped
from trajectory_guard.core.wordlists import ascii_beginnings, beginnings, may_hold

_TRANSIENT_CLASS: Final = re.compile(
    r"timeout|timedout|temporar|unavailable|toomanyrequests|ratelimit|throttl|overload|connection(?:reset|refused|aborted|error)"
    r"|\A(?:408|425|429|50[0234]|529)\Z|econn|brokenpipe|serviceunavailable|badgateway|deadlineexceeded|resourceexhausted|locked|lockwait|deadlock|blockingio",
    re.IGNORECASE,
)
_TRANSIENT_STATUS: Final = re.compile(
    r"(?:^\W{0,4}|\b(?:https?(?:/\d(?:\.\d)?)?|status|code|status_?code|api)\b\W{1,4}(?:code\W{1,3}|error\W{1,3})?"
    rf"|(?<![^\W_])(?:{ERROR_WORDS})\W{{0,4}}(?:code\W{{1,3}})?)"
    r"(?:408|425|429|500|502|503|504|529)\b",
    re.IGNORECASE,
)
_TRANSIENT_CODE: Final = re.compile(r"4(?:08|25|29)|5(?:0[0234]|29)")
"""Part of every match of ``_TRANSIENT_STATUS``, and found much sooner."""
_TRANSIENT_WORDS: Final = re.compile(
    r"tim(?:e|ed)[ _-]?out|temporar|unavailable|too many requests|rate.?limit|overloaded|again later|again in \d"
    r"|retry after|connection (?:reset|refused|aborted)|econnreset|econnrefused|throttl|lock (?:wait|held)"
    # a door or an account that is locked stays so
    r"|(?:database|document|file|index|partition|record|repository|resource|row|sheet|state|table|workbook) is"
    r" (?:currently |temporarily )?locked|is locked (?:by|for)|temporarily locked"
    r"|(?:get|obtain|acquire|waiting for) (?:\w+ ){0,2}lock|failed to lock"
    r"|(?:locked|held) by (?:another|process|pid|session|transaction|node)|being used by another process"
    r"|deadlock|\bebusy\b|(?:is|are|too|still|resource|device|file|server|system) busy\b|queue is full"
    r"|operation (?:is )?(?:already |still )?in progress|upstream connect error"
    r"|(?:could ?n.t|could not|cannot|can.t|failed to|unable to) connect"
    r"|no route to host"
    r"|name or service not known|could not resolve (?:the )?(?:host|proxy|name|address|domain|server)"
    r"|unreachable|host is down|reset by peer|broken pipe|socket hang up"
    r"|empty reply from server|not reachable",
    re.IGNORECASE,
)
_TRANSIENT_ELSEWHERE: Final = beginnings("transient")
_TRANSIENT_IN_ASCII: Final = ascii_beginnings("transient")
_MAX_CODE_CHARS: Final = 120
_MAX_REMARK_CHARS: Final = 400
_LASTING_STATUS: Final = re.compile(
    _TRANSIENT_STATUS.pattern.replace("408|425|429|500|502|503|504|529", r"40[0-7]|41\d|422|451|501"), re.IGNORECASE
)
"""Not 409 and 423: what conflicts or is locked may be free again."""


@lru_cache(maxsize=128)  # each repeat of an error asks again
def is_transient(text: str, error_class: str | None) -> bool:
    """Whether an error is one that passes: by exception type, then by status code, then by wording.

    Program text, settings and tables state nothing: what they name has not happened.

    >>> is_transient("", "ReadTimeout"), is_transient("HTTP 503", None), is_transient("403: ticket is locked", None)
    (True, True, False)
    >>> is_transient("E999 unexpected indent\\n26: from urllib3 import ReadTimeoutError", None)
    False
    >>> is_transient('  File "net.py", line 66, in recv\\n    return self._read(size, timeout) or b""\\nEOFError', None)
    False
    >>> is_transient("TimeoutError: Locator.click: Timeout 500ms exceeded: <div> intercepts pointer events", None)
    False
    >>> is_transient("The browser is currently unavailable. Do NOT retry, it will keep failing.", None)
    False
    """
    if error_class and _TRANSIENT_CLASS.search(error_class):
        return not _awaits_element(text, error_class) and not _forbids_retry(text)
    text = unescaped(text)
    line = text[:_MAX_CODE_CHARS]
    if _TRANSIENT_CODE.search(line) is not None and _TRANSIENT_STATUS.search(line) is not None:
        return not _forbids_retry(text)
    words = may_hold(_TRANSIENT_STEMS, text) and _is_stated(_TRANSIENT_WORDS, text)
    if not words:
        remark = text[:_MAX_REMARK_CHARS]
        words = may_hold(_TRANSIENT_IN_ASCII, remark) and _is_stated(_TRANSIENT_ELSEWHERE, remark)
    if not words or _LASTING_STATUS.search(line) is not None:
        return False
    return not _awaits_element(text, error_class) and not _forbids_retry(text)


_HELD_UP: Final = re.compile(
    r"\bacquir(?:e|ing) (?:[\w'\"-]{1,40} ){0,3}lock\b|_IN_PROGRESS\b"
    r"|\b(?:operation|process|update|upgrade|deploy(?:ment)?|rollout|migration|backup|build|run|transaction|rebase)s?"
    r"(?: \([\w/ ]{1,60}\))? (?:is )?(?:already |still |currently )(?:in progress|running)\b"
    r"|\banother (?:\w{1,40} ){1,3}(?:\([\w/ ]{1,60}\) )?is (?:in progress|running)\b",
    re.IGNORECASE,
)


def is_held_up(text: str) -> bool:
    """Whether an error says that somebody else holds what it needs: it may be free soon, or have been left behind.

    >>> is_held_up("Error acquiring the state lock"), is_held_up("another operation (upgrade) is in progress")
    (True, True)
    >>> is_held_up("web is in UPDATE_IN_PROGRESS state"), is_held_up("no such lock"), is_held_up("the build is running")
    (True, False, False)
    """
    return may_hold(("lock", "progress", "running"), text) and _HELD_UP.search(text) is not None


def _forbids_retry(text: str) -> bool:
    """Whether the error says itself that another try fails, too. "Do not retry before 10:05" says that one may not."""
    return may_hold(_RETRY_STEMS, text) and _NO_RETRY.search(text) is not None


_RETRY_STEMS: Final = ("retr", "again", "keep failing", "calls")
_SOME_DAY: Final = "until|before|for|within|sooner|immediately|at once|right away|yet|now|so|too|more"
_NO_RETRY: Final = re.compile(
    r"\b(?:do not|don.?t|never|must not|should not|no need to|cannot be|not)[ _](?:be )?"
    r"(?:re-?tr(?:y|ied)|retryable|try again)\b"
    rf"(?!\W{{0,3}}(?:\w+\W{{1,3}}){{0,3}}?(?:{_SOME_DAY})\b)"
    r"|\bnon-?retr(?:y|i)able\b|retry\w{0,10}[\"']?\s?[:=]\s?[\"']?(?:false|no)\b"
    r"|\bretr(?:ying|ies) (?:\w+ ){0,2}(?:not|never|useless|pointless|futile|won.?t|can.?t|doesn.?t)\b"
    r"|\bwill (?:keep|continue) (?:on )?failing\b"
    # a limit of the agent's own, which no wait lifts
    r"|\b(?:do not|don.?t|never|must not|should not) (?:"
    r"(?:call|use|invoke|run) (?:\S{1,80} ){1,4}?again"
    r"|make (?:any )?(?:additional|more|further|other) (?:\w+ )?calls)\b"
    rf"(?!\W{{0,3}}(?:\w+\W{{1,3}}){{0,3}}?(?:{_SOME_DAY})\b)",
    re.IGNORECASE,
)


def _awaits_element(text: str, error_class: str | None) -> bool:
    """Whether the time limit is that for an element of a page: it is covered, hidden or not there, and may stay so."""
    if not may_hold(_ELEMENT_STEMS, text) or _ELEMENT.search(text) is None:
        return False
    return _TIME_LIMIT.search(error_class or "") is not None or _TIME_LIMIT.search(text) is not None


_ELEMENT_STEMS: Final = ("element", "locator", "selector", "getby", "get_by", "pointer events", "viewport", "xpath")
_ELEMENT: Final = re.compile(
    r"(?<![^\W_])(?:elements?|locators?|selectors?|xpath|pointer events|viewport)(?![^\W_])|get_?by_?[a-z]",
    re.IGNORECASE,
)
_TIME_LIMIT: Final = re.compile(r"tim(?:e|ed)[ _-]?out", re.IGNORECASE)


def _is_stated(words: re.Pattern[str], text: str) -> bool:
    """Whether one of ``words`` stands in a line that may say what happened."""
    for found in islice(words.finditer(text), _MAX_LOOKS):
        start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
        line = text[start : end if end >= 0 else None].strip()
        if _NAMES_VALUE.match(text, found.end()) is not None or _is_inside_name(text, found.start(), found.end()):
            continue
        if _is_in_frame(text, start):
            continue
        if len(line) > _MAX_LINE_CHARS:
            return True
        numbered = end >= 0 and _is_numbered(line, text[end + 1 : end + 1 + _NUMBER_CHARS])
        if not numbered and line[-1:] not in _ENDS_OF_CODE and _STATES_NOTHING.match(line) is None:
            return True
    return False


def _is_in_frame(text: str, start: int) -> bool:
    """Whether a line is program text that a frame of a Python traceback quotes, which says nothing of the error."""
    if not text.startswith(" ", start):
        return False
    frame = _FRAME.search(text, max(0, start - _FRAME_CHARS), start)
    return frame is not None and text.startswith(f"{frame[1]} ", start)


_FRAME: Final = re.compile(
    r"^( {0,20})File \"[^\"\n]{1,200}\", line \d{1,7}(?:, in [^\n]{1,80})?\n(?:\1 [^\n]{0,200}\n){0,3}\Z", re.MULTILINE
)
_FRAME_CHARS: Final = 600


def _is_numbered(line: str, following: str) -> bool:
    """Whether a line and the one after it begin with their numbers, as those of a file do that is shown."""
    number, after = _NUMBER.match(line), _NUMBER.match(following)
    return number is not None and after is not None and int(after[1]) == int(number[1]) + 1


_NUMBER: Final = re.compile(r"\s{0,9}(\d{1,7})[\s:|]", re.ASCII)
_NUMBER_CHARS: Final = 20
_MAX_LOOKS: Final = 16
_ENDS_OF_CODE: Final = ("{", ";")
_MAX_LINE_CHARS: Final = 200
_VALUE: Final = r"[\"']?(?:[\d.]{1,12}\s?[a-z%]{0,12}|true|false|null|none|nil)[\"']?"
_STATES_NOTHING: Final = re.compile(
    # a line of a listing: of a file with line numbers, of a search through files, of a table
    r"\d{1,7}\t|\|[^|\n]{1,80}\||(?:[\w./-]{0,120}:)?(?:\d{1,7}[:|]\s{0,60})?(?:"
    # comments
    r"#(?!\d)|//|/\*|<!--|--\s"
    # statements of program text
    r"|from\s[\w.]{1,80}\simport\s|import\s[\w.]{1,80}(?:,\s?[\w.]{1,80}){0,9}\Z|(?:except|catch)\b.{0,120}[:{]\Z"
    r"|raise\s[\w.]{1,80}\s?(?:\(|\Z)|(?:async\s)?def\s|class\s\w{1,80}\s?[(:{]|(?:const|let|var)\s\w"
    r"|(?:el)?if\b.{1,120}(?:[=!<>]=|:\Z)|[\w.]{1,80}\([^()]{0,120}\)\Z|[\w.\[\]]{1,80}\s?=\s?[\w.]{1,80}\("
    # settings
    rf"|[-\w.\"']{{1,80}}\s?[:=]\s{{0,40}}{_VALUE}[,;]?\Z"
    r")",
    re.IGNORECASE,
)
_NAMES_VALUE: Final = re.compile(
    r"\w{0,40}(?:[\"']\s{0,9}:|\s?=\s?(?:[\"']?\d|[\w.\"'-]{1,40}[,;]?\s*$)|[-=@]{1,2}v?\d{1,4}\.\d)",
    re.MULTILINE,
)
"""The rest of a key, and what follows it: ``"connect_timeout": null``, ``Keep-Alive: timeout=5``, ``timeout-2.4.0``."""


def _is_inside_name(text: str, start: int, end: int) -> bool:
    """Whether a word is part of the name of a function, a test or a package, none of which says that it happened."""
    head = _NAME_BEFORE.search(text[max(0, start - _NAME_CHARS) : start])
    rest = _NAME_AFTER.match(text[end : end + _NAME_CHARS])
    before, after = head[0] if head is not None else "", rest[0] if rest is not None else ""
    name = f"{before}{text[start:end]}{after}".rpartition(".")[2]
    if before.endswith("-"):
        return _VERSION.match(text, end + len(after)) is not None
    if not name[:1].islower() and name[:1] != "_":
        return False
    is_test, is_camel = name.lstrip("_").startswith("test"), any(map(str.isupper, name))
    return is_test or is_camel or text.startswith("(", end + len(after))


_NAME_CHARS: Final = 80
_NAME_BEFORE: Final = re.compile(r"[\w.$-]{1,80}\Z")
_NAME_AFTER: Final = re.compile(r"[\w$]{1,80}(?:\.\w{1,80})?|\.\w{1,80}")
_VERSION: Final = re.compile(r"\s\d{1,4}\.\d{1,4}\.\d{1,4}(?![\w.:])")


_TRANSIENT_STEMS: Final = (
    "time", "temporar", "unavailable", "too many requests", "rate", "overloaded", "again", "retry after",
    "econn", "throttl", "lock", "busy", "held by", "used by", "queue is full", "in progress", "connect", "no route",
    "not known", "resolve", "reachable", "host is down", "reset by", "broken pipe", "hang up", "empty reply",
)  # fmt: skip
"""In ASCII text one of them is part of every match of ``_TRANSIENT_WORDS``."""


_LASTING_WORDS: Final = re.compile(
    r"\bhas no attribute\b|\bdivision by zero\b|\bout of range\b"
    r"|\bunexpected keyword argument\b|\bmissing \d{1,2} required\b"
    r"|\b(?:fix|correct) the errors?\b"  # Pydantic AI ends each request of a tool for a retry with these words
    r"|\b(?:is )?not (?:subscriptable|callable|iterable|hashable|serializable|supported|implemented|defined)\b",
    re.IGNORECASE,
)
"""Texts of exceptions of which the framework drops the class: ``str(exception)`` has not one word for an error. What is
not there may be there later."""


def is_lasting(text: str, error_class: str | None) -> bool:
    """Whether an error is known to be none that passes: by exception type, status code or wording.

    An error in words that nobody knows may pass or not.

    >>> is_lasting("404: no such user", None), is_lasting("KeyError: 'a'", None), is_lasting("E-17 driver busy", None)
    (True, True, False)
    >>> is_lasting("Tool call limit exceeded. Do not call 'search' again.", None)
    True
    >>> is_lasting("list index out of range", None), is_lasting("no such file: a.yaml", None)
    (True, False)
    """
    if is_transient(text, error_class) or _awaits_element(text, error_class):
        return False
    if error_class or _LASTING_STATUS.search(text[:_MAX_CODE_CHARS]) is not None:
        return True
    if looks_like_error(text) or ERROR_LINE.search(text) is not None or _forbids_retry(text):
        return True
    return _LASTING_WORDS.search(text) is not None
