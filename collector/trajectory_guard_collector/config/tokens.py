"""The file of accepted bearer tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trajectory_guard.config import ConfigError
from trajectory_guard.text_files import read_text

SENDERS: Final = "receivers.otlp.auth"
HANDS: Final = "flags.auth"
READERS: Final = "flags.readers"


NO_TOKEN: Final = "a token must be printable ASCII without spaces, and not empty"


def may_be_token(text: str) -> bool:
    """Whether a text can be sent as a bearer token."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def read_tokens(file: Path, path: str = SENDERS) -> tuple[str, ...]:
    """The tokens in a file, one a line; lines that begin with ``#`` are comments.

    Parameters:
        path: the section of the configuration that names the file.

    Raises:
        ConfigError: the file cannot be read, has no token in it, or a line that cannot be one.
    """
    try:
        lines = read_text(file).split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}.bearer_tokens_file: {file}: {error}") from None
    tokens = {at: text for at, line in enumerate(lines, 1) if (text := line.strip()) and not text.startswith("#")}
    if not tokens:
        raise ConfigError(f"{path}.bearer_tokens_file: {file}: no token in it")
    wrong = [at for at, text in tokens.items() if not may_be_token(text)]
    if wrong:
        raise ConfigError(f"{path}.bearer_tokens_file: {file}, line {wrong[0]}: {NO_TOKEN}")
    return tuple(tokens.values())
