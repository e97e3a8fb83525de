"""The decisions whose node has not ended: a node that is retried or taken up again gets the same decision."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from langchain_core.callbacks import BaseCallbackManager
from langgraph.errors import GraphBubbleUp

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.gates.gate import GateDecision
from trajectory_guard.gates.graph_gate import Outcome, configurable_of, has_checkpointer, namespace_of, thread_id_of
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_RUNTIME, CONFIG_KEY_TASK_ID
from trajectory_guard.process.own_threads import beside_the_loop

_MAX_OPEN: Final = 1_024
Passage = TypeVar("Passage")


class _Open(NamedTuple):
    """A decision, and the place in a conversation that it was made for; empty if the messages have no ids."""

    decision: GateDecision
    place: str


class OpenDecisions:
    """Decisions by LangGraph's task, the newest 1,024.

    Nothing tells a gate that a node which failed is not run again, so its decision stays until it is one of the oldest.
    The messages it was made for do not: they may be large, and the node that runs again reads them again.

    A nudge that a node failed to write is also kept by its place: an error handler may lead to another task, of this
    agent or of one that stands in for it, with the same messages.
    """

    def __init__(self) -> None:
        self._of_task: BoundedTable[str, _Open] = BoundedTable(_MAX_OPEN)
        self._left: BoundedTable[str, GateDecision] = BoundedTable(_MAX_OPEN)
        self._carried_out: WeakKeyDictionary[BaseCallbackManager, Outcome] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._of_task)

    def __deepcopy__(self, memo: Any) -> OpenDecisions:
        return OpenDecisions()  # no task of a copied graph has begun

    def find(self, config: Mapping[str, Any]) -> GateDecision | None:
        """The decision for the task of a run; None if it has none, or none that is open."""
        known = self._of_task.get(_task_of(config))
        return known.decision if known is not None else None

    def find_left(self, config: Mapping[str, Any], messages: Sequence[Any]) -> GateDecision | None:
        """The decision with a nudge that another task was to write, and failed, after the same messages."""
        return self._left.get(_place_of(config, messages)) if self._left else None

    def keep(self, config: Mapping[str, Any], decision: GateDecision, messages: Sequence[Any]) -> None:
        """Keep a decision until the node ends.

        Parameters:
            messages: that it was made for.
        """
        if task := _task_of(config):
            self._of_task[task] = _Open(decision, _place_of(config, messages) if decision.nudge is not None else "")

    def close(self, config: Mapping[str, Any]) -> None:
        """Forget the decision of a node that has ended."""
        known = self._of_task.pop(_task_of(config), None)
        if known is not None and known.place:
            self._left.pop(known.place, None)

    def carried_out(self, config: Mapping[str, Any]) -> Outcome | None:
        """The nudge or stop of a model call before this one, in the same execution of the node."""
        manager = config.get("callbacks")
        return self._carried_out.get(manager) if isinstance(manager, BaseCallbackManager) else None

    def carry_out(self, config: Mapping[str, Any], outcome: Outcome) -> None:
        """Keep a nudge or stop: middleware may drop the response that contains it, and call the model once more.

        LangGraph makes a callback manager for each execution of a node; it goes, and what is kept here with it.
        """
        manager = config.get("callbacks")
        if (outcome.ends or outcome.nudge is not None) and isinstance(manager, BaseCallbackManager):
            self._carried_out[manager] = outcome

    @contextmanager
    def until_ended(self, config: Mapping[str, Any]) -> Iterator[None]:
        """Around the node: its decision is open no longer than that, unless the node may run again."""
        try:
            yield
        except BaseException as error:
            self.left_by(error, config)
            raise
        self.close(config)

    async def on_a_thread(
        self, enter: Callable[[], Passage], config: Mapping[str, Any], failed: Callable[[], object], *,
        timed: bool = False,
    ) -> Passage:  # fmt: skip
        """Decide on a thread. Where the node is cancelled meanwhile, the thread goes on, and keeps its decision late.

        Parameters:
            failed: counts that no thread could be started.
            timed: as for ``left_by``.
        """
        is_cancelled = threading.Event()

        def entered() -> Passage:
            passage = enter()
            if is_cancelled.is_set():
                self.left_by(asyncio.CancelledError(), config, timed=timed)
            return passage

        try:
            return await beside_the_loop(entered, failed)
        except asyncio.CancelledError as error:
            is_cancelled.set()
            self.left_by(error, config, timed=timed)
            raise

    def left_by(self, error: BaseException, config: Mapping[str, Any], *, timed: bool = False) -> None:
        """Keep the decision of a node that failed for its next attempt, and its nudge for another task.

        A node that was cancelled is not run again, unless its time limit did that, or a checkpoint lets the run be
        taken up again.

        Parameters:
            timed: the node has a time limit.
        """
        if not (isinstance(error, Exception) or timed or _may_be_taken_up(config)):
            self.close(config)
        elif not isinstance(error, GraphBubbleUp):
            known = self._of_task.get(_task_of(config))
            if known is not None and known.place:
                self._left[known.place] = known.decision


def _may_be_taken_up(config: Mapping[str, Any]) -> bool:
    """Whether a later run may have the task: there is a checkpointer, or Python 3.10 does not show whether there is."""
    is_shown = CONFIG_KEY_RUNTIME in configurable_of(config)
    return has_checkpointer(config) if is_shown else thread_id_of(config) is not None


def _task_of(config: Mapping[str, Any]) -> str:
    return str(configurable_of(config).get(CONFIG_KEY_TASK_ID) or "")


def _place_of(config: Mapping[str, Any], messages: Sequence[Any]) -> str:
    """The thread, or else the run of the graph, and its newest message; empty if either is unknown.

    Applications may number their messages alike, so the message alone is no place.
    """
    newest = getattr(messages[-1], "id", None) if messages else None
    whole = thread_id_of(config) or getattr(config.get("callbacks"), "parent_run_id", None)
    return f"{whole}|{namespace_of(config)}|{newest}" if newest and whole else ""
