"""``take`` without a run: whoever asks is given the flag of the agent that asks, and of this request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, TracerProvider

from trajectory_guard import TrajectoryGuardProcessor, instrument, runtime, shared_board, uninstrument
from trajectory_guard.board.entries import MAX_INSTANCES
from trajectory_guard.board.store import FlagBoard

CONVERSATION = "conversation-1"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    provider = TracerProvider()
    instrument(provider)
    yield provider
    uninstrument()


@pytest.fixture
def tracer(provider: TracerProvider) -> Any:
    return provider.get_tracer("by hand")


def agent(tracer: Any, name: str) -> Any:
    """The span of an agent, not yet current."""
    return tracer.start_span(
        f"invoke_agent {name}",
        attributes={
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name,
            "gen_ai.conversation.id": CONVERSATION,
        },
    )  # fmt: skip


def inside(span: Span, *, ends: bool = False) -> AbstractContextManager[Any]:
    return trace.use_span(span, end_on_exit=ends)


def call(tracer: Any, tool: str, result: str, **arguments: Any) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.conversation.id": CONVERSATION,
        "gen_ai.tool.call.arguments": json.dumps(arguments), "gen_ai.tool.call.result": result,
    }  # fmt: skip
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes):
        pass


def taken() -> str:
    """The level that the caller is given; N: with a new nudge."""
    flag = shared_board().take(CONVERSATION)
    return "N" if flag.verdict is not None and flag.verdict.nudge else str(flag.level)


def search_in_vain(tracer: Any, times: int = 1) -> None:
    for _ in range(times):
        call(tracer, "search", "No results", query="returns")


def assert_each_has_its_own_flag(tracer: Any, looping: Span, working: Span) -> None:
    """Of two spans at the same time, one repeats itself and the other works."""
    seen: dict[str, list[str]] = {"looping": [], "working": []}
    for number in range(8):
        with inside(looping):
            search_in_vain(tracer)
        with inside(working):
            seen["working"].append(taken())
            call(tracer, "price", f"{number * 7} EUR", item=number)
        with inside(looping):
            seen["looping"].append(taken())
    assert set(seen["working"]) == {"OBSERVE"}
    assert seen["looping"].count("N") == 1
    assert seen["looping"][-1] == "STOP"


def test_agents_at_work_side_by_side_are_each_given_their_own_flag(tracer: Any) -> None:
    with tracer.start_as_current_span("request"):
        looping, working = agent(tracer, "looping"), agent(tracer, "working")
        assert_each_has_its_own_flag(tracer, looping, working)


@pytest.mark.parametrize("below", [False, True], ids=["beside it", "below it"])
def test_an_agent_that_has_not_acted_yet_is_not_given_the_flag_of_another(tracer: Any, below: bool) -> None:
    with tracer.start_as_current_span("request"):
        looping = agent(tracer, "looping")
        with inside(looping):
            search_in_vain(tracer, 5)
            fresh = agent(tracer, "fresh") if below else None
        with inside(fresh or agent(tracer, "fresh")):
            assert taken() == "OBSERVE"
        with inside(looping):
            assert taken() == "N"


def test_a_program_around_an_agent_is_given_its_flag(tracer: Any) -> None:
    """A program asks below a span of its own; the framework's span of the agent is further down."""
    with inside(agent(tracer, "application"), ends=True):
        with inside(agent(tracer, "framework")):
            search_in_vain(tracer, 3)
        assert taken() == "N"


def test_the_span_of_another_instrumentation_may_stand_for_the_same_agent(provider: TracerProvider) -> None:
    one, other = provider.get_tracer("one"), provider.get_tracer("other")
    with one.start_as_current_span("request"):
        asking, acting = agent(one, "helper"), agent(other, "helper")
        with inside(acting):
            search_in_vain(other, 3)
        with inside(asking):
            assert taken() == "N"


def test_the_agent_of_another_framework_beside_it_has_flags_of_its_own(provider: TracerProvider) -> None:
    one, other = provider.get_tracer("one"), provider.get_tracer("other")
    with one.start_as_current_span("request"):
        working, looping = agent(one, "working"), agent(other, "looping")
        with inside(looping):
            search_in_vain(other, 3)
        with inside(working):
            assert taken() == "OBSERVE"
        with inside(looping):
            assert taken() == "N"


