"""Decodes configuration files, and bounds what a few bytes of them can grow to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from trajectory_guard.text_files import read_text

MAX_VALUES: Final = 100_000
"""Values a configuration file may hold, each alias of YAML counted as what it stands for."""
NESTED: Final = "nested too deeply"


def decode_file(file: Path) -> Any:
    """Decode a JSON, TOML or YAML file by its suffix.

    Raises:
        OSError: it cannot be read.
        ValueError: it is malformed or too large, or its suffix is none of these.
    """
    try:
        text = read_text(file)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    suffix = file.suffix.lower()
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return decode_toml(text)
    if suffix in (".yaml", ".yml"):
        try:
            import yaml
        except ImportError:
            raise ValueError("reading YAML needs PyYAML: pip install pyyaml") from None
        try:
            return construct(yaml.SafeLoader(text))
        except yaml.YAMLError as error:
            raise ValueError(f"not valid YAML: {error}") from None
    raise ValueError(f"unknown suffix {suffix!r}; use .json, .toml, .yaml or .yml")


def construct(loader: Any) -> Any:
    """The document of a PyYAML loader, bounded before it is built: merge keys multiply while it is.

    Raises:
        ValueError, yaml.YAMLError: it is malformed or not bounded.
    """
    try:
        node = bounded(loader.get_single_node(), _inner_nodes)
        return loader.construct_document(node) if node is not None else None
    finally:
        loader.dispose()


def _inner_nodes(node: Any) -> Iterable[Any] | None:
    if node is None or not isinstance(node.value, list):
        return None
    return (one for entry in node.value for one in (entry if isinstance(entry, tuple) else (entry,)))


def _inner_values(value: Any) -> Iterable[Any] | None:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else None


def bounded(value: Any, inner: Callable[[Any], Iterable[Any] | None] = _inner_values) -> Any:
    """``value``, unless it contains itself or more than ``MAX_VALUES`` values: a few aliases of YAML make billions.

    Parameters:
        inner: the values within one, None if it has none.

    Raises:
        ValueError: it does.
    """
    sizes: dict[int, int] = {}

    def size(one: Any) -> int:
        within = inner(one)
        if within is None:
            return 1
        known = sizes.get(id(one))
        if known is None:
            sizes[id(one)] = 0  # being counted
            known = sizes[id(one)] = 1 + sum(map(size, within))
        if known == 0:
            raise ValueError("a value contains itself")
        if known > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values, aliases counted as what they stand for")
        return known

    size(value)
    return value


def decode_toml(text: str) -> Any:
    """Decode TOML; raises ``ValueError``."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)
