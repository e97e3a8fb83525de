"""The decision to answer a requested call without running it, and the text that answers it. Pure.

A call is answered only on certain evidence: in this user turn it has failed, found nothing or been refused, and nothing
has happened since that could change the answer. Waiting is never pointless: transient errors, look-ups of a status,
pauses, tools with the setting ``poll`` or ``never_stop``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.content.outcome import looks_like_error
from trajectory_guard.core.content.pending import is_pending
from trajectory_guard.core.content.transient import is_transient
from trajectory_guard.core.detectors.repeats import DeniedAgain, Stutter
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.interventions import NOT_RUN_BECAUSE, args_excerpt, quoted
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.recall import LEAST_TIMES, KnownCall
from trajectory_guard.core.settings import ToolSettings
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, NOT_RUN, SUCCESS, Certainty, Outcome
from trajectory_guard.core.text_bounds import with_digests
from trajectory_guard.core.tools import asks_to_wait, is_lookup, is_status_lookup, is_waiting, moves_cursor
from trajectory_guard.gates.messages import MAX_LOOK_BACK, TurnCall, calls_of_turn

Kind = Literal["denied", "failed", "empty", "repeated"]
_BLANK: Final = frozenset(("", "{}", "null", "none", '""', "''", "()", "undefined"))
_TRANSIENT_CHARS: Final = 4_096
_RESULT_CHARS: Final = 300
_OTHERS_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class RefusalRules:
    """When a call is answered without running it.

    Attributes:
        after: equal failing or empty results in a row from which on the call is answered, at least 2. An equal result
            of another kind is certain evidence only in a run that was nudged for it.
        limit: answers in a row after which the call runs once more, so that a change out of sight is noticed.
        denied: also answer a call that was refused in this user turn.

    Raises:
        ValueError: a number is too small.
        TypeError: a value is no whole number, or ``denied`` no truth value.
    """

    after: int = LEAST_TIMES
    limit: int = 3
    denied: bool = True

    def __post_init__(self) -> None:
        for name in ("after", "limit"):
            if type(number := getattr(self, name)) is not int:
                raise TypeError(f"{name}: expected a whole number, got {number!r:.80}")
        if not isinstance(self.denied, bool):
            raise TypeError(f"denied: expected True or False, got {self.denied!r:.80}")
        if self.after < LEAST_TIMES:
            raise ValueError(f"after: {self.after!r} is below {LEAST_TIMES}: a single result is no evidence")
        if self.limit < 1:
            raise ValueError(f"limit: {self.limit!r} is below 1")

    @classmethod
    def of(cls, given: bool | RefusalRules) -> RefusalRules | None:
        """The rules that an argument ``refuse_pointless`` stands for; None if it is False.

        Raises:
            TypeError: the argument is neither a truth value nor rules.
        """
        if given is not None and not isinstance(given, (bool, RefusalRules)):
            raise TypeError(f"refuse_pointless: expected True, False or RefusalRules, got {given!r:.80}")
        return given if isinstance(given, RefusalRules) else cls() if given else None


class Past(NamedTuple):
    """The past of a call in the messages of this user turn.

    Fields:
        text, outcome: of the last answer that is no refusal of ours; outcome is None if there is none.
        step_id: of that call.
        times: equal answers in a row, those of one model turn counted once.
        refused: times that we have answered the call since.
        others: other calls of this turn without success, newest first.
    """

    text: str = ""
    outcome: Outcome | None = None
    step_id: str = ""
    times: int = 0
    refused: int = 0
    others: tuple[TurnCall, ...] = ()


class Refusal(NamedTuple):
    """A call that is not run.

    Fields:
        kind: ``denied``, ``failed``, ``empty`` or ``repeated``.
        times: equal results in a row.
        text: the answer for the model.
    """

    kind: Kind
    times: int
    text: str


def past_of(messages: Sequence[Any], tool: str, args: Any) -> Past:
    """The past of a call in the messages of this user turn. Results of the newest model turn may still be missing."""
    hashed, name = args_hash(args), tool.casefold()
    last: TurnCall | None = None
    batches: set[str] = set()
    refused = 0
    counting = True
    others: dict[tuple[str, str | None], TurnCall] = {}
    for one in calls_of_turn(messages[-MAX_LOOK_BACK:]):
        key = (one.tool.casefold(), args_hash(one.args))
        if key != (name, hashed):
            if one.outcome in (ERROR, EMPTY, DENIED) and not one.by_guard and len(others) < _OTHERS_SHOWN:
                others.setdefault(key, one)
        elif one.by_guard:
            refused += last is None
        elif counting:
            last = last or one
            counting = _answer_of(one) == _answer_of(last)
            if counting:
                batches.add(one.batch)
    if last is None:
        return Past(refused=refused, others=tuple(others.values()))
    outcome = ERROR if last.outcome == SUCCESS and looks_like_error(last.text) else last.outcome
    return Past(last.text, outcome, last.step_id, len(batches), refused, tuple(others.values()))


def _answer_of(call: TurnCall) -> tuple[Outcome, str | None]:
    """The key by which two results are compared: nothing found is nothing found, in whatever words."""
    return call.outcome, None if call.outcome in (EMPTY, DENIED) else result_hash(call.outcome, call.text)


def decide(
    tool: str, args: Any, past: Past, known: KnownCall, rules: RefusalRules, *,
    policy: ToolSettings | None = None, nudged: Verdict | None = None, denied_here: bool = True, redact: bool = False,
) -> Refusal | None:  # fmt: skip
    """The answer to a call that would be made in vain; None if it has to run.

    Parameters:
        past: what the messages show of it; known: what the engine knows of it. Both have to agree.
        policy: settings of the tool. ``idempotent`` changes nothing here: that a call may be repeated without harm does
            not make it useful.
        nudged: the newest finding of a run that was nudged for it.
        denied_here: the refusal came from where the call would go now. Otherwise a person may have been asked again,
            and has allowed the call: it has to run.
        redact: quote no arguments and no results.
    """
    kind = _kind(tool, args, past, known, rules, policy, nudged)
    if kind is None or past.refused >= rules.limit or (kind == "denied" and not denied_here):
        return None
    times = past.times if kind == "denied" else min(past.times, known.times)
    return Refusal(kind, times, _text(kind, tool, args, times, past, redact=redact))


def _kind(
    tool: str, args: Any, past: Past, known: KnownCall, rules: RefusalRules, policy: ToolSettings | None,
    nudged: Verdict | None,
) -> Kind | None:  # fmt: skip
    if past.outcome is None or (policy is not None and (policy.poll or policy.never_stop or policy.ignore)):
        return None
    if past.outcome == DENIED:
        return "denied" if rules.denied else None
    times = min(past.times, known.times)
    if known.open or times < LEAST_TIMES or _may_change(tool, args, past):
        return None
    if past.outcome == ERROR:
        return "failed" if times >= rules.after else None
    if past.outcome == EMPTY:
        return "empty" if times >= rules.after and _found_nothing(tool, past.text, policy) else None
    certain = nudged is not None and nudged.certainty is Certainty.CERTAIN and nudged.tool.casefold() == tool.casefold()
    return "repeated" if certain else None


def _may_change(tool: str, args: Any, past: Past) -> bool:
    """Whether the call may be waiting for something, or leads to another place each time."""
    if is_waiting(tool, args) or is_status_lookup(tool) or moves_cursor(tool, args) or is_pending(past.text):
        return True
    if past.outcome == EMPTY and asks_to_wait(args):
        return True
    return past.outcome == ERROR and is_transient(past.text[:_TRANSIENT_CHARS], None)


def _found_nothing(tool: str, text: str, policy: ToolSettings | None) -> bool:
    """Whether an empty result says that nothing is there: a blank answer of an action only says that it was done."""
    if text.strip().lower() not in _BLANK:
        return True
    return is_lookup(tool) or (policy is not None and policy.idempotent)


# --- the text ----------------------------------------------------------------------------------------------------


def _text(kind: Kind, tool: str, args: Any, times: int, past: Past, *, redact: bool) -> str:
    call = f"{tool}, with these arguments," if redact else _named(tool, args)
    why = NOT_RUN_BECAUSE[kind]
    lines = [f"{NOT_RUN}{call} {why.begins} {why.goes_on.format(times=times)}."]
    if past.text.strip() and not redact:
        lines.append(f"Last answer: {quoted(with_digests(past.text.strip()), _RESULT_CHARS)}")
    if past.others and kind != "denied":
        named = [one.tool if redact else _named(one.tool, one.args) for one in past.others]
        lines.append(f"Also without success in this turn: {', '.join(dict.fromkeys(named))}.")
    advice = DeniedAgain.advice if kind == "denied" else Stutter.advice if kind == "repeated" else _ADVICE
    return "\n".join([*lines, "What to do instead:", *(f"- {line}" for line in advice)])


_ADVICE: Final = (
    "Do not make this call again as it is: change the arguments, or use another tool.",
    "Check first whether what it needs is there at all.",
    "If there is no other way, answer with what you have, and say what could not be done.",
)


def _named(tool: str, args: Any) -> str:
    return f"{tool}({args_excerpt(args)})"
