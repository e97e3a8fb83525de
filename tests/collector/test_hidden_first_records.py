"""Two instrumentations report each call, and the record that comes first hides its content: a call counts once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import request, score_all, singles, span, views
from tests.collector.test_same_verdicts import replayed
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level

CALLS = 30
Case = tuple[str, Callable[[int], Any], str, bool]
CASES: dict[str, Case] = {
    "same empty search": ("search", lambda at: "return policy", "No results found", False),
    "reworded search": ("search", lambda at: WORDS[at % len(WORDS)], "No results found", False),
    "action": ("update_record", lambda at: "x", "ok", False),
    "errors": ("read_file", lambda at: f"/data/file_{at}.txt", "permission denied", True),
}
WORDS = (
    "return policy", "policy for returns", "what is the return policy", "returns policy", "returning goods",
    "policy of returns", "return rules policy", "the policy on returns",
)  # fmt: skip


def outer(at: int, case: Case) -> Span:
    """The span of an instrumentation that captures no content, and that ends first: it shows the id of the call."""
    tool, _, _, fails = case
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"call-{at}",
        "gen_ai.conversation.id": "c", **({"error.type": "PermissionError"} if fails else {}),
    }  # fmt: skip
    one = span(f"outer{at}", attributes, at=at, dur=0.5, parent="root", span_name=f"execute_tool {tool}")
    if fails:
        one.status.code = 2  # type: ignore[assignment]
    return one


def inner(at: int, case: Case) -> Span:
    """The span of another one that shows arguments and result."""
    tool, query, result, _ = case
    attributes = {
        "openinference.span.kind": "TOOL", "tool.name": tool, "session.id": "c", "tool_call.id": f"call-{at}",
        "input.value": json.dumps({"query": query(at)}), "input.mime_type": "application/json", "output.value": result,
    }  # fmt: skip
    return span(f"inner{at}", attributes, at=at + 0.01, dur=0.6, parent="root", span_name=tool)


def requests_of(case: Case, *, both: bool) -> list[bytes]:
    root = span("root", {}, dur=CALLS + 1.0, span_name="POST /chat")
    spans = [one(at, case) for at in range(CALLS) for one in ((outer, inner) if both else (inner,))]
    return singles(request(*spans, root))


def interventions(found: dict[str, Verdict]) -> list[tuple[int, str, int]]:
    """Nudges and stops that became due: index of the step, what, and steps spent in the loop."""
    return sorted(
        (one.step_index, one.level.name, one.spent.steps)
        for one in found.values()
        if one.nudge or one.stop_due
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_call_of_which_the_first_record_hides_the_content_counts_once(case: Case, tmp_path: Path) -> None:
    """In process and in the collector each call was two steps: loops were nudged early, and stopped late or never."""
    both = requests_of(case, both=True)
    process = interventions(evaluate_in_process(one for data in both for one in views(data)))
    assert {level for _, level, _ in process} == {Level.NUDGE.name, Level.STOP.name}
    assert interventions(score_all(both)) == process
    assert interventions(score_all([b"".join(both)])) == process
    assert interventions(replayed(both, tmp_path)) == process


@pytest.mark.parametrize("case", [one for name, one in CASES.items() if name != "errors"])
def test_the_interventions_are_those_of_the_fuller_record_alone(case: Case) -> None:
    alone = requests_of(case, both=False)
    expected = interventions(evaluate_in_process(one for data in alone for one in views(data)))
    both = requests_of(case, both=True)
    assert interventions(evaluate_in_process(one for data in both for one in views(data))) == expected


def test_a_tool_that_one_instrumentation_alone_reports_is_still_evaluated() -> None:
    """Its records hide their content; only calls of a tool that had both records lately wait for the second one."""
    case = CASES["same empty search"]
    other = ("refund", lambda at: "", "", False)
    spans = [outer(0, case), inner(0, case), *[outer(at, other) for at in range(1, 8)]]
    both = singles(request(*spans))
    found = evaluate_in_process(one for data in both for one in views(data))
    assert [one.tool for one in found.values()].count("refund") == 7
    assert [one.tool for one in score_all(both).values()].count("refund") == 7
