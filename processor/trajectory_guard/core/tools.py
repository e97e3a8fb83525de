"""The purpose of a tool by its name and its arguments, where it changes how results have to be read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.text import repr_of, text_of
from trajectory_guard.core.wordlists import beginnings, groups

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@lru_cache(maxsize=1024)
def _words(tool: str) -> tuple[str, ...]:
    """The words of a tool's name, in lower case."""
    return tuple(word.lower() for word in _WORDS.findall(tool))


def _values(args: object) -> Iterable[object]:
    """The values of arguments; arguments without names are one value."""
    return args.values() if isinstance(args, dict) else (args,)


_PURPOSES: Final = groups("tools")
_COMMUNICATION: Final = frozenset(_PURPOSES["communication"])


@lru_cache(maxsize=1024)
def is_communication(tool: str) -> bool:
    """Whether a tool hands something over (a message, a note, a thought): an empty answer is all it ever gives.

    >>> is_communication("send_message"), is_communication("searchMessages"), is_communication("search")
    (True, False, False)
    """
    words = _words(tool)
    return bool(words) and words[0] in _COMMUNICATION


@lru_cache(maxsize=1024)
def is_thinking(tool: str) -> bool:
    """Whether a tool only writes down a thought of the agent, so that the steps around it are one series.

    >>> is_thinking("sequentialthinking"), is_thinking("think"), is_thinking("note")
    (True, True, False)
    """
    words = _words(tool)
    return bool(words) and words[0] in _THINKING


@lru_cache(maxsize=1024)
def only_thinks(tool: str) -> bool:
    """Whether the name of a tool says that it writes down a thought, and names no object: that of a plan is one.

    >>> [only_thinks(tool) for tool in ("think_tool", "sequential_thinking", "reason_about_case", "plan_route")]
    [True, True, False, False]
    """
    words = _words(tool)
    return not _THINKING_ALONE.isdisjoint(words) and _THINKING_ALONE.union(_TOOL_NOUNS).issuperset(words)


@lru_cache(maxsize=1024)
def only_speaks(tool: str) -> bool:
    """Whether a tool does nothing but hand over words of the model: a thought, or that its work is done."""
    return only_thinks(tool) or is_finisher(tool)


_THINKING: Final = frozenset(_PURPOSES["thinking"])
_THINKING_ALONE: Final = _THINKING - {"plan"}
_TOOL_NOUNS: Final = frozenset(("sequential", "step", "tool"))
_WAITING: Final = frozenset(_PURPOSES["waiting"])


def is_waiting(tool: str, args: object) -> bool:
    """Whether a call does nothing but let time pass.

    >>> is_waiting("wait_for", {"seconds": 5}), is_waiting("bash", {"command": "sleep 30"}), is_waiting("bash", "ls")
    (True, True, False)
    >>> is_waiting("edit", {"note": "wait group"}), is_waiting("write_stdin", {"session_id": 7, "chars": ""})
    (False, True)
    """
    if not _WAITING.isdisjoint(_words(tool)[:1]) or (isinstance(args, dict) and _sends_nothing(args)):
        return True
    return bool([one for one in _values(args) if one.__class__ is str and (
        _WAIT_COMMAND.match(one[:80]) or ('""' in one[:200] and _WAIT_IN_CODE.search(one[:200])))])  # fmt: skip


def _sends_nothing(args: dict[Any, Any]) -> bool:
    """Whether a call hands an empty text to a session that runs on: it looks whether there is more to read."""
    if "" not in args.values():
        return False
    given = [key.lower() for key, value in args.items() if isinstance(key, str) and value == ""]
    return not _INPUTS.isdisjoint(given) and any(
        one in key.lower() for key, value in args.items() if isinstance(key, str) and value != "" for one in _SESSIONS
    )


_INPUTS: Final = frozenset(("chars", "data", "input", "keys", "stdin", "text"))
_SESSIONS: Final = ("session", "process", "shell", "terminal")


