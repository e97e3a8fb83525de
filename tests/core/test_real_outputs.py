"""Outputs of programs that ran: what differs from run to run says nothing new, and what a program reports does."""

from __future__ import annotations

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.content.masking import mask_noise, mask_text
from trajectory_guard.core.content.pending import is_pending
from trajectory_guard.core.content.transient import is_transient

NAMED = (
    "plugins: anyio-4.2, timeout-2.4.0, xdist-3.5",
    "pytest-timeout==2.4.0",
    "async-timeout 5.0.1",
    "connect-timeout@1.9.0",
    "setTimeout(() => fail(), 3)",
    "    at listOnTimeout (node:internal/timers:581:17)",
    "    at Timeout._onTimeout (/srv/a.js:3:9)",
    "FAILED tests/test_a.py::test_read_timeout - assert 1 == 2",
    "____ test_rate_limit ____",
)
STATED = (
    "Read timed out.",
    "Timeout: 30s exceeded",
    "Connection timeout: 5000ms",
    "asyncio.exceptions.TimeoutError",
    "connect ETIMEDOUT 1.2.3.4:443",
    "net::ERR_CONNECTION_TIMED_OUT",
    "rate_limit_exceeded: slow down",
    '{"error": {"type": "rate_limit_error"}}',
    "playwright._impl._errors.TimeoutError: Timeout 30000ms exceeded.",
)


@pytest.mark.parametrize("text", NAMED)
def test_names_of_packages_functions_and_tests_say_of_nothing_that_it_passes(text: str) -> None:
    assert not is_transient(f"1 failed\n{text}", None)


@pytest.mark.parametrize("text", STATED)
def test_codes_and_exceptions_do(text: str) -> None:
    assert is_transient(text, None)


# Found: what waits for a lock, a lease or a queue was nudged at its third try, and stopped at its fifth behind a proxy.
@pytest.mark.parametrize(
    "text",
    [
        "Blocking waiting for file lock on package cache", "Queue is full",
        "already locked by session 77", "The lease is held by node-3", "Error: Failed to lock apt for exclusive operation",
        "The process cannot access the file because it is being used by another process.", "Text file busy",
        "ORA-00054: resource busy and acquire with NOWAIT specified", "npm ERR! EBUSY: rmdir", "All lines are busy",
        "409: another operation is still in progress", "upstream connect error or disconnect/reset before headers",
    ],
)  # fmt: skip
def test_what_is_held_by_another_may_be_free_again(text: str) -> None:
    assert is_transient(text, None)


@pytest.mark.parametrize(
    "text",
    [
        "TypeError: busy is not a function", "Error: Error acquiring the state lock\nLock Info: created 2025-02-03",
        "/bin/sh: busybox: not found", "Error: port 3000 is used by another app",
        "listen EADDRINUSE: address already in use :::3000", "SyntaxError: locked by name", "No worker in progress.py",
    ],
)  # fmt: skip
def test_what_nobody_will_release_is_not(text: str) -> None:
    assert not is_transient(text, None)


def test_failing_tests_beside_a_plugin_against_time_outs_are_nudged_at_the_third_run() -> None:
    def run(seconds: float) -> str:
        return (
            "platform linux -- Python 3.11.7, pytest-8.3.4\nplugins: anyio-4.2, timeout-2.4.0\n"
            f"E   assert 3 == 4\nFAILED test_a.py::test_total - assert 3 == 4\n1 failed in {seconds:.2f}s"
        )

    verdicts = evaluate(steps([("bash", {"cmd": "pytest"}, run(0.31 + at / 9), "error") for at in range(6)], 5.5))
    assert nudged(verdicts) == 2


def test_an_import_that_goes_on_behind_each_bad_row_is_not_stopped() -> None:
    def run(at: int) -> str:
        return f"imported rows {10 * at} to {10 * at + 9}\nrow {10 * at + 10}: 'n/a{at}' is no {['number', 'date', 'name'][at % 3]}"

    verdicts = evaluate(steps([("bash", {"cmd": "./import.sh"}, run(at), "error") for at in range(10)]))
    assert stopped(verdicts) is None


def test_a_command_that_reports_another_error_each_time_is_nudged_at_the_sixth() -> None:
    errors = (
        "price is missing",
        "unknown currency 'EU'",
        "date in the future",
        "no such shop",
        "too many columns",
        "odd quote",
    )
    calls = [("bash", {"cmd": "./import.sh"}, f"row {9 * at}: {text}", "error") for at, text in enumerate(errors)]
    assert nudged(evaluate(steps(calls))) == 5


def test_a_file_that_changes_has_another_checksum_each_time() -> None:
    sums = [f"{digit * 8}{'9f86d081' * 7}  dist/app.whl" for digit in "0123456789"]
    assert nudged(evaluate(steps([("bash", {"cmd": "sha256sum dist/app.whl"}, one) for one in sums]))) is None


def test_a_log_of_what_was_done_is_not_under_way() -> None:
    done = "Reading package lists...\nBuilding dependency tree...\nReading state information...\nE: Unable to locate package foo"
    assert not is_pending(done)
    assert is_pending("Reading package lists...\nBuilding dependency tree...")
    assert is_pending('{\n  "job": 7,\n  "status": "running",\n  "since": null,\n  "host": "a"\n}')
    assert is_pending("NAME READY STATUS\nweb 0/1 ContainerCreating")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("connect to 127.0.0.1:34709 refused", "connect to 127.0.0.1:41222 refused"),
        ("==19303==ERROR: heap-use-after-free", "==20411==ERROR: heap-use-after-free"),
        (" 10%|# |\r 55%|## |\r100%|####|\nKeyError: 'b'", " 12%|# |\r100%|####|\nKeyError: 'b'"),
        ("a\r\nb 10:00:01\r\n", "a\r\nb 10:00:09\r\n"),
    ],
)
def test_ports_processes_and_bars_that_were_written_over_are_masked_in_errors(one: str, other: str) -> None:
    assert mask_text(one) == mask_text(other)


def test_an_address_is_no_clock() -> None:
    assert mask_noise("listening on 127.0.0.1:34709") != mask_noise("listening on 127.0.0.1:41222")
    assert "<clock>" not in mask_text("127.0.0.1:34709")


@pytest.mark.parametrize("name", ["metadata", "details", "account", "country", "browser", "items.owner", "error.ref"])
def test_a_token_below_any_member_is_learned(name: str) -> None:
    def answer(at: int) -> str:
        inner = f'"token": "zq{at * 7919}x{at}"'
        for key in reversed(name.split(".")):
            inner = f'"{key}": {{{inner}}}'
        return f'{{{inner}, "name": "Ann", "plan": "basic", "seats": 4, "city": "Ulm"}}'

    assert nudged(evaluate(steps([("get_user", {"id": 4}, answer(at)) for at in range(9)]))) is not None
