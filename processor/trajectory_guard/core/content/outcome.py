"""The outcome of a tool call from what the tool returned: one rule for spans, messages and recordings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from trajectory_guard.core.content.empty_results import COMPLAINTS, finds_nothing
from trajectory_guard.core.content.envelope import FAILURES, STATUS_KEYS, failure_in, http_failure
from trajectory_guard.core.content.error_text import (
    ERROR_WORDS,
    answer_in,
    begins_as_error,
    holds_error,
    without_denied_errors,
    without_empty_errors,
    without_notices,
)
from trajectory_guard.core.content.masking import is_volatile_key, mask_text
from trajectory_guard.core.content.wrappers import EXIT_KEYS
from trajectory_guard.core.fingerprints import object_in
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, NOT_RUN, SUCCESS, Outcome
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.wordlists import may_hold

_READ_CHARS: Final = 400


def classify(text: str | None, *, failed: bool | None = False, refused: bool = False) -> Outcome:
    """The outcome of a call that has a result.

    Parameters:
        text: the result as the model saw it; None if unknown.
        failed: whether the framework says that the call failed. None if nothing says so: then the wording of the
            result decides whether the call was refused or failed.
        refused: a person or a policy is known to have refused the call.

    >>> classify('{"orders": []}'), classify("User rejected the call", failed=True), classify("7 rows")
    ('empty', 'denied', 'success')
    >>> classify("Unknown tool: sing", failed=None), classify("Unknown tool: sing")
    ('error', 'success')
    >>> classify('{"success": false, "error_message": "no such area"}')
    'error'
    """
    if refused or (text is not None and (text.startswith(NOT_RUN) or (failed is not False and is_refusal(text)))):
        return DENIED
    if failed or (failed is None and text is not None and _reads_as_failure(text[:_READ_CHARS])):
        return ERROR
    if text is not None and states_failure(text):
        return ERROR
    return EMPTY if text is not None and is_empty_result(text) else SUCCESS


# --- the result itself states that the call failed -----------------------------------------------------------

_VERDICT: Final = re.compile(
    r'"(?:success|succeeded|ok)"\s*:\s*false|"is_?error"\s*:\s*true'
    r'|"(?:exit|return|status)_?(?:code|status)"\s*:\s*"?-?[1-9]|"(?:http_?)?status(?:_?code)?"\s*:\s*"?[45]\d\d\b'
    r'|"errors"\s*:\s*\[\s*\{',
    re.IGNORECASE,
)
SUCCEEDED: Final = frozenset(("success", "succeeded", "ok"))
FAILED_KEYS: Final = frozenset(("iserror", "is_error"))
_MAY_STATE: Final = ("false", "true", 'status":', 'status" :', '"errors"', *sorted(EXIT_KEYS | STATUS_KEYS))
"""An object in ASCII that states a failure holds one of them."""
_STATING: Final = ("false", "true", "status", "code", '"errors"')  # each of those holds one of these few


def states_failure(text: str) -> bool:
    """Whether a result is an object that says that the call failed: by a flag, a status, or as GraphQL does.

    >>> states_failure('{"success": false, "error": "no such area"}'), states_failure('{"rows": [{"ok": false}]}')
    (True, False)
    >>> states_failure('{"exit_code": 2, "stdout": ""}'), states_failure('{"status_code": 404, "body": "Not Found"}')
    (True, True)
    >>> states_failure('{"data": null, "errors": [{"message": "no"}]}'), states_failure('{"errors": [{"line": 7}]}')
    (True, False)
    >>> states_failure('{"status": 422, "headers": {}, "body": "{}"}'), states_failure('{"status": 422, "rows": []}')
    (True, False)
    """
    if text[:1] != "{":
        return False
    head = text[:_STATED_CHARS]
    if not (may_hold(_STATING, head) and may_hold(_MAY_STATE, head)):
        return False  # without a flag, as most of them are: these looks cost a fraction of the search
    if _VERDICT.search(head) is None:
        return False
    members = object_in(text)
    if any(_says_failed(str(key).lower(), item) for key, item in members.items()) or http_failure(members) > 0:
        return True
    return members.get("data", "") is None and bool(_messages_in(members))


def _messages_in(members: dict[str, Any]) -> list[str]:
    """The messages of the errors in a response of GraphQL."""
    errors = members.get("errors")
    listed = [one.get("message") for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    return [one for one in listed if isinstance(one, str)]


def _says_failed(key: str, item: Any) -> bool:
    """Whether a member of an object says that the call behind it failed."""
    if item is False:
        return key in SUCCEEDED
    if item is True:
        return key in FAILED_KEYS
    number = int(item) if isinstance(item, str) and _INTEGER.fullmatch(item) else item
    if not isinstance(number, int):
        return False
    return (key in EXIT_KEYS and number != 0) or (key in STATUS_KEYS and number in FAILURES)


_INTEGER: Final = re.compile(r"-?\d{1,9}", re.ASCII)
_STATED_CHARS: Final = 4_096


# --- nothing was found ---------------------------------------------------------------------------------------

_EMPTY_TEXTS: Final = frozenset(
    ("", "[]", "{}", "null", "none", '""', "''", "()", "nan", "undefined", "(none)", "n/a", "[[]]", "no output")
)
_THINGS: Final = (
    r"(?:results?|match(?:es)?|hits?|records?|rows?|documents?|items?|data|entr(?:y|ies)|files?|output|information|articles?"
    r"|answers?|pages?)"
)
_REST: Final = r"\b[^\d;:]{0,60}$"
_EMPTY_PHRASE: Final = re.compile(
    rf"^(?:\W*)(?:no|zero|0)\s+(?:\w+\s+){{0,2}}?{_THINGS}"
    r"(?:\s+(?:were|was|found|available|returned|for\b[^,.;\d]{0,60}))*\W*$|^\W*(?:nothing|none|not)\s+found\W*$"
    rf"|^\W*(?:there (?:is|are|was|were)|search returned|found|query ok,) (?:no|0) (?:\w+ ){{0,2}}?{_THINGS}{_REST}"
    rf"|^\W*no (?:\w+ ){{0,2}}?{_THINGS} (?:match(?:ed)?|was|were){_REST}"
    r"|^\W*(?:i |we |your search |the search |sorry,? )?(?:could not|couldn['\u2019]t|was unable to|unable to|did not"
    rf"|didn['\u2019]t) (?:find|match|return) (?:any|a|anything){_REST}"
    rf"|^\W*(?:sorry, )?nothing (?:here|matched|matches|to show|was found){_REST}|^the list is empty\W*$"
    r"|^empty (?:result )?set(?:, \d{1,9} warnings?)?(?: \([\d.]{1,12} sec\))?\W*$|^empty dataframe(?: columns:|\W*$)",
    re.IGNORECASE,
)
_ASIDE: Final = re.compile(r"(?<=[.!\w]) ?(?:\([^()]{1,60}\)|\[[^\[\]]{1,60}\])\W{0,3}\Z")
"""A remark in brackets behind the answer: how long it took, how many queries are left."""
_ASIDE_END: Final = 4
"""Its closing bracket is among so many characters at the end."""
_WRAPPING: Final = ("result", "output")
"""Keys under which Gemini's clients send an answer that is no object."""
_RESULT_KEYS: Final = (
    "result", "results", "data", "items", "output", "hits", "matches", "rows", "documents", "content",
)  # fmt: skip
_MAX_EMPTY_CHARS: Final = 160
MAX_EMPTY_CHARS: Final = 400
"""Longer results never say that nothing was found."""