def asks_to_wait(args: object) -> bool:
    """Whether an argument says by its name and number that the call is to wait for something.

    >>> asks_to_wait({"queue": "q", "waitTimeSeconds": 20}), asks_to_wait({"wait": 0}), asks_to_wait({"wait_for": "#a"})
    (True, False, False)
    """
    return isinstance(args, dict) and any(
        isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        and not _WAITING.isdisjoint(_words(key))
        for key, value in args.items()
        if isinstance(key, str) and len(key) <= _MAX_MOVE_CHARS
    )  # fmt: skip


_WAIT_COMMAND: Final = re.compile(r"\A\s{0,40}(?:sleep|wait)\s+[\d.$%-]", re.IGNORECASE)
_WAIT_IN_CODE: Final = re.compile(  # write_stdin({session_id: 7, chars: ""})
    r"(?:session|process|shell|terminal)\w{0,8}\W{1,4}\w{1,40}\W{1,4}(?:chars|data|input|keys|stdin|text)\W{1,3}\"\""
)


_CURSOR: Final = frozenset(_PURPOSES["cursor"])
_ARROW_KEY: Final = re.compile(r"(?:arrow|page)[ _-]?(?:up|down|left|right)\Z", re.IGNORECASE)
_PARENT_FOLDER: Final = re.compile(r"^\W*cd\s+(?:\.\.|-)")
_MAX_MOVE_CHARS: Final = 40


def moves_cursor(tool: str, args: object) -> bool:
    """Whether a call moves some position by one: equal calls then lead to different places.

    >>> moves_cursor("bash", {"command": "cd .."}), moves_cursor("scroll", {"dy": 300}), moves_cursor("search", "x")
    (True, True, False)
    """
    if not _CURSOR.isdisjoint(_words(tool)):
        return True
    return any(isinstance(value, str) and _is_move(value) for value in _values(args))


@lru_cache(maxsize=1024)
def takes_next(tool: str) -> bool:
    """Whether a tool takes the next entry of a queue: one that differs in a number only is another entry.

    >>> takes_next("get_next_invoice"), takes_next("popTask"), takes_next("get_invoice")
    (True, True, False)
    """
    return not _TAKES.isdisjoint(_words(tool))


_TAKES: Final = frozenset(_PURPOSES["takes"])


def scrolls(tool: str, args: object) -> bool:
    """Whether a call moves some position by one, or by so much, and is more than the press of some button.

    >>> scrolls("scroll", {"dy": 300}), scrolls("press", {"key": "Tab"}), scrolls("press", {"button": "Buy"})
    (True, True, False)
    >>> scrolls("keyboard", {"key": "ArrowRight"}), scrolls("xdotool", {"key": "Page_Down"})
    (True, True)
    >>> scrolls("raise_limit", {"by_mb": 256}), scrolls("set_limit", {"mb": 256})
    (True, False)
    """
    if not (_CURSOR - {"press"}).isdisjoint(_words(tool)) or _names_difference(args):
        return True
    return any(isinstance(value, str) and _is_move(value) for value in _values(args))


def _names_difference(args: object) -> bool:
    """Whether arguments say by how much, or which way, something is to change, and not what it is to be."""
    return type(args) is dict and bool([key for key in args if type(key) is str and _DIFFERENCE.search(key)])


_DIFFERENCE: Final = re.compile(
    r"(?:\A|_)(?:by|delta|d[xyz]|steps|increment|decrement|factor|deg|degrees|direction)(?:_|\Z)"
    r"|\Astep_(?:size|[munk]?m|[mk]?hz|px|ms?|deg)\Z",
    re.IGNORECASE,
)


def _is_move(text: str) -> bool:
    if len(text) > _MAX_MOVE_CHARS:
        return False
    if _PARENT_FOLDER.match(text) or _ARROW_KEY.match(text):
        return True
    return not _CURSOR.isdisjoint(text.lower().removeprefix("text=").split())


_STATUS: Final = frozenset(_PURPOSES["status"])
_WRITES: Final = frozenset(_PURPOSES["writes"])
_MAKES: Final = frozenset(_PURPOSES["makes"])


