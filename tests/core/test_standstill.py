"""A stretch of steps in which nothing new is asked and nothing new comes back, and what is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings

FLAGS = ("fix", "force", "dry", "all")
LANGUAGES = {
    "English": "{} packages looked at; no fix is available for four of them",
    "German": "{} Pakete geprüft; für vier davon gibt es keine Korrektur",
    "Greek": "Ελέγχθηκαν {} πακέτα· για τέσσερα δεν υπάρχει διόρθωση",
    "Japanese": "{}個のパッケージを確認。うち四つには修正版がない",
    "Arabic": "فُحصت {} حزمة، ولا إصلاح لأربع منها",
}


def findings(steps: list[Any], rule: str = "standstill") -> list[int]:
    """Steps, from 0, at which the rule fires."""
    numbered = [one._replace(step_id=f"{at:016x}", timestamp=one.timestamp or at * 9.0) for at, one in enumerate(steps)]
    verdicts: list[Verdict | None] = evaluate(numbered)
    return [
        at
        for at, verdict in enumerate(verdicts)
        if verdict is not None and any(one.rule == rule for one in verdict.detections)
    ]


def combinations(answer: str = LANGUAGES["English"], seed: int = 1, count: int = 40) -> Iterator[Any]:
    """Flags of a command in ever other combinations; the answers differ in a figure that goes up and down."""
    chance = Random(seed)
    for _ in range(count):
        one, other = chance.choice(FLAGS), chance.choice(FLAGS)
        yield record("audit", {"command": f"audit --{one} --{other}"}, answer.format(chance.randint(1_208, 1_214)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_flags_of_a_command_in_ever_other_combinations(language: str) -> None:
    assert findings(list(combinations(LANGUAGES[language])))


@given(st.integers(0, 10_000))
def test_whatever_the_order(seed: int) -> None:
    assert findings(list(combinations(seed=seed)))


def test_pairs_of_known_words_are_the_cells_of_a_table() -> None:
    colours, clothes = ("red", "blue", "grey", "green", "black", "white"), ("shirt", "coat", "scarf", "dress", "belt")
    names = [*colours, *clothes]
    steps = [
        record("stock", {"colour": one, "kind": other}, "There are 7 of them in the store")
        for one, other in pairwise(names)
    ]
    for colour in colours:
        steps += [
            record("stock", {"colour": colour, "kind": one}, "There are 7 of them in the store") for one in clothes
        ]
    assert findings(steps) == []


def test_a_word_that_was_not_asked_for_before_is_new() -> None:
    steps = [record("audit", {"command": f"audit {word}"}, LANGUAGES["English"].format(1_210)) for word in WORDS]
    assert findings(steps) == []


WORDS = [
    "lamp",
    "chair",
    "map",
    "tool",
    "paint",
    "coat",
    "soup",
    "tea",
    "wood",
    "iron",
    "glass",
    "rope",
    "cloth",
    "sand",
    "salt",
    "clay",
    "wax",
    "ink",
    "oil",
    "fur",
]


def test_a_figure_that_was_not_asked_for_before_is_new() -> None:
    """Tickets of a queue that are known by their number only, and are all closed with the same words."""
    steps = []
    for number in range(4_711, 4_735):
        steps.append(record("get_ticket", {"id": number}, f"Ticket {number}: the customer asks where the parcel is"))
        steps.append(record("close_ticket", {"id": number}, f"Ticket {number} was closed and the customer informed"))
    assert findings(steps) == []


def test_a_sentence_that_was_not_said_before_is_new() -> None:
    steps = [
        record("look", {"at": FLAGS[at % 4]}, f"There is some {word} on the shelf here")
        for at, word in enumerate(WORDS)
    ]
    assert findings(steps) == []


def tuned(answer: Callable[[int], str]) -> list[Any]:
    """Knobs that are turned to and fro, with what is said each time."""
    return [record("tune", {"knob": FLAGS[at * 7 % 4], "to": FLAGS[at % 3]}, answer(at)) for at in range(30)]


@pytest.mark.parametrize("step", [3, -2, 0.5])
def test_a_figure_that_goes_one_way_is_progress(step: float) -> None:
    assert findings(tuned(lambda at: f"The deviation of the beam is {500 + step * at} now")) == []


def test_a_figure_that_counts_the_tries_is_none() -> None:
    assert findings(tuned(lambda at: f"Try {at}: the beam is still out of focus"))


# Found: a figure that goes one way, in a row below one that varies, was compared with that as well.
@pytest.mark.parametrize("answer", ["({0}, {1})", "beam {0}\nbeam {1}", '{{"rows": [{{"n": {0}}}, {{"n": {1}}}]}}'])
def test_a_figure_is_compared_with_that_of_its_own_row(answer: str) -> None:
    noise = Random(5)
    rows = [answer.format(round(noise.uniform(3, 900), 2), 500 + 3 * at) for at in range(30)]
    assert findings(tuned(lambda at: f"Deviations of the beams: {rows[at]}")) == []


def test_a_place_that_is_walked_to_by_one_is_progress() -> None:
    x = y = 0
    steps = []
    chance = Random(4)
    for _ in range(40):
        way = chance.choice(("north", "east", "south", "west"))
        x, y = x + (way == "east") - (way == "west"), y + (way == "north") - (way == "south")
        steps.append(record("go", {"way": way}, f"You walked on; x: {x}\ny: {y}\nThe passage goes on as before"))
    assert findings(steps) == []


def test_readings_of_one_call_are_a_wait() -> None:
    chance = Random(5)
    steps = [
        record("read", {"of": "tank"}, f"The water in the tank has {chance.randint(60, 70)} degrees") for _ in range(30)
    ]
    assert findings(steps) == []


def test_pauses_are_a_wait() -> None:
    steps = [one._replace(timestamp=at * 90.0) for at, one in enumerate(combinations())]
    assert findings(steps) == []


def test_statements_that_change_a_database_are_none() -> None:
    query = "delete from sessions where expires < now() limit 10000"
    steps = [record("run_sql", {"query": query}, f"Query OK, 10000 rows affected (0.{at} sec)") for at in range(40)]
    assert findings(steps) == []


def test_one_message_of_many_calls_is_one_turn() -> None:
    steps = [one._replace(batch="1") for one in combinations()]
    assert findings(steps) == []


def test_unknown_calls_and_unknown_answers_may_be_new() -> None:
    steps = list(combinations())
    assert findings([one._replace(args=None, tool_args_hash=None) for one in steps]) == []
    assert findings([one._replace(result=None, state_snapshot_hash=None) for one in steps]) == []


ALONE = {"TYPE_II_INSANITY": 1.5} | {
    f"TYPE_{one}": 0.0 for one in ("I_STUTTER", "III_PHANTOM", "IV_PINGPONG", "V_ERROR_STREAK", "VI_MONOLOGUE")
}


def verdicts_alone(steps: list[Any]) -> list[Verdict | None]:
    numbered = [one._replace(step_id=f"{at:016x}", timestamp=at * 9.0) for at, one in enumerate(steps)]
    return evaluate(numbered, EngineSettings(weights=ALONE))


def test_it_only_nudges_until_it_has_lasted_for_long() -> None:
    verdicts = verdicts_alone([*combinations(count=25), *combinations(seed=2, count=25), *combinations(seed=3)])
    long = [at for at, one in enumerate(verdicts) if one is not None and one.rule == "long_standstill"]
    nudge, stop = first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)
    assert nudge is not None
    assert stop is not None
    assert long[0] >= 32
    assert nudge < long[0] < stop


def test_a_word_that_is_new_now_and_then_puts_the_stop_off() -> None:
    steps = list(combinations(count=100))
    for at, word in enumerate(("lamp", "chair", "map", "tool", "paint")):
        steps[20 * at + 19] = record("audit", {"command": f"audit --{word}"}, LANGUAGES["English"].format(1_210))
    verdicts = verdicts_alone(steps)
    assert first_level(verdicts, Level.NUDGE) is not None
    assert first_level(verdicts, Level.STOP) is None


def test_a_round_of_calls_without_arguments_is_nudged_only() -> None:
    """The shelves of a library look alike, and the robot walks along them."""
    steps = [
        record("forward", {}, "ok")
        if at % 2
        else record("read_label", {}, "the label was read, and the book is in its place")
        for at in range(120)
    ]
    assert findings(steps, "long_standstill") == []


@pytest.mark.parametrize(
    "answer",
    [
        "Step {} of 90 done, the arm is at rest.",
        "第{}/90步完成，机械臂处于静止状态，一切正常。",
        "Schritt {} von 90 ist getan, der Arm ruht.",
    ],
)
def test_a_count_that_has_an_end_shows_how_far_the_work_is(answer: str) -> None:
    steps = [record("move", {"to": "ab"[at % 2]}, answer.format(at + 1)) for at in range(60)]
    assert findings(steps) == []


def test_a_counter_of_all_calls_is_nothing_new_though_not_every_answer_is_read() -> None:
    """An answer to a call with a new word is not read, so the counter of the next one has moved by two."""
    words = ["open", "push", "pull", "look at", "knock on", "listen at"]
    steps = []
    for at in range(60):
        command = f"{words[at // 3 % 6]} gate" if at % 3 == 0 else ("west", "east")[at % 3 - 1]
        said = ("The gate is locked.", "You are at the well.", "You are in the courtyard.")[at % 3]
        steps.append(record("act", {"command": command}, f"{said}\n(Moves: {at + 1}, Score: 5)"))
    assert findings(steps)


def test_calls_without_arguments_are_remembered_when_the_state_is_saved() -> None:
    """They ask for no word: the marks of the turns are all there is."""
    corners = ["abcd"[(at * at // 3 + at) % 4] for at in range(30)]
    steps = [
        record(
            f"peek{one}", {}, f"The lamp in corner {one} of the room is off, as it was before.", t=100.0 + at, dur=0.1
        )
        for at, one in enumerate(corners)
    ]
    engine = Engine()
    state, saved, found = engine.new_state("t"), engine.new_state("t"), 0
    for step in steps:
        verdict = engine.observe(state, step)
        assert engine.observe(saved, step) == verdict
        found += verdict is not None and any(one.rule == "standstill" for one in verdict.detections)
        saved = engine.load_state(saved.to_bytes())
    assert found
