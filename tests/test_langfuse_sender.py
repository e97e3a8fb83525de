"""Sending scores through everything that can go wrong, over real HTTP, to a strict server."""

from __future__ import annotations

import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import httpx
import pytest
from langfuse.api.core import ApiError

from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Form, Langfuse, Reply, langfuse, rate_limited
from trajectory_guard.integrations.langfuse import client as langfuse_client
from trajectory_guard.integrations.langfuse.client import Connection
from trajectory_guard.integrations.langfuse.scores import LangfuseScore
from trajectory_guard.integrations.langfuse.sender import RateLimit, ScoreSender

FAST = RateLimit(batches_per_minute=60_000, initial_s=0.01, max_s=0.05, refused_s=0.05)


@pytest.fixture(params=["list", "single"])
def server(request: pytest.FixtureRequest) -> Iterator[Langfuse]:
    with langfuse(request.param) as running:
        yield running


def score(number: int = 1, value: float = 0.5, **fields: Any) -> LangfuseScore:
    fields = {"name": "trajectory_health", "trace_id": "a" * 32, **fields}
    return LangfuseScore(
        id=f"score-{number}", value=value, data_type="NUMERIC", timestamp=1_700_000_000.25, session_id=None,
        comment="why", metadata={"n": number}, **fields,
    )  # fmt: skip


def sender(server: Langfuse | str, rate_limit: RateLimit = FAST, **fields: Any) -> ScoreSender:
    url = server if isinstance(server, str) else server.url
    more = {name: fields.pop(name) for name in ("on_finished", "on_failed") if name in fields}
    one = ScoreSender(Connection(url, PUBLIC_KEY, SECRET_KEY, **{"timeout_s": 5.0, **fields}), rate_limit, **more)
    _senders.append(one)
    return one


def until_counted(one: ScoreSender, what: str) -> None:
    end = time.monotonic() + 30
    while not one.counts[what]:
        assert time.monotonic() < end
        time.sleep(0.005)


_senders: list[ScoreSender] = []


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    while _senders:
        _senders.pop().stop(0.0)


def test_what_arrives_is_what_was_put(server: Langfuse) -> None:
    one = sender(server)
    one.put([score(1, environment="prod")])
    assert one.flush(15)
    assert server.written == [
        {
            "id": "score-1", "name": "trajectory_health", "value": 0.5, "dataType": "NUMERIC", "traceId": "a" * 32,
            "comment": "why", "metadata": {"n": 1}, "environment": "prod", "timestamp": "2023-11-14T22:13:20.250000Z",
        }
    ]  # fmt: skip


def test_many_scores_go_in_batches_of_fifteen() -> None:
    with langfuse("list") as server:
        one = sender(server)
        one.put(score(number) for number in range(40))
        assert one.flush(15)
    assert [len(body) for _, body in server.requests] == [15, 15, 10]


def test_an_older_server_gets_single_scores_and_is_asked_only_once() -> None:
    with langfuse("single") as server:
        one = sender(server)
        one.put(score(number) for number in range(20))
        assert one.flush(15)
    assert [status for status, _ in server.requests] == [400, 400, *[200] * 20]
    assert [body["id"] for _, body in server.requests[2:]] == [f"score-{number}" for number in range(20)]


def test_a_server_that_is_updated_meanwhile_is_followed() -> None:
    with langfuse("single") as server:
        one = sender(server)
        one.put([score(1)])
        assert one.flush(15)
        server.form = "list"
        one.put([score(2)])
        assert one.flush(15)
        one.put([score(3), score(4)])
        assert one.flush(15)
    assert [status for status, _ in server.requests] == [400, 200, 400, 202, 202]
    assert len(server.scores) == 4


@pytest.mark.parametrize("trouble", [rate_limited(0), Reply(500), Reply(502), Reply(503), Reply(408)])
def test_what_may_pass_is_tried_again(server: Langfuse, trouble: Reply) -> None:
    one = sender(server)
    server.script.extend([trouble] * 3)
    one.put([score(1)])
    assert one.flush(15)
    assert [status for status, _ in server.requests][:3] == [trouble.status] * 3
    assert server.violations == []
    assert (one.counts["langfuse_retries"], one.counts["scores.sent"]) == (3, 1)


def test_retry_after_is_waited_for() -> None:
    with langfuse() as server:
        server.script.append(rate_limited(1))
        one = sender(server)
        began = time.monotonic()
        one.put([score(1)])
        assert one.flush(15)
        assert time.monotonic() - began >= 1.0


