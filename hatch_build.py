"""The compiled build: where TRAJECTORY_GUARD_COMPILE=1 is set, a wheel holds the hot path as C besides the sources.

mypyc compiles the modules of ``COMPILED`` as they are. Python prefers an extension module to the source file beside it,
so nothing else changes. Without the variable, and in editable installs, the package is pure Python and needs no
compiler.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path("processor/trajectory_guard")
COMPILED = ("core", "dialects", "spans")
INTERPRETED = frozenset({
    "core/cursor/boundary.py",  # core/cursor/plain_form.py reads the attributes of its dataclasses with vars()
    "core/build.py",
    "core/cursor/cursor.py",  # reads its own with vars()
    "core/cursor/plain_form.py",
    "core/cursor/report.py",
    "core/demonstration.py",  # for doctests
    "core/similarity/calibration.py",  # compares annotations
    "core/tracking/tables.py",  # a subclass of OrderedDict, of which mypyc makes a broken class
    "dialects/span.py",  # a subclass of str, which mypyc refuses
    "dialects/table.py",  # one of tuple
    "spans/identity.py",  # one of a NamedTuple
})  # fmt: skip
"""Modules that stay Python: mypyc cannot compile them, or there is nothing to gain."""
LIBRARY = "trajectory_guard"
"""mypyc puts all code into one library of this name, followed by ``__mypyc``."""


def compiled_modules() -> Iterator[Path]:
    """The source files of the modules to compile."""
    for folder in COMPILED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).as_posix() not in INTERPRETED:
                yield path


class CompiledBuild(BuildHookInterface[Any]):
    """Adds the extension modules to a wheel."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return ["mypy[mypyc]>=2.4"] if self._wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling which files to include; ``version`` is ``standard`` or ``editable``."""
        if version == "editable" or not self._wanted():
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        compile_into(folder, [str(path) for path in compiled_modules()])
        for path in folder.glob("lib/**/*.*"):
            build_data["force_include"][str(path)] = path.relative_to(folder / "lib").as_posix()
        build_data.update(infer_tag=True, pure_python=False)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what only the build needed."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    @staticmethod
    def _wanted() -> bool:
        return os.environ.get("TRAJECTORY_GUARD_COMPILE") == "1"


def compile_into(folder: Path, modules: list[str]) -> None:
    """Compile modules into ``folder / "lib"``. Types are checked by ``make lint``, with the packages that we import."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        f"--cache-dir={folder / 'cache'}",
    ]
    extensions = mypycify(
        [*options, *modules], opt_level="2", debug_level="0", group_name=LIBRARY, target_dir=str(folder),
        multi_file=sys.platform == "win32",  # a single file of 50 MB is too much for its compiler
    )  # fmt: skip
    build = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp, build.parallel = str(folder / "lib"), str(folder), True
    build.ensure_finalized()
    build.run()
