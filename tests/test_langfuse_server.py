"""The stand-in for Langfuse is held to what Langfuse publishes: generated types, and the OpenAPI document if there is one."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.langfuse_server import (
    KNOWN,
    MAX_BODY_BYTES,
    PUBLIC_KEY,
    SCORES,
    SECRET_KEY,
    TRACES,
    Langfuse,
    langfuse,
    problem_of,
    rate_limited,
)

KEYS = (PUBLIC_KEY, SECRET_KEY)
GOOD: dict[str, dict[str, Any]] = {
    "numeric": {"name": "n", "value": 0.5, "traceId": "t", "dataType": "NUMERIC"},
    "boolean": {"name": "n", "value": 1, "traceId": "t", "dataType": "BOOLEAN"},
    "without a type": {"name": "n", "value": 0.5, "traceId": "t"},
    "session": {"name": "n", "value": 0.5, "sessionId": "s", "dataType": "NUMERIC"},
    "observation": {"name": "n", "value": 0.5, "traceId": "t", "observationId": "o"},
    "everything": {
        "id": "i", "name": "n", "value": 0.5, "traceId": "t", "dataType": "NUMERIC", "comment": "c", "metadata": {"a": [1]},
        "environment": "prod-1", "timestamp": "2026-01-02T03:04:05.678Z",
    },
}  # fmt: skip
BAD: dict[str, Any] = {
    "no name": {"value": 0.5, "traceId": "t"},
    "no value": {"name": "n", "traceId": "t"},
    "a type there is not": {"name": "n", "value": 0.5, "traceId": "t", "dataType": "NUMBER"},
    "a comment that is no text": {"name": "n", "value": 0.5, "traceId": "t", "comment": 7},
    "metadata that is no object": {"name": "n", "value": 0.5, "traceId": "t", "metadata": "x"},
    "a list as value": {"name": "n", "value": [1], "traceId": "t"},
}
STRICTER: dict[str, Any] = {
    # refused by the server's code; the OpenAPI document does not tell
    "an empty name": {"name": "", "value": 0.5, "traceId": "t"},
    "a boolean of 0.5": {"name": "n", "value": 0.5, "traceId": "t", "dataType": "BOOLEAN"},
    "a number as text": {"name": "n", "value": "0.5", "traceId": "t", "dataType": "NUMERIC"},
    "no target": {"name": "n", "value": 0.5},
    "two targets": {"name": "n", "value": 0.5, "traceId": "t", "sessionId": "s"},
    "observation without trace": {"name": "n", "value": 0.5, "sessionId": "s", "observationId": "o"},
    # taken by the server in its own way
    "an environment it would rename": {"name": "n", "value": 0.5, "traceId": "t", "environment": "langfuse-x"},
    "a misspelt key": {"name": "n", "value": 0.5, "traceId": "t", "enviroment": "x"},
    "a time without a zone": {"name": "n", "value": 0.5, "traceId": "t", "timestamp": "2026-01-02T03:04:05"},
}


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as running:
        yield running


def post(url: str, body: Any, auth: tuple[str, str] | None = KEYS) -> httpx.Response:
    return httpx.post(url + SCORES, json=body, auth=auth, timeout=15)


# --- scores --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_a_good_score_is_taken_in_both_forms(name: str) -> None:
    body = {"id": "i", **GOOD[name]}
    with langfuse("list") as new, langfuse("single") as old:
        assert post(new.url, [body]).status_code == 202
        assert post(new.url, body).status_code == 400
        assert post(old.url, body).json() == {"id": "i"}
        assert post(old.url, [body]).status_code == 400


@pytest.mark.parametrize("name", [*BAD, *STRICTER])
def test_a_bad_score_is_refused_in_both_forms(name: str) -> None:
    body = (BAD | STRICTER)[name]
    with langfuse("list") as new, langfuse("single") as old:
        answer = post(new.url, [{"id": "i", **GOOD["numeric"]}, body])
        assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (207, 1, 1)
        assert post(old.url, body).status_code == 400
        assert list(new.scores) == ["i"]


def test_keys_sizes_and_limits_are_checked(server: Langfuse) -> None:
    body = [{"id": "i", **GOOD["numeric"]}]
    assert post(server.url, body, None).status_code == 401
    assert post(server.url, body, ("pk", "x")).status_code == 401
    assert post(server.url, [{**body[0], "comment": "x" * MAX_BODY_BYTES}]).status_code == 413
    server.script.append(rate_limited(7))
    limited = post(server.url, body)
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
    assert limited.headers["x-ratelimit-remaining"] == "0"
    assert server.written == []


def test_an_update_that_does_not_repeat_the_timestamp_is_noticed(server: Langfuse) -> None:
    first = {"id": "i", **GOOD["numeric"], "timestamp": "2026-01-02T03:04:05Z"}
    post(server.url, [first])
    post(server.url, [{**first, "value": 0.7}])
    assert server.violations == []
    post(server.url, [{**first, "timestamp": "2026-01-02T03:04:06Z"}])
    assert server.violations == ["score i: timestamp changed to 2026-01-02T03:04:06Z"]
    assert len(server.scores) == 1


# --- traces --------------------------------------------------------------------------------------------------


def export(url: str, *spans: dict[str, Any], **headers: str) -> httpx.Response:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    return httpx.post(url + TRACES, json=body, headers=headers, auth=KEYS, timeout=15)


def span(number: int, **attributes: Any) -> dict[str, Any]:
    values = [{"key": key.replace("__", "."), "value": value} for key, value in attributes.items()]
    return {"traceId": "a" * 32, "spanId": f"{number:016x}", "attributes": values}


def text(value: str) -> dict[str, str]:
    return {"stringValue": value}


def test_tags_of_all_spans_are_united_whatever_their_form(server: Langfuse) -> None:
    listed = {"arrayValue": {"values": [text("one"), text("two")]}}
    forms = [listed, text('["two", "three"]'), text("four, five"), text("six"), text("x" * 201)]
    for number, tags in enumerate(forms, 1):
        assert export(server.url, span(number, langfuse__trace__tags=tags)).status_code == 200
    assert server.traces["a" * 32].tags == {"one", "two", "three", "four", "five", "six"}


def test_the_session_is_read_from_a_conversation(server: Langfuse) -> None:
    export(server.url, span(1, gen_ai__conversation__id=text("c")))
    assert server.traces["a" * 32].session == "c"


@pytest.mark.parametrize(
    "bad", [{"spanId": ""}, {"spanId": None}, {"traceId": "abc"}, {"attributes": {"key": "value"}}, {"events": {}}]
)
def test_one_bad_span_refuses_the_whole_export(server: Langfuse, bad: dict[str, Any]) -> None:
    assert export(server.url, span(1), {**span(2), **bad}).status_code == 400
    assert server.traces == {}


def test_protobuf_is_read_and_one_span_without_an_id_refuses_it_too(server: Langfuse) -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    url, data = server.url + TRACES, gzip.compress(request.SerializeToString())
    assert httpx.post(url, content=data, headers=headers, auth=KEYS).status_code == 200
    spans.add(trace_id=b"u" * 16)
    data = gzip.compress(request.SerializeToString())
    assert httpx.post(url, content=data, headers=headers, auth=KEYS).status_code == 400
    assert httpx.post(url, content=data[:-20], headers=headers, auth=KEYS).status_code == 400
    assert httpx.post(url, content=data, headers={**headers, "content-encoding": "br"}, auth=KEYS).status_code == 400
    assert httpx.post(url, content=b"\xff", headers={"content-type": "text/plain"}, auth=KEYS).status_code == 400
    assert httpx.post(url, content=data, headers=headers).status_code == 401
    assert list(server.traces) == [(b"t" * 16).hex()]


def test_versions_of_ingestion(server: Langfuse) -> None:
    assert export(server.url, span(1), **{"x-langfuse-ingestion-version": "5"}).status_code == 400
    assert export(server.url, span(1), **{"x-langfuse-ingestion-version": "4"}).status_code == 200
    assert server.violations == []
    assert export(server.url, span(1), **{"x-langfuse-ingestion-version": "3"}).status_code == 200
    assert len(server.violations) == 1


# --- against what Langfuse publishes -------------------------------------------------------------------------


@pytest.mark.newest
def test_the_stand_in_knows_the_fields_of_langfuses_generated_type() -> None:
    types = pytest.importorskip("langfuse.api.scores.types")
    fields = {
        next((one.alias for one in field.metadata if hasattr(one, "alias")), field.alias or name)
        for name, field in types.CreateScoreRequest.model_fields.items()
    }
    assert fields - {"timestamp"} == KNOWN - {"timestamp"}, "timestamp came with version 5"
    assert fields <= KNOWN


@pytest.mark.newest
@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_the_stand_in_agrees_with_langfuses_generated_type(name: str) -> None:
    types = pytest.importorskip("langfuse.api.scores.types")
    parse = pytest.importorskip("langfuse.api.core.pydantic_utilities").parse_obj_as
    body = (GOOD | BAD)[name]
    try:
        parse(types.CreateScoreRequest, body)
    except ValueError:
        taken = False
    else:
        taken = True
    assert taken == (name in GOOD)
    assert (problem_of(body) is None) == taken


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A mock server made of Langfuse's OpenAPI document, by the npm package ``@stoplight/prism-cli``."""
    document = os.environ.get("LANGFUSE_OPENAPI")
    if document is None or not Path(document).exists():
        pytest.skip("LANGFUSE_OPENAPI names no copy of Langfuse's web/public/generated/api/openapi.yml")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("prism")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "@stoplight/prism-cli@5"]
    if subprocess.run(install, cwd=folder, capture_output=True, timeout=300, check=False).returncode:
        pytest.skip("@stoplight/prism-cli cannot be installed")
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    command = ["node_modules/.bin/prism", "mock", document, "--errors", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listening(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 120
    while True:
        assert process.poll() is None, "prism has ended"
        assert time.monotonic() < end, "prism did not start"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def test_the_stand_in_agrees_with_the_openapi_document(prism: str) -> None:
    takes_lists = post(prism, [GOOD["numeric"]]).is_success
    for name, body in (GOOD | BAD).items():
        answer = post(prism, [body] if takes_lists else body)
        assert answer.is_success == (problem_of(body) is None), (name, answer.headers.get("sl-violations"))
    assert post(prism, GOOD["numeric"], None).status_code == 401
    assert json.loads(export(prism, span(1)).text) == {}
