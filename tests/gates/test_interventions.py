"""The gate's interventions and their times: observe, nudge once, stop; the same under invoke and ainvoke."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard import (
    Certificate,
    GuardConfig,
    LoopDetectedError,
    StepRecord,
    ToolPolicy,
    TrajectoryGuardNode,
    apply_guard,
)
from trajectory_guard.cli.demo.agents import AGENTS, build_graph
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.gates.gate import Gate

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    SEARCHED_IN_VAIN,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    calls,
    closing,
    lookup,
    new_board,
    no_call_is_split_from_its_answer,
    nudges,
    obeys,
    outline,
    repeats,
    repeats_in_pairs,
    rounds,
    search,
    thread,
    works,
    works_in_pairs,
)


def _run(policy: Any, *, config: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    graph = apply_guard(agent_builder(policy), board=new_board(**(config or {})), **options).compile()
    return graph.invoke(TASK, output_keys=["messages", "loop_status", "trajectory_scratchpad"])


# --- levels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (repeats(), NUDGED_THEN_STOPPED),
        (obeys, NUDGED_THEN_FINISHED),
        (works(6), "h" + "at" * 6 + "a"),
        (repeats(2), "hatata"),
    ],
    ids=["ignores the nudge", "listens", "works", "asks twice"],
)
def test_invoke_and_ainvoke_and_stream_intervene_alike(policy: Any, expected: str) -> None:
    def graph() -> Any:
        return apply_guard(agent_builder(policy), board=new_board()).compile()

    streamed = list(graph().stream(TASK, stream_mode="values"))[-1]

    async def astreamed() -> Any:
        return [state async for state in graph().astream(TASK, stream_mode="values")][-1]

    runs = [graph().invoke(TASK), asyncio.run(graph().ainvoke(TASK)), streamed, asyncio.run(astreamed())]
    assert [outline(run["messages"]) for run in runs] == [expected] * 4


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.title)
def test_the_agents_of_the_demo(agent: Any) -> None:
    expected = {"Recovers": "nudged", "Ignores the nudge": "stopped", "Edits and tests": "ok", "Polls": "ok"}
    graph = apply_guard(build_graph(agent.policy, agent.tools()), board=new_board()).compile()

    statuses = [
        change["loop_status"]["status"]
        for update in graph.stream({"messages": [("user", agent.task)]}, stream_mode="updates")
        for change in update.values()
        if "loop_status" in change
    ]

    assert max(statuses, key=["ok", "nudged", "stopped"].index) == expected[agent.title]


def test_status_of_a_run_in_which_nothing_happened() -> None:
    status = _run(works(3))["loop_status"]

    assert {key: status[key] for key in ("status", "score", "health", "nudges_sent", "steps_taken", "stop")} == {
        "status": "ok", "score": 0.0, "health": 1.0, "nudges_sent": 0, "steps_taken": 3, "stop": None,
    }  # fmt: skip
    assert status["types"] == []
    assert status["last_intervention"] is None


def test_the_nudge_names_the_call_the_count_and_the_answer() -> None:
    (nudge,) = nudges(_run(obeys)["messages"])

    assert nudge.type == "human"
    assert 'search({"query": "return policy"}) was called 3 times and returned nothing' in nudge.content
    assert "What to try:" in nudge.content


def test_the_score_falls_again_after_a_recovery() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        if not nudges(messages):
            return calls(messages, ("search", {"query": "x"}))
        return works(9)(messages, turn)

    result = _run(policy)

    assert outline(result["messages"]) == "hatatatN" + "at" * 6 + "a"
    assert result["loop_status"]["score"] < 0.1
    assert result["loop_status"]["status"] == "ok"
    assert result["loop_status"]["last_intervention"] == "NUDGE"


def test_a_second_loop_after_a_recovery_is_nudged_again_before_it_is_stopped() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        done = rounds(messages)
        if done < 3 or done >= 9:
            return calls(messages, ("search", {"query": "x" if done < 3 else "y"}))
        return calls(messages, ("lookup", {"key": f"item {done}"}))

    messages = _run(policy)["messages"]

    assert outline(messages) == "hatatatN" + "at" * 6 + "atatatNatatS"
    assert len(nudges(messages)) == 2


# --- modes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("observe", "h" + "at" * 8 + "a"), ("nudge", "hatatatNatatatNatata"), ("enforce", NUDGED_THEN_STOPPED)],
)
def test_modes(mode: str, expected: str) -> None:
    for configured in ({"config": {"mode": mode}}, {}):
        graph = apply_guard(
            agent_builder(repeats()),
            None if configured else GuardConfig(mode=mode),
            board=new_board(**configured.get("config", {})),
        ).compile()

        assert outline(graph.invoke(TASK)["messages"]) == expected


def test_observing_still_tells_the_score() -> None:
    status = _run(repeats(4), config={"mode": "observe"})["loop_status"]

    assert status["score"] == 5.0
    assert status["status"] == "ok"
    assert status["types"] == ["TYPE_I_STUTTER"]


def test_thresholds_come_from_the_configuration() -> None:
    early = {"nudge_threshold": 1.0, "stop_threshold": 3.0}
    never = {"weights": {"TYPE_I_STUTTER": 0.0}}

    assert outline(_run(repeats(), config=early)["messages"]) == "hatatNatatS"
    assert outline(_run(repeats(5), config=never)["messages"]) == "h" + "at" * 5 + "a"


def test_a_tool_that_is_set_to_be_ignored_is_not_evaluated() -> None:
    result = _run(repeats(6), config={"tools": {"search": ToolPolicy(ignore=True)}})

    assert outline(result["messages"]) == "h" + "at" * 6 + "a"
    assert result["loop_status"]["steps_taken"] == 0


def test_redaction_keeps_arguments_and_results_out_of_everything_the_gate_writes() -> None:
    result = _run(repeats(), config={"redact": True})

    written = [message.content for message in (*nudges(result["messages"]), *closing(result["messages"]))]
    reported = json.dumps([written, result["trajectory_scratchpad"], {**result["loop_status"], "state": None}])
    assert "return policy" not in reported
    assert "No results" not in reported
    assert "search" in reported


# --- never between a call and its answer ------------------------------------------------------------------------


# Found: the second call of a batch wiped out the nudge that the first had raised, so the run was stopped unwarned.
def test_parallel_calls_that_repeat_are_nudged_before_they_are_stopped() -> None:
    messages = _run(repeats_in_pairs)["messages"]

    assert outline(messages) == "hattattNattattS"


# Found: as above, with one and the same call twice in a batch.
def test_the_same_call_twice_in_a_batch_is_nudged_before_it_is_stopped() -> None:
    def policy(messages: Any, turn: int) -> AIMessage:
        return calls(messages, *[("search", {"query": "x"})] * 2)

    line = outline(_run(policy)["messages"])

    assert line.count("N") == 1
    assert line.index("N") < line.index("S")


def test_no_call_is_split_from_its_answer() -> None:
    for policy in (repeats(), obeys, repeats_in_pairs, works_in_pairs(4)):
        assert no_call_is_split_from_its_answer(_run(policy)["messages"])


def test_parallel_calls_of_a_working_agent_are_no_loop() -> None:
    assert outline(_run(works_in_pairs(5))["messages"]) == "h" + "att" * 5 + "a"


def test_a_batch_of_equal_calls_in_one_turn_is_no_loop() -> None:
    """Three agents of the model's own imagination ask the same at once: one step of time, no cycle."""

    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages):
            return AIMessage("Done.")
        return calls(messages, *[("lookup", {"key": "same"})] * 4)

    assert outline(_run(policy)["messages"]) == "hatttta"


