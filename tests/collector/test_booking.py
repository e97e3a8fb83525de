"""Model calls in the collector's ledger: the same sums as in process, whatever the order in which spans arrive."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from tests.collector.in_process import _ends, _Ids, _start
from tests.collector.kit import START_NS, capture_request, loop, new_scorer, request, singles, span, split, tool
from tests.helpers import capture_names, one_in
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Engine
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending import sqlite
from trajectory_guard.spending.ledger import Account, Balance, Change, ModelSum
from trajectory_guard.spending.spending import Spending, today
from trajectory_guard.spending.stores import MemoryStore
from trajectory_guard_collector.config.models import Trajectories
from trajectory_guard_collector.cooperative import at_once
from trajectory_guard_collector.scoring import booking
from trajectory_guard_collector.scoring.booking import BookedOperations, Bookings
from trajectory_guard_collector.scoring.identification import Identifier
from trajectory_guard_collector.scoring.item_codec import dialects_by_name
from trajectory_guard_collector.scoring.operations import Operation, OperationLog, apply
from trajectory_guard_collector.scoring.parser import RequestParser, view_of
from trajectory_guard_collector.scoring.registry import TrajectoryRegistry
from trajectory_guard_collector.scoring.scorer import RequestScorer
from trajectory_guard_collector.telemetry.metrics import Metrics, ScoringCounts

TRACKED = GuardConfig(track_spending=True)
DAY = "2023-11-14"


def chat(
    name: str, tokens: tuple[int, int] = (1000, 100), *, model: str = "large", extra: dict[str, Any] | None = None,
    **fields: Any,
) -> Span:  # fmt: skip
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1], **(extra or {}),
    }  # fmt: skip
    return span(name, attributes, span_name="chat", **fields)


def agent(name: str, agent_name: str, conversation: str | None = "c", **fields: Any) -> Span:
    named = {"gen_ai.conversation.id": conversation} if conversation is not None else {}
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent_name, **named}
    return span(name, attributes, span_name=f"invoke_agent {agent_name}", **fields)


def ledger(scorer: RequestScorer) -> dict[Account, dict[str, ModelSum]]:
    """Everything that is booked."""
    assert scorer.spending is not None
    return sums_in(scorer.spending)


def sums_in(spending: Spending) -> dict[Account, dict[str, ModelSum]]:
    store: Any = spending.store
    tables = (store._trajectories, store._others)
    return {account: sums for table in tables for account, sums in table.items() if sums}


def all_views(data: bytes) -> list[SpanView]:
    """Every span of a request, also those that are no agent's."""
    return [
        view_of(one, scoped.scope, {})
        for group in ExportTraceServiceRequest.FromString(data).resource_spans
        for scoped in group.scope_spans for one in scoped.spans
    ]  # fmt: skip


def booked(requests: Iterable[bytes], config: GuardConfig = TRACKED) -> RequestScorer:
    scorer = new_scorer(config)
    for data in requests:
        scorer.score(data)
    return scorer


def balance(scorer: RequestScorer, scope: str, name: str = "", day: str = "", tenant: str = "") -> Balance:
    assert scorer.spending is not None
    return scorer.spending.balance(Account(scope, name, day, tenant))


# --- the same as in process ------------------------------------------------------------------------------------------


def sums_in_process(found: Sequence[SpanView], service: str) -> dict[Account, dict[str, ModelSum]]:
    """The ledger of a process in which these spans start and end in the order of their times."""
    board, ids = FlagBoard(TRACKED), _Ids()
    provider = TracerProvider(
        id_generator=ids, shutdown_on_exit=False, resource=Resource({"service.name": service} if service else {})
    )
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=TracerProvider()))
    depth = {one.span_id: 0 for one in found}
    by_id = {one.span_id: one for one in found}
    for one in found:
        above = one
        while above.parent_id in by_id:
            depth[one.span_id] += 1
            above = by_id[above.parent_id]
    ends = _ends(found, depth)
    events = [(one.start, 0, depth[one.span_id], one) for one in found]
    events += [(ends[one.span_id], 1, -depth[one.span_id], one) for one in found]
    live: dict[str, Any] = {}
    for _, is_end, _, one in sorted(events, key=lambda event: (*event[:3], event[3].span_id)):
        if is_end:
            live[one.span_id].end(round(max(one.start, one.end) * 1e9))
        else:
            live[one.span_id] = _start(provider, ids, one)
    assert board.spending is not None
    return sums_in(board.spending)


