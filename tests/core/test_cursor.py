"""The cursor by itself: what it enters, what it reports, what it tells a model, and how it is saved."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import TESTS
from trajectory_guard.core.cursor.boundary import PERSON, Sighting
from trajectory_guard.core.cursor.cursor import Cursor, digests_of
from trajectory_guard.core.state import StateFormatError


def kinds(cursor: Cursor) -> list[str]:
    return [entry.kind for entry in cursor.entries]


def run(cursor: Cursor, tool: str, outcome: str = "success", **more: Any) -> None:
    """A call from request to result."""
    note, by = more.pop("note", ""), more.pop("by", "")
    cursor.append("proposal", tool=tool, **more)
    more.pop("args", None)
    kind = "denial" if outcome == "denied" else "result"
    cursor.append(kind, tool=tool, outcome="" if outcome == "denied" else outcome, note=note, by=by, **more)


# --- the example of the pattern ------------------------------------------------------------------------------


def test_two_tasks_of_one_graph_have_a_path_each() -> None:
    cursor = Cursor()
    for task in ("first", "second"):
        for node in "ABC":
            run(cursor, node, task=task)
    report = cursor.report(required=["A", "B", "C"])
    assert (report.cursor, report.last_entry) == ("task.2.step.3", "result(tool=C, outcome=success, task=2)")
    assert report.path == {"first": ("A", "B", "C"), "second": ("A", "B", "C")}
    assert (report.repeat_loop_count, report.missing_required_actions, report.unrecorded_boundaries) == (0, (), 0)
    assert cursor.report(task="second").path == {"second": ("A", "B", "C")}


def test_a_denial_is_in_the_record_and_in_the_text() -> None:
    """The regression of AutoGPT: a denied command left no trace, so the agent proposed it again and again."""
    cursor = Cursor()
    run(cursor, "shell", "denied", args={"cmd": "rm -rf /"}, call="1", by="person", note="not on this machine")
    text = cursor.text()
    assert 'Refused by a person, do not request again: shell({"cmd": "rm -rf /"}): "not on this machine".' in text
    cursor.append("proposal", tool="shell", args={"cmd": "rm -rf /"}, call="2")
    assert kinds(cursor) == ["proposal", "decision", "denial", "proposal", "retry"]
    retry = cursor.entries[-1]
    assert (retry.call, retry.outcome, retry.by) == ("2", "denied", "person")
    assert cursor.report().steps[-1].attempt == 2


def test_a_claim_advances_nothing() -> None:
    cursor = Cursor()
    assert cursor.report().cursor == "start"
    cursor.append("proposal", tool="write_file", call="1")
    cursor.append("decision", tool="write_file", call="1", outcome="allowed", by="person")
    cursor.append("feedback", outcome="nudge", by="guard", note="You said that you are done.")
    report = cursor.report(["write_file"])
    assert (report.cursor, report.last_entry) == ("task.1.step.0", "")
    assert (report.missing_required_actions, report.path, report.open_calls) == (("write_file",), {}, 1)


@pytest.mark.parametrize(
    ("outcome", "status", "missing"),
    [("success", "executed", ()), ("empty", "executed", ()), ("error", "errored", ("save",)), ("denied", "denied", ("save",))],
)  # fmt: skip
def test_an_action_is_missing_until_it_succeeds(outcome: str, status: str, missing: tuple[str, ...]) -> None:
    cursor = Cursor()
    run(cursor, "Save", outcome)
    report = cursor.report(["save"])
    assert (report.steps[0].status, report.missing_required_actions) == (status, missing)


@pytest.mark.parametrize(("done", "missing"), [("ABC", ""), ("ACB", "C"), ("BA", "BC"), ("", "ABC"), ("CABC", "")])
def test_required_actions_in_their_order(done: str, missing: str) -> None:
    cursor = Cursor()
    for tool in done:
        run(cursor, tool)
    assert cursor.report(list("ABC"), ordered=True).missing_required_actions == tuple(missing)


def test_one_required_action_may_be_given_by_its_name() -> None:
    cursor = Cursor()
    run(cursor, "look")
    assert cursor.report("save").missing_required_actions == cursor.missing("save") == ("save",)
    assert cursor.report("look", ordered=True).missing_required_actions == ()
    assert "Required and not done yet: save." in cursor.text(required="save")


def test_required_actions_of_the_turn_before_do_not_count() -> None:
    cursor = Cursor()
    run(cursor, "save", task="/1")
    run(cursor, "look", task="/2")
    assert cursor.report(["save"]).missing_required_actions == ("save",)
    assert cursor.report(["save"], task="/1").missing_required_actions == ()


def test_a_call_that_is_left_behind_is_an_unrecorded_boundary() -> None:
    cursor = Cursor()
    for batch, call_id in (("m1", "a"), ("m1", "b"), ("m2", "c")):
        seen = Sighting("look", "messages", f"{batch}/{call_id}", call_id, *digests_of({"at": call_id}), batch=batch)
        cursor.propose(cursor.sight(seen))
        if call_id == "a":
            cursor.finish(cursor.sight(seen), "success")
    report = cursor.report()
    assert [step.status for step in report.steps] == ["executed", "skipped", "planned"]
    assert (report.unrecorded_boundaries, report.open_calls) == (1, 1)


def test_repeats_are_equal_calls_in_a_row() -> None:
    cursor = Cursor()
    for at in (1, 1, 2, 1, 1, 1):
        run(cursor, "look", args={"at": at})
    assert cursor.report().repeat_loop_count == 3
    without_arguments = Cursor()
    for _ in range(3):
        run(without_arguments, "look")
    assert without_arguments.report().repeat_loop_count == 0  # unknown is not equal


def test_two_equal_calls_of_one_message_are_no_retry() -> None:
    cursor = Cursor()
    calls = [
        cursor.sight(Sighting("look", "messages", f"m/{name}", name, *digests_of({"at": 1}), batch="m"))
        for name in "ab"
    ]
    for call in calls:
        cursor.propose(call)
        cursor.finish(call, "error")
    assert "retry" not in kinds(cursor)
    assert [step.attempt for step in cursor.report().steps] == [1, 1]


def test_calls_that_ran_at_the_same_time_are_no_retry() -> None:
    cursor = Cursor()
    first = Sighting("look", "span", "s1", "", *digests_of({"at": 1}), start=10.0)
    cursor.finish(cursor.sight(first), "error", end=12.0)
    cursor.finish(cursor.sight(first._replace(key="s2", start=11.0)), "error", end=13.0)
    assert "retry" not in kinds(cursor)
    cursor.finish(cursor.sight(first._replace(key="s3", start=14.0)), "success", end=15.0)
    assert kinds(cursor)[-3:] == ["retry", "execution", "result"]


def test_ids_that_a_model_uses_again_are_other_calls() -> None:
    cursor = Cursor()
    for turn in (1, 2):
        seen = Sighting("look", "messages", f"m{turn}/call_0", "call_0", *digests_of({}), task=f"/{turn}")
        cursor.propose(cursor.sight(seen))
        span = Sighting("look", "span", f"s{turn}", "call_0", *digests_of({}), task=f"/{turn}")
        cursor.finish(cursor.sight(span), "success")
    assert kinds(cursor) == ["proposal", "execution", "result"] * 2


def test_an_interrupted_call_goes_on() -> None:
    cursor = Cursor()
    seen = Sighting("pay", "span", "s1", "c1", *digests_of({"usd": 5}))
    cursor.finish(cursor.sight(seen), "interrupted")
    assert cursor.report().steps[0].status == "planned"
    cursor.finish(cursor.sight(seen._replace(key="s2")), "success")
    assert [(entry.kind, entry.outcome) for entry in cursor.entries] == [
        ("execution", "interrupted"), ("execution", ""), ("result", "success"),
    ]  # fmt: skip
    assert cursor.report().steps[0].status == "executed"


def test_a_person_who_was_asked_has_allowed_what_ran() -> None:
    cursor = Cursor()
    call = cursor.sight(Sighting("pay", call_id="c1"))
    cursor.decide(call, "asked", by=PERSON)
    cursor.finish(call, "success")
    assert [(entry.kind, entry.outcome, entry.by) for entry in cursor.entries][:2] == [
        ("decision", "asked", "person"), ("decision", "allowed", "person"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"kind": "guess"}, "kind: 'guess'"), ({"kind": "result", "outcome": "fine"}, "outcome: 'fine'")],
)
def test_unknown_kinds_and_outcomes_are_named(arguments: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Cursor().append(**arguments)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_page_shows_a_loop_that_enters_its_boundaries(allowed: bool) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (TESTS.parent / "docs" / "cursor.md").read_text(encoding="utf-8"), re.DOTALL
    )
    code = next(block for block in blocks if "cursor.append" in block)
    proposal = SimpleNamespace(tool_name="shell", args={"cmd": "ls"}, id="1", execute=lambda: "a b c")
    names: dict[str, Any] = {"cursor": Cursor(), "proposal": proposal, "decision": SimpleNamespace(allowed=allowed)}
    exec(compile(code, "cursor.md", "exec"), names)
    assert kinds(names["cursor"]) == ["proposal", *(["execution", "result"] if allowed else ["decision", "denial"])]
    assert ("Done: shell" if allowed else "Refused") in names["prompt"]


# --- bounds --------------------------------------------------------------------------------------------------


def test_a_required_action_is_not_forgotten() -> None:
    cursor = Cursor(8)
    run(cursor, "save", call="0")
    for at in range(1_000):
        run(cursor, f"look_{at % 200}", call=str(at + 1))
    report = cursor.report(["save"])
    assert report.missing_required_actions == ()
    assert (len(cursor.entries), len(cursor.calls), report.dropped) == (8, 8, 3 * 1_001 - 8)
    assert report.cursor == "task.1.step.1001"
    assert len(json.dumps(cursor.to_plain())) < 16_000


def test_many_agents_below_do_not_drive_out_the_one_that_waits_for_them() -> None:
    cursor = Cursor()
    waiting = Sighting("delegate", "messages", "m/c", "c", *digests_of({}), task="/turn")
    cursor.propose(cursor.sight(waiting))
    for at in range(150):
        label = f"a:{min(at, 100)}"
        seen = Sighting("look", "messages", f"m{at}/c{at}", f"c{at}", *digests_of({}), task=label, instance=label)
        cursor.finish(cursor.sight(seen), "success")
    cursor.finish(cursor.sight(waiting), "success")
    report = cursor.report()
    assert report.path["/turn"] == ("delegate",)
    assert (len(report.path), report.cursor, report.open_calls) == (32, "task.1.step.1", 0)


def test_an_open_call_is_kept_until_it_is_answered() -> None:
    cursor = Cursor(8)
    cursor.append("proposal", tool="delegate", call="c")
    for at in range(20):
        run(cursor, "look", call=str(at))
    assert cursor.report().open_calls == 1
    cursor.append("result", tool="delegate", call="c", outcome="success")
    report = cursor.report()
    assert (Counter(report.path[""]), report.open_calls) == ({"look": 20, "delegate": 1}, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 40)), max_size=150))
def test_the_ring_is_bounded(calls: list[tuple[str, int, int]]) -> None:
    cursor = Cursor(16)
    for number, (tool, args, task) in enumerate(calls):
        run(cursor, tool, args={"at": args}, call=str(number), task=f"agent:{task}")
        assert len(cursor.entries) <= 16
        assert len(cursor.calls) <= 16
        assert len(cursor.tasks) <= 32
    assert cursor.index == len(cursor.entries) + cursor.dropped
    assert [entry.index for entry in cursor.entries] == list(range(cursor.dropped, cursor.index))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), max_size=60))
def test_what_is_dropped_still_counts(calls: list[tuple[str, int]]) -> None:
    small, large = Cursor(8), Cursor(4096)
    for number, (tool, args) in enumerate(calls):
        for cursor in (small, large):
            run(cursor, tool, args={"at": args}, call=str(number))
    one, other = small.report(["a", "b", "c"]), large.report(["a", "b", "c"])
    assert one[:6] == other[:6]


# --- every boundary once, in whatever order sources show it ----------------------------------------------------

OUTCOMES = st.sampled_from(["success", "empty", "error", "denied"])


def sightings(number: int, tool: str, args: int, *, ids: bool) -> dict[str, Sighting]:
    common = {"tool": tool, "call_id": f"c{number}" if ids else "", "batch": ""}
    digests = dict(zip(("digest", "single"), digests_of({"at": args}), strict=True))
    return {
        "messages": Sighting(**common | digests, source="messages", key=f"m{number}/c{number}", task="/turn"),  # type: ignore[arg-type]
        "model": Sighting(**common | digests, source="model", key=f"p{number}", task="/?asked"),  # type: ignore[arg-type]
        "span": Sighting(**common | digests, source="span", key=f"s{number}", task="/?asked"),  # type: ignore[arg-type]
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["look", "save"]), st.integers(0, 2), OUTCOMES,
            st.permutations(["model", "request", "span", "answer"]),
        ),
        min_size=1, max_size=14,
    ),
    st.booleans(),
)  # fmt: skip
def test_the_order_of_sources_changes_no_report(calls: list[tuple[str, int, str, list[str]]], ids: bool) -> None:
    mixed, plain = Cursor(), Cursor()
    for number, (tool, args, outcome, order) in enumerate(calls):
        shown = sightings(number, tool, args, ids=ids)
        for event in order:
            if event == "model":
                mixed.propose(mixed.sight(shown["model"]))
            elif event == "span":
                mixed.finish(mixed.sight(shown["span"]), outcome)
            else:
                call = mixed.sight(shown["messages"])
                mixed.propose(call)
                if event == "answer":
                    mixed.finish(call, outcome)
        call = plain.sight(shown["messages"])
        plain.propose(call)
        plain.finish(call, outcome)
    one, other = mixed.report(["save"]), plain.report(["save"])
    assert one._replace(steps=()) == other._replace(steps=())
    assert [step[2:] for step in one.steps] == [step[2:] for step in other.steps]
    seen = Counter(entry.kind for entry in mixed.entries)
    ran = [outcome != "denied" for _, _, outcome, _ in calls]
    expected = (len(calls), sum(ran), sum(ran), len(calls) - sum(ran))
    assert (seen["proposal"], seen["execution"], seen["result"], seen["denial"]) == expected
    assert len(mixed.tasks) == 1


# --- many parallel calls -----------------------------------------------------------------------------------------


def parallel(cursor: Cursor, number: int, order: list[int], outcomes: list[str]) -> None:
    """The calls of one model message: all are requested, then answered in ``order``, each by span and message."""
    shown = []
    for place in range(len(order)):
        tool, call, digests = (
            "save" if place == 0 else "look",
            f"{number}.{place}",
            digests_of({"at": [number, place // 2]}),
        )
        key, batch = f"m{number}/{call}", f"m{number}"
        shown.append(Sighting(tool, "messages", key, call, *digests, task="/turn", batch=batch))
    calls = [cursor.sight(seen) for seen in shown]
    for call in calls:
        cursor.propose(call)
    for place in order:
        span = shown[place]._replace(source="span", key=f"s{number}.{place}", task="/?", batch=f"step {number}")
        cursor.finish(cursor.sight(span), outcomes[place % len(outcomes)])
        cursor.finish(calls[place], "success")


@given(
    st.lists(st.integers(1, 60).flatmap(lambda size: st.permutations(range(size))), min_size=1, max_size=4),
    st.lists(OUTCOMES, min_size=1, max_size=5),
)
def test_many_parallel_calls_leave_the_record_of_few(orders: list[list[int]], outcomes: list[str]) -> None:
    small, large = Cursor(8), Cursor(4096)
    for number, order in enumerate(orders):
        for cursor in (small, large):
            parallel(cursor, number, order, outcomes)
        assert len(small.calls) <= 8
    one, other = small.report(["save"]), large.report(["save"])
    assert one[:7] == other[:7]
    assert list(small.entries) == list(large.entries)[-8:]
    assert (small.index, small.call_count) == (large.index, large.call_count)


def test_more_parallel_calls_than_are_kept_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_guard.core.cursor.cursor.MAX_PARALLEL", 16)
    cursor, count = Cursor(8), 100
    shown = [
        Sighting("look", "messages", f"m/c{at}", f"c{at}", *digests_of({"at": at}), batch="m") for at in range(count)
    ]
    calls = [cursor.sight(seen) for seen in shown]
    for call in calls:
        cursor.propose(call)
    assert len(cursor.calls) == 24
    for call in calls:
        cursor.finish(call, "success")
    report = cursor.report()
    assert (report.cursor, len(report.path[""]), cursor.index) == (f"task.1.step.{count}", count, 3 * count)
    assert len(cursor.calls) <= 24


def test_open_calls_above_the_size_are_restored() -> None:
    cursor = Cursor(8)
    shown = [Sighting("look", "messages", f"m/c{at}", f"c{at}", *digests_of({"at": at}), batch="m") for at in range(40)]
    for seen in shown:
        cursor.propose(cursor.sight(seen))
    restored = Cursor.from_plain(json.loads(json.dumps(cursor.to_plain())))
    assert restored == cursor
    for one in (cursor, restored):
        for seen in shown:
            one.finish(one.sight(seen), "success")
    assert restored == cursor
    assert (restored.report().cursor, restored.index) == ("task.1.step.40", 120)


def test_calls_that_were_left_open_are_dropped_when_the_agent_goes_on() -> None:
    cursor = Cursor(8)
    for message in range(30):
        seen = Sighting("look", "messages", f"m{message}/c", f"c{message}", *digests_of({}), batch=f"m{message}")
        cursor.propose(cursor.sight(seen))
    assert len(cursor.calls) == 8
    assert cursor.report().unrecorded_boundaries == 7


def test_an_agent_that_waits_for_one_below_keeps_no_more_of_its_calls() -> None:
    cursor = Cursor(8)
    cursor.propose(cursor.sight(Sighting("delegate", "messages", "m/c", "c", *digests_of({}), task="/turn", batch="m")))
    for at in range(100):
        seen = Sighting("look", "messages", f"m{at}/c", f"c{at}", *digests_of({"at": at}), task="a:1", instance="a:1", batch=f"m{at}")  # fmt: skip
        cursor.finish(cursor.sight(seen), "success")
    assert len(cursor.calls) == 8
    assert cursor.report().open_calls == 1


# --- for a model -----------------------------------------------------------------------------------------------


def test_the_text_holds_what_the_next_step_depends_on() -> None:
    cursor = Cursor()
    run(cursor, "look", args={"at": 1})
    run(cursor, "fetch", "error", args={"url": "x"}, note="HTTP 500")
    run(cursor, "fetch", "error", args={"url": "x"}, note="HTTP 502")
    cursor.append("proposal", tool="mail")
    assert cursor.text(required=["save", "look"]) == (
        "[Trajectory guard] Record of this task, as observed. Anything that is not listed has not been done.\n"
        "Required and not done yet: save.\n"
        'Failed: fetch({"url": "x"}), 2 times: "HTTP 502".\n'
        "Requested, without an answer so far: mail.\n"
        'Done: look({"at": 1}).'
    )


def test_nothing_observed_is_no_text() -> None:
    assert Cursor().text(required=["save"]) == ""


@given(st.lists(st.tuples(st.text(max_size=300), OUTCOMES, st.text(max_size=300)), max_size=40), st.integers(0, 900))
def test_the_text_keeps_its_limit(calls: list[tuple[str, str, str]], limit: int) -> None:
    cursor = Cursor()
    for tool, outcome, note in calls:
        run(cursor, tool, outcome, note=note)
    assert len(cursor.text(limit, required=["save"])) <= max(200, limit)


def test_a_redacted_text_has_names_only() -> None:
    cursor = Cursor()
    run(cursor, "pay", "denied", args={"card": "4111"}, note="card 4111 is blocked")
    assert "4111" not in cursor.text(redact=True)
    assert "pay" in cursor.text(redact=True)


# --- saving ----------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 2), st.sampled_from(["success", "error", "denied", "interrupted", ""]),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_a_restored_cursor_is_equal_and_goes_on_alike(calls: list[tuple[str, int, str, int]]) -> None:
    cursor = Cursor(16)
    for number, (tool, args, outcome, task) in enumerate(calls):
        cursor.append("proposal", tool=tool, args={"at": args}, call=str(number), task=str(task), agent="a")
        if outcome == "denied":
            cursor.append("denial", tool=tool, call=str(number), task=str(task), by="guard", note="no")
        elif outcome:
            cursor.append("result", tool=tool, call=str(number), task=str(task), outcome=outcome)
    restored = Cursor.from_plain(json.loads(json.dumps(cursor.to_plain())))
    assert restored == cursor
    for one in (cursor, restored):
        run(one, "a", args={"at": 1}, call="next", task="0")
    assert restored == cursor
    assert restored.report(["a"]) == cursor.report(["a"])


def saved() -> dict[str, Any]:
    cursor = Cursor()
    run(cursor, "pay", "denied", args={"usd": 5}, call="1")
    return cursor.to_plain()


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("v",), 2, "cursor.v: version 2"),
        (("size",), 1, "cursor.size: 1 is below 8"),
        (("size",), "64", "cursor.size: expected a whole number"),
        (("index",), 0, "cursor.index: 0 is below the number of entries"),
        (("entries",), {}, "cursor.entries: expected a list"),
        (("entries", 0, "kind"), "guess", "cursor.entries.0..kind: 'guess'"),
        (("entries", 0, "index"), "0", "cursor.entries.0..index"),
        (("entries", 0, "note"), 7, "cursor.entries.0..note: expected a text, got 7"),
        (("entries", 0, "noet"), "x", "cursor.entries.0..noet: unknown key"),
        (("calls", 0, "tool"), None, "cursor.calls.0..tool: expected str"),
        (("calls", 0, "task"), "other", "cursor.calls.0..task: 'other' is none of the tasks"),
        (("calls", 0, "x"), 1, "cursor.calls.0..x: unknown key"),
        (("tasks", 0), 3, "cursor.tasks.0.: expected a mapping"),
        (("last",), [], "cursor.last: expected a mapping"),
    ],
)
def test_a_damaged_snapshot_is_refused_and_its_key_named(path: tuple[Any, ...], value: Any, named: str) -> None:
    plain: Any = copy.deepcopy(saved())
    inner = plain
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(StateFormatError, match=named):
        Cursor.from_plain(plain)


def test_a_snapshot_without_a_key_is_refused() -> None:
    for key in saved():
        plain = {name: value for name, value in saved().items() if name != key}
        if key == "last":
            continue  # None stands for a cursor that has not advanced
        with pytest.raises(StateFormatError, match=f"cursor.{key}"):
            Cursor.from_plain(plain)
    with pytest.raises(StateFormatError, match="cursor: expected a mapping, got list"):
        Cursor.from_plain([])  # type: ignore[arg-type]
