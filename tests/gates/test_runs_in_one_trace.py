"""Graph runs side by side in one trace (``abatch`` in a request, a harness under one span): each stands for itself."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import TrajectoryGuardNode, apply_guard
from trajectory_guard.cli.demo.scripted import Policy
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import NUDGED_THEN_STOPPED, TASK, agent_node, new_board, outline, repeats, thread

RUNS = 6


class Harness:
    """Runs one graph several times at once below one span; all rounds of tool calls end before a gate decides.

    The spans are written by hand, by the semantic conventions: they name neither a thread nor an agent.

    Parameters:
        alike: the models number their calls, as some do, so that all runs have the same call ids.
    """

    def __init__(self, policies: list[Policy], *, threads: bool, node: bool, alike: bool = False) -> None:
        self.board = new_board()
        provider = TracerProvider()
        provider.add_span_processor(TrajectoryGuardProcessor(board=self.board))
        self.tracer = provider.get_tracer("by hand")
        self.threads, self.node, self.alike = threads, node, alike
        self.graphs = [self._graph(policy) for policy in policies]

    def _graph(self, policy: Policy) -> Any:
        one_by_one = threading.Lock()
        tracer = self.tracer

        def wait(state: MessagesState) -> dict[str, Any]:
            self.round_ends.wait(30)
            return {}

        @tool
        def search(query: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
            """Search the manual."""
            attributes = {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.call.arguments": f'{{"query": "{query}"}}', "gen_ai.tool.call.result": "No results found",
            }  # fmt: skip
            with one_by_one, tracer.start_as_current_span("execute_tool search", attributes=attributes):
                return "No results found"

        builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
        builder.add_node("agent", agent_node(policy if self.alike else _with_own_ids(policy)))
        builder.add_node("tools", ToolNode([search]))
        builder.add_node("wait", wait)
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "wait")
        if self.node:
            builder.add_node("guard", TrajectoryGuardNode(board=self.board))
            builder.add_edge("wait", "guard")
        else:
            builder.add_edge("wait", "agent")
            apply_guard(builder, tools="wait", agent="agent", board=self.board)
        return builder.compile(checkpointer=InMemorySaver() if self.threads else None)

    def run(self) -> list[str]:
        """The outline of each run."""
        self.round_ends = _Rounds(len(self.graphs))

        def invoke(number: int) -> str:
            try:
                config = thread(number) if self.threads else None
                return outline(self.graphs[number].invoke(TASK, config)["messages"])
            finally:
                self.round_ends.leave()

        with self.tracer.start_as_current_span("harness"), ThreadPoolExecutor(len(self.graphs)) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, invoke, n) for n in range(len(self.graphs))]
            return [job.result(timeout=60) for job in jobs]


class _Rounds:
    """A barrier that runs may leave."""

    def __init__(self, runs: int) -> None:
        self._changed = threading.Condition()
        self._runs, self._waiting, self._round = runs, 0, 0

    def wait(self, timeout: float) -> None:
        with self._changed:
            before = self._round
            self._waiting += 1
            self._release()
            assert self._changed.wait_for(lambda: self._round != before, timeout)

    def leave(self) -> None:
        with self._changed:
            self._runs -= 1
            self._release()

    def _release(self) -> None:
        if self._waiting >= self._runs:
            self._waiting, self._round = 0, self._round + 1
            self._changed.notify_all()


def _with_own_ids(policy: Policy) -> Policy:
    """Call ids as most models make them: no two runs have one in common."""
    own = object()

    def answer(messages: Any, turn: int) -> Any:
        message = policy(messages, turn)
        for call in message.tool_calls:
            call["id"] = f"{id(own)}_{call['id']}"
        return message

    return answer


@pytest.fixture(params=[False, True], ids=["no thread id", "threads"])
def threads(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[False, True], ids=["apply_guard", "a node of its own"])
def node(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[False, True], ids=["own call ids", "call ids alike"])
def harness(request: pytest.FixtureRequest, threads: bool, node: bool) -> Callable[[list[Policy]], Harness]:
    return lambda policies: Harness(policies, threads=threads, node=node, alike=request.param)


def test_healthy_runs_that_make_the_same_calls_are_left_alone(harness: Callable[[list[Policy]], Harness]) -> None:
    group = harness([repeats(2)] * RUNS)

    assert group.run() == ["hatata"] * RUNS
    # Nor does a log line or a metric say that they loop, where a gate is asked before the first tools.
    assert group.node or group.board.counts["interventions.NUDGE"] == 0
    assert group.board.counts["errors.gate"] == 0


def test_the_run_that_loops_is_found_among_them(harness: Callable[[list[Policy]], Harness]) -> None:
    group = harness([repeats(1)] * (RUNS - 1) + [repeats()])

    assert group.run() == ["hata"] * (RUNS - 1) + [NUDGED_THEN_STOPPED]
    assert group.board.counts["errors.gate"] == 0


def test_runs_one_after_the_other_keep_what_spans_report(harness: Callable[[list[Policy]], Harness]) -> None:
    group = harness([repeats()])

    for _ in range(2):
        (run,) = group.run()
        assert run.endswith(NUDGED_THEN_STOPPED)
    assert group.board.counts["superseded"] == 0  # calls that only a gate may read
