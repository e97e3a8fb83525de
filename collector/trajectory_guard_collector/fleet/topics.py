"""The topics of the worker: which there must be, and how they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trajectory_guard_collector.fleet.config import FleetConfig, Topics

MAX_MESSAGE_BYTES: Final = 16 << 20
"""Largest record in a changelog, before compression: a single span may be that long in a record of spans."""
_MAX_SPANS_BYTES: Final = 4 << 20
_COMPACTION_LAG_MS: Final = 600_000


class Roles(NamedTuple):
    """Names of topics by their role."""

    spans: str
    operations: str
    verdicts: str
    guard_spans: str
    flags: str
    scores: str
    dead_letters: str

    @classmethod
    def of(cls, topics: Topics) -> Roles:
        """The names that are configured."""
        return cls(**{role: getattr(topics, role) for role in cls._fields})

    def by_role(self) -> dict[str, str]:
        """The same as a dictionary."""
        return self._asdict()


class WantedTopic(NamedTuple):
    """A topic that must exist.

    Fields:
        role: what it is for.
        settings: settings other than the broker's defaults.
    """

    role: str
    name: str
    settings: Mapping[str, str]


def wanted(config: FleetConfig) -> Iterator[WantedTopic]:
    """All topics of a configuration. Those of state are named as the stream engine names them."""
    roles = Roles.of(config.topics)
    retention = str(round(config.topics.operations_retention_s * 1_000))
    yield WantedTopic("spans", roles.spans, {"max.message.bytes": str(_MAX_SPANS_BYTES)})
    yield WantedTopic("operations", roles.operations, {"retention.ms": retention})
    yield WantedTopic("verdicts", roles.verdicts, {})
    yield WantedTopic("guard_spans", roles.guard_spans, {})
    yield WantedTopic("flags", roles.flags, _flags_settings(config))
    yield WantedTopic("scores", roles.scores, {"retention.ms": str(round(config.topics.scores_retention_s * 1_000))})
    yield WantedTopic("dead_letters", roles.dead_letters, {"max.message.bytes": str(MAX_MESSAGE_BYTES)})
    for name in (roles.spans, roles.operations):
        # A restore skips what was written after the last commit, so what was written before it must still be there.
        settings = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(_COMPACTION_LAG_MS),
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
        }
        yield WantedTopic("state", f"changelog__{config.kafka.group}--{name}--default", settings)


def _flags_settings(config: FleetConfig) -> dict[str, str]:
    """The newest record of each trajectory, for as long as its state is kept. Segments roll in time for both."""
    kept_ms = round(config.state.ttl_s * 1_000)
    return {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(kept_ms),
        "segment.ms": str(max(60_000, kept_ms // 24)),
        "min.compaction.lag.ms": str(_COMPACTION_LAG_MS),
    }
