"""Headers of runtimes, responses of HTTP, filters of a shell, names of elements of a page: no part of what is asked."""

from __future__ import annotations

import json
import re
import shlex
from itertools import islice
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.essentials import with_essential_args
from trajectory_guard.core.content.frames import without_structure
from trajectory_guard.core.content.masking import is_volatile_key, mask_noise, result_hash
from trajectory_guard.core.content.wrappers import unwrapped, without_frame
from trajectory_guard.core.fingerprints import (
    UNKNOWN,
    Symbol,
    args_hash,
    checksum,
    digest64,
    object_in,
    sorted_bytes,
    text_bytes,
)
from trajectory_guard.core.steps import ERROR, SUCCESS, StepRecord
from trajectory_guard.core.text_bounds import (
    MAX_UNDERSTOOD_CHARS,
    MIN_CHARS,
    both_ends_and_digest,
    with_digests,
    without_exact_digest,
)

_OUTPUT: Final = "utput"
_MARK: Final = "utput:"
_HEADER_CHARS: Final = 240
_HEADER: Final = re.compile(
    r"\A(?:[A-Za-z][\w ]{0,40}(?:: ?| )\d[\d.,]{0,20} ?[A-Za-z]{0,12}\r?\n|[A-Za-z][\w ]{0,40}: [\w-]{1,40}\r?\n"
    r"|\w{1,20} (?:completed|finished|succeeded)\r?\n){1,6}Output:[ \t]{0,9}(?:\r?\n\s{0,9}|\Z)"
)
_TROUBLE: Final = re.compile(r"(?:code|status)\W{0,3}-?[1-9]|running|fail|error|time(?:d )?out", re.IGNORECASE)


_REMARK_CHARS: Final = 80
_NO_OUTPUT: Final = re.compile(
    r"\W{0,3}(?:\w{1,20}[:,.]? ){0,8}(?:no|without|empty|did(?: not|n.t) (?:produce|print|return) any)"
    r" output(?: or errors?| (?:was |were )?(?:produced|generated|returned|captured))?\W{0,3}",
    re.IGNORECASE,
)


def without_header(result: str) -> str:
    """A result without a header that says how long a call took and that it ended well, as some runtimes write one.

    Nothing is left of a remark that stands for an empty output.

    >>> without_header("Exit code: 0\\nWall time: 2.7 seconds\\nOutput:\\n3 rows")
    '3 rows'
    >>> without_header("Exit code: 1\\nOutput:\\nno such table")
    'Exit code: 1\\nOutput:\\nno such table'
    >>> without_header("(no output)"), without_header("(no output yet)")
    ('', '(no output yet)')
    """
    head = result[:_HEADER_CHARS]
    if _OUTPUT not in head:
        return result
    if _MARK not in head:
        return "" if len(result) <= _REMARK_CHARS and _NO_OUTPUT.fullmatch(result) is not None else result
    header = _HEADER.match(result)
    if header is None or _TROUBLE.search(header[0]) is not None:
        return result
    return result[header.end() :]


STATUS_KEYS: Final = frozenset(
    ("httpstatus", "http_status", "http_status_code", "httpstatuscode", "statuscode", "status_code")
)
FAILURES: Final = range(400, 600)
_THREE_DIGITS: Final = re.compile(r"\d{3}", re.ASCII)
_MAY_CHANGE: Final = frozenset((404, 409, 412, 423, 425, 428))
_BODY: Final = re.compile(r"(?:response_?)?(?:body|headers)(?:_\w{1,20})?|status_?text", re.IGNORECASE)
"""Members of a response of HTTP: beside one of them, ``status`` is its status."""


def http_failure(members: dict[str, Any]) -> int:
    """The status of a response of HTTP that says that the request failed; 0 if the object is no such response."""
    stated = members.get("status")
    status = int(stated) if isinstance(stated, str) and _THREE_DIGITS.fullmatch(stated) is not None else stated
    if type(status) is not int or status not in FAILURES:
        return 0
    return status if any(_BODY.fullmatch(str(key)) is not None for key in members) else 0


