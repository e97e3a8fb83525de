"""Model spans that repeat, in every shell alike: in process, in the collector, through its operations, in a replay."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import comparable, request, score_all, span, tool, views
from tests.collector.test_operations import Workers
from tests.collector.test_same_verdicts import deliveries, replayed
from tests.helpers import capture, capture_names, span_view
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.cli.recordings.inputs import Diagnostics
from trajectory_guard.cli.replay import replay
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.steps import StepRecord, Usage
from trajectory_guard.core.tracking.model_calls import key_of
from trajectory_guard.transcripts.model_calls import model_call

PROMPT = "Improve the draft of the letter."
ANSWER = "The letter is fine as it is."
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer", "gen_ai.conversation.id": "c"}


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def chat(name: str, prompt: str = PROMPT, answer: str = ANSWER, *, tokens: int = 100, **fields: Any) -> Span:
    """A model span by the semantic conventions below the agent's span, content captured."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.input.messages": json.dumps([message("user", prompt)]),
        "gen_ai.output.messages": json.dumps([message("assistant", answer)]),
    }
    return span(name, attributes, span_name="chat m", **{"trace": "t", "parent": "agent", **fields})


def below_agent(*spans: Span) -> list[bytes]:
    """Requests of one span each; the span of the agent, which names the conversation, ends last."""
    return [request(one) for one in (*spans, span("agent", AGENT, trace="t", dur=500.0))]


def found_tool(name: str, at: float, **fields: Any) -> Span:
    options = {"conversation": None, "trace": "t", "parent": "agent", **fields}
    return tool(name, {"q": name}, f"result of {name}", at=at, **options)


def in_process(requests: Sequence[bytes], config: GuardConfig | None = None) -> dict[str, Verdict]:
    return evaluate_in_process([view for data in requests for view in views(data)], config)


def grown(at: int) -> str:
    """An input with everything that the model has said, always the same."""
    return json.dumps([message("user", PROMPT), *(message("assistant", ANSWER) for _ in range(at))])


def with_attributes(one: Span, **changed: str | None) -> Span:
    for key, value in changed.items():
        place = next(at for at, item in enumerate(one.attributes) if item.key == key.replace("__", "."))
        if value is None:
            del one.attributes[place]
        else:
            one.attributes[place].value.string_value = value
    return one


