"""The decision of budgets before a model call; the same for every gate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from trajectory_guard.errors import PortableError
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.graph_gate import thread_id_of
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.gates.remote import caller_of
from trajectory_guard.logs import write_entry
from trajectory_guard.process.own_threads import beside_the_loop
from trajectory_guard.spending.answers import stricter
from trajectory_guard.spending.budget import BudgetLevel
from trajectory_guard.spending.spending import BudgetStatus

REFUSED_TEXT: Final = (
    "I cannot start a new conversation at the moment: the budget for this service is nearly used up. "
    "Please try again later."
)
"""Default text for a session that is refused. The end user reads it: it holds no figures."""
BLOCKED_TEXT: Final = "I have to stop here: the budget for this is used up. Please try again later."
"""Default text where the budget is used up."""
BudgetText = str | Callable[[BudgetStatus], str]
"""What the user reads instead of an answer, or a function that writes it."""


class BudgetExceededError(PortableError, RuntimeError):
    """Raised instead of a model call that no budget covers, by a gate that raises.

    ``payload`` has action, level, used, of, whose.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__(f"no model call: {payload.get('of')} used by {payload.get('whose')} ({payload.get('action')})")
        self.payload = dict(payload)


class Action(str, Enum):
    """The fate of a model call: it is made, with a cheaper model where there is one, or not at all."""

    GO_ON = "go_on"
    ROUTED = "routed"
    REFUSED = "refused"
    BLOCKED = "blocked"

    def __str__(self) -> str:
        return self.value


class Ruling(NamedTuple):
    """The decision of the budgets on one model call.

    Fields:
        text: for the end user, where no call is made; else empty.
    """

    action: Action
    status: BudgetStatus
    text: str = ""

    @property
    def ends(self) -> bool:
        """No model call is made."""
        return self.action in (Action.REFUSED, Action.BLOCKED)

    @property
    def payload(self) -> dict[str, Any]:
        """JSON-able: the action and the budget behind it."""
        return {"action": str(self.action), **self.status.to_plain()}


class BudgetCheck:
    """Asks the budgets of a board, and those of a collector, on behalf of one gate.

    Parameters:
        gate: knows the trajectory, the mode and the board.
        agent: name of the agent, as its spans name it; by default the one of ``create_agent(name=…)``.
        text: for the end user instead of ``REFUSED_TEXT`` and ``BLOCKED_TEXT``; a callable is given the status.
    """

    def __init__(self, gate: Gate, *, agent: str | None = None, text: BudgetText | None = None) -> None:
        self._gate, self._agent, self._text = gate, agent, text

    @property
    def is_configured(self) -> bool:
        """Whether there is any budget, as far as is known. Without one, this is all that a model call costs."""
        spending, remote = self._gate.board.spending, self._gate.remote
        return (spending is not None and bool(spending.budgets)) or (remote is not None and remote.may_have_budgets)

    async def beside_the_loop(self, rule: Callable[[], Ruling | None]) -> Ruling | None:
        """The ruling of an asynchronous gate, while the event loop goes on; ``rule`` calls the function below."""
        return await beside_the_loop(rule, self._gate.contain)

    def rule(
        self, messages: Sequence[Any], status: Mapping[str, Any] | None, config: Mapping[str, Any]
    ) -> Ruling | None:
        """Decide on a model call that is about to be made; None if there is no budget, or it cannot be read now.

        Reads a file, waits up to two seconds for prices, once a process, and asks a collector, at most for
        ``collector_timeout_s``: asynchronous gates call it on a thread. Of two budgets the stricter one decides.

        Parameters:
            messages, status: of the graph state.
            config: configuration of the run.
        """
        try:
            trajectory = self._gate.trajectory_of(messages, status or {}, thread_id_of(config))
            agent = self._agent or str((config.get("metadata") or {}).get("lc_agent_name") or "")
            budgets = stricter(self._own(trajectory, agent), self._of_collector(trajectory, agent, status or {}))
            if budgets is None:
                return None
            action = self._action(budgets, is_new=budgets.is_new and not _was_answered(messages))
            ruling = Ruling(action, budgets, self._text_for(action, budgets))
        except Exception:  # noqa: BLE001  whatever it is, the run must go on
            self._gate.contain()
            return None
        if ruling.ends:
            self.count(action)
            write_entry(logging.INFO, {"event_type": "BUDGET_REFUSAL", "trajectory_id": trajectory, **ruling.payload})
        return ruling

    def _own(self, trajectory: str, agent: str) -> BudgetStatus | None:
        """The budgets of this process; None if it has none, or cannot read them now."""
        spending = self._gate.board.spending
        if spending is None or not spending.budgets:
            return None
        try:
            return spending.status(trajectory, agent, caller_of(self._gate.board).service, wait=True)
        except Exception:  # noqa: BLE001  those of the collector hold in any case
            self._gate.contain()
            return None

    def _of_collector(self, trajectory: str, agent: str, status: Mapping[str, Any]) -> BudgetStatus | None:
        remote = self._gate.remote
        if remote is None or not remote.may_have_budgets:
            return None
        try:
            answer = self._gate.ask_collector(trajectory, status, agent, "budget")
        except Exception:  # noqa: BLE001  those of this process hold in any case
            self._gate.contain()
            return None
        return answer.budget if answer is not None else None

    def _action(self, budgets: BudgetStatus, *, is_new: bool) -> Action:
        """``mode`` limits budgets, too: ``nudge`` ends no run, ``observe`` changes nothing."""
        mode = self._gate.config.mode
        if mode == "observe" or budgets.level is BudgetLevel.NORMAL:
            return Action.GO_ON
        if mode == "enforce" and budgets.level is BudgetLevel.BLOCKED:
            return Action.BLOCKED
        if mode == "enforce" and budgets.level is BudgetLevel.NEW_SESSIONS_ONLY and is_new:
            return Action.REFUSED
        return Action.ROUTED

    def _text_for(self, action: Action, budgets: BudgetStatus) -> str:
        if action not in (Action.REFUSED, Action.BLOCKED):
            return ""
        default = REFUSED_TEXT if action is Action.REFUSED else BLOCKED_TEXT
        if not callable(self._text):
            return self._text or default
        try:
            return str(self._text(budgets))
        except Exception:  # noqa: BLE001  the user's own code
            self._gate.contain()
            return default

    def count(self, action: Action) -> None:
        """Count an action that was carried out."""
        self._gate.board.counts[f"budget_actions.{action}"] += 1


def _was_answered(messages: Sequence[Any]) -> bool:
    """Whether a model has answered in this conversation before: it is no new session. A refusal is no answer."""
    return any(_is_answer(message) for message in messages)


def _is_answer(message: Any) -> bool:
    if isinstance(message, dict):  # messages of this form carry no mark
        return message.get("role") in ("ai", "assistant") and message.get("content") not in (REFUSED_TEXT, BLOCKED_TEXT)
    return getattr(message, "type", None) == "ai" and not is_guard_message(message)
