from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fake_model import blind, first_word, knowing
from tests.helpers import eventually
from trajectory_guard.core.similarity.calibration import Calibration, calibrate, fingerprint
from trajectory_guard.semantic import settler as embedding
from trajectory_guard.semantic.calibrations import (
    bundled_pairs,
    default_store,
    load_calibration,
    save_calibration,
)
from trajectory_guard.semantic.model_files import ModelError
from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings, Prepared, find_calibration, prepare

PATIENCE_S = 30.0
KNOWING = knowing(bundled_pairs())
GOOD = calibrate(KNOWING, bundled_pairs())


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MODEL_PATH", "MODEL_DOWNLOAD", "CALIBRATION"):
        monkeypatch.delenv(f"TRAJECTORY_GUARD_{name}", raising=False)
    monkeypatch.setattr(embedding, "_self_calibrated", {})


@pytest.fixture
def started() -> Iterator[Callable[..., BackgroundSettler]]:
    made: list[BackgroundSettler] = []

    def make(load: Callable[[], Prepared], **settings: Any) -> BackgroundSettler:
        settler = BackgroundSettler(ModelSettings(**settings), load=load)
        made.append(settler)
        return settler

    yield make
    for settler in made:
        settler.close()


def good(embed: Any = first_word) -> Callable[[], Prepared]:
    return lambda: Prepared(embed, replace(GOOD, tau=0.8))


# --- settling in the background ------------------------------------------------------------------------------


def test_the_first_answer_is_unknown_and_the_next_is_there(started: Any) -> None:
    settler = started(good())
    assert settler.state == "new"
    settler.start()
    settler.start()
    assert eventually(lambda: settler.state == "ready")
    assert settler.settle("refund a flight", "refund flights") is None
    assert settler.wait(PATIENCE_S)
    assert settler.settle("refund a flight", "refund flights") is True
    assert settler.settle("refund flights", "refund a flight") is True
    assert settler.settle("refund a flight", "weather at sea") is None
    assert settler.wait(PATIENCE_S)
    assert settler.settle("refund a flight", "weather at sea") is False
    assert settler.counts == {"settle.unknown": 2, "settle.same": 2, "settle.different": 1}


def test_settling_starts_the_model_by_itself_and_does_not_wait_for_it(started: Any) -> None:
    gate = threading.Event()
    settler = started(lambda: gate.wait(PATIENCE_S) and good()())
    before = time.perf_counter()
    assert settler.settle("one a", "one b") is None
    assert settler.wait(PATIENCE_S) is False
    assert time.perf_counter() - before < PATIENCE_S
    assert settler.state == "loading"
    gate.set()
    assert eventually(lambda: settler.settle("one a", "one b") is True)


def test_waiting_ends_at_the_deadline(started: Any) -> None:
    gate = threading.Event()

    def slow(text: str) -> list[float]:
        gate.wait(PATIENCE_S)
        return first_word(text)

    settler = started(good(slow))
    settler.start()
    assert eventually(lambda: settler.state == "ready")
    assert settler.wait(0.0)
    settler.settle("one a", "one b")
    before = time.perf_counter()
    assert settler.wait(0.03) is False
    assert 0.02 < time.perf_counter() - before < PATIENCE_S
    gate.set()
    assert settler.wait(PATIENCE_S)


@pytest.mark.parametrize(("a", "b"), [("", "x"), ("x", "x"), ("x", "x\ny")])
def test_nothing_to_compare_is_not_queued(a: str, b: str, started: Any) -> None:
    settler = started(good())
    assert settler.settle(a, b) is None
    assert settler.state == "new"


def test_the_queue_drops_the_oldest_and_counts(started: Any) -> None:
    gate = threading.Event()
    settler = started(lambda: gate.wait(PATIENCE_S) and good()(), queue_texts=4)
    for at in range(5):
        settler.settle(f"left{at} a", f"right{at} b")
    settler.settle("left4 a", "right4 b")
    assert settler.counts["settle.dropped"] == 6
    gate.set()
    assert eventually(lambda: settler.state == "ready")
    assert settler.wait(PATIENCE_S)
    assert settler.settle("left3 a", "right3 b") is False
    assert settler.settle("left0 a", "right0 b") is None


