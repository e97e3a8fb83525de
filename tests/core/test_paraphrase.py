"""The same call in a row, answered by a model behind the tool in other words each time; and what only looks like it."""

from __future__ import annotations

import random

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.paraphrase import Vocabulary
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level

ENGLISH = (
    "Mercedes Sosa was born in Tucumán and became a renowned singer of Latin American folk music.",
    "She was known as the voice of the voiceless ones, and celebrated for her powerful voice.",
    "Her career spanned five decades, in which she received numerous awards.",
    "She performed in prestigious venues worldwide and was an ambassador for UNICEF.",
    "Sosa passed away in Buenos Aires after a long illness.",
)
GERMAN = (
    "Der Vertrag verlängert sich stillschweigend um ein weiteres Jahr.",
    "Eine Kündigung ist nur schriftlich und mit einer Frist von drei Monaten möglich.",
    "Über den Preis für das laufende Jahr sagt der Anhang nichts aus.",
    "Zuständig ist nach dem Vertrag das Gericht am Sitz des Anbieters.",
    "Weitere Auskünfte kann die Rechtsabteilung geben.",
)


def asked(answers: list[str]) -> list[Verdict | None]:
    call = {"request": "What is known of it?"}
    return evaluate([record("ask_search_agent", call, text, "success", t=6.0 * at) for at, text in enumerate(answers)])


def paraphrased(sentences: tuple[str, ...], times: int) -> list[str]:
    chance = random.Random(7)
    return [" ".join(chance.sample(sentences, len(sentences) - chance.randrange(2))) for _ in range(times)]


@pytest.mark.parametrize("sentences", [ENGLISH, GERMAN], ids=["English", "German"])
def test_one_question_that_is_answered_in_other_words_each_time_is_a_loop(sentences: tuple[str, ...]) -> None:
    verdicts = asked(paraphrased(sentences, 12))
    nudge = first_level(verdicts, Level.NUDGE)
    assert nudge is not None
    assert nudge <= 8


WORK = "The import is under way. The first part is done and the second one is waiting for its turn. "
PENDING = [f"part {name} of the archive" for name in ("alpha", "beta", "gamma", "delta", "eta", "iota", "kappa", "mu")]


@pytest.mark.parametrize(
    "answers",
    [
        [f"{WORK}So far {at * 1_250} rows of the table have been read without a mistake." for at in range(8)],
        [f"{WORK}At the moment the worker looks at {name}. Nothing else is to be said of it." for name in PENDING],
        [f"{WORK}Still to come: {', '.join(PENDING[at:])}. Nothing else is to be said of it." for at in range(8)],
    ],
    ids=["a figure moves", "a new word comes", "less and less is left"],
)
def test_a_report_of_work_under_way_is_no_paraphrase(answers: list[str]) -> None:
    assert first_level(asked(answers), Level.NUDGE, Level.STOP) is None


def test_the_vocabulary_stays_small() -> None:
    vocabulary = Vocabulary()
    for at in range(50):
        text = f"Number {at} is described once more. " + " ".join(paraphrased(ENGLISH, 1))
        vocabulary, is_paraphrase = vocabulary.add(text)
        assert not is_paraphrase  # each has a number of its own
    assert len(vocabulary.words) <= 8 * 192
    assert vocabulary.add(ENGLISH[0]) == (Vocabulary(), False)  # a sentence alone is no prose
