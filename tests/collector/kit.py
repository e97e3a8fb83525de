"""Requests as applications send them, and the verdicts of a scorer on them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.helpers import _capture_text
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.gateway.receivers.decoding import from_json
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.parser import RequestParser, any_value
from trajectory_guard_collector.scoring.scorer import RequestScorer, key_values
from trajectory_guard_collector.telemetry.metrics import Metrics

HOURS = "We are closed on Mondays and open from Tuesday to Sunday."
"""A result that shows something: coming back unchanged, it is certain evidence of a loop."""
START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def span_id(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def trace_id(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def span(
    name: str, attributes: Mapping[str, Any], *, trace: str = "trace", parent: str = "", at: float = 0.0, dur: float = 0.5,
    span_name: str = "span",
) -> Span:  # fmt: skip
    """A finished span; ids follow from names, times are seconds after a fixed start."""
    start = START_NS + round(at * SECOND_NS)
    return Span(
        trace_id=trace_id(trace),
        span_id=span_id(name),
        parent_span_id=span_id(parent) if parent else b"",
        name=span_name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=start + round(dur * SECOND_NS),
        attributes=key_values(attributes),
    )


def tool(
    name: str, args: Any = None, result: str | None = HOURS, *, tool_name: str = "search", conversation: str | None = "c",
    extra: Mapping[str, Any] | None = None, **fields: Any,
) -> Span:  # fmt: skip
    """A tool span by the semantic conventions."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool_name,
        "gen_ai.tool.call.id": f"call-{name}",
        "gen_ai.tool.call.arguments": json.dumps(args if args is not None else {"q": 1}),
        **({"gen_ai.tool.call.result": result} if result is not None else {}),
        **({"gen_ai.conversation.id": conversation} if conversation is not None else {}),
        **(extra or {}),
    }
    return span(name, attributes, span_name=f"execute_tool {tool_name}", **fields)


def request(*spans: Span, service: str = "app", resource: Mapping[str, Any] | None = None, scope: str = "lib") -> bytes:
    """A serialized export request of one resource and scope."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add(
        resource=Resource(attributes=key_values({"service.name": service, **(resource or {})}))
    )
    group.scope_spans.add(scope=InstrumentationScope(name=scope), spans=spans)
    return message.SerializeToString()


def loop(count: int, *, prefix: str = "s", start: float = 0.0, **fields: Any) -> list[Span]:
    """The same call again and again."""
    return [tool(f"{prefix}{at}", at=start + at, **fields) for at in range(count)]


def loop_within_a_node(turns: int, node: str = "agent:1") -> list[Span]:
    """A node of a LangGraph graph that asks a model and calls a tool in turns: all of them in one super-step."""
    place = {"metadata": json.dumps({"langgraph_step": 1, "langgraph_checkpoint_ns": node})}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 100, **place}
    found = []
    for turn in range(turns):
        found.append(span(f"{node} chat{turn}", asked, parent="graph", at=2.0 * turn))
        found.append(tool(f"{node} call{turn}", conversation=None, extra=place, parent="graph", at=2.0 * turn + 1.0))
    return found


def all_spans(data: bytes) -> list[Span]:
    message = ExportTraceServiceRequest.FromString(data)
    return [one for group in message.resource_spans for scoped in group.scope_spans for one in scoped.spans]


def attributes(one: Span) -> dict[str, Any]:
    return {item.key: any_value(item.value) for item in one.attributes}


def by_name(data: bytes) -> dict[bytes, dict[str, Any]]:
    """Attributes by span id."""
    return {one.span_id: attributes(one) for one in all_spans(data)}


def singles(data: bytes) -> list[bytes]:
    """A request taken apart, a span each, in the order in which the spans ended."""
    found: list[tuple[int, bytes]] = []
    for group in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scoped in group.scope_spans:
            for one in scoped.spans:
                message = ExportTraceServiceRequest()
                part = message.resource_spans.add(resource=group.resource, schema_url=group.schema_url)
                part.scope_spans.add(scope=scoped.scope, spans=[one], schema_url=scoped.schema_url)
                found.append((one.end_time_unix_nano, message.SerializeToString()))
    return [data for _, data in sorted(found, key=lambda pair: pair[0])]


@cache
def capture_request(name: str) -> bytes:
    """A recorded capture in protobuf's encoding."""
    return from_json(Signal.TRACES, _capture_text(name))


def views(data: bytes) -> list[SpanView]:
    """The agent spans of a request as the dialects see them."""
    return [seen.view for seen in RequestParser(DIALECTS).read(data).agent_spans]


def run_requests(run: Mapping[str, Any]) -> list[bytes]:
    """A recorded run as the spans its application would have sent, one a request, in order; its root ends last."""
    requests, root = [], f"{run['id']}/root"
    for at, step in enumerate(run["steps"]):
        result = step.get("result")
        extra = {"gen_ai.agent.name": step["agent"]} if step.get("agent") else {}
        one = tool(
            f"{run['id']}/{at}", step.get("args"), result if isinstance(result, str) or result is None else json.dumps(result),
            tool_name=step["tool"], conversation=run["id"], extra=extra, trace=run["id"], at=at, parent=root,
        )  # fmt: skip
        if step["outcome"] == "error":
            one.status.code = 2  # type: ignore[assignment]
        requests.append(request(one))
    asked = {"http.route": "/chat", "session.id": run["id"]}
    return [*requests, request(span(root, asked, trace=run["id"], dur=len(requests), span_name="POST /chat"))]


def new_scorer(
    config: GuardConfig | None = None, clock: Any = None, *, learns_limits: bool = False, **limits: Any
) -> RequestScorer:
    more = {"learns_limits": learns_limits, **({"clock": clock} if clock is not None else {})}
    return RequestScorer(config or GuardConfig(), Trajectories(**limits), Metrics(), **more)


def verdicts(scorer: RequestScorer) -> dict[str, Verdict]:
    """Verdicts by span id of all steps that can still be put in order."""
    return {
        item.view.span_id: item.verdict
        for trajectory in scorer.registry
        for item in trajectory.items
        if isinstance(item, StepItem) and item.verdict is not None
    }


def score_all(requests: Iterable[bytes], config: GuardConfig | None = None) -> dict[str, Verdict]:
    """Verdicts of a new scorer after all requests."""
    scorer = new_scorer(config)
    for data in requests:
        scorer.score(data)
    scorer.finish()
    return verdicts(scorer)


def comparable(found: Mapping[str, Verdict]) -> dict[str, tuple[Any, ...]]:
    """Verdicts without what may differ in the last digit, and without cost: a price may be known at one time only."""
    return {
        key: (
            verdict.trajectory_id, verdict.step_index, round(verdict.score, 9), verdict.level, tuple(verdict.types),
            verdict.episode, verdict.first_step, verdict.reason, verdict.nudge, verdict.nudges,
            verdict.spent._replace(cost_usd=0.0),
            verdict.rule, verdict.run, verdict.certainty, verdict.evidence, verdict.ordinal, verdict.stop_due,
        )
        for key, verdict in found.items()
    }  # fmt: skip


def split(requests: Sequence[bytes], sizes: Iterable[int]) -> list[bytes]:
    """Requests merged into batches of these sizes; concatenated requests are one request."""
    merged, at = [], 0
    for size in sizes:
        if at < len(requests):
            merged.append(b"".join(requests[at : at + size]))
            at += size
    return [*merged, *([b"".join(requests[at:])] if at < len(requests) else [])]


@asynccontextmanager
async def always_replying(reply: Mapping[str, Any]) -> AsyncIterator[str]:
    """URL of a server that answers every request with this JSON."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(reply).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
