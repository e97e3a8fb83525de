"""Operations on trajectories as data: identification in one process, trajectories in another.

``OperationLog`` carries out no operation but writes each down; ``apply`` carries it out on trajectories. The operations
of one trajectory must arrive in the order in which they were written; those of different trajectories may be mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard_collector.scoring.calls import call_from, plain_call
from trajectory_guard_collector.scoring.identification import Operations
from trajectory_guard_collector.scoring.item_codec import (
    FORMAT_VERSION,
    Dialects,
    ItemFormatError,
    from_bytes,
    item_of,
    plain_identity,
    plain_item,
    to_bytes,
    with_identity,
)
from trajectory_guard_collector.scoring.items import Item, Key, StepItem, UsageItem

MAX_ITEMS: Final = 65_536
"""Default number of spans that are known as delivered before, and whose identity can still be revised."""


class OperationKind(str, Enum):
    """Kind of operation."""

    ADD = "add"
    REMOVE = "remove"
    REFRESH = "refresh"
    NAME = "name"
    END = "end"
    RAISE = "raise"
    CLEAR = "clear"


BY_HAND: Final = frozenset((OperationKind.RAISE, OperationKind.CLEAR))
"""Operations that people cause; the process that holds the trajectory carries them out itself."""


class Operation(NamedTuple):
    """One operation on one trajectory.

    Fields:
        kind: its kind.
        key: tenant and id of the trajectory.
        content: the item in plain form (add), the span (remove), the span and the step's identity, or the model call,
            in plain form (refresh), the names (name), the id of the trace (end), an id, and the flag that a person
            raised or the reason to clear all flags (raise, clear).
    """

    kind: OperationKind
    key: Key
    content: Any

    def to_bytes(self) -> bytes:
        """Versioned JSON."""
        return to_bytes([FORMAT_VERSION, self.kind.value, self.key, self.content])

    @classmethod
    def from_bytes(cls, data: bytes) -> Operation:
        """Read ``to_bytes``.

        Raises:
            ItemFormatError: the bytes are no operation, or of another version.
        """
        plain = from_bytes(data)
        try:
            version, kind, (tenant, name), content = plain
            if version != FORMAT_VERSION:
                raise ItemFormatError(f"operation format version {version!r} is unknown")
            return cls(OperationKind(kind), (str(tenant), str(name)), content)
        except (TypeError, ValueError) as error:
            if isinstance(error, ItemFormatError):
                raise
            raise ItemFormatError(f"damaged operation: {type(error).__name__}: {error}") from None


class OperationLog(Operations):
    """The operations that an ``Identifier`` calls, in order.

    Parameters:
        max_items: spans that are remembered; beyond, those remembered longest are evicted.

    Attributes:
        session_of: the Langfuse session of a step, which is written with it; None if no scores are written.
    """

    def __init__(self, max_items: int = MAX_ITEMS) -> None:
        self.session_of: Callable[[StepItem], str | None] | None = None
        self._operations: list[Operation] = []
        self._items: BoundedTable[bytes, Item] = BoundedTable(max_items, on_evicted=_evict)

    def take(self) -> list[Operation]:
        """The operations since the last call."""
        operations, self._operations = self._operations, []
        return operations

    @property
    def items(self) -> list[Item]:
        """The spans that are remembered, in order of arrival."""
        return list(self._items.values())

    def restore(self, item: Item, key: Key | None) -> None:
        """Remember a saved item, without writing an operation down."""
        item.key = key
        self._items[item.span] = item

    def known(self, span: bytes) -> Item | None:
        """See ``Operations``."""
        return self._items.get(span)

    def add(self, item: Item, key: Key) -> None:
        """See ``Operations``."""
        item.key = key
        if self.session_of is not None and isinstance(item, StepItem):
            item.session = self.session_of(item)
        self._items[item.span] = item
        self._operations.append(Operation(OperationKind.ADD, key, plain_item(item)))

    def move(self, item: Item, key: Key | None) -> None:
        """See ``Operations``. Another process may have published the step under its former name."""
        if item.key is not None:
            self._operations.append(Operation(OperationKind.REMOVE, item.key, item.span.hex()))
            self._items.pop(item.span, None)
            item.key, item.moved = None, True
        if key is not None:
            self.add(item, key)

    def refresh(self, item: Item) -> None:
        """See ``Operations``."""
        if item.key is None:
            return
        if isinstance(item, StepItem):
            identity: list[Any] | None = plain_identity(item.step)
        else:
            identity = plain_call(item.call) if item.call is not None else None
        self._operations.append(Operation(OperationKind.REFRESH, item.key, [item.span.hex(), identity]))

    def rename(self, former: Key, key: Key) -> None:
        """See ``Operations``. Another process may hold the other trajectory: ordinals begin again there."""

    def name(self, key: Key, names: Iterable[str]) -> None:
        """See ``Operations``."""
        self._operations.append(Operation(OperationKind.NAME, key, list(names)))

    def end(self, key: Key, trace_id: str) -> None:
        """See ``Operations``."""
        self._operations.append(Operation(OperationKind.END, key, trace_id))


def _evict(item: Item) -> None:
    item.evicted = True


def apply(operation: Operation, target: Operations, dialects: Dialects) -> None:
    """Carry out an operation on trajectories. One that was carried out before changes nothing.

    Raises:
        ItemFormatError: the content is of another version, or of a dialect that is not configured.
    """
    kind, key, content = operation
    if kind is OperationKind.NAME:
        target.name(key, [str(name) for name in content])
    elif kind is OperationKind.END:
        target.end(key, str(content))
    elif kind is OperationKind.ADD:
        target.add(item_of(content, dialects), key)
    elif kind is OperationKind.REMOVE:
        known = target.known(bytes.fromhex(content))
        if known is not None and known.key == key:
            target.move(known, None)
    else:
        span, identity = content
        known = target.known(bytes.fromhex(span))
        if isinstance(known, StepItem) and known.key == key:
            known.step = with_identity(known.step, identity)
            target.refresh(known)
        elif isinstance(known, UsageItem) and known.key == key and identity is not None:
            known.call = call_from(identity)
            target.refresh(known)
