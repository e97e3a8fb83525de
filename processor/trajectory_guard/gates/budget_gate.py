"""Budgets before the model call in hand-built LangGraph graphs: ``guard.wrap(agent_node)``."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from trajectory_guard.extras import missing

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.runnables.config import ensure_config
    from langgraph.pregel import Pregel
except ImportError as error:  # pragma: no cover - exercised in a subprocess by tests
    raise ImportError(missing("the budget gate", error, "langgraph"), name=error.name) from error

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.arguments import check_budget_arguments, check_gate_arguments
from trajectory_guard.gates.budgets import Action, BudgetCheck, BudgetExceededError, BudgetText, Ruling
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.graph_gate import get, like
from trajectory_guard.gates.langgraph_internals import RunnableCallable, coerce_to_runnable
from trajectory_guard.gates.message_form import as_written, form_of
from trajectory_guard.gates.messages import MARK
from trajectory_guard.gates.state_keys import channels_of

CheaperModel = BaseChatModel | str | Mapping[str, Any] | Callable[..., Any]
"""A model or its name, a mapping from the names of models to either, or a callable that is given the request."""
_CONFIG: Final = "config"


class BudgetGate:
    """Asks the budgets before a node of a hand-built graph calls its model.

        guard = BudgetGate()
        builder.add_node("agent", guard.wrap(agent_node, cheaper=agent_node_with_a_small_model))

    Where the budget refuses the call, the node is not run: an assistant message without tool calls takes the place of
    its output, with which the usual conditional edge ends the run. Graphs that go on from the agent in any case should
    raise instead. It needs no ``apply_guard`` and goes together with it.

    Parameters:
        config, board: as for ``TrajectoryGuardNode``.
        on_refusal: ``"end"`` writes the message, ``"raise"`` raises ``BudgetExceededError``. A state without messages
            raises in any case.
        text: for the end user; a callable is given the ``BudgetStatus``.
        messages_key: state key of the messages.
    """

    def __init__(
        self,
        config: GuardConfig | None = None,
        *,
        on_refusal: Literal["end", "raise"] = "end",
        text: BudgetText | None = None,
        messages_key: str = "messages",
        board: FlagBoard | None = None,
    ) -> None:
        if on_refusal not in ("end", "raise"):
            raise ValueError(f"on_refusal: {on_refusal!r} is none of 'end', 'raise'")
        check_gate_arguments("end", None, messages_key)
        check_budget_arguments(None, text, None, text_name="text")
        self._gate = Gate(config, board=board)
        self._raises, self._text, self._key = on_refusal == "raise", text, messages_key

    def wrap(self, node: Any, *, cheaper: Any = None, agent_name: str | None = None) -> Any:
        """The node behind the budgets, to be given to ``add_node``: a function stays one, with the same parameters.

        Parameters:
            node: a function, a coroutine function, an object that can be called, or a runnable; no compiled graph.
            cheaper: the node to run instead from 80 % of a budget on; of the same kinds.
            agent_name: the agent's name as its spans have it, for budgets of agents.

        Raises:
            TypeError: the node is of another kind.
        """
        for one in (node, cheaper):
            if isinstance(one, Pregel):
                raise TypeError(
                    "wrap() takes the node that calls the model, not a compiled graph: wrap it inside the graph"
                )
        if not callable(node) and not isinstance(node, Runnable):
            raise TypeError(f"wrap() takes a function or a runnable, got {type(node).__name__}")
        guarded = _GuardedCall(self, node, cheaper, BudgetCheck(self._gate, agent=agent_name, text=self._text))
        if isinstance(node, Runnable):
            return RunnableCallable(guarded.run, guarded.arun, name=node.get_name(), trace=False)
        return guarded.as_function()

    def refusal(self, state: Any, ruling: Ruling, config: RunnableConfig) -> dict[str, Any]:
        """The state update in place of the node's output; all messages, where what a node writes replaces them.

        Raises:
            BudgetExceededError: this gate raises, or the state has no messages.
        """
        messages = get(state, self._key)
        if self._raises or messages is None:
            raise BudgetExceededError(ruling.payload)
        said = [like(messages[-1] if messages else None, refusal_message(ruling))]
        form = form_of(channels_of(config).get(self._key))
        update: dict[str, Any] = {self._key: as_written(form, [*messages, *said], said, messages)}
        status = get(state, "loop_status")
        if isinstance(status, Mapping):
            update["loop_status"] = {**status, "budget": ruling.status.to_plain()}
        return update

    def messages(self, state: Any) -> Any:
        """The messages of a state, none if it has none."""
        return get(state, self._key) or ()


class _GuardedCall:
    """One wrapped node."""

    def __init__(self, gate: BudgetGate, node: Any, cheaper: Any, check: BudgetCheck) -> None:
        self._gate, self._node, self._check = gate, node, check
        self._cheaper = coerce_to_runnable(cheaper, name="cheaper", trace=False) if cheaper is not None else None

    def _rule(self, state: Any, config: RunnableConfig) -> Ruling | None:
        status = get(state, "loop_status")
        return self._check.rule(self._gate.messages(state), status if isinstance(status, Mapping) else None, config)

    def _instead(self, state: Any, ruling: Ruling | None, config: RunnableConfig) -> Runnable[Any, Any] | None:
        """The runnable that takes the place of the node: the cheaper one, or one that writes the refusal."""
        if ruling is None:
            return None
        if ruling.ends:
            update = self._gate.refusal(state, ruling, config)
            return RunnableCallable(lambda _: update, name="refusal", trace=False)
        if ruling.action is Action.ROUTED and self._cheaper is not None:
            self._check.count(ruling.action)
            return self._cheaper
        return None

    def _other(self, state: Any, config: RunnableConfig) -> Runnable[Any, Any] | None:
        if not self._check.is_configured:
            return None
        return self._instead(state, self._rule(state, config), config)

    async def _aother(self, state: Any, config: RunnableConfig) -> Runnable[Any, Any] | None:
        if not self._check.is_configured:
            return None
        ruling = await self._check.beside_the_loop(partial(self._rule, state, config))
        return self._instead(state, ruling, config)

    def run(self, state: Any, config: RunnableConfig) -> Any:
        """A node that is a runnable."""
        return (self._other(state, config) or self._node).invoke(state, config)

    async def arun(self, state: Any, config: RunnableConfig) -> Any:
        """As ``run``."""
        return await (await self._aother(state, config) or self._node).ainvoke(state, config)

    def as_function(self) -> Any:
        """A function with the parameters and hints of the node, from which LangGraph reads its schema.

        LangGraph hands the configuration to functions that have a parameter for it: this one has, in any case.
        """
        node = self._node
        call = node if inspect.isroutine(node) or isinstance(node, functools.partial) else node.__call__
        function = call.func if isinstance(call, functools.partial) else call
        parameters = inspect.signature(call).parameters

        def config_in(kwargs: dict[str, Any]) -> RunnableConfig:
            return ensure_config(kwargs.get(_CONFIG) if _CONFIG in parameters else kwargs.pop(_CONFIG, None))

        def guarded(state: Any, *args: Any, **kwargs: Any) -> Any:
            config = config_in(kwargs)
            other = self._other(state, config)
            return call(state, *args, **kwargs) if other is None else other.invoke(state, config)

        async def aguarded(state: Any, *args: Any, **kwargs: Any) -> Any:
            config = config_in(kwargs)
            other = await self._aother(state, config)
            return await (call(state, *args, **kwargs) if other is None else other.ainvoke(state, config))

        chosen = aguarded if inspect.iscoroutinefunction(function) else guarded
        return _like_node(chosen, node, function, parameters)


def _like_node(guarded: Any, node: Any, function: Any, parameters: Mapping[str, inspect.Parameter]) -> Any:
    """Name, hints and parameters of the node, and one for the configuration."""
    functools.update_wrapper(guarded, function)
    guarded.__name__ = getattr(node, "__name__", type(node).__name__)
    own = list(parameters.values())
    if _CONFIG not in parameters:
        extra = inspect.Parameter(_CONFIG, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=RunnableConfig)
        at = next((i for i, one in enumerate(own) if one.kind is inspect.Parameter.VAR_KEYWORD), len(own))
        own.insert(at, extra)
    guarded.__signature__ = inspect.Signature(own)
    return guarded


def refusal_message(ruling: Ruling) -> AIMessage:
    """The message a run ends with where a budget refuses the model call."""
    return AIMessage(ruling.text, response_metadata={MARK: ruling.payload}, id=str(uuid.uuid4()))


def cheaper_model(cheaper: CheaperModel, request: Any) -> Any:
    """The model that a user wants instead of the one of a request; None for the request's own."""
    found: Any = cheaper
    if isinstance(found, Mapping):
        found = next((found[name] for name in _names(request.model) if name in found), None)
    elif callable(found) and not isinstance(found, BaseChatModel):
        found = found(request)
    return _by_name(found) if isinstance(found, str) else found


def _names(model: Any) -> list[str]:
    """Names under which providers' classes know their model."""
    found = (getattr(model, key, None) for key in ("model_name", "model", "model_id"))
    return [name for name in found if isinstance(name, str)]


@functools.lru_cache(maxsize=32)
def _by_name(name: str) -> Any:
    from langchain.chat_models import init_chat_model

    return init_chat_model(name)
