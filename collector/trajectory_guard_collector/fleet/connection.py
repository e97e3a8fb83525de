"""Connection settings in the words of librdkafka."""

from __future__ import annotations

from typing import Any

from trajectory_guard_collector.fleet.config import Kafka


def connection(kafka: Kafka) -> dict[str, Any]:
    """Settings of a client."""
    security = kafka.security
    settings = {
        "bootstrap.servers": ",".join(kafka.brokers),
        "security.protocol": security.protocol,
        "ssl.ca.location": security.ca_file,
        "ssl.certificate.location": security.cert_file,
        "ssl.key.location": security.key_file,
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password.get_secret_value() if security.password is not None else None,
    }
    return {name: value for name, value in settings.items() if value is not None}
