"""The example in docs/detectors.md works as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers import evaluate, record
from trajectory_guard.core.detectors import unregister
from trajectory_guard.core.policy import Level

DOCS = Path(__file__).parent.parent / "docs" / "detectors.md"


def test_the_example_fires_nudges_and_explains() -> None:
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    exec(compile(code[1], str(DOCS), "exec"), {"__name__": "example"})
    try:
        steps = [record(tool, {"n": n}, "done") for n in range(4) for tool in ("edit", "undo")]
        verdicts = evaluate(steps)
    finally:
        unregister("undo")
    reported = [verdict for verdict in verdicts if verdict is not None and "TYPE_X_UNDO" in verdict.types]
    assert [verdict.step_index for verdict in reported] == [5, 7]
    assert reported[0].reason == "The agent has undone its own work 3 times."
    assert reported[1].level is Level.NUDGE
    assert "Decide on one version" in str(reported[1].nudge)
