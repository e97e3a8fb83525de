"""Figures that count the calls are no part of an answer; figures that count what was done are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.call_counters import MAX_COUNTERS, Counters, without_counters
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

Call = tuple[str, dict[str, object], str]


def steps_of(calls: Sequence[Call]) -> list[StepRecord]:
    return [record(tool, args, result, t=2.0 * at) for at, (tool, args, result) in enumerate(calls)]


def answers(calls: Sequence[Call]) -> list[str | None]:
    """The results as the engine reads them."""
    known: Counters = ()
    read: list[str | None] = []
    steps = steps_of(calls)
    for at, step in enumerate(steps):
        one, known = without_counters(step, known, at, partial(_is_among, steps[:at]))
        read.append(one.result)
    assert len(known) <= MAX_COUNTERS
    return read


def _is_among(steps: Sequence[StepRecord], step: StepRecord) -> bool:
    return any((one.tool_name, one.tool_args_hash) == (step.tool_name, step.tool_args_hash) for one in steps)


def levels(calls: Sequence[Call]) -> set[Level]:
    return {verdict.level for verdict in evaluate(steps_of(calls)) if verdict is not None}


FRAMES = {
    "a step of many": lambda tool, at, text: f"Step {at + 1} of 80\n{text}",
    "a header": lambda tool, at, text: f"[tool={tool} id={at + 17} status=ok]\n{text}",
    "what is left": lambda tool, at, text: f"{text}\n\n({90 - at} calls left in this session)",
    "with a clock": lambda tool, at, text: f"[10:{at:02d}:{7 * at % 60:02d}] turn {at}\n{text}",
    "a member": lambda tool, at, text: f'{{"turn": {at}, "observation": "{text}"}}',
    "in another language": lambda tool, at, text: f"第 {at} 步\n{text}",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_loop_is_seen_through_a_counter(frame):
    tools = ("search_flights", "search_trains")
    calls = [
        (tools[at % 2], {"to": "Oslo"}, frame(tools[at % 2], at, "There is nothing on that day, try another one."))
        for at in range(24)
    ]
    assert Level.STOP in levels(calls)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_work_behind_a_counter_goes_on(frame):
    tools = ("create_contact", "add_note", "set_reminder")
    names = ("Ada", "Ben", "Carla", "Dana", "Emil", "Fatma", "Gil", "Hana", "Ines", "Jon")
    calls = [
        (tools[at % 3], {"name": names[at // 3]}, frame(tools[at % 3], at, "Your change was saved."))
        for at in range(30)
    ]
    assert levels(calls) <= {Level.OBSERVE}


def test_pages_that_one_call_turns_are_no_calls_that_are_counted():
    calls: list[Call] = [("next_page", {}, f"Page {at} of 80\nThere are no entries for you here.") for at in range(20)]
    assert answers(calls) == [result for _, _, result in calls]


def test_entries_that_figures_tell_apart_are_not_the_calls():
    calls: list[Call] = [
        ("find_row", {"row": at}, f"Row {at} of 80\nThere is no value in this row, it is empty.") for at in range(20)
    ]
    assert answers(calls) == [result for _, _, result in calls]


def test_what_is_left_of_an_action_is_no_bare_acknowledgement():
    labels = ("cat", "dog", "bird")
    calls: list[Call] = [
        ("label_next", {"label": labels[at % 3]}, f"Image {at} of 400\nLabel saved.") for at in range(40)
    ]
    assert answers(calls) == [result for _, _, result in calls]
    assert Level.STOP not in levels(calls)


@pytest.mark.parametrize("position", ["north", "south"])
def test_a_line_that_says_more_than_the_count_stays(position):
    calls: list[Call] = [
        ("walk", {"to": "abcdef"[at % 6]}, f"turn {at} hp={at * 3 % 7} {position}\nA wall is in front of you.")
        for at in range(20)
    ]
    assert answers(calls) == [result for _, _, result in calls]


def test_a_figure_that_jumps_is_no_counter():
    scores = (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15)
    calls: list[Call] = [
        ("tune", {"prompt": "abcdefghijkl"[at]}, f"score {score}\nThe answers are rated by the judge.")
        for at, score in enumerate(scores)
    ]
    assert answers(calls) == [result for _, _, result in calls]


def test_a_counter_that_is_all_there_is_stays():
    calls: list[Call] = [("find_one" if at % 2 else "find_all", {}, f'{{"turn": {at}}}') for at in range(20)]
    assert answers(calls) == [result for _, _, result in calls]


def test_a_counter_is_known_after_a_restart():
    engine = Engine()
    frame = FRAMES["a header"]
    calls: list[Call] = [
        (tool, {"q": "x"}, frame(tool, at, "Nothing was found for it, in none of the books."))
        for at in range(14)
        for tool in (("find_title", "find_author")[at % 2],)
    ]
    whole, saved = engine.new_state("t"), engine.new_state("t")
    for step in steps_of(calls):
        saved = engine.load_state(saved.to_bytes())
        first, second = engine.observe(whole, step), engine.observe(saved, step)
        assert (first and first.level) == (second and second.level)
    assert whole.to_bytes() == saved.to_bytes()


COUNTED = {
    "credits": lambda at: f"Order 77: shipped, 33.12 EUR\nRemaining credits: {4997 - at}",
    "a sentence": lambda at: f"Order 77 is shipped. You have {4997 - at} credits left.",
    "a member": lambda at: f'{{"order": {{"id": 77, "status": "shipped"}}, "usage": {{"calls_today": {at + 12}}}}}',
    "by two": lambda at: f"Order 77 is shipped. Balance: {9000 - 2 * at} EUR of API credit.",
    "views": lambda at: f"Order 77 is shipped.\nThis page was viewed {1200 + at} times.",
    "in another language": lambda at: f"注文 77 は発送済みです。\n残り {4997 - at} 回",
}


@pytest.mark.parametrize("answer", COUNTED.values(), ids=COUNTED)
def test_one_look_up_made_for_ever_is_found_although_each_look_is_counted(answer):
    calls: list[Call] = [("get_order", {"id": "77"}, answer(at)) for at in range(240)]
    nudged = first_level(evaluate(steps_of(calls)), Level.NUDGE)
    assert nudged is not None
    assert nudged < 84
    assert Level.STOP in levels(calls)


@pytest.mark.parametrize("answer", COUNTED.values(), ids=COUNTED)
def test_one_action_made_for_ever_is_found_later(answer):
    calls: list[Call] = [("update_order", {"id": "77", "status": "open"}, answer(at)) for at in range(100)]
    nudged = first_level(evaluate(steps_of(calls)), Level.NUDGE)
    assert nudged is not None
    assert nudged > 60


@pytest.mark.parametrize("whole", ["{} of 60 files are indexed", "{} %", '{{"done": {}, "total": 60}}'])
def test_a_share_that_grows_evenly_is_progress(whole):
    calls: list[Call] = [("get_index", {"name": "docs"}, whole.format(at)) for at in range(60)]
    assert levels(calls) <= {Level.OBSERVE}
