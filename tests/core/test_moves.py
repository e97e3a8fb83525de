"""Moves by one are repeated on purpose, whatever the tool says of the place where they were made."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level

MOVES = (
    ("keyboard", {"key": "ArrowRight"}, "Pressed ArrowRight on element slider[name=brightness] of the form"),
    ("press_key", {"key": "Down"}, "Key Down was pressed successfully in the active application window."),
    ("xdotool", {"key": "Page_Down"}, "Pressed Page_Down; the window 'Report.pdf - Reader' has the focus"),
    ("browser_scroll", {"direction": "down"}, "Scrolled the page down by one screen, the viewport has moved"),
)
NO_MOVES = (
    ("press_key", {"key": "Enter"}, "Key Enter was pressed successfully in the active application window, as asked."),
    ("press_key", {"key": "Down"}, "Cannot press Down: there is no window that has the focus at the moment."),
    ("go", {"direction": "right"}, "A wall of grey stone, and a lamp that has gone out long ago. Nobody is here."),
)


@pytest.mark.parametrize(("tool", "args", "result"), MOVES, ids=[case[0] for case in MOVES])
def test_moves_with_long_acknowledgements_are_repeated_on_purpose(tool: str, args: dict, result: str) -> None:
    assert first_level(evaluate([record(tool, args, result) for _ in range(10)])) is None


@pytest.mark.parametrize(("tool", "args", "result"), NO_MOVES, ids=["a button", "refused", "a view"])
def test_a_button_a_refusal_and_a_view_are_no_acknowledged_moves(tool: str, args: dict, result: str) -> None:
    verdicts = evaluate([record(tool, args, result) for _ in range(30)])
    assert first_level(verdicts, Level.NUDGE) in (2, 8)
    assert first_level(verdicts, Level.STOP) is not None
