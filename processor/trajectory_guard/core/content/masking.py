"""Masking what changes from answer to answer without meaning anything: clocks, durations, ids, counters, places.

Two strengths. ``mask_text`` is for errors, where numbers of lines, cells and attempts say nothing. ``mask_noise`` is
for answers, where a date, a time slot or a row number may be what was asked for: only what nobody asks for is masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import islice
from string import ascii_letters, digits
from typing import Any, Final
from zlib import crc32

from trajectory_guard.core.fingerprints import (
    MAX_DEPTH,
    digest64,
    parse_json_or_lines,
    plain_number,
    sorted_bytes,
    text_bytes,
    unfold_text,
)
from trajectory_guard.core.text_bounds import (
    MAX_UNDERSTOOD_CHARS,
    both_ends_and_digest,
    with_digests,
    without_exact_digest,
)

_ZONE: Final = r"(?: ?(?:[Zz]|UTC|GMT|[+-]\d{2}:?\d{2})\b)?"
_CLOCK: Final = r"\d{1,2}:\d{2}(?!\d)(?::\d{2})?(?:[.,]\d+)? ?(?:(?i:[ap]m)\b)?" + _ZONE
_SECONDS_CLOCK: Final = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?" + _ZONE
_MONTHS: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WRITTEN_DATE: Final = (
    r"(?=[JFMASONDTW])(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?" + _MONTHS + r"\.? \d{1,2}\b(?:,? (?:\d{4}\b)?)?"
)
_FILE_CLOCK: Final = r"[T_-]\d{2}[_-]?\d{2}[_-]?\d{2}(?!\d)(?:[._-]\d{3,6}(?!\d))?Z?"
"""As in the names of logs and dumps, where a colon must not stand."""
_DATE: Final = (
    rf"\d{{4}}[-/]\d{{2}}[-/]\d{{2}}(?:[Tt ](?:{_CLOCK})|{_FILE_CLOCK})?|\d{{8}}{_FILE_CLOCK}"
    rf"|[DIWEF]\d{{4}} {_SECONDS_CLOCK} {{1,7}}\d{{1,9}}\b"
    rf"|{_WRITTEN_DATE}(?: ?{_CLOCK})?(?: [A-Z]{{3,4}})?(?: \d{{4}}\b)?"
    rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), )?\d{{1,2}} {_MONTHS} \d{{4}}\b(?: {_CLOCK})?"
)
_STAMP: Final = (
    rf"\d{{4}}[-/]\d{{2}}[-/]\d{{2}}[Tt ]{_SECONDS_CLOCK}|[DIWEF]\d{{4}} {_SECONDS_CLOCK} {{1,7}}\d{{1,9}}\b"
    rf"|{_WRITTEN_DATE} ?{_SECONDS_CLOCK}(?: [A-Z]{{3,4}})?(?: \d{{4}}\b)?"
    rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), )?\d{{1,2}} {_MONTHS} \d{{4}} {_SECONDS_CLOCK}"
)
_UUID: Final = r"(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)"
_TMP: Final = r"(?P<tmp>(?:/private)?/(?:var/)?tmp/[^\s'\"<>|:,)]+|\\Temp\\[^\s'\"]+)"
_ADDRESS: Final = r"(?P<addr>\b0x[0-9a-fA-F]{4,}\b)"
_HEX: Final = (
    r"(?P<hex>\b(?=[0-9a-f]{7})(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"
    r"|\b(?=[0-9A-F]{12})(?=[0-9A-F]*\d)(?=[0-9A-F]*[A-F])[0-9A-F]{12,64}\b"
    r"|\b[a-z]{2,8}_(?=[A-Za-z]{0,64}\d)[0-9A-Za-z]{16,64}\b)"
)
_HEX_INSIDE: Final = r"(?P<hex__>(?<=_)(?=[a-f]{0,16}\d)(?=\d{0,16}[a-f])[0-9a-f]{7,16}(?![^\W_]))"
_LONG_HEX: Final = r"(?P<hex>\b(?=[0-9a-fA-F]{16})(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{16,64}\b)"
RANDOM: Final = (
    r"(?P<hex_>(?<![^\W_])(?=\w{16})(?:[A-Za-z]{1,12}_){0,2}(?=[A-Za-z]{0,12}\d)(?=[A-Za-z0-9]{16})"
    r"(?:(?:[a-z]{1,5}(?![a-z])|[A-Z]{1,12}(?![A-Z])|\d{1,5}(?!\d)){5,128})(?![^\W_]))"
)
"""An id of random letters and digits, as of a request or a payment: at least 16, and no long stretch of one kind."""
_REF: Final = r"(?P<ref>(?<=\[ref=)s\d{1,6}(?=e\d)|(?<=\suid=)\d{1,6}(?=_\d))"
"""The number of a snapshot in the names of its elements, by servers of Playwright and of Chrome's developer tools."""
_COMMENT: Final = r"(?P<comment><!--[^>]{0,200}-->)"  # of a page: which server made it, and when
_EXCHANGE: Final = (
    r"(?P<id>\b(?:req|resp|trace)[-_](?=[a-f]{0,12}\d)[0-9a-f]{6,40}\b"
    r"|\b(?:[Rr]eq(?:uest)?|trace)(?:[ _-]?(?:id|Id|ID))?[:=#]{1,2} ?(?=[a-f]{0,12}\d)[0-9a-f]{6,40}\b"
    r"(?!-)(?=(?:[^()\[\]\n]{0,40}[)\]])?\W{0,3}\Z))"
)
"""The name of one request or of its response. With a mark between, it stands behind an answer: within one, as in the
lines of a log, it is what the line is about."""
_EPOCH: Final = r"(?P<epoch>\b1[5-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b)"
_SHORT_TIME: Final = (
    r"(?:(?:[num\u00b5\u03bc]s(?:ecs?)?|(?:micro|nano)seconds?|millis(?:econds?)?|s|[Ss](?:ecs?|econd[eis]?|econdes|ek(?:unden?)?|egundos?|aniye)|sn"
    r"|detik|giây|мс|сек(?:унд[аы]?)?)\b|毫秒|秒|ミリ秒|밀리초|초)"
)
"""A second or less; both code points of "micro" are in use. Behind a unit of a script without spaces, the next word may
begin at once."""
_TIME: Final = r"\d+(?:[.,]\d+)? ?(?=[a-zS\u00b5\u03bcмс毫秒ミ밀초])"
_SINCE: Final = r"(?: (?:ago|elapsed))?"
_COMPOUND: Final = r"\b(?:\d+h ?)?\d+m ?\d+(?:\.\d+)?s\b|"
LASTED: Final = rf"(?P<lasted>{_COMPOUND}\b{_TIME}(?:{_SHORT_TIME}|(?:mins?|minutes?|hours?|hrs?|days?)\b){_SINCE})"
_LASTED_SHORT: Final = rf"(?P<lasted>{_COMPOUND}\b{_TIME}{_SHORT_TIME}{_SINCE})"
LASTED_INSIDE: Final = rf"(?P<lasted__>(?<=[^\W\da-zA-Z_]){_TIME}{_SHORT_TIME})"
RATE: Final = r"(?P<rate>\b\d+(?:[.,]\d+)? ?(?:[kKMGT]i?)?(?:B|bit|it)/s(?:ec)?\b)"
"""The rate of a transfer or a progress bar. Other rates, such as of wind or of requests, are readings."""
_NUMBERED: Final = r")(?i: ?(?:id|no|number|num|count))?[ :=#.(\[]{1,3}\d+(?:\.\d+)?\b(?!-\d\d-\d\d))"
_COUNTED: Final = (
    r"(?:attempt|step(?<=current step)"  # of a harness, which counts them
    r"|retry|retries|try|tries|pid|process|thread|tid|req(?:uest)?(?! \d)|trace|span|session|seed|nonce"
    r"|timestamp|(?<!\.)ts|support(?= id\b)|(?:duration|elapsed|latency|took)_ms)"
)
_ATTEMPT: Final = r"(?P<count>\b(?=[adelnprstADELNPRST])(?i:" + _COUNTED + _NUMBERED
_POSITION: Final = (
    r"(?P<position>\b(?=[irtpsmelcwIRTPSMELCW])(?i:iteration|round|turn|port|seq|sequence|msg|message|event|run|line|ln|lineno|col|column|char"
    r"|step|call|invocation|time|worker|conn(?:ection)?|retry-after" + _NUMBERED[:-1] + r"(?! ?(?:/|of) ?\d))"
)  # a step of so many says how far something is
_BUILD_STEP: Final = r"(?P<lasted_>(?<!\S)#\d{1,4} \d{1,6}\.\d{1,3}(?= ))"  # of BuildKit: step, seconds since its start
_SYSLOG: Final = r"(?P<pid>(?<=[\w.-]\[)\d{1,9}(?=\]:))"
_CELL: Final = r"(?P<cell>\b(?:In|Out) ?\[\d+\])"


