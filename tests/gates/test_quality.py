"""Quality of the answers of real LangGraph agents: log-probabilities and a judge, up to the nudge in the state."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.gates.agents import agent_builder, calls, lookup, new_board, nudges, repeats, rounds, search, thread
from trajectory_guard import FlagBoard, TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard
from trajectory_guard.callbacks import Intervention
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.core.policy import Level
from trajectory_guard.gates.messages import MARK
from trajectory_guard.gates.quality import agents_of

LONG_S = 30.0
SURE, UNSURE = -0.1, -1.8
"""Mean log-probabilities of scores 0.95 and 0.1."""
WORSE = [SURE] * 10 + [UNSURE] * 12


def with_logprobs(message: AIMessage, mean: float) -> AIMessage:
    tokens = [{"token": "a", "logprob": mean - 0.1}, {"token": "b", "logprob": mean + 0.1}]
    message.response_metadata = {"logprobs": {"content": tokens, "refusal": None}}
    return message


def works_with(means: Sequence[float]) -> Policy:
    """An agent whose every tool call is new, and whose messages have these mean log-probabilities."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        done = rounds(messages)
        if done >= len(means):
            return AIMessage("Done.")
        return with_logprobs(calls(messages, ("lookup", {"key": f"item {len(messages)}"})), means[done])

    return policy


def answers_with(means: Sequence[float]) -> Policy:
    """An agent without tools: one answer a turn."""

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        asked = sum(one.type == "human" and MARK not in one.additional_kwargs for one in messages)
        return with_logprobs(AIMessage(f"answer {asked}"), means[asked - 1])

    return policy


def graph(policy: Policy, board: FlagBoard) -> Any:
    return apply_guard(agent_builder(policy), board=board).compile(checkpointer=InMemorySaver())


def agent(policy: Policy, board: FlagBoard) -> Any:
    middleware = [TrajectoryGuardMiddleware(board=board)]
    model = ScriptedChatModel(policy=policy)
    return create_agent(model, [lookup, search], middleware=middleware, checkpointer=InMemorySaver())


def hand_placed(policy: Policy, board: FlagBoard) -> Any:
    builder = agent_builder(policy, state=MessagesStateWithStatus)
    builder.add_node("guard", TrajectoryGuardNode(board=board))
    builder.edges = {(one, "guard" if (one, other) == ("tools", "agent") else other) for one, other in builder.edges}
    return builder.compile(checkpointer=InMemorySaver())


class MessagesStateWithStatus(MessagesState):
    loop_status: dict[str, Any]
    trajectory_scratchpad: list[Any]


WAYS: dict[str, Callable[[Policy, FlagBoard], Any]] = {
    "apply_guard": graph,
    "middleware": agent,
    "hand-placed": hand_placed,
}


def ask(one: Any, text: str = "Look it up.", name: str = "thread") -> list[BaseMessage]:
    messages: list[BaseMessage] = one.invoke({"messages": [("user", text)]}, thread(name))["messages"]
    return messages


def advice(messages: Sequence[BaseMessage]) -> list[int]:
    """Places of the nudges about quality."""
    return [at for at, one in enumerate(messages) if one in nudges(messages) and "become worse" in str(one.content)]


# --- log-probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_that_becomes_unsure_is_nudged_once_and_goes_on(way: str) -> None:
    board = new_board(track_quality=True)
    messages = ask(WAYS[way](works_with(WORSE), board))
    (place,) = advice(messages)
    assert messages[place - 1].type == "tool"
    assert sum(one.type == "tool" for one in messages) == len(WORSE)
    assert messages[-1].content == "Done."
    assert board.counts["interventions.STOP"] == 0
    assert board.counts["quality.low"] == 12
    assert board.counts["quality.scores"] == len(WORSE)


@pytest.mark.parametrize("way", ["apply_guard", "middleware"])
def test_asynchronous_agents_too(way: str) -> None:
    board = new_board(track_quality=True)
    one = WAYS[way](works_with(WORSE), board)
    result = asyncio.run(one.ainvoke({"messages": [("user", "Look it up.")]}, thread()))
    assert len(advice(result["messages"])) == 1


