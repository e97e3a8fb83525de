"""Clients that send too much, nonsense, nothing at all, or have no token. One collector lives through all of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.collector.kit import capture_request
from tests.faults.processes import FULL, Collector, Resources, Rotel, arrived, eventually, only_full, started
from tests.faults.senders import METHOD, GrpcSender, HttpSender, assert_well, ids, plain

MIB = 1 << 20
READ_TIMEOUT_S = 2.0
CONNECTIONS = 10_000 if FULL else 1_000
JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture(scope="module")
def rotel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotel]:
    process = Rotel(tmp_path_factory.mktemp("rotel"), max_mib=256).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory, rotel: Rotel) -> Iterator[Collector]:
    limits = {"read_timeout_s": READ_TIMEOUT_S}
    exporters = {"otlp": {"endpoint": rotel.grpc_url, "compression": "none"}}
    process = Collector(tmp_path_factory.mktemp("collector"), exporters, grpc=limits, http=limits).start()
    yield process
    process.stop()


@pytest.fixture
async def collector(survivor: Collector, request: pytest.FixtureRequest) -> AsyncIterator[Collector]:
    """The collector, of which nothing may have been left behind after the test."""
    name = request.node.name
    await assert_well(survivor, f"before {name}")
    before: Resources = survivor.held()
    survivor.reset_peak()
    yield survivor
    await assert_well(survivor, f"after {name}")
    await eventually(lambda: survivor.held().fds <= before.fds + 2, "descriptors are given back", 15.0)
    await eventually(lambda: survivor.held().threads <= before.threads + 4, "threads are given back", 15.0)
    await eventually(lambda: survivor.held().rss < before.rss + 150 * MIB, "memory is given back", 15.0)
    assert survivor.errors() == survivor.metric(
        "trajectory_guard_errors_total", trajectory_guard_error_where="evaluate.ids"
    )


# --- too much ------------------------------------------------------------------------------------------------


async def test_a_message_of_100_mb_is_refused_for_good_and_taken_in_parts(collector: Collector, rotel: Rotel) -> None:
    parts = [plain(f"part-{at}", 25, padding=1 * MIB) for at in range(4)]
    data = b"".join(parts)
    assert len(data) > 100 * MIB
    sender, http = GrpcSender(collector.grpc_port), HttpSender(collector.url())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await sender.once(data)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await http.once(data)).status_code == 413
    assert await _chunked(collector, 4 * parts) == 413
    assert collector.peak_rss() < 400 * MIB, f"{collector.peak_rss() / MIB:.0f} MiB"
    await sender.once(parts[0], timeout_s=30)
    assert (await http.once(parts[1])).status_code == 200
    await arrived(rotel, ids(parts[0]) | ids(parts[1]))
    await sender.close()
    await http.close()


async def _chunked(collector: Collector, parts: list[bytes]) -> int:
    """Status of a request that does not say how long it will be."""

    async def chunks() -> AsyncIterator[bytes]:
        for part in parts:
            for at in range(0, len(part), MIB):
                yield part[at : at + MIB]

    async with httpx.AsyncClient(verify=False, timeout=20.0) as client:
        return (await client.post(collector.url(), content=chunks(), headers=PROTOBUF)).status_code


@only_full
async def test_a_message_of_100_mb_passes_where_the_limit_allows_it(tmp_path: Path, rotel: Rotel) -> None:
    exporters = {"otlp": {"endpoint": rotel.grpc_url, "compression": "none", "timeout_s": 20.0}}
    grpc_limit, http_limit = {"max_recv_msg_size_mib": 128}, {"max_request_body_size_mib": 128}
    queue = {"deadline_s": 20.0}
    async with started(Collector(tmp_path, exporters, grpc=grpc_limit, http=http_limit, queue=queue)) as collector:
        data = plain("huge", 100, padding=1 * MIB)
        sender = GrpcSender(collector.grpc_port)
        await sender.once(data, timeout_s=30)
        await arrived(rotel, ids(data))
        assert collector.errors() == 0
        await sender.close()


async def test_gzip_bombs_are_refused_before_they_unfold(collector: Collector) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(512)) + packer.flush()
    assert len(bomb) < MIB
    http = HttpSender(collector.url(), headers={"content-encoding": "gzip"})
    answers = await asyncio.gather(*(http.once(one) for one in (bomb, gzip.compress(bomb), bomb[:-100])))
    assert [answer.status_code for answer in answers] == [413, 400, 413]
    zeros = GrpcSender(collector.grpc_port, compression=grpc.Compression.Gzip)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await zeros.once(bytes(96 * MIB))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert collector.peak_rss() < 450 * MIB, f"{collector.peak_rss() / MIB:.0f} MiB; one bomb alone has 512"
    await http.close()
    await zeros.close()


# --- nonsense ------------------------------------------------------------------------------------------------


def _nested(depth: int) -> bytes:
    value = '{"arrayValue":{"values":[' * depth + '{"stringValue":"x"}' + "]}}" * depth
    span = f'{{"traceId":"{"ab" * 16}","spanId":"{"cd" * 8}","attributes":[{{"key":"k","value":{value}}}]}}'
    return f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}'.encode()


_WHOLE = capture_request("openllmetry-langchain__create_agent_sync")
MALFORMED: dict[str, tuple[bytes, dict[str, str]]] = {
    "no protobuf": (b"\xff" * 200, PROTOBUF),
    "cut protobuf": (_WHOLE[:-7], PROTOBUF),
    "length beyond the end": (b"\x0a\xff\xff\xff\xff\x07" + b"x" * 40, PROTOBUF),
    "text": (b"hello", PROTOBUF),
    "no JSON": (b'{"resourceSpans": [', JSON),
    "JSON of another shape": (b"[1, 2, 3]", JSON),
    "wrong types": (b'{"resourceSpans": {"scopeSpans": 7}}', JSON),
    "bad ids": (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz","spanId":5}]}]}]}', JSON),
    "JSON nested too deeply": (_nested(5_000), JSON),
    "bad UTF-8": (b'{"resourceSpans": "\xff\xfe"}', JSON),
    "no gzip": (b"plain", {**PROTOBUF, "content-encoding": "gzip"}),
    "unknown encoding": (b"plain", {**PROTOBUF, "content-encoding": "rot13"}),
}


async def test_nonsense_is_refused_for_good(collector: Collector) -> None:
    async with httpx.AsyncClient() as client:
        for name, (body, headers) in MALFORMED.items():
            answer = await client.post(collector.url(), content=body, headers=headers)
            assert answer.status_code == 400, (name, answer.status_code, answer.text)
            if headers is JSON:
                assert json.loads(answer.content)["message"], name
        for path, media, expected in (("/v1/traces", "text/plain", 415), ("/v1/nothing", "application/json", 404)):
            answer = await client.post(collector.url(path), content=b"{}", headers={"content-type": media})
            assert answer.status_code == expected
    sender = GrpcSender(collector.grpc_port)
    for name, (body, headers) in MALFORMED.items():
        if headers is PROTOBUF:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await sender.once(body)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, name
    await sender.close()
    assert collector.metric("otelcol_receiver_failed_spans_total") == 0


async def test_odd_spans_go_on_as_they_are(collector: Collector, rotel: Rotel) -> None:
    """Ids of a wrong length, impossible times, no attributes, attributes of wrong types: no reason to drop anything."""
    odd = b"".join(_odd_span(at) for at in range(40))
    sender = GrpcSender(collector.grpc_port)
    before = collector.metric("otelcol_exporter_sent_spans_total")
    await sender.once(_field(1, _field(2, odd)))
    assert collector.metric("otelcol_exporter_sent_spans_total") == before + 40
    assert collector.metric("trajectory_guard_errors_total", trajectory_guard_error_where="evaluate.ids") > 0
    await sender.close()


def _field(number: int, data: bytes) -> bytes:
    from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]

    return bytes(_VarintBytes(number << 3 | 2)) + bytes(_VarintBytes(len(data))) + data


def _odd_span(at: int) -> bytes:
    times = [0, 1, 2**63 - 1, 2**64 - 1]
    attribute = _field(1, b"gen_ai.tool.name") + _field(2, _field(1, b"search"))
    wrong = _field(1, b"gen_ai.operation.name") + _field(2, b"\x18" + bytes([at % 128]))
    return _field(
        2,
        _field(1, b"t" * (at % 20)) + _field(2, b"s" * (at % 10)) + _field(5, b"odd \xc3\xa9")
        + b"\x39" + struct.pack("<Q", times[at % 4]) + b"\x41" + struct.pack("<Q", times[(at + 1) % 4])
        + _field(9, attribute) + _field(9, wrong) + _field(99, b"unknown"),
    )  # fmt: skip


# --- nothing at all ------------------------------------------------------------------------------------------


async def _drip(port: int, first: bytes, cut: list[float]) -> None:
    """Connect, send a little, then a byte now and then; notes when the server has had enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(first)
    try:
        while loop.time() < began + 15.0:
            try:
                if not await asyncio.wait_for(reader.read(4_096), 0.2):
                    break
            except asyncio.TimeoutError:
                writer.write(b"x")
                await writer.drain()
        else:
            return
    except OSError:
        pass
    finally:
        writer.transport.abort()
    cut.append(loop.time() - began)


