"""Certificates: the numbers and fingerprints behind a nudge or a stop, in a form that anybody can check later.

A certificate states the rule that fired, the parameters in force, and the facts of the run. Texts are never part of
it: calls and results appear as fingerprints. ``certify`` makes one, only at the step at which an intervention becomes
due. ``verify`` computes the digest again and, as far as the facts allow, the finding, the score and the place on the
ladder (``core.replayed_rules``). The digest finds damage; it is no proof against forgery, since anybody can compute it.
A key (HMAC) adds such proof.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from trajectory_guard.core.detectors import DetectionResult, detector_of
from trajectory_guard.core.detectors.reported import NOTHING_NEW_SAID, STATE_INVARIANT
from trajectory_guard.core.explain.replayed_rules import (
    POLICY_KEYS,
    RULES,
    Row,
    batches_of,
    different_calls,
    known_rules,
    matched_batches,
    problems_of,
)
from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.observation import BATCH_MASK, Observation
from trajectory_guard.core.policy import Decision, Level
from trajectory_guard.core.run import Run
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import EMPTY

VERSION: Final = 1
"""Version of the form and of the rules behind it; raised when a rule decides otherwise on the same facts."""
REPLAYABLE: Final = "replayable"
FROZEN: Final = "frozen"
MAX_CHARS: Final = 65_536
_FIELDS: Final = ("v", "rule", "basis", "parameters", "facts", "digest")


class CertificateError(ValueError):
    """Raised for data that has not the form of a certificate."""


class Verification(NamedTuple):
    """The result of verifying a certificate.

    Fields:
        status: ``replayed`` (computed again, with the same result), ``frozen`` (unchanged and consistent, but its facts
            cannot be computed again), ``unknown`` (of a rule or version that is not known here: not to be trusted) or
            ``failed``.
        problems: what does not agree, one sentence each.
        holds: for findings of the output gates: whether the theorem that the gate checks (stable, intact) holds on the
            evidence, which it does not where the gate fired. For all others the same as ``trusted``.
        evidence: values computed on the way.
    """

    status: str
    problems: tuple[str, ...]
    holds: bool
    evidence: Mapping[str, Any]

    @property
    def trusted(self) -> bool:
        """Whether the certificate is undamaged, of a known rule, and its conclusion follows from its facts."""
        return self.status in ("replayed", FROZEN)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The evidence for one intervention, or for one finding of an output gate.

    Attributes:
        rule: the rule that fired.
        basis: ``replayable`` if ``verify`` computes the finding again from the facts, ``frozen`` if it has to take
            the finding as stated (what two texts mean is not to be had from fingerprints).
        parameters: thresholds, weights and settings in force.
        facts: what happened: counts, fingerprints, score, and the place on the ladder.
        version: version of the form; digest: SHA-256 (hex) of all the above; hmac: HMAC-SHA-256 (hex), if signed.
    """

    rule: str
    basis: str
    parameters: Mapping[str, Any]
    facts: Mapping[str, Any]
    version: int = VERSION
    digest: str = ""
    hmac: str = field(default="", repr=False)

    @classmethod
    def made(
        cls, rule: str, basis: str, parameters: Mapping[str, Any], facts: Mapping[str, Any], key: bytes | None = None
    ) -> Certificate:
        """A certificate with its digest, signed if there is a key."""
        plain = {"v": VERSION, "rule": rule, "basis": basis, "parameters": parameters, "facts": facts}
        made = cls(rule, basis, parameters, facts, VERSION, _digest(plain))
        return made.signed(key) if key else made

    # --- forms -----------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        plain = {**self._unsigned(), "digest": self.digest}
        return {**plain, "hmac": self.hmac} if self.hmac else plain

    def to_json(self) -> str:
        """As canonical JSON: keys sorted, no spaces, ASCII."""
        return canonical(self.to_plain()).decode("ascii")

    @classmethod
    def from_plain(cls, data: Any) -> Certificate:
        """Read ``to_plain``; raises ``CertificateError``. Nothing is verified."""
        if not isinstance(data, Mapping):
            raise CertificateError(f"a certificate is an object, got {type(data).__name__}")
        missing = [name for name in _FIELDS if name not in data]
        unknown = sorted(map(str, data.keys() - {*_FIELDS, "hmac"}))
        if missing or unknown:
            raise CertificateError(f"missing fields {missing}, unknown fields {unknown}")
        for name, kind in (("rule", str), ("basis", str), ("parameters", Mapping), ("facts", Mapping), ("digest", str)):
            if not isinstance(data[name], kind):
                raise CertificateError(f"{name} is of type {type(data[name]).__name__}")
        if type(data["v"]) is not int or not isinstance(data.get("hmac", ""), str):
            raise CertificateError("v must be an integer, and hmac text")
        if "hmac" in data and not data["hmac"]:
            raise CertificateError("hmac is empty")
        try:
            parameters, facts = _plain(data["parameters"]), _plain(data["facts"])
        except RecursionError:
            raise CertificateError("nested too deeply") from None
        return cls(data["rule"], data["basis"], parameters, facts, data["v"], data["digest"], data.get("hmac", ""))

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read ``to_json``, byte for byte; raises ``CertificateError``. Nothing is verified."""
        if len(text) > MAX_CHARS:
            raise CertificateError(f"a certificate has at most {MAX_CHARS} characters, got {len(text)}")
        try:
            data = json.loads(text)
            same = canonical(data).decode("ascii") == text
        except (ValueError, RecursionError) as error:
            raise CertificateError(f"not valid JSON: {error}") from None
        if not same:
            raise CertificateError("not in canonical form: it was changed or rewritten")
        return cls.from_plain(data)

    # --- signing and verifying -------------------------------------------------------------------------------

    def signed(self, key: bytes) -> Certificate:
        """The certificate with an HMAC by ``key``."""
        return replace(self, hmac=self._hmac(key))

    def verify(self, key: bytes | None = None, *, known: Collection[str] = ()) -> Verification:
        """Compute again what can be computed.

        Parameters:
            key: with a key the certificate has to be signed by it; without one a signature is not looked at.
            known: rules of detectors that are not registered in this process. Their findings are frozen.
        """
        problems = [*self._damage(key)]
        evidence: dict[str, Any] = {}
        if not problems and self.version != VERSION:
            return Verification("unknown", (f"version {self.version} is not known here",), False, {})
        rule_known = known_rules(self.rule, known)
        if not problems and not rule_known:
            return Verification("unknown", (f"rule {self.rule!r} is not known here",), False, {})
        if rule_known:
            try:
                problems += problems_of(self.rule, self.basis == REPLAYABLE, self.parameters, self.facts)
                evidence = _evidence(self)
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                problems.append(f"facts cannot be read: {type(error).__name__}: {error}")
        if problems:
            return Verification("failed", tuple(problems), False, evidence)
        holds = bool(evidence["holds"]) if "holds" in evidence else True
        return Verification("replayed" if self.basis == REPLAYABLE else FROZEN, (), holds, evidence)

    def _unsigned(self) -> dict[str, Any]:
        return {
            "v": self.version, "rule": self.rule, "basis": self.basis, "parameters": self.parameters,
            "facts": self.facts,
        }  # fmt: skip

    def _damage(self, key: bytes | None) -> list[str]:
        try:
            sound = _digest(self._unsigned()) == self.digest
            found = [] if sound else ["the digest does not match: a value was changed"]
            if key is not None and not self.hmac:
                found.append("it is not signed")
            elif key is not None and not hmac.compare_digest(self.hmac.encode(), self._hmac(key).encode()):
                found.append("the signature does not match: another key, or a changed value")
        except (ValueError, TypeError, RecursionError) as error:
            return [f"it cannot be written as JSON: {error}"]
        return found if self.basis in (REPLAYABLE, FROZEN) else [*found, f"basis {self.basis!r} is not known"]

    def _hmac(self, key: bytes) -> str:
        return hmac.new(key, canonical({**self._unsigned(), "digest": self.digest}), sha256).hexdigest()

    # --- what an output gate states --------------------------------------------------------------------------

    @property
    def theorem(self) -> str:
        """The theorem that an output gate checks, by the name that the gate gives it; the rule for others."""
        return str(self.facts.get("theorem", self.rule))

    @property
    def conclusion(self) -> str:
        """One sentence, for certificates of the output gates; empty for others."""
        return str(self.facts.get("conclusion", ""))

    @property
    def source(self) -> str:
        """The gate that made it; ``trajectory_guard`` for interventions."""
        return str(self.facts.get("source", "trajectory_guard"))


def canonical(value: Any) -> bytes:
    """``value`` as JSON in one form only: the same bytes on every machine, and after any detour through JSON."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), default=repr).encode("ascii")