def may_change(text: str) -> bool:
    """Whether a result is a response of HTTP with an error that others may lift: nothing there, a conflict, a lock.

    >>> may_change('{"status": 404, "body": ""}'), may_change('{"status_code": 401, "body": ""}')
    (True, False)
    """
    return failed_status(text) in _MAY_CHANGE


def failed_status(text: str) -> int:
    """The status of a failure, 400 to 599, that an object states under any of its names; 0 if it states none.

    >>> failed_status('{"error": "no", "statusCode": 401}'), failed_status('{"status": "error", "code": 401}')
    (401, 0)
    """
    return failure_in(object_in(text)) if text[:1] == "{" else 0


def failure_in(members: dict[str, Any]) -> int:
    """As ``failed_status``, of an object that was decoded."""
    stated = (item for key, item in members.items() if key.lower() in STATUS_KEYS and type(item) is int)
    return http_failure(members) or next((one for one in stated if one in FAILURES), 0)


def body_of(result: str) -> str:
    """The body of a response of HTTP that came back as an object, ``result`` itself if it is none.

    The headers, the time that it took and the names of the exchange are no part of the answer. With a status that says
    that something is the matter, the status stays.

    >>> body_of('{"status": 200, "headers": {"date": "Tue"}, "body": {"rows": 7}}')
    '{"rows":7}'
    >>> body_of('{"status_code": 404, "elapsed_ms": 31, "body": "no"}'), body_of('{"status": 200, "rows": 7}')
    ('{"status_code": 404, "body": "no"}', '{"status": 200, "rows": 7}')
    >>> body_of('{"status": 422, "headers": {}, "body": {"error": "missing", "field": "name"}}')
    '{"status_code": 422, "error": "missing", "field": "name"}'
    >>> body_of('{"status": 204, "headers": {"x-ratelimit-remaining": "897"}, "body": ""}')
    '{"status_code": 204}'
    """
    if len(result) > MAX_UNDERSTOOD_CHARS or _HTTP_STATUS.search(result[:_EXCHANGE_CHARS]) is None:
        return result
    members = object_in(result)
    if not all(_OF_EXCHANGE.fullmatch(key) is not None or is_volatile_key(key) for key in members):
        return result  # something else stands beside the body
    status = next((key for key, item in members.items() if _STATUS.fullmatch(f"{key} {item}") is not None), None)
    bodies = [key for key in _BODIES if key in members]
    body = bodies[0] if bodies and not any(map(members.get, bodies[1:])) else None  # of several, each may be new
    if status is None or body is None or not (status != "status" or body.startswith("body") or "headers" in members):
        return result
    answer, headers = members[body], members.get("headers")
    if isinstance(headers, dict) and not _TELLING.isdisjoint(map(str.lower, headers)):
        return result  # what the headers say is the answer, or a part of it
    code = int(members[status])
    if not answer:
        return json.dumps({"status_code": code}) if 200 <= code < 300 else result
    try:
        return _without_exchange(code, body, answer)
    except RecursionError:  # it is nested almost as deep as can be read
        return result


def _without_exchange(status: int, name: str, answer: Any) -> str:
    """The body of a response, beside the status of one that failed; ``name``: its own in the response."""
    if 200 <= status < 300:
        return answer if isinstance(answer, str) else sorted_bytes(answer).decode("utf-8", "replace")
    inner = object_in(answer) if isinstance(answer, str) and answer[:1] == "{" else answer
    stated = {"status_code": status}  # first, and whatever the body has under this name
    members = {**stated, **inner, **stated} if isinstance(inner, dict) and inner else {**stated, name: answer}
    return json.dumps(members, ensure_ascii=False)


