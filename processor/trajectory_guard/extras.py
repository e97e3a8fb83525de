"""The error message for a missing package of an extra."""

from __future__ import annotations


def install(extra: str) -> str:
    """How to install an extra. It names no distribution: anybody may own that name on an index.

    >>> install("report")
    "install the extra 'report' (pip install '.[report]' in a clone)"
    """
    return f"install the extra {extra!r} (pip install '.[{extra}]' in a clone)"


def missing(what: str, error: ImportError, extra: str) -> str:
    """One line: what cannot be done, which package it needs, and how to get that."""
    why = f"needs {error.name}" if error.name else f"cannot be loaded ({error})"
    return f"{what} {why}: {install(extra)}"
