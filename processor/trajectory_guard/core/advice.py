"""Advice for the agent: it depends on the rule, and on what the call brought back.

"Work with the result you have" helps nobody who has none, and an error asks for something else than an empty answer.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trajectory_guard.core.certainty import Certainty
from trajectory_guard.core.detectors import DetectionResult, detector_of
from trajectory_guard.core.detectors.base import TYPE_I, TYPE_II, TYPE_III
from trajectory_guard.core.detectors.error_streak import ErrorStreak
from trajectory_guard.core.detectors.repeats import DeniedAgain
from trajectory_guard.core.outcome import is_empty_result, is_refusal, looks_like_error, states_error, states_failure
from trajectory_guard.core.result_text import is_acknowledgement
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, StepRecord, is_refused_by_guard
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import is_communication, is_lookup, makes_something

_SEARCHED_CHARS: Final = 4_096
_HEAD_CHARS: Final = 200


class NotRun(NamedTuple):
    """Why a gate did not run a call, as it says behind the name of the call.

    Fields:
        begins: the first words, by which the answer is known again; goes_on: the others, with ``times``.
        brought: the kind of the result that the call had brought before.
    """

    begins: str
    goes_on: str
    brought: str


NOT_RUN_BECAUSE: Final = {
    "denied": NotRun("was refused", "in this turn, and that decision stands until the user says otherwise", DENIED),
    "failed": NotRun("has failed", "{times} times in a row in the same way, and nothing has changed since", ERROR),
    "empty": NotRun("has found nothing", "{times} times in a row, and nothing has changed since", EMPTY),
    "repeated": NotRun("has returned the same", "result {times} times in a row, and nothing has changed since", "data"),
}
_OF_GUARD: Final = {f" {why.begins} ": why.brought for why in NOT_RUN_BECAUSE.values()}
_FAILED_STATUS: Final = re.compile(
    r"\A\{.{0,80}[\"'](?:status|http)_?(?:code)?[\"']\s*:\s*[\"']?[45]\d\d\b|\AHTTP\S* [45]\d\d\b", re.IGNORECASE
)
"""A record, or a line, that begins with the status code of a failure."""

_WAITING: Final = (
    "Wait longer before you ask again{after}, or go on with something else meanwhile.",
    "If it still has not changed then, report that it is still under way, and end.",
)
_WAITING_AFTER_ERROR: Final = (
    "Wait longer before you try again{after}, or go on with something else meanwhile.",
    "If it still fails then, report the error, and say what could not be done.",
)
_ACKNOWLEDGED: Final = (
    "If the call is to have an effect, check with another tool whether it has: repeating it at once will not help.",
    "If it looks for something that is still to come, wait longer before the next look, or report what you have.",
    "If the result says no, or that there is nothing, accept it: another try will bring the same.",
)
_SAME_BESIDE_WORK: Final = (
    "If this result is what you expect, go on: there is no need to look after every step.",
    "If your work was to change it, find out why it does not before you change anything else.",
    "If you have all you can get, answer with it, or say what is missing and ask.",
)
_UNCHANGED_BY_WORK: Final = (
    "Your work in between has not changed this result: find out why before you change anything else.",
    "Read the result once more, and go after what it names.",
    "If you have all you can get, answer with it, or say what is missing and ask.",
)
_NOTHING: Final = (
    "The same call will find nothing again: look for something else, in other words, or with another tool or source.",
    "Check that what you look for exists, and how it is called.",
    "If it cannot be found, say so, and say what is missing.",
)
_ERROR: Final = (
    "Read the error: the same call will fail in the same way.",
    "Change what it names, or look up how the tool wants to be called, before the next try.",
    "If it cannot work, use another tool or report the error.",
)
_UNSEEN: Final = (
    "Look at how the calls failed: if all errors say the same, do what they ask for before the next try.",
    "If they say nothing, look up how the tools want to be called (schema, help, an example).",
    "If it cannot work, use another tool or report the errors.",
)
_MADE: Final = (
    "The call did its work each time: do not make it again.",
    "If you are not sure that it had the effect you want, look once with another tool.",
    "If several are wanted, say how many, and count them; otherwise go on.",
)
_SAME_MESSAGE: Final = (
    "Saying it again does not move the task: do something that you have not done yet.",
    "If the steps you announce bring nothing new, take another way to the goal.",
    "If nothing is left to try, answer with what you have, or say what is missing and ask.",
)
_RETRY_AFTER: Final = re.compile(
    r"retry[- ]after\W{0,3}(\d{1,6}(?:\.\d{1,3})?)\s?(ms|s|sec|seconds?|m|min|minutes?)?\b", re.IGNORECASE
)


def brought(step: StepRecord) -> str:
    """The kind of a result, as its text reads: ``error``, ``denied``, ``empty``, ``acknowledged`` or ``data``.

    >>> brought(StepRecord("1", "t", "read", result="Error: no such file: /a.txt"))
    'error'
    """
    text = (step.result or "").strip()
    if is_refused_by_guard(step):
        line = text.partition("\n")[0]
        return _OF_GUARD[max(_OF_GUARD, key=line.rfind)] if any(one in line for one in _OF_GUARD) else "data"
    if step.outcome_type in (ERROR, DENIED, EMPTY):
        return step.outcome_type
    if step.stated or step.result is None:
        return "data"
    if not text or is_empty_result(text):
        return EMPTY
    if is_refusal(text):
        return DENIED
    if _FAILED_STATUS.search(text[:_HEAD_CHARS]) is not None:
        return ERROR
    if states_failure(text) if text[:1] == "{" else looks_like_error(both_ends(text, _SEARCHED_CHARS)):
        return ERROR
    if states_error(text.rpartition("\n")[2][:_SEARCHED_CHARS]):
        return ERROR  # a log, or a report, that ends so
    return "acknowledged" if is_acknowledgement(text) and not is_lookup(step.tool_name) else "data"


def advice_on(found: DetectionResult, step: StepRecord) -> tuple[str, ...]:
    """Suggestions for the agent, one sentence each.

    Parameters:
        found: the finding that the nudge is about; step: the newest step of its loop.
    """
    kind = brought(step)
    if found.certainty is Certainty.WAITING:
        lines = _WAITING_AFTER_ERROR if kind == ERROR else _WAITING
        return tuple(line.format(after=_retry_after(step.result)) for line in lines)
    if found.rule == "same_error" and not found.alike:
        return DeniedAgain.advice if kind == DENIED else _UNSEEN
    if found.rule == "same_message":
        return _SAME_MESSAGE
    if found.loop_type == TYPE_I and found.rule in ("same_call_same_result", "recurring_result"):
        return _on_repeat(found, step, kind)
    if found.loop_type in (TYPE_II, TYPE_III) and kind in (ERROR, DENIED):
        return ErrorStreak.advice if kind == ERROR else DeniedAgain.advice
    return detector_of(found).advice


def _on_repeat(found: DetectionResult, step: StepRecord, kind: str) -> tuple[str, ...]:
    if kind == DENIED:
        return DeniedAgain.advice
    if found.worked and kind in (ERROR, "data", "acknowledged") and not is_lookup(step.tool_name):
        return _UNCHANGED_BY_WORK if kind == ERROR else _SAME_BESIDE_WORK
    if kind == ERROR:
        return _ERROR
    if kind == EMPTY and (step.result or "").strip():
        return _NOTHING
    if kind == EMPTY:
        return _NOTHING if is_lookup(step.tool_name) else _ACKNOWLEDGED
    if makes_something(step.tool_name, step.args) or is_communication(step.tool_name):
        return _MADE
    acts = found.certainty is Certainty.ACKNOWLEDGED and not is_lookup(step.tool_name)
    return _ACKNOWLEDGED if acts else detector_of(found).advice


def _retry_after(result: str | None) -> str:
    """`` (the service asks for 30 s)``, or nothing."""
    match = _RETRY_AFTER.search(result[:1_000]) if result else None
    if match is None:
        return ""
    return f" (the service asks for {match[1]} {match[2] or 's'})"
