"""Arguments of gates are checked when the gate is made, and the error names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gates.agents import agent_builder, new_board, works
from trajectory_guard import BudgetGate, RefusalRules, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard


def builder_gate(**arguments: Any) -> Any:
    return apply_guard(agent_builder(works(1)), **{"board": new_board(), **arguments})


def middleware(**arguments: Any) -> Any:
    return TrajectoryGuardMiddleware(**{"board": new_board(), **arguments})


def node(**arguments: Any) -> Any:
    return TrajectoryGuardNode(**{"board": new_board(), **arguments})


def budgets(**arguments: Any) -> Any:
    return BudgetGate(**{"board": new_board(), **arguments})


WRONG: list[tuple[Callable[..., Any], str, Any]] = [
    *[(middleware, "refuse_pointless", one) for one in ("yes", 1, {"after": 3})],
    *[(builder_gate, "refuse_pointless", one) for one in ("no", 0)],
    *[(middleware, "cheaper", one) for one in (3, 1.5, ["small"])],
    *[(middleware, "budget_text", one) for one in (3, ["no"])],
    (middleware, "agent_name", 7),
    *[(make, "config", {"mode": "nudge"}) for make in (middleware, builder_gate, node)],
    *[(make, "board", "the board") for make in (middleware, builder_gate, node)],
    *[(make, "state_of", "page") for make in (middleware, builder_gate, node)],
    (node, "messages_key", 3),
    (budgets, "text", 3),
]


@pytest.mark.parametrize("make, name, value", WRONG, ids=[f"{one[0].__name__}-{one[1]}-{one[2]!r}" for one in WRONG])
def test_an_argument_of_a_wrong_type_is_refused_by_name(make: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected "):
        make(**{name: value})


@pytest.mark.parametrize("name, value", [("after", "3"), ("after", True), ("limit", 1.5), ("denied", "yes")])
def test_refusal_rules_of_a_wrong_type_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected "):
        RefusalRules(**{name: value})


def test_right_arguments_are_taken() -> None:
    model = agent_builder(works(1)).compile()
    for cheaper in (None, "openai:small", {"large": "small"}, lambda request: None, model):
        taken = middleware(cheaper=cheaper, budget_text="No.", agent_name="a", refuse_pointless=RefusalRules(after=3))
        assert isinstance(taken, TrajectoryGuardMiddleware)
    assert builder_gate(refuse_pointless=True, state_of=lambda state: None).compile() is not None
    assert isinstance(budgets(text=lambda status: "No."), BudgetGate)
