"""Results beyond the limit of what is read differ if they differ anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, stopped
from tests.dialects.test_messages import GO, answer, ask, model, spanless
from tests.helpers import evaluate, extract_step, span_view
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.spans.extract import MAX_RESULT_CHARS

FILL = "lorem ipsum " * (MAX_RESULT_CHARS // 10)
TEXTS = {
    "the end moves": FILL + "row {n}",
    "the middle moves": FILL + "row {n} " + FILL,
    "the end of lines moves": FILL.replace(" ", "\n") + "\n{n} satır",
    "a member of JSON moves": json.dumps({"größe": FILL, "stand": "@"}).replace("@", "{n}", 1).replace("{\"g", "{{\"g")[:-1] + "}}",
    "one figure near the limit moves": "x, y; " * (MAX_RESULT_CHARS // 6) + "{n}" + "x, y; " * 400,
}  # fmt: skip
SPANS: dict[str, dict[str, Any]] = {
    "openinference": {"openinference.span.kind": "TOOL", "tool.name": "dump", "input.value": '{"q": "x"}'},
    "semconv": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "dump", "gen_ai.tool.call.arguments": '{"q": "x"}'},
}  # fmt: skip
RESULT_KEYS = {"openinference": "output.value", "semconv": "gen_ai.tool.call.result"}


def _steps(dialect: str, text: str, count: int) -> list[StepRecord]:
    found = [
        extract_step(span_view({**SPANS[dialect], RESULT_KEYS[dialect]: text.format(n=n * n + 11)}, "dump", span_id=f"{n:016x}", start=float(n), end=n + 0.5))
        for n in range(1, count + 1)
    ]  # fmt: skip
    return [one for one in found if one is not None]


@pytest.mark.parametrize("dialect", SPANS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_difference_beyond_the_limit_is_progress(text: str, dialect: str) -> None:
    steps = _steps(dialect, TEXTS[text], 9)
    assert len(steps) == 9
    assert nudged(evaluate(steps)) is None


@pytest.mark.parametrize("dialect", SPANS)
def test_equal_results_beyond_the_limit_are_repeats(dialect: str) -> None:
    assert stopped(evaluate(_steps(dialect, FILL, 8))) is not None


def test_a_result_that_only_the_messages_show_is_compared_whole() -> None:
    def result(n: int) -> str | None:
        (step,) = spanless([model(1, [GO], ask()), model(2, [GO, ask(), answer(FILL + str(n))])])
        return step.state_snapshot_hash

    assert result(1) != result(2)
    assert result(1) == result(1)