_EXCHANGE_CHARS: Final = 1_024
_HTTP_STATUS: Final = re.compile(r'"(?:http_?)?status(?:_?code)?"\s{0,4}:\s{0,4}"?[1-5]\d\d(?!\d|\.\d)', re.IGNORECASE)
_STATUS: Final = re.compile(r"(?:http_?)?status(?:_?code)? [1-5]\d\d", re.IGNORECASE)
_OF_EXCHANGE: Final = re.compile(
    r"(?:http_?)?(?:status(?:_?(?:code|text|message))?|version)|reason(?:_?phrase)?|(?:response_?)?(?:headers|body\w{0,20})"
    r"|data|text|content|json|url|final_?url|method|ok|type|redirected|config|request|content_?type|content_?length|encoding"
    r"|cookies|size|from_?cache|is_?base64_?encoded",
    re.IGNORECASE,
)
_TELLING: Final = frozenset(("content-range", "link", "location", "retry-after", "upload-offset", "x-total-count"))
_BODIES: Final = ("body", "body_preview", "response_body", "responseBody", "data", "text", "content", "json")


def readable(step: StepRecord) -> StepRecord:
    """A step without what is only said about its call, and whose result is without what is only around it, a runtime's
    header or the rest of a response, and without binary data.
    """
    if step.tool_args_hash is None or step.state_snapshot_hash is None:
        step = _with_fingerprints(step)
    step, result = with_essential_args(step), step.result
    if result is None:
        return step
    plain = without_header(without_frame(result))
    if plain[:1] not in ("{", "["):
        plain = without_structure(plain, step.tool_name)
    if plain[:1] == "{":
        plain = unwrapped(plain, step.args)
        if "tatus" in plain[:_EXCHANGE_CHARS]:
            plain = body_of(plain)
    if plain is not result:
        step = with_result(step, plain)  # the header has a duration
    if len(plain) >= MIN_CHARS and (brief := with_digests(plain)) is not plain:
        step = step._replace(result=brief)
    return step


def _with_fingerprints(step: StepRecord) -> StepRecord:
    """A step with the fingerprints of its arguments and result: one that is written by hand may lack them."""
    if step.tool_args_hash is None and step.args is not None:
        step = step._replace(tool_args_hash=args_hash(step.args))
    if step.state_snapshot_hash is None and step.result is not None:
        step = step._replace(state_snapshot_hash=result_hash(step.outcome_type, step.result))
    return step


def with_result(step: StepRecord, result: str) -> StepRecord:
    """A step with another text as its result, and with the fingerprint of this one."""
    if step.stated or step.state_snapshot_hash is None:
        return step._replace(result=result)
    return step._replace(result=result, state_snapshot_hash=result_hash(step.outcome_type, result))


_FILTER: Final = re.compile(
    r"\s?(?:\|&?\s?(?:cat|(?:head|tail)(?:\s(?:-n\s?|-|--lines[= ])[+-]?\d{1,9})?)|\d?>&\d|\d>\s?/dev/null"
    r"|;\s?echo\s[^;|&\n]{0,60}\$\?[^;|&\n]{0,20})\s?\Z"
)
_MAX_ARGS: Final = 4
_MAX_FILTERS: Final = 8
_TAIL_CHARS: Final = 120
_MAX_COMMAND_CHARS: Final = 4_096


def unfiltered(args: Any) -> Any:
    """Arguments whose commands are without what only shapes their output; ``args`` itself if there is no such thing.

    The same command with another filter is the same command: where it shows more, its result says so.

    >>> unfiltered({"command": "make test 2>&1 | tail -50"}), unfiltered({"command": "make test; echo EXIT=$?"})
    ({'command': 'make test'}, {'command': 'make test'})
    >>> unfiltered({"command": "tail -50 a.log"})
    {'command': 'tail -50 a.log'}
    """
    if type(args) is not dict or len(args) > _MAX_ARGS:
        return args
    changed = None
    for key, value in args.items():
        if type(value) is str and ("|" in value or ">" in value or ";" in value):
            plain = _without_filters(value)
            if plain != value:
                changed = {**(changed or args), key: plain}
    return args if changed is None else changed


