"""One thing that is looked for at ever other places is a list; one place that is asked in other words is none."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

PLACES = [
    "Lund", "Malmö", "Göteborg", "Uppsala", "Umeå", "Linköping", "Örebro", "Karlstad", "Växjö", "Visby", "Luleå", "Kalmar",
    "Sundsvall", "Borås", "Skövde", "Falun", "Gävle", "Halmstad", "Ystad", "Motala",
]  # fmt: skip


def sweep(tool: str, fixed: dict[str, str], key: str, values: list[str], result: str, outcome: str) -> list[StepRecord]:
    return [
        record(tool, {**fixed, key: one}, result.replace("{n}", f"{at * 7919:06x}"), outcome, t=7.0 * at)
        for at, one in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("tool", "fixed", "key", "values", "result", "outcome"),
    [
        ("library_holdings", {"isbn": "91-29-48120-3"}, "library", PLACES, '{"count":0,"copies":[]}', "success"),
        ("archive_search", {"q": '"Rosenbaum" harbour 1931'}, "source", PLACES, '{"total":0,"hits":[]}', "success"),
        ("search_news", {"q": "Brightwater recall"}, "paper", PLACES, "0 articles (query {n})", "success"),
        ("grep", {"pattern": "(secret|api_key)="}, "path",
         [f"{one}/{two}" for two in ("src", "deploy", "tests") for one in ("billing", "search", "mail", "media", "geo")],
         "No matches found", "success"),
        ("find_user", {"mail": "ada@example.com"}, "tenant", PLACES, "", "empty"),
    ],
)  # fmt: skip
def test_one_thing_at_ever_other_places_is_left_alone(
    tool: str, fixed: dict[str, str], key: str, values: list[str], result: str, outcome: str
) -> None:
    assert first_level(evaluate(sweep(tool, fixed, key, values, result, outcome))) is None


WORDS = [
    "return policy for lamps", "how to send a lamp back", "lamp refund rules", "giving back a lamp", "lamps: returns",
    "refund for a lamp", "policy on returned lamps", "send lamp back refund", "back a lamp policy", "lamp policy",
    "rules for a refund of lamps", "returned lamp refund",
]  # fmt: skip


def test_one_question_in_other_words_at_one_place_is_nudged() -> None:
    steps = sweep("kb_search", {"space": "support"}, "q", WORDS, '{"total":0,"hits":[]}', "success")
    assert first_level(evaluate(steps), Level.NUDGE) is not None


@pytest.mark.parametrize("gap_s", [40.0, 65.0])
def test_five_looks_in_one_message_between_long_thoughts_are_repeats(gap_s: float) -> None:
    looks = {
        "kubectl logs web --previous": "panic: missing env KAFKA_BROKERS",
        "kubectl get events": "BackOff   pod/web   Back-off restarting failed container",
        "kubectl get cm app -o name": "configmap/app",
        "kubectl get secret app": "secret/app   Opaque   2",
        "kubectl get deploy web -o name": "deployment.apps/web",
    }
    steps = [
        record("bash", {"command": one}, text, t=lap * gap_s + 0.3 * at, batch=f"message-{lap}")
        for lap in range(9)
        for at, (one, text) in enumerate(looks.items())
    ]
    assert first_level(evaluate(steps), Level.NUDGE) is not None


@pytest.mark.parametrize("text", ["The grate is locked.", "Your account is locked."])
def test_what_is_locked_for_good_is_no_wait(text: str) -> None:
    steps = [record("act", {"what": "open"}, text, t=2.0 * at) for at in range(12)]
    verdict = next(one for one in evaluate(steps) if one is not None and one.detections)
    assert str(verdict.detections[0].certainty) != "waiting"


RED = "Exit code 1\n--- FAIL: TestOrderFlow (3.3s)\nFAIL\tacme/e2e\t3.412s\nFAIL"


def red_after_each_edit(files: list[str]) -> list[StepRecord]:
    steps: list[StepRecord] = []
    for at, file in enumerate(files):
        edit = {"file_path": file, "old_string": f"a{at}", "new_string": f"b{at * 7919}"}
        steps.append(record("Edit", edit, f"The file {file} has been updated.", t=20.0 * at))
        steps.append(record("Bash", {"command": "go test ./e2e/"}, RED, "error", t=20.0 * at + 9.0))
    return steps


def test_a_test_that_stays_red_while_one_file_after_the_other_is_written_does_not_stop_the_run() -> None:
    verdicts = evaluate(red_after_each_edit([f"internal/{one}/{one}.go" for one in PLACES]))
    assert first_level(verdicts, Level.STOP) is None


def test_a_test_that_stays_red_after_edits_of_the_same_files_stops_it() -> None:
    verdicts = evaluate(red_after_each_edit(["internal/order.go", "internal/total.go"] * 10))
    assert first_level(verdicts, Level.STOP) is not None
