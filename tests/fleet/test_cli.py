"""The command, its configuration, and the topics of ``docs/fleet.md`` against the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.absent import run_commands, site_without
from tests.faults.processes import free_port
from tests.helpers import COLLECTOR_PACKAGE, PACKAGE, TESTS, table_rows
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.load import load_as
from trajectory_guard_collector.fleet.cli import main
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.topics import wanted

DOCS = (TESTS.parent / "docs" / "fleet.md").read_text(encoding="utf-8")


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_no_configuration_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka: {broker: x}", "kafka.broker: unknown key (did you mean 'brokers'?)"),
        ("kafka: {brokers: []}", "kafka.brokers: at least one broker is needed"),
        ("kafka: {session_timeout_s: 1}", "kafka.session_timeout_s: "),
        ("kafka: {security: {protocol: sasl_ssl}}", "kafka.security.password: required with protocol sasl_ssl"),
        ("kafka: {security: {cert_file: a.pem}}", "kafka.security.key_file: required with cert_file"),
        ("kafka: {group: 'a b'}", "kafka.group: "),
        ("topics: {spans: a, verdicts: a}", "topics: topic 'a' has two roles"),
        (
            "processing: {guarantee: exactly-once, commit_interval_s: 8}",
            "processing.transaction_timeout_s: must be at least twice commit_interval_s (8.0), got 10.0",
        ),
        ("guard: {langfuse_scores: true}", "guard.langfuse_scores: has no effect"),
        ("guard: {collector_url: 'http://x'}", "guard.collector_url: has no effect in a stream worker"),
        (
            "{trajectories: {reorder_s: 7200}, state: {ttl_s: 3600}}",
            "trajectories.reorder_s: must not exceed state.ttl_s",
        ),
        ("state: {ttl_s: yes}", "state.ttl_s: expected a number"),
        ("flags: {endpoint: 'localhost:8889'}", "telemetry.endpoint: the port is taken by flags.endpoint"),
        ("flags: {max_names: 1}", "flags.max_names: "),
        ("flags: {auth: {bearer_tokens: ['a b']}}", "flags.auth.bearer_tokens.0: a token must be printable ASCII"),
        ("langfuse: {endpoint: 'ftp://x'}", "langfuse.endpoint: expected an http(s) URL, got 'ftp://x'"),
        ("langfuse: {tls: {cert_file: a.pem}}", "langfuse.tls.key_file: required with cert_file"),
        ("langfuse: {tls: {insecure: true}}", "langfuse.tls.insecure: "),
        (
            "langfuse: {retry_on_failure: {max_elapsed_time_s: 9}}",
            "langfuse.retry_on_failure.max_elapsed_time_s: has no effect here",
        ),
        ("topics: {flags: trajectory_guard_scores}", "topics: topic 'trajectory_guard_scores' has two roles"),
    ],
)
def test_a_mistake_is_named_with_its_key(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, text)
    for command in ("validate", "print-config", "run", "flags", "scores", "topics"):
        assert main([command, "--config", file]) == 2
        error = capsys.readouterr().err
        assert f"trajectory-guard-fleet: {file}: {message}" in error, error
        assert "Traceback" not in error


def test_validate_looks_for_the_files_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--set", f"kafka.security.ca_file={tmp_path}/ca.pem"]) == 2
    assert f"kafka.security.ca_file: {tmp_path}/ca.pem: " in capsys.readouterr().err
    for key in ("flags.auth.bearer_tokens_file", "flags.readers.bearer_tokens_file", "langfuse.tls.ca_file"):
        assert main(["validate", "--set", f"{key}={tmp_path}/none"]) == 2
        assert f"{key}: {tmp_path}/none: " in capsys.readouterr().err


def test_print_config_hides_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    secrets = (
        "kafka.security.password=very secret",
        "langfuse.secret_key=very secret",
        "flags.auth.bearer_tokens=[very-secret]",
    )
    assert main(["print-config", *(f"--set={one}" for one in secrets)]) == 0
    text = capsys.readouterr().out
    assert "secret" not in text.replace("secret_key", "")
    assert yaml.safe_load(text)["kafka"]["security"]["password"] == "[REDACTED]"


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """Without the stream engine the configuration can be checked, and nothing else."""
    site = site_without(tmp_path / "site", {"quixstreams", "confluent_kafka"})
    wanted_status = {"validate": 0, "print-config": 0, "run": 2, "flags": 2, "scores": 2, "topics": 2}
    found = run_commands(site, [("trajectory_guard_collector.fleet.cli", [command]) for command in wanted_status])
    for (command, status), done in zip(wanted_status.items(), found, strict=True):
        assert (done["status"], done["failure"]) == (status, None), command
        if status:
            assert re.fullmatch(
                r"trajectory-guard-fleet: the stream worker needs (quixstreams|confluent_kafka):"
                r" install the extra 'fleet' .*\n",
                done["err"],
            ), done["err"]


@pytest.mark.parametrize("command", ["run", "flags", "scores"])
def test_a_signal_while_modules_are_loaded_is_a_graceful_stop(tmp_path: Path, command: str) -> None:
    (tmp_path / "yaml.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "trajectory_guard_collector.fleet.cli", command], capture_output=True, text=True,
        env={"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}:{COLLECTOR_PACKAGE.parent}"}, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


_REPLACED = """
try:
    os.kill(os.getpid(), signal.SIGTERM)
