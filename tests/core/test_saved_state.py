"""A saved and restored state goes on as if nothing had happened; what cannot be read is refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import record
from trajectory_guard.core.detectors import REGISTRY
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.state import StateFormatError, _checksum, _dump
from trajectory_guard.core.steps import Certainty, ModelTokens, StepRecord, Usage

ARGS: list[Any] = [
    None, {}, {"q": "late orders"}, {"q": "orders that are late"}, {"q": "open tickets"}, {"n": 1.0, "s": " x"}, {"sql": "select * from t"},
    "free text", {"big": 2**70}, {"deep": [[[1]]]},
]  # fmt: skip
RESULTS: list[tuple[str, str | None]] = [
    ("success", "three orders"), ("success", "four orders"), ("success", None), ("success", "still running"), ("empty", ""), ("empty", "[]"),
    ("error", "KeyError: 'a'"), ("error", "KeyError: 'b'"), ("error", "503 unavailable"), ("error", None), ("denied", "no"),
    ("interrupted", None), ("success", '{"pid": 1, "s": "x"}'), ("success", '{"pid": 2, "s": "x"}'), ("success", "Cart: choose a size first"),
]  # fmt: skip
one_step = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(["search", "Search", "run", "submit", "click"]),
        "args": st.sampled_from(ARGS),
        "outcome": st.sampled_from(RESULTS),
        "agent": st.sampled_from([None, "alice", "bob"]),
        "gap": st.sampled_from([0.0, 0.5, 3.0, 45.0, -10.0]),
        "dur": st.sampled_from([0.0, 1.0, 0.1]),
        "batch": st.sampled_from([None, None, None, "1", "2"]),
        "turn": st.sampled_from([None, None, "1", "2"]),
        "run": st.sampled_from([None, None, "desk"]),
        "trace_id": st.sampled_from([None, None, "a", "b"]),
        "stated": st.sampled_from([False, False, True]),
        "usage": st.sampled_from(
            [None, None, Usage(100, 10, 0.01), Usage(7, 3, seconds=2.0, unpriced=(ModelTokens("small", 7, 3),))]
        ),
        "thought": st.sampled_from([None, None, "Let me look again at the orders.", "Done, I will submit now."]),
        "repeat": st.integers(1, 4),
        "again": st.booleans(),
    }
)


def build(plan: list[dict[str, Any]]) -> list[StepRecord]:
    """Steps of a plan: some repeated, some delivered twice."""
    steps: list[StepRecord] = []
    now = 1_000.0
    for part in plan:
        for _ in range(part["repeat"]):
            now += part["gap"]
            outcome, result = part["outcome"]
            steps.append(
                record(
                    part["tool"], part["args"], result, outcome, step_id=f"{len(steps):016x}", agent=part["agent"], t=now, dur=part["dur"],
                    batch=part["batch"], turn=part["turn"], run=part["run"], trace_id=part["trace_id"], stated=part["stated"], usage=part["usage"], thought=part["thought"],
                )
            )  # fmt: skip
        if part["again"]:
            steps.append(steps[-1])
    return steps


def straight(engine: Engine, steps: list[StepRecord]) -> list[Verdict | None]:
    state = engine.new_state("t")
    return [engine.observe(state, step) for step in steps]


def saved_after_every_step(engine: Engine, steps: list[StepRecord]) -> list[Verdict | None]:
    verdicts, state = [], engine.new_state("t")
    for step in steps:
        verdicts.append(engine.observe(state, step))
        data = state.to_bytes()
        state = Engine(engine.settings).load_state(data)
        assert state.to_bytes() == data
    return verdicts


@pytest.mark.parametrize("redact", [False, True])
@given(plan=st.lists(one_step, max_size=14))
def test_saving_after_every_step_changes_no_verdict(redact: bool, plan: list[dict[str, Any]]) -> None:
    engine, steps = Engine(EngineSettings(redact=redact, history_steps=12)), build(plan)
    assert saved_after_every_step(engine, steps) == straight(engine, steps)


@given(st.lists(one_step, max_size=10))
def test_the_same_steps_give_the_same_verdicts(plan: list[dict[str, Any]]) -> None:
    steps = build(plan)
    assert straight(Engine(), steps) == straight(Engine(), steps)


@given(st.lists(one_step, min_size=1, max_size=12))
def test_the_invariants_of_verdicts_hold(plan: list[dict[str, Any]]) -> None:
    since: dict[tuple[str, int], int] = {}  # steps with a finding since the last nudge, by run and episode
    index = 0
    for verdict in straight(Engine(), build(plan)):
        if verdict is None:
            continue
        assert verdict.step_index == index
        index += 1
        assert 0.0 <= verdict.score <= 5.0
        assert verdict.health == pytest.approx(1 - verdict.score / 5)
        assert bool(verdict.detections) == bool(verdict.reason) == (verdict.first_step >= 0)
        assert all(0.0 < found.confidence <= 1.0 for found in verdict.detections)
        assert verdict.first_step <= verdict.step_index
        assert all(at <= verdict.step_index for found in verdict.detections for at in found.steps)
        assert (verdict.nudge is not None) == (verdict.ordinal > 0)
        place = (verdict.run, verdict.episode)
        if verdict.stop_due:
            assert str(verdict.level) == "STOP"
            assert since[place] + 1 >= EngineSettings().stop_patience
            assert any(found.certainty is not Certainty.WAITING for found in verdict.detections)
        if verdict.nudge is not None:
            assert str(verdict.level) == "NUDGE"
            since[place] = 0
        elif place in since:
            since[place] += bool(verdict.detections)
        if str(verdict.level) == "STOP":
            assert place in since


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, -5.0, 1e308])
@pytest.mark.parametrize("scope", [None, "openai"])
def test_times_that_are_none_can_be_saved(time: float, scope: str | None) -> None:
    engine = Engine()
    state = engine.new_state("t")
    for at in range(5):
        args = {"messages": "hours?"}
        step = record("model", args, "closed", t=time, dur=time if at % 2 else 1.0, model_scope=scope)
        engine.observe(state, step)
        engine.report(state, record("answer", run="gate", t=time), None, {})
        state = engine.load_state(state.to_bytes())
    assert state.index >= 5
    after = record("search", {"q": "hours"}, "closed", t=100.0)
    verdict = engine.observe(state, after)
    assert verdict is not None
    assert 0.0 <= verdict.spent.seconds <= 100.0


def test_text_that_is_no_unicode_can_be_saved() -> None:
    """Lone surrogates reach the guard from decoded JSON (\\ud800) and from file names."""
    engine = Engine()
    state = engine.new_state("t\ud800")
    steps = [
        record(
            "tool\udcff",
            {"query": f"x\ud800 {at}"},
            "\udc80",
            "error",
            agent="a\ud800",
            thought="I think \ud83d again and again",
            batch="\ud800",
        )
        for at in range(6)
    ]
    for step in steps:
        engine.observe(state, step)
    again = engine.load_state(state.to_bytes())
    following = record("tool\udcff", {"query": "x"}, "\udc80", "error")
    assert engine.observe(again, following).score == engine.observe(state, following).score


# --- what cannot be read -------------------------------------------------------------------------------------


def saved() -> bytes:
    engine = Engine()
    state = engine.new_state("t")
    for at in range(9):
        engine.observe(
            state,
            record(
                "search", {"q": f"the orders {at % 2}"}, "", "empty", t=at * 5.0, usage=Usage(1, 1, 0.1), batch=str(at)
            ),
        )
        engine.observe(
            state, record("run", {"n": at}, "KeyError: 'a'", "error", t=at * 5.0 + 1, thought="once more the same idea")
        )
        engine.observe(state, record("transfer_to_sales", {"why": at}, "done", t=at * 5.0 + 1.5))
        engine.observe(state, record("submit", {}, f"pid {at} rejected the answer", t=at * 5.0 + 2, batch=str(at)))
    for at in range(7):
        engine.observe(state, record("read", {"page": at}, f"page {at * 7919:b} of the book", t=50.0 + 2 * at))
        engine.observe(state, record("find", {"q": "refund"}, "none found", "empty", t=51.0 + 2 * at))
    missing = "Error: the variable DB_URL of the shop is not set"
    engine.observe(state, record("deploy", {"to": "shop"}, missing, "error", t=69.0))
    for at in range(2):  # the second hands over with nothing done since the first
        engine.observe(state, record("transfer_to_sales", {"why": f"late {at}"}, "done", t=70.0 + at))
    return state.to_bytes()


SAVED = saved()
(RUN,) = orjson.loads(SAVED)["runs"]


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01", b"not json", b"[]", b"{}", b"null", b"7", b'"x"', SAVED[:-10], SAVED[10:]]
)
def test_garbage_is_no_saved_state(data: bytes) -> None:
    with pytest.raises(StateFormatError, match="not a saved trajectory state"):
        Engine().load_state(data)


@pytest.mark.parametrize("version", [0, 1, 99, "2", None])
def test_another_version_is_named_beside_the_one_that_is_known(version: Any) -> None:
    data = orjson.dumps({**orjson.loads(SAVED), "v": version})
    with pytest.raises(StateFormatError, match=r"version .* is unknown \(this version reads 32\)"):
        Engine().load_state(data)


@pytest.mark.parametrize("key", sorted(orjson.loads(SAVED).keys() - {"v", "around", "handed", "handed_words"}))
def test_a_missing_part_is_damage(key: str) -> None:
    plain = {name: value for name, value in orjson.loads(SAVED).items() if name not in (key, "sum")}
    if key != "sum":
        plain["sum"] = _checksum(_dump(plain))  # so that it is the part that is missed, not the sum that does not fit
    with pytest.raises(StateFormatError, match=f"damaged trajectory state: KeyError: '{key}'"):
        Engine().load_state(orjson.dumps(plain))


WRONG: list[Any] = [None, True, -1, 0, 3.5, 2**62, "x", "zz", [], [1], ["x", "y"], [[1, 2, 3]], {}, {"a": 1}]


@pytest.mark.parametrize("key", sorted(RUN))
def test_a_missing_part_of_a_run_is_damage(key: str) -> None:
    plain = orjson.loads(SAVED)
    del plain["runs"][0][key]
    del plain["sum"]
    with pytest.raises(StateFormatError, match=f"damaged trajectory state: KeyError: '{key}'"):
        Engine().load_state(orjson.dumps({**plain, "sum": _checksum(_dump(plain))}))


@pytest.mark.parametrize("key", sorted(orjson.loads(SAVED).keys() - {"v"}))
def test_a_changed_part_is_refused(key: str) -> None:
    """Not many steps later: what was changed may have any shape."""
    plain = orjson.loads(SAVED)
    for wrong in WRONG:
        if orjson.dumps(wrong) == orjson.dumps(plain[key]):
            continue  # nothing was changed
        with pytest.raises(StateFormatError, match="its checksum does not fit"):
            Engine().load_state(orjson.dumps({**plain, key: wrong}))


@pytest.mark.parametrize("name", sorted(RUN["detectors"]))
def test_a_changed_detector_state_is_refused(name: str) -> None:
    plain = orjson.loads(SAVED)
    for wrong in WRONG:
        changed = {**RUN, "detectors": {**RUN["detectors"], name: wrong}}
        with pytest.raises(StateFormatError, match="its checksum does not fit"):
            Engine().load_state(orjson.dumps({**plain, "runs": [changed]}))


def test_all_detectors_with_state_took_part() -> None:
    with_memory = {name for name, kind in REGISTRY.items() if not kind.shared}
    assert set(RUN["detectors"]) == with_memory - {"only_failures", "renewed", "reread", "thinking", "undone"} == {  # any other step ends those series
        "insanity", "pingpong", "handoffs", "known_calls", "recurrence", "error_streak", "monologue", "standstill",
         "recurring_failure", "never_works",
    }  # fmt: skip


def test_state_of_a_detector_that_is_switched_off_now_is_dropped() -> None:
    engine = Engine(EngineSettings(weights={"TYPE_II_INSANITY": 0}))
    (run,) = orjson.loads(engine.load_state(SAVED).to_bytes())["runs"]
    assert run["detectors"].keys() == RUN["detectors"].keys() - {"insanity", "standstill"}
