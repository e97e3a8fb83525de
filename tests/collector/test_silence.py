"""The line for a collector to which nobody sends."""

from __future__ import annotations

import logging

import pytest

from tests.collector.kit import all_spans, new_scorer, request, tool
from tests.collector.test_pipeline import Backend, pipeline
from trajectory_guard_collector.app.silence import Silence
from trajectory_guard_collector.otlp.signals import Batch, Signal

ENDPOINTS = {"telemetry": "localhost:8888", "otlp/grpc": "localhost:4317", "otlp/http": "localhost:4318"}


@pytest.mark.parametrize(("heard", "lines"), [(False, 1), (True, 0)])
def test_a_collector_without_spans_says_so_once(heard: bool, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    silence = Silence(lambda: heard, clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        for now[0] in (101.0, 129.9):
            silence.look(ENDPOINTS)
        assert caplog.messages == []
        for now[0] in (130.0, 131.0, 500.0):
            silence.look(ENDPOINTS)
    assert len(caplog.messages) == lines
    assert all("otlp/grpc on localhost:4317 and otlp/http on localhost:4318" in one for one in caplog.messages)
    assert not any("8888" in one for one in caplog.messages)


def test_spans_that_come_later_do_not_bring_the_line_back(caplog: pytest.LogCaptureFixture) -> None:
    now, heard = [0.0], [True]
    silence = Silence(lambda: heard[0], clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        now[0] = 30.0
        silence.look(ENDPOINTS)
        heard[0], now[0] = False, 60.0
        silence.look(ENDPOINTS)
    assert caplog.messages == []


async def test_a_pipeline_knows_whether_spans_have_come() -> None:
    line = pipeline(Backend(), new_scorer())
    await line.accept(Batch(Signal.METRICS, b"whatever it is", 3))
    assert not line.has_spans
    data = request(tool("a"))
    await line.accept(Batch(Signal.TRACES, data, len(all_spans(data))))
    assert line.has_spans
