"""JSON logs: one object a line, whatever is logged, and no floods."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.collector.kit import new_scorer, request, tool
from tests.collector.receiver_helpers import Authority
from tests.faults.processes import Collector
from trajectory_guard.logs import write_entry
from trajectory_guard_collector.scoring import identification
from trajectory_guard_collector.telemetry.logs import configure
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog, ThrottledRecords

Lines = Callable[[], list[dict[str, Any]]]
logger = logging.getLogger("trajectory_guard_collector.test")


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("httpx", "uvicorn", "uvicorn.error", "asyncio", "grpc")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def lines(_logging_as_before: None) -> Lines:
    stream = io.StringIO()
    output = configure("info", stream)

    def read() -> list[dict[str, Any]]:
        output.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    return read


def test_a_line_says_when_how_bad_who_and_what(lines: Lines) -> None:
    logger.warning("disk is %d %% full", 91, extra={"storage": "/data", "size_mib": 930.5})
    (entry,) = lines()
    assert entry.pop("timestamp").endswith("+00:00")
    assert entry == {
        "level": "warning", "logger": "trajectory_guard_collector.test", "message": "disk is 91 % full",
        "storage": "/data", "size_mib": 930.5,
    }  # fmt: skip


@pytest.mark.parametrize("message", ['two\nlines "quoted"', "half a pair \ud83d", "\x00\x1b[31m", "ü ✓"])
def test_any_text_stays_one_line(lines: Lines, message: str) -> None:
    logger.error("%s", message)
    assert [entry["message"] for entry in lines()] == [message]


def test_an_exception_and_a_value_that_is_no_json_are_text(lines: Lines) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed", extra={"what": {1, 2} - {2}})
    (entry,) = lines()
    assert entry["what"] == "{1}"
    assert entry["exception"].endswith("ValueError: boom")


def test_an_entry_of_the_guard_stays_an_object(lines: Lines) -> None:
    write_entry(logging.WARNING, {"event_type": "TRAJECTORY_NUDGE", "tool": "search"})  # has attributes, too
    logging.getLogger("trajectory_guard").warning("{not json")
    first, second = lines()
    assert (first["message"], first["verdict"]["tool"]) == ("TRAJECTORY_NUDGE", "search")
    assert first.keys() == {"timestamp", "level", "logger", "message", "verdict"}
    assert second["message"] == "{not json"


def test_levels_hold_and_libraries_do_not_chat(lines: Lines) -> None:
    logger.debug("not heard")
    logging.getLogger("httpx").info("HTTP Request: POST")
    logging.getLogger("httpx").warning("heard")
    assert [entry["message"] for entry in lines()] == ["heard"]


def test_a_message_is_logged_once_a_minute_with_the_number_left_out(lines: Lines) -> None:
    now = 0.0
    throttled = ThrottledLog(logger, clock=lambda: now)
    for second in range(150):
        now = float(second)
        throttled.log(logging.WARNING, "otlp:UNAVAILABLE", f"attempt {second}")
    reported = [entry["message"] for entry in lines()]
    assert reported == ["attempt 0", "attempt 60 (59 more like this since)", "attempt 120 (59 more like this since)"]


def test_kinds_are_distinguished_and_their_memory_is_bounded(lines: Lines) -> None:
    throttled = ThrottledLog(logger, clock=lambda: 0.0)
    for _ in range(2):
        for kind in ("a", "b"):
            throttled.log(logging.ERROR, kind, kind)
    for kind in range(300):
        throttled.log(logging.DEBUG, str(kind), "unheard")
    throttled.log(logging.ERROR, "a", "evicted, so logged again")
    assert [entry["message"] for entry in lines()] == ["a", "b", "evicted, so logged again"]


def test_spans_that_cannot_be_read_are_logged_once_a_minute(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that every span meets would else write a traceback for each."""

    def fails(*_: Any, **__: Any) -> None:
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(identification, "read_known_step", fails)
    scorer = new_scorer()
    for at in range(20):
        scorer.score(request(tool(f"s{at}", at=at)))
    [entry] = lines()
    assert entry["message"] == "a span could not be scored; it is forwarded unchanged"
    assert "unhashable type" in json.dumps(entry)
    counted = scorer.metrics.registry.get_sample_value(
        "trajectory_guard_errors_total", {"trajectory_guard_error_where": "evaluate.span"}
    )
    assert counted == 20


def test_clients_without_tls_write_nothing_to_the_log_of_a_server_with_it(tmp_path: Path) -> None:
    """gRPC's C core, which knows nothing of the format, would write a line for each failed handshake."""
    cert, key = Authority(tmp_path).issue("localhost")
    collector = Collector(tmp_path, {"debug": {}}, grpc={"tls": {"cert_file": cert, "key_file": key}})
    try:
        collector.start()
        http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
        for sent in (http2, b"GET / HTTP/1.1\r\n\r\n"):
            one = socket.create_connection(("127.0.0.1", collector.grpc_port), 10.0)
            with one, suppress(ConnectionError):
                one.sendall(sent)
                while one.recv(4_096):
                    pass  # until gRPC closes the connection
    finally:
        collector.stop()
    assert [line for line in collector.log.read_text().splitlines() if not line.startswith("{")] == []


def test_records_that_differ_in_numbers_only_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    library = logging.getLogger("a.library")
    throttled = ThrottledRecords(clock=lambda: now[0])
    library.addFilter(throttled)
    try:
        for nth in range(5):
            library.error("attempt %d failed after %d ms", nth, 10 * nth)
        library.error("something else")
        now[0] = 61.0
        library.error("attempt %d failed after %d ms", 9, 90)
    finally:
        library.removeFilter(throttled)
    assert [one.getMessage() for one in caplog.records] == [
        "attempt 0 failed after 0 ms",
        "something else",
        "attempt 9 failed after 90 ms (4 more like this since)",
    ]
