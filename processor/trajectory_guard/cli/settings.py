"""Configurations named on the command line: a file, ``default``, and single values on top."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from trajectory_guard.config import SECTION_OF, ConfigError, GuardConfig, decoded

DEFAULT: Final = "default"


def load_config(name: str | None, overrides: Iterable[str] = ()) -> GuardConfig:
    """The configuration in a file (``default`` or None: the built-in one) with ``key=value`` overrides.

    Keys of nested values are dotted: ``weights.TYPE_I_STUTTER=1``, ``tools.<tool>.poll=true``. A section may stand
    before them: ``engine.decay=0.25``. Values are JSON or plain text.

    Raises:
        ConfigError: the file or an override cannot be used.
    """
    config = GuardConfig() if name is None or name == DEFAULT else GuardConfig.from_file(name)
    items = list(overrides)
    if not items:
        return config
    values = config.model_dump(exclude_unset=True)
    for item in items:
        _override(values, item)
    return GuardConfig.from_mapping(values, source="--set")


def _override(values: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {item}: expected KEY=VALUE")
    *parents, last = _path(key.strip())
    place = values
    for name in parents:
        inner = place.get(name)
        place[name] = dict(inner) if isinstance(inner, dict) else {}
        place = place[name]
    place[last] = decoded("" if parents else last, text.strip())


def _path(key: str) -> list[str]:
    """Parts of a dotted key; the name of a tool may have dots itself and is compared case-folded."""
    first, dot, rest = key.partition(".")
    if first == SECTION_OF.get(rest.partition(".")[0]):
        return _path(rest)
    if first == "tools" and dot:
        tool, _, field = rest.rpartition(".")
        return [first, *([tool.casefold()] if tool else []), field]
    return [first, rest] if dot else [first]