def test_parts_that_were_taken_are_not_sent_again() -> None:
    with langfuse("single") as server:
        one = sender(server)
        one.put([score(0)])
        assert one.flush(15)
        server.script.extend([Reply(200, carried_out=True, body='{"id": "some"}')] * 7 + [rate_limited(0)])
        one.put(score(number) for number in range(1, 16))
        assert one.flush(15)
    assert server.violations == []
    assert len(server.written) == 16


def test_an_answer_that_got_lost_is_an_update_without_a_change() -> None:
    with langfuse() as server:
        server.script.append(Reply(502, carried_out=True))
        one = sender(server)
        one.put([score(1)])
        assert one.flush(15)
    assert len(server.scores) == 1
    assert server.written[0] == server.written[1]


def test_a_server_that_comes_up_later_gets_everything() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    one = sender(f"http://127.0.0.1:{port}")
    one.put(score(number) for number in range(3))
    until_counted(one, "langfuse_retries")
    with langfuse(port=port) as server:
        assert one.flush(15)
    assert len(server.scores) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_refused_access_is_logged_once_and_nothing_is_lost(
    server: Langfuse, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.always = Reply(status)
    if status == 401:
        server.keys = ("pk", "other")
    one = sender(server)
    one.put([score(1)])
    server.wait(lambda: len(server.requests) >= 3)
    server.always, server.keys = None, (PUBLIC_KEY, SECRET_KEY)
    assert one.flush(15)
    assert len(server.scores) == 1
    assert one.counts["errors.langfuse"] >= 3
    reported = [entry for entry in caplog.records if "scores wait" in entry.message]
    assert len(reported) == 1
    assert f"answered {status}" in reported[0].message
    assert SECRET_KEY not in caplog.text


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("http://me:s3cr3t@127.0.0.1:9/proxy", "http://127.0.0.1:9/proxy/api/public/scores: ConnectError"),
        ("http://me:s3cr3t@127.0.0.1:no", "http://127.0.0.1:no/api/public/scores is not a valid URL"),
        ("http://me:s3/cr3t@127.0.0.1", "http://127.0.0.1/api/public/scores is not a valid URL"),
    ],
)
def test_a_password_in_the_address_is_not_logged(url: str, reported: str, caplog: pytest.LogCaptureFixture) -> None:
    one = sender(url)
    one.put([score(1)])
    end = time.monotonic() + 30
    while "scores wait" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    one.stop(0.0)
    assert reported in caplog.text
    assert "me:" not in caplog.text
    assert "cr3t" not in caplog.text


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(401), "401"), (Reply(404), "404"), (Reply(503), "503"), (rate_limited(0), "429"),
        (Reply(200, {"content-type": "text/html"}, body="<html>Sign in</html>"), "invalid"),
    ],
)  # fmt: skip
def test_failed_attempts_are_reported_by_status(reply: Reply, status: str) -> None:
    heard: list[str] = []
    with langfuse() as server:
        server.script.extend([reply] * 2)
        one = sender(server, on_failed=heard.append)
        one.put([score(1)])
        assert one.flush(15)
    assert heard == [status] * 2
    assert one.counts[f"score_attempts.{status}"] == 2


def test_an_address_where_nobody_answers_is_unreachable() -> None:
    one = sender("http://127.0.0.1:9")
    one.put([score(1)])
    until_counted(one, "score_attempts.unreachable")
    assert one.stop(0.0) == [score(1)]
    assert one.counts["score_attempts.unreachable"] >= 1
    assert set(one.counts) == {"langfuse_retries", "score_attempts.unreachable"}


def test_what_is_not_langfuse_is_no_success() -> None:
    with langfuse() as server:
        server.always = Reply(200, {"content-type": "text/html"}, body="<html>Sign in</html>")
        one = sender(server)
        one.put([score(1)])
        server.wait(lambda: len(server.requests) >= 2)
        assert one.waiting == [score(1)]


def test_a_rejected_score_is_counted_and_not_sent_again(server: Langfuse, caplog: pytest.LogCaptureFixture) -> None:
    one = sender(server)
    one.put([score(1), score(2, name=""), score(3)])
    assert one.flush(15)
    assert sorted(server.scores) == ["score-1", "score-3"]
    assert (one.counts["scores.sent"], one.counts["scores.rejected"]) == (2, 1)
    assert "1 scores rejected" in caplog.text
    assert "name" in caplog.text
    assert sum(1 for status, _ in server.requests if status == 207) <= 1


@pytest.mark.parametrize("wrong", [{"timestamp": 1e300}, {"timestamp": float("nan")}, {"value": []}, {"comment": 5}])
def test_a_score_that_cannot_be_sent_holds_up_no_other(server: Langfuse, wrong: dict[str, Any]) -> None:
    one = sender(server)
    one.put([score(1), score(2)._replace(**wrong), score(3)])
    assert one.flush(15)
    assert sorted(server.scores) == ["score-1", "score-3"]
    assert (one.counts["scores.sent"], one.counts["scores.rejected"]) == (2, 1)