MODELS = ("large", "small")
SCOPES = ("langchain", "openai", "httpx")


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[Span, str]]:
    """Traces of agents whose model calls one, two or three instrumentations report, with their scopes."""
    found: list[tuple[Span, str]] = []
    for trace in range(draw(st.integers(1, 2))):
        conversation = draw(st.sampled_from(["c", "d", None]))
        root = f"{trace}/root"
        found.append((agent(root, "planner", conversation, trace=str(trace), at=0, dur=100), "app"))
        for number in range(draw(st.integers(1, 4))):
            parent, at = root, 1.0 + 20 * number
            if draw(st.booleans()):
                parent = f"{trace}/agent{number}"
                worker = agent(parent, "worker", None, trace=str(trace), at=at, dur=15, parent=root)
                found.append((worker, "app"))
            for place in range(draw(st.integers(1, 3))):
                start = at + 1 + draw(st.sampled_from([0.0, 0.5, 3.0])) * place
                above, tokens = parent, draw(st.sampled_from([(1000, 100), (10, 5)]))
                for depth in range(draw(st.integers(1, 3))):  # each instrumentation wraps the next one
                    name = f"{trace}/{number}/{place}/{depth}"
                    extra = draw(
                        st.sampled_from([{}, {"gen_ai.response.id": f"{number}"}, {"gen_ai.usage.cost": 0.25}])
                    )
                    shown = draw(st.sampled_from([tokens, (tokens[0] + 1, tokens[1]), (0, 0)]))
                    one = chat(
                        name, shown, model=draw(st.sampled_from(MODELS)), extra=extra, trace=str(trace), parent=above,
                        at=start + depth / 16, dur=2 - depth / 8,
                    )  # fmt: skip
                    found.append((one, SCOPES[depth]))
                    above = name
    return found


@given(spans=runs(), seed=st.integers(0, 2**32))
def test_sums_are_those_of_a_process_whatever_the_order(spans: list[tuple[Span, str]], seed: int) -> None:
    requests = [request(one, service="shop", scope=scope) for one, scope in spans]
    expected = sums_in_process([view for data in requests for view in all_views(data)], "shop")
    chance = random.Random(seed)
    chance.shuffle(requests)
    sizes = [chance.randrange(1, 5) for _ in requests]

    scorer = booked(split(requests, sizes))
    assert ledger(scorer) == expected
    for data in chance.sample(requests, len(requests)):
        scorer.score(data)  # delivered again
    assert ledger(scorer) == expected


@pytest.mark.parametrize("name", one_in(4, capture_names()))
def test_sums_of_recorded_spans_are_those_of_a_process(name: str) -> None:
    requests = singles(capture_request(name))
    expected = sums_in_process([view for data in requests for view in all_views(data)], "")
    for order in (requests, requests[::-1], [b"".join(requests)]):
        found = ledger(booked(order))
        assert {account: sums for account, sums in found.items() if account.scope != "service"} == expected


# --- one case each -----------------------------------------------------------------------------------------------


def test_a_request_is_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, transactions = new_scorer(TRACKED), list[int]()
    assert scorer.spending is not None
    add_all = scorer.spending.store.add_all

    def counted(changes: Sequence[Change]) -> list[int]:
        transactions.append(len(changes))
        return add_all(changes)

    monkeypatch.setattr(scorer.spending.store, "add_all", counted)
    scorer.score(request(*(chat(f"x{at}", at=at) for at in range(20))))
    assert transactions == [20]
    scorer.score(request(*(tool(f"t{at}", at=at, conversation=None) for at in range(20))))
    assert transactions == [20]  # no model call, no transaction
    scorer.score(request(agent("a", "planner")))
    assert transactions == [20, 20]  # their conversation is known now


def test_the_outer_report_of_a_call_gives_way_to_the_inner_one_that_arrives_later() -> None:
    scorer = booked([request(chat("outer", (1000, 100), at=0, dur=4), scope="langchain")])
    scorer.score(request(chat("inner", (990, 90), at=1, dur=2, parent="outer", model="small"), scope="openai"))
    assert balance(scorer, "service", "app").tokens == 1080
    assert balance(scorer, "day", day=DAY).calls == 1
    assert scorer.spending is not None
    assert scorer.spending.counts["spending.duplicates"] == 1


