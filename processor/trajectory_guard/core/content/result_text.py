"""Reading a tool result: is it empty, an acknowledgement, a state, an error, a wait; and its form without the request.

Structure decides wherever it can. Words of a few languages help to name errors and waits sooner; without them the same
results are found by their repetition, a little later.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from trajectory_guard.core.content.masking import is_volatile_key, mask_noise, mask_text
from trajectory_guard.core.fingerprints import object_in, parse_json
from trajectory_guard.core.text import both_ends, text_of
from trajectory_guard.core.tools import names_state

MAX_FORM_CHARS: Final = 400
"""Longer results have no form: they say more than that something was not found."""
MAX_REQUEST_CHARS: Final = 2_000
_MAX_VALUES: Final = 64
_MAX_WORDS: Final = 80
_MIN_ECHO_CHARS: Final = 2
_MAX_ECHO_CHARS: Final = 200
DECIMAL: Final = re.compile(r"\d\d{0,17}[.,]\d+(?!\d)(?![a-f]\w{3})")
WORD: Final = re.compile(
    r"[^\s!-/:-@\[-^`{-~\u2010-\u205e\u3001-\u3003\u3008-\u3011\uff01-\uff0f\uff1a-\uff20«»¿¡،؟।]+"
)
"""Runs of anything but spaces and punctuation: ``\\w`` would split words of scripts with combining signs."""
_STATE_WIDTH: Final = 24
_SHORT_WIDTH: Final = 60
_BRIEF_WIDTH: Final = 200
_BRIEF_LINES: Final = 3
_VALUE_WIDTH: Final = 40
_WIDE: Final = frozenset("WF")
_ACKNOWLEDGEMENT_WORDS: Final = 6
_SENTENCE_WIDTH: Final = 100
_FLAG_WORDS: Final = 3
_MAX_FLAGS: Final = 3
_LONG_ID: Final = re.compile(r"(?:[^\s:]{1,40}:){0,4}(?=[a-f-]{0,36}\d)[\da-f-]{16,64}", re.IGNORECASE)
_WIDE_ACKNOWLEDGEMENT: Final = 24
_WIDE_SENTENCE: Final = 40
_STRUCTURE: Final = frozenset("|=:：;；{}[]<>#$%/\\\n\t\"'「」")


def width(text: str) -> int:
    """Length of a text in columns: a character of Chinese, Japanese or Korean says as much as two letters.

    >>> width("abc"), width("処理中")
    (3, 6)
    """
    return len(text) + _wide(text)


def _wide(text: str) -> int:
    """Number of characters that are two columns wide."""
    return 0 if text.isascii() else sum(map(_WIDE.__contains__, map(unicodedata.east_asian_width, text)))


def values_of(args: Any) -> tuple[str, ...]:
    """Texts and numbers of the arguments, in order, at most ``_MAX_VALUES`` of them.

    >>> values_of({"path": "a.py", "lines": [1, 2.5], "all": True, "mode": None})
    ('a.py', '1', '2.5')
    """
    if type(args) is dict and len(args) <= _MAX_VALUES and _SCALARS.issuperset(map(type, args.values())):
        try:
            return tuple([str(one) for one in args.values() if type(one) not in _WORDLESS])
        except ValueError:  # an integer is too long for it
            return tuple([text_of(one) for one in args.values() if type(one) not in _WORDLESS])
    found: list[str] = []
    stack = [args]
    while stack and len(found) < _MAX_VALUES:
        value, left = stack.pop(), _MAX_VALUES - len(found)
        if isinstance(value, dict):
            stack.extend(reversed(list(value.values())[:left]))
        elif isinstance(value, (list, tuple)):
            stack.extend(reversed(value[:left]))
        elif isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            found.append(text_of(value))
    return tuple(found)


_WORDLESS: Final = frozenset((bool, type(None)))
_SCALARS: Final = _WORDLESS | {str, int, float}


def _request(values: Sequence[str]) -> list[str]:
    """The values of a request, case-folded, longest first; together at most ``MAX_REQUEST_CHARS``."""
    texts, left = [], MAX_REQUEST_CHARS
    for value in values:
        text = value[:left].casefold().strip()
        left -= len(text)
        texts.append(text)
        if left <= 0:
            break
    texts.sort(key=len, reverse=True)
    return texts


@lru_cache(maxsize=256)
def answer_form(result: str, values: tuple[str, ...], *, error: bool, scores: bool = False) -> str:
    """The words of a short result without what the request named and without what moves; empty if nothing is left.

    Parameters:
        values: those of the request (``values_of``), as in the functions below.
        scores: decimals stay, which may be scores that move, and may be what was asked for.

    >>> answer_form("Your search - red shoes - did not match any documents.", ("red shoes",), error=False)
    'your search did not match any documents'
    >>> answer_form("Error: file '/src/main.py' not found", ("/src/main.py",), error=True)
    'error file not found'
    """
    text = both_ends(result, MAX_FORM_CHARS).casefold()
    text = text if scores else DECIMAL.sub(" ", text)
    left, quoted = [], []  # an answer may hold some words of a value that it does not quote
    for value in _request(values):
        quotable = _MIN_ECHO_CHARS <= len(value) <= _MAX_ECHO_CHARS and (len(value) > 2 or not value.isascii())
        if quotable and value in text:
            text = text.replace(value, " ")
            quoted.append(value)
        else:
            left.append(value)
    request = "\n".join(left)
    asked = frozenset(WORD.findall(request))
    if "-" in request or "_" in request:
        asked |= frozenset(WORD.findall(_JOINT.sub("", request)))
    words = [word for word in WORD.findall((mask_text if error else mask_noise)(text)) if word not in asked]
    if not error and is_timetable(text):
        words = [word for word in WORD.findall(text) if word not in asked]
    if quoted:
        words = _without_runs(words, frozenset(WORD.findall("\n".join(quoted))))
    if error:
        words = [word for word in words if not any(map(str.isdigit, word))]
    return " ".join(words[:_MAX_WORDS])


_JOINT: Final = re.compile(r"[-_](?<=[^\W_].)(?=[^\W_])")
"""A joint within a name, which an answer may spell without: ``list-users`` is refused as ``ListUsers``. The character
before it is looked at behind it: so a search skips to the joints."""


def is_timetable(text: str) -> bool:
    """Whether an object is about times, so that they are no clocks beside an answer: it holds one per three words.

    >>> is_timetable('{"busy": [{"start": "09:00", "end": "10:30"}, {"start": "13:00", "end": "14:00"}]}')
    True
    >>> is_timetable('[{"at": "09:00", "message": "web started"}, {"at": "09:01", "message": "db is ready"}]')
    False
    """
    if text[:1] not in ("{", "[") or text.count(":") < _MIN_TIMES:
        return False
    if text.isascii() and b"0:00" not in text.encode().translate(_DIGITS):
        return False  # as most objects: no search
    times = len(_TIME.findall(text))
    return times >= _MIN_TIMES and times * _WORDS_PER_TIME >= len(_NAME.findall(text))


_MIN_TIMES: Final = 4
_WORDS_PER_TIME: Final = 3
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_TIME: Final = re.compile(r"(?<![+\d:-])\d{1,2}:\d{2}")
_NAME: Final = re.compile(r"(?<![^\s\"',:{}\[\]])[^\W\d][^\s\"',:{}\[\]]*")


def is_reading(result: str) -> bool:
    """Whether decimals are what a result is about: no scores beside what was found, but readings, prices, measures.

    >>> is_reading('{"mean_wait": 43.38, "p_block": 0.014}'), is_reading("no relevant documents, best score 0.31")
    (True, False)
    """
    words, decimals = DECIMAL.subn(" ", result[:MAX_FORM_CHARS])
    return decimals > 0 and len(WORD.findall(words)) <= _WORDS_A_DECIMAL * decimals


_WORDS_A_DECIMAL: Final = 3


def is_token(form: str) -> bool:
    """Whether an answer, by its form, is an id or a checksum with a name or two: no noise in an answer, but the answer.

    >>> is_token("hex"), is_token("id sha hex"), is_token("request hex was not found")
    (True, True, False)
    """
    words = form.split()
    return not _TOKENS.isdisjoint(words) and sum(word not in _TOKENS for word in words) <= _TOKEN_NAMES


_TOKENS: Final = frozenset(("hex", "uuid"))
_TOKEN_NAMES: Final = 2


def _without_runs(words: list[str], quoted: frozenset[str]) -> list[str]:
    """``words`` without two and more in a row that were quoted before: the request once more, cut into words."""
    kept: list[str] = []
    run: list[str] = []
    for word in (*words, ""):
        if word in quoted:
            run.append(word)
            continue
        kept += [*(run if len(run) == 1 else ()), word]
        run = []
    return kept[:-1]


def quotes(result: str, values: Sequence[str]) -> bool:
    """Whether a short result repeats a text of the request: the template of an answer around what was asked.

    >>> quotes("Your search - red shoes - did not match any documents.", ("red shoes",))
    True
    """
    text = result[:MAX_FORM_CHARS].casefold()
    return any(len(value) >= MIN_QUOTE_CHARS and value[:_MAX_ECHO_CHARS].casefold() in text for value in values)


MIN_QUOTE_CHARS: Final = 4


@lru_cache(maxsize=256)
def is_acknowledgement(text: str) -> bool:
    """Whether a result only says that something was done: it is short and shows no state.

    No state: no number but a lone 1, no structure beyond flags, codes of success and where it was done (the long id of
    a page, a session), at most six words. Nothing depends on the language.

    >>> is_acknowledgement("Clicked"), is_acknowledgement('{"success": true}'), is_acknowledgement("Wiederhergestellt.")
    (True, True, True)
    >>> is_acknowledgement('{"ok": true, "targetId": "49653102572F78064DBB08F1A6B5ACD4"}')
    True
    >>> is_acknowledgement("204 No Content"), is_acknowledgement('{"data": {"close": {"isClosed": true}}}')
    (True, True)
    >>> is_acknowledgement('{"errcode": 0, "errmsg": "ok"}'), is_acknowledgement("Status: 200\\nBody: ")
    (True, True)
    >>> is_acknowledgement("7C, rain"), is_acknowledgement("Page: Checkout | Button 'Pay' disabled")
    (False, False)
    """
    text = text.strip()
    if text[:1] == "#":  # a heading that names the tool
        text = text.partition("\n")[2].strip() or text
    if text[:1] in ("{", "["):
        return len(text) <= _BRIEF_WIDTH and (_is_flag(text) or counts_changes(text))
    if _STATUS_LINE.fullmatch(text) is not None or _EMPTY_RESPONSE.fullmatch(text) is not None:
        return True
    return _says_little(text, _ACKNOWLEDGEMENT_WORDS, _SHORT_WIDTH, _WIDE_ACKNOWLEDGEMENT)


@lru_cache(maxsize=256)
def may_acknowledge(text: str) -> bool:
    """Whether a result is an acknowledgement, or a sentence of up to twelve words that may be one.

    After other calls, it says no more than that each of them was received; after one call again, it is an answer.

    >>> may_acknowledge("Action executed successfully. No further output was returned.")
    True
    >>> may_acknowledge("Cart: 1 item. Please choose a size to continue.")
    False
    """
    if is_acknowledgement(text):
        return True
    text = _LABEL.sub("", text.strip())
    return text[:1] not in ("{", "[") and _says_little(
        text, 2 * _ACKNOWLEDGEMENT_WORDS, _SENTENCE_WIDTH, _WIDE_SENTENCE
    )


def _says_little(text: str, words: int, columns: int, wide: int) -> bool:
    """Whether a text has at most so many words and columns, or columns of wide characters, and neither figures nor
    structure.
    """
    size = width(text)
    if size > columns or any(char in _STRUCTURE for char in text) or (size > len(text) and size > wide):
        return False
    said = text.split()
    return len(said) <= words and not any(word != "1" and any(map(str.isdigit, word)) for word in said)


def confirms(text: str) -> bool:
    """Whether a short object says, with a flag or as a status, that something was done, whatever stands beside it.

    >>> confirms('{"ok": true, "labelIds": ["Label_17"]}'), confirms('{"status": "canceled", "refund": "none"}')
    (True, True)
    >>> confirms('{"free": 3}'), confirms('{"status": "declined"}')
    (False, False)
    """
    if text[:1] != "{" or len(text) > _BRIEF_WIDTH:
        return False
    return any(
        value is True or (key in _STATUS_KEYS and isinstance(value, str) and _DONE.fullmatch(value.lower()) is not None)
        for key, value in object_in(text).items()
    )


_DONE: Final = re.compile(r"ok|success|done|complete|(?!fail|declin|reject|deni|expir|block|abort|refus)[a-z]{2,12}ed")


def is_remark(text: str) -> bool:
    """Whether a result is a few sentences in one line, without figures, lists or fields.

    >>> is_remark("The simulation has advanced by one step. All agents have been updated. Use get_state to look.")
    True
    >>> is_remark("Paris: 18 degrees, light rain in the evening"), is_remark("total 3, open: a, b, c")
    (False, False)
    """
    return len(text) <= _REMARK_CHARS and _NO_REMARK.search(text) is None


_REMARK_CHARS: Final = 240
_REPORT_CHARS: Final = 400
_REPORT_LINES: Final = 8
_NO_REMARK: Final = re.compile(r"[\n\d\[\]{}<>=|:;/\\\"]")
_NO_ERRORS: Final = re.compile(r"\"(?:\w{1,20}_?)?errors?\"\s*:\s*\[\s*\]", re.IGNORECASE)
_STATUS_LINE: Final = re.compile(r"(?:HTTP/\d(?:\.\d)? )?20[1-5](?: [A-Z][A-Za-z -]{1,30})?")
_LABEL: Final = re.compile(r"\A(?:success|ok|done|info|message|output|response|result)[:!.-] (?=\w)", re.IGNORECASE)
_EMPTY_RESPONSE: Final = re.compile(
    r"(?:HTTP/\d(?:\.\d)? |status(?:[ _]code)?[:=] ?)20[0-5](?: [A-Z][A-Za-z -]{1,30})?"
    r"(?:\r?\n(?:(?:body|content|data|text|output|response):"
    r"|(?!body|content:|data|text|output|response)[\w-]{1,40}: ?[^\n]{1,80})\s{0,9}){0,8}",
    re.IGNORECASE,
)
"""A response of HTTP as text, with headers and without a body."""


def _is_flag(text: str) -> bool:
    try:
        leaves = list(_telling_leaves(parse_json(text)))
    except (ValueError, RecursionError):
        return False
    ids = [leaf for leaf in leaves if _is_id(leaf)]
    if ids:
        leaves = [leaf for leaf in leaves if leaf not in ids]
    well = _WENT_WELL.search(text) is not None or '"jsonrpc"' in text
    most = 2 * _SHORT_WIDTH if well or all(leaf is None or leaf is True for leaf in leaves) else _SHORT_WIDTH
    if width("".join(text.split())) - sum(map(len, ids)) > most:
        return False
    if not leaves and (well or _NO_ERRORS.search(text) is not None):
        return True
    words = 2 * _ACKNOWLEDGEMENT_WORDS if well or True in leaves else _FLAG_WORDS
    return 0 < len(leaves) <= _MAX_FLAGS and all(
        leaf is None or isinstance(leaf, bool) or (isinstance(leaf, str) and _is_remark(leaf, words)) for leaf in leaves
    )


_CODE: Final = r"(?:http_?)?status_?code|code|err_?(?:code|no)|ret(?:_?code)?|result_?code"
_WENT_WELL: Final = re.compile(rf'"(?:{_CODE})"\s{{0,4}}:\s{{0,4}}"?(?:0|20[014])(?![\d.])', re.IGNORECASE)
_IS_CODE: Final = re.compile(_CODE, re.IGNORECASE)
_GOOD_CODES: Final = frozenset((0, 200, 201, 204, "0", "200", "201", "204"))


def _telling_leaves(value: Any) -> Iterator[Any]:
    """The leaves of a JSON value without codes that say that all went well, and numbers of the exchange."""
    if isinstance(value, dict):
        for key, item in value.items():
            if "jsonrpc" in value and key in ("jsonrpc", "id"):
                continue
            if isinstance(item, (int, str)) and _IS_CODE.fullmatch(key) is not None and item in _GOOD_CODES:
                continue
            if item != "" and not (isinstance(item, (int, float)) and is_volatile_key(key)):
                yield from _telling_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _telling_leaves(item)
    else:
        yield value


def counts_changes(text: str) -> bool:
    """Whether an object says how many things a call has changed, and nothing else but flags and ids.

    >>> counts_changes('{"acknowledged": true, "matchedCount": 1, "modifiedCount": 1, "upsertedId": null}')
    True
    >>> counts_changes('{"matchedCount": 1, "modifiedCount": 0}'), counts_changes('{"power": true, "level": 1}')
    (False, False)
    """
    if text[:1] != "{" or len(text) > _BRIEF_WIDTH or _CHANGED.search(text) is None:
        return False
    members = object_in(text).items()
    counts = [value for name, value in members if type(value) is int and _CHANGED.search(f'"{name}"') is not None]
    others = [value for name, value in members if type(value) is not int or name.lower().startswith("match")]
    said = [value for value in others if type(value) in _WORDLESS or type(value) is int or _is_id(value)]
    return any(counts) and len(counts) + len(said) == len(members)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _LONG_ID.fullmatch(value) is not None


_CHANGED: Final = re.compile(
    r"\"(?:n_?)?(?:modified|updated|upserted|inserted|deleted|removed|created|added|changed|affected|processed)"
    r"_?(?:count|rows|documents|docs|items|records)?\"|\"(?:rows?|changed|num)_?(?:affected|changed|rows)(?:_?count)?\"",
    re.IGNORECASE,
)
"""Members as databases and search engines name the number of what a statement has changed."""


def _is_remark(text: str, most: int) -> bool:
    """Whether a text is up to ``most`` words without a figure: a flag in words."""
    words = text.strip(" .!").split()
    if most > _FLAG_WORDS:
        words = [word.strip(".,!") for word in words]
    return 0 < len(words) <= most and all(map(str.isalpha, words))


_CONTENT_WORDS: Final = 4
_CONTENT_WIDE: Final = 8
_COORDINATES: Final = 3
_NUMBERS: Final = frozenset((int, float))
_STATUS_KEYS: Final = frozenset(("phase", "progress", "stage", "state", "status"))
_MAX_STATUS_CHARS: Final = 1_000


def carries_content(args: Any, values: Sequence[str]) -> bool:
    """Whether a request hands over content (a note, a list, a text), and not just names where to act.

    Handing over the same content again achieves nothing, even where pressing the same button again would.

    >>> note = {"path": "a.py", "text": "x = 1 + 2"}
    >>> carries_content({"at": [7, 9]}, ("7", "9")), carries_content(note, values_of(note))
    (False, True)
    """
    nested = [one for one in args.values() if isinstance(one, (dict, list)) and one] if isinstance(args, dict) else ()
    if not all(map(_is_place, nested)):
        return True
    heads = [value[:MAX_FORM_CHARS] for value in values]
    return sum(len(head.split()) for head in heads) >= _CONTENT_WORDS or sum(map(_wide, heads)) >= _CONTENT_WIDE


def _is_place(value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value in a request is a point of up to three numbers, as of a click."""
    numbers = value.values() if isinstance(value, dict) else value
    return len(value) <= _COORDINATES and _NUMBERS.issuperset(map(type, numbers))


