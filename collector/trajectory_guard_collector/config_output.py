"""The effective configuration for people to read, and the files it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, SecretStr

from trajectory_guard_collector.config import CollectorConfig
from trajectory_guard_collector.config_checks import without_userinfo

REDACTED: Final = "[REDACTED]"
_FILES: Final = ("cert_file", "key_file", "ca_file", "client_ca_file", "bearer_tokens_file", "calibration")


def to_yaml(config: CollectorConfig) -> str:
    """All keys with their values; secrets, header values and passwords in URLs are hidden."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            name: _plain(one)
            for name, one in value  # a key that is absent and has no default stays absent: null would switch on
            if not (one is None and fields[name].default is None)
        }
    if isinstance(value, SecretStr):
        return REDACTED
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return without_userinfo(value) if isinstance(value, str) else value


def unreadable_files(config: CollectorConfig) -> list[str]:
    """Files that the configuration names and that cannot be read, one line each, with the key."""
    return [
        f"{path}: {file}: cannot be read: {reason}"
        for path, file in _named_files(config, "")
        if (reason := _why_unreadable(file)) is not None
    ]


def _named_files(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, (BaseModel, Mapping)):
        for name, one in value.items() if isinstance(value, Mapping) else value:
            inner = f"{path}.{name}" if path else str(name)
            if name in _FILES and isinstance(one, str):
                yield inner, one
            else:
                yield from _named_files(one, inner)


def _why_unreadable(file: str) -> str | None:
    try:
        with Path(file).open("rb"):
            return None
    except OSError as error:
        return error.strerror or str(error)


def unusable_storage(config: CollectorConfig) -> str | None:
    """Make the directory of the queue if it is missing; why it cannot be used, None if it can."""
    if config.queue.storage is None:
        return None
    try:
        Path(config.queue.storage).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"queue.storage: {config.queue.storage}: cannot be made: {error.strerror or error}"
    return None
