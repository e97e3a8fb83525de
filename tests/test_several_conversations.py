"""One trace around several conversations, which only the spans of the models name: a batch job, an evaluation."""

from __future__ import annotations

import pytest

from tests.test_span_processor import App

NAMES = ("first", "second", "third")


def agent_run(app: App, conversation: str, calls: int, *, loops: bool) -> None:
    """An agent whose model calls name the conversation and whose tool calls do not."""
    with app.tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for at in range(calls):
            model = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": conversation}
            app.tracer.start_span("chat", attributes=model).end()
            app.call(f'{{"q":{0 if loops else at}}}', f"answer {0 if loops else at}", conversation=None)


@pytest.mark.parametrize("looping", NAMES[1:])
def test_a_loop_is_not_filed_under_the_conversation_that_was_named_first(looping: str) -> None:
    app = App()
    with app.tracer.start_as_current_span("batch") as root:
        for name in NAMES:
            agent_run(app, name, 6, loops=name == looping)
        trace_id = f"{root.get_span_context().trace_id:032x}"
    assert [app.board.read(name).nudges for name in (*NAMES, trace_id)] == [0, 0, 0, 2]
    assert app.board.read("first").steps == 6
    assert app.errors == {}


def test_a_conversation_that_is_alone_in_its_trace_has_all_its_steps() -> None:
    app = App()
    with app.tracer.start_as_current_span("request"):
        agent_run(app, "only", 3, loops=False)
        agent_run(app, "only", 6, loops=True)
    assert (app.board.read("only").nudges, app.board.read("only").steps) == (2, 9)
