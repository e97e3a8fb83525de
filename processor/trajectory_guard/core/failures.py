"""The failure that a step reports: by its outcome, by an object that says so, by a limit it ran into, or in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trajectory_guard.core.content.envelope import says_no, states_no_more_than_status
from trajectory_guard.core.content.error_text import answer_in, names_asked_for, raises
from trajectory_guard.core.content.outcome import (
    MAX_EMPTY_CHARS,
    begins_with_complaint,
    error_signature,
    is_empty_result,
    looks_like_error,
    states_failure,
)
from trajectory_guard.core.content.pending import is_pending
from trajectory_guard.core.content.result_text import (
    MAX_FORM_CHARS,
    MAX_REQUEST_CHARS,
    WORD,
    answer_form,
    is_short,
    reports_status,
)
from trajectory_guard.core.content.transient import is_transient
from trajectory_guard.core.fingerprints import digest64, object_in
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, SUCCESS, StepRecord
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import (
    is_communication,
    is_status_lookup,
    is_waiting,
    makes_something,
    returns_content,
)

UNSTATED: Final = "?"
"""The signature of a failure of which neither text nor class is known. It says nothing of another one."""
_MIN_COMMAND_CHARS: Final = 8
_MAX_SENTENCE_CHARS: Final = 120
_MIN_NAME_CHARS: Final = 4
ERROR_CHARS: Final = 4_096
_NOTHING: Final = digest64(b"nothing was found")


def read_outcome(seen: Observation, *, by_guard: bool) -> None:
    """Set the outcome that the result itself states, and the signature of an error."""
    step = seen.step
    result = step.result
    if result is not None and ("xit" in result or "eturn" in result or result[-2:].strip() == "0") and says_no(step):
        seen.outcome = EMPTY
    elif step.outcome_type in (ERROR, DENIED):
        seen.signature = signature_of(seen) if not by_guard else None  # no failure of its own
        silent = seen.signature is None if result is None else states_no_more_than_status(result)
        if silent and not by_guard:
            seen.signature = UNSTATED
    elif step.outcome_type == SUCCESS and result is not None:
        is_object = result[:1] == "{"
        if len(result) <= MAX_EMPTY_CHARS and is_empty_result(result):
            seen.outcome = EMPTY
        elif is_object and (states_failure(result) or (_is_undone(result) and _brings_about(step))):
            seen.outcome, seen.signature = ERROR, signature_of(seen)
        elif not is_object and result[:1] != "[" and (limit := _limit_reached(result, seen.values)):
            seen.outcome, seen.signature, seen.killed = ERROR, error_signature(limit, None), True
    if seen.outcome == EMPTY and seen.result and not step.stated:
        seen.result = _NOTHING  # in whatever words, and beside whatever date


def _brings_about(step: StepRecord) -> bool:
    """Whether a call sends or makes something. The status of what a look-up finds is what was asked for."""
    return is_communication(step.tool_name) or makes_something(step.tool_name, step.args)


def _is_undone(result: str) -> bool:
    """Whether the status in an answer says that a message was not delivered, a payment not made."""
    if "status" not in result[:MAX_FORM_CHARS]:
        return False
    return str(object_in(result[:MAX_FORM_CHARS]).get("status")).lower() in _UNDONE


_UNDONE: Final = frozenset(("bounced", "declined", "denied", "error", "failed", "failure", "rejected"))


def _limit_reached(text: str, values: Sequence[str]) -> str:
    """The first sentence of a result, if it quotes the whole request and says that the call ran into a limit; else "".

    A command that was killed comes back so, with or without its output, and often without an exit status. A terminal
    that echoes the command says nothing beside it.
    """
    for value in values:
        at = -1
        if _MIN_COMMAND_CHARS <= len(value) <= len(text):
            at = text.find(value, 0, len(value) + _MAX_SENTENCE_CHARS)
        if at >= 0 and "\n" not in text[:at].lstrip():
            rest = text[at + len(value) :][: 2 * _MAX_SENTENCE_CHARS].partition("\n")[0]
            sentence = f"{text[:at]} {rest}"
            return sentence if len(rest) <= _MAX_SENTENCE_CHARS and is_transient(sentence, None) else ""
    return ""


def reads_as_error(result: str, values: tuple[str, ...]) -> bool:
    """Whether a result that brought nothing new, and was reported as a success, says that the call failed."""
    if complains(result, values) or raises(result) or _STAYS_SHUT.fullmatch(result) is not None:
        return True
    answer = answer_in(result) if len(result) <= MAX_FORM_CHARS else ""
    first, _, rest = answer.strip().partition("\n")
    last = rest.rpartition("\n")[2]
    return is_transient(f"{first}\n{last}", None)  # what stands between them is what was asked for


_STAYS_SHUT: Final = re.compile(r"[^\n.]{1,60} is (?:still )?locked[.!]?", re.IGNORECASE)


def complains(result: str, values: tuple[str, ...]) -> bool:
    """Whether a result that was reported as a success says that the call failed, and not that it may pass."""
    return looks_like_error(result) or (len(result) > MAX_FORM_CHARS and begins_with_complaint(result, values))


def may_pass(seen: Observation) -> bool:
    """Whether a call fails with an error that passes by itself."""
    return is_transient(both_ends((seen.step.result or "").strip(), ERROR_CHARS), seen.step.error_class)


def may_change_by_itself(seen: Observation) -> bool:
    """Whether a step, whatever came before it, waits for something or fails with an error that may pass."""
    step, text = seen.step, (seen.step.result or "").strip()
    if is_waiting(step.tool_name, step.args) or is_status_lookup(step.tool_name):
        return True
    if seen.outcome == ERROR or seen.signature is not None or reads_as_error(text, seen.values):
        return may_pass(seen) or is_pending(text)
    return not is_content(step.tool_name, text) and is_pending(text)


def is_content(tool: str, text: str) -> bool:
    """Whether a result is content that a tool was asked for, and no remark on a state."""
    return returns_content(tool) and not (is_short(text) or reports_status(text))


def signature_of(seen: Observation) -> str | None:
    """The signature of an error without the words of the request; None if the step shows no error."""
    line = error_signature(seen.step.result, seen.step.error_class)
    if line is None or seen.step.result is None:
        return line
    return (answer_form(line, seen.values, error=True) or line) + _asked_for(seen)


def line_of(seen: Observation) -> str:
    """The line that states an error, masked, with the words of the request; empty if the step shows no error.

    The name of the tool is none of its words: a server that has no such tool says the same of each name that is tried.
    """
    line = error_signature(seen.step.result, seen.step.error_class) or ""
    if seen.name[_MIN_NAME_CHARS - 1 :] and seen.name in line:
        line = line.replace(seen.name, "<tool>")
    return line + _asked_for(seen)


def _asked_for(seen: Observation) -> str:
    """The properties that a validation error asks for: one after the other, an agent learns how a tool is called.

    A name that the request gave is no such property: the next guess in its place is refused as it was.
    """
    names = names_asked_for(seen.step.result or "")
    if not names:
        return ""
    given = "\n".join(value[:MAX_REQUEST_CHARS] for value in seen.values).casefold()
    words = frozenset(WORD.findall(given))
    left = [name for name in names if name not in words and (len(name) < _MIN_NAME_CHARS or name not in given)]
    return f" ({', '.join(left)})" if left else ""
