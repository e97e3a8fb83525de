"""From a score to a finding: the board, its policy, certificate, log, metrics and configuration."""

from __future__ import annotations

import json
import logging
import math
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import record
from tests.test_telemetry import Measured, loop
from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.callbacks import Intervention
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Certainty, Evidence

DROP = [0.9] * 10 + [0.2] * 3


def board(**config: Any) -> FlagBoard:
    return FlagBoard(GuardConfig(**{"track_quality": True, **config}))


def feed(one: FlagBoard, values: list[float], trajectory: str = "t", **more: Any) -> list[Verdict]:
    return [verdict for value in values if (verdict := one.score(trajectory, value, **more)) is not None]


# --- the finding -----------------------------------------------------------------------------------------------------


def test_a_drop_is_a_nudge_that_names_the_scores_and_both_means() -> None:
    one = board()
    (verdict,) = feed(one, DROP, name="relevance")
    assert (verdict.level, verdict.rule, verdict.types) == (Level.NUDGE, "quality_drop", ["TYPE_VIII_QUALITY"])
    assert verdict.certainty is Certainty.LIKELY
    assert verdict.reason == "The scores 'relevance' were 0.90 on average, and the last 5 are 0.48."
    assert verdict.nudge is not None
    assert verdict.nudge.startswith("[Trajectory guard] Your answers have become worse.")
    assert verdict.reason in verdict.nudge
    assert "another call of this kind" not in verdict.nudge
    assert one.counts["interventions.NUDGE"] == one.counts["detections.TYPE_VIII_QUALITY"] == 1


@pytest.mark.parametrize("config", [{}, {"max_polls": 2, "max_wait_s": 0.1}, {"stop_patience": 1, "renudge": 1},
                                    {"stop_threshold": 2.0}, {"nudge_threshold": 0.1, "stop_threshold": 0.1}])  # fmt: skip
@pytest.mark.parametrize("is_delivered", [False, True])
def test_scores_that_fall_for_ever_never_lead_to_a_stop(config: dict[str, Any], is_delivered: bool) -> None:
    one = board(**config, quality_drop=0.01)
    nudges = 0
    for at in range(2000):
        verdict = one.score("t", 1.0 - at / 2000)
        if verdict is not None:
            assert verdict.level is not Level.STOP
            assert not verdict.stop_due
            nudges += verdict.nudge is not None
            if is_delivered and verdict.nudge is not None:
                one.delivered("t", verdict.run)
        assert one.read("t").level is not Level.STOP
    assert nudges >= 2
    assert one.counts["interventions.STOP"] == 0


def test_later_nudges_are_rarer_and_say_that_it_goes_on() -> None:
    found = feed(board(), [0.9] * 25 + [0.1] * 25)
    nudged = [at for at, verdict in enumerate(found) if verdict.nudge is not None]
    assert nudged == [0, 3]
    assert "still worse than before" in str(found[3].nudge)
    assert "another call of this kind" not in str(found[3].nudge)


def test_the_run_of_tools_is_not_touched() -> None:
    """Scores between the steps of a loop: the same verdicts on the steps, and the same stop."""
    with_scores, without = board(), board()
    values = iter([0.9] * 10 + [0.1] * 40)
    for step in loop(8):
        feed(with_scores, [next(values) for _ in range(5)])
        found, expected = with_scores.observe(step), without.observe(step)
        assert found is not None
        assert expected is not None
        assert found._replace(step_index=0, episode=0, nudges=0, certificate=None, first_step=0) == expected._replace(
            step_index=0, episode=0, nudges=0, certificate=None, first_step=0
        ) or (found.level, found.score, found.rule) == (expected.level, expected.score, expected.rule)
    assert with_scores.counts["interventions.STOP"] == without.counts["interventions.STOP"] == 1


def test_a_recovery_is_counted_and_takes_back_advice_that_nobody_was_given() -> None:
    one = board()
    feed(one, DROP)
    assert one.read("t").level is Level.NUDGE
    feed(one, [0.9] * 5)
    assert one.counts["recoveries"] == 1
    assert one.read("t").level is Level.OBSERVE
    (again,) = feed(one, [0.1] * 5)
    assert again.episode == 2
    assert again.nudge is not None


def test_agents_and_names_are_kept_apart() -> None:
    one = board()
    for _ in range(20):
        assert (
            feed(one, [0.9], agent_name="alice")
            == feed(one, [0.2], agent_name="bob")
            == feed(one, [0.1], name="other")
            == []
        )
    (verdict,) = feed(one, [0.1] * 3, agent_name="alice")
    assert verdict.run == "quality:alice"


