"""``take`` for an id that no span carries: one warning, once it is plain that the id is wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import instrument, runtime, shared_board, uninstrument
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.board.unknown_ids import ASKED, UnknownIds


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    provider = TracerProvider()
    instrument(provider)
    yield provider.get_tracer("by hand")
    uninstrument()


def step(tracer: Any, number: int, **attributes: str) -> None:
    call = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look",
        "gen_ai.tool.call.arguments": f'{{"n": {number}}}', "gen_ai.tool.call.result": f"shelf {number * 37} in hall C",
    }  # fmt: skip
    with tracer.start_as_current_span("execute_tool look", attributes={**call, **attributes}):
        pass


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [one for one in found if "no tool call has come under this id" in one]


def test_an_id_that_no_span_carries_is_named_in_one_warning(tracer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(5 * ASKED):
            step(tracer, number, **{"gen_ai.conversation.id": "made-by-the-framework"})
            assert shared_board().take("mine").level == "OBSERVE"
    (text,) = warnings_in(caplog)
    assert "take('mine')" in text
    assert "'made-by-the-framework'" in text


def test_an_id_that_spans_carry_is_no_reason(tracer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(5 * ASKED):
            shared_board().take("mine")
            step(tracer, number, **{"gen_ai.conversation.id": "mine"})
    assert warnings_in(caplog) == []


def test_conversations_that_end_before_their_first_tool_call_are_no_reason(
    tracer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(20 * ASKED):
            shared_board().take(f"chat {number // (ASKED - 1)}")
            step(tracer, number, **{"gen_ai.conversation.id": "another"})
    assert warnings_in(caplog) == []


def test_an_id_is_no_reason_while_nothing_moves(tracer: Any, caplog: pytest.LogCaptureFixture) -> None:
    step(tracer, 1, **{"gen_ai.conversation.id": "another"})
    with caplog.at_level(logging.WARNING):
        for _ in range(5 * ASKED):
            shared_board().take("mine")
    assert warnings_in(caplog) == []


def test_the_table_of_ids_is_bounded_and_ids_are_shown_without_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = UnknownIds()
    with caplog.at_level(logging.WARNING):
        for number in range(10_000):
            ids.asked(f"id {number}", number, "x")
        for number in range(2 * ASKED):
            ids.asked("a\x1b[31m" + "b" * 500, number, "x\ny")
    assert len(ids._asked) <= 64
    (text,) = warnings_in(caplog)
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text) < 700


ASKING: dict[str, Callable[[FlagBoard, Any], object]] = {
    "take": lambda board, given: board.take(given),
    "read": lambda board, given: board.read(given),
    "cursor": lambda board, given: board.cursor(given),
    "raise_flag": lambda board, given: board.raise_flag(given, "nudge", "why"),
    "clear_flag": lambda board, given: board.clear_flag(given),
}


@pytest.mark.parametrize("given", [42, None, UUID(int=7)], ids=["int", "None", "UUID"])
@pytest.mark.parametrize("method", ASKING)
def test_an_id_that_is_no_text_is_refused_in_words(method: str, given: Any) -> None:
    with pytest.raises(TypeError, match=r"^trajectory_id: expected text, got .*; spans have an id as str\(id\)$"):
        ASKING[method](FlagBoard(), given)
