"""The turns of a loop within one LangGraph task, by the times of its calls."""

from __future__ import annotations

import pytest

from tests.helpers import record
from trajectory_guard.core.steps import Usage
from trajectory_guard.core.tracking.tasks import MAX_TASKS
from trajectory_guard.core.tracking.usage import UsageLedger

Call = tuple[str, float, float]
"""``tool`` or ``model``, start and end in seconds."""


def turns(calls: list[Call], model_task: str | None = "agent:1") -> list[str]:
    """Label of the turn of each tool call, by the order of their ends; "" while the task is no agent of its own."""
    ledger, found = UsageLedger(), []
    for kind, start, end in sorted(calls, key=lambda call: call[2]):
        if kind == "model":
            ledger.add("t", "lib", Usage(seconds=end - start), task=model_task, end=end)
        else:
            step = record("search", {}, "x", t=start, dur=end - start, batch="super-step", task="agent:1")
            charged = ledger.charge(step)
            found.append(str(charged.batch).removeprefix("agent:1") if charged.run == "agent:1" else "")
    return found


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("model", 0, 1), ("tool", 1, 2), ("model", 2, 3), ("tool", 3, 4), ("model", 4, 5), ("tool", 5, 6)], "/1 /2"),
        ([("model", 0, 1), ("tool", 1, 3), ("tool", 1, 2), ("model", 3, 4), ("tool", 4, 5), ("tool", 4, 6)], "/1 /1"),
        ([("model", 0, 1), ("model", 1, 2), ("tool", 2, 3), ("model", 3, 4), ("model", 4, 5)], ""),  # it plans first
        ([("tool", 0, 1), ("tool", 1, 2), ("tool", 2, 3)], ""),
        ([("model", 1, 2), ("tool", 0, 3), ("model", 4, 5), ("tool", 3, 6)], ""),  # tools that ask a model
        ([("model", 0, 1), ("tool", 1, 6), ("tool", 1, 2), ("model", 1.5, 5), ("tool", 5.1, 5.5)], ""),  # two at a time
    ],
)
@pytest.mark.parametrize("model_task", ["agent:1", None])
def test_a_turn_begins_with_a_tool_call_after_a_model_call_after_a_tool_call(
    calls: list[Call], expected: str, model_task: str | None
) -> None:
    assert [label for label in turns(calls, model_task) if label] == expected.split()


def test_model_calls_of_unknown_tasks_begin_no_turns_where_several_tasks_call_tools() -> None:
    ledger = UsageLedger()
    found: dict[str, set[str | None]] = {"worker:0": set(), "worker:1": set()}
    for at in range(40):
        task = f"worker:{at % 2}"
        ledger.add("t", "lib", Usage(), end=2.0 * at)
        step = ledger.charge(record("search", {}, "x", t=2.0 * at + 1.0, batch="super-step", task=task))
        found[task].add(step.batch)
    assert all(len(batches) <= 2 for batches in found.values())  # until the second one calls a tool, the first is alone


def test_many_tasks_are_forgotten_one_by_one() -> None:
    ledger = UsageLedger()
    for at in range(10 * MAX_TASKS):
        ledger.add("t", "lib", Usage(), task=f"agent:{at}", end=1.0)
    assert list(ledger.tasks) == [f"agent:{at}" for at in range(9 * MAX_TASKS, 10 * MAX_TASKS)]
