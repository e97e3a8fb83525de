"""``TrajectoryGuardProcessor``: evaluates GenAI tool spans on any SDK ``TracerProvider``."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from opentelemetry import context as otel_context
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.callbacks import Intervention, notify
from trajectory_guard.config import GuardConfig, is_disabled
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.tables import BoundedTable, NameTable
from trajectory_guard.core.tracking.usage import UsageLedger
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import KeySet, RowKeys, recognise_keys
from trajectory_guard.logs import log_recovery, log_verdict
from trajectory_guard.otel import ending
from trajectory_guard.otel.callers import run_of_caller, views_in
from trajectory_guard.otel.content_watch import ContentWatch
from trajectory_guard.otel.local_roots import ends_request
from trajectory_guard.otel.metrics import meter_of, register
from trajectory_guard.otel.open_spans import OpenSpans, expire
from trajectory_guard.otel.postponed import Postponed
from trajectory_guard.otel.publishing import quotes_nothing
from trajectory_guard.otel.sdk_spans import (
    IS_REMOTE,
    PUBLIC,
    SPAN_ID,
    TRACE_ID,
    SpanReader,
    limit_of,
    marked,
    readers,
    view_of,
)
from trajectory_guard.otel.verdict_spans import VerdictSpans, has_pool, in_trace_of, is_part_of
from trajectory_guard.process.containment import contain
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import HeldTooLongError, OwnedLock, holds_lock, patience
from trajectory_guard.runtime import add_reporter, board_for, follow
from trajectory_guard.spans.duplicates import MAX_ANCESTORS
from trajectory_guard.spans.extract import model_usage, read_handoff, read_known_step, repeats_above, trajectory_id
from trajectory_guard.spans.identity import (
    LiveView,
    ToolSpanNames,
    all_conversation_ids,
    batch_and_task,
    is_agent_span,
    metadata_of,
    named_conversation,
)
from trajectory_guard.transcripts.asked import opens, with_asked
from trajectory_guard.transcripts.messages import may_show_input
from trajectory_guard.transcripts.model_calls import model_call
from trajectory_guard.transcripts.proposals import proposals_in

if TYPE_CHECKING:
    from trajectory_guard.otel.quality import ScoreFeed
    from trajectory_guard.otel.spending import SpendingFeed
    from trajectory_guard.spending.spending import Spending

_log: Final = logging.getLogger(telemetry.LOGGER)
_LATENCY_SAMPLE: Final = 16
_EXPIRY_CHECK: Final = 256
_MAX_PASSED: Final = 1_024
_POOL_PATIENCE_S: Final = 0.5
"""Seconds for which a thread of a pool waits for a lock, which the thread that waits for the pool may hold."""


class TrajectoryGuardProcessor(SpanProcessor):
    """Evaluates every tool span when it ends and raises flags on its board.

    Called synchronously on the thread that ends the span. Never blocks on a network or a model, never raises: an error
    of its own is counted (``trajectory_guard.errors``) and logged once per place. With ``spending_file`` a model call
    is booked before its span has ended; a locked file costs up to 0.02 s, once a second. A span that ends while its
    thread holds a lock of the guard (a finalizer or a signal handler has ended it) is evaluated with the next span; so
    is one that the SDK's ``ConcurrentMultiSpanProcessor`` hands over under such a lock, after 0.5 s. Each provider
    needs a processor of its own, since the first one that shuts down switches its processor off; they share a board.

    Parameters:
        config: ``GuardConfig``; by default that of the board, which is read from ``TRAJECTORY_GUARD_*`` variables.
        board: where trajectories live; by default the board shared by the whole process, which gates read.
        tracer_provider: provider for the guard's own spans; by default that of the span that each is about.
        meter_provider: provider for the guard's metrics; the global one by default.

    Raises:
        ConfigError: the board is configured otherwise; the keys that differ are named.
    """

    _is_shut_down: bool

    def __init__(
        self, config: GuardConfig | None = None, *, board: FlagBoard | None = None,
        tracer_provider: trace.TracerProvider | None = None, meter_provider: otel_metrics.MeterProvider | None = None,
    ) -> None:  # fmt: skip
        self.board = board_for(config, board)
        self._trajectories = self.board.trajectories
        self.switch_on()
        self._spans = VerdictSpans(tracer_provider, self.board.counts)
        now_and_after_fork(self._renew_lock)
        self._open: OpenSpans = {}
        self._readers = readers()
        self._patience_s: float | None = None  # without limit, until a span shows that its processors run on a pool
        self._processors_seen: object = None
        self._started = self._evaluated = 0
        self._tools = ToolSpanNames()
        self._postponed, limit = Postponed(self.board.counts), self.board.config.max_trajectories
        self._conversations: NameTable[int, str] = NameTable(limit)  # of traces
        self._usage: BoundedTable[int, UsageLedger] = BoundedTable(limit)  # usage of the model calls of a trace
        self._passed: BoundedTable[int, trace.SpanContext] = BoundedTable(_MAX_PASSED)  # parents of ended model calls
        self._feed: SpendingFeed | None = None
        self._scores: ScoreFeed | None = None
        self._content = ContentWatch(self.board)
        self.configure(self.board.config)
        add_reporter(self.board)
        self.latency = register(meter_of(meter_provider), self.board)
        follow(self)
        self.board.add_processor(self)

    def configure(self, config: GuardConfig) -> None:
        """Update every value that depends on the configuration; called again when the process adopts another one."""
        self.config = config
        self._max_open = config.max_open_spans
        self._conversations.limit = self._usage.limit = config.max_trajectories
        self._table = table_with(config.dialects)
        self._above: dict[int, LiveView] = {}  # span id -> view of a live span that has a tool span below it
        self._interesting = self._table.interesting

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    # --- SpanProcessor ---------------------------------------------------------------------------------------

    def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
        """Remember a live span, so that its children can read their identity from it."""
        if not self.enabled:
            return
        try:
            try:
                if span._span_processor is not self._processors_seen:
                    self._learn_provider(span)
                context: Any = span._context if span.__class__ in self._readers else span.context
            except AttributeError:  # its fields were replaced
                context, self.board.resource = span.context, span.resource.attributes
            self._open[context[SPAN_ID]] = ref(span)
            self._started = started = self._started + 1
            if not started % _EXPIRY_CHECK or len(self._open) > self._max_open:
                self._processors_seen = None  # parts may have been added
                expire(self._open, self._above, self._table, self.config, self.board.counts)
        except Exception as error:
            self._contain("on_start", error)

    def on_end(self, span: ReadableSpan) -> None:
        """Evaluate the span if it is a tool call; collect identity and usage otherwise."""
        if not self.enabled:
            return
        try:
            reader = self._readers.get(span.__class__, PUBLIC)
            try:
                context, parent, attributes, limit = reader.ended(span)
            except AttributeError:  # made by hand, or its attributes were replaced
                context, parent, attributes, limit = PUBLIC.ended(span)
            if context is None:
                return
            interesting = not self._interesting.isdisjoint(attributes)
            ends_trace = self._trajectories and (parent is None or parent[IS_REMOTE])
            if not (interesting or ends_trace or self._above or self.board.quality is not None):
                self._open.pop(context[SPAN_ID], None)  # most spans of an application
            elif holds_lock():
                self._postponed.add(span)
                return
            else:
                if limit and interesting:
                    attributes = marked(attributes, limit)
                end = self._end_known if self._patience_s is None else self._end_patiently
                end(span, context, parent, attributes, reader, interesting=interesting)
                if ends_trace:
                    self._finish_recoveries(span, context)
        except HeldTooLongError:  # for the span, or for the recoveries of its trace
            self._postponed.add(span)
            return
        except Exception as error:
            self._contain("on_end", error)
        if self._postponed.spans:
            self._postponed.catch_up(self.on_end)

    def shutdown(self) -> None:
        """Stop evaluating spans, for this and all later spans. Raised flags stay readable. A second call does nothing.

        Ledger, judge and scores belong to the board: they are closed with its last processor. The ledger gets up to a
        second; queued Langfuse scores and callbacks get up to five seconds together.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self._postponed.catch_up(self.on_end)
        self.switch_off()
        with patience(self._patience_s):
            if any(one.enabled for one in list(self.board.processors)):
                ending.flush(self.board, None, self._contain)
            else:
                ending.close(self.board, self._contain)

    def force_flush(self, timeout_millis: int | None = ending.DEFAULT_MILLIS) -> bool:
        """Save spending that had to wait; wait for queued Langfuse scores and callbacks, up to five seconds together.

        It takes half of the time at most: exporters behind need the rest. After ``shutdown`` it waits for nothing.

        Returns:
            False if something is left undone, True otherwise; before SDK 1.42 always True, because a provider of these
            versions does not flush the processors behind one that returns False.
        """
        timeout = 0 if self._is_shut_down else timeout_millis
        with patience(self._patience_s):
            return ending.flush(self.board, timeout, self._contain, partial(self._postponed.catch_up, self.on_end))

    def switch_on(self) -> None:
        """Evaluate spans from now on, also after a shutdown, unless ``TRAJECTORY_GUARD_DISABLED`` is set."""
        self.enabled = not is_disabled()
        self._is_shut_down = False

    def switch_off(self) -> None:
        """Evaluate no span from now on, and forget those that are open."""
        self.enabled = False
        for table in (self._open, self._above, self._passed, self._postponed.spans):
            table.clear()

    def _end_known(
        self, span: ReadableSpan, context: trace.SpanContext, parent: trace.SpanContext | None,
        attributes: Mapping[str, Any], reader: SpanReader, *, interesting: bool,
    ) -> None:  # fmt: skip
        """End a span that may concern the guard: by an attribute, by spans below it, or by the score of an answer."""
        above = self._above.pop(context[SPAN_ID], None)
        try:
            if interesting:
                self._end_interesting(span, view_of(span, context, parent, attributes, reader), context, parent)
            elif above is not None and is_agent_span(above, self._table):  # known by its name alone
                self.board.end_instance(self._conversation_of(above), above.span_id)
        finally:  # not before: without its live span, the run may be taken for that of any caller (``callers``)
            self._open.pop(context[SPAN_ID], None)
        if self.board.quality is not None:
            self._score(span, attributes)

    def _end_patiently(self, span: ReadableSpan, context: trace.SpanContext, *rest: Any, **named: Any) -> None:
        """End a span on a thread of a pool. Where a lock is held for too long, the span waits for the next one."""
        kept = self._open.get(context[SPAN_ID])
        try:
            with patience(self._patience_s):
                self._end_known(span, context, *rest, **named)
        except HeldTooLongError:
            if kept is not None:
                self._open[context[SPAN_ID]] = kept
            raise

    # --- steps -----------------------------------------------------------------------------------------------

    def _end_interesting(
        self, span: ReadableSpan, view: SpanView, context: trace.SpanContext, parent: trace.SpanContext | None
    ) -> None:
        if view.scope == telemetry.SCOPE:
            return  # the guard's own, in which another vendor's processor may have entered the signs of a tool
        started = 0.0 if self._evaluated % _LATENCY_SAMPLE else time.perf_counter()
        keys = self._table.key_set(view.attributes)
        row = recognise_keys(view, keys) if keys.declared or keys.built_in else None
        step = self._step(view, row, keys, parent) if row is not None else None
        self._tools.learn(view, None if row is None else step.tool_name if step is not None else "")
        if step is None and keys.handoffs:
            step = read_handoff(view, keys, partial(self._ancestors, span), self._conversation_of, self._table)
        if step is None:
            usage = self._learn(span, view, context, keys)
            if view.scope in self._table.question_scopes or is_agent_span(view, self._table, keys):
                self.board.end_instance(self._conversation_of(view), view.span_id)
            if usage is None:
                return
            if self.config.cursor:
                for call in proposals_in(view, partial(self._ancestors, span), self._conversation_of, self._table):
                    self.board.cursors.record_proposal(call)
            if not may_show_input(view, self._table):
                return
            step = model_call(view, partial(self._ancestors, span), usage, self._conversation_of, self._table)
        if step is None or (verdict := self._evaluate(step, view, context, keys)) is None:
            return
        if self._content.without is not None and step.model_scope is None and not step.is_toolless:
            self._content.look(verdict, row.row.name if row is not None else "")
        self._evaluated += 1
        if started:
            self.latency.record(time.perf_counter() - started)
        if verdict.nudge is not None or verdict.stop_due or verdict.recovered or _log.isEnabledFor(logging.DEBUG):
            self._report(verdict, span)
        if (verdict.detections or verdict.recovered) and self.board.reporter is not None:
            self.board.reporter.report(verdict, view.trace_id, span, self._ancestors(span))

    def _finish_recoveries(self, span: ReadableSpan, context: trace.SpanContext) -> None:
        """Count the recoveries in a trace whose local root has ended, and clear stops that nobody has taken."""
        trace_id, ended = f"{context[TRACE_ID]:032x}", ends_request(span, self._table)
        with patience(self._patience_s):
            self.board.finish_recoveries(self._conversations.find(context[TRACE_ID]) or trace_id, trace_id, ended=ended)

    def _step(self, view: SpanView, row: RowKeys, keys: KeySet, parent: trace.SpanContext | None) -> StepRecord | None:
        above = self.views_above(parent)
        if above and repeats_above(view, row.row, above, self._table):
            return None
        return read_known_step(view, row, keys, above, self._conversation_of, self._table)

    def _evaluate(self, step: StepRecord, view: SpanView, context: trace.SpanContext, keys: KeySet) -> Verdict | None:
        if step.trajectory_id != view.trace_id:
            if self._conversations.find(context[TRACE_ID]) != step.trajectory_id:
                with self._lock:
                    self._conversations.learn(context[TRACE_ID], step.trajectory_id)
            names = all_conversation_ids(view.attributes, self._table, keys) if keys.names_several else ()
            self.board.link(step.trajectory_id, [view.trace_id, *names])
        ledger = self._usage.get(context[TRACE_ID])
        if ledger is not None:
            unnamed = ("",) if step.trajectory_id == self._conversation_of(view) else ()
            of_tool = step.model_scope is None
            with self._lock:
                step = (ledger.charge if of_tool else ledger.name_model_call)(step, step.trajectory_id, *unnamed)
        if not self.board.shows_content:
            self._content.note(step)
        verdict = self.board.observe(step)
        if step.model_scope is not None and verdict is not None and ledger is not None:
            with self._lock:
                ledger.discard_pending(step)
        return verdict

    def _report(self, verdict: Verdict, span: ReadableSpan) -> None:
        with in_trace_of(span):
            if verdict.recovered:
                log_recovery(verdict)
            log_verdict(verdict, redact=self.config.redact, is_gated=self.board.is_gated)
        if verdict.intervenes:
            if not self.board.is_gated(verdict.trajectory_id, verdict.run):
                due = Intervention(verdict.level, "", verdict, {}, delivered=False)
                notify(self.config.on_intervention, due, self.board.counts, elsewhere=self._patience_s is not None)
            first = self.board.step_id(verdict.trajectory_id, verdict.first_step) or str(verdict.first_step)
            above, tool = self._live(span.parent), self._live(span.context)
            self._spans.emit(verdict, first_step=first, tool_span=span, live_parent=above, live_tool=tool)

    # --- identity and usage ----------------------------------------------------------------------------------

    def _ancestors(self, span: ReadableSpan) -> list[SpanView]:
        return self.views_above(span.parent)

    def views_above(self, parent: trace.SpanContext | None) -> list[SpanView]:
        """The live spans above a span, nearest first, with their names and attributes as they are at this moment.

        Some frameworks put tools below the model call that asked for them (Pipecat), which has ended by then.
        """
        above: list[SpanView] = []
        for _ in range(MAX_ANCESTORS):
            if parent is None:
                break
            kept = self._open.get(span_id := parent[SPAN_ID])
            if kept is None or (held := kept()) is None:
                parent = self._passed.get(span_id)
                continue
            reader = self._readers.get(held.__class__, PUBLIC)
            try:
                parent, name, attributes = reader.live(held)
            except AttributeError:  # its attributes were replaced
                parent, name, attributes = PUBLIC.live(held)
            live_view = self._above.get(span_id)
            if live_view is None or live_view.attributes != attributes or live_view.name != name:
                view = view_of(held, held.context, parent, dict(marked(attributes, limit_of(held))), reader)
                live_view = self._above[span_id] = LiveView.of(view, self._table, self._tools)
            above.append(live_view)
        return above

    def run_of_caller(self, labels: Sequence[str]) -> tuple[str | None, str]:
        """As ``otel.callers.run_of_caller``; of no run and no trace if that fails."""
        try:
            return run_of_caller(labels, views_in(self.board.processors), self._table)
        except Exception as error:
            self._contain("caller", error)
            return None, ""

    def _conversation_of(self, span: SpanView) -> str:
        if self.board.is_shared(span.trace_id):
            return span.trace_id
        return self._conversations.find(int(span.trace_id, 16)) or self.board.resolve_alias(span.trace_id)

    def _learn(self, span: ReadableSpan, view: SpanView, context: trace.SpanContext, keys: KeySet) -> Usage | None:
        """Learn what a span that is no tool call says of its trace. Returns the usage of a model call."""
        trace_id = context[TRACE_ID]
        metadata = metadata_of(view.attributes, keys)
        named = named_conversation(view.attributes, keys, metadata)
        if named is not None and self._conversations.find(trace_id) != named:
            with self._lock:
                is_news = self._conversations.learn(trace_id, named)  # not once several are known
            if is_news:
                self.board.join(view.trace_id, named)
        usage = model_usage(view, self._table, keys)
        if usage is not None:
            if self.board.spending is not None:
                self._book(self.board.spending, span, view, usage)
            for tokens in usage.unpriced:
                self.board.prices.get(tokens.model)  # asks for it, in the background
            conversation, (_, task) = named or "", batch_and_task(view, keys, metadata)
            ledger = self._usage.get(trace_id)
            if ledger is None:
                ledger = UsageLedger()
                with self._lock:
                    self._usage[trace_id] = ledger
            if may_show_input(view, self._table) and ledger.wants_asked(
                view.trace_id, view.scope, conversation, partial(opens, view, self._table)
            ):
                usage = with_asked(usage, view, self._table)
            with self._lock:
                if context[SPAN_ID] not in self._passed:  # else it waited for a lock after this, and is read again
                    ledger.add(view.trace_id, view.scope, usage, conversation, task, view.end)
                if span.parent is not None:
                    self._passed[context[SPAN_ID]] = span.parent
        if self.board.reporter is not None:
            self.board.reporter.learn(view)
        return usage

    def _book(self, spending: Spending, span: ReadableSpan, view: SpanView, usage: Usage) -> None:
        """Book a model call; an error costs this call's entry, and nothing else of the guard."""
        try:
            if self._feed is None:
                from trajectory_guard.otel.spending import SpendingFeed

                self._feed = SpendingFeed()
            above = list(self._ancestors(span))
            self._feed.book(
                spending, span, view, usage, above=above, table=self._table,
                trajectory=trajectory_id(view, above, self._conversation_of, self._table),
                live=self._live(span.parent),
            )  # fmt: skip
        except HeldTooLongError:  # with the next span
            raise
        except Exception as error:
            self._contain("spending", error)

    def _score(self, span: ReadableSpan, attributes: Mapping[str, Any]) -> None:
        """Score the evaluations that a span carries; an error costs these, and nothing else of the guard."""
        if not span.events and "gen_ai.response.id" not in attributes:
            return
        try:
            if self._scores is None:
                from trajectory_guard.otel.quality import ScoreFeed

                self._scores = ScoreFeed()
            view = view_of(span, span.context, span.parent, attributes)
            above = partial(self._ancestors, span)
            for verdict in self._scores.read(self.board, view, above, self._conversation_of, self._table):
                self._report(verdict, span)
                if self.board.reporter is not None:
                    self.board.reporter.report(verdict, view.trace_id, span, self._ancestors(span))
        except HeldTooLongError:
            raise
        except Exception as error:
            self._contain("quality", error)

    # --- open spans ------------------------------------------------------------------------------------------

    def _learn_provider(self, span: Any) -> None:
        """Take over what all spans of a provider have in common."""
        self._processors_seen, self.board.resource = span._span_processor, span.resource.attributes
        if self._patience_s is None and has_pool(self._processors_seen):
            self._patience_s = _POOL_PATIENCE_S
        self._spans.elsewhere = not is_part_of(self, self._processors_seen)
        self._spans.learn(span)

    def _live(self, context: trace.SpanContext | None) -> Span | None:
        """The live span of a context, None if it has ended, or the application has dropped it."""
        kept = self._open.get(context.span_id) if context is not None else None
        return kept() if kept is not None else None

    def _contain(self, where: str, error: Exception) -> None:
        """Count every error, log the first of each kind, raise none but that of a signal handler."""
        kind, withheld = type(error).__name__, quotes_nothing(self.board)
        contain(self.board.counts, where, "error in %s, contained", where, kind=kind, quotes_nothing=withheld)
