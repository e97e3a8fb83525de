"""The command as a process: pipes, signals, encodings, progress, and what a base install can do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.helpers_cli import Command, run_line, write
from tests.helpers import PACKAGE
from trajectory_guard import __version__
from trajectory_guard.cli import main as entry
from trajectory_guard.cli import progress
from trajectory_guard.cli.recordings.diagnostics import Diagnostics

PACKAGES = ("trajectory_guard", "trajectory_guard_collector")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}


def process(*arguments: object, code: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    start = f"import sys; sys.argv[0] = 'trajectory-guard'; {code}\nfrom trajectory_guard.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", start, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env={**ENVIRONMENT, **environment}, timeout=60, check=False)


def test_version_and_help(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command("--version")
    assert stopped.value.code == 0
    assert __version__ in capsys.readouterr().out
    ran = command()
    assert ran.status == 2
    assert "replay" in ran.out


@pytest.mark.parametrize("value", ["0", "-1", "much", "nan"])
def test_limits_are_checked(command: Command, value: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        command("replay", "x", f"--max-trace-mb={value}")
    assert stopped.value.code == 2


def test_a_limit_that_is_none_is_named_with_its_bounds(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("replay", "x", "--max-trace-mb=much")
    assert "expected a number above 0 and up to 1,048,576, got 'much'" in capsys.readouterr().err


SHELL = f'"{sys.executable}" -m trajectory_guard.cli.main "$@"'


def in_a_shell(redirection: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f"{SHELL} {redirection}", "sh", *map(str, arguments)]
    surroundings = {**ENVIRONMENT, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=60, check=False)


@pytest.mark.parametrize(
    "arguments, redirection, status, said",
    [
        (("replay", "FILE"), ">&-", 0, ""),
        (("replay", "FILE"), "<&-", 0, ""),
        (("replay", "-"), "<&-", 2, "<stdin>: cannot be read: it is closed"),
        (("replay", "no-such-file"), "2>&-", 2, ""),
        (("replay", "no-such-file"), "2>/dev/full", 2, ""),
        (("replay", "FILE"), ">/dev/full", 2, "replay: the output cannot be written: No space left on device"),
        (("replay", "FILE", "--json"), ">/dev/full", 2, "replay: the output cannot be written"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_closed_and_full_streams_are_named_and_change_no_status(
    tmp_path: Path, arguments: tuple[str, ...], redirection: str, status: int, said: str
) -> None:
    path = write(tmp_path / "runs.jsonl", run_line())
    ran = in_a_shell(redirection, *(path if one == "FILE" else one for one in arguments))
    assert ran.returncode == status
    assert said in ran.stderr
    assert "unexpected" not in ran.stderr


@pytest.mark.slow
def test_a_terminal_of_unknown_width_gets_the_demo() -> None:
    assert b"with guard" in process("demo", COLUMNS="0").stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", "\n".join(run_line(f"r{at}", repeats=20) for at in range(3000)))
    code = "from trajectory_guard.cli.main import main; import sys; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "replay", str(path), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        json.loads(running.stdout.readline())
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(30) == 0


@pytest.mark.parametrize("command", [pytest.param("demo", marks=pytest.mark.slow), "doctor"])
def test_tables_without_a_reader_are_no_error(command: str) -> None:
    """``rich`` ends a process with status 1 there, which means that a loop was found or a setting is missing."""
    read, written = os.pipe()
    os.close(read)
    start = [sys.executable, "-m", "trajectory_guard.cli.main", command]
    ran = subprocess.run(start, stdout=written, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60, check=False)
    os.close(written)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_an_interrupt_is_no_traceback(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from trajectory_guard.cli import commands

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "replay", interrupted)
    ran = command("replay", write(tmp_path / "runs.jsonl", run_line()))
    assert (ran.status, ran.err) == (entry.INTERRUPTED, "")


def test_output_that_knows_ascii_only(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", run_line("zoë-\u2603", repeats=6))
    code = f"from trajectory_guard.cli.main import main; assert main(['replay', {str(path)!r}, '--json']) == 0"
    ran = process("replay", path, code=code, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"")
    as_json, for_people, *_ = ran.stdout.splitlines()
    assert json.loads(as_json)["id"] == "zoë-\u2603"
    assert for_people.startswith(b"zo\\xeb-\\u2603: 6 steps")


def test_a_base_install_reads_json(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", run_line())
    names = "'rich', 'ijson', 'google.protobuf', 'opentelemetry.proto', 'zstandard'"
    code = f"""
sys.modules.update(dict.fromkeys(({names})))
from trajectory_guard.cli.main import main
assert main(["extract", {str(path)!r}]) == 0
assert main(["replay", {str(path)!r}]) == 0
"""
    ran = process("replay", path, "--json", code=code)
    assert (ran.returncode, ran.stderr) == (0, b"")
    first, *_, last = ran.stdout.splitlines()
    assert json.loads(first)["tool_name"] == "search"
    assert json.loads(last)["steps"] == 6
    assert b"1 trajectory, 6 steps: 1 would have been nudged, 1 stopped." in ran.stdout


# --- progress ------------------------------------------------------------------------------------------------


class Bar:
    """Records the calls to a rich progress bar."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None]] = []
        self.done = 0.0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None: ...

    def add_task(self, name: str, total: int | None) -> int:
        self.tasks.append((name, total))
        return len(self.tasks)

    def remove_task(self, task: int) -> None: ...

    def advance(self, task: int, count: float) -> None:
        self.done += count


@pytest.mark.parametrize(
    ("terminal", "size", "shown"), [(True, 1 << 30, True), (True, 10, False), (False, 1 << 30, False)]
)
def test_progress_is_for_people_with_long_input(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, size: int, shown: bool
) -> None:
    bar, diagnostics = Bar(), Diagnostics()
    monkeypatch.setattr(progress, "_bar", lambda: bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with progress.progress_bar(diagnostics, prints=False):
        diagnostics.phase("reading", size)
        for _ in range(1000):
            diagnostics.progress(size // 1000)
        diagnostics.phase("evaluating", 5)
        diagnostics.progress(5)
    assert [name for name, _ in bar.tasks] == (["reading", "evaluating"] if shown else [])
    assert bar.done > 0.9 * size if shown else bar.done == 0


def test_no_bar_in_the_way_of_output(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, diagnostics = Bar(), Diagnostics()
    monkeypatch.setattr(progress, "_bar", lambda: bar)
    for stream in (sys.stderr, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with progress.progress_bar(diagnostics, prints=True):
        diagnostics.phase("reading", 1 << 30)
    assert bar.tasks == []


def test_the_bar_of_rich_is_on_standard_error() -> None:
    pytest.importorskip("rich")
    assert progress._bar().console.stderr


@pytest.mark.parametrize(
    "package", ["trajectory_guard", "trajectory_guard_collector", "trajectory_guard_collector.fleet"]
)
def test_python_m_runs_the_command(package: str) -> None:
    imports = os.pathsep.join(str(Path(find_spec(one).origin or "").parents[1]) for one in PACKAGES)  # type: ignore[union-attr]
    command = [sys.executable, "-m", package, "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, "PYTHONPATH": imports}, timeout=60, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("trajectory-guard")
    assert __version__ in ran.stdout
