"""The trajectory cursor of spans: tool spans, model spans, both beside a gate, and what a process keeps of them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import fewer_examples, record
from trajectory_guard import FlagBoard, GuardConfig, StateFormatError, TrajectoryGuardProcessor
from trajectory_guard.core.cursor.cursor import Cursor
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import Evidence, StepRecord
from trajectory_guard.gates.boundaries import Boundaries


def board_with(**config: Any) -> FlagBoard:
    return FlagBoard(GuardConfig(**{"cursor": True, **config}))


def cursor_of(board: FlagBoard, name: str = "t") -> Cursor:
    cursor = board.cursor(name)
    assert cursor is not None
    return cursor


def kinds(board: FlagBoard, name: str = "t") -> list[str]:
    return [entry.kind for entry in cursor_of(board, name).entries]


# --- the board ---------------------------------------------------------------------------------------------------


def test_a_span_is_an_execution_and_its_result() -> None:
    board = board_with()
    board.observe(record("look", {"at": 1}, "shelf 7", call_id="c1", agent="finder"))
    executed, result = cursor_of(board).entries
    assert (executed.kind, executed.call, executed.tool, executed.agent) == ("execution", "c1", "look", "finder")
    assert (result.kind, result.outcome, result.note) == ("result", "success", "")


@pytest.mark.parametrize(
    ("result", "by"),
    [
        ("User rejected the call: too dear", "person"),
        ("Action blocked by policy", "application"),
        ("Not run by trajectory_guard: look was refused in this turn", "guard"),
    ],
)
def test_a_denied_span_says_who_denied_it(result: str, by: str) -> None:
    board = board_with()
    board.observe(record("look", {"at": 1}, result, "denied"))
    decision, denial = cursor_of(board).entries
    assert (decision.kind, decision.outcome, decision.by) == ("decision", "denied", by)
    assert (denial.kind, denial.by, denial.note) == ("denial", by, result)


def test_second_records_of_a_call_are_not_entered() -> None:
    board = board_with()
    for dialect in ("one", "other"):
        board.observe(record("look", {"at": 1}, "shelf 7", call_id="c1", t=1.0, dur=1.0, dialect=dialect))
    assert board.counts["duplicates"] == 1
    assert kinds(board) == ["execution", "result"]


def test_steps_of_a_trace_move_to_the_conversation() -> None:
    board = board_with()
    board.observe(record("look", {"at": 1}, "shelf 7", trajectory="trace", trace_id="trace"))
    board.observe(record("look", {"at": 2}, "shelf 8", trajectory="conversation"))
    board.join("trace", "conversation")
    assert cursor_of(board, "trace").report().path == {"": ("look", "look")}


def test_a_trajectory_that_is_rebuilt_keeps_its_cursor() -> None:
    """Steps without content are forgotten so that the messages can tell them in full; the record of them stays."""
    board = board_with()
    board.observe(StepRecord("s1", "t", "look", evidence=Evidence.NAME_ONLY))
    assert board.discard_lossy("t")
    assert kinds(board) == ["execution", "result"]


def test_off_by_default() -> None:
    board = FlagBoard(GuardConfig())
    board.observe(record("look", {"at": 1}, "shelf 7"))
    assert board.cursor("t") is None
    assert board_with().cursor("unknown") is None


def test_a_copy_is_handed_out() -> None:
    board = board_with()
    board.observe(record("look", {"at": 1}, "shelf 7"))
    cursor_of(board).append("proposal", tool="mine")
    assert kinds(board) == ["execution", "result"]


def test_entries_are_bounded_by_the_configuration() -> None:
    board = board_with(cursor_entries=8)
    for at in range(100):
        board.observe(record("look", {"at": at}, f"shelf {at}"))
    cursor = cursor_of(board)
    assert (len(cursor.entries), cursor.dropped) == (8, 192)
    assert cursor.report().path[""] == ("look",) * 100


def test_very_long_names_are_shortened_and_still_distinguished() -> None:
    board = board_with()
    for end in "ab":
        board.observe(record("look" * 10_000 + end, {"at": "x" * 100_000}, "shelf", call_id="c" * 100_000 + end))
    cursor = cursor_of(board)
    assert [len(tools) for tools in cursor.report().path.values()] == [2]
    assert len(json.dumps(cursor.to_plain())) < 5_000


def test_an_error_of_the_cursor_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_with()
    monkeypatch.setattr(Cursor, "sight", lambda *_: 1 / 0)
    assert board.observe(record("look", {"at": 1}, "shelf 7")) is not None
    assert board.counts["errors.cursor"] == 1


def test_many_threads_write_one_record() -> None:
    board = board_with(cursor_entries=4096)

    def work(name: int) -> None:
        for at in range(50):
            board.observe(record("look", {"at": f"{name}.{at}"}, f"shelf {name}.{at}", call_id=f"{name}.{at}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    cursor = cursor_of(board)
    assert [entry.index for entry in cursor.entries] == list(range(400))
    assert Counter(entry.kind for entry in cursor.entries) == {"execution": 200, "result": 200}


def test_a_snapshot_goes_from_board_to_board() -> None:
    one, other = board_with(), board_with()
    one.observe(record("look", {"at": 1}, "shelf 7"))
    saved = one.cursors.save("t", "")
    assert saved is not None
    assert not one.cursors.adopt("t", "", saved)  # its own
    assert other.cursors.adopt("t", "", saved)
    assert cursor_of(other) == cursor_of(one)
    with pytest.raises(StateFormatError, match="cursor: not a saved cursor"):
        other.cursors.adopt("t", "", "nonsense")


# --- the span processor --------------------------------------------------------------------------------------------


class App:
    """An application whose spans follow the semantic conventions."""

    def __init__(self, **config: Any) -> None:
        provider = TracerProvider()
        self.board = board_with(**config)
        provider.add_span_processor(TrajectoryGuardProcessor(board=self.board, tracer_provider=provider))
        self.tracer = provider.get_tracer("app")

    def turn(self, *asked: tuple[str, str, dict[str, Any]], run: Sequence[str] = (), content: bool = True) -> None:
        """A model call that requests tools (id, tool, arguments), and the spans of those that are run."""
        parts = [{"type": "tool_call", "id": name, "name": tool, "arguments": args} for name, tool, args in asked]
        model: dict[str, Any] = {
            "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "t", "gen_ai.usage.input_tokens": 9,
        }  # fmt: skip
        if content:
            model["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
        with self.tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.conversation.id": "t"}):
            with self.tracer.start_as_current_span("chat m", attributes=model):
                pass
            for name, tool, args in asked:
                if name in run:
                    attributes = {
                        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": name,
                        "gen_ai.tool.call.arguments": json.dumps(args), "gen_ai.tool.call.result": f"done {name}",
                        "gen_ai.conversation.id": "t",
                    }  # fmt: skip
                    with self.tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes):
                        pass


def test_model_spans_show_proposals() -> None:
    app = App()
    app.turn(("c1", "look", {"at": 1}), ("c2", "save", {"to": "x"}), run=["c1"])
    assert kinds(app.board) == ["proposal", "proposal", "execution", "result"]
    assert [step.status for step in cursor_of(app.board).report().steps] == ["executed", "planned"]
    app.turn(("c3", "look", {"at": 2}), run=["c3"])
    report = cursor_of(app.board).report(["save"])
    assert [step.status for step in report.steps] == ["executed", "skipped", "executed"]
    assert (report.unrecorded_boundaries, report.missing_required_actions) == (1, ("save",))


def test_without_content_executions_are_what_is_known() -> None:
    app = App()
    app.turn(("c1", "look", {"at": 1}), run=["c1"], content=False)
    assert kinds(app.board) == ["execution", "result"]


def test_without_the_option_no_model_span_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_guard.otel.processor.proposals_in", lambda *_: 1 / 0)
    app = App(cursor=False)
    app.turn(("c1", "look", {"at": 1}), run=["c1"])
    assert not [key for key in app.board.counts if key.startswith("errors")]


def test_redaction_keeps_arguments_and_reasons_out() -> None:
    app = App(redact=True)
    app.turn(("c1", "look", {"at": "secret"}), run=["c1"])
    app.board.observe(record("look", {"at": "secret"}, "User rejected: secret", "denied"))
    assert "secret" not in json.dumps(cursor_of(app.board).to_plain())


# --- spans beside messages -------------------------------------------------------------------------------------------

Plan = list[tuple[list[tuple[str, int, str]], str]]
RESULTS = {"success": "shelf 7", "empty": "[]", "error": "Error: broken", "denied": "User rejected the call"}


def messages_of(plan: Plan) -> list[list[Any]]:
    """The messages after the request and after the answers of each model turn."""
    messages: list[Any] = [HumanMessage("hi", id="h")]
    found: list[list[Any]] = []
    for turn, (calls, _) in enumerate(plan):
        requested = [
            {"name": tool, "args": {"at": args}, "id": f"c{place}", "type": "tool_call"}
            for place, (tool, args, _) in enumerate(calls)
        ]
        messages = [*messages, AIMessage("", tool_calls=requested, id=f"m{turn}")]
        found.append(messages)
        messages = [
            *messages,
            *(
                ToolMessage(
                    RESULTS[outcome], tool_call_id=f"c{place}",
                    status="error" if outcome in ("error", "denied") else "success",
                )
                for place, (_, _, outcome) in enumerate(calls)
            ),
        ]  # fmt: skip
        found.append(messages)
    return found


def spans_of(plan: Plan, *, ids: bool) -> Iterator[list[StepRecord]]:
    for turn, (calls, _) in enumerate(plan):
        yield [
            record(
                tool, {"at": args}, RESULTS[outcome], outcome, step_id=f"s{turn}.{place}", t=10.0 * turn + 1.0, dur=1.0,
                call_id=f"c{place}" if ids else None, trace_id="trace",
            )
            for place, (tool, args, outcome) in enumerate(calls)
        ]  # fmt: skip


@fewer_examples(2)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.sampled_from(["look", "save"]), st.integers(0, 5), st.sampled_from(sorted(RESULTS))),
                min_size=1, max_size=3, unique_by=lambda call: call[:2],
            ),
            st.sampled_from(["live", "late", "messages", "spans last"]),
        ),
        min_size=1, max_size=5,
    ),
    st.booleans(),
)  # fmt: skip
def test_the_report_does_not_depend_on_the_order_of_sources(plan: Plan, ids: bool) -> None:
    mixed, alone = board_with(), board_with()
    shown, spans = messages_of(plan), list(spans_of(plan, ids=ids))
    for turn, (_, order) in enumerate(plan):
        asked, answered = shown[2 * turn], shown[2 * turn + 1]
        if order in ("live", "messages", "spans last"):
            Boundaries(mixed).read("t", "", asked, witness=False, live=True)
        if order in ("live", "late"):
            for step in reversed(spans[turn]):
                mixed.observe(step)
        Boundaries(mixed).read("t", "", answered, witness=False, live=False)
        if order == "spans last":
            for step in spans[turn]:
                mixed.observe(step)
        Boundaries(alone).read("t", "", answered, witness=False, live=False)
    one, other = cursor_of(mixed).report(["save"]), cursor_of(alone).report(["save"])
    assert one._replace(last_entry="") == other._replace(last_entry="")
    seen = Counter(entry.kind for entry in cursor_of(mixed).entries)
    outcomes = [outcome for calls, _ in plan for _, _, outcome in calls]
    ran = sum(outcome != "denied" for outcome in outcomes)
    assert (seen["proposal"], seen["execution"], seen["result"], seen["denial"]) == (
        len(outcomes), ran, ran, len(outcomes) - ran,
    )  # fmt: skip
    assert mixed.counts["errors.cursor"] == 0


def test_an_argument_whose_name_was_dropped_is_the_same_call() -> None:
    """OpenInference: the span of a failed call has neither the id of the call nor the name of its only argument."""
    board = board_with()
    asked = [{"name": "look", "args": {"path": "/x"}, "id": "c1", "type": "tool_call"}]
    messages = [HumanMessage("hi", id="h"), AIMessage("", tool_calls=asked, id="m1")]
    Boundaries(board).read("t", "", messages, witness=False, live=True)
    args = {"__single__": "/x"}
    board.observe(record("look", args, "Error: broken", "error")._replace(tool_args_hash=args_hash(args)))
    assert kinds(board) == ["proposal", "execution", "result"]
