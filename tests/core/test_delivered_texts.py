"""A short text that comes back with a hand-over is work if it says something new, and not if it passes the work on."""

from __future__ import annotations

import pytest

from tests.helpers import record
from trajectory_guard.core.content.delivery import delivered
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.steps import Delivered

BEFORE = [
    "How many people live in these capitals?",
    "Rome: 2.8 million people.",
    "Draft v3 is ready.",
    "Attempt 4: busy.",
]
AGENTS = {"billing", "support", "transfer", "to"}


@pytest.mark.parametrize(
    ("answer", "request_text"),
    [
        ("Berlin has 3.7 million.", ""),
        ("Rome: 2.9 million people.", ""),
        ("42", ""),
        ("Mail to the landlord sent.", ""),
        ("Marie Curie", ""),
        ("Der Himmel ist blau.", ""),
        ("天空是蓝色的", ""),
        ("दिल्ली में बारिश", ""),
        ("சேலத்தில் மேகம்", ""),
        ("ঢাকায় বৃষ্টি", ""),
        ("عدد سكان برلين ٣٫٧ مليون", ""),
        ("Yes.", "Is Berlin a capital?"),
        ("No, it is not.", "Is invoice 4711 paid?"),
        ("No.", "Is the lamp in stock?"),
    ],
)
def test_a_fact_is_work(answer: str, request_text: str) -> None:
    assert delivered(answer, "", request_text, BEFORE, AGENTS) is Delivered.RESULT


@pytest.mark.parametrize(
    ("answer", "request_text"),
    [
        ("", ""),
        ("Rome: 2.8 million people.", ""),
        ("I found nothing.", ""),
        ("That is a question for billing.", ""),
        ("Sorry, please ask somebody else.", ""),
        ("Draft v4 is ready.", ""),
        ("Attempt 5: about the invoice again.", ""),
        ("Das gehört zur Buchhaltung, bitte weiterleiten.", ""),
        ("我无法回答", ""),
        ("わかりません。", ""),
        ("No es mi responsabilidad.", ""),
        ("I cannot help.", "The customer was charged twice."),
        ("Yes.", ""),
    ],
)
def test_a_reason_to_pass_the_work_on_is_none(answer: str, request_text: str) -> None:
    assert delivered(answer, "", request_text, [*BEFORE, "Yes."], AGENTS) is not Delivered.RESULT


@pytest.mark.parametrize(
    ("answer", "request_text", "brings"),
    [
        ("You can pause it under settings.", "", Delivered.WORDS),
        ("No, cotton is not magnetic.", "", Delivered.WORDS),
        ("Approved.", "Now the kitchen.", Delivered.WORDS),
        ("Draft v4 is ready.", "", Delivered.WORDS),
        ("Yes.", "Please ask the team again.", Delivered.NOTHING),
        ("Sorry, please ask the support team.", "", Delivered.NOTHING),
        ("Rome: 2.8 million people.", "", Delivered.NOTHING),
    ],
)
def test_new_words_that_may_pass_the_work_on_prove_neither(answer: str, request_text: str, brings: Delivered) -> None:
    assert delivered(answer, "", request_text, [*BEFORE, "Yes.", "Approved."], AGENTS) is brings


@pytest.mark.parametrize(
    ("remark", "is_work"),
    [
        ("Hotel found for 89 EUR.", True),
        ("Booked with Lufthansa.", True),
        ("This looks like a card problem.", False),
        ("Es geht um die Rechnung.", False),
        ("Over to Support.", False),
    ],
)
def test_words_beside_a_hand_over_are_work_where_they_hold_a_figure_or_a_name(remark: str, is_work: bool) -> None:
    assert (delivered("", remark, "", BEFORE, AGENTS) is Delivered.RESULT) is is_work


def test_a_clock_in_a_sentence_that_was_said_before_is_no_figure() -> None:
    said = "It is 10:04:12, the archive has not replied."
    assert delivered(said.replace("04:12", "09:37"), "", "", [said], ()) is Delivered.NOTHING


def test_what_came_back_is_saved_with_the_state() -> None:
    engine = Engine()
    state = engine.new_state("t")
    for at in range(3):
        engine.observe(state, record("transfer_to_billing", {"case": at}, "Transferred.", t=float(at)))
    state.note_delivery(Delivered.NOTHING)
    loaded = engine.load_state(state.to_bytes())
    assert (loaded.idle_at, loaded.worked_at, loaded.handed_at) == (3, -1, 2)
    state.note_delivery(Delivered.RESULT)
    assert engine.load_state(state.to_bytes()).worked_at == 3
    state.note_delivery(Delivered.WORDS)
    assert engine.load_state(state.to_bytes()).spoke_at == 3


@pytest.mark.parametrize(("idle", "first"), [(True, 2), (False, 8)], ids=["nothing came back", "unknown"])
def test_a_hand_over_in_a_row_is_likely_a_loop_once_nothing_came_back(idle: bool, first: int) -> None:
    engine = Engine()
    state, nudged = engine.new_state("t"), list[int]()
    for at in range(10):
        if idle:
            state.note_delivery(Delivered.NOTHING)
        verdict = engine.observe(state, record("transfer_to_billing", {}, "Transferred.", t=float(at)))
        if verdict is not None and verdict.nudge:
            nudged.append(at)
    assert nudged[0] == first
