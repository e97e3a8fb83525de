"""How many files of the processor a tool span crosses until its nudge, and that the architecture names all of them."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import PACKAGE, TESTS
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.build import is_compiled
from trajectory_guard.core.policy import Level
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

MAX_FILES = 57
"""Files with a function that runs: a reader who follows the span has to hold them in mind."""
PAGE = TESTS.parent / "docs" / "architecture.md"
_ROOT = f"{PACKAGE}/"

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled functions have no frames")


def tool_span(tracer: trace.Tracer) -> trace.Span:
    """An open tool span with all its attributes; each call of one conversation is equal to the one before."""
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.conversation.id": "conversation", "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": '{"query":"returns"}', "gen_ai.tool.call.result": "No results",
    }  # fmt: skip
    return tracer.start_span("execute_tool search", attributes=attributes)


def files_crossed(span: trace.Span) -> set[str]:
    """Files of the package with a function that runs while the span ends."""
    found: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOT):
            found.add(frame.f_code.co_filename.removeprefix(_ROOT))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        span.end()
    finally:
        sys.setprofile(before)
    return found


def files_until_the_nudge() -> set[str]:
    board, provider = FlagBoard(GuardConfig()), TracerProvider()
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    tracer = provider.get_tracer("t")
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for _ in range(2):
            tool_span(tracer).end()
        assert board.read("conversation").level is Level.OBSERVE
        crossed = files_crossed(tool_span(tracer))
        assert board.read("conversation").level is Level.NUDGE
    return crossed


def test_a_tool_span_crosses_few_files_until_its_nudge() -> None:
    crossed = files_until_the_nudge()
    assert {"otel/processor.py", "core/engine.py", "otel/verdict_spans.py"} < crossed
    assert len(crossed) <= MAX_FILES, "\n".join(sorted(crossed))


def test_the_architecture_names_every_file_that_is_crossed() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## In process: ")[1].split("\n## ")[0]
    stages = "\n".join(line for line in section.splitlines() if line.startswith("| "))
    assert set(re.findall(r"`([\w/]+\.py)`", stages)) == files_until_the_nudge()
    assert f"number at {MAX_FILES}" in section
