"""What the guard writes to the application's own live spans: the application loses nothing that it has written there."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import INVALID_SPAN, Span

from trajectory_guard import telemetry
from trajectory_guard.otel.verdict_spans import write_to

from .test_span_processor import App

OF_A_VERDICT = 15
"""Attributes that a nudge has, its tags included."""


def _looping(app: App, attributes: dict[str, Any], *, later: int = 0) -> ReadableSpan:
    """The span around a loop that is nudged: with these attributes, and more that are set ``later``."""
    with app.tracer.start_as_current_span("agent", attributes=attributes) as agent:
        for number in range(later):
            agent.set_attribute(f"host.{number}", number)
        for _ in range(3):
            app.call()
    return app.exported("agent")[0]


def _limited(places: int) -> App:
    return App(provider=TracerProvider(span_limits=SpanLimits(max_attributes=places)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["prod", "tenant-7"], ("prod", "tenant-7", "LOOP_DETECTED", "TYPE_I_STUTTER")),
        ('["prod"]', ("prod", "LOOP_DETECTED", "TYPE_I_STUTTER")),
        ("prod, eu", ("prod", "eu", "LOOP_DETECTED", "TYPE_I_STUTTER")),
        (["LOOP_DETECTED"], ("LOOP_DETECTED", "TYPE_I_STUTTER")),
    ],
)
def test_tags_of_the_application_stay_beside_those_of_a_nudge(before: Any, after: tuple[str, ...]) -> None:
    assert _looping(App(), {telemetry.LANGFUSE_TAGS: before}).attributes[telemetry.LANGFUSE_TAGS] == after


@pytest.mark.parametrize("places", [31, 32, 36, 45, 128])
def test_a_verdict_takes_the_free_places_of_a_span_and_no_other(places: int) -> None:
    app = _limited(places)
    host = {"tenant": "acme", **{f"host.{number}": number for number in range(30)}}

    agent = _looping(app, {"tenant": "acme"}, later=30)
    written = [key for key in agent.attributes if key not in host]

    assert host.items() <= dict(agent.attributes).items()
    assert agent.dropped_attributes == 0
    assert len(written) == min(places - 31, OF_A_VERDICT)
    assert app.errors == {}


def test_the_most_important_attributes_come_first() -> None:
    agent = _looping(_limited(34), {"tenant": "acme"}, later=30)

    assert list(agent.attributes)[-3:] == [telemetry.LOOP_DETECTED, telemetry.INTERVENTION, telemetry.LOOP_TYPE]


def test_a_second_verdict_replaces_what_the_guard_has_written() -> None:
    app = _limited(34)
    with app.tracer.start_as_current_span("agent", attributes={f"host.{number}": number for number in range(31)}):
        for at in range(30):
            app.call(f'{{"id": {at}}}', "Cart: 1 item. Please choose a size to continue.", name="click")
    (agent,) = app.exported("agent")

    assert agent.attributes[telemetry.INTERVENTION] == "STOP"
    assert agent.attributes["host.0"] == 0


def test_the_guards_own_span_keeps_the_most_important_ones_as_well() -> None:
    app = _limited(8)
    with app.tracer.start_as_current_span("agent"):
        for _ in range(3):
            app.call()
    (own,) = app.exported(telemetry.SPAN_NAME)

    assert {telemetry.LOOP_DETECTED, telemetry.INTERVENTION, telemetry.LOOP_TYPE} <= own.attributes.keys()


class Foreign:
    """A live span of another SDK, which shows neither attributes nor a limit."""

    def __init__(self) -> None:
        self.written: dict[str, Any] = {}

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self.written.update(attributes)


def test_a_span_of_another_sdk_gets_all() -> None:
    span: Any = Foreign()

    write_to(span, {"a": 1, telemetry.LANGFUSE_TAGS: ["x"]})

    assert span.written == {"a": 1, telemetry.LANGFUSE_TAGS: ["x"]}


def test_a_span_without_places_is_left_alone() -> None:
    span: Span = TracerProvider(span_limits=SpanLimits(max_attributes=0)).get_tracer("app").start_span("agent")

    write_to(span, {"a": 1})
    write_to(INVALID_SPAN, {"a": 1})

    assert isinstance(span, ReadableSpan)
    assert span.dropped_attributes == 0
