"""One failure that comes back whatever is done in between, nothing but failures, and lines that are read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.test_standstill import findings
from tests.helpers import evaluate, record
from trajectory_guard.core.policy import Level

CRASHES = {
    "English": "Error: the variable DB_URL of the container is not set",
    "German": "Fehler: Die Variable DB_URL des Containers ist nicht gesetzt",
    "Chinese": "错误：容器没有设置变量 DB_URL，启动失败，已经退出，请检查配置文件然后再次启动容器，否则服务不能使用",
    "JSON": json.dumps({"state": "failed", "error": "the variable DB_URL of the container is not set"}),
}
PODS = ("x2xkq", "mm4vq", "t7c2d", "9hb6w", "zz1rk", "p4q8n", "b3v5m", "k8d2s", "r6w1t", "c9f3x")


def laps(report: Callable[[int, str], Any], count: int = 10) -> list[Any]:
    """A pod is looked at and deleted, and comes back under another name."""
    return [
        one
        for at, pod in enumerate(PODS[:count])
        for one in (report(at, pod), record("delete", {"pod": f"shop-{pod}"}, f"pod shop-{pod} deleted"))
    ]


@pytest.mark.parametrize("language", CRASHES)
@pytest.mark.parametrize("outcome", ["success", "error"])
def test_a_crash_of_one_pod_after_the_other(language: str, outcome: str) -> None:
    def logs(at: int, pod: str) -> Any:
        return record("logs", {"pod": f"shop-{pod}"}, f"09:{10 + at}:07 shop-{pod} {CRASHES[language]}", outcome)

    assert findings(laps(logs), "recurring_failure")


def test_a_failure_of_other_words_is_another_one() -> None:
    def logs(at: int, pod: str) -> Any:
        return record("logs", {"pod": f"shop-{pod}"}, f"Error: the module {WORDS[at]} of the container is missing here")

    assert findings(laps(logs), "recurring_failure") == []


WORDS = ["lamp", "chair", "map", "tool", "paint", "coat", "soup", "tea", "wood", "iron"]


@pytest.mark.parametrize(
    "figure", [lambda at: 40 - 3 * at, lambda at: 12 + 5 * at, lambda at: (40, 36, 37, 31, 29, 30, 22, 20, 15, 9)[at]]
)
def test_a_figure_of_the_failure_that_goes_one_way_is_progress(figure: Callable[[int], int]) -> None:
    def build(at: int, pod: str) -> Any:
        return record(
            "build", {"target": "all"}, f"Error: the build has failed with {figure(at)} open problems", "error"
        )

    assert findings(laps(build), "recurring_failure") == []


def test_a_time_that_falls_is_progress() -> None:
    def bench(at: int, pod: str) -> Any:
        return record(
            "bench", {"of": "query"}, f"FAILED: the query took {900 * 0.9**at:.0f} ms, 100 ms are allowed", "error"
        )

    assert findings(laps(bench), "recurring_failure") == []


def test_tries_in_a_row_count_once() -> None:
    steps = [record("logs", {"pod": f"shop-{pod}"}, CRASHES["English"], "error") for pod in PODS]
    assert findings(steps, "recurring_failure") == []


def test_a_call_that_works_ends_its_failures() -> None:
    def deploy(at: int, pod: str) -> Any:
        works = at % 4 == 3
        return record(
            "deploy", {"to": "shop"}, "deployed" if works else CRASHES["English"], "success" if works else "error"
        )

    assert findings(laps(deploy), "recurring_failure") == []


@pytest.mark.parametrize(
    "text", ["404 Not Found", "503 Service Unavailable: please try again in a few seconds from now"]
)
def test_brief_and_passing_failures_are_none(text: str) -> None:
    def fetch(at: int, pod: str) -> Any:
        return record("fetch", {"url": f"https://shop.test/{pod}"}, text, "error")

    assert findings(laps(fetch), "recurring_failure") == []


def test_readings_with_a_count_of_errors_are_none() -> None:
    def metrics(at: int, pod: str) -> Any:
        figures = {"p95_latency": 210 + at * 7 % 5, "requests_per_second": 1_200 + at * 11 % 7, "errors": 1 + at % 2}
        return record("metrics", {"service": "shop"}, json.dumps(figures))

    assert findings(laps(metrics), "recurring_failure") == []


# --- nothing but failures ------------------------------------------------------------------------------------

WAYS = [
    "curl",
    "wget",
    "pip",
    "npm",
    "git",
    "ftp",
    "ssh",
    "scp",
    "rsync",
    "nc",
    "ping",
    "dig",
    "host",
    "telnet",
    "apt",
    "conda",
    "brew",
    "yarn",
]


def ways(count: int, outcome: str = "error") -> list[Any]:
    return [record("run", {"with": way}, f"{way}: {way[::-1]} {len(way)}", outcome) for way in WAYS[:count]]


def test_sixteen_failures_in_whatever_words() -> None:
    assert findings(ways(18), "only_failures") == [15, 16, 17]


def test_a_success_ends_them_and_a_thought_does_not() -> None:
    worked = record("run", {"with": "ls"}, "a.txt b.txt")
    thought = record("think", {"thought": "another way"}, "ok")
    assert findings([*ways(12), worked, *ways(18)[12:], *ways(9)], "only_failures") == []
    assert findings([*ways(12), thought, *ways(18)[12:]], "only_failures")


def test_failures_of_one_message_are_one_turn() -> None:
    assert findings([one._replace(batch="1") for one in ways(18)], "only_failures") == []


def test_they_only_nudge() -> None:
    steps = [
        *ways(18),
        *[
            one._replace(args={"with": f"{one.args['with']}2"}, tool_args_hash=f"{at}")
            for at, one in enumerate(ways(18))
        ],
    ]
    numbered = [one._replace(step_id=f"{at:016x}", timestamp=at * 9.0) for at, one in enumerate(steps)]
    verdicts = evaluate(numbered)
    levels = {verdict.level for verdict in verdicts if verdict is not None and verdict.rule == "only_failures"}
    assert Level.NUDGE in levels
    assert Level.STOP not in levels


# --- lines that are read again -------------------------------------------------------------------------------

CODE = [f"{'    ' * (at % 3)}total_{chr(97 + at % 26)}{at} = price[{at}] * amount" for at in range(60)]


def window(tool: str, args: dict[str, Any], since: int, until: int, frame: tuple[str, str] = ("", "")) -> Any:
    lines = (f"{at + 1:>6}\t{CODE[at]}" for at in range(since, until))
    return record(tool, args, "\n".join((frame[0], *lines, frame[1])))


RANGES = [(0, 60), (4, 30), (20, 50), (11, 40), (2, 25), (33, 60), (15, 45), (7, 37), (28, 55), (1, 21), (40, 58)]


@pytest.mark.parametrize(
    "asked",
    [
        lambda since, until: ("Read", {"file_path": "/src/a.py", "offset": since, "limit": until - since}),
        lambda since, until: ("bash", {"command": f"sed -n '{since},{until}p' src/a.py"}),
        lambda since, until: ("czytaj", {"plik": "a.py", "od": since, "do": until}),
        lambda since, until: ("view", {"path": "a.py", "view_range": [since, until]}),
    ],
)
def test_a_file_that_is_read_again_in_other_ranges(asked: Callable[[int, int], tuple[str, dict[str, Any]]]) -> None:
    steps = [window(*asked(since, until), since, until) for since, until in RANGES]
    assert findings(steps, "known_lines")


FRAMES: list[Callable[[int, int], tuple[str, str]]] = [
    lambda since, until: (f"({since} more lines above)", f"({60 - until} more lines below)"),
    lambda since, until: (f"[File: a.py, lines {since} to {until} of 60]", ""),
    lambda since, until: (f"[{since} lines skipped]", f"(output was cut off after {until - since}"),
    lambda since, until: ("", f"(文件共 60 行，已显示第 {since} 行)"),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_the_lines_of_the_viewer_say_nothing_new_of_the_file(frame: Callable[[int, int], tuple[str, str]]) -> None:
    steps = [
        window("open", {"line": since, "window": until - since}, since, until, frame(since, until))
        for since, until in RANGES
    ]
    assert findings(steps, "known_lines")


def test_a_look_at_known_lines_in_between_does_not_end_the_series() -> None:
    steps = []
    for since, until in RANGES:
        steps.append(window("open", {"path": "a.py", "line": since, "window": until - since}, since, until))
        if len(steps) % 4 == 0:
            steps.append(window("grep", {"term": f"total_{since}"}, 1, 4))
    assert findings(steps, "known_lines")


def test_rows_of_figures_in_brackets_are_no_lines_of_a_viewer() -> None:
    steps = [record("rows", {"page": at}, "\n".join(f"[{at}, {at + row}]" for row in range(5))) for at in range(12)]
    assert findings(steps, "known_lines") == []


def test_a_file_that_is_read_part_by_part_is_not_known() -> None:
    steps = [window("Read", {"path": "a.py", "offset": at}, at, at + 5) for at in range(0, 55, 5)]
    assert findings(steps, "known_lines") == []


def test_files_of_one_text_are_other_files() -> None:
    steps = [window("Read", {"path": f"shop-{at}/a.py"}, 0, 30) for at in range(12)]
    assert findings(steps, "known_lines") == []


def test_an_edit_between_reads_is_work() -> None:
    steps = []
    for since, until in RANGES:
        steps.append(window("Read", {"path": "a.py", "offset": since, "limit": until - since}, since, until))
        steps.append(record("Edit", {"path": "a.py", "old": CODE[since], "new": f"x{since}"}, "edited a.py"))
    assert findings(steps, "known_lines") == []
