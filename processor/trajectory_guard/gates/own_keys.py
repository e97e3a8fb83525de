"""The keys that a gate has in the state of a graph: their channels, and what it keeps there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from langgraph.channels import BinaryOperatorAggregate, LastValue

from trajectory_guard.gates.boundaries import STATE

MAX_SCRATCHPAD: Final = 20
MEMORY: Final = "trajectory_guard_memory"
"""State key with the data that a gate needs to go on in another process; checkpointed, in no stream and no result."""
_REMEMBERED: Final = (
    "state", "calls", "called_in", "recent", "nudges_given", "nudged_run", "nudge_digests", "advice_digests",
    "collector_step", "collector_hand", STATE,
)  # fmt: skip


def bounded_append(before: list[Any] | None, new: list[Any] | None) -> list[Any]:
    """Reducer: append, keeping the newest ``MAX_SCRATCHPAD`` entries."""
    return [*(before or []), *(new or [])][-MAX_SCRATCHPAD:]


def replace(before: Any, new: Any) -> Any:
    """Reducer: the new value, unless a tool hands on the status of an agent that it has called."""
    return before if getattr(new, "was_read", False) else new


def guard_channels() -> dict[str, BinaryOperatorAggregate[Any]]:
    """The state keys of a gate: two to read, one for itself."""
    channels: dict[str, BinaryOperatorAggregate[Any]] = {
        "loop_status": BinaryOperatorAggregate(dict, replace),
        "trajectory_scratchpad": BinaryOperatorAggregate(list, bounded_append),
        MEMORY: BinaryOperatorAggregate(dict, replace),
    }
    for key, channel in channels.items():
        channel.key = key
    return channels


def split_status(status: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a status into the keys for the user's ``loop_status`` and the keys that only the gate needs."""
    shown = {key: value for key, value in status.items() if key not in _REMEMBERED}
    return shown, {key: value for key, value in status.items() if key in _REMEMBERED}


class _DeclaredStatus(LastValue[Any]):
    """``loop_status`` where the application declares it without a reducer: agents side by side write it as well.

    It is empty until something is written, as the application's own channel is.
    """

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        """As ``LastValue.update``, for any number of values."""
        for value in values:
            self.value = replace(self.value, value)
        return bool(values)


class _DeclaredScratchpad(LastValue[Any]):
    """As ``_DeclaredStatus``, for ``trajectory_scratchpad``: the steps of one super-step."""

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        """As ``LastValue.update``, for any number of values."""
        return super().update(values if len(values) < 2 else [bounded_append(None, [*chain(*values)])])


DECLARED: Final = {"loop_status": _DeclaredStatus, "trajectory_scratchpad": _DeclaredScratchpad}
"""Channels in place of those that an application declares without a reducer."""
