"""What the middleware remembers shows nowhere, and is there again after a restart, a resume and a step back in time."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.own_keys import MEMORY
from trajectory_guard.gates.private_state import RememberingStatus, StatusChannel

from .agents import (
    NUDGED_THEN_STOPPED,
    TASK,
    lookup,
    new_board,
    outline,
    repeats,
    search,
    thread,
    works,
)

MODES = ("values", "updates", "debug", "tasks", "checkpoints", "messages", "custom")
SECRET_KEYS = {MEMORY, "calls", "nudge_digests", "cursor_state", "nudged_run", "advice_digests"}


def _agent(policy: Policy, saver: Any = None, board: FlagBoard | None = None, **options: Any) -> Any:
    middleware = TrajectoryGuardMiddleware(board=board or new_board(**options))
    return create_agent(ScriptedChatModel(policy=policy), [search, lookup], middleware=[middleware], checkpointer=saver)


def _as_sent(value: Any) -> str:
    """JSON as a server writes it: messages and objects by their fields, bytes not at all."""

    def default(held: Any) -> Any:
        if isinstance(held, (bytes, bytearray)):
            raise TypeError("bytes in a stream")
        if isinstance(held, BaseMessage):
            return held.model_dump()
        return repr(held)

    return json.dumps(value, default=default)


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(map(str, value)).union(*map(_keys, value.values()))
    return set[str]().union(*map(_keys, value)) if isinstance(value, (list, tuple)) else set()


@pytest.mark.parametrize("policy", [works(4), repeats(8)], ids=["healthy", "nudged and stopped"])
@pytest.mark.parametrize("options", [{}, {"cursor": True}], ids=["", "cursor"])
@pytest.mark.parametrize("mode", MODES)
def test_no_stream_shows_it_and_every_chunk_can_be_sent(mode: str, options: Any, policy: Policy) -> None:
    chunks = list(_agent(policy, InMemorySaver(), **options).stream(TASK, thread(), stream_mode=mode))

    assert chunks or mode == "custom"
    assert MEMORY not in _as_sent(chunks)
    assert not _keys(chunks) & SECRET_KEYS


# v1 is a log of JSON patches, which the lowest langchain-core cannot make with today's jsonpatch, guarded or not.
@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.newest), "v2"])
async def test_no_event_shows_it(version: Any) -> None:
    events: AsyncIterator[Any] = _agent(repeats(8), InMemorySaver()).astream_events(TASK, thread(), version=version)
    seen = [event async for event in events]

    assert any("loop_status" in _as_sent(event) for event in seen)
    assert not _keys(seen) & SECRET_KEYS
    assert MEMORY not in _as_sent(seen)


@pytest.mark.parametrize("mode", MODES)
def test_a_parent_graph_that_streams_its_sub_graphs_shows_nothing(mode: str) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("worker", _agent(repeats(8)))
    builder.add_edge(START, "worker")
    builder.add_edge("worker", END)
    graph: Any = builder.compile(InMemorySaver())

    chunks = list(graph.stream(TASK, thread(), stream_mode=mode, subgraphs=True))

    assert MEMORY not in _as_sent(chunks)
    assert not _keys(chunks) & {"nudge_digests", "calls", "cursor_state"}


def test_results_and_saved_values_show_it_neither() -> None:
    saver = InMemorySaver()
    agent = _agent(repeats(8), saver)

    result = agent.invoke(TASK, thread())
    history = [one.values for one in agent.get_state_history(thread())]

    assert result["loop_status"]["status"] == "stopped"
    assert not _keys([result, history]) & SECRET_KEYS
    assert result["loop_status"].memory["state"]
    kept = saver.get(thread())
    assert kept is not None
    assert {"state", "calls"} <= kept["channel_values"]["loop_status"].keys()
    assert json.loads(json.dumps(kept["channel_values"]["loop_status"])) == kept["channel_values"]["loop_status"]


def test_a_thread_goes_on_in_other_processes(tmp_path: Path) -> None:
    """Fresh boards and reopened databases stand in for processes: one model call each."""
    state: Any = TASK
    for _ in range(30):
        with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            agent = _agent(repeats(8), saver)
            values = agent.invoke(state, thread(), interrupt_after=["model"])
            state = None
            if not agent.get_state(thread()).next:
                break

    assert outline(values["messages"]) == NUDGED_THEN_STOPPED
    assert values["loop_status"]["steps_taken"] == 5


class OwnState(AgentState):
    """A state of the application's own, which overrides the middleware's channel."""

    loop_status: dict[str, Any]


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "other processes"])
def test_a_state_of_the_applications_own_loses_the_memory_but_no_stop(fresh: bool) -> None:
    saver, state, board = InMemorySaver(), TASK, new_board()
    for _ in range(30):
        middleware = TrajectoryGuardMiddleware(board=new_board() if fresh else board)
        model = ScriptedChatModel(policy=repeats(40))
        agent: Any = create_agent(model, [search], middleware=[middleware], checkpointer=saver, state_schema=OwnState)
        values = agent.invoke(state, thread(), interrupt_after=["model"])
        state = None  # type: ignore[assignment]
        if not agent.get_state(thread()).next:
            break

    assert outline(values["messages"]) == NUDGED_THEN_STOPPED


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_that_pauses_is_nudged_once(durability: Any) -> None:
    saver = InMemorySaver()
    agent, state = _agent(repeats(8), saver), TASK
    for _ in range(30):
        values = agent.invoke(state, thread(), interrupt_before=["tools"], durability=durability)
        state = None  # type: ignore[assignment]
        if not agent.get_state(thread()).next:
            break

    assert outline(values["messages"]) == NUDGED_THEN_STOPPED


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "another process"])
def test_a_checkpoint_is_resumed_with_what_was_known_there(fresh: bool) -> None:
    saver = InMemorySaver()
    agent = _agent(repeats(8), saver)
    agent.invoke(TASK, thread())
    early = next(
        one
        for one in agent.get_state_history(thread())
        if one.next == ("model",) and outline(one.values["messages"]) == "hatat"
    )

    again = _agent(repeats(8), saver) if fresh else agent
    assert outline(again.invoke(None, early.config)["messages"]) == NUDGED_THEN_STOPPED


@pytest.mark.newest
def test_an_application_that_writes_the_status_leaves_the_memory_alone() -> None:
    saver = InMemorySaver()
    agent = _agent(repeats(8), saver)
    agent.invoke(TASK, thread(), interrupt_after=["tools"])
    agent.invoke(None, thread(), interrupt_after=["tools"])
    config = agent.update_state(thread(), {"loop_status": {"status": "mine"}})

    values = agent.get_state(config).values
    assert values["loop_status"] == {"status": "mine"}
    assert values["loop_status"].memory["calls"]


ROUND: list[Callable[[Any], Any]] = [copy.deepcopy, copy.copy, lambda one: pickle.loads(pickle.dumps(one))]


@pytest.mark.parametrize("way", ROUND, ids=["deepcopy", "copy", "pickle"])
def test_copies_of_a_status_remember(way: Callable[[Any], Any]) -> None:
    status = RememberingStatus({"status": "ok"}, {"calls": ["1"]})

    twin = way(status)

    assert (twin, twin.memory) == ({"status": "ok"}, {"calls": ["1"]})


def test_a_serializer_sees_a_plain_dictionary() -> None:
    serde = JsonPlusSerializer()
    status = RememberingStatus({"status": "ok"}, {"calls": ["1"]})

    assert serde.loads_typed(serde.dumps_typed(status)) == {"status": "ok"}


def test_the_channel_reads_checkpoints_without_memory() -> None:
    channel = StatusChannel(dict, "loop_status").from_checkpoint({"status": "ok"})

    assert (channel.get(), channel.get().memory) == ({"status": "ok"}, {})
    assert channel.checkpoint() == {"status": "ok"}
    assert channel == StatusChannel(dict)