def test_an_inner_report_without_tokens_does_not_hide_the_outer_one_that_has_them() -> None:
    outer = request(chat("outer", (1000, 100), at=0, dur=4), scope="langchain")
    inner = request(chat("inner", (0, 0), at=1, dur=2, parent="outer"), scope="openai")
    for order in ([outer, inner], [inner, outer], [inner + outer]):
        assert balance(booked(order), "day", day=DAY).tokens == 1100


def test_a_later_report_that_separates_two_brings_the_second_one_back() -> None:
    """B is a second report of A, until C turns out to be the first report of A: then B is a call of its own."""
    first = chat("a", (100, 0), at=1, dur=4, extra={"gen_ai.response.id": "1"})
    second = chat("b", (100, 0), at=0, dur=6)
    earlier = chat("c", (7, 7), at=2, dur=1, extra={"gen_ai.response.id": "1"})
    scorer = booked([request(first, scope="A"), request(second, scope="B")])
    assert balance(scorer, "day", day=DAY).calls == 1
    scorer.score(request(earlier, scope="C"))
    assert balance(scorer, "day", day=DAY).calls == 2


def test_a_parent_in_another_service_names_the_agent() -> None:
    scorer = booked([request(chat("x", parent="hop", at=2, dur=1), service="models")])
    assert balance(scorer, "agent", "planner").calls == 0
    scorer.score(request(span("hop", {"http.route": "/chat"}, parent="a", at=1, dur=3), service="gateway"))
    scorer.score(request(agent("a", "planner", at=0, dur=9), service="planner"))
    assert balance(scorer, "agent", "planner").calls == 1
    assert balance(scorer, "trajectory", "c").calls == 1
    assert balance(scorer, "service", "models").calls == 1


def test_a_sibling_names_the_conversation() -> None:
    trace = chat("x", trace="t").trace_id.hex()
    scorer = booked([request(chat("x", trace="t")), request(chat("y", trace="t", at=1))])
    assert balance(scorer, "trajectory", trace).calls == 2
    scorer.score(request(tool("z", trace="t", at=2)))
    assert balance(scorer, "trajectory", trace).calls == 0
    assert balance(scorer, "trajectory", "c").calls == 2
    assert balance(scorer, "day", day=DAY).calls == 2


@pytest.mark.parametrize("conversation", ["c", None])
def test_a_long_run_whose_agent_span_ends_last_is_booked_to_the_agent(conversation: str | None) -> None:
    """Its first calls can no longer be put in order by then; what is booked can still be revised."""
    spans = [chat(f"x{at}", at=1 + at, parent="a") for at in range(600)]
    spans.append(agent("a", "planner", conversation, dur=700))
    requests = [request(one, service="shop") for one in spans]
    assert ledger(booked(requests)) == sums_in_process([view for data in requests for view in all_views(data)], "shop")


def test_a_long_run_whose_conversation_is_named_late_by_a_sibling_moves_as_a_whole() -> None:
    requests = [request(chat(f"x{at}", at=at, trace="t")) for at in range(600)]
    scorer = booked([*requests, request(tool("z", trace="t", at=700))])
    assert balance(scorer, "trajectory", "c").calls == 600
    assert balance(scorer, "trajectory", chat("x", trace="t").trace_id.hex()).calls == 0


def test_calls_that_wait_for_a_span_that_never_comes_are_bounded() -> None:
    scorer = new_scorer(TRACKED, max_spans_per_trace=64, reorder_steps=32)
    for at in range(600):
        scorer.score(request(chat(f"x{at}", at=at, trace="t", parent="never")))
    trace = scorer.identifier.traces.find(chat("x", trace="t").trace_id)
    assert trace is not None
    assert sum(map(len, trace.waiting.values())) <= 2 * 64
    assert len(trace.by_trace) <= 64
    assert balance(scorer, "day", day=DAY).calls == 600


def test_equal_names_of_two_tenants_are_two_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "KEEP_DAYS", 100 * 365)  # the spans are of 2023
    scorer = new_scorer(GuardConfig(spending_file=str(tmp_path / "ledger.db")))
    for tenant in ("eu", "us", ""):
        data = request(chat(f"x{tenant}", trace=tenant or "-"), resource={"service.namespace": tenant})
        scorer.score(data)
    for tenant in ("eu", "us", ""):
        assert balance(scorer, "service", "app", tenant=tenant).calls == 1
        assert balance(scorer, "day", day=DAY, tenant=tenant).calls == 1
    assert balance(scorer, "service", "\x1f2\x1feuapp").calls == 0  # the form in the file, which a service may have too


