"""Bytes a trajectory keeps, by ``tracemalloc``: the engine's state, and the board's entry around it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench import shapes
from tests.bench.measure import Effort
from tests.bench.report import Row
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.steps import ERROR, StepRecord, Usage

MOST_BYTES = 4_096.0
MOST_BYTES_WORST = 16_384.0
STEPS = 100
YOUNG_STEPS = 50
_LONG = "nothing of this has worked so far and the same wall is hit again, "
Steps = Callable[[int], Iterator[StepRecord]]


def rows(effort: Effort) -> Iterator[Row]:
    """Usual and worst case, state alone and entry on the board."""
    many, few = effort.trajectories, max(1, effort.trajectories // 50)
    distinct, worst = _steps(STEPS, _distinct), _steps(YOUNG_STEPS, _worst)
    yield Row(f"state, {STEPS} distinct steps, {many} trajectories", _states(many, distinct), "bytes", most=MOST_BYTES)
    yield Row(
        f"state, worst case: looping, errors, long texts, 1 MB results, {few} trajectories",
        _states(few, worst),
        "bytes",
        most=MOST_BYTES_WORST,
    )
    yield Row(f"entry on the board, {STEPS} distinct steps, {many} trajectories", _entries(many, distinct), "bytes")
    yield Row(
        f"entry on the board, {YOUNG_STEPS} distinct steps (kept for a replay)",
        _entries(many // 5, _steps(YOUNG_STEPS, _distinct)),
        "bytes",
    )
    yield Row(f"entry on the board, worst case, {YOUNG_STEPS} steps", _entries(few, worst), "bytes")


def _steps(length: int, step_at: Callable[[int, int], StepRecord]) -> Steps:
    return lambda trajectory: (step_at(trajectory, index) for index in range(length))


def _distinct(trajectory: int, index: int) -> StepRecord:
    number = trajectory * STEPS + index
    return shapes.step(
        index,
        number=number,
        step_id=f"{number + 1:016x}",
        trajectory_id=f"trajectory-{trajectory}",
        call_id=f"call-{number}",
    )


def _worst(trajectory: int, index: int) -> StepRecord:
    """Fails in new words with one error, cycles through agents, says the same, claims to be done; all of it long.

    Every 25th answer has 1 MB, the others 20 kB: only what is kept matters here, and masking takes its time.
    """
    number = trajectory * STEPS + index
    args = {"query": f"attempt {index % 7} " + _LONG * 300, "path": f"/srv/{'deep/' * 200}{index % 5}.txt", "n": number}
    text = f"OrderServiceError: request {index} failed\n" + "x" * (20_000 if index % 25 else 1_000_000)
    done = {"tool_name": "finish", "outcome": "success"} if index % 4 == 3 else {"outcome": ERROR}
    fields: dict[str, Any] = {
        "step_id": f"{number + 1:016x}", "trajectory_id": f"trajectory-{trajectory}", "call_id": f"call-{number}",
        "agent_id": f"agent {index % 9} " + "of the northern team " * 50, "thought": f"Step {index % 2}: " + _LONG * 60,
        "usage": Usage(1_000, 200, 0.01), "batch": f"batch-{number}", "turn": f"turn-{index // 50}", **done,
    }  # fmt: skip
    return shapes.step(index, number=number, args=args, result=text, state_snapshot_hash="0f" * 8, **fields)


def _states(trajectories: int, steps: Steps) -> float:
    engine = Engine()

    def build(kept: list[Any], many: int) -> None:
        for trajectory in range(many):
            state = engine.new_state(f"trajectory-{trajectory}")
            kept.append(state)
            for step in steps(trajectory):
                engine.observe(state, step)

    return _retained(build, trajectories)


def _entries(trajectories: int, steps: Steps) -> float:
    def build(kept: list[Any], many: int) -> None:
        board = FlagBoard(GuardConfig())
        kept.append(board)
        for trajectory in range(many):
            for step in steps(trajectory):
                board.observe(step)

    return _retained(build, trajectories)


def _retained(build: Callable[[list[Any], int], None], many: int) -> float:
    """Bytes per trajectory that ``build`` keeps alive. A first run fills the caches of the process."""
    kept: list[Any] = []
    tracemalloc.start()
    try:
        build([], many)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        build(kept, many)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / many
