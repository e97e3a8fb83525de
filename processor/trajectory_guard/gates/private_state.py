"""``loop_status`` of an agent made by ``create_agent``, with what the gate has to remember out of sight.

LangGraph streams, traces and logs every key of a state that a node reads or writes: ``PrivateStateAttr`` hides a key
from the result alone, and an ``UntrackedValue`` is missing in checkpoints, where it is needed. So the memory has no
key: it is an attribute of the value of ``loop_status``, and only the checkpoint of its channel holds both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.channels import LastValue

from trajectory_guard.gates.langgraph_internals import MISSING
from trajectory_guard.gates.own_keys import split_status


class RememberingStatus(dict[str, Any]):
    """A ``loop_status`` to read, and the gate's memory beside it.

    Attributes:
        was_read: it comes out of a state. A tool may hand on the whole state of the agent that it has called (as
            ``task`` of deep agents does): such a status describes that agent, and none that receives it.
    """

    def __init__(
        self, shown: Mapping[str, Any] | None = None, memory: Mapping[str, Any] | None = None, *, was_read: bool = False
    ) -> None:
        super().__init__(shown or {})
        self.memory = dict(memory or {})
        self.was_read = was_read


class StatusChannel(LastValue[Any]):
    """Keeps a ``RememberingStatus``. A plain value, as a caller or another node writes it, leaves the memory alone.

    The status of another agent is ignored. Of several values in one super-step the last one stays: tools that run side
    by side must not end the run over what the guard has added to their states.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatusChannel)

    __hash__ = None  # type: ignore[assignment]  # as other channels

    def update(self, values: Sequence[Any]) -> bool:
        """As ``LastValue.update``, for any number of values."""
        held = self.value
        own = [value for value in values if not _is_of_another_agent(value, held)]
        if not own:
            return False
        value = own[-1]
        if isinstance(value, RememberingStatus):
            value = RememberingStatus(value, value.memory, was_read=True)
        elif isinstance(value, Mapping):
            value = RememberingStatus(value, getattr(held, "memory", None), was_read=True)
        return super().update([value])

    def checkpoint(self) -> Any:
        """Status and memory as one plain dictionary, which every serializer takes."""
        if not isinstance(self.value, RememberingStatus):
            return self.value
        return {**self.value, **self.value.memory}

    def from_checkpoint(self, checkpoint: Any) -> StatusChannel:
        """The channel of a checkpoint, also of one from before there was this channel."""
        if checkpoint is MISSING or not isinstance(checkpoint, Mapping):
            return super().from_checkpoint(checkpoint)
        return super().from_checkpoint(RememberingStatus(*split_status(checkpoint), was_read=True))


def _is_of_another_agent(value: Any, held: Any) -> bool:
    """Whether a value is a status that a tool has taken over from the state of an agent that it called.

    Serializers make plain dictionaries of a status. One that names a run then has to name one of the agent whose
    status is held: the agent instance is that of its label.
    """
    if isinstance(value, RememberingStatus):
        return value.was_read
    if not isinstance(value, Mapping) or not isinstance(run := value.get("run"), str):
        return False
    known = held.get("run") if isinstance(held, Mapping) else None
    return not isinstance(known, str) or _instance_of(run) != _instance_of(known)


def _instance_of(run: str) -> str:
    """Agent instance in the label of a run of a gate, whose instances hold no slash."""
    return run.partition("/")[0]


def whole_status(state: Mapping[str, Any]) -> dict[str, Any]:
    """Status and memory in the state of a graph."""
    status = state.get("loop_status") or {}
    return {**status, **getattr(status, "memory", {})}


def remembering(status: Mapping[str, Any]) -> RememberingStatus:
    """The value of ``loop_status`` for a status of the gate."""
    return RememberingStatus(*split_status(status))