_AS_IT_IS: Final = frozenset((str, int, bool, type(None)))


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict or (kind is not list and kind is not float and isinstance(value, Mapping)):
        return {str(key): one if type(one) in _AS_IT_IS else _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [one if type(one) in _AS_IT_IS else _plain(one) for one in value]
    if kind is float:
        if not math.isfinite(value):
            return repr(value)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value  # JavaScript writes 2 for 2.0
    return value


def _digest(plain: Mapping[str, Any]) -> str:
    return sha256(canonical(plain)).hexdigest()


def _evidence(certificate: Certificate) -> dict[str, Any]:
    measured = certificate.facts.get("measured", certificate.parameters)
    intervention = "level" in certificate.facts
    if certificate.rule == NOTHING_NEW_SAID and "signal_values" in measured:
        values = [float(one) for one in measured["signal_values"]]
        found: dict[str, Any] = {"max": max(values), "mean": sum(values) / len(values), "n": len(values)}
        stable = max(values) <= float(measured["threshold"])
    elif certificate.rule == STATE_INVARIANT and "invariant_results" in measured:
        failed = [str(name) for name, passed in measured["invariant_results"] if not passed]
        found = {"failed_invariants": failed, "n": len(measured["invariant_results"])}
        stable = not failed
    else:
        return {}
    return found if intervention else {**found, "holds": stable}


_MAX_ROWS: Final = 64


def certify(
    found: DetectionResult, seen: Observation, run: Run, decision: Decision, settings: EngineSettings, *,
    trajectory_id: str, step_id: bytes, weights: Mapping[str, float], place: int,
    measured: Mapping[str, Any] | None = None,
) -> Certificate:  # fmt: skip
    """The certificate of the strongest finding at the step at which a nudge or a stop became due.

    A finding whose fingerprints differ although the engine has found them equal (volatile parts were masked) is frozen.

    Parameters:
        found: the finding, with indices of the run.
        run: the run before the step is remembered, with its score after the step.
        place: index of the step in the trajectory; step_id: its fingerprint, the span id where there is one.
        measured: what a gate has measured itself, which its rule is checked on.
    """
    policy, tool = {name: getattr(settings, name) for name in POLICY_KEYS}, settings.tool(seen.step.tool_name)
    score = run.score
    parameters = {
        "policy": policy,
        "thresholds": dict(detector_of(found).thresholds),
        "tool_weight": tool.weight if tool is not None else 1.0,
        "weights": {kind: weights[kind] for kind in sorted(score.hits)},
    }
    rows, unknown = _rows(_steps(found, seen, run), seen, run, place)
    loop = _LOOPS.get(found.rule, _plain_loop)(found, seen, rows, unknown)
    if found.rule == "same_call_same_result" and tool is not None and tool.idempotent:
        loop["idempotent"] = True  # the second equal result counts as the third
        loop["earlier"] -= (found.count, loop["earlier"]) == (3, 1)
    facts = {
        "trajectory": fingerprint(trajectory_id),
        "run": fingerprint(run.label),
        "step": place,
        "step_id": step_id.hex(),
        "level": str(Level.STOP if decision.stop_due else Level.NUDGE),
        "ordinal": decision.nudge,
        "loop_type": found.loop_type,
        "certainty": str(found.certainty),
        "confidence": found.confidence,
        "count": found.count,
        "first_step": run.history.place_of(found.first_step, place),
        "score": {"before": score.base, "hits": dict(score.hits), "after": score.value},
        "ladder": dict(decision.ladder_values or {}),
        "loop": loop,
    }
    if found.at_least:
        facts["at_least"] = True  # the count is a lower bound
    if measured is not None:
        facts["measured"] = dict(measured)
    return Certificate.made(found.rule, _basis(found.rule, parameters, facts), parameters, facts, settings.key_bytes)


def fingerprint(text: str) -> str:
    """A name as 16 hex digits."""
    return text_digest(text)


def _basis(rule: str, parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    if rule not in RULES or RULES[rule].replay is None:
        return FROZEN
    return FROZEN if problems_of(rule, True, parameters, facts) else REPLAYABLE


# --- the steps of a loop -----------------------------------------------------------------------------------------


def _steps(found: DetectionResult, seen: Observation, run: Run) -> Sequence[int]:
    """Indices of the steps of a loop: those of the finding, or the series that it is about."""
    if found.steps:
        return found.steps
    first = run.history.calls.start if found.rule == "cycle" else found.first_step
    return range(max(first, run.history.calls.start, seen.index + 1 - _MAX_ROWS), seen.index + 1)


def _rows(steps: Sequence[int], seen: Observation, run: Run, place: int) -> tuple[list[Row], int]:
    """The newest of these steps with their fingerprints, and how many are forgotten or too many to show."""
    history, newest = run.history, steps[-_MAX_ROWS:]
    rows = [
        Row(history.place_of(at, place), history.calls[at].hex(), history.results[at].hex(), history.batch_of(at))
        for at in newest
        if history.calls.start <= at < seen.index
    ]
    if newest and newest[-1] == seen.index:
        rows.append(Row(place, seen.call.hex(), seen.result.hex(), run.score.batch & BATCH_MASK))
    return rows, len(steps) - len(rows)


def _loop(rows: Sequence[Row], earlier: int, **facts: Any) -> dict[str, Any]:
    table = list(dict.fromkeys(one for row in rows for one in (row.call, row.result) if one))
    places = {one: at for at, one in enumerate(table)}
    steps = [[row.place, places.get(row.call, -1), places.get(row.result, -1), row.batch] for row in rows]
    return {"fingerprints": table, "steps": steps, "earlier": earlier, **facts}


_Loop = Callable[[DetectionResult, Observation, list[Row], int], dict[str, Any]]


def _plain_loop(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    """The steps of a finding that is counted in steps."""
    return _loop(rows, max(0, found.count - len(rows)))


def _series(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    """The steps of a finding that is not counted in steps; ``earlier`` are those that are forgotten."""
    return _loop(rows, unknown, period=found.period)


def _repeats(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    earlier = max(0, found.count - len({row.batch for row in rows}))
    if found.rule == "same_model_call":
        return _loop(rows, earlier, pace=seen.variation_pace)
    worked = seen.new_calls_since_repeat and not seen.others_progress
    if found.rule == "recurring_result":
        return _loop(rows, earlier, pace=seen.pace, empty=seen.outcome == EMPTY)
    pace = seen.pace_after_work if worked else seen.pace
    return _loop(rows, earlier, pace=pace, worked=worked, part_of_work=seen.belongs_to_work)


def _one_state(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    return _loop(rows, max(0, found.count - different_calls(rows)), tools=len(found.names))


def _answers(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    return _loop(rows, unknown, pace=seen.variation_pace)


def _cycle(found: DetectionResult, seen: Observation, rows: list[Row], unknown: int) -> dict[str, Any]:
    stated = seen.index - found.first_step - found.period + 1
    batches = batches_of(rows)
    matched = min(matched_batches(batches, found.period), stated)
    kept = sum(len(batch) for batch in batches[-(matched + found.period) :])
    shown = rows[-kept:] if kept else []
    pace = seen.pace_of(found.certainty)
    return _loop(shown, stated - matched, period=found.period, matched=stated, pace=pace)


_LOOPS: Final[Mapping[str, _Loop]] = {
    "same_call_same_result": _repeats,
    "recurring_result": _repeats,
    "same_model_call": _repeats,
    "same_state": _one_state,
    "same_effect": _one_state,
    "same_answer": _answers,
    "cycle": _cycle,
    "nothing_new": _series,
    "long_cycle": _series,
    "handoffs": _series,
}
