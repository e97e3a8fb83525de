"""Durations in answers: for how long something has been under way, and whether they are what the answer is about.

How long a call took says nothing, and masks replace it. Where an agent makes something faster, and its check states the
time again after each change, the time is all that differs. A time that only varies does not fall from one answer to the
next: a test of the trend (Mann-Kendall) tells the two cases from each other in any language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from statistics import NormalDist, median
from typing import Final

from trajectory_guard.core.content.masking import (
    LASTED,
    LASTED_INSIDE,
    MAX_FIGURE_CHARS,
    MAX_FIGURES,
    RATE,
    is_volatile_key,
    mask_noise,
)


def ages_in(result: str) -> list[float]:
    """Durations in an answer, seconds, in order: up to ``MAX_FIGURES`` in its first ``MAX_FIGURE_CHARS`` characters.

    >>> ages_in("web-1 Provisioning 1m15s, up 00:00:09, asked 10:21:07"), ages_in('{"elapsed_ms": 3200, "id": 7}')
    ([75.0, 9.0], [3.2])
    """
    found: list[float] = []
    for match in _AGE.finditer(result[:MAX_FIGURE_CHARS]):
        if match["key"] is None:
            parts = [float(part) for part in _AGE_PARTS.findall(match[0])]
            found.append(sum(part * 60.0**place for place, part in enumerate(reversed(parts))))
        else:
            found += _of_member(match)
        if len(found) == MAX_FIGURES:
            break
    return found


def measures(result: str) -> bool:
    """Whether durations are what a short answer is about, not what it took to give it.

    >>> measures("parse_large  time: [18.34 ms 18.42 ms 18.53 ms]"), measures("1 failed, 3 passed in 0.31s")
    (True, False)
    >>> measures('{"p50_ms": 24, "p99_ms": 31, "errors": 0}'), measures('{"id": 7, "name": "a", "ms": 3, "rows": 2}')
    (True, False)
    """
    if len(result) > _MEASURED_CHARS:
        return False
    if result[:1] == "{":
        members = result.count('":')
        return _IN_WORDS.search(result) is None and 0 < members <= _MEMBERS_A_DURATION * len(times_in(result))
    words = mask_noise(result).replace("[", " ").replace("]", " ").split()
    durations = sum("<lasted>" in word for word in words)
    return 0 < len(words) <= _WORDS_A_DURATION * durations


_MEASURED_CHARS: Final = 400
_WORDS_A_DURATION: Final = 4
_MEMBERS_A_DURATION: Final = 3
_IN_WORDS: Final = re.compile(r'\[|":\s?"[^"\d]{0,40}[^\W\d_]')
_MAX_AGE: Final = 1e9  # more is a date
_AGE: Final = re.compile(
    r"""["'](?P<key>[A-Za-z_-]{1,40})["']\s{0,4}:\s{0,4}["']?(?P<number>\d{1,12}(?:\.\d{1,9})?)["']?\s{0,4}[,}]
    |(?<![\w:.])(?:(?:\d{1,2}h\ ?)?\d{1,2}m\ ?)?\d{1,6}(?:\.\d{1,9})?\ ?(?:s|secs?|seconds?)\b
    |(?<![\w:.])(?:0?0:)?\d{1,2}:\d{2}(?![\w:])""",
    re.VERBOSE,
)
_AGE_PARTS: Final = re.compile(r"\d+(?:\.\d+)?")


def times_in(result: str) -> list[float]:
    """The durations that masks replace in an answer, seconds, in order; none if there are more than ``MAX_FIGURES``.

    Of a rate it is the time that one byte, bit or turn takes.

    >>> times_in("p95 540 ms, limit 0.4s, 1m 30s in all"), times_in('{"latency_ms": 540, "rows": 7}')
    ([0.54, 0.4, 90.0], [0.54])
    >>> times_in("copied at 20 MB/s"), times_in('{"message_id": 77, "attempts": 2, "pid": 4711}')
    ([5e-08], [])
    """
    found: list[float] = []
    for match in _TIME.finditer(result[:MAX_FIGURE_CHARS]):
        if match["rate"]:
            number, prefix = _RATE_PARTS.findall(match["rate"])[0]
            rate = float(number.replace(",", ".")) * 1_000.0 ** " kMGT".index(prefix.replace("K", "k") or " ")
            if rate:
                found.append(1.0 / rate)
        elif match["key"] is None:
            parts = [float(number.replace(",", ".")) * _seconds(unit) for number, unit in _TIME_PARTS.findall(match[0])]
            found.append(sum(parts))
        else:
            found += _of_member(match)
    return found if len(found) <= MAX_FIGURES else []


def _of_member(match: re.Match[str]) -> list[float]:
    """The duration, seconds, that a member of a JSON object states; none if it has no name of one, or is a date."""
    number = float(match["number"])
    if number >= _MAX_AGE or not is_volatile_key(match["key"]) or _COUNTS.search(match["key"]) is not None:
        return []
    return [number / 1_000 if _MILLISECONDS.search(match["key"]) else number]


def keep_falling(times: Sequence[Sequence[float]]) -> bool:
    """Whether one of the durations falls from answer to answer on the whole, and by more than a few percent.

    Parameters:
        times: ``times_in`` the newest answers, the oldest first.

    >>> keep_falling([[9.0, 4.0], [8.1, 4.0], [7.4, 4.0], [6.0, 4.0]]), keep_falling([[3.1], [2.9], [3.2], [3.0]])
    (True, False)
    """
    if len(times) < _ENOUGH or len(set(map(len, times))) > 1:
        return False
    moving = [values for values in zip(*times, strict=True) if len(set(values)) > 1]
    # each may fall by chance; those that go up and down together are parts of one
    orders = {tuple(sorted(range(len(values)), key=values.__getitem__)) for values in moving}
    return any(_falls(values, _BY_CHANCE / len(orders)) for values in moving)


def _falls(values: Sequence[float], by_chance: float) -> bool:
    """One-sided test of Mann and Kendall; ``by_chance``: how probable a wrong yes may be."""
    number = len(values)
    rising, falling = pairs_that_moved(values)
    deviation = sqrt(number * (number - 1) * (2 * number + 5) / 18)
    needed = NormalDist().inv_cdf(1 - by_chance)
    return falling - rising >= needed * deviation and values[-1] <= _LESS * median(values[:-1])


def pairs_that_moved(values: Sequence[float]) -> tuple[int, int]:
    """How many of the pairs of an earlier and a later value rise, and how many fall.

    >>> pairs_that_moved([3.0, 1.0, 2.0, 2.0])
    (2, 3)
    """
    pairs = list(combinations(values, 2))
    return sum(now > then for then, now in pairs), sum(now < then for then, now in pairs)


def _seconds(unit: str) -> float:
    """Seconds of a unit in which a duration is stated."""
    for pattern, seconds in _UNITS:
        if pattern.match(unit):
            return seconds
    return 1.0


_ENOUGH: Final = 4
_BY_CHANCE: Final = 0.05
_LESS: Final = 0.95
_TIME: Final = re.compile(
    r"""(?=["'\d])(?:["'](?P<key>[\w-]{1,40})["']\s{0,4}:\s{0,4}["']?(?P<number>\d{1,12}(?:\.\d{1,9})?)["']?\s{0,4}[,}]|"""
    + f"{RATE}|{LASTED_INSIDE}|{LASTED})"
)
_TIME_PARTS: Final = re.compile(r"(?<!\d)(\d{1,15}(?:[.,]\d{1,15})?) ?([^\W\d_]+)")
_RATE_PARTS: Final = re.compile(r"(?<!\d)(\d{1,15}(?:[.,]\d{1,15})?) ?([kKMGT]?)")
_COUNTS: Final = re.compile(
    r"(?:id|ref|seq|sequence|attempts?|try|tries|retry|retries|restarts?|number|num|no|count|version|generation|rss|random"
    r"|nonce|etag|token|limit|remaining|used|request|trace|span|session|correlation)\Z",
    re.IGNORECASE,
)
"""Ends of names whose numbers change from call to call as well, and are no durations."""
_MILLISECONDS: Final = re.compile(r"(?:ms|millis|milliseconds|мс|мсек|毫秒|ミリ秒|밀리초)\Z", re.IGNORECASE)
_UNITS: Final = tuple(
    (re.compile(pattern), seconds)
    for pattern, seconds in (
        ("ns|nano", 1e-9),
        ("[u\u00b5\u03bc]s|micro", 1e-6),  # before "m"
        ("ms|millis|мс|毫|ミ|밀", 1e-3),
        ("m", 60.0),
        ("h", 3_600.0),
        ("d(?!e)", 86_400.0),
    )
)
"""Any other unit counts as seconds, with the factor 1."""
