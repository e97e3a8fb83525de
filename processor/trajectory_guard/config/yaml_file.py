"""Decodes YAML. Needs PyYAML, which a process need not have."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import yaml

from trajectory_guard.config.bounds import NESTED, bounded

_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Records duplicate keys; YAML itself would silently take the last one."""

    duplicates: list[str]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE_TAG or not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in first:
                self.duplicates.append(f"line {line}: key {str(key)!r} is there twice, first in line {first[key]}")
            first.setdefault(key, line)
        return super().construct_mapping(node, deep)


def from_yaml(text: str) -> Any:
    """A YAML document; keys may not be there twice.

    Raises:
        ValueError, yaml.YAMLError: it is malformed, too large or nested too deeply.
    """
    try:
        return _from_yaml(text)
    except RecursionError:
        raise ValueError(NESTED) from None


def _from_yaml(text: str) -> Any:
    loader = _Loader(text)
    loader.duplicates = []
    data = _construct(loader)
    if loader.duplicates:
        raise ValueError("\n".join(loader.duplicates))
    return data


def _construct(loader: Any) -> Any:
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