@pytest.mark.parametrize("means", [[SURE] * 30, [UNSURE] * 30, [SURE] * 15 + [-0.8] * 15, [SURE, UNSURE] * 4])
def test_a_healthy_agent_sees_nothing(means: list[float]) -> None:
    board = new_board(track_quality=True)
    assert nudges(ask(graph(works_with(means), board))) == []


def test_nothing_is_measured_without_configuration() -> None:
    board = new_board()
    assert nudges(ask(graph(works_with(WORSE), board))) == []
    assert not any(name.startswith("quality") for name in board.counts)


@pytest.mark.parametrize("way", ["apply_guard", "middleware"])
def test_a_conversation_without_tools_is_nudged_at_the_start_of_a_turn(way: str) -> None:
    board = new_board(track_quality=True)
    one = WAYS[way](answers_with(WORSE), board)
    for turn in range(len(WORSE)):
        messages = ask(one, f"question {turn}")
    (place,) = advice(messages)
    assert messages[place - 1].type == "human"
    assert messages[place + 1].type == "ai"
    assert board.counts["quality.scores"] == len(WORSE) - 1  # the last answer is read when the thread goes on


def test_the_status_names_the_finding() -> None:
    board = new_board(track_quality=True)
    one = graph(works_with(WORSE[:15]), board)
    for update in one.stream({"messages": [("user", "x")]}, thread(), stream_mode="updates"):
        status = (update.get("agent") or {}).get("loop_status") or {}
        if status.get("status") == "nudged":
            assert status["types"] == ["TYPE_VIII_QUALITY"]
            return
    raise AssertionError("no status says nudged")


def test_the_callback_hears_only_of_the_nudge_that_was_delivered() -> None:
    heard: list[Intervention] = []
    board = new_board(track_quality=True, on_intervention=heard.append)
    ask(graph(works_with(WORSE), board))
    assert [(one.level, one.delivered) for one in heard] == [(Level.NUDGE, True)]


@pytest.mark.parametrize("mode", ["observe", "nudge"])
def test_the_mode_decides_whether_the_agent_hears_of_it(mode: str) -> None:
    board = new_board(track_quality=True, mode=mode)
    assert len(advice(ask(graph(works_with(WORSE), board)))) == (mode == "nudge")


@pytest.mark.parametrize(("text", "said"), [
    ("{tool} again, {count} times.", "[Trajectory guard] Your answers have become worse."),
    ("Mind: {reason}", "Mind: The scores 'logprobs' were 0.95 on average"),
    (lambda verdict: f"About {verdict.rule}.", "About quality_drop."),
])  # fmt: skip
def test_texts_of_the_application_are_used_unless_they_are_about_calls(text: Any, said: str) -> None:
    messages = ask(graph(works_with(WORSE), new_board(track_quality=True, nudge_text=text)))
    assert [str(one.content).startswith(said) for one in nudges(messages)] == [True]


def test_another_process_counts_the_past_and_does_not_act_on_it_again() -> None:
    saver = InMemorySaver()

    def process(means: Sequence[float]) -> Any:
        board = new_board(track_quality=True)
        return apply_guard(agent_builder(answers_with(means)), board=board).compile(checkpointer=saver), board

    first, _ = process(WORSE)
    for turn in range(15):
        messages = ask(first, f"question {turn}")
    assert len(advice(messages)) == 1
    second, board = process(WORSE)
    messages = ask(second, "and now?")
    assert len(advice(messages)) == 1
    assert board.counts["quality.scores"] == 15
    assert board.counts["interventions.NUDGE"] == 0


def test_a_message_is_scored_once_whatever_reads_it() -> None:
    board = new_board(track_quality=True)
    one = graph(works_with([SURE] * 4), board)
    for turn in range(5):
        ask(one, f"question {turn}")
    assert board.counts["quality.scores"] == 20


# --- with loops ------------------------------------------------------------------------------------------------------


