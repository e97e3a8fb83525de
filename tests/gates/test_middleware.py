"""``TrajectoryGuardMiddleware`` in agents made by ``create_agent``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from trajectory_guard import LoopDetectedError, TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    STOP_AT,
    TASK,
    CountedSearch,
    async_context,
    both,
    calls,
    closing,
    lookup,
    new_board,
    no_call_is_split_from_its_answer,
    nudges,
    obeys,
    outline,
    repeats,
    rounds,
    search,
    thread,
    works,
    works_in_pairs,
)

Run = Callable[..., dict[str, Any]]


def _agent(
    policy: Policy, *, tools: Any = (search, lookup, both), saver: Any = None, board: Any = None, **options: Any
) -> Any:
    middleware = TrajectoryGuardMiddleware(board=new_board() if board is None else board, **options)
    return create_agent(ScriptedChatModel(policy=policy), list(tools), middleware=[middleware], checkpointer=saver)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (repeats(), NUDGED_THEN_STOPPED),
        (obeys, NUDGED_THEN_FINISHED),
        (works(6), "h" + "at" * 6 + "a"),
        (works_in_pairs(4), "h" + "att" * 4 + "a"),
    ],
    ids=["ignores the nudge", "listens", "works", "parallel calls"],
)
def test_nudges_and_stops(policy: Policy, expected: str, run: Run) -> None:
    result = run(_agent(policy))

    assert outline(result["messages"]) == expected
    assert no_call_is_split_from_its_answer(result["messages"])
    assert "trajectory_scratchpad" not in result


def test_a_stop_tells_its_payload(run: Run) -> None:
    result = run(_agent(repeats()))

    (last,) = closing(result["messages"])
    assert result["loop_status"]["status"] == "stopped"
    assert last.response_metadata["trajectory_guard"] == result["loop_status"]["stop"]
    assert result["loop_status"]["stop"]["steps_taken"] == STOP_AT


def test_raise(run: Run) -> None:
    with pytest.raises(LoopDetectedError) as caught:
        run(_agent(repeats(), on_stop="raise"))

    assert caught.value.payload["types"] == ["TYPE_I_STUTTER"]


@pytest.mark.parametrize(("answer", "expected"), [(False, "S"), (True, "a"), ("Look in the FAQ.", "Na")])
@pytest.mark.parametrize("run", ["invoke", pytest.param("ainvoke", marks=async_context)], indirect=True)
def test_asking_a_person(answer: Any, expected: str, run: Run) -> None:
    agent = _agent(repeats(STOP_AT), on_stop="interrupt", saver=InMemorySaver())

    asked = run(agent, TASK, thread())
    ended = run(agent, Command(resume=answer), thread())

    assert asked["__interrupt__"][0].value["status"] == "guardrail_triggered"
    assert outline(ended["messages"]) == NUDGED_THEN_STOPPED[:-1] + expected


def test_a_stop_that_the_middleware_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="on_stop: 'clean_up' is none of 'end', 'raise', 'interrupt'"):
        TrajectoryGuardMiddleware(on_stop="clean_up")


def test_callers_cannot_set_the_guards_keys() -> None:
    """Values that a caller hands in under the guard's keys are not taken for the guard's own."""
    state = {**TASK, "loop_status": {"status": "stopped", "calls": ["call_1_0"]}, "trajectory_scratchpad": ["x"]}

    result = _agent(works(1)).invoke(state)

    assert result["loop_status"]["status"] == "ok"
    assert result["loop_status"]["steps_taken"] == 1


def test_other_middleware_still_runs() -> None:
    seen: list[str] = []

    class Noting(AgentMiddleware[Any, Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            seen.append("before")

        def after_agent(self, state: Any, runtime: Any) -> None:
            seen.append("after")

    agent = create_agent(
        ScriptedChatModel(policy=repeats()),
        [search],
        middleware=[Noting(), TrajectoryGuardMiddleware(board=new_board())],
    )

    assert outline(agent.invoke(TASK)["messages"]) == NUDGED_THEN_STOPPED
    assert seen == ["before"] * (STOP_AT + 1) + ["after"]


# Found: the answer that forbids further calls counted as an error that may pass: the stop came after twenty calls.
class AsksTwice(AgentMiddleware[Any, Any, Any]):
    """Takes the second of two responses, as middleware does that lets a model correct itself."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        handler(request)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await handler(request)
        return await handler(request)


def _asked_twice(policy: Policy, **options: Any) -> Any:
    guard = TrajectoryGuardMiddleware(board=new_board(), **options)
    model = ScriptedChatModel(policy=policy)
    return create_agent(model, [search], middleware=[AsksTwice(), guard], checkpointer=InMemorySaver())


@async_context
def test_a_nudge_is_in_every_response_of_a_model_that_middleware_asks_twice(run: Run) -> None:
    assert outline(run(_asked_twice(repeats()), config=thread())["messages"]) == NUDGED_THEN_STOPPED
    assert outline(run(_asked_twice(obeys), config=thread())["messages"]) == NUDGED_THEN_FINISHED


