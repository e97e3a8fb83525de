"""Tools that send any request of HTTP: the response comes back as an object, and a failed request as a success."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.content.envelope import body_of
from trajectory_guard.core.content.outcome import classify, error_signature, states_failure

Form = Callable[[Random, int, Any], str]


def _date(random: Random) -> str:
    return f"Tue, 30 Jun 2026 06:{random.randint(10, 59)}:{random.randint(10, 59)} GMT"


def _with_headers(random: Random, status: int, body: Any) -> str:
    headers = {
        "date": _date(random),
        "content-type": "application/json",
        "x-request-id": f"{random.getrandbits(32):08x}",
    }
    return json.dumps({"status": status, "headers": headers, "body": json.dumps(body)})


def _with_a_reference(random: Random, status: int, body: Any) -> str:
    name = f"{random.getrandbits(32):08x}"
    return json.dumps({
        "response_ref": f"request:req-{random.getrandbits(24) | 0x100000:06x}/response:resp-{name}", "status": status,
        "headers": {"date": _date(random), "server": "uvicorn"}, "body_preview": json.dumps(body),
    })  # fmt: skip


def _plain(random: Random, status: int, body: Any) -> str:
    return json.dumps({"status_code": status, "elapsed_ms": random.randint(5, 300), "body": body})


def _of_fetch(random: Random, status: int, body: Any) -> str:
    return json.dumps({"status": status, "statusText": "-", "body": body, "ms": random.randint(5, 300)})


FORMS: dict[str, Form] = {
    "headers": _with_headers,
    "reference": _with_a_reference,
    "plain": _plain,
    "fetch": _of_fetch,
}
MISSING = {"error": "missing_required", "fields": ["zone_id", "phase"], "hint": "Required: zone_id (string), phase"}
BODIES: tuple[Any, ...] = (
    {"zone_id": "z-2c19", "phase": "lighting"},
    {"schedule": {"zone_id": "z-2c19", "phase": "lighting"}},
    {"zoneId": "z-2c19", "phase": "lighting"},
    {"data": {"zoneId": "z-2c19"}},
    '{"zone_id": "z-2c19"}',
    "zone_id=z-2c19&phase=lighting",
    {"zone": "z-2c19", "phase": "light"},
    {"zones": ["z-2c19"], "phases": ["lighting"]},
)


def post(form: Form, random: Random, body: Any, status: int, response: Any) -> tuple[str, dict[str, Any], str]:
    return "request", {"method": "POST", "url": "/v3/schedules", "body": body}, form(random, status, response)


@pytest.mark.parametrize("form", FORMS)
def test_a_request_that_is_refused_in_the_same_words_whatever_its_body_is(form: str) -> None:
    random = Random(form)
    calls = [post(FORMS[form], random, body, 422, MISSING) for body in BODIES * 2]
    at = nudged(evaluate(steps(calls)))
    assert at is not None
    assert at <= 8


@pytest.mark.parametrize("form", FORMS)
def test_what_other_endpoints_return_does_not_excuse_one_that_refuses_everything(form: str) -> None:
    random = Random(form)
    calls: list[tuple[Any, ...]] = []
    for at, body in enumerate(BODIES * 2):
        calls.append(post(FORMS[form], random, body, 422, MISSING))
        calls.append(
            ("request", {"method": "GET", "url": f"/v3/zones/{at}"}, FORMS[form](random, 200, {"name": f"z{at * 7}"}))
        )
    at = nudged(evaluate(steps(calls)))
    assert at is not None
    assert at <= 16


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_imported_one_by_one_are_left_alone(form: str) -> None:
    random = Random(form)
    calls = [
        ("request", {"method": "POST", "url": "/v1/contacts", "body": {"name": f"contact {at * 7}"}},
         FORMS[form](random, 422, {"error": "is taken"}) if at % 3 == 1 else FORMS[form](random, 201, {"id": at * 13}))
        for at in range(30)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("form", FORMS)
def test_an_audit_that_expects_refusals_is_not_stopped(form: str) -> None:
    """Each address has to refuse a caller without a token."""
    random, refusal = Random(form), {"error": "authentication required"}
    paths = [
        "users",
        "orders",
        "invoices",
        "flags",
        "export",
        "tokens",
        "audit",
        "reports",
        "teams",
        "hooks",
        "billing",
        "usage",
        "limits",
        "roles",
        "groups",
        "regions",
        "zones",
        "images",
        "volumes",
        "networks",
        "keys",
        "secrets",
        "jobs",
        "queues",
        "topics",
        "alerts",
        "rules",
        "boards",
        "tags",
        "notes",
    ]
    calls = [("request", {"method": "GET", "url": f"/api/{path}"}, FORMS[form](random, 401, refusal)) for path in paths]
    assert stopped(evaluate(steps(calls))) is None


@pytest.mark.parametrize(
    "status", [{"status_code": 401}, {"statusCode": 403}, {"http_status": 404}, {"status": 401, "body": ""}]
)
def test_an_audit_is_not_stopped_wherever_the_status_stands(status: dict[str, Any]) -> None:
    refusal = json.dumps({"error": "authentication required", "hint": "sign in", **status})
    calls = [("fetch", {"url": f"/api/{'abcdefghijklmnopqrstuvwxyz'[at]}-page"}, refusal) for at in range(26)]
    verdicts = evaluate(steps(calls))
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is None


@pytest.mark.parametrize("form", FORMS)
def test_errors_that_ask_for_one_thing_after_the_other_are_left_alone(form: str) -> None:
    random, body = Random(form), dict[str, Any]()
    calls = []
    for field in ("name", "area", "crop", "phase", "flow", "unit"):
        calls.append(post(FORMS[form], random, dict(body), 422, {"error": "missing", "field": field}))
        body[field] = "7"
    calls.append(post(FORMS[form], random, body, 201, {"id": 5}))
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_things_of_which_some_are_gone_is_left_alone(form: str) -> None:
    random = Random(form)
    calls = [
        ("request", {"method": "GET", "url": f"/v1/users/u-{random.randint(1_000, 9_999)}"},
         FORMS[form](random, 404, {"error": "not_found"}) if at % 3 else FORMS[form](random, 200, {"name": f"n{at * 37}"}))
        for at in range(30)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("gap", [3.0, 9.0])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_there_yet_is_waited_for(form: str, gap: float) -> None:
    random = Random(form)
    pending = [FORMS[form](random, 404, {"error": "result_not_found"}) for _ in range(7)]
    results = [*pending, FORMS[form](random, 200, {"rows": 77})]
    calls = [("request", {"method": "GET", "url": "/jobs/7/result"}, result) for result in results]
    assert stopped(evaluate(steps(calls, gap=gap))) is None


@pytest.mark.parametrize("status", [200, 422, 503])
@pytest.mark.parametrize("form", FORMS)
def test_headers_durations_and_names_of_the_exchange_are_no_part_of_the_answer(form: str, status: int) -> None:
    random = Random(form)
    one, other = (FORMS[form](random, status, {"total": 102}) for _ in range(2))
    assert one != other
    assert body_of(one) == body_of(other) != body_of(FORMS[form](random, status, {"total": 103}))


@pytest.mark.parametrize(
    "result", ['{"status": 200, "headers": {"location": "/a"}}', '{"status": "ok", "data": [7]}', '{"status": 404, "data": 7}',
               '{"status": 200.5, "body": 7}', '{"status_code": 200, "data": {"state": "on"}, "progress": 3}',
               '{"status": 204, "headers": {"Upload-Offset": "5242880"}, "body": ""}',
                '{"status": 204, "body":', '{"httpStatus": 7, "body": "x"}']
)  # fmt: skip
def test_what_is_no_response_is_left_as_it_is(result: str) -> None:
    assert body_of(result) is result


@pytest.mark.parametrize("body", [{"status_code": 200, "text": "no"}, '{"status_code": "200", "text": "no"}'])
def test_a_failure_stays_one_whatever_status_its_body_names(body: Any) -> None:
    plain = body_of(json.dumps({"status_code": 502, "elapsed_ms": 7, "body": body}))
    assert json.loads(plain) == {"status_code": 502, "text": "no"}
    assert states_failure(plain)


def test_pages_that_are_new_beside_a_member_that_is_not_are_progress() -> None:
    pages = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
    results = [
        json.dumps({"status_code": 200, "data": {"kind": "page"}, "content": f"On {page} nothing else is known"})
        for page in pages
    ]
    assert len({body_of(result) for result in results}) == len(pages)
    calls = [("fetch", {"url": "/feed"}, result) for result in results]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("status", [200, 422])
def test_a_body_of_any_depth_is_read_or_left(status: int) -> None:
    for depth in range(0, 1_100, 25):
        result = f'{{"status_code": {status}, "elapsed_ms": 7, "body": {"[" * depth}7{"]" * depth}}}'
        assert body_of(result).count("[") == depth


@pytest.mark.parametrize("form", FORMS)
def test_one_page_for_ever_new_parameters_is_no_way_forward(form: str) -> None:
    random = Random(form)
    page = {
        "pings": [{"id": f"pg-{at}", "device": f"dev-{at}"} for at in range(3)],
        "total": 102,
        "note": "limit clamped",
    }
    queries = (
        "offset=102",
        "offset=75",
        "offset=1",
        "page=2",
        "cursor=p2",
        "from=7",
        "since=9",
        "limit=1",
        "after=pg-2",
        "skip=3",
    )
    calls = [
        ("request", {"method": "GET", "url": f"/v3/pings?{query}"}, FORMS[form](random, 200, page))
        for query in queries * 2
    ]
    assert nudged(evaluate(steps(calls))) is not None


def test_a_failure_is_named_by_its_body() -> None:
    random = Random(1)
    lines = {error_signature(form(random, 422, MISSING), None) for form in FORMS.values()}
    assert all(line is not None and "missing_required" in line for line in lines)
    assert error_signature(_with_headers(random, 422, MISSING), None) != error_signature(
        _with_headers(random, 422, {"error": "no_such_zone"}), None
    )


@pytest.mark.parametrize(
    "text", ['{"status": 404, "rows": [7]}', '{"status": "404 items", "body": "x"}', '{"status": 200, "body": ""}']
)
def test_other_objects_with_a_status_are_no_failures(text: str) -> None:
    assert not states_failure(text)
    assert classify(text) == "success"


IDS = st.sampled_from(("rec-2", "rec-7", "blue", "p 2", "p 3", "7", "8", "2026-01-07", "a 1 b 2"))


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abc"), IDS, max_size=3), st.lists(IDS, max_size=3)), max_size=12
    )
)
def test_what_a_result_offers_may_be_asked_for_in_any_shape(calls: list[tuple[dict[str, str], list[str]]]) -> None:
    """A value that a result offered goes on from it, with other arguments beside it than before."""
    verdicts = evaluate(
        steps([("find", args, "no such record; known: " + " ".join(offered), "error") for args, offered in calls])
    )
    assert len(verdicts) == len(calls)


def test_a_value_that_was_offered_goes_on_in_another_shape() -> None:
    text = "no such record; known ones: rec-7 blue"
    requests = [{"id": "rec-2"}, {"id": "rec-3"}, {"id": "rec-7", "colour": "blue", "page": "p 2"},
                {"id": "rec-7", "colour": "blue", "page": "p 3"}]  # fmt: skip
    assert len(evaluate(steps([("find", args, text, "error") for args in requests]))) == 4


def test_a_nudge_names_method_and_address_and_shows_what_the_error_asks_for() -> None:
    random = Random(2)
    headers = {"Authorization": "Bearer tk_ghg_4417", "Content-Type": "application/json"}
    calls = [
        ("request", {"request": {"protocol": "rest", "headers": headers, "method": "POST", "url": "http://localhost:9001/v3/schedules",
                                 "body": body}}, _with_a_reference(random, 422, MISSING))
        for body in BODIES * 2
    ]  # fmt: skip
    text = next(verdict.nudge for verdict in evaluate(steps(calls)) if verdict is not None and verdict.nudge)
    assert "request(POST http://localhost:9001/v3/schedules" in text
    assert "tk_ghg" not in text
    assert "'hint': 'Required: zone_id" in text


def test_a_pending_answer_that_is_polled_without_a_pause_is_no_wait_for_ever() -> None:
    pending = '{"plan_id": "plan-7c2e", "status": "checking", "hint": "becomes committed when all are"}'
    calls = [("request", {"method": "GET", "url": "/v3/plans/plan-7c2e/confirm"}, pending)] * 240
    at = stopped(evaluate(steps(calls, gap=3.0)))
    assert at is not None
    assert at >= 190
    assert stopped(evaluate(steps(calls, gap=30.0))) is None


REFUSALS = ("Not authorized", "Field 'total' doesn't exist on type 'Order'")


@pytest.mark.parametrize("refusal", REFUSALS)
def test_queries_of_graphql_that_are_refused_alike_are_one_failure(refusal: str) -> None:
    response = json.dumps({"data": None, "errors": [{"message": refusal, "locations": [{"line": 1, "column": 3}]}]})
    queries = (
        "{ orders { id total } }", "query { orders(first: 5) { edges { node { id total } } } }",
        "query Orders { orders(first: 10) { nodes { id name total } } }", "{ orders(query: \"open\") { total } }",
        "query { shop { orders { total } } }", "query O($n: Int) { orders(first: $n) { total currency } }",
        "{ orders(reverse: true) { edges { node { total } } } }", "query { orders { total lines { id } } }",
        "query { viewer { orders { total } } }", "{ orders(sortKey: ID) { total } }",
    )  # fmt: skip
    calls = [("graphql", {"query": query, "variables": {"shop": "x"}}, response) for query in queries]
    assert classify(response) == "error"
    assert nudged(evaluate(steps(calls))) is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"errors": [{"line": 7, "message": "unused"}], "warnings": []}',
        '{"data": {"id": 7}, "errors": [{"message": "slow"}]}',
    ],
)
def test_findings_and_parts_of_an_answer_are_no_failure(text: str) -> None:
    assert classify(text) == "success"
