"""One budget for several processes: a real collector, agents of LangGraph, spans over OTLP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.collector.kit import START_NS, always_replying, request
from tests.collector.service_helpers import running
from tests.collector.test_booking import agent, chat
from tests.gates.agents import TASK, agent_builder, agent_node, lookup, search, thread, works
from tests.helpers import PACKAGE, TESTS
from trajectory_guard import BudgetGate, FlagBoard, GuardConfig, TrajectoryGuardMiddleware, apply_guard, telemetry
from trajectory_guard.cli.demo.scripted import ScriptedChatModel
from trajectory_guard.gates.budgets import BLOCKED_TEXT, REFUSED_TEXT
from trajectory_guard.gates.remote import Caller, RemoteFlags
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending.answers import status_of
from trajectory_guard.spending.budget import BudgetLevel
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.config.load import load_config

LIMIT = 1_000
TOKEN = {"auth": {"bearer_tokens": ["secret"]}}


def budgets(scope: str = "service", tokens: int = LIMIT, **more: Any) -> dict[str, Any]:
    """The section ``guard`` of a collector with one budget."""
    return {"budgets": [{"scope": scope, "tokens": tokens}], **more}


def url(collector: Collector) -> str:
    return f"http://{collector.endpoints['telemetry']}"


SHIFT_NS = time.time_ns() - START_NS
"""Spans of the kit are years old: ids of such calls would be forgotten at once."""


def today_s(spans: Sequence[Span]) -> list[Span]:
    """The spans as if they were of today."""
    shifted = []
    for one in spans:
        shifted.append(Span.FromString(one.SerializeToString()))
        shifted[-1].start_time_unix_nano += SHIFT_NS
        shifted[-1].end_time_unix_nano += SHIFT_NS
    return shifted


async def send(collector: Collector, *spans: Span, service: str = "shop", **resource: str) -> None:
    async with httpx.AsyncClient() as client:
        reply = await client.post(
            f"http://{collector.endpoints['otlp/http']}/v1/traces",
            content=request(*today_s(spans), service=service, resource=resource),
            headers={"content-type": "application/x-protobuf", "authorization": "Bearer secret"},
        )
        assert reply.status_code == 200, reply.text


async def ask(collector: Collector, name: str, token: str = "secret", **query: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10) as client:
        headers = {"authorization": f"Bearer {token}"}
        return await client.get(f"{url(collector)}/v1/flags/{quote(name, safe='')}", params=query, headers=headers)


async def budget(collector: Collector, name: str = "new", **query: str) -> Any:
    return (await ask(collector, name, **query)).json()["budget"]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with running(guard=budgets()) as one:
        yield one


class App:
    """A process with a guarded agent, whose model calls are reported to the collector."""

    def __init__(self, collector: Collector | str, service: str = "shop", *, token: str | None = None, tokens: int = 100,
                 resource: dict[str, str] | None = None, **config: Any) -> None:  # fmt: skip
        self.tokens, self.asked = tokens, list[str]()
        self.config = GuardConfig(
            collector_url=collector if isinstance(collector, str) else url(collector), collector_token=token,
            **{"collector_timeout_s": 10.0, **config},
        )  # fmt: skip
        self.board = FlagBoard(self.config)
        self.provider = TracerProvider(resource=Resource({"service.name": service, **(resource or {})}))
        self.provider.add_span_processor(TrajectoryGuardProcessor(board=self.board, tracer_provider=TracerProvider()))
        if not isinstance(collector, str):
            endpoint = f"http://{collector.endpoints['otlp/http']}/v1/traces"
            headers = {"authorization": f"Bearer {token}"} if token else {}
            self.provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint, headers=headers)))

    def model(self, name: str = "large", steps: int = 1) -> Any:
        script = works(steps)

        def policy(messages: Sequence[Any], turn: int) -> AIMessage:
            self.asked.append(name)
            attributes = {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": name,
                "gen_ai.usage.input_tokens": self.tokens, "gen_ai.usage.output_tokens": 0,
            }  # fmt: skip
            with self.provider.get_tracer("app").start_as_current_span("chat", attributes=attributes):
                return script(messages, turn)

        return ScriptedChatModel(policy=policy, model_name=name)

    def agent(self, steps: int = 1, **options: Any) -> Any:
        options = {"cheaper": self.model("small", steps), **options}
        return create_agent(
            self.model(steps=steps), [search, lookup], checkpointer=InMemorySaver(),
            middleware=[TrajectoryGuardMiddleware(self.config, board=self.board, **options)],
        )  # fmt: skip

    async def run(self, graph: Any, conversation: str = "1") -> dict[str, Any]:
        """A user turn, in the span of a request that names the conversation."""

        def invoke() -> Any:
            attributes = {"session.id": conversation}
            with self.provider.get_tracer("app").start_as_current_span("POST /chat", attributes=attributes):
                return graph.invoke(TASK, thread(conversation))

        return dict(await asyncio.to_thread(invoke))


def answer(result: dict[str, Any]) -> str:
    return str(result["messages"][-1].text)


# --- two processes, one budget -----------------------------------------------------------------------------------


async def test_two_processes_share_one_budget(collector: Collector) -> None:
    one, other = App(collector, tokens=400), App(collector, tokens=80)
    mine, yours = one.agent(), other.agent()

    assert answer(await one.run(mine, "a")).startswith("Done")  # 800 of 1,000 tokens
    routed = await other.run(yours, "b")
    assert other.asked == ["small", "small"]
    assert routed["loop_status"]["budget"]["level"] == "aggressive"
    assert answer(await other.run(yours, "c")) == REFUSED_TEXT  # 960: no new sessions
    again = await one.run(mine, "a")  # one that has begun goes on, until the budget is used up
    assert answer(again) == BLOCKED_TEXT
    assert one.asked == ["large", "large", "small"]
    assert again["loop_status"]["budget"]["of"] == "1,360 of 1,000 tokens"
    assert again["loop_status"]["budget"]["whose"] == "service 'shop'"
    assert answer(await other.run(yours, "b")) == BLOCKED_TEXT
    assert other.board.counts["budget_actions.blocked"] == 1
    assert other.board.counts["budget_actions.refused"] == 1


async def run_process(collector: Collector, conversation: str, steps: int) -> Any:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PACKAGE.parent), str(TESTS.parent)))}
    command = [
        sys.executable, "-m", "tests.collector.budgeted_agent", url(collector),
        f"http://{collector.endpoints['otlp/http']}", conversation, str(steps),
    ]  # fmt: skip
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
async def test_the_spending_of_one_process_binds_another() -> None:
    """Real processes, a real instrumentation, and a model whose use the collector learns from spans alone."""
    async with running(guard=budgets(tokens=400)) as collector:
        said, asked, level = await run_process(collector, "first", 12)
        assert (said, asked, level["level"]) == ("Done.", 13, "normal")  # its spans are flushed in the end
        said, asked, level = await run_process(collector, "second", 12)
        assert (said, asked, level["level"]) == (BLOCKED_TEXT, 0, "blocked")
        assert level["whose"] == "service 'shop'"


@pytest.mark.slow
async def test_a_conversation_that_goes_on_in_another_process_has_one_budget() -> None:
    """The instrumentation writes the thread id on the spans, with which the gate asks."""
    async with running(guard=budgets("trajectory", 200)) as collector:
        assert (await run_process(collector, "first", 12))[:2] == ["Done.", 13]
        said, asked, level = await run_process(collector, "first", 1)
        assert (said, asked, level["whose"]) == (BLOCKED_TEXT, 0, "trajectory 'first'")
        said, asked, level = await run_process(collector, "second", 1)
        assert (said, asked, level["level"]) == ("Done.", 2, "normal")


async def test_agents_that_are_awaited_do_not_block_the_loop(collector: Collector) -> None:
    """The collector runs in this very loop: a gate that blocked it would get no answer, and go on."""
    await send(collector, chat("x", (1000, 0)))
    app = App(url(collector))  # exports nothing: that would block the loop
    with app.provider.get_tracer("app").start_as_current_span("POST /chat"):
        result = await app.agent().ainvoke(TASK, thread())
    assert answer(result) == BLOCKED_TEXT
    assert app.asked == []


def wrapped(guard: BudgetGate, steps: int) -> Any:
    """A graph of one's own whose agent stands behind the budgets."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", guard.wrap(agent_node(works(steps))))
    builder.add_node("tools", ToolNode([search, lookup]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


async def test_a_wrapped_node_asks_the_collector_too(collector: Collector) -> None:
    await send(collector, chat("x", (1000, 0)))
    app = App(collector)
    guard = BudgetGate(app.config, board=app.board)
    builder = wrapped(guard, 1)
    result = await app.run(builder.compile(), "w")
    assert answer(result) == BLOCKED_TEXT


async def test_apply_guard_shows_the_level_in_the_status(collector: Collector) -> None:
    await send(collector, chat("x", (850, 0)))
    app = App(url(collector))  # exports nothing: that would block the loop
    builder = agent_builder(works(1))
    apply_guard(builder, app.config, board=app.board)
    with app.provider.get_tracer("app").start_as_current_span("POST /chat"):
        result = await builder.compile().ainvoke(TASK, thread(), output_keys=["loop_status"])
    assert result["loop_status"]["budget"]["level"] == "aggressive"


@pytest.mark.parametrize("own, level", [(100, "blocked"), (100_000, "aggressive")])
async def test_the_stricter_of_two_budgets_decides(collector: Collector, own: int, level: str) -> None:
    await send(collector, chat("x", (800, 0)))
    app = App(collector, budgets=[{"scope": "day", "tokens": own}])
    graph = app.agent()
    result = await app.run(graph)
    result = await app.run(graph) if level == "blocked" else result
    assert result["loop_status"]["budget"]["level"] == level


@pytest.mark.parametrize("mode, said", [("enforce", BLOCKED_TEXT), ("nudge", "Done"), ("observe", "Done")])
async def test_the_mode_of_the_gate_holds(collector: Collector, mode: str, said: str) -> None:
    await send(collector, chat("x", (1000, 0)))
    app = App(collector, mode=mode)
    assert answer(await app.run(app.agent())).startswith(said)
    assert app.asked == {"enforce": [], "nudge": ["small"] * 2, "observe": ["large"] * 2}[mode]


@pytest.mark.parametrize("mode, level", [("enforce", "blocked"), ("nudge", "aggressive"), ("observe", "normal")])
async def test_the_mode_of_the_collector_holds_for_budgets_as_for_flags(mode: str, level: str) -> None:
    async with running(guard=budgets(mode=mode)) as collector:
        await send(collector, chat("x", (1000, 0)))
        found = await budget(collector, service="shop")
        assert (found["level"], found["of"]) == (level, "1,000 of 1,000 tokens")


class CountedRequests:
    """Requests for flags, by the collector's own metric."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def __int__(self) -> int:
        read = self._collector.metrics.registry.get_sample_value
        return int(read("trajectory_guard_flag_requests_total", {"status": "200"}) or 0)


async def test_a_decision_takes_one_request(collector: Collector) -> None:
    requests, app = CountedRequests(collector), App(collector, tokens=1)
    await app.run(app.agent(steps=3))
    assert len(app.asked) == int(requests) == 4


async def test_gates_of_one_board_share_an_answer(collector: Collector) -> None:
    requests, app = CountedRequests(collector), App(collector, tokens=1)
    guard = BudgetGate(app.config, board=app.board)
    builder = wrapped(guard, 3)
    apply_guard(builder, app.config, board=app.board)
    await app.run(builder.compile())
    assert 0 < int(requests) <= 5  # the guard's decisions serve the wrapped node as well


async def test_a_collector_without_budgets_is_not_asked_again() -> None:
    async with running() as collector:
        requests, app = CountedRequests(collector), App(collector)
        graph = app.agent()
        for conversation in "abc":
            await app.run(graph, conversation)
        assert "budget" not in (await app.run(graph, "d"))["loop_status"]
        assert (await ask(collector, "d")).json()["budget"] is None
        # one for the budget, which serves the first decision on a flag too; one for each later flag; and the line above
        assert int(requests) == 1 + 3 + 1


# --- failures ----------------------------------------------------------------------------------------------------


async def test_a_collector_that_is_down_lets_the_run_go_on(collector: Collector) -> None:
    app = App(url(collector), collector_timeout_s=0.5)
    await collector.stop()
    assert answer(await app.run(app.agent())).startswith("Done")
    assert app.asked == ["large", "large"]
    assert app.board.counts["errors.collector"] == 1


async def test_local_budgets_hold_while_the_collector_is_down() -> None:
    app = App("http://127.0.0.1:9", collector_timeout_s=0.5, budgets=[{"scope": "day", "tokens": 150}])
    graph = app.agent()
    await app.run(graph)
    assert answer(await app.run(graph)) == BLOCKED_TEXT


async def test_a_wrong_token_reads_no_budget_and_lets_the_run_go_on() -> None:
    async with running(**TOKEN, guard=budgets()) as collector:
        await send(collector, chat("x", (1000, 0)))
        assert (await ask(collector, "c", token="wrong")).status_code == 401
        assert "budget" not in (await ask(collector, "c", token="wrong")).text
        for token, said in (("wrong", "Done"), ("secret", BLOCKED_TEXT)):
            app = App(collector, token=token)
            assert answer(await app.run(app.agent())).startswith(said)


@pytest.mark.parametrize(
    "odd",
    [
        {"level": "purple", "is_new": 1}, "blocked", ["blocked"], 7, {"level": "blocked"}, [],
        {"level": "blocked", "is_new": False, "budget": {"scope": "moon"}},
        {"level": "blocked", "is_new": False, "budget": {"scope": "day", "unit": "usd", "limit": 0}, "account": {}},
    ],
)  # fmt: skip
async def test_an_answer_that_makes_no_sense_lets_the_run_go_on(odd: Any) -> None:
    async with always_replying({"level": "OBSERVE", "budget": odd}) as url:
        app = App(url)
        assert answer(await app.run(app.agent())).startswith("Done")
        assert app.board.counts["errors.collector"] == 1


# --- the answer ----------------------------------------------------------------------------------------------------


async def test_the_answer_says_level_amount_and_whose(collector: Collector) -> None:
    await send(collector, agent("a", "planner", dur=9), chat("x", (960, 0), parent="a"))
    found = await budget(collector, "c", service="shop")
    assert {key: found[key] for key in ("level", "used", "of", "whose", "is_new")} == {
        "level": "new_sessions_only", "used": 0.96, "of": "960 of 1,000 tokens", "whose": "service 'shop'",
        "is_new": False,
    }  # fmt: skip
    assert (await budget(collector, "never seen", service="shop"))["is_new"] is True
    assert (await budget(collector, "c", service="another"))["level"] == "normal"
    assert (await budget(collector, "c"))["level"] == "normal"  # no service is named: none is concerned


async def test_budgets_of_agents_and_trajectories() -> None:
    section = {"budgets": [{"scope": "agent", "tokens": 1000}, {"scope": "trajectory", "tokens": 500}]}
    async with running(guard=section) as collector:
        await send(collector, agent("a", "planner", dur=9), chat("x", (450, 0), parent="a"))
        assert (await budget(collector, "c", agent="nobody"))["whose"] == "trajectory 'c'"
        assert (await budget(collector, "other", agent="planner"))["of"] == "450 of 1,000 tokens"
        assert (await budget(collector, "c"))["level"] == "aggressive"


async def test_a_late_conversation_moves_the_sums() -> None:
    section = {"budgets": [{"scope": "trajectory", "tokens": 1000}]}
    async with running(guard=section) as collector:
        await send(collector, chat("x", (960, 0), trace="t", parent="a"))
        trace = chat("x", trace="t").trace_id.hex()
        assert (await budget(collector, trace))["of"] == "960 of 1,000 tokens"
        await send(collector, agent("a", "planner", "customer-1", trace="t", dur=9))
        assert (await budget(collector, "customer-1"))["of"] == "960 of 1,000 tokens"
        spending = collector.scorer.spending
        assert spending is not None
        from trajectory_guard.spending.ledger import Account

        assert spending.balance(Account("trajectory", trace)).calls == 0
        assert spending.balance(Account("service", "shop")).calls == 1
        assert spending.balance(Account("agent", "planner")).tokens == 960


async def test_tenants_have_budgets_of_their_own(collector: Collector) -> None:
    await send(collector, chat("x", (960, 0)), **{"service.namespace": "eu"})
    await send(collector, chat("y", (100, 0), trace="u"), **{"service.namespace": "us"})
    found = await budget(collector, service="shop", **{"resource.service.namespace": "eu"})
    assert (found["level"], found["whose"]) == ("new_sessions_only", "service 'shop' of 'eu'")
    assert (await budget(collector, service="shop", **{"resource.service.namespace": "us"}))["used"] == 0.1
    assert (await budget(collector, service="shop"))["used"] == 0.0
    for tenant, said in (("eu", REFUSED_TEXT), ("us", "Done")):
        app = App(collector, resource={"service.namespace": tenant}, tokens=1)
        assert answer(await app.run(app.agent())).startswith(said), tenant


async def test_gates_send_the_attributes_that_the_collector_separates_by() -> None:
    limits = {"separate_by": ["team"]}
    async with running(guard=budgets(), trajectories=limits) as collector:
        await send(collector, chat("x", (1000, 0)), team="a")
        for team, said in (("a", BLOCKED_TEXT), ("b", "Done")):
            app = App(collector, resource={"team": team}, tokens=1)
            assert answer(await app.run(app.agent())).startswith(said)


@pytest.mark.parametrize("name", ["\ud800", "x" * 5000, "", "a\x00b", "a\x1fb", "1'; DROP TABLE sums"])
async def test_odd_names_are_booked_and_asked_for(tmp_path: Path, name: str) -> None:
    section = budgets("agent", spending_file=str(tmp_path / "ledger.db"))
    async with running(guard=section) as collector:
        spelled = json.dumps(name)  # as some vendors write names
        spans = [chat(f"x{at}", (100, 0), extra={"gen_ai.agent.name": spelled}, trace=str(at)) for at in range(2)]
        await send(collector, *spans, chat("fine", (100, 0), trace="f", extra={"gen_ai.agent.name": "fine"}))
        assert (await budget(collector, agent="fine"))["used"] == 0.1
        assert (await ask(collector, "t", agent=name.encode("utf-8", "replace").decode())).status_code == 200


# --- alerts, outliers, metrics, restarts -----------------------------------------------------------------------------


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    with caplog.at_level(logging.WARNING, logger=telemetry.LOGGER):

        def events(kind: str) -> list[dict[str, Any]]:
            entries = [json.loads(record.message) for record in caplog.records if record.message.startswith("{")]
            return [entry for entry in entries if entry.get("event_type") == kind]

        yield events


async def metric(collector: Collector, name: str) -> dict[tuple[str, ...], float]:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{url(collector)}/metrics")).text
    from prometheus_client.parser import text_string_to_metric_families as parse

    samples = [sample for family in parse(text) for sample in family.samples if sample.name == name]
    return {tuple(one for _, one in sorted(sample.labels.items())): sample.value for sample in samples}


async def test_a_restart_keeps_ledger_and_alerts(tmp_path: Path, logged: Any) -> None:
    section = budgets(spending_file=str(tmp_path / "ledger.db"))
    spans = [chat(f"x{at}", (300, 0), trace=str(at)) for at in range(4)]
    async with running(guard=section) as collector:
        await send(collector, *spans[:2])
    async with running(guard=section) as collector:
        await send(collector, *spans)  # the first two are delivered again
        assert (await budget(collector, service="shop"))["of"] == "1,200 of 1,000 tokens"
        assert await metric(collector, "trajectory_guard_budget_alerts_total") == {("80",): 1, ("100",): 1}
        assert await metric(collector, "trajectory_guard_spending_tokens_total") == {("large",): 600}
        ratio = await metric(collector, "trajectory_guard_budget_ratio")
        assert ratio == {("1,000 tokens", "shop", "service"): 1.2}
        events = await metric(collector, "trajectory_guard_spending_events_total")
        assert events == {("calls",): 2, ("duplicates",): 2}
    assert [(one["percent"], one["name"]) for one in logged("BUDGET_ALERT")] == [
        (50, "shop"),
        (80, "shop"),
        (100, "shop"),
    ]


@pytest.mark.slow
def test_a_collector_that_is_killed_has_booked_what_it_acknowledged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = (
        "guard.spending.budgets=[{scope: service, tokens: 1000}]", f"guard.spending.spending_file={tmp_path}/ledger.db",
        "receivers.otlp.protocols={http: {endpoint: 'localhost:0'}}", "telemetry.endpoint=localhost:0",
    )  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "trajectory_guard_collector.cli",
        "run",
        *(x for one in settings for x in ("--set", one)),
    ]

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]

    def started(number: int) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        with log.open("ab") as stderr:
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL, env=environ)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            listening = [one["endpoint"] for one in lines() if "endpoint" in one]
            if len(listening) == 2 * number:
                return process, dict(zip(("telemetry", "otlp/http"), listening[-2:], strict=True))
            time.sleep(0.05)
        process.kill()
        raise AssertionError(log.read_text(encoding="utf-8"))

    def post(endpoints: dict[str, str], *spans: Span) -> None:
        headers = {"content-type": "application/x-protobuf"}
        body = request(*today_s(spans), service="shop")
        assert (
            httpx.post(f"http://{endpoints['otlp/http']}/v1/traces", content=body, headers=headers).status_code == 200
        )

    process, endpoints = started(1)
    try:
        post(endpoints, chat("x", (600, 0)))
    finally:
        process.kill()
        process.wait()
    process, endpoints = started(2)
    try:
        post(endpoints, chat("x", (600, 0)), chat("y", (300, 0), at=1))
        found = httpx.get(f"http://{endpoints['telemetry']}/v1/flags/new", params={"service": "shop"}).json()
        assert found["budget"]["of"] == "900 of 1,000 tokens"
    finally:
        process.terminate()
        assert process.wait(60) == 0
    alerts = [one["verdict"]["percent"] for one in lines() if one["message"] == "BUDGET_ALERT"]
    assert alerts in ([50, 80], [80])  # a thread writes the log: the kill may take the line, never what was booked


async def test_a_restart_with_a_write_ahead_log_books_nothing_twice(tmp_path: Path) -> None:
    sections = {
        "guard": budgets(spending_file=str(tmp_path / "ledger.db")), "queue": {"storage": str(tmp_path / "queue")},
    }  # fmt: skip
    async with running(**sections) as collector:
        await send(collector, chat("x", (300, 0), parent="a"))
        await send(collector, chat("y", (300, 0), parent="a", at=1), agent("a", "planner", dur=9))
    async with running(**sections) as collector:
        assert (await budget(collector, service="shop"))["of"] == "600 of 1,000 tokens"
        assert (await budget(collector, "c", service="shop"))["is_new"] is False


async def test_a_call_far_above_the_usual_is_reported(logged: Any) -> None:
    async with running(guard={"track_spending": True}) as collector:
        for at in range(15):
            await send(collector, chat(f"x{at}", (1000, 0), trace=str(at), parent=f"a{at}"))
            await send(collector, agent(f"a{at}", "planner", trace=str(at), dur=9))  # its agent is known later
        await send(collector, chat("far", (100_000, 0), trace="far", extra={"gen_ai.agent.name": "planner"}))
        (found,) = logged("SPENDING_OUTLIER")
        assert (found["agent"], found["tokens"], found["usual_tokens"]) == ("planner", 100_000, 1000)
        assert (await metric(collector, "trajectory_guard_spending_events_total"))["outliers",] == 1


async def test_money_is_priced_and_a_model_without_a_price_is_named() -> None:
    section = {
        "budgets": [{"scope": "service", "usd": 1.0}], "model_prices": {"large": {"input": 2.5, "output": 10}},
    }  # fmt: skip
    async with running(guard=section) as collector:
        await send(collector, chat("x", (100_000, 10_000)), chat("y", (10, 0), model="a-model-of-our-own", at=1))
        found = await budget(collector, service="shop")
        assert (found["of"], found["unpriced"]) == ("0.35 of 1.00 USD", ["a-model-of-our-own"])
        assert (await metric(collector, "trajectory_guard_spending_cost_total"))["large",] == pytest.approx(0.35)
        assert await metric(collector, "trajectory_guard_spending_unpriced") == {("a-model-of-our-own",): 10}


async def test_a_reply_names_some_models_without_a_price_and_the_number_of_the_others() -> None:
    async with running(guard={"budgets": [{"scope": "service", "usd": 1.0}]}) as collector:
        for first in range(0, 300, 100):
            some = range(first, first + 100)
            await send(collector, *(chat(f"{at}", (at, 1), model=f"own-{at}", at=at) for at in some))
        found = await budget(collector, service="shop")
    assert len(found["unpriced"]) == len(found["unpriced_here"]) == 20
    assert found["unpriced"][:2] == ["own-299", "own-298"], "those with the most tokens"
    assert found["unpriced_more"] == 300 - 20
    assert status_of(found).to_plain()["unpriced_more"] == 300 - 20


async def test_a_model_of_which_some_calls_name_their_cost_is_named_for_the_others() -> None:
    cost = {"gen_ai.usage.cost": 0.25}
    async with running(guard={"track_spending": True}) as collector:
        await send(collector, chat("x", (7, 3), model="own", extra=cost), chat("y", (20, 1), model="own", at=1))
        assert await metric(collector, "trajectory_guard_spending_cost_total") == {("own",): 0.25}
        assert await metric(collector, "trajectory_guard_spending_unpriced") == {("own",): 21}
        assert await metric(collector, "trajectory_guard_spending_tokens_total") == {("own",): 31}


async def test_no_call_is_lost_for_the_metrics_where_there_are_many_models() -> None:
    """The sums of models that were used longest ago were forgotten: they began again, below what had been counted."""
    async with running(guard={"track_spending": True}) as collector:
        for turn in range(3):
            for first in range(0, 600, 100):
                some = range(first, first + 100)
                await send(collector, *(chat(f"{turn}/{at}", (9, 1), model=f"m{at}", at=at) for at in some))
            found = await metric(collector, "trajectory_guard_spending_tokens_total")
            assert sum(found.values()) == 6_000 * (turn + 1)


async def test_a_collector_that_has_just_begun_knows_maintained_prices(tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    section = {"budgets": [{"scope": "service", "usd": 0.001}], "spending_file": str(tmp_path / "ledger.db")}
    async with running(guard=section) as collector:
        await send(collector, chat("x", (1_000_000, 0), model="gpt-4o"))
    async with running(guard=section) as collector:
        assert (await budget(collector, service="shop"))["level"] == "blocked"


async def test_without_a_section_nothing_is_kept() -> None:
    async with running() as collector:
        await send(collector, chat("x"))
        assert collector.scorer.spending is None
        assert await metric(collector, "trajectory_guard_spending_tokens_total") == {}


async def test_two_collectors_share_a_file(tmp_path: Path) -> None:
    section = budgets(spending_file=str(tmp_path / "ledger.db"))
    async with running(guard=section) as one, running(guard=section) as other:
        await send(one, chat("x", (500, 0)))
        await send(other, chat("y", (400, 0), trace="u"))
        await send(other, chat("x", (500, 0)))  # the sender was not sure that the first one has it
        for collector in (one, other):
            assert (await budget(collector, service="shop"))["of"] == "900 of 1,000 tokens"


@pytest.mark.slow
async def test_a_locked_file_loses_nothing_and_stalls_a_second_at_most_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running(guard=budgets(spending_file=str(path), tokens=100_000)) as collector:
        locking = sqlite3.connect(path, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        for at in range(40):
            await send(collector, chat(f"x{at}", (100, 0), trace=str(at)))
        assert time.monotonic() - began < 10  # 40 busy time-outs would take as long
        assert (await budget(collector, service="shop"))["of"] == "4,000 of 100,000 tokens"  # they count at once
        locking.execute("ROLLBACK")
        spending = collector.scorer.spending
        assert spending is not None
        deadline = time.monotonic() + 30
        while spending._waiting and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert (await budget(collector, service="shop"))["of"] == "4,000 of 100,000 tokens"
        assert (await metric(collector, "trajectory_guard_errors_total"))["spending",] >= 1
    locking.close()


async def test_a_ledger_that_is_damaged_lets_runs_go_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running(guard=budgets(spending_file=str(path))) as collector:
        await send(collector, chat("x", (1000, 0)))
        assert (await budget(collector, service="shop"))["level"] == "blocked"
        for file in tmp_path.glob("ledger.db*"):
            file.write_bytes(b"x" * file.stat().st_size)
        found = await budget(collector, service="shop")
        assert found == {}
        await send(collector, chat("y", (1000, 0), trace="u"))
        app = App(collector)
        assert answer(await app.run(app.agent())).startswith("Done")
        assert app.board.counts["errors.collector"] == 0
        assert (await metric(collector, "trajectory_guard_errors_total"))["spending",] >= 1


async def test_a_collector_without_budgets_is_asked_again_after_a_minute() -> None:
    now = [0.0]
    async with running() as collector:
        remote = RemoteFlags(url(collector), None, 10.0, lambda: None, clock=lambda: now[0])
        assert remote.may_have_budgets
        await asyncio.to_thread(remote.ask, "c", -1, 0, Caller(), "budget")
        assert not remote.may_have_budgets
        now[0] = 60.0
        assert remote.may_have_budgets


def test_the_configuration_in_the_documentation_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (TESTS.parent / "docs" / "spending.md").read_text(encoding="utf-8"), re.DOTALL
    )
    file = tmp_path / "collector.yaml"
    file.write_text(text, encoding="utf-8")
    config = load_config([str(file)], {})
    assert [one.scope for one in config.guard.budgets] == ["service", "trajectory"]
    assert config.receivers.otlp.auth.required


def test_a_level_that_is_read_is_the_level_that_was_sent() -> None:
    from trajectory_guard.spending.answers import plain_status
    from trajectory_guard.spending.budget import Budget, BudgetState
    from trajectory_guard.spending.ledger import Account
    from trajectory_guard.spending.spending import BudgetStatus

    state = BudgetState(
        Budget("service", "usd", 10**7, True, "shop"), Account("service", "shop", "2026-11-22", "eu"), 96 * 10**5
    )
    for status in (BudgetStatus(state.level, state, False, ("m",)), BudgetStatus(BudgetLevel.NORMAL)):
        assert status_of(json.loads(json.dumps(plain_status(status)))) == status
