"""Verdicts of the span processor on recorded spans, in process: the reference for the collector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

_STATUS = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}


class RecordingBoard(FlagBoard):
    """A board that remembers every verdict by span id; the last one counts where a step is evaluated again."""

    def __init__(self, config: GuardConfig | None = None) -> None:
        super().__init__(config)
        self.verdicts: dict[str, Verdict] = {}

    def _evaluate(self, entry: Any, step: StepRecord, *, again: bool = False) -> Verdict | None:
        verdict = super()._evaluate(entry, step, again=again)
        if verdict is not None:
            self.verdicts[step.step_id] = verdict
        return verdict


class _Ids(IdGenerator):
    def __init__(self) -> None:
        self.trace_id, self.span_id = 1, 1

    def generate_span_id(self) -> int:
        return self.span_id

    def generate_trace_id(self) -> int:
        return self.trace_id


def evaluate_in_process(views: Iterable[SpanView], config: GuardConfig | None = None) -> dict[str, Verdict]:
    """Verdicts by span id when these spans start and end in a guarded process, in the order of their times."""
    board, ids = RecordingBoard(config), _Ids()
    provider = TracerProvider(id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=TracerProvider()))
    views = list({(view.trace_id, view.span_id): view for view in views}.values())
    depth = {view.span_id: _depth(view, {(one.trace_id, one.span_id): one for one in views}) for view in views}
    ends_at = _ends(views, depth)
    events = [(view.start, 0, depth[view.span_id], view) for view in views]
    events += [(ends_at[view.span_id], 1, -depth[view.span_id], view) for view in views]
    live: dict[str, trace.Span] = {}
    for _, ends, _, view in sorted(events, key=lambda event: (event[0], event[1], event[2], event[3].span_id)):
        if ends:
            span = live[view.span_id]
            span.set_status(Status(_STATUS[view.status], view.status_description or None))
            span.end(round(max(view.start, view.end) * 1e9))
        else:
            live[view.span_id] = _start(provider, ids, view)
    return board.verdicts


def _ends(views: Sequence[SpanView], depth: Mapping[str, int]) -> dict[str, float]:
    """When each span ends. Node.js takes starts in whole milliseconds, so that a child may seem to outlive its parent."""
    found = {view.span_id: max(view.start, view.end) for view in views}
    for view in sorted(views, key=lambda view: -depth[view.span_id]):
        end = found[view.span_id]
        if view.parent_id in found and 0.0 < end - found[view.parent_id] < 0.001:
            found[view.parent_id] = end
    return found


def _depth(view: SpanView, known: Mapping[tuple[str, str], SpanView]) -> int:
    depth = 0
    while view.parent_id and depth < 100 and (view.trace_id, view.parent_id) in known:
        view = known[view.trace_id, view.parent_id]
        depth += 1
    return depth


def _start(provider: TracerProvider, ids: _Ids, view: SpanView) -> trace.Span:
    ids.trace_id, ids.span_id = int(view.trace_id, 16), int(view.span_id, 16)
    context = None
    if view.parent_id:
        parent = SpanContext(ids.trace_id, int(view.parent_id, 16), is_remote=False, trace_flags=TraceFlags(1))
        context = trace.set_span_in_context(NonRecordingSpan(parent))
    tracer = provider.get_tracer(view.scope, view.scope_version)
    span = tracer.start_span(
        view.name,
        context=context,
        kind=SpanKind[view.kind.upper()],
        attributes=None,
        start_time=round(view.start * 1e9),
    )
    for key, value in view.attributes.items():
        span.set_attribute(key, value)
    for event in view.events:
        span.add_event(event.name, dict(event.attributes), timestamp=round(view.start * 1e9))
    return span
