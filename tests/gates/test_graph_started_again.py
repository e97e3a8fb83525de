"""A job that runs one graph again and again below one span, observed only: each run is evaluated by itself.

A script over a list of tickets, a harness that tries one prompt ten times: spans name neither a thread nor an agent.
LangGraph's super-steps show where a graph was started again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import score_all, views
from tests.collector.test_same_verdicts import deliveries, replayed
from tests.helpers import record
from trajectory_guard import telemetry
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

from .agents import agent_builder, new_board, rounds, search

RUNS = 40
_ids = count()

Call = tuple[str, dict[str, Any]]


@tool
def load_policy() -> str:
    """The policy for refunds."""
    return "Refunds within 30 days, with the receipt."


@tool
def get_ticket(number: str) -> str:
    """A ticket."""
    return f"Ticket {number}: the customer wants {sum(map(ord, number))} EUR back."


@tool
def reply(number: str, text: str) -> str:
    """Answer the customer."""
    return "ok"


def works_on_the_ticket(messages: Sequence[BaseMessage]) -> list[Call]:
    number = str(messages[0].content).split()[-1]
    plan: list[Call] = [
        ("load_policy", {}),
        ("get_ticket", {"number": number}),
        ("reply", {"number": number, "text": "Yes."}),
    ]
    return plan[rounds(messages) : rounds(messages) + 1]


def looks_up_the_policy(messages: Sequence[BaseMessage]) -> list[Call]:
    return [] if messages[-1].type == "tool" else [("load_policy", {})]


def is_stuck_over_books(messages: Sequence[BaseMessage]) -> list[Call]:
    last = max(at for at, one in enumerate(messages) if one.type == "human")
    many = len(messages) - last < 16 if "books" in str(messages[last].content) else messages[-1].type != "tool"
    return [("load_policy", {})] if many else []


def is_stuck(messages: Sequence[BaseMessage]) -> list[Call]:
    return [("search", {"query": "refund"})] if rounds(messages) < 8 else []


class Job:
    """Observes graph runs below one span by OpenInference's instrumentation."""

    def __init__(self) -> None:
        self.provider, self.exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
        self.board = new_board()
        self.provider.add_span_processor(TrajectoryGuardProcessor(board=self.board, tracer_provider=self.provider))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def run(
        self, next_calls: Callable[[Sequence[BaseMessage]], list[Call]], prompts: Sequence[str], thread: str = ""
    ) -> list[str]:
        """The interventions of a job, in their order; of a chat in one thread, if there is one."""

        def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
            wanted = [
                {"name": name, "args": args, "id": f"call_{next(_ids)}", "type": "tool_call"}
                for name, args in next_calls(messages)
            ]
            return AIMessage("" if wanted else "Done.", tool_calls=wanted)

        builder = agent_builder(policy, tools=(load_policy, get_ticket, reply, search))
        graph = builder.compile(checkpointer=InMemorySaver() if thread else None)
        config: RunnableConfig = {"configurable": {"thread_id": thread}} if thread else {}
        with self.provider.get_tracer("job").start_as_current_span("nightly job"):
            for prompt in prompts:
                graph.invoke({"messages": [("user", prompt)]}, config)
        return self.interventions()

    def interventions(self) -> list[str]:
        return [
            str((span.attributes or {})["trajectory_guard.intervention"])
            for span in self.exporter.get_finished_spans()
            if span.name == "trajectory_guard.intervention"
        ]


@pytest.fixture
def job() -> Iterator[Job]:
    made, instrumentor = Job(), LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=made.provider)
    yield made
    instrumentor.uninstrument()


def test_a_job_over_many_tickets_begins_each_of_them_with_the_same_call(job: Job) -> None:
    assert job.run(works_on_the_ticket, [f"Work on ticket {number}" for number in range(RUNS)]) == []


def test_a_harness_tries_one_prompt_many_times(job: Job) -> None:
    assert job.run(works_on_the_ticket, ["Work on ticket 7"] * RUNS) == []