def test_the_newest_value_takes_the_place_of_one_that_waits() -> None:
    with langfuse() as server:
        server.always = Reply(503)
        one = sender(server)
        for value in (0.4, 0.2, 0.9):
            one.put([score(1, value), score(2, value)])
        assert len(one.waiting) == 2
        server.wait(lambda: len(server.requests) > 0)  # with values of the moment when it was made up
        server.always = None
        assert one.flush(15)
    assert [entry["value"] for entry in server.written] == [0.9, 0.9]


def test_a_value_that_changes_while_the_last_one_is_under_way_is_sent_after_it() -> None:
    with langfuse() as server:
        one = sender(server)
        one.put([score(1, 0.4)])
        server.wait(lambda: len(server.requests) == 1)
        one.put([score(1, 0.2)])
        assert one.flush(15)
    assert [entry["value"] for entry in server.written] == [0.4, 0.2]
    assert server.violations == []


def test_too_many_push_out_the_oldest_and_are_counted() -> None:
    settled: list[tuple[str, str]] = []
    with langfuse() as server:
        server.always = Reply(503)
        one = sender(
            server, FAST._replace(max_waiting=20),
            on_finished=lambda scores, outcome: settled.extend((score.id, outcome) for score in scores),
        )  # fmt: skip
        one.put(score(number) for number in range(30))
        assert [entry.id for entry in one.waiting] == [f"score-{number}" for number in range(10, 30)]
        server.always = None
        assert one.flush(15)
    assert [entry for entry in settled if entry[1] == "dropped"] == [
        (f"score-{number}", "dropped") for number in range(10)
    ]
    assert one.counts["scores.dropped"] == 10
    assert len(server.scores) == 20


@pytest.mark.parametrize("arrives", [False, True])
def test_the_oldest_give_way_to_the_newest_even_while_they_are_being_sent(arrives: bool) -> None:
    """They are dropped only if they do not arrive."""
    dropped: list[str] = []
    newer = [[score(3), score(4)]]

    def put_more(*_: object) -> None:
        if newer:  # scores 1 and 2, or 2 alone, count as being sent until the attempt has ended
            one.put(newer.pop())
            assert [entry.id for entry in one.waiting] == ["score-3", "score-4"]

    def on_finished(scores: Sequence[LangfuseScore], outcome: str) -> None:
        dropped.extend(entry.id for entry in scores if outcome == "dropped")
        put_more()

    with langfuse() as server:
        server.script.append(Reply(400 if arrives else 503))  # after 400 each score of the batch is sent alone
        one = sender(server, FAST._replace(max_waiting=2), on_failed=put_more, on_finished=on_finished)
        one.put([score(1), score(2)])
        assert one.flush(15)
    assert dropped == ([] if arrives else ["score-1", "score-2"])
    assert sorted(server.scores) == [f"score-{number}" for number in range(1 if arrives else 3, 5)]


def test_batches_are_spread_over_the_minute() -> None:
    with langfuse() as server:
        one = sender(server, FAST._replace(batches_per_minute=600))
        began = time.monotonic()
        for number in range(4):
            one.put([score(number)])
            assert one.flush(15)
        assert time.monotonic() - began >= 0.3


def test_an_older_server_gets_no_more_requests_a_minute_than_another() -> None:
    with langfuse("single") as server:
        one = sender(server, FAST._replace(batches_per_minute=600))
        began = time.monotonic()
        one.put(score(number) for number in range(15))
        server.wait(lambda: len(server.requests) >= 6)
        assert time.monotonic() - began >= 0.4
        one.stop(15)
    assert len(server.scores) == 15