def test_one_name_that_recovers_ends_nothing_while_another_is_low() -> None:
    one = board()
    feed(one, DROP, name="a")
    feed(one, DROP, name="b")
    feed(one, [0.9] * 5, name="a")
    assert one.counts["recoveries"] == 0
    feed(one, [0.9] * 5, name="b")
    assert one.counts["recoveries"] == 1


def test_taking_a_flag_without_a_run_gives_the_advice_once() -> None:
    one = board()
    feed(one, DROP, agent_name="alice")
    assert one.read("t").level is Level.NUDGE
    taken = one.take("t")
    assert taken.verdict is not None
    assert taken.verdict.rule == "quality_drop"
    assert one.take("t").level is Level.OBSERVE


def test_a_loop_comes_before_advice() -> None:
    one = board()
    feed(one, DROP)
    for step in loop(3):
        one.observe(step)
    rules = [one.take("t").verdict for _ in range(2)]
    assert [verdict.rule if verdict is not None else "" for verdict in rules] == [
        "same_call_same_result",
        "quality_drop",
    ]


def test_a_cleared_flag_takes_the_advice_with_it() -> None:
    one = board()
    feed(one, DROP)
    one.clear_flag("t", "fine")
    assert one.read("t").level is Level.OBSERVE


# --- where trajectories change ---------------------------------------------------------------------------------------


def test_scores_under_a_trace_count_for_the_conversation_it_turns_out_to_be() -> None:
    one = board()
    feed(one, DROP[:10], "trace")
    one.join("trace", "conversation")
    assert len(feed(one, DROP[10:], "trace")) == 1
    assert one.read("conversation").level is Level.NUDGE


def test_scores_of_a_conversation_survive_a_trace_that_joins_it() -> None:
    one = board()
    feed(one, DROP[:10], "conversation")
    for step in loop(1, "trace"):
        one.observe(step)
    one.join("trace", "conversation")
    assert len(feed(one, DROP[10:], "conversation")) == 1


def test_scores_and_advice_survive_steps_that_are_read_again_from_messages() -> None:
    one = board()
    one.observe(record("search", None, None, evidence=Evidence.NAME_ONLY))
    feed(one, DROP)
    assert one.discard_lossy("t")
    assert one.take("t").level is Level.NUDGE
    assert feed(one, [0.9] * 5) != []


def test_scores_are_of_one_process_and_saved_state_is_as_before() -> None:
    one, other = board(), board()
    for step in loop(2):
        one.observe(step)
    feed(one, DROP)
    data = one.save("t")
    assert data is not None
    assert other.adopt("t", data, 5)
    assert feed(other, [0.2] * 5) == []  # the earlier scores stay behind
    assert other.save("t") == data


def test_advice_survives_the_saved_state_of_another_process() -> None:
    one, other = board(), board()
    for step in loop(2):
        one.observe(step)
    data = one.save("t")
    assert data is not None
    feed(other, DROP)
    assert other.adopt("t", data, 5)
    assert other.take("t").level is Level.NUDGE


def test_trajectories_give_way_with_their_scores() -> None:
    one = board(max_trajectories=2)
    for name in "abc":
        feed(one, DROP[:10], name)
    assert len(one) == 2
    assert feed(one, DROP[10:], "a") == []


# --- values ----------------------------------------------------------------------------------------------------------


def test_scores_that_nobody_measures_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    one = FlagBoard(GuardConfig())
    with caplog.at_level(logging.WARNING, telemetry.LOGGER):
        for at in range(3):
            assert one.score(f"t{at}", 0.4, "thumbs") is None
    (line,) = caplog.messages
    assert "'thumbs' is dropped" in line
    assert "GuardConfig(track_quality=True)" in line
    caplog.clear()
    with caplog.at_level(logging.WARNING, telemetry.LOGGER):
        board().score("t", 0.4, "thumbs")
    assert caplog.messages == []


@pytest.mark.parametrize("config", [{}, {"track_quality": False}])
@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.1, "0.5", None])
def test_a_wrong_score_is_an_error_also_where_nothing_is_measured(config: dict[str, Any], value: Any) -> None:
    one = board(**config)
    with pytest.raises((TypeError, ValueError), match="score: expected a number from 0 to 1"):
        one.score("t", value)
    assert len(one) == 0


