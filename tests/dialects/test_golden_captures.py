"""Every recorded capture yields the calls that a careful reader found in it."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.helpers import DATA, capture, capture_names, golden
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.transcripts.assemble import extract_steps

KNOWN_GAPS: dict[tuple[str, str, str], str] = {}
"""(capture, tool, field) that the extractor cannot know from the spans it may read, and why. None at present."""

FIELDS = ("tool_name", "call_id", "args", "result", "outcome_type", "agent_id", "trajectory_id", "evidence")


def is_message_row(step: StepRecord) -> bool:
    """Whether a step has no tool span and was read from the messages of a model span."""
    return (step.dialect or "").endswith(".messages")


def differences(name: str) -> dict[tuple[str, str, str], tuple[Any, Any]]:
    """(capture, tool, field) -> (wanted, got), for every call whose field is not as the golden files say."""
    steps = extract_steps(capture(name))
    found = {}
    for rows, got in (
        (golden(name), [step for step in steps if not is_message_row(step)]),
        (golden(f"{name}.messages"), [step for step in steps if is_message_row(step)]),
    ):
        wanted_calls = [(row["span_id"], row["tool_name"]) for row in rows]
        assert [(step.span_id, step.tool_name) for step in got] == wanted_calls, (
            "calls missing, surplus, or out of order"
        )
        for row, step in zip(rows, got, strict=True):
            for field in FIELDS:
                if not _agrees(field, row, step):
                    found[name, row["tool_name"], field] = (row[field], getattr(step, field))
    return found


def _agrees(field: str, row: dict[str, Any], step: StepRecord) -> bool:
    want, got = row[field], getattr(step, field)
    if field != "result":
        return str(want) == str(got) if field == "evidence" else bool(want == got)
    if want is None and row["outcome_type"] == "error":
        return True  # the text of the exception may stand in for a payload that does not exist
    return want == got or (want is not None and got is not None and _same_json(want, got))


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


@pytest.mark.parametrize("name", capture_names())
def test_capture_extracts_to_its_golden_file(name: str) -> None:
    unexpected = {key: values for key, values in differences(name).items() if key not in KNOWN_GAPS}
    assert not unexpected


def test_every_known_gap_is_still_open() -> None:
    by_capture = defaultdict(set)
    for key in KNOWN_GAPS:
        by_capture[key[0]].add(key)
    closed = set().union(*(keys - differences(name).keys() for name, keys in by_capture.items()))
    assert not closed, "these work now: take them out of KNOWN_GAPS"


def test_every_capture_has_a_golden_file_and_the_other_way_round() -> None:
    names = {path.stem for path in (DATA / "golden").glob("*.jsonl") if not path.name.endswith(".messages.jsonl")}
    assert names == set(capture_names())
    assert len(names) == 268


def test_a_result_is_compared_as_a_hash_only_if_it_is_known() -> None:
    steps = [step for name in capture_names() for step in extract_steps(capture(name))]
    assert len(steps) > 500
    assert all((step.state_snapshot_hash is None) == (step.result is None) for step in steps)
    assert all((step.tool_args_hash is None) == (step.args is None) for step in steps)


@pytest.mark.parametrize("name", [name for name in capture_names() if golden(f"{name}.messages")])
def test_calls_without_a_tool_span_are_left_out_on_request(name: str) -> None:
    steps = extract_steps(capture(name), messages=False)
    assert [step.span_id for step in steps] == [row["span_id"] for row in golden(name)]


@pytest.mark.parametrize(
    "name", ["dual-openllmetry-openinference__stategraph_sync", "openllmetry-langchain__interrupt_in_tool"]
)
def test_two_spans_of_one_call_count_once(name: str) -> None:
    tool_spans = [
        span
        for span in capture(name)
        if span.attributes.get("gen_ai.operation.name") == "execute_tool" or "tool.name" in span.attributes
    ]
    steps = extract_steps(capture(name))
    assert len(tool_spans) > len(steps) == len(golden(name))
