"""Python processes in which packages are not installed: a folder of links to all the others stands for site-packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path, PurePath
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers import COLLECTOR_PACKAGE, PACKAGE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def site_with(folder: Path, extras: Collection[str]) -> Path:
    """A site-packages folder with what ``pip install '.[extras]'`` brings, and nothing else that is installed here."""
    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    found: dict[tuple[str, str], Distribution] = {}
    while wanted:
        requirement = Requirement(wanted.pop())
        for extra in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), extra)
            if key[0] == project["name"] and extra:
                wanted += project["optional-dependencies"][extra]
            elif key[0] != project["name"] and key not in found and _applies(requirement, ""):
                found[key] = distribution(requirement.name)
                lines = map(Requirement, found[key].requires or ())
                wanted += [str(one) for one in lines if _applies(one, extra)]
    owners = packages_distributions()
    for one in {one.name: one for one in found.values()}.values():
        for file in one.files or ():
            shared = len(set(owners.get(file.parts[0], ()))) > 1  # such as ``opentelemetry``
            path = file if shared or len(file.parts) == 1 else PurePath(file.parts[0])
            if ".." not in file.parts and file.suffix != ".pth" and not (folder / path).exists():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).symlink_to(Path(str(one.locate_file(path))))
    return folder


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


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
