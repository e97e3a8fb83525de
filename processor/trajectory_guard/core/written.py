"""What the agent wrote itself, where a result shows it: figures and ids that are no noise, files that it names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from trajectory_guard.core.content.masking import RANDOM, volatile_parts
from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.steps import SUCCESS
from trajectory_guard.core.tools import is_lookup, is_path

if TYPE_CHECKING:
    from trajectory_guard.core.observation import Observation

_WORD: Final = re.compile(r"\w+")
_ASCII_FIGURE: Final = re.compile(r"\b[A-Za-z_]*\d\w*", re.ASCII)
_DIGIT: Final = re.compile(r"\d")
_MAX_WRITTEN_CHARS: Final = 2_000


def was_written(written: Collection[int], text: str) -> bool:
    """Whether a part of a result that looks volatile is one that the agent wrote itself: a time-out, a date, an id.

    Parameters:
        written: ``figures_of`` what the agent has written.
    """
    return any(
        figures and set(figures) <= set(written)
        for figures in map(figures_of, volatile_parts(text[:_MAX_WRITTEN_CHARS]))
    )


def figures_of(text: str) -> list[int]:
    """Checksums of the words of a text that hold a digit."""
    text = text[:_MAX_WRITTEN_CHARS]
    if text.isascii():  # searched in one go, and mostly there is nothing to find
        return [checksum(word) for word in _ASCII_FIGURE.findall(text)] if _DIGIT.search(text) else []
    return [checksum(word) for word in _WORD.findall(text) if any(map(str.isdigit, word))]


def holds_token(result: str) -> bool:
    """Whether a short result holds an id or a checksum.

    >>> holds_token("Part 7 uploaded, etag 9f86d081884c7d65"), holds_token("page 7 is empty")
    (True, False)
    """
    return _TOKEN.search(result[:_MAX_ID_CHARS]) is not None


def is_about_its_own(result: str, values: Sequence[str]) -> bool:
    """Whether a result names an id or a checksum that the request names: masked, it looks like that of any other id.

    >>> is_about_its_own('{"id": "27460215-0acf", "archived": true}', ("27460215-0acf",))
    True
    """
    ids = islice(_TOKEN.finditer("\n".join(values)[:_MAX_ID_CHARS]), _MAX_IDS)
    return any(one[0] in result for one in ids)


def without_request(result: str, values: Sequence[str]) -> str:
    """A result without the texts of the request that it repeats, as an acknowledgement of a hand-off does."""
    for value in values[:_MAX_IDS]:
        if _MIN_REPEATED <= len(value) <= _MAX_WRITTEN_CHARS:
            result = result.replace(value, "")
    return result


_MIN_REPEATED: Final = 20


def names_its_host(result: str, values: Sequence[str]) -> bool:
    """Whether a result names the host that the request names: an address, or a name, with dots and a digit.

    >>> names_its_host("Report for 10.20.31.21: up", ("10.20.31.21", "-sV")), names_its_host("12 rows", ("12",))
    (True, False)
    """
    named = [one for one in values[:_MAX_IDS] if len(one) <= _MAX_HOST_CHARS and _HOST.fullmatch(one) is not None]
    return any(one in result for one in named)


_MAX_HOST_CHARS: Final = 64
_HOST: Final = re.compile(r"(?=\D{0,63}\d)[^\W_](?:[\w-]{0,62}[^\W_])?(?:\.[^\W_](?:[\w-]{0,62}[^\W_])?){1,8}")
_MAX_ID_CHARS: Final = 400
_MAX_IDS: Final = 8
_TOKEN: Final = re.compile(
    r"(?<![^\W_])(?:0x)?(?=[a-fA-F-]{0,36}\d)(?=[\d-]{0,36}[a-fA-F])[0-9a-fA-F-]{7,64}(?![^\W_])|" + RANDOM
)


def names_file(result: str, values: Sequence[str]) -> bool:
    """Whether a short result names a file, or another path, that the request holds.

    >>> names_file("The file src/app.py has been updated.", ("src/app.py", "a = 1", "a = 2"))
    True
    >>> names_file("Updated: A src/app.py", ("*** Add File: src/app.py",)), names_file("Not found.", ("src/app.py",))
    (True, False)
    """
    if len(result) > _MAX_NAMED_CHARS:
        return False
    names = [name.rstrip(".:") for name in _BETWEEN_NAMES.split(result)]
    return any(
        len(name) >= _MIN_NAMED_CHARS and not _IN_PATHS.isdisjoint(name) and name in value
        for name in names
        for value in values
    )


def names_path(result: str, path: str) -> bool:
    """Whether a short result names a path, whole or by its last part, whatever stands around it in any script.

    >>> names_path("文件“app.py”已成功更新。", "/srv/app.py"), names_path("Wrote 12 lines to a.py", "/srv/b.py")
    (True, False)
    """
    if len(result) > _MAX_NAMED_CHARS:
        return False
    whole = path.rstrip("/\\")
    last = whole[max(whole.rfind("/"), whole.rfind("\\")) + 1 :]
    return path in result or (len(last) >= _MIN_NAMED_CHARS and last in result)


_BETWEEN_NAMES: Final = re.compile(r"[\s\"'`,;()<>]+")
_IN_PATHS: Final = frozenset("/\\.")
_MAX_NAMED_CHARS: Final = 400
_MIN_NAMED_CHARS: Final = 4


def handed_over(seen: Observation, values: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of a call that writes: its answer names a file of the request, and says no more of them.

    Where the answer names no file, only texts of several lines beside the name of a file are known to be written.
    """
    result = seen.step.result or ""
    if seen.outcome != SUCCESS or seen.signature is not None or is_lookup(seen.step.tool_name):
        return ()
    paths = [one for one in values if is_path(one)]
    named = [one for one in paths if names_path(result, one)]
    if named or names_file(result, values):
        return tuple([one for one in values if one not in result and one not in named])
    return tuple([one for one in values if "\n" in one]) if paths else ()
