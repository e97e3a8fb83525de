"""Decodes configuration files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajectory_guard.config.bounds import NESTED, bounded
from trajectory_guard.text_files import read_text


def decode_file(file: Path) -> Any:
    """Decode a JSON, TOML or YAML file by its suffix.

    Raises:
        OSError: it cannot be read.
        ValueError: it is malformed, has a key twice, is not bounded, or its suffix is none of these.
    """
    try:
        return bounded(_decoded(file))
    except RecursionError:
        raise ValueError(NESTED) from None


def _decoded(file: Path) -> Any:
    try:
        text = read_text(file)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    suffix = file.suffix.lower()
    if suffix in (".json", ".toml"):
        try:
            return decode_json(text) if suffix == ".json" else decode_toml(text)
        except TwiceError:
            raise
        except ValueError as error:
            raise ValueError(f"not valid {suffix[1:].upper()}: {error}") from None
    if suffix in (".yaml", ".yml"):
        try:
            import yaml

            from trajectory_guard.config.yaml_file import from_yaml
        except ImportError:
            raise ValueError("reading YAML needs PyYAML: pip install pyyaml") from None
        try:
            return from_yaml(text)
        except yaml.YAMLError as error:
            raise ValueError(f"not valid YAML: {_where(error)}") from None
    raise ValueError(f"unknown suffix {suffix!r}; use .json, .toml, .yaml or .yml")


def _where(error: Any) -> str:
    """A mistake in YAML on one line."""
    problem, context = (
        f"{text}: line {mark.line + 1}, column {mark.column + 1}" if text and mark is not None else ""
        for text, mark in (
            (getattr(error, part, None), getattr(error, f"{part}_mark", None)) for part in ("problem", "context")
        )
    )
    return f"{problem} ({context})" if problem and context else problem or " ".join(str(error).split())


class TwiceError(ValueError):
    """An object of JSON has a key twice."""


def decode_json(text: str) -> Any:
    """Decode JSON, in which keys may not be there twice; raises ``ValueError``."""
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        times = Counter(key for key, _ in pairs)
        raise TwiceError("\n".join(f"key {key!r} is there twice" for key in values if times[key] > 1))
    return values


def decode_toml(text: str) -> Any:
    """Decode TOML; raises ``ValueError``."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)