@pytest.mark.parametrize(("arguments", "key"), [
    (("", 0.5), "trajectory_id"), ((7, 0.5), "trajectory_id"), (("t", 0.5, ""), "name"), (("t", 0.5, None), "name"),
    (("t", 0.5, "x" * 201), "name"), ((None, 0.5), "trajectory_id"),
])  # fmt: skip
def test_a_wrong_name_is_an_error_that_names_the_key(arguments: tuple[Any, ...], key: str) -> None:
    with pytest.raises(ValueError, match=rf"^{key}: expected a text (of . to 200 characters|that is not empty), got "):
        board().score(*arguments)


# --- certificate, log, callback, metrics -----------------------------------------------------------------------------


def certificate() -> Certificate:
    (verdict,) = feed(board(), DROP)
    assert verdict.certificate is not None
    return verdict.certificate


def test_the_certificate_holds_the_scores_and_is_computed_again() -> None:
    made = certificate()
    assert made.rule == "quality_drop"
    assert made.facts["measured"]["scores"] == DROP
    assert Certificate.from_plain(json.loads(made.to_json())).verify().status == "replayed"


@pytest.mark.parametrize("change", [
    {"scores": [0.9] * 13}, {"scores": [0.2] * 13}, {"scores": [0.9] * 5}, {"scores": []}, {"recent": 0},
    {"drop": 0.5}, {"floor": 0.3}, {"scores": [1.0, 0.0] * 8 + [0.1] * 5}, {"scores": [9.0] * 8 + [0.1] * 5}, {"recent": 9},
])  # fmt: skip
def test_a_certificate_of_scores_that_have_not_dropped_is_not_sound(change: dict[str, Any]) -> None:
    made = certificate()
    facts = {**made.facts, "measured": {**made.facts["measured"], **change}}
    wrong = Certificate.made(made.rule, made.basis, made.parameters, facts)
    assert wrong.verify().status == "failed"


def test_the_log_says_so_at_the_drop_and_redacted_without_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=telemetry.LOGGER):
        feed(board(redact=True), DROP, name="relevance")
    (line,) = [json.loads(one.getMessage()) for one in caplog.records]
    assert (line["event_type"], line["rule"], line["reason"]) == ("TRAJECTORY_NUDGE", "quality_drop", "")
    assert line["quality"] == {"name": "relevance", "before": 0.9, "now": 0.48}


def test_the_callback_hears_of_a_nudge_that_no_gate_gives() -> None:
    heard: list[Intervention] = []
    feed(board(on_intervention=heard.append), DROP)
    assert [(one.level, one.delivered, one.verdict.rule) for one in heard] == [(Level.NUDGE, False, "quality_drop")]


def test_a_publisher_that_fails_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = board()

    def fail(verdict: Verdict) -> None:
        raise OSError("down")

    one.publisher = fail
    assert len(feed(one, DROP)) == 1
    assert one.counts["errors.quality"] == 1


def test_metrics_show_the_mean_by_source_and_name_and_what_became_of_scores() -> None:
    measured = Measured(track_quality=True)
    feed(measured.board, [0.5, 0.7], name="a")
    feed(measured.board, DROP, "other", name="b")
    assert measured.value(
        telemetry.QUALITY_MEAN, **{telemetry.QUALITY_SOURCE: "api", telemetry.EVALUATION: "a"}
    ) == pytest.approx(0.6)
    assert measured.value(telemetry.QUALITY_EVENTS, **{telemetry.QUALITY_EVENT: "scores"}) == 2 + len(DROP)
    assert measured.value(telemetry.QUALITY_EVENTS, **{telemetry.QUALITY_EVENT: "drops"}) == 1


def test_names_in_the_metric_are_bounded() -> None:
    one = board()
    for at in range(500):
        one.score("t", 0.5, f"name {at}")
    assert one.quality is not None
    assert len(one.quality.shown()) == 64


# --- configuration ---------------------------------------------------------------------------------------------------


def test_nothing_is_measured_by_default() -> None:
    one = FlagBoard()
    assert one.quality is None
    assert feed(one, DROP) == []
    assert len(one) == 0
    one.judge_answer("t", "request", "response")
    assert not one.counts


