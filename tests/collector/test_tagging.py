"""Verdicts appear on the span that caused them, on its parent, and on spans of the guard's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector.kit import (
    all_spans,
    attributes,
    by_name,
    capture_request,
    loop,
    new_scorer,
    request,
    singles,
    span,
    span_id,
    tool,
)
from tests.helpers import evaluate, record
from trajectory_guard import telemetry
from trajectory_guard.core.explain.certificates import Certificate, fingerprint
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply
from trajectory_guard_collector.scoring.item_codec import (
    dialects_by_name,
    item_of,
    plain_item,
    plain_verdict,
    verdict_of,
)
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.parser import attributes_of
from trajectory_guard_collector.scoring.scorer import tagged

UNKNOWN_FIELD = bytes([0xFA, 0x3F, 3]) + b"new"
TAGS = telemetry.LANGFUSE_TAGS


def guard_spans(data: bytes) -> list[Span]:
    message = ExportTraceServiceRequest.FromString(data)
    scopes = (scoped for group in message.resource_spans for scoped in group.scope_spans)
    return [one for scoped in scopes if scoped.scope.name == telemetry.SCOPE for one in scoped.spans]


def evaluate_loop(count: int = 4) -> list[bytes]:
    scorer = new_scorer()
    return [scorer.score(request(one)).data for one in loop(count)]


def test_the_span_that_causes_a_verdict_carries_it() -> None:
    found = [by_name(data)[span_id(f"s{at}")] for at, data in enumerate(evaluate_loop(5))]
    first, second, third, fourth, fifth = found
    assert telemetry.INTERVENTION not in first
    assert second[telemetry.INTERVENTION] == "OBSERVE"
    assert second[telemetry.LOOP_DETECTED] is False
    assert TAGS not in second  # tags cannot be taken back: never on a weak signal
    assert third[telemetry.INTERVENTION] == "NUDGE"
    assert third[telemetry.LOOP_DETECTED] is True
    assert third[telemetry.LOOP_TYPE] == ["TYPE_I_STUTTER"]
    assert third[telemetry.LOOP_FIRST_STEP] == span_id("s0").hex()
    assert third[telemetry.TRAJECTORY_ID] == "c"
    assert (third[telemetry.LOOP_RULE], third[telemetry.RUN_ID]) == ("same_call_same_result", "")
    assert third[TAGS] == ["LOOP_DETECTED", "TYPE_I_STUTTER"]
    assert fourth[telemetry.INTERVENTION] == "NUDGE"
    assert fifth[telemetry.INTERVENTION] == "STOP"
    assert fifth[telemetry.STEP_INDEX] == 4


def test_guard_spans_stand_at_loop_start_nudge_and_stop() -> None:
    found = [guard_spans(data) for data in evaluate_loop(6)]
    assert [len(spans) for spans in found] == [0, 1, 1, 0, 1, 0]
    names = [spans[0].name for spans in found if spans]
    assert names == [telemetry.LOOP_SPAN_NAME, telemetry.SPAN_NAME, telemetry.SPAN_NAME]
    stop = found[4][0]
    assert attributes(stop)[telemetry.INTERVENTION] == "STOP"
    assert attributes(stop)["gen_ai.tool.name"] == "search"
    assert stop.links[0].span_id == span_id("s4")
    assert stop.parent_span_id == span_id("s4")  # the step is a root itself


def test_guard_spans_of_nudge_and_stop_carry_a_certificate_that_verifies_and_no_other_span_does() -> None:
    found = evaluate_loop(6)
    spans = [attributes(one) for data in found for one in guard_spans(data)]
    assert [telemetry.CERTIFICATE in one for one in spans] == [False, True, True]
    for one in spans[1:]:
        certificate = Certificate.from_json(one[telemetry.CERTIFICATE])
        assert certificate.verify().status == "replayed"
        assert (certificate.rule, certificate.facts["level"]) == (one[telemetry.LOOP_RULE], one[telemetry.INTERVENTION])
        assert certificate.facts["trajectory"] == fingerprint(one[telemetry.TRAJECTORY_ID])
    others = [values for data in found for key, values in by_name(data).items() if telemetry.SPAN_NAME not in str(key)]
    assert sum(telemetry.CERTIFICATE in one for one in others) <= 2  # the guard's own, of nudge and stop


def test_a_saved_verdict_keeps_its_certificate() -> None:
    steps = [record("search", {"q": 1}, "Closed on Mondays, open from nine to five.") for _ in range(4)]
    verdict = next(one for one in evaluate(steps) if one is not None and one.certificate is not None)
    restored = verdict_of(json.loads(json.dumps(plain_verdict(verdict))))
    assert restored.certificate is not None
    assert verdict.certificate is not None
    assert restored.certificate.to_json() == verdict.certificate.to_json()
    old = {key: value for key, value in plain_verdict(verdict).items() if key != "certificate"}
    assert verdict_of(old).certificate is None  # saved by a version without certificates


def test_a_guard_span_stands_beside_the_step_with_the_resource_of_its_application() -> None:
    scorer = new_scorer()
    for one in loop(2, parent="agent"):
        scorer.score(request(one))
    message = ExportTraceServiceRequest.FromString(
        scorer.score(request(loop(3, parent="agent")[2], service="shop")).data
    )
    group = message.resource_spans[0]
    assert group.resource.attributes[0].value.string_value == "shop"
    assert group.scope_spans[-1].scope.name == telemetry.SCOPE
    assert group.scope_spans[-1].spans[0].parent_span_id == span_id("agent")


def in_context(spans: list[Span], state: str = "ot=th:8;rv:1,vendor=x") -> list[Span]:
    """Spans with this trace state that are sampled, with a random trace id, below a remote parent."""
    for one in spans:
        one.trace_state, one.flags = state, 0x303
    return spans


@pytest.mark.parametrize("parent", ["", "agent"])
@pytest.mark.parametrize("late", [False, True])
def test_a_guard_span_has_the_trace_state_and_the_flags_of_its_step(parent: str, late: bool) -> None:
    scorer, spans = new_scorer(), in_context(loop(3, parent=parent))
    arrive = [spans[0], spans[2], spans[1]] if late else spans
    found = [all_spans(scorer.score(request(one)).data) for one in arrive][-1]
    assert len(found) == 2
    for one in found:
        assert (one.trace_state, one.flags) == ("ot=th:8;rv:1,vendor=x", 0x303)
    (link,) = found[-1].links
    assert (link.trace_state, link.flags) == ("ot=th:8;rv:1,vendor=x", 0x103)  # the linked span is a local one


def test_a_step_that_was_saved_keeps_both() -> None:
    scorer, (one,) = new_scorer(), in_context(loop(1))
    scorer.score(request(one))
    (item,) = [item for trajectory in scorer.registry for item in trajectory.items if isinstance(item, StepItem)]
    restored = item_of(json.loads(json.dumps(plain_item(item))), dialects_by_name(DIALECTS))
    assert isinstance(restored, StepItem)
    assert (restored.trace_state, restored.flags) == (one.trace_state, one.flags)
    old = {key: value for key, value in plain_item(item).items() if key != "context"}
    assert isinstance(item_of(old, dialects_by_name(DIALECTS)), StepItem)  # of an earlier version


def test_a_trace_state_longer_than_the_recommendation_asks_for_is_not_kept() -> None:
    scorer, spans = new_scorer(), in_context(loop(3), "vendor=" + "x" * 600)
    step, guard = [all_spans(scorer.score(request(one)).data) for one in spans][-1]
    assert (len(step.trace_state), guard.trace_state, guard.flags) == (607, "", 0x303)


def test_the_parent_is_reported_when_it_arrives() -> None:
    scorer = new_scorer()
    for one in loop(3, parent="agent"):
        scorer.score(request(one))
    agent = span("agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "bob"}, dur=9.0)
    reported = by_name(scorer.score(request(agent)).data)[span_id("agent")]
    assert reported[telemetry.INTERVENTION] == "NUDGE"
    assert reported["gen_ai.agent.name"] == "bob"


def test_a_parent_that_says_nothing_of_agents_is_reported_too() -> None:
    scorer = new_scorer()
    for one in loop(3, parent="work"):
        scorer.score(request(one))
    data = request(span("work", {"http.route": "/chat"}, dur=9.0), tool("x", {"q": "else"}, "other", conversation="d"))
    assert by_name(scorer.score(data).data)[span_id("work")][telemetry.LOOP_DETECTED] is True


def test_duplicate_delivery_changes_nothing() -> None:
    scorer = new_scorer()
    spans = [span("agent", {"gen_ai.agent.name": "bob"}, dur=9.0), *loop(4, parent="agent")]
    requests = [request(one) for one in reversed(spans)]
    for data in requests:
        scorer.score(data)
    steps = sum(trajectory.steps for trajectory in scorer.registry)
    scorer.score(b"".join(requests))
    third = [scorer.score(data).data for data in requests]
    once_more = [scorer.score(data).data for data in requests]
    assert third == once_more
    assert sum(trajectory.steps for trajectory in scorer.registry) == steps == 4


def test_in_order_a_second_delivery_is_tagged_like_the_first() -> None:
    scorer = new_scorer()
    requests = [request(one) for one in loop(5)]
    assert [scorer.score(data).data for data in requests] == [scorer.score(data).data for data in requests]


def test_a_step_that_makes_an_earlier_one_a_loop_is_reported_by_a_guard_span() -> None:
    scorer = new_scorer()
    spans = loop(3)
    scorer.score(request(spans[0]))
    scorer.score(request(spans[2]))
    data = scorer.score(request(spans[1], service="late")).data
    reported = {one.links[0].span_id: attributes(one)[telemetry.INTERVENTION] for one in guard_spans(data)}
    assert reported == {span_id("s2"): "NUDGE"}


@pytest.mark.parametrize("empty", ["resource", "scope", "both", "neither", "absent"])
def test_a_resource_and_a_scope_that_are_empty_stay_and_absent_ones_stay_absent(empty: str) -> None:
    message = ExportTraceServiceRequest.FromString(request(*loop(3)))
    group = message.resource_spans[0]
    for name, holder in (("resource", group), ("scope", group.scope_spans[0])):
        if empty in (name, "both", "absent"):
            holder.ClearField(name)
        if empty in (name, "both"):
            getattr(holder, name).SetInParent()
    tagged_message = ExportTraceServiceRequest.FromString(new_scorer().score(message.SerializeToString()).data)
    written = tagged_message.resource_spans[0]
    assert attributes(written.scope_spans[0].spans[2])[telemetry.LOOP_DETECTED] is True
    assert (written.HasField("resource"), written.resource) == (group.HasField("resource"), group.resource)
    scopes = written.scope_spans[0], group.scope_spans[0]
    assert [one.HasField("scope") for one in scopes] == [empty != "absent"] * 2
    assert scopes[0].scope == scopes[1].scope


RESOURCE = {
    "service.namespace": "eu", "deployment.environment.name": "prod", "service.instance.id": "7f", "host.cpus": 8,
    "process.command_args": ["python", "-m", "shop"], "ratio": 0.5, "spot": True, "none": 0,
}  # fmt: skip


def resources_of_guard_spans(data: bytes) -> list[dict[str, Any]]:
    return [
        attributes_of(group.resource.attributes)
        for group in ExportTraceServiceRequest.FromString(data).resource_spans
        if any(scoped.scope.name == telemetry.SCOPE for scoped in group.scope_spans)
    ]


def test_a_guard_span_that_comes_late_has_the_resource_of_its_application() -> None:
    scorer, spans = new_scorer(), loop(3)
    for one in (spans[0], spans[2]):
        scorer.score(request(one, resource=RESOURCE))
    tenant = {name: RESOURCE[name] for name in ("service.namespace", "deployment.environment.name")}
    data = scorer.score(request(spans[1], service="late", resource=tenant)).data
    assert resources_of_guard_spans(data) == [{"service.name": "app", **RESOURCE}]


def test_guard_spans_of_one_application_that_come_late_share_its_resource() -> None:
    scorer = new_scorer()
    steps = [loop(3, prefix=name, conversation=name, trace=name) for name in "abc"]
    late = b""
    for name, of in (("eu", steps[:2]), ("us", steps[2:])):
        first, last = [one[0] for one in of], [one[2] for one in of]
        scorer.score(request(*first, *last, resource={"service.namespace": name}))
        late += request(*(one[1] for one in of), service="late", resource={"service.namespace": name})
    data = scorer.score(late).data
    found = [one["service.namespace"] for one in resources_of_guard_spans(data)]
    assert (found, len(guard_spans(data))) == (["eu", "us"], 3)


@pytest.mark.parametrize(
    "large",
    [
        {f"label.{at}": "x" * 50 for at in range(1_000)},
        {f"l{at}": at for at in range(1_000)},
        {"label": "x" * 1_000_000},
        {"label": ["x" * 100] * 10_000},
    ],
    ids=["many", "tiny", "long", "a list"],
)
def test_a_large_resource_is_kept_in_part_with_what_dashboards_filter_by(large: dict[str, Any]) -> None:
    spans, named = loop(3), {"team": "a", "service.namespace": "eu", "deployment.environment": "p"}
    scorer = new_scorer(separate_by=("team",))
    for one in (spans[0], spans[2]):
        scorer.score(request(one, resource={**large, **named}))
    [found] = resources_of_guard_spans(scorer.score(request(spans[1], resource={"team": "a"}, service="late")).data)
    assert {**found, **named, "service.name": "app"} == found
    assert len(found) <= 64
    assert len(json.dumps(found)) < 6_000


def test_steps_of_one_application_share_what_is_kept_of_its_resource() -> None:
    scorer = new_scorer()
    for one in loop(3):
        scorer.score(request(one, resource=RESOURCE))
    trajectory = scorer.registry.find("c")
    assert trajectory is not None
    items = [item for item in trajectory.items if isinstance(item, StepItem)]
    again = [item_of(plain_item(item), dialects_by_name(DIALECTS)) for item in items]
    for some in (items, again):
        assert len({id(item.origin.attributes) for item in some if isinstance(item, StepItem)}) == 1
        assert isinstance(some[0], StepItem)
        assert some[0].origin.attributes == {"service.name": "app", **RESOURCE}


def test_reports_of_an_in_process_guard_are_forwarded_and_no_steps() -> None:
    scorer = new_scorer()
    reported = span("g", {"gen_ai.tool.name": "search", telemetry.INTERVENTION: "NUDGE"}, span_name=telemetry.SPAN_NAME)
    data = request(reported, scope=telemetry.SCOPE)
    assert scorer.score(data).data is data
    assert len(scorer.registry) == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["mine"], ["mine", "LOOP_DETECTED", "X"]),
        ('["mine", "yours"]', ["mine", "yours", "LOOP_DETECTED", "X"]),
        ("mine, yours", ["mine", "yours", "LOOP_DETECTED", "X"]),
        ("mine", ["mine", "LOOP_DETECTED", "X"]),
        (["LOOP_DETECTED"], ["LOOP_DETECTED", "X"]),
        ("", ["LOOP_DETECTED", "X"]),
        (7, ["LOOP_DETECTED", "X"]),
    ],
)
def test_tags_of_the_application_are_kept(before: object, after: list[str]) -> None:
    reported = Span.FromString(tagged(span("s", {TAGS: before, "k": "v"}), {TAGS: ["LOOP_DETECTED", "X"]}))
    assert attributes(reported) == {"k": "v", TAGS: after}


def test_unknown_fields_of_a_tagged_span_survive() -> None:
    original = Span.FromString(span("s", {"k": "v"}).SerializeToString() + UNKNOWN_FIELD)
    original.events.add(name="event")
    original.trace_state = "a=b"
    reported = tagged(original, {telemetry.HEALTH: 0.5})
    assert UNKNOWN_FIELD in reported
    again = Span.FromString(reported)
    assert (again.events[0].name, again.trace_state) == ("event", "a=b")


def test_all_spans_of_a_tagged_request_are_still_there() -> None:
    scorer = new_scorer()
    others = [span(f"o{at}", {"http.route": "/"}) for at in range(20)]
    data = request(*others[:10], *loop(4), *others[10:])
    before = {one.span_id for one in all_spans(data)}
    after = [one.span_id for one in all_spans(scorer.score(data).data)]
    assert before <= set(after)
    assert len(after) == len(set(after)) == scorer.score(data).spans


@pytest.mark.parametrize(
    "answer", ['{"status": "running"}', "queued", "Still processing", '{"state": "PENDING"}', "deploying: 2 of 5"]
)
def test_a_poll_says_that_its_nudge_is_about_waiting(answer: str) -> None:
    scorer = new_scorer()
    polls = [tool(f"p{at}", {"id": 7}, answer, tool_name="get_job", at=5.0 * at) for at in range(60)]
    found = [attributes(one) for poll in polls for one in all_spans(scorer.score(request(poll)).data)]
    tagged = [one for one in found if one.get(telemetry.INTERVENTION) == "NUDGE"]
    assert tagged
    assert {one[telemetry.LOOP_CERTAINTY] for one in tagged} == {"waiting"}
    assert {one[telemetry.LOOP_DETECTED] for one in tagged} == {True}
    assert "STOP" not in {one.get(telemetry.INTERVENTION) for one in found}
    trajectory = scorer.registry.find("c")
    assert trajectory is not None
    answered = flag_reply("c", FlagState.of(trajectory), None, None, mode="enforce", max_score=5.0)
    assert (answered["level"], answered["certainty"]) == ("NUDGE", "waiting")
    series = [sample for one in scorer.metrics.registry.collect() for sample in one.samples]
    labelled = {
        sample.labels["trajectory_guard_loop_certainty"]
        for sample in series
        if "trajectory_guard_loop_certainty" in sample.labels and sample.value
    }
    assert labelled == {"waiting"}


@pytest.mark.parametrize("instrumentation", ["openinference", "traceloop", "logfire", "otelv2"])
@pytest.mark.parametrize("together", [False, True], ids=["a request a span", "one request"])
def test_agents_that_are_named_after_they_handed_over_are_reported_once(instrumentation: str, together: bool) -> None:
    """The spans of the agents end after those of their hand-offs, which may have been sent on by then.

    Only OpenInference does not name them on the hand-off itself: its spans are tagged if they come together.
    """
    requests = singles(capture_request(f"openai-agents-{instrumentation}__circle"))
    scorer = new_scorer()
    found = [scorer.score(data).data for data in ([b"".join(requests)] if together else requests)]
    levels = [attributes(one)[telemetry.INTERVENTION] for data in found for one in guard_spans(data)]
    assert levels == ["OBSERVE", "NUDGE"]
    marked = [one for data in found for one in by_name(data).values() if telemetry.INTERVENTION in one]
    assert len(marked) - len(levels) == (7 if together or instrumentation != "openinference" else 0)
