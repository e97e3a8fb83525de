"""Durations in answers: for how long something has been under way, and whether they are what the answer is about."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.masking import MAX_FIGURE_CHARS, MAX_FIGURES, is_volatile_key, mask_noise


def ages_in(result: str) -> list[float]:
    """Durations in an answer, seconds, in order: up to ``MAX_FIGURES`` in its first ``MAX_FIGURE_CHARS`` characters.

    >>> ages_in("web-1 Provisioning 1m15s, up 00:00:09, asked 10:21:07"), ages_in('{"elapsed_ms": 3200, "id": 7}')
    ([75.0, 9.0], [3.2])
    """
    found: list[float] = []
    for match in _AGE.finditer(result[:MAX_FIGURE_CHARS]):
        key, number = match["key"], match["number"]
        if key is None:
            parts = [float(part) for part in _AGE_PARTS.findall(match[0])]
            found.append(sum(part * 60.0**place for place, part in enumerate(reversed(parts))))
        elif is_volatile_key(key) and float(number) < _MAX_AGE:
            found.append(float(number) / (1_000 if key.lower().endswith(("ms", "millis", "milliseconds")) else 1))
        if len(found) == MAX_FIGURES:
            break
    return found


def measures(result: str) -> bool:
    """Whether durations are what a short answer is about, not what it took to give it.

    >>> measures("parse_large  time: [18.34 ms 18.42 ms 18.53 ms]"), measures("1 failed, 3 passed in 0.31s")
    (True, False)
    """
    if len(result) > _MEASURED_CHARS:
        return False
    words = mask_noise(result).replace("[", " ").replace("]", " ").split()
    durations = sum("<lasted>" in word for word in words)
    return 0 < len(words) <= _WORDS_A_DURATION * durations


_MEASURED_CHARS: Final = 400
_WORDS_A_DURATION: Final = 4
_MAX_AGE: Final = 1e9  # more is a date
_AGE: Final = re.compile(
    r"""["'](?P<key>[A-Za-z_-]{1,40})["']\s{0,4}:\s{0,4}["']?(?P<number>\d{1,12}(?:\.\d{1,9})?)["']?\s{0,4}[,}]
    |(?<![\w:.])(?:(?:\d{1,2}h\ ?)?\d{1,2}m\ ?)?\d{1,6}(?:\.\d{1,9})?\ ?(?:s|secs?|seconds?)\b
    |(?<![\w:.])(?:0?0:)?\d{1,2}:\d{2}(?![\w:])""",
    re.VERBOSE,
)
_AGE_PARTS: Final = re.compile(r"\d+(?:\.\d+)?")