@lru_cache(maxsize=1024)
def is_status_lookup(tool: str) -> bool:
    """Whether a tool's purpose is to look how something is getting on.

    >>> is_status_lookup("get_job_status"), is_status_lookup("set_status"), is_status_lookup("search")
    (True, False, False)
    >>> is_status_lookup("siparis_durumu"), is_status_lookup("cambiar_estado"), is_status_lookup("申請状況")
    (True, False, True)
    """
    words = _words(tool)
    if not _STATUS.isdisjoint(words):
        return _WRITES.isdisjoint(words)
    return names_state(tool) and _CHANGES_STATE.search(tool) is None


@lru_cache(maxsize=1024)
def _is_maker(tool: str) -> bool:
    return not (_MAKES.isdisjoint(_words(tool)[:1]) or is_lookup(tool) or is_status_lookup(tool))


@lru_cache(maxsize=256)
def is_named_after(tool: str, key: str) -> bool:
    """Whether a tool acts on the thing whose id an argument gives.

    >>> is_named_after("move_card", "card_id"), is_named_after("control_device", "message_id")
    (True, False)
    """
    thing, *kind = _words(key) or ("",)
    return len(kind) == 1 and thing in _words(tool)


def makes_something(tool: str, args: object) -> bool:
    """Whether a call makes one more of something each time it is made, by the tool's name or its SQL.

    >>> makes_something("create_refund", {}), makes_something("run", "INSERT INTO a VALUES (1)")
    (True, True)
    >>> makes_something("get_updates", {}), makes_something("run", "SELECT 1")
    (False, False)
    """
    return _is_maker(tool) or any(isinstance(one, str) and _INSERT.match(one) is not None for one in _values(args))


_INSERT: Final = re.compile(r"\s{0,20}insert\s", re.IGNORECASE)


def changes_database(args: object, result: str) -> bool:
    """Whether SQL changes data, tables or rights, and the result states no number of rows, or more than none.

    >>> changes_database({"sql": "-- sales\\nCREATE TABLE sales (id int)"}, "No results")
    True
    >>> changes_database({"sql": "UPDATE a SET b = 1 WHERE c = 2"}, "UPDATE 0"), changes_database("create a logo", "ok")
    (False, False)
    """
    for one in _values(args):
        if not isinstance(one, str) or _MAY_CHANGE.match(one) is None:
            continue
        found = _CHANGES.match(_statement(one))
        if found is not None:
            rows = _WHOLE_NUMBER.findall(result[:MAX_COUNT_CHARS]) if found["rows"] else ()
            return not rows or any(int(number) for number in rows)
    return False


def _statement(text: str) -> str:
    """A text without the SQL comments above it."""
    text = text[:_MAX_SQL_CHARS].lstrip()
    while text.startswith(("--", "/*")):
        text = text.partition("\n" if text[0] == "-" else "*/")[2].lstrip()
    return text


# a quick look: most requests are no SQL
_MAY_CHANGE: Final = re.compile(
    r"\A\s*(?:--|/\*|insert|update|delete|merge|create|alter|drop|grant|revoke|truncate|comment|do)", re.IGNORECASE
)
_CHANGES: Final = re.compile(
    r"""\A(?:(?P<rows>insert\s+into|update\s+\S{1,200}\s+set|delete\s+from|merge\s+into)\s
    |(?:create|alter|drop)\s+(?:or\s+replace\s+)?
    (?:(?:unique|temp|temporary|unlogged|external|foreign|materialized|recursive|event)\s+){0,3}
    (?:table|index|view|schema|database|function|procedure|trigger|policy|role|user|type|sequence|extension|domain)\s
    |(?:grant|revoke)\s[^;]{1,100}?\s(?:on|to|from)\s|truncate\s+table\s|comment\s+on\s|do\s+\$)""",
    re.IGNORECASE | re.VERBOSE,
)


def tables_in(text: str) -> list[str]:
    """The tables that SQL names; none in any other text, which may say where something is from.

    >>> tables_in("SELECT * FROM a JOIN `b.c` USING (id)"), tables_in("flights from Berlin")
    (['a', '`b.c`'], [])
    """
    return _TABLE.findall(text[:_MAX_SQL_CHARS]) if _SQL.match(text) is not None else []


