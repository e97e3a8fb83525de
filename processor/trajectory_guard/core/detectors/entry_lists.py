"""Lists of which some entries fail: links to check, accounts to look up, rows to import, hosts to reach.

As long as other entries of the list succeed, failures are what the agent found out about theirs. So many of them in a
row count as one error met again only if the share of failures before them does not explain it.
"""

from __future__ import annotations

import re
from math import log
from typing import Any, Final, NamedTuple

from trajectory_guard.core.content.outcome import looks_like_error
from trajectory_guard.core.fingerprints import checksum, text_digest
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.similarity.keys import CODE, SHELL, SQL, classify_key

_CHANCE: Final = 0.01
"""Probability of so many failures in a row, below which the share of failures does not explain them."""
_MOST_PATIENCE: Final = 30
_KEPT: Final = 4
_MAX_VALUE_CHARS: Final = 400
_MAX_NAME_CHARS: Final = 40
_MAX_TARGETS: Final = 3
_MIN_ID_DIGITS: Final = 4
_MAX_WORDS: Final = 40
_NAME: Final = re.compile(rf"\A[\w.-]{{0,{_MAX_NAME_CHARS}}}\Z")
_HOST: Final = r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"
_ADDRESS: Final = re.compile(
    rf"\w{{1,16}}://[^\s'\"<>]{{1,400}}|[\w.+-]{{1,64}}@\w[\w-]{{0,62}}\.[\w.-]{{1,190}}|{_HOST}"
)
_HOST_ALONE: Final = re.compile(_HOST)
_COMPOUND: Final = re.compile(r"[|&;<>`'\"$\\(){}]|\A\s*\Z")


class EntryList(NamedTuple):
    """One list, since the first of its entries that failed.

    Fields:
        name: digest of the tool, and of a command without its last word.
        worked, failed: number of entries that did; run: of the newest failures in a row.
    """

    name: str
    worked: int = 0
    failed: int = 0
    run: int = 0

    def is_explained(self) -> bool:
        """Whether no more failures came in a row than chance explains, by the share of failures before them."""
        if not self.worked:
            return False
        before = self.failed - self.run + 1  # nobody knows that no further one would have failed
        return not self.fails_throughout() and self.run <= log(_CHANCE) / log(before / (before + self.worked))

    def fails_throughout(self) -> bool:
        """Whether more failures came in a row than any list is left alone with."""
        return self.run > _MOST_PATIENCE


Words = tuple[tuple[int, int, bool], ...]
"""Of each word of a command: checksums of the option that it gives a value to, 0 without one, and of the value, and
whether this may be what the command is about."""

Lists = tuple[EntryList, ...]
"""The lists of a run, the one used last at the end; at most four."""


def list_of(lists: Lists, name: str) -> EntryList | None:
    """The list of this name."""
    return next((one for one in lists if one.name == name), None)


def with_failure(lists: Lists, name: str) -> Lists:
    """The lists with one more failed entry."""
    known = list_of(lists, name) or EntryList(name)
    return _with(lists, known._replace(failed=known.failed + 1, run=known.run + 1))


def with_success(lists: Lists, known: EntryList) -> Lists:
    """The lists with one more entry of a known one that succeeded."""
    return _with(lists, known._replace(worked=known.worked + 1, run=0))


def _with(lists: Lists, newest: EntryList) -> Lists:
    others = [one for one in lists if one.name != newest.name]
    return (*others[1 - _KEPT :], newest)


def entry_of(seen: Observation, *, program: bool) -> str:
    """Digest of the list that a call may be an entry of; empty where it gives too much to be one, or is hidden.

    Parameters:
        program: it runs one. A command is an entry with its last word, as in ``curl -sI https://a.example/b``.
    """
    if not seen.call or [1 for value in seen.values if len(value) > _MAX_VALUE_CHARS or "\n" in value]:
        return ""
    frame = _frame(seen) if program else ""
    if program and not frame:
        return ""
    return text_digest(f"{seen.tool}\0{frame}")