def test_advice_about_quality_is_no_nudge_that_allows_a_stop() -> None:
    """A stop that a collector or another process asks for needs a nudge about the loop first."""
    board = new_board(track_quality=True)
    seen: list[str] = []

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        seen[:] = [str(one.content) for one in nudges(messages)]
        if rounds(messages) >= 25:
            return AIMessage("I give up.")
        done = rounds(messages)
        if done < 15:
            return with_logprobs(calls(messages, ("lookup", {"key": f"item {len(messages)}"})), WORSE[done])
        return calls(messages, ("search", {"query": "return policy"}))

    messages = ask(graph(policy, board))
    assert len(advice(messages)) == 1
    assert ["become worse" in one for one in seen] == [True, False]  # then the nudge about the loop
    assert messages[-1].response_metadata[MARK]["status"] == "guardrail_triggered"
    assert sum(one.type == "tool" for one in messages) == 15 + 5


class Collector(ThreadingHTTPServer):
    """Answers every question for a flag with ``level``, as a collector does."""

    def __init__(self) -> None:
        self.level = "OBSERVE"
        super().__init__(("127.0.0.1", 0), _Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: Collector

    def do_GET(self) -> None:
        level = self.server.level
        answer = {
            "level": level, "trajectory_id": "thread", "step_id": "00000000000000aa", "step": 40, "score": 4.0, "health": 0.2,
            "types": ["TYPE_I_STUTTER"], "rule": "same_call_same_result", "certainty": "certain", "episode": 1,
            "reason": "A loop over there.", "nudge": "Leave that loop." if level == "NUDGE" else None, "nudges": 1, "steps": 41, "tool": "search",
        }  # fmt: skip
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.mark.parametrize("level", ["NUDGE", "STOP"])
def test_a_loop_that_a_collector_reports_after_advice_is_nudged_first(level: str) -> None:
    with Collector() as collector:
        board = new_board(track_quality=True, collector_url=collector.url, collector_timeout_s=10.0)
        plain = works_with(WORSE)

        def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
            if advice(messages):
                collector.level = level
            return plain(messages, turn)

        messages = ask(graph(policy, board))
        collector.shutdown()
    given = [str(one.content) for one in nudges(messages)]
    assert "become worse" in given[0]
    assert "Leave that loop." in given[1] if level == "NUDGE" else "A loop over there." in given[1]
    stopped = MARK in messages[-1].response_metadata
    assert stopped is (level == "STOP")


def test_a_loop_is_nudged_and_stopped_as_without_quality() -> None:
    outlines = []
    for config in ({}, {"track_quality": True}):
        messages = ask(graph(repeats(), new_board(**config)))
        outlines.append([one.type for one in messages])
    assert outlines[0] == outlines[1]


# --- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["apply_guard", "middleware"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_judge_is_asked_about_answers_and_its_scores_nudge(way: str, is_async: bool) -> None:
    asked: list[tuple[str, str]] = []

    def judge(request: str, response: str) -> float:
        asked.append((request, response))
        return 0.9 if len(asked) <= 10 else 0.1

    async def judge_async(request: str, response: str) -> float:
        await asyncio.sleep(0)
        return judge(request, response)

    board = new_board(quality_judge=judge_async if is_async else judge)
    assert board.quality is not None
    assert board.quality.judge is not None

    def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
        if not rounds(messages):
            return calls(messages, ("lookup", {"key": f"item {len(messages)}"}))
        return AIMessage(f"answer to {[one for one in messages if one.type == 'human'][-1].content}")

    one = WAYS[way](policy, board)
    for turn in range(16):
        messages = ask(one, f"question {turn}")
        assert board.quality.judge.wait(LONG_S)
    assert asked[:2] == [("question 0", "answer to question 0"), ("question 1", "answer to question 1")]
    assert len(asked) >= 15
    assert len(advice(messages)) == 1
    board.quality.close()


def test_a_judge_that_hangs_delays_no_agent() -> None:
    entered, release = threading.Event(), threading.Event()

    def judge(request: str, response: str) -> float:
        entered.set()
        release.wait(LONG_S)
        return 0.5

    board = new_board(quality_judge=judge, quality_timeout_s=LONG_S, quality_queue=2)
    one = graph(works_with([SURE] * 2), board)
    for turn in range(8):
        ask(one, f"question {turn}")
    assert entered.wait(LONG_S)
    assert board.counts["quality.judge_dropped"] >= 4
    release.set()
    assert board.quality is not None
    board.quality.close()


def test_the_judge_sees_no_message_of_the_guard() -> None:
    asked: list[tuple[str, str]] = []

    def judge(request: str, response: str) -> float:
        asked.append((request, response))
        return 0.5

    board = new_board(quality_judge=judge)
    one = graph(repeats(), board)
    ask(one, "first")  # nudged and stopped
    ask(one, "second")
    assert board.quality is not None
    assert board.quality.judge is not None
    assert board.quality.judge.wait(LONG_S)
    assert not any("guard" in text for pair in asked for text in pair)
    assert not any("could not get any further" in response for _, response in asked)
    board.quality.close()


# --- whom advice is for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("messages", "instance", "names"), [
    ([], "", {""}), ([AIMessage("x", name="alice")], "", {"", "alice"}), ([AIMessage("x", name="bob")], "alice:1", {"alice"}),
    ([], "team:1|alice:2", {"alice"}), ([HumanMessage("x", name="maria")], "", {""}),
])  # fmt: skip
def test_a_gate_speaks_to_the_agents_of_its_graph(messages: list[BaseMessage], instance: str, names: set[str]) -> None:
    assert agents_of(messages, instance) == names


