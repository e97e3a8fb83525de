"""The command: what it prints, what it complains about, and with which status it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.faults.processes import free_port, is_listening, poll
from tests.helpers import DATA
from trajectory_guard import __version__
from trajectory_guard_collector.cli import main
from trajectory_guard_collector.config.checks import EXPORTER_TYPES, NOT_IN_THE_COLLECTOR
from trajectory_guard_collector.config.load import load_config

CONFIGS = DATA / "collector_config"
ENVIRON = {"TOKEN": "hunter2", "TIMEOUT": "7.5", "TENANT": "hunter2", "LANGFUSE_SECRET_KEY": "hunter2"}
SERVICE = """
import asyncio, sys
from trajectory_guard_collector.telemetry import logs
from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.app.run import serve

class Service:
    endpoints = {"grpc": "localhost:4317"}
    async def start(self, listens):
        if "taken" in sys.argv:
            raise StartError("telemetry.endpoint: cannot listen on 'localhost:1'")
        listens()
        if "restores" in sys.argv:
            await asyncio.sleep(60)
    async def stop(self):
        print("stopping", flush=True)
        if "hangs" in sys.argv:
            await asyncio.sleep(60)
        if "breaks" in sys.argv:
            raise RuntimeError("boom")

logs.configure("info")
sys.exit(asyncio.run(serve(Service())))
"""

COMMAND = """
import atexit, os, signal, sys
from trajectory_guard_collector import cli
from trajectory_guard_collector.app import service

class Trajectory:
    def __del__(self):
        os.write(1, b"freed\\n")

class Collector:
    endpoints = {}
    def __init__(self, *_):
        self.trajectories = []
    async def start(self, listens):
        self.trajectories.append(Trajectory())
        os.kill(os.getpid(), signal.SIGTERM)
    async def stop(self):
        os.write(1, b"stopped\\n")

