"""Type checkers see the keys of the configuration and the words of closed choices, with the values that users write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, SecretStr

from tests import typed_uses
from tests.helpers import PACKAGE
from trajectory_guard.config import GuardConfig, ToolPolicy
from trajectory_guard.config.keys import BudgetKeys, GuardKeys, PriceKeys, ToolKeys
from trajectory_guard.config.messages import _WORDS as WORDS
from trajectory_guard.config.spending import BudgetSettings, ModelPrice

MODELS = {GuardConfig: GuardKeys, ToolPolicy: ToolKeys, BudgetSettings: BudgetKeys, ModelPrice: PriceKeys}
NAMES = {one.__name__: one for one in (ToolPolicy, BudgetSettings, ModelPrice, SecretStr)}
"""The names that the module of the keys imports for type checkers only."""


@pytest.mark.slow
def test_mypy_finds_each_wrong_use_and_no_other() -> None:
    """``make lint`` does so too."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", typed_uses.__file__],
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, cwd=Path(__file__).parents[1],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_right_configurations_are_right_when_they_run() -> None:
    assert typed_uses.right_configurations().tools["search"].poll


def hints(keys: type[Any]) -> dict[str, Any]:
    return get_type_hints(keys, localns=NAMES)


def members(annotation: Any) -> set[Any]:
    """The members of a union, and an annotation by itself."""
    is_union = get_origin(annotation) not in (None, Literal, tuple, Mapping) and NoneType in get_args(annotation)
    return set(get_args(annotation)) if is_union else {annotation}


@pytest.mark.parametrize("model", MODELS)
def test_the_keys_are_those_of_the_fields(model: type[BaseModel]) -> None:
    assert set(hints(MODELS[model])) == set(model.model_fields)
    required = {key for key, field in model.model_fields.items() if field.is_required()}
    assert MODELS[model].__required_keys__ == required  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", MODELS)
def test_a_key_takes_at_least_what_its_field_has(model: type[BaseModel]) -> None:
    given = hints(MODELS[model])
    for key, field in model.model_fields.items():
        if get_origin(field.annotation) not in (tuple, Mapping) and get_origin(given[key]) is not Literal:
            assert members(field.annotation) <= members(given[key]), key


def words_of(field: Any) -> tuple[str, ...] | None:
    """The words of a field whose pattern is a choice."""
    patterns = [WORDS.fullmatch(str(pattern)) for one in field.metadata if (pattern := getattr(one, "pattern", None))]
    return next((tuple(found[1].split("|")) for found in patterns if found is not None), None)


def test_choices_are_closed_for_type_checkers_with_the_words_of_validation() -> None:
    checked = [
        (key, words, get_args(hints(keys)[key]))
        for model, keys in MODELS.items()
        for key, field in model.model_fields.items()
        if (words := words_of(field)) is not None
    ]
    assert {key for key, *_ in checked} == {"mode", "scope", "per"}
    assert [(key, words) for key, words, _ in checked] == [(key, said) for key, _, said in checked]
