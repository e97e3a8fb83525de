"""Work in batches: the same call, answered by the same words, while more is left of what it works on."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.onward import remains
from trajectory_guard.core.policy import Level

BATCHES = [
    ("bash", {"command": "node migrate.js --batch 500"}, "Migrated 500 users. There are more users to migrate."),
    ("bash", {"command": "python migrate.py"}, "Starting batch\nMigrated 500 users\nMore users remain: yes\nDone"),
    ("bash", {"command": 'psql -c "CALL move_batch(1000)"'}, "NOTICE:  moved 1000 rows, more rows remain\nCALL"),
    ("delete_objects", {"bucket": "old"}, '{"deleted": 1000, "is_truncated": true}'),
    ("migrate_batch", {}, '{"result": {"migrated": 500}, "cursor": {"more": true}}'),
    ("read_next_block", {}, '{"bytes": 65536, "eof": false}'),
    ("vaciar_papelera", {"lote": 50}, "Se borraron 50 correos; quedan más."),
    ("archive_batch", {"size": 100}, "100 Belege archiviert, weitere verbleiben."),
    ("清理批次", {"数量": 200}, "已清理200条，还有更多。"),
    ("一括移行", {"件数": 300}, "300件を移行しました。残りがあります。"),
]


@pytest.mark.parametrize(("tool", "args", "result"), BATCHES)
def test_forty_batches_are_not_stopped(tool: str, args: dict[str, object], result: str) -> None:
    verdicts = evaluate([record(tool, args, result) for _ in range(40)])
    nudges = [one for one in verdicts if one is not None and one.nudge]
    assert first_level(verdicts, Level.STOP) is None
    assert len(nudges) <= 3
    assert all("what is left gets less" in one.nudge for one in nudges if one.nudge)


@pytest.mark.parametrize(
    "text",
    [
        "Wrong code. 2 attempts remain.",
        "Done. 0 rows remain.",
        "Moved 20 rows. No more rows.",
        "Migrated 500 users. Remaining: 0",
        '{"deleted": 1000, "is_truncated": false}',
        '{"temperature": 21, "remaining": 499}',
        "Prøv igjen om 5 minutter.",
        "saved",
    ],
)
def test_nothing_is_left_of_these(text: str) -> None:
    assert not remains(text)


def test_a_page_that_says_how_many_are_left_is_no_batch() -> None:
    """It is clicked in vain, however many seats are left."""
    page = "Flight LH 7, 2 seats remaining.\n[Select] [Back]"
    assert (
        first_level(evaluate([record("click", {"element": "Select"}, page) for _ in range(40)]), Level.STOP) is not None
    )


def test_a_batch_that_never_ends_is_stopped_in_the_end() -> None:
    tool, args, result = BATCHES[0]
    verdicts = evaluate([record(tool, args, result) for _ in range(400)])
    assert first_level(verdicts, Level.STOP) is not None


@pytest.mark.parametrize(
    ("move", "args"),
    [("swipe", {"direction": "left"}), ("raise_memory", {"job": "etl", "by_mb": 256}), ("scroll", {"dy": 400})],
)
def test_a_look_that_fails_after_each_move_is_given_time(move: str, args: dict[str, object]) -> None:
    """A phone has several pages of apps, and the page that is looked for is none of the first nine."""
    steps = []
    for _ in range(10):
        steps.append(record("tap", {"text": "Settings"}, "Element with text 'Settings' not found on screen", "error"))
        steps.append(record(move, args, "ok"))
    verdicts = evaluate(steps)
    assert first_level(verdicts, Level.STOP) is None
    assert first_level(verdicts, Level.NUDGE) is not None


def test_a_look_that_fails_after_an_action_in_place_is_not() -> None:
    steps = []
    for _ in range(14):
        steps.append(record("run_cell", {"id": 7}, "NameError: name 'df' is not defined", "error"))
        steps.append(record("restart_kernel", {}, "ok"))
    assert first_level(evaluate(steps), Level.STOP) is not None


def moves_of_hanoi(count: int, source: str, target: str, spare: str) -> list[tuple[str, str]]:
    """From where to where each disk is moved."""
    if not count:
        return []
    before, behind = moves_of_hanoi(count - 1, source, spare, target), moves_of_hanoi(count - 1, spare, target, source)
    return [*before, (source, target), *behind]


@pytest.mark.parametrize("size", [5, 6, 7])
def test_the_moves_of_a_game_come_in_no_order(size: int) -> None:
    """The towers of Hanoi: six moves, each acknowledged, until the last disk is in its place."""
    moves = moves_of_hanoi(size, "A", "C", "B")
    verdicts = evaluate([record("move_disk", {"from": one, "to": other}, "ok") for one, other in moves])
    assert first_level(verdicts, Level.STOP) is None


def test_the_page_of_a_wizard_shows_how_far_it_is() -> None:
    for frame in ("- text: Step {} of 40\n- button Next [ref=e9]", "Setup\nStep {}/40: choose a name\n[Next] [Back]"):
        steps = [record("browser_click", {"element": "Next", "ref": "e9"}, frame.format(at + 2)) for at in range(38)]
        assert first_level(evaluate(steps), Level.NUDGE) is None
