"""Learning which parts of a tool's answer change every time without meaning anything.

Masks know clocks and ids by their form. A part without a form (a sequence number, a random token, a load) can only be
learned: if the same call comes back again and again, and the same few parts are the only ones that ever differ, then
they are noise. Parts that look like progress ("40 %", "3 of 7", ``processed``) never are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, repeat
from math import isclose
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.addresses import addresses_in, are_neighbours
from trajectory_guard.core.content.durations import ages_in
from trajectory_guard.core.content.masking import (
    CAMEL,
    figures_in,
    is_volatile_key,
    mask_noise,
    masked_hash,
    shares_done,
    unordered_hash,
)
from trajectory_guard.core.fingerprints import UNKNOWN, Symbol, digest64, parse_json_or_lines, text_bytes
from trajectory_guard.core.text import has_traceback
from trajectory_guard.core.text_bounds import is_digest

MAX_NOISE_PROFILES: Final = 8
MAX_PARTS: Final = 48
"""Answers with more parts are compared by their masked form alone."""
MAX_RAW_PARTS: Final = 8 * MAX_PARTS
"""Answers with more words are not even masked to count their parts: a mask covers a few words at most."""
MAX_TEXT_CHARS: Final = 4_096
"""Longer texts are not split into parts; JSON is."""
REPEATS_TO_LEARN: Final = 3
"""Parts become noise after so many repeats in a row in which only they differed."""
REPEATS_BESIDE_WORK: Final = 24
"""The same where work was done between the repeats: the parts that differ may show that work."""
TIMES_KEPT: Final = 2
"""A duration is an age once it has grown so many times in a row by the time that has passed."""
TIMES_TIMED: Final = 3
"""The same for any figure: a count may grow at the same speed for a while."""
_TOKEN_BYTES: Final = 4
_KEPT_ANSWERS: Final = 3
_KEPT_TIMES: Final = 8
_FORM_DIGITS: Final = 8
MAX_VOLATILE_CHARS: Final = 200
_MASKS: Final = re.compile(r"<[a-z]{2,8}>")
_PROGRESS: Final = re.compile(
    r"(?<![^\W_])(?:progress|percent|pct|completed?|done|process(?:ed|ing)?|remain(?:s|ing)?|totals?|counts?|current"
    r"|steps?|pages?|offset|cursor|bytes|size|items?|rows?|records?|found|passed|failed|errors?|eta|left|states?|status"
    r"|phase|stage)(?![^\W_])|%",
    re.IGNORECASE,
)
_QUANTITY: Final = re.compile(r"\A(?:\W*\d+(?:[.,]\d{1,3}|[-\u2013]\d{1,6})*\W*(?:[A-Za-z]{1,4}\W*)?|[A-Za-z' -]+)\Z")
"""A count, a range, a price, a reading, a plain word: a change is progress. Others are tokens and noisy decimals."""
_TOKENS: Final = re.compile(r"[^\s,;|(){}\[\]]+")
_NAMED: Final = re.compile(r"([A-Za-z_][\w.-]{0,63})=([^=].*)")
_STAMP: Final = re.compile(r":\d\d:\d\d|-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-|1[5-9]\d{8}")
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
"""A part of a clock with seconds, of a uuid, or of seconds since the epoch: finding one is much faster than masking."""


class Part(NamedTuple):
    """One part of an answer: where it stands (JSON path, or the words before it) and what it says."""

    place: str
    text: str


def split(result: str) -> list[Part] | None:
    """The parts of an answer, volatile forms masked; None if there are too many to follow."""
    parts: list[Part] = []
    for part in _parts(result):
        parts.append(part)
        if len(parts) > MAX_PARTS:
            return None
    return parts


def _parts(result: str) -> Iterator[Part]:
    if result[:1] in ("{", "["):
        try:
            yield from _leaves(parse_json_or_lines(result), "")
            return
        except (ValueError, RecursionError):
            pass
    if (
        len(result) > MAX_TEXT_CHARS
        or sum(1 for _ in islice(_TOKENS.finditer(result), MAX_RAW_PARTS + 1)) > MAX_RAW_PARTS
    ):
        yield from [Part("", "")] * (MAX_PARTS + 1)
        return
    before = ""
    for token in _TOKENS.findall(mask_noise(result)):
        named = _NAMED.match(token)
        if named is not None:  # "x=5" is a figure with a name, no token
            before, token = named.groups()
            yield Part("", before)
        yield Part(before, token)
        before = token


def _leaves(value: Any, path: str) -> Iterator[Part]:
    if value in ({}, []):
        yield Part(path, "")  # that there is nothing says something
    elif isinstance(value, dict):
        for key in sorted(value):
            if not is_volatile_key(key):  # as in the masked form
                yield from _leaves(value[key], f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield Part(path, mask_noise(str(value)))


_AGO: Final = re.compile(r"\b\d{1,4} ?(?:[smhdw]|secs?|mins?|hours?|days?|(?:second|minute|week)s?)(?= ago\b)")


def masked_answer(result: str) -> bytes:
    """``masked_hash`` of an answer to a call made before, as of an error if it holds a traceback.

    >>> masked_answer("Error, created 59s ago") == masked_answer("Error, created 2m ago")
    True
    """
    if " ago" in result:
        result = _AGO.sub("<age>", result)
    return masked_hash(result, error=has_traceback(result))


def is_volatile_throughout(result: str) -> bool:
    """Whether nothing is left of a short result without its volatile forms: a generated id, a clock.

    >>> is_volatile_throughout("0ec0c22e-5421-4838-8e6c-2bbadc88a14d"), is_volatile_throughout("2026-11-21T10:00:00")
    (True, True)
    >>> is_volatile_throughout("0 results (0.15 s)"), is_volatile_throughout("7")
    (False, False)
    """
    if len(result) > MAX_VOLATILE_CHARS:
        return False
    rest = _MASKS.sub("", mask_noise(result.strip("\"'{}[]() ")))
    return rest != result and not any(map(str.isalnum, rest))


def holds_stamp(result: str) -> bool:
    """Whether a result holds a clock with seconds, the middle of a uuid, or seconds since 1970.

    >>> holds_stamp("done at 10:21:07"), holds_stamp("see 4d3c-9f86-77"), holds_stamp('{"id": 7000012, "at": "10:21"}')
    (True, False, False)
    """
    if result.isascii():  # a quick look, which spares most results the search
        digits = result.encode().translate(_ZEROS)
        if b":00:00" not in digits and b"0000000000" not in digits and digits.count(b"-") < _DASHES:
            return False
    return _STAMP.search(result) is not None


_DASHES: Final = 3


def is_checksum(result: str) -> bool:
    """Whether a short result is the checksum of a file: what was asked for, and no noise.

    >>> is_checksum(f"{'9f86d081' * 8}  dist/app.whl"), is_checksum("commit 9f86d08 by Ann, 3 files changed")
    (True, False)
    >>> is_checksum(f"sha256:{'9f86d081' * 8}")
    True
    """
    return len(result) <= MAX_VOLATILE_CHARS and _CHECKSUM.fullmatch(result.strip()) is not None


_CHECKSUM: Final = re.compile(
    r"(?:\w{1,12}\s?\([^()\n]{1,120}\)\s?=\s?|[a-z]{2,6}\d{1,3}[:-])?[0-9a-f]{32,128}(?:\s{1,3}\*?[^\s]{1,120})?",
    re.IGNORECASE,
)


class NoiseProfile(NamedTuple):
    """Noise profile of one call: its last result, part by part, and for how long each part has been changing.

    ``masked``: masked form of the last answer; ``tokens``: four bytes per part, hex; ``streaks``: per part, in how
    many repeats in a row it differed; ``numbers``: per part that is a long number or a decimal, its place, its last
    value, how often it jumped up and down (or a decimal rose and fell), and how often in a row it grew by a few;
    ``ages``: the durations in the answer, seconds; ``figures``: its numbers; ``form``: checksum of the rest;
    ``at``: when the call was made, seconds; ``kept``, ``timed``: how often in a row an age, or whatever figures
    differed, had grown by the time that had passed; ``since``, ``grown``: when the latter series began, seconds,
    and by how much its figures have grown; ``step``, ``steps``: by how much the only figure that differed has moved,
    and how often in a row, and ``moved``: where it is; ``strides``: as ``steps``, but for the next number of a series;
    ``shares``: what the answer says is done, and of how much, in pairs;
    ``unordered``: hash of the answer without its order; ``reordered``: it is that of the answer before;
    ``vocabulary``: the words of all answers; ``earlier``: of the last answers that were new, the beginning of the
    masked form, and the symbol of the result; ``failures``: the ``AlikeFailures`` that the call is in; ``times``:
    ``times_in`` the newest answers, between which something else was done; ``addresses``: those in the last answer,
    in memory.
    """

    masked: str
    tokens: str = ""
    streaks: list[int] = []  # noqa: RUF012  never mutated
    numbers: list[list[int]] = []  # noqa: RUF012  never mutated
    ages: list[float] = []  # noqa: RUF012  never mutated
    figures: list[float] = []  # noqa: RUF012  never mutated
    form: int = 0
    at: float = 0.0
    kept: int = 0
    timed: int = 0
    since: float = 0.0
    grown: float = 0.0
    strides: int = 0
    step: float = 0.0
    steps: int = 0
    moved: float = 0.0
    shares: list[float] = []  # noqa: RUF012  never mutated
    unordered: str = ""
    reordered: bool = False
    vocabulary: list[Any] = []  # noqa: RUF012  never mutated
    earlier: list[str] = []  # noqa: RUF012  never mutated
    failures: list[Any] = []  # noqa: RUF012  never mutated
    times: list[list[float]] = []  # noqa: RUF012  never mutated
    addresses: list[int] = []  # noqa: RUF012  never mutated

    @property
    def shows_age(self) -> bool:
        """Whether the answers show for how long something has been under way: they differ by the passing time alone."""
        return self.kept >= TIMES_KEPT or self.is_timed

    @property
    def is_timed(self) -> bool:
        """Whether all that differs between the answers are figures that grow by the time that passes."""
        return self.timed >= TIMES_TIMED

    @property
    def moves_on(self) -> bool:
        """Whether one figure moves by the same amount each time, and not by the clock: a position, a level."""
        return self.strides >= _STRIDES and not self.timed

    def counts_calls(self, *, asks: bool) -> bool:
        """Whether one figure has moved by the same amount for so long that it counts no more than the calls: credits,
        views, calls of today. What is done, and what is done of a whole, may move so evenly for longer.

        Parameters:
            asks: the call asks for something that it names.
        """
        may_be_work = not asks or self.shares or (self.step > 0 and self.moved < max(self.figures))
        return self.steps >= (_COUNTS_WORK if may_be_work else _COUNTS) and not self.timed

    def symbol_of(self, masked: str) -> Symbol:
        """The symbol of an earlier answer of this masked form, ``UNKNOWN`` without one."""
        known = [one for one in self.earlier if one.startswith(masked[:_FORM_DIGITS])]
        return bytes.fromhex(known[0][_FORM_DIGITS:]) if known else UNKNOWN

    def with_answer(self, before: NoiseProfile | None, symbol: Symbol) -> NoiseProfile:
        """This profile with the earlier answers and times of ``before``; the newest answer has this symbol."""
        earlier, times = (before.earlier, before.times) if before is not None else ([], [])
        newest = self.masked[:_FORM_DIGITS] + symbol.hex()
        earlier = earlier if newest in earlier else [*earlier[1 - _KEPT_ANSWERS :], newest]
        return self._replace(earlier=earlier, times=times)

    def with_times(self, times: list[float]) -> NoiseProfile:
        """This profile with the durations in one more answer."""
        return self._replace(times=[*self.times[1 - _KEPT_TIMES :], times])

    def steps_on(self, before: NoiseProfile | None) -> bool:
        """Whether an address has moved to its neighbour."""
        return before is not None and are_neighbours(before.addresses, self.addresses)

    def has_advanced(self, shares: list[float]) -> bool:
        """Whether ``shares`` (see ``shares_in``) say that more is done than the answer before said, of as much."""
        before = self.shares
        return (
            len(before) == len(shares) > 0
            and before[1::2] == shares[1::2]
            and any(now > known for known, now in zip(before[::2], shares[::2], strict=True))
        )

    def at_time(self, before: NoiseProfile | None, result: str, at: float) -> NoiseProfile:
        """This profile with the ages, figures and addresses of ``result``, compared with those shown before."""
        ages = ages_in(result)
        form, figures = figures_in(result)
        shares = shares_in(result)
        unordered = unordered_hash(result).hex()
        kept = timed = strides = steps = 0
        since, grown, step, moved = at, 0.0, 0.0, 0.0
        if before is not None:
            passed_s = at - before.at
            if len(before.ages) == len(ages) and any(map(_keeps_time, before.ages, ages, repeat(passed_s))):
                kept = min(TIMES_KEPT, before.kept + 1)
            advanced = before.has_advanced(shares)
            if form == before.form and not advanced and _all_keep_time(before.figures, figures, passed_s):
                since = before.since if before.timed else before.at
                grown = before.grown + max(now - then for then, now in zip(before.figures, figures, strict=True))
                if _is_time(grown, at - since):  # one second more at each of many fast calls is no clock
                    timed = min(TIMES_TIMED, before.timed + 1)
            if form == before.form:
                step, moved = _step(before.figures, figures)
                steps = before.steps + 1 if step and isclose(step, before.step, rel_tol=1e-6) else int(step != 0)
                strides = _strides(before, _stride(step, moved))
        return self._replace(
            ages=ages, figures=figures, form=form, at=at, kept=kept, timed=timed, since=since, grown=grown,
            strides=strides, step=step, steps=steps, moved=moved, shares=shares, unordered=unordered,
            addresses=addresses_in(result),
            reordered=before is not None and bool(unordered) and before.unordered == unordered,
        )  # fmt: skip


def with_profile(noise: dict[str, list[Any]], key: str, profile: NoiseProfile) -> dict[str, list[Any]]:
    """The noise profiles with this one as the newest, at most ``MAX_NOISE_PROFILES`` of them."""
    learned = {call: one for call, one in noise.items() if call != key}
    learned[key] = plain = list(profile)
    while plain[-1] == []:  # defaults, which need no room
        plain.pop()
    return dict(list(learned.items())[-MAX_NOISE_PROFILES:])


def shares_in(result: str) -> list[float]:
    """``shares_done`` as a profile keeps it: done, whole, done, whole, ..."""
    return [figure for share in shares_done(result) for figure in share]


def _all_keep_time(before: list[float], figures: list[float], passed_s: float) -> bool:
    moved = [pair for pair in zip(before, figures, strict=False) if pair[0] != pair[1]]
    return len(before) == len(figures) and bool(moved) and all(_keeps_time(*pair, passed_s) for pair in moved)


def _keeps_time(before: float, now: float, passed_s: float) -> bool:
    """Whether a value has grown by the time that has passed: what took long, or is random, does not."""
    grown_s = now - before
    return grown_s >= passed_s / 2 > 0.0 and _is_time(grown_s, passed_s)


def _is_time(grown_s: float, passed_s: float) -> bool:
    slack_s = _SLACK_S if grown_s % 1.0 == 0.0 else _FINE_SLACK_S
    return abs(grown_s - passed_s) <= max(slack_s, _SLACK * passed_s)


def _step(before: list[float], figures: list[float]) -> tuple[float, float]:
    """By how much the only figure that differs has moved, and where to; zeros if several do."""
    moved = [(then, now) for then, now in zip(before, figures, strict=False) if then != now]
    return (moved[0][1] - moved[0][0], moved[0][1]) if len(before) == len(figures) and len(moved) == 1 else (0.0, 0.0)


def _stride(step: float, moved: float) -> float:
    """``step`` of a figure; 0 if it has moved to the next number of a series."""
    is_next = 0 < step <= (_NEXT if moved >= _LEAST_ID else 1)
    return 0.0 if is_next else step


def _strides(before: NoiseProfile, stride: float) -> int:
    """How often in a row the figure has moved by equal amounts, this time included."""
    last = _stride(before.step, before.moved)
    if not stride or not last:
        return int(stride != 0)
    return min(_STRIDES, before.strides + 1) if abs(stride) == abs(last) else _BROKEN


_COUNTS: Final = 16
_COUNTS_WORK: Final = 64
_STRIDES: Final = 2
_BROKEN: Final = -2  # steps of two lengths: a number that jumps about takes as long a step again by chance
_LEAST_ID: Final = 10_000

_SLACK_S: Final = 1.1  # ages are whole seconds
_FINE_SLACK_S: Final = 0.005  # unless they are written as decimals
_SLACK: Final = 0.25


def learn(
    profile: NoiseProfile | None, masked: str, result: str, repeats: int = REPEATS_TO_LEARN, *, makes: bool = False
) -> tuple[NoiseProfile, bool]:  # fmt: skip
    """Take in one more answer to a call; returns the new profile and whether the answer says nothing new.

    Parameters:
        profile: what is known so far, None at the first repeat.
        masked: masked form of ``result``.
        repeats: so many in a row in which nothing but the same parts differed make them noise.
        makes: the call makes something: all of the answer may be names of the new thing.
    """
    parts = split(result)
    if parts is None:
        return NoiseProfile(masked), profile is not None and profile.masked == masked
    tokens = b"".join(digest64(text_bytes(part.text))[:_TOKEN_BYTES] for part in parts)
    before = bytes.fromhex(profile.tokens) if profile is not None else b""
    if profile is None or len(before) != len(tokens):
        fresh = NoiseProfile(masked, tokens.hex(), [0] * len(parts), _numbers(parts, {}, makes))
        return fresh, profile is not None and profile.masked == masked
    changed = [at for at in range(len(parts)) if _differs(before, tokens, at)]
    streaks = [profile.streaks[at] + 1 if at in changed else 0 for at in range(len(parts))]
    known = {place: (value, ups, downs, ones) for place, value, ups, downs, ones in profile.numbers}
    numbers = _numbers(parts, known, makes)
    integers = [one for one in numbers if one[-1] != _OF_DECIMAL]
    wild = {place for place, _, ups, downs, ones in integers if (ups and downs) or _is_serial(parts[place], ones)}
    wild.update(place for place, *_ in integers if place not in known)  # a code before: by chance without a letter now
    drifting = {place for place, _, ups, downs, ones in numbers if ones == _OF_DECIMAL and _has_trend(ups, downs)}
    noise = profile.masked == masked or (
        drifting.isdisjoint(changed) and _is_noise(parts, changed, streaks, wild, repeats, makes=makes)
    )
    return NoiseProfile(masked, tokens.hex(), streaks, numbers), noise


def _differs(before: bytes, tokens: bytes, at: int) -> bool:
    start, end = at * _TOKEN_BYTES, (at + 1) * _TOKEN_BYTES
    return before[start:end] != tokens[start:end]


def _is_serial(part: Part, ones: int) -> bool:
    """Whether a long number is one of a series: the same action made another thing, with the next number, each time."""
    return ones >= _SERIAL and not _names_progress(part.place)


def _names_progress(place: str) -> bool:
    """Whether the member, or the word before a part, has a name of progress: what it stands within has not."""
    name = place.rpartition(".")[2] if place[:1] in _PATH_STARTS else place
    return _PROGRESS.search(CAMEL.sub("_", name)) is not None


_PATH_STARTS: Final = (".", "[")


def _numbers(parts: list[Part], known: dict[int, tuple[int, int, int, int]], makes: bool) -> list[list[int]]:
    """Parts that are long numbers, how often they jumped by a tenth, as ids do, and how often they grew by a few.

    Things that a call ``makes`` may be numbered from 1. Of decimals, how often they rose and fell.
    """
    found = []
    for place, part in enumerate(parts):
        if (decimal := _decimal(part)) is not None:
            last, ups, downs, _ = known.get(place, (decimal, 0, 0, 0))
            ups, downs = ups + (decimal > last), downs + (decimal < last)
            aged = 1 + (max(ups, downs) > _MAX_COUNT)  # what was long ago counts for less
            found.append([place, decimal, ups // aged, downs // aged, _OF_DECIMAL])
            continue
        text = part.text.strip(_AROUND_NUMBERS)
        if not ((1 if makes else _MIN_ID_DIGITS) <= len(text) <= _MAX_ID_DIGITS and text.isascii() and text.isdigit()):
            continue
        value = int(text)
        last, ups, downs, ones = known.get(place, (value, 0, 0, 0))
        jump = abs(value - last) * 10 >= last
        ones = min(_MAX_COUNT, max(0, ones) + 1) if 0 < value - last <= _NEXT else 0
        ups, downs = ups + (jump and value > last), downs + (jump and value < last)
        found.append([place, value, min(_MAX_COUNT, ups), min(_MAX_COUNT, downs), ones])
    return found


def _decimal(part: Part) -> int | None:
    """The value of a decimal in millionths, None if the part is none."""
    found = _DECIMAL.fullmatch(part.text.strip(_AROUND_NUMBERS))
    return round(float(found[0]) * 1e6) if found is not None else None


def _has_trend(ups: int, downs: int) -> bool:
    """Whether a decimal moves one way, as a loss or a level does: what only varies rises as often as it falls."""
    return max(ups, downs) >= _TREND * min(ups, downs)


_DECIMAL: Final = re.compile(r"[+-]?\d{1,9}\.\d{1,12}(?:[eE][+-]?\d{1,2})?", re.ASCII)
_TREND: Final = 3
_MAX_COUNT: Final = 9
_OF_DECIMAL: Final = -1
"""In place of how often a number grew by a few: it is a decimal."""
_AROUND_NUMBERS: Final = ".,;:#()[]'\""
_NAME_MARKS: Final = re.compile(r"[@._/+'\u2019-]+")
_AROUND_WORDS: Final = _AROUND_NUMBERS + "!?"
_SERIAL: Final = 4
_NEXT: Final = 3
_MIN_ID_DIGITS: Final = 5
_MAX_ID_DIGITS: Final = 15


def _is_noise(
    parts: list[Part], changed: list[int], streaks: list[int], wild: set[int], repeats: int, *, makes: bool
) -> bool:
    """Few parts differ, the same ones each time, and each looks like a token or a measurement, not like a quantity.

    ``wild``: places of long numbers that jumped up and down.
    """
    if not changed or (len(changed) * 2 > len(parts) and not makes):
        return False
    return all(streaks[at] >= repeats and (at in wild or _meaningless(parts[at], makes)) for at in changed)


def _meaningless(part: Part, makes: bool) -> bool:
    if is_digest(part.text) or _names_progress(part.place) or _PROGRESS.search(part.text) or shares_done(part.text):
        return False
    text = part.text.strip(_AROUND_WORDS)
    if makes and text.isdecimal():
        return True
    if any(map(str.isspace, text)):
        return False  # a member that holds a text, as the output of a command, is no token
    # a word, a name, an address of words is what was asked for
    return _QUANTITY.match(text) is None and not _NAME_MARKS.sub("", text).isalpha()