def _half_answering_graph(policy: Any) -> Any:
    """A tool node that answers one call at a time: the gate is passed while calls are still open."""
    node = ToolNode([search, lookup])

    def tools(state: MessagesState) -> Any:
        messages = state["messages"]
        answered = {message.tool_call_id for message in messages if message.type == "tool"}
        asked = next(message for message in reversed(messages) if getattr(message, "tool_calls", None))
        return node.invoke([next(one for one in asked.tool_calls if one["id"] not in answered)])

    def agent(state: MessagesState) -> Any:
        messages = state["messages"]
        answered = {message.tool_call_id for message in messages if message.type == "tool"}
        asked = next((message for message in reversed(messages) if getattr(message, "tool_calls", None)), None)
        if asked is not None and any(one["id"] not in answered for one in asked.tool_calls):
            return None
        return agent_node(policy)(state)

    def route(state: MessagesState) -> str:
        return END if state["messages"][-1].type == "ai" and not state["messages"][-1].tool_calls else "tools"

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tools", END])
    builder.add_edge("tools", "agent")
    return apply_guard(builder, board=new_board()).compile()


def test_a_nudge_waits_until_every_parallel_call_has_its_answer() -> None:
    """In the third turn the gate sees the repeated call answered while the call beside it is still open."""

    def policy(messages: Any, turn: int) -> AIMessage:
        if rounds(messages) == 3:
            return AIMessage("Understood." if nudges(messages) else "Nobody told me.")
        more = [("lookup", {"key": "y"})] if rounds(messages) == 2 else []
        return calls(messages, ("search", {"query": "x"}), *more)

    messages = _half_answering_graph(policy).invoke(TASK)["messages"]

    assert outline(messages) == "hatatattNa"
    assert messages[-1].content == "Understood."
    assert no_call_is_split_from_its_answer(messages)