def _without_filters(command: str) -> str:
    if len(command) > _MAX_COMMAND_CHARS:
        return command
    for _ in range(_MAX_FILTERS):
        found = _FILTER.search(command, max(0, len(command) - _TAIL_CHARS))
        if found is None or found.start() == 0:
            break
        command = command[: found.start()]
    return command


_ROLES: Final = (
    "button|checkbox|combobox|generic|heading|img|link|listitem|menuitem|option|radio|StaticText|tab|textbox"
)
_NUMBER_ENDS: Final = rf"\](?:<[a-z]| (?:{_ROLES})\b)"
_ELEMENT: Final = re.compile(
    r"(?<=\[ref=)[a-z]{0,2}\d{1,6}(?:e\d{1,6})?(?=\])|(?<=\suid=)\d{1,6}_\d{1,6}\b"
    rf"|(?<=\[)\d{{1,6}}(?={_NUMBER_ENDS})"
)
"""Names of elements as Playwright, Chrome's developer tools, browser-use and WebArena print them."""
_BEHIND_NUMBER: Final = re.compile(_NUMBER_ENDS)
_NAME_OF_ELEMENT: Final = re.compile(r"(?:[sf]\d{1,6})?e\d{1,6}|\d{1,6}_\d{1,6}")
_KEYS_OF_ELEMENT: Final = ("ref", "uid")
_MAX_NAMES: Final = 48


class Page(NamedTuple):
    """A snapshot of a page: its fingerprint without the names that it gives to the elements, and these names.

    Fields:
        symbol: ``UNKNOWN`` of a result that is no such snapshot.
        names: checksums of the first ``_MAX_NAMES`` of them.
    """

    symbol: Symbol = UNKNOWN
    names: tuple[int, ...] = ()

    def follows(self, before: Page) -> bool:
        """Whether another page was there before, or the elements have kept their names, or all of them have new ones.

        Where some of the names have changed on an otherwise equal page, one of several equal rows has gone.
        """
        if self.symbol != before.symbol or self.names == before.names:
            return True
        return set(self.names).isdisjoint(before.names)


NO_PAGE: Final = Page()


def page_in(result: str) -> Page:
    """The page that a result shows. Each snapshot may name its elements anew.

    >>> first, second, no_page = map(page_in, ('button "Go" [ref=e12]', 'button "Go" [ref=e77]', "x[3] = y"))
    >>> first.symbol == second.symbol, second.follows(first), no_page.symbol == UNKNOWN
    (True, True, True)
    """
    numbered = ("]<" in result or "] " in result) and _BEHIND_NUMBER.search(result) is not None
    if not numbered and "[ref=" not in result and " uid=" not in result:
        return NO_PAGE
    text = without_exact_digest(both_ends_and_digest(result, MAX_UNDERSTOOD_CHARS))
    names = dict.fromkeys(_ELEMENT.findall(text))
    if not names:
        return NO_PAGE
    symbol = digest64(text_bytes(mask_noise(_ELEMENT.sub("", text))))
    return Page(symbol, tuple(map(checksum, islice(names, _MAX_NAMES))))


def without_element(args: Any) -> Any:
    """Arguments without the name that a snapshot gave to an element, if they say in words which one it is.

    >>> without_element({"element": "Next", "ref": "e52"}), without_element({"ref": "e52"})
    ({'element': 'Next'}, {'ref': 'e52'})
    """
    if type(args) is not dict:
        return args
    left = {key: value for key, value in args.items() if not _names_element(key, value)}
    return left if len(left) < len(args) and any(type(value) is str and value for value in left.values()) else args


def _names_element(key: Any, value: Any) -> bool:
    if type(key) is not str or type(value) is not str or not key.lower().endswith(_KEYS_OF_ELEMENT):
        return False
    return _NAME_OF_ELEMENT.fullmatch(value) is not None


