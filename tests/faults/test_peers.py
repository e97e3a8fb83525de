"""Same verdicts as in process through real gRPC and HTTP, between peers that are not ours: OTel's SDK, and rotel."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.collector.in_process import evaluate_in_process
from tests.collector.kit import HOURS, capture_request, run_requests, singles, split, views
from tests.faults.expected import assert_ends, finding_in, finding_of, last_of
from tests.faults.processes import Collector, Rotel, arrived, only_full, started
from tests.faults.senders import GrpcSender, HttpSender, Sender, ids
from tests.helpers import DATA, capture, capture_names, eventually, lines
from trajectory_guard import telemetry
from trajectory_guard.core.engine import Verdict
from trajectory_guard.spans.identity import all_conversation_ids

RUNS = 24
STEPS = 10
PATIENT = {"evaluate_s": 60.0}
"""On a busy machine too, a request waits for the evaluation of its steps, so that their spans are tagged."""


class Recorded(NamedTuple):
    """Captures and runs without an id in common: a request a span in order, and the verdicts in process."""

    requests: list[list[bytes]]
    verdicts: dict[str, Verdict]


LATE = ("openai-agents-openinference__circle", "openlit-smolagents__main")
"""Only a span that ends later shows which agent was at work: verdicts come as guard spans, not as tags."""


@cache
def recorded() -> Recorded:
    requests, verdicts = [], {}
    taken: set[str] = set()
    for name in (one for one in capture_names() if one not in LATE):
        found = evaluate_in_process(capture(name))
        names = {verdict.trajectory_id for verdict in found.values()} | {view.trace_id for view in capture(name)}
        names.update(one for view in capture(name) for one in all_conversation_ids(view.attributes))
        if found and not names & taken:
            taken |= names
            requests.append(singles(capture_request(name)))
            verdicts.update(found)
    for run in list(lines(DATA / "trajectories_sample.jsonl.gz"))[:: 212 // RUNS]:
        requests.append(run_requests(run))
        verdicts.update(evaluate_in_process([view for data in requests[-1] for view in views(data)]))
    return Recorded(requests, verdicts)


def test_there_is_something_to_be_found() -> None:
    requests, verdicts = recorded()
    assert len(requests) > 60
    assert len(last_of(verdicts)) > 60
    assert sum(bool(verdict.detections) for verdict in verdicts.values()) > 40
    assert {verdict.level.value for verdict in verdicts.values()} == {"OBSERVE", "NUDGE", "STOP"}


def interleaved(requests: Sequence[Sequence[bytes]], seed: int) -> list[bytes]:
    """One after the other from a random sequence; each sequence stays in order."""
    turns = [at for at, one in enumerate(requests) for _ in one]
    random.Random(seed).shuffle(turns)
    left = [iter(one) for one in requests]
    return [next(left[at]) for at in turns]


DELIVERIES = (
    "in order", "interleaved, in batches", "interleaved, every span twice", "shuffled, in batches",
    "backwards, and again shuffled",
)  # fmt: skip


def deliveries() -> dict[str, tuple[list[bytes], bool]]:
    """Requests, and whether each step is in order so that its first evaluation stands."""
    sequences = recorded().requests
    in_order = [data for requests in sequences for data in requests]
    shuffled = in_order[:]
    random.Random(1).shuffle(shuffled)
    mixed = interleaved(sequences, 2)
    sizes = random.Random(3)
    return {
        "in order": (in_order, True),
        "interleaved, in batches": (split(mixed, [sizes.randint(1, 40) for _ in mixed]), True),
        "interleaved, every span twice": (
            split([one for data in mixed for one in (data, data)], [7] * len(mixed)),
            True,
        ),
        "shuffled, in batches": (split(shuffled, [sizes.randint(1, 40) for _ in mixed]), False),
        "backwards, and again shuffled": (split(in_order[::-1] + shuffled, [5] * len(mixed)), False),
    }


async def send(collector: Collector, requests: Sequence[bytes], *, at_a_time: int) -> None:
    """Over one transport after the other."""
    senders: list[Sender] = [
        GrpcSender(collector.grpc_port), HttpSender(collector.url()), HttpSender(collector.url(), compressed=True),
        GrpcSender(collector.grpc_port, compression=grpc.Compression.Gzip),
    ]  # fmt: skip
    for start in range(0, len(requests), at_a_time):
        some = requests[start : start + at_a_time]
        await asyncio.gather(*(senders[at % len(senders)].send(data) for at, data in enumerate(some, start)))
    for sender in senders:
        await sender.close()


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.nightly if ", in batches" in how else ()) for how in DELIVERIES]
)
async def test_verdicts_are_those_in_process_however_spans_arrive(tmp_path: Path, how: str) -> None:
    requests, ordered = deliveries()[how]
    verdicts = recorded().verdicts
    async with (
        started(Rotel(tmp_path)) as rotel,
        started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}}, trajectories=PATIENT)) as collector,
    ):
        await send(collector, requests, at_a_time=1 if ordered else 20)
        wanted = {one for data in requests for one in ids(data)}
        await arrived(rotel, wanted)

        ends = last_of(verdicts)
        await assert_ends(collector, ends)
        for name, verdict in ends.items():
            flag = collector.flag(name)
            assert (flag["steps"], round(flag["score"], 6)) == (verdict.step_index + 1, round(verdict.score, 6))
        if ordered:
            found = [(one, finding_in(tags)) for one, tags in rotel.tags() if one in verdicts]
            assert dict(found) == {one: finding_of(verdict) for one, verdict in verdicts.items()}
            assert len(set(found)) == len(verdicts), "a span was tagged twice, and differently"
        assert collector.errors() == 0


# --- OpenTelemetry's SDK as the sender -----------------------------------------------------------------------


def exporters_of(collector: Collector) -> dict[str, Any]:
    return {
        "grpc": GrpcExporter(endpoint=collector.grpc_target, insecure=True),
        "grpc gzip": GrpcExporter(
            endpoint=collector.grpc_target, insecure=True, compression=grpc.Compression.Gzip
        ),
        "http": HttpExporter(endpoint=collector.url()),
        "http gzip": HttpExporter(endpoint=collector.url(), compression=Compression.Gzip),
    }  # fmt: skip


def run_agent(exporter: Any, name: str) -> tuple[set[str], dict[int, str]]:
    """An agent that loops: ids of its spans, and of its steps by index."""
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=10, max_export_batch_size=3))
    tracer, every, steps = provider.get_tracer("agent"), set(), {}
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}) as root:
        every.add(f"{root.get_span_context().span_id:016x}")
        for at in range(STEPS):
            attributes = {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.conversation.id": name,
                "gen_ai.tool.call.id": f"{name}-{at}", "gen_ai.tool.call.arguments": '{"q": "same"}',
                "gen_ai.tool.call.result": HOURS,
            }  # fmt: skip
            with tracer.start_as_current_span("execute_tool search", attributes=attributes) as one:
                steps[at] = f"{one.get_span_context().span_id:016x}"
    assert trace.get_current_span() is trace.INVALID_SPAN
    provider.shutdown()
    return every | set(steps.values()), steps


@pytest.mark.smoke
async def test_the_sdk_upstream_rotel_downstream(tmp_path: Path) -> None:
    async with (
        started(Rotel(tmp_path)) as by_grpc,
        started(Rotel(tmp_path)) as by_http,
        started(
            Collector(
                tmp_path,
                {"otlp": {"endpoint": by_grpc.grpc_url}, "otlphttp": {"endpoint": by_http.http_url}},
                trajectories=PATIENT,
            )
        ) as collector,
    ):
        for name, exporter in exporters_of(collector).items():
            wanted, steps = await asyncio.to_thread(run_agent, exporter, name)
            for rotel in (by_grpc, by_http):
                await arrived(rotel, wanted)
                assert {rotel.ids()[one] for one in wanted} == {1}
                tags = dict(rotel.tags())
                levels = [(finding_in(tags[steps[at]]) or ("-",))[0] for at in range(STEPS)]
                assert levels == ["-", "OBSERVE", "NUDGE", "NUDGE", *["STOP"] * (STEPS - 4)], name
            flag = collector.flag(name)
            assert (flag["steps"], flag["level"]) == (STEPS, "OBSERVE")  # its root span has ended: the run is over


@pytest.mark.parametrize("protocol", ["grpc", pytest.param("http", marks=only_full)])
async def test_rotel_upstream_and_downstream(tmp_path: Path, protocol: str) -> None:
    """rotel joins what it is sent to batches of its own, and sends some at once: these may arrive in any order."""
    verdicts = recorded().verdicts
    requests = split([data for one in recorded().requests for data in one], [50] * 1_000)
    async with (
        started(Rotel(tmp_path)) as last,
        started(Collector(tmp_path, {"otlp": {"endpoint": last.grpc_url}}, trajectories=PATIENT)) as collector,
        started(
            Rotel(
                tmp_path, "--otlp-exporter-protocol", protocol, "--otlp-exporter-retry-initial-backoff", "100ms",
                to=f"http://{collector.grpc_target}" if protocol == "grpc" else collector.url("").rstrip("/"),
            )
        ) as first,
    ):  # fmt: skip
        sender = GrpcSender(first.grpc_port)
        for data in requests:
            await sender.send(data)
        await sender.close()
        await arrived(last, {one for data in requests for one in ids(data)})
        await assert_ends(collector, last_of(verdicts))
        flagged = {one for one, verdict in verdicts.items() if verdict.level.value != "OBSERVE"}

        def unreported() -> list[str]:
            """Flagged spans without a tag, and without a guard span that a held-back step has in its place."""
            tags, guard_spans = dict(last.tags()), {flag_in(one) for one in last.guard_spans()}
            return [one for one in flagged if not finding_in(tags[one]) and flag_of(verdicts[one]) not in guard_spans]

        await asyncio.to_thread(eventually, lambda: not unreported())
        assert unreported() == []
        assert collector.errors() == 0


def flag_of(verdict: Verdict) -> tuple[str, int, str]:
    return verdict.trajectory_id, verdict.episode, verdict.level.value


def flag_in(guard_span: Mapping[str, str]) -> tuple[str, int, str]:
    """The same of the guard span that carries a verdict."""
    return (
        guard_span[telemetry.TRAJECTORY_ID], int(guard_span[telemetry.EPISODE]), guard_span[telemetry.INTERVENTION]
    )  # fmt: skip


def test_requests_are_not_changed_by_taking_them_apart() -> None:
    """The reference is worth something only if the same spans are sent."""
    for requests in recorded().requests:
        assert all(len(ids(data)) == 1 and ExportTraceServiceRequest.FromString(data) for data in requests)