_SQL: Final = re.compile(r"\s{0,20}\(?(?:select|with|insert|update|delete|merge|explain)\s", re.IGNORECASE)
_TABLE: Final = re.compile(r"(?<!\w)(?i:from|join|into|update)\s{1,9}([\w.\"`\[\]]{1,80})")


def takes_a_batch(args: object, result: str) -> bool:
    """Whether SQL changed or copied as many rows as its own bound allows: the same statement takes the next ones.

    >>> purge = {"query": "DELETE FROM log WHERE id IN (SELECT id FROM log WHERE old LIMIT 5000)"}
    >>> takes_a_batch(purge, "DELETE 5000"), takes_a_batch(purge, "DELETE 0"), takes_a_batch("SELECT 1 LIMIT 1", "1")
    (True, False, False)
    >>> takes_a_batch("WITH old AS (SELECT id FROM a LIMIT 100) UPDATE a SET b = 1 FROM old", "UPDATE 100")
    True
    >>> takes_a_batch("INSERT INTO archive SELECT * FROM log WHERE NOT copied LIMIT 100", "INSERT 0 100")
    True
    """
    for one in _values(args):
        statement = one[:_MAX_SQL_CHARS] if isinstance(one, str) else ""
        if _changes_rows(statement):
            bound = _ROW_BOUND.search(statement)
            if bound is not None and bound[1] in _WHOLE_NUMBER.findall(result[:MAX_COUNT_CHARS]):
                return True
    return False


def _changes_rows(statement: str) -> bool:
    """Whether SQL changes rows, behind a ``WITH`` too, or copies them from a table."""
    verb = _VERB.match(statement)
    return verb is not None and _ROWS[verb[1].lower()].search(statement) is not None


_VERB: Final = re.compile(r"\s{0,20}(delete|update|merge|insert|with)\s", re.IGNORECASE)
_CHANGE: Final = re.compile(r"\b(?:delete|update|merge)\s", re.IGNORECASE)
_COPY: Final = re.compile(r"\bselect\s", re.IGNORECASE)
_ROWS: Final = {"delete": _CHANGE, "update": _CHANGE, "merge": _CHANGE, "with": _CHANGE, "insert": _COPY}
"""By its first word: the words of a statement that changes rows, or takes them from a table."""
_ROW_BOUND: Final = re.compile(r"\b(?:limit|top|first|rownum\s{0,4}<=?)\s{0,4}\(?([1-9]\d{0,8})\b", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]\d)")
_MAX_SQL_CHARS: Final = 4_096
MAX_COUNT_CHARS: Final = 200
"""A longer answer is no count of rows."""


def names_state(name: str) -> bool:
    """Whether a name holds a word for a state in another language than English."""
    return _STATE_ELSEWHERE.search(name) is not None


_STATE_ELSEWHERE: Final = beginnings("status")
_CHANGES_STATE: Final = beginnings("status", "changes")


_LOOKUP: Final = frozenset(_PURPOSES["lookup"])


@lru_cache(maxsize=1024)
def is_lookup(tool: str) -> bool:
    """Whether a tool's name says that it returns data: a short result is the data then, not an acknowledgement.

    >>> is_lookup("read_file"), is_lookup("press_key")
    (True, False)
    """
    return not _LOOKUP.isdisjoint(_words(tool)[:2])


@lru_cache(maxsize=1024)
def returns_content(tool: str) -> bool:
    """Whether a tool's name says that it returns stored content, where a word for a state is a word of the content.

    >>> returns_content("search_catalog"), returns_content("write_todos"), returns_content("get_job")
    (True, True, False)
    """
    return not _CONTENT.isdisjoint(_words(tool))


_CONTENT: Final = frozenset(_PURPOSES["content"])
_VIEW: Final = frozenset(_PURPOSES["view"])


@lru_cache(maxsize=1024)
def acts_on_view(tool: str) -> bool:
    """Whether a tool acts on what is shown, so that its results describe that and not the thing it was given.

    >>> acts_on_view("browser_click"), acts_on_view("credit_check")
    (True, False)
    """
    return not _VIEW.isdisjoint(_words(tool))


_POINT: Final = frozenset(_PURPOSES["point"])


