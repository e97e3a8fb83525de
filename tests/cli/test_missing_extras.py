"""Every command where packages of an extra are not installed: one line on standard error and status 2, or it works.

Status 1 means that a loop was found, which a traceback must not say.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.absent import python, run_commands, site_without
from tests.cli.helpers_cli import write
from tests.helpers import COLLECTOR_PACKAGE, PACKAGE, TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GUARD, COLLECTOR = "trajectory_guard.cli.main", "trajectory_guard_collector.cli"
ROOT = TESTS.parent
LOOP = json.dumps({"id": "a", "steps": [{"tool": "search", "args": {}, "result": "none"}] * 6}) + "\n"
ABSENT = {
    "langgraph": {"langgraph", "langchain", "langchain_core"},
    "semantic": {"fastembed", "numpy"},
    "cli": {"ijson", "opentelemetry.proto", "rich", "zstandard"},
    "report": {"jinja2", "matplotlib", "genai_prices"},
    "collector": {"yaml", "google.protobuf", "grpc", "starlette"},
    "instrumentations": {
        "opentelemetry.instrumentation.langchain",
        "openinference",
        "opentelemetry.instrumentation.genai",
    },
}
"""The modules that are absent at once, by extra."""
NEEDED = {
    ("demo", "langgraph"): ("langgraph", "demo"),
    ("demo", "cli"): ("rich", "demo"),
    ("demo", "instrumentations"): ("opentelemetry.instrumentation.langchain", "demo"),
    ("report", "report"): ("jinja2|matplotlib", "report"),
    ("report", "semantic"): ("numpy", "report"),
    ("extract protobuf", "cli"): ("opentelemetry.proto", "cli"),
    ("extract protobuf", "collector"): ("needs protobuf:", "cli"),
    ("extract zstd", "cli"): ("zstandard", "cli"),
    ("replay yaml", "collector"): ("PyYAML", "pyyaml"),
    ("validate", "collector"): ("yaml", "collector"),
    ("print-config", "collector"): ("yaml", "collector"),
    ("run", "collector"): ("yaml", "collector"),
    **{(command, extra): ("fastembed", "semantic") for extra in ABSENT for command in ("compare model", "calibrate")},
}
"""The module and the extra that a command names where the extra is absent; all other commands work."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str]]]:
    zstandard = pytest.importorskip("zstandard")
    folder = tmp_path_factory.mktemp("input")
    lines = write(folder / "runs.jsonl", LOOP)
    packed, spans, yaml, pairs = (folder / name for name in ("runs.zst", "spans.pb", "guard.yaml", "pairs.jsonl"))
    packed.write_bytes(zstandard.compress(Path(lines).read_bytes()))
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"1" * 16, span_id=b"1" * 8, name="chat")
    spans.write_bytes(request.SerializeToString())
    yaml.write_text("decay: 0.25\n", encoding="utf-8")
    pairs.write_text('{"tool": "s", "a_args": {"q": "refunds"}, "b_args": {"q": "returns"}}\n', encoding="utf-8")
    model = folder / "model"
    model.mkdir()
    for name in ("model.onnx", "tokenizer.json", "tokenizer_config.json"):
        (model / name).write_text("{}", encoding="utf-8")
    return {
        "extract": (GUARD, ["extract", str(lines)]),
        "extract protobuf": (GUARD, ["extract", str(spans)]),
        "extract zstd": (GUARD, ["extract", str(packed)]),
        "replay": (GUARD, ["replay", str(lines)]),
        "replay json": (GUARD, ["replay", str(lines), "--json", "--set", f"model_path={model}"]),
        "replay yaml": (GUARD, ["replay", str(lines), "--compare", "default", str(yaml)]),
        "compare": (GUARD, ["compare", str(pairs)]),
        "compare model": (GUARD, ["compare", str(pairs), "--model", str(model)]),
        "calibrate": (GUARD, ["calibrate", "--model", str(model)]),
        "report": (GUARD, ["report", str(lines), "-o", str(folder / "out.html")]),
        "doctor": (GUARD, ["doctor", str(lines)]),
        "demo": (GUARD, ["demo", "--svg", str(folder / "out.svg")]),
        "validate": (COLLECTOR, ["validate"]),
        "print-config": (COLLECTOR, ["print-config"]),
        "components": (COLLECTOR, ["components"]),
    }


