"""The position of a trajectory cursor, for a verifier as a report and for a model as a text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trajectory_guard.core.cursor.boundary import (
    DENIED_STATUS,
    ERRORED,
    EXECUTED,
    GUARD,
    PERSON,
    PLANNED,
    SKIPPED,
    Boundary,
    Call,
    Task,
)
from trajectory_guard.core.steps import DENIED, ERROR
from trajectory_guard.core.text import SIGNATURE

LEAST_TEXT_CHARS: Final = 200
START: Final = "start"
_HEADER: Final = f"{SIGNATURE}Record of this task, as observed. Anything that is not listed has not been done."
_WHO: Final[Mapping[str, str]] = {PERSON: " by a person", GUARD: " by the guard"}


class CursorStep(NamedTuple):
    """A call and its outcome.

    Fields:
        task, call, tool: as in ``Boundary``.
        status: ``planned`` (open), ``executed``, ``denied``, ``skipped`` (it never ran, and the agent went on) or
            ``errored``.
        outcome: of the result, empty if there is none.
        attempt: 1, or more for a retry of a call that failed or was denied.
        by: who denied it, or answered in place of the tool.
        note: excerpt of the error or of the reason.
    """

    task: str
    call: str
    tool: str
    status: str
    outcome: str = ""
    attempt: int = 1
    by: str = ""
    note: str = ""


class CursorReport(NamedTuple):
    """Where a trajectory stands.

    Fields:
        cursor: the last position, ``task.2.step.3``: the third call with an outcome in the second task; ``start`` if
            there is none. It advances on observed outcomes only.
        last_entry: the entry that advanced it, as ``result(tool=write_file, outcome=success, task=2)``.
        path: tools that were executed, by task, in the order in which they were requested.
        repeat_loop_count: calls on a path that repeat the one before them, arguments included.
        missing_required_actions: required tools that have not succeeded; if the order matters, not in it.
        unrecorded_boundaries: calls that were requested and never answered, though the agent went on.
        open_calls: calls that still may be answered.
        steps: the calls that are still kept.
        dropped: entries that are no longer kept.
    """

    cursor: str
    last_entry: str
    path: dict[str, tuple[str, ...]]
    repeat_loop_count: int
    missing_required_actions: tuple[str, ...]
    unrecorded_boundaries: int
    open_calls: int
    steps: tuple[CursorStep, ...]
    dropped: int

    def to_plain(self) -> dict[str, Any]:
        """All fields, JSON-able."""
        return {
            **self._asdict(),
            "path": {task: list(tools) for task, tools in self.path.items()},
            "missing_required_actions": list(self.missing_required_actions),
            "steps": [step._asdict() for step in self.steps],
        }


class View(NamedTuple):
    """The parts of a cursor that report and text read: calls in order of request, tasks by label, the newest last."""

    calls: Sequence[Call]
    tasks: Mapping[str, Task]
    last: Boundary | None
    dropped: int

    def of(self, labels: Iterable[str]) -> View:
        """The part of some tasks."""
        tasks = {label: self.tasks[label] for label in labels if label in self.tasks}
        return self._replace(calls=[call for call in self.calls if call.task in tasks], tasks=tasks)

    def current(self) -> View:
        """The part since the newest task at the top began, that of its sub-agents included."""
        top = [task for task in self.tasks.values() if not task.instance]
        began = top[-1].began if len(top) > 1 else 0
        return self.of(label for label, task in self.tasks.items() if task.began >= began)


def report_of(view: View, required: Sequence[str], *, ordered: bool, current: View) -> CursorReport:
    """The report on ``view``; required actions are looked for in ``current``."""
    attempts = _attempts(view.calls)
    left = left_behind(view)
    steps = tuple(_step(call, left, attempt) for call, attempt in zip(view.calls, attempts, strict=True))
    statuses = [step.status for step in steps]
    last = view.last if view.last is not None and view.last.task in view.tasks else None
    return CursorReport(
        cursor=_position(view, last),
        last_entry=_entry(last, view.tasks[last.task].number) if last is not None else "",
        path={label: path for label, task in view.tasks.items() if (path := tuple(_path(view, task)))},
        repeat_loop_count=sum(_repeats(view, task) for task in view.tasks.values()),
        missing_required_actions=missing_of(current, required, ordered=ordered),
        unrecorded_boundaries=statuses.count(SKIPPED),
        open_calls=statuses.count(PLANNED),
        steps=steps,
        dropped=view.dropped,
    )


def _position(view: View, last: Boundary | None) -> str:
    if last is not None:
        task = view.tasks[last.task]
        return f"task.{task.number}.step.{task.position}"
    newest = max(view.tasks.values(), key=lambda task: task.number, default=None)
    return START if newest is None else f"task.{newest.number}.step.{newest.position}"


def _entry(last: Boundary, number: int) -> str:
    outcome = f"outcome={last.outcome}, " if last.outcome else f"by={last.by}, " if last.by else ""
    return f"{last.kind}(tool={last.tool}, {outcome}task={number})"


def _step(call: Call, left: Collection[int], attempt: int) -> CursorStep:
    status = status_of(call, left)
    return CursorStep(call.task, call.name, call.tool, status, call.outcome, attempt, call.by, call.note)


def status_of(call: Call, left: Collection[int]) -> str:
    """One of ``planned``, ``executed``, ``denied``, ``skipped``, ``errored``.

    Parameters:
        left: numbers of calls that the agent left behind.
    """
    if call.outcome == DENIED:
        return DENIED_STATUS
    if call.outcome == ERROR:
        return ERRORED
    if call.outcome:
        return EXECUTED if call.executed else SKIPPED
    return SKIPPED if call.number in left else PLANNED


def left_behind(view: View) -> set[int]:
    """Numbers of the open calls after which the agent went on: a later model message, or a later task of the instance.

    Messages that come later are collected from the newest call backwards, so that many parallel calls cost little.
    """
    newest: dict[str, int] = {}
    for task in view.tasks.values():
        newest[task.instance] = max(task.number, newest.get(task.instance, 0))
    ended = {label for label, task in view.tasks.items() if task.number < newest[task.instance]}
    later: dict[str, set[str]] = {}
    left: set[int] = set()
    for call in reversed(view.calls):
        batches = later.setdefault(call.task, set())
        if not call.outcome and (call.task in ended or (call.batch and len(batches - {call.batch}) > 0)):
            left.add(call.number)
        if call.batch and len(batches) < 2:  # two tell every call that there is another message
            batches.add(call.batch)
    return left


def _attempts(calls: Sequence[Call]) -> list[int]:
    """For each call 1, and one more for each call before it in its task that was equal and failed or was denied."""
    failed: dict[tuple[str, str, str], list[Call]] = {}
    attempts = []
    for call in calls:
        signature = call.signature
        before = failed.setdefault((call.task, *signature), []) if signature is not None else []
        attempts.append(1 + sum(not are_parallel(other, call.batch) for other in before))
        if call.outcome in (ERROR, DENIED):
            before.append(call)
    return attempts


def are_parallel(call: Call, batch: str) -> bool:
    """Whether a call belongs to the model message ``batch``."""
    return batch != "" and call.batch == batch


def _executed(view: View, task: Task) -> list[Call]:
    return [call for call in view.calls if call.task == task.label and call.executed]


def _path(view: View, task: Task) -> list[str]:
    return [*(str(tool) for tool, _ in task.gone), *(call.tool for call in _executed(view, task))]


def _repeats(view: View, task: Task) -> int:
    kept = [call.signature for call in _executed(view, task)]
    before = tuple(task.gone_last) if task.gone_last else None
    return task.gone_repeats + sum(one is not None and one == other for one, other in pairwise([before, *kept]))


def missing_of(view: View, required: Sequence[str], *, ordered: bool) -> tuple[str, ...]:
    """The required tools that have not succeeded, in the order given; if ``ordered``, not after those before them.

    Parameters:
        required: names; a text is one name.
    """
    required = (required,) if isinstance(required, str) else required
    done: list[str] = []
    for task in view.tasks.values():
        done += [str(tool).casefold() for tool, succeeded in task.gone if succeeded]
    done += [call.tool.casefold() for call in view.calls if call.succeeded]
    if not ordered:
        return tuple(tool for tool in required if tool.casefold() not in done)
    for place, tool in enumerate(required):
        if tool.casefold() not in done:
            return tuple(required[place:])
        done = done[done.index(tool.casefold()) + 1 :]
    return ()


# --- for a model ---------------------------------------------------------------------------------------------


def text_of(view: View, missing: Sequence[str], limit: int, *, redact: bool = False) -> str:
    """A compact text for the agent, at most ``limit`` characters; empty if nothing has been observed.

    Required actions, refusals and failures come before what was done: they are what the next step depends on.

    Parameters:
        missing: required actions that have not succeeded.
        limit: at least ``LEAST_TEXT_CHARS``.
    """
    groups: dict[str, list[Call]] = {}
    left = left_behind(view)
    for call in view.calls:
        groups.setdefault(status_of(call, left), []).append(call)
    gone = sum(len(task.gone) for task in view.tasks.values())
    if not groups and not gone:
        return ""
    lines = [_HEADER]
    sections = [
        ("Required and not done yet", list(missing)[::-1]),
        *_refusals(groups.get(DENIED_STATUS, []), redact),
        ("Failed", _lines(groups.get(ERRORED, []), redact)),
        ("Requested, without an answer so far", _lines(groups.get(PLANNED, []), redact)),
        ("Requested, never run", _lines(groups.get(SKIPPED, []), redact)),
        ("Done", [*_lines(groups.get(EXECUTED, []), redact), *([f"{gone} earlier calls"] if gone else [])]),
    ]
    room = max(limit, LEAST_TEXT_CHARS) - len(_HEADER)
    for title, items in sections:
        line = _joined(title, items, room - 1)
        if line:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


def _refusals(calls: Sequence[Call], redact: bool) -> list[tuple[str, list[str]]]:
    """Refused calls by who refused them; the last refusal of a call counts."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(_WHO.get(call.by, ""), []).append(call)
    return [(f"Refused{who}, do not request again", _lines(own, redact)) for who, own in found.items()]


def _lines(calls: Sequence[Call], redact: bool) -> list[str]:
    """Each call once, the newest first, with the number of times and what came back last."""
    times: dict[str, int] = {}
    notes: dict[str, str] = {}
    for call in calls:
        named = call.tool if redact or not call.args else f"{call.tool}({call.args})"
        times[named] = times.pop(named, 0) + 1
        if call.note and not redact:
            notes[named] = call.note
    return [
        named
        + (f", {times[named]} times" if times[named] > 1 else "")
        + (f': "{notes[named]}"' if named in notes else "")
        for named in reversed(times)
    ]


def _joined(title: str, items: Sequence[str], room: int) -> str:
    """A line with as many items as there is room for, the newest ones, and the number of the others."""
    for kept in range(len(items), 0, -1):
        more = [f"{len(items) - kept} more"] if kept < len(items) else []
        line = f"{title}: {'; '.join([*more, *reversed(items[:kept])])}."
        if len(line) <= room:
            return line
    short = f"{title}: {len(items)}."
    return short if items and len(short) <= room else ""
