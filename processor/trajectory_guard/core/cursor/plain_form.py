"""The snapshot of a cursor: plain values by field name, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard.core.cursor.boundary import KINDS, Boundary, Call, Task
from trajectory_guard.core.state import StateFormatError

if TYPE_CHECKING:
    from trajectory_guard.core.cursor.cursor import Cursor

CURSOR_VERSION: Final = 1
_NUMBERS: Final = ("size", "index", "call_count", "task_count")


def write_plain(cursor: Cursor) -> dict[str, Any]:
    """All fields of a cursor, JSON-able; fields with their default are left out."""
    return {
        "v": CURSOR_VERSION,
        **{name: getattr(cursor, name) for name in _NUMBERS},
        "entries": [_entry_plain(entry) for entry in cursor.entries],
        "calls": [_plain(call, _CALL_DEFAULTS) for call in cursor.calls.values()],
        "tasks": [_plain(task, _TASK_DEFAULTS) for task in cursor.tasks.values()],
        "last": _entry_plain(cursor.last) if cursor.last is not None else None,
        **({"gone_batches": list(cursor.gone_batches)} if cursor.gone_batches else {}),
    }


def _entry_plain(entry: Boundary) -> dict[str, Any]:
    return {name: value for name, value in entry._asdict().items() if value not in ("", None)}


def _plain(one: Call | Task, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if name in defaults and value != defaults[name]}


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING


_CALL_DEFAULTS: Final = {one.name: _default(one) for one in fields(Call) if one.name != "live"}
_TASK_DEFAULTS: Final = {one.name: _default(one) for one in fields(Task)}


def read_plain(plain: Mapping[str, Any], *, least: int, above: int) -> dict[str, Any]:
    """The fields of a snapshot.

    Parameters:
        least: the smallest size.
        above: calls that may be kept above the size.

    Raises:
        StateFormatError: a key is missing, unknown, or has a value that cannot be; the key is named.
    """
    if not isinstance(plain, Mapping):
        raise StateFormatError(f"cursor: expected a mapping, got {type(plain).__name__}")
    version = plain.get("v")
    if version != CURSOR_VERSION:
        raise StateFormatError(f"cursor.v: version {version!r} is unknown (this version reads {CURSOR_VERSION})")
    numbers = {name: _number(plain, name) for name in _NUMBERS}
    if numbers["size"] < least:
        raise StateFormatError(f"cursor.size: {numbers['size']!r} is below {least}")
    entries = [_entry(one, f"cursor.entries[{at}]") for at, one in enumerate(_list(plain, "entries"))]
    calls = [_made(Call, one, f"cursor.calls[{at}]") for at, one in enumerate(_list(plain, "calls"))]
    tasks = [_made(Task, one, f"cursor.tasks[{at}]") for at, one in enumerate(_list(plain, "tasks"))]
    labels = {task.label for task in tasks}
    for at, call in enumerate(calls):
        if call.task not in labels:
            raise StateFormatError(f"cursor.calls[{at}].task: {call.task!r} is none of the tasks")
    for name, size, most in (("entries", len(entries), 0), ("calls", len(calls), above)):
        if size > numbers["size"] + most:
            raise StateFormatError(f"cursor.{name}: {size} are more than the size {numbers['size'] + most}")
    batches = _list(plain, "gone_batches") if "gone_batches" in plain else []
    wrong = next((at for at, one in enumerate(batches) if not isinstance(one, str)), None)
    if wrong is not None:
        raise StateFormatError(f"cursor.gone_batches[{wrong}]: expected a text, got {batches[wrong]!r}")
    if numbers["index"] < len(entries):
        raise StateFormatError(f"cursor.index: {numbers['index']!r} is below the number of entries")
    last = plain.get("last")
    return {
        **numbers,
        "entries": entries,
        "calls": {call.number: call for call in calls},
        "tasks": {task.label: task for task in tasks},
        "last": None if last is None else _entry(last, "cursor.last"),
        "gone_batches": list(batches),
    }


def _number(plain: Mapping[str, Any], name: str) -> int:
    value = plain.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise StateFormatError(f"cursor.{name}: expected a whole number from 0 on, got {value!r}")
    return value


def _list(plain: Mapping[str, Any], name: str) -> list[Any]:
    value = plain.get(name)
    if not isinstance(value, list):
        raise StateFormatError(f"cursor.{name}: expected a list, got {type(value).__name__}")
    return value


def _entry(plain: Any, where: str) -> Boundary:
    if not isinstance(plain, Mapping):
        raise StateFormatError(f"{where}: expected a mapping, got {type(plain).__name__}")
    unknown = next((key for key in plain if key not in Boundary._fields), None)
    if unknown is not None:
        raise StateFormatError(f"{where}.{unknown}: unknown key")
    if plain.get("kind") not in KINDS:
        raise StateFormatError(f"{where}.kind: {plain.get('kind')!r} is none of {', '.join(KINDS)}")
    index = plain.get("index")
    if isinstance(index, bool) or not isinstance(index, int):
        raise StateFormatError(f"{where}.index: expected a whole number, got {index!r}")
    wrong = next((key for key, value in plain.items() if key != "index" and not isinstance(value, str)), None)
    if wrong is not None:
        raise StateFormatError(f"{where}.{wrong}: expected a text, got {plain[wrong]!r}")
    return Boundary(**plain)


_KINDS: Final = {"str": str, "int": int, "bool": bool, "float": (int, float), "str | None": str}


def _made(kind: Any, plain: Any, where: str) -> Any:
    """A ``Call`` or ``Task`` from the fields that differ from their defaults."""
    if not isinstance(plain, Mapping):
        raise StateFormatError(f"{where}: expected a mapping, got {type(plain).__name__}")
    known = {one.name: one for one in fields(kind)}
    for key, value in plain.items():
        if key not in known:
            raise StateFormatError(f"{where}.{key}: unknown key")
        expected: Any = _KINDS.get(str(known[key].type), (list, dict))
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is int):
            raise StateFormatError(f"{where}.{key}: expected {known[key].type}, got {value!r}")
    missing = next((name for name, one in known.items() if _default(one) is MISSING and name not in plain), None)
    if missing is not None:
        raise StateFormatError(f"{where}.{missing}: is missing")
    return kind(**{key: _copied(value) for key, value in plain.items()})


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value
