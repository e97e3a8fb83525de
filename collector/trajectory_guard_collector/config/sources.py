"""Configuration files as plain data: decodes and merges them, and records the source of each key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml

from trajectory_guard.config import ConfigError
from trajectory_guard.config.bounds import NESTED, bounded
from trajectory_guard.config.file import decode_json, decode_toml
from trajectory_guard.config.yaml_file import from_yaml
from trajectory_guard.text_files import read_text
from trajectory_guard_collector.config.references import Text

COMMAND_LINE: Final = "--set"
_MAX_DEPTH: Final = 64
_SHOWN: Final = 80


class Removed(Enum):
    """Stands for a key that a later source sets to null, over another value of an earlier one."""

    REMOVED = "null"


class Sources:
    """Files merged deeply, the later ones over the earlier: mappings are joined, anything else is replaced.

    YAML reads ``http:`` and ``http: null`` alike. In the first source of a key that is a section without content, which
    has its defaults; over a section with content it can only mean that the section is left out.

    Attributes:
        values: the result.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._origin: dict[str, str] = {}
        self._first = ""

    def add(self, values: Mapping[str, Any], source: str) -> None:
        """Merge ``values`` over the present ones; ``source`` names them in messages."""
        self._first = self._first or source
        self._merge(self.values, values, source, "")

    def _merge(self, base: dict[str, Any], new: Mapping[str, Any], source: str, prefix: str) -> None:
        for key, value in new.items():
            path = f"{prefix}{key}"
            if isinstance(value, dict) and isinstance(base.get(key), dict):
                self._merge(base[key], value, source, f"{path}.")
            else:
                replaces = value is None and base.get(key) not in (None, Removed.REMOVED)
                base[key] = Removed.REMOVED if replaces else value
                self._origin = {at: one for at, one in self._origin.items() if not at.startswith(f"{path}.")}
                self._origin[path] = source

    def origin(self, path: str) -> str:
        """The source of a key, or of the closest key above it."""
        while path and path not in self._origin:
            path = path.rpartition(".")[0]
        return self._origin.get(path, self._first or "configuration")


def read_file(file: str) -> dict[str, Any]:
    """The content of a ``.yaml``, ``.yml``, ``.json`` or ``.toml`` file; keys are text. An empty file is empty.

    Raises:
        ConfigError: it cannot be read, is malformed, or has a key twice; one line for each mistake, with the file.
    """
    try:
        data = _text_keys(bounded(_decode(Path(file))))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8 text") from None
    except RecursionError:
        raise ConfigError(f"{file}: {NESTED}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(*_lines(error)).at(file) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: expected a mapping at the top level, got {type(data).__name__}")
    return data


def _lines(error: ValueError | yaml.YAMLError) -> Sequence[str]:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return [f"line {mark.line + 1}, column {mark.column + 1}: not valid YAML: {error.problem}"]
    return str(error).splitlines()


def _decode(file: Path) -> Any:
    text, suffix = read_text(file), file.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return from_yaml(text)
    if suffix == ".json":
        try:
            return decode_json(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error}") from None
    if suffix == ".toml":
        try:
            return decode_toml(text)
        except ValueError as error:
            raise ValueError(f"not valid TOML: {error}") from None
    raise ValueError(f"unknown suffix {suffix!r}; use .yaml, .yml, .json or .toml")


def _text_keys(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(NESTED)
    if isinstance(value, dict):
        return {str(key): _text_keys(one, depth + 1) for key, one in value.items()}
    return [_text_keys(one, depth + 1) for one in value] if isinstance(value, list) else value


def read_override(text: str) -> dict[str, Any]:
    """``key.path=value`` as nested mappings; the value gets the type that its key wants.

    >>> read_override("telemetry.log_level=debug")
    {'telemetry': {'log_level': 'debug'}}

    Raises:
        ConfigError: there is no ``=``, no key or no value.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if len(keys) > _MAX_DEPTH:
        raise ConfigError(f"{COMMAND_LINE} {text[:_SHOWN]}…: {NESTED}")
    if not equals or not all(keys):
        raise ConfigError(f"{COMMAND_LINE} {text}: expected key.path=value")
    if not value.strip():  # as of a variable of the shell that is not set
        raise ConfigError(f"{COMMAND_LINE} {text[:_SHOWN]}: no value; null leaves the key out")
    nested: Any = Text(value)
    for key in reversed(keys):
        nested = {key: nested}
    return dict(nested)
