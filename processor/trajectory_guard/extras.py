"""The error message for a package of an extra that is missing, or has another version than this one knows."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version


def install(extra: str) -> str:
    """How to install an extra. It names no distribution: anybody may own that name on an index.

    >>> install("report")
    "install the extra 'report' (pip install '.[report]' in a clone)"
    """
    return f"install the extra {extra!r} (pip install '.[{extra}]' in a clone)"


def missing(what: str, error: ImportError, extra: str, *, fits: str = "a version that fits") -> str:
    """One line: what cannot be done, which package it needs, and how to get that.

    A package that is installed, and lacks a module or a name, has a version that this one does not know: ``fits`` names
    those that it knows.
    """
    if found := _installed(error):
        return f"{what} does not know {found} ({error}): {install(extra)} for {fits}"
    why = f"needs {_package(error.name)}" if error.name else f"cannot be loaded ({error})"
    return f"{what} {why}: {install(extra)}"


def _package(module: str) -> str:
    """The module, or its package where the name does not say which one that is."""
    return "protobuf" if module == "google" or module.startswith("google.protobuf") else module


def _installed(error: ImportError) -> str:
    """Distribution and version of the package that lacks a module or a name; empty if the package itself is missing."""
    package, _, module = (error.name or "").partition(".")
    if not package or (isinstance(error, ModuleNotFoundError) and not module):
        return ""
    if sys.modules.get(package, ...) is None:  # blocked, which is as good as missing
        return ""
    try:
        return f"{package.replace('_', '-')} {version(package)}"
    except PackageNotFoundError:
        return ""
