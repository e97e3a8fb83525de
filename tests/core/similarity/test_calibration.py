from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.fake_model import DIM, blind, first_word
from trajectory_guard.core.similarity import Relation, compare, normalize
from trajectory_guard.core.similarity.calibration import (
    Calibration,
    Pair,
    calibrate,
    fingerprint,
    pairs_digest,
    read_pairs,
    settler,
)
from trajectory_guard.semantic.calibrations import bundled_pairs

PAIRS = [
    *(Pair(f"topic{at} asked this way", f"topic{at} asked in another way", True) for at in range(20)),
    *(Pair(f"topic{at} asked this way", f"subject{at} asked this way too", False) for at in range(60)),
]


def at_angles(same: list[float], other: list[float]) -> tuple[list[Pair], Any]:
    """Pairs with these cosines, and the model that gives them."""
    pairs = [Pair("origin", f"{cosine} {at}", at < len(same)) for at, cosine in enumerate([*same, *other])]

    def embed(text: str) -> list[float]:
        cosine = float(text.split()[0]) if text[0].isdigit() else 1.0
        return [cosine, math.sqrt(1 - cosine**2)]

    return pairs, embed


def test_a_good_model() -> None:
    found = calibrate(first_word, PAIRS)
    assert found.ok
    assert (found.precision, found.recall, found.fpr, found.auc) == (1.0, 1.0, 0.0, 1.0)
    assert found.negative_p95 < found.tau < found.positive_median
    assert abs(found.floor) < 0.2
    assert (found.dim, found.positives, found.negatives, found.own) == (DIM, 20, 60, 0)
    assert (found.fingerprint, found.pairs, found.reason) == (fingerprint(first_word), pairs_digest(PAIRS), "")


def test_a_model_that_cannot_tell_is_not_ok() -> None:
    found = calibrate(blind, PAIRS)
    assert not found.ok
    assert "AUC" in found.reason
    with pytest.raises(ValueError, match="AUC"):
        settler(blind, found)


def test_a_model_that_finds_too_little_is_not_ok() -> None:
    pairs, embed = at_angles([0.95] * 3 + [0.8] * 17, [0.9] + [0.1] * 19)
    found = calibrate(embed, pairs)
    assert (found.auc > 0.85, found.recall, found.fpr, found.ok) == (True, 0.15, 0.0, False)
    assert "recall" in found.reason


def test_the_threshold_lies_between_neighbours() -> None:
    pairs, embed = at_angles([0.9] * 10 + [0.8] * 10, [0.6] + [0.2] * 19)
    found = calibrate(embed, pairs)
    assert found.tau == pytest.approx(0.7)
    assert settler(embed, found).settle("origin", "0.8 10") is True


def test_false_alarms_are_limited_even_where_more_recall_would_score_better() -> None:
    pairs, embed = at_angles([0.9] * 10 + [0.7] * 30, [0.8] * 2 + [0.1] * 58)
    strict, lax = calibrate(embed, pairs), calibrate(embed, pairs, max_fpr=0.05)
    assert (strict.fpr, strict.recall, strict.tau) == (0.0, 0.25, pytest.approx(0.85))
    assert lax.recall == 1.0
    assert lax.fpr == pytest.approx(2 / 60)


def test_nothing_found_within_the_limit_leaves_a_threshold_nobody_reaches() -> None:
    pairs, embed = at_angles([0.1] * 10, [0.9] * 10)
    found = calibrate(embed, pairs)
    assert (found.tau, found.precision, found.recall, found.ok) == (1.0, 0.0, 0.0, False)


def test_equal_scores_are_a_coin_toss() -> None:
    pairs, embed = at_angles([0.5] * 10, [0.5] * 10)
    assert calibrate(embed, pairs).auc == 0.5


def test_too_few_pairs() -> None:
    with pytest.raises(ValueError, match="10 pairs of each label, got 9 same and 12 different"):
        calibrate(first_word, [*PAIRS[:9], *PAIRS[20:32]])