LOOP = [chat(f"m{at}", at=at) for at in range(10)]
RUNS = {
    "a loop": LOOP,
    "a loop, work, a loop": [
        *LOOP[:5], found_tool("x", 20), found_tool("y", 21), *(chat(f"n{at}", at=30 + at) for at in range(5)),
    ],
    "a loop of calls of tools after one of the model": [
        *LOOP[:4], *(tool(f"t{at}", conversation=None, trace="t", parent="agent", at=20 + at) for at in range(5)),
    ],
    "samples": [chat(f"{at} {place}", at=at + 0.01 * place) for at in range(6) for place in range(3)],
    "another prompt in between": [chat(f"m{at}", PROMPT if at % 4 else "Which letter?", at=at) for at in range(12)],
    "an input that grows by what was said": [
        with_attributes(chat(f"m{at}", at=at), gen_ai__input__messages=grown(at)) for at in range(10)
    ],
    "an announcement that is counted": [
        with_attributes(
            chat(f"m{at}", answer=f"Attempt {at}: I will do it.", at=at),
            gen_ai__input__messages=json.dumps(
                [message("user", PROMPT)]
                + [message("assistant", f"Attempt {number}: I will do it.") for number in range(at)]
            ),
        )
        for at in range(10)
    ],
    "two agents": [
        one
        for at in range(5)
        for one in (chat(f"a{at}", at=at), chat(f"b{at}", at=at + 0.6, dur=0.2, parent="other"))
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_all_shells_find_the_same(name: str, tmp_path: Path) -> None:
    other = span("other", {**AGENT, "gen_ai.agent.name": "critic"}, trace="t", parent="agent", dur=400.0)
    requests = below_agent(*RUNS[name], *([other] if name == "two agents" else []))
    expected = comparable(in_process(requests))
    assert any(verdict[11] == "same_model_call" for verdict in expected.values())
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, name).items():
        assert comparable(score_all(delivered)) == expected, how


@pytest.mark.parametrize("name", RUNS)
def test_trajectories_in_another_process_find_the_same(name: str) -> None:
    requests = below_agent(*RUNS[name])
    workers = Workers()
    for at, data in enumerate(requests):
        workers.carry_out(workers.operations(data))
        if at % 4 == 2:
            workers.restart()
    assert comparable(workers.verdicts()) == comparable(in_process(requests))
    workers.carry_out([one for data in requests for one in workers.operations(data)])
    assert comparable(workers.verdicts()) == comparable(in_process(requests))


def test_the_loop_costs_what_its_calls_cost() -> None:
    last = in_process(below_agent(*LOOP))[LOOP[-1].span_id.hex()]
    assert last.spent.tokens == 9 * 105
    assert last.spent.steps == 9


def test_a_tool_call_after_the_loop_is_not_charged_for_it_again() -> None:
    run = [*LOOP[:5], *(tool(f"t{at}", conversation=None, trace="t", parent="agent", at=20 + at) for at in range(4))]
    last = in_process(below_agent(*run))[run[-1].span_id.hex()]
    assert last.spent.tokens == 4 * 105


# --- what is no loop -----------------------------------------------------------------------------------------------


CALLS_A_TOOL = json.dumps([{"role": "assistant", "parts": [
    {"type": "tool_call", "id": "1", "name": "search", "arguments": {}},
]}])  # fmt: skip
QUIET = {
    "a person who answers": lambda at: {
        "gen_ai__input__messages": json.dumps(
            [message("user", PROMPT), *[message("assistant", ANSWER), message("user", "Again!")] * at]
        )
    },
    "another answer before": lambda at: {
        "gen_ai__input__messages": json.dumps([message("user", f"Draft {at}"), message("assistant", "Here it is.")])
    },
    "no input": lambda at: {"gen_ai__input__messages": None},
    "no output": lambda at: {"gen_ai__output__messages": None},
    "hidden input": lambda at: {"gen_ai__input__messages": "__REDACTED__"},
    "hidden output": lambda at: {"gen_ai__output__messages": "[REDACTED]"},
    "input that was cut off": lambda at: {"gen_ai__input__messages": grown(3)[:60]},
    "answers that request tools": lambda at: {"gen_ai__output__messages": CALLS_A_TOOL},
    "models in turn": lambda at: {"gen_ai__request__model": f"model {at % 3}"},
}


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_known_or_nothing_repeats(name: str, tmp_path: Path) -> None:
    spans = [with_attributes(chat(f"m{at}", at=at), **QUIET[name](at)) for at in range(9)]
    requests = below_agent(*spans, found_tool("x", 20))
    expected = comparable(in_process(requests))
    assert [verdict[1] for verdict in expected.values()] == [0]
    assert comparable(score_all(requests)) == expected
    if name != "answers that request tools":  # a replay reads these calls from the messages
        assert comparable(replayed(requests, tmp_path)) == expected


def test_model_calls_that_do_not_repeat_are_no_trajectory_of_a_replay(tmp_path: Path) -> None:
    file = tmp_path / "spans.pb"
    file.write_bytes(b"".join(below_agent(*(chat(f"m{at}", answer=f"draft {at}", at=at) for at in range(9)))))
    assert list(replay([str(file)], GuardConfig(), Diagnostics())) == []


def test_a_replay_lists_the_call_that_is_repeated_as_well(tmp_path: Path) -> None:
    file = tmp_path / "spans.pb"
    file.write_bytes(b"".join(below_agent(found_tool("x", -9), *LOOP[:4], found_tool("y", 20))))
    (outcome,) = replay([str(file)], GuardConfig(), Diagnostics())
    assert [step.tool_name for step in outcome.steps] == ["search", "model", "model", "model", "model", "search"]
    assert outcome.first_nudge == 3
    assert [one["step"] for one in outcome.to_json()["verdicts"]] == [2, 3, 4]


@pytest.mark.parametrize("outer_first", [True, False])
def test_two_instrumentations_of_one_call_count_once(outer_first: bool, tmp_path: Path) -> None:
    requests = []
    for at in range(8):
        inner = request(chat(f"i{at}", at=at, dur=0.5), scope="client")
        outer = request(chat(f"o{at}", f"user: {PROMPT}", at=at - 0.1, dur=0.7), scope="framework")
        requests += [outer, inner] if outer_first else [inner, outer]
    requests.append(request(span("agent", AGENT, trace="t", dur=500.0)))
    for found in (in_process(requests), replayed(requests, tmp_path), score_all(requests)):
        assert sorted(one.step_index for one in found.values()) == list(range(1, 8))
        assert [one.spent.tokens for one in found.values() if one.step_index == 7] == [7 * 105]


def test_the_captures_hold_model_calls_that_are_read() -> None:
    """None of them is found repeated: ``collector/test_same_verdicts.py``."""
    read = [step for name in capture_names() for step in _model_calls(name) if step.model_scope and key_of(step)]
    assert len(read) > 50


def _model_calls(name: str) -> list[StepRecord]:
    found = (model_call(one, tuple, Usage()) for one in capture(name))
    return [step for step in found if step is not None]


# --- what is read --------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    "semantic conventions": {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([message("system", "Be brief."), message("user", PROMPT)]),
        "gen_ai.output.messages": json.dumps([message("assistant", ANSWER)]),
    },
    "OpenInference": {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": PROMPT,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": ANSWER,
    },
    "OpenLLMetry": {
        "gen_ai.system": "OpenAI",
        "llm.request.type": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": PROMPT,
        "gen_ai.completion.0.finish_reason": "stop",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 5,
    },
    "OpenLLMetry, OpenAI on Azure, no tokens": {
        "llm.request.type": "chat",
        "gen_ai.prompt.prompt_filter_results": '[{"prompt_index": 0}]',
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": PROMPT,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    },
    "OpenLLMetry, completions": {
        "llm.request.type": "completion",
        "gen_ai.prompt.0.user": PROMPT,
        "gen_ai.completion.0.finish_reason": "stop",
        "gen_ai.completion.0.content": ANSWER,
    },
    "OpenLLMetry, responses": {
        "gen_ai.system": "openai",
        "gen_ai.response.id": "resp_1",
        "gen_ai.prompt.0.content": PROMPT,
        "gen_ai.prompt.0.role": "user",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    },
    "OpenLLMetry, first versions": {
        "llm.vendor": "OpenAI",
        "llm.request.type": "chat",
        "llm.request.model": "m",
        "llm.prompts.0.role": "user",
        "llm.prompts.0.content": PROMPT,
        "llm.completions.0.role": "assistant",
        "llm.completions.0.content": ANSWER,
        "llm.usage.prompt_tokens": 100,
        "llm.usage.completion_tokens": 5,
    },
    "Vercel": {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.prompt.messages": json.dumps([{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]),
        "ai.response.text": ANSWER,
    },
    "Langfuse": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps([{"role": "user", "content": PROMPT}]),
        "langfuse.observation.output": json.dumps({"role": "assistant", "content": ANSWER}),
        "langfuse.observation.usage_details": '{"input": 100, "output": 5}',
    },
    "LangSmith": {
        "langsmith.span.kind": "llm",
        "gen_ai.prompt": json.dumps({"messages": [[{"lc": 1, "type": "constructor", "id": ["HumanMessage"],
            "kwargs": {"content": PROMPT, "type": "human"}}]]}),
        "gen_ai.completion": json.dumps({"generations": [[{"text": ANSWER, "type": "ChatGeneration", "message": {
            "lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"content": ANSWER, "type": "ai"}}}]]}),
    },
    "Logfire, OpenAI client": {
        "logfire.msg_template": "Chat Completion with {request_data[model]!r}",
        "logfire.span_type": "span",
        "request_data": json.dumps({"messages": [{"role": "user", "content": PROMPT}], "model": "m"}),
        "response_data": json.dumps({"message": {"role": "assistant", "content": ANSWER}}),
    },
}  # fmt: skip
HIDDEN: dict[str, dict[str, Any]] = {
    "OpenLLMetry": {
        "gen_ai.system": "OpenAI", "llm.request.type": "chat", "gen_ai.request.model": "m",
        "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 5,
    },
    "OpenLLMetry, roles only": {
        "llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "stop",
    },
    "OpenLLMetry, roles only, and an answer": {
        "llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    },
    "OpenLLMetry, embeddings": {
        "llm.request.type": "embedding", "gen_ai.prompt.0.content": PROMPT, "gen_ai.completion.0.content": ANSWER,
    },
    "OpenLLMetry, a task around a model": {
        "traceloop.span.kind": "task", "traceloop.entity.input": PROMPT, "traceloop.entity.output": ANSWER,
    },
    "OpenInference": {
        "openinference.span.kind": "LLM", "input.value": "__REDACTED__", "output.value": "__REDACTED__",
        "llm.token_count.prompt": 100,
    },
    "OpenInference, texts only": {
        "openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "__REDACTED__",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "__REDACTED__",
    },
    "Vercel": {"ai.operationId": "ai.generateText.doGenerate", "ai.response.finishReason": "stop"},
    "Langfuse": {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": '{"input": 100}'},
    "LangSmith": {"langsmith.span.kind": "llm", "gen_ai.prompt": "{}", "gen_ai.completion": "{}"},
    "Logfire": {
        "logfire.msg_template": "Chat completion with {gen_ai.request.model!r}", "logfire.span_type": "span",
        "input": "null", "output": "null", "request_data": '{"messages":[],"model":"scripted-1"}',
        "gen_ai.usage.input_tokens": 101,
    },
}  # fmt: skip


def repeated(attributes: dict[str, Any]) -> list[bytes]:
    """Six model calls with the same attributes, then the end of their agent."""
    spans = [span(f"m{at}", attributes, trace="t", parent="agent", at=at) for at in range(6)]
    return below_agent(*spans)


@pytest.mark.parametrize("name", SHAPES)
def test_a_loop_is_found_in_any_dialect_and_in_every_shell(name: str, tmp_path: Path) -> None:
    requests = repeated(SHAPES[name])
    expected = comparable(in_process(requests))
    assert len(expected) == 5
    assert {verdict[11] for verdict in expected.values()} == {"same_model_call"}
    assert comparable(replayed(requests, tmp_path)) == expected
    for how, delivered in deliveries(requests, name).items():
        assert comparable(score_all(delivered)) == expected, how


@pytest.mark.parametrize("name", HIDDEN)
def test_calls_whose_content_is_not_captured_repeat_nothing(name: str, tmp_path: Path) -> None:
    requests = repeated(HIDDEN[name])
    assert in_process(requests) == {}
    assert score_all(requests) == {}
    assert replayed(requests, tmp_path) == {}


@pytest.mark.parametrize("name", ["OpenLLMetry", "OpenLLMetry, first versions", "Langfuse"])
def test_the_tokens_of_a_loop_are_counted(name: str) -> None:
    last = list(in_process(repeated(SHAPES[name])).values())[-1]
    assert last.spent.tokens == 5 * 105


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings"},
        {"openinference.span.kind": "CHAIN"},
        {"langfuse.observation.type": "span"},
        {"ai.operationId": "ai.generateText"},
    ],
)
def test_a_span_that_one_instrumentation_knows_to_be_no_call_is_none(attributes: dict[str, Any]) -> None:
    assert in_process(repeated({**SHAPES["OpenLLMetry"], **attributes})) == {}


@pytest.mark.parametrize("name", SHAPES)
def test_input_and_answer_are_read_in_any_dialect(name: str) -> None:
    step = model_call(span_view(SHAPES[name]), tuple, Usage())
    assert step is not None
    assert step.result == ANSWER
    assert key_of(step)
    again = model_call(span_view(SHAPES[name]), tuple, Usage())
    other = {
        key: value.replace("draft", "title") if isinstance(value, str) else value for key, value in SHAPES[name].items()
    }
    changed = model_call(span_view(other), tuple, Usage())
    assert again is not None
    assert changed is not None
    assert key_of(step) == key_of(again) != key_of(changed)


def test_a_text_in_brackets_is_not_taken_for_json_that_was_cut_off() -> None:
    attributes = {
        **SHAPES["OpenInference"],
        "llm.input_messages.0.message.content": "[Trajectory guard] You seem to be stuck.",
    }
    step = model_call(span_view(attributes), tuple, Usage())
    assert step is not None
    assert step.args == {"prompt": "[Trajectory guard] You seem to be stuck."}


def test_the_excerpt_is_the_beginning_of_the_last_message() -> None:
    step = model_call(span_view(SHAPES["semantic conventions"]), tuple, Usage())
    assert step is not None
    assert step.args == {"prompt": PROMPT}


def test_of_a_long_input_the_end_is_hashed() -> None:
    def key(start: str, end: str) -> str:
        text = json.dumps([message("user", start + "x" * 200_000 + end)])
        step = model_call(span_view({**SHAPES["semantic conventions"], "gen_ai.input.messages": text}), tuple, Usage())
        assert step is not None
        return key_of(step)

    assert key("", "a") == key("", "a") != key("", "b")
    assert key("", "a") != key("longer", "a")


@pytest.mark.parametrize("chars", [50_000, 5_000_000])
def test_a_long_input_costs_a_bounded_time(chars: int) -> None:
    text = json.dumps([message("user", "word " * (chars // 5))])
    view = span_view({**SHAPES["semantic conventions"], "gen_ai.input.messages": text})
    best = min(_seconds(view) for _ in range(20))
    assert best < 0.002  # a tenth of it as a rule: the machine may be busy


def test_a_long_history_that_is_spread_costs_a_bounded_time() -> None:
    spread = {f"llm.input_messages.{at}.message.content": "word " * 2_000 for at in range(2_000)}
    view = span_view({**SHAPES["OpenInference"], **spread})
    assert model_call(view, tuple, Usage()) is not None
    assert min(_seconds(view) for _ in range(5)) < 0.02
    assert (
        model_call(span_view({**view.attributes, **dict.fromkeys(map(str, range(20_000)), 1)}), tuple, Usage()) is None
    )


def _seconds(view: Any) -> float:
    began = time.thread_time()
    model_call(view, tuple, Usage())
    return time.thread_time() - began


def test_a_conversation_that_is_named_later_takes_over_the_newest_call() -> None:
    """The first call is alone in its trace when the span of the agent names the conversation."""
    board = FlagBoard()
    steps = [model_call(view, tuple, Usage()) for one in LOOP[:3] for view in views(request(one))]
    trace = LOOP[0].trace_id.hex()
    for at, step in enumerate(steps):
        assert step is not None
        if at == 1:
            board.observe(step._replace(trajectory_id="c", step_id="ff" * 8, model_scope="another", tool_args_hash="x"))
            board.join(trace, "c")
        board.observe(step._replace(trajectory_id="c" if at else trace))
    assert board.last_verdict("c") is not None


def test_what_the_code_of_a_tool_asks_a_model_is_no_loop_of_the_agent(tmp_path: Path) -> None:
    votes = [chat(f"vote{at}", at=1.0 + at, parent="classify") for at in range(9)]
    requests = below_agent(*votes, found_tool("classify", 0.0, dur=20.0))

    for found in (in_process(requests), replayed(requests, tmp_path), score_all(requests), score_all(requests[::-1])):
        assert not [one for one in found.values() if one.intervenes]
