"""Laps that are longer than the memory of calls: a walk of seven to 256 calls that comes round again and again.

An agent whose context is cleared, or that plans anew, reads its forty files once more, in the same order and with the
same contents. The history of a run holds 32 steps and sees forty new calls in each lap.
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple
from zlib import crc32

from trajectory_guard.core.content.masking import mask_noise
from trajectory_guard.core.observation import LONG_PAUSE_S, Observation
from trajectory_guard.core.steps import SUCCESS
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import is_handoff, is_thinking

KEPT: Final = 256
"""Steps that are remembered: the longest lap."""
SHORTEST: Final = 7
"""Shorter cycles are those of the rule ``cycle``."""
_TO_VERIFY: Final = 8
"""After so many steps of a second lap whole results are compared; before, a checksum without figures is enough."""
KNOWN_FROM: Final = 8
"""From so many steps with their earlier results in a row on, such a step is no progress."""
_WIDTH: Final = 2
_READ_CHARS: Final = 4_096
_FIGURES: Final = b"0123456789abcdefABCDEF"
_NOT_READ: Final = b"\0\0"


class Walk(NamedTuple):
    """The steps of a run, and how they follow an earlier lap.

    Fields:
        steps: of each step a checksum of the call and the shape of its result, without figures and the letters of hex.
        results: of the newest steps, from the second lap on, a checksum of the whole result without clocks and ids.
        lag: how many steps ago the newest step was made before, 0 if it was not.
        followed: how many steps in a row were made before, with a result of this shape.
        verified: how many of the newest steps also had the very result of that time, clocks and ids aside.
        described: how many of these say more than an acknowledgement or a value.
    """

    steps: bytes = b""
    results: bytes = b""
    lag: int = 0
    followed: int = 0
    verified: int = 0
    described: int = 0

    def after(self, seen: Observation, *, breaks: bool) -> Walk:
        """The walk with one more step.

        Parameters:
            breaks: the step does not go on from the one before it, as after a pause: a look at the same things later
                is no lap.
        """
        step = seen.step
        if step.model_scope is not None or is_thinking(step.tool_name) or is_handoff(step.tool_name):
            return self
        unknown = not seen.call or not seen.result
        walk = self if not (breaks or unknown or seen.counted or seen.gap_s >= LONG_PAUSE_S) else self.at_rest()
        if unknown:
            return walk
        text = None if step.stated or step.result is None else both_ends(step.result, _READ_CHARS)
        shape = seen.result if text is None else text.encode("utf-8", "replace").translate(None, _FIGURES)
        symbol = pack("<H", crc32(shape, crc32(seen.call)) & 0xFFFF)
        steps, results = walk.steps, walk.results
        if steps[-_WIDTH:] == symbol:
            return walk  # the same call once more is no way on
        lag = _lag(steps, symbol, walk.lag)
        followed, verified, described, result = (walk.followed + 1 if lag else 0), 0, 0, _NOT_READ
        if followed >= _TO_VERIFY:
            whole = seen.result if text is None else mask_noise(text).encode("utf-8", "replace")
            result = pack("<H", crc32(whole) & 0xFFFF or 1)
            at = len(results) - lag * _WIDTH
            if at >= 0 and results[at : at + _WIDTH] == result:
                verified, described = walk.verified + 1, walk.described + (not _says_little(seen))
        if results or result != _NOT_READ:
            results = (results + result)[-KEPT * _WIDTH :] if followed or results.strip(b"\0") else b""
        return Walk((steps + symbol)[-KEPT * _WIDTH :], results, lag, followed, verified, described)

    def at_rest(self) -> Walk:
        """The same steps, of which none follows an earlier lap."""
        return Walk(self.steps)

    @property
    def is_lap(self) -> bool:
        """Whether a third lap, in which every step had its earlier result, is complete."""
        if not self.verified >= self.lag > 0 or 2 * self.described < max(self.lag, SHORTEST):
            return False
        lap = self.steps[-self.lag * _WIDTH :]
        return len({lap[at : at + _WIDTH] for at in range(0, len(lap), _WIDTH)}) >= SHORTEST


def _lag(steps: bytes, symbol: bytes, lag: int) -> int:
    """How many steps ago the step ``symbol`` was made: where the lap of this ``lag`` goes on, else the newest time."""
    at = len(steps) - lag * _WIDTH
    if lag and at >= 0 and steps[at : at + _WIDTH] == symbol:
        return lag
    at = steps.rfind(symbol, 0, max(0, len(steps) - (SHORTEST - 1) * _WIDTH))
    while at >= 0 and at % _WIDTH:
        at = steps.rfind(symbol, 0, at + _WIDTH - 1)
    return (len(steps) - at) // _WIDTH if at >= 0 else 0


def _says_little(seen: Observation) -> bool:
    """Whether a step succeeded with an acknowledgement or a value."""
    return seen.outcome == SUCCESS and seen.signature is None and not seen.describes_state
