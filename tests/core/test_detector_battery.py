"""Duties of every detector of the registry, whatever it detects."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache

import pytest

from tests.core.test_lasting_failures import WAYS
from tests.helpers import record
from trajectory_guard.core.detectors import LOOP_TYPES, REGISTRY, DetectionResult, Detector
from trajectory_guard.core.detectors.base import ALWAYS, signs_of
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import StepRecord

KINDS = list(REGISTRY.values())
PAGE = "Cart: 1 item. Size not selected. Please choose a size to continue."


def noisy_steps(seed: int, count: int) -> Iterator[StepRecord]:
    """A mixture of loops of every kind, unknown values, errors and progress; then one loop of each kind that is rare."""
    chance = random.Random(seed)
    for at in range(count):
        tool = chance.choice(["search", "run", "submit", "click"])
        args = chance.choice(
            [None, {"query": "late orders"}, {"query": "orders late"}, {"n": at % 3}, {"n": at}, "text"]
        )
        outcome, result = chance.choice(
            [
                ("success", "the same state as before"),
                ("success", f"news {at}"),
                ("success", None),
                ("empty", ""),
                ("error", "KeyError: 'a'"),
            ]
        )
        yield record(
            tool,
            args,
            result,
            outcome,
            step_id=f"{at:016x}",
            thought=chance.choice([None, "the very same thought again"]),
            t=at * 2.0,
        )
    for at in range(count, count + 12):
        yield record(f"tool{at % 3}", {"n": at % 3}, f"state of part {at % 3}", step_id=f"{at:016x}", t=at * 2.0)
    rare = [record("delete", {"path": "/data"}, "not allowed", "denied") for _ in range(4)]
    rare += [record(f"transfer_to_{to}", {"why": f"{to} {n}"}, "done") for n in range(5) for to in ("sales", "support")]
    rare += [record(("click", "scroll", "type")[at % 3], {"at": at}, PAGE) for at in range(6)]
    rare += [record("fetch", {"n": n}, "503 Service Unavailable", "error") for n in range(10)]
    rare += [record("find", {"query": f"{the}flights from Berlin to Rome"}, "", "empty") for the in ("", "the ", "a ")]
    rare += [
        one
        for n in range(9)
        for one in (
            record("read", {"page": n}, f"page about {n * 7919:b}"),
            record("find", {"q": "refund"}, "", "empty"),
        )
    ]
    walk = "abcdefgh" + "hfdbgacehdbfgaec"
    rare += [
        record("go", {"way": way}, f"You are in room {at}: two doors and a table.")
        for way, at in zip(walk[1:], walk, strict=False)
    ]
    rare += [
        record("ocr", {"image": "scan_004.png", "dpi": dpi}, "[]", "empty")
        for dpi in (150, 200, 300, 400, 600, 96, 72, 240)
    ]
    rare += [
        record("pull", {"lever": one}, f"Lever {one} clicks {ord(one):b} times, and the door stays shut.")
        for one in "abcdef" + "fbxdcaebydacfzbdfaecvb"
    ]
    rare += [record("press", {"key": at % 3}, None) for at in range(24)]
    code = [f"{'    ' * (at % 3)}total_{at} = price[{at}] * amount" for at in range(9)]
    rare += [
        record("view", {"file": "a.py", "from": at, "to": to}, "\n".join(code[at:to]))
        for at, to in ((0, 9), (0, 4), (1, 6), (2, 9), (3, 7), (4, 9), (0, 5), (1, 8), (2, 6), (5, 9))
    ]
    rare += [record("run", {"with": f"{way}x"}, f"{way}: {way[::-1]} {len(way)}", "error") for way in WAYS]
    rare += [
        one
        for pod in ("a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8")
        for one in (
            record("logs", {"pod": pod}, f"Error: the variable DB_URL is not set; exit code 1 of the pod {pod}"),
            record("delete", {"pod": pod}, f"pod {pod} deleted"),
        )
    ]
    rare += [
        one
        for pod in ("x7k2", "9fz4", "m3w8", "t5b1", "q2n6", "h8r4", "w1z7", "d6s3", "b9c5")
        for one in (
            record("get_pods", {"app": "api"}, f"api-{pod} 0/1 CrashLoopBackOff"),
            record("delete_pod", {"name": f"api-{pod}"}, f"deleted api-{pod}"),
        )
    ]
    rare += [
        record("audit", {"command": f"{one} {two}"}, f"{1208 + at % 5} packages, no fix is available for four of them")
        for at, (one, two) in enumerate([(one, two) for one in ("fix", "force", "dry", "all") for two in "abcdef"])
    ]
    for at in range(16):
        reason = f"Rejected: {('the total', 'a table', 'the change')[at % 3]} is missing, {('no', 'few')[at * at % 2]} sources"
        rare += [
            record("write", {"text": f"draft {at * 977 % 89}"}, f"draft {at} saved"),
            record("submit", {"file": "report"}, reason, "error"),
        ]
    plan = [{"step": "look", "status": "pending"}, {"step": "mend", "status": "pending"}]
    rare += [record("update_plan", {"plan": plan, "focus": one}, "Plan updated") for one in "abcdefghijklmn"]
    rare += [record("think", {"thought": f"{one}, {'very ' * at}slowly"}, "noted") for at, one in enumerate("abcd" * 9)]
    parts = [record("read", {"file": f"p_{at}.py"}, f"File {at} defines the class Part{at}.") for at in range(40)]
    rare += parts * 4
    rare += [
        record("submit", {"answer": f"it is all {one} now"}, "noted") for one in ("done", "ready", "over", "there")
    ]
    for at in range(9):
        sizes = (f"pool: {50 - 30 * (at % 2)}", f"pool: {20 + 30 * (at % 2)}")
        rare += [
            record("edit", {"path": "a/values.yaml", "old": sizes[0], "new": sizes[1]}, "1 replacement"),
            record(
                "logs", {"app": "api"}, f"Error: the pool of api-{at * 7} is {('empty', 'full')[at % 2]} at :{at * 31}"
            ),
        ]
    rare += [
        record(
            "audit",
            {"command": f"audit {'abcd'[at * at // 3 % 4]}"},
            f"{1208 + at * 7 % 5} packages, nothing for four of them",
        )
        for at in range(60)
    ]
    for at, step in enumerate(rare, count + 12):
        yield step._replace(step_id=f"{at:016x}", timestamp=at * 2.0)


class Tap(Detector):
    """Hands every observation of an engine run to detectors under test, before the engine goes on."""

    name, loop_type, shared = "tap", LOOP_TYPES[0], True

    def __init__(self, *detectors: Detector) -> None:
        self.detectors = detectors
        self.results: list[list[DetectionResult | None]] = []

    def update(self, seen: Observation) -> None:
        self.results.append([one.update(seen) for one in self.detectors])


def run(*detectors: Detector, seed: int = 1, count: int = 120) -> list[list[DetectionResult | None]]:
    engine = Engine()
    state = engine.new_state("t")
    tap = Tap(*detectors)
    engine._factories = [lambda: tap]
    for step in noisy_steps(seed, count):
        engine.observe(state, step)
    return tap.results


def fresh(kind: type[Detector]) -> Detector:
    return kind()


@cache
def mixtures() -> list[list[list[DetectionResult | None]]]:
    """What each of ``KINDS`` finds in each step of eight mixtures. They do not see each other: one run serves all."""
    return [run(*map(fresh, KINDS), seed=seed) for seed in range(8)]


OF_VISITS = {"same_visits"}
"""Rules on the visits of agents, which are a run of their own: ``test_relay``."""


def found_by(kind: type[Detector]) -> list[tuple[int, DetectionResult]]:
    """Its findings in all mixtures, each with the index of its step."""
    column = KINDS.index(kind)
    return [
        (at, row[column]) for results in mixtures() for at, row in enumerate(results) if row[column] is not None
    ]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[Detector]:
    return request.param


def test_all_are_deterministic() -> None:
    assert run(*map(fresh, KINDS)) == run(*map(fresh, KINDS))


def test_fires_on_the_mixture_with_a_well_formed_result(kind: type[Detector]) -> None:
    assert found_by(kind)
    for index, result in found_by(kind):
        assert result.loop_type == kind.loop_type
        assert result.rule in kind.rules
        assert result.detected
        assert 0.0 < result.confidence <= 1.0
        assert result.count >= 2
        assert 0 <= result.first_step <= index
        assert list(result.steps) == sorted(set(result.steps))
        assert not result.steps or (result.steps[0] >= result.first_step and result.steps[-1] == index)
        json.dumps(result)


def test_all_its_rules_fire_somewhere_in_the_mixture(kind: type[Detector]) -> None:
    assert {result.rule for _, result in found_by(kind)} == set(kind.rules) - OF_VISITS


def test_a_new_detector_has_nothing_to_dump(kind: type[Detector]) -> None:
    assert fresh(kind).dump() is None


def test_it_says_and_remembers_nothing_at_steps_at_which_it_is_not_asked(kind: type[Detector]) -> None:
    class Watched(Detector):
        name, loop_type = kind.name, kind.loop_type

        def __init__(self) -> None:
            self.inner = fresh(kind)
            self.skipped = 0

        def update(self, seen: Observation) -> DetectionResult | None:
            if kind.asked_at & signs_of(seen):
                return self.inner.update(seen)
            before = json.dumps(self.inner.dump())
            assert self.inner.update(seen) is None
            assert json.dumps(self.inner.dump()) == before
            self.skipped += 1
            return None

    watched = [Watched() for _ in range(2)]
    for seed, one in enumerate(watched):
        run(one, seed=seed)
    assert kind.asked_at == ALWAYS or all(one.skipped for one in watched)


class Restored(Detector):
    """A detector that is saved as JSON and restored after every step."""

    name, loop_type, shared = "restored", LOOP_TYPES[0], True

    def __init__(self, kind: type[Detector]) -> None:
        self.kind, self.inner = kind, fresh(kind)

    def update(self, seen: Observation) -> DetectionResult | None:
        result = self.inner.update(seen)
        plain = json.loads(json.dumps(self.inner.dump()))
        self.inner = fresh(self.kind)
        if plain is not None:
            self.inner.load(plain)
        return result


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2, 3))])
def test_the_state_of_each_is_json_and_restores_the_same_behaviour(seed: int) -> None:
    results = run(*map(Restored, KINDS), seed=seed)
    for column, kind in enumerate(KINDS):
        assert [row[column] for row in results] == [row[column] for row in mixtures()[seed]], kind.name


def test_the_memory_of_each_is_bounded() -> None:
    detectors = [fresh(kind) for kind in KINDS]
    run(*detectors, count=200)
    early = [len(json.dumps(one.dump())) for one in detectors]
    run(*detectors, count=2_000, seed=5)
    grown = {one.name: len(json.dumps(one.dump())) - size for one, size in zip(detectors, early, strict=True)}
    assert {name: more for name, more in grown.items() if more >= 4_000} == {}
