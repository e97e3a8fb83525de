"""Type V: one class of error through changing calls."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, NamedTuple

from trajectory_guard.core.answers import both_ends
from trajectory_guard.core.detectors.base import TYPE_V, DetectionResult, Observation
from trajectory_guard.core.fingerprints import digest64, text_bytes
from trajectory_guard.core.history import History

_TRANSIENT: Final = re.compile(
    r"time[d]?[ -]?out|temporar|unavailable|too many requests|rate.?limit|overloaded"
    r"|connection (?:reset|refused|aborted)|\b(?:429|502|503|504)\b|again later|econnreset|network|throttl",
    re.IGNORECASE,
)

SAME_ERROR: Final = "same_error"
TRANSIENT_ERROR: Final = "transient_error"
NAMED_ERROR: Final = "named_error"
_STOP_FROM: Final = 6
_MIN_NAME_CHARS: Final = 3
_MAX_NAME_CHARS: Final = 80
_SEARCHED_CHARS: Final = 4_096  # searching a megabyte takes a tenth of a second


class ErrorStreak:
    """Fires when at least ``count`` of the last ``window`` steps failed with the same masked error.

    Names, numbers and paths in the message are ignored, the arguments too: an agent that drifts from one variant to
    the next against one wall is caught. Different errors are not: they are information. More tries are allowed where
    failing is normal: transient infrastructure errors (timeouts, rate limits), and errors that name what was asked for
    ("order 17 not found") while every call asks for something else, as in a list of look-ups; a success of the same
    tool that brings news ends both. A finding may stop only from the sixth failure on, and such a list never.

    Parameters:
        count: failures of one class, in steps, at which the streak is a hint; it is certain one failure later.
        window: steps looked back.
        patience: factor on ``count`` where failing is normal.

    Reference: masked error class, 3 of 10, had no false alarm on 4,172 recorded steps (``docs/detection.md``).
    """

    name: ClassVar[str] = "error_streak"
    loop_type: ClassVar[str] = TYPE_V
    __slots__ = ("count", "patience", "recent", "window")

    def __init__(self, count: int = 3, window: int = 10, patience: int = 2) -> None:
        self.count = count
        self.window = window
        self.patience = patience
        self.recent: list[_Failure] = []

    def update(self, seen: Observation, history: History) -> DetectionResult | None:
        """See class."""
        if seen.signature is None:
            if seen.news and self.recent:
                self._forgive(seen)
            return None
        if seen.moved:  # the same command fails otherwise than before, as tests do that are being mended
            self.recent = [one for one in self.recent if one.tool != _tool_key(seen)]
            return None
        oldest = seen.index - self.window
        failure = self._failure(seen)
        self.recent = [one for one in self.recent if one.at > oldest]
        self.recent.append(failure)
        return self._judge(failure, [one for one in self.recent if one.key == failure.key])

    def _forgive(self, seen: Observation) -> None:
        tool = _tool_key(seen)
        self.recent = [one for one in self.recent if one.tool != tool or one.kind == SAME_ERROR]

    def _failure(self, seen: Observation) -> _Failure:
        text = both_ends(seen.step.result or "", _SEARCHED_CHARS)
        kind = (
            TRANSIENT_ERROR if _TRANSIENT.search(text) else NAMED_ERROR if _names_argument(seen, text) else SAME_ERROR
        )
        key = digest64(text_bytes(f"{seen.tool}\0{seen.signature}")).hex()
        return _Failure(seen.index, key, kind, _tool_key(seen), seen.call.hex())

    def _judge(self, failure: _Failure, streak: list[_Failure]) -> DetectionResult | None:
        listed = failure.kind == NAMED_ERROR and len({one.call for one in streak}) == len(streak)
        normal = listed or failure.kind == TRANSIENT_ERROR
        needed = self.count * self.patience if normal else self.count
        if len(streak) < needed:
            return None
        steps = [one.at for one in streak]
        rule = TRANSIENT_ERROR if failure.kind == TRANSIENT_ERROR else SAME_ERROR
        details = {"rule": rule, "count": len(steps), "first_step": steps[0], "steps": steps}
        confidence = 1.0 if len(steps) > needed else 0.75
        return DetectionResult(TYPE_V, confidence, details, soft=listed or len(steps) < _STOP_FROM)

    def dump(self) -> Any:
        """Recent failures."""
        return [list(one) for one in self.recent] or None

    def load(self, data: Any) -> None:
        """See ``dump``."""
        self.recent = [_Failure(*one) for one in data]


class _Failure(NamedTuple):
    """A failed step: its index, digest of its error class, kind, and digests of tool and call."""

    at: int
    key: str
    kind: str
    tool: str
    call: str


def _tool_key(seen: Observation) -> str:
    return digest64(text_bytes(seen.tool)).hex()


def _names_argument(seen: Observation, text: str) -> bool:
    """Whether an error message quotes what was asked for."""
    args = seen.step.args
    values = args.values() if isinstance(args, dict) else (args,)
    wanted = (str(value) for value in values if isinstance(value, (str, int)) and not isinstance(value, bool))
    return any(_MIN_NAME_CHARS <= len(value) <= _MAX_NAME_CHARS and value in text for value in wanted)
