"""Sentences that people read: true, complete, and without a contradiction in themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import record
from trajectory_guard.cli.main import main
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.explain.interventions import reason_text
from trajectory_guard.core.steps import Certainty
from trajectory_guard.spending.budget import SERVICE, USD, Budget, BudgetState
from trajectory_guard.spending.ledger import Account


@pytest.mark.parametrize(
    "limit, spent, amount",
    [
        (10_000, 13_200, "0.013200 of 0.01 USD"),
        (10_000, 9_900, "0.009900 of 0.01 USD"),
        (500_000, 503_000, "0.503000 of 0.50 USD"),
        (500_000, 0, "0.00 of 0.50 USD"),
        (10_000_000, 9_600_000, "9.60 of 10.00 USD"),
    ],
)
def test_the_amount_of_a_budget_fits_the_share_that_is_used(limit: int, spent: int, amount: str) -> None:
    assert BudgetState(Budget(SERVICE, USD, limit), Account(SERVICE, "shop"), spent).amount == amount


@pytest.mark.parametrize(
    "result, end",
    [
        ("", "the last call returned nothing."),
        ("three rows", 'the last result was "three rows".'),
        (None, "the last result was a result with nothing new."),
    ],
)
def test_the_last_result_is_named_in_a_sentence_that_reads_well(result: str | None, end: str) -> None:
    found = DetectionResult(
        "TYPE_I_STUTTER", 1.0, "same_call_same_result", certainty=Certainty.LIKELY, count=5, calls=5, alike=1
    )
    assert reason_text(found, record("search", {"q": 1}, result)).endswith(f"brought nothing new; {end}")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00 nothing of ours", b"{", b"[1, 2", b"\x1f\x8b\x08broken", b'{"a'])
def test_the_doctor_does_not_call_an_unreadable_file_healthy(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(content)
    assert main(["doctor", str(file)]) in (1, 2)
    said = capsys.readouterr().out
    assert "Nothing wrong" not in said
    assert "1 problem" in said