def test_advice_reaches_the_agent_it_is_about() -> None:
    board = new_board(track_quality=True)
    for value in [0.9] * 10 + [0.1] * 5:
        board.score("thread", value, agent_name="alice")
        board.score("thread", 0.9, agent_name="bob")
    heard: dict[str, int] = {}

    def sub_graph(name: str) -> Any:
        def policy(messages: Sequence[BaseMessage], turn: int) -> AIMessage:
            heard[name] = max(heard.get(name, 0), len(nudges(messages)))
            if rounds(messages) >= 2:
                return AIMessage("Done.")
            return calls(messages, ("lookup", {"key": f"{name} {len(messages)}"}))

        return apply_guard(agent_builder(policy), board=board).compile()

    builder = StateGraph(MessagesState)
    previous = START
    for name in ("bob", "alice"):
        builder.add_node(name, run_alone(sub_graph(name)))
        builder.add_edge(previous, name)
        previous = name
    builder.compile(checkpointer=InMemorySaver()).invoke({"messages": [("user", "x")]}, thread())
    assert heard == {"bob": 0, "alice": 1}


def run_alone(sub: Any) -> Callable[[Any], Any]:
    def node(state: Any) -> dict[str, Any]:
        return {"messages": sub.invoke({"messages": [("user", "x")]})["messages"][-1:]}

    return node


def test_scores_of_an_unknown_agent_reach_the_only_gate() -> None:
    board = new_board(track_quality=True)
    for value in [0.9] * 10 + [0.1] * 5:
        board.score("thread", value, agent_name="whoever spans name")
    assert len(advice(ask(graph(works_with([SURE] * 2), board)))) == 1


def test_the_only_gate_hears_of_agents_by_whatever_name_spans_know_them() -> None:
    """Log-probabilities come without a name here, and evaluations on spans with one: it is the same agent."""
    board = new_board(track_quality=True)
    one = graph(works_with([SURE] * 2), board)
    ask(one)
    for value in [0.9] * 10 + [0.1] * 5:
        board.score("thread", value, agent_name="researcher")
    assert len(advice(ask(one, "again"))) == 1


def test_messages_that_cannot_be_scored_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("trajectory_guard.gates.quality.mean_logprob", fail)
    board = new_board(track_quality=True)
    messages = ask(graph(repeats(), board))
    assert messages[-1].response_metadata[MARK]["status"] == "guardrail_triggered"
    assert board.counts["errors.quality"] > 0
