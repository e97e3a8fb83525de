"""The next one of many in the words of the last: entries with an id, questions of a quiz, records typed into a form."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord

NAMES = [
    start + end
    for start in ("An", "Ber", "Cle", "Dor", "Em", "Fri", "Gre", "Han")
    for end in ("na", "to", "il", "ette", "us")
]
Call = tuple[str, dict[str, object], str]
Lap = Callable[[int, random.Random], list[Call]]


def steps_of(lap: Lap, laps: int = 40) -> list[StepRecord]:
    chance = random.Random(7)
    calls = [call for n in range(laps) for call in lap(n, chance)]
    return [record(tool, args, result, t=2.0 * at) for at, (tool, args, result) in enumerate(calls)]


def hexes(chance: random.Random, digits: int) -> str:
    return f"{chance.getrandbits(4 * digits):0{digits}x}"


def uuid(chance: random.Random) -> str:
    number = hexes(chance, 32)
    return f"{number[:8]}-{number[8:12]}-{number[12:16]}-{number[16:20]}-{number[20:]}"


CONFLICT = "CONFLICT (content): Merge conflict in package-lock.json\nerror: could not apply {}... bump deps"
RESOLVE = (
    "bash",
    {"command": "git checkout --theirs package-lock.json && git add -A"},
    "Updated 1 path from the index",
)
ENTRIES: dict[str, Lap] = {
    "jobs": lambda n, chance: [
        ("pop_job", {}, json.dumps({"job_id": uuid(chance)})),
        ("ack_job", {}, "ok"),
    ],
    "uploads": lambda n, chance: [
        ("get_next_upload", {}, json.dumps({"sha256": hexes(chance, 64)})),
        ("quarantine_upload", {}, "quarantined"),
    ],
    "transactions": lambda n, chance: [
        ("next_transaction", {}, json.dumps({"tx": "0x" + hexes(chance, 64)})),
        ("mark_transaction", {"flag": chance.choice(["clean", "suspicious"])}, "marked"),
    ],
    "orders, in German": lambda n, chance: [
        ("naechster_auftrag", {}, json.dumps({"auftrag": uuid(chance)})),
        ("auftrag_abschliessen", {}, "abgeschlossen"),
    ],
    "articles by their number": lambda n, chance: [
        ("scan_next", {}, f"EAN 40{chance.randint(10**9, 10**10)}"),
        ("set_quantity", {"qty": chance.randint(0, 3)}, "Quantity stored in inventory database table stock_2026."),
    ],
    "tickets by their number": lambda n, chance: [
        ("next_ticket", {}, f"Ticket #{chance.randint(10**4, 10**5)} opened"),
        ("set_priority", {"priority": chance.choice(["low", "high"])}, "Priority was saved."),
    ],
    "commits of a rebase": lambda n, chance: [
        ("bash", {"command": "git rebase --continue"}, CONFLICT.format(hexes(chance, 7))),
        RESOLVE,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_that_are_named_by_an_id_only_are_left_alone(name: str) -> None:
    assert first_level(evaluate(steps_of(ENTRIES[name]))) is None


SAME_ENTRY: dict[str, Lap] = {
    "no job, and the id of the request": lambda n, chance: [
        ("get_next_job", {}, json.dumps({"job": None, "request_id": uuid(chance)})),
        ("log", {"text": "No job yet"}, "ok"),
    ],
    "a closed queue, and the number of the error": lambda n, chance: [
        ("get_next_job", {}, f"The queue is paused by an administrator (ref {uuid(chance)})."),
        ("log_line", {"text": "checking"}, "ok"),
    ],
    "one job, delivered again and again": lambda n, chance: [
        ("pop_job", {}, json.dumps({"job_id": "781f9c58-d664-5fa9-e8a8-529f035efa25", "delivery_tag": uuid(chance)})),
        ("ack_job", {}, "ok"),
    ],
    "one commit that conflicts": lambda n, chance: [
        ("bash", {"command": "git rebase --continue"}, CONFLICT.format("1ab2c3d")),
        RESOLVE,
    ],
    "a session in a page of an error": lambda n, chance: [
        ("get_page", {"url": "/orders"}, f"Session expired. Session {uuid(chance)}. Please sign in again."),
        ("click", {"ref": "e3"}, "Clicked"),
    ],
    "a token that is of no use": lambda n, chance: [
        ("login", {"user": "ann"}, json.dumps({"access_token": (token := hexes(chance, 32))})),
        ("get_orders", {"token": token}, json.dumps({"error": "401 Unauthorized"})),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_ENTRY)
def test_ids_around_one_and_the_same_answer_are_no_entries(name: str) -> None:
    assert first_level(evaluate(steps_of(SAME_ENTRY[name])), Level.STOP) is not None


def choose(answers: list[str], replies: list[str]) -> Lap:
    return lambda n, chance: [("submit_answer", {"choice": chance.choice(answers)}, chance.choice(replies))]


QUIZZES: dict[str, Lap] = {
    "one reply": choose(list("ABCD"), ["Answer saved. Please go on with the next question."]),
    "verdicts": choose(list("ABCD"), ["Correct! Next question.", "Incorrect. Next question."]),
    "in Spanish": choose(["verdadero", "falso"], ["Guardado. Pase a la siguiente pregunta."]),
    "in German, in words": lambda n, chance: [
        ("submit_answer", {"answer": f"Die Stadt {NAMES[n]}"}, "Antwort gespeichert. Weiter mit der nächsten Frage.")
    ],
    "as an object": lambda n, chance: [
        ("answer", {"text": f"{NAMES[n]} is the name"}, json.dumps({"saved": True, "next": "question"}))
    ],
    "figures": lambda n, chance: [("submit_result", {"value": chance.randint(1, 9)}, "Stored, next exercise.")],
}  # fmt: skip


@pytest.mark.parametrize("name", QUIZZES)
def test_answers_to_one_question_after_the_other_are_no_claims_to_be_done(name: str) -> None:
    verdicts = evaluate(steps_of(QUIZZES[name]))
    assert first_level(verdicts, Level.STOP) is None
    assert {found.rule for verdict in verdicts if verdict for found in verdict.detections} <= {"same_call_same_result"}


CLAIMS: dict[str, Lap] = {
    "one answer": lambda n, chance: [("final_answer", {"answer": "42"}, "noted")],
    "in other words": lambda n, chance: [("submit", {"answer": f"It is {NAMES[n]}."}, "noted")],
    "refused, and to go on": lambda n, chance: [
        ("submit_answer", {"answer": NAMES[n]}, "Not accepted. Please go on working.")
    ],
    "one choice": lambda n, chance: [("submit_answer", {"choice": "B"}, "Saved.")],
    "two choices in turn": lambda n, chance: [("submit_answer", {"choice": "AB"[n % 2]}, "Saved.")],
    "guesses": lambda n, chance: [
        ("submit_answer", {"answer": NAMES[n % 3]}, "Incorrect. Use the next attempt wisely.")
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_to_be_done_that_end_nothing_are_found(name: str) -> None:
    verdicts = evaluate(steps_of(CLAIMS[name], 12))
    assert first_level(verdicts, Level.STOP) is not None
    assert first_level(verdicts, Level.NUDGE) in (2, 3, 4)


NEW = "### Page\n- URL: https://crm/x/new\n- Title: New customer\n- textbox name [ref=e13]\n- button Save [ref=e14]"
SAVED = "### Page\n- URL: https://crm/x\n- Title: Customers\n- Saved.\n- button New [ref=e12]"
GUEST = "Screen: Add guest | Field: Name | Button: Done"
ADDED = "Navigated to https://x/members. Page title: Members. The member was added successfully to the list."


def customer(name: str) -> list[Call]:
    return [
        ("browser_click", {"ref": "e12"}, NEW),
        ("browser_type", {"ref": "e13", "text": name}, NEW),
        ("browser_click", {"ref": "e14"}, SAVED),
    ]


def field(value: str, page: str) -> list[Call]:
    return [("fill", {"selector": "#field", "value": value}, "filled"), ("click", {"selector": "#go"}, page)]


RECORDS: dict[str, Lap] = {
    "members": lambda n, chance: field(f"{NAMES[n]}@x.org", ADDED),
    "customers, with pages": lambda n, chance: customer(NAMES[n]),
    "guests, with screens": lambda n, chance: [
        ("tap", {"id": "add"}, GUEST),
        ("type_text", {"text": NAMES[n]}, GUEST),
        ("tap", {"id": "done"}, "Screen: Guests | Button: Add | Toast: Guest added"),
    ],
    "tasks, with a key": lambda n, chance: [
        ("type", {"selector": "#task", "text": f"call {NAMES[n]}"}, "typed"),
        ("press", {"key": "Enter"}, "Page: Tasks. One task was added to the list. The field is empty again."),
    ],
    "customers, in German": lambda n, chance: [
        ("klick", {"feld": "neu"}, "Seite: Neuer Kunde. Feld: Name. Knopf: Speichern."),
        ("fill", {"field": "name", "value": NAMES[n]}, "ausgefüllt"),
        ("click", {"button": "speichern"}, "Seite: Kunden. Der Kunde wurde gespeichert. Knopf: Neu."),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_records_that_are_entered_one_by_one_are_not_stopped(name: str) -> None:
    assert first_level(evaluate(steps_of(RECORDS[name])), Level.STOP) is None


REFUSED: dict[str, Lap] = {
    "one value that is never taken": lambda n, chance: field(
        "ann@x.org", "Page: New member. Please fill in all the fields of this form."
    ),
    "one customer, saved again": lambda n, chance: customer("Anna"),
    "passwords": lambda n, chance: field(
        f"{NAMES[n]}123", "Page: Login. The user name or the password is wrong. Button: Log in."
    ),
    "passwords, and a page that stays": lambda n, chance: [
        ("browser_type", {"ref": "e13", "text": f"{NAMES[n]}123"}, "Page: Login | Field: password | Button: Log in"),
        ("browser_click", {"ref": "e14"}, "Page: Login | Field: password | Button: Log in"),
    ],
    "numbers that are invalid": lambda n, chance: field(
        f"DE{chance.randint(10**9, 10**10)}", "Page: Account. The IBAN is invalid. Button: Save."
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_texts_that_a_form_never_takes_are_stopped(name: str) -> None:
    assert first_level(evaluate(steps_of(REFUSED[name])), Level.STOP) is not None


def test_a_page_in_other_words_is_nudged_whatever_is_entered() -> None:
    lap: Lap = lambda n, chance: field(hexes(chance, 6), "Page: Verification. Enter the code that you see. Button: Go.")  # noqa: E731
    assert first_level(evaluate(steps_of(lap)), Level.NUDGE) is not None


def test_the_newest_entry_is_saved_with_the_state() -> None:
    steps = steps_of(RECORDS["customers, with pages"])
    engine = Engine(EngineSettings())
    state = engine.new_state("t")
    verdicts = []
    for step in steps:
        verdicts.append(engine.observe(state, step))
        state = engine.load_state(state.to_bytes())
    assert verdicts == evaluate(steps)