def test_each_document_of_a_job_needs_one_call(job: Job) -> None:
    """All tool calls are in the super-step of the same number."""
    assert job.run(looks_up_the_policy, [f"Check document {number}" for number in range(RUNS)]) == []


QUESTIONS = (
    "May I return shoes?",
    "And a laptop?",
    "Without a receipt?",
    "What about a gift?",
    "A used phone?",
    "Food?",
)


def test_a_chat_with_a_checkpointer_looks_the_same_up_for_each_question(job: Job) -> None:
    """The super-steps of a thread are counted through all of its turns."""
    assert job.run(looks_up_the_policy, QUESTIONS, thread="t1") == []


def test_a_turn_of_a_chat_that_is_stuck_is_found(job: Job) -> None:
    assert job.run(is_stuck_over_books, [*QUESTIONS, "Thanks, and books?"], thread="t1") == ["NUDGE", "STOP"]


def test_each_run_of_a_job_that_is_stuck_is_found(job: Job) -> None:
    assert job.run(is_stuck, ["Find the refund policy"] * 4) == ["NUDGE", "STOP"] * 4


def test_a_run_is_not_given_the_flag_of_the_run_before(job: Job) -> None:
    """A program that asks for the flag of its trace, as one without gates does."""
    seen = []

    def one_is_stuck(messages: Sequence[BaseMessage]) -> list[Call]:
        if "ticket" not in str(messages[0].content):
            return is_stuck(messages)
        if rounds(messages):
            seen.append(str(job.board.take(*job.board.trajectories).level))
        return works_on_the_ticket(messages)

    assert job.run(one_is_stuck, ["Find the refund policy", "Work on ticket 7"]) == ["NUDGE", "STOP"]
    assert seen == ["OBSERVE"] * 3


# --- runs side by side ----------------------------------------------------------------------------------------


