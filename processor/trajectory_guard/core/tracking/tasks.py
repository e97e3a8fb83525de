"""Agents that run within one node of a LangGraph graph: their turns, which the number of the super-step does not show.

A *task* is one execution of a node. Usually a task makes the calls of one model turn, or calls the model. A task that
calls the model, a tool, the model again and a tool again runs the loop of an agent itself: from there on it is an agent
instance of its own, and a turn begins with each of its model calls that a tool call follows. Where the graph leads back
to such a node, the next task is the same instance, from its first call on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trajectory_guard.core.fingerprints import checksum
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.scope import SUPERSTEP_CHARS, superstep

MAX_TASKS: Final = 16
"""Tasks of a trace that are remembered, those that acted last."""


class Task(NamedTuple):
    """The progress of a task so far. Times in seconds since the epoch. JSON-able.

    Fields:
        worked_until: end of its last tool call, None before the first one.
        answered: end of the newest model call since then, None if there was none.
        turn: turns that have called tools, beside the first one.
        graph: checksum of the label of its graph, or of its super-step if that has no number; 0 before its first tool
            call.
        superstep: number of its super-step in that graph, -1 if unknown.
        instance: label of the agent instance, empty while the task is none.
    """

    worked_until: float | None = None
    answered: float | None = None
    turn: int = 0
    graph: int = 0
    superstep: int = -1
    instance: str = ""


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
    after_work = task.worked_until is None or start >= task.worked_until
    _keep(tasks, label, task._replace(answered=end) if after_work else task)


def _only_worker(tasks: Tasks) -> str | None:
    workers = [label for label, task in tasks.items() if task.graph]
    if not workers or len([task for task in tasks.values() if _beside(task, tasks[workers[-1]])]) > 1:
        return None
    return workers[-1]


def _beside(task: Task, other: Task) -> bool:
    return task.graph == other.graph and task.superstep == other.superstep


def _keep(tasks: Tasks, label: str, task: Task) -> None:
    tasks[label] = task
    if len(tasks) > MAX_TASKS:
        del tasks[next(iter(tasks))]


def in_own_loop(tasks: Tasks, label: str, step: StepRecord) -> StepRecord:
    """A tool call of a task: with instance and turn if the task runs the loop of an agent.

    It does from its first call on if another task of its super-step does, that of an earlier run of the graph or one
    beside it, or an earlier task of its node; and so does a task that asks the model itself, if any task of the graph
    does.
    """
    task, batch = tasks.pop(label, Task()), step.batch or ""
    asked = task.answered is not None and task.answered <= step.timestamp
    turn = task.turn + (asked and task.worked_until is not None)
    worked_until = max(task.worked_until or 0.0, step.timestamp + step.duration)
    number = superstep(batch)
    graph = checksum(batch[:-SUPERSTEP_CHARS] if number >= 0 else batch)
    task = Task(worked_until, None, turn, graph, number, task.instance)
    if not task.instance:
        task = task._replace(instance=_instance(tasks, label, task, asks=asked))
    _keep(tasks, label, task)
    return step._replace(run=task.instance, batch=f"{label}/{turn}") if task.instance else step


def _instance(tasks: Tasks, label: str, task: Task, *, asks: bool) -> str:
    """The instance that a task belongs to from now on; empty if it is none.

    That of the task before it if the graph has led back to the node, and one of its own if several are beside each
    other, or the graph has been started again.
    """
    agents = {name: one for name, one in tasks.items() if one.instance}
    node = label.rpartition(":")[0]
    of_node = [one for name, one in agents.items() if name.rpartition(":")[0] == node and one.graph == task.graph]
    if node and of_node and -1 < of_node[-1].superstep < task.superstep:
        return of_node[-1].instance
    beside = any(_beside(one, task) for one in agents.values())
    in_graph = any(one.graph == task.graph for one in agents.values())
    return label if task.turn or beside or (in_graph and (asks or bool(node and of_node))) else ""