@pytest.mark.parametrize("form", ["list", "single"])
def test_version_4_of_the_package_sends_what_the_server_takes(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    with langfuse(form) as server:
        monkeypatch.setattr(langfuse_client, "_create", lambda api: partial(create_of_version_4, server))
        one = sender(server)
        one.put([score(1, environment="prod"), score(2), score(3, name="")])
        assert one.flush(15)
        assert sorted(server.scores) == ["score-1", "score-2"]
        assert (one.counts["scores.sent"], one.counts["scores.rejected"]) == (2, 1)
        taken = server.scores["score-1"]
        assert {key: taken.get(key) for key in ("traceId", "dataType", "timestamp", "environment")} == {
            "traceId": "a" * 32, "dataType": "NUMERIC", "timestamp": "2023-11-14T22:13:20.250000Z",
            "environment": "prod",
        }  # fmt: skip
        server.keys = ("pk", "another")
        one.put([score(4)])
        server.wait(lambda: server.requests[-1][0] == 401)
        assert one.waiting == [score(4)]
    assert server.violations == []


def create_of_version_4(
    server: Langfuse, *, name: str, value: float, request_options: dict[str, Any], data_type: str, trace_id: str,
    **more: Any,
) -> Any:  # fmt: skip
    """Single scores only, whatever the server takes."""
    body = {"name": name, "value": value, "dataType": data_type, "traceId": trace_id, **more}
    body |= request_options["additional_body_parameters"]
    answer = httpx.post(f"{server.url}/api/public/scores", json=body, auth=(PUBLIC_KEY, SECRET_KEY))
    if not answer.is_success:
        raise ApiError(status_code=answer.status_code, headers=dict(answer.headers), body=answer.text)
    return answer.json()


def test_where_no_thread_can_be_started_stopping_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with langfuse() as server:
        one = sender(server)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            one.put([score(1)])
            assert not one.flush(15), "nobody is there who could send"
            assert one.stop(15) == []
        assert list(server.scores) == ["score-1"]
        server.always = Reply(503)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            one.put([score(2)])
            began = time.monotonic()
            assert one.stop(0.2) == [score(2)]
            assert time.monotonic() - began < 15.0
        server.always = None
        one.put([score(3)])
        assert one.flush(15)


def test_stopping_does_not_wait_for_the_pace() -> None:
    with langfuse() as server:
        one = sender(server, FAST._replace(batches_per_minute=1))
        one.put(score(number) for number in range(40))
        server.wait(lambda: len(server.requests) == 1)
        assert one.stop(15) == []
    assert len(server.scores) == 40


def test_stopping_is_bounded_and_tells_what_is_left() -> None:
    with langfuse() as server:
        server.always = Reply(503)
        one = sender(server)
        one.put([score(1)])
        began = time.monotonic()
        assert one.stop(0.2) == [score(1)]
        assert time.monotonic() - began < 15.0
        server.always = None
        one.put([score(2)])
        assert one.flush(15), "a later score starts the thread again"
    assert sorted(server.scores) == ["score-1", "score-2"]


def test_stopping_twice_or_before_the_first_score_is_fine() -> None:
    one = sender("http://127.0.0.1:9")
    assert one.stop(0.1) == []
    assert one.stop(0.1) == []


def test_an_unusable_address_harms_nobody() -> None:
    one = sender("http://[::bad")
    one.put([score(1)])
    until_counted(one, "errors.langfuse")
    assert one.stop(0.2) == [score(1)]


def test_own_requests_leave_no_spans() -> None:
    pytest.importorskip("opentelemetry.instrumentation.httpx")
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    HTTPXClientInstrumentor().instrument(tracer_provider=provider)
    try:
        with langfuse() as server:
            one = sender(server)
            one.put([score(1)])
            assert one.flush(15)
    finally:
        HTTPXClientInstrumentor().uninstrument()
    assert exporter.get_finished_spans() == ()


def test_configured_headers_and_the_name_of_the_client_are_sent() -> None:
    with langfuse() as server:
        one = sender(server, headers={"x-proxy": "yes"})
        one.put([score(1)])
        assert one.flush(15)
    assert server.headers["x-proxy"] == "yes"
    assert server.headers["x-langfuse-sdk-name"] == "trajectory-guard"


ECHO = "hunter2-token"
SECRETS = {"headers": {"x-proxy-key": f"Bearer {ECHO}", "x-other": "odd'value"}}


@pytest.mark.parametrize("status", [None, 200, 207, 400, 401, 500])
def test_no_line_shows_a_header_or_a_key_that_library_or_server_repeat(
    status: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(client: httpx.Client, request: httpx.Request, **_: Any) -> httpx.Response:
        said = f"bad {request.headers['x-proxy-key'].encode()!r} {request.headers['x-other'].encode()!r} "
        said += f"{request.headers['authorization']} {ECHO} {SECRET_KEY}"
        if status is None:
            raise httpx.LocalProtocolError(said)
        reply = {"accepted": 0, "rejected": 1, "errors": [{"message": said}]} if status == 207 else said
        return httpx.Response(status, json=reply, request=request)

    monkeypatch.setattr(httpx.Client, "send", send)
    failed: list[str] = []
    one = sender("http://langfuse.test", on_failed=failed.append, **SECRETS)
    with caplog.at_level("DEBUG"):
        one.put([score(1)])
        end = time.monotonic() + 30
        while "langfuse.test" not in caplog.text and "scores rejected" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.005)
        one.stop(0.0)
    shown = caplog.text + "".join(failed)
    assert "[REDACTED]" in shown
    basic = b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
    assert not [secret for secret in (ECHO, "odd'value", r"odd\'value", SECRET_KEY, basic) if secret in shown]
