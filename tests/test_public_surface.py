"""The names that ``import trajectory_guard`` offers, and its messages when an extra is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import trajectory_guard
import trajectory_guard_collector
from tests import docs_tables, public_interface
from tests.absent import python, site_without
from tests.helpers import PACKAGE

NEEDS_LANGGRAPH = [
    "AgentState", "BudgetGate", "BudgetText", "CheaperModel", "Ending", "GraphShapeError", "NudgeRole",
    "TrajectoryGuardMiddleware", "TrajectoryGuardNode", "apply_guard", "arefuse_pointless",
    "guard_compiled", "guarded_ainvoke", "guarded_astream", "guarded_invoke", "guarded_stream", "refuse_pointless",
]  # fmt: skip


def test_nothing_is_public_that_is_not_listed() -> None:
    code = "import trajectory_guard as t, types; print([n for n, v in vars(t).items() if n[0] != '_' and n not in t.__all__ and not isinstance(v, types.ModuleType)])"
    printed = run_python(code).strip()
    assert set(eval(printed)) <= {"annotations", "import_module", "TYPE_CHECKING", "Any", "Final", "find_spec"}


def test_the_list_of_public_names_has_no_doubles() -> None:
    assert len(set(trajectory_guard.__all__)) == len(trajectory_guard.__all__)


def test_star_import_gives_exactly_the_public_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from trajectory_guard import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(trajectory_guard.__all__)


def test_star_import_without_langgraph_gives_all_that_needs_no_extra(tmp_path: Path) -> None:
    site = site_without(tmp_path / "site", ["langchain", "langchain_core", "langgraph"])
    code = "from trajectory_guard import *; import json; print(json.dumps([one for one in dir()]))"
    done = python(site, ["-c", code])
    assert done.returncode == 0, done.stderr
    given = set(json.loads(done.stdout)) & {*trajectory_guard.__all__}
    failing = "\n".join(
        [
            "import trajectory_guard, json, sys",
            "def fails(name):",
            "    try: getattr(trajectory_guard, name)",
            "    except ImportError as error: return \"install the extra 'langgraph'\" in str(error)",
            "print(json.dumps([one for one in json.loads(sys.argv[1]) if fails(one)]))",
        ]
    )
    done = python(site, ["-c", failing, json.dumps(trajectory_guard.__all__)])
    assert {*trajectory_guard.__all__} - given == set(json.loads(done.stdout)), done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'aply_guard'"):
        _ = trajectory_guard.aply_guard  # type: ignore[attr-defined]


def test_the_version_is_a_version() -> None:
    assert trajectory_guard.__version__.count(".") == 2


def test_both_packages_are_typed() -> None:
    for package in (trajectory_guard, trajectory_guard_collector):
        assert Path(str(package.__file__)).with_name("py.typed").exists(), package.__name__


def run_python(code: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_without_langgraph_each_gate_names_the_extra_to_install() -> None:
    code = (
        BLOCK.format(blocked=["langgraph", "langchain", "langchain_core"])
        + f"""
import trajectory_guard
for name in {NEEDS_LANGGRAPH!r}:
    try:
        getattr(trajectory_guard, name)
    except ImportError as error:
        print(name, "|", error)
    else:
        print(name, "| imported")
"""
    )
    reported = dict(line.split(" | ", 1) for line in run_python(code).splitlines())
    assert set(reported) == set(NEEDS_LANGGRAPH)
    wrong = {
        name: text
        for name, text in reported.items()
        if "install the extra 'langgraph' (pip install '.[langgraph]' in a clone)" not in text
    }
    assert wrong == {}


def test_without_any_extra_the_processor_works() -> None:
    code = (
        BLOCK.format(
            blocked=["langgraph", "langchain", "langchain_core", "langfuse", "rich", "yaml", "genai_prices", "numpy"]
        )
        + """
from opentelemetry.sdk.trace import TracerProvider
from trajectory_guard import Level, instrument
provider = TracerProvider()
processor = instrument(provider)
for n in range(3):
    with provider.get_tracer("app").start_as_current_span("execute_tool x", attributes={
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "gen_ai.tool.call.arguments": "{}",
        "gen_ai.tool.call.result": "Closed on Mondays. Open from Tuesday to Sunday, nine to five.", "gen_ai.conversation.id": "c"}):
        pass
