"""A true sentence model: the real fastembed package with real weights changes verdicts for the better.

The weights are found in the folder that ``TRAJECTORY_GUARD_TEST_MODEL`` names, else beside the repository, in
``../shared/models/all-minilm-l6-v2``; without either, or without fastembed, these tests are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import DATA, first_level, lines, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.policy import Level
from trajectory_guard.core.similarity import Relation, compare, normalize
from trajectory_guard.core.similarity.calibration import settler
from trajectory_guard.core.similarity.cascade import Settler
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings, prepare

BESIDE = Path(__file__).parents[3] / "shared" / "models" / "all-minilm-l6-v2"
FOLDER = Path(os.environ.get("TRAJECTORY_GUARD_TEST_MODEL", BESIDE))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="TRAJECTORY_GUARD_TEST_MODEL names no folder with a sentence model"),
    pytest.mark.skipif(find_spec("fastembed") is None, reason="the extra 'semantic' is not installed"),
]
REWORDED = (
    "how do I rotate the signing key of the gateway",
    "replacing the gateway's signature key",
    "steps for changing the key that signs gateway requests",
    "renew the signing key used by the gateway",
    "procedure to swap out the gateway signing key",
)
OTHER_THINGS = (
    "how do I rotate the signing key of the gateway",
    "how do I revoke the signing key of the gateway",
    "who may read the audit log of the gateway",
    "price of the gateway per month",
    "how long are the logs of the gateway kept",
)


@pytest.fixture(scope="module")
def real() -> Settler:
    prepared = prepare(ModelSettings(path=str(FOLDER)))
    return settler(prepared.embed, prepared.calibration)


def searches(queries: tuple[str, ...], result: str = "No.") -> Iterator[StepRecord]:
    for at, query in enumerate(queries):
        yield record("ask_handbook", {"question": query}, result, t=100.0 + 3.0 * at)


def nudged(queries: tuple[str, ...], settle: Callable[[str, str], bool | None] | None) -> int | None:
    engine = Engine(settle=settle)
    state = engine.new_state("t")
    return first_level([engine.observe(state, step) for step in searches(queries)], Level.NUDGE)


def test_a_reworded_question_is_found_sooner_with_the_model(real: Settler) -> None:
    without, found = nudged(REWORDED, None), nudged(REWORDED, real.settle)
    assert found is not None
    assert without is None or found < without


def test_other_questions_on_one_topic_are_left_alone_with_the_model(real: Settler) -> None:
    assert nudged(OTHER_THINGS, real.settle) == nudged(OTHER_THINGS, None)


@pytest.mark.parametrize("name", ["similar_calls.jsonl", "similar_calls_own.jsonl"])
def test_the_model_finds_more_pairs_and_calls_none_the_same_wrongly(real: Settler, name: str) -> None:
    found = {True: [0, 0], False: [0, 0]}  # without and with the model, by label
    for pair in lines(DATA / name):
        if pair["cls"] == "poll":
            continue
        one, other = (normalize(pair["tool"], pair[side]) for side in ("a_args", "b_args"))
        relation = compare(one, other).relation
        asked = relation is Relation.MAYBE and bool(one.text and other.text)
        found[pair["label"] == 1][0] += relation is Relation.SAME
        found[pair["label"] == 1][1] += relation is Relation.SAME or (
            asked and real.settle(one.text, other.text) is True
        )
    assert found[True][1] > found[True][0]
    assert found[False] == [0, 0]


def test_a_text_in_another_language_is_not_put_to_a_model_that_was_calibrated_on_english(real: Settler) -> None:
    assert real.settle("opening hours of the library", "when is the library open") is not None
    assert real.settle("horario de la biblioteca", "cuándo abre la biblioteca") is None


def test_in_the_background_the_same_answers_come() -> None:
    background = BackgroundSettler(ModelSettings(path=str(FOLDER)))
    try:
        pair = ("opening hours of the library", "when is the library open")
        background.settle(*pair)
        for _ in range(600):
            if background.state == "ready":
                break
            background._thread.join(0.05)  # type: ignore[union-attr]  # it is a daemon that does not end: a pause
        assert background.state == "ready"
        background.settle(*pair)
        assert background.wait(30.0)
        assert background.settle(*pair) is not None
    finally:
        background.close()
