"""A step leaves a trajectory: what stays behind is evaluated without it, saved, and freed in the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.collector.kit import comparable, loop, new_scorer, request, span, span_id, tool, verdicts
from trajectory_guard.config import GuardConfig
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.scoring.item_codec import dialects_by_name
from trajectory_guard_collector.scoring.items import ALWAYS, StepItem
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.state.codec import dump, load

IDLE_S = 600.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def agent(name: str, conversation: str | None, **fields: Any) -> Any:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "x"}
    return span(name, attributes | ({"gen_ai.conversation.id": conversation} if conversation else {}), **fields)


def chat(name: str, **fields: Any) -> Any:
    tokens = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 5}
    return span(name, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **tokens}, **fields)


def evict_all(scorer: RequestScorer, clock: Clock) -> None:
    clock.now += 10 * IDLE_S
    scorer.maintain()
    assert len(scorer.registry) == 0


def kept(scorer: RequestScorer) -> tuple[set[int], int]:
    """The items that the registry finds by their spans, by identity, and the bytes that it counts."""
    return {id(item) for item in scorer.registry._items.values()}, scorer.registry.kept_bytes


def held(scorer: RequestScorer) -> tuple[set[int], int]:
    """The items of all trajectories, and their bytes."""
    items = [item for trajectory in scorer.registry for item in trajectory.items]
    return {id(item) for item in items}, sum(item.size for item in items)


def only(scorer: RequestScorer, name: str = "c") -> Trajectory:
    trajectory = scorer.registry.find(name)
    assert trajectory is not None
    return trajectory


def with_one_moved_away(count: int, clock: Clock, *, compacted: bool = False) -> RequestScorer:
    """A conversation of ``count`` equal calls; a further one turns out to belong to another conversation."""
    scorer = new_scorer(GuardConfig(idle_ttl_s=IDLE_S), clock)
    for one in loop(count):
        scorer.score(request(one))
    if compacted:
        scorer.shed()
    scorer.score(request(tool("guest", at=count + 1.0, conversation=None, parent="other")))
    assert len(only(scorer).items) == (0 if compacted else count) + 1
    scorer.score(request(agent("other", "d", at=count + 1.0)))
    assert [item.span[-8:] for item in only(scorer, "d").items] == [span_id("guest")]
    return scorer


AROUND_A_SNAPSHOT = [1, 3, 31, 32, 33, 40]


@pytest.mark.parametrize("count", AROUND_A_SNAPSHOT)
def test_what_stays_is_evaluated_without_the_newest_step(count: int) -> None:
    scorer, alone = with_one_moved_away(count, Clock()), new_scorer()
    for one in loop(count):
        alone.score(request(one))
    expected = comparable(verdicts(alone))
    assert {key: one for key, one in comparable(verdicts(scorer)).items() if one[0] == "c"} == expected
    for name in ("steps", "score", "level", "episode", "nudges", "current"):
        assert getattr(only(scorer), name) == getattr(only(alone), name), name


@pytest.mark.parametrize("count", AROUND_A_SNAPSHOT)
def test_what_stays_is_saved(count: int) -> None:
    scorer = with_one_moved_away(count, Clock())
    changed, _ = scorer.registry.take_changes()
    assert {trajectory.key[1] for trajectory in changed} == {"c", "d"}
    saved = dump(only(scorer), {})
    assert saved is not None
    assert load(saved)[0].steps == count


def test_steps_that_are_compacted_count_without_the_newest_one() -> None:
    scorer = with_one_moved_away(3, Clock(), compacted=True)
    assert only(scorer).steps == 3
    assert only(scorer).can_be_saved


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("count", AROUND_A_SNAPSHOT)
def test_what_stays_is_freed(count: int, compacted: bool) -> None:
    clock = Clock()
    scorer = with_one_moved_away(count, clock, compacted=compacted)
    assert kept(scorer) == held(scorer)
    evict_all(scorer, clock)
    assert kept(scorer) == (set(), 0)


@pytest.mark.parametrize("count", AROUND_A_SNAPSHOT)
def test_steps_that_were_read_back_are_freed(count: int) -> None:
    """No step arrived since, so that none was evaluated: the state that was saved with them covers all."""
    clock, scorer = Clock(), new_scorer(GuardConfig(idle_ttl_s=IDLE_S))
    for one in loop(count):
        scorer.score(request(one))
    saved = dump(only(scorer), {}, with_steps=True)
    assert saved is not None
    again = new_scorer(GuardConfig(idle_ttl_s=IDLE_S), clock)
    again.registry.restore(*load(saved, dialects_by_name(DIALECTS)))
    assert len(kept(again)[0]) == count
    assert again.shed()
    assert (kept(again), only(again).steps) == ((set(), 0), count)
    for one in (scorer, again):
        one.score(request(tool("later", at=count + 1.0)))
    states = [(one.steps, one.score, one.level, one.nudges) for one in (only(scorer), only(again))]
    assert states[0] == states[1]
    evict_all(again, clock)
    assert kept(again) == (set(), 0)


def test_the_bound_of_history_holds_for_trajectories_that_a_step_has_left() -> None:
    clock, limit = Clock(), 0.05
    scorer = new_scorer(clock=clock, max_history_mib=limit)
    for at in range(40):
        fields: dict[str, Any] = {"trace": f"trace{at}", "at": at}
        scorer.score(request(tool(f"a{at}", conversation=f"c{at}", **fields)))
        scorer.score(request(tool(f"b{at}", conversation=None, parent=f"p{at}", **fields)))
        scorer.score(request(agent(f"p{at}", f"d{at}", **fields)))
        assert scorer.registry.kept_bytes <= limit * (1 << 20)
    assert kept(scorer) == held(scorer)
    assert scorer.registry.kept_bytes > 0


TRACES = st.sampled_from(["t0", "t1"])
NAMES = st.sampled_from(["p0", "p1", "p2", None])
CONVERSATIONS = st.sampled_from(["c0", "c1", None, None])
TIMES = st.integers(0, 40)
KINDS = st.sampled_from(["tool", "tool", "tool", "chat", "agent", "root", "inner"])
SPANS = st.tuples(KINDS, TRACES, NAMES, CONVERSATIONS, TIMES, st.booleans())
PAUSES = st.tuples(st.just("pause"), st.sampled_from([0.0, 10.0, 400.0, 700.0]), st.booleans())
TRAFFIC = st.lists(st.one_of(SPANS, SPANS, SPANS, PAUSES), min_size=1, max_size=40)
MOVED = [
    ("tool", "t0", None, "c0", 1, True),
    ("tool", "t0", "p0", None, 2, True),
    ("agent", "t0", "p0", "c1", 3, True),
]
"""The newest step of a conversation turns out to belong to another one."""


def arriving(at: int, step: tuple[Any, ...]) -> bytes:
    """A span: a call, one reported within another, a model call, an agent or the root, which names the conversation."""
    kind, trace, name, conversation, end, again = step
    fields: dict[str, Any] = {"trace": trace, "parent": name or "", "at": float(end)}
    if kind == "tool":
        args, result = ({"q": 1}, None) if again else ({"q": at}, f"answer {at}")
        return request(tool(f"s{at}", args, result or "the same again", conversation=conversation, **fields))
    if kind == "inner":
        call = {"gen_ai.tool.call.id": "call", "gen_ai.conversation.id": conversation or "c0"}
        one = tool(f"s{at}" if name is None else name, conversation=None, extra=call, **(fields | {"parent": "p1"}))
        return request(one, scope="inner" if again else "lib")
    if kind == "chat":
        return request(chat(f"s{at}", **fields))
    if kind == "agent":
        return request(agent(name or "p0", conversation, trace=trace, parent="p2" if again else "", at=float(end)))
    return request(span("p2", {"session.id": conversation or "c1"}, trace=trace, at=float(end)))


def carried_out(traffic: list[tuple[Any, ...]], clock: Clock, **limits: Any) -> RequestScorer:
    scorer = new_scorer(GuardConfig(idle_ttl_s=IDLE_S, track_spending=True), clock, **limits)
    for at, step in enumerate(traffic):
        if step[0] == "pause":
            clock.now += step[1]
            if step[2]:
                scorer.shed()
            scorer.maintain()
        else:
            scorer.score(arriving(at, step))
        assert kept(scorer) == held(scorer)
    return scorer


@example(MOVED, 512)
@given(TRAFFIC, st.sampled_from([8, 512]))
def test_whatever_moves_everything_is_freed(traffic: list[tuple[Any, ...]], reorder_steps: int) -> None:
    clock = Clock()
    scorer = carried_out(traffic, clock, reorder_steps=reorder_steps)
    scorer.finish()
    assert all(trajectory.can_be_saved for trajectory in scorer.registry)
    evict_all(scorer, clock)
    assert kept(scorer) == (set(), 0)


@example(MOVED)
@given(st.lists(SPANS, min_size=1, max_size=40))
def test_whatever_moves_what_stays_is_evaluated_as_if_it_had_been_alone(traffic: list[tuple[Any, ...]]) -> None:
    scorer = carried_out(traffic, Clock())
    scorer.finish()
    for trajectory in scorer.registry:
        before = found(trajectory)
        alone = Trajectory(trajectory.key)
        for item in trajectory.items:
            alone.add(item)
        while alone.is_due(ALWAYS):
            alone.evaluate(scorer.registry.engine, 512, ALWAYS)
        assert found(alone) == before


def found(trajectory: Trajectory) -> tuple[Any, ...]:
    steps = [item for item in trajectory.items if isinstance(item, StepItem)]
    counts = (trajectory.steps, trajectory.episode, trajectory.nudges, round(trajectory.score, 9))
    return counts, comparable({item.view.span_id: item.verdict for item in steps if item.verdict is not None})