def is_empty_result(result: str) -> bool:
    """Whether a payload says that nothing was found: blank, an empty container, or a phrase such as "No results found".

    An object counts if all of its result members are empty, if its only member is an empty list, or if it counts
    nothing, whatever its members are called; so does a table without rows. An empty list of errors means success, not
    an empty result.

    >>> is_empty_result('{"results": []}'), is_empty_result('{"orders": []}'), is_empty_result('{"errors": []}')
    (True, True, False)
    >>> is_empty_result('{"lastBuildDate": "Mon, 02 Mar 2026 10:00:00 +0900", "total": 0, "start": 1, "items": []}')
    True
    >>> is_empty_result("No results found."), is_empty_result("0 failed"), is_empty_result('{"result": "No results"}')
    (True, False, True)
    >>> is_empty_result(" id | name \\n----+------\\n(0 rows)"), is_empty_result("| id | name |\\n|----|------|")
    (True, True)
    """
    if len(result) > _MAX_EMPTY_CHARS:
        if len(result) > MAX_EMPTY_CHARS:
            return False
        return _is_empty_wrapper(result) if result[:1] == "{" else _TABLE_WITHOUT_ROWS.match(result) is not None
    text = " ".join(result.split())
    end = text[-_ASIDE_END:]
    said = _ASIDE.sub("", text) if ")" in end or "]" in end else text
    if text.lower() in _EMPTY_TEXTS or _EMPTY_PHRASE.match(said):
        return True
    return _is_empty_wrapper(text) if text[:1] == "{" else _TABLE_WITHOUT_ROWS.match(result) is not None


