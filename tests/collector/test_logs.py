"""JSON logs: one object a line, whatever is logged, and no floods."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trajectory_guard_collector.logs import MAX_KEYS, RateLimiter, configure, log_once_a_minute

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
    configure("info", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


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
    logging.getLogger("trajectory_guard").warning('{"event_type": "TRAJECTORY_NUDGE", "tool": "search"}')
    logging.getLogger("trajectory_guard").warning("{not json")
    first, second = lines()
    assert (first["message"], first["verdict"]["tool"]) == ("TRAJECTORY_NUDGE", "search")
    assert second["message"] == "{not json"


def test_levels_hold_and_libraries_do_not_chat(lines: Lines) -> None:
    logger.debug("not heard")
    logging.getLogger("httpx").info("HTTP Request: POST")
    logging.getLogger("httpx").warning("heard")
    assert [entry["message"] for entry in lines()] == ["heard"]


def test_a_message_is_logged_once_a_minute_with_the_number_held_back(lines: Lines) -> None:
    now = 100.0
    limiter = RateLimiter(clock=lambda: now)
    for second in range(150):
        now = 100.0 + second
        log_once_a_minute(
            logger, logging.WARNING, "otlp:UNAVAILABLE", f"attempt {second}", limiter=limiter, exporter="otlp"
        )
    told = [(entry["message"], entry.get("repeated"), entry["exporter"]) for entry in lines()]
    assert told == [("attempt 0", None, "otlp"), ("attempt 60", 59, "otlp"), ("attempt 120", 59, "otlp")]


def test_keys_and_loggers_are_told_apart(lines: Lines) -> None:
    limiter = RateLimiter(clock=lambda: 0.0)
    for _ in range(2):
        for key in ("a", "b"):
            log_once_a_minute(logger, logging.ERROR, key, key, limiter=limiter)
        log_once_a_minute(logging.getLogger("another"), logging.ERROR, "a", "a", limiter=limiter)
    assert [(entry["logger"], entry["message"]) for entry in lines()] == [
        (logger.name, "a"), (logger.name, "b"), ("another", "a"),
    ]  # fmt: skip


def test_a_level_that_is_off_starts_no_pause(lines: Lines) -> None:
    limiter = RateLimiter(clock=lambda: 0.0)
    log_once_a_minute(logger, logging.DEBUG, "a", "not heard", limiter=limiter)
    log_once_a_minute(logger, logging.ERROR, "a", "heard", limiter=limiter)
    assert [entry["message"] for entry in lines()] == ["heard"]


def test_memory_of_messages_is_bounded_and_the_longest_unused_go_first() -> None:
    limiter = RateLimiter(clock=lambda: 0.0)
    assert [limiter.passes(f"key {number}") for number in range(MAX_KEYS + 1)] == [0] * (MAX_KEYS + 1)
    assert limiter.passes("key 0") == 0, "forgotten"
    assert limiter.passes(f"key {MAX_KEYS}") is None