async def test_slow_clients_are_cut_off_while_others_are_served(collector: Collector, rotel: Rotel) -> None:
    head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
    starts = [
        b"",
        b"POST /v1/tra",
        head,
        head + b"content-length: 100000\r\n\r\n",
        head + b"transfer-encoding: chunked\r\n\r\n",
    ]
    cut: list[float] = []
    http = [asyncio.create_task(_drip(collector.http_port, start, cut)) for start in starts * 20]
    preface = [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[:10]]
    slow_grpc = [asyncio.create_task(_drip(collector.grpc_port, start, cut)) for start in preface * 20]
    sender, data = GrpcSender(collector.grpc_port), [plain(f"meanwhile-{at}", 10) for at in range(50)]
    for one in data:
        await sender.once(one, timeout_s=2.0)
    await arrived(rotel, {one for each in data for one in ids(each)})
    await asyncio.gather(*http, *slow_grpc)
    assert len(cut) == len(http) + len(slow_grpc)
    assert max(cut) < READ_TIMEOUT_S + 5.0
    assert collector.metric("otelcol_receiver_requests_total", status="read_timeout") >= 3 * 20
    await sender.close()


async def test_a_grpc_call_that_sends_no_message_is_ended(collector: Collector) -> None:
    async with grpc.aio.insecure_channel(collector.grpc_target) as channel:
        call = channel.stream_unary(METHOD)()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asyncio.wait_for(call, READ_TIMEOUT_S + 5.0)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_many_connections_one_after_the_other(collector: Collector, rotel: Rotel) -> None:
    sent: set[str] = set()

    async def one(number: int) -> None:
        data = plain(f"connection-{number}", 1)
        sender: Any = GrpcSender(collector.grpc_port) if number % 2 else None
        if sender is not None:
            await sender.once(data)
            await sender.close()
        else:
            await _post(collector.http_port, data)
        sent.update(ids(data))

    for start in range(0, CONNECTIONS, 10):
        await asyncio.gather(*(one(number) for number in range(start, start + 10)))
    await arrived(rotel, sent)
    assert len(sent) == CONNECTIONS


