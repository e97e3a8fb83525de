"""Unproductive calls of one tool in a row: a list of things looked up one by one, or one thing again and again.

A list never returns to what it asked before: each call names something else. Other words for one question, and guesses
at one name, recombine the same parts; a setting that is turned leaves most of the request as it was. This holds in any
language, so no words have to be known.

Calls may also go on (``Advance``): to the next page, offset or hour, or to where the last answer points. Nothing but
numbers differ then, and they move by one step in one direction, or together as a date does. Or a value was not asked
for before and is taken from the last answer, as an opaque cursor is. Names of arguments need not be known.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Final
from zlib import crc32

from trajectory_guard.core.content.envelope import without_element
from trajectory_guard.core.content.essentials import ids_in
from trajectory_guard.core.content.masking import masked_hash, of_this_moment
from trajectory_guard.core.content.result_text import MAX_FORM_CHARS, WORD, confirms, is_acknowledgement, values_of
from trajectory_guard.core.content.volatile import is_volatile_throughout
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.plain import Plain
from trajectory_guard.core.similarity.keys import is_asked_by, is_bound, names_exchange
from trajectory_guard.core.steps import EMPTY, SUCCESS
from trajectory_guard.core.text import shared_start
from trajectory_guard.core.tools import is_lookup, is_named_after, is_thinking, makes_something, tables_in

_STEM_CHARS: Final = 4
_WORD_CHARS: Final = 6
_MAX_WORDS: Final = 16
_MAX_SEEN: Final = 64
_MAX_PLACES: Final = 96
_LEAST_TABLE: Final = 3
_MAX_VALUES: Final = 12
_NEXT: Final = 0  # ends the parts of one value
_KEPT_CALLS: Final = 8
_KEPT_TOOLS: Final = 8
_QUARTER: Final = 4
_MAIN_SHARE: Final = 3  # a value that is less than a third of its request is a setting, or a detail
_FRESH_SHARE: Final = 0.75
_LONG_PARTS: Final = 6
_NAME_WORDS: Final = 3
_SEVERAL: Final = 2
_OWN_SHARE: Final = 0.6  # other words for one question leave more of it as it was


@lru_cache(maxsize=512)
def parts_of(text: str) -> tuple[int, ...]:
    """The parts of a value of a request: beginnings of words, numbers, in scripts without spaces pairs of characters.

    Each is a checksum with its length (up to 31) in the last five bits. All long words are of one length: endings vary.

    A formula, a move or a short name in signs is one part: its letters are those of all others.

    >>> len(parts_of("reports of March 2026")), parts_of("the report.") == parts_of("The reports")
    (4, True)
    >>> len(parts_of("CC(=O)O")), len(parts_of("sin(x)=0")), len(parts_of("/src/app.py"))
    (1, 1, 3)
    """
    if len(text) <= _SYMBOL_CHARS and _SYMBOL.match(text) is not None:
        return (checksum(text) << _LENGTH_BITS | min(len(text), _MAX_LENGTH),)
    found: dict[str, int] = {}
    for word in WORD.findall(text.casefold().replace("_", " ")):
        if word.isascii() or word[0] < "\u2e80":
            cut = len(word) > _STEM_CHARS and (word.isalpha() or not any(map(str.isdigit, word)))
            found[word[:_STEM_CHARS] if cut else word] = _WORD_CHARS if cut else len(word)
        else:
            found.update(dict.fromkeys((word[at : at + 2] for at in range(max(1, len(word) - 1))), 1))
    return tuple(checksum(part) << _LENGTH_BITS | min(length, _MAX_LENGTH) for part, length in found.items())


@lru_cache(maxsize=512)
def places_of(at: int, parts: tuple[int, ...]) -> tuple[int, ...]:
    """Checksums of a value of a request: of its number of parts, of all of them, and of each in its place.

    Parameters:
        at: ordinal of the value in the request.
    """
    width = len(parts)
    own = [f"{at} {width} {place} {part}" for place, part in enumerate(parts)]
    return tuple([crc32(text.encode()) for text in (f"{at} {width}", f"{at} {parts}", *own)])


_SYMBOL_CHARS: Final = 64
_SYMBOL: Final = re.compile(
    r"(?!\S{0,64}[^\W\d_]{4})(?:(?=\S{0,64}[(\[=#|^$+<>{}])|(?:[^\s.,:;/]{1,32}[.,:;]){2})\S{1,64}\Z"
    r"|[\u2e80-\U0002ffff]{1,4}\Z"
)
"""Signs, or figures in groups, and no word of four letters; or up to four signs of a script without spaces."""
_LENGTH_BITS: Final = 5
_MAX_LENGTH: Final = (1 << _LENGTH_BITS) - 1


def _length(parts: Iterable[int]) -> int:
    return sum([part & _MAX_LENGTH for part in parts])


BRIEF: Final = "="
"""Begins an answer that is a bare value. Equal values do not show that calls are related: their order does."""


class Inquiry(Plain):
    """The current series of unproductive calls of one tool. Checksums only, bounded.

    Attributes:
        tool: name, case-folded; answer: what the newest answer has in common with those before it, the words of the
            requests aside; empty without one; result: symbol of that answer, hex.
        count: number of different calls in a row with this answer, without progress in between; first: index of the
            first of them; entries: how many of them asked for something that was not asked for before.
        calls: those calls (the newest eight).
        parts: parts of the newest request; seen: parts, values: checksums of the values of all requests of the series
            (the newest 64).
        places: checksums of the values of all requests, in parts, and of the places of these parts.
        items: number of calls that give several texts, none of which was given before, or a long one of its own.
        paired: number of calls that name another combination of parts in their places.
        found: checksums of the tools that returned something new in this run (the newest eight).
    """

    __slots__ = (
        "answer", "calls", "count", "entries", "first", "found", "items", "paired", "parts", "places", "result", "seen",
        "tool", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tool = self.answer = self.result = ""
        self.count = self.entries = self.items = self.paired = 0
        self.first = -1
        self.calls: tuple[str, ...] = ()
        self.parts: tuple[int, ...] = ()
        self.seen: tuple[int, ...] = ()
        self.values: tuple[int, ...] = ()
        self.places: tuple[int, ...] = ()
        self.found: tuple[int, ...] = ()

    def end(self, tool: str) -> None:
        """End the series: a call of the tool returned something new."""
        if self.count:
            self.answer, self.count, self.entries, self.items, self.paired, self.calls = "", 0, 0, 0, 0, ()
        if tool == self.tool:
            self.tool, self.parts, self.seen, self.values, self.places = "", (), (), (), ()

    def note_found(self, tool: str) -> None:
        """Record that the tool has found something in this run."""
        self.found = (*self.found[1 - _KEPT_TOOLS :], checksum(tool))

    def has_found(self, tool: str) -> bool:
        """Whether a call of the tool returned something new in this run."""
        return checksum(tool) in self.found

    def update(
        self, seen: Observation, values: Sequence[str], answer: str, *, further: bool = False, nearby: bool = False,
        handed: Sequence[str] = (), things: Container[str] = (),
    ) -> bool:  # fmt: skip
        """Add an unproductive call; returns whether it asks for something that this series has not asked for yet.

        Parameters:
            values: those of the request that say what is asked for.
            further: it is known to, as it goes on from the call before; nearby: it points almost where that did.
            handed: texts that it hands over, if it is one that writes; things: values that are ids of things.
        """
        if seen.tool != self.tool:
            self.tool, self.parts, self.seen, self.values, self.answer, self.places = seen.tool, (), (), (), "", ()
        texts = tuple(values[:_MAX_VALUES])
        for text in texts:
            if "=" in text:
                texts = tuple(map(of_this_moment, texts))
                break
        if len(texts) > 1:  # a request id and a time beside what is asked for say nothing of it
            named = tuple([text for text in texts if text.isalpha() or text in things or not _is_nonce(text)])
            if named and named != texts and not is_lookup(seen.name):
                texts = named
        seen.request = checksum("\0".join(texts))
        requests = [parts_of(text[:MAX_FORM_CHARS])[:_MAX_WORDS] for text in texts]
        sums = tuple(map(checksum, texts))
        item = self._is_item(texts, sums, requests) or (bool(handed) and self._is_written_anew(handed))
        looks = seen.outcome == EMPTY or (seen.signature is None and is_lookup(seen.name))
        elsewhere = looks and self._is_elsewhere(texts, sums)
        # a name that is refused may be a guess
        paired = self._combines(texts, requests, part=elsewhere) and seen.signature is None
        narrows = seen.outcome == EMPTY and self._narrows(requests)
        found = elsewhere or self.has_found(seen.tool)
        asks_anew = self._ask(texts, sums, requests, found=found, things=things)
        other_tables = self._names_other_tables(texts) and seen.signature is None
        entry = (asks_anew and not nearby and not narrows) or other_tables or further or paired
        result = seen.result.hex()
        # without the words of the request, one result leaves another answer where its own words are asked for
        if answer != self.answer and (result != self.result or not self.answer or answer[:1] == BRIEF):
            self.count = self.entries = self.items = self.paired = 0
            self.first, self.calls = seen.index, ()
        self.answer, self.result = answer, result
        name = seen.call.hex()
        if name not in self.calls:
            self.count += not seen.same_batch or not self.count
            self.entries += entry and (not seen.same_batch or not self.entries)
            self.items += item and (not seen.same_batch or not self.items)
            self.paired += paired and (not seen.same_batch or not self.paired)
            self.calls = (*self.calls[1 - _KEPT_CALLS :], name)
        return entry

    def _is_item(self, texts: Sequence[str], sums: Sequence[int], requests: Sequence[tuple[int, ...]]) -> bool:
        """Whether a request gives several texts, none of which was given before, or one long text of its own.

        Parameters:
            sums: checksums of the texts.
        """
        named = len(texts) > 1 and any(not text.isdigit() and any(map(str.isalpha, text)) for text in texts)
        if named and set(sums).isdisjoint(self.values):
            return True
        for parts in requests:
            if len(parts) >= _LONG_PARTS:
                known = self.seen
                if _length([part for part in parts if part not in known]) >= _OWN_SHARE * _length(parts):
                    return True
        return False

    def _is_elsewhere(self, texts: Sequence[str], sums: Sequence[int]) -> bool:
        """Whether what was asked for before is looked for at another place: in an archive, a shop, a folder."""
        new = [text for text, one in zip(texts, sums, strict=True) if one not in self.values]
        return len(new) == 1 < len(texts) and any(map(str.isalpha, new[0])) and len(new[0].split()) <= _NAME_WORDS

    def _is_written_anew(self, texts: Sequence[str]) -> bool:
        """Whether a long text, or several short ones, are handed over that were not before, whatever they are about.

        The old text of an edit may be the new text of an earlier one: of long texts one has to be new.
        """
        known, long = self.values, False
        for text in texts:
            if "\n" in text or len(parts_of(text[:MAX_FORM_CHARS])) >= _LONG_PARTS:
                if checksum(text) not in known:
                    return True
                long = True
        return not long and len(texts) >= _SEVERAL and not any(checksum(text) in known for text in texts)

    def is_list(self) -> bool:
        """Whether the calls with one answer ask for ever different things: less than one in four does not."""
        return (self.count - self.entries) * _QUARTER < self.count

    def is_of_items(self) -> bool:
        """Whether nearly all of the calls with one answer give several new texts: records, fields of a form.

        Of thoughts every second one is enough: they refer to each other.
        """
        return (self.count - self.items) * (2 if is_thinking(self.tool) else _QUARTER) < self.count

    def is_table(self) -> bool:
        """Whether nearly all of the calls with one answer name another combination of parts that keep their places."""
        return self.count >= _LEAST_TABLE and (self.count - self.paired - 1) * _QUARTER < self.count

    def _combines(self, texts: Sequence[str], requests: Sequence[tuple[int, ...]], *, part: bool) -> bool:
        """Whether a value is a new combination of as many parts as one before it, and no part has left its place.

        So do the cells of a table: "red shirt", "blue shirt", "blue hat". Other words for one question do not stay in
        their places, and guesses at a name try its parts at several.

        Parameters:
            part: one value of the request is new, and all others were there before.
        """
        found, places, known = False, [], frozenset(self.places)
        # what is less than half of the request is a detail of one question, unless the rest is known to stay
        least = 0.0 if part else sum(map(len, texts)) / 2
        for at, (text, parts) in enumerate(zip(texts, requests, strict=True)):
            sort, whole, *own = places_of(at, parts)
            if not found and len(parts) > 1 and len(text) >= least and sort in known and whole not in known:
                pairs = zip(parts, own, strict=True)
                found = not [part for part, place in pairs if part in self.seen and place not in known]
            places += [sort, whole, *own]
        new = dict.fromkeys(places)  # the newest last: what comes again is not forgotten
        self.places = (*[one for one in self.places if one not in new], *new)[-_MAX_PLACES:]
        return found

    def _narrows(self, requests: Sequence[tuple[int, ...]]) -> bool:
        """Whether a request only adds words to the one before it: where that found nothing, it cannot find more."""
        before = _split(self.parts)
        if len(before) != len(requests) or min(map(len, before), default=0) < _SEVERAL:
            return False
        pairs = [(set(last), set(parts)) for last, parts in zip(before, requests, strict=True)]
        return all(last <= parts for last, parts in pairs) and any(last < parts for last, parts in pairs)

    def _names_other_tables(self, texts: Sequence[str]) -> bool:
        """Whether SQL reads other tables, or pairs of them, than before: that is no other form of one question."""
        tables = {name.lower() for text in texts for name in tables_in(text)}
        if not tables:
            return False
        read = checksum("\0".join(sorted(tables)))
        if read in self.values:
            return False
        self.values = (*self.values, read)[-_MAX_SEEN:]
        return True

    def _ask(
        self, texts: Sequence[str], sums: Sequence[int], requests: Sequence[tuple[int, ...]], *, found: bool,
        things: Container[str],
    ) -> bool:  # fmt: skip
        """Take in a request. Whether one of its values, and a main one, was not there before in any of its parts.

        Where the tool has ``found`` something, or the rest stays the same, any value with letters may be a main one:
        one name, place by place. The id of a thing is one anywhere. A date beside a name only bounds what is asked for.
        """
        least = sum(map(len, texts)) / _MAIN_SHARE
        least_name = 0.0 if found else sum([len(text) for text in texts if _DATE.match(text) is None]) / _MAIN_SHARE
        before, known, asked = _split(self.parts), frozenset(self.seen), frozenset(self.values)
        if len(before) != len(requests):
            before = [tuple(part for parts in before for part in parts)] * len(requests)
        anew = not known or any(
            (len(text) >= least or text in things or (len(text) >= least_name and any(map(str.isalpha, text))))
            and one not in asked
            and _is_entry(parts, last, known)
            for text, one, parts, last in zip(texts, sums, requests, before, strict=True)
        )
        self.parts = tuple([part for parts in requests for part in (*parts, _NEXT)])
        self.seen = tuple(dict.fromkeys((*self.seen, *[part for part in self.parts if part != _NEXT])))[-_MAX_SEEN:]
        self.values = tuple(dict.fromkeys((*self.values, *sums)))[-_MAX_SEEN:]
        return anew


def reads_tables(values: Sequence[str]) -> bool:
    """Whether a request is SQL that names the tables it reads or writes."""
    return any(map(tables_in, values))


def values_asked(seen: Observation) -> tuple[str, ...]:
    """The values of the call that say what is asked for, without the numbers that bound or tune it."""
    args = without_element(seen.step.args) if seen.shows_elements else seen.step.args
    if not isinstance(args, dict):
        return seen.values
    named = [(key, value) for key, value in args.items() if isinstance(key, str)]
    bounds = {key for key, value in named if isinstance(value, (int, float)) and is_bound(key)}
    bounds |= {key for key, _ in named if names_exchange(key) and not is_asked_by(seen.name, key, args)}
    return values_of({key: value for key, value in args.items() if key not in bounds}) or seen.values


def things_in(seen: Observation) -> frozenset[str]:
    """The ids of things in a call, and not of a request: quoted, acknowledged, or of what the tool is named after."""
    ids, result, tool = list(ids_in(seen.step.args)), seen.step.result or "", seen.step.tool_name
    if not ids or (seen.outcome == SUCCESS and (is_acknowledgement(result) or confirms(result))):
        return frozenset([value for _, value in ids])
    acts = not makes_something(tool, seen.step.args)
    return frozenset([value for key, value in ids if value in result or (acts and is_named_after(tool, key))])


def names_thing(seen: Observation) -> bool:
    """Whether a call names a thing by its id: the next id is another thing, and no next page of one list."""
    return any(True for _ in ids_in(seen.step.args))


def _is_nonce(text: str) -> bool:
    return _HEX.match(text) is not None or ((text[:1].isdigit() or text[8:9] == "-") and is_volatile_throughout(text))


_DATE: Final = re.compile(r"(?:\d{4}([-/.])\d\d?\1\d\d?|\d\d?([-/.])\d\d?\2\d{4})(?:[T ][\d:.+-]{4,20}Z?)?\Z")
_HEX: Final = re.compile(r"\A(?=[a-f]{0,64}\d)(?=\d{0,64}[a-f])[0-9a-f]{10,64}\Z", re.ASCII)


def _split(parts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The parts of each value of a request."""
    found: list[tuple[int, ...]] = []
    at = 0
    while at < len(parts):
        end = parts.index(_NEXT, at)
        found.append(parts[at:end])
        at = end + 1
    return found


