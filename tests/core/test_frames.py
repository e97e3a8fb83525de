"""Frames that a harness or a service puts around answers and arguments change no verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.bench.frames import FRAMES, WORDS, Frames, in_frame, said_about_calls, with_arguments
from tests.bench.situations import SETS, Outcome, evaluate_situation, situations
from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level

EVERY = 151
"""One situation in so many is tried in each frame."""


@pytest.fixture(scope="module")
def plain() -> list[tuple[Mapping[str, Any], Outcome]]:
    """Situations without a frame."""
    every = [one for name in SETS for one in situations(name)][::EVERY]
    return [(one, evaluate_situation(one)) for one in every]


def unlike(plain: Outcome, framed: Outcome) -> bool:
    """Whether a healthy run is stopped, or a loop is not nudged, because of the frame."""
    if plain.expect in ("quiet", "no_stop"):
        return framed.stop is not None and plain.stop is None
    return framed.nudge is None and plain.nudge is not None


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_changes_no_verdict(name: str, plain: list[tuple[Mapping[str, Any], Outcome]]) -> None:
    frames = Frames()
    wrong = [
        one["id"] for one, outcome in plain
        if unlike(outcome, evaluate_situation(in_frame(one, getattr(frames, name))))
    ]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("name", ["request_id", "explanation"])
def test_what_is_said_about_a_call_does_not_make_it_another(
    name: str, plain: list[tuple[Mapping[str, Any], Outcome]]
) -> None:
    more = said_about_calls()[name]
    wrong = [one["id"] for one, outcome in plain if unlike(outcome, evaluate_situation(with_arguments(one, more)))]
    assert not wrong


DONE = (
    "Action executed successfully. No further output was returned.",
    "Your change was saved and is visible.",
    '{"errcode": 0, "errmsg": "ok"}',
    '{"code": 0, "msg": "success"}',
    '{"ok": true, "message": "Your change has been saved."}',
    "Status: 200\nBody: ",
    "HTTP/1.1 200 OK\nContent-Length: 0",
    '{"ResponseMetadata": {"RequestId": "6f1c9b1e-2a53-4f39-9c68-1f2d3e4a5b6c", "HTTPStatusCode": 200}}',
    "Tool executed successfully but returned no content.",
    '{"status_code": 200, "body": ""}',
    '{"status": "success", "data": null}',
    '{"data": {}, "error": null, "successful": true}',
    '{"code": 200, "message": "操作成功", "data": null}',
    "处理已经成功完成。",
    "Success: operation completed",
    "STDOUT:\n\nSTDERR:\n",
    '{"output": "", "error": "", "success": true}',
    "<returncode>0</returncode>\n<output>\n</output>",
    "<no output>\n[Command succeeded with exit code 0]",
)
PEOPLE = (
    "Anna", "Ben", "Carla", "Dimitri", "Eva", "Farid", "Gina", "Hugo", "Ines", "Jonas", "Kira", "Luis", "Mona", "Nils",
    "Olga", "Pavel",
)  # fmt: skip
WORK: Mapping[str, Callable[[int], tuple[str, Mapping[str, Any]]]] = {
    "contacts": lambda at: (
        ("create_contact", {"name": PEOPLE[at // 3], "email": f"{PEOPLE[at // 3].lower()}@example.org"}),
        ("add_note", {"contact": PEOPLE[at // 3], "text": f"met at the fair, talked of order {at}"}),
        ("set_reminder", {"contact": PEOPLE[at // 3], "date": f"2026-12-{at % 28 + 1:02d}"}),
    )[at % 3],
    "form": lambda at: (
        ("browser_click", {"ref": f"e{at}"}),
        ("browser_type", {"ref": f"e{at}", "text": f"{PEOPLE[at % 16]} {at}"}),
    )[at % 2],
    "home": lambda at: (
        ("turn_on", {"device": f"lamp of {PEOPLE[at % 16]}"}),
        ("set_level", {"device": f"lamp of {PEOPLE[at % 16]}", "level": 5 * at}),
    )[at % 2],
    "shell": lambda at: (
        "bash",
        {"command": ("mkdir -p d{0}", "touch f{0}", "git add f{0}", "cp f{0} g")[at % 4].format(at)},
    ),
}


@pytest.mark.parametrize("answer", DONE)
@pytest.mark.parametrize("work", sorted(WORK))
def test_work_that_is_only_acknowledged_is_not_stopped(work: str, answer: str) -> None:
    calls = [WORK[work](at) for at in range(45)]
    verdicts = evaluate(record(tool, args, answer, t=5.0 * at) for at, (tool, args) in enumerate(calls))
    assert first_level(verdicts, Level.STOP) is None
    assert first_level(verdicts, Level.NUDGE) is None


@pytest.mark.parametrize(
    "answer",
    [
        "No results found. ({} queries used today)",
        "No results found. [{} calls]",
        "Nothing found. ({} of 500 searches)",
    ],
)
def test_a_counter_behind_nothing_is_nothing_new(answer: str) -> None:
    steps = [record("search", {"query": "refund policy"}, answer.format(17 + at), t=4.0 * at) for at in range(12)]
    assert first_level(evaluate(steps), Level.STOP) is not None


def test_a_long_list_of_guesses_that_find_nothing_is_nudged() -> None:
    draw = random.Random(3)
    steps = [record("get_user", {"id": f"{draw.getrandbits(48):012x}"}, "{}", t=4.0 * at) for at in range(140)]
    verdicts = evaluate(steps)
    assert first_level(verdicts, Level.NUDGE) == 128
    assert first_level(verdicts, Level.STOP) is None


def test_a_catalogue_of_texts_may_be_edited_entry_by_entry() -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.sample(WORDS, 6)) + f" {draw.getrandbits(30)}" for _ in range(160)]
    steps = [
        record(
            "edit_file", {"file_path": "/app/de.po", "old_string": one, "new_string": f"{one[::-1]}"},
            "Successfully replaced 1 instance(s) of the string in '/app/de.po'", t=6.0 * at,
        )
        for at, one in enumerate(texts)
    ]  # fmt: skip
    assert first_level(evaluate(steps), Level.STOP) is None


SILENT = {
    "SWE-agent": (
        "Your command ran successfully and did not produce any output.\n(Open file: n/a)\n(Current directory: /repo)\n"
        "bash-$"
    ),
    "OpenHands": (
        "[The command completed with exit code 0.]\n[Current working directory: /repo]\n"
        "[Python interpreter: /usr/bin/python]"
    ),
    "a tag": "<system>Tool ran without output or errors</system>",
    "tags": "<stdout></stdout><stderr></stderr><exit_code>0</exit_code>",
    "brackets": "[exit 0] [cwd /work] [0.02 s]",
    "pairs": "exit_code=0 duration=0.04s cwd=/repo",
    "a prompt": "dev@host:/repo (main) 0 $",
    "a process": "Process finished with exit code 0 (pid 4121, cwd /repo)",
    "an object": '{"exit_code": 0, "stdout": "", "stderr": "", "cwd": "/repo", "user": "dev"}',
    "a sentence": "Success: exit status 0, no output",
}
NAMES = (
    "auth", "billing", "cart", "checkout", "config", "cache", "client", "server", "router", "parser", "lexer", "token",
    "user", "order",
)  # fmt: skip


@pytest.mark.parametrize("frame", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("tool", ["bash", "run_python"])
def test_commands_that_print_nothing_are_left_alone_in_any_frame(frame, tool):
    forms = (
        "mkdir -p src/{}",
        "git add src/{}.py",
        "sed -i s/old/new/ {}.txt",
        "cp {}.cfg backup/",
        "ln -s {} current",
    )
    code = ("{0} = load('{0}')", "{0}.plot()", "save({0}, 'out')", "del {0}", "{0}.columns = names")
    texts = forms if tool == "bash" else code
    steps = [record(tool, {"command": texts[at % 5].format(NAMES[at % 14])}, frame, t=3.0 * at) for at in range(28)]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


REPORTS = (
    "Line drawn. Canvas 800x600.",
    "Line drawn with 3 px on layer 2.",
    "The line was drawn on canvas number two of the sketch Portrait by Anna.",
    '<result><status>ok</status><canvas width="800" height="600"/></result>',
    "Befehl angenommen (Hub 3.1.2, Funkmodul 7, 12 Geräte online). Änderungen werden gleich sichtbar.",
    "処理が完了しました。(版 3.2.0、残り枠 500 件) 次の操作へ進んでください。",
    "---\nkind: ack\nrevision: 7\nserver: node-2\n---\nThe change was applied.",
    "Command dispatched (X11 display :0, layout us, modifiers 0).",
)
REPORTED: dict[str, tuple[str, Callable[[random.Random], Mapping[str, Any]]]] = {
    "lines": (
        "draw_line",
        lambda draw: {"x1": draw.randrange(800), "y1": draw.randrange(600), "x2": draw.randrange(99)},
    ),
    "poses": ("move_to", lambda draw: {"x": draw.random() * 300, "y": draw.random() * 200, "z": 20}),
    "moves": (
        "make_move",
        lambda draw: {"move": f"{draw.choice('abcdefgh')}{draw.randrange(1, 9)}-{draw.randrange(99)}"},
    ),
    "notes": ("add_note", lambda draw: {"pitch": f"{draw.choice('CDEFG')}4", "beat": draw.randrange(400) / 2}),
    "commands": ("bash", lambda draw: {"command": f"git commit -qm 'Tidy {draw.choice(NAMES)} {draw.randrange(99)}'"}),
}


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("work", REPORTED.values(), ids=REPORTED)
def test_new_actions_that_one_report_answers_are_not_stopped(report, work):
    tool, args = work
    draw = random.Random(7)
    steps = [record(tool, args(draw), report, t=3.0 * at) for at in range(60)]
    assert first_level(evaluate(steps), Level.STOP) is None
