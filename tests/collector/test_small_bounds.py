"""Small things that strangers, and mistakes of one's own, can do."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import httpx
import pytest

from tests.collector.receiver_helpers import Running, eventually, grpc_server, http_server, request_of
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.app import descriptors
from trajectory_guard_collector.cli import main
from trajectory_guard_collector.command_line import BAD_CONFIGURATION
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import Auth, CollectorConfig
from trajectory_guard_collector.gateway.receivers.http_server import _origin_pattern
from trajectory_guard_collector.gateway.storage.database import Database, DatabaseError
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.metrics import clean

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{','.join([f'*{chr(97 + at)}'] * 10)}]\n" for at in range(9)
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bomb.yaml", BOMB),
        ("self.yaml", "a: &a [*a]"),
        ("self.yaml", "a: &a {b: *a}"),
        ("deep.yaml", "[" * 100_000),
        ("deep.yaml", "a: " + "[" * 70 + "]" * 70),
        ("deep.json", "[" * 100_000),
        ("deep.json", '{"a":' * 200 + "1" + "}" * 200),
        ("deep.toml", "a = " + "[" * 10_000),
        ("large.yaml", "# " + "x" * (1 << 20)),
    ],
)
def test_a_bomb_of_a_configuration_is_one_line(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert main(["validate", "--config", str(file)]) == BAD_CONFIGURATION
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert len(line) < 400


def test_aliases_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    text = "exporters: {otlp/a: {endpoint: &e 'tempo:4317', headers: &h {x: y}}, otlp/b: {endpoint: *e, headers: *h}}"
    file.write_text(text, encoding="utf-8")
    assert len(load_config([str(file)]).exporters) == 2


def test_a_deep_override_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--set", ".".join("a" * 5_000) + "=1"]) == BAD_CONFIGURATION
    assert len(capsys.readouterr().err) < 400


@pytest.mark.parametrize("key", ["shutdown_timeout_s", "queue.max_size_mib", "telemetry.max_label_values"])
def test_a_truth_value_is_no_number(key: str, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    file = tmp_path / "collector.yaml"
    file.write_text(f"{section}: {{{name}: true}}" if section else f"{name}: true", encoding="utf-8")
    with pytest.raises(ConfigError, match="expected a number"):
        load_config([str(file)])


@pytest.mark.parametrize("storage", ["/etc/passwd", "/proc/x", "/dev/null/x"])
def test_validate_refuses_a_storage_that_cannot_be_used(storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--set", f"queue.storage={storage}"]) == BAD_CONFIGURATION
    assert f"queue.storage: {storage}" in capsys.readouterr().err


def test_validate_leaves_nothing_behind(tmp_path: Path) -> None:
    assert main(["validate", "--set", f"queue.storage={tmp_path / 'a' / 'b'}"]) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["missing", "there"])
def test_a_symbolic_link_for_the_database_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "collector.db").symlink_to(tmp_path / target)
    with pytest.raises(DatabaseError, match="symbolic link"):
        Database(tmp_path / "store", fsync=False)
    assert not (tmp_path / "missing").exists()


def test_memory_stays_bounded_after_pages_could_not_be_given_back(tmp_path: Path) -> None:
    database = Database(tmp_path, fsync=False)
    connection, spilled = database._connection, database._row("PRAGMA cache_spill")
    for statement in (
        "CREATE TABLE extra AS SELECT zeroblob(4000000) AS value",
        "DROP TABLE extra",
        "PRAGMA query_only = 1",
    ):
        connection.execute(statement)
    with pytest.raises(sqlite3.OperationalError):
        database._vacuum(64)
    connection.execute("PRAGMA query_only = 0")
    assert database._row("PRAGMA cache_spill") == spilled
    database.close()


@pytest.mark.parametrize("tokens", [["good", "bad"], ["bad", "good"], ["good", "good"]])
async def test_two_authorizations_are_refused(tokens: list[str]) -> None:
    headers = [("content-type", "application/x-protobuf"), *(("authorization", f"Bearer {one}") for one in tokens)]
    async with http_server(auth=Auth(bearer_tokens=("good",))) as server, httpx.AsyncClient() as client:  # type: ignore[arg-type]
        assert (await client.post(server.url(), content=b"", headers=headers)).status_code == 401
        assert (await client.post(server.url(), content=b"", headers=headers[:2])).status_code == (
            200 if tokens[0] == "good" else 401
        )


@pytest.mark.parametrize(
    ("allowed", "origin", "may"),
    [
        ("https://*.example.com", "https://a.example.com", True),
        ("https://*.example.com", "https://a.b.EXAMPLE.com", True),
        ("https://*.example.com", "https://evil.com/.example.com", False),
        ("https://*.example.com", "https://evil.com?.example.com", False),
        ("https://*.example.com", "https://evil.com#.example.com", False),
        ("https://*.example.com", "https://user@.example.com", False),
        ("http://localhost:*", "http://localhost:3000", True),
        ("http://*", "http://localhost:3000", True),
        ("*", "null", True),
    ],
)
async def test_a_star_in_an_origin_stands_for_a_host(allowed: str, origin: str, may: bool) -> None:
    assert _origin_pattern(allowed)
    asked = {"origin": origin, "access-control-request-method": "POST"}
    async with http_server(cors={"allowed_origins": [allowed]}) as server, httpx.AsyncClient() as client:
        reply = await client.options(server.url(), headers=asked)
    assert ("access-control-allow-origin" in reply.headers) == may


def test_control_characters_in_label_values_are_replaced() -> None:
    assert clean("a\r\n\x1b[2J\x00\x9b\u2028b") == "a��\ufffd[2J���b"


@pytest.mark.parametrize("size", [70_000, 300_000])
async def test_a_large_head_is_cut_off(size: int) -> None:
    async with http_server() as server, httpx.AsyncClient() as client:
        with pytest.raises(httpx.TransportError):
            await client.post(server.url(), content=b"", headers={"x": "a" * size})
        reply = await client.post(server.url(), content=b"", headers={"x": "a" * 30_000})
    assert reply.status_code == 415
    assert server.total("otelcol_receiver_requests_total", transport="http", status="headers_too_large") == 1


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The beginning of an HTTP/2 connection; gRPC answers it with its settings."""