@pytest.mark.skipif("fastembed" in sys.modules, reason="fastembed is here")
@pytest.mark.parametrize("extra", ABSENT)
def test_every_command_without_an_extra(extra: str, commands: dict[str, tuple[str, list[str]]], tmp_path: Path) -> None:
    wanted = dict(commands)
    if ("run", extra) in NEEDED:  # it ends at once
        wanted["run"] = (COLLECTOR, ["run"])
        del wanted["demo"]  # LangChain's other packages need some of the collector's
    site = site_without(tmp_path / "site", ABSENT[extra] | {"fastembed"})
    for name, found in zip(wanted, run_commands(site, list(wanted.values())), strict=True):
        assert found["failure"] is None, (name, found["failure"])
        needed = NEEDED.get((name, extra))
        if needed is None:
            assert (name, found["status"]) == (name, 0), found["err"]
            continue
        module, hint = needed
        assert (name, found["status"]) == (name, 2), found
        assert re.search(module, found["err"]), found["err"]
        assert hint in found["err"]
        assert found["err"].count("\n") == 1


@pytest.mark.parametrize(
    ("extra", "module"), [("instrumentations", "opentelemetry.instrumentation.langchain"), ("langgraph", "langchain")]
)
def test_the_example_of_budgets_names_its_extra(extra: str, module: str, tmp_path: Path) -> None:
    done = python(site_without(tmp_path / "site", ABSENT[extra]), [str(ROOT / "examples" / "budgets.py")])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"this example needs {module}: install the extra 'demo' (pip install '.[demo]' in a clone)\n"


@pytest.mark.parametrize(
    "module",
    ["anyio", "grpc", "google.rpc", "httptools", "httpx", "opentelemetry.proto", "prometheus_client", "psutil",
     "starlette", "uvicorn"],
)  # fmt: skip
def test_the_collector_does_not_start_without_a_package_it_needs(module: str, tmp_path: Path) -> None:
    site = site_without(tmp_path / "site", {module})
    (found,) = run_commands(site, [(COLLECTOR, ["run"])])
    assert (found["status"], found["failure"]) == (2, None)
    assert found["err"].count("\n") == 1
    assert f"needs {module}" in found["err"]
    assert "install the extra 'collector'" in found["err"]


def test_the_absent_really_are(tmp_path: Path) -> None:
    site = site_without(tmp_path / "site", {"rich", "opentelemetry.proto"})
    done = python(site, ["-c", "import importlib.util as u, importlib.metadata as m\n"
        "print(u.find_spec('rich'), u.find_spec('opentelemetry.proto'), u.find_spec('opentelemetry.sdk') is None)\n"
        "print('rich' in {one.metadata['Name'] for one in m.distributions()})"])  # fmt: skip
    assert done.stdout.split() == ["None", "None", "False", "False"]


# --- what messages propose ------------------------------------------------------------------------------------


def _sources() -> Iterator[Path]:
    for folder in (PACKAGE, COLLECTOR_PACKAGE, ROOT / "examples", ROOT / "dashboards", ROOT / "docs"):
        yield from (path for path in folder.rglob("*") if path.suffix in (".py", ".md", ".yaml", ".html", ".j2"))
    yield from ROOT.glob("*.md")
    yield from (ROOT / name / "README.md" for name in ("processor", "collector"))


def test_nothing_proposes_to_install_a_name_that_is_on_no_index() -> None:
    proposed = re.compile(
        r"trajectory[-_]guard\[\w|(?:pip|uv pip|uv) (?:install|add) (?:-U )?['\"]?trajectory[-_]guard\b"
    )
    found = [f"{path}: {line.strip()}" for path in _sources() for line in path.read_text("utf-8").splitlines()
             if proposed.search(line)]  # fmt: skip
    assert found == []


def test_every_extra_that_a_message_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    calls = re.compile(r"""(?:\binstall\(|missing\([^)]*, )["'](\w+)["']\)|pip install '\.\[([\w,]+)\]'""")
    named: set[str] = set()
    for path in _sources():
        for match in calls.finditer(path.read_text("utf-8")):
            named.update((match[1] or match[2]).split(","))
    assert {"semantic", "report", "langgraph", "collector", "cli", "demo"} <= named
    assert named <= set(extras)


# --- anything else --------------------------------------------------------------------------------------------


def test_an_error_nobody_thought_of_is_one_line_and_not_the_status_of_a_loop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from trajectory_guard.cli.doctor import run as doctor
    from trajectory_guard.cli.main import main

    def broken(*_: Any) -> Any:
        raise RuntimeError("odd\nindeed")

    monkeypatch.setattr(doctor, "environment_findings", broken)
    assert main(["doctor"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("trajectory-guard: doctor: unexpected RuntimeError: odd indeed")
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """In a process of its own: instrumentations do not undo everything when they are switched off."""
    pytest.importorskip("rich")
    target = tmp_path / "no" / "such" / "folder.svg"
    command = [sys.executable, "-m", "trajectory_guard.cli.main", "demo", "--svg", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"{target}: No such file or directory" in done.stderr
