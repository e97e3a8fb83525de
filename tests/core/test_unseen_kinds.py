"""Kinds of loops, and of healthy work beside them, that were met in recorded runs of origins no rule was tuned on."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Iterable
from typing import Any

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

WORDS = (
    "red lamps",
    "blue chairs",
    "old maps",
    "new tools",
    "wet paint",
    "dry goods",
    "fine sand",
    "raw silk",
    "hot tea",
)
PAGE = "Page: Checkout\nTotal 41 EUR\nButton: Pay now (disabled)\nPlease accept the terms"
HITS = [{"url": f"https://x.example/{name}", "title": f"Part {name}", "score": 0.5} for name in "abcde"]


def steps(calls: Iterable[tuple[Any, ...]], gap: float = 2.0) -> list[StepRecord]:
    """Tool, arguments, result, and the outcome unless it is success."""
    found = []
    for at, (tool, args, result, *rest) in enumerate(calls):
        fields = dict(rest[1]) if len(rest) > 1 else {}
        found.append(record(tool, args, result, rest[0] if rest else "success", t=100.0 + at * gap, **fields))
    return found


def nudged(verdicts: list[Verdict | None]) -> int | None:
    return first_level(verdicts, Level.NUDGE)


def shuffled(seed: int) -> str:
    chance = random.Random(seed)
    return json.dumps({"took": seed, "hits": [{**one, "score": chance.random()} for one in chance.sample(HITS, 5)]})


def beside(same: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """One call between ever new reads."""
    return [one for at in range(count) for one in (("open", {"page": at}, f"All about {WORDS[at]}."), same)]


def refused(at: int) -> str:
    """The answer of an editor that quotes the edit which it refuses."""
    edit = "\n".join(f"{line}| value_{at}_{line} = ({at * line}" for line in range(1, 40))
    return f"Your edit has introduced new syntax errors, so it was not applied.\n{edit}\nPlease fix the edit."


def link(at: int) -> str:
    made = random.Random(at).getrandbits(44)
    return json.dumps(
        {"id": f"plink_{made:011x}", "url": f"https://pay.example/{made:x}", "created": 1747150000 + 6 * at}
    )


def refund(at: int) -> str:
    return json.dumps({"refund_id": f"rf_{random.Random(at).getrandbits(40):010x}", "status": "pending"})


LAMP = ("examine", {"at": "lamp 1"}, "There's nothing special about lamp 1.")
CLAIMS = (
    "All tests of the queue pass.", "The queue is implemented.", "Task complete: tests green.", "I have completed it.",
    "The work is finished and the tests pass.", "Done. It drains as required.", "Complete, please accept.",
    "All requirements are met.", "The task is complete now.", "Final: completed.", "Everything drains in order.",
)  # fmt: skip
REJECTED = "Rejected: npm test exited with 1 (queue.test.ts > drains in order). Task is not complete."
REWORDED = ("intro to widgets", "widgets intro", "introduction widgets", "widget introduction", "intro widget guide")
DOWN = ("Could not reach it", "It is not reachable", "No route", "Unable to contact it", "It is down", "No answer")
TIMEOUT = ("fetch", {"symbol": "AAPL"}, "Request timeout", "error")
EMPTY_LIST = '{{"lastBuildDate": "Mon, 0{} Mar 2026 10:00:00 +0900", "total": 0, "start": 1, "items": []}}'
LOOPS: dict[str, list[tuple[Any, ...]]] = {
    "one command fails in ever other words": [("get", {"url": "https://a.example"}, text, "error") for text in DOWN],
    "an empty search between ever new reads": beside(("search", {"q": "refund"}, "No results found."), 7),
    "a frozen record between ever new reads": beside(("get_build", {"id": 7}, '{"id": 7, "owner": "nobody"}'), 9),
    "clicks on one page that shows a clock": [("click", {"ref": f"e{at}"}, f"12:0{at}:11 {PAGE}") for at in range(8)],
    "one list of hits in ever other orders": [("search", {"q": q}, shuffled(at)) for at, q in enumerate(REWORDED)],
    "time-outs retried at full speed": [TIMEOUT] * 5,
    "an empty list beside a date that moves": [
        ("news", {"q": "x", "n": 3}, EMPTY_LIST.format(at)) for at in range(1, 6)
    ],
    "refusals in JSON": [
        ("find", {"radius": at * 100}, '{"success": false, "error_message": "category is unknown"}') for at in range(8)
    ],
    "the time of the call as an argument": [
        (
            "orders",
            {"customer": "c7", "now": f"2026-03-01T10:0{at}:00Z"},
            "c7 has no open orders; the last one came in May",
        )
        for at in range(6)
    ],
    "an action seen before, again and again with an answer that shows no state": [
        LAMP,
        ("look", {"at": "desk 1"}, "On the desk 1, you see a pen 1."),
        ("inventory", {}, "You are carrying a pen 2."),
        *[LAMP] * 4,
    ],
    "an editor that refuses ever other edits in the same words": [
        ("edit", {"path": "a.tsx", "text": f"value_{at} = ({at}"}, refused(at)) for at in range(9)
    ],
    "claims to be done that are rejected for one reason": [
        ("finish", {"summary": claim}, REJECTED, "error") for claim in CLAIMS
    ],
    "one payment link after the other": [
        ("create_payment_link", {"invoice": "I-7", "cents": 4800}, link(at)) for at in range(9)
    ],
    "one refund after the other, each pending": [
        ("create_refund", {"order": "A-1", "amount": "64.90"}, refund(at)) for at in range(9)
    ],
    "a reading that differs by its stamp alone": [
        ("close_gripper", {"force": 20}, json.dumps({"closed": True, "width": 0, "stamp": 1747212000.1 + 3.2 * at}))
        for at in range(9)
    ],
    "an answer around the request, in Spanish": [
        ("buscar", {"consulta": q}, f"No encontramos nada para «{q}» en el catálogo.")
        for q in (
            "filtro de aceite",
            "aceite filtro",
            "un filtro para aceite",
            "filtros del aceite",
            "filtro aceite motor",
        )
    ],
}
HEALTHY: dict[str, list[tuple[Any, ...]]] = {
    "an import that fails at a later row after each correction": [
        call
        for at in range(10)
        for call in (
            ("set_cell", {"row": 3 + 4 * at, "value": f"2026-03-{at + 1:02}"}, "ok"),
            ("import", {"file": "a.csv"}, f'{{"error": "row {7 + 4 * at}: the date is invalid"}}', "error"),
        )
    ],
    "updates that each return the record": [
        (f"update_{part}", {part: at}, json.dumps({"id": "F1", "cabin": part, "flights": HITS, "bags": [at]}))
        for at, part in enumerate(("passengers", "flights", "bags"))
    ],
    "commands that print nothing": [
        ("bash", {"command": f"tmux send-keys -t w:0.2 '{keys}' Enter"}, "")
        for keys in ("vim a.py", ":13", "/line.split", "f s i .strip()", ":wq", "python a.py")
    ],
    "notes of a like wording": [
        ("add_note", {"text": text}, f'Added "{text}"')
        for text in ("buy milk", "call mom", "pay the rent", "water plants")
    ],
    "a list of which some are missing": [
        (
            "get_paper",
            {"doi": f"10.1/{at}"},
            *(("HTTP 404: Resource not found.", "error") if at % 2 else (f"On {word}",)),
        )
        for at, word in enumerate(WORDS)
    ],
    "writes that answer with two words in JSON": [
        ("ekle", {"firma": word, "tutar": at}, '{"durum": "Kayıt eklendi"}') for at, word in enumerate(WORDS)
    ],
    "debugging: every build fails with other errors behind one sentence": [
        ("build", {"attempt": word}, f"The build has failed with errors:\n{word}: cannot find {word}\n" + "-" * 500)
        for word in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    ],
    "ids made on demand": [
        ("new_id", {"kind": "order"}, f"{random.Random(at).getrandbits(64):016x}") for at in range(9)
    ],
    "a note that begins with the word wait": [
        ("edit", {"note": "wait group", "old": f"v{at}"}, f"The file is at version {at} now.") for at in range(6)
    ],
}


@pytest.mark.parametrize("calls", LOOPS.values(), ids=LOOPS)
def test_a_loop_of_this_kind_is_nudged(calls: list[tuple[Any, ...]]) -> None:
    assert nudged(evaluate(steps(calls))) is not None


def test_an_error_in_unknown_words_is_stopped_once_it_has_had_time_to_pass() -> None:
    died = ("run_cell", {"index": 3}, "The kernel appears to have died.", "error")
    assert first_level(evaluate(steps([died] * 15)), Level.STOP) is None
    assert first_level(evaluate(steps([died] * 20)), Level.STOP) is not None


def test_several_of_a_kind_are_nudged_long_before_they_are_stopped() -> None:
    verdicts = evaluate(steps([("create_server", {"size": "s"}, link(at)) for at in range(16)]))
    assert nudged(verdicts) is not None
    assert first_level(verdicts, Level.STOP) is None


@pytest.mark.parametrize("calls", HEALTHY.values(), ids=HEALTHY)
def test_work_of_this_kind_is_left_alone(calls: list[tuple[Any, ...]]) -> None:
    assert nudged(evaluate(steps(calls))) is None


REASONS = (
    "double charge",
    "account question",
    "card charged twice",
    "needs verification",
    "billing matter",
    "you check",
)


def handed(run: str | None, *, by_name: bool = False) -> list[StepRecord]:
    """Two desks that hand a customer to each other, with new reasons each time."""
    calls = []
    for at, why in enumerate((*REASONS, "the charge", "the account", "still the charge", "again the account")):
        here, there = ("front", "back") if at % 2 == 0 else ("back", "front")
        fields = {"agent": here, "run": f"{run}-{at}" if run else None}
        call = ("pass_on", {"to": there, "why": why}) if by_name else (f"transfer_to_{there}", {"why": why})
        calls.append((*call, "passed on", "success", fields))
    return steps(calls)


@pytest.mark.parametrize("by_name", [False, True], ids=["hand-off tools", "the next agent is named"])
@pytest.mark.parametrize("run", [None, "desk"], ids=["one run", "each visit a run"])
def test_work_handed_round_with_new_words_is_a_loop(run: str | None, by_name: bool) -> None:
    verdicts = evaluate(handed(run, by_name=by_name))
    assert nudged(verdicts) is not None
    assert any(one.rule == "handoffs" for verdict in verdicts if verdict for one in verdict.detections)
    assert {"front", "back"} == {
        name
        for verdict in verdicts
        if verdict
        for one in verdict.detections
        if one.rule == "handoffs"
        for name in one.names
    }


@pytest.mark.parametrize("run", [None, "desk"], ids=["one run", "each visit a run"])
def test_agents_that_do_something_new_before_they_hand_over_are_no_loop(run: str | None) -> None:
    work: list[StepRecord] = []
    for at, step in enumerate(handed(run)):
        done = record("write", {"part": at}, f"Chapter {at}: {WORDS[at % 9]} and more", t=step.timestamp - 1.0)
        work += [done._replace(agent_id=step.agent_id, run=step.run), step]
    assert nudged(evaluate(work)) is None


def test_a_recurring_result_is_reported_once_and_again_ever_more_rarely() -> None:
    pages = [f"Chapter {at}: on {WORDS[at % 9]} and number {at * 7919:b}" for at in range(150)]
    calls = [
        one
        for at, page in enumerate(pages)
        for one in (("read", {"at": at}, page), ("get_owner", {"id": 1}, "Owner: nobody. State: as it was."))
    ]
    due = [at for at, verdict in enumerate(evaluate(steps(calls))) if verdict is not None and verdict.nudge]
    assert 2 <= len(due) <= 4
    assert [later - earlier for earlier, later in itertools.pairwise(due)] == sorted(
        later - earlier for earlier, later in itertools.pairwise(due)
    )


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("Building the docs... done\nbuild succeeded.\nERROR: heading not found in toctree!", True),
        ("collected 12 items\n\n12 passed, 0 failed in the suite of orders", False),
        ("reading sources... done\nwriting output... done\nbuild succeeded, no errors.", False),
        ("src/cart.ts(31,7): error TS2304: Cannot find name 'total'.", True),
        ("tests/test_errors.py .... [100%]\n\n4 passed, among them the failure of a login", False),
    ],
    ids=["the error stays", "all tests pass", "no errors", "a code", "tests of errors pass"],
)
def test_a_command_that_keeps_ending_in_one_error_after_each_edit_is_found(output: str, found: bool) -> None:
    calls = [
        one
        for at in range(14)
        for one in (
            (
                "edit",
                {"path": "toctree.py", "new": f"{WORDS[at % 9]} = {at * 7919:b}"},
                f"Line {at * 31 + 4} was edited",
            ),
            ("bash", {"command": "python reproduce.py"}, output),
        )
    ]
    assert (nudged(evaluate(steps(calls))) is not None) is found


def test_queries_of_a_tool_that_has_found_something_escalate_slowly() -> None:
    found = [("sql", {"q": "SELECT make, model FROM vehicles"}, '[{"make": "Bryant", "model": "Lavender"}]')]
    columns = ("owner", "card", "city", "year", "state")
    orders = itertools.islice(itertools.permutations(columns), 60)
    empty = [
        ("sql", {"q": f"SELECT {', '.join(one)} FROM cards WHERE state = 'lost'"}, "[]", "empty") for one in orders
    ]
    stops = [first_level(evaluate(steps(calls)), Level.STOP) for calls in (empty, found + empty)]
    assert nudged(evaluate(steps(found + empty))) is not None
    assert stops[0] is not None
    assert stops[1] is not None
    assert 16 < stops[0] <= stops[1]


DRAWS = {
    "coin": ("flip_coin", {}, ["heads", "tails"]),
    "die": ("roll_dice", {"sides": 6}, ["1", "2", "3", "4", "5", "6"]),
    "sensor": ("read_sensor", {"id": 4}, ["20.5", "20.6", "20.7"]),
    "quotes": ("get_quote", {}, ["Be bold.", "Be kind to yourself and others.", "Never give up.", "Carpe diem."]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_and_readings_that_come_again_in_no_order_are_not_stopped(name: str) -> None:
    tool, args, values = DRAWS[name]
    for seed in range(10):
        chance = random.Random(seed)
        verdicts = evaluate(steps([(tool, args, chance.choice(values)) for _ in range(100)], gap=3.0))
        assert first_level(verdicts, Level.STOP) is None


@pytest.mark.parametrize("values", [["20.5"], ["20.5", "20.6"]], ids=["one value stays", "two in turns"])
def test_values_that_stay_or_come_in_turns_are_found(values: list[str]) -> None:
    first = [("read_sensor", {"id": 4}, value) for value in ("20.5", "20.6", "20.6", "20.5", "20.7", "20.6", "20.7")]
    then = [("read_sensor", {"id": 4}, values[at % len(values)]) for at in range(60)]
    assert nudged(evaluate(steps([*first, *then], gap=3.0))) is not None


# --- acknowledgements that name the place ----------------------------------------------------------------------------

PAGE_ID = "49653102572F78064DBB08F1A6B5ACD4"
WHERE = {
    "page": f'{{\n  "ok": true,\n  "targetId": "{PAGE_ID}"\n}}',
    "session": '{"status": "ok", "session": "8a0f5d18-29ec-44cf-9f9a-3d4a229016df"}',
    "page and tab": f'{{"done": true, "page": "{PAGE_ID}", "tab": "3d4a229016df8a0f5d18"}}',
    "no place": '{"ok": true}',
    "a key with names": '{"status": "ok", "key": "agent:main:subagent:0b93f7c2-68d4-40d9-a931-a0d188e783d9"}',
}


@pytest.mark.parametrize("where", WHERE)
def test_a_form_is_filled_in_whatever_id_its_page_has(where: str) -> None:
    """A recorded agent was nudged eight times for it: fields in turn, and the tab key between them."""
    fields = (("e43", "Ada"), ("e46", "ada@example.com"), ("e49", "测试用户3"), ("e52", "s3"))
    acts = [
        act
        for field, text in fields
        for act in ({"kind": "type", "ref": field, "text": text}, {"kind": "press", "key": "Tab"})
    ]
    steps = [record("browser", act, WHERE[where], t=5.0 * at) for at, act in enumerate(acts)]
    assert first_level(evaluate(steps), Level.NUDGE) is None


@pytest.mark.parametrize("where", WHERE)
def test_the_same_click_again_and_again_is_nudged_whatever_id_its_page_has(where: str) -> None:
    click = {"kind": "click", "ref": "e57"}
    verdicts = evaluate([record("browser", click, WHERE[where], t=3.0 * at) for at in range(60)])
    assert first_level(verdicts, Level.NUDGE) is not None
    assert first_level(verdicts, Level.STOP) is not None


def test_workers_that_are_started_one_after_the_other_are_left_alone() -> None:
    """Each is accepted with a key and a run of its own."""
    tasks = (
        "find the file",
        "list the folder",
        "look into the log",
        "ask the service",
        "count the rows",
        "read the page",
    )
    chance = random.Random(5)
    steps = [
        record(
            "sessions_spawn", {"label": task.title(), "task": f"Please {task} and report what there is."},
            json.dumps({
                "status": "accepted", "childSessionKey": f"agent:main:subagent:{uuid.UUID(int=chance.getrandbits(128))}",
                "runId": str(uuid.UUID(int=chance.getrandbits(128))),
            }, indent=2), t=20.0 * at,
        )
        for at, task in enumerate(tasks)
    ]  # fmt: skip
    assert first_level(evaluate(steps), Level.NUDGE) is None


def test_an_id_that_was_asked_for_is_no_acknowledgement() -> None:
    verdicts = evaluate([record("digest", {"of": "a.bin"}, f'{{"sha": "{PAGE_ID}"}}', t=3.0 * at) for at in range(4)])
    assert first_level(verdicts, Level.NUDGE) == 2


# --- commands that print nothing, and say so -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nothing",
    [
        "",
        "(no output)",
        "<no output>",
        "Tool ran without output or errors",
        "Command completed with no output.",
        "Your command ran successfully and did not produce any output.",
    ],
)
def test_scripted_edits_that_print_nothing_are_left_alone(nothing: str) -> None:
    """A recorded agent edits a file by scripts of its own, one after the other."""
    edits = [f"python3 - <<'PY'\ntext = open('a.py').read()\n{what}\nPY" for what in EDITS]
    verdicts = evaluate([record("exec", {"command": one}, nothing, t=9.0 * at) for at, one in enumerate(edits)])
    assert first_level(verdicts, Level.NUDGE) is None


EDITS = (
    "text = text.replace('peaks', 'all_peaks')", "text += 'print(summary)'", "assert 'def main' in text",
    "text = text.replace('import os', 'import os, json')", "open('a.py', 'w').write(text.rstrip())",
    "open('b.py', 'w').write(text.upper())", "text = text.replace('beta', 'gamma')", "del text",
)  # fmt: skip


@pytest.mark.parametrize("nothing", ["(no output yet)", "No new messages yet."])
def test_a_log_that_is_still_empty_is_waited_for(nothing: str) -> None:
    """Nudged at the third look in a recorded run; the fourth one had the log."""
    verdicts = evaluate([record("process", {"action": "log", "id": "x"}, nothing, t=2.0 * at) for at in range(5)])
    assert first_level(verdicts, Level.NUDGE) is None


CLICKS = {
    "pair": lambda x, y: {"action": "left_click", "coordinate": [x, y]},
    "named": lambda x, y: {"action": "left_click", "at": {"x": x, "y": y}},
    "two numbers": lambda x, y: {"action": "left_click", "x": x, "y": y},
}


@pytest.mark.parametrize("shape", CLICKS)
def test_clicks_beside_the_mark_are_found_by_the_unchanged_screen(shape: str) -> None:
    """A pair of coordinates was taken for content that is handed over, so that 15 equal screens were work."""
    screen = "data:image/png;base64," + "iVBORw0KGgo" * 80
    laps = [
        call
        for at in range(40)
        for call in (
            ("computer", CLICKS[shape](640 + at % 7, 400 + at % 5), "", "empty"),
            ("computer", {"action": "screenshot"}, screen),
        )
    ]
    verdicts = evaluate(steps(laps, gap=5.0))
    assert (nudged(verdicts) or 99) <= 2 * 6
    assert first_level(verdicts, Level.STOP) is not None


@pytest.mark.parametrize("name", ["2026-05-12T08_{:02}_{:02}_123Z-debug-0.log", "build-20260512-08{:02}{:02}.log"])
def test_a_build_that_fails_alike_is_found_though_its_log_has_another_name(name: str) -> None:
    """A name with a stamp counted as another error, and each edit between two builds as work that led on."""
    laps = [
        call
        for at in range(16)
        for call in (
            ("edit", {"path": "Dockerfile", "content": f"RUN pip install x=={at}\nCOPY . ."}, "ok"),
            ("bash", {"command": "make"}, f"npm ERR! code 2\nlog: /root/_logs/{name.format(at, 3 * at)}", "error"),
        )
    ]
    verdicts = evaluate(steps(laps, gap=9.0))
    assert nudged(verdicts) is not None
    assert first_level(verdicts, Level.STOP) is not None


PUT_OFF = {
    "rate limit": lambda at: (
        f"HTTP 429 Too Many Requests\nretry-after: {60 - 2 * at}\nx-ratelimit-reset: {1_778_000_000 + at}"
    ),
    "overloaded": lambda at: (
        f"503 Service Unavailable: {917 + 31 * at} requests in the queue (ref {0xA1B2C3D4 + 7919 * at:x})"
    ),
    "locked": lambda at: f"database is locked by writer {at * 13 % 7} of 7, please try again",
}


@pytest.mark.parametrize("kind", PUT_OFF)
def test_calls_that_are_put_off_in_turns_are_advised_to_wait_and_never_stopped(kind: str) -> None:
    """The moving part of the error counted as progress, so that two calls in turns hammered a service for ever."""
    calls = [("fetch", {"page": 1 + at % 2}, PUT_OFF[kind](at), "error") for at in range(30)]
    verdicts = evaluate(steps(calls, gap=1.5))
    assert (nudged(verdicts) or 99) <= 12
    assert first_level(verdicts, Level.STOP) is None


@pytest.mark.parametrize("kind", PUT_OFF)
def test_two_calls_that_succeed_at_their_third_try_are_left_alone(kind: str) -> None:
    calls = [
        ("fetch", {"page": page}, f"Page {page}: all about {WORDS[page % 9]}.") if at == 2
        else ("fetch", {"page": page}, PUT_OFF[kind](3 * lap + at), "error")
        for lap in range(6) for at in range(3) for page in (2 * lap, 2 * lap + 1)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls, gap=9.0))) is None


def test_a_command_that_prints_nothing_between_pieces_of_work_is_left_alone() -> None:
    calls: list[tuple[Any, ...]] = []
    for name in WORDS:
        calls += [
            ("edit", {"path": f"src/{name.replace(' ', '_')}.py", "old": "one", "new": "two"}, "ok"),
            ("bash", {"command": "git status --short"}, f" M src/{name.replace(' ', '_')}.py"),
            ("bash", {"command": "git add -A && git commit -qm wip"}, "", "success"),
            ("bash", {"command": "git status --short"}, ""),
        ]
    assert nudged(evaluate(steps(calls))) is None


def test_a_message_that_is_not_delivered_has_failed() -> None:
    failed = '{{"status": "failed", "reason": "recipient address missing", "trace": "{:012x}"}}'
    calls = [("send_invoice", {"invoice": "INV-7", "attempt": at}, failed.format(at * 7_919)) for at in range(8)]
    assert nudged(evaluate(steps(calls))) in (3, 4)
    jobs = [
        ("send_job", {"job": f"J-{at}{name}"}, f'{{"status": "queued", "job": "{name}"}}')
        for at, name in enumerate(WORDS)
    ]
    assert nudged(evaluate(steps(jobs))) is None


def test_thoughts_that_go_on_are_left_alone_whatever_their_server_counts() -> None:
    thoughts = [
        "Each broker has ten gigabit, and consumers read every event four times.",
        "Outgoing traffic is then close to a gigabyte in each second of the peak.",
        "At sixty percent of the card that is one broker and a third.",
        "So the network is no limit; the partitions are.",
        "A consumer handles a thousand events, which asks for a hundred partitions.",
        "Leaders should be spread evenly, four for each of thirty disks.",
        "Retention of a week needs twelve terabytes with three replicas.",
        "Compression with zstd halves that, by the sample of last month.",
        "Upgrades take one broker away, so plan for one more than needed.",
        "Costs: six machines of the second size, about nine hundred a month.",
        "The old cluster may stay for reads until the offsets are moved.",
        "Open risk: a single tenant writes half of all events at noon.",
    ]
    answer = '{{"thoughtNumber": {}, "totalThoughts": 20, "nextThoughtNeeded": true, "branches": [], "thoughtHistoryLength": {}}}'
    calls = [
        ("sequentialthinking", {"thought": thought, "thoughtNumber": at, "totalThoughts": 20, "nextThoughtNeeded": True},
         answer.format(at, at))
        for at, thought in enumerate(thoughts, 1)
    ]  # fmt: skip
    assert nudged(evaluate(steps(calls))) is None
