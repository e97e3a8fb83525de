"""An agent without tools under real instrumentations: asked the same again, it is nudged and stopped."""

from __future__ import annotations

import pytest

from .processes import WRITER, run_agent
from .test_instrumentations import TWO_AT_ONCE, WITH_CONTENT, WITHOUT_CONTENT

ROUNDS = 16


@pytest.mark.parametrize("name", [*WITH_CONTENT, *TWO_AT_ONCE])
def test_a_loop_of_model_calls_is_nudged_twice_and_stopped(name: str) -> None:
    done = run_agent(*{**WITH_CONTENT, **TWO_AT_ONCE}[name], program=WRITER)
    for how, (messages, rounds) in done["runs"].items():
        assert messages == "hNNS", how
        assert rounds < ROUNDS, how
    counted = [key for key in done["counts"] if key.startswith(("errors", "evicted"))]
    assert counted == []
    assert done["counts"]["steps"] == sum(rounds for _, rounds in done["runs"].values())


@pytest.mark.parametrize("name", WITHOUT_CONTENT)
def test_without_content_nothing_is_known_of_it(name: str) -> None:
    done = run_agent(*WITHOUT_CONTENT[name], program=WRITER)
    assert done["runs"] == {how: ["h", ROUNDS] for how in ("invoke", "ainvoke")}
    assert done["counts"].get("steps", 0) == 0
