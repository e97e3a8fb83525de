"""What a model says with the calls that it requests stands in its own span: every shell hears it, the same way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.kit import comparable, score_all, tool
from tests.collector.test_operations import Workers
from tests.collector.test_same_verdicts import deliveries, replayed
from tests.test_model_loops_of_spans import below_agent, chat, in_process, with_attributes
from trajectory_guard.core.engine import Verdict

OF_AGENT: dict[str, Any] = {"conversation": None}
SAME_WORDS = "I will look for the invoice in the archive of last year now."


def turn(at: int, said: str, name: str, args: dict[str, Any], result: str) -> list[Span]:
    """A model call that says something and requests a tool, and the call of the tool."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": said}] if said else []
    parts.append({"type": "tool_call", "id": f"call_{at}", "name": name, "arguments": args})
    asked = chat(f"m{at}", f"turn {at}", at=at, dur=0.4)
    with_attributes(asked, gen_ai__output__messages=json.dumps([{"role": "assistant", "parts": parts}]))
    called = tool(f"t{at}", args, result, tool_name=name, at=at + 0.5, dur=0.2, trace="t", parent="agent", **OF_AGENT)
    return [asked, with_attributes(called, gen_ai__tool__call__id=f"call_{at}")]


def repeated_words(said: str, times: int = 8) -> list[Span]:
    turns = [turn(at, said, "read", {"path": f"archive/{at * 7919 % 97}.pdf"}, "No such file.") for at in range(times)]
    return [one for turn_ in turns for one in turn_]


def counted(total: int, said: str = "Label {} of {}") -> list[Span]:
    turns = [turn(at, said.format(at + 1, total) if said else "", "print", {"n": 1}, "printed") for at in range(total)]
    return [one for turn_ in turns for one in turn_]


def rules(verdicts: dict[str, Verdict]) -> set[str]:
    return {one.rule for verdict in verdicts.values() for one in verdict.detections}


def in_all_shells(spans: Sequence[Span], tmp_path: Path, name: str) -> dict[str, Verdict]:
    """The verdicts in process, once all other shells have given the same."""
    requests = below_agent(*spans)
    verdicts = in_process(requests)
    expected = comparable(verdicts)
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, name).items():
        assert comparable(score_all(delivered)) == expected, how
    workers = Workers()
    for data in requests:
        workers.carry_out(workers.operations(data))
        workers.restart()
    assert comparable(workers.verdicts()) == expected
    return verdicts


def test_the_same_words_again_are_found(tmp_path: Path) -> None:
    assert "same_message" in rules(in_all_shells(repeated_words(SAME_WORDS), tmp_path, "words"))


def test_a_count_is_heard(tmp_path: Path) -> None:
    assert rules(in_all_shells(counted(20), tmp_path, "count")) == set()


@pytest.mark.parametrize("said", ["", "The next label."])
def test_without_a_count_the_calls_are_a_loop(said: str) -> None:
    assert rules(in_process(below_agent(*counted(20, said)))) != set()
