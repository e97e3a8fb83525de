"""Trajectories survive a restart: their byte form, the write-ahead log, and scores that continue."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collector.backends import until
from tests.collector.kit import (
    by_name,
    comparable,
    loop,
    loop_within_a_node,
    new_scorer,
    request,
    score_all,
    span,
    span_id,
    tool,
    verdicts,
)
from tests.helpers import fewer_examples
from tests.saved_state import of_another_version
from trajectory_guard import telemetry
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError
from trajectory_guard_collector.app.pipeline import Pipeline
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.state.codec import dump, load
from trajectory_guard_collector.state.wal import request_of, wal_entry_of
from trajectory_guard_collector.state.writer import StateWriter


class Disk:
    """A store in memory; the store itself has tests of its own."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes]] = {}
        self.wal: dict[int, bytes] = {}
        self.last_wal_id = 0
        self.full = False

    async def wal_rows(self) -> list[tuple[int, bytes]]:
        return sorted(self.wal.items())

    async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
        return sorted(self.spaces.get(space, {}).items())

    async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int = 0) -> None:
        if self.full:
            raise OverloadedError("disk full")
        kept = self.spaces.setdefault(space, {})
        for key, data in rows:
            kept.pop(key, None)
            if data is not None:
                kept[key] = data
        self.wal = {number: data for number, data in self.wal.items() if number > wal_up_to}

    async def deliver(self, batch: Batch, *, key: bytes = b"", wal_entry: bytes | None = None) -> None:
        if wal_entry is not None:
            self.last_wal_id += 1
            self.wal[self.last_wal_id] = wal_entry


async def run(
    disk: Disk, requests: Sequence[bytes], *, save_after: int | None = None, **limits: object
) -> RequestScorer:
    """A collector that is killed when it has taken all requests."""
    scorer = new_scorer(**limits)
    pipeline = Pipeline(scorer, disk, scorer.metrics, wal_entry_of=wal_entry_of)
    saver = StateWriter(scorer, disk, 60.0)
    await saver.restore()
    for at, data in enumerate(requests):
        if at == save_after:
            await saver.save()
        await pipeline.accept(Batch(Signal.TRACES, data, 1))
    return scorer


def flags(scorer: RequestScorer) -> dict[str, object]:
    return {
        one.key[1]: (
            one.steps,
            round(one.score, 9),
            one.episode,
            one.nudges,
            one.level,
            one.current.last and one.current.last.types,
        )
        for one in scorer.registry
    }


def mixed() -> list[bytes]:
    fresh = [tool(f"f{at}", {"q": at}, f"answer {at}", at=10 + at) for at in range(4)]
    return [request(one) for one in (*loop(4), *fresh, *loop(5, prefix="again", start=20.0, conversation="other"))]


@fewer_examples(3)
@given(killed_at=st.integers(0, 13), saved_at=st.integers(0, 13))
async def test_scores_continue_after_a_kill_anywhere(killed_at: int, saved_at: int) -> None:
    requests, disk = mixed(), Disk()
    await run(disk, requests[:killed_at], save_after=saved_at)
    scorer = await run(disk, requests[killed_at:])
    assert flags(scorer) == flags(await run(Disk(), requests))


@pytest.mark.parametrize("killed_at", range(1, 14))
async def test_the_turns_within_a_node_continue_after_a_kill(killed_at: int) -> None:
    requests, disk = [request(one) for one in loop_within_a_node(7)], Disk()
    await run(disk, requests[:killed_at], save_after=killed_at - 1)
    scorer = await run(disk, requests[killed_at:])
    assert flags(scorer) == flags(await run(Disk(), requests))
    assert [one.level for one in scorer.registry] == [Level.STOP]


async def test_a_batch_that_was_evaluated_before_the_kill_changes_nothing_afterwards() -> None:
    requests, disk = mixed(), Disk()
    await run(disk, requests, save_after=6)
    scorer = await run(disk, requests)
    assert flags(scorer) == flags(await run(Disk(), requests))


async def test_a_span_flagged_before_the_restart_is_tagged_when_it_comes_again() -> None:
    requests, disk = [request(one) for one in loop(3)], Disk()
    first = await run(disk, requests, save_after=3)
    scorer = await run(disk, [request(tool("x", {"q": 2}, "new", at=50))], save_after=1)
    del first
    disk.wal.clear()
    again = by_name(scorer.score(requests[2]).data)[span_id("s2")]
    assert again[telemetry.INTERVENTION] == "NUDGE"


