"""Programs without agent or graph that answer several messages of users below one span, in every shell alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import comparable, request, score_all, span, tool, views
from tests.collector.test_operations import scored, without_prices
from tests.collector.test_same_verdicts import deliveries, replayed
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.transcripts.parts import read_messages

TABLES = "customers, invoices, invoice_lines, payments, products, refunds, shipments, subscriptions"
Message = dict[str, Any]


def said(role: str, text: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def called(place: int) -> list[Message]:
    """A call of a tool and its result, as they stand in the input of the next model call."""
    call = {"type": "tool_call", "id": f"c{place}", "name": "list_tables", "arguments": {}}
    result = {"type": "tool_call_response", "id": f"c{place}", "response": TABLES}
    return [{"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [result]}]


class Program:
    """The spans of a program, all below one span of the application."""

    def __init__(self, parent: str = "job", **above: Any) -> None:
        self.parent, self.above, self.spans = parent, above, list[Span]()

    def ask(self, *messages: Message, answer: str = "") -> None:
        """A model call; without an answer it asks for a tool."""
        attributes = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 100,
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps([said("assistant", answer or "I look.")]),
        }  # fmt: skip
        at = len(self.spans)
        self.spans.append(span(f"chat{at}", attributes, span_name="chat m", at=at, parent=self.parent))

    def call(self, result: str = TABLES, *, asks: Sequence[Message] = ()) -> None:
        """A tool call, whose code asks the model something or nothing."""
        at = len(self.spans)
        self.spans.append(
            tool(
                f"call{at}", {}, result, tool_name="list_tables", conversation=None, at=at, dur=1.9 if asks else 0.5,
                parent=self.parent,
            )
        )  # fmt: skip
        if asks:
            self.ask(*asks, answer="All of them.")
            self.spans[-1].parent_span_id = self.spans[-2].span_id

    def requests(self) -> list[bytes]:
        around = span(self.parent, self.above, span_name=self.parent, dur=len(self.spans) + 1.0)
        return [request(one) for one in (*self.spans, around)]


def in_process(requests: Sequence[bytes]) -> dict[str, Verdict]:
    return evaluate_in_process([view for data in requests for view in views(data)])


def levels(program: Program) -> list[Level]:
    return [verdict.level for verdict in in_process(program.requests()).values()]


SYSTEM = said("system", "You answer questions about our database.")


def evaluation(program: Program) -> None:
    """A list of questions, each in a conversation of its own; each begins with a look at the tables."""
    for number in range(8):
        question = said("user", f"Question {number}: how many rows has table {number}?")
        program.ask(SYSTEM, question)
        program.call()
        program.ask(SYSTEM, question, *called(number), answer=f"It has {number}.")


def chat(program: Program) -> None:
    """One conversation in which a person asks one thing after the other."""
    history = [SYSTEM]
    for number in range(8):
        history.append(said("user", f"And table {number}?"))
        program.ask(*history)
        program.call()
        history += called(number)
        program.ask(*history, answer=f"It has {number}.")
        history.append(said("assistant", f"It has {number}."))


def greeted(program: Program) -> None:
    """As ``evaluation``, behind a greeting of the assistant."""
    for number in range(8):
        question = [SYSTEM, said("assistant", "How can I help?"), said("user", f"How many rows has table {number}?")]
        program.ask(*question)
        program.call()
        program.ask(*question, *called(number), answer=f"It has {number}.")


def looping(program: Program, after: Callable[[int], None] = lambda number: None, *, tool_asks: bool = False) -> None:
    """One question, and always the same call; ``after`` does something after each."""
    history = [SYSTEM, said("user", "How many rows has table 1?")]
    for number in range(8):
        program.ask(*history)
        program.call(asks=[SYSTEM, said("user", f"Which tables are there? Attempt {number}.")] if tool_asks else ())
        after(number)
        history += called(number)


def stuck(program: Program) -> None:
    """One question, and always the same call."""
    looping(program)


def stuck_at_the_second(program: Program) -> None:
    """A question that is answered, and another one at which the program gets stuck."""
    program.ask(SYSTEM, said("user", "Hello?"))
    program.call("none yet")
    program.ask(SYSTEM, said("user", "Hello?"), *called(0), answer="Hello!")
    stuck(program)


def given_up(program: Program) -> None:
    """As ``evaluation``, and the program gives a question up after its first look."""
    for number in range(8):
        program.ask(SYSTEM, said("user", f"Question {number}: how many rows has table {number}?"))
        program.call()
        if number == 0:
            program.ask(SYSTEM, said("user", "Question 0: how many rows has table 0?"), *called(0), answer="None.")


def asking_tool(program: Program) -> None:
    """A loop of a tool whose code asks the model, in a new conversation each time."""
    looping(program, tool_asks=True)


def summarised(program: Program) -> None:
    """A loop in which a result is summarised by the model before it goes on."""
    looping(
        program,
        lambda number: program.ask(said("user", f"Summarise this, in {number} words: {TABLES}"), answer="Tables."),
    )


def window(program: Program) -> None:
    """A loop whose oldest messages are left out of the input, the question first."""
    history = [said("user", "How many rows has table 1?")]
    for number in range(8):
        program.ask(SYSTEM, *history[-3:])
        program.call()
        history += called(number)


def told_to_go_on(program: Program) -> None:
    """A loop in which the program answers each text without a call with the same request."""
    history = [SYSTEM, said("user", "How many rows has table 1?")]
    for number in range(8):
        program.ask(*history)
        program.call()
        history += called(number)
        program.ask(*history, answer="I shall look again.")
        history += [said("assistant", "I shall look again."), said("user", "Please go on.")]


def stateless(program: Program) -> None:
    """A loop of a planner and a critic; everything they know is in one message, which grows."""
    for number in range(8):
        program.ask(SYSTEM, said("user", f"Plan the next step. So far: {'looked; ' * number}"))
        program.call()
        program.ask(SYSTEM, said("user", f"Criticise: {'looked; ' * number}"), answer="Do it again.")


HEALTHY = [evaluation, chat, greeted, given_up]
STUCK = [stuck, stuck_at_the_second, asking_tool, summarised, window, told_to_go_on, stateless]


def made(play: Callable[[Program], None], parent: str = "job", **above: Any) -> Program:
    program = Program(parent, **above)
    play(program)
    return program


@pytest.mark.parametrize("play", HEALTHY)
def test_another_message_of_a_user_begins_another_run(play: Callable[[Program], None]) -> None:
    assert set(levels(made(play))) == {Level.OBSERVE}


@pytest.mark.parametrize("play", STUCK)
def test_a_loop_at_one_message_is_stopped(play: Callable[[Program], None]) -> None:
    found = levels(made(play))
    assert Level.NUDGE in found
    assert found[-1] is Level.STOP


@pytest.mark.parametrize("play", [*HEALTHY, *STUCK])
def test_every_shell_reads_the_messages_alike(play: Callable[[Program], None], tmp_path: Path) -> None:
    requests = made(play).requests()
    expected = comparable(in_process(requests))
    for how, delivered in deliveries(requests, play.__name__).items():
        assert comparable(score_all(delivered)) == expected, how
    assert scored(requests, restart_after={5, 12}) == without_prices(score_all(requests))
    assert comparable(replayed(requests, tmp_path)) == expected


def test_the_instructions_of_an_agent_s_helpers_split_no_run() -> None:
    """Where the spans show an agent, its run ends with it, whatever the models below it are asked."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "analyst"}
    assert levels(made(evaluation, "agent", **agent))[-1] is Level.STOP


def test_the_calls_of_a_loop_do_not_cost_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """In process the input is read on the thread of the application: from the third call on only its beginning."""
    read = list[Any]()

    def reading(item: Any) -> list[Any]:
        read.append(item)
        return read_messages(item)

    monkeypatch.setattr("trajectory_guard.transcripts.asked.read_messages", reading)
    in_process(made(stuck).requests())
    first_two, others = 2 * (2 + 2) + (4 + 4), 6 * 3
    assert len(read) <= first_two + others