@async_context
def test_a_person_is_asked_once_about_a_model_that_middleware_asks_twice(run: Run) -> None:
    agent = _asked_twice(repeats(6), on_stop="interrupt")

    waiting = run(agent, config=thread())
    final = run(agent, Command(resume="Use another word."), thread())

    assert len(waiting["__interrupt__"]) == 1
    assert "__interrupt__" not in final
    assert outline(final["messages"]) == "hatatatNatatNata"


@async_context
def test_a_checkpoint_is_decided_once_more_though_middleware_asks_twice(run: Run) -> None:
    agent = _asked_twice(repeats())
    run(agent, config=thread())
    before = [one for one in agent.get_state_history(thread()) if one.next == ("model",)]

    again = [run(agent, None, one.config)["messages"] for one in before]

    assert [outline(messages) for messages in again] == [NUDGED_THEN_STOPPED] * len(before)


def test_an_agent_that_ignores_a_limit_of_its_calls_is_stopped(run: Run) -> None:
    middleware = [TrajectoryGuardMiddleware(board=new_board()), ToolCallLimitMiddleware(run_limit=2)]
    agent = create_agent(ScriptedChatModel(policy=repeats(30)), [search], middleware=middleware)

    messages = run(agent, TASK, {"recursion_limit": 200})["messages"]

    assert closing(messages) == [messages[-1]]
    assert rounds(messages) <= 8
    assert no_call_is_split_from_its_answer(messages)


def test_a_conversation_over_several_turns() -> None:
    agent = _agent(repeats(1), saver=InMemorySaver())

    for _ in range(2):
        result = agent.invoke(TASK, thread())

    assert outline(result["messages"]) == "hatahata"
    assert result["loop_status"]["steps_taken"] == 2


# --- refusing ------------------------------------------------------------------------------------------------


def test_a_call_that_found_nothing_twice_is_refused_and_the_tool_does_not_run(run: Run) -> None:
    counted = CountedSearch()

    result = run(_agent(repeats(), tools=[counted.tool], refuse_pointless=True))

    assert counted.runs == 2
    answers = [message for message in result["messages"] if message.type == "tool"]
    assert [message.status for message in answers] == ["success"] * 2 + ["error"] * 3
    assert answers[-1].content.startswith('Not run by trajectory_guard: search({"query": "return policy"}) has found')


def test_refused_calls_still_lead_to_a_stop(run: Run) -> None:
    result = run(_agent(repeats(), refuse_pointless=True))

    assert outline(result["messages"]) == NUDGED_THEN_STOPPED
    assert result["loop_status"]["status"] == "stopped"
    assert no_call_is_split_from_its_answer(result["messages"])


def test_without_the_option_every_call_runs() -> None:
    counted = CountedSearch()

    _agent(repeats(), tools=[counted.tool]).invoke(TASK)

    assert counted.runs == STOP_AT


def test_another_call_runs_though_one_is_refused(run: Run) -> None:
    """After the nudge the model repeats itself and asks something new, in one turn."""
    counted = CountedSearch()

    def policy(messages: Any, turn: int) -> AIMessage:
        if not nudges(messages):
            return calls(messages, ("search", {"query": "x"}))
        if messages[-1].type == "tool":
            return AIMessage("Done.")
        return calls(messages, ("search", {"query": "x"}), ("search", {"query": "y"}), ("lookup", {"key": "z"}))

    messages = run(_agent(policy, tools=[counted.tool, lookup], refuse_pointless=True))["messages"]

    refused, other, looked_up = [message for message in messages if message.type == "tool"][-3:]
    assert counted.runs == 2 + 1
    assert refused.content.startswith("Not run")
    assert other.content == "No results found"
    assert looked_up.content.startswith("record of z")


def test_nothing_is_refused_before_the_second_result() -> None:
    counted = CountedSearch()

    _agent(repeats(2), tools=[counted.tool], refuse_pointless=True).invoke(TASK)

    assert counted.runs == 2


def test_nothing_is_refused_in_another_conversation() -> None:
    counted = CountedSearch()
    agent = _agent(repeats(2), tools=[counted.tool], refuse_pointless=True, saver=InMemorySaver())

    agent.invoke(TASK, thread("one"))
    agent.invoke(TASK, thread("two"))

    assert counted.runs == 4


def test_a_call_is_not_refused_any_more_when_something_new_came_back() -> None:
    counted = CountedSearch()

    def policy(messages: Any, turn: int) -> AIMessage:
        done = rounds(messages)
        if done == 9:
            return AIMessage("Done.")
        if 3 <= done < 8:
            return calls(messages, ("lookup", {"key": f"item {done}"}))
        return calls(messages, ("search", {"query": "x"}))

    _agent(policy, tools=[counted.tool, lookup], refuse_pointless=True).invoke(TASK)

    assert counted.runs == 2 + 1


def test_an_error_while_deciding_to_refuse_lets_the_tool_run(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    board, counted = new_board(), CountedSearch()
    monkeypatch.setattr(board, "recall", lambda *args, **more: 1 / 0)

    run(_agent(repeats(2), tools=[counted.tool], refuse_pointless=True, board=board))

    assert counted.runs == 2
    assert board.counts["errors.gate"] == 1  # of the first call nothing is known that could be asked
