"""A host that redirects elsewhere: no client sends its secrets, or anything else, to the host it is told to ask."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.collector.backends import settings, spans
from trajectory_guard.cli.main import main
from trajectory_guard.gates.remote import Caller, RemoteFlags
from trajectory_guard.integrations.langfuse.client import Connection, RefusedAccessError, ScoresClient
from trajectory_guard.integrations.langfuse.scores import LangfuseScore
from trajectory_guard_collector.gateway.exporters import build_exporters
from trajectory_guard_collector.gateway.exporters.base import RetryableExportError
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

STATUSES = (301, 302, 303, 307, 308)


class Hosts(NamedTuple):
    """A host that redirects every request, the host that it redirects to, and the requests that each has got."""

    url: str
    other: str
    asked: list[str]
    other_asked: list[str]


@contextmanager
def serving(asked: list[str], status: int, location: str = "") -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(f"{self.command} {self.headers.get('Authorization')}")
            self.send_response(status)
            if location:
                self.send_header("Location", f"{location}/elsewhere?code=private")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(params=STATUSES)
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    asked, other_asked = list[str](), list[str]()
    with serving(other_asked, 200) as other:
        other = other.replace("127.0.0.1", "localhost")
        with serving(asked, request.param, other) as url:
            yield Hosts(url, other, asked, other_asked)


def test_a_gate_takes_a_redirect_for_no_answer(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[int] = []
    flags = RemoteFlags(hosts.url, "s3cret", 20.0, lambda: failures.append(1))
    assert flags.ask("c", -1, 0, Caller()) is None
    assert (hosts.asked, hosts.other_asked) == (["GET Bearer s3cret"], [])
    assert len(failures) == 1
    assert "private" not in caplog.text


@pytest.mark.parametrize("words", [("show",), ("raise", "--reason", "why"), ("clear", "--reason", "why")])
def test_the_command_names_the_host_that_it_does_not_ask(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    other_asked, asked = list[str](), list[str]()
    with serving(other_asked, 200) as other, serving(asked, 302, other) as url:
        assert main(["flag", *words, "c", "--collector", url, "--token-file", str(tmp_path / "token")]) == 2
    said = capsys.readouterr().err
    assert f"302: redirects to {other}, which is not followed" in said
    assert "private" not in said
    assert (len(asked), other_asked) == (1, [])


def test_scores_go_to_no_other_host(hosts: Hosts) -> None:
    score = LangfuseScore(
        id="1", name="health", value=1.0, trace_id="a" * 32, session_id=None, comment="", metadata={},
        data_type="NUMERIC", timestamp=1_700_000_000.0,
    )  # fmt: skip
    client = ScoresClient(Connection(hosts.url, "pk", "sk"))
    try:
        with pytest.raises(RefusedAccessError):
            list(client.send([score]))
    finally:
        client.close()
    assert hosts.asked
    assert hosts.other_asked == []


async def test_spans_go_to_no_other_host(hosts: Hosts) -> None:
    config = settings({"otlphttp": {"endpoint": hosts.url, "headers": {"Authorization": "Bearer s3cret"}}})
    (exporter,) = build_exporters(config.exporters, ThrottledLog(logging.getLogger("test")))
    await exporter.start()
    try:
        with pytest.raises(RetryableExportError):
            await exporter.export(spans(range(2)))
    finally:
        await exporter.stop()
    assert (hosts.asked, hosts.other_asked) == (["POST Bearer s3cret"], [])