async def test_a_trajectory_named_by_half_of_a_surrogate_pair_is_saved_with_the_others() -> None:
    half, disk = {"metadata": json.dumps({"thread_id": "thread-\ud83d"})}, Disk()
    calls = [request(tool("half", conversation=None, extra=half)), request(tool("b")), request(tool("c"))]
    await run(disk, calls, save_after=2)
    disk.wal.clear()
    scorer = await run(disk, [])
    assert [scorer.registry.find(name) is not None for name in ("thread-?", "c")] == [True, True]


async def test_an_error_while_saving_does_not_end_the_saving() -> None:
    """Without it the write-ahead log would grow until the queue is full, and all data would be refused."""

    class Broken(Disk):
        async def checkpoint(self, space: str, rows: Sequence[tuple[bytes, bytes | None]], wal_up_to: int = 0) -> None:
            if "broken" in self.spaces:
                del self.spaces["broken"]
                raise RuntimeError("once")
            await super().checkpoint(space, rows, wal_up_to)

    disk = Broken()
    scorer = await run(disk, [request(tool("a"))])
    disk.spaces["broken"] = {}
    saver = StateWriter(scorer, disk, 0.01)
    saver.start()
    try:
        await until(lambda: "trajectories" in disk.spaces)
    finally:
        await saver.stop()
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "save"}
        )
        == 1
    )


async def test_links_between_traces_and_conversations_survive() -> None:
    disk = Disk()
    root = span("root", {"session.id": "conv"}, dur=9.0)
    await run(disk, [request(tool("a", conversation=None)), request(root), request(tool("z"))], save_after=2)
    disk.wal.clear()
    scorer = await run(disk, [request(tool("b", conversation=None, at=1.0))])
    assert scorer.registry.find("conv") is not None
    assert scorer.registry.find("conv").steps == 2  # type: ignore[union-attr]


async def test_nothing_is_counted_twice_by_reading_the_write_ahead_log() -> None:
    disk = Disk()
    await run(disk, mixed())
    scorer = await run(disk, [])
    assert scorer.metrics.registry.get_sample_value("trajectory_guard_steps_total", {"service_name": "app"}) is None
    assert len(scorer.registry) == 2


@pytest.mark.parametrize(
    ("size", "saved_at"),
    [
        pytest.param(50, 0.5, id="many requests, saved in the middle"),
        pytest.param(2_000, 1.0, id="large requests, saved at the end"),
        pytest.param(50, 1.0, id="many requests, saved at the end", marks=pytest.mark.nightly),
        pytest.param(2_000, 0.5, id="large requests, saved in the middle", marks=pytest.mark.nightly),
    ],
)
async def test_many_steps_of_one_conversation_are_counted_once(size: int, saved_at: float) -> None:
    """The write-ahead log is kept for a minute longer than needed, and holds more spans than are saved by id."""
    spans = [tool(f"n{at}", {"q": at}, f"answer {at}", at=at / 50) for at in range(4_000)]
    requests, disk = [request(*spans[at : at + size]) for at in range(0, len(spans), size)], Disk()
    await run(disk, [*requests, request()], save_after=round(saved_at * len(requests)))
    scorer = await run(disk, [request(tool("more", {"q": "new"}, "new", at=100.0))])
    assert [(one.key[1], one.steps) for one in scorer.registry] == [("c", 4_001)]


async def test_what_waits_when_it_is_saved_is_evaluated_after_the_restart() -> None:
    """The saved state covers the steps that were evaluated, also of the requests before it."""
    late, disk = [tool("later", {"q": 8}, "eight", at=8.0), tool("earlier", {"q": 4}, "four", at=4.0)], Disk()
    held = [tool(f"h{at}", {"q": at}, f"answer {at}", at=20.0 + at) for at in range(3)]
    await run(disk, [request(one) for one in (*late, *held)] + [request()], save_after=5)
    scorer = await run(disk, [])
    assert [one.steps for one in scorer.registry] == [5]


