"""Lines and members in which an environment counts the calls, whatever was called: no part of an answer.

``Task 4 of 80``, ``[tool=search id=17 status=ok]``, ``12 calls left`` and ``{"turn": 4}`` make each answer a new one.
No word tells them from progress, but what they do: a figure moves by one with each call, whatever was called, and
nothing else does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard.core.content.masking import mask_noise
from trajectory_guard.core.content.result_text import may_acknowledge
from trajectory_guard.core.fingerprints import checksum, object_in
from trajectory_guard.core.steps import SUCCESS, StepRecord
from trajectory_guard.core.text import text_of
from trajectory_guard.core.text_bounds import MAX_UNDERSTOOD_CHARS
from trajectory_guard.core.tools import is_lookup

MAX_COUNTERS: Final = 12
"""Lines and members that are watched in a trajectory."""
_HEAD_LINES: Final = 4
_FOOT_LINES: Final = 3
_LINE_CHARS: Final = 200
_FIGURES: Final = 6
_MOVES: Final = 4
"""Times in a row that a figure has to move with the calls before its line counts as a counter."""
_TOOLS: Final = 2
_CALLS: Final = 3
"""Tools, or calls that differ in more than figures, that must have moved it: pages and entries are counted as well."""
_MAX_MEMBERS: Final = 16
_FIGURE: Final = re.compile(r"\d(?<![\w.,:/-].)\d{0,8}(?![\w]|[.,:/-]\d)")
"""A number by itself: no part of a time, a date, a version, a name. The characters before it are looked at behind its
first digit: so a search skips to the digits."""
_LETTER: Final = re.compile(r"[^\W\d_]")
_DIGITS: Final = re.compile(r"\d+")
_MEMBER: Final = re.compile(r'"[\w -]{1,40}"\s{0,2}:\s{0,2}\d{1,9}\s{0,4}[,}]')


class Counter(NamedTuple):
    """A line, or a member of an object, that may count the calls.

    Fields:
        form: checksum of its text without figures, noise and the name of the tool.
        figures: the numbers in its newest occurrence; at: of which step.
        moves: how often in a row one of them has moved with the calls; ahead: whether upwards, or down.
        tools: checksums of the first two tools; calls: of the first three calls, figures aside.
    """

    form: int
    figures: tuple[int, ...]
    at: int
    moves: int
    ahead: bool
    tools: tuple[int, ...]
    calls: tuple[int, ...]

    @property
    def counts(self) -> bool:
        """Whether it counts the calls."""
        return self.moves >= _MOVES and (len(self.tools) == _TOOLS or len(self.calls) == _CALLS)

    def then(self, newer: Counter) -> Counter:
        """The counter after its next occurrence; ``newer`` itself, as if it was the first, unless figures have moved by
        as much as there were steps, in the direction of before, and all others have stayed.
        """
        steps = {after - before for before, after in zip(self.figures, newer.figures, strict=True)} - {0}
        if len(steps) != 1:
            return newer
        step = steps.pop()
        if abs(step) != newer.at - self.at or (self.moves and self.ahead != (step > 0)):
            return newer
        return newer._replace(
            moves=self.moves + 1,
            ahead=step > 0,
            tools=tuple(dict.fromkeys((*self.tools, *newer.tools)))[:_TOOLS],
            calls=tuple(dict.fromkeys((*self.calls, *newer.calls)))[:_CALLS],
        )


Counters = tuple[Counter, ...]


def without_counters(
    step: StepRecord, known: Counters, at: int, is_known: Callable[[StepRecord], bool]
) -> tuple[StepRecord, Counters]:
    """A step whose result is without the lines and members that count the calls, and what is known of them then.

    Where only the acknowledgement of an action would be left that was called for before, the result stays as it is: the
    next entry of many is acknowledged as the one before it, and the figure is all that moves.

    Parameters:
        known: from the steps before; at: index of this one; is_known: whether its call was made before.

    >>> from trajectory_guard.core.steps import StepRecord
    >>> known = ()
    >>> for at, tool in enumerate(("search", "open", "search", "open", "search")):
    ...     step = StepRecord(str(at), "t", tool, tool_args_hash="", result=f"Task {at} of 80\\nnothing new")
    ...     step, known = without_counters(step, known, at, lambda step: at > 1)
    >>> step.result
    'nothing new'
    """
    result = step.result
    if result is None or step.stated or len(result) > MAX_UNDERSTOOD_CHARS:
        return step, known
    if result[:1] == "{" and result[-1:] == "}":
        answer, known = _without_members(step, result, known, at)
    else:
        answer, known = _without_lines(step, result, known, at)
    if answer is result or step.outcome_type != SUCCESS:
        return step, known  # errors are compared without their figures
    if may_acknowledge(answer) and not is_lookup(step.tool_name) and is_known(step):
        return step, known
    return step._replace(result=answer), known


def _without_lines(step: StepRecord, result: str, known: Counters, at: int) -> tuple[str, Counters]:
    if _FIGURE.search(result) is None:
        return result, known
    lines = result.split("\n")
    last = max(_HEAD_LINES, len(lines) - _FOOT_LINES)
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    for place in (*range(min(_HEAD_LINES, len(lines))), *range(last, len(lines))):
        line = lines[place]
        figures = () if len(line) > _LINE_CHARS else tuple(map(int, islice(_FIGURE.findall(line), _FIGURES)))
        if figures:
            text = mask_noise(_FIGURE.sub("#", line)).replace(step.tool_name, "<tool>")
            if _LETTER.search(text) is not None:
                found[place] = (f"{min(place, _HEAD_LINES)} {text}", figures)
    if not found:
        return result, known
    counters, known = _counters_in(found, step, known, at)
    if not counters:
        return result, known
    if len(lines) == 1:  # the answer itself holds the figure
        return (_FIGURE.sub("#", result) if is_lookup(step.tool_name) else result), known
    return "\n".join([line for place, line in enumerate(lines) if place not in counters]).strip("\n"), known


def _without_members(step: StepRecord, result: str, known: Counters, at: int) -> tuple[str, Counters]:
    members = object_in(result) if _MEMBER.search(result) is not None else {}
    asked = step.args if type(step.args) is dict else {}
    found = {
        key: (f'"{key}"', (value,))
        for key, value in members.items()
        if type(value) is int and key.lower() not in _IDS and asked.get(key) != value
    }
    if not found or len(members) > _MAX_MEMBERS:
        return result, known
    counters, known = _counters_in(found, step, known, at)
    left: dict[str, Any] = {key: value for key, value in members.items() if key not in counters}
    return (json.dumps(left, ensure_ascii=False) if counters and left else result), known


_IDS: Final = frozenset(("id", "uid", "pid", "key", "code"))
"""Names of what was made: the next one is another one."""


def _counters_in(
    found: Mapping[_Place, tuple[str, tuple[int, ...]]], step: StepRecord, known: Counters, at: int
) -> tuple[set[_Place], Counters]:
    """The places that count the calls, and the counters after these occurrences, newest last.

    Parameters:
        found: the form and the figures at each place.
    """
    tools = (checksum(step.tool_name),)
    calls = (checksum(f"{step.tool_name} {_DIGITS.sub('', text_of(step.args))}"),)
    latest = {one.form: one for one in known}
    counters = set()
    for place, (form, figures) in found.items():
        one = Counter(checksum(f"{len(figures)} {form}"), figures, at, 0, True, tools, calls)
        before = latest.pop(one.form, None)
        latest[one.form] = one = one if before is None else before.then(one)
        if one.counts:
            counters.add(place)
    return counters, tuple(latest.values())[-MAX_COUNTERS:]


_Place = TypeVar("_Place", int, str)