def _is_entry(parts: tuple[int, ...], before: tuple[int, ...], known: frozenset[int]) -> bool:
    """Whether a value differs in one stretch from the one before it, and there it says mostly what nobody said yet."""
    start = shared_start(parts, before)
    end = shared_start(parts[start:][::-1], before[start:][::-1])
    changed, replaced = parts[start : len(parts) - end], before[start : len(before) - end]
    if not changed or not set(changed).isdisjoint(replaced):
        return False
    return _FRESH_SHARE * _length(changed) <= _length([part for part in changed if part not in known])


_NUMBER: Final = re.compile(r"\d\d{0,14}(?!\d)")
_TOKEN: Final = re.compile(r"[^\s\"',{}\[\]()<>]{4,512}")
ADVANCES: Final = 2
"""Calls in a row that went on from the one before, from which they are a way: one step may be any change."""
FAR: Final = 30
"""The same, from which they go on without an end."""
_DATE_PARTS: Final = 3
_FIRST_YEAR: Final = 1900
_NEARBY: Final = 0.03
"""Share of a coordinate by which two taps on one thing differ."""
_MAX_PLACE_DIGITS: Final = 5
_MAX_NUMBERS: Final = 24
_MAX_OFFERED: Final = 24
_MAX_RESULT_CHARS: Final = 2_000


