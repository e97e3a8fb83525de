"""The bounded history behaves like a plain list of which the oldest part is forgotten."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import UNKNOWN
from trajectory_guard.core.history import KEPT_BATCHES, WIDTH, History, Ring, UsageWindow
from trajectory_guard.core.steps import ModelTokens, Usage

# few symbols, several of which overlap when laid side by side
SYMBOLS = (b"\1" * WIDTH, b"\1" * 7 + b"\2", b"\2" + b"\1" * 7, b"\1\2" * 4, b"\2\1" * 4, UNKNOWN)
symbols = st.sampled_from(SYMBOLS)
capacities = st.integers(1, 7)


@given(capacities, st.lists(symbols, max_size=40))
def test_a_ring_is_the_tail_of_a_list(capacity: int, appended: list[bytes]) -> None:
    ring = Ring(capacity)
    for at, symbol in enumerate(appended):
        ring.append(symbol)
        model = {index: appended[index] for index in range(max(0, at + 1 - capacity), at + 1)}
        assert len(ring) == len(model)
        assert ring.start == min(model)
        assert {index: ring[index] for index in model} == model
        for wanted in SYMBOLS:
            places = [index for index in reversed(model) if model[index] == wanted and wanted]
            assert list(ring.occurrences(wanted)) == places
            assert ring.last(wanted) == (places[0] if places else -1)
            assert (wanted in ring) == bool(places)


def test_what_is_forgotten_or_still_to_come_reads_as_unknown() -> None:
    ring = Ring(3)
    for number in range(1, 7):
        ring.append(bytes([number]) * WIDTH)
    outside = [index for index in range(-6, 12) if index not in (3, 4, 5)]
    assert {index: ring[index] for index in outside} == dict.fromkeys(outside, UNKNOWN)
    assert [ring[index][:1] for index in (3, 4, 5)] == [b"\4", b"\5", b"\6"]


@given(capacities, st.lists(st.tuples(symbols, symbols), max_size=30), symbols, symbols, st.integers(-1, 30))
def test_history_counts_like_a_list(
    capacity: int, steps: list[tuple[bytes, bytes]], call: bytes, result: bytes, since: int
) -> None:
    history = History(capacity)
    for batch, one in enumerate(steps):
        history.append(*one, UNKNOWN, 0, 0.0, batch * KEPT_BATCHES)
    kept = range(max(0, len(steps) - capacity), len(steps))
    places = [at for at in kept if call and at >= since and steps[at] == (call, result)]
    assert history.since(since, call, result) == places[::-1]


@given(capacities, st.lists(symbols, max_size=40))
def test_memory_is_bounded_by_the_capacity(capacity: int, appended: list[bytes]) -> None:
    ring = Ring(capacity)
    for symbol in appended:
        ring.append(symbol)
    assert len(ring.data) <= capacity * WIDTH


@pytest.mark.parametrize(
    "usage", [Usage(2**64, 1), Usage(2**64, 1, unpriced=(ModelTokens("m", 2**64, 1),)), Usage(1.5, 0), Usage(-1, -2)]
)  # type: ignore[arg-type]
@pytest.mark.parametrize("cost", [10**400, math.nan, math.inf, -1.0, 0.5])
def test_tokens_and_costs_that_cannot_be_right_cost_no_step(usage: Usage, cost: float) -> None:
    engine = Engine()
    state = engine.new_state("t")
    for at in range(4):
        step = record("search", {"q": "hours"}, "closed", usage=usage._replace(cost_usd=cost))
        verdict = engine.observe(state, step)
        assert verdict is not None
        assert verdict.step_index == at
        state = engine.load_state(state.to_bytes())
    assert state.run is not None
    assert len(state.step_ids) == state.index == state.run.index == 4


def test_copies_of_a_call_in_one_batch_add_up_within_what_the_window_holds() -> None:
    window = UsageWindow()
    for _ in range(3):
        window.append(0, Usage(999_999_999_999), 8)
    assert window.after(-1)[0] == 3 * 999_999_999_999


def test_a_match_across_two_neighbours_is_no_match() -> None:
    ring = Ring(4)
    ring.append(b"AAAABBBB")
    ring.append(b"AAAABBBB")
    assert b"BBBBAAAA" not in ring
    assert ring.last(b"BBBBAAAA") == -1


@pytest.mark.parametrize("symbol", [UNKNOWN])
def test_unknown_is_never_found(symbol: bytes) -> None:
    ring = Ring(4)
    ring.append(symbol)
    assert symbol not in ring
    assert ring.last(symbol) == -1
    assert list(ring.occurrences(symbol)) == []
