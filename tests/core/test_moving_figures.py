"""Figures that move from answer to answer: ages, shares of what is done, serial numbers, counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.core.test_lists_and_limits import nudged, steps
from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.durations import ages_in
from trajectory_guard.core.policy import Level

GAPS_S = (3.0, 3.7, 4.4)  # as long as a model takes: nobody pauses here


def polled(answer: Callable[[float], str], *, calls: int = 60, tool: str = "bash") -> tuple[int | None, int | None]:
    """Steps of the first nudge and of the first stop where one call returns ``answer(seconds)`` each time."""
    steps, at = [], 0.0
    for number in range(calls):
        steps.append(record(tool, {"target": "web-1"}, answer(at), t=1_700_000_000 + at, dur=0.2))
        at += GAPS_S[number % 3]
    verdicts = evaluate(steps)
    return first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)


def minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}m{seconds % 60:.0f}s"


UNDER_WAY: dict[str, Callable[[float], str]] = {
    "pod": lambda s: f"NAME READY STATUS RESTARTS AGE\nweb-1 0/1 Provisioning 0 {12 + s:.0f}s",
    "claim": lambda s: f"NAME STATUS VOLUME CAPACITY AGE\ndata Binding  10Gi {minutes(75 + s)}",
    "container": lambda s: (
        f"CONTAINER CREATED STATUS\n3f2a {9 + s:.0f} seconds ago Up {8 + s:.0f} seconds (warming) web"
    ),
    "json": lambda s: json.dumps({"id": "j1", "phase": "Hydrating", "elapsed_s": round(12 + s)}),
    "milliseconds": lambda s: json.dumps({"phase": "Indexación", "uptimeMs": round(1000 * (5 + s)), "nodes": 3}),
    "process": lambda s: f"ELAPSED CMD\n{s // 60:02.0f}:{s % 60:02.0f} python train.py",
    "clocked": lambda s: f"Zustand: Abgleich, seit 00:{s // 60:02.0f}:{s % 60:02.0f}, Knoten 4",
    "seconds in words": lambda s: f"ビルド9はまだ進んでいます 経過{12 + s:.0f}秒",
    "member of any name": lambda s: json.dumps({"编号": 5521, "阶段": "甲", "已过": round(3 + s)}, ensure_ascii=False),
    "minutes and seconds": lambda s: f"Задача «сверка-03» идёт, прошло {s // 60:.0f} мин {s % 60:.0f} с.",
    "bare figure": lambda s: f"Zlecenie 9: etap B, minęło {12 + s:.0f}",
}
STUCK: dict[str, Callable[[float], str]] = {
    "test run": lambda s: f"FAILED test_a.py::test_x - assert 1 == 2\n1 failed in {0.3 + s % 7 / 50:.2f}s",
    "server's clock": lambda s: f"Please log in to continue. Server time 10:{s // 60:02.0f}:{s % 60:02.0f}. User name:",
    "request": lambda s: json.dumps({"took_ms": 12 + int(s) % 7, "hits": [{"id": 4, "title": "Zebra"}]}),
    "build": lambda s: f"src/a.ts(4,1): error TS2304: Cannot find name 'x'.\nFound 1 error. Done in {2 + s % 3:.1f}s.",
    "stamp": lambda s: f"[2026-03-01 10:{s // 60:02.0f}:{s % 60:02.0f}] no match for zebra in 4 of 4 indexes",
}


@pytest.mark.parametrize("name", UNDER_WAY)
def test_polling_of_an_age_that_keeps_time_is_nudged_late_and_not_stopped(name: str) -> None:
    nudge, stop = polled(UNDER_WAY[name])
    assert stop is None
    assert nudge is not None
    assert nudge >= 8


@pytest.mark.parametrize("name", STUCK)
def test_a_duration_or_a_clock_does_not_make_a_repeat_a_wait(name: str) -> None:
    nudge, stop = polled(STUCK[name])
    assert nudge is not None
    assert nudge <= 5
    assert stop is not None
    assert stop <= 21


def test_an_age_that_stands_still_makes_no_wait() -> None:
    nudge, stop = polled(lambda s: f"web-1 0/1 Hydrating 12s, asked at 10:{s // 60:02.0f}:{s % 60:02.0f}")
    assert nudge is not None
    assert stop is not None


def test_the_ages_of_a_long_table_are_bounded() -> None:
    assert ages_in("\n".join(f"pod-{number} Running {number}s" for number in range(40))) == [*map(float, range(8))]
    assert ages_in("x" * 5_000 + " 12s") == []


@pytest.mark.parametrize(
    "text", ["2026-03-01T10:00:00Z", "at 10:21:07", "v1.2s3", '{"page": 3}', '{"ts": 1700000000.5}']
)
def test_a_date_a_version_or_a_member_of_another_name_is_no_age(text: str) -> None:
    assert ages_in(text) == []


SHARES: dict[str, Callable[[int], str]] = {
    "rollout": lambda n: f"Waiting for rollout: {n} out of 20 replicas have been updated\nerror: timed out",
    "German": lambda n: f"Zeitlimit erreicht: {n} von 20 Dateien kopiert",
    "slash": lambda n: f"Timed out after 20 s (copied {n}/20 objects)",
    "percent": lambda n: f"превышено время ожидания, готово {5 * n} %",
    "Spanish": lambda n: f"error: tiempo agotado, {n} de 20 páginas",
}


@pytest.mark.parametrize("name", SHARES)
def test_a_wait_that_times_out_and_gets_on_is_left_alone(name: str) -> None:
    steps = [
        record("bash", {"command": "wait"}, SHARES[name](number // 2), "error", t=25.0 * number, dur=20.2)
        for number in range(40)
    ]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


@pytest.mark.parametrize("name", SHARES)
def test_a_wait_that_times_out_and_stands_still_is_nudged(name: str) -> None:
    steps = [
        record("bash", {"command": "wait"}, SHARES[name](7), "error", t=25.0 * number, dur=20.2) for number in range(20)
    ]
    assert first_level(evaluate(steps), Level.NUDGE) is not None


@pytest.mark.parametrize("name", SHARES)
def test_a_poll_that_gets_on_is_left_alone(name: str) -> None:
    steps = [
        record("bash", {"command": "show"}, SHARES[name](n).partition("\n")[0], t=4.0 * n, dur=0.2) for n in range(21)
    ]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


SLOW: dict[str, Callable[[int], str]] = {
    "screen": lambda n: f"Installing… {5 * n} %",
    "pantalla": lambda n: f"Instalando… {5 * n} %",
    "table": lambda n: f"NAME   READY   AGE\nweb    {n}/20    212d",
    "Sicherung": lambda n: f"{n} von 20 Dateien gesichert",
    "member": lambda n: json.dumps({"copied": f"{n}/20", "to": "/mnt/b"}),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_thing_that_is_looked_at_with_pauses_is_left_alone(name: str) -> None:
    steps = [record("capture", {}, SLOW[name](number // 4), t=10.0 * number) for number in range(81)]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_thing_that_has_come_to_a_halt_is_nudged(name: str) -> None:
    nudge = first_level(evaluate([record("capture", {}, SLOW[name](7), t=10.0 * n) for n in range(20)]), Level.NUDGE)
    assert nudge is not None
    assert nudge <= (13 if name == "screen" else 6)  # the word for what is under way is known in some languages


SERIES: dict[str, Callable[[int], str]] = {
    "order": lambda n: json.dumps({"pedido": 90311 + n, "situação": "recebido", "hora": f"09:14:{n:02}"}),
    "ticket": lambda n: json.dumps({"id": 10431 + 2 * n, "title": "Printer", "queue": "IT"}),
    "sentence": lambda n: f"Created issue #{10431 + n} in project OPS with priority normal",
    "invoice": lambda n: f"Rechnung Nr. {2026100 + n} an Kunde Meier wurde gebucht, Betrag 12,50 EUR",
    "row": lambda n: f"INSERT 0 1 into table notes, new id is {55012 + n} in schema public",
}


@pytest.mark.parametrize("name", SERIES)
def test_one_action_that_makes_the_next_of_a_series_each_time_is_a_loop(name: str) -> None:
    steps = [record("submit", {"what": "toner"}, SERIES[name](n), t=4.0 * n, dur=0.3) for n in range(30)]
    verdicts = evaluate(steps)
    nudge, stop = first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP)
    assert nudge is not None
    assert nudge <= 9
    assert stop is not None


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: json.dumps({"job": "j1", "rows": 90311 + n, "of": 99000}),
        lambda n: json.dumps({"task": 90311 + n, "file": f"photo-{n * 7919 % 1000}.png"}),
        lambda n: f"processed {90311 + n} of 99000 records so far, none rejected",
    ],
)
def test_a_count_or_another_thing_each_time_is_no_loop(answer: Callable[[int], str]) -> None:
    steps = [record("next_step", {"job": "j1"}, answer(n), t=4.0 * n, dur=0.3) for n in range(30)]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


MEASURED: dict[str, Callable[[int], str]] = {
    "benchmark": lambda n: f"join_large: {412 + n * 7 % 11}.{n % 9} ms",
    "criterion": lambda n: f"parse_large  time: [18.{30 + n * 7 % 40} ms 18.{40 + n % 40} ms 18.{50 + n % 40} ms]",
    "query plan": lambda n: f"Execution Time: {610 + n * 13 % 29}.112 ms",
    "Messung": lambda n: f"Laufzeit: {2 + n * 7 % 5 / 10:.2f} s",
    "ping": lambda n: f"rtt {11 + n * 7 % 5}.{n % 9} ms",
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measurement_that_is_repeated_for_a_mean_is_not_stopped(name: str) -> None:
    steps = [record("bash", {"command": "./bench"}, MEASURED[name](n), t=6.0 * n, dur=2.0) for n in range(12)]
    assert first_level(evaluate(steps), Level.STOP) is None


@pytest.mark.parametrize("name", MEASURED)
def test_but_not_for_ever(name: str) -> None:
    steps = [record("bash", {"command": "./bench"}, MEASURED[name](n), t=3.0 * n, dur=2.0) for n in range(80)]
    assert first_level(evaluate(steps), Level.NUDGE) is not None


def test_figures_that_are_too_many_to_follow_are_never_taken_for_noise() -> None:
    table = "\n".join(f"node-{row} {row * 31}" for row in range(12))
    steps = [record("show", {}, f"{3 * n} s\n{table}\nrows loaded {n * n}", t=3.0 * n, dur=0.1) for n in range(20)]
    assert first_level(evaluate(steps), Level.NUDGE, Level.STOP) is None


def test_a_debugger_that_steps_on_is_at_another_instruction() -> None:
    """Masks take out addresses, as those of objects; two objects lie at least 16 bytes apart."""
    at, shown = 0x555555400F50, []
    for length in (9, 4, 2, 4, 4, 7, 5, 3, 4, 15, 1, 4):
        shown.append(("debug_step", {}, f"0x{at:016x} in go() ()"))
        at += length
    assert nudged(evaluate(steps(shown))) is None
    objects = [
        ("make", {}, f"<Session object at 0x{0x7F3A2C1B5D30 + 48 * one:x}>") for one in (0, 7, 3, 12, 5, 9, 1, 4)
    ]
    assert nudged(evaluate(steps(objects))) is not None


FALLING: dict[str, Callable[[int], str]] = {
    "a loss": lambda epoch: f"loss {2.3104 * 0.93**epoch:.4f}",
    "a loss in six digits": lambda epoch: f"loss: {2.3104 * 0.93**epoch:.6f}",
    "two losses": lambda epoch: json.dumps(
        {"train": round(2.3104 * 0.93**epoch, 4), "val": round(2.5 * 0.94**epoch, 4)}
    ),
    "a loss with a setback now and then": lambda epoch: f"loss {2.3104 * 0.93**epoch + (epoch % 6 == 5) * 0.4:.4f}",
    "an accuracy": lambda epoch: f"val_acc={1 - 0.4 * 0.9**epoch:.4f}",
    "an accuracy in Chinese": lambda epoch: f"验证准确率 {1 - 0.4 * 0.9**epoch:.4f}",
}


@pytest.mark.parametrize("gap_s", [0.01, 3.0])
@pytest.mark.parametrize("between", [True, False], ids=["behind an action", "alone"])
@pytest.mark.parametrize("name", FALLING)
def test_a_decimal_that_moves_one_way_is_progress_however_it_is_printed(name: str, between: bool, gap_s: float) -> None:
    calls = []
    for epoch in range(1, 31):
        calls += [("train_epoch", {}, "ok")] * between + [("evaluate", {}, FALLING[name](epoch))]
    run = [record(*call, t=1_700_000_000 + gap_s * at, dur=gap_s / 2) for at, call in enumerate(calls)]
    assert first_level(evaluate(run), Level.STOP) is None


@pytest.mark.parametrize("unit", ["bar", "V", "l/min", ""])
def test_a_level_that_rises_by_tenths_in_fast_calls_is_no_clock(unit: str) -> None:
    calls = [
        record("get_level", {}, f"{1 + at / 10:.1f} {unit}", t=1_700_000_000 + 0.02 * at, dur=0.01) for at in range(25)
    ]
    assert first_level(evaluate(calls), Level.NUDGE) is None


def test_a_decimal_that_only_varies_is_noise() -> None:
    times = (0.7031, 0.1782, 0.1175, 0.4156, 0.7171, 0.2470, 0.6953, 0.8869, 0.4251, 0.2758, 0.8640, 0.1388)
    calls = [
        record("curl", {"url": "/healthz"}, f"502 bad gateway after {one:.4f}", t=3.0 * at)
        for at, one in enumerate(times)
    ]
    assert first_level(evaluate(calls), Level.NUDGE) is not None
