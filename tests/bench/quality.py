"""What the quality of answers adds to a span of a model call, to a gate, and to a score; nothing where it is off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from tests.bench import gate, shapes
from tests.bench.measure import Effort, Probe, interleave
from tests.bench.report import Row
from tests.bench.spans import STEPS_PER_RUN, Keep
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.quality import read_quality
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

_conversations = count()
_EVALUATION = {"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.8}


def rows(effort: Effort) -> Iterator[Row]:
    """Spans without and with an evaluation, a score by hand, and the messages of a gate."""
    boards = {"off": FlagBoard(), "on": FlagBoard(GuardConfig(track_quality=True))}
    keeping, keep = TracerProvider(), Keep()
    keeping.add_span_processor(keep)
    tracer = keeping.get_tracer("bench")
    guards = {name: TrajectoryGuardProcessor(board=board) for name, board in boards.items()}
    probes: list[Probe] = []
    for name, guard in guards.items():
        probes.append(Probe(name, lambda: _finished(tracer, keep, 0), guard.on_end))
        probes.append(Probe(f"{name}, one evaluation", lambda: _finished(tracer, keep, 1), guard.on_end))
    figures = interleave(probes, effort.times(0.5))
    for probe in probes:
        yield Row(f"model span, quality {probe.name}: on_end alone", figures.median(probe.name), "us")
    yield from _scores(boards, effort)


def _finished(tracer: trace.Tracer, keep: Keep, evaluations: int) -> Sequence[ReadableSpan]:
    conversation = f"conversation-{next(_conversations)}"
    for number in range(STEPS_PER_RUN):
        shape = shapes.chat(conversation, number)
        span = tracer.start_span(shape.name, attributes=dict(shape.attributes))
        for _ in range(evaluations):
            span.add_event("gen_ai.evaluation.result", _EVALUATION)
        span.end()
    spans, keep.spans = keep.spans, []
    return spans


def _scores(boards: dict[str, FlagBoard], effort: Effort) -> Iterator[Row]:
    messages: Sequence[Any] = gate.messages(gate.CALLS)
    probes: list[Probe] = []
    for name, board in boards.items():

        def score(value: float, board: FlagBoard = board) -> object:
            return board.score("bench", value)

        def read(_: object, board: FlagBoard = board) -> object:
            return read_quality(board, "bench", messages, "")

        probes.append(Probe(f"score(), quality {name}", lambda: [0.8] * STEPS_PER_RUN, score))
        probes.append(Probe(f"messages of a gate, quality {name}", lambda: [None] * STEPS_PER_RUN, read))
    figures = interleave(probes, effort.times(0.5))
    for probe in probes:
        yield Row(probe.name, figures.median(probe.name), "us")