def test_vectors_are_bounded(started: Any) -> None:
    settler = started(good(), cache_vectors=4)
    settler.start()
    assert eventually(lambda: settler.state == "ready")
    for at in range(10):
        settler.settle(f"left{at} a", f"right{at} b")
        assert settler.wait(PATIENCE_S)
    assert len(settler._cache) == 4
    assert settler.settle("left9 a", "right9 b") is False


def test_a_missing_model_is_logged_and_counted_once(started: Any, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Prepared:
        raise ModelError("dir: tokenizer.json is missing")

    settler = started(load, path="dir")
    with caplog.at_level(logging.INFO, logger="trajectory_guard"):
        for _ in range(20):
            assert settler.settle("one a", "one b") is None
            eventually(lambda: settler.state == "off")
    assert settler.state == "off"
    assert settler.wait(PATIENCE_S)
    assert settler.counts["errors.model"] == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "tokenizer.json is missing" in caplog.text


def test_a_missing_model_that_nobody_asked_for_is_no_error(started: Any, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Prepared:
        raise ModelError("the default model is not cached")

    with caplog.at_level(logging.INFO, logger="trajectory_guard"):
        settler = started(load)
        settler.settle("one a", "one b")
        assert eventually(lambda: settler.state == "off" and bool(caplog.records))
    assert "errors.model" not in settler.counts
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_model_nobody_asked_for_is_missed_quietly(caplog: pytest.LogCaptureFixture, started: Any) -> None:
    def load() -> Prepared:
        raise ModelError("not cached")

    with caplog.at_level(logging.INFO, logger="trajectory_guard"):
        settler = started(load)
        settler.start()
        assert eventually(lambda: settler.state == "off")
        assert eventually(lambda: bool(caplog.records))
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.parametrize("error", [MemoryError(), ImportError("libfoo.so"), RuntimeError("odd"), ValueError()])
def test_any_failure_to_load_is_contained(error: Exception, started: Any) -> None:
    def load() -> Prepared:
        raise error

    settler = started(load)
    settler.start()
    assert eventually(lambda: settler.state == "off")
    assert settler.settle("one a", "one b") is None


def test_a_text_that_cannot_be_embedded_costs_only_itself(started: Any, caplog: pytest.LogCaptureFixture) -> None:
    def moody(text: str) -> list[float]:
        if "bad" in text:
            raise RuntimeError("no")
        return first_word(text)

    settler = started(good(moody))
    settler.settle("bad one", "other bad")
    settler.settle("good a", "good b")
    assert eventually(lambda: settler.settle("good a", "good b") is True)
    assert settler.settle("bad one", "other bad") is None
    assert settler.counts["errors.embedding"] == 2
    assert caplog.text.count("could not be embedded") == 1


def test_a_model_that_only_fails_is_switched_off(started: Any) -> None:
    def broken(text: str) -> list[float]:
        raise RuntimeError("no")

    settler = started(good(broken))
    for at in range(5):
        settler.settle(f"{at} a", f"{at} b")
    assert eventually(lambda: settler.state == "off")
    assert settler.counts["errors.embedding"] == 5
    assert settler.counts["errors.model"] == 1


def test_closing_ends_the_thread(started: Any) -> None:
    settler = started(good())
    settler.start()
    assert eventually(lambda: settler.state == "ready")
    thread = settler._thread
    settler.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert settler.settle("one a", "one b") is None
    assert settler.wait(PATIENCE_S)


def test_closed_while_loading_it_stays_closed(started: Any) -> None:
    gate = threading.Event()
    settler = started(lambda: gate.wait(PATIENCE_S) and good()())
    settler.start()
    settler.close()
    gate.set()
    settler._thread.join(PATIENCE_S)
    assert settler.state == "off"


def test_counts_can_be_shared() -> None:
    counts = Counter[str]()
    settler = BackgroundSettler(ModelSettings(), load=good(), counts=counts)
    settler.settle("one a", "one b")
    settler.close()
    assert counts["settle.unknown"] == 1


def test_many_threads_ask_at_once(started: Any) -> None:
    settler = started(good())
    wrong: list[Any] = []

    def ask(seed: int) -> None:
        for at in range(200):
            one, other = (seed + at) % 7, (seed * at) % 7
            answer = settler.settle(f"t{one} a", f"t{other} b")
            if answer not in (None, one == other):
                wrong.append((one, other, answer))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert eventually(lambda: settler.settle("t1 a", "t1 b") is True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_starts_its_own_thread() -> None:
    script = """
        import os, sys, time, warnings
        warnings.simplefilter("ignore")
        from tests.helpers import eventually
        from tests.test_embedding import good
        from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings
        settler = BackgroundSettler(ModelSettings(), load=good())
        settler.settle("one a", "one b")
        assert eventually(lambda: settler.settle("one a", "one b") is True)
        child = os.fork()
        if child == 0:
            os._exit(0 if settler.state == "new" and eventually(lambda: settler.settle("one a", "one b") is True) else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert settler.settle("one a", "one b") is True
    """
    root = Path(__file__).parent.parent
    paths = os.pathsep.join([str(root), str(Path(embedding.__file__).parent.parent)])
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=root, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


# --- calibration ---------------------------------------------------------------------------------------------


def test_without_a_stored_calibration_the_bundled_pairs_serve_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_calibration(KNOWING, fingerprint(KNOWING), ModelSettings())
    assert found == GOOD
    monkeypatch.setattr(embedding, "calibrate", None)
    assert find_calibration(KNOWING, fingerprint(KNOWING), ModelSettings()) is found
    assert not default_store().exists()


def test_a_named_store_keeps_the_calibration_it_lacked(tmp_path: Path) -> None:
    settings = ModelSettings(calibration=str(tmp_path / "deep" / "c.json"))
    found = find_calibration(KNOWING, GOOD.fingerprint, settings)
    assert load_calibration(settings.store, GOOD.fingerprint) == found


def own(tau: float) -> Calibration:
    return replace(GOOD, tau=tau, own=5, pairs="other")


def test_a_stored_threshold_is_used() -> None:
    save_calibration(default_store(), own(0.66))
    assert find_calibration(KNOWING, GOOD.fingerprint, ModelSettings()).tau == 0.66


def test_a_stored_threshold_of_another_model_is_refused() -> None:
    save_calibration(default_store(), replace(own(0.66), fingerprint="0" * 16))
    assert find_calibration(KNOWING, GOOD.fingerprint, ModelSettings()) == GOOD


def test_a_stored_threshold_from_other_bundled_pairs_is_refused() -> None:
    save_calibration(default_store(), replace(GOOD, tau=0.66, pairs="older"))
    assert find_calibration(KNOWING, GOOD.fingerprint, ModelSettings()) == GOOD


def test_a_broken_store_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    default_store().parent.mkdir(parents=True)
    default_store().write_text("{")
    assert find_calibration(KNOWING, GOOD.fingerprint, ModelSettings()) == GOOD
    assert "not a calibration file" in caplog.text


def test_a_store_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    settings = ModelSettings(calibration=str(tmp_path / "file" / "c.json"))
    assert find_calibration(KNOWING, GOOD.fingerprint, settings) == GOOD
    assert "calibration not kept" in caplog.text


def test_a_model_not_worth_using_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "load_embed", lambda path, download: blind)
    with pytest.raises(ModelError, match=r"the model is not used: .*AUC"):
        prepare(ModelSettings())


def test_preparing_gives_model_and_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "load_embed", lambda path, download: KNOWING)
    assert prepare(ModelSettings()) == Prepared(KNOWING, GOOD)


# --- a real model, where one is at hand ----------------------------------------------------------------------

REAL_MODEL = os.environ.get("TRAJECTORY_GUARD_TEST_MODEL", "")

if REAL_MODEL:

    def test_a_real_model_settles_without_network(monkeypatch: pytest.MonkeyPatch, started: Any) -> None:
        def refuse(*args: Any) -> None:
            raise AssertionError("network used")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        settings = ModelSettings(path=REAL_MODEL)
        first, second = prepare(settings), prepare(settings)
        assert first.calibration == second.calibration
        assert first.calibration.ok
        settler = started(lambda: first)
        pairs = {
            ("connection is lost every few minutes", "it loses connection every couple of minutes"): True,
            ("history of the Bosch company", "number of Bosch employees worldwide"): False,
        }
        for (a, b), expected in pairs.items():
            settler.settle(a, b)
            assert eventually(lambda a=a, b=b: settler.settle(a, b) is not None)
            assert settler.settle(a, b) is expected