def test_nothing_of_the_judge_is_loaded_without_one() -> None:
    code = (
        "import sys, trajectory_guard as t; t.FlagBoard(t.GuardConfig(track_quality=True)).score('t', 0.5)\n"
        "print([name for name in sys.modules if name.endswith('quality.judge')])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_the_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text(
        """
        [quality]
        track_quality = true
        quality_drop = 0.3
        quality_floor = 0.6
        quality_recent = 3
        quality_window = 20
        quality_evaluations = ["Relevance"]
        """,
        encoding="utf-8",
    )
    config = GuardConfig.from_file(file)
    assert config.quality_rule == (0.3, 0.6, 3, 20, 3.0)
    one = FlagBoard(config)
    assert len(feed(one, [0.9] * 3 + [0.7, 0.3, 0.3])) == 1


@pytest.mark.parametrize(("values", "message"), [
    ({"quality_drop": 0.0}, "quality_drop: "), ({"quality_drop": math.nan}, "quality_drop: "),
    ({"quality_floor": 1.5}, "quality_floor: "), ({"quality_recent": 1}, "quality_recent: "),
    ({"quality_window": 9}, "quality_window: at least twice quality_recent (5), got 9"),
    ({"quality_recent": 26}, "quality_window: at least twice quality_recent (26), got 50"),
    ({"quality_judge": "a name"}, "quality_judge: "), ({"quality_sample": 0.0}, "quality_sample: "),
    ({"quality_sample": 1.1}, "quality_sample: "), ({"quality_queue": 0}, "quality_queue: "),
    ({"quality_timeout_s": 0}, "quality_timeout_s: "), ({"quality_evaluations": 7}, "quality_evaluations: "),
    ({"quality_flor": 0.4}, "unknown key 'quality_flor' (did you mean 'quality_floor'?)"),
])  # fmt: skip
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig(**values)
    assert message in str(caught.value)


# --- the board of the process ----------------------------------------------------------------------------------------


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_scores_on_the_shared_board_reach_the_trace() -> None:
    done = run_python("""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from trajectory_guard import GuardConfig, instrument, shared_board
shared_board()  # with the configuration of the environment, which measures nothing
provider, exporter = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
instrument(config=GuardConfig(track_quality=True))
for value in [0.9] * 10 + [0.2] * 3:
    shared_board().score("t", value)
print([(one.name, one.attributes["trajectory_guard.quality.now"]) for one in exporter.get_finished_spans()])
""")
    assert done.stdout.strip() == "[('trajectory_guard.intervention', 0.48)]", done.stderr


def test_the_environment_switches_it_on() -> None:
    config = GuardConfig.from_env({"TRAJECTORY_GUARD_TRACK_QUALITY": "true", "TRAJECTORY_GUARD_QUALITY_FLOOR": "0.4"})
    assert config.measures_quality
    assert config.quality_rule.floor == 0.4


def test_a_board_that_measures_otherwise_from_now_on_keeps_its_scores() -> None:
    one = board(quality_judge=lambda request, response: 0.5)
    assert one.quality is not None
    judge = one.quality.judge
    assert judge is not None
    feed(one, DROP[:10])
    one.judge_answer("other", "request", "response")
    assert judge.wait(30.0)
    one.measure_quality(GuardConfig(track_quality=True, quality_floor=0.4))
    assert one.quality.judge is None
    assert feed(one, [0.2] * 3) == []  # 0.48 is above the floor of now
    assert len(feed(one, [0.2])) == 1
    one.measure_quality(GuardConfig())
    assert feed(one, [0.2] * 5) == []


def test_many_threads_lose_no_score() -> None:
    one = board(max_trajectories=10, quality_drop=0.01)
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        made = random.Random(seed)
        try:
            for _ in range(300):
                one.score(
                    f"t{made.randrange(12)}", made.random(), f"name {made.randrange(20)}", agent_name="ab"[seed % 2]
                )
                one.take(f"t{made.randrange(12)}")
        except BaseException as error:
            failed.append(error)
            raise

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60.0)
    assert failed == []
    assert one.counts["quality.scores"] == 6 * 300
    assert len(one) <= 10


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(0.0, 1.0)), max_size=120))
def test_whatever_scores_come_nothing_stops_and_certificates_are_sound(
    given_scores: list[tuple[str, str, float]],
) -> None:
    one = board(quality_drop=0.05, quality_floor=1.0, quality_deviations=0.0)
    for agent, name, value in given_scores:
        verdict = one.score("t", value, name, agent_name=agent)
        assert one.read("t").level is not Level.STOP
        if verdict is not None and verdict.certificate is not None:
            assert verdict.certificate.verify().status == "replayed"
            assert verdict.run == f"quality:{agent}"
    assert one.counts["quality.scores"] == len(given_scores)
    assert one.counts["interventions.NUDGE"] <= one.counts["quality.drops"]
