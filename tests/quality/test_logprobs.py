"""Log-probabilities in the shapes in which providers and LangChain hand them over."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from trajectory_guard.quality.logprobs import mean_logprob


def tokens(*values: Any) -> list[dict[str, Any]]:
    return [{"token": "t", "bytes": None, "logprob": value, "top_logprobs": []} for value in values]


def as_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{key: as_objects(one) for key, one in value.items()})
    return [as_objects(one) for one in value] if isinstance(value, list) else value


def message(**metadata: Any) -> AIMessage:
    return AIMessage("text", response_metadata=metadata)


SHAPES = {
    "LangChain, OpenAI": message(logprobs={"content": tokens(-0.5, -1.5), "refusal": None}),
    "LangChain, Google": message(avg_logprobs=-1.0),
    "LangChain, Google with tokens": message(
        logprobs_result={"chosen_candidates": [{"token": "a", "log_probability": -0.25}, {"log_probability": -1.75}]}
    ),
    "LangChain, content blocks": AIMessage([{"type": "text", "text": "a b", "logprobs": tokens(-0.5, -1.5)}]),
    "OpenAI, chat completion": {"choices": [{"message": {}, "logprobs": {"content": tokens(-0.5, -1.5)}}]},
    "OpenAI, first of several choices": {
        "choices": [{"logprobs": {"content": tokens(-1.0)}}, {"logprobs": {"content": tokens(-9.0)}}]
    },
    "OpenAI, response": {
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [
                {"type": "output_text", "text": "a", "logprobs": tokens(-0.5)},
                {"type": "output_text", "text": "b", "logprobs": tokens(-1.5)},
            ]},
        ]
    },
    "completions of older servers": {"choices": [{"text": "a b", "logprobs": {"token_logprobs": [None, -0.5, -1.5]}}]},
    "Google": {"candidates": [{"avg_logprobs": -1.0}]},
    "Google, JSON": {"candidates": [{"avgLogprobs": -1.0}]},
    "bare": {"logprobs": {"content": tokens(-0.5, -1.5)}},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_read(shape: str) -> None:
    assert mean_logprob(SHAPES[shape]) == pytest.approx(-1.0)


@pytest.mark.parametrize("shape", [name for name, one in SHAPES.items() if isinstance(one, dict)])
def test_objects_of_an_sdk_are_read_like_plain_data(shape: str) -> None:
    assert mean_logprob(as_objects(SHAPES[shape])) == pytest.approx(-1.0)


def test_true_objects_of_the_openai_sdk_are_read() -> None:
    openai = pytest.importorskip("openai.types.chat")
    completion = openai.ChatCompletion.model_validate({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a b"},
            "logprobs": {"content": tokens(-0.5, -1.5), "refusal": None},
        }],
    })  # fmt: skip
    assert mean_logprob(completion) == pytest.approx(-1.0)


def test_true_objects_of_the_google_sdk_are_read() -> None:
    types = pytest.importorskip("google.genai.types")
    candidate = types.Candidate(avg_logprobs=-1.0)
    assert mean_logprob(types.GenerateContentResponse(candidates=[candidate])) == pytest.approx(-1.0)


def test_chunks_of_a_stream_add_up() -> None:
    whole = AIMessageChunk("", response_metadata={})
    for value in (-0.5, -1.5):
        whole += AIMessageChunk("t", response_metadata={"logprobs": {"content": tokens(value), "refusal": None}})
    assert mean_logprob(whole) == pytest.approx(-1.0)


@pytest.mark.parametrize("response", [
    message(), message(logprobs=None), message(logprobs={"content": None}), message(logprobs={"content": []}),
    message(avg_logprobs=math.nan), message(avg_logprobs=0.5), message(avg_logprobs="NaN"), message(avg_logprobs=True),
    message(logprobs={"content": tokens(math.nan, math.inf, -math.inf, None, "x", 3.0, -9999.0)}),
    message(logprobs="x"), message(logprobs=7), message(logprobs={"content": "abc"}), None, "text", 3, [], {},
    AIMessage("no metadata"), {"choices": []}, {"choices": [None]}, {"choices": "abc"}, {"output": [{"content": "x"}]},
])  # fmt: skip
def test_a_response_without_usable_values_has_no_mean(response: Any) -> None:
    assert mean_logprob(response) is None


def test_values_that_are_none_are_left_out_of_the_mean() -> None:
    mixed = tokens(-0.5, math.nan, None, -9999.0, 2.0, -1.5)
    assert mean_logprob(message(logprobs={"content": mixed})) == pytest.approx(-1.0)


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["logprobs", "content", "choices", "output", "candidates", "avg_logprobs", "logprob",
                             "response_metadata", "token_logprobs", "logprobs_result", "chosen_candidates"]),
            inner, max_size=4,
        )
    ),
)  # fmt: skip


@given(json_like)
def test_anything_gives_a_mean_up_to_0_or_none(value: Any) -> None:
    mean = mean_logprob(value)
    assert mean is None or (math.isfinite(mean) and mean <= 0.0)