_NOTHING_PRINTED: Final = r"(?:no output\W{0,9}|(?:output|stdout|stderr)\W{0,12}(?:0(?:\\n)?\W{1,9})?){0,3}"
_EXITS: Final = (
    r"\W{0,9}" + _NOTHING_PRINTED + r"(?:metadata\W{1,6})?(?:error\W{0,3})?"
    r"(?:(?:command|process|script|shell) (?:(?:failed|finished|terminated) )?(?:with )?)?"
    r"(?:exit|return)(?:ed)?(?: with)?[ _]?(?:code|status|value)?\W{0,5}STATUS\W{0,9}(?:returncode\W{0,9})?"
    r"(?:(?:wall time|duration|duration_seconds)\W{0,4}[\d.]{1,12} ?[a-z]{0,8}\W{0,9})?" + _NOTHING_PRINTED
)
_ONLY_ONE: Final = re.compile(_EXITS.replace("STATUS", r"1(?:: 0)?"), re.IGNORECASE)
"""An exit status of 1, and no output, or a count of 0: as text or as an object."""
_ONLY_A_STATUS: Final = re.compile(_EXITS.replace("STATUS", r"-?\d{1,5}"), re.IGNORECASE)
_MAX_STATUS_CHARS: Final = 200
_LOOKS: Final = frozenset(
    ("[", "ack", "ag", "cmp", "diff", "egrep", "fgrep", "grep", "pgrep", "pidof", "rg", "test", "which", "zgrep")
)
"""Programs whose exit status 1 means no; 2 and more are failures."""
_LOOKS_OF_GIT: Final = frozenset(("diff", "grep", "merge-base", "show-ref"))
_ENDS: Final = frozenset(("&&", "||", "|", ";", "&", "|&", "\n"))


def says_no(step: StepRecord) -> bool:
    """Whether a command was a search or a comparison that found nothing: its exit status is 1, and it printed nothing.

    A search that counts prints 0.

    >>> from trajectory_guard.core.steps import ERROR, SUCCESS, StepRecord
    >>> command = {"command": "cd src && rg -n 'refund|invoice' api"}
    >>> says_no(StepRecord("1", "t", "shell", tool_args_hash="", args=command, result="Exit code: 1"))
    True
    """
    result = step.result
    if result is None or len(result) > _MAX_STATUS_CHARS or step.outcome_type not in (ERROR, SUCCESS):
        return False
    if _ONLY_ONE.fullmatch(result) is None and not _counts_none(result, stated=step.outcome_type == ERROR):
        return False
    args = step.args
    commands = args.values() if type(args) is dict and len(args) <= _MAX_ARGS else (args,)
    return any(type(one) is str and _is_look(one) for one in commands)


def states_no_more_than_status(result: str) -> bool:
    """Whether a result is an exit status, and no output.

    >>> states_no_more_than_status("Command failed with exit code 2"), states_no_more_than_status("tar: exit code 2")
    (True, False)
    """
    return len(result) <= _MAX_STATUS_CHARS and _ONLY_A_STATUS.fullmatch(result) is not None


def _counts_none(result: str, *, stated: bool) -> bool:
    """Whether a result is the counts of a search, all of them 0, and an exit status of 1, unless that is ``stated``.

    >>> _counts_none("api.log:0\\nweb.log:0\\nexit status 1", stated=False), _counts_none("0", stated=True)
    (True, True)
    """
    lines = [line for line in result.splitlines() if line.strip()]
    counts = [line for line in lines if line == "0" or line.endswith(":0")]
    rest = "\n".join(line for line in lines if line not in counts)
    return bool(counts) and (_ONLY_ONE.fullmatch(rest) is not None if rest else stated)


def _is_look(command: str) -> bool:
    """Whether the last of some commands, whose exit status is that of all of them, is a search or a comparison."""
    if len(command) > _MAX_COMMAND_CHARS:
        return False
    lexer = shlex.shlex(_without_filters(command), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an open quote
        return False
    start = next((at + 1 for at in range(len(words) - 1, -1, -1) if words[at] in _ENDS), 0)
    program, *rest = words[start:] or ("",)
    return program in _LOOKS or (program == "git" and bool(rest) and rest[0] in _LOOKS_OF_GIT)
