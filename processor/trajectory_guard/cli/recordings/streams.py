"""Opening files: decompression detected by content, and streams that end instead of raising in the middle."""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib
import io
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from trajectory_guard.extras import install

BUFFER_BYTES: Final = 256 * 1024
HEAD_BYTES: Final = 256
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CUT_OFF: Final = "the compressed data ends early: truncated"
BLANK: Final = b"\xef\xbb\xbf \t\r\n"


class MissingLibraryError(ValueError):
    """Raised for input that needs a library that is not installed."""


class _Counted(io.RawIOBase):
    """Reports the bytes that pass."""

    def __init__(self, inner: Any, progress: Callable[[int], None]) -> None:
        self._inner, self._progress = inner, progress
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._inner.readinto(buffer) or 0
        self.count += count
        self._progress(count)
        return count


class Source(io.RawIOBase):
    """The decompressed bytes of one file. An error ends the stream and is kept in ``failure``."""

    def __init__(self, path: str, progress: Callable[[int], None]) -> None:
        """Open ``path`` (``-`` is standard input); raises OSError, and MissingLibraryError for its compression."""
        self.failure: str | None = None
        self._given = path == "-"
        self._file: Any = None  # a source that could not be opened is closed, too, once it is garbage
        self._file = _standard_input() if self._given else Path(path).open("rb", buffering=0)  # noqa: SIM115
        self._counted = _Counted(self._file, progress)
        stream = io.BufferedReader(self._counted, BUFFER_BYTES)
        self._is_zstd = stream.peek(4)[:4] == ZSTD_MAGIC
        self._inner: Any = _decompressed(stream)
        self._ahead = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def head(self) -> bytes:
        """The first ``HEAD_BYTES`` bytes, without consuming them."""
        while len(self._ahead) < HEAD_BYTES:
            more = self._read(HEAD_BYTES)
            if not more:
                if not self._ahead and self._is_zstd and not 9 <= self._counted.count <= 18:  # the sizes of nothing
                    self.failure = self.failure or _CUT_OFF  # the package zstandard ends without an error
                break
            self._ahead += more
        return self._ahead[:HEAD_BYTES]

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; 0 at the end, which may be where something broke."""
        data = self._ahead[: len(buffer)]
        self._ahead = self._ahead[len(data) :]
        data = data or self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        if self.failure is not None:
            return b""
        try:
            return cast("bytes", self._inner.read1(size))
        except EOFError:
            self.failure = _CUT_OFF
        except (OSError, zlib.error) as error:
            self.failure = getattr(error, "strerror", None) or str(error) or type(error).__name__
        except _zstd_error() as error:
            self.failure = f"broken zstd data: {error}"
        return b""

    def close(self) -> None:
        """Close the file, not standard input."""
        if not self.closed and not self._given and self._file is not None:
            self._file.close()
        super().close()


def _standard_input() -> Any:
    if sys.stdin is None:  # `<&-`
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer


def _decompressed(stream: Any) -> Any:
    magic = stream.peek(4)[:4]
    if magic[:2] == GZIP_MAGIC:
        return gzip.GzipFile(fileobj=stream)
    return io.BufferedReader(_zstd_reader(stream)) if magic == ZSTD_MAGIC else stream


def file_bytes(path: str) -> int:
    """Size of a file, 0 if it is not known."""
    try:
        return 0 if path == "-" else Path(path).stat().st_size
    except OSError:
        return 0


# --- zstd: Python's own from 3.14 on, else the zstandard package ----------------------------------------------


def _zstd_module() -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd")
    with contextlib.suppress(ImportError):
        return importlib.import_module("zstandard")
    return None


def _zstd_error() -> type[Exception]:
    module = sys.modules.get("compression.zstd") or sys.modules.get("zstandard")
    return cast("type[Exception]", module.ZstdError) if module is not None else EOFError


def _zstd() -> Any:
    module = _zstd_module()
    if module is None:
        raise MissingLibraryError(f"compressed with zstd; reading it needs zstandard: {install('cli')}")
    return module


def _zstd_reader(stream: Any) -> Any:
    module = _zstd()
    if hasattr(module, "ZstdFile"):
        return module.ZstdFile(stream)
    return module.ZstdDecompressor().stream_reader(stream, read_across_frames=True)


def zstd_decompress(data: bytes, limit: int) -> bytes:
    """One compressed message; raises ValueError if it is broken or larger than ``limit`` bytes."""
    try:
        plain = cast("bytes", _zstd_reader(io.BytesIO(data)).read(limit + 1))
    except (_zstd_error(), EOFError) as error:
        raise ValueError(f"broken zstd data: {error}") from None
    if len(plain) > limit:
        raise ValueError(f"a message of more than {limit} bytes")
    return plain


# --- what is in it -------------------------------------------------------------------------------------------


def is_utf16(head: bytes) -> bool:
    """Whether a file starts with the byte order mark of UTF-16, as PowerShell's ``>`` writes it."""
    return head[:2] in _UTF16_MARKS


def is_binary(head: bytes) -> bool:
    """Whether the bytes cannot be text. Every OTLP message has tags or lengths among the control characters."""
    return _CONTROL.search(head) is not None


def starts_json(head: bytes) -> bool:
    """Whether the first character that is not blank opens a JSON object or list."""
    return head.lstrip(BLANK)[:1] in (b"{", b"[")
