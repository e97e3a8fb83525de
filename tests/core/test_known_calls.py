"""Earlier calls that are made again and again in ever other order: a loop; the same calls in their order: a routine."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

Make = Callable[[str], StepRecord]

NAMES = (
    "river", "stone", "lamp", "chair", "window", "garden", "apple", "bridge", "candle", "desert", "engine", "forest",
)  # fmt: skip
WORDS = {
    "en": "wide narrow oak iron dusty empty loud warm silver broken painted heavy round quiet locked bright",
    "de": "weit eng eichen eisern staubig leer laut warm silbern kaputt bemalt schwer rund still verriegelt hell",
    "ja": "広い 狭い 木製の 鉄の 埃っぽい 空の 騒がしい 暖かい 銀色の 壊れた 塗られた 重い 丸い 静かな 閉じた 明るい",
}


def words(name: str, language: str, count: int = 6) -> str:
    """Words of its own for each name, the same ones each time."""
    return ("" if language == "ja" else " ").join(random.Random(name).choices(WORDS[language].split(), k=count))


PLACES: dict[str, Make] = {
    "look": lambda at: record(
        "browser_open", {"url": f"https://shop.example/{at}"}, f"{words(at, 'en', 9)}. Sold out."
    ),
    "act": lambda at: record("click", {"selector": f"#{at}"}, f"Clicked. Shown now: {words(at, 'en', 8)}"),
    "game": lambda at: record(
        "act", {"command": f"examine {at}"}, f"Behind the {at} you see something {words(at, 'en')}."
    ),
    "refused": lambda at: record("turn", {"what": at}, f"It is {words(at, 'en', 4)}, and does not move.", "error"),
    "raum": lambda at: record("gehe", {"nach": at}, f"Ein Raum, {words(at, 'de')}. Eine Tür führt nach Osten."),
    "部屋": lambda at: record("移動", {"部屋": at}, f"{words(at, 'ja', 5)}部屋です。窓は閉まっています。"),
}


def walk(make: Make, known: int, new: float, seed: int, steps: int = 90) -> Iterator[StepRecord]:
    """Known places in any order, and a share of new ones."""
    chance = random.Random(seed)
    yield from (make(name) for name in NAMES[:known])
    for at in range(steps):
        fresh = chance.random() < new
        yield make(f"{NAMES[at % len(NAMES)]}-{at}" if fresh else chance.choice(NAMES[:known]))


def numbered(steps: Iterator[StepRecord], gap_s: float = 5.0) -> list[StepRecord]:
    return [step._replace(step_id=f"{at:016x}", timestamp=at * gap_s) for at, step in enumerate(steps)]


def findings(steps: list[StepRecord]) -> list[int]:
    """Steps at which the rule fires."""
    verdicts = evaluate(steps)
    return [at for at, one in enumerate(verdicts) if one and any(it.rule == "known_calls" for it in one.detections)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("new", [0.1, 0.25])
@pytest.mark.parametrize("known", [6, 8, 12])
@pytest.mark.parametrize("kind", PLACES)
def test_a_walk_among_known_places_is_nudged(kind: str, known: int, new: float, seed: int) -> None:
    nudged = first_level(evaluate(numbered(walk(PLACES[kind], known, new, seed))), Level.NUDGE)
    assert nudged is not None
    assert nudged < known + 50


@pytest.mark.parametrize("kind", PLACES)
def test_a_walk_is_stopped_some_day(kind: str) -> None:
    stops = [first_level(evaluate(numbered(walk(PLACES[kind], 8, 0.1, seed, 200))), Level.STOP) for seed in range(5)]
    assert None not in stops


def suite(varied: int) -> Iterator[StepRecord]:
    """Tests of a web application: log in, two things that are new, and sometimes a third, log out."""
    for at in range(14):
        yield record("open", {"url": "/login"}, "Sign in: two fields, name and word, and a button.")
        yield record("fill", {"field": "name", "text": "ann"}, "The field name holds ann, the button is grey.")
        yield record("fill", {"field": "word", "text": "***"}, "The field word is filled, the button is blue.")
        yield record("click", {"on": "Sign in"}, "Home of ann: six entries, a menu, a search field.")
        for part in range(2 + (at % varied)):
            yield record("open", {"url": f"/part/{at}-{part}"}, f"Part {at}-{part} shows {at * 7 + part} rows of {at}.")
        yield record("click", {"on": "Sign out"}, "You have signed out. Sign in: two fields, and a button.")


def edits() -> Iterator[StepRecord]:
    """Repairs: a change, then the same three checks, which all find nothing."""
    for at in range(12):
        yield record("edit", {"path": f"src/part_{at}.py", "text": f"def part_{at}():\n    return {at}"}, "Applied.")
        yield record("lint", {"path": "src"}, "All checks passed in the folder src, no warnings.")
        yield record("types", {"path": "src"}, "Success: no issues found in 24 source files.")
        yield record("test", {"path": "tests"}, f"{at + 3} passed, {12 - at} failed: test_part_{at}")


def notes(language: str) -> Iterator[StepRecord]:
    """Five notes, read again in any order for each section of a report."""
    chance = random.Random(6)
    for at in range(24):
        for _ in range(2):
            name = f"note-{chance.randrange(5)}"
            yield record("read_file", {"path": f"{name}.md"}, f"# {name}\n{words(name, language, 24)}")
        text = words(f"section {at}", language, 40)
        yield record("write_file", {"path": f"section-{at}.md", "content": text}, "Saved.")


def tickets() -> Iterator[StepRecord]:
    """Support: three of six rules are looked up for each ticket, which is then answered."""
    chance = random.Random(7)
    for at in range(18):
        yield record("next_ticket", {}, f"Ticket {at * 31}: {words(f'ticket {at}', 'en', 9)}?")
        for rule in chance.sample(NAMES[:6], 3):
            yield record("get_rule", {"kind": rule}, f"On a {rule}: {words(rule, 'en', 12)}.")
        yield record("reply", {"ticket": at * 31, "text": words(f"answer {at}", "en", 20)}, "Sent.")


def shop() -> Iterator[StepRecord]:
    """Products that are opened one by one, each from the list of one of five categories."""
    chance = random.Random(8)
    for at in range(30):
        category = chance.choice(NAMES[:5])
        yield record("open", {"url": "/"}, f"Shop: five categories, {words('home', 'en', 8)}")
        yield record("open", {"url": f"/{category}"}, f"{category}: {words(category, 'en', 20)}")
        yield record("open", {"url": f"/{category}/{at}"}, f"Product {at}: {words(f'product {at}', 'en', 15)}")


def cart(seed: int) -> Iterator[StepRecord]:
    """Products that are put into a cart: some ask for a size, some open a window that has to be closed."""
    chance = random.Random(seed)
    for at in range(24):
        yield record("click", {"on": "Products"}, f"Products: {words('list', 'en', 12)}")
        yield record("click", {"on": f"product-{at}"}, f"Product {at}: {words(f'product {at}', 'en', 8)}")
        if chance.random() < 0.5:
            yield record("click", {"on": "Size"}, "Choose a size, S, M, L or XL, then a colour.")
        yield record("click", {"on": "Add"}, "Added to the cart. Continue with your shopping, or pay.")
        if chance.random() < 0.5:
            yield record("click", {"on": "Close"}, f"Products: {words('list', 'en', 12)}")


def patients() -> Iterator[StepRecord]:
    """Codes for records, by three of eight guidelines each."""
    chance = random.Random(9)
    for at in range(1000, 1018):
        yield record("open_record", {"patient": at}, f"Patient {at}: {words(f'patient {at}', 'en', 10)}")
        for topic in chance.sample(NAMES[:8], 3):
            yield record("guideline", {"topic": topic}, f"Guideline {topic}: {words(topic, 'en', 25)}")
        yield record("set_code", {"patient": at, "code": f"I{chance.randrange(99)}.{at % 9}"}, f"Code set for {at}.")


def buttons() -> Iterator[StepRecord]:
    """A remote control, which only acknowledges."""
    chance = random.Random(3)
    for _ in range(60):
        yield record("press", {"button": chance.choice("updownleftright")}, "OK")


def gauges() -> Iterator[StepRecord]:
    """Readings in any order: single values that hardly change."""
    chance = random.Random(4)
    for _ in range(60):
        yield record("read", {"gauge": chance.choice(NAMES)}, str(20 + chance.randrange(2)))


HEALTHY = {
    "suite": suite(1), "suite of two sizes": suite(2), "suite of three": suite(3), "edits": edits(), "notes": notes("en"),
    "覚書": notes("ja"), "tickets": tickets(), "shop": shop(), "cart": cart(1), "another cart": cart(6),
    "patients": patients(), "keys": buttons(), "gauges": gauges(),
}  # fmt: skip


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY)
def test_a_routine_is_none(steps: Iterator[StepRecord]) -> None:
    assert findings(numbered(steps)) == []


def test_rounds_with_pauses_wait() -> None:
    """Checks of one state and another, minutes apart: whoever watches wants to see the same."""
    assert findings(numbered(walk(PLACES["look"], 6, 0.0, 1), gap_s=300.0)) == []


def test_an_agent_that_does_new_things_has_recovered() -> None:
    lost = numbered(walk(PLACES["game"], 8, 0.1, 2, 30))
    fired = findings(lost)
    assert fired
    lost = lost[: fired[1] + 1]
    chance = random.Random(5)
    found = [
        PLACES["look"](chance.choice(NAMES[:8])) if at % 3 == 2 else PLACES["act"](f"way-{at}") for at in range(30)
    ]
    assert findings(numbered(iter([*lost, *found])))[2:] == []


def test_the_nudge_says_how_much_was_known() -> None:
    verdicts: list[Verdict | None] = evaluate(numbered(walk(PLACES["look"], 12, 0.25, 1)))
    nudged = next(one for one in verdicts if one and one.level is Level.NUDGE and one.rule == "known_calls")
    assert "of the last 24 calls had been made before, and returned what they returned then" in nudged.reason
    assert nudged.types[0] == "TYPE_IV_PINGPONG"


def test_the_window_is_saved_with_the_run() -> None:
    """A run that is saved and loaded between any two steps ends as it would without."""
    steps = numbered(walk(PLACES["game"], 8, 0.1, 2))
    engine, saved = Engine(), []
    state = engine.new_state("t")
    for step in steps:
        saved.append(engine.observe(state, step))
        state = engine.load_state(state.to_bytes(None))
    assert [one and (one.level, one.rule, one.score) for one in saved] == [
        one and (one.level, one.rule, one.score) for one in evaluate(steps)
    ]
