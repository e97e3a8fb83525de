"""Looks up topics on the brokers, and creates those that are missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from trajectory_guard_collector.errors import StartError
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.fleet.connection import connection
from trajectory_guard_collector.fleet.topics import MAX_MESSAGE_BYTES, WantedTopic, wanted

_TIMEOUT_S: Final = 15.0
_ATTEMPT_S: Final = 3.0
_DEFAULT_BYTES: Final = 1_000_000
"""Records of this size are taken wherever nobody has set a lower limit."""
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_TLS: Final = "SSL routines"
"""OpenSSL's words. librdkafka reports the broker's refusal of a client certificate as a failure to receive."""


class FoundTopic(NamedTuple):
    """A topic, and the number of its partitions; 0 if it is missing."""

    wanted: WantedTopic
    partitions: int


class Topology:
    """The topics of a configuration on its brokers.

    Parameters:
        config: the configuration.

    Raises:
        StartError: the settings of the connection cannot be used, for example a key that fits no certificate.
    """

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._errors: list[KafkaError] = []
        # Errors come by the callback, and are reported in one line: the log would have each of them once more.
        settings = {**connection(config.kafka), "log_level": 0, "error_cb": self._errors.append}
        try:
            self._client = AdminClient(settings)
        except KafkaException as error:
            raise StartError(f"kafka.security: {error.args[0].str()}") from None

    def find(self) -> list[FoundTopic]:
        """All topics.

        Raises:
            StartError: no broker answers, or none accepts the connection.
        """
        known = self._metadata().topics
        return [
            FoundTopic(one, len(known[one.name].partitions) if one.name in known else 0) for one in wanted(self._config)
        ]

    def _metadata(self) -> Any:
        """Topic metadata. Retries, since ``error_cb`` reports the cause of a failure only between attempts."""
        until = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._client.list_topics(timeout=_ATTEMPT_S)
            except KafkaException as error:
                failure = error.args[0]
            self._client.poll(0)  # calls ``error_cb``
            brokers = ",".join(self._config.kafka.brokers)
            for one in self._errors:
                if one.code() in _REFUSALS or _TLS in one.str():
                    raise StartError(f"kafka.security: {brokers}: the connection is refused: {one.str()}")
            if time.monotonic() > until:
                reasons = [one for one in self._errors if one.code() != KafkaError._ALL_BROKERS_DOWN]
                if reasons:
                    raise StartError(f"kafka.brokers: {brokers}: no broker answers: {reasons[-1].str()}")
                # A listener with TLS closes a connection without TLS, and gives no reason.
                hint = "is kafka.security.protocol that of the listener?"
                raise StartError(f"kafka.brokers: {brokers}: no broker answers: {failure.str()}; {hint}")

    def create_missing(self) -> list[str]:
        """Create the missing topics; returns their names.

        Raises:
            StartError: a topic cannot be created, or those that there are do not fit.
        """
        found = self.find()
        spans = next(one for one in found if one.wanted.role == "spans")
        count = spans.partitions or self._config.topics.partitions  # all stages have as many as their source
        missing = [one.wanted for one in found if not one.partitions]
        replication = self._config.topics.replication_factor
        futures = self._client.create_topics(
            [NewTopic(one.name, count, replication, config=dict(one.settings)) for one in missing],
            request_timeout=_TIMEOUT_S,
        ) if missing else {}  # fmt: skip
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:  # noqa: PERF203
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                    raise StartError(f"topic {name!r} cannot be created: {error.args[0].str()}") from None
        until = time.monotonic() + _TIMEOUT_S
        while futures and not all(one.partitions for one in self.find()) and time.monotonic() < until:
            time.sleep(0.1)  # a broker answers before all brokers know of the topic
        return [one.name for one in missing]

    def check(self) -> None:
        """Check that a worker can start.

        Raises:
            StartError: a topic is missing, or partitions differ; one line for each mistake.
        """
        found = self.find()
        mistakes = [*_mistakes(found)]
        if mistakes:
            raise StartError("\n".join(mistakes))

    def largest_record(self, topic: str) -> int:
        """Bytes of the largest record that a topic takes, at most ``MAX_MESSAGE_BYTES``; the default of brokers for a
        client that may not read settings."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            settings = self._client.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
        except KafkaException:
            return _DEFAULT_BYTES
        return min(MAX_MESSAGE_BYTES, int(settings["max.message.bytes"].value))


def _mistakes(found: list[FoundTopic]) -> Iterator[str]:
    for one in found:
        if not one.partitions:
            yield f"topic {one.wanted.name!r} ({one.wanted.role}) is missing: create it with `topics --create`"
    partitions = {one.wanted.role: one.partitions for one in found}
    if 0 < partitions["spans"] != partitions["operations"] > 0:
        names = {one.wanted.role: one.wanted.name for one in found}
        yield (
            f"topic {names['operations']!r} has {partitions['operations']} partitions, and {names['spans']!r} has"
            f" {partitions['spans']}: they need the same number"
        )
