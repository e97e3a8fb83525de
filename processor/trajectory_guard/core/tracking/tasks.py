"""Agents that run within one node of a LangGraph graph: their turns, which the number of the super-step does not show.

A *task* is one execution of a node. Usually a task makes the calls of one model turn, or calls the model. A task that
calls the model, a tool, the model again and a tool again runs the loop of an agent itself: from there on it is an agent
instance of its own, and a turn begins with each of its model calls that a tool call follows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.steps import StepRecord

MAX_TASKS: Final = 64
"""Tasks of a trace that are remembered, those that acted last."""


class Task(NamedTuple):
    """What a task has done so far. Times in seconds since the epoch. JSON-able.

    Fields:
        worked_until: end of its last tool call, None before the first one.
        answered: end of the model call since then, None if there was none.
        turn: turns that have called tools, beside the first one.
        superstep: label of its super-step, None before its first tool call.
    """

    worked_until: float | None = None
    answered: float | None = None
    turn: int = 0
    superstep: str | None = None


Tasks = dict[str, Task]
"""Tasks by label, the one that acted last at the end."""


def after_model_call(tasks: Tasks, label: str, start: float, end: float) -> None:
    """Take note of a model call of a task. One that a tool makes begins before the call of the tool has ended."""
    task = tasks.pop(label, Task())
    after_work = task.worked_until is not None and start >= task.worked_until
    tasks[label] = task._replace(answered=end) if after_work else task
    if len(tasks) > MAX_TASKS:
        del tasks[next(iter(tasks))]


def in_own_loop(tasks: Tasks, step: StepRecord) -> StepRecord:
    """A tool call of a task that is known to call a model: with instance and turn if the task is an agent's loop.

    It is one from its first call on if another task of its super-step is: that of an earlier run of the graph, or one
    beside it.
    """
    label = step.task or ""
    task = tasks.pop(label)
    turn = task.turn + (task.answered is not None and task.answered <= step.timestamp)
    own_loop = turn > 0 or any(one.turn and one.superstep == step.batch for one in tasks.values())
    tasks[label] = Task(max(task.worked_until or 0.0, step.timestamp + step.duration), None, turn, step.batch)
    return step._replace(run=label, batch=f"{label}/{turn}") if own_loop else step