except BaseException:
    raise TypeError("expected a text") from None
"""
_SWALLOWED = """
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
Finalized()
"""


def run_with(check: str, command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose check of the topics is this code."""
    pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")
    program = "\n".join([
        "import os, signal, sys",
        "from trajectory_guard_collector.fleet.admin import Topology",
        "from trajectory_guard_collector.fleet.cli import main",
        "def check(self):", *[f"    {line}" for line in check.strip().split("\n")],
        "Topology.check = check",
        "sys.exit(main(sys.argv[1:]))",
    ])  # fmt: skip
    settings = {
        "state.dir": directory, "kafka.brokers": f"[127.0.0.1:{free_port()}]", "kafka.group": "g",
        "flags.endpoint": f"127.0.0.1:{free_port()}", "telemetry.endpoint": f"127.0.0.1:{free_port()}",
        "langfuse": "{enabled: true, public_key: pk, secret_key: sk, endpoint: 'http://localhost:1'}",
    }  # fmt: skip
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return subprocess.run(
        [sys.executable, "-c", program, command, *options], capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": f"{PACKAGE.parent}:{COLLECTOR_PACKAGE.parent}"},
    )  # fmt: skip


@pytest.mark.parametrize("how", [pytest.param(_REPLACED, id="replaced"), pytest.param(_SWALLOWED, id="swallowed")])
@pytest.mark.parametrize("command", ["run", "flags", "scores"])
def test_a_signal_whose_exception_is_lost_is_a_graceful_stop_all_the_same(
    tmp_path: Path, how: str, command: str
) -> None:
    """C code of a library puts an error of its own in its place; where an object is finalized, none can be raised."""
    done = run_with(how, command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stopped" in done.stderr
    assert "stopping after an error" not in done.stderr


def test_the_line_on_an_error_names_its_causes(tmp_path: Path) -> None:
    """The engine wraps what fails while partitions move: "Error during partition assignment" alone helps nobody."""
    done = run_with("raise RuntimeError('outer') from ValueError('inner')", "run", tmp_path)
    assert done.returncode == 1
    assert "stopping after an error: RuntimeError: outer; from ValueError: inner" in done.stderr


def test_a_state_directory_that_cannot_be_made_is_a_bad_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")
    (tmp_path / "file").touch()
    assert main(["run", "--set", f"state.dir={tmp_path}/file/state"]) == 2
    assert f"state.dir: {tmp_path}/file/state: cannot be made: {tmp_path}/file is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "reason"),
    [("file", "is a file, not a directory"), ("file/state", "is a file"), ("/proc/nothing", "cannot be made")],
)
def test_validate_names_a_state_directory_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    assert main(["validate", "--set", f"state.dir={tmp_path / place}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"trajectory-guard-fleet: state.dir: {tmp_path / place}: ")
    assert reason in said


def test_the_collector_s_loader_reads_references_of_the_worker(tmp_path: Path) -> None:
    file = written(tmp_path, "kafka: {security: {password: '${env:SECRET}'}, brokers: [\"${env:HOST}:9092\"]}")
    config = load_as(FleetConfig, [file], {"SECRET": "s", "HOST": "h"}, ["state.ttl_s=120"])
    assert config.kafka.security.password is not None
    assert config.kafka.security.password.get_secret_value() == "s"
    assert (config.kafka.brokers, config.state.ttl_s) == (("h:9092",), 120.0)
    with pytest.raises(ConfigError, match="HOST"):
        load_as(FleetConfig, [file], {"SECRET": "s"})


# --- the documentation ---------------------------------------------------------------------------------------


def test_the_topics_of_the_documentation_are_those_of_the_code() -> None:
    assert table_rows(DOCS, "Topics").keys() == {one.name for one in wanted(FleetConfig())}


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trajectory_guard_collector.fleet.cli", "--version"], capture_output=True, text=True,
        env={"PYTHONPATH": f"{PACKAGE.parent}:{COLLECTOR_PACKAGE.parent}"}, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("trajectory-guard-fleet ")


def test_warnings_of_libraries_stay_out_of_the_log(tmp_path: Path) -> None:
    pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, warnings\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'confluent_kafka':\n"
        "            warnings.simplefilter('always')\n"
        "            warnings.warn('this is deprecated', DeprecationWarning)\n"
        "sys.meta_path.insert(0, Finder())\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "trajectory_guard_collector.fleet.cli", "flags", "--set", "flags.endpoint=null"],
        capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}:{COLLECTOR_PACKAGE.parent}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "trajectory-guard-fleet: flags.endpoint: required to serve flags\n")