def test_a_resource_without_a_service_has_no_account() -> None:
    message = ExportTraceServiceRequest.FromString(request(chat("x")))
    message.resource_spans[0].resource.Clear()
    scorer = booked([message.SerializeToString()])
    assert {account.scope for account in ledger(scorer)} == {"trajectory", "day"}


def test_calls_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booking, "MAX_CALLS", 300)
    scorer = new_scorer(TRACKED)
    for number in range(10):
        scorer.score(request(*(chat(f"{number}/{at}", at=at, trace=str(number)) for at in range(150))))
    bookings = scorer._bookings
    assert bookings is not None
    assert sum(len(trace.entries) for trace in bookings._traces.values()) == bookings._calls <= 300
    scorer.shed()
    assert sum(len(trace.entries) for trace in bookings._traces.values()) == bookings._calls
    assert balance(scorer, "day", day=DAY).calls == 1500


def test_the_ledger_fails_and_the_spans_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = new_scorer(TRACKED)
    monkeypatch.setattr(scorer.spending, "book_all", lambda changes: 1 / 0)
    scored = scorer.score(request(chat("x"), *loop(3, start=1)))
    assert any(event.kind.value == "nudge" for event in scored.events)
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "spending"}
        )
        == 1
    )


# --- identification here, trajectories elsewhere -------------------------------------------------------------------


class Worker:
    """A process that holds some of the trajectories, and books their model calls in a ledger that all share."""

    def __init__(self, spending: Spending) -> None:
        counts = ScoringCounts(Metrics())
        self.registry = TrajectoryRegistry(Engine(TRACKED.engine_settings()), TRACKED, Trajectories(), counts)
        self.bookings = Bookings(spending, counts)
        self.operations = BookedOperations(self.registry, self.bookings)

    def carry_out(self, operation: bytes) -> None:
        apply(Operation.from_bytes(operation), self.operations, dialects_by_name(DIALECTS))
        at_once(self.bookings.committing())


@given(spans=runs(), seed=st.integers(0, 2**32))
def test_workers_that_share_a_ledger_book_the_same_sums(spans: list[tuple[Span, str]], seed: int) -> None:
    chance = random.Random(seed)
    requests = [request(one, service="shop", scope=scope) for one, scope in spans]
    chance.shuffle(requests)
    log, spending = OperationLog(), Spending(MemoryStore())
    identifier = Identifier(DIALECTS, TRACKED, Trajectories(), log, ScoringCounts(Metrics()), reads_calls=True)
    for data in requests:
        at_once(identifier.identifying(RequestParser(DIALECTS).read(data)))
    queues: dict[Any, list[bytes]] = {}
    for one in log.take():
        queues.setdefault(one.key, []).append(one.to_bytes())
    workers = {key: Worker(spending) for key in queues}
    while queues:  # the operations of one trajectory keep their order, those of different ones are mixed
        key = chance.choice(sorted(queues))
        data = queues[key].pop(0)
        for _ in range(chance.randrange(1, 3)):
            workers[key].carry_out(data)  # at least once
        queues = {key: rest for key, rest in queues.items() if rest}

    assert sums_in(spending) == ledger(booked(requests))


@pytest.mark.parametrize(
    "end_s", [0, 86_400, time.time() + 2 * 86_400, 4e9], ids=["not set", "1970", "the day after tomorrow", "2096"]
)
def test_a_call_whose_clock_is_wrong_counts_in_the_budget_of_today(end_s: float) -> None:
    one = chat("call")
    one.start_time_unix_nano = one.end_time_unix_nano = int(end_s * 1e9)
    before = today(time.time())
    scorer = booked([request(one)])
    days = {day: balance(scorer, "day", day=day).calls for day in (before, today(time.time()), today(end_s))}
    assert days.pop(today(end_s), 0) == 0
    assert sum(days.values()) == 1


def test_a_call_that_arrives_days_late_counts_on_its_own_day() -> None:
    ended = time.time() - 3 * 86_400
    one = chat("call", at=ended - START_NS / 1e9, dur=0.0)
    assert balance(booked([request(one)]), "day", day=today(ended)).calls == 1