atexit.register(os.write, 1, b"at exit\\n")
service.Collector = Collector
embedded = "embedded" in sys.argv
sys.argv[1:] = ["run"]
status = cli.main(["run"] if embedded else None)
os.write(1, b"%d\\n" % status)
sys.exit(status)
"""


def command(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trajectory_guard_collector.cli", *arguments],
        capture_output=True, text=True, timeout=60, cwd=CONFIGS, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environ or {})},
    )  # fmt: skip


# --- validate, print-config, components ------------------------------------------------------------------------------


def test_a_bad_configuration_is_status_2_with_a_line_for_each_mistake_and_no_traceback() -> None:
    done = command("validate", "--config", "bad_several_mistakes.yaml")
    reported = (CONFIGS / "bad_several_mistakes.yaml.txt").read_text(encoding="utf-8").splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [f"trajectory-guard-collector: {line}" for line in reported]


@pytest.mark.parametrize("name", ["run", "validate", "print-config"])
def test_all_commands_refuse_a_bad_configuration(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--config", str(CONFIGS / "bad_unknown_key.yaml")]) == 2
    assert "endpont: unknown key (did you mean 'endpoint'?)" in capsys.readouterr().err


def test_a_file_may_stand_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    bad, other = str(CONFIGS / "bad_unknown_key.yaml"), str(CONFIGS / "bad_not_a_mapping.yaml")
    assert main(["validate", bad]) == main(["validate", bad, "--config", bad]) == 2
    assert "endpont: unknown key" in capsys.readouterr().err
    assert main(["validate", bad, "--config", other]) == 2
    assert f"{bad}: --config names {other} beside it" in capsys.readouterr().err


def test_a_list_in_the_place_of_a_mapping_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("exporters: [otlp]\n")
    assert main(["validate", str(tmp_path / "c.yaml")]) == 2
    assert "exporters: expected a mapping, got list" in capsys.readouterr().err


def test_no_configuration_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 0
    assert capsys.readouterr() == ("configuration is valid\n", "")


def test_validate_and_run_look_for_the_files_that_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(f"receivers: {{otlp: {{auth: {{bearer_tokens_file: {tmp_path}/tokens}}}}}}", encoding="utf-8")
    for name in ("validate", "run"):
        assert main([name, "--config", str(file)]) == 2
        assert "receivers.otlp.auth.bearer_tokens_file: " in capsys.readouterr().err
    assert main(["print-config", "--config", str(file)]) == 0
    (tmp_path / "tokens").write_text("one\n", encoding="utf-8")
    assert main(["validate", "--config", str(file)]) == 0


@pytest.mark.parametrize(
    "override, reported",
    [
        (
            "exporters.otlp/x.endpoint=https://tempo:4317/v1/traces",
            "--set: exporters.otlp/x.endpoint: expected http(s)",
        ),
        ("exporters.otlphttp.tls.ca_file={file}", "exporters.otlphttp.tls.ca_file: {file}: holds no PEM certificate"),
        ("exporters.otlp/y.tls.ca_file={file}", "exporters.otlp/y.tls.ca_file: {file}: holds no PEM certificate"),
        (
            "receivers.otlp.auth.bearer_tokens_file={file}",
            "receivers.otlp.auth.bearer_tokens_file: {file}: no token in",
        ),
        ("memory_limiter.limit_mib=10", "memory_limiter.limit_mib: 10: data is refused from 8 of 10 MiB on, and the"),
    ],
)
def test_run_refuses_what_validate_refuses(
    override: str, reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "empty", tmp_path / "collector.yaml"
    file.touch()
    config.write_text("exporters: {otlphttp: {endpoint: 'https://a'}, otlp/y: {endpoint: 'a:1'}}", encoding="utf-8")
    for name in ("validate", "run"):
        assert main([name, "--config", str(config), "--set", override.format(file=file)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"trajectory-guard-collector: {reported.format(file=file)}")


@pytest.mark.parametrize(
    "content", [None, b"", b"no ledger at all, but long enough to be the head of a file of SQLite" * 9]
)
def test_a_file_that_can_be_no_ledger_is_refused(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / ("missing/ledger.db" if content is None else "ledger.db")
    if content is not None:
        ledger.write_bytes(content)
    reported = f"trajectory-guard-collector: guard.spending_file: {ledger}: "
    override = f"guard.spending.spending_file={ledger}"
    status = main(["validate", "--set", override])
    error = capsys.readouterr().err
    if content == b"":  # SQLite begins a file so
        assert (status, error) == (0, "")
        return
    assert status == 2
    assert error.startswith(reported)
    assert main(["run", "--set", override]) == 2
    assert capsys.readouterr().err.startswith(reported)


def test_what_is_printed_of_budgets_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, ledger = tmp_path / "collector.yaml", tmp_path / "ledger.db"
    file.write_text(
        "guard:\n  spending:\n    budgets: [{scope: service, usd: 50, per: day}, {scope: agent, tokens: 9, name: '007'}]\n"
        f"    model_prices: {{gpt-4o: {{input: 2.5, output: 10}}}}\n    spending_file: {ledger}\n",
        encoding="utf-8",
    )
    assert main(["print-config", "--config", str(file)]) == 0
    printed = tmp_path / "printed.yaml"
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_config([str(printed)], {}) == load_config([str(file)], {})
    assert [one.scope for one in load_config([str(file)], {}).guard.budgets] == ["service", "agent"]
    assert main(["validate", "--config", str(file)]) == 0
    assert not ledger.exists()


def test_what_no_collector_can_be_made_of_is_a_bad_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed_since(*_: object) -> None:
        raise ValueError("exporters.otlp.tls.ca_file: ca.pem: holds no PEM certificate")

    monkeypatch.setattr("trajectory_guard_collector.app.service.Collector", changed_since)
    monkeypatch.setattr("trajectory_guard_collector.telemetry.logs.configure", lambda level, **_: None)
    assert main(["run"]) == 2
    assert capsys.readouterr().err == (
        "trajectory-guard-collector: exporters.otlp.tls.ca_file: ca.pem: holds no PEM certificate\n"
    )


def test_print_config_shows_the_merged_configuration_without_secrets() -> None:
    files = ("--config", "good.yaml", "--config", "good_overlay.yaml")
    done = command("print-config", *files, "--set", "queue.deadline_s=3", environ=ENVIRON)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hunter2" not in done.stdout
    shown = yaml.safe_load(done.stdout)
    assert shown["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == "0.0.0.0:14317"
    assert shown["queue"]["deadline_s"] == 3.0


def test_print_config_shows_no_key_that_is_an_error_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-config"]) == 0
    printed = capsys.readouterr().out
    guard = yaml.safe_load(printed)["guard"]
    assert {"nudge_threshold", "mode", "track_spending", "max_trajectories"} <= set(guard)
    assert not set(NOT_IN_THE_COLLECTOR) & set(guard)
    assert not [key for key in guard if "quality" in key]
    (tmp_path / "printed.yaml").write_text(printed, encoding="utf-8")
    assert main(["validate", "--config", str(tmp_path / "printed.yaml")]) == 0


def test_components_lists_every_exporter_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components"]) == 0
    names = re.findall(r"^  (\w+) +\S", capsys.readouterr().out, re.MULTILINE)
    assert names == ["otlp", *EXPORTER_TYPES]


@pytest.mark.parametrize("arguments", [[], ["fly"], ["validate", "--confg", "x"]])
def test_bad_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: trajectory-guard-collector" in capsys.readouterr().err


def test_the_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"trajectory-guard-collector {__version__}\n"


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'yaml'\", name='yaml')\n", encoding="utf-8"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = command("validate", environ={"PYTHONPATH": path})
    assert done.returncode == 2
    assert done.stderr == (
        "trajectory-guard-collector: the collector needs yaml: "
        "install the extra 'collector' (pip install '.[collector]' in a clone)\n"
    )


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loaded", ["argparse", "pydantic", "yaml"])
def test_a_signal_while_modules_are_loaded_is_a_graceful_stop(tmp_path: Path, loaded: str) -> None:
    """An orchestrator that replaces a pod sees no failure, however early it asks."""
    (tmp_path / f"{loaded}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n", encoding="utf-8"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = command("run", environ={"PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
    assert command("validate", environ={"PYTHONPATH": path}).returncode != 0  # it does not serve


def test_a_proxy_that_cannot_be_used_is_one_line_and_status_2() -> None:
    exporter = "exporters={otlphttp: {endpoint: 'http://127.0.0.1:9'}}"
    done = command("run", "--set", exporter, environ={"HTTP_PROXY": "foo://bar", "http_proxy": "foo://bar"})
    assert done.returncode == 2
    [line] = [one for one in done.stderr.splitlines() if not one.startswith("{")]
    assert line.startswith("trajectory-guard-collector: exporters.otlphttp: the environment names a proxy")
    assert "HTTP_PROXY" in line


class Process:
    """A service under ``serve`` in a process of its own."""

    def __init__(self, *manners: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, *manners], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip

    def until(self, message: str) -> dict[str, str]:
        """Read log lines up to one."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, str] = json.loads(line)
            if message in entry["message"]:
                return entry
        raise AssertionError(f"{message!r} was not logged")


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for one in processes:
        one.process.kill()
        one.process.communicate(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(started: list[Process], number: signal.Signals) -> None:
    started.append(process := Process())
    listening = process.until("listening")
    assert (listening["server"], listening["endpoint"], listening["version"]) == ("grpc", "localhost:4317", __version__)
    process.process.send_signal(number)
    process.until(f"{number.name}: draining")
    process.until("stopped")
    assert process.process.wait(timeout=30) == 0
    assert process.process.stdout is not None
    assert process.process.stdout.read() == "stopping\n"


@pytest.mark.parametrize(
    "manner, said", [("command", ["stopped", "0", "at exit"]), ("embedded", ["stopped", "freed", "0", "at exit"])]
)
def test_the_command_does_not_free_its_trajectories_one_by_one_before_it_exits(manner: str, said: list[str]) -> None:
    """That takes seconds for ten thousand. A program that only calls it has its memory back."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, manner], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr


def test_a_signal_stops_it_while_it_restores_its_state(started: list[Process]) -> None:
    started.append(process := Process("restores"))
    process.until("listening")
    process.process.send_signal(signal.SIGTERM)
    process.until("stopped")
    assert process.process.wait(timeout=30) == 0


def test_a_second_signal_stops_it_at_once(started: list[Process]) -> None:
    started.append(process := Process("hangs"))
    process.until("listening")
    process.process.send_signal(signal.SIGTERM)
    process.until("draining")
    process.process.send_signal(signal.SIGTERM)
    process.until("SIGTERM again: stopping immediately")
    assert process.process.wait(timeout=30) == 1


def test_sighup_asks_for_a_restart_and_changes_nothing(started: list[Process]) -> None:
    started.append(process := Process())
    process.until("listening")
    process.process.send_signal(signal.SIGHUP)
    assert "needs a restart" in process.until("SIGHUP")["message"]
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(timeout=30) == 0


def test_a_failing_stop_is_status_1_with_the_reason(started: list[Process]) -> None:
    started.append(process := Process("breaks"))
    process.until("listening")
    process.process.send_signal(signal.SIGTERM)
    assert "boom" in process.until("stopping failed")["exception"]
    assert process.process.wait(timeout=30) == 1


def test_what_cannot_start_is_status_1_with_the_reason(started: list[Process]) -> None:
    started.append(process := Process("taken"))
    assert process.until("telemetry.endpoint")["message"] == "telemetry.endpoint: cannot listen on 'localhost:1'"
    assert process.process.wait(timeout=30) == 1


@pytest.mark.parametrize(
    "redirection, status, said", [(">&-", 0, ""), (">/dev/full", 1, "the output cannot be written")]
)
@pytest.mark.parametrize("command", ["print-config", "components"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_closed_and_full_streams_end_without_a_traceback(
    command: str, redirection: str, status: int, said: str
) -> None:
    line = f'"{sys.executable}" -m trajectory_guard_collector.cli {command} {redirection}'
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == status
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_service_whose_streams_are_all_closed_serves_and_stops(tmp_path: Path) -> None:
    """Its sockets would get the numbers of the streams, and libuv aborts when it closes one of those."""
    port = free_port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
        "telemetry": {"endpoint": f"127.0.0.1:{port}"},
        "exporters": {"debug": {}},
    }
    file = tmp_path / "collector.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    line = f'exec "{sys.executable}" -m trajectory_guard_collector.cli run --config "{file}" <&- >&- 2>&-'
    with subprocess.Popen(["sh", "-c", line]) as service:
        try:
            poll(lambda: is_listening(port), "the collector listens", 60.0)
            poll(lambda: httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200, "it is ready", 60.0)
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0
        finally:
            service.kill()
