"""Checks of the arguments of gates, when they are made: a wrong type would show much later, or never."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_guard.config.messages import wrong_type


def check_gate_arguments(on_stop: Any, state_of: Any, messages_key: Any) -> None:
    """Check what gates of a graph are given besides configuration and board (``runtime.board_for``).

    Raises:
        TypeError: one has a wrong type; it is named.
    """
    if not isinstance(on_stop, str):
        raise wrong_type("on_stop", "'end', 'raise', 'interrupt' or the name of a node", on_stop)
    if state_of is not None and not callable(state_of):
        raise wrong_type("state_of", "a function of the graph state", state_of)
    if not isinstance(messages_key, str):
        raise wrong_type("messages_key", "the name of a state key", messages_key)


def check_budget_arguments(cheaper: Any, text: Any, agent_name: Any, *, text_name: str = "budget_text") -> None:
    """Check the arguments about budgets. ``text_name``: name of the argument ``text``.

    Raises:
        TypeError: one has a wrong type; it is named.
    """
    is_model = isinstance(cheaper, (str, Mapping)) or callable(cheaper) or hasattr(cheaper, "invoke")
    if cheaper is not None and not is_model:
        wanted = "a model, its name, a mapping from names of models to either, or a function of the request"
        raise wrong_type("cheaper", wanted, cheaper)
    if text is not None and not isinstance(text, str) and not callable(text):
        raise wrong_type(text_name, "text or a function of the BudgetStatus", text)
    if agent_name is not None and not isinstance(agent_name, str):
        raise wrong_type("agent_name", "the name of an agent", agent_name)