def reports_status(text: str) -> bool:
    """Whether a result is an object with a member such as ``status`` or ``state``: how something is getting on.

    >>> reports_status('{"name": "stage", "state": "PROVISIONING"}'), reports_status('{"name": "stage"}')
    (True, False)
    """
    return text[:1] == "{" and len(text) <= _MAX_STATUS_CHARS and _has_status_member(text)


@lru_cache(maxsize=256)
def _has_status_member(text: str) -> bool:
    names = [str(key).lower() for key in object_in(text)]
    return not _STATUS_KEYS.isdisjoint(names) or any(map(names_state, names))


def is_echo(result: str, values: Sequence[str]) -> bool:
    """Whether a result repeats a value of the request: a final answer that comes back as it was given."""
    head = " ".join(result[:MAX_FORM_CHARS].split())
    least = len(head)
    long = [value for value in values if len(value) >= least > 0]
    return any(head in " ".join(value[: 2 * MAX_FORM_CHARS].split()) for value in long) if long else False


def is_brief(text: str) -> bool:
    """Whether a result is a record or a sentence or two, whatever it says: the state of one thing, not a page of them.

    >>> is_brief('{"build": 8812, "state": "linking"}'), is_brief("one\\ntwo\\nthree\\nfour")
    (True, False)
    """
    return width(text[: _BRIEF_WIDTH + 1]) <= _BRIEF_WIDTH and text.strip().count("\n") < _BRIEF_LINES


