"""The decisions whose node has not ended: a node that is retried or taken up again gets the same decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain_core.callbacks import BaseCallbackManager
from langgraph._internal._constants import CONFIG_KEY_RUNTIME, CONFIG_KEY_TASK_ID

from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.gates.gate import GateDecision
from trajectory_guard.gates.graph_gate import Outcome, configurable_of, has_checkpointer, thread_id_of

_MAX_OPEN: Final = 1_024


class OpenDecisions:
    """Decisions by LangGraph's task, the newest 1,024.

    Nothing tells a gate that a node which failed is not run again, so its decision stays until it is one of the oldest.
    The messages it was made for do not: they may be large, and the node that runs again reads them again.
    """

    def __init__(self) -> None:
        self._of_task: BoundedTable[str, GateDecision] = BoundedTable(_MAX_OPEN)
        self._carried_out: WeakKeyDictionary[BaseCallbackManager, Outcome] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._of_task)

    def __deepcopy__(self, memo: Any) -> OpenDecisions:
        return OpenDecisions()  # no task of a copied graph has begun

    def find(self, config: Mapping[str, Any]) -> GateDecision | None:
        """The decision for the task of a run; None if it has none, or none that is open."""
        return self._of_task.get(_task_of(config))

    def keep(self, config: Mapping[str, Any], decision: GateDecision) -> None:
        """Keep a decision until the node ends."""
        if task := _task_of(config):
            self._of_task[task] = decision

    def close(self, config: Mapping[str, Any]) -> None:
        """Forget the decision of a node that has ended."""
        self._of_task.pop(_task_of(config), None)

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

    def left_by(self, error: BaseException, config: Mapping[str, Any]) -> None:
        """Forget the decision of a node that was cancelled, unless a checkpoint lets the run be taken up again.

        No policy retries a cancelled node, and without a checkpoint no later run has its task.
        """
        if not isinstance(error, Exception) and not _may_be_taken_up(config):
            self.close(config)


def _may_be_taken_up(config: Mapping[str, Any]) -> bool:
    """Whether a later run may have the task: there is a checkpointer, or Python 3.10 does not show whether there is."""
    is_shown = CONFIG_KEY_RUNTIME in configurable_of(config)
    return has_checkpointer(config) if is_shown else thread_id_of(config) is not None


def _task_of(config: Mapping[str, Any]) -> str:
    return str(configurable_of(config).get(CONFIG_KEY_TASK_ID) or "")
