"""A process that can start no thread at the moment: what needs one tries again, and is not lost for good."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.helpers import eventually
from tests.test_callbacks import intervention
from tests.test_embedding import GOOD, first_word
from trajectory_guard import callbacks
from trajectory_guard.callbacks import Intervention, notify
from trajectory_guard.quality.judge import Answer, Judge
from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings, Prepared
from trajectory_guard.spending import prices
from trajectory_guard.spending.prices import PriceTable, UnitPrice


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """``undo`` ends it."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(callbacks, "_callbacks", callbacks._Callbacks())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield patch


def test_a_callback(no_thread: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def tell(_: Intervention) -> None:
        seen.append("called")

    counts: Counter[str] = Counter()
    notify(tell, intervention(), counts)
    no_thread.undo()
    assert (seen, counts) == ([], Counter({"errors.on_intervention": 1}))
    assert callbacks.wait(0)
    notify(tell, intervention(), counts)
    assert callbacks.wait(30)
    assert seen == ["called"]


def test_a_judge(no_thread: pytest.MonkeyPatch) -> None:
    scores: list[str] = []
    judge = Judge(lambda request, response: 1.0, lambda answer, score: scores.append(answer.trajectory))
    with pytest.raises(RuntimeError):
        judge.submit(Answer("first", "", "", ""))
    no_thread.undo()
    judge.submit(Answer("second", "", "", ""))
    assert judge.wait(30)
    assert scores == ["first", "second"]
    judge.close()


def test_a_sentence_model(no_thread: pytest.MonkeyPatch) -> None:
    settler = BackgroundSettler(ModelSettings(), load=lambda: Prepared(first_word, GOOD))
    assert settler.settle("refund a flight", "refund flights") is None
    assert (settler.state, settler.counts["errors.model"]) == ("new", 1)
    no_thread.undo()
    assert eventually(lambda: settler.settle("refund a flight", "refund flights") is True)
    settler.close()


def test_a_price(no_thread: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "look_up", lambda model: UnitPrice(1.0, 2.0))
    table = PriceTable()
    table.available = True
    assert table.cost("some-model", 1, 1) == 0.0
    no_thread.undo()
    table.wait(["some-model"], 30)
    assert table.cost("some-model", 1, 1) == 3.0
