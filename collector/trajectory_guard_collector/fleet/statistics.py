"""The lag of a consumer, from librdkafka's statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_member(statistics: Mapping[str, Any]) -> bool:
    """Whether the consumer is a member of its group."""
    return bool(statistics.get("cgrp", {}).get("join_state") == "steady")


def lag_by_role(statistics: Mapping[str, Any], role_of: Mapping[str, str]) -> dict[str, float]:
    """Records that the assigned partitions hold and that are not processed yet, by role of the topic.

    Parameters:
        role_of: the roles to report, by the names of their topics.
    """
    lag = dict.fromkeys(role_of.values(), 0.0)
    for name, topic in statistics.get("topics", {}).items():
        if name in role_of:
            lag[role_of[name]] += sum(_lag_of(one) for one in topic["partitions"].values() if one["desired"])
    return lag


def _lag_of(partition: Mapping[str, int]) -> float:
    lag = partition["consumer_lag"]
    if lag >= 0:
        return float(lag)
    return float(max(0, partition["hi_offset"] - max(0, partition["lo_offset"])))
