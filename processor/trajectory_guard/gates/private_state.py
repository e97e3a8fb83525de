"""``loop_status`` of an agent made by ``create_agent``, with what the gate has to remember out of sight.

LangGraph streams, traces and logs every key of a state that a node reads or writes: ``PrivateStateAttr`` hides a key
from the result alone, and an ``UntrackedValue`` is missing in checkpoints, where it is needed. So the memory has no
key: it is an attribute of the value of ``loop_status``, and only the checkpoint of its channel holds both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.channels import LastValue

from trajectory_guard.gates.agent_node import split_status
from trajectory_guard.gates.langgraph_internals import MISSING


class RememberingStatus(dict[str, Any]):
    """A ``loop_status`` to read, and the gate's memory beside it."""

    def __init__(self, shown: Mapping[str, Any] | None = None, memory: Mapping[str, Any] | None = None) -> None:
        super().__init__(shown or {})
        self.memory = dict(memory or {})


class StatusChannel(LastValue[Any]):
    """Keeps a ``RememberingStatus``. A plain value, as a caller or another node writes it, leaves the memory alone."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatusChannel)

    __hash__ = None  # type: ignore[assignment]  # as other channels

    def update(self, values: Sequence[Any]) -> bool:
        """As ``LastValue.update``."""
        before = getattr(self.value, "memory", None)
        kept = [
            RememberingStatus(value, before)
            if isinstance(value, Mapping) and not isinstance(value, RememberingStatus)
            else value
            for value in values
        ]
        return super().update(kept)

    def checkpoint(self) -> Any:
        """Status and memory as one plain dictionary, which every serializer takes."""
        if not isinstance(self.value, RememberingStatus):
            return self.value
        return {**self.value, **self.value.memory}

    def from_checkpoint(self, checkpoint: Any) -> StatusChannel:
        """The channel of a checkpoint, also of one from before there was this channel."""
        if checkpoint is MISSING or not isinstance(checkpoint, Mapping):
            return super().from_checkpoint(checkpoint)
        return super().from_checkpoint(RememberingStatus(*split_status(checkpoint)))


def whole_status(state: Mapping[str, Any]) -> dict[str, Any]:
    """Status and memory in the state of a graph."""
    status = state.get("loop_status") or {}
    return {**status, **getattr(status, "memory", {})}


def remembering(status: Mapping[str, Any]) -> RememberingStatus:
    """The value of ``loop_status`` for a status of the gate."""
    return RememberingStatus(*split_status(as_json(status)))


def as_json(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status whose saved state is text: streams, front ends and some checkpointers take JSON only."""
    saved = status.get("state")
    return {**status, "state": base64.b64encode(saved).decode("ascii")} if isinstance(saved, bytes) else dict(status)