# --- stopping ------------------------------------------------------------------------------------------------


def test_a_stop_ends_the_run_with_a_closing_message_and_the_payload() -> None:
    result = _run(repeats())
    (last,) = closing(result["messages"])

    assert result["messages"][-1] is last
    assert last.content == SEARCHED_IN_VAIN
    payload = result["loop_status"]["stop"]
    assert last.response_metadata["trajectory_guard"] == payload
    assert {key: payload[key] for key in ("status", "types", "score", "nudges_sent", "steps_taken")} == {
        "status": "guardrail_triggered", "types": ["TYPE_I_STUTTER"], "score": 5.0, "nudges_sent": 1,
        "steps_taken": STOP_AT,
    }  # fmt: skip
    assert payload["similar_actions"] == ['search({"query": "return policy"})'] * STOP_AT
    assert payload["spent"]["steps"] == STOP_AT - 1  # the first call was no waste yet
    assert payload["spent"]["tokens"] > 0
    assert "called 5 times" in payload["reason"]
    assert Certificate.from_plain(payload["certificate"]).verify().status == "replayed"
    assert (payload["certificate"]["rule"], payload["certificate"]["facts"]["level"]) == (payload["rule"], "STOP")
    assert payload["recommendation"]
    assert json.loads(json.dumps(payload)) == payload


def test_a_stop_leaves_no_open_call_and_a_finished_graph() -> None:
    graph = apply_guard(agent_builder(repeats()), board=new_board()).compile(checkpointer=InMemorySaver())

    result = graph.invoke(TASK, thread())

    assert no_call_is_split_from_its_answer(result["messages"])
    assert graph.get_state(thread()).next == ()


def test_on_stop_raise_raises_with_the_payload() -> None:
    for run in (lambda graph: graph.invoke(TASK), lambda graph: asyncio.run(graph.ainvoke(TASK))):
        graph = apply_guard(agent_builder(repeats()), on_stop="raise", board=new_board()).compile()

        with pytest.raises(LoopDetectedError, match=r"search.* was called 5 times") as caught:
            run(graph)

        assert caught.value.payload["status"] == "guardrail_triggered"
        assert caught.value.payload["steps_taken"] == STOP_AT


