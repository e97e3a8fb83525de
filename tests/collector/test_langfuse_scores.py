"""A collector in front of a strict Langfuse: tagged spans and scores, once per change, whatever happens in between."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest
from opentelemetry import trace

from tests.collector.kit import HOURS, SECOND_NS, START_NS, loop, request, span, tool, trace_id
from tests.collector.service_helpers import running
from tests.faults.processes import Collector as Process
from tests.helpers import evaluate, record
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Langfuse, Reply, langfuse, rate_limited
from trajectory_guard.integrations.langfuse.scores import HEALTH, LOOP, Stage
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.config.models import Exporter
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.langfuse import score_writers
from trajectory_guard_collector.scoring.registry import LoopEvent
from trajectory_guard_collector.telemetry.metrics import Metrics

FAST = {"initial_interval_s": 0.02, "max_interval_s": 0.1}
TRACE = trace_id("trace").hex()
PROD = {"deployment.environment.name": "Prod"}


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as backend:
        yield backend


def exporter(server: Langfuse, **scores: Any) -> dict[str, Any]:
    return {
        "endpoint": server.url, "public_key": PUBLIC_KEY, "secret_key": SECRET_KEY, "retry_on_failure": FAST,
        "scores": {"batches_per_minute": 6_000, **scores},
    }  # fmt: skip


@asynccontextmanager
async def collecting(server: Langfuse, storage: Path | None = None, **sections: Any) -> AsyncIterator[Collector]:
    queue = {"queue": {"storage": str(storage)}} if storage is not None else {}
    async with running(exporters={"langfuse": exporter(server)}, **queue, **sections) as collector:
        yield collector


async def send(target: Collector | Process, *requests: bytes) -> None:
    url = target.url() if isinstance(target, Process) else f"http://{target.endpoints['otlp/http']}/v1/traces"
    async with httpx.AsyncClient(headers={"content-type": "application/x-protobuf"}, timeout=20) as client:
        for data in requests:
            answer = await client.post(url, content=data)
            assert answer.status_code == 200, answer.text


async def until(server: Langfuse, holds: Any) -> None:
    await asyncio.to_thread(server.wait, holds)


def singles(count: int, **fields: Any) -> list[bytes]:
    return [request(one) for one in loop(count, **fields)]


def healed(start: float = 20.0) -> list[bytes]:
    return [request(tool(f"fresh{at}", {"page": at}, f"page {at}", at=start + at)) for at in range(5)]


def healing(at: float) -> Any:
    return tool("fresh", {"page": 1}, "page 1", at=at)


def values(server: Langfuse, target: str) -> dict[str, float]:
    return {score["name"]: score["value"] for score in server.scores_of(target)}


def stages(server: Langfuse, target: str, name: str = HEALTH) -> list[str]:
    found = [one for one in server.written if target in (one.get("traceId"), one.get("sessionId"))]
    return [one["metadata"]["intervention"] for one in found if one["name"] == name]


# --- one change after the other ------------------------------------------------------------------------------


async def test_tagged_spans_and_a_score_for_each_change(server: Langfuse) -> None:
    async with collecting(server) as collector:
        await send(collector, *singles(2))
        await send(collector, *singles(3)[2:])
        await until(server, lambda: values(server, "c") == {HEALTH: 0.4, LOOP: 1})
        await send(collector, *singles(8)[3:])
        await until(server, lambda: values(server, "c") == {HEALTH: 0, LOOP: 1})
        await send(collector, *healed())
        await until(server, lambda: values(server, "c") == {HEALTH: 0.75, LOOP: 1})
        await until(server, lambda: len(server.traces[TRACE].spans) == 13 + 3)
    for target in (TRACE, "c"):
        assert stages(server, target) == ["NUDGE", "STOP", "RECOVERED"]
        assert stages(server, target, LOOP) == ["NUDGE", "STOP"]
    assert server.traces[TRACE].tags == {"LOOP_DETECTED", "TYPE_I_STUTTER"}
    assert server.traces[TRACE].session == "c"
    assert server.violations == []


async def test_a_second_nudge_brings_health_down_further_also_after_a_restart(server: Langfuse, tmp_path: Path) -> None:
    requests = [request(tool(f"s{at}", {"q": "x"}, "nothing", conversation="t", at=at)) for at in range(7)]
    for nudges, part in ((1, requests[:4]), (1, requests[3:5]), (2, requests[4:])):
        async with collecting(server, tmp_path) as collector:
            await send(collector, *part)
            await until(server, lambda nudges=nudges: len(stages(server, TRACE)) == nudges)
    assert (stages(server, TRACE), values(server, TRACE)) == (["NUDGE", "NUDGE"], {HEALTH: 0.0, LOOP: 1})


async def test_health_comes_back_when_an_agent_that_recovered_comes_to_rest(server: Langfuse) -> None:
    """One step of progress after the nudge, and no more to do: nothing arrives that could tell."""
    async with collecting(server, trajectories={"reorder_s": 0.3}) as collector:
        await send(collector, *(request(one, resource=PROD) for one in loop(3)), request(healing(5), resource=PROD))
        await until(server, lambda: values(server, "c") == {HEALTH: 1.0, LOOP: 1})
    for target in (TRACE, "c"):
        assert stages(server, target) == ["NUDGE", "RECOVERED"]
    assert {score["environment"] for score in server.written} == {"prod"}
    assert server.violations == []


async def test_a_recovery_at_rest_after_a_restart_goes_to_the_same_scores(server: Langfuse, tmp_path: Path) -> None:
    async with collecting(server, tmp_path) as collector:
        await send(collector, *(request(one, resource=PROD) for one in loop(3)), request(healing(5), resource=PROD))
        await until(server, lambda: len(server.scores) == 4)
    async with collecting(server, tmp_path, trajectories={"reorder_s": 0.1}):
        await until(server, lambda: values(server, "c") == {HEALTH: 1.0, LOOP: 1})
    assert len(server.scores) == 4
    assert {score["environment"] for score in server.written} == {"prod"}
    assert server.violations == []


async def test_timestamp_and_environment_are_those_of_the_loop(server: Langfuse) -> None:
    async with collecting(server) as collector:
        await send(collector, *(request(one, resource=PROD) for one in loop(4)))
        await until(server, lambda: len(server.scores) == 4)
    began = (START_NS + SECOND_NS) / SECOND_NS
    assert {score["timestamp"] for score in server.written} == {f"{time.strftime('%FT%T', time.gmtime(began))}Z"}
    assert {score["environment"] for score in server.written} == {"prod"}


async def test_healthy_agents_get_no_scores(server: Langfuse) -> None:
    async with collecting(server) as collector:
        await send(collector, *healed())
        await until(server, lambda: len(server.traces[TRACE].spans) == 5)
    assert server.requests == []


async def test_a_batch_that_is_delivered_twice_changes_nothing(server: Langfuse) -> None:
    async with collecting(server) as collector:
        await send(collector, b"".join(singles(5)))
        await until(server, lambda: len(server.scores) == 4)
        await send(collector, b"".join(singles(5)), *singles(5))
    assert len(server.written) == 4
    assert server.violations == []


async def test_two_collectors_that_see_the_same_write_the_same(server: Langfuse) -> None:
    async with collecting(server) as first, collecting(server) as second:
        await send(first, b"".join(singles(5)))
        await until(server, lambda: len(server.written) == 4)
        await send(second, b"".join(singles(5)))
        await until(server, lambda: len(server.written) == 8)
    assert server.written[:4] == server.written[4:]
    assert len(server.scores) == 4


async def test_a_conversation_over_several_traces_has_one_score_each_and_one_of_its_own(server: Langfuse) -> None:
    async with collecting(server) as collector:
        await send(collector, *singles(3))
        await until(server, lambda: len(server.scores) == 4)
        await send(collector, *(request(one) for one in loop(6, prefix="more", start=5.0, trace="second")))
        await until(server, lambda: len(server.scores) == 6)
        await send(collector, *healed())
        await until(server, lambda: values(server, "c")[HEALTH] == 0.875)
    second = trace_id("second").hex()
    assert (stages(server, TRACE), stages(server, second)) == (["NUDGE", "RECOVERED"], ["NUDGE", "RECOVERED"])
    assert stages(server, "c") == ["NUDGE", "NUDGE", "RECOVERED"], "what began in another trace leads to no stop"
    assert server.violations == []


async def test_a_conversation_that_becomes_known_after_its_loop_was_reported_has_session_scores(
    server: Langfuse,
) -> None:
    async with collecting(server) as collector:
        await send(collector, *singles(3, conversation=None))
        await until(server, lambda: len(server.scores_of(TRACE)) == 2)
        await send(collector, request(span("root", {"session.id": "known-late"})))
        await until(server, lambda: len(server.scores_of("known-late")) == 2)
    assert values(server, "known-late") == values(server, TRACE)


@pytest.mark.parametrize(
    ("extra", "session"),
    [
        ({"session.id": "user-7", "gen_ai.conversation.id": "conv-9"}, "user-7"),
        ({"session.id": "browser", "langfuse.session.id": "lf"}, "lf"),
        ({"langfuse.observation.metadata.thread_id": "thread"}, None),
        ({"traceloop.association.properties.thread_id": "thread"}, None),
    ],
)
async def test_scores_go_to_the_session_langfuse_knows(
    server: Langfuse, extra: dict[str, str], session: str | None
) -> None:
    async with collecting(server) as collector:
        await send(collector, *singles(4, conversation=None, extra=extra))
        await until(server, lambda: server.traces[TRACE].spans and len(server.scores_of(TRACE)) == 2)
        if session is not None:
            await until(server, lambda: len(server.scores_of(session)) == 2)
    assert server.traces[TRACE].session == session
    assert {score.get("sessionId") for score in server.written} == {None, session}


async def test_a_session_beside_the_step_counts_if_it_is_the_only_one(server: Langfuse) -> None:
    async with collecting(server) as collector:
        for trace_name, sessions in (("one", ["s", "s"]), ("several", ["p", "q"])):
            chats = [
                span(f"{trace_name}-chat{at}", {"session.id": name}, trace=trace_name)
                for at, name in enumerate(sessions)
            ]
            await send(collector, request(*chats))
            await send(collector, *singles(3, prefix=trace_name, conversation=None, trace=trace_name))
        await until(server, lambda: len(server.scores) == 6)
    assert {score.get("sessionId") for score in server.written} == {None, "s"}


async def test_a_conversation_that_was_forgotten_and_loops_again_is_reported_again(server: Langfuse) -> None:
    async with collecting(server, guard={"max_trajectories": 1}) as collector:
        await send(collector, *singles(5))
        await until(server, lambda: len(server.scores) == 4)
        await send(collector, request(tool("other", conversation="pushes the first out", trace="other")))
        await send(collector, *singles(5, prefix="again", start=100.0, trace="second"))
        await until(server, lambda: values(server, trace_id("second").hex()) == {HEALTH: 0, LOOP: 1})
        await until(server, lambda: len(server.scores) == 8)
    assert len({score["timestamp"] for score in server.scores_of("c")}) == 2
    assert server.violations == []


async def test_late_steps_change_neither_id_nor_timestamp(server: Langfuse) -> None:
    spans = singles(6)
    async with collecting(server) as collector:
        await send(collector, *spans[2:5])
        await until(server, lambda: len(server.scores) == 4)
        await send(collector, *spans[:2], spans[5])
        await until(server, lambda: values(server, "c") == {HEALTH: 0, LOOP: 1})
    assert len(server.scores) == 4
    assert server.violations == []


async def test_tenants_with_the_same_conversation_have_scores_of_their_own(server: Langfuse) -> None:
    async with collecting(server, trajectories={"separate_by": ["team"]}) as collector:
        for at, team in enumerate(("red", "blue")):
            spans = loop(3, prefix=team, start=100.0 * at, trace=team)
            await send(collector, *(request(one, resource={"team": team}) for one in spans))
        await until(server, lambda: len(server.scores) == 8)
    assert len(server.scores_of("c")) == 4
    assert server.violations == []


async def test_redacted_scores_hold_nothing_of_what_was_said(server: Langfuse) -> None:
    async with collecting(server, guard={"redact": True}) as collector:
        await send(collector, *(request(one) for one in loop(4, args={"q": "secret"}, result="secret")))
        await until(server, lambda: len(server.scores) == 4)
    assert "secret" not in str(server.requests)


async def test_langfuses_own_tracing_stays_off(server: Langfuse) -> None:
    before = trace.get_tracer_provider()
    async with collecting(server) as collector:
        await send(collector, *singles(5))
        await until(server, lambda: len(server.scores) == 4)
        await until(server, lambda: sum(len(one.spans) for one in server.traces.values()) >= 5 + 3)
    assert trace.get_tracer_provider() is before
    assert sum(len(one.spans) for one in server.traces.values()) == 5 + 3, "five calls, three spans of the guard"


# --- trouble -------------------------------------------------------------------------------------------------


async def test_a_server_silences_scores_no_longer_than_the_exporter_allows(server: Langfuse) -> None:
    """A ``Retry-After`` with a wrong date, as of a proxy, would stop them for an hour; traces went on."""
    retry = {**FAST, "max_retry_after_s": 0.2}
    server.script.append(rate_limited(3_000))
    async with running(exporters={"langfuse": {**exporter(server), "retry_on_failure": retry}}) as collector:
        await send(collector, *singles(5))
        await until(server, lambda: len(server.scores) == 4)
    assert server.requests[0][0] == 429


@pytest.mark.parametrize("trouble", [rate_limited(0), Reply(500), Reply(503)], ids=["429", "500", "503"])
async def test_scores_arrive_once_after_trouble_and_nobody_waits_for_them(server: Langfuse, trouble: Reply) -> None:
    async with collecting(server) as collector:
        server.always = trouble
        await send(collector, *singles(5))
        await until(server, lambda: len(server.traces[TRACE].spans) == 5 + 3)
        await until(server, lambda: len(server.requests) >= 3)
        server.always = None
        await until(server, lambda: len(server.scores) == 4)
    assert len(server.written) == 4
    assert server.violations == []


async def test_what_becomes_of_scores_is_counted(server: Langfuse) -> None:
    async with collecting(server) as collector:
        server.always = Reply(503)
        await send(collector, *singles(5))
        await until(server, lambda: bool(server.requests))
        assert sample(collector, "scores_waiting") == 4
        server.always = None
        await until(server, lambda: len(server.scores) == 4)
        await eventually(lambda: sample(collector, "scores_sent_total") == 4)
        await eventually(lambda: sample(collector, "scores_waiting") == 0)


@pytest.mark.parametrize("status", [401, 404, 503])
async def test_attempts_that_fail_are_counted_by_status(server: Langfuse, status: int) -> None:
    server.script.extend([Reply(status)] * 2)
    async with collecting(server) as collector:
        await send(collector, *singles(3))
        await until(server, lambda: len(server.scores) == 4)
        assert sample(collector, "scores_attempts_failed_total", error_type=str(status)) == 2


@pytest.mark.slow
async def test_what_is_left_at_the_end_without_storage_is_counted_as_failed(server: Langfuse) -> None:
    async with collecting(server) as collector:
        server.always = Reply(503)
        await send(collector, *singles(5))
    assert sample(collector, "scores_failed_total") == 4


async def test_a_full_queue_gives_up_older_scores_first(server: Langfuse) -> None:
    """Those that are being sent give way too: eight conversations have four scores each, and the newest 20 stay."""
    server.always = Reply(503)
    section = exporter(server, max_waiting=20)
    async with running(exporters={"langfuse": section}) as collector:
        for number in range(8):
            await send(collector, *singles(3, prefix=f"n{number}", conversation=f"c{number}", trace=f"t{number}"))
        await eventually(lambda: sample(collector, "scores_failed_total") == 12)
        server.always = None
        await until(server, lambda: len(server.scores) == 20)
    assert {one.get("sessionId") for one in server.scores.values()} == {None, *(f"c{at}" for at in range(3, 8))}


def test_no_scores_where_they_are_off_or_the_backend_is_another() -> None:
    keys = {"public_key": PUBLIC_KEY, "secret_key": SECRET_KEY}
    exporters = {
        "langfuse": Exporter.model_validate({**keys, "scores": {"enabled": False}}),
        "otlphttp": Exporter.model_validate({"endpoint": "http://localhost:1"}),
    }
    assert score_writers(exporters, Metrics(), None, redact=False) == []


def test_without_the_package_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "langfuse", None)
    exporters = {"langfuse/eu": Exporter.model_validate({"public_key": PUBLIC_KEY, "secret_key": SECRET_KEY})}
    assert score_writers(exporters, Metrics(), None, redact=False) == []
    assert "exporters.langfuse/eu.scores: no scores are written: install the extra 'langfuse'" in caplog.text


# --- restarts ------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_scores_that_wait_survive_a_restart(server: Langfuse, tmp_path: Path) -> None:
    async with collecting(server, tmp_path) as collector:
        server.always = Reply(503)
        await send(collector, *singles(5))
        await until(server, lambda: bool(server.requests))
    server.always = None
    async with collecting(server, tmp_path):
        await until(server, lambda: len(server.scores) == 4)
    async with collecting(server, tmp_path) as collector:
        await send(collector, *singles(6))
        await send(collector, *healed())
        await until(server, lambda: values(server, "c")[HEALTH] == 0.75)
    assert stages(server, TRACE) == ["STOP", "RECOVERED"]
    assert stages(server, TRACE, LOOP) == ["STOP"]
    assert server.violations == []


@pytest.mark.slow
@pytest.mark.parametrize("reply", [None, rate_limited(0), Reply(500)], ids=["fine", "429", "500"])
async def test_scores_arrive_once_per_change_over_a_kill(server: Langfuse, tmp_path: Path, reply: Reply | None) -> None:
    process = Process(tmp_path, {"langfuse": exporter(server)}, queue={"storage": str(tmp_path / "store")}).start()
    try:
        server.always = reply
        await send(process, *singles(3))
        if reply is None:
            await until(server, lambda: len(server.scores) == 4)
            await asyncio.to_thread(_counted, process)
            await send(
                process, request(tool("other", conversation="other", trace="other"))
            )  # on disk after what came before
        await asyncio.to_thread(process.kill)
        server.always = None
        await asyncio.to_thread(process.start)
        await until(server, lambda: len(server.scores) == 4)
        await send(process, *singles(6))
        await until(server, lambda: stages(server, TRACE)[-1] == "STOP")  # of two that wait, the newer one is written
        await send(process, *healed())
        await until(server, lambda: values(server, "c")[HEALTH] == 0.75)
    finally:
        await asyncio.to_thread(process.stop)
    assert stages(server, TRACE) == ["NUDGE", "STOP", "RECOVERED"]
    assert stages(server, TRACE, LOOP) == ["NUDGE", "STOP"]
    assert server.violations == []


@pytest.mark.slow
async def test_scores_that_were_not_even_written_down_are_found_in_the_write_ahead_log(
    server: Langfuse, tmp_path: Path
) -> None:
    process = Process(tmp_path, {"langfuse": exporter(server)}, queue={"storage": str(tmp_path / "store")}).start()
    try:
        server.always = Reply(503)
        await send(process, *singles(3))
        await asyncio.to_thread(process.kill)
        with sqlite3.connect(tmp_path / "store" / "collector.db") as database:
            database.execute("DELETE FROM kv")
        database.close()
        server.always = None
        await asyncio.to_thread(process.start)
        await until(server, lambda: len(server.scores) == 4)
    finally:
        await asyncio.to_thread(process.stop)
    assert (values(server, TRACE), server.violations) == ({HEALTH: 0.4, LOOP: 1}, [])


async def test_what_an_older_collector_saved_of_a_loop_is_understood(server: Langfuse) -> None:
    class Store:
        async def load_kv(self, space: str) -> list[tuple[bytes, bytes]]:
            known = [1_700_000_000.25, [[TRACE, False, Stage.NUDGE]]]
            return [(orjson.dumps(["langfuse", "episode", "", "t", 1]), orjson.dumps(known))]

        async def checkpoint(self, space: str, rows: Any, wal_up_to: int = 0) -> None:
            return

    steps = [record("search", {"q": 1}, HOURS, t=1_700_000_000.25 + at - 1) for at in range(5)]
    item = SimpleNamespace(
        view=SimpleNamespace(trace_id=TRACE, attributes={}), origin=SimpleNamespace(attributes={}), tenant="",
        order=(1_700_000_004.0, ""),
    )  # fmt: skip
    events = [LoopEvent(None, verdict, cast(StepItem, item)) for verdict in evaluate(steps) if verdict is not None]
    exporters = {"langfuse": Exporter.model_validate(exporter(server))}
    [writer] = score_writers(exporters, Metrics(), Store(), redact=False)
    await writer.start()
    writer.notify(events)
    await writer.stop(10.0)
    assert stages(server, TRACE) == ["STOP"]
    assert {score["timestamp"] for score in server.written} == {"2023-11-14T22:13:20.250000Z"}


@pytest.mark.slow
async def test_a_damaged_row_costs_one_score_and_no_start(server: Langfuse, tmp_path: Path) -> None:
    async with collecting(server, tmp_path) as collector:
        server.always = Reply(503)
        await send(collector, *singles(3))
        await until(server, lambda: bool(server.requests))
    with sqlite3.connect(tmp_path / "collector.db") as database:
        keys = [key for (key,) in database.execute("SELECT key FROM kv WHERE space = 'scores'") if b'"score"' in key]
        database.execute("UPDATE kv SET data = '{' WHERE key = ?", (keys[0],))
    database.close()
    server.always = None
    async with collecting(server, tmp_path) as collector:
        await until(server, lambda: len(server.scores) == 3)
        errors = collector.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "restore"}
        )
    assert errors == 1


# --- helpers -------------------------------------------------------------------------------------------------


def sample(collector: Collector, name: str, **labels: str) -> float:
    collector.metrics.refresh()
    labels = {"exporter": "langfuse", **labels}
    return collector.metrics.registry.get_sample_value(f"trajectory_guard_{name}", labels) or 0.0


async def eventually(holds: Any, timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def _counted(process: Process) -> None:
    end = time.monotonic() + 30
    while process.metric("trajectory_guard_scores_sent_total") < 4:
        assert time.monotonic() < end
        time.sleep(0.01)
