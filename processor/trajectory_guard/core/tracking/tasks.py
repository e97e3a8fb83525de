"""Agents that run within one node of a LangGraph graph: their turns, which the number of the super-step does not show.

A *task* is one execution of a node. Usually a task makes the calls of one model turn, or calls the model. A task that
calls the model, a tool, the model again and a tool again runs the loop of an agent itself: from there on it is an agent
instance of its own, and a turn begins with each of its model calls that a tool call follows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.steps import StepRecord

MAX_TASKS: Final = 16
"""Tasks of a trace that are remembered, those that acted last."""


class Task(NamedTuple):
    """What a task has done so far. Times in seconds since the epoch. JSON-able.

    Fields:
        worked_until: end of its last tool call, None before the first one.
        answered: end of the model call since then, None if there was none.
        turn: turns that have called tools, beside the first one.
        superstep: checksum of the label of its super-step, 0 before its first tool call.
    """

    worked_until: float | None = None
    answered: float | None = None
    turn: int = 0
    superstep: int = 0


Tasks = dict[str, Task]
"""Tasks by label, the one that acted last at the end."""


def after_model_call(tasks: Tasks, label: str | None, start: float, end: float) -> None:
    """Take note of a model call. One that a tool makes begins before the call of the tool has ended.

    Parameters:
        label: of its task; None if its span names none, as that of a client of a provider within a node: then it is
            that of the task that called a tool last, unless several tasks of the super-step call tools.
        start, end: seconds since the epoch.
    """
    if label is None:
        label = _only_worker(tasks)
        if label is None:
            return
    task = tasks.pop(label, Task())
    after_work = task.worked_until is not None and start >= task.worked_until
    _keep(tasks, label, task._replace(answered=end) if after_work else task)


def _only_worker(tasks: Tasks) -> str | None:
    workers = [(label, task.superstep) for label, task in tasks.items() if task.superstep]
    if not workers or [superstep for _, superstep in workers].count(workers[-1][1]) > 1:
        return None
    return workers[-1][0]


def _keep(tasks: Tasks, label: str, task: Task) -> None:
    tasks[label] = task
    if len(tasks) > MAX_TASKS:
        del tasks[next(iter(tasks))]


def in_own_loop(tasks: Tasks, label: str, step: StepRecord) -> StepRecord:
    """A tool call of a task: with instance and turn if the task runs the loop of an agent.

    It does from its first call on if another task of its super-step does: that of an earlier run of the graph, or one
    beside it.
    """
    task, superstep = tasks.pop(label, Task()), checksum(step.batch or "")
    turn = task.turn + (task.answered is not None and task.answered <= step.timestamp)
    own_loop = turn > 0 or any(one.turn and one.superstep == superstep for one in tasks.values())
    worked_until = max(task.worked_until or 0.0, step.timestamp + step.duration)
    _keep(tasks, label, Task(worked_until, None, turn, superstep))
    return step._replace(run=label, batch=f"{label}/{turn}") if own_loop else step
