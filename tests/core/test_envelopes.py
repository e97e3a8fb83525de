"""What stands around an output or a command is neither: headers of runtimes, filters at the end of a command."""

from __future__ import annotations

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.content.envelope import unfiltered, without_header

HEADERS = (
    "Script completed\nWall time 0.0 seconds\nOutput:\n\n",
    "Exit code: 0\nWall time: 2.7 seconds\nOutput:\n",
    "Chunk ID: a3f1\nWall time: 0.2 seconds\nProcess exited with code 0\nOutput:\n",
    "Exit code: 0\r\nWall time: 1 seconds\r\nTotal output lines: 3\r\nOutput:\r\n",
)
FILES = ("main.ts", "Header.vue", "Home.vue", "Pet.vue", "Apply.vue", "pom.xml", "Mapper.java", "common.sql", "App.vue")


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("confirmation", ["{}", "OK", "Done!", ""])
def test_confirmations_under_a_header_are_confirmations(header: str, confirmation: str) -> None:
    patches = [("exec", {"code": f"add('{name}', '<some text of {name}>')"}, header + confirmation) for name in FILES]
    assert nudged(evaluate(steps(patches, 9.0))) is None


@pytest.mark.parametrize("header", HEADERS)
def test_one_answer_under_headers_with_other_times_is_one_answer(header: str) -> None:
    answers = [
        header.replace("0.", f"{at}.").replace("2.", f"{at}.")
        + "Closed on Mondays. Open from Tuesday to Sunday, nine to five."
        for at in range(1, 7)
    ]
    verdicts = evaluate(steps([("search", {"q": "hours"}, answer) for answer in answers]))
    assert nudged(verdicts) == 2
    assert stopped(verdicts) == 4


@pytest.mark.parametrize(
    "result",
    [
        "Exit code: 1\nWall time: 2.7 seconds\nOutput:\nno such table",
        "Script running with cell ID 1\nWall time 10.1 seconds\nOutput:\n",
        "Script failed\nWall time 0.1 seconds\nOutput:\nboom",
        "Output: 7 rows",
        "The report says:\nmany things\nOutput:\nrose",
        "Summary of all the work that was done\nOutput:\n7",
    ],
)
def test_other_first_lines_stay(result: str) -> None:
    assert without_header(result) == result


FILTERS = (
    "",
    " | tail -50",
    " | tail -100",
    " 2>&1 | tail -n 20",
    " 2>&1 | head -30",
    " | cat",
    "; echo EXIT=$?",
    " 2>&1",
)


@pytest.mark.parametrize("answer", ["rc=0", "", "Nothing found.", "a.py\nb.py\nc.py\nd.py"])
@pytest.mark.parametrize("command", ["mvn test", "grep -rn foo src", "python a.py"])
def test_a_command_under_other_filters_is_that_command(command: str, answer: str) -> None:
    verdicts = evaluate(steps([("bash", {"command": command + tail}, answer) for tail in FILTERS]))
    assert nudged(verdicts) is not None


def test_a_filter_that_shows_more_brings_something_new() -> None:
    pages = [
        ("bash", {"command": f"cat a.log | head -{10 * at}"}, f"line {at} of the log: value {at * 7}")
        for at in range(9)
    ]
    assert nudged(evaluate(steps(pages))) is None


@pytest.mark.parametrize(
    "command",
    ["tail -50 a.log", "cat a | grep b", "ls; pwd", "a | tee b.txt", "echo 'x | cat'x", "make > out.txt", "| cat"],
)
def test_what_does_more_than_to_filter_stays(command: str) -> None:
    assert unfiltered({"command": command}) == {"command": command}


@pytest.mark.parametrize(
    "args", [{"session_id": 7, "chars": ""}, {"input": "", "process": "p1"}, {"terminalId": "a", "text": ""}]
)
def test_an_empty_input_to_a_session_is_a_look(args: dict[str, object]) -> None:
    verdicts = evaluate(steps([("write_stdin", args, "")] * 14, 8.0))
    assert stopped(verdicts) is None
    assert (nudged(verdicts) or 14) >= 8


@pytest.mark.parametrize("args", [{"text": "", "page": 2}, {"query": ""}, {"session_id": 7, "chars": "y"}])
def test_an_empty_text_elsewhere_is_none(args: dict[str, object]) -> None:
    assert nudged(evaluate(steps([("search", args, "No results.")] * 5))) == 2