async def idle(server: Running, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that say what they are and then nothing."""
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(count)]
    for _, writer in opened:
        writer.write(PREFACE)
    return opened


async def send(server: Running) -> None:
    """A request by gRPC, as soon as there is room for its connection."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        export = channel.unary_unary(f"/{Signal.TRACES.grpc_service}/Export")
        await export(request_of(Signal.TRACES), wait_for_ready=True, timeout=30)


async def test_idle_grpc_connections_are_bounded_and_others_are_served() -> None:
    async with grpc_server(max_connections=8) as server:
        opened = await idle(server, 40)
        reading = [asyncio.create_task(reader.read()) for reader, _ in opened]
        await eventually(lambda: sum(not one.done() for one in reading) <= 8)
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*reading, return_exceptions=True)
        await send(server)
        assert server.recorder.items == 3


async def test_idle_grpc_connections_give_way_to_others() -> None:
    async with grpc_server(max_connections=8, keepalive={"max_connection_idle_s": 0.5}) as server:
        opened = await idle(server, 8)
        for reader, _ in opened:
            assert await asyncio.wait_for(reader.read(1), 20), "every one has a place"
        await send(server)
        assert server.recorder.items == 3
        for _, writer in opened:
            writer.close()


def test_receivers_leave_descriptors_to_the_others(caplog: pytest.LogCaptureFixture) -> None:
    config = CollectorConfig()
    assert descriptors.within(config, None) is config.receivers.otlp.protocols
    assert descriptors.within(config, 65_536) is config.receivers.otlp.protocols
    for most in (64, 256, 1_024):
        found = descriptors.within(config, most)
        assert found.grpc is not None
        assert found.http is not None
        assert 2 <= found.grpc.max_connections + found.http.max_connections <= most - min(256, most // 2)
    assert "max_connections: 16 instead of 1024" in caplog.text


def test_the_limit_of_descriptors_is_raised() -> None:
    code = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard));"
        "from trajectory_guard_collector.app import descriptors; descriptors.raise_limit(); print(descriptors.limit())"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert int(shown.stdout) == (65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard))
