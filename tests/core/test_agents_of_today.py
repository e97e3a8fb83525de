"""What coding agents of 2026 do a hundred times a day, and what their runtimes answer: none of it is a loop.

Kinds found by reading recorded sessions of Claude Code, Codex and others; the texts are made up.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate, record
from trajectory_guard.core.steps import StepRecord

NAMES = ("user", "order", "invoice", "ticket", "booking", "course", "member", "report", "stock", "price")
PATHS = (
    "app.py",
    "/srv/app/service.py",
    "/Users/ann/Work/shop/backend/cmd/shop/cli/e2e_test/scenario_workflows_test.go",
    "C:\\Users\\Ann\\OneDrive\\Desktop\\task 1\\Appointment System\\api\\src\\domain\\Service.java",
)
ANSWERS = (
    "The file {} has been updated successfully.",
    "The file {} has been updated successfully. (file state is current in your context — no need to Read it back)",
    "Successfully modified file: {} (1 replacements).",
    "Updated {}",
    "<result>\n<path>{}</path>\n<operation>modified</operation>\n<notice>\nNo need to read it again\n</notice>\n</result>",
    "Die Datei {} wurde erfolgreich geändert und gespeichert.",
    "已成功更新文件 {} 的内容，无需再次读取。",
    "文件“{}”已成功更新，所有更改均已保存。",
    "{}の内容を正常に更新しました。もう一度読む必要はありません。",
    "Файл «{}» успешно обновлён и сохранён на диск.",
    "[{}] saved; linter: 0 errors, 0 warnings, nothing else to report",
)
UNNAMED = (
    "Successfully replaced 1 occurrence of the text in the file.",
    '{"status": "success", "message": "The edit was applied and the file has been saved."}',
    "The edit was made. No new problems were found by the linter.",
)


def edit(path: str, number: int) -> dict[str, Any]:
    """Neighbouring code: the same words in each of them."""
    name = NAMES[number % len(NAMES)]
    old = f"    def get_{name}(self, session, {name}_id):\n        return session.get({name}_id)"
    return {"file_path": path, "old_string": old, "new_string": old.replace("session,", "session, tenant,")}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("path", PATHS)
def test_different_edits_of_one_file_are_left_alone(path: str, answer: str) -> None:
    calls = [("Edit", edit(path, number), answer.format(path)) for number in range(len(NAMES))]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("answer", [one for one in ANSWERS if "<path>" not in one])
@pytest.mark.parametrize("path", PATHS)
def test_nor_are_they_where_the_answer_names_the_last_part_only(path: str, answer: str) -> None:
    name = path.replace("\\", "/").rpartition("/")[2]
    calls = [("Edit", edit(path, number), answer.format(name)) for number in range(len(NAMES))]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("answer", UNNAMED)
@pytest.mark.parametrize("path", PATHS)
def test_nor_are_edits_of_several_lines_where_it_names_nothing(path: str, answer: str) -> None:
    calls = [("Edit", edit(path, number), answer) for number in range(len(NAMES))]
    assert nudged(evaluate(steps(calls))) is None


def test_code_that_is_improved_again_and_again_is_left_alone() -> None:
    """Each edit replaces what the one before it has written."""
    versions = [
        f"def total(rows):\n    # version {name}\n    return sum({name}(row) for row in rows)" for name in NAMES
    ]
    calls = [
        ("Edit", {"file_path": PATHS[1], "old_string": old, "new_string": new}, ANSWERS[0].format(PATHS[1]))
        for old, new in pairwise(versions)
    ]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("answer", ANSWERS)
def test_short_edits_are_left_alone_too(answer: str) -> None:
    calls = [
        ("Edit", {"path": PATHS[1], "old": f"'{one}'", "new": f'"{one}"'}, answer.format(PATHS[1])) for one in NAMES
    ]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("answer", [one for one in ANSWERS if one != "Updated {}"])
def test_edits_that_never_end_are_nudged_and_stopped(answer: str) -> None:
    """Ever new texts in one file, and not one look at what has become of it."""
    chance, words = random.Random(1), " ".join(ANSWERS).split()
    texts = [" ".join(chance.choices(words, k=12)) for _ in range(840)]
    calls = [
        ("Edit", {"file_path": PATHS[1], "old_string": old, "new_string": new}, answer.format(PATHS[1]))
        for old, new in zip(texts[::2], texts[1::2], strict=True)
    ]
    verdicts = evaluate(steps(calls))
    assert 395 <= (nudged(verdicts) or 0) < 405
    assert stopped(verdicts) is not None


@pytest.mark.parametrize("answer", ANSWERS + UNNAMED)
@pytest.mark.parametrize("path", PATHS)
def test_the_same_edits_in_turns_are_not(path: str, answer: str) -> None:
    calls = [("Edit", edit(path, number % 2), answer.replace("{}", path)) for number in range(16)]
    assert nudged(evaluate(steps(calls))) is not None


@pytest.mark.parametrize(
    "folder", ["src/", "/home/ann/app/src/main/java/com/acme/", PATHS[3].rpartition("\\")[0] + "\\"]
)
def test_patches_that_add_files_are_left_alone(folder: str) -> None:
    calls = []
    for name in NAMES:
        file = f"{folder}{name.title()}Service.java"
        body = (
            f"+package com.acme.domain;\n+\n+public class {name.title()}Service {{\n+  private final Store store;\n+}}"
        )
        patch = f"*** Begin Patch\n*** Add File: {file}\n{body}\n*** End Patch"
        calls.append(("apply_patch", {"input": patch}, f"Success. Updated the following files:\nA {file}\n"))
    assert nudged(evaluate(steps(calls))) is None


NOTHING = (
    "Exit code: 1\nWall time: 1.3 seconds\nOutput:\n",
    "Exit code 1",
    "Error: Exit code 1",
    '{"exit_code": 1, "stdout": "", "stderr": ""}',
    "Command exited with code 1\n(no output)",
    "(no output, exit code 1)",
    "[exit status 1]",
    "stdout:\n\nstderr:\n\nexit code: 1",
    '{"stdout": "", "stderr": "", "exit_code": 1}',
    '{"output": "", "metadata": {"exit_code": 1, "duration_seconds": 0.3}}',
    "<returncode>1</returncode>\n<output>\n</output>",
)
PATTERNS = ("refund|credit", "preview", "Idempot", "BCrypt|password", "vacancy")


@pytest.mark.parametrize("outcome", ["success", "error"])
@pytest.mark.parametrize("answer", NOTHING)
@pytest.mark.parametrize(
    "command", ["rg -n '{}' api/src", "cd api && grep -rn '{}' src", "git grep -e '{}' | head -20"]
)
def test_searches_that_find_nothing_are_no_failures(command: str, answer: str, outcome: str) -> None:
    calls = [("shell", {"command": command.format(one)}, answer, outcome) for one in PATTERNS]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize("answer", [one for one in NOTHING if one[0] not in "{(<"])  # these read as no error
@pytest.mark.parametrize("command", ["mvn -q -Dtest={} test", "rg -n '{}' api; exit 1", "git commit -m '{}'"])
def test_other_commands_with_that_exit_status_are(command: str, answer: str) -> None:
    calls = [("shell", {"command": command.format(one)}, answer) for one in NAMES]
    assert nudged(evaluate(steps(calls))) is not None


def siblings(count: int, batch: str, first: str, then: str, outcome: str) -> list[StepRecord]:
    return [
        record("Edit", edit(PATHS[1], number), then if number else first, outcome, batch=batch, t=100.0 + 0.1 * number)
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [3, 5, 8])
def test_calls_of_one_message_that_are_cancelled_because_the_first_failed_are_one_attempt(count: int) -> None:
    failed = "<tool_use_error>File does not exist.</tool_use_error>"
    cancelled = "<tool_use_error>Sibling tool call errored</tool_use_error>"
    again = siblings(count, "b", ANSWERS[0].format(PATHS[1]), ANSWERS[0].format(PATHS[1]), "success")
    assert nudged(evaluate(siblings(count, "a", failed, cancelled, "error") + again)) is None


def test_the_same_message_again_and_again_is_not() -> None:
    failed = "<tool_use_error>File does not exist.</tool_use_error>"
    verdicts = evaluate([one for batch in "abcdefgh" for one in siblings(3, batch, failed, failed, "error")])
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is not None


def test_an_insert_that_fails_with_ever_fresh_ids_between_looks_is_a_loop() -> None:
    error = 'ERROR: new row for relation "visit" violates check constraint "visit_mrn_check"'
    calls: list[tuple[Any, ...]] = []
    for number in range(8):
        row = {"id": f"be8ae841-06cb-4845-a8d2-{number:012x}", "mrn": "MRN-204411"}
        calls += [
            ("describe_table", {"table": "visit"}, "id uuid, mrn text not null, at timestamptz"),
            ("insert_row", {"table": "visit", "row": row}, error, "error"),
        ]
    nudge = nudged(evaluate(steps(calls)))
    assert nudge is not None
    assert nudge <= 9


TICKED = [
    ("TaskUpdate", "taskId", "Updated task #{} status"),
    ("close_issue", "number", "Issue {} is closed now, and its author has been told."),
    ("belege_buchen", "beleg", "Beleg {} ist gebucht und im Archiv abgelegt."),
    ("完成任务", "编号", "第 {} 号任务的状态已经更新为完成。"),
]


@pytest.mark.parametrize(("tool", "key", "answer"), TICKED)
@pytest.mark.parametrize(
    "numbers", [range(1, 9), range(101, 109), (17, 19, 20, 23, 24, 25, 26, 27), (3, 40, 41, 96, 310)]
)
def test_tasks_are_ticked_off_one_after_the_other(tool: str, key: str, answer: str, numbers: list[int]) -> None:
    """There are gaps where others were done before."""
    calls = [(tool, {key: str(one), "status": "completed"}, answer.format(one)) for one in numbers]
    assert nudged(evaluate(steps(calls))) is None


@pytest.mark.parametrize(("tool", "key", "answer"), TICKED)
def test_two_tasks_that_are_ticked_off_in_turns_are_a_loop(tool: str, key: str, answer: str) -> None:
    calls = [(tool, {key: str(17 + n % 2), "status": "completed"}, answer.format(17 + n % 2)) for n in range(12)]
    assert nudged(evaluate(steps(calls))) is not None


def test_a_setting_that_is_varied_is_none_of_them() -> None:
    found = "No text was found on this page of the scan."
    calls = [("ocr", {"image": "scan.png", "dpi": dpi}, found) for dpi in (150, 200, 300, 400, 600, 650, 900, 1200)]
    assert nudged(evaluate(steps(calls))) is not None


COVERED = [
    "TimeoutError: Locator.click: Timeout 30000ms exceeded.\nCall log:\n  - waiting for get_by_test_id(\"35\")\n"
    "  - <div class=\"modal\"></div> intercepts pointer events\n  - retrying click action, attempt #1",
    "TimeoutError: Waiting for selector `#pay` failed: Waiting failed: 30000ms exceeded",
    "selenium.common.exceptions.TimeoutException: Message: element not interactable after timeout",
    "Timed out retrying after 4000ms: Expected to find element: `.pay`, but never found it.",
    "page.fill: Timeout 5000ms exceeded. waiting for getByLabel('Card number') to be visible",
]  # fmt: skip


@pytest.mark.parametrize("error", COVERED)
def test_a_click_on_a_covered_element_is_no_wait(error: str) -> None:
    """The call has waited already: what covers the element will not go away by itself."""
    looks = ({"y": 200}, {"y": 400}, {"y": 0})
    calls: list[tuple[str, dict[str, Any], str, str]] = []
    for at in range(12):
        calls.append(("click", {"bid": "35"}, error, "error"))
        if at % 2:
            calls.append(("scroll", looks[at % 3], f"Scrolled to {looks[at % 3]['y']}.", "success"))
    verdicts = evaluate(
        [
            record(tool, args, result, outcome, step_id=f"{at:016x}", t=at * 4.0)
            for at, (tool, args, result, outcome) in enumerate(calls)
        ]
    )
    assert (nudged(verdicts) or 99) <= 9
    assert stopped(verdicts) is not None


@pytest.mark.parametrize(
    "error", ["ReadTimeout: no answer from api.example in 30 s", "504 Gateway Timeout", "Timeout while connecting"]
)
def test_a_server_that_does_not_answer_is_one(error: str) -> None:
    steps_ = [record("click", {"bid": "35"}, error, "error", step_id=f"{at:016x}", t=at * 40.0) for at in range(12)]
    assert stopped(evaluate(steps_)) is None
