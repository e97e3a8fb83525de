"""An error that passes has to be stated: program text, settings, headers and listings that name one excuse no repeat."""

from __future__ import annotations

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate, record
from trajectory_guard.core.content.transient import is_transient

QUOTED = {
    "Python import": "26:from urllib3.exceptions import ReadTimeoutError\n27:import os",
    "Python import of several": "31:from .exceptions import (ConnectionError, ConnectTimeout, ReadTimeout,\n32:    ProxyError)",
    "Python except": "    except TimeoutError:\n        pass",
    "Python raise": '        raise TimeoutError("no answer")',
    "frame of a traceback": '  File "net.py", line 9, in recv\n    return self._recv(size, timeout) or b""\nEOFError',
    "Python setting": "timeout = 30",
    "Python call": "resp = requests.get(url, timeout=timeout_s)",
    "comment": "# retry after the time-out",
    "JavaScript": "const limiter = rateLimit({ max: 5 })",
    "Java": "} catch (TimeoutException e) {",
    "Go": "\tif err == context.ErrTimeout {",
    "YAML": "connect_timeout: 30s",
    "JSON": '"read_timeout": 5,',
    "ini": "lock_timeout=10",
    "table": "| connect timeout | 30 |",
    "search through files": "src/net.py:12:    except ConnectTimeout:",
    "numbered prose": "   7\tThe client gives up after the time-out.\n   8\tThen it exits.",
}
NO_RETRY = (
    "The browser is currently unavailable. Do NOT retry the browser tool \u2014 it will keep failing.",
    '{"error": "backend timeout", "retryable": false}',
    "Connection refused. Retrying will not help.",
    "Timeout; retrying won't help",
    "Rate limit of this run is used up: do not call 'search' again.",
    "Rate limit of this run is used up. Do not make additional tool calls.",
    "503 Service Unavailable (non-retryable)",
    "Timeout. This operation should not be retried.",
)
RETRY_LATER = (
    "Rate limit exceeded. Do not retry before 10:05",
    "Rate limit exceeded. Do not call this API again before 10:05",
    "Rate limit exceeded. Do not make any more calls until tomorrow",
    "429: quota exceeded, don't retry until tomorrow",
    "Timeout. Please don't try again too often",
    '{"error": "backend timeout", "retryable": true}',
    "max retries exceeded: connection refused",
    "Timed out after 3 retries; no more retries",
    "Too many requests, do not retry for 30 seconds",
    "rate limited: not retrying now",
    "Do not retry this request immediately: rate limit",
    "connection refused, retrying in 5 s",
)
STATED = (
    'requests.exceptions.ReadTimeout: HTTPSConnectionPool(host="x", port=443): Read timed out. (read timeout=5)',
    'File "a.py", line 3, in get\n    r = requests.get(u, timeout=5)\nrequests.exceptions.ConnectTimeout: timed out',
    "Error: connect ECONNREFUSED 127.0.0.1:5432",
    "TimeoutError",
    "Error: timeout of 5000ms exceeded",
    "psql: error: connection to server failed: Connection refused\n\tIs the server running?",
    "ERROR: Could not connect\nWARNING: Retrying (Retry(total=4, connect=None)) after 'ReadTimeoutError(...)'",
    'level=error msg="dial tcp 10.0.0.7:443: connection refused"',
    "* connect to 127.0.0.1 port 80 failed: Connection refused",
    "ERROR: canceling statement due to lock timeout",
    '{"status_code": 503, "body": ""}',
)
PAGE = (
    '{"status_code": 404, "headers": {"Server": "Apache", "Keep-Alive": "timeout=5, max=100", "Content-Length": "281"},'
    ' "body": "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1>The requested URL was not found'
    ' on this server.</body></html>", "truncated": false, "elapsed": null, "redirects": []}'
)


FRAMES = """Traceback (most recent call last):
  File "net.py", line 66, in loop
    buffer = data = self.server.recv(SIZE, timeout=LIMIT)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "tube.py", line 106, in recv
    return self._recv(size, timeout) or b""
"""


@pytest.mark.parametrize("name", QUOTED)
def test_a_refusal_that_quotes_program_text_does_not_pass(name: str) -> None:
    result = f"Your edit was refused.\nERRORS:\n- E999 IndentationError: unexpected indent\n{QUOTED[name]}\n"
    verdicts = evaluate(steps([("edit", {"command": "edit 31"}, result)] * 6))
    assert nudged(verdicts) == 2
    assert stopped(verdicts) == 4


@pytest.mark.parametrize("name", QUOTED)
def test_a_file_that_names_a_time_out_is_a_file_that_is_read_again(name: str) -> None:
    result = f"[File: net.py (80 lines)]\n{QUOTED[name]}\n(70 more lines)"
    assert nudged(evaluate(steps([("open", {"path": "net.py"}, result)] * 4))) == 2


