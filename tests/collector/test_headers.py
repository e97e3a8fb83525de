"""Headers of exporters: those that cannot be sent are refused, and no value of one is ever shown."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.collector.backends import Counted, delivering, grpc_backend, http_backend, refuse, settings, spans
from trajectory_guard.config import ConfigError
from trajectory_guard.hidden import Hidden
from trajectory_guard.integrations.langfuse.client import Connection
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.telemetry.logs import JsonFormatter

SECRET = "hunter2"


def load(tmp_path: Path, headers: dict[str, str], kind: str = "otlphttp", **environ: str) -> CollectorConfig:
    file = tmp_path / "collector.yaml"
    keys = {"public_key": "pk", "secret_key": "sk"} if kind == "langfuse" else {}
    section = {kind: {"endpoint": "http://tempo:4317", "headers": headers, **keys}}
    file.write_text(yaml.safe_dump({"exporters": section}), encoding="utf-8")
    return load_config([str(file)], environ)


def mistake(tmp_path: Path, headers: dict[str, str], kind: str = "otlphttp", **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, headers, kind, **environ)
    [line] = str(caught.value).splitlines()
    return line


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["otlp", "otlphttp", "langfuse"])
@pytest.mark.parametrize(
    "value",
    ["Bearer ${env:NO:-}", " ${env:T}", "${env:T} ", "${env:T}\t", "${env:T}\n", "a ${env:T}\r\nb: c", "${env:T}\x7f", "é ${env:T}", " "],
)  # fmt: skip
def test_a_value_that_cannot_be_sent_is_refused_and_not_shown(tmp_path: Path, kind: str, value: str) -> None:
    line = mistake(tmp_path, {"authorization": value}, kind, T=SECRET)
    assert f"exporters.{kind}.headers.authorization: a header value must be" in line
    assert SECRET not in line
    assert "Bearer" not in line


@pytest.mark.parametrize("value", ["", "a", "Bearer ${env:T}", "a  b\tc".replace("\t", " "), "!~", "${env:NO:-}"])
def test_other_values_can_be_sent(tmp_path: Path, value: str) -> None:
    assert list(load(tmp_path, {"authorization": value}, T=SECRET).exporters["otlphttp"].headers) == ["authorization"]


@pytest.mark.parametrize("end", ["", "\n", " \n", "\t\r\n", " ", "\n\n"])
def test_whitespace_at_the_end_of_a_file_is_no_part_of_a_secret(tmp_path: Path, end: str) -> None:
    (tmp_path / "token").write_bytes(f"{SECRET}{end}".encode())
    headers = load(tmp_path, {"authorization": f"Bearer ${{file:{tmp_path}/token}}"}).exporters["otlphttp"].headers
    assert headers["authorization"].get_secret_value() == f"Bearer {SECRET}"


@pytest.mark.parametrize("key", ["public_key", "secret_key"])
@pytest.mark.parametrize("value", [f"{SECRET} ", f" {SECRET}", f"{SECRET}\n", f"é{SECRET}"])
def test_a_key_of_langfuse_that_cannot_be_sent_is_refused_and_not_shown(key: str, value: str) -> None:
    section = {"public_key": "pk", "secret_key": "sk", key: value}
    with pytest.raises(ValueError, match=rf"langfuse\.{key}\n.*a key must be one line") as caught:
        CollectorConfig.model_validate({"exporters": {"langfuse": section}})
    assert SECRET not in str(caught.value)


# --- names -----------------------------------------------------------------------------------------------------------

OF_CONNECTIONS = [
    "Content-Length", "transfer-encoding", "content-encoding", "content-type", "Host", "connection", "te", "trailer",
    "upgrade", "keep-alive", "proxy-connection", "expect", "accept-encoding", "X-Trajectory-Guard-Via",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["otlp", "otlphttp", "langfuse"])
@pytest.mark.parametrize("name", OF_CONNECTIONS)
def test_headers_that_the_exporter_sets_itself_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    assert f"exporters.{kind}.headers.{name}: is set by the exporter itself" in mistake(tmp_path, {name: "1"}, kind)


@pytest.mark.parametrize("kind", ["otlp", "otlphttp"])
@pytest.mark.parametrize("name", ["", "x y", "é", "a:b", "a\t", ":path", "a/b"])
def test_what_is_no_name_of_a_header_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    assert f"exporters.{kind}.headers." in mistake(tmp_path, {name: "1"}, kind)


@pytest.mark.parametrize(
    ("name", "why"),
    [("x-trace-bin", "bytes"), ("X-BIN", "bytes"), ("grpc-timeout", "reserves"), ("a*b", "metadata"), ("a~", "metadata")],
)  # fmt: skip
def test_names_that_grpc_does_not_take_are_refused_for_otlp_alone(tmp_path: Path, name: str, why: str) -> None:
    assert re.search(rf"exporters\.otlp\.headers\.{re.escape(name)}: .*{why}", mistake(tmp_path, {name: "1"}, "otlp"))
    load(tmp_path, {name: "1"}, "otlphttp")


@pytest.mark.parametrize("kind", ["otlp", "otlphttp"])
def test_names_that_differ_in_capitals_are_one_header(tmp_path: Path, kind: str) -> None:
    line = mistake(tmp_path, {"X-Scope": "1", "x-scope": SECRET}, kind)
    assert line.endswith(
        f"exporters.{kind}.headers.x-scope: the same header as X-Scope: capitals and small letters are equal"
    )
    load(tmp_path, {"X-Scope_a.b-2": "1"}, kind)


# --- texts of others -------------------------------------------------------------------------------------------------


async def _failing(config: CollectorConfig, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that a failed delivery shows: the reply to the sender, its cause, the log, the metrics."""
    metrics = Counted()
    with caplog.at_level(logging.DEBUG):
        async with delivering(config, metrics) as delivery:
            try:
                await delivery.deliver(spans(range(2)))
                reply = ""
            except UnavailableError as error:
                reply = f"{error.message} {error!r} {error.__cause__!r}"
    lines = [JsonFormatter().format(one) for one in caplog.records if one.name.startswith("trajectory_guard")]
    return "\n".join([reply, *lines, metrics.render("")[0].decode()])


