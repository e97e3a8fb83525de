"""Advice fits what came back, and long arguments are shown as they were sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.explain.interventions import args_excerpt, brought
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord

WORK = "Work with the result you already have."


def nudges_on(steps: list[StepRecord], settings: EngineSettings | None = None) -> list[str]:
    numbered = [step._replace(step_id=f"{at:016x}", timestamp=at * 1.0) for at, step in enumerate(steps)]
    return [one.nudge for one in evaluate(numbered, settings) if one is not None and one.nudge is not None]


def nudge_on(steps: list[StepRecord], settings: EngineSettings | None = None) -> str:
    return nudges_on(steps, settings)[0]


@pytest.mark.parametrize(
    ("outcome", "result", "words"),
    [
        ("empty", "", "find nothing again"),
        ("success", "No results found.", "find nothing again"),
        ("success", "[]", "find nothing again"),
        ("success", '{"hits": [], "total": 0}', "find nothing again"),
        ("error", 'relation "ordrs" does not exist', "Read the error"),
        ("success", "Error: [Errno 2] No such file or directory: '/repo/missing.py'", "Read the error"),
        ("success", '{"statusCode": 400, "message": "field email is required"}', "Read the error"),
        ("success", '{"status": 422, "errors": ["name is too long"]}', "Read the error"),
        (
            "success",
            "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\nKeyError: 'x'",
            "Read the error",
        ),
        ("success", "391", WORK),
        ("success", "The shop is open from nine to five, and closed on Sundays and on holidays.", WORK),
        ("success", '{"temp": 20, "sky": "clear", "wind": "light, from the west"}', WORK),
        ("denied", "User rejected the tool call", "Accept the decision"),
    ],
)
def test_advice_on_a_repeated_call_fits_its_result(outcome: str, result: str, words: str) -> None:
    said = nudge_on([record("search_orders", {"query": "late"}, result, outcome)] * 12)

    assert words in said
    assert (WORK in said) == (words == WORK)


@pytest.mark.parametrize(
    ("tool", "result", "kind"),
    [
        ("click", "Clicked", "acknowledged"),
        ("save", '{"success": true}', "acknowledged"),
        ("pay", "Permission denied by user", "denied"),
        ("http_get", "HTTP 401 Unauthorized", "error"),
        ("http_get", "HTTP/1.1 500 Internal Server Error", "error"),
        ("http_get", "HTTP/1.1 200 OK with a long and readable page about sheep", "data"),
        ("stock", '{"status": 200, "items": 417}', "data"),
        ("stock", '{"name": "lamp", "price": 450}', "data"),
    ],
)
def test_the_kind_of_a_result_is_read_from_its_text(tool: str, result: str, kind: str) -> None:
    assert brought(record(tool, {"id": 1}, result)) == kind


def test_edits_that_change_nothing_are_named() -> None:
    failure = "2 failed, 10 passed: test_sum and test_total in tests/test_orders.py, both with assert 3 == 4."
    steps = [
        one
        for at in range(8)
        for one in (record("edit", {"file": "a.py", "patch": f"- x + y{at}"}, "applied"), record("test", {}, failure))
    ]

    assert "in between has not changed this result" in nudge_on(steps)


def test_a_failed_request_that_may_pass_is_not_called_under_way() -> None:
    steps = [record("http_post", {"url": "x"}, "500 Internal Server Error", "error")] * 12

    said = nudge_on(steps)

    assert "under way" not in said
    assert "report the error" in said


def test_an_announcement_is_no_attempt_to_finish() -> None:
    steps = [
        record("bash", {"cmd": f"grep -n opt{at} app.conf"}, "", "empty", thought="I will now check the configuration.")
        for at in range(9)
    ]

    said = next(one.nudge for one in evaluate(steps) if one is not None and one.nudge and one.rule == "same_message")

    assert "attempt to finish" not in said


def test_alternating_calls_are_named_beside_the_call() -> None:
    lap = [
        record("draft", {"topic": "sales"}, "Draft: sales went up by a lot in the last quarter, says the report."),
        record("review", {"doc": "sales"}, "Rejected, since the tone is too informal for the board of the shop."),
    ]

    assert "have repeated" in nudge_on(lap * 5)
    assert "draft" in nudge_on(lap * 5)
    assert "review" in nudge_on(lap * 5)


LONG: list[tuple[Any, str, str]] = [
    ({"doc": "<first>" + "text " * 3_000 + "<last>"}, "<first>", "<last>"),
    ("begin " + "x y " * 5_000 + " end", "begin", "end"),
    ({"items": [f"item {n}" for n in range(5_000)]}, "item 0", "item 4999"),
    ({"a": "short", "deep": {"list": [{"text": "z" * 20_000}]}}, "short", "z"),
    ({"n" + str(n): "value " * 20 for n in range(400)}, "n0", "…"),
]


@pytest.mark.parametrize(("args", "head", "tail"), LONG)
def test_long_arguments_are_shown_by_both_ends(args: Any, head: str, tail: str) -> None:
    steps = [record("render", args, "The layout breaks in the third line of the page, in all of the columns.")] * 4

    said = nudge_on(steps)

    assert "fingerprint" not in said
    assert head in said
    assert tail in said
    assert len(said.splitlines()[1]) < 400


@pytest.mark.parametrize(("args", "head", "tail"), LONG)
def test_redacted_arguments_stay_hidden(args: Any, head: str, tail: str) -> None:
    engine = Engine(EngineSettings(redact=True))
    state = engine.new_state("t")
    for at in range(5):
        verdict = engine.observe(state, record("render", args, "The layout breaks.", step_id=f"{at:016x}"))
        assert verdict is not None
        assert head not in f"{verdict.reason} {verdict.nudge}"


def test_an_excerpt_of_arguments_keeps_its_end() -> None:
    shown = args_excerpt({"sql": "SELECT " + "column, " * 40 + "last FROM orders"})

    assert shown.startswith('{"sql": "SELECT column')
    assert shown.endswith('last FROM orders"}')
    assert len(shown) <= 120


@pytest.mark.parametrize(
    "args",
    [
        {"url": "/a", "headers": {"Authorization": "Bearer tk_7"}},
        {"method": "PURGE", "uri": "/a", "headers": ["X-Key: tk_7"]},
        {"request": {"method": "GET", "url": "/a", "auth": ["me", "tk_7"], "cookies": {"session": "tk_7"}}},
        {"request": '{"method": "GET", "url": "/a", "headers": {"X-Key": "tk_7"}}'},
        {"__single__": '{"url": "/a", "headers": {"X-Key": "tk_7"}}'},
        '{"method": "GET", "url": "/a", "headers": {"X-Key": "tk_7"}}',
    ],
)
def test_an_excerpt_shows_no_credentials_of_a_request(args: Any) -> None:
    assert "/a" in args_excerpt(args)
    assert "tk_7" not in args_excerpt(args)


@pytest.mark.parametrize("name", ["params", "data", "pattern", "json"])
def test_an_excerpt_shows_what_a_request_asks_for(name: str) -> None:
    shown = args_excerpt({"method": "get", "path": "/etc", name: {"q": "lamps"}, "timeout": None})
    assert shown.startswith("GET /etc {")
    assert "lamps" in shown
    assert "timeout" not in shown


def test_headers_of_a_table_are_shown() -> None:
    assert args_excerpt({"file": "a.csv", "headers": ["year"]}) == '{"file": "a.csv", "headers": ["year"]}'


def test_requests_within_requests_have_an_excerpt_at_any_depth() -> None:
    args: dict[str, Any] = {"n": 1}
    for _ in range(2_000):
        args = {"method": "POST", "url": "/batch", "body": args}
    assert args_excerpt(args).startswith("POST /batch")


@pytest.mark.parametrize(("why", "kind"), [("has failed 2 times in a row in the same way", "error"),
                                           ("has found nothing 2 times in a row", "empty"),
                                           ("was refused in this turn", "denied"),
                                           ("has returned the same result 2 times in a row", "data")])  # fmt: skip
def test_a_call_that_a_gate_answered_is_read_as_the_outcome_that_it_quotes(why: str, kind: str) -> None:
    text = (
        f'Not run by trajectory_guard: find({{"q": "what was refused and has failed "}}) {why}, and nothing has changed'
    )
    assert brought(record("find", {"q": "x"}, text, "denied")) == kind


def test_advice_on_an_action_in_other_words_is_not_that_on_a_search() -> None:
    drafts = ("Dear Ms Roe, we confirm Thursday.", "Ms Roe, Thursday is confirmed.", "We confirm Thursday, Ms Roe.")
    steps = [
        record("store_draft", {"to": "roe@a.example", "body": drafts[at % 3]}, "Draft stored.") for at in range(12)
    ]
    said = nudges_on(steps)

    assert said
    assert not [one for one in said if "Other words for the same question" in one]


def test_advice_on_one_answer_to_all_calls_fits_actions() -> None:
    page = "Step 2 of the form. Please correct the field above before you go on to the payment of the order."
    said = nudge_on([record("set_field", {"name": f"field {at}", "to": f"v{at * 37}"}, page) for at in range(40)])

    assert "question" not in said


def test_a_second_nudge_about_messages_speaks_of_messages() -> None:
    steps = [
        record("look", {"at": f"shelf {at}"}, "", "empty", thought="I will look at the next one.") for at in range(40)
    ]
    second = [one for one in nudges_on(steps) if "still stuck" in one and "messages say" in one]

    assert second
    assert "Do not say this again" in second[0]
    assert "another call of this kind" not in second[0]
