"""The code on the first page runs as it is printed, and each example as a user would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.absent import python, site_with
from tests.helpers import TESTS

_README = TESTS.parent / "README.md"
_EXAMPLES = [
    pytest.param(script, id=script.stem, marks=pytest.mark.smoke if script.stem == "basic_usage" else ())
    for script in sorted((TESTS.parent / "examples").glob("*.py"))
]
_AGENT = """
from langchain_core.tools import tool
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

@tool
def search(query: str) -> str:
    "Search."
    return "No results"

tools = [search]
model = ScriptedChatModel(policy=lambda messages, turn: call("search", {"query": "returns"}, turn, "Again."))

def call_model(state):
    return {"messages": [model.invoke(state["messages"])]}

"""
_RUN = """
for message in graph.invoke({"messages": [("user", "Find it.")]})["messages"]:
    print(message.type, message.content)
"""


def _run(script: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TRAJECTORY_GUARD", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_start_nudges_and_stops(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", _README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    script = tmp_path / "quick_start.py"
    script.write_text(_AGENT + code.group(1) + _RUN, encoding="utf-8")
    lines = _run(script).splitlines()
    assert sum(line.startswith("tool ") for line in lines) == 5
    assert sum("[Trajectory guard]" in line for line in lines) == 1
    assert "could not get any further" in lines[-1]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of packages for each list of extras."""

    @cache
    def site(extras: str) -> Path:
        return site_with(tmp_path_factory.mktemp("site"), [extra for extra in extras.split(",") if extra])

    return site


@pytest.mark.parametrize("script", _EXAMPLES)
def test_an_example_shows_the_guard_at_work_with_what_it_says_to_install(
    script: Path, sites: Callable[[str], Path]
) -> None:
    said = re.search(r"pip install '\.\[([\w,]+)\]'|needs no extra", script.read_text(encoding="utf-8"))
    assert said is not None, "it does not say which extras it needs"
    done = python(sites(said[1] or ""), ["-W", "always::ResourceWarning", str(script)])
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    assert (
        "[Trajectory guard]" in done.stdout
        or "going in circles" in done.stdout
        or "could not get any further" in done.stdout
        or "the budget for this is used up" in done.stdout
    )
