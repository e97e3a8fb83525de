"""What coding agents of 2026 do a hundred times a day, and what their runtimes answer: none of it is a loop.

Kinds found by reading recorded sessions of Claude Code, Codex and others; the texts are made up.
"""

from __future__ import annotations

import random
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
    texts = [" ".join(chance.choices(words, k=12)) for _ in range(240)]
    calls = [
        ("Edit", {"file_path": PATHS[1], "old_string": old, "new_string": new}, answer.format(PATHS[1]))
        for old, new in zip(texts[::2], texts[1::2], strict=True)
    ]
    verdicts = evaluate(steps(calls))
    assert 95 <= (nudged(verdicts) or 0) < 105
    assert stopped(verdicts) is not None


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("path", PATHS)
def test_the_same_edits_in_turns_are_not(path: str, answer: str) -> None:
    calls = [("Edit", edit(path, number % 2), answer.format(path)) for number in range(16)]
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


@pytest.mark.parametrize("answer", [one for one in NOTHING if one[0] != "{"])
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
