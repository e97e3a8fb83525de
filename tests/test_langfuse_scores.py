"""Scores in Langfuse: which ones, when, and what arrives from a guarded process at a strict server over real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from tests.helpers import PACKAGE, evaluate, record
from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Form, Langfuse, Reply, langfuse
from trajectory_guard import telemetry
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.gates.gate import Gate
from trajectory_guard.integrations.langfuse.reporter import LangfuseReporter, reporter_of
from trajectory_guard.integrations.langfuse.scores import (
    HEALTH,
    LOOP,
    LangfuseScore,
    ScoreBook,
    Stage,
    environment_of,
    session_of,
)
from trajectory_guard.otel.processor import TrajectoryGuardProcessor

TRACE = "a" * 32
START = 1_700_000_000.0
HOURS = "We are closed on Mondays and open from Tuesday to Sunday."


def verdicts(repeats: int = 5, fresh: int = 5) -> list[Verdict]:
    """A loop of ``repeats`` equal calls, and ``fresh`` calls that bring something new."""
    steps = [record("search", {"q": 1}, HOURS, t=START + at) for at in range(repeats)]
    steps += [record("read", {"page": at}, f"page {at}", t=START + 100 + at) for at in range(fresh)]
    return [verdict for verdict in evaluate(steps) if verdict is not None]


def changes(
    found: list[Verdict], book: ScoreBook | None = None, trace_id: str | None = TRACE, session_id: str | None = "t",
    **more: Any,
) -> list[LangfuseScore]:  # fmt: skip
    book = book or ScoreBook(100)
    return [score for verdict in found for score in book.changes(verdict, trace_id, session_id, **more)]


# --- which scores --------------------------------------------------------------------------------------------


def test_a_loop_is_reported_at_nudge_stop_and_recovery_and_not_per_step() -> None:
    scores = changes(verdicts(repeats=8), ScoreBook(9))
    reported = [(score.metadata["intervention"], score.name) for score in scores if score.trace_id]
    assert reported == [("NUDGE", HEALTH), ("NUDGE", LOOP), ("STOP", HEALTH), ("STOP", LOOP), ("RECOVERED", HEALTH)]


def weak_loop() -> list[Verdict]:
    """A result that names no state: likely evidence, with a second nudge before any stop."""
    steps = [record("search", {"q": "x"}, "nothing", t=START + at) for at in range(7)]
    return [verdict for verdict in evaluate(steps) if verdict is not None]


def test_each_nudge_is_written_with_the_health_of_its_step() -> None:
    nudges = [verdict for verdict in weak_loop() if verdict.nudge is not None]
    assert [(one.step_index, one.health) for one in nudges] == [(2, 0.4), (5, 0.0)]
    written = changes(weak_loop())
    assert [(one.value, one.metadata["nudges"]) for one in written if one.name == HEALTH and one.trace_id] == [
        (0.4, 1),
        (0.0, 2),
    ]
    assert {one.id for one in written[:4]} == {one.id for one in written[4:]}


def test_a_nudge_that_is_reported_again_or_late_is_no_change() -> None:
    first, second = (verdict for verdict in weak_loop() if verdict.nudge is not None)
    book = ScoreBook(9)
    assert [len(changes([one], book)) for one in (first, first, second, second, first)] == [4, 0, 4, 0, 0]


def test_a_further_nudge_in_another_trace_is_written_to_it_and_to_the_session() -> None:
    first, second = (verdict for verdict in weak_loop() if verdict.nudge is not None)
    book = ScoreBook(9)
    changes([first], book)
    written = changes([second], book, trace_id="b" * 32)
    assert {(one.trace_id, one.session_id) for one in written} == {("b" * 32, None), (None, "t")}


def test_values_follow_the_verdict_and_a_detected_loop_stays_detected() -> None:
    by_stage = {(score.metadata["intervention"], score.name): score for score in changes(verdicts())}
    health = [by_stage[stage, HEALTH].value for stage in ("NUDGE", "STOP", "RECOVERED")]
    assert health == [0.4, 0.0, 0.75]
    assert {by_stage[stage, LOOP].value for stage in ("NUDGE", "STOP")} == {1.0}
    assert {(score.name, score.data_type) for score in by_stage.values()} == {(HEALTH, "NUMERIC"), (LOOP, "BOOLEAN")}


def test_a_healthy_run_and_a_weak_signal_write_nothing() -> None:
    assert changes(verdicts(repeats=1)) == []
    weak = [one for one in verdicts(repeats=2) if one.detections]
    assert weak
    assert changes(weak) == []


def test_id_and_timestamp_are_those_of_the_episode_whatever_is_written() -> None:
    scores = changes(verdicts())
    assert len({score.id for score in scores if score.name == HEALTH and score.trace_id}) == 1
    assert {score.timestamp for score in scores} == {START + 1}, "the step with which the episode began"
    assert len({score.id for score in scores}) == 4


def test_another_episode_another_trace_and_another_name_have_other_ids() -> None:
    first = verdicts(3, 0)
    second = [one._replace(episode=2, episode_start_s=one.episode_start_s + 10) for one in first]
    ids = [{score.id for score in changes(first)}, {score.id for score in changes(second)}]
    ids.append({score.id for score in changes(first, trace_id="b" * 32) if score.trace_id})
    assert [len(some) for some in ids] == [4, 4, 2], "two names for a trace and a session"
    assert len(set.union(*ids)) == 10


def test_who_has_forgotten_everything_writes_the_same_scores() -> None:
    assert changes(verdicts(), ScoreBook(1)) == changes(verdicts(), ScoreBook(1))


def test_the_same_event_twice_is_no_change() -> None:
    book = ScoreBook(9)
    assert changes(verdicts(), book)
    assert changes(verdicts(), book) == []


def test_a_conversation_is_told_to_its_session_and_every_trace_hears_of_its_recovery() -> None:
    book, found = ScoreBook(9), verdicts()
    for verdict, where in zip(found, [TRACE] * 3 + ["b" * 32] * 7, strict=True):
        changes([verdict], book, where)
    stages = {target: stage for episode in book.episodes.values() for target, stage in episode.stages.items()}
    assert {(target.id, target.is_session) for target in stages} == {(TRACE, False), ("b" * 32, False), ("t", True)}
    assert set(stages.values()) == {Stage.RECOVERED}


@pytest.mark.parametrize("name", ["x" * 201, "häuser", "", None])
def test_what_langfuse_takes_for_no_session_gets_no_score(name: str | None) -> None:
    assert {score.session_id for score in changes(verdicts(), session_id=name)} == {None}


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([{"session.id": "user-7", "gen_ai.conversation.id": "conv-9"}], "user-7"),
        ([{"session.id": "browser", "langfuse.session.id": "lf"}], "lf"),
        ([{"langfuse.observation.metadata.thread_id": "t"}, {"traceloop.association.properties.thread_id": "t"}], None),
        ([{}, {"gen_ai.conversation.id": "near"}, {"langfuse.session.id": "far"}], "near"),
        ([{"session.id": "", "langfuse.trace.metadata.langfuse_session_id": "m"}], "m"),
        ([{"ai.telemetry.metadata.sessionId": 7}], "7"),
    ],
)
def test_the_session_is_the_one_langfuse_reads(spans: list[dict[str, Any]], wanted: str | None) -> None:
    assert session_of(spans) == wanted


def test_loops_of_two_workers_and_of_two_conversations_in_a_trace_stay_apart() -> None:
    first = verdicts(5, 0)
    later = [one._replace(episode_start_s=one.episode_start_s + 0.001) for one in first]
    other = [one._replace(trajectory_id="other") for one in later]
    ids = [{score.id for score in changes(some)} for some in (first, later)]
    assert ids[0].isdisjoint(ids[1])
    book = ScoreBook(9)
    traces = [score.id for score in changes(first, book, session_id=None) + changes(other, book, session_id=None)]
    assert len(set(traces)) == 4, "two names for two loops"


def test_one_who_knows_the_conversation_later_or_the_tenant_better_writes_the_same_ids() -> None:
    late = [one._replace(trajectory_id=TRACE) for one in verdicts()]
    known = [score.id for score in changes(verdicts(), scope="team-red") if score.trace_id]
    assert [score.id for score in changes(late, session_id=None)] == known


@pytest.mark.parametrize("moved", [-0.75, 0.5])
def test_late_steps_that_move_the_start_change_neither_id_nor_timestamp(moved: float) -> None:
    *begun, last = verdicts(5, 0)
    book = ScoreBook(9)
    shifted = last._replace(episode_start_s=last.episode_start_s + moved)
    scores = changes(begun, book, at=START + 3.5) + changes([shifted], book)
    assert {score.timestamp for score in scores} == {START + 1}
    assert len({score.id for score in scores}) == 4
    assert {score.metadata["intervention"] for score in scores} == {"NUDGE", "STOP"}


def test_a_trajectory_that_was_forgotten_and_counts_anew_has_scores_of_another_loop() -> None:
    book, found = ScoreBook(9), verdicts(5, 0)
    first = changes(found, book, at=START + 5)
    again = changes(
        [one._replace(episode_start_s=one.episode_start_s + 100) for one in found], book, "b" * 32, at=START + 104
    )
    assert {score.timestamp for score in again} == {START + 101}
    assert len([score for score in again if score.session_id]) == 4
    assert {score.id for score in first}.isdisjoint(score.id for score in again)


def test_a_recovery_of_a_loop_that_was_never_reported_is_no_change() -> None:
    book, found = ScoreBook(9), verdicts()
    changes(found[:5], book, at=START + 5)
    left = next(one for one in found if one.recovered)
    assert changes([left._replace(episode_start_s=left.episode_start_s + 100)], book) == []


def test_the_comment_explains() -> None:
    nudge = changes(verdicts())[0]
    assert f'search({{"q": 1}}) was called 3 times and returned "{HOURS}" each time.' in nudge.comment
    assert (
        "NUDGE at step 3 in episode 1 (TYPE_I_STUTTER; nudges so far: 1). In the loop: 2 steps, 2 s." in nudge.comment
    )
    assert nudge.metadata["types"] == ["TYPE_I_STUTTER"]
    assert nudge.metadata["spent"]["steps"] == 2


def test_redacted_scores_hold_no_excerpt() -> None:
    text = json.dumps([score._asdict() for score in changes(verdicts(), redact=True)])
    assert HOURS[:12] not in text
    assert "search" not in text
    assert "TYPE_I_STUTTER" in text


def test_what_is_long_is_cut() -> None:
    found = [one._replace(reason="x" * 5_000, trajectory_id="y" * 5_000) for one in verdicts()]
    assert max(len(json.dumps(score._asdict())) for score in changes(found)) < 2_500


def test_memory_is_bounded_and_says_what_it_forgot() -> None:
    heard: list[Any] = []
    book = ScoreBook(2, on_change=heard.append)
    for name in "abc":
        changes([one._replace(trajectory_id=name) for one in verdicts(3, 0)], book)
    assert [key[1] for key in book.episodes] == ["b", "c"]
    assert [key[1] for key in heard] == ["a", "b", "a", "c"]


def test_without_times_the_clock_has_to_do() -> None:
    found = [one._replace(episode_start_s=0.0) for one in verdicts()]
    assert {score.timestamp for score in changes(found, now=7.0)} == {7.0}


@pytest.mark.parametrize(
    ("attributes", "resource", "wanted"),
    [
        ({}, {}, None),
        ({}, {"deployment.environment": "staging"}, "staging"),
        ({"langfuse.environment": "eu-1"}, {"deployment.environment.name": "prod"}, "eu-1"),
        ({}, {"deployment.environment.name": "langfuse-Prod"}, "prod"),
        ({}, {"deployment.environment.name": "my prod"}, None),
    ],
)
def test_the_environment_is_the_one_langfuse_gives_the_trace(
    attributes: Any, resource: Any, wanted: str | None
) -> None:
    assert environment_of(attributes, resource) == wanted


# --- from a guarded process ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Langfuse]:
    with langfuse() as running:
        yield running


def environ(server: Langfuse, end: str = "") -> dict[str, str]:
    keys = {"LANGFUSE_PUBLIC_KEY": PUBLIC_KEY + end, "LANGFUSE_SECRET_KEY": SECRET_KEY + end}
    return {
        **keys, "LANGFUSE_BASE_URL": server.url,
        "LANGFUSE_TRACING_ENVIRONMENT": "tests",
    }  # fmt: skip


class Guarded:
    """An application under guard whose scores go to a server."""

    def __init__(self, server: Langfuse, *, end: str = "", **more: Any) -> None:
        config = GuardConfig(langfuse_scores=True, langfuse_batches_per_minute=6_000, **more)
        self.board = FlagBoard(config)
        self.board.reporter = reporter_of(config, self.board.counts, environ(server, end))
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.processor = TrajectoryGuardProcessor(board=self.board, tracer_provider=self.provider)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("app")
        _guarded.append(self)

    def run(self, repeats: int, *, fresh: int = 0, conversation: str | None = "c") -> str:
        """A trace with equal calls and then new ones; its id."""
        with self.tracer.start_as_current_span("agent") as root:
            for _ in range(repeats):
                self._call({"q": 1}, HOURS, conversation)
            for at in range(fresh):
                self._call({"page": at}, f"page {at}", conversation)
        return f"{root.get_span_context().trace_id:032x}"

    def _call(self, args: Any, result: str, conversation: str | None) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.result": result,
            "gen_ai.tool.call.arguments": json.dumps(args), **({"gen_ai.conversation.id": conversation} if conversation else {}),
        }  # fmt: skip
        self.tracer.start_span("execute_tool search", attributes=attributes).end()

    def arrived(self) -> None:
        assert self.board.reporter is not None
        assert self.board.reporter.flush(15.0)


_guarded: list[Guarded] = []


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    while _guarded:
        reporter = _guarded.pop().board.reporter
        if isinstance(reporter, LangfuseReporter):
            reporter.stop(0.0)


@pytest.mark.parametrize("form", ["list", "single"])
def test_scores_of_a_loop_arrive_for_trace_and_session(form: Form) -> None:
    with langfuse(form) as server:
        app = Guarded(server)
        where = app.run(3)
        app.arrived()
        nudged = {score["name"]: score["value"] for score in server.scores_of(where)}
        app.run(2)
        app.run(0, fresh=5)
        app.arrived()
    assert nudged == {HEALTH: 0.4, LOOP: 1}
    assert [score["value"] for score in server.scores_of(where, HEALTH)] == [0.875]
    assert {score["name"]: score["value"] for score in server.scores_of("c")} == {HEALTH: 0.875, LOOP: 1}
    assert {score["environment"] for score in server.written} == {"tests"}
    assert server.violations == []


def test_keys_from_files_may_end_with_a_line_break(server: Langfuse) -> None:
    app = Guarded(server, end="\n")
    where = app.run(3)
    app.arrived()
    assert len(server.scores_of(where)) == 2


def test_a_healthy_run_writes_nothing(server: Langfuse) -> None:
    app = Guarded(server)
    app.run(1, fresh=20)
    app.provider.shutdown()
    assert server.requests == []


def test_shutdown_sends_what_waits(server: Langfuse) -> None:
    app = Guarded(server)
    where = app.run(3, conversation=None)
    app.provider.shutdown()
    assert {score["name"] for score in server.scores_of(where)} == {HEALTH, LOOP}
    assert app.board.counts["scores.sent"] == 2


def test_force_flush_waits_for_scores(server: Langfuse) -> None:
    app = Guarded(server)
    where = app.run(3)
    assert app.provider.force_flush()
    assert len(server.scores_of(where)) == 2


def test_what_a_gate_finds_is_scored_too(server: Langfuse) -> None:
    from langchain_core.messages import AIMessage, ToolMessage

    app = Guarded(server)
    gate, messages = Gate(board=app.board), []
    for at in range(3):
        call = {"name": "search", "args": {"q": 1}, "id": f"call-{at}"}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage(HOURS, tool_call_id=f"call-{at}")]
    with app.tracer.start_as_current_span("agent", attributes={"session.id": "s"}) as root:
        gate.decide(messages, None, "thread-1")
    app.arrived()
    assert len(server.scores_of(f"{root.get_span_context().trace_id:032x}")) == 2
    assert len(server.scores_of("s")) == 2
    assert server.scores_of("thread-1") == [], "a thread is no session"


def test_the_application_does_not_wait_for_a_server_that_hangs() -> None:
    with langfuse() as server:
        server.always = Reply(503)
        app = Guarded(server, langfuse_max_waiting=8)
        began = time.perf_counter()
        for at in range(20):
            app.run(3, conversation=f"c{at}")
        took = time.perf_counter() - began
        assert took < 15.0, "of 80 scores each would have waited for a pause of a second"
        assert app.board.reporter is not None
        assert len(app.board.reporter.sender.waiting) == 8
        server.wait(lambda: app.board.counts["scores.dropped"] == 20 * 4 - 8)  # some when their attempt has failed
        server.always = None
    assert app.board.read("c19").level.value == "NUDGE"


def test_an_error_in_scoring_is_contained(server: Langfuse) -> None:
    app = Guarded(server)
    app.board.reporter = object()  # type: ignore[assignment]
    app.run(3)
    assert app.board.counts["errors.on_end"] == 2, "the weak signal and the nudge"
    assert app.board.read("c").level.value == "NUDGE"


@pytest.mark.parametrize("missing", ["LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"])
def test_a_missing_key_is_named_and_the_guard_goes_on(missing: str, caplog: pytest.LogCaptureFixture) -> None:
    given = {name: "x" for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY") if name != missing}
    assert reporter_of(GuardConfig(langfuse_scores=True), Counter(), given) is None
    assert f"no scores are written: {missing} is not set" in caplog.text
    assert reporter_of(GuardConfig(), Counter(), dict.fromkeys([*given, missing], "x")) is None, (
        "nobody asked for scores"
    )


def test_scores_are_a_metric(server: Langfuse) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from trajectory_guard.otel.metrics import register

    app, reader = Guarded(server), InMemoryMetricReader()
    register(MeterProvider([reader]).get_meter(telemetry.SCOPE), app.board)
    server.script.append(Reply(503))
    app.run(3)
    app.arrived()
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    points = found[telemetry.SCORES.name].data.data_points
    assert {point.attributes["trajectory_guard.score.outcome"]: point.value for point in points} == {"sent": 4}
    points = found[telemetry.SCORE_ATTEMPTS_FAILED.name].data.data_points
    assert {point.attributes["error.type"]: point.value for point in points} == {"503": 1}


def test_switched_off_tracing_switches_scores_off_and_says_so_once(
    server: Langfuse, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()
    off = {**environ(server), "LANGFUSE_TRACING_ENABLED": "False"}
    assert reporter_of(GuardConfig(langfuse_scores=True), counts, off) is None
    assert reporter_of(GuardConfig(langfuse_scores=True), counts, off) is None
    assert caplog.text.count("no scores are written: LANGFUSE_TRACING_ENABLED is false") == 1


@pytest.mark.newest
def test_a_scorer_that_fails_costs_nobody_else_the_shutdown(server: Langfuse) -> None:
    app, ended = Guarded(server), []

    class Last(SpanProcessor):
        def shutdown(self) -> None:
            ended.append(self)

    app.provider.add_span_processor(Last())
    app.board.reporter = object()  # type: ignore[assignment]
    assert app.provider.force_flush() is False
    app.provider.shutdown()
    assert len(ended) == 1
    assert (app.board.counts["errors.force_flush"], app.board.counts["errors.shutdown"]) == (1, 1)


def test_half_a_character_in_a_conversation_id_holds_up_no_score(server: Langfuse) -> None:
    app = Guarded(server)
    traces = [app.run(5, conversation=name) for name in ("c\ud83d", "c")]
    app.arrived()
    named = [{score["metadata"]["trajectory_id"] for score in server.scores_of(trace)} for trace in traces]
    assert named == [{"c\\ud83d"}, {"c"}]
    assert server.violations == []


def test_a_score_that_cannot_be_sent_is_rejected_alone(server: Langfuse) -> None:
    reporter = Guarded(server).board.reporter
    assert reporter is not None
    good, bad = changes(verdicts(), session_id=None)[:2]
    reporter.sender.put([bad._replace(comment="half a character: \ud83d"), good])
    assert reporter.flush(15.0)
    assert [score["id"] for score in server.scores_of(TRACE)] == [good.id]
    assert reporter.sender.counts["scores.rejected"] == 1


# --- whose scores, and whose session -------------------------------------------------------------------------


def test_two_conversations_in_one_trace_have_a_score_each(server: Langfuse) -> None:
    app = Guarded(server)
    with app.tracer.start_as_current_span("batch") as root:
        for conversation in ("conv-a", "conv-b"):
            for _ in range(4):
                app._call({"q": conversation}, f"same for {conversation}", conversation)
    app.arrived()
    scores = server.scores_of(f"{root.get_span_context().trace_id:032x}", HEALTH)
    assert sorted(score["metadata"]["trajectory_id"] for score in scores) == ["conv-a", "conv-b"]
    assert server.violations == []


def test_two_workers_with_one_conversation_leave_each_others_scores_alone(server: Langfuse) -> None:
    first, second = Guarded(server), Guarded(server)
    first.run(5)
    first.arrived()
    second.run(3)
    second.arrived()
    assert sorted(score["value"] for score in server.scores_of("c", HEALTH)) == [0.0, 0.4]
    assert server.violations == []


def test_a_conversation_that_was_forgotten_and_loops_again_is_reported_again(server: Langfuse) -> None:
    app = Guarded(server, max_trajectories=1)
    for _ in range(2):
        app.run(5)
        app.run(1, conversation="pushes the other out")
    app.arrived()
    assert len(server.scores_of("c", HEALTH)) == 2
    assert len({score["timestamp"] for score in server.scores_of("c")}) == 2
    assert server.violations == []


@pytest.mark.parametrize("where", ["above", "beside"])
def test_the_session_is_found_above_the_step_or_beside_it(server: Langfuse, where: str) -> None:
    app = Guarded(server)
    with app.tracer.start_as_current_span("agent", attributes={"session.id": "s"} if where == "above" else {}):
        if where == "beside":
            app.tracer.start_span("chat", attributes={"session.id": "s"}).end()
        for _ in range(3):
            app._call({"q": 1}, HOURS, None)
    app.arrived()
    assert len(server.scores_of("s")) == 2
    assert {score.get("sessionId") for score in server.written} == {None, "s"}


def test_spans_beside_a_step_that_name_several_sessions_name_none(server: Langfuse) -> None:
    app = Guarded(server)
    with app.tracer.start_as_current_span("batch"):
        for session in ("s", "other", "s"):
            app.tracer.start_span(
                "chat", attributes={"ai.telemetry.metadata.sessionId": session, "session.id": session}
            ).end()
        for _ in range(3):
            app._call({"q": 1}, HOURS, None)
    app.arrived()
    assert {score.get("sessionId") for score in server.written} == {None}


# --- a process of its own ------------------------------------------------------------------------------------

APPLICATION = """
import json, sys, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from trajectory_guard import GuardConfig, instrument
provider = TracerProvider()
processor = instrument(provider, GuardConfig(langfuse_scores=True, mode="observe"))
def repeat(conversation):
    for _ in range(3):
        with provider.get_tracer("app").start_as_current_span("execute_tool x", attributes={
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "gen_ai.tool.call.arguments": "{}",
            "gen_ai.tool.call.result": "closed on Mondays, open from Tuesday to Sunday", "gen_ai.conversation.id": conversation}):
            pass
