"""User turns that are given up before the model is called again: no gate decides in them, and their spans are there.

A person stops the agent while it works, a tool raises, or the steps run out. The next question is another turn, with
spans as without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.callbacks import Intervention
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import NUDGED_THEN_STOPPED, TASK, agent_node, new_board, outline, repeats, thread

TURNS = 4
HEALTHY = "hatata"
WAYS = ["closed stream", "recursion limit", "tool error", "interrupted after the tools"]


@pytest.fixture(params=["no spans", "official", "OpenInference"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """Of an instrumentation that shows all content, or none at all."""
    for name in [name for name in os.environ if name.startswith(("OTEL_", "OPENINFERENCE_"))]:
        monkeypatch.delenv(name)
    found = TracerProvider(shutdown_on_exit=False)
    instrumentor: Any = None
    if request.param == "official":
        from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor as Official

        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
        instrumentor = Official()
    elif request.param == "OpenInference":
        from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference

        instrumentor = OpenInference()
    if instrumentor is None:
        yield found
        return
    instrumentor.instrument(tracer_provider=found)
    yield found
    instrumentor.uninstrument()


class Chat:
    """A conversation with one guarded agent, whose board the spans feed.

    Attributes:
        reported: interventions that became due, whether or not a gate has delivered them.
    """

    def __init__(self, provider: TracerProvider, kind: str, policy: Policy) -> None:
        self.reported: list[Intervention] = []
        self.fails = False
        self.board = new_board(on_intervention=self.reported.append)
        provider.add_span_processor(TrajectoryGuardProcessor(board=self.board, tracer_provider=provider))

        @tool
        def search(query: str) -> str:
            """Search the manual."""
            if self.fails:
                raise RuntimeError("the index is missing")
            return "No results found"

        self.graph: Any = AGENTS[kind](policy, search, self.board)

    def give_up(self, way: str) -> None:
        """Ask, and end the run after the first tool call."""
        if way == "closed stream":
            updates = self.graph.stream(TASK, thread(), stream_mode="updates")
            assert any("tools" in update for update in updates)  # leaves the others
            updates.close()
        elif way == "recursion limit":
            with pytest.raises(GraphRecursionError):
                self.graph.invoke(TASK, thread(recursion_limit=2))
        elif way == "tool error":
            self.fails = True
            with pytest.raises(RuntimeError):
                self.graph.invoke(TASK, thread())
            self.fails = False
        else:
            self.graph.invoke(TASK, thread(), interrupt_after=["tools"])

    def ask(self) -> str:
        """The outline of a turn that comes to its end."""
        run = outline(self.graph.invoke(TASK, thread())["messages"])
        return run[run.rindex("h") :]


def _built(policy: Policy, search: BaseTool) -> StateGraph[Any, Any, Any, Any]:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(policy))
    builder.add_node("tools", ToolNode([search], handle_tool_errors=False))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    return builder


def graph(policy: Policy, search: BaseTool, board: FlagBoard) -> Any:
    builder = _built(policy, search)
    builder.add_edge("tools", "agent")
    return apply_guard(builder, board=board).compile(checkpointer=InMemorySaver())


def middleware(policy: Policy, search: BaseTool, board: FlagBoard) -> Any:
    guard = TrajectoryGuardMiddleware(board=board)
    return create_agent(
        ScriptedChatModel(policy=policy), [search], middleware=[guard], checkpointer=InMemorySaver()
    )  # fmt: skip


def own_node(policy: Policy, search: BaseTool, board: FlagBoard) -> Any:
    builder = _built(policy, search)
    builder.add_node("guard", TrajectoryGuardNode(board=board))
    builder.add_edge("tools", "guard")
    return builder.compile(checkpointer=InMemorySaver())


AGENTS: dict[str, Callable[[Policy, BaseTool, FlagBoard], Any]] = {
    "graph": graph,
    "middleware": middleware,
    "own node": own_node,
}
before_the_model = pytest.mark.parametrize("kind", ["graph", "middleware"])


# Found: with spans all of these turns were one run. Their first calls were reported as a loop, and the next turn was
# nudged at its first call.
@pytest.mark.parametrize("way", WAYS)
@before_the_model
def test_turns_that_are_given_up_add_nothing_up(provider: TracerProvider, kind: str, way: str) -> None:
    chat = Chat(provider, kind, repeats(2))
    for _ in range(TURNS):
        chat.give_up(way)

    assert chat.ask() == HEALTHY
    assert chat.reported == []


# Found: the nudges for the turns before were those of this loop, which was stopped at its 13th call.
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", list(AGENTS))
def test_a_loop_behind_them_is_stopped_as_any_other(provider: TracerProvider, kind: str, way: str) -> None:
    chat = Chat(provider, kind, repeats())
    for _ in range(TURNS):
        chat.give_up(way)

    assert chat.ask() == NUDGED_THEN_STOPPED


@pytest.mark.parametrize("way", WAYS)
def test_a_gate_behind_the_tools_nudges_no_turn_for_those_before_it(provider: TracerProvider, way: str) -> None:
    """Without spans it knows nothing of them. It does not see them begin: nobody tells their spans apart in time."""
    chat = Chat(provider, "own node", repeats(2))
    for _ in range(TURNS):
        chat.give_up(way)

    assert chat.ask() == HEALTHY
    assert not any(one.delivered for one in chat.reported)


@pytest.mark.parametrize("answered", [0, 1], ids=["from the first on", "behind one that was answered"])
@pytest.mark.parametrize(("times", "expected"), [(2, HEALTHY), (8, NUDGED_THEN_STOPPED)], ids=["healthy", "loop"])
@before_the_model
def test_turns_below_one_span(provider: TracerProvider, kind: str, times: int, expected: str, answered: int) -> None:
    """As in a session or a test of the application's, which has a trace of its own."""
    chat = Chat(provider, kind, repeats(times))
    with provider.get_tracer("app").start_as_current_span("session"):
        for _ in range(answered):
            assert chat.ask() == expected
        reported = len(chat.reported)
        for _ in range(TURNS):
            chat.give_up("closed stream")
        assert len(chat.reported) == reported
        assert chat.ask() == expected


@before_the_model
def test_a_turn_that_is_taken_up_again_is_one_run(provider: TracerProvider, kind: str) -> None:
    """Interrupted behind each call, and resumed in another trace: no message begins a turn there."""
    chat = Chat(provider, kind, repeats())
    chat.give_up("closed stream")
    for task in (TASK, *[None] * 12):
        chat.graph.invoke(task, thread(), interrupt_after=["tools"])

    run = outline(chat.graph.get_state(thread()).values["messages"])
    assert run[run.rindex("h") :] == NUDGED_THEN_STOPPED
