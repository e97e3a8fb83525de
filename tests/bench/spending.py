"""What a ledger and budgets add to a span of a model call, and to the call itself; nothing where none is configured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from tests.bench import shapes
from tests.bench.measure import Effort, Probe, interleave
from tests.bench.report import Row
from tests.bench.spans import STEPS_PER_RUN, Keep
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.budgets import BudgetCheck
from trajectory_guard.gates.gate import Gate
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

_BUDGETS = ({"scope": "day", "usd": 1e6}, {"scope": "agent", "usd": 1e6}, {"scope": "trajectory", "tokens": 10**12})
_PRICES = {"gpt-4o": {"input": 2.5, "output": 10.0}}
_conversations = count()


def rows(effort: Effort) -> Iterator[Row]:
    """Without a ledger, with one in memory and one in SQLite, each with and without budgets."""
    with tempfile.TemporaryDirectory() as folder:
        configured: dict[str, dict[str, Any]] = {
            "no ledger": {},
            "ledger in memory": {"track_spending": True},
            "three budgets in memory": {"budgets": _BUDGETS},
            "ledger in SQLite": {"spending_file": str(Path(folder) / "ledger.db")},
            "three budgets in SQLite": {"spending_file": str(Path(folder) / "budgets.db"), "budgets": _BUDGETS},
        }
        boards = {name: FlagBoard(GuardConfig(model_prices=_PRICES, **given)) for name, given in configured.items()}
        yield from _spans(boards, effort)
        yield from _checks(boards, effort)
        for board in boards.values():
            if board.spending is not None:
                board.spending.close()


def _spans(boards: dict[str, FlagBoard], effort: Effort) -> Iterator[Row]:
    keeping, keep = TracerProvider(), Keep()
    keeping.add_span_processor(keep)
    tracer = keeping.get_tracer("bench")
    guards = {name: TrajectoryGuardProcessor(board=board) for name, board in boards.items()}
    probes = [Probe(name, lambda: _finished(tracer, keep), guard.on_end) for name, guard in guards.items()]
    figures = interleave(probes, effort.times(0.5))
    for name in boards:
        yield Row(f"model span, {name}: on_end alone", figures.median(name), "us")


def _finished(tracer: trace.Tracer, keep: Keep) -> Sequence[ReadableSpan]:
    conversation = f"conversation-{next(_conversations)}"
    for number in range(STEPS_PER_RUN):
        shape = shapes.chat(conversation, number)
        tracer.start_span(shape.name, attributes=dict(shape.attributes)).end()
    spans, keep.spans = keep.spans, []
    return spans


def _checks(boards: dict[str, FlagBoard], effort: Effort) -> Iterator[Row]:
    checks = {name: BudgetCheck(Gate(board=board)) for name, board in boards.items() if "ledger in" not in name}
    config = {"configurable": {"thread_id": "bench"}, "metadata": {"lc_agent_name": "support"}}

    def call(check: BudgetCheck) -> object:
        return check.rule((), None, config) if check.is_configured else None

    probes = [Probe(name, lambda check=check: [check] * STEPS_PER_RUN, call) for name, check in checks.items()]  # type: ignore[misc]
    figures = interleave(probes, effort.times(0.5))
    for name in checks:
        yield Row(f"before a model call, {name}: check", figures.median(name), "us")