@pytest.mark.parametrize("text", STATED)
def test_a_stated_time_out_passes(text: str) -> None:
    assert is_transient(text, None)
    for outcome in ("error", "success"):
        assert stopped(evaluate(steps([("run", {"cmd": "x"}, text, outcome)] * 12))) is None


def test_an_error_is_not_what_the_frames_above_it_quote() -> None:
    closed = steps([("send", {"line": "0 0"}, f"{FRAMES}EOFError: the session is closed", "error")] * 8)
    assert stopped(evaluate(closed)) == 4
    late = steps([("send", {"line": "0 0"}, f"{FRAMES}socket.timeout: timed out", "error")] * 8)
    assert stopped(evaluate(late)) is None


def test_a_page_that_is_not_there_does_not_appear_because_of_its_headers() -> None:
    assert not is_transient(PAGE, None)
    assert nudged(evaluate(steps([("http_request", {"url": "http://x/.env"}, PAGE)] * 4))) == 2


@pytest.mark.parametrize(
    "result",
    [
        '{"exit_code": 2, "stdout": "", "stderr": "no rule"}',
        '{"returncode": 127, "output": "sh: mongo: not here"}',
        '{"statusCode": "404", "body": "Not Found"}',
        "sh: mongo: not here\ncommand terminated with exit code 127",
        "[Process exited with code 1]",
    ],
)
def test_calls_in_other_words_that_end_with_one_status_fail(result: str) -> None:
    calls = [
        ("exec", {"command": f"mongo {flag}"}, result) for flag in ("-u a", "-u a -p b", "--eval c", "-h d", "-V", "-q")
    ]
    assert nudged(evaluate(steps(calls))) is not None


@pytest.mark.parametrize(
    "result", ['{"exit_code": 0, "stdout": ""}', '{"status_code": 204}', '{"code": 3, "name": "red"}', "exit code 0"]
)
def test_a_status_of_zero_or_two_hundred_is_no_failure(result: str) -> None:
    names = ("lamp", "chair", "table", "shelf", "stool")
    verdicts = evaluate(steps([("put", {"item": name}, result) for name in names]))
    assert not any(found.rule == "same_error" for one in verdicts if one for found in one.detections)


@pytest.mark.parametrize("text", NO_RETRY)
def test_an_error_that_forbids_a_retry_does_not_pass(text: str) -> None:
    assert not is_transient(text, None)
    assert nudged(evaluate(steps([("click", {"ref": "e109"}, text, "error")] * 4))) == 2


@pytest.mark.parametrize("status", ["403", "HTTP 403", "http 403", "Status 403", "Error code: 404"])
def test_a_refusal_that_mentions_a_lock_does_not_pass_however_it_is_spelt(status: str) -> None:
    text = f"{status}: ticket is locked"
    assert not is_transient(text, None)
    assert nudged(evaluate(steps([("close", {"ticket": 7}, text, "error")] * 4))) == 2


@pytest.mark.parametrize("text", RETRY_LATER)
def test_an_error_that_allows_a_retry_later_passes(text: str) -> None:
    assert is_transient(text, None)


LASTING_NAMES = (
    "npm error ERESOLVE unable to resolve dependency tree\nnpm error Could not resolve dependency:\nnpm error peer react@17",
    "Could not resolve all files for configuration ':app:debugCompileClasspath'.",
    "Could not resolve placeholder 'db.url' in value \"${db.url}\"",
    "error: could not resolve import './theme'",
)


@pytest.mark.parametrize("text", LASTING_NAMES)
def test_a_name_in_a_program_that_cannot_be_resolved_does_not_pass(text: str) -> None:
    """Found: an `npm install` that failed for a conflict was a wait, and stopped never."""
    assert not is_transient(text, None)
    assert stopped(evaluate(steps([("bash", {"command": "npm install"}, text, "error")] * 9))) is not None


@pytest.mark.parametrize("what", ["host: github.com", "proxy: gate.corp", "hostname db-7", "the host name 'x'"])
def test_a_name_of_the_network_that_cannot_be_resolved_may_pass(what: str) -> None:
    assert is_transient(f"Could not resolve {what}", None)


# Found: where a framework drops the class of an exception (Agno), a call that failed the same way twelve times was
# nudged once and stopped at the sixteenth.
@pytest.mark.parametrize(
    "text",
    [
        "list index out of range",
        "'str' object has no attribute 'items'", "division by zero", "f() got an unexpected keyword argument 'x'",
        "f() missing 1 required positional argument: 'q'", "'NoneType' object is not subscriptable",
        "Name a colour that I know.\n\nFix the errors and try again.",
    ],
)  # fmt: skip
def test_the_text_of_an_exception_without_its_class_shows_that_it_lasts(text: str) -> None:
    failing = [record("read_config", {"path": "/etc/app.yaml"}, text, "error") for _ in range(6)]
    assert stopped(evaluate(failing)) == 4


def test_an_error_in_words_that_nobody_knows_may_pass() -> None:
    failing = [record("start", {"motor": 7}, "E-17: not yet", "error") for _ in range(12)]
    assert stopped(evaluate(failing)) is None