def address_in(text: str) -> str:
    """The first address of a page, a mailbox or a host in a text; empty without one.

    Another address is another one of them.

    >>> address_in("curl -sI https://a.example/b"), address_in("ping 10.0.0.7"), address_in("version 1.2")
    ('https://a.example/b', '10.0.0.7', '')
    """
    if "://" in text or "@" in text:
        found = _ADDRESS.search(text)
    else:  # as in most requests, where the other forms would be tried at each character in vain
        found = _HOST_ALONE.search(text) if text.count(".") > 2 else None
    return "" if found is None else found[0]


def runs_program(seen: Observation) -> bool:
    """Whether a tool takes commands or program text, so that one call says nothing of what the next one tries."""
    args = seen.step.args
    if not isinstance(args, dict):
        return True
    kinds = [(classify_key(key), value) for key, value in args.items() if isinstance(key, str)]
    return any(kind in (SQL, SHELL) or (kind == CODE and not _is_name(value)) for kind, value in kinds)


def commands_of(seen: Observation) -> list[Any]:
    """The values of a call that are shell commands, as they were given."""
    args = seen.step.args if isinstance(seen.step.args, dict) else {"command": seen.step.args}
    return [value for key, value in args.items() if isinstance(key, str) and classify_key(key) == SHELL]


def words_of(command: str) -> Words:
    """The words of a command, as checksums; empty if they are too many."""
    parts = command.split()
    return tuple(map(_word_of, parts)) if len(parts) <= _MAX_WORDS else ()


def _word_of(part: str) -> tuple[int, int, bool]:
    name, given, value = part.partition("=")
    if name[:1] != "-" or not (given and value):
        name, value = "", part
    may_be_target = value[:1] != "-" and not (value.isdecimal() and len(value) < _MIN_ID_DIGITS)
    return checksum(name) if name else 0, checksum(value), may_be_target


def other_targets(command: str, now: Words, before: Words) -> tuple[str, ...]:
    """The words in which a command differs from the one before it, if these are what it is about, and no more than
    three: neither options nor short numbers.

    Parameters:
        now: ``words_of`` the command; before: of the one before it.

    >>> first, second, third = map(words_of, ("ruff check a.py", "ruff check b.py", "ruff check --fix"))
    >>> other_targets("ruff check b.py", second, first), other_targets("ruff check --fix", third, second)
    (('b.py',), ())
    >>> other_targets("test --shard=2/9", words_of("test --shard=2/9"), words_of("test --shard=1/9"))
    ('--shard=2/9',)
    """
    if len(now) != len(before):
        return ()
    others = [at for at, (one, two) in enumerate(zip(now, before, strict=True)) if one != two]
    if len(others) > _MAX_TARGETS:
        return ()
    for at in others:
        (option, _, is_target), (option_before, _, was_target) = now[at], before[at]
        if option != option_before or not (is_target and was_target):
            return ()
    parts = command.split()
    return tuple([parts[at] for at in others])


def tells_of(text: str, targets: tuple[str, ...]) -> bool:
    """Whether a command that failed printed what it found on its target: no complaint, or one about a place in a file.

    >>> tells_of("b.py:7:1: error: F401 unused import", ("b.py",)), tells_of("rm: error: b.py is busy", ("b.py",))
    (True, False)
    """
    return text.lstrip().startswith(targets) or not looks_like_error(text)


def _is_name(value: Any) -> bool:
    """Whether a value is a single name or number: the code of a coupon is no program."""
    return isinstance(value, str) and _NAME.match(value) is not None


def _frame(seen: Observation) -> str:
    """A shell command without its last word, of two words and more; empty for any other."""
    commands = commands_of(seen)
    if len(commands) != 1 or not isinstance(commands[0], str) or _COMPOUND.search(commands[0]) is not None:
        return ""
    *frame, operand = commands[0].split()
    return " ".join(frame) if not operand.startswith("-") else ""
