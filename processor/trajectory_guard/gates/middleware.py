"""The gate as middleware for ``langchain.agents.create_agent``."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from trajectory_guard.extras import missing

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, ToolCallRequest
    from langchain.agents.middleware.types import ExtendedModelResponse, OmitFromInput, PrivateStateAttr
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.types import Command
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the middleware", error, "langgraph"), name=error.name) from error
from typing_extensions import NotRequired

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.agent_node import keep_out_of_streams
from trajectory_guard.gates.arguments import check_budget_arguments
from trajectory_guard.gates.async_hooks import without_a_pool
from trajectory_guard.gates.budget_gate import CheaperModel, cheaper_model, refusal_message
from trajectory_guard.gates.budgets import Action, BudgetCheck, BudgetExceededError, BudgetText, Ruling
from trajectory_guard.gates.compiled import nested_below
from trajectory_guard.gates.gate import GateDecision
from trajectory_guard.gates.graph_gate import ENDINGS, INTENDED, Ending, GraphGate, NudgeRole, Outcome
from trajectory_guard.gates.langgraph_internals import CONFIG_KEY_TASK_ID
from trajectory_guard.gates.open_decisions import OpenDecisions
from trajectory_guard.gates.own_keys import bounded_append
from trajectory_guard.gates.private_state import RememberingStatus, StatusChannel, remembering, whole_status
from trajectory_guard.gates.refusal import RefusalRules
from trajectory_guard.gates.state_of import StateOf
from trajectory_guard.gates.tool_gate import ToolGate
from trajectory_guard.gates.tool_hooks import for_agents_with_tools


class GuardedState(AgentState[Any]):
    """Agent state with the guard's keys; none can be set from outside."""

    # reducer and channel have to come last: LangGraph looks at nothing else
    trajectory_scratchpad: NotRequired[Annotated[list[dict[str, Any]], PrivateStateAttr, bounded_append]]
    loop_status: NotRequired[Annotated[dict[str, Any], OmitFromInput, StatusChannel]]


class _Passage(NamedTuple):
    """A model call that has passed the gate.

    Fields:
        request: as it came, with the model that the budgets allow; asked: the one to make, None if the run ends here.
        decision: None at the start of a turn, where nothing is decided.
        said: the guard's messages in front of the response.
        update: of the graph state.
        ruling: of the budgets, None if there are none.
    """

    request: ModelRequest[Any]
    asked: ModelRequest[Any] | None
    decision: GateDecision | None
    said: list[Any]
    update: dict[str, Any]
    ruling: Ruling | None
    config: RunnableConfig


class TrajectoryGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards an agent made by ``create_agent``: nudges before the model call, stops instead of it.

        agent = create_agent(model, tools, middleware=[TrajectoryGuardMiddleware()])

    List it first: middleware in front of it finds the nudge in ``response.result``, before the model's message. It runs
    inside the model's own super-step. Agents that the tools of this one call, such as the sub-agents of
    ``deepagents``, are guarded with it, unless a tool calls them on a thread that does not copy its context.

    Parameters:
        config, on_stop, nudge_role, state_of, board: as for ``TrajectoryGuardNode``; ``on_stop`` is ``"end"``,
            ``"raise"`` or ``"interrupt"``.
        refuse_pointless: as for ``apply_guard``. A call that a person refused in this turn is answered before a person
            is asked again, if the model requests nothing else.
        cheaper: the model to call from 80 % of a budget on: a model or its name, a mapping from the names of models to
            either, or a callable that is given the request and returns a model, or None for the request's own.
        budget_text: text for the end user where a budget refuses the call; a callable is given the ``BudgetStatus``.
        agent_name: the agent's name as its spans have it, for budgets of agents; by default that of ``create_agent``.

    Raises:
        TypeError, ValueError: an argument has a wrong type or value; it is named. ``create_agent`` raises
            ``GraphShapeError`` if the agent's state has something else under ``loop_status`` or
            ``trajectory_scratchpad``.
        ConfigError: the variables hold a mistake, or this process was given another configuration before.
    """

    state_schema = GuardedState

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        on_stop: Ending = "end",
        nudge_role: NudgeRole = "user",
        refuse_pointless: bool | RefusalRules = False,
        state_of: StateOf | None = None,
        cheaper: CheaperModel | None = None,
        budget_text: BudgetText | None = None,
        agent_name: str | None = None,
        board: FlagBoard | None = None,
    ) -> None:
        super().__init__()
        if on_stop not in ENDINGS:
            raise ValueError(f"on_stop: {on_stop!r} is none of 'end', 'raise', 'interrupt'")
        check_budget_arguments(cheaper, budget_text, agent_name)
        self._gate = GraphGate(
            config, on_stop=on_stop, nudge_role=nudge_role, state_of=state_of, refuse_pointless=refuse_pointless,
            board=board,
        )  # fmt: skip
        self._gate.witness, self._gate.gate.recalls_in_nudge = True, False
        self._tool_gate = ToolGate(self._gate.gate, self._gate.refuse)
        self._cheaper, self._raises = cheaper, on_stop == "raise"
        self._budgets = BudgetCheck(self._gate.gate, agent=agent_name, text=budget_text)
        self._open = OpenDecisions()
        self._nested = nested_below(self._gate)

    def __deepcopy__(self, memo: Any) -> TrajectoryGuardMiddleware:
        twin = copy.copy(self)  # with the same gate, whose board is that of the process
        twin._open = OpenDecisions()
        return twin

    # --- the model call ----------------------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Ask the budgets, then decide; at the start of a turn there is nothing to decide."""
        config = _config(request.runtime)
        ruling = self._rule(request, config) if self._budgets.is_configured else None
        if ruling is not None and ruling.ends:
            return self._refused(request, ruling)
        passage = self._enter(self._routed(request, ruling), ruling, config)
        with self._open.until_ended(config):
            response = self._ask(passage.asked, handler, config)
        return self._leave(passage, response)

    @without_a_pool
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """As ``wrap_model_call``. Requests to a collector and reads of a ledger run on a thread."""
        config, gate = _config(request.runtime), self._gate.gate
        ruling = None
        if self._budgets.is_configured:
            ruling = await self._budgets.beside_the_loop(partial(self._rule, request, config))
        if ruling is not None and ruling.ends:
            return self._refused(request, ruling)
        request = self._routed(request, ruling)
        if gate.does_io:
            passage = await self._open.on_a_thread(partial(self._enter, request, ruling, config), config, gate.contain)
        else:
            passage = self._enter(request, ruling, config)
        with self._open.until_ended(config):
            response = await self._aask(passage.asked, handler, config)
        return self._leave(passage, response)

    def _enter(self, request: ModelRequest[Any], ruling: Ruling | None, config: RunnableConfig) -> _Passage:
        try:
            outcome = self._open.carried_out(config)
            if outcome is None and (decision := self._decide(request, config)) is not None:
                outcome = self._gate.act(decision, config)
                self._open.carry_out(config, outcome)
            if outcome is not None:
                said, asked, update = self._act(request, outcome, config)
                return _Passage(request, asked, outcome.decision, said, update, ruling, config)
        except INTENDED:
            raise
        except Exception:
            self._open.close(config)
            self._gate.gate.contain()
        self._begin(request, config)
        return _Passage(request, request, None, [], {}, ruling, config)

    def _leave(
        self, passage: _Passage, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """The response with the guard's messages and updates; the cursor learns what the model requests."""
        request, _, decision, said, update, ruling, config = passage
        try:
            if decision is None:
                self._gate.requested(request.messages, response.result, config)
            else:
                self._gate.answered(decision, response.result)
            update = self._recorded(update, request, said, response, config)
        except Exception:
            self._gate.gate.contain()
        if decision is None:
            return _with_budget(response, request, ruling, update)
        return _extended(response, said, _status_with(update, ruling))

    # A person who reviews calls is asked after the model has answered and before any tool call: a call that was refused
    # in this turn has to be answered here, or the person is asked again.

    def _ask(self, request: ModelRequest[Any] | None, handler: Any, config: RunnableConfig) -> ModelResponse[Any]:
        if request is None:
            return ModelResponse([])
        response, said = handler(request), list[Any]()
        while answers := self._answers(request, [*said, *response.result], config):
            said += [*response.result, *answers]
            response = handler(request.override(messages=[*request.messages, *said]))
        return dataclasses.replace(response, result=[*said, *response.result]) if said else response

    async def _aask(
        self, request: ModelRequest[Any] | None, handler: Any, config: RunnableConfig
    ) -> ModelResponse[Any]:
        if request is None:
            return ModelResponse([])
        response, said = await handler(request), list[Any]()
        while answers := self._answers(request, [*said, *response.result], config):
            said += [*response.result, *answers]
            response = await handler(request.override(messages=[*request.messages, *said]))
        return dataclasses.replace(response, result=[*said, *response.result]) if said else response

    def _answers(self, request: ModelRequest[Any], said: Sequence[Any], config: RunnableConfig) -> list[Any]:
        """Answers to the calls that the model requests now, if all of them were refused before; else none."""
        if self._gate.refuse is None:
            return []
        try:
            state: Mapping[str, Any] = request.state
            messages = [*(state.get("messages") or ()), *said]
            return self._tool_gate.answers_before_review(messages, state.get("loop_status") or {}, config)
        except Exception:
            self._gate.gate.contain()
            return []

    def _decide(self, request: ModelRequest[Any], config: RunnableConfig) -> GateDecision | None:
        """The intervention that is due. A call retried, or repeated after a person's answer, gets the same decision."""
        if (known := self._open.find(config)) is not None:
            return known
        messages = request.state.get("messages") or []
        state: Mapping[str, Any] = request.state
        status = whole_status(state)
        with self._gate.deciding(config):
            self._gate.follow_branch(messages, status, config)
            if not self._gate.has_to_decide(messages, config):
                return None
            decision = self._open.find_left(config, messages)
            if decision is None:
                decision = self._gate.decide(messages, status, config, state)
        self._open.keep(config, decision, messages)
        return decision

    def _act(
        self, request: ModelRequest[Any], outcome: Outcome, config: RunnableConfig
    ) -> tuple[list[Any], ModelRequest[Any] | None, dict[str, Any]]:
        """The guard's messages, the request to go on with (None ends the run), and the state update."""
        decision, nudge, ends = outcome
        update: dict[str, Any] = {"loop_status": remembering(decision.status)}
        if decision.scratchpad:
            update["trajectory_scratchpad"] = decision.scratchpad
        if ends:
            update["jump_to"] = "end"
            return [self._gate.closing(decision)], None, update
        if nudge is None and not self._gate.recalls:
            return [], request, update
        shown, new = self._gate.nudged(request.messages, nudge) if nudge is not None else (request.messages, [])
        try:
            keep_out_of_streams(new, config)
        except Exception:  # users see the nudge then, and the agent does
            self._gate.gate.contain()
        shown = self._gate.recalled(list(shown), decision, config)
        return new, request.override(messages=shown), update

    def _begin(self, request: ModelRequest[Any], config: RunnableConfig) -> None:
        """Begin the task of a user turn in the cursor, if one is kept."""
        if not self._gate.keeps_cursor:
            return
        try:
            state: Mapping[str, Any] = request.state
            self._gate.began(state.get("messages") or (), whole_status(state), config)
        except Exception:
            self._gate.gate.contain()

    def _recorded(
        self, update: dict[str, Any], request: ModelRequest[Any], said: Sequence[Any], response: ModelResponse[Any],
        config: RunnableConfig,
    ) -> dict[str, Any]:  # fmt: skip
        """The state update with the cursor after the model's response; unchanged if none is kept."""
        if not self._gate.keeps_cursor:
            return update
        state: Mapping[str, Any] = request.state
        before = whole_status(update or state)
        messages = [*(state.get("messages") or ()), *said, *response.result]
        ends = response.structured_response is not None
        found = self._gate.wrote(messages, before, config, ends=ends)
        return {**update, "loop_status": remembering({**before, **found})} if found else update

    # --- budgets -----------------------------------------------------------------------------------------------

    def _rule(self, request: ModelRequest[Any], config: RunnableConfig) -> Ruling | None:
        try:
            state: Mapping[str, Any] = request.state
            return self._budgets.rule(state.get("messages") or (), whole_status(state), config)
        except Exception:
            self._gate.gate.contain()
            return None

    def _refused(self, request: ModelRequest[Any], ruling: Ruling) -> ExtendedModelResponse[Any]:
        """No model call: the run ends with a message, or an error."""
        if self._raises:
            raise BudgetExceededError(ruling.payload)
        update = _status_with({"loop_status": request.state.get("loop_status") or {}, "jump_to": "end"}, ruling)
        return _extended(ModelResponse([]), [refusal_message(ruling)], update)

    def _routed(self, request: ModelRequest[Any], ruling: Ruling | None) -> ModelRequest[Any]:
        """The request with the cheaper model, if budgets ask for one and there is one."""
        if ruling is None or ruling.action is not Action.ROUTED or self._cheaper is None:
            return request
        try:
            model = cheaper_model(self._cheaper, request)
        except Exception:
            self._gate.gate.contain()
            return request
        if model is None or model is request.model:
            return request
        self._budgets.count(ruling.action)
        return request.override(model=model)

    # --- tool calls --------------------------------------------------------------------------------------------

    @for_agents_with_tools
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run the tool, or refuse if the call is known to be pointless."""
        if (refused := self._tool_gate.refusal(request)) is not None:
            return refused
        with self._tool_gate.execution(request) as entered, self._nested.covering():
            return entered.done(handler(request))

    @for_agents_with_tools
    @without_a_pool
    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """As ``wrap_tool_call``."""
        if (refused := self._tool_gate.refusal(request)) is not None:
            return refused
        with self._tool_gate.execution(request) as entered, self._nested.covering():
            return entered.done(await handler(request))


def _status_with(update: dict[str, Any], ruling: Ruling | None) -> dict[str, Any]:
    """The state update with the budgets in ``loop_status``."""
    if ruling is None:
        return update
    shown = update.get("loop_status") or {}
    status = RememberingStatus({**shown, "budget": ruling.status.to_plain()}, getattr(shown, "memory", None))
    return {**update, "loop_status": status}


def _with_budget(
    response: ModelResponse[Any], request: ModelRequest[Any], ruling: Ruling | None, update: dict[str, Any]
) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """The response at the start of a turn, where only budgets were asked, and the cursor written."""
    if ruling is None and not update:
        return response
    return _extended(response, [], _status_with(update or {"loop_status": request.state.get("loop_status")}, ruling))


def _extended(response: Any, before: Sequence[Any], update: dict[str, Any]) -> ExtendedModelResponse[Any]:
    """The model's response, preceded by the guard's messages."""
    if before:
        response = dataclasses.replace(response, result=[*before, *response.result])
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def _config(runtime: Any) -> RunnableConfig:
    """The run's configuration. Under asyncio Python 3.10 has it nowhere; then what the runtime knows of it."""
    try:
        return get_config()
    except RuntimeError:
        info = getattr(runtime, "execution_info", None)
        known = {
            "thread_id": getattr(info, "thread_id", None), "checkpoint_ns": getattr(info, "checkpoint_ns", None),
            CONFIG_KEY_TASK_ID: getattr(info, "task_id", None),
        }  # fmt: skip
        return {"configurable": {name: value for name, value in known.items() if value is not None}}
