"""From which cosine on do two texts mean the same? Measured for the model at hand, on labelled pairs.

The threshold moves by 0.03 when a model is quantised and by far more between models, so none is built in. Pure: an
embed function and pairs come in, a plain value goes out.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Final, NamedTuple

from .cascade import Embed, Settler, Vector, focus, unit
from .comparator import Relation, compare, normalize

BETA: Final = 0.5
"""Weight of recall against precision: below 1 favours precision."""
MAX_FPR: Final = 0.02
"""Highest accepted share of different pairs at or above the threshold, 0 to 1."""
MIN_AUC: Final = 0.85
"""Area under the ROC curve, 0 to 1, below which a model is not worth using."""
MIN_RECALL: Final = 0.40
"""Share of reworded pairs found, 0 to 1, below which a model is not worth using."""
MIN_PAIRS: Final = 10
"""Pairs of each label that a calibration needs."""
PROBES: Final = (
    "the quick brown fox jumps over the lazy dog",
    "how do I reset my password?",
    "SELECT name FROM users WHERE id = 42",
    "weather forecast for tomorrow",
)
"""Texts whose vectors identify a model."""


class Pair(NamedTuple):
    """Two texts and whether they mean the same."""

    a: str
    b: str
    same: bool


@dataclass(frozen=True)
class Calibration:
    """Measurements of a model. Shares and cosines are 0 to 1 unless stated otherwise.

    Fields:
        fingerprint: identifies the model, see ``fingerprint``.
        tau: cosine from which two texts count as the same.
        precision, recall, fpr: at ``tau``, on these pairs; fpr is the share of different pairs called the same.
        auc: area under the ROC curve, 0.5 is chance.
        positive_median: median cosine of pairs that mean the same, -1 to 1.
        negative_p95: 95th percentile of the cosine of pairs that do not, -1 to 1.
        floor: mean cosine of texts that have nothing to do with each other, -1 to 1.
        dim: length of a vector.
        positives, negatives: pairs measured.
        own: how many of them the user brought.
        pairs: digest of the pairs.
        ok: whether the model is worth using (``auc`` and ``recall`` reach ``MIN_AUC`` and ``MIN_RECALL``).
    """

    fingerprint: str
    tau: float
    precision: float
    recall: float
    fpr: float
    auc: float
    positive_median: float
    negative_p95: float
    floor: float
    dim: int
    positives: int
    negatives: int
    own: int
    pairs: str
    ok: bool

    def to_plain(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> Calibration:
        """The value that ``to_plain`` wrote; unknown keys are ignored.

        Raises:
            ValueError: a field is missing, has another type, or ``tau`` is not in (0, 1].
        """
        if not isinstance(plain, Mapping):
            raise ValueError(f"expected an object, got {type(plain).__name__}")
        values: dict[str, Any] = {}
        for item in fields(cls):
            value = plain.get(item.name)
            if not _is_a(value, str(item.type)):
                raise ValueError(f"{item.name}: expected {item.type}, got {value!r}")
            values[item.name] = value
        if not 0.0 < values["tau"] <= 1.0:
            raise ValueError(f"tau: {values['tau']!r} is not in (0, 1]")
        return cls(**values)

    @property
    def reason(self) -> str:
        """Why the model is not worth using; empty if it is."""
        if self.ok:
            return ""
        if self.auc < MIN_AUC:
            return f"it hardly distinguishes rewordings from other questions: AUC {self.auc:.2f} is below {MIN_AUC}"
        return f"it finds too few rewordings: recall {self.recall:.2f} is below {MIN_RECALL}"


def _is_a(value: Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    wanted = (int, float) if kind == "float" else (int,)
    return isinstance(value, wanted) and not isinstance(value, bool) and math.isfinite(value)


def fingerprint(embed: Embed) -> str:
    """16 hex digits that identify a model: a hash of its vectors for ``PROBES``.

    Components are rounded to 0.1, coarse enough to survive the arithmetic of another processor, fine enough to detect a
    model from its quantised form.
    """
    return _digest([[round(float(part) * 10) for part in unit(embed(text))] for text in PROBES])


def pairs_digest(pairs: Sequence[Pair]) -> str:
    """16 hex digits that identify a list of pairs."""
    return _digest([list(pair) for pair in pairs])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value).encode("ascii")).hexdigest()[:16]


def calibrate(
    embed: Embed,
    pairs: Sequence[Pair],
    *,
    max_fpr: float = MAX_FPR,
    own: int = 0,
    model: str | None = None,
) -> Calibration:
    """Measure a model on labelled pairs and choose its threshold.

    The threshold is the one with the best F-beta among those that call at most ``max_fpr`` of the different pairs
    the same. Costs one ``embed`` per text.

    Parameters:
        embed: one text to one vector.
        pairs: at least ``MIN_PAIRS`` of each label; those that a comparator cannot decide are the right ones.
        max_fpr: 0 to 1.
        own: how many of the pairs the user brought; only noted.
        model: fingerprint, where the caller has it.

    Raises:
        ValueError: too few pairs of a label.
    """
    count = sum(pair.same for pair in pairs)
    if min(count, len(pairs) - count) < MIN_PAIRS:
        raise ValueError(
            f"calibration needs {MIN_PAIRS} pairs of each label, got {count} same and {len(pairs) - count} different"
        )
    vectors = [(unit(embed(left)), unit(embed(right))) for left, right in (focus(pair.a, pair.b) for pair in pairs)]
    cosines = [float(left @ right) for left, right in vectors]
    same = sorted(cosine for cosine, pair in zip(cosines, pairs, strict=True) if pair.same)
    other = sorted(cosine for cosine, pair in zip(cosines, pairs, strict=True) if not pair.same)
    tau = _threshold(same, other, max_fpr)
    hits, alarms = _reached(same, tau), _reached(other, tau)
    recall, auc = hits / len(same), _auc(same, other)
    return Calibration(
        fingerprint=model or fingerprint(embed),
        tau=tau,
        precision=hits / (hits + alarms) if hits else 0.0,
        recall=recall,
        fpr=alarms / len(other),
        auc=auc,
        positive_median=_quantile(same, 0.5),
        negative_p95=_quantile(other, 0.95),
        floor=_floor(vectors),
        dim=len(vectors[0][0]),
        positives=len(same),
        negatives=len(other),
        own=own,
        pairs=pairs_digest(pairs),
        ok=auc >= MIN_AUC and recall >= MIN_RECALL,
    )


def _reached(ordered: Sequence[float], tau: float) -> int:
    return len(ordered) - bisect_left(ordered, tau)


def _threshold(same: Sequence[float], other: Sequence[float], max_fpr: float) -> float:
    """Half way between two neighbouring cosines; 1 if no threshold finds anything within ``max_fpr``."""
    scores = sorted({*same, *other})
    best = (0.0, 1.0)
    for below, above in zip([scores[0], *scores], scores, strict=False):
        tau = (below + above) / 2
        hits, alarms = _reached(same, tau), _reached(other, tau)
        if 0.0 < tau <= 1.0 and alarms <= max_fpr * len(other):
            weighted = (1 + BETA**2) * hits
            best = max(best, (weighted / (weighted + BETA**2 * (len(same) - hits) + alarms), tau))
    return best[1]


def _auc(same: Sequence[float], other: Sequence[float]) -> float:
    """Chance that a pair that means the same scores above one that does not; ties count half."""
    wins = sum(bisect_left(other, score) + bisect_right(other, score) for score in same)
    return wins / 2 / (len(same) * len(other))


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _floor(vectors: Sequence[tuple[Vector, Vector]]) -> float:
    """Mean cosine of each pair's first text with the second text of a pair far away in the list."""
    count = len(vectors)
    return sum(float(vectors[at][0] @ vectors[(at + count // 2) % count][1]) for at in range(count)) / count


def settler(embed: Embed, calibration: Calibration) -> Settler:
    """A settler with the calibrated threshold.

    Raises:
        ValueError: the calibration says that the model is not worth using.
    """
    if not calibration.ok:
        raise ValueError(calibration.reason)
    return Settler(embed, calibration.tau, any_language=calibration.own > 0)


def read_pairs(lines: Iterable[str], source: str) -> list[Pair]:
    """Pairs from JSON lines: ``{"a", "b", "same"}``, or calls as ``{"tool", "a_args", "b_args", "label"}``.

    Of calls, those are kept that the structured comparator calls MAYBE, as in use; other keys are ignored.

    Raises:
        ValueError: a line is neither; the message starts with ``source`` and the line number.
    """
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pair = _pair(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source}:{number}: {error}") from None
        if pair is not None:
            pairs.append(pair)
    return pairs


def _pair(row: Any) -> Pair | None:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected an object, got {type(row).__name__}")
    same = row.get("same", row.get("label"))
    if same not in (0, 1):
        raise ValueError(f"'same' (or 'label') must be true or false, got {same!r}")
    if isinstance(row.get("tool"), str) and {"a_args", "b_args"} <= row.keys():
        left, right = normalize(row["tool"], row["a_args"]), normalize(row["tool"], row["b_args"])
        if compare(left, right).relation is not Relation.MAYBE:
            return None
        return Pair(left.text, right.text, bool(same)) if all(focus(left.text, right.text)) else None
    a, b = row.get("a"), row.get("b")
    if not isinstance(a, str) or not isinstance(b, str) or not all(focus(a, b)):
        raise ValueError("expected two texts that differ, 'a' and 'b', or 'tool', 'a_args' and 'b_args'")
    return Pair(a, b, bool(same))