def _is_empty_wrapper(text: str) -> bool:
    value = object_in(text)
    if len(value) == 1:
        key, only = next(iter(value.items()))
        if only == [] and str(key).lower() not in COMPLAINTS:
            return True
        if key in _WRAPPING and isinstance(only, str):
            return is_empty_result(only)
    found = [value[key] for key in _RESULT_KEYS if key in value]
    if found and any(
        type(item) is int and 0 < item < _FIRST_EPOCH and _CHANGED.search(key) for key, item in value.items()
    ):
        return False  # rows were changed, and none is returned
    if not found or any(item not in ([], {}, "", None) for item in found):
        return _counts_nothing(value) or finds_nothing(value)
    return (
        len(value) <= len(found) + 2
        or all(_is_incidental(item) for key, item in value.items() if key not in _RESULT_KEYS)
        or finds_nothing(value)
    )


_CHANGED: Final = re.compile(
    r"row_?count|(?<!un)affected|(?<!un)changed|deleted|updated|inserted|(?<!un)modified|upserted", re.IGNORECASE
)
_FIRST_EPOCH: Final = 1_000_000_000  # more is the time of a change, and no number of rows


def _counts_nothing(value: dict[str, Any], depth: int = 1) -> bool:
    """Whether an object has an empty list beside a count of 0, under any names, two levels deep at most.

    >>> _counts_nothing({"artikel": [], "anzahl": 0}), _counts_nothing({"took": 3, "hits": {"total": 0, "hits": []}})
    (True, True)
    >>> _counts_nothing({"errors": [], "failed": 0}), _counts_nothing({"id": 7, "tags": [], "views": 0})
    (False, False)
    >>> _counts_nothing({"files": [], "exit_code": 0}), _counts_nothing({"files": [], "retries": 0})
    (False, False)
    """
    lists = counts = False
    for name, item in value.items():
        key = str(name).lower()
        if isinstance(item, dict) and depth and _counts_nothing(item, depth - 1):
            lists = counts = True
        elif item == [] or (item == 0 and type(item) is int):
            lists = lists or (item == [] and key not in COMPLAINTS)
            counts = counts or (item == 0 and key not in _NO_COUNTS and not is_volatile_key(key))
        elif not _is_incidental(item) or (item and not isinstance(item, str) and not _is_aside(key, item)):
            return False
    return lists and counts


def _is_aside(key: str, item: Any) -> bool:
    """Whether a number or a flag that is not 0 says nothing of what was found: how long it took, that it worked."""
    return key in SUCCEEDED if item is True else is_volatile_key(key)


_NO_COUNTS: Final = COMPLAINTS | EXIT_KEYS | {"code", "rc", "status"}
_NO_ROWS: Final = r"\n\s{0,9}\(0 rows?\)"
_RULED: Final = r"(?=[^\n]{0,300}[|+])(?=[^\n]{0,300}-)[|+:= -]{3,300}"
_TABLE_WITHOUT_ROWS: Final = re.compile(
    rf"\A\s{{0,9}}[^\n]{{1,300}}\n(?:{_RULED}(?:{_NO_ROWS})?|[ -]{{3,300}}{_NO_ROWS})\s{{0,9}}\Z"
)
_DATE: Final = re.compile(r"\A(?=.{2,48}\Z)(?=.*\d\d)[\d\s.,:/+T-]*(?:[^\W\d_]{3,9}[\d\s.,:/+-]*){0,2}Z?(?:GMT|UTC)?")