def side_by_side(job: Job, next_calls: Callable[[Sequence[BaseMessage]], list[Call]], prompts: Sequence[str]) -> None:
    """Run one graph for all prompts at once, below one span, as an evaluation does."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        wanted = [
            {"name": name, "args": args, "id": f"call_{next(_ids)}", "type": "tool_call"}
            for name, args in next_calls(messages)
        ]
        return AIMessage("" if wanted else "Done.", tool_calls=wanted)

    graph = agent_builder(policy, tools=(load_policy, get_ticket, reply, search)).compile()

    async def evaluate() -> None:
        with job.provider.get_tracer("job").start_as_current_span("evaluation"):
            await asyncio.gather(*(graph.ainvoke({"messages": [("user", prompt)]}) for prompt in prompts))

    asyncio.run(evaluate())


@pytest.mark.parametrize("next_calls", [works_on_the_ticket, looks_up_the_policy])
@pytest.mark.parametrize("prompt", ["Work on ticket {}", "Work on ticket 7"])
def test_healthy_runs_side_by_side_are_left_alone(job: Job, next_calls: Any, prompt: str) -> None:
    side_by_side(job, next_calls, [prompt.format(number) for number in range(20)])
    assert job.interventions() == []


@pytest.mark.parametrize("runs", [2, 20])
def test_each_stuck_run_of_several_side_by_side_is_found(job: Job, runs: int) -> None:
    side_by_side(job, is_stuck, ["Find the refund policy"] * runs)
    assert sorted(job.interventions()) == ["NUDGE"] * runs + ["STOP"] * runs


def test_the_one_stuck_run_is_found_among_healthy_ones(job: Job) -> None:
    def one_is_stuck(messages: Sequence[BaseMessage]) -> list[Call]:
        return works_on_the_ticket(messages) if "ticket" in str(messages[0].content) else is_stuck(messages)

    side_by_side(job, one_is_stuck, [*(f"Work on ticket {number}" for number in range(8)), "Find the refund policy"])
    assert job.interventions() == ["NUDGE", "STOP"]


@pytest.mark.parametrize("next_calls", [works_on_the_ticket, is_stuck])
def test_every_shell_tells_runs_side_by_side_apart(job: Job, next_calls: Any, tmp_path: Path) -> None:
    side_by_side(job, next_calls, [f"Work on ticket {number}" for number in range(4)])
    ended = [one for one in job.exporter.get_finished_spans() if one.instrumentation_scope is not None]
    requests = [
        encode_spans([one]).SerializeToString() for one in ended if one.instrumentation_scope.name != telemetry.SCOPE
    ]
    expected = by_run(evaluate_in_process([view for data in requests for view in views(data)]))
    assert len({run for run, _, _ in expected.values()}) == 4
    for how, delivered in deliveries(requests, next_calls.__name__).items():
        assert by_run(score_all(delivered)) == expected, how
    assert by_run(replayed(requests, tmp_path)) == expected


def by_run(found: Mapping[str, Verdict]) -> dict[str, tuple[str, Level, str | None]]:
    """What does not depend on the order in which the calls of several runs end."""
    return {key: (verdict.run, verdict.level, verdict.rule) for key, verdict in found.items()}


# --- the steps of such a job -----------------------------------------------------------------------------------


def levels(batches: Sequence[str], calls: int = 1) -> str:
    """First letters of the levels, for equal calls in these batches; of ``calls`` different ones in turns."""
    engine = Engine()
    state = engine.new_state("t")
    found = ""
    for at, batch in enumerate(batches):
        step = record("search", {"q": f"hours {at % calls}"}, f"Closed on Mondays, page {at % calls}.", batch=batch)
        verdict = engine.observe(state, step)
        found += verdict.level[0] if verdict is not None else "-"
    return found


def batch(superstep: int, graph: str = "trace//") -> str:
    return f"{graph}/{superstep:>6}"


def test_super_steps_that_count_on_are_one_run() -> None:
    assert "S" in levels([batch(step) for step in range(2, 30, 2)])
    assert "S" in levels([batch(step) for step in (8, 9, 10, *range(95, 105), 999, 1_000)])


def test_super_steps_that_begin_again_are_another_run() -> None:
    assert set(levels([batch(step) for step in (2, 4) * 20], calls=2)) == {"O"}
    assert set(levels([batch(step) for step in (98, 100) * 20], calls=2)) == {"O"}


def test_runs_side_by_side_are_never_stopped_for_what_another_did() -> None:
    assert "S" not in levels([batch(step) for step in (2, 4, 6, 4, 8, 6, 10, 8, 12, 10)])


def test_super_steps_of_two_graphs_count_for_themselves() -> None:
    both = [batch(step, graph) for lap in range(2, 20, 2) for step, graph in ((lap, "trace/shop"), (2, "trace/bank"))]
    assert "S" in levels(both, calls=2)


def test_labels_without_a_super_step_begin_no_run() -> None:
    assert "S" in levels([f"message {20 - at}" for at in range(10)])
    assert "S" in levels([f"trace/{90 - at:016d}" for at in range(10)])


# --- the functional API ----------------------------------------------------------------------------------------


def test_a_loop_of_tasks_is_found_although_all_have_one_super_step(job: Job) -> None:
    @task
    def look_up(query: str) -> str:
        return str(search.invoke({"query": query}))

    @entrypoint()
    def agent(query: str) -> str:
        for _ in range(8):
            look_up(query).result()
        return "Nothing found."

    with job.provider.get_tracer("job").start_as_current_span("request"):
        agent.invoke("refund")
    assert job.interventions() == ["NUDGE", "STOP"]


def test_parallel_tasks_are_one_turn(job: Job) -> None:
    meet = threading.Barrier(6)

    @tool
    def sample(prompt: str) -> str:
        """Ask once more, at the same time."""
        meet.wait(30)
        return "No."

    @task
    def vote(prompt: str) -> str:
        return str(sample.invoke({"prompt": prompt}))

    @entrypoint()
    def agent(prompt: str) -> list[str]:
        return [one.result() for one in [vote(prompt) for _ in range(6)]]

    agent.invoke("Is it a cat?", {"max_concurrency": 12})
    assert job.interventions() == []