ECHOES: dict[str, Any] = {
    "a refusal": lambda text: PlainTextResponse(f"no access for {text}", 401),
    "a refusal in JSON": lambda text: JSONResponse({"message": text}, 403),
    "an error": lambda text: PlainTextResponse("x" * 280 + text, 503),
    "a bad batch": lambda text: PlainTextResponse(f"cannot read {text}", 400),
    "no reply of OTLP": lambda text: PlainTextResponse(text, 200),
    "a part": lambda text: JSONResponse({"partialSuccess": {"rejectedSpans": 1, "errorMessage": text}}, 200),
}


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("kind", ["otlphttp", "langfuse"])
async def test_a_backend_that_repeats_headers_shows_none(
    kind: str, echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def repeat(data: bytes, request: Any) -> Response:
        return ECHOES[echo](f"{request.headers['x-key']} {request.headers['authorization']}")  # type: ignore[no-any-return]

    prefix = "/api/public/otel" if kind == "langfuse" else ""
    keys = {"public_key": "pk-1", "secret_key": SECRET, "scores": {"enabled": False}} if prefix else {}
    headers = {"x-key": f"{SECRET}'\"\\"} | ({} if prefix else {"authorization": f"Bearer {SECRET}-2"})
    async with http_backend(prefix) as backend:
        backend.always = repeat
        shown = await _failing(
            settings({kind: {"endpoint": backend.endpoint, "headers": headers, **keys}}, deadline_s=0.3), caplog
        )
        [sent] = {request[2]["authorization"] for request in backend.requests}
    assert "[REDACTED]" in shown
    assert SECRET not in shown
    assert sent.split()[-1] not in shown


@pytest.mark.parametrize("kind", ["otlphttp", "otlp"])
@pytest.mark.parametrize("error", [httpx.LocalProtocolError, httpx.InvalidURL, ValueError, RuntimeError])
async def test_a_library_whose_error_holds_a_header_shows_none(
    kind: str, error: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **options: Any) -> Any:
        raise error(f"Illegal header value {f'Bearer {SECRET}'.encode()!r}")

    monkeypatch.setattr(httpx.AsyncClient, "stream", fail)
    monkeypatch.setattr("grpc.aio.UnaryUnaryMultiCallable.__call__", fail)
    monkeypatch.setattr("grpc.aio._channel.UnaryUnaryMultiCallable.__call__", fail)
    section = {"endpoint": "http://127.0.0.1:9", "headers": {"authorization": f"Bearer {SECRET}"}}
    shown = await _failing(settings({kind: section}, deadline_s=0.3), caplog)
    assert error.__name__ in shown, "the type says what happened"
    assert SECRET not in shown


async def test_a_grpc_backend_that_repeats_metadata_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    async with grpc_backend() as backend:
        backend.always = refuse(grpc.StatusCode.UNAUTHENTICATED, f"unknown key {SECRET}")
        section = {"endpoint": backend.endpoint, "tls": {"insecure": True}, "headers": {"x-key": SECRET}}
        shown = await _failing(settings({"otlp": section}, deadline_s=0.3), caplog)
    assert "UNAUTHENTICATED: unknown key [REDACTED]" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("1", "127.0.0.10 answered 401: 1", "127.0.0.10 answered 401: [REDACTED]"),
        ("", "nothing", "nothing"),
        ("Bearer ab c", "ab c, Bearer, Bearer ab c", "[REDACTED], Bearer, [REDACTED]"),
        ("a\"b'c", r"""b'a"b\'c' {"a\"b'c"}""", """b'[REDACTED]' {"[REDACTED]"}"""),
        ("a.c", "abc a.c", "abc [REDACTED]"),
        ("basic", "basic", "basic"),
        ("hunter2", "keyhunter2s", "key[REDACTED]s"),
    ],
)
def test_what_is_hidden(secret: str, text: str, shown: str) -> None:
    assert Hidden([secret]).hide(text) == shown


def test_scores_hide_keys_headers_and_their_base64() -> None:
    connection = Connection("http://x", "pk-1", "sk-1", headers={"x-key": f"Bearer {SECRET}"})
    assert (
        connection.hide(f"pk-1 sk-1 Basic cGstMTpzay0x {SECRET} else")
        == "[REDACTED] [REDACTED] Basic [REDACTED] [REDACTED] else"
    )
