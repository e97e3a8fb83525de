"""Questions to a collector that hold odd text: each is answered, or fails alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trajectory_guard.gates.remote import Caller, RemoteFlags


class Collector(ThreadingHTTPServer):
    """Has no flag for any trajectory, and notes for which it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answers(BaseHTTPRequestHandler):
    server: Collector

    def do_GET(self) -> None:
        self.server.asked.append(self.path.partition("?")[0].rpartition("/")[2])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"level": "OBSERVE"}).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server
        server.shutdown()


def client(collector: Collector, failures: list[int]) -> RemoteFlags:
    return RemoteFlags(f"http://127.0.0.1:{collector.server_port}", None, 10.0, lambda: failures.append(1))


def test_an_id_cut_off_within_an_emoji_is_asked_for_as_the_collector_names_it(collector: Collector) -> None:
    """Half a surrogate pair is a question mark in the names that it reads from spans."""
    failures: list[int] = []
    flags = client(collector, failures)
    for name in ("thread-\ud83d", "another"):
        assert flags.ask(name, 0, 0, Caller("shop\ud83d", "clerk\ud83d", {"service.namespace": "\ud83d"})) is not None
    assert (collector.asked, failures) == (["thread-%3F", "another"], [])


def test_a_question_that_cannot_be_put_makes_no_collector_silent(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    failures: list[int] = []
    flags = client(collector, failures)
    assert flags.ask("odd", 0, 0, Caller(resource={"service.namespace": Odd()})) is None
    assert (collector.asked, failures) == ([], [1])
    assert "no text" in caplog.text
    assert flags.may_have_budgets
    assert flags.ask("another", 0, 0, Caller()) is not None
