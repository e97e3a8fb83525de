"""Flags for other processes, through a real collector: over HTTP, and by the gate of a LangGraph agent."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import ValidationError

from tests.collector.backends import Certificates
from tests.collector.kit import loop, request, tool
from tests.collector.service_helpers import running, service_config
from trajectory_guard import FlagBoard, GuardConfig, apply_guard
from trajectory_guard.core.detectors import DetectionResult, Detector, register, unregister
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.steps import Certainty
from trajectory_guard.gates.remote import Caller, RemoteFlags
from trajectory_guard_collector.app.service import Collector


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with running() as one:
        yield one


def url(collector: Collector) -> str:
    return f"http://{collector.endpoints['telemetry']}"


async def send(collector: Collector, *spans: Any, headers: dict[str, str] | None = None) -> None:
    await post(collector, request(*spans), headers)


async def post(collector: Collector, body: bytes, headers: dict[str, str] | None = None) -> None:
    async with httpx.AsyncClient() as client:
        more = {"content-type": "application/x-protobuf", **(headers or {})}
        reply = await client.post(f"http://{collector.endpoints['otlp/http']}/v1/traces", content=body, headers=more)
        assert reply.status_code == 200, reply.text


async def flag(collector: Collector, name: str, **query: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=10) as client:
        reply = await client.get(f"{url(collector)}/v1/flags/{name}", params=query)
        assert reply.status_code == 200
        return dict(reply.json())


async def test_a_flag_says_what_is_due_and_why(collector: Collector) -> None:
    assert (await flag(collector, "c"))["known"] is False
    await send(collector, *loop(3))
    answer = await flag(collector, "c")
    assert answer["level"] == "NUDGE"
    assert answer["nudge"].startswith("[Trajectory guard] ")
    assert "search" in answer["nudge"]
    assert (answer["trajectory_id"], answer["step"], answer["steps"], answer["nudges"]) == ("c", 2, 3, 1)
    assert answer["types"] == ["TYPE_I_STUTTER"]


async def test_a_client_that_has_not_nudged_yet_gets_the_nudge_before_the_stop(collector: Collector) -> None:
    await send(collector, *loop(5))
    assert (await flag(collector, "c"))["level"] == "STOP"
    nudge = await flag(collector, "c", after=-1)
    assert nudge["level"] == "NUDGE"
    stop = await flag(collector, "c", after=nudge["step"])
    assert stop["level"] == "STOP"
    assert (await flag(collector, "c", after=stop["step"]))["level"] == "OBSERVE"


async def test_a_recovered_agent_may_go_on(collector: Collector) -> None:
    await send(collector, *loop(3))
    await send(collector, *(tool(f"f{at}", {"q": at}, f"answer {at}", at=10 + at) for at in range(4)))
    assert (await flag(collector, "c"))["level"] == "OBSERVE"


@pytest.mark.parametrize("late", [tool("s", {"q": 1}, "a new answer", at=1.5), tool("s", {}, "another", at=0.5)])
async def test_a_finding_that_a_late_step_retracts_leaves_no_flag(collector: Collector, late: Any) -> None:
    await send(collector, *loop(3))
    assert (await flag(collector, "c"))["level"] == "NUDGE"
    await send(collector, late)
    found = await flag(collector, "c")
    assert (found["level"], found["nudges"], found["steps"]) == ("OBSERVE", 0, 4)


@pytest.mark.parametrize(
    "mode, levels", [("enforce", ["NUDGE", "STOP"]), ("nudge", ["NUDGE", "OBSERVE"]), ("observe", ["OBSERVE"] * 2)]
)
async def test_flags_allow_what_the_mode_allows(mode: str, levels: list[str]) -> None:
    async with running(guard={"mode": mode}) as collector:
        await send(collector, *loop(5))
        first = await flag(collector, "c", after=-1)
        second = await flag(collector, "c", after=first.get("step", -1))
        assert [first["level"], second["level"]] == levels
        assert (first["score"], first["nudges"]) == (5.0, 1)
        assert (await flag(collector, "c"))["level"] == {"enforce": "STOP", "nudge": "NUDGE"}.get(mode, "OBSERVE")


async def test_other_names_and_names_with_slashes_are_found(collector: Collector) -> None:
    spans = loop(3, conversation="team/7")
    await send(collector, *spans)
    assert (await flag(collector, "team/7"))["level"] == "NUDGE"
    assert (await flag(collector, spans[0].trace_id.hex()))["trajectory_id"] == "team/7"


async def test_equal_ids_of_tenants_are_distinguished_by_the_caller_and_else_find_none(collector: Collector) -> None:
    for tenant, steps in (("eu", 3), ("us", 2)):
        body = request(*loop(steps, prefix=tenant, trace=tenant), resource={"service.namespace": tenant})
        await post(collector, body)
    found = [await flag(collector, "c", **{"resource.service.namespace": one}) for one in ("eu", "us", "asia")]
    assert [(one["known"], one["level"]) for one in found] == [(True, "NUDGE"), (True, "OBSERVE"), (False, "OBSERVE")]
    assert (await flag(collector, "c"))["known"] is False


async def test_a_span_that_is_its_own_parent_is_a_root(collector: Collector) -> None:
    spans = loop(3)
    for one in spans:
        one.parent_span_id = one.span_id
    await send(collector, *spans)
    assert (await flag(collector, "c"))["level"] == "NUDGE"


async def test_the_loop_of_one_tenant_is_no_flag_for_another(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """The gate of a healthy agent asks before its first spans have arrived; its conversation is called like another."""
    spans = loop(3, trace="eu")
    await post(collector, request(*spans, resource={"service.namespace": "eu"}))
    for tenant in ("us", ""):
        assert (await flag(collector, "c", **{"resource.service.namespace": tenant}))["known"] is False
        assert f"a gate of tenant {tenant!r} asked for a trajectory of another tenant" in caplog.text
    for tenant in ({}, {"resource.service.namespace": "eu"}):
        assert (await flag(collector, "c", **tenant))["level"] == "NUDGE"
    trace = spans[0].trace_id.hex()  # is nobody else's
    assert (await flag(collector, trace, **{"resource.service.namespace": ""}))["level"] == "NUDGE"


@pytest.mark.parametrize("name", ["two\nlines", "ends\n", "\nbegins", "a\r\nb/c\u2028d", "50%?#;&="])
async def test_names_with_line_breaks_and_signs_are_found(collector: Collector, name: str) -> None:
    await send(collector, *loop(3, conversation=name))
    found = await flag(collector, quote(name, safe=""))
    assert (found["trajectory_id"], found["level"]) == (name, "NUDGE")


async def test_a_step_that_is_not_a_number_is_refused(collector: Collector) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url(collector)}/v1/flags/c", params={"after": "x"})).status_code == 400


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("aftr=2", "unknown query parameter 'aftr' (did you mean 'after'?)"),
        ("after=2&only_agnt=a", "unknown query parameter 'only_agnt' (did you mean 'only_agent'?)"),
        ("x", "unknown query parameter 'x'; known: after, by_hand, only_agent, service, agent, resource.<key>"),
    ],
)
async def test_a_mistyped_parameter_is_refused(collector: Collector, query: str, named: str) -> None:
    """``?aftr=2`` asked for the intervention that is due now: one that was acted on came again."""
    await send(collector, *loop(3))
    async with httpx.AsyncClient() as client:
        reply = await client.get(f"{url(collector)}/v1/flags/c?{query}")
        assert (reply.status_code, reply.json()["error"][: len(named)]) == (400, named)
        known = "after=-1&by_hand=0&only_agent=&service=shop&agent=&resource.team=a"
        assert (await client.get(f"{url(collector)}/v1/flags/c?{known}")).status_code == 200


async def test_flags_need_the_token_of_the_receiver_and_probes_need_none() -> None:
    async with running(auth={"bearer_tokens": ["secret"]}) as collector, httpx.AsyncClient() as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert (await client.get(f"{url(collector)}/v1/flags/c", headers=headers)).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert (await client.get(f"{url(collector)}/v1/flags/c", headers=headers)).status_code == 200
        assert (await client.get(f"{url(collector)}/readyz")).status_code == 200


async def test_requests_for_flags_without_a_known_token_are_counted() -> None:
    """Gates with a wrong token go on unguarded, and nobody else sees it."""
    auth = {"bearer_tokens": ["agents"]}
    async with running(auth=auth, flags={"auth": {"bearer_tokens": ["people"]}}) as collector:
        async with httpx.AsyncClient() as client:
            for method, token in (
                ("GET", "wrong"),
                ("GET", ""),
                ("POST", "agents"),
                ("DELETE", "wrong"),
                ("GET", "agents"),
            ):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                await client.request(method, f"{url(collector)}/v1/flags/c", headers=headers)
        value = collector.metrics.registry.get_sample_value
        name = "trajectory_guard_flag_requests_total"
        assert (value(name, {"status": "401"}), value(name, {"status": "200"})) == (4.0, 1.0)


async def test_flags_are_served_by_a_collector_that_receives_over_grpc_only() -> None:
    receivers = {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}}
    async with running(receivers=receivers) as collector:
        assert (await flag(collector, "c"))["known"] is False


async def test_the_port_of_the_receiver_serves_no_flags(collector: Collector) -> None:
    async with httpx.AsyncClient() as client:
        reply = await client.get(f"http://{collector.endpoints['otlp/http']}/v1/flags/c")
        assert reply.status_code == 404


async def test_flags_are_served_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = {"cert_file": str(certificates.cert), "key_file": str(certificates.key)}
    async with running(telemetry={"endpoint": "127.0.0.1:0", "tls": tls}) as collector:
        trusting = ssl.create_default_context(cafile=str(certificates.ca))
        async with httpx.AsyncClient(verify=trusting) as client:
            address = f"https://{collector.endpoints['telemetry']}/v1/flags/c"
            assert (await client.get(address)).json()["known"] is False


def test_flags_that_no_port_serves_are_an_error_that_names_both_keys() -> None:
    with pytest.raises(ValidationError, match=r"flags\.enabled\n.*telemetry\.endpoint"):
        service_config(telemetry={"endpoint": None})
    assert service_config(telemetry={"endpoint": None}, flags={"enabled": False})


async def test_flags_can_be_switched_off() -> None:
    async with running(flags={"enabled": False}) as collector, httpx.AsyncClient() as client:
        assert (await client.get(f"{url(collector)}/v1/flags/c")).status_code == 404


# --- the gate ------------------------------------------------------------------------------------------------


def agent(config: GuardConfig, rounds: int) -> Any:
    """An agent that asks something new in every round: alone it is healthy."""

    def look(q: int) -> str:
        """Look something up."""
        return f"answer {q}"

    def model(state: MessagesState) -> dict[str, Any]:
        asked = sum(isinstance(message, AIMessage) for message in state["messages"])
        if asked >= rounds:
            return {"messages": [AIMessage("done")]}
        call = {"name": "look", "args": {"q": asked}, "id": f"call-{asked}", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", model)
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    apply_guard(builder, config, board=FlagBoard(config))
    return builder.compile()


def guarded(collector: Collector | str, **more: Any) -> GuardConfig:
    more = {"collector_timeout_s": 10.0, **more}
    return GuardConfig(collector_url=collector if isinstance(collector, str) else url(collector), **more)


async def test_an_agent_is_nudged_then_stopped_by_what_other_processes_did(collector: Collector) -> None:
    """Its own calls are fine; the loop is between services, and only the collector sees it."""
    await send(collector, *loop(6, conversation="shared"))
    graph = agent(guarded(collector), rounds=8)
    config = {"configurable": {"thread_id": "shared"}}
    result = await graph.ainvoke({"messages": [HumanMessage("go")]}, config, output_keys=["messages", "loop_status"])
    said = [message for message in result["messages"] if isinstance(message, HumanMessage)]
    assert len(said) == 2  # the question and one nudge
    assert "search" in said[1].content
    assert result["loop_status"]["status"] == "stopped"
    assert result["messages"][-1].content.startswith("I could not")


async def test_an_agent_nobody_complains_of_runs_to_its_end(collector: Collector) -> None:
    await send(collector, *loop(6, conversation="other"))
    graph = agent(guarded(collector), rounds=4)
    config = {"configurable": {"thread_id": "mine"}}
    result = await asyncio.to_thread(graph.invoke, {"messages": [HumanMessage("go")]}, config)
    assert result["messages"][-1].content == "done"


async def test_asking_leaves_no_spans_where_the_application_instruments_its_requests(collector: Collector) -> None:
    pytest.importorskip("opentelemetry.instrumentation.urllib")
    from opentelemetry.instrumentation.urllib import URLLibInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await send(collector, *loop(3, conversation="mine"))
    URLLibInstrumentor().instrument(tracer_provider=provider)
    try:
        graph = agent(guarded(collector), rounds=3)
        config = {"configurable": {"thread_id": "mine"}}
        result = await asyncio.to_thread(graph.invoke, {"messages": [HumanMessage("go")]}, config)
    finally:
        URLLibInstrumentor().uninstrument()
    assert sum(isinstance(message, HumanMessage) for message in result["messages"]) == 2  # the collector was asked
    assert exporter.get_finished_spans() == ()


async def test_a_wrong_token_means_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with running(auth={"bearer_tokens": ["secret"]}) as collector:
        await send(collector, *loop(6, conversation="shared"), headers={"Authorization": "Bearer secret"})
        for token, last in (("wrong", "done"), ("secret", "I could not")):
            graph = agent(guarded(collector, collector_token=token), rounds=8)
            config = {"configurable": {"thread_id": "shared"}}
            result = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
            assert result["messages"][-1].content.startswith(last)
    assert sum("no flags from" in record.message for record in caplog.records) == 1


async def test_a_collector_that_does_not_answer_costs_one_timeout() -> None:
    asked: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        graph = agent(guarded(f"http://127.0.0.1:{port}", collector_timeout_s=0.2), rounds=6)
        result = await graph.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})
        assert result["messages"][-1].content == "done"
        assert len(asked) == 1


async def test_a_nudge_given_in_process_is_not_given_again(collector: Collector) -> None:
    """The collector sees the same spans later and asks for the same nudge."""
    from trajectory_guard.board.flags import Flag
    from trajectory_guard.core.policy import Level
    from trajectory_guard.gates.gate import Gate

    await send(collector, *loop(3))
    config = guarded(collector)
    gate = Gate(config, board=FlagBoard(config))
    nothing = Flag(Level.OBSERVE, None, 0.0, 0, 0)
    asked = await asyncio.to_thread(gate._with_remote, "c", "", nothing, {"nudges_given": 0})
    again = await asyncio.to_thread(gate._with_remote, "c", "", nothing, {"nudges_given": 1})
    assert asked.level is Level.NUDGE
    assert again is nothing


class Undo(Detector):
    """A detector of the user's own, with a loop type of its own."""

    name, loop_type, weight, rules = "undo", "TYPE_X_UNDO", 2.0, ("undoes",)
    recommendation = "Keep what the first call has done."

    def update(self, seen: Observation) -> DetectionResult | None:
        return self.found(seen, 1.0, "undoes", count=2, steps=(0, seen.index)) if seen.tool == "look_back" else None