def _is_incidental(item: Any) -> bool:
    """Whether a member beside an empty list of results is a count, a flag or a date."""
    if isinstance(item, str):
        return not item or _DATE.fullmatch(item) is not None
    return item is None or isinstance(item, (bool, int, float))


# --- a person or a policy said no ----------------------------------------------------------------------------

_PERSON = r"(?:the |a |your )?(?:user|human|person|operator|reviewer|admin(?:istrator)?|approver|supervisor)"
_REFUSED = r"(?:rejected|denied|declined|refused|disapproved|vetoed|cancell?ed)"
_ACTION = r"(?:tool(?: call| use| execution)?|(?:function|tool) call|call|action|request|execution|command)"
_REFUSAL: Final = re.compile(
    rf"\b{_PERSON}\b(?: has| have)? {_REFUSED}\b|\b{_REFUSED} by (?:the )?{_PERSON}\b|permission denied by user"
    rf"|\b{_PERSON} (?:doesn't|does not|didn't|did not|doesn’t) (?:want|approve|allow|permit)\b"
    rf"|\b{_ACTION} (?:was|has been|is|were) (?:not (?:been )?(?:approved|permitted|allowed)|{_REFUSED})\b"
    rf"|\b{_ACTION} blocked by (?:a |the |your )?(?:hook|policy|guardrail)\b"
    r"|^not approved\b",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether the answer to a call that was not carried out says that a person refused it.

    >>> is_refusal("Tool execution was not approved."), is_refusal("permission denied: /etc/shadow")
    (True, False)
    """
    text = text[:_READ_CHARS]
    return may_hold(_REFUSAL_STEMS, text) and _REFUSAL.search(text) is not None


_REFUSAL_STEMS: Final = (
    "reject", "denied", "declined", "refused", "vetoed", "cancel", "want", "approve", "allow", "permit", "blocked by",
)  # fmt: skip
"""In ASCII text one of them is part of every match of ``_REFUSAL``."""


_BY_PERSON: Final = re.compile(rf"\b{_PERSON}\b", re.IGNORECASE)


def is_refused_by_person(text: str) -> bool:
    """Whether the text of a refusal names a person as the one who refused.

    >>> is_refused_by_person("User rejected the tool call"), is_refused_by_person("Action blocked by policy")
    (True, False)
    """
    return _BY_PERSON.search(text[:_READ_CHARS]) is not None


# --- an error, and of which class ----------------------------------------------------------------------------

_QUOTED: Final = re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`\n]{0,200}`|\[[^\]\n]{0,200}\]")
_RAISED: Final = re.compile(
    r"\b(?!KeyError\()([A-Z]\w{0,79})\((?:'([^'\s]{0,80} [^'\n]{0,200})'|\"([^\"\s]{0,80} [^\"\n]{0,200})\"),?\)"
)
"""An exception with its message, as Python writes it out: the message is no name, although it is quoted."""
_URLS: Final = re.compile(r"\bhttps?://[^\s\"'<>]+")
_PATHS: Final = re.compile(
    r"(?:[A-Za-z]:|(?<![\w.~-]))(?:[\w.~-]*/[\w.~-]+)+/?"
    r"|\b[\w-]{1,80}\.(?:py|js|ts|go|rs|java|c|cpp|h|json|ya?ml|txt|md)\b"
)
_CODES: Final = re.compile(
    r"(?<![^\W_])(?:(?=[a-f]{0,16}\d)(?=\d{0,16}[a-f])[0-9a-f]{5,16}"
    r"|(?=[0-9A-Z]{8})(?:[A-Z]+\d+[A-Z]|\d+[A-Z]+\d)[0-9A-Z]{0,62})(?![^\W_])"
)
"""Ids of requests and queues, or part numbers, which are no more of the class of an error than names are."""
_NUMBERS: Final = re.compile(r"\d+(?:[.,]\d+)*")
ERROR_LINE: Final = re.compile(
    r"\b\w*(?:Error|Exception|Errno|Failure|Fault|Warning)\b|\berror\b|\bfailed\b|\bnot found\b"
    r"|\bcannot\b|\binvalid\b|\bdenied\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=128)  # a run that is stuck fails in the same words
def error_signature(result: str | None, error_class: str | None) -> str | None:
    """The class of an error: the line that states it, with names, numbers and paths masked; None if unknown.

    >>> error_signature("Traceback ...\\nKeyError: 'user_7'", None) == error_signature("KeyError: 'user_9'", "KeyError")
    True
    >>> error_signature("Error: ValueError('no such user')", None)
    'error: valueerror: no such user'
    """
    if not result:
        return error_class.lower() if error_class else None
    return _masked_line(_stated_error(result) or _error_line(result)) or None


def _masked_line(line: str) -> str:
    line = line[:400]
    if "('" in line or '("' in line:
        line = _RAISED.sub(r"\1: \2\3", line)
    line = _QUOTED.sub("<q>", _URLS.sub("<url>", mask_text(line)))
    line = _CODES.sub("<hex>", _PATHS.sub("<path>", line) if "/" in line or "." in line else line)
    return _NUMBERS.sub("#", line).lower()[:160]


def _stated_error(result: str) -> str:
    """The texts of an object that states an error, without its lists of hints; empty if it is no object."""
    if result[:1] != "{" or len(result) > _STATED_CHARS:
        return ""
    stated = object_in(result)
    status = failure_in(stated)
    members = [object_in(one) or one if isinstance(one, str) and one[:1] == "{" else one for one in stated.values()]
    members += [item for one in members if isinstance(one, dict) for item in one.values()]
    members += [item for one in members if isinstance(one, list) for item in one if status]
    if status:
        members.append(f"HTTP {status}")
    members += _messages_in(stated)
    return " ".join(" ".join(one.split()) for one in members if isinstance(one, str))[:_READ_CHARS]


def looks_like_error(result: str) -> bool:
    """Whether a result that was reported as a success reads like an error message.

    >>> looks_like_error("grep: Unmatched ( or \\\\("), looks_like_error("12 errors fixed")
    (True, False)
    >>> looks_like_error('{"error": "", "rows": 7}'), looks_like_error("Command fix returned: Error: no such file")
    (False, True)
    """
    text = result.strip()
    if len(text) > _READ_CHARS:
        return False
    return _is_error(answer_in(text))


def _is_error(answer: str) -> bool:
    return begins_as_error(answer) or (answer[:1] == "{" and holds_error(answer))


def complaint_of(result: str, values: tuple[str, ...]) -> str:
    """The lines of a long result that state an error, masked, if its first line is one of them; empty otherwise.

    An editor quotes the edit that it refuses, a browser the page on which it did not find the element: most of the
    result is new, and it says what the one before said. A word of the request (``values``) states nothing.

    >>> refused = "Your edit has introduced a syntax error, so it was not applied:\\n{} x = ("
    >>> complaint_of(refused.format(7), ()) == complaint_of(refused.format(12), ())
    True
    >>> complaint_of("Built with 0 errors and 3 warnings", ()), complaint_of("3 files with an error", ("error",))
    ('', '')
    """
    reported = _reported(result, values)
    lines = [line for line in reported.splitlines() if may_hold(ERROR_STEMS, line) and _STATES_ERROR.search(line)]
    return "\n".join(dict.fromkeys(_masked_line(line.strip()) for line in lines))


def begins_with_complaint(result: str, values: tuple[str, ...]) -> bool:
    """Whether ``complaint_of`` finds lines that state an error, without reading all of them."""
    return _reported(result, values) != ""


@lru_cache(maxsize=16)  # several rules ask within one step
def _reported(result: str, values: tuple[str, ...]) -> str:
    """Both ends of a result without notices, if its first line states an error; empty otherwise."""
    head = result[:_COMPLAINT_CHARS].lstrip().partition("\n")[0]
    if not states_error(head, values) or len(head.split()) < _LEAST_COMPLAINT_WORDS:
        return ""
    text = without_notices(both_ends(result, 2 * _STATED_CHARS))
    return text if states_error(text[:_COMPLAINT_CHARS].partition("\n")[0], values) else ""


def states_error(line: str, values: Sequence[str] = ()) -> bool:
    """Whether a line says that something failed, in a word that is none of the request (``values``) and counts none.

    >>> states_error("Deploy attempt 4 failed: quota exceeded"), states_error("12 passed, 0 failed")
    (True, False)
    """
    if not may_hold(ERROR_STEMS, line) or _STATES_ERROR.search(line) is None:
        return False
    stated = _STATES_ERROR.search(without_denied_errors(without_empty_errors(line)))
    if stated is None or _COUNTS_NONE.search(line) is not None:
        return False
    return not any(stated[0].lower() in value.lower() for value in values)


def ends_in_error(result: str) -> bool:
    """Whether one of the last lines of a result reports an error, as those of a build or of a test run do.

    >>> ends_in_error("reading sources... done\\nERROR: heading not found"), ends_in_error("2 failed, 9 passed")
    (True, True)
    >>> ends_in_error("tests/test_errors.py .... [100%]\\n4 passed"), ends_in_error("12 passed, 0 failed")
    (False, False)
    """
    end = result[-_END_CHARS:]
    return may_hold(_REPORT_STEMS, end) and _REPORTED.search(without_empty_errors(end)) is not None


_END_CHARS: Final = 1_000
_REPORTED: Final = re.compile(
    # where a line begins, where a word does, and a number of failures
    rf"^(?:(?:E\s{{1,9}})?\W{{0,9}}(?:[\w.]{{0,60}}(?:error|exception)|{ERROR_WORDS})\s?[:：!]|\W{{0,9}}(?-i:FAILED|FAIL)\b)"
    r"|\b(?:ERR!|error(?: [A-Z]{1,6}\d{1,6}|\[\w{1,12}\]):|Error [1-9]\d{0,3}$|(?:failed|failures|errors)[:=] ?[1-9]"
    r"|exit(?:ed)?(?: with)? (?:code|status):? [1-9])"
    r"|[1-9](?<![\d.,].)\d{0,5} (?:\w{1,12} )?(?:failed|failures|errors|(?:failure|error)(?! [a-z]))\b"
    r"(?! (?:fixed|corrected))",
    re.IGNORECASE | re.MULTILINE,
)
_COMPLAINT_CHARS: Final = 160
_LEAST_COMPLAINT_WORDS: Final = 4
_STATES_ERROR: Final = re.compile(
    rf"(?<![^\W_])(?:{ERROR_WORDS}|not found|denied)(?:s|\(s\))?(?![^\W_])", re.IGNORECASE
)
ERROR_STEMS: Final = (
    "error", "except", "traceback", "fatal", "fail", "invalid", "cannot", "could not", "unable", "unknown", "unrecog",
    "not found", "denied", "fehler", "erreur", "erro", "fout", "fel", "hata",
)  # fmt: skip
"""In ASCII text one of them is part of every match of ``_STATES_ERROR``."""
_REPORT_STEMS: Final = (*ERROR_STEMS, "err!", "exit")
"""In ASCII text one of them is part of every match of ``_REPORTED``."""
_COUNTS_NONE: Final = re.compile(
    r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|fail\w+|exceptions?)\b", re.IGNORECASE
)


def names_error(result: str) -> bool:
    """Whether a word for an error stands anywhere near the ends of a result, whatever it says there."""
    text = both_ends(result, 2 * _STATED_CHARS)
    return ERROR_LINE.search(text) is not None and ERROR_LINE.search(without_empty_errors(text)) is not None


_UNKNOWN_TOOL: Final = re.compile(
    r"\b(?:tool|function)\b.{0,80}?\b(?:not found|does not exist|doesn't exist|is not (?:a )?valid|not available"
    r"|is not defined|not recognized)\b|\b(?:unknown|no such|undefined|invalid|unrecognized) (?:tool|function)\b"
    r"|\bis not a valid (?:tool|function)\b",
    re.IGNORECASE,
)
_FAILED: Final = re.compile(
    r"^\W*(?:i )?(?:encountered an error|tried reusing the same input|got an error)\b"
    r"|^\d+ validation errors?:\s+```json\b",
    re.IGNORECASE,
)


def _reads_as_failure(start: str) -> bool:
    """Whether the beginning of a result, of a call that may not have been carried out, says that it failed."""
    start = answer_in(start.strip())
    return _is_error(start) or _UNKNOWN_TOOL.search(start) is not None or _FAILED.search(start) is not None


def _error_line(text: str) -> str:
    lines = [line.strip() for line in text[-4096:].splitlines() if line.strip()]
    if not lines:
        return ""
    for line in reversed(lines):
        if ERROR_LINE.search(line) and not line.startswith(("File ", "^")):
            return line[:400]
    return lines[0][:400]
