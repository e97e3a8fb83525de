"""SDK spans are read by their fields where that is safe, by their properties everywhere else, and both read the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.otel import sdk_spans
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.otel.sdk_spans import PUBLIC, SpanReader, readers, view_of

CALL: Mapping[str, Any] = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "call_1",
    "gen_ai.tool.call.arguments": '{"q": "hours"}', "gen_ai.tool.call.result": "closed on Mondays",
    "gen_ai.conversation.id": "c",
}  # fmt: skip


class Steps(FlagBoard):
    """A board that remembers the steps it is shown."""

    def __init__(self) -> None:
        super().__init__(GuardConfig())
        self.seen: list[StepRecord] = []

    def observe(self, step: StepRecord) -> Any:
        self.seen.append(step)
        return super().observe(step)


class Seen(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self.spans.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


@pytest.fixture
def untested() -> Iterator[None]:
    """Readers are tested anew, before and after."""
    readers.cache_clear()
    yield
    readers.cache_clear()


def guarded() -> tuple[TrajectoryGuardProcessor, Steps]:
    board = Steps()
    return TrajectoryGuardProcessor(board=board, tracer_provider=TracerProvider()), board


def parts_of(reader: SpanReader, span: ReadableSpan) -> Any:
    context, parent, attributes, _ = reader.ended(span)
    return reader.live(span), view_of(span, context, parent, dict(attributes), reader)


def test_spans_of_the_installed_sdk_are_read_by_their_fields_and_read_the_same() -> None:
    seen, provider = Seen(), TracerProvider()
    provider.add_span_processor(seen)
    tracer = provider.get_tracer("scope", "1.2")
    with tracer.start_as_current_span("root", kind=SpanKind.SERVER), tracer.start_as_current_span("inner") as inner:
        inner.set_attributes({"list": ["a", "b"], "n": 1})
        inner.add_event("exception", {"exception.type": "ValueError"})
        inner.set_status(Status(StatusCode.ERROR, "no such user"))
    provider.get_tracer("other").start_span("open").set_status(StatusCode.OK)
    assert len(seen.spans) == 5
    for span in seen.spans:
        assert type(span) in readers()
        assert parts_of(readers()[type(span)], span) == parts_of(PUBLIC, span)


def test_without_a_class_that_can_be_read_by_its_fields_the_guard_sees_the_same(
    untested: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_sdk() -> tuple[ReadableSpan, ...]:
        raise TypeError("an SDK whose spans are made in another way")

    def run() -> list[tuple[Any, ...]]:
        guard, board = guarded()
        provider = TracerProvider()
        provider.add_span_processor(guard)
        tracer = provider.get_tracer("app")
        with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
            for _ in range(3):
                tracer.start_span("execute_tool search", attributes=dict(CALL)).end()
        assert not guard._open
        return [(one.tool_name, one.args, one.result, one.trajectory_id, one.run is None) for one in board.seen]

    directly = run()
    readers.cache_clear()
    monkeypatch.setattr(sdk_spans, "_sample", other_sdk)
    assert readers() == {}
    assert run() == directly
    assert len(directly) == 3


def test_fields_that_hold_something_else_are_not_read(untested: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadableSpan, "name", property(lambda span: f"app: {span._name}"))
    assert readers() == {}


def test_a_class_that_masks_its_attributes_is_read_by_its_properties() -> None:
    class Masked(ReadableSpan):
        @property
        def attributes(self) -> Any:
            return {**CALL, "gen_ai.tool.call.result": "masked"}

    guard, board = guarded()
    guard.on_end(Masked("execute_tool search", SpanContext(1, 2, False), attributes=dict(CALL)))
    assert [one.result for one in board.seen] == ["masked"]


@pytest.mark.parametrize("attributes", [dict(CALL), None, {}])
def test_spans_made_by_hand_are_read(attributes: dict[str, Any] | None) -> None:
    guard, board = guarded()
    context = SpanContext(1, 2, is_remote=False)
    guard.on_end(ReadableSpan("execute_tool search", context, attributes=attributes))
    guard.on_end(ReadableSpan("execute_tool search", None, attributes=attributes))
    assert [one.result for one in board.seen] == (["closed on Mondays"] if attributes else [])
    assert {name for name in board.counts if name.startswith("errors.")} == set()


class Replaces(SpanProcessor):
    """Writes a plain dict into the field of the attributes, as some that redact do."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        span._attributes = {**span._attributes, "gen_ai.agent.name": "replaced"}

    def on_end(self, span: Any) -> None:
        span._attributes = {**span._attributes, "gen_ai.tool.call.result": "masked"}


def test_spans_whose_attributes_another_processor_replaced_are_read() -> None:
    guard, board = guarded()
    provider = TracerProvider()
    tracer = provider.get_tracer("app")
    provider.add_span_processor(Replaces())
    provider.add_span_processor(guard)
    live = sdk_spans.sdk._Span  # spans end with their attributes in the SDK's own type
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "end", lambda span, end_time=None: span._span_processor.on_end(span._readable_span()))
        agent = tracer.start_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"})
        tracer.start_span("execute_tool search", trace.set_span_in_context(agent), attributes=dict(CALL)).end()
    assert [(one.result, one.agent_id, one.run is None) for one in board.seen] == [("masked", "replaced", False)]
    assert {name for name in board.counts if name.startswith("errors.")} == set()


def test_a_live_span_is_looked_at_again_only_when_it_changed() -> None:
    guard, board = guarded()
    provider = TracerProvider()
    provider.add_span_processor(guard)
    tracer = provider.get_tracer("app")
    call = {key: value for key, value in CALL.items() if key != "gen_ai.conversation.id"}
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}) as agent:
        agent.set_attribute("gen_ai.agent.name", "first")
        for name in ("first", "first", "second"):
            agent.set_attribute("gen_ai.agent.name", name)
            before = guard._above.get(agent.get_span_context().span_id)
            tracer.start_span("execute_tool search", attributes=call).end()
            after = guard._above[agent.get_span_context().span_id]
            assert (before is after) == (name == "first" and len(board.seen) > 1)
    assert [one.agent_id for one in board.seen] == ["first", "first", "second"]
    assert guard._above == {}
    assert trace.INVALID_SPAN_ID not in guard._open
