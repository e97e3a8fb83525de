"""The lag of a consumer, from librdkafka's statistics."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any


def is_member(statistics: Mapping[str, Any]) -> bool:
    """Whether the consumer is a member of its group."""
    return bool(statistics.get("cgrp", {}).get("join_state") == "steady")


def lag_by_role(
    statistics: Mapping[str, Any], role_of: Mapping[str, str], lag_of: Callable[[Mapping[str, int]], float]
) -> dict[str, float]:
    """Records that the assigned partitions hold and that are not processed yet, by role of the topic.

    Parameters:
        role_of: the roles to report, by the names of their topics.
        lag_of: counts the records of one partition that are not processed yet.
    """
    lag = dict.fromkeys(role_of.values(), 0.0)
    for name, one in assigned(statistics, role_of):
        lag[role_of[name]] += lag_of(one)
    return lag


def assigned(statistics: Mapping[str, Any], topics: Container[str]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The partitions of these topics that the consumer holds: name of the topic, and statistics of the partition."""
    for name, topic in statistics.get("topics", {}).items():
        if name in topics:
            yield from ((name, one) for one in topic["partitions"].values() if one["desired"])


def not_committed(partition: Mapping[str, int]) -> float:
    """Records of a partition behind the offset that this consumer has committed; without one all that there are."""
    lag = partition["consumer_lag"]
    if lag >= 0:
        return float(lag)
    return float(max(0, partition["hi_offset"] - max(0, partition["lo_offset"])))


def not_handed_over(partition: Mapping[str, int]) -> float:
    """Records of a partition that were not handed to the stages yet; without a position all that there are.

    librdkafka's own ``consumer_lag`` is unknown under exactly-once, where the producer commits the offsets. Markers of
    transactions lie behind the last record: it has none before it once all that was fetched is handed over.
    """
    end = partition["ls_offset"] if partition["ls_offset"] >= 0 else partition["hi_offset"]
    if partition["fetchq_cnt"] == 0 and partition["next_offset"] >= end:
        return 0.0
    at = max(partition["app_offset"], partition["committed_offset"], partition["lo_offset"], 0)
    return float(max(0, end - at))
