"""The section ``spending`` of the configuration, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.spending.budget import Budget

from .entries import entry


def test_budgets_and_prices_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text(
        """
        [spending]
        spending_file = "spending.db"
        budgets = [
            {scope = "day", usd = 50},
            {scope = "agent", usd = 2.5, per = "day", name = "researcher"},
            {scope = "trajectory", tokens = 200000},
        ]
        model_prices."our-model" = {input = 0.5, output = 1.5}
        """,
        encoding="utf-8",
    )
    config = GuardConfig.from_file(file)
    assert [one.budget() for one in config.budgets] == [
        Budget("day", "usd", 50_000_000), Budget("agent", "usd", 2_500_000, True, "researcher"),
        Budget("trajectory", "tokens", 200_000),
    ]  # fmt: skip
    assert config.model_prices["our-model"].rate() == (500_000, 1_500_000)


def test_budgets_of_the_environment() -> None:
    config = GuardConfig.from_env({"TRAJECTORY_GUARD_BUDGETS": '[{"scope": "day", "usd": 5}]'})
    assert config.budgets[0].budget() == Budget("day", "usd", 5_000_000)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budgets": [{"scope": "day"}]}, "budgets.0: give either 'usd' or 'tokens'"),
        ({"budgets": [{"scope": "day", "usd": 1, "tokens": 1}]}, "budgets.0: give either 'usd' or 'tokens'"),
        ({"budgets": [{"scope": "day", "usd": 0}]}, "budgets.0.usd: "),
        ({"budgets": [{"scope": "team", "usd": 1}]}, "budgets.0.scope: "),
        ({"budgets": [{"scope": "day", "usd": 1, "name": "x"}]}, "'name' and 'per: day' belong to the scopes"),
        ({"budgets": [{"scope": "day", "used": 1}]}, "unknown key 'budgets.0.used' (did you mean 'usd'?)"),
        (
            {"model_prices": {"m": {"input": 1, "ouput": 1}}},
            "unknown key 'model_prices.m.ouput' (did you mean 'output'?)",
        ),
        ({"spending_file": ""}, "spending_file: "),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig(**values)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_used_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spending_file: .*missing/spending\.db: there is no directory"):
        FlagBoard(GuardConfig(spending_file=str(tmp_path / "missing" / "spending.db")))


def test_without_configuration_nothing_of_it_is_loaded() -> None:
    import subprocess
    import sys

    code = (
        "import sys, trajectory_guard; trajectory_guard.FlagBoard()\n"
        "print([name for name in sys.modules if name == 'sqlite3' or name.startswith('trajectory_guard.spending.s')])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize(("mode", "level"), [("enforce", "blocked"), ("nudge", "aggressive"), ("observe", "normal")])
def test_the_mode_limits_the_level_that_a_loop_of_its_own_is_handed(mode: str, level: str) -> None:
    board = FlagBoard(GuardConfig(mode=mode, budgets=[{"scope": "trajectory", "tokens": 1}]))
    assert board.spending is not None
    board.spending.book(entry(trajectory="t"))
    for flag in (board.read("t"), board.take("t")):
        assert flag.budget is not None
        assert flag.budget.level == level
    assert board.spending.status("t").level == "blocked"