def test_agents_of_two_providers_each_have_their_own_flag(provider: TracerProvider) -> None:
    second = TracerProvider(shutdown_on_exit=False)
    second.add_span_processor(TrajectoryGuardProcessor(tracer_provider=second))
    for one, other in ((provider, second), (second, provider)):
        looping, working = agent(one.get_tracer("x"), "looping"), agent(other.get_tracer("x"), "working")
        with inside(looping, ends=True):
            search_in_vain(one.get_tracer("x"), 3)
            with inside(working, ends=True):
                assert taken() == "OBSERVE"
            assert taken() == "N"


def test_an_agent_beside_it_that_has_ended_takes_no_flag_away(tracer: Any) -> None:
    with tracer.start_as_current_span("request"):
        looping, seen = agent(tracer, "looping"), []
        for number in range(7):
            with inside(looping):
                search_in_vain(tracer)
            with inside(agent(tracer, "short"), ends=True):
                call(tracer, "price", f"{number * 7} EUR", item=number)
            with inside(looping):
                seen.append(taken())
    assert seen == ["OBSERVE", "OBSERVE", "N", "NUDGE", "STOP", "STOP", "STOP"]


def test_an_agent_that_asks_while_the_span_of_another_ends_is_not_given_its_flag(
    tracer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, seen = shared_board(), []
    working, end_instance = agent(tracer, "working"), board.end_instance

    def ask_before_it_has_ended(trajectory_id: str, instance: str) -> None:
        with inside(working):
            seen.append(taken())
        end_instance(trajectory_id, instance)

    with inside(working):
        call(tracer, "price", "7 EUR", item=1)
    with inside(agent(tracer, "looping"), ends=True):
        search_in_vain(tracer, 5)
        monkeypatch.setattr(board, "end_instance", ask_before_it_has_ended)
    assert seen == ["OBSERVE"]


def test_a_processor_may_be_added_while_a_caller_is_looked_for() -> None:
    """An application that makes a tracer provider for each of its tenants, at any time."""
    first = TrajectoryGuardProcessor(board=FlagBoard())
    looked_through = iter(first.board.processors)
    assert next(looked_through) is first
    second = TrajectoryGuardProcessor(board=first.board)
    assert list(looked_through) == []
    assert set(first.board.processors) == {first, second}


def test_without_a_span_around_the_caller_the_run_that_acted_last_counts(tracer: Any) -> None:
    with inside(agent(tracer, "looping")):
        search_in_vain(tracer, 3)
    assert taken() == "N"


def test_a_circle_of_agents_is_told_to_whichever_asks_next(tracer: Any) -> None:
    seen = []
    with tracer.start_as_current_span("request"):
        for _ in range(10):
            for name, tool in (("writer", "draft"), ("critic", "review")):
                with inside(agent(tracer, name), ends=True):
                    call(tracer, tool, "please revise", text="the draft")
                    seen.append(taken())
    assert seen.count("N") == 2
    assert "STOP" in seen
    assert seen.index("N") < seen.index("STOP")


def test_a_stop_that_nobody_took_does_not_end_the_next_request(tracer: Any) -> None:
    """No span stands for the agent here: only the end of the request shows that its run is over."""
    with tracer.start_as_current_span("request"):
        search_in_vain(tracer, 3)
        assert taken() == "N"
        search_in_vain(tracer, 2)
        assert shared_board().read(CONVERSATION).level == "STOP"
    assert taken() == "OBSERVE"
    with tracer.start_as_current_span("request"):
        assert taken() == "OBSERVE"
        call(tracer, "price", "7 EUR", item=1)
        assert taken() == "OBSERVE"


@pytest.mark.parametrize("healthy", [1, 3])
def test_a_stop_that_nobody_took_does_not_end_the_next_request_if_that_has_a_finding_of_its_own(
    tracer: Any, healthy: int
) -> None:
    """Nobody asks before the finding, which alone would be no reason to do anything."""
    with tracer.start_as_current_span("request"):
        search_in_vain(tracer, 3)
        assert taken() == "N"
        search_in_vain(tracer, 2)
        assert shared_board().read(CONVERSATION).level == "STOP"
    with tracer.start_as_current_span("request"):
        for number in range(healthy):
            call(tracer, "price", f"{number * 7} EUR", item=number)
        search_in_vain(tracer, 2)
        assert shared_board().read(CONVERSATION).level != "STOP"
        assert taken() != "STOP"


def test_a_stop_of_a_circle_does_not_end_the_next_request(tracer: Any) -> None:
    with tracer.start_as_current_span("request"):
        for _ in range(10):
            for name, tool in (("writer", "draft"), ("critic", "review")):
                with inside(agent(tracer, name), ends=True):
                    call(tracer, tool, "please revise", text="the draft")
        assert taken() == "N"
        assert taken() == "OBSERVE"
        with inside(agent(tracer, "writer"), ends=True):
            call(tracer, "draft", "please revise", text="the draft")
    with tracer.start_as_current_span("request"):
        assert taken() == "OBSERVE"


def test_a_nudge_waits_where_each_turn_has_a_trace_of_its_own(tracer: Any) -> None:
    seen = []
    for _ in range(8):
        with tracer.start_as_current_span("turn"):
            search_in_vain(tracer)
        seen.append(taken())
    assert "N" in seen
    assert "STOP" not in seen


def test_a_stop_by_hand_ends_one_request_and_not_those_after_it(tracer: Any) -> None:
    board = shared_board()
    with tracer.start_as_current_span("request"):
        call(tracer, "price", "7 EUR", item=1)
        board.raise_flag(CONVERSATION, "stop", "The customer has cancelled.")
        assert [taken(), taken()] == ["STOP", "STOP"]
    with tracer.start_as_current_span("request"):
        assert taken() == "OBSERVE"
        call(tracer, "price", "14 EUR", item=2)
        board.raise_flag(CONVERSATION, "stop", "Again.")
    with tracer.start_as_current_span("request"):
        assert taken() == "STOP"
        board.raise_flag(CONVERSATION, "stop", "And the next one, too.")
        call(tracer, "price", "21 EUR", item=3)
    with tracer.start_as_current_span("request"):
        assert taken() == "STOP"


def test_a_loop_between_agents_keeps_its_flag_however_many_instances_take_part(tracer: Any) -> None:
    seen = []
    with tracer.start_as_current_span("request"):
        for _ in range(3 * MAX_INSTANCES):
            for name, tool in (("writer", "read_draft"), ("critic", "read_guide")):
                with inside(agent(tracer, name), ends=True):
                    call(tracer, tool, "Write short sentences, and use the active voice throughout.")
            seen.append(str(shared_board().read(CONVERSATION).level))
    assert [one for one, before in zip(seen, ["", *seen], strict=False) if one != before] == [
        "OBSERVE",
        "NUDGE",
        "STOP",
    ]


def test_a_question_whose_tools_are_called_within_it_asks_for_itself(provider: TracerProvider) -> None:
    """google-genai calls the tools in the span of the model call, so that questions side by side are like agents."""
    genai = provider.get_tracer("opentelemetry.instrumentation.google_genai")
    asked = {"gen_ai.operation.name": "generate_content", "gen_ai.conversation.id": CONVERSATION}
    with provider.get_tracer("app").start_as_current_span("request"):
        stuck, healthy = (genai.start_span("generate_content gemini", attributes=asked) for _ in range(2))
        assert_each_has_its_own_flag(genai, stuck, healthy)


@pytest.mark.parametrize("around", ["the agent's span", "a span that names nothing", "no span"])
@pytest.mark.parametrize("late", [False, True], ids=["in the request", "after its last question"])
def test_a_stop_by_hand_ends_one_request_however_it_is_traced(tracer: Any, around: str, late: bool) -> None:
    """The loop that is stopped makes no further call: no later span of the conversation says that it is over."""

    def request(raises: bool = False) -> str:
        span: Any = nullcontext()
        if around != "no span":
            named = agent(tracer, "helper") if around == "the agent's span" else tracer.start_span("POST /chat")
            span = inside(named, ends=True)
        with span:
            for number in range(2):
                if taken() == "STOP":
                    return "stopped"
                call(tracer, "price", f"{number * 7} EUR", item=number)
                if raises and number == late:
                    shared_board().raise_flag(CONVERSATION, "stop", "The customer has cancelled.")
        return "done"

    seen = [request(raises=True), *(request() for _ in range(3))]
    assert seen == (["done", "stopped", "done", "done"] if late else ["stopped", "done", "done", "done"])


def test_a_stop_by_hand_holds_for_every_agent_of_the_request(tracer: Any) -> None:
    with tracer.start_as_current_span("request"):
        call(tracer, "price", "7 EUR", item=1)
        shared_board().raise_flag(CONVERSATION, "stop", "The customer has cancelled.")
        for name in ("one", "two"):
            with inside(agent(tracer, name), ends=True):
                assert taken() == "STOP"
        assert taken() == "STOP"
        with ThreadPoolExecutor(1) as pool:  # without the context of this thread
            assert pool.submit(taken).result() == "STOP"
        assert taken() == "STOP"


@pytest.mark.parametrize("between", ["nothing", "a model call", "a query of a database"])
def test_a_loop_whose_root_span_is_in_another_process_is_stopped(tracer: Any, between: str) -> None:
    """A worker that takes over the context of a message: each of its calls has a remote parent."""
    sender = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1)))
    seen = []
    with inside(sender):
        for _ in range(8):
            search_in_vain(tracer)
            if between == "a model call":
                usage = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 9, "llm.token_count.completion": 3}
                tracer.start_span("Summary", attributes=usage).end()
            elif between != "nothing":
                tracer.start_span("INSERT", kind=trace.SpanKind.CLIENT).end()
            seen.append(taken())
    assert seen.count("N") == 1
    assert seen[-1] == "STOP"