async def _post(port: int, data: bytes) -> None:
    """A request on a connection of its own, that the client does not close well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {len(data)}"
    writer.write(head.encode() + b"\r\n\r\n" + data)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.transport.abort()


# --- no token ------------------------------------------------------------------------------------------------


async def test_tokens_missing_or_wrong(tmp_path: Path, rotel: Rotel) -> None:
    auth = {"bearer_tokens": ["right", "other"]}
    async with started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, auth=auth)) as collector:
        data = plain("secret", 3)
        for header in (None, "Bearer wrong", "right", "Basic cmlnaHQ6", "Bearer", "Bearer right2"):
            headers = {"authorization": header} if header is not None else {}
            sender, http = (
                GrpcSender(collector.grpc_port, metadata=tuple(headers.items())),
                HttpSender(collector.url(), headers=headers),
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await sender.once(data)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert (await http.once(data)).status_code == 401
            assert httpx.get(collector.admin_url("/v1/flags/c"), headers=headers).status_code == 401
            await sender.close()
            await http.close()
        assert collector.metric("otelcol_receiver_accepted_spans_total") == 0
        assert collector.metric("otelcol_receiver_requests_total", status="UNAUTHENTICATED") == 6
        assert not ids(data) & rotel.ids().keys()
        await assert_well(collector, "with-a-token", authorization="Bearer right")
        assert collector.metric("otelcol_exporter_sent_spans_total") >= 8