def test_the_fingerprint_survives_tiny_noise_and_tells_models_apart() -> None:
    def noisy(text: str) -> list[float]:
        return [part * (1 + 1e-7) for part in first_word(text)]

    assert fingerprint(noisy) == fingerprint(first_word) != fingerprint(blind)
    assert len(fingerprint(blind)) == 16


def test_plain_form_round_trip() -> None:
    found = calibrate(first_word, PAIRS, own=3)
    assert Calibration.from_plain({**found.to_plain(), "added_later": 1}) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": "0.8"}, "tau: expected float, got '0.8'"),
        ({"tau": 0.0}, "not in"),
        ({"tau": float("nan")}, "tau"),
        ({"ok": 1}, "ok: expected bool"),
        ({"dim": None}, "dim: expected int"),
        ({"fingerprint": 5}, "fingerprint: expected str"),
    ],
)
def test_a_broken_plain_form_is_refused(change: dict[str, Any], message: str) -> None:
    plain = calibrate(first_word, PAIRS).to_plain() | change
    with pytest.raises(ValueError, match=message):
        Calibration.from_plain(plain)


def test_a_plain_form_must_be_an_object() -> None:
    with pytest.raises(ValueError, match="expected an object, got list"):
        Calibration.from_plain([])


def test_a_model_not_worth_using_makes_no_settler() -> None:
    found = replace(calibrate(first_word, PAIRS), ok=False, recall=0.1)
    with pytest.raises(ValueError, match=r"recall 0\.10"):
        settler(first_word, found)


# --- pairs ---------------------------------------------------------------------------------------------------


def test_pairs_of_texts() -> None:
    lines = ['{"a": "x y", "b": "y z", "same": true, "class": "kept out"}', "", '{"a": "x", "b": "z", "label": 0}']
    assert read_pairs(lines, "f") == [Pair("x y", "y z", True), Pair("x", "z", False)]


def test_of_calls_only_the_doubtful_are_kept() -> None:
    doubtful = (
        '{"tool": "search", "a_args": {"query": "how long are logs kept"}, '
        '"b_args": {"query": "data retention period for log files"}, "label": 1}'
    )
    certain = '{"tool": "search", "a_args": {"id": 1}, "b_args": {"id": 2}, "label": 0}'
    assert read_pairs([doubtful, certain], "f") == [
        Pair("how long are logs kept", "data retention period for log files", True)
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "own.jsonl:2: Expecting value"),
        ("[]", "own.jsonl:2: expected an object, got list"),
        ('{"a": "x", "b": "y"}', "own.jsonl:2: 'same' .* got None"),
        ('{"a": "x", "b": "y", "same": 3}', "got 3"),
        ('{"a": "x", "b": 4, "same": 1}', "expected two texts"),
        ('{"a": "x", "b": "x", "same": 1}', "two texts that differ"),
        ("[" * 100_000, "own.jsonl:2:"),
    ],
)
def test_bad_lines_are_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pairs(['{"a": "x", "b": "y", "same": 0}', line], "own.jsonl")


def test_bundled_pairs_are_many_distinct_and_short() -> None:
    pairs = bundled_pairs()
    assert sum(pair.same for pair in pairs) >= 60
    assert sum(not pair.same for pair in pairs) >= 60
    assert len({frozenset((pair.a, pair.b)) for pair in pairs}) == len(pairs)
    assert all(0 < len(text) < 120 and text.isascii() for pair in pairs for text in (pair.a, pair.b))


def test_bundled_pairs_are_mostly_of_the_kind_that_a_model_is_asked_about() -> None:
    doubtful = [
        compare(normalize("search", {"query": pair.a}), normalize("search", {"query": pair.b})).relation
        is Relation.MAYBE
        for pair in bundled_pairs()
    ]
    assert sum(doubtful) >= 0.75 * len(doubtful)