async def test_a_root_that_arrives_after_the_restart_counts_no_step_again() -> None:
    spans = [
        tool(f"n{at}", {"q": at}, f"answer {at}", at=at / 50, conversation=None, parent="root") for at in range(2_000)
    ]
    disk, root = Disk(), span("root", {"gen_ai.conversation.id": "conv"}, dur=60.0)
    await run(disk, [request(*spans[:1_500]), request(*spans[1_500:]), request()], save_after=2)
    scorer = await run(disk, [request(root)])
    assert [(one.key[1], one.steps) for one in scorer.registry] == [("conv", 2_000)]


async def test_a_full_disk_loses_no_change() -> None:
    disk = Disk()
    scorer = new_scorer()
    saver = StateWriter(scorer, disk, 60.0)
    await saver.restore()
    scorer.score(request(loop(1)[0]))
    disk.full = True
    await saver.save()
    assert disk.spaces == {}
    disk.full = False
    await saver.save()
    assert len(disk.spaces["trajectories"]) == 1


async def test_a_disk_that_stays_full_costs_one_state_a_trajectory() -> None:
    disk = Disk()
    scorer = new_scorer()
    saver = StateWriter(scorer, disk, 60.0)
    await saver.restore()
    disk.full = True
    for one in loop(5):
        scorer.score(request(one))
        await saver.save()
    assert len(saver._unsaved["trajectories"]) == 1


async def test_evicted_trajectories_leave_the_disk() -> None:
    from trajectory_guard.config import GuardConfig

    disk = Disk()
    scorer = new_scorer(GuardConfig(max_trajectories=2))
    saver = StateWriter(scorer, disk, 60.0)
    for at in range(5):
        scorer.score(request(tool(f"s{at}", conversation=f"c{at}", trace=f"t{at}")))
        await saver.save()
    assert len(disk.spaces["trajectories"]) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"v":9}', b'{"v":1}', b'{"v":1,"key":[1],"marks":{}}'])
async def test_damaged_trajectories_are_named_counted_and_left_out(damage: bytes) -> None:
    with pytest.raises(StateFormatError):
        load(damage)
    disk = Disk()
    await run(disk, mixed(), save_after=9)
    disk.wal.clear()
    disk.spaces["trajectories"][b"bad"] = damage
    scorer = new_scorer()
    saver = StateWriter(scorer, disk, 60.0)
    await saver.restore()
    assert len(scorer.registry) == len(disk.spaces["trajectories"]) - 1
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "restore"}
        )
        == 1
    )
    await saver.save()
    assert b"bad" not in disk.spaces["trajectories"], "the next start would report it again"


@pytest.mark.parametrize("damage", [{"key": [[], "c"]}, {"key": ["", {}]}, {"hands": [0, []]}, {"hands": [0, {}]}])
async def test_one_damaged_value_costs_its_trajectory_and_no_start(damage: dict[str, object]) -> None:
    disk = Disk()
    await run(disk, [request(loop(1)[0]), request(loop(1, trace="t", conversation="d")[0])], save_after=1)
    ((key, data),) = disk.spaces["trajectories"].items()
    disk.spaces["trajectories"] = {key: json.dumps({**json.loads(data), **damage}).encode()}
    disk.wal.clear()
    scorer = await run(disk, [request(tool("s", trace="t", conversation="d"))])
    assert [one.key[1] for one in scorer.registry] == ["d"]
    assert sample(scorer, "trajectory_guard_errors_total", trajectory_guard_error_where="restore") == 1


async def upgraded(disk: Disk, requests: Sequence[bytes]) -> RequestScorer:
    """A collector whose engine has another version of the state than the one that filled the disk."""
    kept = disk.spaces["trajectories"]
    kept.update({key: of_another_version(data) for key, data in kept.items()})
    return await run(disk, requests)