repeat("c")
"""


def run_application(server: Langfuse, code: str, *, blocked: bool = False) -> str:
    block = "import sys\nsys.modules['langfuse'] = None\n" if blocked else ""
    done = subprocess.run(
        [sys.executable, "-c", block + APPLICATION + code], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **environ(server), "PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_scores_are_sent_when_the_process_ends(server: Langfuse) -> None:
    run_application(server, "")
    assert {score["name"] for score in server.scores_of("c")} == {HEALTH, LOOP}


def test_langfuses_own_tracing_is_not_switched_on(server: Langfuse) -> None:
    code = """
assert processor.board.reporter.flush(20)
assert "langfuse" in sys.modules
print(type(trace.get_tracer_provider()).__name__, sorted(thread.name for thread in threading.enumerate()))
"""
    assert "ProxyTracerProvider ['MainThread', 'langfuse-scores']" in run_application(server, code)
    assert server.traces == {}
    assert len(server.scores_of("c")) == 2


def test_without_the_package_the_guard_works_and_names_what_to_install(server: Langfuse) -> None:
    reported = run_application(server, "print(processor.board.read('c').level)", blocked=True)
    assert "NUDGE" in reported
    assert "no scores are written: install the extra 'langfuse'" in reported
    assert server.requests == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_worker_sends_its_own_scores(server: Langfuse) -> None:
    code = """