def test_on_stop_goes_to_a_node_that_finds_the_payload() -> None:
    found: list[Any] = []

    class State(MessagesState):
        loop_status: dict[str, Any]

    def hand_over(state: State) -> dict[str, Any]:
        found.extend(state["loop_status"]["stop"]["types"])
        return {"messages": [AIMessage("A colleague takes over.")]}

    builder = agent_builder(repeats(), state=State)
    builder.add_node("hand_over", hand_over)
    builder.add_edge("hand_over", END)
    graph = apply_guard(builder, on_stop="hand_over", board=new_board()).compile()

    messages = graph.invoke(TASK)["messages"]

    assert outline(messages) == NUDGED_THEN_STOPPED + "a"
    assert found == ["TYPE_I_STUTTER"]


# --- the node by itself ----------------------------------------------------------------------------------------


def _reported(board: Any, times: int) -> None:
    for number in range(times):
        board.observe(
            StepRecord(
                step_id=f"{number:016x}",
                trajectory_id="t",
                tool_name="search",
                tool_args_hash=args_hash({"q": 1}),
                state_snapshot_hash=result_hash("success", "same"),
                args={"q": 1},
                result="same",
                timestamp=float(number),
                call_id=f"c{number}",
            )
        )


@pytest.mark.parametrize(("steps", "goto", "status"), [(2, "agent", "ok"), (3, "agent", "nudged")])
def test_the_node_reads_what_spans_reported_to_the_board(steps: int, goto: str, status: str) -> None:
    board = new_board()
    _reported(board, steps)

    command = TrajectoryGuardNode(board=board).invoke({"messages": []}, thread("t"))

    assert command.goto == goto
    assert command.update["loop_status"]["status"] == status
    assert ("messages" in command.update) == (status == "nudged")


# Found: steps that nobody could be nudged for in between led to a stop without a warning.
def test_a_loop_that_no_gate_saw_grow_is_nudged_before_it_is_stopped() -> None:
    board = new_board()
    node = TrajectoryGuardNode(board=board)
    _reported(board, 6)

    first = node.invoke({"messages": []}, thread("t"))

    assert first.goto == "agent"
    assert first.update["loop_status"]["status"] == "nudged"


def test_the_node_can_be_called_directly_and_with_any_state() -> None:
    node = TrajectoryGuardNode(agent="model", board=new_board())

    for state in ({"messages": []}, {}, {"messages": None}, SimpleNamespace(messages=[])):
        assert node(state).goto == "model"
        assert asyncio.run(node.ainvoke(state)).goto == "model"


def test_a_nudge_in_the_system_role_and_one_in_the_tools_answer() -> None:
    system = _run(repeats(3), nudge_role="system")["messages"]
    tool = _run(repeats(3), nudge_role="tool")["messages"]

    assert [message.type for message in nudges(system)] == ["system"]
    assert outline(tool) == "hatatata"
    assert [("[Trajectory guard]" in message.content) for message in tool if message.type == "tool"] == [
        False,
        False,
        True,
    ]


# --- spans ---------------------------------------------------------------------------------------------------


def test_a_loop_read_from_messages_is_reported_once_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that may only be nudged stays at that level, step after step."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    gate, messages, status = Gate(board=new_board()), [HumanMessage("Order it.")], None
    for at in range(12):
        call = {"name": "click", "args": {"id": at}, "id": f"call_{at}"}
        messages += [
            AIMessage("", tool_calls=[call], id=f"m{at}"),
            ToolMessage("Cart: 1 item. Please choose a size to continue.", tool_call_id=f"call_{at}"),
        ]
        status = gate.decide(messages, status, "t").status
    counts, spans = gate.board.counts, exporter.get_finished_spans()
    assert counts["interventions.NUDGE"] == 2
    assert [span.attributes["trajectory_guard.intervention"] for span in spans] == ["NUDGE", "NUDGE", "STOP"]
