"""Laps of several calls, one of which is a look: mostly looks and waits are a poll, mostly other calls are a circle."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.settings import EngineSettings

Lap = list[tuple[str, dict[str, Any], str]]
CIRCLES: dict[str, Lap] = {
    "repository": [
        ("git_status", {}, "On branch fix/tz\nnothing to commit, working tree clean"),
        ("list_dir", {"path": "src"}, "tz.py\nutil.py"),
        ("grep", {"pattern": "utcnow", "path": "src"}, ""),
    ],
    "order desk": [
        ("get_order_state", {"id": 9}, '{"state": "blocked"}'),
        ("get_customer", {"id": 3}, '{"tier": "silver", "name": "Wang Fang", "since": 2019}'),
        ("get_rule", {"kind": "refund"}, '{"rule": "A refund above 500 needs the signature of a manager."}'),
    ],
    "Störung": [
        ("geraete_status", {"geraet": "Bad"}, "Sollwert 17, Istwert unbekannt"),
        ("handbuch", {"kapitel": "Fehler"}, "Der Fühler ist an Klemme 4 angeschlossen, siehe Abbildung 7."),
        ("protokoll", {"tag": "heute"}, "06:00 Start\n06:01 Fühler fehlt\n06:02 Notbetrieb"),
        ("ersatzteile", {"suche": "Fühler"}, "TF-12 ist nicht auf Lager"),
    ],
}  # fmt: skip
POLLS: dict[str, Lap] = {
    "pods": [
        ("shell", {"command": "kubectl get pods"}, "web-7d9f 0/1 ContainerCreating 0 5m"),
        ("shell", {"command": "kubectl describe pod web-7d9f"}, "Name: web-7d9f\nNode: node-3\nReady False"),
        ("shell", {"command": "kubectl get events"}, "5m Normal Scheduled\n5m Normal Pulling image"),
        ("shell", {"command": "sleep 15"}, ""),
    ],
    "build": [
        ("get_build_status", {"id": 7}, '{"status": "running", "stage": "integration"}'),
        ("get_log", {"id": 7, "part": "web"}, "compiling module a\ncompiling module b\nlinking"),
        ("get_log", {"id": 7, "part": "api"}, "pulling image\nextracting"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CIRCLES)
def test_a_lap_with_a_look_and_two_further_calls_is_nudged_and_then_stopped(name: str) -> None:
    lap = CIRCLES[name]
    verdicts = evaluate(steps(lap * 20, 3.0))
    nudge, stop = nudged(verdicts), stopped(verdicts)
    assert nudge is not None
    assert nudge < 6 * len(lap)
    assert stop is not None
    assert nudge + len(lap) < stop < 16 * len(lap)


@pytest.mark.parametrize("name", [*CIRCLES, *POLLS])
def test_a_lap_with_long_pauses_is_never_stopped(name: str) -> None:
    lap = (CIRCLES | POLLS)[name]
    verdicts = evaluate(steps(lap * 20, 100.0))
    assert stopped(verdicts) is None
    assert (nudged(verdicts) or 20 * len(lap)) >= 6 * len(lap)


@pytest.mark.parametrize("gap_s", [1.0, 12.0])
@pytest.mark.parametrize("name", POLLS)
def test_a_lap_in_which_something_says_that_it_is_under_way_is_not_stopped(name: str, gap_s: float) -> None:
    assert stopped(evaluate(steps(POLLS[name] * 20, gap_s))) is None


def test_a_saved_lap_goes_on_as_if_it_had_not_been_saved() -> None:
    engine, lap = Engine(EngineSettings()), steps(CIRCLES["repository"] * 12, 3.0)
    kept, saved = engine.new_state("t"), engine.new_state("t")
    for step in lap:
        saved = engine.load_state(saved.to_bytes())
        assert repr(engine.observe(saved, step)) == repr(engine.observe(kept, step))