def _any(date: str, digit: str, letter: str, sign: str, *, letters: str, inside: str = "") -> re.Pattern[str]:
    """One of many forms, tried in their order: at the edge of a word those that begin with a digit, or with one of
    ``letters``, within it very few, and at a sign its own. Most places of a text would fail all others in vain.
    """
    within = rf"(?=[a-fJFMASONDTW\d])\B(?:(?=[JFMASONDTW\d])(?:(?P<date_>{date})|{LASTED_INSIDE}){inside})"
    by_letter = re.sub(r"(?<=\(\?P<)\w+", r"\g<0>___", rf"{_UUID}|(?P<date>{date})|{letter}")
    edge = rf"\b(?=\w)(?:(?=\d)(?:{_UUID}|(?P<date>{date})|{digit})|(?=[{letters}])(?:{by_letter})|{RANDOM})"
    return re.compile(rf"{within}|{edge}|(?=[#/<\\])(?:{_TMP}|(?<!\w)(?:{sign}))")


_ALL: Final = _any(
    _DATE,
    rf"(?P<clock>{_CLOCK})|{_ADDRESS}|{_HEX}|{_EPOCH}|{_REF}|{RATE}|{LASTED}|{_SYSLOG}",
    rf"{_HEX}|{_REF}|{_EXCHANGE}|{_CELL}|{_ATTEMPT}|{_POSITION}",
    rf"{_COMMENT}|{_BUILD_STEP}",
    letters="a-zA-FIJLMNOPRSTW",
    inside=rf"|{_HEX_INSIDE}",
)
_NOISE: Final = _any(
    _STAMP,
    rf"(?P<clock>{_SECONDS_CLOCK})|{_ADDRESS}|{_LONG_HEX}|{_EPOCH}|{_REF}|{RATE}|{_LASTED_SHORT}|{_SYSLOG}",
    rf"{_LONG_HEX}|{_REF}|{_EXCHANGE}|{_ATTEMPT}",
    _COMMENT,
    letters="a-flnprstA-FIJLMNOPRSTW",
)
_HAS_DIGIT: Final = re.compile(r"\d")


