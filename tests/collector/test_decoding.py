from __future__ import annotations

import gzip
import json
import random
import re
import time
import tracemalloc
import zlib
from typing import Any

import psutil
import pytest
import zstandard
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.collector.receiver_helpers import request_of, traces
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.errors import BadDataError, TooLargeError
from trajectory_guard_collector.gateway.receivers.decoding import decompress, from_json
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.otlp.structure import count

MIB = 1 << 20
DATA = traces(300).SerializeToString()
COMPRESS: Any = {"gzip": gzip.compress, "deflate": zlib.compress, "zlib": zlib.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", list(COMPRESS))
def test_compressed(encoding: str) -> None:
    packed = COMPRESS[encoding](DATA)
    assert decompress(encoding, packed, len(DATA)) == DATA
    with pytest.raises(TooLargeError, match=f"larger than max_request_body_size_mib, {len(DATA) - 1} bytes"):
        decompress(encoding, packed, len(DATA) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_in_parts(encoding: str) -> None:
    parts = [DATA[start : start + 500] for start in range(0, len(DATA), 500)]
    assert decompress(encoding, b"".join(COMPRESS[encoding](part) for part in parts), MIB) == DATA


@pytest.mark.parametrize("padding", [1, 512, 10_000])
def test_gzip_with_padding(padding: int) -> None:
    part = gzip.compress(DATA) + bytes(padding)
    assert decompress("gzip", part * 2, MIB) == DATA * 2


@pytest.mark.parametrize("encoding", list(COMPRESS))
@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB + 77])
def test_sizes_around_a_piece(encoding: str, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        assert decompress(encoding, COMPRESS[encoding](data), size) == data


def test_many_empty_members_take_time_by_their_number_only() -> None:
    member = gzip.compress(b"")
    started = time.process_time()
    assert decompress("gzip", member * 50_000 + gzip.compress(b"x"), MIB) == b"x"
    assert time.process_time() - started < 5.0


def test_zstd_that_does_not_tell_its_size() -> None:
    streamed = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(DATA * 50)
    assert decompress("zstd", streamed, MIB) == DATA * 50


@pytest.mark.parametrize("encoding", list(COMPRESS))
@pytest.mark.parametrize("spoil", ["cut", "shifted", "followed", "empty", "plain"])
def test_spoilt(encoding: str, spoil: str) -> None:
    packed = COMPRESS[encoding](DATA)
    bodies = {"cut": packed[:-9], "shifted": b"x" + packed, "followed": packed + b"x" * 99, "empty": b"", "plain": DATA}
    with pytest.raises(BadDataError, match=f"not valid {encoding}"):
        decompress(encoding, bodies[spoil], MIB)


class Body(bytes):
    """Counts the slices that are taken of it."""

    slices = 0

    def __getitem__(self, place: Any) -> Any:
        self.slices += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("encoding", list(COMPRESS))
@pytest.mark.parametrize("start", [b"", b"x"])
def test_what_follows_the_data_is_not_read(encoding: str, start: bytes) -> None:
    body = Body(COMPRESS[encoding](start) + b"\1" * MIB)
    with pytest.raises(BadDataError, match=f"not valid {encoding}"):
        decompress(encoding, body, 2 * MIB)
    assert body.slices == 1


@pytest.mark.parametrize("encoding", list(COMPRESS))
def test_what_follows_at_the_end_of_a_slice_is_refused(encoding: str) -> None:
    for size in range(4_060, 4_100):  # with headers, one of them fills a slice
        body = COMPRESS[encoding](random.Random(0).randbytes(size))
        assert len(decompress(encoding, body, MIB)) == size
        with pytest.raises(BadDataError, match=f"not valid {encoding}"):
            decompress(encoding, body + b"\1", MIB)


@pytest.mark.parametrize("encoding", list(COMPRESS))
def test_bomb_is_not_unpacked(encoding: str) -> None:
    packed = COMPRESS[encoding](bytes(300 * MIB), 1)
    before = psutil.Process().memory_info().rss
    with pytest.raises(TooLargeError):
        decompress(encoding, packed, 4 * MIB)
    assert psutil.Process().memory_info().rss - before < 100 * MIB


def test_unknown_encoding() -> None:
    with pytest.raises(
        BadDataError, match="Content-Encoding 'br' is not known; known: identity, gzip, deflate, zlib, zstd"
    ):
        decompress("br", DATA, MIB)


@pytest.mark.parametrize("signal", list(Signal))
def test_items(signal: Signal) -> None:
    assert at_once(count(signal, request_of(signal))) == 3
    assert at_once(count(signal, b"")) == 0


def test_metric_without_data_has_no_points() -> None:
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.add(name="empty")
    assert at_once(count(Signal.METRICS, request.SerializeToString())) == 0


SPAN = {
    "traceId": "5B8EFFF798038103D269B633813FC60C",
    "spanId": "eee19b7ec3c1b174",
    "parentSpanId": "",
    "name": "step",
    "kind": 2,
    "startTimeUnixNano": "1544712660000000000",
    "endTimeUnixNano": 1544712661000000000,
    "fromTheFuture": {"spanId": []},
    "attributes": [
        {"key": "n", "value": {"intValue": "9007199254740993"}},
        {"key": "traceId", "value": {"stringValue": "not hexadecimal"}},
        {"key": "raw", "value": {"bytesValue": "AAEC"}},
    ],
    "links": [{"traceId": "5b8efff798038103d269b633813fc60d", "spanId": "eee19b7ec3c1b175"}],
    "status": {"code": 2},
}


def with_span(**changes: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**SPAN, **changes}]}]}]}).encode()