def test_the_end_of_a_request_that_another_process_began_ends_its_stop(tracer: Any) -> None:
    sender = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1)))
    with inside(sender):
        with tracer.start_as_current_span("POST /chat", kind=trace.SpanKind.SERVER):
            search_in_vain(tracer, 3)
            assert taken() == "N"
            search_in_vain(tracer, 2)
        with tracer.start_as_current_span("POST /chat", kind=trace.SpanKind.SERVER):
            assert taken() == "OBSERVE"


@contextmanager
def written_at_the_end(tracer: Any, name: str, kind: str = "TOOL") -> Iterator[None]:
    """A span as OpenInference writes it for LangChain: all attributes when it ends."""
    with tracer.start_as_current_span(name) as span:
        yield
        if kind == "TOOL":
            span.set_attribute("tool.name", name)
        asked = name if name != "report" else f"{span.context.span_id:x}"
        span.set_attributes(
            {
                "openinference.span.kind": kind, "session.id": CONVERSATION, "input.value": asked,
                "output.value": f"No results for {asked}",
            }
        )  # fmt: skip


def test_calls_within_a_tool_that_only_its_name_shows_are_its_own(tracer: Any) -> None:
    seen = []
    for _ in range(6):
        with written_at_the_end(tracer, "report"):
            for _ in range(4):
                with written_at_the_end(tracer, "fetch"):
                    pass
        seen.append(taken())
    assert seen == ["N", *["OBSERVE"] * 5]  # the name of the tool is known once its first call has ended
    assert shared_board().read(CONVERSATION).steps == 6 * (4 + 1)


