"""The file of accepted bearer tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trajectory_guard.config import ConfigError

_KEY: Final = "receivers.otlp.auth.bearer_tokens_file"


def read_tokens(file: Path) -> tuple[str, ...]:
    """The tokens in a file, one a line.

    Raises:
        ConfigError: the file cannot be read or has no token in it.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{_KEY}: {file}: {error}") from None
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise ConfigError(f"{_KEY}: {file}: no token in it")
    return tokens