class Advance(Plain):
    """How far the current series of fruitless calls of one tool has gone on. Checksums and numbers, bounded.

    Attributes:
        tool: name, case-folded. count: number of calls in a row that went on from the one before.
        shape: checksums of the values of the newest request without their numbers; numbers: these numbers.
        step: the newest change of one number per value.
        offered: checksums of the words of the newest result; asked: of the values that were asked for before.
        page: checksum of the newest result of such a call, volatile parts aside; pages: in a row with it.
        nearby: the newest request is nothing but numbers, several, and each almost the one before it: one place.
    """

    __slots__ = ("asked", "count", "nearby", "numbers", "offered", "page", "pages", "shape", "step", "tool")

    def __init__(self) -> None:
        self.tool = ""
        self.count = 0
        self.shape: tuple[int, ...] = ()
        self.numbers: tuple[int, ...] = ()
        self.step: tuple[int, ...] = ()
        self.offered: tuple[int, ...] = ()
        self.asked: tuple[int, ...] = ()
        self.nearby = False
        self.page, self.pages = "", 0

    def end(self) -> None:
        """A call of the tool returned something new: what follows is another series."""
        self.__init__()  # type: ignore[misc]

    def update(self, tool: str, values: Sequence[str], result: str, *, failed: bool) -> int:
        """Add a fruitless call; returns how many calls in a row have gone on from the one before, this one included.

        Parameters:
            failed: the result is an error, and no page.
        """
        if tool != self.tool:
            self.__init__()  # type: ignore[misc]
            self.tool = tool
        texts = [text[:MAX_FORM_CHARS] for text in values[:_MAX_VALUES]]
        asked = [checksum(text) for text in texts]
        numbers = [tuple(map(int, _NUMBER.findall(text))) for text in texts]
        shape = tuple([checksum(_NUMBER.sub("#", text)) for text in texts])
        follows = bool([value for value in asked if value in self.offered and value not in self.asked])
        goes_on = shape == self.shape and self._goes_on(numbers, result)
        self.count = self.count + 1 if follows or goes_on else 0
        if self.count and not failed:
            page = masked_hash(result).hex()
            self.page, self.pages = page, self.pages + 1 if page == self.page else 1
        else:
            self.page, self.pages = "", 0
        self.nearby = shape == self.shape and len(texts) > 1 and self._is_nearby(texts)
        self.shape, self.numbers = shape, tuple([one for group in numbers for one in group])[:_MAX_NUMBERS]
        self.offered = tuple(map(checksum, _TOKEN.findall(result[:_MAX_RESULT_CHARS])[:_MAX_OFFERED]))
        self.asked = tuple(dict.fromkeys((*self.asked, *asked)))[-_MAX_OFFERED:]
        return self.count

    def _is_nearby(self, texts: Sequence[str]) -> bool:
        if not all(text.isdecimal() and len(text) <= _MAX_PLACE_DIGITS for text in texts):
            return False
        return all(
            abs(int(text) - then) <= max(int(text), then) * _NEARBY
            for text, then in zip(texts, self.numbers, strict=False)
        )

    def _goes_on(self, numbers: Sequence[Sequence[int]], result: str) -> bool:
        """Whether the numbers of a request lie one step further; the first step is as good as any.

        Where the answer names the number, as it does that of a task or a record, the next one may lie anywhere beyond.
        """
        steps, moved, at, together = [], list[int](), 0, False
        for group in numbers:
            before = self.numbers[at : at + len(group)]
            at += len(group)
            changed = [(now, then) for now, then in zip(group, before, strict=False) if now != then]
            together = together or len(changed) > 1 or (len(group) >= _DATE_PARTS and group[0] > _FIRST_YEAR)
            steps.append(changed[0][0] - changed[0][1] if changed else 0)
            moved += [now for now, _ in changed]
        if at > _MAX_NUMBERS or not any(steps):
            return False
        known, step = self.step, tuple(steps)
        if not self.count or len(known) != len(step):  # a value that was offered goes on in another shape
            self.step = step
            return True
        same_way = all((one > 0) == (other > 0) for one, other in zip(step, known, strict=True) if one and other)
        if together:  # a date that begins a new month, a range in one text
            return same_way
        self.step = step
        if step == known or not same_way:
            return step == known
        return set(moved) <= set(map(int, _NUMBER.findall(result[:_MAX_RESULT_CHARS])))
