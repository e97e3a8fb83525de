"""Healthy work that was stopped or nudged when strangers tried the guard, and loops of the same look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, stopped
from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Verdict

Call = tuple[str, Any, str]


def run(calls: list[Call], gap_s: float, *, error_class: str | None = None) -> list[Verdict | None]:
    outcomes = {"[]": "empty", "{}": "empty", "null": "empty"}
    return evaluate(
        record(
            tool, args, text if error_class is None else None, "error" if error_class else outcomes.get(text, "success"),
            t=1_700_000_000 + number * (gap_s + 0.3), dur=0.3, error_class=error_class,
        )
        for number, (tool, args, text) in enumerate(calls)
    )  # fmt: skip


STATES = [
    "training", "indexing", "validating", "submitted", "started", "EXECUTING", "awaiting approval", "pending_review",
    "in Bearbeitung", "en cours", "进行中", "処理中", "выполняется", "işleniyor", "em andamento", "جارٍ التنفيذ",
]  # fmt: skip


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "plain"])
@pytest.mark.parametrize("state", STATES)
def test_a_state_that_says_that_work_goes_on_is_polled(state: str, escaped: bool) -> None:
    text = json.dumps({"id": 1, "status": state}, ensure_ascii=escaped)
    assert stopped(run([("get_job", {"id": 1}, text)] * 40, 5.0)) is None


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "livré", "完了"])
def test_a_state_that_is_final_is_no_wait(state: str) -> None:
    text = json.dumps({"id": 1, "status": state}, ensure_ascii=False)
    assert stopped(run([("get_job", {"id": 1}, text)] * 40, 2.0)) is not None


@pytest.mark.parametrize(
    "flag",
    [{"ready": False}, {"done": False}, {"finished": False, "error": None}, {"is_complete": False}, {"ended_at": None}],
)
def test_a_flag_that_says_not_yet_is_polled(flag: dict[str, Any]) -> None:
    assert stopped(run([("get_run", {"id": "t1"}, json.dumps(flag))] * 40, 2.0)) is None


@pytest.mark.parametrize(
    "text",
    [
        "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server",
        "ssh: connect to host db-1 port 22: No route to host", "curl: (6) Could not resolve host: app.example",
        "read: connection reset by peer", "Error: socket hang up", "ping: sendmsg: Network is unreachable",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gap_s", [2.0, 60.0])
def test_a_service_that_is_not_up_yet_is_polled(text: str, gap_s: float) -> None:
    assert stopped(run([("bash", {"command": "curl -sS localhost:8080/health"}, text)] * 40, gap_s)) is None


@pytest.mark.parametrize("text", ["[]", "{}", "null", "no data", '{"items": [], "next": null}'])
@pytest.mark.parametrize(
    "tool", ["poll_queue", "receive_message", "kafka_poll", "read_inbox", "dequeue", "consumeBatch"]
)
def test_a_queue_that_is_empty_is_read_again(tool: str, text: str) -> None:
    assert stopped(run([(tool, {"queue": "q"}, text)] * 40, 2.0)) is None


@pytest.mark.parametrize("text", ["[]", "null"])
@pytest.mark.parametrize("tool", ["search", "find_customer", "send_to_queue", "delete_message"])
def test_another_call_that_finds_nothing_is_stopped(tool: str, text: str) -> None:
    assert stopped(run([(tool, {"name": "q"}, text)] * 40, 2.0)) is not None


@pytest.mark.parametrize("code", ["408", "425", "429", "500", "502", "503", "504"])
def test_a_status_code_as_the_class_of_an_error_is_read(code: str) -> None:
    assert stopped(run([("get", None, "")] * 25, 30.0, error_class=code)) is None


@pytest.mark.parametrize("code", ["400", "401", "404", "501"])
def test_a_status_code_that_lasts_is_stopped(code: str) -> None:
    assert stopped(run([("get", None, "")] * 25, 3.0, error_class=code)) is not None


def digest(number: int) -> str:
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


SHARED: dict[str, Call] = {
    "configuration": ("get_config", {}, '{"region": "eu", "limit": 20, "mode": "fast"}'),
    "inbox": ("check_inbox", {}, "[]"),
    "repository": ("bash", {"command": "git status"}, "On branch main\nnothing to commit, working tree clean"),
    "question": ("ask_user", {"q": "Continue?"}, "yes"),
    "login": ("anmelden", {"konto": "svc"}, "angemeldet"),
}
ITEMS: dict[str, Callable[[int], Call]] = {
    "records": lambda n: ("lookup", {"id": n}, f"Customer {n * 7919 % 1000} lives in street {n * 31 % 97}"),
    "checksums": lambda n: ("get_hash", {"id": n}, digest(n)),
    "checksums in records": lambda n: ("lookup", {"id": n}, json.dumps({"id": n, "sha": digest(n)})),
    "files": lambda n: ("write_file", {"path": f"f{n}.txt", "text": f"this is part {n} of it"}, "ok"),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("shared", SHARED)
def test_one_call_beside_every_item_of_a_batch_is_left_alone(shared: str, items: str) -> None:
    verdicts = run([call for n in range(14) for call in (SHARED[shared], ITEMS[items](n))], 2.0)
    assert nudged(verdicts) is None


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("shared", SHARED)
def test_and_is_not_stopped_in_a_long_batch(shared: str, items: str) -> None:
    verdicts = run([call for n in range(22) for call in (SHARED[shared], ITEMS[items](n))], 2.0)
    assert stopped(verdicts) is None


@pytest.mark.parametrize(
    "frame",
    [
        lambda part: f"NAME READY UP-TO-DATE AGE\ncheckout {part}/6 6 212d\n",
        lambda part: f"Rollout: {part} von 6 Knoten bereit\nNamensraum: laden\nCluster: eu-1\n",
        lambda part: f"Étape {part}/6\nServeur : app-3\nRégion : ouest\n",
    ],
)
def test_a_share_that_creeps_up_is_polled_with_pauses(frame: Callable[[int], str]) -> None:
    calls: list[Call] = [("kubectl", {"args": "get deploy"}, frame(number // 4)) for number in range(24)]
    assert nudged(run(calls, 30.0)) is None


@pytest.mark.parametrize("first_s", [2.0, 600.0])
def test_looks_every_ten_minutes_are_a_wait_however_slow_the_run_began(first_s: float) -> None:
    looks = [
        record(
            "ver_partida", {"partida": 7}, "vez do adversário, último lance e2e4", t=1e9 + first_s + 600.0 * n, dur=0.2
        )
        for n in range(6)
    ]
    verdicts = evaluate([record("jogar", {"lance": "e2e4"}, "lance aceito", t=1e9, dur=0.2), *looks])
    assert nudged(verdicts) is None


PLACES = [
    "Kew",
    "Linnean Society",
    "BHL",
    "Trove",
    "Papers Past",
    "Hathi Trust",
    "Gallica",
    "Europeana",
    "Tropicos",
    "Finna",
]


@pytest.mark.parametrize("question", ["Edith Thorley botanist", "Pflanzenkundlerin Edith Thorley", "植物学者エディス"])
def test_one_question_in_ever_other_places_is_a_wide_search_where_it_has_found_something(question: str) -> None:
    calls: list[Call] = [("archive_search", {"archive": "JSTOR", "query": question}, "1 specimen, 1887")]
    calls += [("archive_search", {"archive": place, "query": question}, "[]") for place in PLACES]
    assert nudged(run(calls, 4.0)) is None


@pytest.mark.parametrize(
    "task",
    [
        "adicionar login",
        "deploy release 2.4.1 to production",
        "Bericht für März schreiben",
        "把 2.4.1 部署 到 生产 环境",
    ],
)
def test_an_agent_that_takes_long_to_refuse_a_task_is_no_wait(task: str) -> None:
    steps = [
        record(
            "delegar", {"a": "agente revisor", "tarefa": task}, "não tenho permissão para isso", t=30.0 * n, dur=28.0
        )
        for n in range(12)
    ]
    assert stopped(evaluate(steps)) is not None


def test_lines_of_a_log_that_differ_in_time_and_process_are_equal() -> None:
    lap: list[Call] = []
    for n in range(6):
        lap += [
            ("shell", {"cmd": "systemctl restart nginx"}, "Job for nginx.service failed."),
            (
                "shell",
                {"cmd": "journalctl -u nginx -n 1"},
                f"Jun 25 16:{n + 10}:48 web01 nginx[31{n}7]: bind() to 80 failed",
            ),
        ]
    assert nudged(run(lap, 3.0)) is not None


CHECKS = [
    ("run_linter", {}, "All checks passed!"),
    ("bash", {"cmd": "npm test"}, "Tests: 12 passed, 12 total"),
    ("validate", {}, '{"valid": true, "errors": []}'),
    ("get_template", {"name": "welcome"}, "Dear {name}, welcome to our shop. We are glad that you are here."),
    ("click", {"element": "Add row"}, "ok"),
]


@pytest.mark.parametrize("acknowledged", ["written", "ok", "Done.", '{"success": true}'])
@pytest.mark.parametrize("check", CHECKS, ids=[one[0] for one in CHECKS])
def test_a_check_that_passes_after_each_piece_of_new_work_stops_nothing(check: Call, acknowledged: str) -> None:
    work = [("write_file", {"path": f"src/m{n}.py", "content": f"def f(x):\n    return x + {n}"}) for n in range(60)]
    calls = [call for tool, args in work for call in ((tool, args, acknowledged), check)]
    assert stopped(run(calls, 3.0)) is None


def test_a_check_that_fails_after_each_piece_of_new_work_is_stopped() -> None:
    check = ("bash", {"cmd": "npm test"}, "FAIL src/cart.test.js\n1 failed, 11 passed, 12 total")
    work = [("write_file", {"path": "src/cart.js", "content": f"let total = {n} * price"}) for n in range(60)]
    calls = [call for tool, args in work for call in ((tool, args, "written"), check)]
    assert stopped(run(calls, 3.0)) is not None


def test_one_error_of_a_package_manager_that_reports_success_is_nudged() -> None:
    ways = ("", " --save", " --force", " -D", " --legacy-peer-deps", " --no-audit", " -g")
    text = (
        "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/pdf-tablez - Not found\n"
        "npm error A complete log of this run can be found in: /root/.npm/_logs/2026-10-02T08_11_{:02}_666Z-debug-0.log"
    )
    calls = [("bash", {"command": f"npm install{way} pdf-tablez"}, text.format(n)) for n, way in enumerate(ways)]
    assert nudged(run(calls, 4.0)) is not None


@pytest.mark.parametrize("tools", [("delegate_work",), ("Delegate work to coworker", "handoff")])
def test_work_that_is_delegated_to_and_fro_by_an_argument_is_nudged_and_not_soon_stopped(tools: Any) -> None:
    calls = [
        (tools[n % len(tools)], {"coworker": ("Analyst", "Planner")[n % 2], "task": reason}, "Task accepted")
        for n, reason in enumerate(
            ["numbers", "plan", "revenue", "scope", "figures", "regions", "data", "period", "margin", "goal"]
        )
    ]
    verdicts = run(calls, 4.0)
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is None


def test_laps_of_an_action_and_a_look_whose_ages_grow_are_nudged() -> None:
    calls = [
        call
        for n in range(6)
        for call in (
            ("kubectl", {"args": "apply -f web.yaml"}, "deployment.apps/web unchanged"),
            ("kubectl", {"args": "get deploy web"}, f"web   1/1   1   1   {205 + 7 * n}s   nginx:1.27   app=web"),
        )
    ]
    assert nudged(run(calls, 3.2)) is not None


def test_a_count_of_tries_that_start_over_is_no_wait() -> None:
    calls = [("node", {}, f"Try no. {n}: the portal gave no list, starting over") for n in range(1, 9)]
    assert nudged(run(calls, 0.0)) is not None


BATCHES: dict[str, Callable[[int], list[Call]]] = {
    "notes that are kept": lambda n: [("save_memory", {"text": f"{WORDS[n % 13]} {WORDS[n * 7 % 13]} {n}"}, "saved")],
    "files that are uploaded, and jobs that are none": lambda n: [
        ("upload", {"file": f"part-{n}.png"}, '{"ok": true}'),
        ("list_jobs", {}, "[]"),
    ],
    "records of a name server, and a look at its own": lambda n: [
        ("create_record", {"name": f"{WORDS[n % 13]}{n}.x.example", "ip": f"10.0.0.{n}"}, "created"),
        ("dig", {"name": "ns.x.example"}, "ns.x.example. 300 IN A 10.0.0.1"),
    ],
    "regions that are deployed and tested": lambda n: [
        ("deploy", {"region": f"eu-{n}"}, "deployed"),
        ("smoke_test", {}, "200 OK"),
    ],
    "edits of one file, and its tests": lambda n: [
        ("edit", {"path": "main.py", "old": f"x = {n}", "new": f"x = {WORDS[n % 13]}"}, "The file has been edited."),
        ("bash", {"command": "make test"}, "42 passed in 0.31s"),
    ],
}
WORDS = [
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliet",
    "kilo",
    "lima",
    "mike",
]


@pytest.mark.parametrize("batch", BATCHES)
def test_a_long_batch_whose_calls_only_acknowledge_is_not_stopped(batch: str) -> None:
    assert stopped(run([call for n in range(60) for call in BATCHES[batch](n)], 3.0)) is None
