"""A frame that no list knows is learned from the answers: ids, clocks and counters around them, whatever is called."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.frames import without_structure
from trajectory_guard.core.content.learned_frames import DEAD, NO_FRAME, Frame, without_learned_frame
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

Call = tuple[str, dict[str, object], str]
Wrap = Callable[[str, int, str, random.Random], str]


def hexes(dice: random.Random, length: int) -> str:
    return "".join(dice.choices("0123456789abcdef", k=length))


FRAMES: dict[str, Wrap] = {
    "gateway": lambda tool, at, text, dice: f"[gw-{hexes(dice, 6)} #{at + 40}] {text} (quota {900 - at}/1000)",
    "HTTP": lambda tool, at, text, dice: (
        f"HTTP/1.1 200 OK\nDate: Sun, 13 Jul 2025 10:{at % 60:02d}:11 GMT\nX-Call: {hexes(dice, 16)}\n\n{text}"
    ),
    "CSV": lambda tool, at, text, dice: f'seq,id,tool,text\n{10 * at + 1},{hexes(dice, 8)},{tool},"{text}"',
    "Java": lambda tool, at, text, dice: f"Reply{{id={hexes(dice, 8)}, tool={tool}, body='{text}'}}@{hexes(dice, 7)}",
    "Lisp": lambda tool, at, text, dice: f'(result :n {at} :id #:G{dice.randrange(1000, 9999)}\n :body "{text}")',
    "Markdown": lambda tool, at, text, dice: (
        f"## Result of `{tool}` (call {at})\n\n**Took:** {dice.randrange(50, 900)} ms | `{hexes(dice, 7)}`\n\n{text}"
    ),
    "signature": lambda tool, at, text, dice: f"{text}\n-- \nkey=k-1 sig=sha256:{hexes(dice, 40)} counter={1000 + at}",
    "в другом языке": lambda tool, at, text, dice: f"Ответ {at}, квитанция {hexes(dice, 6)}:\n{text}\nСпасибо!",
}


def framed(calls: Sequence[Call], frame: Wrap) -> list[StepRecord]:
    dice = random.Random(len(calls))
    steps = ((tool, args, frame(tool, at, text, dice)) for at, (tool, args, text) in enumerate(calls))
    return [record(tool, args, result, t=4.0 * at) for at, (tool, args, result) in enumerate(steps)]


def levels(verdicts: Sequence[Verdict | None]) -> set[Level]:
    return {one.level for one in verdicts if one is not None}


BEGINNING: Sequence[Call] = (
    ("open_shop", {"shop": "lamps"}, "Lamps and shades, 40 articles"),
    ("search", {"q": "floor lamp"}, "3 articles: Arc, Reed, Moon"),
    ("open_article", {"name": "Arc"}, "Arc: 80 cm, brass, in stock"),
    ("search", {"q": "reading lamp"}, "1 article: Owl"),
)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_loop_is_seen_through_a_frame(frame: Wrap) -> None:
    loop: list[Call] = [("search", {"q": "green floor lamp"}, "Nothing was found in this shop.")] * 26
    assert Level.STOP in levels(evaluate(framed([*BEGINNING, *loop], frame)))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("answer", ["ok", "Saved.", "Gespeichert.", "已保存"])
def test_entries_that_are_acknowledged_in_a_frame_are_work(frame: Wrap, answer: str) -> None:
    names = [
        "Anna",
        "Ben",
        "Carla",
        "Dora",
        "Emil",
        "Fritz",
        "Gina",
        "Hugo",
        "Ines",
        "Jan",
        "Kira",
        "Lea",
        "Max",
        "Nora",
        "Olaf",
        "Pia",
        "Quin",
        "Rosa",
        "Sven",
        "Tom",
    ]
    work: list[Call] = [("add_contact", {"name": one, "mail": f"{one}@example.org".lower()}, answer) for one in names]
    assert Level.STOP not in levels(evaluate(framed([*BEGINNING, *work], frame)))


def answers(steps: Sequence[StepRecord]) -> Iterator[str | None]:
    frame = NO_FRAME
    for at, step in enumerate(steps):
        one, frame = without_learned_frame(step, frame, at, lambda step: False)
        yield one.result


NO_FRAMES: dict[str, Callable[[int], str]] = {
    "a score that climbs": lambda at: f"Score {at * at + 7}\nYou go on. {'abc'[at % 3]}",
    "a position": lambda at: f"x {at * 7 % 11} y {at * 5 % 13}: {('grass', 'sand')[at % 2]}",
    "a stock": lambda at: f"{40 - at // 2} left in stock\n{('red', 'blue')[at % 2]} lamp",
    "a state": lambda at: f"Status: running\nnode-{at * 7919 % 9973:x}a: {('idle', 'busy')[at % 2]}",
    "hits with scores": lambda at: f"[0.{820 - 7 * at}] kb/{at * 31 % 97:04d} {('Alarm', 'Battery')[at % 2]}",
}


@pytest.mark.parametrize("answer", NO_FRAMES.values(), ids=NO_FRAMES)
def test_figures_that_may_say_something_stay(answer: Callable[[int], str]) -> None:
    tools = ("look", "move")
    steps = [record(tools[at % 2], {"way": at}, answer(at)) for at in range(16)]
    assert list(answers(steps)) == [step.result for step in steps]


def test_what_one_tool_says_of_each_call_is_no_frame() -> None:
    steps = [
        record("deploy", {"service": name}, f"Deployed {name} in 0.{at}7 s\nrevision {at}")
        for at, name in enumerate(("shop", "cart", "mail", "auth", "blog", "docs", "news", "wiki"))
    ]
    assert list(answers(steps)) == [step.result for step in steps]


def test_an_id_that_the_request_names_is_no_frame() -> None:
    ids = ("A17X", "B42K", "C09Z", "D77Q", "E31M", "F58T", "G64R", "H12P")
    steps = [
        record(("get_order", "get_parcel")[at % 2], {"id": one}, f"No. {one}: {('shipped', 'packed')[at % 2]}")
        for at, one in enumerate(ids)
    ]
    assert list(answers(steps)) == [step.result for step in steps]


def test_answers_without_a_frame_cost_nothing_after_the_second() -> None:
    frame = NO_FRAME
    for at, text in enumerate(("A page about lamps", "Three chairs", "An old map")):
        _, frame = without_learned_frame(record("open", {"page": at}, text), frame, at, lambda step: False)
    assert frame is DEAD


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FRAMES)), st.integers(1, 24))
def test_a_saved_frame_is_the_same(name: str, cut: int) -> None:
    calls = [*BEGINNING, *[("search", {"q": f"lamp {'abcdef'[at % 6]}"}, "Nothing here.") for at in range(22)]]
    steps = framed(calls, FRAMES[name])
    engine = Engine()
    whole, parts = engine.new_state("t"), engine.new_state("t")
    for at, step in enumerate(steps):
        if at == cut:
            parts = engine.load_state(parts.to_bytes())
        assert engine.observe(whole, step) == engine.observe(parts, step)


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(0, 2**40))
def test_any_answers_leave_a_frame_that_can_be_saved(texts: list[str], start: int) -> None:
    frame = NO_FRAME
    for at, text in enumerate(texts):
        step = record(("look", "move")[at % 2], {"n": at}, f"#{start + 3 * at} {text} id {start * at:x}f0")
        _, frame = without_learned_frame(step, frame, at, lambda step: False)
        assert Frame.from_plain(frame.to_plain()) == frame


STRUCTURES: dict[str, tuple[str, str]] = {
    "elements": ("<reply><tool>add_contact</tool><took_ms>31</took_ms><body>", "</body></reply>"),
    "attributes": ('<answer call_id="7f31" tool="add_contact">\n<status>ok</status>\n<out>', "</out>\n</answer>"),
    "front matter": ("---\ntool: add_contact\nduration: 0.31s\n---\n", ""),
    "fields": ("Tool: add_contact\nRequest-Id: 9f31c2aa\nStatus: ok\n\n", ""),
    "box": ("╭──────────────╮\n│ ", " │\n╰──────────────╯"),
    "quotation": ("> ", ""),
}


@pytest.mark.parametrize(("before", "behind"), STRUCTURES.values(), ids=STRUCTURES)
def test_a_structure_that_says_nothing_is_no_part_of_an_acknowledgement(before: str, behind: str) -> None:
    presses = [record("press_key", {"key": "VolumeUp"}, f"{before}ok{behind}", t=2.0 * at) for at in range(8)]
    assert first_level(evaluate(presses), Level.STOP) is None
    page = f"{before}Cart: 1 item. Please choose a size to continue with the order.{behind}"
    looks = [record("get_cart", {"id": 7}, page, t=2.0 * at) for at in range(6)]
    assert first_level(evaluate(looks), Level.STOP) == 4


@pytest.mark.parametrize(
    "kept",
    [
        "<reply><state>queued</state><body>saved</body></reply>",
        "<returncode>1</returncode>\n<output>\n</output>",
        "<html><body><p>One page</p></body></html>",
        '<item price="80">Arc</item>',
        "<order><id>A-1</id><state>queued</state></order>",
        "<user><name>price</name><mail>a@example.org</mail></user>",
        "Title: Lamps\nPrice: 80\n\nA page",
        "│ name │ price │\n│ Arc  │ 80    │",
    ],
)
def test_a_structure_that_says_something_stays(kept: str) -> None:
    assert "".join(without_structure(kept, "open").split()) in "".join(kept.split())
    for word in ("queued", "1", "html", "80", "price"):
        assert (word in kept) == (word in without_structure(kept, "open"))