assert processor.board.read("c").level is Level.NUDGE
print("nudged")
"""
    )
    assert run_python(code).strip() == "nudged"


def test_without_pyyaml_a_yaml_file_names_what_to_install(tmp_path: Any) -> None:
    file = tmp_path / "guard.yaml"
    file.write_text("decay: 0.5", encoding="utf-8")
    code = (
        BLOCK.format(blocked=["yaml"])
        + f"""
from trajectory_guard import ConfigError, GuardConfig
try:
    GuardConfig.from_file({str(file)!r})
except ConfigError as error:
    print(error)
"""
    )
    assert "pip install pyyaml" in run_python(code)


# --- what is public ------------------------------------------------------------------------------------------

ROOT = PACKAGE.parents[1]
PAGES = [ROOT / "README.md", ROOT / "processor" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IMPORTS = re.compile(r"^ *from (trajectory_guard[\w.]*) import ([\w, ]+)", re.MULTILINE)


@pytest.mark.newest
def test_the_interface_is_the_one_that_is_stated() -> None:
    stated = public_interface.STATED.read_text(encoding="utf-8").splitlines()
    assert list(public_interface.lines()) == stated, "python -m tests.public_interface, and a line in CHANGELOG.md"


def test_every_public_name_is_on_the_page_about_them() -> None:
    listed = [name for names in docs_tables.THEMES.values() for name in names.split()]
    assert sorted(listed) == sorted(trajectory_guard.__all__)


def test_readers_are_told_to_import_public_names_only() -> None:
    page = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
    submodules = {
        (module, name.strip())
        for module, names in re.findall(r"`from (trajectory_guard\.[\w.]+) import ([\w, ]+)`", page)
        for name in names.split(",")
    }
    for file in (*PAGES, *sorted((ROOT / "examples").glob("*.py"))):
        for module, names in IMPORTS.findall(file.read_text(encoding="utf-8")):
            for name in filter(None, (one.split(" as ")[0].strip() for one in names.split(","))):
                public = (
                    name in trajectory_guard.__all__ if module == "trajectory_guard" else (module, name) in submodules
                )
                assert public, f"{file.name}: {module}.{name}"
                try:
                    assert hasattr(import_module(module), name)
                except ImportError as error:
                    if "install the extra" not in str(error):
                        raise


# --- the cost of an import -----------------------------------------------------------------------------------


def loaded(code: str) -> set[str]:
    """The modules that a program loads."""
    return set(run_python(f"{code}\nimport sys\nprint(*sys.modules)").split())


def test_the_package_alone_loads_neither_pydantic_nor_the_sdk_nor_the_engine() -> None:
    found = loaded("import trajectory_guard; trajectory_guard.__version__; dir(trajectory_guard)")
    assert {name for name in found if name.startswith("trajectory_guard")} == {
        "trajectory_guard", "trajectory_guard.version",
    }  # fmt: skip
    assert not {"pydantic", "opentelemetry.sdk", "orjson"} & found


@pytest.mark.parametrize("name", ["GuardConfig", "ConfigError", "Level", "StepRecord", "LoopDetectedError"])
def test_a_name_that_is_no_instrumentation_does_not_load_the_sdk(name: str) -> None:
    found = loaded(f"from trajectory_guard import {name}")
    assert not {one for one in found if one.startswith(("opentelemetry.sdk", "trajectory_guard.otel"))}


def test_instrument_loads_what_every_application_needs_and_no_more() -> None:
    found = loaded("from trajectory_guard import instrument; instrument()")
    unused = {"asyncio", "http.client", "langchain_core", "langfuse", "langgraph", "numpy", "sqlite3", "ssl", "yaml"}
    # what others look up in sys.modules is loaded here, where an extra needs it, and not by a thread (``load_here``)
    needed = "opentelemetry.sdk.trace, opentelemetry.metrics, pydantic, orjson, httpx, httpx2, numpy, PIL.Image"
    assert not unused & (found - loaded(f"import {needed}"))
