"""What is dealt with by its name and comes back under another one is found; entries that lead on are not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import evaluate, evaluate_saved, record
from trajectory_guard.core.detectors.renewed import Renewed
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

LAPS = 14


def names(seed: int = 7, count: int = LAPS) -> list[str]:
    """Names as a controller makes them up, in no order."""
    dice = random.Random(seed)
    return ["".join(dice.choices("bcdfghjklm", k=3)) + str(dice.randrange(100, 999)) for _ in range(count)]


def crashing_pods() -> Iterator[StepRecord]:
    for at, name in enumerate(names()):
        pod = f"api-6f9c7d5b8-{name}"
        yield record(
            "bash",
            {"command": "kubectl get pods -l app=api"},
            f"{pod}   0/1   CrashLoopBackOff   {at * 7 % 4} ({at * 5 % 30}s ago)   {60 + at * 11 % 30}s",
        )
        if at % 2:
            yield record("bash", {"command": f"kubectl logs {pod}"}, "SMTP_HOST not set, exiting")
        yield record("bash", {"command": f"kubectl delete pod {pod}"}, f'pod "{pod}" deleted')


def restored_record() -> Iterator[StepRecord]:
    for name in names():
        yield record(
            "dns_list",
            {"zone": "acme.io"},
            f'{{"records": [{{"id": "rec_{name}", "name": "old.acme.io", "ttl": 300}}]}}',
        )
        yield record("dns_delete", {"id": f"rec_{name}"}, '{"deleted": true}')


def created_and_deleted() -> Iterator[StepRecord]:
    for name in names():
        yield record(
            "create_event",
            {"title": "Review", "at": "Monday 10:00"},
            f'{{"event": "ev-{name}", "conflict": "room taken"}}',
        )
        yield record("delete_event", {"event": f"ev-{name}"}, "ok")


def captcha() -> Iterator[StepRecord]:
    for name in names():
        yield record("click", {"name": "Sign in"}, f"Captcha: type the letters [{name}]")
        yield record("type_text", {"text": name}, "ok")
        yield record("click", {"name": "Verify"}, "Your session has expired. Sign in")
        yield record("fill_form", {"user": "ops", "password": "***"}, "ok")


def state_lock() -> Iterator[StepRecord]:
    for name in names():
        yield record(
            "terraform", {"cmd": "plan"}, f"Error: state is locked, lock id {name}-44f1, by ci@runner", "error"
        )
        yield record(
            "terraform", {"cmd": f"force-unlock -force {name}-44f1"}, "Terraform state has been successfully unlocked!"
        )


def duplicate_in_crm() -> Iterator[StepRecord]:
    for name in names():
        yield record(
            "chercher_fiche", {"nom": "Durand SA"}, f'[{{"fiche": "C{name}", "nom": "Durand SA", "ville": "Lyon"}}]'
        )
        yield record("supprimer_fiche", {"fiche": f"C{name}"}, "Fiche supprimée.")


LOOPS = [crashing_pods, restored_record, created_and_deleted, captcha, state_lock, duplicate_in_crm]


@pytest.mark.parametrize("steps", LOOPS)
def test_a_renewed_name_is_nudged_and_never_stopped_at_once(steps: Callable[[], Iterable[StepRecord]]) -> None:
    verdicts = evaluate(list(steps()))
    fired = [at for at, one in enumerate(verdicts) if one is not None and "renewed_name" in rules(one)]
    nudged = [at for at, one in enumerate(verdicts) if one is not None and one.nudge]
    assert fired
    assert nudged
    assert nudged[0] <= fired[0] + 1
    assert all(found.only_nudge for one in verdicts if one for found in one.detections if found.rule == "renewed_name")


def rules(verdict: object) -> set[str]:
    return {found.rule for found in getattr(verdict, "detections", ())}


def queue_in_order() -> Iterator[StepRecord]:
    for at in range(40):
        yield record("next_for_approval", {"desk": "A 1"}, f'{{"appointment": "T{400 + at}"}}')
        yield record("send_message", {"appointment": f"T{400 + at}", "template": "approval"}, "sent")


def queue_with_entries() -> Iterator[StepRecord]:
    for first, second in zip(names(1, 40), names(2, 40), strict=True):
        yield record("receive", {"queue": "thumbs"}, f'{{"message": "{first}", "receipt": "{second}"}}')
        yield record("make_thumbnail", {"message": first}, "done")
        yield record("acknowledge", {"receipt": second}, "")


def shrinking_list() -> Iterator[StepRecord]:
    left = names(3, 40)
    while left:
        yield record("list_sessions", {"user": "ann"}, " ".join(f"{one} idle;" for one in left))
        yield record("end_session", {"id": left.pop(0)}, "ended")


def rolling_restart() -> Iterator[StepRecord]:
    pods, others = [f"api-{one}" for one in names(9, 20)], names(10, 20)
    for at, new in enumerate(others):
        yield record("get_pods", {"app": "api"}, "\n".join(f"{one} 1/1 Running" for one in pods))
        yield record("delete_pod", {"name": pods[at]}, f"deleted {pods[at]}")
        pods[at] = f"api-{new}"


def count_that_falls() -> Iterator[StepRecord]:
    for at, name in enumerate(names(4, 40)):
        yield record("next_page", {"of": "backlog 2"}, f"{name}, {40 - at} left")
        yield record("close_item", {"id": name}, "closed")


def other_work_in_each_lap() -> Iterator[StepRecord]:
    words = ("red", "blue", "old", "new", "wet", "dry", "hot", "cold", "long", "short")
    for at, name in enumerate(names(5, 40)):
        yield record("open_session", {"on": "db 1"}, f'{{"session": "{name}"}}')
        yield record(
            "query",
            {"session": name, "sql": f"select {words[at % 10]}_{words[at // 10]} from t"},
            f"{words[at // 10]} {words[at % 10]}",
        )


def game() -> Iterator[StepRecord]:
    moves = [f"{a}{b}{c}{d}" for a in "abcd" for b in "12" for c in "efgh" for d in "34"]
    random.Random(6).shuffle(moves)
    for own, other in zip(moves[:30], moves[30:], strict=False):
        yield record("evaluate", {"depth": 18}, f'{{"best": "{own}"}}')
        yield record("move", {"uci": own}, f"You: {own}. Opponent: {other}.")


def name_that_nobody_uses() -> Iterator[StepRecord]:
    for name in names(8, 40):
        yield record("status", {"job": "j 1"}, f'{{"worker": "w-{name}", "state": "running"}}')
        yield record("wait", {"seconds": 30}, "ok")


@pytest.mark.parametrize(
    "steps",
    [
        queue_in_order,
        queue_with_entries,
        shrinking_list,
        rolling_restart,
        count_that_falls,
        other_work_in_each_lap,
        game,
        name_that_nobody_uses,
    ],
)
def test_what_leads_on_is_no_renewed_name(steps: Callable[[], Iterable[StepRecord]]) -> None:
    assert not any("renewed_name" in rules(one) for one in evaluate(list(steps())))


@pytest.mark.parametrize("steps", LOOPS)
@settings(max_examples=12)
@given(st.data())
def test_a_saved_detector_goes_on_where_it_was(steps: Callable[[], Iterable[StepRecord]], data: st.DataObject) -> None:
    run = list(steps())
    at = data.draw(st.integers(1, len(run) - 1))
    assert evaluate_saved(run, at) == evaluate(run)[at:]


def test_a_fresh_detector_saves_nothing_and_long_texts_are_not_read() -> None:
    assert Renewed().dump() is None
    long = list(
        chain.from_iterable(
            (record("look", {"at": "page 1"}, f"{name} " + "word " * 2_000), record("drop", {"name": name}, "ok"))
            for name in names()
        )
    )
    verdicts = evaluate(long)
    assert not any("renewed_name" in rules(one) for one in verdicts)
    assert all(one is None or one.level is not Level.STOP for one in verdicts)