@lru_cache(maxsize=4)  # one step asks for the masked text of a failure up to four times
def mask_text(text: str) -> str:
    """``text`` of an error with its volatile parts replaced by their kind, spaces folded.

    Covers uuids, dates, clocks, temporary paths, addresses, hex and request ids, epoch stamps, durations, counted
    things ("attempt 3", "pid 77") and places ("line 14", "In [3]"). Plain numbers stay: "3 failed" is not "2 failed".

    >>> mask_text("attempt 4: timed out after 30.2s at 2026-03-01T10:00:00Z, see req_011CSHoEeqs5C35K2UUq")
    '<count>: timed out after <lasted> at <date>, see <hex>'
    """
    text = of_this_moment(_with_single_spaces(text))
    if _HAS_DIGIT.search(text) is None:
        return text
    if ":" in text or "==" in text:
        text = _OF_PROCESS.sub("<id>", text)
    return _ALL.sub(_kind, text)


_OF_PROCESS: Final = re.compile(r":(?<=[\w\]]:)[1-9]\d{3,4}(?![\d.:])|==\d{2,9}==", re.ASCII)
"""The port of an address, and the number that a sanitizer puts before its lines. The character before a port is looked
at behind its colon: so a search skips to the colons."""


@lru_cache(maxsize=16)  # a result that changed is compared in several ways, and most of them mask it
def mask_noise(text: str) -> str:
    """``text`` of an answer without the parts that no agent asks for.

    Uuids, time stamps to the second, temporary paths, addresses, long hex ids, epoch stamps, durations in seconds or
    less, attempt and process numbers. Dates, time slots, rows, lines and short hashes stay.

    >>> mask_noise("done in 0.31s; next slot 2026-03-01 10:30, row 7")
    'done in <lasted>; next slot 2026-03-01 10:30, row 7'
    """
    if text.isalpha():
        return text
    text = of_this_moment(_with_single_spaces(text))
    return _NOISE.sub(_kind, text) if _may_hold_noise(text) else text


