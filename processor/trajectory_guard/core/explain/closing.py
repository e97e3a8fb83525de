"""The closing text of a stopped run: what repeated, how often, and what is missing to go on.

The end user reads it, and so does an agent that has called this one as a tool: a sentence that fits every situation
teaches neither of them anything. It names tools and counts; arguments and results, which may be private, it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.detectors.base import TYPE_I, TYPE_II, TYPE_III, TYPE_IV, TYPE_V, TYPE_VI
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, Certainty
from trajectory_guard.core.text import as_data, clip

OPENING: Final = "I could not get any further with this: "
STOP_TEXT: Final = f"{OPENING}what I tried in the end brought nothing new. Please tell me how you would like to go on."
"""The closing text where nothing more is known."""
_MAX_NAME_CHARS: Final = 64
_MAX_NAMES: Final = 4


class _Ending(NamedTuple):
    """``each``, ``some``: what calls came back with, all of them or some; ``missing``: what would help."""

    each: str
    some: str
    missing: str


_NOT_BROUGHT: Final = "I need something that none of these calls brings."
_FAILED: Final = "The cause of this error has to be removed first, or I need another way that does not run into it."
_ENDINGS: Final = {
    EMPTY: _Ending(
        "found nothing", "found nothing {alike} times",
        "I need another name for what is missing, or another place to look for it.",
    ),
    ERROR: _Ending("failed each time", "failed {alike} times", _FAILED),
    DENIED: _Ending(
        "was refused each time", "was refused {alike} times",
        "I need permission for it, or a way to the goal that does not need it.",
    ),
    "acknowledged": _Ending(
        "brought the same short answer each time", "brought the same short answer {alike} times",
        "Please check whether it has had its effect before it is tried once more.",
    ),
    "data": _Ending(
        "returned the same each time", "returned the same {alike} times",
        "I need another source for what is missing in that result, or other instructions.",
    ),
}  # fmt: skip


def closing_text(found: Sequence[DetectionResult], tool: str, brought: str = "", *, not_run: bool = False) -> str:
    """One or two sentences for the person who asked for the work.

    Parameters:
        found: findings behind the stop, strongest first.
        tool: tool of the newest step of the loop.
        brought: kind of its result, as ``interventions.brought_by`` names it; empty if unknown.
        not_run: a gate answered its call without running it: calls were requested, and not all of them made.

    >>> one = DetectionResult(TYPE_I, 1.0, "same_call_same_result", count=5, calls=5, alike=5)
    >>> print(closing_text([one], "search", "empty"))  # doctest: +NORMALIZE_WHITESPACE
    I could not get any further with this: search was called 5 times with the same arguments and found nothing.
    I need another name for what is missing, or another place to look for it.
    """
    main = found[0] if found else None
    if main is not None and main.loop_type == TYPE_I and main.certainty is not Certainty.WAITING:
        main = next((one for one in found if one.rule == "cycle" and len(set(one.names)) > 1), main)
    ending = _ENDINGS.get(brought, _ENDINGS["data"])
    made = "requested" if not_run else "called"
    sentences = _sentences(main, _name(tool), ending, made) if main is not None else None
    return STOP_TEXT if sentences is None else f"{OPENING}{sentences[0]}. {sentences[1]}"


def _sentences(main: DetectionResult, tool: str, ending: _Ending, made: str) -> tuple[str, str] | None:
    calls = main.calls or main.count
    if not calls or not tool:
        return None
    if main.certainty is Certainty.WAITING:
        return _waiting(main, tool, calls)
    if main.rule == "unseen_results":
        said = f"for {main.count} turns there were only calls that had been made before, most recently {tool}"
        return said, "I cannot tell whether they had any effect: please check, or give me other instructions."
    if main.rule == "known_lines":
        said = f"{tool} was called {calls} times in a row, and returned only what had been read before"
        return said, "I need something that is not there, or word what to do with it."
    if main.rule == "recurring_failure":
        return f"{main.count} of the last {calls} calls reported the same failure, most recently {tool}", _FAILED
    if main.loop_type == TYPE_I:
        return _repeated(main, tool, calls, ending, made)
    if main.rule == "same_meaning" or main.rule == "reformulation":
        tried = f"{tool} was asked for the same {main.count} times, in other words or with other arguments"
        return f"{tried}, and {ending.each}", ending.missing
    if main.rule == "standstill" or main.rule == "long_standstill":
        said = f"for {main.count} turns nothing new was asked and nothing new came back, most recently from {tool}"
        return said, _NOT_BROUGHT
    if main.loop_type in (TYPE_II, TYPE_III):
        return _unchanged(main, tool, calls)
    if main.rule == "known_calls":
        said = f"{main.count} of the last {calls} calls, most recently {tool}, brought only what was known from them"
        return said, _NOT_BROUGHT
    if main.rule == "undone":
        said = f"a change was made and undone {main.count} times, most recently with {tool}, and neither state will do"
        return said, _NOT_BROUGHT
    if main.rule == "long_cycle":
        said = f"the same {main.period} calls, most recently {tool}, were made {main.count} times with the same results"
        return said, _NOT_BROUGHT
    if main.loop_type == TYPE_IV:
        return _circle(main) if main.names else None
    if main.rule == "never_works":
        return f"{tool} failed at least {main.count} times without working once, and said nothing new", _FAILED
    if main.loop_type == TYPE_V:
        return f"{_failures(main, calls)}, most recently {tool}", _FAILED
    if main.rule == "only_thoughts":
        said = f"{main.count} thoughts in a row were written down, and nothing was done in between"
        return said, "I need a decision, or other instructions."
    if main.rule == "only_plans":
        said = f"the plan was written down {main.count} times in a row, and no step of it was done"
        return said, "I need a decision, or other instructions."
    if main.loop_type == TYPE_VI and main.rule == "claims_done":
        return f"the work was declared done {main.count} times, and was not over", "Please say what is still missing."
    if main.loop_type == TYPE_VI:
        said = f"the same was said {main.count} times, and nothing new was done in between"
        return said, "I need something new to work with, or other instructions."
    return None


def _waiting(main: DetectionResult, tool: str, calls: int) -> tuple[str, str]:
    if main.loop_type == TYPE_V:
        return f"{_failures(main, calls)}, most recently {tool}", "Please try again later: the cause may be temporary."
    asked = f"{tool} was called {calls} times, and what I wait for had not come yet"
    return asked, "Please ask again later, when it is over."


def _repeated(main: DetectionResult, tool: str, calls: int, ending: _Ending, made: str) -> tuple[str, str]:
    again = "with the same arguments and"
    if main.rule == "denied_again":  # what is refused may never run
        least, ending = "at least " if main.at_least else "", _ENDINGS[DENIED]
        return f"{tool} was requested {least}{max(main.count, main.alike)} times {again} {ending.each}", ending.missing
    if main.alike <= 1:
        return f"{tool} was {made} {calls} times {again} brought nothing new", _ENDINGS["data"].missing
    if main.alike < calls:
        return f"{tool} was {made} {calls} times {again} {ending.some.format(alike=main.alike)}", ending.missing
    made = "requested" if ending is _ENDINGS[DENIED] else made
    return f"{tool} was {made} {calls} times {again} {ending.each}", ending.missing


def _unchanged(main: DetectionResult, tool: str, calls: int) -> tuple[str, str]:
    if main.rule == "nothing_new":
        said = f"the last {main.count} calls, most recently {tool}, led only to what had been seen before"
    else:
        said = f"{calls} different calls in a row, most recently {tool}, had the same result"
    return said, "I need a way that changes something, or word that this is all there is."


def _circle(main: DetectionResult) -> tuple[str, str]:
    names = " → ".join(_name(one) for one in main.names[:_MAX_NAMES])
    if main.rule == "handoffs":
        said = f"the work was handed round {main.count} times ({names}), and nobody finished it"
        return said, "Somebody has to say who is to do it, or give them what they lack."
    said = f"the calls {names} were repeated {main.count} times with the same results"
    return said, "I need something that none of these calls brings, or a decision between them."


def _failures(main: DetectionResult, calls: int) -> str:
    failed = f"the last {calls} calls" if main.count >= calls else f"{main.count} of the last {calls} calls"
    return f"{failed} failed{' in the same way' if main.alike else ''}"


def _name(name: str) -> str:
    return clip(as_data(name), _MAX_NAME_CHARS)
