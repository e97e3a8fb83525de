"""Python processes in which packages are not installed: a folder of links to all the others stands for site-packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.helpers import COLLECTOR_PACKAGE, PACKAGE

_RUN = """
import contextlib, importlib, io, json, sys, traceback
found = []
for module, argv in json.loads(sys.argv[1]):
    out, err, failure = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = importlib.import_module(module).main(argv)
        except SystemExit as error:
            status = error.code
        except BaseException:
            status, failure = None, traceback.format_exc()
    found.append({"status": status, "out": out.getvalue(), "err": err.getvalue(), "failure": failure})
sys.__stdout__.write("\\n" + json.dumps(found))
"""


def site_without(folder: Path, absent: Collection[str]) -> Path:
    """A site-packages folder without some modules, dotted names included, and without their metadata."""
    _link(Path(sysconfig.get_path("purelib")), folder, absent, "")
    return folder


def _link(source: Path, target: Path, absent: Collection[str], prefix: str) -> None:
    target.mkdir()
    for entry in source.iterdir():
        name = prefix + entry.name.partition(".")[0]
        if name in absent or entry.suffix == ".pth" or entry.name.startswith("trajectory_guard"):
            continue
        distribution = entry.name.partition("-")[0].lower()
        if entry.suffix == ".dist-info" and distribution in {one.replace(".", "_").lower() for one in absent}:
            continue
        if any(one.startswith(f"{name}.") for one in absent):
            _link(entry, target / entry.name, absent, f"{name}.")
        else:
            (target / entry.name).symlink_to(entry)


def python(site: Path, arguments: Sequence[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python with that folder as its only packages beside ours."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "TRAJECTORY_GUARD", "PYTHON"))
    }
    path = os.pathsep.join([str(PACKAGE.parent), str(COLLECTOR_PACKAGE.parent), str(site)])
    return subprocess.run(
        [sys.executable, "-S", *arguments], env={**kept, "PYTHONPATH": path, **environ}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def run_commands(site: Path, commands: Sequence[tuple[str, Sequence[str]]], **environ: str) -> list[dict[str, Any]]:
    """Run commands, as (module with ``main``, arguments), one after the other in one process.

    Returns:
        For each: exit status, output, error output, and the traceback of an exception that came out of it.
    """
    done = python(site, ["-c", _RUN, json.dumps(commands)], **environ)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.rpartition("\n")[2])
    return found
