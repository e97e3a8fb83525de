"""Pauses between attempts, and log lines about them."""

from __future__ import annotations

import logging
from datetime import datetime, timezone

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from tests.collector.backends import delivering, grpc_backend, http_backend, otlp, refuse, settings, spans, status
from trajectory_guard.backoff import MAX_REQUESTED_PAUSE_S, parse_retry_after
from trajectory_guard_collector.config.models import Retry
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.gateway.exporters.sender import RetryPauses
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

NOON = datetime(2026, 11, 20, 12, 0, 0, tzinfo=timezone.utc)


def test_pauses_grow_to_the_longest():
    backoff = RetryPauses(Retry(initial_interval_s=1, multiplier=2, max_interval_s=5, randomization_factor=0))
    assert [backoff.next_pause_s() for _ in range(5)] == [1, 2, 4, 5, 5]


@given(st.floats(0.001, 100), st.floats(1, 10), st.floats(1, 100), st.floats(0, 0.99), st.integers(0, 20))
def test_the_formula(initial, multiplier, longest, share, n):
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    retry = Retry(
        initial_interval_s=initial,
        multiplier=multiplier,
        max_interval_s=longest * initial,
        randomization_factor=share,
    )
    backoff = RetryPauses(retry, uniform=uniform)
    pauses = [backoff.next_pause_s() for _ in range(n + 1)]
    interval = min(longest * initial, initial * multiplier**n)
    assert bounds[n] == pytest.approx((interval * (1 - share), interval * (1 + share)))
    assert pauses[n] == bounds[n][1]


def test_jitter_spreads_pauses():
    pauses = [RetryPauses(Retry()).next_pause_s() for _ in range(200)]
    assert all(0.5 <= pause <= 1.5 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.5


@pytest.mark.parametrize(
    "requested, pause", [(None, 1.0), (0.0, 1.0), (0.5, 1.0), (7.0, 7.0), (1e9, MAX_REQUESTED_PAUSE_S)]
)
def test_what_the_backend_asks_for_is_a_minimum(requested, pause):
    backoff = RetryPauses(Retry(randomization_factor=0))
    assert backoff.next_pause_s(requested) == pause
    assert backoff.next_pause_s() == 1.5


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("0", 0.0),
        (" 30 ", 30.0),
        ("Fri, 20 Nov 2026 12:00:10 GMT", 10.0),
        ("Fri, 20 Nov 2026 12:00:10 -0000", 10.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("9" * 400, float("inf")),
    ],
)
def test_retry_after_headers(value, seconds):
    assert parse_retry_after(value, NOON) == seconds


def test_lines_of_a_kind_are_logged_once_a_minute_with_a_count(caplog):
    now = [0.0]
    log = ThrottledLog(logging.getLogger("throttled"), clock=lambda: now[0])
    for second in range(0, 130, 10):
        now[0] = float(second)
        log.log(logging.WARNING, "otlp/retry", f"failed at {second}")
    log.log(logging.WARNING, "other/retry", "another kind")
    assert [record.message for record in caplog.records] == [
        "failed at 0",
        "failed at 60 (5 more like this since)",
        "failed at 120 (5 more like this since)",
        "another kind",
    ]


def test_kinds_are_bounded(caplog):
    log = ThrottledLog(logging.getLogger("throttled"), clock=lambda: 0.0)
    for number in range(1000):
        log.log(logging.WARNING, f"kind {number}", "line")
    log.log(logging.WARNING, "kind 0", "forgotten, so logged again")
    log.log(logging.WARNING, "kind 999", "remembered")
    assert caplog.records[-1].message == "forgotten, so logged again"


FAR = "Wed, 21 Oct 2037 07:28:00 GMT"


@pytest.mark.parametrize(
    "answer, most",
    [
        (status(429, retry_after=FAR), {}),
        (status(503, retry_after="31536000"), {}),
        (status(429, retry_after="9" * 400), {"max_retry_after_s": 20.0}),
        (status(403, retry_after=FAR), {"max_retry_after_s": 0.5}),
        (refuse(StatusCode.RESOURCE_EXHAUSTED, retry_after_s=1e9), {"max_retry_after_s": 7.0}),
        (refuse(StatusCode.UNAVAILABLE, retry_after_s=4e8), {}),
    ],
)
async def test_a_sender_is_not_asked_to_wait_for_years(answer, most):
    async with http_backend() as http, grpc_backend() as grpc:
        http.always = grpc.always = answer
        over_http = "status" in answer.__qualname__
        section = {"retry_on_failure": most}
        exporters = (
            {"otlphttp": {"endpoint": http.endpoint, **section}} if over_http else {"otlp": otlp(grpc, **section)}
        )
        async with delivering(settings(exporters, deadline_s=0.4)) as delivery:
            with pytest.raises(UnavailableError) as caught:
                await delivery.deliver(spans([1]))
    assert caught.value.retry_after_s == most.get("max_retry_after_s", 300.0)


async def test_the_next_attempt_does_not_wait_for_years():
    async with http_backend() as backend:
        backend.script.append(status(429, retry_after=FAR))
        retry = {"initial_interval_s": 0.01, "max_interval_s": 0.01, "max_retry_after_s": 0.02}
        exporters = {"otlphttp": {"endpoint": backend.endpoint, "retry_on_failure": retry}}
        async with delivering(settings(exporters, deadline_s=20.0)) as delivery:
            await delivery.deliver(spans(range(3)))
    assert backend.spans.total() == 3


# Found: a backend that asked for a pause beyond queue.deadline_s was named in no log line.
@pytest.mark.parametrize(
    "answer",
    [
        status(429, "slow down", retry_after="30"),
        status(503, "slow down", retry_after="9"),
        refuse(StatusCode.RESOURCE_EXHAUSTED, "slow down", retry_after_s=60.0),
        refuse(StatusCode.UNAVAILABLE, "slow down", retry_after_s=30.0),
        refuse(StatusCode.UNAUTHENTICATED, "slow down"),
    ],
)
async def test_a_backend_that_leaves_no_time_for_another_attempt_is_named_in_the_log(answer, caplog):
    async with http_backend() as http, grpc_backend() as grpc:
        http.always = grpc.always = answer
        retry = {"retry_on_failure": {"initial_interval_s": 9.0}}
        over_http = "status" in answer.__qualname__
        exporters = {"otlphttp": {"endpoint": http.endpoint, **retry}} if over_http else {"otlp": otlp(grpc, **retry)}
        async with delivering(settings(exporters, deadline_s=4.0)) as delivery:
            for number in range(3):
                with pytest.raises(UnavailableError):
                    await delivery.deliver(spans([number]))
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(said) == 1
    assert "slow down" in said[0]
    assert said[0].endswith("; there is no time for another attempt")
