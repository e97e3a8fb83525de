"""The kind of a value by the name of its argument: a technical setting, a rationale, a path, program text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from trajectory_guard.core.text import text_of
from trajectory_guard.core.wordlists import groups

KNOB, RATIONALE, PATH, CODE, SQL, SHELL, MATH, SELECTOR, TEXT, PLAIN = range(10)
"""The classes of argument names."""

_UNITS = "s|sec|secs|seconds|ms|millis|milliseconds|us|min|mins|minutes"
_EXCHANGE: Final = r"idempotency_?key|(?:x_)?(?:amzn_)?(?:request|trace|correlation|session_?trace)_?id|x_?request_?id"
_NAMES_EXCHANGE: Final = re.compile(rf"^(?:{_EXCHANGE})$", re.IGNORECASE)
_KNOB: Final = re.compile(
    rf"""^(?:\w*time_?out(?:_?(?:{_UNITS}))?|(?:max_?|num_?|n_?|retry_?)*(?:retry|retries|attempts?
    |tries)(?:_?(?:count|limit|delay|{_UNITS}))*
    |(?:retry|poll|polling)_?(?:delay|interval|wait|backoff|policy)(?:_?(?:{_UNITS}))?|back_?off(?:_?(?:factor
    |{_UNITS}))?
    |(?:top|max|num|n)_?(?:k|n)|k|(?:num|n|max|maximum|number_of|no_of)_?(?:of_?)?(?:results?|rows?|records?|hits?
    |lines?|bytes|chars|characters|tokens
    |items|matches|chunks|docs|documents|passages|length|size|output(?:_?(?:size|length|chars|lines|tokens|bytes))?
    |output|kb|mb|wait|workers
    |threads|concurrency|connections|snippets?|candidates|files|redirects|new_tokens|depth|pages|concurrent
    |parallel)(?:_?(?:per_?page|count|{_UNITS}))?
    |result_?(?:count|limit)|precision|decimals?|decimal_?places|(?:significant_?)?digits|round(?:ing)?|round_?to
    |ndigits|scale_?digits
    |min_?(?:score|similarity|relevance|confidence)|(?:score|similarity|relevance|confidence)_?(?:threshold|cutoff|min)
    |verbose|verbosity|debug|quiet|log_?level|stream|streaming|(?:use_?|no_?|enable_?|skip_?|disable_?)?cache(?:_?ttl)?
    |(?:cache_?)?(?:bust(?:er)?|nonce|random_?seed|seed)|(?:chunk|batch|buffer|fetch|block|prefetch)_?size|workers
    |threads|parallelism|concurrency
    |(?:slow_?mo|wait|delay|pause)(?:_?(?:for|before|after|{_UNITS}))?|{_EXCHANGE}|traceparent|tracestate
    |x_b3_\w+|sentry_trace|baggage|include_?(?:raw_?content|images?|image_?descriptions|favicon)|rerank|user_?agent
    |snippet_?(?:length|size)|keep_?alive|heartbeat(?:_?interval)?|_|_?ts|_t|timestamp_?ms)$""",
    re.VERBOSE | re.IGNORECASE,
)
_GROUPS: Final = groups("arguments")
_RATIONALE: Final = frozenset(_GROUPS["rationale"])
_REASONS: Final = frozenset(_GROUPS["reason"])
_ACTS: Final = re.compile(
    r"cancel|return|reject|refus|deny|refund|close|block|ban|report|dispute|transfer|escalat|approv|delete|revoke"
    r"|terminat|suspend"
    r"|flag|ticket|comment|note|send|post|create|add|update|write|log|exchange|hold"
)
_SETTERS: Final = re.compile(
    r"^(?:set|update|configure|config|patch|tune|adjust|change|modify|resize|scale)(?:_|-|[A-Z]|$)"
)
_PATH: Final = re.compile(
    r"^(?:\w*_?(?:path|file|filename|file_?name|dir|directory|folder|cwd)|paths|files|working_?dir(?:ectory)?"
    r"|workdir)$",
    re.IGNORECASE,
)
_KINDS: Final = {
    "code": CODE, "math": MATH, "selector": SELECTOR, "setting": KNOB, "shell": SHELL, "sql": SQL, "text": TEXT,
}  # fmt: skip
_BY_NAME: Final = {name: kind for group, kind in _KINDS.items() for name in _GROUPS[group]}
_WRAPPERS: Final = frozenset(_GROUPS["wrapper"])
_MATERIAL: Final = frozenset(_GROUPS["material"])
_UNORDERED: Final = frozenset(_GROUPS["unordered"])
_CLOCKS: Final = frozenset(_GROUPS["clock"])
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.,]*(?:Z| ?[+-]\d\d:?\d\d)?|1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?"
)
_ADDRESSES: Final = frozenset(("url", "uri", "href", "link", "weburl", "pageurl", "website"))
_POSITIONS: Final = frozenset(_GROUPS["page"])
_PAGES: Final = frozenset(_GROUPS["first"])
_AMOUNTS: Final = frozenset(_GROUPS["amount"])
_BOUNDS: Final = frozenset(_GROUPS["bound"])


def squash(key: str) -> str:
    """``"maxRows"``, ``"max_rows"`` and ``"max-rows"`` as ``"maxrows"``."""
    return key.replace("_", "").replace("-", "").lower()[:80]


@lru_cache(maxsize=2048)
def classify_key(key: str) -> int:
    """The class of one argument name."""
    if _KNOB.match(key.replace("-", "_")):
        return KNOB
    plain = squash(key)
    if plain in _RATIONALE or plain in _REASONS:
        return RATIONALE
    found = _BY_NAME.get(plain)
    if found is not None:
        return found
    return PATH if _PATH.match(key) else PLAIN


def commands_in(tool: str, args: object) -> list[str]:
    """The commands for a shell among the arguments; the name of a tool stands for that of an argument without one.

    >>> commands_in("run", {"command": "ls -l"}), commands_in("bash", "ls"), commands_in("open", {"door": "left"})
    (['ls -l'], ['ls'], [])
    """
    named = args.items() if isinstance(args, dict) else ((tool, args),)
    return [
        value for key, value in named if isinstance(key, str) and isinstance(value, str) and classify_key(key) == SHELL
    ]


def names_exchange(key: str) -> bool:
    """Whether an argument is the id of one request: a setting of a call that does something, the subject of a look-up.

    >>> names_exchange("X-Request-Id"), names_exchange("order_id")
    (True, False)
    """
    return _NAMES_EXCHANGE.match(key.replace("-", "_")) is not None


def is_asked_by(tool: str, key: str, args: Mapping[str, object]) -> bool:
    """Whether the id of a request is what a look-up asks for, rather than a phrase, or the thing that its tool names.

    >>> is_asked_by("lookup_logs", "trace_id", {"trace_id": "4bf92f", "index": "prod"})
    True
    >>> is_asked_by("search_kb", "request_id", {"request_id": "4bf92f", "query": "refund policy"})
    False
    >>> is_asked_by("get_order", "request_id", {"request_id": "4bf92f", "order_id": "A17"})
    False
    >>> is_asked_by("list_dir", "request_id", {"request_id": "4bf92f3577b34da6", "path": "/data"})
    False
    """
    plain = squash(tool)
    if _noun(key) in plain:
        return True
    others = [(str(name), text_of(value)) for name, value in args.items() if not names_exchange(str(name))]
    generated = _GENERATED.fullmatch(text_of(args[key])) is not None and _NUMBERS_REQUESTS.search(squash(key))
    if generated and any(text for _, text in others) and _READS_RECORDS.search(plain) is None:
        return False
    return not any(
        " " in text.strip() or (text and (_noun(name) in plain or classify_key(name) == TEXT)) for name, text in others
    )


_NUMBERS_REQUESTS: Final = re.compile(r"request|idempotency|correlation")
_GENERATED: Final = re.compile(
    r"(?=[a-z_-]{0,64}\d)(?:[a-z]{1,8}[_-])?(?:[0-9a-f]{12,64}|[0-9a-f]{8}(?:-[0-9a-f]{2,12}){3,4})",
    re.IGNORECASE,
)
_READS_RECORDS: Final = re.compile(r"log|trace|span|audit|event|telemetry|incident")
"""Tools that find what was recorded of one request."""


def _noun(key: str) -> str:
    return squash(key).removeprefix("x").removesuffix("id") or "id"


@lru_cache(maxsize=1024)
def tool_sets_values(tool: str) -> bool:
    """Whether a tool of this name is there to set values: then no setting is incidental."""
    return _SETTERS.match(tool) is not None


@lru_cache(maxsize=1024)
def tool_acts(tool: str) -> bool:
    """Whether a reason given to this tool is part of what it does, as with ``cancel_order(reason=...)``."""
    return _ACTS.search(tool.lower()) is not None


def is_clock(key: str, value: object) -> bool:
    """Whether an argument is the time of the call, which is no part of what is asked.

    >>> is_clock("now", "2026-03-01T10:00:00Z"), is_clock("now", "tomorrow"), is_clock("date", "2026-03-01T10:00:00Z")
    (True, False, False)
    """
    return squash(key) in _CLOCKS and _TIME.fullmatch(text_of(value)[:40]) is not None


def speaks_of_call(key: str) -> bool:
    """Whether an argument of this name may say why or when a call is made, or number it.

    >>> speaks_of_call("explanation"), speaks_of_call("request_id"), speaks_of_call("now"), speaks_of_call("path")
    (True, True, True, False)
    """
    return classify_key(key) == RATIONALE or names_exchange(key) or squash(key) in _CLOCKS


def is_default(key: str, value: object) -> bool:
    """Whether an argument, by its squashed name, says what holds without it as well.

    >>> is_default("offset", 0), is_default("encoding", "UTF-8"), is_default("page", 1), is_default("page", True)
    (True, True, True, False)
    """
    if key in _PAGES:
        return value in (1, "1") and value is not True
    if key in ("offset", "skip"):
        return value in (0, "0") and value is not False
    if key == "method":
        return isinstance(value, str) and value.upper() == "GET"
    return key == "encoding" and isinstance(value, str) and value.lower() in ("utf-8", "utf8")


def is_amount(key: str) -> bool:
    """Whether the name says how many entries a look-up is to return at most.

    >>> is_amount("page_size"), is_amount("page")
    (True, False)
    """
    return squash(key) in _AMOUNTS


def is_material(key: str) -> bool:
    """Whether the last part of the name says that the value is a text to work on.

    >>> is_material("message.text"), is_material("query")
    (True, False)
    """
    return squash(key.rpartition(".")[2]) in _MATERIAL


def is_address(key: str) -> bool:
    """Whether the name says that the value is the address of a page."""
    return squash(key) in _ADDRESSES


def is_wrapper(key: str) -> bool:
    """Whether a member of this name only groups arguments, so that settings in it are still settings."""
    return squash(key) in _WRAPPERS


def is_unordered(key: str) -> bool:
    """Whether the name says that the order of a list means nothing: tags, not way points."""
    return not key or squash(key) in _UNORDERED


def is_position(key: str) -> bool:
    """Whether the name says that the value is a position in a list, or the size of a page."""
    return squash(key) in _POSITIONS


def is_bound(key: str) -> bool:
    """Whether the name says that the value bounds or tunes what is asked for: turned up, it asks for the same.

    >>> is_bound("max_price"), is_bound("limit"), is_bound("offset"), is_bound("x")
    (True, True, False, False)
    """
    return _BOUND.match(key) is not None or squash(key) in _BOUNDS or classify_key(key) == KNOB


_BOUND: Final = re.compile(r"(?:max|min)(?:imum)?(?:_|-|(?=[A-Z])|\Z)", re.ASCII)


def is_plain_reason(key: str) -> bool:
    """Whether the name says "reason" or "comment", which may be content."""
    return squash(key) in _REASONS
