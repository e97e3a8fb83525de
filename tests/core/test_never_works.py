"""A tool that does not work any more, whatever else does; and what only looks like one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

REASONS = {
    "English": ("the total in GWh is missing", "no table is cited", "the largest change is not named", "too long"),
    "German": ("die Summe in GWh fehlt", "keine Tabelle ist genannt", "die größte Änderung fehlt ganz", "zu lang"),
    "Russian": (
        "нет итоговой суммы",
        "не указана ни одна таблица",
        "не названо крупнейшее изменение",
        "слишком длинно",
    ),
}
PLACES = [
    "orders",
    "customers",
    "invoices",
    "stock",
    "prices",
    "carts",
    "users",
    "roles",
    "taxes",
    "refunds",
    "labels",
    "depots",
    "routes",
    "fleets",
]


def numbered(steps: Iterator[StepRecord]) -> list[StepRecord]:
    return [one._replace(step_id=f"{at + 1:016x}", timestamp=at * 5.0) for at, one in enumerate(steps)]


def refused(language: str, count: int = 24) -> Iterator[StepRecord]:
    """A grader that refuses every version for some of the same reasons, in another order each time."""
    dice = random.Random(language)
    for at in range(count):
        yield record(
            "write_file", {"path": "report.md", "content": f"draft number {at}, {dice.random()}"}, f"{at * 37} bytes"
        )
        reasons = dice.sample(REASONS[language], 3)
        text = f"REJECTED ({dice.randrange(30, 45)}/100, review {dice.getrandbits(32):08x}): {'; '.join(reasons)}"
        yield record("submit", {"path": "report.md"}, text, "error")


def connections(count: int = 24) -> Iterator[StepRecord]:
    """A host that cannot be reached in any of four ways, and looks at other things in between."""
    dice = random.Random(1)
    ways = (
        "ssh: connect to host db5 port 2222: Connection was refused by the other side",
        "kex_exchange_identification: the session was closed by the remote side",
        "the host key of db5 has changed and strict checking was asked for",
        "bastion: Permission denied (publickey) for this session of the user",
    )
    for at in range(count):
        yield record(
            "shell", {"command": f"ssh -o Port={2200 + at} -J jump{at % 3} db5 uptime"}, dice.choice(ways), "error"
        )
        yield record("shell", {"command": f"getent hosts jump{at}"}, f"10.20.{at}.{dice.randrange(200)} jump{at}")


@pytest.mark.parametrize("language", REASONS)
def test_versions_that_are_refused_for_the_same_reasons_are_nudged(language: str) -> None:
    assert first_level(evaluate(numbered(refused(language))), Level.NUDGE) is not None


def test_a_program_that_fails_in_known_ways_is_nudged_although_others_work() -> None:
    assert first_level(evaluate(numbered(connections())), Level.NUDGE) is not None


def rules(steps: Iterator[StepRecord]) -> set[str]:
    return {it.rule for one in evaluate(numbered(steps)) if one is not None for it in one.detections}


def improving(count: int = 30) -> Iterator[StepRecord]:
    for at in range(count):
        yield record(
            "edit", {"file": f"src/{PLACES[at % 14]}.ts", "text": f"fix {at} of the types"}, f"file {at} edited"
        )
        yield record(
            "shell",
            {"command": "tsc --noEmit"},
            f"src/{PLACES[at % 14]}.ts: not assignable. Found {214 - at * 7} errors",
            "error",
        )


def one_after_the_other(count: int = 30) -> Iterator[StepRecord]:
    """Each failure is another one: it names what no failure before it has named."""
    dice = random.Random(2)
    for _ in range(count):
        name = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=7))
        other = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=7))
        yield record("edit", {"file": "main.tex", "text": f"use {name}"}, f"main.tex: {name}")
        yield record(
            "shell", {"command": "latexmk main.tex"}, f"Undefined control sequence {other} near {name}ing", "error"
        )


def now_and_then(count: int = 40) -> Iterator[StepRecord]:
    for at in range(count):
        failed = at % 5
        yield record(
            "deploy",
            {"to": "staging"},
            "the health check failed in zone b" if failed else f"release {at} is live",
            "error" if failed else "success",
        )
        yield record("edit", {"file": f"{PLACES[at % 14]}.yaml", "text": f"replicas {at}"}, f"{at} lines written")


def entries(count: int = 30) -> Iterator[StepRecord]:
    """A list of which every entry fails in one of two ways."""
    dice = random.Random(3)
    for at in range(count):
        word = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=9))
        yield record(
            "fetch_page",
            {"url": f"https://{word}.example/{PLACES[at % 14]}"},
            ("404 page is gone", "the name does not resolve")[at % 2],
            "error",
        )
        yield record("note", {"text": f"{word} is dead, entry {at}"}, f"noted as {at * 31}")


@pytest.mark.parametrize("work", [improving, one_after_the_other, now_and_then, entries], ids=lambda one: one.__name__)
def test_what_moves_on_is_none(work: object) -> None:
    assert "never_works" not in rules(work())  # type: ignore[operator]


def test_it_leads_to_nudges_only() -> None:
    verdicts = [one for one in evaluate(numbered(refused("English", 11))) if one is not None]
    assert all(one.level is not Level.STOP for one in verdicts)
