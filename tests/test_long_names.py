"""Ids that clients choose and names of tools that models make up: kept in bounded length, found by the whole one, and
such that they can be written down."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from tests.collector.kit import by_name, loop, new_scorer, request, span_id
from tests.fleet.answers import answer, scored
from tests.fleet.simulation import Simulation
from tests.fleet.test_stages import records
from tests.helpers import record
from trajectory_guard import FlagBoard, GuardConfig, telemetry
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.gates.gate import Gate
from trajectory_guard.gates.integrity import IntegrityGate
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard_collector.api.flags import RegistryFlags

MEGABYTE = 1_000_000


def guarded(**settings: Any) -> tuple[FlagBoard, Tracer]:
    board, provider = FlagBoard(GuardConfig(**settings)), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    return board, provider.get_tracer("app")


def call(tracer: Tracer, at: int | str, **more: Any) -> None:
    tool = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": "c",
        "gen_ai.tool.call.arguments": json.dumps({"q": at}), "gen_ai.tool.call.result": f"answer {at}",
    }  # fmt: skip
    tracer.start_span(
        "execute_tool", attributes={**tool, **{key.replace("__", "."): one for key, one in more.items()}}
    ).end()


def model_call(tracer: Tracer, at: int, **more: Any) -> None:
    chat = {
        "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c", "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 1, "gen_ai.response.model": "a-model",
    }  # fmt: skip
    tracer.start_span("chat", attributes={**chat, **{key.replace("__", "."): one for key, one in more.items()}}).end()


LONG: dict[str, Callable[[Tracer, int, str], None]] = {
    "conversation": lambda tracer, at, name: call(tracer, at, gen_ai__conversation__id=name),
    "session": lambda tracer, at, name: call(tracer, at, session__id=name),
    "tool": lambda tracer, at, name: call(tracer, at, gen_ai__tool__name=name),
    "agent": lambda tracer, at, name: call(tracer, at, gen_ai__agent__name=name),
    "call id": lambda tracer, at, name: call(tracer, at, gen_ai__tool__call__id=name),
    "error": lambda tracer, at, name: call(tracer, at, error__type=name, gen_ai__tool__call__result="Error: no"),
    "graph run": lambda tracer, at, name: call(tracer, at, langgraph_checkpoint_ns=f"{name}|tools:1"),
    "metadata": lambda tracer, at, name: call(
        tracer, at, metadata=json.dumps({"thread_id": name, "lc_agent_name": name, "langgraph_checkpoint_ns": name})
    ),
    "model": lambda tracer, at, name: model_call(tracer, at, gen_ai__response__model=name),
    "response": lambda tracer, at, name: model_call(tracer, at, gen_ai__response__id=name),
    "conversation of a model call": lambda tracer, at, name: model_call(tracer, at, gen_ai__conversation__id=name),
}


@pytest.mark.parametrize("kind", LONG)
def test_no_name_in_a_span_is_kept_whole(kind: str) -> None:
    board, tracer = guarded(track_spending=True, track_quality=True)
    model_call(tracer, 0)
    board.prices.wait(["a-model"], 30)  # its thread imports
    LONG[kind](tracer, 0, "0" + "x" * MEGABYTE)
    gc.collect()
    tracemalloc.start()
    try:
        for at in range(1, 9):
            LONG[kind](tracer, at, f"{at}" + "x" * MEGABYTE)
        for at in range(1, 9):  # what is at hand of the spans that ended last
            LONG[kind](tracer, at, f"{at}")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < MEGABYTE, "one of eight names"
    finally:
        tracemalloc.stop()


def test_a_trajectory_with_a_long_id_is_found_under_its_other_names() -> None:
    board, name = FlagBoard(GuardConfig()), "x" * 2_000
    board.observe(record("search", {"q": "hours"}, "closed", trajectory=name))
    board.link(name, ("thread",))
    assert board.read("thread").steps == board.read(name).steps == 1
    board.observe(record("search", {"q": "hours"}, "closed", trajectory="trace", trace_id="trace"))
    board.join("trace", name)
    assert board.read("trace").steps == board.read(name).steps == 2


def test_a_flag_is_found_under_the_whole_id_and_under_no_other() -> None:
    board, tracer = guarded()
    name = "x" * 2_000
    for _ in range(3):
        call(tracer, 0, gen_ai__conversation__id=name)
    call(tracer, 0, gen_ai__conversation__id=name + "y")
    assert board.read(name).level.value == "NUDGE"
    assert board.read(name + "y").steps == 1
    assert board.take(name).steps == 3
    assert all(len(one) == MAX_NAME_CHARS for one in board.trajectories)


def test_tools_with_long_names_are_told_apart_and_shown_short() -> None:
    board, tracer = guarded()
    name = "read_" + "x" * 1_000
    for end in "ab":
        call(tracer, 0, gen_ai__tool__name=name + end)
    assert board.read("c").verdict is None
    for _ in range(3):
        call(tracer, 0, gen_ai__tool__name=name, gen_ai__conversation__id="another")
    verdict = board.read("another").verdict
    assert verdict is not None
    assert verdict.rule == "same_call_same_result"
    assert "read_x" in str(verdict.nudge)
    assert len(str(verdict.nudge)) < 1_000


def turns(count: int, tool: str, call_id: str = "call") -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage("look", id="h")]
    for at in range(count):
        request = {"name": tool, "args": {"q": "x"}, "id": f"{call_id}{at}"}
        messages.append(AIMessage("", tool_calls=[request], id=f"a{at}"))
        messages.append(ToolMessage("nothing", tool_call_id=f"{call_id}{at}", id=f"t{at}", name=tool))
    return messages


@pytest.mark.parametrize("length", [1, 1_000])
def test_a_gate_and_spans_agree_on_long_names(length: int) -> None:
    """Each call is one step, and the thread is that of the spans."""
    board, tracer = guarded()
    thread, tool, calls = ("x" * length + end for end in "tfc")
    for at in range(2):
        call(tracer, "x", gen_ai__conversation__id=thread, gen_ai__tool__name=tool, gen_ai__tool__call__id=f"{calls}{at}",
             gen_ai__tool__call__result="nothing")  # fmt: skip
    gate = Gate(board=board)
    decision = gate.decide(turns(2, tool, calls), {}, thread)
    assert (len(board), board.read(thread).steps) == (1, 2)
    assert decision.trajectory_id == bounded_name(thread)
    decision = gate.decide(turns(3, tool, calls), decision.status, thread)
    assert board.read(thread).steps == 3
    assert len(str(decision.status["calls"])) < 3 * MAX_NAME_CHARS + 100


def test_a_gate_around_a_node_finds_a_thread_with_a_long_id() -> None:
    gate = IntegrityGate([bool], board=FlagBoard(GuardConfig()))
    thread = "x" * 2_000
    gate.wrap(lambda state, config: None)({}, {"configurable": {"thread_id": thread}})
    assert gate.is_violated_for(thread)
    assert not gate.is_violated_for(thread + "y")
    assert max(map(len, gate._threads)) == MAX_NAME_CHARS
    gate.reset(thread)
    assert not gate.is_violated_for(thread)


def test_a_collector_and_stream_workers_find_a_flag_under_the_whole_id() -> None:
    name = "x" * 2_000
    requests = [request(one) for one in loop(3, conversation=name)]
    scorer, run = scored(requests), Simulation(records(requests))
    run.drain()
    for find in (RegistryFlags(scorer.registry).find, run.flags.find):
        assert answer(find, name, None, None)["level"] == "NUDGE"
        assert answer(find, bounded_name(name), None, None)["level"] == "NUDGE"
        assert answer(find, name + "y", None, None)["level"] == "OBSERVE"


def test_half_of_a_surrogate_pair_in_metadata_costs_no_verdict() -> None:
    """JSON can carry it, as text that was cut off in the middle of an emoji; OTLP, files and replies cannot."""
    half = {"lc_agent_name": "\ud83d", "langgraph_checkpoint_ns": "\ud83d:1|tools:2", "thread_id": "thread-\ud83d"}
    spans = loop(3, conversation=None, extra={"metadata": json.dumps(half)})
    scorer = new_scorer()
    tagged = [by_name(scorer.score(request(one)).data) for one in spans]
    assert tagged[-1][span_id("s2")][telemetry.INTERVENTION] == "NUDGE"
    found = answer(RegistryFlags(scorer.registry).find, "thread-?", None, None)
    assert found["level"] == "NUDGE"
    json.dumps(found, ensure_ascii=False).encode()


def test_a_guard_in_process_names_no_half_of_a_surrogate_pair() -> None:
    """The exporter of its spans could not encode one, and would drop the whole batch."""
    board, tracer = guarded()
    for _ in range(3):
        call(tracer, 0, gen_ai__conversation__id="", metadata=json.dumps({"thread_id": "thread-\ud83d"}))
    assert board.read("thread-?").level.value == "NUDGE"
