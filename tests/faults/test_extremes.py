"""Trajectories as no agent should have them: endless, countless, and with clocks that jump."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tests.collector.kit import HOURS, SECOND_NS, START_NS, request, tool
from tests.faults.processes import FULL, Collector, Rotel, arrived, eventually, started
from tests.faults.senders import GrpcSender, assert_well, ids
from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.scoring.scorer import key_values

MIB = 1 << 20
STEPS = 1_000_000 if FULL else 32_000
TRAJECTORIES = 1_000_000 if FULL else 24_000
PER_REQUEST = 2_000
"""Steps of a request."""
_NUMBER = b"@@@@@@@@"
_TIME = b"TTTTTTTT"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    bounds = {"max_traces": 10_000}  # reached in the first half of a test: what grows in the second grows for ever
    process = Collector(tmp_path_factory.mktemp("collector"), {"debug": {}}, trajectories=bounds).start()
    yield process
    process.stop()


def many(count: int, *, conversation: str = "") -> Iterator[bytes]:
    """Requests of fresh steps: all of one conversation, or each the only one of its own."""
    template = _template(conversation)
    head = Resource(attributes=key_values({"service.name": "app"})).SerializeToString()
    for start in range(0, count, PER_REQUEST):
        message = Request()
        scoped = message.resource_spans.add(resource=head).scope_spans.add()
        scoped.spans.extend(_filled(template, at) for at in range(start, min(count, start + PER_REQUEST)))
        yield message.SerializeToString()


def _template(conversation: str) -> bytes:
    """A step in bytes; making a hundred thousand from scratch would take longer than evaluating them."""
    number = _NUMBER.decode()
    one = tool(
        number, {"page": number}, f"page {number}", conversation=conversation or number, trace=conversation or number,
        extra={"gen_ai.tool.call.id": number},
    )  # fmt: skip
    one.span_id = _NUMBER
    if not conversation:
        one.trace_id = 2 * _NUMBER
    one.start_time_unix_nano = one.end_time_unix_nano = int.from_bytes(_TIME, "little")
    return one.SerializeToString()


def _filled(template: bytes, at: int) -> bytes:
    return template.replace(_NUMBER, b"%08d" % at).replace(_TIME, (START_NS + at * SECOND_NS).to_bytes(8, "little"))


def _has_steps(collector: Collector, trajectory: str, count: int) -> bool:
    return bool(collector.flag(trajectory)["steps"] == count)


async def test_one_trajectory_with_very_many_steps(collector: Collector) -> None:
    sender, endless, seconds, rss = GrpcSender(collector.grpc_port), "endless", [], []
    for sent, data in enumerate(many(STEPS, conversation=endless), 1):
        began = time.monotonic()
        await sender.once(data, timeout_s=60)
        # A request does not wait for all its steps if they take long: on a busy machine those that wait would add up.
        await eventually(partial(_has_steps, collector, endless, sent * PER_REQUEST), "all steps are evaluated")
        seconds.append(time.monotonic() - began)
        rss.append(collector.held().rss)
    half = len(seconds) // 2
    assert sum(seconds[half:]) < 2 * sum(seconds[:half]), "a step takes the longer the more there were"
    assert max(rss[half:]) < max(rss[:half]) + 10 * MIB, "memory grows with the steps"
    looping = [tool(f"again/{at}", {"q": 1}, conversation=endless, trace=endless, at=STEPS + at) for at in range(8)]
    await sender.once(request(*looping))
    assert collector.flag(endless)["level"] == "STOP"
    assert collector.metric("trajectory_guard_late_steps_total") == 0
    await sender.close()
    await assert_well(collector, "after-the-endless")
    assert collector.errors() == 0


async def test_very_many_trajectories_with_one_step(collector: Collector) -> None:
    sender, evicted = GrpcSender(collector.grpc_port), collector.metric("trajectory_guard_evictions_total")
    before, rss = collector.metric("trajectory_guard_trajectories_active"), []
    for data in many(TRAJECTORIES):
        await sender.once(data, timeout_s=60)
        rss.append(collector.held().rss)
    evicted = collector.metric("trajectory_guard_evictions_total", trajectory_guard_eviction_reason="full") - evicted
    assert collector.metric("trajectory_guard_trajectories_active") == 10_000
    assert evicted == TRAJECTORIES + before - 10_000
    assert max(rss[len(rss) // 2 :]) < max(rss[: len(rss) // 2]) + 25 * MIB
    await sender.close()
    await assert_well(collector, "after-the-many")
    assert collector.errors() == 0


JUMPS = {
    "back-a-day": -86_400.0,
    "forward-a-day": 86_400.0,
    "forward-ten-years": 10 * 365.25 * 86_400.0,
    "to-the-beginning-of-time": -START_NS / SECOND_NS,
}


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_clock_that_jumps_hides_no_loop_and_makes_none(tmp_path: Path, collector: Collector, jump: str) -> None:
    """Half of the steps before the jump, half after it, and all later ones on the old time."""
    sender = GrpcSender(collector.grpc_port)
    for name, args in (("healthy", None), ("looping", {"q": "same"})):
        conversation = f"{name}-{jump}"
        times = [*range(5), *(JUMPS[jump] + at for at in range(5, 9)), 9.0]
        steps = [
            tool(f"{conversation}/{at}", args or {"page": at}, f"page {at}" if args is None else HOURS,
                 conversation=conversation, trace=conversation, at=when)
            for at, when in enumerate(times)
        ]  # fmt: skip
        for one in steps:
            await sender.once(request(one))
        flag = collector.flag(conversation)
        assert (flag["steps"], flag["level"]) == (10, "OBSERVE" if args is None else "STOP")
        regular = [tool(f"{conversation}/later/{at}", {"q": "later"}, conversation=conversation, trace=conversation,
                        at=10 + at) for at in range(8)]  # fmt: skip
        for one in regular:
            await sender.once(request(one))
        assert collector.flag(conversation)["level"] == "STOP", "loops are found after the jump as before"
    await sender.close()
    assert collector.errors() == 0


async def test_impossible_times_are_forwarded_and_evaluated(tmp_path: Path) -> None:
    async with (
        started(Rotel(tmp_path)) as rotel,
        started(Collector(tmp_path, {"otlp": {"endpoint": rotel.grpc_url}})) as collector,
    ):
        sender, steps = GrpcSender(collector.grpc_port), []
        for at, (start, end) in enumerate(
            [(0, 0), (2**63 - 1, 1), (1, 2**63 - 1), (5, 3), (0, 7), (9, 0), (4, 4), (8, 8)]
        ):
            step = tool(f"times/{at}", {"q": 1}, conversation="times", trace="times")
            step.start_time_unix_nano, step.end_time_unix_nano = start, end
            steps.append(request(step))
        for data in steps:
            await sender.once(data)
        await arrived(rotel, {one for data in steps for one in ids(data)})
        flag = collector.flag("times")
        assert (flag["steps"], flag["level"]) == (8, "NUDGE"), (
            "pauses of centuries: what is before them leads to no stop"
        )
        await sender.close()
        await assert_well(collector, "after-impossible-times")
        assert collector.errors() == 0
