"""Encryption and authentication on a real Kafka: whom the worker trusts, and how it says that it is not accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from tests.collector.kit import loop, request
from tests.collector.receiver_helpers import Authority
from tests.fleet.broker import Broker, NoKafkaError, unavailable
from tests.fleet.kit import expected_verdicts, records_of
from tests.fleet.workers import FleetRun
from trajectory_guard_collector.fleet.cli import main
from trajectory_guard_collector.fleet.config import Security

pytestmark = pytest.mark.slow
NewRun = Callable[..., FleetRun]
PASSWORD = "a-secret-of-100%"
SASL, MTLS = "SASL_SSL", "SSL"


class Secured(NamedTuple):
    """A broker with a listener for passwords and one for client certificates, and the files of its clients."""

    broker: Broker
    ca: str
    other_ca: str
    client: tuple[str, str]
    stranger: tuple[str, str]

    def security(self, way: str, **other: Any) -> dict[str, Any]:
        """``kafka.security`` of a client that is accepted, but for what is given."""
        if way == MTLS:
            certificate, key = self.client
            return {"protocol": "ssl", "ca_file": self.ca, "cert_file": certificate, "key_file": key, **other}
        known = {"sasl_mechanism": way, "username": "worker", "password": PASSWORD}
        return {"protocol": "sasl_ssl", "ca_file": self.ca, **known, **other}

    def address(self, way: str) -> str:
        return self.broker.listening[MTLS if way == MTLS else SASL]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, other = Authority(folder), Authority(folder, "other")
    certificate, key = authority.issue("broker")
    (folder / "broker.pem").write_text(Path(key).read_text() + Path(certificate).read_text())
    users = f'user_worker="{PASSWORD}"'
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    try:
        broker = Broker(folder, listeners={SASL: SASL, MTLS: MTLS}, settings=settings, users={"worker": PASSWORD})
    except NoKafkaError as error:
        unavailable(str(error))
    try:
        broker.start()
        yield Secured(broker, str(authority.file), str(other.file), authority.issue("worker"), other.issue("stranger"))
    finally:
        broker.stop()


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "PLAIN", MTLS])
def test_a_worker_reads_and_writes_over_tls(secured: Secured, new_run: NewRun, way: str) -> None:
    requests = [request(one) for one in loop(6)]
    run = new_run(address=secured.broker.address)
    security = Security.model_validate(secured.security(way))
    worker = run.start("one", brokers=(secured.address(way),), security=security)
    worker.wait_until_ready()
    run.feed([record for data in requests for record in records_of(data)])
    run.wait_for(expected_verdicts(requests))
    assert worker.terminate() == 0
    assert PASSWORD not in worker.log


REFUSAL = "kafka.security: {address}: the connection is refused: "
REFUSED = {
    "wrong password, SCRAM": ("SCRAM-SHA-512", {"password": "wrong"}, REFUSAL, "uthentication failed"),
    "wrong password, PLAIN": ("PLAIN", {"password": "wrong"}, REFUSAL, "uthentication failed"),
    "unknown user": ("SCRAM-SHA-512", {"username": "nobody"}, REFUSAL, "uthentication failed"),
    "another mechanism": ("SCRAM-SHA-256", {}, REFUSAL, "SCRAM-SHA-512"),
    "unknown authority": ("PLAIN", {"ca_file": "other_ca"}, REFUSAL, "certificate verify failed"),
    "no client certificate": (MTLS, {"cert_file": None, "key_file": None}, REFUSAL, "bad certificate"),
    "client certificate of an unknown authority": (MTLS, {"cert_file": "stranger", "key_file": "stranger"}, REFUSAL, "bad certificate"),
    "no TLS": (MTLS, {"protocol": "plaintext"}, "kafka.brokers: {address}: no broker answers: ", "is kafka.security.protocol"),
    "key of another certificate": (MTLS, {"key_file": "stranger"}, "kafka.security: ", "key values mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_connection_that_is_refused_gives_one_clear_line(
    secured: Secured, case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    way, other, begins, contains = REFUSED[case]
    files = {"ca_file": secured.other_ca, "cert_file": secured.stranger[0], "key_file": secured.stranger[1]}
    other = {name: files[name] if value in ("other_ca", "stranger") else value for name, value in other.items()}
    security = secured.security(way, **other)
    given = [f"--set=kafka.security.{name}={value}" for name, value in security.items() if value is not None]
    assert main(["topics", f"--set=kafka.brokers=[{secured.address(way)}]", *given]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("trajectory-guard-fleet: " + begins.format(address=secured.address(way))), line
    assert contains in line, line
    assert PASSWORD not in line


def test_a_worker_that_is_refused_ends_with_status_1(secured: Secured, new_run: NewRun) -> None:
    run = new_run(address=secured.broker.address)
    security = Security.model_validate(secured.security("SCRAM-SHA-512", password="wrong"))
    worker = run.start("one", brokers=(secured.address("SCRAM-SHA-512"),), security=security)
    assert worker.process.wait(60) == 1
    (line,) = worker.log.splitlines()
    assert "uthentication failed" in line
    assert "wrong" not in line
