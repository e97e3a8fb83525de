"""Books model calls in a ledger, by wrapping the operations that identification calls.

A request becomes one transaction. Spans arrive in any order, so that a call that was booked may turn out to be another
agent's, another trajectory's, or a second report of a call: each is a change of the ledger, and the sums are those that
a process would have booked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Final

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.spending.duplicates import CallsOfTrace, ReportedCall
from trajectory_guard.spending.ledger import Change, Kind, LedgerEntry, nano_usd, writable
from trajectory_guard.spending.spending import Spending, log_booked
from trajectory_guard_collector.scoring.calls import ModelCall
from trajectory_guard_collector.scoring.identification import Operations
from trajectory_guard_collector.scoring.items import Item, Key, UsageItem
from trajectory_guard_collector.telemetry.metrics import ScoringCounts

MAX_TRACES: Final = 4_096
"""Traces whose model calls are remembered, to recognise second reports of them."""
MAX_CALLS: Final = 65_536
"""Model calls that are remembered over all of these traces; each takes some 800 bytes."""
MAX_NAME: Final = 4_096
"""Characters of a name in the ledger."""
MAX_CHANGES: Final = 256
"""Changes of the ledger in one transaction, which takes some 10 ms of the event loop."""
_log: Final = logging.getLogger(__name__)


class _Trace:
    """The model calls of one trace.

    Attributes:
        reports: recognises second reports of a call.
        entries: the calls by span id, as they were put last.
        compared: span ids of those that were compared with the usual calls of their agent.
    """

    __slots__ = ("compared", "entries", "reports")

    def __init__(self) -> None:
        self.reports = CallsOfTrace()
        self.entries: dict[str, LedgerEntry] = {}
        self.compared: set[str] = set()


class Bookings:
    """Gathers the changes of the ledger that a request causes, and carries them out together.

    Single-threaded. Errors are counted, and cost the ledger alone.

    Parameters:
        spending: the ledger and its budgets.
        counts: counts errors.
    """

    def __init__(self, spending: Spending, counts: ScoringCounts) -> None:
        self._spending, self._counts = spending, counts
        self._traces: BoundedTable[str, _Trace] = BoundedTable(MAX_TRACES, on_evicted=self._forgot)
        self._calls = 0  # remembered
        self._changes: list[Change] = []
        self._compared_late: list[LedgerEntry] = []
        self._errors = 0

    def put(self, item: UsageItem, call: ModelCall, key: Key) -> None:
        """Book a model call in a trajectory, or revise how it is booked. One delivered again changes nothing."""
        trace = self._traces.touch(item.trace_id)
        if trace is None:
            trace = self._traces[item.trace_id] = _Trace()
        span, before, entry = call.span_id, trace.entries.get(call.span_id), self._entry(item, call, key)
        if before is not None and entry.revision <= before.revision:
            return
        self._calls += before is None
        trace.entries[span] = entry
        turned, forgotten = trace.reports.put(_reported(item, call))
        for other in turned:
            kind = Kind.WITHDRAW if trace.reports.is_second(other) else Kind.RESTORE
            self._changes.append(Change(trace.entries[other], kind, compared=False))
        if span not in turned and not trace.reports.is_second(span):
            self._book(
                trace, span, call, entry, is_new=before is None or before._replace(revision=entry.revision) != entry
            )
        if forgotten is not None:
            self._calls -= trace.entries.pop(forgotten, None) is not None
            trace.compared.discard(forgotten)
        while self._calls > MAX_CALLS and len(self._traces) > 1:
            self._traces.evict_oldest()

    def _entry(self, item: UsageItem, call: ModelCall, key: Key) -> LedgerEntry:
        usage, model = item.usage, self._spending.model_of(named(call.model), named(call.requested))
        return LedgerEntry(
            call.id, named(call.conversation or key[1]), named(call.agent), named(call.service),
            self._spending.day_of(call.end), model, usage.input_tokens, usage.output_tokens,
            nano_usd(usage.cost_usd) if usage.cost_usd else None, named(key[0]), call.revision,
        )  # fmt: skip

    def _forgot(self, trace: _Trace) -> None:
        self._calls -= len(trace.entries)

    def shed(self) -> None:
        """Forget the calls of half of the traces, to free memory. Their bookings stay."""
        self._traces.shed()

    def _book(self, trace: _Trace, span: str, call: ModelCall, entry: LedgerEntry, *, is_new: bool) -> None:
        """Book a call; compare it with the usual ones of its agent as soon as that is known, and once."""
        compares = span not in trace.compared and (call.is_complete or bool(call.agent))
        if compares:
            trace.compared.add(span)
        if not call.revision:
            self._changes.append(Change(entry, Kind.ADD, compared=compares))
            return
        if is_new:
            self._changes.append(Change(entry, Kind.REVISE, compared=False))
        if compares:
            self._compared_late.append(entry)

    def committing(self) -> Generator[None, None, None]:
        """Carry out the changes since the last call, and raise the alerts that are due.

        They are one transaction; more than ``MAX_CHANGES`` are several, and other work has its turn in between.
        """
        changes, self._changes = self._changes, []
        late, self._compared_late = self._compared_late, []
        for at in range(0, len(changes), MAX_CHANGES):
            part = changes[at : at + MAX_CHANGES]
            self._contained(lambda part=part: log_booked(self._spending.book_all(part)))  # type: ignore[misc]
            yield
        for entry in late:
            self._contained(lambda entry=entry: log_booked(self._spending.compare(entry)))  # type: ignore[misc]
        if not changes:
            self._contained(self._spending.retry)
        self._count_errors()

    def _contained(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001  the ledger fails, the telemetry goes on
            self._counts.error("spending")
            _log.exception("changes of the ledger are lost")

    def _count_errors(self) -> None:
        errors = self._spending.counts["errors.spending"]
        for _ in range(errors - self._errors):
            self._counts.error("spending")
        self._errors = errors


class BookedOperations(Operations):
    """Carries out operations on trajectories, and books the model calls among their items.

    Parameters:
        trajectories: carries out the operations.
        bookings: takes the model calls.
    """

    def __init__(self, trajectories: Operations, bookings: Bookings) -> None:
        self._trajectories, self._bookings = trajectories, bookings

    def known(self, span: bytes) -> Item | None:
        """See ``Operations``."""
        return self._trajectories.known(span)

    def add(self, item: Item, key: Key) -> None:
        """See ``Operations``."""
        self._trajectories.add(item, key)
        self._book(item, key)

    def move(self, item: Item, key: Key | None) -> None:
        """See ``Operations``. A model call is removed only to be added elsewhere; that books it again, unless it was
        booked to the conversation that a span above it names."""
        self._trajectories.move(item, key)
        if isinstance(item, UsageItem) and item.call is not None and not item.call.conversation:
            self._book(item, key)

    def refresh(self, item: Item) -> None:
        """See ``Operations``."""
        self._trajectories.refresh(item)
        self._book(item, item.key)

    def rename(self, former: Key, key: Key) -> None:
        """See ``Operations``. The ledger follows call by call."""
        self._trajectories.rename(former, key)

    def name(self, key: Key, names: Iterable[str]) -> None:
        """See ``Operations``."""
        self._trajectories.name(key, names)

    def end(self, key: Key, trace_id: str) -> None:
        """See ``Operations``."""
        self._trajectories.end(key, trace_id)

    def _book(self, item: Item, key: Key | None) -> None:
        if isinstance(item, UsageItem) and item.call is not None and key is not None:
            self._bookings.put(item, item.call, key)


def _reported(item: UsageItem, call: ModelCall) -> ReportedCall:
    tokens = (item.usage.input_tokens, item.usage.output_tokens)
    return ReportedCall(
        item.scope, call.span_id, call.start, call.end, tokens, call.response or None, frozenset(call.above),
        has_cost=item.usage.cost_usd > 0,
    )  # fmt: skip


def named(text: str) -> str:
    """A name as the ledger has it: of bounded length, and without the halves of characters that files refuse."""
    return writable(text[:MAX_NAME])