@lru_cache(maxsize=1024)
def points_at_view(tool: str) -> bool:
    """Whether a tool acts on a place of what is shown, where it may miss: neither keys that are typed, nor moves.

    >>> points_at_view("browser_click"), points_at_view("press_key"), points_at_view("make_move")
    (True, False, False)
    """
    return not _POINT.isdisjoint(_words(tool))


HANDOFF: Final = "handoff"
"""``tool_name`` of a hand-over without a tool."""
_HANDOFF: Final = re.compile(r"(?:hand_?off|hand_?over|delegate|escalate)(?:_|$)|transfer_(?:back_)?to_", re.IGNORECASE)


@lru_cache(maxsize=1024)
def is_handoff(tool: str) -> bool:
    """Whether a tool hands the work over to another agent.

    >>> is_handoff("transfer_to_billing"), is_handoff("Delegate work to coworker"), is_handoff("transfer_money")
    (True, True, False)
    """
    return _HANDOFF.match(tool.replace("-", "_").replace(" ", "_")) is not None


_RECEIVER: Final = frozenset(_PURPOSES["receiver"])
_MAX_RECEIVER_CHARS: Final = 64


def receiver_of(tool: str, args: object) -> str:
    """The name of the agent that a call of a hand-off tool names in its arguments; empty if there is none.

    >>> receiver_of("delegate_work", {"coworker": "Analyst", "task": "Look again."}), receiver_of("mail", {"to": "Ann"})
    ('Analyst', '')
    """
    if not isinstance(args, dict) or not is_handoff(tool):
        return ""
    named = [(key, value) for key, value in args.items() if isinstance(key, str) and isinstance(value, str)]
    names = [value for key, value in named if key.casefold().replace("_", "") in _RECEIVER]
    return next((one for one in names if 0 < len(one) <= _MAX_RECEIVER_CHARS), "")


_FINISHED: Final = frozenset(_PURPOSES["finished"])


@lru_cache(maxsize=1024)
def is_finisher(tool: str) -> bool:
    """Whether a call of a tool declares the work done.

    >>> is_finisher("final_answer"), is_finisher("finish_upload")
    (True, False)
    """
    return tool.casefold().replace("-", "_") in _FINISHED


_CLAIMED: Final = frozenset(_PURPOSES["claimed"])


def claimed_item(args: object) -> str:
    """Digest of the item that a claim to be done names, its answer aside; empty if it names none.

    >>> claimed_item({"answer": "42"}), claimed_item("42"), claimed_item({"task_id": 7}) != claimed_item({"task_id": 8})
    ('', '', True)
    """
    if not isinstance(args, dict):
        return ""
    named = [(key, value) for key, value in args.items() if _CLAIMED.isdisjoint(_words(text_of(key)))]
    short = [
        (key, value)
        for key, value in named
        if len(text_of(value)) <= _MAX_ITEM_CHARS and value not in (None, "", True, False)
    ]
    return text_digest(repr_of(sorted(short, key=text_of))) if short else ""


_MAX_ITEM_CHARS: Final = 80


def is_path(value: str) -> bool:
    """Whether a value of a request is the name of a file or folder.

    >>> is_path("src/app.py"), is_path("app.py"), is_path("C:\\\\Work\\\\my shop\\\\a.txt"), is_path("Read it. Twice.")
    (True, True, True, False)
    """
    if len(value) > _MAX_PATH_CHARS or "\n" in value:
        return False
    name, dot, ending = value.rpartition(".")
    is_name = bool(name and dot) and len(ending) <= _MAX_ENDING_CHARS and ending.isalnum() and " " not in value
    return is_name or "/" in value or "\\" in value


_MAX_PATH_CHARS, _MAX_ENDING_CHARS = 512, 8


def enters_text(args: Any) -> bool:
    """Whether a request enters a text somewhere, as into a field of a form.

    >>> enters_text({"ref": "e7", "text": "Ada"}), enters_text({"ref": "e7"})
    (True, False)
    """
    if type(args) is not dict or _ENTERED.isdisjoint(args):
        return False
    return any(type(args[key]) is str and args[key] for key in _ENTERED if key in args)


_ENTERED: Final = frozenset(("text", "value", "content", "input"))