def test_json_as_the_specification_has_it() -> None:
    span = (
        ExportTraceServiceRequest.FromString(from_json(Signal.TRACES, with_span()))
        .resource_spans[0]
        .scope_spans[0]
        .spans[0]
    )
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (span.span_id.hex(), span.parent_span_id) == ("eee19b7ec3c1b174", b"")
    assert (span.links[0].trace_id.hex(), span.links[0].span_id.hex()) == (
        "5b8efff798038103d269b633813fc60d",
        "eee19b7ec3c1b175",
    )
    assert (span.kind, span.status.code) == (2, 2)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 10**9
    assert span.attributes[0].value.int_value == 9007199254740993
    assert span.attributes[1].value.string_value == "not hexadecimal"
    assert span.attributes[2].value.bytes_value == b"\0\1\2"


def test_ids_of_log_records_and_exemplars() -> None:
    ids = {"traceId": SPAN["traceId"], "spanId": SPAN["spanId"]}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**ids, "body": {"stringValue": "x"}}]}]}]}
    point = {"asInt": "1", "exemplars": [{**ids, "asDouble": 1.5}]}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": [point]}}]}]}]}
    log_data = from_json(Signal.LOGS, json.dumps(logs).encode())
    metric_data = from_json(Signal.METRICS, json.dumps(metrics).encode())
    record = ExportLogsServiceRequest.FromString(log_data).resource_logs[0].scope_logs[0].log_records[0]
    found = ExportMetricsServiceRequest.FromString(metric_data).resource_metrics[0].scope_metrics[0].metrics[0]
    for holder in (record, found.gauge.data_points[0].exemplars[0]):
        assert holder.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
        assert holder.span_id.hex() == "eee19b7ec3c1b174"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "a JSON object is expected, got list"),
        (b"\xff", "not valid JSON"),
        (rb'{"\ud800": 1', "not valid JSON"),
        (b'{"resourceSpans": 1}', "not a valid ExportTraceServiceRequest"),
        (b'{"resourceSpans": [1]}', "not a valid ExportTraceServiceRequest"),
        (b'{"a":' * 5000, "not valid JSON"),
        (b'{"resourceSpans":' + b"[" * 900 + b"]" * 900 + b"}", "not a valid ExportTraceServiceRequest"),
        (with_span(traceId="xyz"), "traceId: 'xyz' is not 32 hexadecimal digits"),
        (with_span(traceId="5b8efff7"), "traceId: '5b8efff7' is not 32 hexadecimal digits"),
        (with_span(spanId="eee19b7ec3c1b1 74"), "spanId: 'eee19b7ec3c1b1 74' is not 16 hexadecimal digits"),
        (with_span(parentSpanId="é" * 500), "parentSpanId: 'éé"),
        (with_span(traceId=5), "not a valid ExportTraceServiceRequest"),
        (with_span(startTimeUnixNano="soon"), "startTimeUnixNano"),
        (with_span(kind={}), "kind"),
        (with_span(trace_id=SPAN["traceId"]), "trace_id: is there twice, under both of its names"),
        (with_span(attributes=[{"key": "a", "value": {"bytesValue": "***"}}]), "bytesValue: '***' is not base64"),
        (
            with_span(attributes=[{"key": "a", "value": {"bytes_value": "AAEC\n"}}]),
            "bytes_value: 'AAEC\\n' is not base64",
        ),
        (with_span(attributes=[{"key": "a", "value": {"bytesValue": "A"}}]), "bytesValue: 'A' is not base64"),
        (with_span(attributes=[{"key": "a", "value": {"bytesValue": "AA=A"}}]), "bytesValue: 'AA=A' is not base64"),
        (with_span(attributes=[{"key": "a", "value": {"bytesValue": "é"}}]), "bytesValue: 'é' is not base64"),
        (with_span(attributes=[{"key": "a", "value": {"bytesValue": [1]}}]), "bytesValue"),
        (
            with_span(attributes=[{"key": "a", "value": {"arrayValue": {"values": [{"bytesValue": "*"}]}}}]),
            "is not base64",
        ),
        (with_span(startTimeUnixNano="1" * 5_000), "startTimeUnixNano: '1111"),
    ],
)
def test_malformed_json(body: bytes, why: str) -> None:
    with pytest.raises(BadDataError) as caught:
        from_json(Signal.TRACES, body)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("cut", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\uDE00 begins", "\ufffd begins"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d and \\ud83d", "\ufffd and \\ud83d"),
        (r"\\\ud83d\"", '\\\ufffd"'),
        (r"\ud83d\n\\\ude00", "\ufffd\n\\\ufffd"),
    ],
)
def test_half_of_a_surrogate_pair_costs_no_batch(cut: str, read: str) -> None:
    """``JSON.stringify("😀".substring(0, 1))``: the JavaScript SDK cuts values off in this way."""
    body = with_span(name="NAME").replace(b"NAME", cut.encode())
    request = ExportTraceServiceRequest.FromString(from_json(Signal.TRACES, body))
    assert request.resource_spans[0].scope_spans[0].spans[0].name == read