def search_with_openlit_and_openinference(provider: TracerProvider, arguments: dict[str, Any]) -> None:
    """A call of Agno or smolagents: OpenLIT's span around OpenInference's says nothing before it ends."""
    outer, inner = (provider.get_tracer(f"{one}.instrumentation.smolagents") for one in ("openlit", "openinference"))
    shown = {"gen_ai.tool.call.arguments": json.dumps(arguments)} if arguments else {}
    with outer.start_as_current_span("execute_tool search") as span:
        with inner.start_as_current_span("search", attributes={"openinference.span.kind": "TOOL"}) as one:
            one.set_attributes(
                {"tool.name": "search", "input.value": json.dumps(arguments), "output.value": "No results"}
            )
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", **shown,
                "gen_ai.tool.call.result": "No results",
            }
        )  # fmt: skip


@pytest.mark.parametrize("arguments", [{"q": "x"}, {}])
def test_two_spans_of_one_call_are_one_step_of_its_agent(provider: TracerProvider, arguments: dict[str, Any]) -> None:
    seen = []
    with inside(agent(provider.get_tracer("app"), "a"), ends=True):
        for _ in range(5):
            search_with_openlit_and_openinference(provider, arguments)
            seen.append(taken())
    assert seen[:3] == ["OBSERVE", "OBSERVE", "N"]
    assert seen[-1] == "STOP"
    assert shared_board().read(CONVERSATION).steps == 5


def test_a_name_that_several_tools_have_shows_none_of_them(tracer: Any, provider: TracerProvider) -> None:
    """Calls within such a span are its own: it may call another tool than they do."""
    for tool in ("fetch", "search"):
        with provider.get_tracer("other").start_as_current_span("tool") as span:
            span.set_attributes({"openinference.span.kind": "TOOL", "tool.name": tool, "session.id": CONVERSATION})
    for _ in range(6):
        with provider.get_tracer("other").start_as_current_span("tool"):
            search_in_vain(tracer)
    assert taken() == "OBSERVE"


def test_a_name_that_other_spans_have_too_shows_no_tool(tracer: Any) -> None:
    """A node of a graph with the name of the tool that it calls."""
    with written_at_the_end(tracer, "fetch", "CHAIN"), written_at_the_end(tracer, "fetch"):
        pass
    with tracer.start_as_current_span("request"):
        for _ in range(5):
            with written_at_the_end(tracer, "fetch", "CHAIN"), written_at_the_end(tracer, "fetch"):
                pass
        assert taken() == "N"
