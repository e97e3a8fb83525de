"""The scorer of the fleet: takes trace requests and returns them with the verdicts written in.

The scorer is called from the event loop only, so that nothing needs a lock. The same spans give the same verdicts as
in process: the same dialects read the spans, and the same engine evaluates the steps in the order in which they ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import NamedTuple

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.prices import PriceTable
from trajectory_guard.spending.configured import spending_of
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.scoring.booking import BookedOperations, Bookings
from trajectory_guard_collector.scoring.counts import ScoringCounts
from trajectory_guard_collector.scoring.events import LoopEvent
from trajectory_guard_collector.scoring.identification import Identifier
from trajectory_guard_collector.scoring.parser import ParsedRequest, RequestParser
from trajectory_guard_collector.scoring.registry import Fleet
from trajectory_guard_collector.scoring.tagger import Tagger
from trajectory_guard_collector.telemetry.metrics import Metrics

JournalOf = Callable[[ParsedRequest], bytes]
"""Makes the journal entry of a parsed request, from which a restart replays it."""


class ScoredRequest(NamedTuple):
    """The result of scoring a request.

    Fields:
        data: the bytes to send on, unchanged if nothing was found.
        spans: number of spans in ``data``, the guard's own included.
        agent_spans: number of agent spans in the request.
        events: loop events to publish.
        journal: entry from which a restart replays the request; None if the request has no agent span.
    """

    data: bytes
    spans: int
    agent_spans: int
    events: list[LoopEvent]
    journal: bytes | None = None


class FleetScorer:
    """Scores trace requests.

    Parameters:
        config: detection, as in process.
        limits: memory of trajectories and traces.
        metrics: counts steps and findings.
        clock: monotonic seconds; for tests.

    Attributes:
        spending: the ledger of all services, None if none is configured.

    Raises:
        ConfigError: the file of the ledger cannot be used.
    """

    def __init__(
        self,
        config: GuardConfig,
        limits: Trajectories,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        table = table_with(config.dialects)
        self.metrics = metrics
        self.counts = ScoringCounts(metrics)
        self._prices = PriceTable()
        engine = Engine(config.engine_settings(), price=self._prices.cost)
        self.fleet = Fleet(engine, config, limits, self.counts, clock=clock)
        self.spending = spending_of(config, self._prices, Counter())
        self._bookings = Bookings(self.spending, self.counts) if self.spending is not None else None
        operations = BookedOperations(self.fleet, self._bookings) if self._bookings is not None else self.fleet
        books = self._bookings is not None
        self.identifier = Identifier(table, config, limits, operations, self.counts, reads_calls=books)
        self._reader = RequestParser(table, limits.separate_by)
        self._tagger = Tagger(self.fleet)

    def score(self, data: bytes, *, journal_of: JournalOf | None = None) -> ScoredRequest:
        """Score the spans of a serialized ``ExportTraceServiceRequest``.

        Parameters:
            journal_of: makes the journal entry of a request with agent spans, before the request is tagged.

        Raises:
            google.protobuf.message.DecodeError: the bytes are no such request.
        """
        return at_once(self.scoring(data, journal_of=journal_of))

    def scoring(self, data: bytes, *, journal_of: JournalOf | None = None) -> Generator[None, None, ScoredRequest]:
        """``score`` as a generator that yields wherever the event loop may do other work. Run one at a time.

        Parameters, errors: as of ``score``.
        """
        parsed = yield from self._reader.parsing(data)
        if not parsed.agent_spans and not self.identifier.traces:
            return ScoredRequest(data, parsed.count, 0, [])
        yield from self.identifier.identifying(parsed)
        if self._bookings is not None:
            yield from self._bookings.committing()
        events = yield from self.fleet.scoring()
        journal = journal_of(parsed) if journal_of is not None and parsed.agent_spans else None
        tagged, guard_spans = self._tagger.tag(parsed, data, events)
        return ScoredRequest(tagged, parsed.count + guard_spans, len(parsed.agent_spans), events, journal)

    def rest(self) -> ScoredRequest:
        """Evaluate steps whose reorder wait is over, and evict trajectories that were idle for too long.

        No request may be under evaluation. The result holds guard spans only.
        """
        if self._bookings is not None:
            at_once(self._bookings.committing())
        return self._unrequested(self.fleet.rest())

    def finish(self) -> ScoredRequest:
        """As ``rest``, and evaluate all steps that still wait for earlier steps."""
        return self._unrequested([*self.fleet.finish(), *self.fleet.rest()])

    def _unrequested(self, events: list[LoopEvent]) -> ScoredRequest:
        data, count = self._tagger.guard_spans(events)
        return ScoredRequest(data, count, 0, events)

    def shed(self) -> bool:
        """Free half of the memory that only serves late spans; scores are kept. Returns whether there was any."""
        self.identifier.traces.shed()
        if self._bookings is not None:
            self._bookings.shed()
        return self.fleet.shed()