def test_deeply_nested_values() -> None:
    value: Any = {"stringValue": "deep"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    with pytest.raises(BadDataError):
        from_json(Signal.TRACES, with_span(attributes=[{"key": "deep", "value": value}]))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_many_small_parts_take_no_more_memory_than_one(encoding: str) -> None:
    part = gzip.compress(b"ab") if encoding == "gzip" else zstandard.compress(b"ab")
    body = part * 100_000
    tracemalloc.start()
    try:
        assert decompress(encoding, body, 1 << 20) == b"ab" * 100_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_many_frames_share_one_decompressor(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one each, a body of some megabytes of empty frames took minutes."""
    made, real = [], zstandard.ZstdDecompressor

    def counted(**options: Any) -> Any:
        made.append(options)
        return real(**options)

    monkeypatch.setattr(zstandard, "ZstdDecompressor", counted)
    assert decompress("zstd", zstandard.compress(b"") * 1_000, 10) == b""
    assert len(made) == 1


FOREIGN = {"traceId": "not hexadecimal", "spanId": 7, "bytesValue": "***", "parent_span_id": "", "span_id": ["x"]}


@pytest.mark.parametrize("name", ["X", "x" * 1_023, "x" * 1_024, "x" * 100_000, "SPAN_KIND_" + "9" * 5_000])
@pytest.mark.parametrize("place", ["kind", "status"])
def test_an_unknown_name_of_an_enum_is_ignored_however_long_it_is(place: str, name: str) -> None:
    changes: dict[str, Any] = {"kind": {"kind": name}, "status": {"status": {"code": name, "message": "m"}}}[place]
    request = ExportTraceServiceRequest.FromString(from_json(Signal.TRACES, with_span(**changes)))
    [span] = request.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.kind, span.status.code) == ("step", *((0, 2) if place == "kind" else (2, 0)))


@pytest.mark.parametrize("number", ["x", "x" * 1_023, "x" * 1_024, "x" * 100_000])
def test_a_number_that_is_none_is_refused_however_long_it_is(number: str) -> None:
    with pytest.raises(BadDataError):
        from_json(Signal.TRACES, with_span(startTimeUnixNano=number))


@pytest.mark.parametrize("unknown", [FOREIGN, [FOREIGN], [[FOREIGN]], "x" * 5_000, None, {"spans": [FOREIGN]}])
def test_unknown_members_are_not_looked_into(unknown: Any) -> None:
    span = {**SPAN, "links": [{**SPAN["links"][0], "future": unknown}], "[future]": unknown, "x" * 5_000: unknown}  # type: ignore[index]
    scope = {"spans": [span], "future": unknown, "scope": {"future": unknown}, "traceId": unknown}
    body = {"resourceSpans": [{"scopeSpans": [scope], "spanId": unknown}], "traceId": unknown, "future": unknown}
    assert from_json(Signal.TRACES, json.dumps(body).encode()) == from_json(
        Signal.TRACES, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN], "scope": {}}]}]}).encode()
    )


@pytest.mark.parametrize(
    ("written", "read"), [("AAEC", b"\0\1\2"), ("AA==", b"\0"), ("AA", b"\0"), ("-_+/", b"\xfb\xff\xbf"), ("", b"")]
)
def test_base64_of_either_alphabet_is_read(written: str, read: bytes) -> None:
    body = with_span(attributes=[{"key": "a", "value": {"bytesValue": written}}])
    request = ExportTraceServiceRequest.FromString(from_json(Signal.TRACES, body))
    assert request.resource_spans[0].scope_spans[0].spans[0].attributes[0].value.bytes_value == read


@pytest.mark.parametrize("size", [1_023, 1_024, 5_000])
def test_long_texts_stand_where_they_stood(size: int) -> None:
    def text(at: str) -> str:
        return (at + "é😀\0") * size

    def value(at: str) -> dict[str, Any]:
        pairs = [
            {"key": text(f"{at}.k"), "value": {"stringValue": text(f"{at}.v")}},
            {"key": "short", "value": {"intValue": 1}},
        ]
        parts = [{"stringValue": "short"}, {"stringValue": text(f"{at}.1")}, {}, {"kvlistValue": {"values": pairs}}]
        return {"arrayValue": {"values": [*parts, {"bytesValue": "AAEC"}]}}

    def span(at: str) -> dict[str, Any]:
        event = {"name": text(f"{at}.e"), "attributes": [{"key": "e", "value": value(f"{at}.e")}]}
        link = {"trace_state": text(f"{at}.l")}
        status = {"message": text(f"{at}.s"), "code": 2}
        attributes = [{"key": "a", "value": value(at)}, {"key": text(f"{at}.b")}]
        return {"name": text(at), "events": [{}, event], "links": [link], "status": status, "attributes": attributes}

    scopes = [{"spans": [span("a"), {}, span("b")], "schemaUrl": text("u")}, {"scope": {"name": text("n")}}]
    body = {
        "resourceSpans": [{"resource": {"attributes": [{"key": "r", "value": value("r")}]}}, {"scopeSpans": scopes}]
    }
    expected = ParseDict(body, ExportTraceServiceRequest())
    found = ExportTraceServiceRequest.FromString(from_json(Signal.TRACES, json.dumps(body).encode()))
    assert found == expected


@pytest.mark.parametrize("name", ["name", "traceState", "x" * 5_000])
def test_a_long_text_is_not_searched(name: str) -> None:
    """A search, as in protobuf's parser, lets no other thread run."""
    text = "x" * (8 * MIB)
    body = with_span(**{name: text})
    started = time.process_time()
    assert re.search("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]", text) is None
    searched = time.process_time()
    from_json(Signal.TRACES, body)
    assert time.process_time() - searched < (searched - started) / 3


def test_a_refusal_does_not_quote_a_long_text() -> None:
    long = "1" * MIB
    for changes in ({"kind": [long]}, {"status": {"code": [long]}}, {"flags": long}, {"name": [long]}):
        with pytest.raises(BadDataError) as caught:
            from_json(Signal.TRACES, with_span(**changes))
        assert len(caught.value.message) < 1_200