def of_this_moment(text: str) -> str:
    """``text`` without the sessions, tokens, signatures and ways back in queries and forms: each request gets others.

    >>> mask_noise("Please sign in: https://a.example/wall?to=orders&sess=abcab8166f")
    'Please sign in: https://a.example/wall?to=orders&sess=<query>'
    """
    if "=" not in text or not ("?" in text or "&" in text or any(map(text.lower().__contains__, _OF_FORMS))):
        return text  # as most source code: the search would cost several times as much
    return _OF_THIS_MOMENT.sub("\\1<query>", text)


_OF_THIS_MOMENT: Final = re.compile(
    r"""((?:name|id)=["'][\w-]{0,30}(?:csrf|xsrf|verificationtoken|authenticity_token|viewstate|nonce)[\w-]{0,30}["'][^<>]{0,60}\s(?:value|content)=["']
    |(?:[?&]|(?<![^\s"'])(?=_?[cx]srf))(?:(?:j|php)?sess(?:ion)?(?:_?id)?|sid|_?(?:csrf|xsrf)(?:_?token)?|(?:access_|auth_|security_)?token|nonce
    |(?:state|code_challenge)(?==[a-z\d]{20})|sig|signature|expires|key-pair-id|policy|googleaccessid|x-(?:amz|goog)-[a-z-]{4,20}|(?:_?ts?|_)(?==1\d{9})|(?:cb|rnd|rand)(?==\d{8})
    |(?:next|continue|redirect(?:_?ur[il]|_to)?|return_?(?:to|url)|relaystate)(?==(?:/|%2f|https?(?::|%3a))))=)[^\s&"'<>)\]}]{1,4096}""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
"""As web servers, frameworks for forms, signed URLs of AWS, Google Cloud and Azure, and pages against caches say."""
_OF_FORMS: Final = ("csrf", "xsrf", "nonce", "viewstate", "verificationtoken", "authenticity_token")


def volatile_parts(text: str) -> list[str]:
    """The parts of ``text`` that ``mask_noise`` masks.

    >>> volatile_parts("done in 31s; next slot 2026-03-01 10:30, row 7")
    ['31s']
    """
    text = _with_single_spaces(text)
    return [text[start:end] for start, end in noise_spans(text)]


def noise_spans(text: str) -> list[tuple[int, int]]:
    """Where the parts of ``text`` that ``mask_noise`` masks begin and end."""
    return [match.span() for match in _NOISE.finditer(text)] if _may_hold_noise(text) else []


def figures_in(result: str) -> tuple[int, list[float]]:
    """A checksum of an answer without numbers and noise, and the numbers that are no noise; none if they are many.

    >>> figures_in("job 7, 12.5 %, asked at 10:21:07")[1]
    [7.0, 12.5]
    """
    text = _without_noise(result) if len(result) <= MAX_FIGURE_CHARS else mask_noise(result[:MAX_FIGURE_CHARS])
    found = [float(match[0]) for match in islice(_FIGURE.finditer(text), MAX_FIGURES + 1)]
    return crc32(text_bytes(_FIGURE.sub("#", text))), found if len(found) <= MAX_FIGURES else []


def shares_done(result: str) -> list[tuple[float, float]]:
    """The shares that an answer states as done, each with its whole, in any language: "3 out of 10", "3/10", "30 %".

    >>> shares_done("2 out of 10 pods are ready (20%)"), shares_done("7 rows, line 12 of 4")
    ([(2.0, 10.0), (20.0, 100.0)], [])
    """
    found = []
    for match in islice(_SHARE.finditer(result[:MAX_FIGURE_CHARS]), MAX_FIGURES):
        done, whole = float(match["done"]), float(match["whole"] or 100)
        if done <= whole:
            found.append((done, whole))
    return found


def _without_noise(result: str) -> str:
    if result[:1] in ("{", "["):
        try:
            return sorted_bytes(_masked_value(result)).decode("utf-8", "replace")
        except (ValueError, RecursionError):
            pass
    return mask_noise(result)


_SHARE: Final = re.compile(
    r"(?<![\w.,/:-])(?P<done>\d{1,9})"
    r"(?:(?: ?/ ?| (?:[^\W\d_]{1,4} ){1,2})(?P<whole>\d{1,9})(?![\w/:-])| ?[%\uff05])"
)
_FIGURE: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
MAX_FIGURE_CHARS: Final = 4_096
MAX_FIGURES: Final = 8


def mask_lines(text: str) -> str:
    """As ``mask_noise``, line by line: the breaks between lines stay."""
    return _NOISE.sub(_kind, text) if _may_hold_noise(text) else text


def _with_single_spaces(text: str) -> str:
    """First of all: a pattern would scan a run of blanks again from each of its places.

    Of a line that was written over by carriage returns, the last state stays, as a terminal shows it.
    """
    if "\r" in text:
        text = "\n".join([line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")])
    return " ".join(text.split())


def _may_hold_noise(text: str) -> bool:
    """Whether ``_NOISE`` may match: a few quick looks spare most answers a search that costs ten times as much."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > len(text) and _OTHER.search(data.translate(None, _ASCII).decode("utf-8", "surrogatepass")):
        return _may_hold_noise_in_any_script(text)
    shape = data.translate(_DIGITS_AND_UNITS)
    if b"0" not in shape:
        return False
    if _holds_sign(text):
        return True
    noisy = b"0s" in shape or b"0 s" in shape or b"0:00:00" in shape or b"0000000000" in shape
    if noisy and _NOISY_NUMBER.search(text) is not None:
        return True
    shape = data.translate(_LETTERS_AND_DIGITS)
    long = b"xxxxxxxxxxxxxxxx" in shape or b"xxxxxxxx-xxxx-" in shape
    if long and _LONG_ID.search(text) is not None:
        return True
    shape = data.translate(_NAME_ENDS)
    return bool([one for one in _NUMBERS_AFTER_NAME if one in shape and _follows_name(data, shape, one)])


def _holds_sign(text: str) -> bool:
    """Whether a text holds a part of a form that is known by more than its digits."""
    if "0x" in text or "]:" in text or "tmp/" in text or "Temp\\" in text or "B/s" in text or "it/s" in text:
        return True
    if "[ref=s" in text or " uid=" in text or "req" in text or "Req" in text or "resp-" in text:
        return True
    return "resp_" in text or "trace" in text or "<!--" in text


def _follows_name(data: bytes, shape: bytes, number: bytes) -> bool:
    """Whether a number is after a name of something counted; ``shape``, ``number``: bytes by ``_NAME_ENDS``."""
    at = shape.find(number)
    while at >= 0:
        if data[max(0, at + 1 - _MAX_NAME_CHARS) : at + 1].lower().endswith(_NAMES):
            return True
        at = shape.find(number, at + 1)
    return False


def _may_hold_noise_in_any_script(text: str) -> bool:
    """As ``_may_hold_noise``, where a digit or a letter may be any that Unicode takes for one."""
    if _HAS_DIGIT.search(text) is None:
        return False
    if _holds_sign(text) or _NOISY_NUMBER.search(text) is not None or _LONG_ID.search(text) is not None:
        return True
    for number in _NUMBER_AFTER_WORD.finditer(text):
        if _NAMES_NUMBER.search(text, max(0, number.start() - _MAX_NAME_CHARS), number.end()) is not None:
            return True
    return False


_ASCII: Final = bytes(range(128))
_OTHER: Final = re.compile(r"[^\D0-9]|[\u0130\u0131\u017f]")
"""Digits beyond ASCII, and the letters that are an ``i`` or an ``s`` regardless of case."""
_DIGITS_AND_UNITS: Final = bytes.maketrans(b"123456789mnudgS\xc2\xce\xd0\xd1\xe3\xe6\xe7\xeb\xec", b"0" * 9 + b"s" * 15)
"""Digits become one, and so do the first bytes of the units in ``_NOISY_NUMBER``."""
_NAMES: Final = tuple(
    (
        b"attempt retry retries try tries pid process thread tid req request trace span session seed nonce timestamp ts"
        b" _ms id no number num count"
    ).split()
)
_NAME_LETTERS: Final = bytes({name[-1] for name in _NAMES})
_NAME_ENDS: Final = bytes.maketrans(
    b"123456789:=#.([" + _NAME_LETTERS + _NAME_LETTERS.upper(), b"0" * 9 + b" " * 6 + b"t" * (2 * len(_NAME_LETTERS))
)
"""Digits become one, marks before a number too, and so do the letters with which ``_NAMES`` end."""
_NUMBERS_AFTER_NAME: Final = (b"t 0", b"t  0", b"t   0")
_NOISY_NUMBER: Final = re.compile(rf"\dm ?\d|\d(?::\d{{2}}:\d{{2}}|\d{{9}}| ?{_SHORT_TIME})")
_LONG_ID: Final = re.compile(rf"[0-9a-fA-F][0-9a-fA-F]{{7}}(?:[0-9a-fA-F]{{8}}|-[0-9a-fA-F]{{4}}-)|{RANDOM}")
"""A long id or the head of a uuid. A short hash, as in most listings, is nothing that the masks would replace."""
_ALPHANUMERIC: Final = (ascii_letters + digits).encode()
_LETTERS_AND_DIGITS: Final = bytes.maketrans(_ALPHANUMERIC, b"x" * len(_ALPHANUMERIC))
_MARK: Final = r"[ :=#.(\[]"
_LETTER: Final = r"(?<=[^\W\d_]"
_NUMBER_AFTER_WORD: Final = re.compile(rf"{_MARK}(?:{_LETTER}{_MARK})|{_LETTER}{_MARK}{{2}})|{_LETTER}{_MARK}{{3}}))\d")
"""Members of JSON and cells of tables are no numbers after a word: only the others are worth a closer look."""
_NAMES_NUMBER: Final = re.compile(rf"{_COUNTED}(?: ?(?:id|no|number|num|count))?{_MARK}{{1,3}}\d\Z", re.IGNORECASE)
_MAX_NAME_CHARS: Final = 32


def _kind(match: re.Match[str]) -> str:
    return f"<{(match.lastgroup or '').rstrip('_')}>"


_VOLATILE_KEY: Final = re.compile(
    r"""^(?:.*[_-])?(?:ts|timestamp|clock|now|duration|elapsed|took|latency|uptime|runtime|ms|millis|pid|tid|uuid|guid
    |nonce|etag|seq|sequence|(?:attempts?|try|tries|retry|retries|restarts?)(?:_(?:no|num|number|count))?|retry_after
    |request|trace|span|session|correlation|resource_version|observed_generation|rss|ttl|random|time|age|idle)(?:_(?:s|secs?|seconds?|ms|millis|us|ns|mins?|minutes?|h|hours?))?$
    |^.*(?:_at|_ts|_ms|_time|timestamp|_id_trace|(?:duration|elapsed)ms|(?:request|response)_?ref|_pid|[cx]srf|jwt
    |(?:request|trace|span|session|message|correlation)_?id|(?:access|refresh|id|[cx]srf|session|auth|bearer|upload)_?token
    |rate[_-]?limits?(?:[_-](?:limit|remaining|reset|used))?|мс|мсек|毫秒|ミリ秒|밀리초|(?:耗时|用时|処理時間|소요_?시간
    |dauer|durée|duración|duração|durata)(?:_?ms)?)$""",
    re.VERBOSE | re.IGNORECASE,
)
_NAME_CHARS: Final = 128  # longer keys are data
CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_volatile_key(key: str) -> bool:
    """Whether a JSON member of this name usually changes from call to call without meaning anything."""
    return _is_volatile_name(key) if len(key) <= _NAME_CHARS else False


@lru_cache(maxsize=4_096)
def _is_volatile_name(key: str) -> bool:
    return _VOLATILE_KEY.match(CAMEL.sub("_", key)) is not None


def mask_value(value: Any, depth: int = 0, mask: Callable[[str], str] = mask_noise) -> Any:
    """A JSON value, unfolded as for ``canonical_bytes``, without volatile members, its texts masked.

    Raises ValueError if it is nested deeper than ``MAX_DEPTH``.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    kind, below = type(value), depth + 1
    if kind is dict:
        masked = {key: item for key, item in value.items() if not is_volatile_key(key)}
        for key, item in masked.items():
            if type(item) is not str:
                masked[key] = mask_value(item, below, mask)
            elif not item.isalpha():  # no mask is about letters alone
                masked[key] = unfold_text(mask(item), below)
        return masked
    if kind is list:
        return [mask_value(item, below, mask) for item in value]
    if kind is str:
        return value if value.isalpha() else unfold_text(mask(value), depth)
    if (kind is int or kind is float) and value >= _FIRST_EPOCH and _WHOLE_EPOCH.fullmatch(repr(value)):
        return "<epoch>"
    return plain_number(value) if kind is float else value


_FIRST_EPOCH: Final = 1_500_000_000
_WHOLE_EPOCH: Final = re.compile(_EPOCH)


def masked_hash(result: str, *, error: bool = False) -> bytes:
    """Hash of an answer with its volatile parts masked: as JSON where it is JSON, else as text.

    Of an answer beyond ``MAX_UNDERSTOOD_CHARS`` both ends are masked, and the rest counts without its digits.
    """
    text = without_exact_digest(both_ends_and_digest(with_digests(result), MAX_UNDERSTOOD_CHARS))
    if len(text) < _REMEMBERED_CHARS:
        return _masked_hash(text, error)
    key = sha256(text_bytes(text)).digest()[:16] + bytes((error,))
    known = _remembered.get(key)
    if known is None:
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()
        known = _remembered[key] = _masked_hash(text, error)
    return known


_REMEMBERED_CHARS: Final = 1_024
_MAX_REMEMBERED: Final = 256
_remembered: Final[dict[bytes, bytes]] = {}
"""Hashes of long texts and of their masked forms: one step asks for the same one up to three times."""


def _masked_hash(text: str, error: bool) -> bytes:
    if text[:1] in ("{", "["):
        try:
            return digest64(sorted_bytes(_masked_value(text, mask_text if error else mask_noise)))
        except (ValueError, RecursionError):
            pass
    return digest64(text_bytes(mask_text(text) if error else mask_noise(text)))


@lru_cache(maxsize=4)
def _masked_value(text: str, mask: Callable[[str], str] = mask_noise) -> Any:
    """JSON, or JSON lines, as ``mask_value`` gives it, not to be changed. Raises ValueError."""
    return mask_value(parse_json_or_lines(text), 0, mask)


def unordered_hash(result: str) -> bytes:
    """Hash of an answer without noise and without the order of its lines, or of the lists in it; empty if it is long.

    >>> unordered_hash("1. red lamp\\n2. old map") == unordered_hash("1. old map\\n2. red lamp")
    True
    >>> unordered_hash('{"took": 4, "hits": ["a", "b"]}') == unordered_hash('{"took": 7, "hits": ["b", "a"]}')
    True
    """
    if len(result) > _UNORDERED_CHARS:
        return b""
    if result[:1] in ("{", "["):
        try:
            return digest64(sorted_bytes(_without_order(_masked_value(result))))
        except (ValueError, RecursionError):
            pass
    lines = (_LIST_NUMBER.sub("", mask_noise(line)) for line in result.splitlines())
    return digest64(text_bytes("\n".join(sorted(line for line in lines if line))))


def _without_order(value: Any) -> Any:
    """A masked JSON value with its lists sorted."""
    if type(value) is dict:
        return {key: _without_order(item) for key, item in value.items()}
    return sorted(map(_without_order, value), key=sorted_bytes) if type(value) is list else value


_UNORDERED_CHARS: Final = 16_384
_LIST_NUMBER: Final = re.compile(r"\A\W{0,4}\d{1,3}[.):\]]\s")


def state_hash(state: str) -> str:
    """Fingerprint (16 hex digits) of a state that the application supplies, volatile parts masked.

    >>> state_hash("Cart: 1 item. It is 10:21:07 now.") == state_hash("Cart: 1 item. It is 10:21:09 now.")
    True
    """
    return masked_hash(state).hex()


def result_hash(outcome: str, result: str | None) -> str | None:
    """Exact fingerprint (16 hex digits) of an outcome and its payload; None if the payload is unknown.

    The text of an error is masked first: cell numbers, clocks and ids in it say nothing about progress.
    """
    if result is None:
        return None
    if outcome == "error":
        return masked_hash(result, error=True).hex()
    if len(result) > MAX_UNDERSTOOD_CHARS:
        return sha256(f"{outcome}\0{result}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return blake2b(text_bytes(result), digest_size=8, person=outcome.encode()).hexdigest()
