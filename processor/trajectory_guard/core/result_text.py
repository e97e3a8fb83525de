"""Reading a tool result: is it empty, an acknowledgement, a state, an error, a wait; and its form without the request.

Structure decides wherever it can. Words of a few languages help to name errors and waits sooner; without them the same
results are found by their repetition, a little later.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat, takewhile
from struct import pack
from typing import Any, Final
from zlib import crc32

from trajectory_guard.core.fingerprints import object_in, parse_json
from trajectory_guard.core.masking import mask_lines, mask_noise, mask_text
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import names_state

MAX_FORM_CHARS: Final = 400
"""Longer results have no form: they say more than that something was not found."""
MAX_REQUEST_CHARS: Final = 2_000
_MAX_VALUES: Final = 64
_MAX_WORDS: Final = 80
_MIN_ECHO_CHARS: Final = 2
_MAX_ECHO_CHARS: Final = 200
_DECIMAL: Final = re.compile(r"\d\d{0,17}[.,]\d+")
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
_FLAG_WORDS: Final = 3
_MAX_FLAGS: Final = 3
_LONG_ID: Final = re.compile(r"(?:[^\s:]{1,40}:){0,4}(?=[a-f-]{0,36}\d)[\da-f-]{16,64}", re.IGNORECASE)
_WIDE_ACKNOWLEDGEMENT: Final = 24
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
        return tuple([str(one) for one in args.values() if type(one) not in _WORDLESS])
    found: list[str] = []
    stack = [args]
    while stack and len(found) < _MAX_VALUES:
        value, left = stack.pop(), _MAX_VALUES - len(found)
        if isinstance(value, dict):
            stack.extend(reversed(list(value.values())[:left]))
        elif isinstance(value, (list, tuple)):
            stack.extend(reversed(value[:left]))
        elif isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            found.append(str(value))
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
    text = text if scores else _DECIMAL.sub(" ", text)
    left, quoted = [], []  # an answer may hold some words of a value that it does not quote
    for value in _request(values):
        quotable = _MIN_ECHO_CHARS <= len(value) <= _MAX_ECHO_CHARS and (len(value) > 2 or not value.isascii())
        if quotable and value in text:
            text = text.replace(value, " ")
            quoted.append(value)
        else:
            left.append(value)
    asked = frozenset(WORD.findall("\n".join(left)))
    words = [word for word in WORD.findall((mask_text if error else mask_noise)(text)) if word not in asked]
    if quoted:
        words = _without_runs(words, frozenset(WORD.findall("\n".join(quoted))))
    if error:
        words = [word for word in words if not any(map(str.isdigit, word))]
    return " ".join(words[:_MAX_WORDS])


def is_reading(result: str) -> bool:
    """Whether decimals are what a result is about: no scores beside what was found, but readings, prices, measures.

    >>> is_reading('{"mean_wait": 43.38, "p_block": 0.014}'), is_reading("no relevant documents, best score 0.31")
    (True, False)
    """
    words, decimals = _DECIMAL.subn(" ", result[:MAX_FORM_CHARS])
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
    return any(len(value) >= _MIN_QUOTE_CHARS and value[:_MAX_ECHO_CHARS].casefold() in text for value in values)


_MIN_QUOTE_CHARS: Final = 4


def _plain_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _plain_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _plain_leaves(item)
    else:
        yield value


@lru_cache(maxsize=256)
def is_acknowledgement(text: str) -> bool:
    """Whether a result only says that something was done: it is short and shows no state.

    No state: no number but a lone 1, no structure beyond flags and where it was done (the long id of a page, a
    session), at most six words. Nothing depends on the language.

    >>> is_acknowledgement("Clicked"), is_acknowledgement('{"success": true}'), is_acknowledgement("Wiederhergestellt.")
    (True, True, True)
    >>> is_acknowledgement('{"ok": true, "targetId": "49653102572F78064DBB08F1A6B5ACD4"}')
    True
    >>> is_acknowledgement("7C, rain"), is_acknowledgement("Page: Checkout | Button 'Pay' disabled")
    (False, False)
    """
    text = text.strip()
    if text[:1] == "#":  # a heading that names the tool
        text = text.partition("\n")[2].strip() or text
    if text[:1] in ("{", "["):
        return len(text) <= _BRIEF_WIDTH and _is_flag(text)
    if len(text) > _SHORT_WIDTH or width(text) > _SHORT_WIDTH:
        return False
    if any(char in _STRUCTURE for char in text) or (width(text) > len(text) and width(text) > _WIDE_ACKNOWLEDGEMENT):
        return False
    words = text.split()
    return len(words) <= _ACKNOWLEDGEMENT_WORDS and not any(
        word != "1" and any(map(str.isdigit, word)) for word in words
    )


def _is_flag(text: str) -> bool:
    try:
        leaves = list(_plain_leaves(parse_json(text)))
    except (ValueError, RecursionError):
        return False
    ids = [leaf for leaf in leaves if isinstance(leaf, str) and _LONG_ID.fullmatch(leaf) is not None]
    if ids:
        leaves = [leaf for leaf in leaves if leaf not in ids]
    if width("".join(text.split())) - sum(map(len, ids)) > _SHORT_WIDTH:
        return False
    return 0 < len(leaves) <= _MAX_FLAGS and all(
        leaf is None or isinstance(leaf, bool) or (isinstance(leaf, str) and _is_remark(leaf)) for leaf in leaves
    )


def _is_remark(text: str) -> bool:
    """Whether a text is up to three words without a figure: a flag in words."""
    words = text.strip(" .!").split()
    return 0 < len(words) <= _FLAG_WORDS and all(map(str.isalpha, words))


_CONTENT_WORDS: Final = 4
_CONTENT_WIDE: Final = 8
_COORDINATES: Final = 3
_NUMBERS: Final = frozenset((int, float))
_STATUS_KEYS: Final = frozenset(("phase", "progress", "stage", "state", "status"))
_MAX_STATUS_CHARS: Final = 1_000


def carries_content(args: Any) -> bool:
    """Whether a request hands over content (a note, a list, a text), and not just names where to act.

    Handing over the same content again achieves nothing, even where pressing the same button again would.

    >>> carries_content({"at": [7, 9]}), carries_content({"path": "a.py", "text": "x = 1 + 2"})
    (False, True)
    """
    nested = [one for one in args.values() if isinstance(one, (dict, list)) and one] if isinstance(args, dict) else ()
    if not all(map(_is_place, nested)):
        return True
    heads = [value[:MAX_FORM_CHARS] for value in values_of(args)]
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


def hits_form(result: str, values: Sequence[str] = ()) -> str:
    """The texts and ids in a list of hits, without its order, scores and other numbers; empty if it is no such list.

    A list of hits stands alone, or is the only list in an object; texts beside it count, unless the request named them.

    >>> a = '{"hits": [{"url": "a", "score": 2.1}, {"url": "b", "score": 1.9}]}'
    >>> hits_form(a) == hits_form('{"hits": [{"url": "b", "score": 3.0}, {"url": "a", "score": 0.2}]}')
    True
    >>> hits_form('[{"id": 1, "state": "open"}, {"id": 2, "state": "open"}]').split("\\n")
    ['1 open', '2 open']
    >>> hits_form("- b.md (0.71)\\n- a.md (0.66)\\n- c.md (0.21)").split("\\n")
    ['- a.md ()', '- b.md ()', '- c.md ()']
    """
    if result[:1] not in ("{", "[") or (result[:1] == "[" and "{" not in result):
        return _listed_form(result)
    if len(result) > _MAX_HITS_CHARS or result.count("{") < 2:
        return ""
    try:
        value = parse_json(result)
    except (ValueError, RecursionError):
        return ""
    beside: list[str] = []
    if type(value) is dict:
        lists = [one for one in value.values() if type(one) is list or type(one) is dict]
        beside = [one for one in value.values() if type(one) is str]
        value = lists[0] if len(lists) == 1 else None
    if type(value) is not list or len(value) < 2:
        return ""
    rows = []
    for hit in value:
        if type(hit) is not dict:  # parsed from JSON
            return ""
        leaves: list[str] = []
        _add_distinct_leaves(hit, "", leaves)
        if not leaves:
            return ""
        rows.append(" ".join(leaves))
    if len(value) > _FEW_ROWS:
        rows = _with_figures(rows, value)
    rows.sort()
    if beside:
        rows += [mask_noise(text) if len(text) <= _MAX_STAMP_CHARS else text for text in beside if text not in values]
    return "\n".join(rows)


def _with_figures(rows: list[str], hits: list[dict[str, Any]]) -> list[str]:
    """The rows with those figures by which the list is not sorted: prices and places that are left, and no scores."""
    for name, first in hits[0].items():
        kind = type(first)
        if (kind is int or kind is float or kind is bool) and name not in _SCORES and name[-2:] not in _ID_ENDINGS:
            try:
                column = [hit[name] for hit in hits]
                up = sorted(column)
            except (KeyError, TypeError):  # not a figure in each row
                continue
            if column != up and column != up[::-1]:
                rows = [f"{row} {figure}" for row, figure in zip(rows, column, strict=True)]
    return rows


_FEW_ROWS: Final = 2
_SCORES: Final = frozenset(("score", "_score", "rank", "position", "similarity", "relevance", "distance", "confidence"))


def _listed_form(result: str) -> str:
    """The lines of a list without their order, scores and other fractions; empty if they are no list of like lines.

    A heading above ranked lines says nothing of the hits. A line below them may be the answer itself.
    """
    if len(result) > _MAX_LISTED_CHARS or result.count("\n") < _MIN_LISTED_LINES - 1:
        return ""
    start = result.lstrip()
    if start[:1].isalnum() and _FIRST_RANK.search(start) is None:
        return ""  # as most results: no need to look at each line
    lines = [line.strip() for line in result.splitlines() if line.strip()]
    ranked = [line[rank.end() :] for line in lines if (rank := _LIST_NUMBER.match(line)) is not None]
    if len(ranked) >= max(_MIN_LISTED_LINES, len(lines) - _LINES_AROUND):
        below = takewhile(lambda line: _LIST_NUMBER.match(line) is None, reversed(lines))
        return "\n".join([*sorted(_DECIMAL.sub("", line) for line in ranked), *map(mask_noise, below)])
    if len(lines) < _MIN_LISTED_LINES or any(line[0] != lines[0][0] or line[0].isalnum() for line in lines):
        return ""
    return "\n".join(sorted(_DECIMAL.sub("", line) for line in lines))


_LIST_NUMBER: Final = re.compile(r"\A(?:\d{1,3}[.):]|\[\d{1,3}\]|\(\d{1,3}\))\s+")
_FIRST_RANK: Final = re.compile(r"^(?:\[1\]|\(1\)|1[.):])\s", re.MULTILINE)
_LINES_AROUND: Final = 2
LINE_BYTES: Final = 2


def lines_of(result: str, values: tuple[str, ...] = ()) -> bytes:
    """Checksums, ``LINE_BYTES`` each, of the lines of a result; none below three.

    Scores and other fractions aside, clocks and other noise too, and the lines of the request, which a terminal echoes.

    >>> lines_of("[0.8] a\\n[0.7] b\\n[0.6] c") == lines_of("[0.9] a\\n[0.5] b\\n[0.1] c")
    True
    >>> lines_of("$ ls -a\\n.\\n..\\n$", ("ls -a",)) == lines_of("$ ls --all\\n.\\n..\\n$", ("ls --all",))
    True
    """
    compared = both_ends(result, _MAX_LINES_CHARS)
    return b"" if compared.count("\n") < _MIN_LISTED_LINES - 1 else _checksums_of_lines(compared, values)


@lru_cache(maxsize=256)
def _checksums_of_lines(compared: str, values: tuple[str, ...]) -> bytes:
    text = mask_lines(_DECIMAL.sub("", compared) if _may_hold_decimal(compared) else compared)
    for value in values:
        for line in value[:_MAX_LINES_CHARS].splitlines():
            if len(line) >= _MIN_QUOTE_CHARS and line in text:
                text = text.replace(line, "")
    data = text.encode("utf-8", "surrogatepass")
    lines = [line for line in map(bytes.strip, data.split(b"\n")) if line]
    short = [crc32(line) & 0xFFFF for line in lines]  # all of them have to be known: single ones may be alike
    return pack(f">{len(short)}H", *short) if len(short) >= _MIN_LISTED_LINES else b""


def _may_hold_decimal(text: str) -> bool:
    """Whether ``_DECIMAL`` may match: a quick look in ASCII; elsewhere other characters may be digits."""
    return not text.isascii() or b"0.0" in text.encode().translate(_DIGITS_AND_POINTS)


_DIGITS_AND_POINTS: Final = bytes.maketrans(b"123456789,", b"000000000.")
_MAX_STAMP_CHARS: Final = 64
_MAX_LINES_CHARS: Final = 8_192
_MAX_LISTED_CHARS: Final = 4_096
_MIN_LISTED_LINES: Final = 3


def _add_distinct_leaves(within: Any, key: str, leaves: list[str]) -> None:
    """Texts, and the numbers under keys that end in ``id``: another id is another record. ``within``: dict or list."""
    for name, item in within.items() if type(within) is dict else zip(repeat(key), within):
        kind = type(item)
        if kind is str:
            leaves.append(item)
        elif kind is list and _TEXTS.issuperset(map(type, item)):
            leaves += item
        elif kind is dict or kind is list:
            _add_distinct_leaves(item, name, leaves)
        elif (kind is int or kind is bool) and name[-2:] in _ID_ENDINGS:
            leaves.append(str(item))


_TEXTS: Final = frozenset((str,))
_ID_ENDINGS: Final = frozenset(("id", "Id", "iD", "ID"))
_MAX_HITS_CHARS: Final = 8_192


def is_brief(text: str) -> bool:
    """Whether a result is a record or a sentence or two, whatever it says: the state of one thing, not a page of them.

    >>> is_brief('{"build": 8812, "state": "linking"}'), is_brief("one\\ntwo\\nthree\\nfour")
    (True, False)
    """
    return width(text[: _BRIEF_WIDTH + 1]) <= _BRIEF_WIDTH and text.strip().count("\n") < _BRIEF_LINES


def is_short(text: str) -> bool:
    """Whether a result is a short value or remark of unknown meaning ("processing", "sync: 0 of 12", "42")."""
    text = text.strip()
    return "\n" not in text and len(text) <= _VALUE_WIDTH and width(text) <= _VALUE_WIDTH


@lru_cache(maxsize=256)
def _describes_state(text: str) -> bool:
    if is_acknowledgement(text):
        return False
    return width(text) >= _STATE_WIDTH or "\n" in text


def describes_state(text: str) -> bool:
    """Whether a result shows how things stand: a page, a listing, a table; not a value, not an acknowledgement.

    >>> describes_state("Clicked. Page: Checkout | Button 'Pay' disabled"), describes_state("42"), describes_state("ok")
    (True, False, False)
    """
    text = text.strip()
    return len(text) >= (_BRIEF_WIDTH if text[:1] == "{" else 4 * _STATE_WIDTH) or _describes_state(text)
