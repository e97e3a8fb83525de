"""Shared by the receivers' tests: a pipeline that records its batches, servers, requests, certificates."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.models import Auth, GrpcReceiver, HttpReceiver, ServerTls
from trajectory_guard_collector.gateway.hops import Hops
from trajectory_guard_collector.gateway.receivers.grpc_server import GrpcServer
from trajectory_guard_collector.gateway.receivers.http_server import HttpServer
from trajectory_guard_collector.gateway.receivers.request_handler import Unlimited, handler_of
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.telemetry.metrics import Metrics

ANYWHERE = "127.0.0.1:0"


class Recorder:
    """In the pipeline's place. ``answers`` are raised in order, None accepts; afterwards everything is accepted."""

    def __init__(self, *answers: Exception | None) -> None:
        self.batches: list[Batch] = []
        self.answers = list(answers)
        self.waiting = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def accept(self, batch: Batch) -> None:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.batches.append(batch)

    @property
    def items(self) -> int:
        return sum(batch.items for batch in self.batches)


class Room(Unlimited):
    """Memory that is short when the test says so, and notes what it was asked for."""

    def __init__(self, short: Callable[[], str | None] = lambda: None) -> None:
        self._short = short
        self.asked: list[int] = []

    def refuse(self, size: int = 0) -> str | None:
        self.asked.append(size)
        return self._short()


class Running(NamedTuple):
    """A server in work."""

    port: int
    recorder: Recorder
    metrics: Metrics
    server: Any
    memory: Room
    hops: Hops

    def url(self, path: str = "/v1/traces", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def total(self, name: str, **labels: str) -> float:
        """The value of one of the receiver's counters."""
        return self.metrics.registry.get_sample_value(name, {"receiver": "otlp", **labels}) or 0.0

    def errors(self, where: str) -> float:
        """Contained errors."""
        found = [
            sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if where in sample.labels.values() and sample.name.endswith("_total")
        ]
        return sum(found)


@asynccontextmanager
async def grpc_server(
    recorder: Recorder | None = None, *, auth: Auth | None = None, **settings: Any
) -> AsyncIterator[Running]:
    recorder, metrics = recorder or Recorder(), Metrics()
    memory, hops = Room(settings.pop("refuse", lambda: None)), Hops()
    config = GrpcReceiver(**{"endpoint": ANYWHERE, **settings})
    handler = handler_of(config, recorder.accept, metrics, memory=memory, hops=hops)
    server = GrpcServer(config, Authenticator(auth or Auth()), handler, metrics)
    try:
        yield Running(await server.start(), recorder, metrics, server, memory, hops)
    finally:
        await server.stop(0.2)


@asynccontextmanager
async def http_server(
    recorder: Recorder | None = None, *, auth: Auth | None = None, **settings: Any
) -> AsyncIterator[Running]:
    recorder, metrics = recorder or Recorder(), Metrics()
    memory, hops = Room(settings.pop("refuse", lambda: None)), Hops()
    config = HttpReceiver(**{"endpoint": ANYWHERE, **settings})
    handler = handler_of(config, recorder.accept, metrics, memory=memory, hops=hops)
    server = HttpServer(config, Authenticator(auth or Auth()), handler, metrics)
    try:
        yield Running(await server.start(), recorder, metrics, server, memory, hops)
    finally:
        await server.stop(0.2)


async def eventually(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: it did not within ``timeout_s`` seconds.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "did not happen in time"
        await asyncio.sleep(0.01)


def traces(count: int = 3) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for index in range(count):
        spans.add(trace_id=bytes([index % 255 + 1]) * 16, span_id=bytes([index % 255 + 1]) * 8, name=f"step {index}")
    return request


def request_of(signal: Signal) -> bytes:
    """A request with three items."""
    if signal is Signal.TRACES:
        return traces().SerializeToString()
    if signal is Signal.METRICS:
        metrics = ExportMetricsServiceRequest()
        found = metrics.resource_metrics.add().scope_metrics.add().metrics
        found.add(name="calls").sum.data_points.add(as_int=1)
        found.add(name="seconds").histogram.data_points.add(count=1)
        found.add(name="size").gauge.data_points.add(as_double=1.0)
        return metrics.SerializeToString()
    logs = ExportLogsServiceRequest()
    records = logs.resource_logs.add().scope_logs.add().log_records
    for text in ("a", "b", "c"):
        records.add().body.string_value = text
    return logs.SerializeToString()


def parsed(signal: Signal) -> Any:
    """The same request as a message."""
    kinds: Any = {
        Signal.TRACES: ExportTraceServiceRequest,
        Signal.METRICS: ExportMetricsServiceRequest,
        Signal.LOGS: ExportLogsServiceRequest,
    }
    return kinds[signal].FromString(request_of(signal))


def to_json(message: Any) -> bytes:
    """OTLP/JSON as other senders write it, by way of protobuf's JSON form."""

    def with_hex(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: with_hex(member, key) for key, member in value.items()}
        if isinstance(value, list):
            return [with_hex(member) for member in value]
        return base64.b64decode(value).hex() if name in ("traceId", "spanId", "parentSpanId") else value

    return json.dumps(with_hex(MessageToDict(message, use_integers_for_enums=True))).encode()


def sdk_spans(count: int) -> list[ReadableSpan]:
    """Ended spans of the OpenTelemetry SDK."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test")
    for index in range(count):
        with tracer.start_as_current_span(f"step {index}", attributes={"gen_ai.tool.name": "search"}):
            pass
    return list(memory.get_finished_spans())


class Authority:
    """A certificate authority that signs for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._sign(self._name, self._key.public_key(), ca=True).public_bytes(_PEM))

    def issue(self, name: str) -> tuple[str, str]:
        """Write certificate and key as ``name.crt`` and ``name.key``; their paths. The common name is ``name``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(self._sign(subject, key.public_key(), ca=False).public_bytes(_PEM))
        secret.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return str(certificate), str(secret)

    def server(self, name: str = "server", **settings: Any) -> ServerTls:
        """Settings of a receiver with a new certificate, looked at all the time."""
        certificate, key = self.issue(name)
        return ServerTls(cert_file=certificate, key_file=key, reload_interval_s=0.001, **settings)

    def _sign(self, subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            # Python 3.13 verifies strictly, and asks for these.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(ca=ca), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def replace(target: str, source: str) -> None:
    """Put one file in another's place at once, as tools that rotate secrets do."""
    os.replace(source, target)


_PEM = serialization.Encoding.PEM
