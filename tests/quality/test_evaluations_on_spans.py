"""``gen_ai.evaluation.result`` events on spans of a real provider."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from tests.spending.test_feed import App, chat
from trajectory_guard import telemetry
from trajectory_guard.callbacks import Intervention
from trajectory_guard.core.policy import Level

EVENT = "gen_ai.evaluation.result"


def evaluation(value: Any = 0.9, name: str = "Relevance", **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.evaluation.name": name, "gen_ai.evaluation.explanation": "secret explanation",
        **({} if value is None else {"gen_ai.evaluation.score.value": value}), **more,
    }  # fmt: skip


class Evaluated(App):
    """A service whose model calls are evaluated."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**{"track_quality": True, **config})

    def answer(self, *events: dict[str, Any], agent: str = "researcher", conversation: str = "c", **more: Any) -> None:
        tracer = self.provider.get_tracer("app")
        around = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": conversation,
        }
        with (
            tracer.start_as_current_span(f"invoke_agent {agent}", attributes=around),
            tracer.start_as_current_span("chat", attributes=chat(**more)) as span,
        ):
            for attributes in events:
                span.add_event(EVENT, attributes)

    def answers(self, *values: Any, **more: Any) -> None:
        for value in values:
            self.answer(evaluation(value), **more)

    def own_spans(self) -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if one.name == telemetry.SPAN_NAME]


def test_a_drop_becomes_a_flag_a_span_and_a_nudge_of_the_agent() -> None:
    app = Evaluated()
    app.answers(*[0.9] * 10, *[0.2] * 3)
    flag = app.board.read("c")
    assert flag.level is Level.NUDGE
    assert flag.verdict is not None
    assert flag.verdict.run == "quality:researcher"
    (span,) = app.own_spans()
    attributes = span.attributes or {}
    assert attributes[telemetry.LOOP_DETECTED] is False
    assert list(cast(Sequence[str], attributes[telemetry.LANGFUSE_TAGS])) == ["TYPE_VIII_QUALITY"], (
        "no loop, no alert on loops"
    )
    assert attributes[telemetry.LOOP_RULE] == "quality_drop"
    assert (attributes[telemetry.QUALITY_NAME], attributes[telemetry.QUALITY_BEFORE]) == ("Relevance", 0.9)
    assert attributes[telemetry.QUALITY_NOW] == 0.48
    assert json.loads(str(attributes[telemetry.CERTIFICATE]))["rule"] == "quality_drop"
    assert "secret" not in str(attributes)
    assert telemetry.TOOL not in attributes
    assert (
        span.links[0].context.span_id
        == [one for one in app.exporter.get_finished_spans() if one.name == "chat"][-1].context.span_id
    )


def test_the_callback_hears_of_it_once() -> None:
    heard: list[Intervention] = []
    app = Evaluated(on_intervention=heard.append)
    app.answers(*[0.9] * 10, *[0.2] * 4)
    assert [(one.level, one.delivered) for one in heard] == [(Level.NUDGE, False)]


@pytest.mark.parametrize(("value", "event"), [
    (4.0, "out_of_range"), (-0.5, "out_of_range"), (math.nan, "out_of_range"), (math.inf, "out_of_range"),
    (100, "out_of_range"), (None, "no_number"), ("0.5", "no_number"), (True, "no_number"), ([0.5], "no_number"),
])  # fmt: skip
def test_a_value_that_is_no_score_is_counted_and_left_out(value: Any, event: str) -> None:
    app = Evaluated()
    app.answers(value)
    assert app.points(telemetry.QUALITY_EVENTS) == {(event,): 1}
    assert app.board.counts["errors.quality"] == 0


def test_other_events_are_no_evaluations() -> None:
    app = Evaluated()
    tracer = app.provider.get_tracer("app")
    with tracer.start_as_current_span("chat", attributes=chat()) as span:
        span.add_event("exception", evaluation())
        span.add_event("gen_ai.evaluation.results", evaluation())
    assert app.points(telemetry.QUALITY_EVENTS) == {}


def test_names_and_agents_are_kept_apart() -> None:
    app = Evaluated()
    for _ in range(20):
        app.answer(evaluation(0.9, "Relevance"), evaluation(0.1, "Toxicity"))
        app.answer(evaluation(0.2), agent="writer")
    assert app.own_spans() == []


def test_only_the_evaluations_asked_for_count() -> None:
    app = Evaluated(quality_evaluations=["Relevance"])
    for value in [0.9] * 10 + [0.0] * 10:
        app.answer(evaluation(value, "Toxicity"), evaluation(0.8))
    assert app.own_spans() == []
    assert app.points(telemetry.QUALITY_EVENTS) == {("scores",): 20}


def test_an_evaluation_in_another_trace_is_found_by_the_id_of_the_response() -> None:
    app = Evaluated()
    for at, value in enumerate([0.9] * 10 + [0.1] * 4):
        app.answer(**{"gen_ai.response.id": f"r{at}"})
        with app.provider.get_tracer("evaluator").start_as_current_span("evaluate") as span:
            span.add_event(EVENT, evaluation(value, **{"gen_ai.response.id": f"r{at}"}))
    assert app.board.read("c").level is Level.NUDGE


def test_a_response_is_evaluated_once_by_name() -> None:
    app = Evaluated()
    for _ in range(3):
        app.answer(
            evaluation(0.5, **{"gen_ai.response.id": "r"}), evaluation(0.5, "Tone", **{"gen_ai.response.id": "r"})
        )
    assert app.points(telemetry.QUALITY_EVENTS) == {("scores",): 2, ("repeated",): 4}


def test_the_score_of_openlit_is_read() -> None:
    score = pytest.importorskip("openlit.score")
    app = Evaluated()
    with app.provider.get_tracer("app").start_as_current_span("chat", attributes=chat()) as span:
        assert score.record_evaluation_score("Helpful", 0.75, span=span)
    assert app.board.quality is not None
    assert app.board.quality.shown() == [("span", "Helpful", 0.75)]


def test_evaluations_on_any_span_count_for_its_trajectory() -> None:
    app = Evaluated()
    for value in [0.9] * 10 + [0.1] * 4:
        with app.provider.get_tracer("app").start_as_current_span("POST /chat", attributes={"session.id": "s"}) as span:
            span.add_event(EVENT, evaluation(value))
    assert app.board.read("s").level is Level.NUDGE


def test_nothing_is_read_without_configuration() -> None:
    app = Evaluated(track_quality=False)
    app.answers(*[0.9] * 10, *[0.1] * 5)
    assert app.points(telemetry.QUALITY_EVENTS) == app.points(telemetry.QUALITY_MEAN) == {}
    assert app.own_spans() == []


def test_an_evaluation_that_cannot_be_read_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Evaluated(track_spending=True)

    def fail(*arguments: Any, **more: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("trajectory_guard.otel.quality.ScoreFeed._score", fail)
    app.answers(0.9, 0.9)
    assert app.board.counts["errors.quality"] == 2
    assert app.board.counts["spending.calls"] == 2
    assert trace.get_current_span().get_span_context().is_valid is False
