from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from tests.collector.receiver_helpers import (
    Authority,
    Running,
    eventually,
    grpc_server,
    http_server,
    replace,
    sdk_spans,
)
from trajectory_guard.config import ConfigError
from trajectory_guard_collector.config.models import ServerTls

SERVERS: dict[str, Callable[..., Any]] = {"grpc": grpc_server, "http": http_server}
pytestmark = pytest.mark.parametrize("transport", list(SERVERS))


@asynccontextmanager
async def serving(transport: str, tls: ServerTls, **settings: Any) -> AsyncIterator[Running]:
    async with SERVERS[transport](tls=tls, **settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_authorities_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers these to the exporter's own
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def export(
    transport: str, running: Running, ca: Authority, pair: tuple[str, str] | None = None, timeout_s: int = 15
) -> bool:
    """Send with the SDK's exporter, which retries until the time is over; whether it arrived."""

    def send() -> bool:
        exporter: Any
        if transport == "http":
            exporter = HttpExporter(
                running.url(scheme="https"), certificate_file=str(ca.file), timeout=timeout_s,
                client_certificate_file=pair and pair[0], client_key_file=pair and pair[1],
            )  # fmt: skip
        else:
            key, chain = (Path(pair[1]).read_bytes(), Path(pair[0]).read_bytes()) if pair else (None, None)
            credentials = grpc.ssl_channel_credentials(ca.file.read_bytes(), key, chain)
            own: Any = (("grpc.use_local_subchannel_pool", 1),)
            exporter = GrpcExporter(
                f"https://127.0.0.1:{running.port}", credentials=credentials, timeout=timeout_s, channel_options=own
            )
        try:
            return exporter.export(sdk_spans(2)) is SpanExportResult.SUCCESS
        finally:
            exporter.shutdown()

    return await asyncio.to_thread(send)


async def name_shown(running: Running, ca: Authority) -> str:
    """Common name of the certificate a new connection is shown."""
    context = ssl.create_default_context(cafile=str(ca.file))
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
    shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    writer.close()
    return str(shown.subject.rfc4514_string())


@pytest.mark.newest
async def test_exporters_of_the_sdk(transport: str, authority: Authority) -> None:
    async with serving(transport, authority.server()) as running:
        assert await export(transport, running, authority)
        assert running.recorder.items == 2


@pytest.mark.newest
async def test_client_certificate_is_asked_for(transport: str, authority: Authority, tmp_path: Path) -> None:
    tls = authority.server(client_ca_file=str(authority.file))
    other = Authority(tmp_path, "other")
    async with serving(transport, tls) as running:
        assert await export(transport, running, authority, authority.issue("client"))
        assert not await export(transport, running, authority, timeout_s=1)
        assert not await export(transport, running, authority, other.issue("stranger"), timeout_s=1)
        assert running.recorder.items == 2


@pytest.mark.newest
async def test_new_certificate_is_taken_without_restart(transport: str, authority: Authority) -> None:
    tls = authority.server("old")
    async with serving(transport, tls) as running:
        assert await name_shown(running, authority) == "CN=old"
        certificate, key = authority.issue("new")
        replace(tls.cert_file, certificate)
        replace(tls.key_file, key)
        assert await name_shown(running, authority) == "CN=new"
        assert await export(transport, running, authority)


@pytest.mark.newest
async def test_withdrawn_authority_lets_nobody_in(transport: str, authority: Authority, tmp_path: Path) -> None:
    accepted = tmp_path / "accepted.pem"
    shutil.copy(authority.file, accepted)
    tls, client = authority.server(client_ca_file=str(accepted)), authority.issue("client")
    async with serving(transport, tls) as running:
        assert await export(transport, running, authority, client)
        other = Authority(tmp_path, "other")
        shutil.copy(other.file, accepted)
        assert not await export(transport, running, authority, client, timeout_s=1)
        assert await export(transport, running, authority, other.issue("newcomer"))


@pytest.mark.parametrize("spoil", ["garbage", "gone", "wrong key"])
async def test_broken_certificate_keeps_the_last_one(
    transport: str, authority: Authority, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    tls = authority.server("old")
    async with serving(transport, tls) as running:
        if spoil == "garbage":
            Path(tls.cert_file).write_text("garbage")
        elif spoil == "gone":
            Path(tls.cert_file).unlink()
        else:
            replace(tls.cert_file, authority.issue("half")[0])
        assert await name_shown(running, authority) == "CN=old"
        assert running.errors("tls_reload") >= 1
        assert f"receivers.otlp.protocols.{transport}.tls" in caplog.text
        assert tls.cert_file in caplog.text
        certificate, key = authority.issue("repaired")
        replace(tls.cert_file, certificate)
        replace(tls.key_file, key)
        assert await name_shown(running, authority) == "CN=repaired"


@pytest.mark.parametrize("name", ["cert_file", "key_file", "client_ca_file"])
async def test_files_must_be_usable_at_start(transport: str, authority: Authority, tmp_path: Path, name: str) -> None:
    tls = authority.server(client_ca_file=str(authority.file))
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    for file in (missing, garbage):
        with pytest.raises(ConfigError, match=rf"receivers\.otlp\.protocols\.{transport}\.tls.*{file}"):
            async with serving(transport, tls.model_copy(update={name: str(file)})):
                pass


@pytest.mark.newest
async def test_clients_without_tls_are_let_go(transport: str, authority: Authority) -> None:
    async with serving(transport, authority.server(), read_timeout_s=1.0) as running:
        silent, _ = await asyncio.open_connection("127.0.0.1", running.port)
        plain, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"POST /v1/traces HTTP/1.1\r\n\r\n")
        for reader in (silent, plain):
            done = asyncio.create_task(reader.read())
            await eventually(done.done, 20)
            assert done.exception() is None or isinstance(done.exception(), ConnectionError)
        assert await export(transport, running, authority)


async def test_old_protocol_versions_are_refused(transport: str, authority: Authority) -> None:
    async with serving(transport, authority.server()) as running:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
