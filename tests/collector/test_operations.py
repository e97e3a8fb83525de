"""Identification in one process, trajectories in another: operations as bytes, trajectories saved with their steps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.recorded_load import recorded_load
from tests.collector.kit import capture_request, comparable, loop, request, score_all, singles, split, verdicts
from tests.helpers import capture_names, one_in
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.steps import ModelTokens, Usage
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.scoring.identification import Identifier
from trajectory_guard_collector.scoring.item_codec import (
    ItemFormatError,
    dialects_by_name,
    from_bytes,
    plain_usage,
    to_bytes,
    usage_of,
)
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.operations import Operation, OperationLog, apply
from trajectory_guard_collector.scoring.parser import RequestParser
from trajectory_guard_collector.scoring.registry import TrajectoryRegistry
from trajectory_guard_collector.state.codec import dump, load
from trajectory_guard_collector.telemetry.metrics import Metrics, ScoringCounts

NAMES = dialects_by_name(DIALECTS)
FIELDS = [name for name in StepItem.__slots__ if name not in ("arrived", "pace", "wait_s", "held", "evicted")]


def without_prices(found: Mapping[str, Verdict]) -> dict[str, Any]:
    """Prices are looked up in the background: the first verdicts of a process may lack them."""
    return comparable({
        span: verdict._replace(spent=verdict.spent._replace(cost_usd=0.0)) for span, verdict in found.items()
    })  # fmt: skip


def new_registry() -> TrajectoryRegistry:
    return TrajectoryRegistry(
        Engine(GuardConfig().engine_settings()), GuardConfig(), Trajectories(), ScoringCounts(Metrics())
    )


class Workers:
    """Identification, and trajectories that live elsewhere: only bytes pass between them."""

    def __init__(self) -> None:
        self.log, self.registry = OperationLog(), new_registry()
        counts = ScoringCounts(Metrics())
        self._identifier = Identifier(DIALECTS, GuardConfig(), Trajectories(), self.log, counts)
        self._parser = RequestParser(DIALECTS)
        self.restarts = 0

    def operations(self, data: bytes) -> list[bytes]:
        at_once(self._identifier.identifying(self._parser.read(data)))
        return [one.to_bytes() for one in self.log.take()]

    def carry_out(self, operations: Iterable[bytes]) -> None:
        for data in operations:
            apply(Operation.from_bytes(data), self.registry, NAMES)
        at_once(self.registry.scoring())

    def restart(self) -> None:
        """The trajectories move to another process, with the steps that can still be put in order."""
        moved = new_registry()
        for trajectory in self.registry:
            data = dump(trajectory, {}, with_steps=True)
            if data is not None:
                moved.restore(*load(data, NAMES))
        self.registry = moved
        self.restarts += 1

    def verdicts(self) -> dict[str, Verdict]:
        at_once(self.registry.finishing())
        return verdicts(self)  # type: ignore[arg-type]  # of a scorer it reads the registry alone


def scored(requests: list[bytes], restart_after: set[int] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    workers = Workers()
    for at, data in enumerate(requests):
        workers.carry_out(workers.operations(data))
        if at in restart_after:
            workers.restart()
    assert workers.restarts == len(restart_after & set(range(len(requests))))
    return without_prices(workers.verdicts())


@pytest.mark.parametrize("name", one_in(4, capture_names()))
def test_operations_give_the_verdicts_of_one_process(name: str) -> None:
    requests = singles(capture_request(name))
    expected = without_prices(score_all(requests))
    assert scored(requests) == expected
    backwards = requests[::-1]
    assert scored(backwards, set(range(0, len(requests), 3))) == without_prices(score_all(backwards))


def test_recorded_runs_out_of_order_give_the_verdicts_of_one_process() -> None:
    requests = recorded_load(copies=1, jitter_s=5.0).requests[:6]
    assert scored(requests, {1, 3, 4}) == without_prices(score_all(requests))


@given(seed=st.integers(0, 2**32), restarts=st.sets(st.integers(0, 12), max_size=4))
def test_a_restart_with_the_steps_changes_no_verdict(seed: int, restarts: set[int]) -> None:
    chance = random.Random(seed)
    spans = [*loop(14, trace="one"), *loop(9, trace="two", prefix="t", conversation=None, start=3.0)]
    chance.shuffle(spans)
    requests = split([request(one) for one in spans], [chance.randrange(1, 4) for _ in spans])
    assert scored(requests, {at for at in restarts if at < len(requests)}) == without_prices(score_all(requests))


def test_operations_delivered_again_change_nothing() -> None:
    workers, twice = Workers(), Workers()
    for one in loop(6):
        operations = workers.operations(request(one))
        workers.carry_out(operations)
        twice.carry_out(operations)
        twice.carry_out(operations)
    assert without_prices(twice.verdicts()) == without_prices(workers.verdicts())
    assert any(verdict.nudge for verdict in workers.verdicts().values())


def test_a_saved_step_is_the_same_step() -> None:
    workers = Workers()
    for data in singles(capture_request(capture_names()[0])):
        workers.carry_out(workers.operations(data))
    before = {item.span: item for trajectory in workers.registry for item in trajectory.items}
    workers.restart()
    after = {item.span: item for trajectory in workers.registry for item in trajectory.items}
    assert before.keys() == after.keys()
    assert before
    for span, item in before.items():
        other = after[span]
        assert type(other) is type(item)
        if isinstance(item, StepItem):
            for name in FIELDS:
                if name not in ("verdict", "view"):
                    assert getattr(other, name) == getattr(item, name), name
            assert other.view == item.view._replace(events=list(item.view.events))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b"[1]", b"null", b'[9,"add",["",""],{}]', b'[1,"burn",["",""],{}]', b'[1,"add",1,{}]'],
)
def test_bytes_that_are_no_operation_are_refused(data: bytes) -> None:
    with pytest.raises(ItemFormatError):
        Operation.from_bytes(data)


def changed(content: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**content, **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"v": 7}, "version 7"),
        ({"dialect": "unheard of"}, "'unheard of' is not configured"),
        ({"step": {}}, "damaged item"),
        ({"span": "zz"}, "damaged item"),
        ({"order": None}, "damaged item"),
        ({"view": []}, "damaged item"),
    ],
)
def test_an_item_that_cannot_be_read_is_named(values: dict[str, Any], message: str) -> None:
    workers = Workers()
    add = next(
        one for one in map(Operation.from_bytes, workers.operations(request(loop(1)[0]))) if one.kind.value == "add"
    )
    with pytest.raises(ItemFormatError, match=message):
        apply(add._replace(content=changed(add.content, **values)), workers.registry, NAMES)


def test_a_trajectory_saved_with_steps_needs_their_dialects() -> None:
    workers = Workers()
    workers.carry_out(workers.operations(request(loop(1)[0])))
    (trajectory,) = workers.registry
    data = dump(trajectory, {}, with_steps=True)
    assert data is not None
    with pytest.raises(StateFormatError, match="is not configured"):
        load(data, {})


@pytest.mark.parametrize("plain", [Level.STOP, [ModelTokens("m", 1, 2)], {"n": 1 << 80}, ["\ud800"], (1, (2, None))])
def test_values_that_orjson_refuses_are_written_as_the_standard_library_writes_them(plain: Any) -> None:
    assert from_bytes(to_bytes(plain)) == json.loads(json.dumps(plain))


@pytest.mark.parametrize(
    "text",
    [
        "[0.0004999637603759766]", "[0.0004999637603759766,12345678901234567890]", "[12345678901234567890.5]",
        '{"a":0.1234567890123456789,"b":[0.12345678901234567891234]}', '["x.12345678901234567890",12345678901234567890]',
        "-12345678901234567890", "[1.5]",
    ],
)  # fmt: skip
def test_long_fractions_and_long_integers_are_read_alike(text: str) -> None:
    assert from_bytes(text.encode()) == json.loads(text)


def test_a_saved_step_is_written_by_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library takes ten times as long, and every step of a stream worker is written twice."""
    monkeypatch.setattr("trajectory_guard_collector.scoring.item_codec.json", None)
    workers = Workers()
    for data in recorded_load(copies=1).requests[:2]:
        workers.carry_out(workers.operations(data))
    assert all(dump(trajectory, {}, with_steps=True) for trajectory in workers.registry)


def test_an_object_is_no_json() -> None:
    with pytest.raises(TypeError):
        to_bytes(object())


def test_usage_is_written_as_workers_of_an_earlier_version_read_it() -> None:
    usage = Usage(3, 2, 0.5, 1.5, (ModelTokens("m", 3, 2),), "?a")
    assert plain_usage(usage) == [3, 2, 0.5, 1.5, (("m", 3, 2),), "?a"]
    for one in (usage, usage._replace(answers=2)):
        assert usage_of(json.loads(json.dumps(plain_usage(one)))) == one