def sample(scorer: RequestScorer, name: str, **labels: str) -> float:
    return scorer.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_after_an_upgrade_every_step_counts_and_loops_are_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    names, disk = [f"c{nth}" for nth in range(9)], Disk()
    before = [request(one) for name in names for one in loop(3, prefix=name, conversation=name, trace=name)]
    after = [
        request(one) for name in names for one in loop(5, start=60.0, prefix=f"{name}-", conversation=name, trace=name)
    ]
    await run(disk, [*before, request()], save_after=len(before))
    scorer = await upgraded(disk, [before[0], *after])
    assert sample(scorer, "trajectory_guard_steps_total", service_name="app") == len(after)
    assert sample(scorer, "trajectory_guard_duplicates_total") == 1
    assert sample(scorer, "trajectory_guard_errors_total", trajectory_guard_error_where="state.trajectory") == len(
        names
    )
    assert len([one for one in caplog.records if "state format version" in one.getMessage()]) <= 1
    assert flags(scorer) == dict.fromkeys(names, (8, 5.0, 2, 2, Level.STOP, ["TYPE_I_STUTTER"]))


async def test_a_flag_does_not_outlast_the_state_that_an_upgrade_cannot_read() -> None:
    """Nothing could end it. One by hand ends when a person clears it."""
    disk = Disk()
    first = await run(disk, [request(one) for one in loop(5)])
    stopped = first.registry.find("c")
    assert stopped is not None
    assert stopped.current.stop is not None
    first.registry.raise_flag(stopped, HandFlag.of("STOP", "the order was cancelled", "maria"))
    saver = StateWriter(first, disk, 60.0)
    await saver.save()
    scorer = await upgraded(disk, [request(tool("next", {"q": 9}, "new", at=50.0))])
    trajectory = scorer.registry.find("c")
    assert trajectory is not None
    assert trajectory.by_hand is not None
    assert (trajectory.by_hand.reason, trajectory.current.stop, trajectory.steps) == (
        "the order was cancelled",
        None,
        6,
    )


async def test_after_an_upgrade_a_trace_gets_the_name_of_its_conversation_and_a_person_clears_its_flag() -> None:
    disk = Disk()
    await run(disk, [*[request(one) for one in loop(3, conversation=None)], request()], save_after=3)
    scorer = await upgraded(disk, [request(tool("named", {"q": 2}, "new", at=9.0))])
    assert [(one.key[1], one.steps) for one in scorer.registry] == [("c", 4)]
    (trajectory,) = scorer.registry
    await StateWriter(scorer, disk, 60.0).save()
    scorer = await upgraded(disk, [])
    (trajectory,) = scorer.registry
    scorer.registry.clear_flag(trajectory)
    assert (trajectory.current.nudge, trajectory.steps) == (None, 4)


# Found: the first start after an upgrade wrote one line at ERROR for each of thousands of trajectories.
async def test_the_start_after_an_upgrade_says_once_that_nothing_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.spaces["trajectories"] = {str(at).encode(): b'{"v":1}' for at in range(50)}
    scorer = await run(disk, [])
    said = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(said) == 2
    assert said[0].endswith("trajectory format version 1 is unknown")
    assert "50 of 50 trajectories start empty" in said[1]
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "restore"}
        )
        == 50
    )


async def test_damaged_write_ahead_entries_are_left_out() -> None:
    disk = Disk()
    await run(disk, mixed())
    disk.wal[1] = b"rubbish"
    scorer = await run(disk, [])
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "restore"}
        )
        == 1
    )
    assert scorer.registry.find("other") is not None


def test_the_byte_form_restores_a_trajectory_that_behaves_the_same() -> None:
    requests = mixed()
    scorer = new_scorer()
    for data in requests[:6]:
        scorer.score(data)
    saved = [dump(trajectory, {}) for trajectory in scorer.registry]
    again = new_scorer()
    for data in saved:
        assert data is not None
        again.registry.restore(*load(data))
    for data in requests[6:]:
        again.score(data)
    expected = comparable(score_all(requests))
    found = comparable(verdicts(again))
    assert found == {key: expected[key] for key in found}
    assert len(found) == len(requests) - 6


def test_the_write_ahead_log_leaves_out_long_texts_of_model_spans() -> None:
    chat = span("chat", {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "x" * 100_000, "session.id": "s"})
    scored = new_scorer().score(request(chat, tool("t", {"q": "y" * 20_000})), wal_entry_of=wal_entry_of)
    assert scored.wal_entry is not None
    kept = request_of(scored.wal_entry)
    assert 20_000 < len(kept) < 30_000
    assert comparable(score_all([kept])) == comparable(
        score_all([request(tool("t", {"q": "y" * 20_000}, conversation="c"))])
    )