import os
assert processor.board.reporter.flush(20)
if os.fork() == 0:
    repeat("child")
    assert processor.board.reporter.flush(20)
    os._exit(0)
assert os.wait()[1] == 0
"""
    run_application(server, code)
    assert len(server.scores_of("child")) == 2
    assert server.violations == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_a_thread_writes_scores_does_not_hang_the_child(server: Langfuse) -> None:
    code = """
import os, signal
held, done = threading.Event(), threading.Event()
def hold():
    with processor.board.reporter._lock:
        held.set()
        done.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(5)
    repeat("child")
    print(len(processor.board.reporter.sender.waiting), flush=True)
    os._exit(0)
done.set()
assert os.waitpid(child, 0)[1] == 0, "the child hung"
"""
    assert "4\n" in run_application(server, code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_worker_of_multiprocessing_sends_before_it_ends(server: Langfuse) -> None:
    code = """
import multiprocessing
assert processor.board.reporter.flush(20)
def work():
    repeat("child")
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join(30)
assert worker.exitcode == 0
"""
    run_application(server, code)
    assert len(server.scores_of("child")) == 2


def test_a_loop_found_while_the_process_ends_harms_nobody(server: Langfuse) -> None:
    code = """
import atexit
@atexit.register
def late():
    repeat("late")
processor.board.reporter.stop(20)
"""
    assert "Traceback" not in run_application(server, code)
    assert len(server.scores_of("late")) == 2
