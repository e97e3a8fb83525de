"""One command over many hosts, files and packages: its exit status says what it found there, and is no wall."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

NAMES = [
    "apple", "bridge", "candle", "desert", "engine", "forest", "harbour", "island", "jacket", "kettle", "lantern", "needle",
]  # fmt: skip
ZERO = ["0", "0\n", "Exit code: 1\n0", "0\n\n[exit status: 1]", "Error: Command failed with exit code 1: 0",
        '{"stdout":"0\\n","stderr":"","exit_code":1}', '{"output":"0","metadata":{"exit_code":1}}',
        "<returncode>1</returncode>\n<output>\n0\n</output>"]  # fmt: skip
STATUS = ["Exit code 1", "Command failed with exit code 2", "command terminated with exit code 1"]
FINDINGS = [
    ("ruff check {0}.py", "{0}.py:3:8: F401 `os` imported but unused\nFound 1 error."),
    ("mypy app/{0}.py", "app/{0}.py:7: error: Missing return statement  [return]\nFound 1 error in 1 file"),
    ("npx eslint src/{0}.ts", "src/{0}.ts\n  4:1  error  no-undef\n\n1 problem"),
    ("shellcheck {0}.sh", "In {0}.sh line 3:\nrm -rf $X\n       ^-- SC2086: Double quote"),
    ("pytest -q tests/test_{0}.py", "F\nFAILED tests/test_{0}.py::test_total - AssertionError\n1 failed in 0.11s"),
    ("ping -c1 {0}", "PING {0} (10.0.0.9) 56(84) bytes\n\n--- {0} statistics ---\n1 sent, 0 received, 100% loss"),
    ("cd env/{0} && terraform plan -detailed-exitcode", "Plan: 1 to add, 2 to change, 0 to destroy."),
    ("gh run view 90{1}37 --exit-status", "X main CI\nJOBS\nX build in 12s"),
    ("jq -e .enabled conf/{0}.json", "false"),
    ("kubectl auth can-i get pods -n {0}", "no"),
    ("ssh {0} systemctl is-active nginx", "inactive"),
    ("cd packages/{0} && npm audit", "3 vulnerabilities (1 moderate, 2 high)"),
]


def over(command: str, result: str) -> Iterator[StepRecord]:
    for at, name in enumerate(NAMES):
        shell = {"command": command.format(name, 10 + at)}
        yield record("bash", shell, result.replace("{0}", name), "error", t=6.0 * at)


@pytest.mark.parametrize("result", ZERO)
def test_a_search_that_counts_none_in_one_log_after_the_other_is_left_alone(result: str) -> None:
    verdicts = evaluate(list(over("kubectl logs {0} | grep -c 'deadline exceeded'", result)))
    assert first_level(verdicts, Level.NUDGE) is None


@pytest.mark.parametrize("result", STATUS)
def test_an_exit_status_alone_does_not_stop_a_list(result: str) -> None:
    assert first_level(evaluate(list(over("nc -z {0} 443", result))), Level.STOP) is None


@pytest.mark.parametrize(("command", "result"), FINDINGS)
def test_what_a_command_finds_on_each_target_does_not_stop_the_list(command: str, result: str) -> None:
    verdicts = evaluate(list(over(command, result)))
    nudged = first_level(verdicts, Level.NUDGE)
    assert first_level(verdicts, Level.STOP) is None
    assert nudged is None or nudged >= 6


WALLS = [
    (["pip install torch" + flag for flag in ("", " -U", " --user", " --no-cache-dir", " --pre", " -v", " -I", " --no-deps",
                                              " --no-input", " --isolated", " -q", " --no-index")],
     "ERROR: Could not find a version that satisfies the requirement torch"),
    ([f"docker inspect {name}" for name in NAMES], "Error: No such object"),
    ([f"psql -h {host} -c 'select 1'" for host in NAMES], "psql: error: connection to server failed: FATAL: role"),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "result"), WALLS)
def test_other_words_against_one_wall_are_still_stopped(commands: list[str], result: str) -> None:
    steps = [record("bash", {"command": one}, result, "error", t=6.0 * at) for at, one in enumerate(commands)]
    assert first_level(evaluate(steps), Level.STOP) is not None
