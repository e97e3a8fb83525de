"""Shows the effective configuration to people, and checks the files it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.hidden import HIDDEN as REDACTED
from trajectory_guard.spending.sqlite import SQLiteStore, why_unopened
from trajectory_guard.spending.stores import LedgerError
from trajectory_guard_collector.config.checks import NOT_IN_THE_COLLECTOR, SHARED_TOKEN, without_secrets
from trajectory_guard_collector.config.directories import why_not_made, why_unusable
from trajectory_guard_collector.config.models import Auth, ClientTls, CollectorConfig, ServerTls
from trajectory_guard_collector.config.pem import pem_mistakes, why_unreadable
from trajectory_guard_collector.config.tokens import SENDERS, read_tokens


def to_yaml(config: BaseModel) -> str:
    """All keys with their values, except those of the guard that have no effect here; secrets, header values, and
    passwords and query values in URLs are hidden."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            name: _plain(one)
            for name, one in value  # a key that is absent and has no default stays absent: null would switch on
            if not (one is None and fields[name].default is None)
            and not (isinstance(value, GuardConfig) and name in NOT_IN_THE_COLLECTOR)
        }
    if isinstance(value, SecretStr):
        return REDACTED
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return without_secrets(value) if isinstance(value, str) else value


def unusable_files(config: CollectorConfig) -> list[str]:
    """Files that the configuration names and that cannot be used: one line each, with key and file."""
    return [*_unusable(config, ""), *shared_tokens(config.receivers.otlp.auth, config.flags.auth, SENDERS)]


def _unusable(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, (ClientTls, ServerTls)):
        yield from (f"{path}.{key}: {reason}" for key, reason in pem_mistakes(value))
    elif isinstance(value, Auth):
        yield from unusable_tokens(value, path)
    elif isinstance(value, (BaseModel, Mapping)):
        for name, one in value.items() if isinstance(value, Mapping) else value:
            yield from _unusable(one, f"{path}.{name}" if path else str(name))


def unusable_tokens(auth: Auth, path: str) -> Iterator[str]:
    """The reason why the file of tokens of a section cannot be used, if it cannot."""
    file = auth.bearer_tokens_file
    if file is None:
        return
    reason = why_unreadable(file)
    if reason is not None:
        yield f"{path}.bearer_tokens_file: {file}: {reason}"
        return
    try:
        read_tokens(Path(file), path)
    except ConfigError as error:
        yield str(error)


def shared_tokens(senders: Auth, people: Auth, place: str) -> Iterator[str]:
    """The mistake that a file makes a token of senders one of those that raise and clear flags."""
    if people.bearer_tokens_file is None and senders.bearer_tokens_file is None:
        return
    try:
        shared = set(_tokens(senders)) & set(_tokens(people))
    except ConfigError:
        return  # see ``unusable_tokens``
    if shared:
        yield f"flags.auth: {SHARED_TOKEN.format(place=place)}"


def _tokens(auth: Auth) -> Iterator[str]:
    yield from auth.fixed
    if auth.bearer_tokens_file is not None:
        yield from read_tokens(Path(auth.bearer_tokens_file))


def storage_mistakes(config: CollectorConfig) -> list[str]:
    """The reasons why the directory of the queue or the file of the ledger cannot be used. Leaves no files behind."""
    return [reason for reason in (_queue_mistake(config.queue.storage), _ledger_mistake(config.guard)) if reason]


def _ledger_mistake(guard: GuardConfig) -> str | None:
    if guard.spending_file is None:
        return None
    file = Path(guard.spending_file)
    if not file.exists():
        reason = why_unopened(file) or why_unusable(file.parent)
        return f"guard.spending_file: {file}: {reason}" if reason is not None else None
    try:
        SQLiteStore(file).close()
    except LedgerError as error:  # names the file
        return f"guard.spending_file: {error}"
    return None


def _queue_mistake(storage: str | None) -> str | None:
    reason = why_unusable(Path(storage)) if storage is not None else None
    return f"queue.storage: {storage}: {reason}" if reason is not None else None


def unusable_storage(config: CollectorConfig) -> str | None:
    """Create the directory of the queue if it is missing. Returns the reason why it cannot be used, None if it can.

    It is for this user only, since it holds requests of all senders.
    """
    storage = config.queue.storage
    reason = why_not_made(Path(storage)) if storage is not None else None
    return f"queue.storage: {storage}: {reason}" if reason is not None else None