def is_report(text: str) -> bool:
    """Whether a result is short enough to say of an action that it was done, in whatever words and figures.

    >>> is_report("Line drawn. Canvas 800x600, 2 layers."), is_report("a page, line by line\\n" * 20)
    (True, False)
    """
    return len(text) <= _REPORT_CHARS and text.strip().count("\n") < _REPORT_LINES


def is_short(text: str) -> bool:
    """Whether a result is a short value or remark of unknown meaning ("processing", "sync: 0 of 12", "42")."""
    text = text.strip()
    return "\n" not in text and len(text) <= _VALUE_WIDTH and width(text) <= _VALUE_WIDTH


@lru_cache(maxsize=256)
def _describes_state(text: str) -> bool:
    if may_acknowledge(text):
        return False
    return width(text) >= _STATE_WIDTH or "\n" in text


def describes_state(text: str) -> bool:
    """Whether a result shows how things stand: a page, a listing, a table; not a value, not an acknowledgement.

    >>> describes_state("Clicked. Page: Checkout | Button 'Pay' disabled"), describes_state("42"), describes_state("ok")
    (True, False, False)
    """
    text = text.strip()
    if counts_changes(text):
        return False
    return len(text) >= (_BRIEF_WIDTH if text[:1] == "{" else 4 * _STATE_WIDTH) or _describes_state(text)
