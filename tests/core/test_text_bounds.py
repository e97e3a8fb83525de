"""One budget of characters per call: what is understood of a long call, and what its fingerprints still tell."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_guard import Evidence, StepRecord
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.core.content.masking import masked_hash, result_hash
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.text_bounds import both_ends_and_digest, chars_of, within_limit


def step(index: int, args: Any, result: str) -> StepRecord:
    return StepRecord(
        f"s{index}", "t", "fetch", args_hash(args), result_hash("success", result), args=args, result=result,
        timestamp=float(index),
    )  # fmt: skip


def test_a_short_call_is_left_as_it_is() -> None:
    short = step(0, {"q": "x"}, "found")
    assert within_limit(short, 256) is short


def test_arguments_and_result_share_the_budget() -> None:
    both = step(0, {"q": "x" * 200}, "y" * 200)
    assert within_limit(both, 500).evidence is Evidence.FULL
    assert within_limit(both, 300).evidence is Evidence.FINGERPRINT


@pytest.mark.parametrize("length", [300, 5_000, 20_000, 300_000])
def test_a_long_result_keeps_both_ends_and_any_change_between_them_counts(length: int) -> None:
    text = "head " + "x" * length + " tail"
    other = text[: length // 2] + "y" + text[length // 2 + 1 :]
    cut = both_ends_and_digest(text, 256)
    assert cut.startswith("head")
    assert cut.endswith("tail")
    assert len(cut) < 256
    assert cut == both_ends_and_digest(text, 256) != both_ends_and_digest(other, 256)
    assert result_hash("success", text) != result_hash("success", other)


def test_noise_at_the_ends_of_a_long_result_is_still_masked() -> None:
    body = "row of the report\n" * 5_000
    first, second = (f"at 2026-03-01T10:00:0{second}Z\n{body}took 0.3{second}s" for second in (1, 2))
    assert masked_hash(first) == masked_hash(second)
    assert masked_hash(first) != masked_hash(first.replace("row", "ROW", 2_500))


def test_the_same_long_call_again_is_a_repeat_and_another_one_is_not() -> None:
    engine = Engine()
    state = engine.new_state("t")
    long = [{"text": "word " * 5_000}, {"text": "word " * 4_999 + "other"}]
    same = [engine.observe(state, step(index, long[0], "")) for index in range(4)]
    assert same[-1] is not None
    assert same[-1].types[0] == "TYPE_I_STUTTER"
    assert same[-1].evidence is Evidence.FINGERPRINT
    fresh = engine.new_state("u")
    verdicts = [engine.observe(fresh, step(index, long[index % 2], "")) for index in range(2)]
    assert not any(verdict.types for verdict in verdicts if verdict is not None)


def test_long_arguments_are_equal_whatever_the_order_of_their_keys() -> None:
    text = "x" * 20_000
    assert args_hash({"a": 1, "b": text}) == args_hash({"b": text, "a": 1}) != args_hash({"a": 2, "b": text})


def test_counting_characters_ends_at_the_limit() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert chars_of(endless, 1_000) > 1_000
    assert chars_of({"a": [1, "two", None]}, 1_000) <= len(str({"a": [1, "two", None]}))


def test_the_budget_is_configurable() -> None:
    assert GuardConfig().max_understood_chars == 8_192
    with pytest.raises(ConfigError, match="max_understood_chars"):
        GuardConfig(max_understood_chars=1)
