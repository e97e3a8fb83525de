"""Type V: one class of error through changing calls."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, fired, first_level, record
from trajectory_guard.core.detectors import TYPE_V
from trajectory_guard.core.policy import Level


def failures(*texts: str) -> list:
    return [record("run", {"cmd": f"variant {n}"}, text, "error") for n, text in enumerate(texts)]


def test_hints_at_the_third_failure_of_one_class_and_is_certain_at_the_fourth() -> None:
    verdicts = evaluate(failures(*(f"KeyError: 'column_{n}'" for n in range(5))))
    assert fired(verdicts, TYPE_V) == [2, 3, 4]
    found = [next(one for one in verdicts[at].detections if one.loop_type == TYPE_V) for at in (2, 3)]
    assert [one.confidence for one in found] == [0.75, 1.0]
    assert found[1].steps == (0, 1, 2, 3)


def test_names_numbers_and_paths_in_the_message_do_not_matter() -> None:
    texts = [f"error: /repo/src/f{n}.py line {n * 7}: expected 2 arguments, got {n}" for n in range(4)]
    assert fired(evaluate(failures(*texts)), TYPE_V) == [2, 3]


def test_other_steps_in_between_do_not_break_the_streak_within_the_window() -> None:
    steps = []
    for n in range(3):
        steps += [
            record("run", {"cmd": n}, "TypeError: no such option", "error"),
            record("read", {"n": n}, f"help page {n}"),
        ]
    assert fired(evaluate(steps), TYPE_V) == [4]


def test_does_not_fire_on_different_errors() -> None:
    assert (
        fired(
            evaluate(
                failures("KeyError: 'a'", "TypeError: not callable", "ValueError: too small", "SyntaxError: bad token")
            ),
            TYPE_V,
        )
        == []
    )


def test_does_not_fire_when_the_failures_lie_far_apart() -> None:
    steps = []
    for n in range(4):
        steps.append(record("run", {"cmd": n}, "TypeError: no such option", "error"))
        steps += [record("read", {"n": (n, m)}, f"text {n} {m}") for m in range(5)]
    assert fired(evaluate(steps), TYPE_V) == []


def test_does_not_fire_on_one_class_at_different_tools() -> None:
    steps = [record(f"tool{n}", {"n": n}, "PermissionError: not allowed", "error") for n in range(4)]
    assert fired(evaluate(steps), TYPE_V) == []


def test_does_not_fire_on_successes_that_mention_errors() -> None:
    entries = ("disk full", "fan stopped", "link down", "door open", "too hot", "no power")
    steps = [record("read_log", {"page": n}, f"Error: {entry}, restarted") for n, entry in enumerate(entries)]
    assert fired(evaluate(steps), TYPE_V) == []


def test_transient_errors_get_three_times_as_many_tries() -> None:
    calls = ({"cmd": f"curl https://{one}.example"} for one in "abcdefghijkl")
    verdicts = evaluate([record("run", call, "503 Service Unavailable", "error") for call in calls])
    assert fired(verdicts, TYPE_V) == [8, 9, 10, 11]
    (found,) = [one for one in verdicts[8].detections if one.loop_type == TYPE_V]
    assert (found.rule, str(found.certainty)) == ("transient_error", "waiting")


def test_three_timeouts_and_then_success_are_left_alone() -> None:
    steps = [
        record("fetch", {"url": "https://a.io", "timeout": n}, "request timed out", "error", t=n * 40.0)
        for n in range(3)
    ]
    verdicts = evaluate([*steps, record("fetch", {"url": "https://a.io", "timeout": 9}, "<html>found</html>", t=200.0)])
    assert first_level(verdicts) is None


def test_errors_without_any_text_count_by_their_class() -> None:
    steps = [record("run", {"cmd": n}, None, "error", error_class="ReadError") for n in range(4)]
    assert fired(evaluate(steps), TYPE_V) == [2, 3]
    unknown = [record("run", {"cmd": n}, None, "error") for n in range(9)]  # nothing says that they are alike
    assert fired(evaluate(unknown[:5]), TYPE_V) == []
    assert fired(evaluate(unknown), TYPE_V) == [5, 6, 7, 8]


USED_UP = {
    "a budget, in French": ("Le budget de cette session est épuisé. Aucun appel ne sera plus exécuté.", "error"),
    "a session, as text alone": ("ERROR: session expired, please log in again", "success"),
    "a licence, in Japanese": ("エラー:ライセンスの有効期限が切れています。", "error"),
    "a server that is gone": ("McpError: Connection closed", "error"),
}


@pytest.mark.parametrize("kind", USED_UP)
@pytest.mark.parametrize("calls_a_turn", [1, 4])
def test_nothing_but_one_error_is_nudged_whatever_is_called(kind: str, calls_a_turn: int) -> None:
    text, outcome = USED_UP[kind]
    steps = [
        record(
            f"tool{at % 5}", {"about": f"topic {at * 37}"}, text, outcome, batch=str(at // calls_a_turn), t=float(at)
        )
        for at in range(16 * calls_a_turn)
    ]
    verdicts = evaluate(steps)
    first = first_level(verdicts)
    assert first is not None
    assert first // calls_a_turn in (5, 6, 7)
    assert [one.rule for one in verdicts[first].detections] == ["same_error"]
    assert first_level(verdicts[: 12 * calls_a_turn], Level.STOP) is None


def test_one_error_of_all_tools_ends_with_anything_that_works() -> None:
    refused = [record(f"tool{at % 4}", {"at": at * 31}, "The session has ended.", "error") for at in range(5)]
    works = record("log_in", {"as": "agent"}, "Welcome back, agent.")
    assert fired(evaluate([*refused, works, *refused[:4], works]), TYPE_V) == []


def test_rate_limits_of_several_tools_are_waited_for() -> None:
    text = "429 Too Many Requests, retry later"
    steps = [record(f"tool{at % 4}", {"at": at * 31}, text, "error", t=at * 30.0) for at in range(8)]
    assert fired(evaluate(steps), TYPE_V) == []


NAMED = {
    "columns": ("sql", "SELECT {} FROM staff", "ERROR: column «{}» does not exist"),
    "columns in Russian": ("sql", "SELECT {} FROM сотрудники", "ОШИБКА: столбец «{}» не существует"),
    "packages": ("command", "pip install {}", "Looking in indexes\nERROR: No matching distribution found for {}"),
    "flags": ("command", "convert {} a.png", "convert: unrecognized option {}"),
    "names in a program": ("code", "print({})", "NameError: name '{}' is not defined"),
    "members of a request": ("fields", "{}", "400: unknown field {}"),
}
PARTS = ["alpha", "bravo", "carol", "delta", "echos", "foxes", "golfs", "hotel"]


@pytest.mark.parametrize("kind", NAMED)
def test_does_not_fire_where_one_fault_after_the_other_is_mended(kind: str) -> None:
    key, call, error = NAMED[kind]
    steps = []
    for n, part in enumerate(PARTS):
        mended = [f"right{at}" for at in range(n)]
        steps.append(record("run", {key: call.format(" ".join([*mended, *PARTS[n:]]))}, error.format(part), "error"))
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


@pytest.mark.parametrize("kind", NAMED)
def test_fires_where_ever_another_guess_takes_one_place(kind: str) -> None:
    key, call, error = NAMED[kind]
    steps = [record("run", {key: call.format(part)}, error.format(part), "error") for part in PARTS]
    assert fired(evaluate(steps), TYPE_V)


ENTRIES = {
    "links": lambda n: ("check_link", {"url": f"https://www.shop.example/blog/post-{n % 7}-{n}"}),
    "link by link, in a shell": lambda n: ("bash", {"command": f"curl -sfI https://www.shop.example/blog/post-{n % 7}-{n}"}),
    "hosts": lambda n: ("bash", {"command": f"ping -c1 -W1 10.0.{n % 3}.{n}"}),
    "addresses": lambda n: ("geocode", {"address": f"{n} Cedar Street, Amber"}),
    "rows": lambda n: ("insert_row", {"email": f"user{n}@shop.example", "city": ("Amber", "Cedar", "Ridge")[n % 3]}),
}  # fmt: skip
"""Entries of lists that say much the same as those before them."""


def of_list(kind: str, failing: str) -> list:
    """Steps through a list: ``x`` is an entry that fails."""
    return [
        record(*ENTRIES[kind](n), *(("404 Not Found", "error") if one == "x" else ("200 OK", "success")), t=3.0 * n)
        for n, one in enumerate(failing)
    ]


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("failing", [".xx.xxx.x.xx.xxxx.x..xxx.xx" * 2, "xx.xxx.xxxxx.xxxxxx.xxxxx.xxxxxxxx.xxx.xx"])
def test_lists_of_which_some_entries_fail_are_left_alone(kind: str, failing: str) -> None:
    assert first_level(evaluate(of_list(kind, failing))) is None


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_list_of_which_nothing_works_any_more_is_nudged(kind: str) -> None:
    """Of a list on which one in four fails, several in a row say that something else is wrong."""
    at = first_level(evaluate(of_list(kind, "...x...x...x...x" + 32 * "x")))
    assert at is not None
    assert at >= 18


@pytest.mark.parametrize("kind", ENTRIES)
def test_no_list_fails_for_ever(kind: str) -> None:
    verdicts = evaluate(of_list(kind, "x.xxx.xxxxx" + 80 * "x"))
    assert first_level(verdicts, Level.NUDGE) is not None
    assert first_level(verdicts, Level.STOP) is not None


def test_edits_of_which_each_is_refused_are_no_entries_of_a_list() -> None:
    """That the tool has worked elsewhere excuses look-ups that find nothing, and no texts that it does not find."""
    steps = [record("edit", {"path": "b.py", "old": "y", "new": "z\n"}, "edited b.py")]
    for n in range(12):
        texts = {
            "old": f"def total(items):\n    return sum({n}, items)\n",
            "new": f"def total(items):\n    return {n}\n",
        }
        steps.append(record("edit", {"path": "a.py", **texts}, "Error: old text not found in a.py", "error"))
    nudge = first_level(evaluate(steps))
    assert nudge is not None
    assert nudge < 10


def test_ever_other_addresses_that_all_fail_are_not_stopped_before_the_thirtieth() -> None:
    links = [record("head", {"url": f"https://club.example/{n % 5}/news-{n}"}, "404", "error", t=n) for n in range(60)]
    verdicts = evaluate(links)
    assert first_level(verdicts, Level.NUDGE) is not None
    stop = first_level(verdicts, Level.STOP)
    assert stop is not None
    assert stop >= 30


def test_one_address_asked_for_in_ever_other_ways_is_stopped() -> None:
    url = "https://club.example/members"
    calls = [record("get", {"url": url, "headers": f"X-Key: {n}"}, "403 Forbidden", "error", t=n) for n in range(24)]
    assert first_level(evaluate(calls), Level.STOP) is not None


def test_a_second_try_of_an_entry_belongs_to_it() -> None:
    steps = []
    for one in of_list("links", ".x.xx.x..xx.xx.x" * 2):
        steps.append(one)
        if one.outcome_type == "error":
            steps.append(one._replace(step_id=f"{one.step_id}-2", timestamp=one.timestamp + 1))
    assert first_level(evaluate(steps)) is None


SCRIPTS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]

STATED = {
    "shell": lambda at, name: ({"cmd": f"./{name}.sh"}, f"./{name}.sh: line {at * 7 + 3}: jq: command not found"),
    "traceback": lambda at, name: (
        {"cmd": f"python {name}.py"},
        f'Traceback (most recent call last):\n  File "/srv/{name}.py", line {at * 5 + 7}, in <module>\n    import requests\n'
        "ModuleNotFoundError: No module named 'requests'",
    ),
    "node": lambda at, name: (
        {"cmd": f"node {name}.js"},
        f"/srv/{name}.js:{at * 3 + 2}\nconst pad = require('left-pad')\n\nError: Cannot find module 'left-pad'\n"
        f"    at Module._resolve (node:internal:{900 + at})",
    ),
    "code": lambda at, name: (
        {"code": f"import {name}\nprint({at})"},
        f"ModuleNotFoundError at line {at * 11 + 4}: No module named 'requests'",
    ),
}


@pytest.mark.parametrize("kind", STATED)
def test_an_error_in_results_counts_although_its_line_number_moves(kind: str) -> None:
    """The instrumentation reports no failure: only the text says it, with another line number each time."""
    steps = [record("bash", *STATED[kind](at, name), t=at * 3.0) for at, name in enumerate(SCRIPTS)]
    found = [
        one
        for one in evaluate(one._replace(step_id=f"{at + 1:016x}") for at, one in enumerate(steps))
        if one is not None
    ]
    assert any(one.level is not Level.OBSERVE for one in found)
    assert {it.rule for one in found for it in one.detections} == {"same_error"}
