"""The binary in the wheel ``rotel``. It is linked to the shared library of its Python, which not every build has."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from functools import cache
from importlib import resources
from pathlib import Path


def rotel_agent() -> Path:
    """The program."""
    return Path(str(resources.files("rotel") / "rotel-agent"))


def rotel_environment() -> dict[str, str]:
    """Environment in which it finds Python's shared library where Python itself has it."""
    folders = [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))}


@cache
def why_rotel_cannot_run() -> str | None:
    """None if it can."""
    environment = {**os.environ, **rotel_environment()}
    asked = subprocess.run([rotel_agent(), "--version"], env=environment, capture_output=True, text=True, check=False)
    return f"rotel does not run here: {asked.stderr.strip()[:200]}" if asked.returncode else None
