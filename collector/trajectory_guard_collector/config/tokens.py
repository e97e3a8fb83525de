"""The file of accepted bearer tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trajectory_guard.config import ConfigError
from trajectory_guard.text_files import read_text

SENDERS: Final = "receivers.otlp.auth"
HANDS: Final = "flags.auth"
READERS: Final = "flags.readers"


def read_tokens(file: Path, path: str = SENDERS) -> tuple[str, ...]:
    """The tokens in a file, one a line.

    Parameters:
        path: the section of the configuration that names the file.

    Raises:
        ConfigError: the file cannot be read or has no token in it.
    """
    try:
        lines = read_text(file).split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}.bearer_tokens_file: {file}: {error}") from None
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise ConfigError(f"{path}.bearer_tokens_file: {file}: no token in it")
    return tokens