PENDING = '{"status": "pending"}'


@pytest.mark.parametrize(
    ("spans", "certainty", "rule"),
    [
        (loop(3), Certainty.CERTAIN, "same_call_same_result"),
        ([tool(f"p{at}", {"id": 7}, PENDING, at=1.0 * at) for at in range(40)], Certainty.WAITING, None),
        ([tool(f"u{at}", {"q": at}, f"undone {at}", tool_name="look_back", at=at) for at in range(4)], None, "undoes"),
    ],
    ids=["certain", "waiting", "a type of one's own"],
)
async def test_a_flag_arrives_as_the_collector_raised_it(
    spans: list[Any], certainty: Certainty | None, rule: str | None
) -> None:
    register(Undo)
    try:
        async with running() as collector:
            await send(collector, *spans)
            sent = await flag(collector, "c")
            asked = RemoteFlags(url(collector), None, 10.0, lambda: None)
            answer = await asyncio.to_thread(asked.ask, "c", -1, 0, Caller())
    finally:
        unregister("undo")
    assert sent["level"] != "OBSERVE"
    assert rule is None or sent["rule"] == rule
    assert certainty is None or sent["certainty"] == str(certainty)
    assert answer is not None
    assert answer.flag is not None
    verdict = answer.flag.verdict
    assert verdict is not None
    assert (verdict.types, verdict.rule, str(verdict.certainty)) == (sent["types"], sent["rule"], sent["certainty"])


async def test_a_stop_by_a_detector_of_ones_own_names_its_type_and_advice() -> None:
    register(Undo)
    try:
        async with running() as collector:
            undone = [
                tool(f"u{at}", {"q": at}, "The draft has 4 pages.", tool_name="look_back", at=at) for at in range(14)
            ]
            await send(collector, *undone)
            assert (await flag(collector, "c"))["level"] == "STOP"
            graph = agent(guarded(collector), rounds=8)
            result = await graph.ainvoke(
                {"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "c"}}, output_keys=["loop_status"]
            )
    finally:
        unregister("undo")
    stop = result["loop_status"]["stop"]
    assert "TYPE_X_UNDO" in json.dumps(stop)
    assert (stop["rule"], stop["recommendation"]) == ("undoes", Undo.recommendation)
