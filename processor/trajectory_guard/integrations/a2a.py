"""Certificates as A2A ``DataPart``s, by the codec of ``operon-ai`` (extra ``a2a``).

A part is what operon's codec makes of a certificate, so that any agent with ``operon-ai`` can read it. The certificates
of the output gates travel under operon's names for their theorems. Those of nudges and stops travel under one theorem
of our own, whose only parameter is the certificate: a receiver that does not know it forwards the part unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trajectory_guard import extras
from trajectory_guard.core.detectors.reported import NOTHING_NEW_SAID, STATE_INVARIANT
from trajectory_guard.core.explain.certificates import FROZEN, REPLAYABLE, Certificate, CertificateError
from trajectory_guard.gates.integrity import INTEGRITY_THEOREM
from trajectory_guard.gates.stagnation import STAGNATION_THEOREM

try:
    from operon_ai.convergence import a2a_certificate as codec
    from operon_ai.core import certificate as operon
except ImportError as error:
    raise ImportError(extras.missing("the A2A form of certificates", error, "a2a"), name=error.name) from error

INTERVENTION_THEOREM: Final = "trajectory_guard_intervention"
_METADATA: Final = "trajectory_guard"
_THEOREMS: Final = {NOTHING_NEW_SAID: STAGNATION_THEOREM, STATE_INVARIANT: INTEGRITY_THEOREM}
_OF_THEOREM: Final = {STAGNATION_THEOREM: (NOTHING_NEW_SAID, REPLAYABLE), INTEGRITY_THEOREM: (STATE_INVARIANT, FROZEN)}


def register() -> None:
    """Make operon's registry know the theorems that it does not: done when this module is imported."""
    if operon.resolve_verify_fn(INTEGRITY_THEOREM) is None:  # operon-langgraph-gates brings one of its own
        operon.register_verify_fn(INTEGRITY_THEOREM, _verify_integrity)
    operon.register_verify_fn(INTERVENTION_THEOREM, _verify_intervention)


def to_a2a_part(certificate: Certificate) -> dict[str, Any]:
    """The certificate as a ``DataPart``, with the result of its verification."""
    if _is_theorem(certificate):
        parameters: Mapping[str, Any] = certificate.parameters
    else:
        parameters = {"certificate": certificate.to_plain()}
    theorem = _THEOREMS[certificate.rule] if _is_theorem(certificate) else INTERVENTION_THEOREM
    conclusion = certificate.conclusion or f"{certificate.facts.get('level', '')} by the rule {certificate.rule}"
    made = operon.Certificate.from_theorem(theorem, parameters, conclusion, certificate.source)
    part: dict[str, Any] = codec.certificate_to_a2a_part(made)
    if _is_theorem(certificate):  # operon has no place for our facts and digest
        part["metadata"][_METADATA] = {
            key: value for key, value in certificate.to_plain().items() if key != "parameters"
        }
    return part


def from_a2a_part(part: Any) -> Certificate:
    """The certificate in a part of ours, of operon-langgraph-gates or of any sender with one of our theorems.

    Raises:
        CertificateError: the part holds none, or one of another theorem. Nothing is verified.
    """
    try:
        made = codec.certificate_from_a2a_part(part)
    except (ValueError, KeyError) as error:
        raise CertificateError(f"not a certificate that is known here: {error}") from None
    plain = codec.certificate_to_a2a_part(made, verify=False)["data"]
    if made.theorem == INTERVENTION_THEOREM:
        return Certificate.from_plain(plain["parameters"].get("certificate"))
    if made.theorem not in _OF_THEOREM:
        raise CertificateError(f"theorem {made.theorem!r} is not known here")
    own = part.get("metadata", {}).get(_METADATA) if isinstance(part.get("metadata"), Mapping) else None
    if isinstance(own, Mapping):
        return Certificate.from_plain({**own, "parameters": plain["parameters"]})
    facts = {"theorem": made.theorem, "conclusion": made.conclusion, "source": made.source}
    return Certificate.made(*_OF_THEOREM[made.theorem], plain["parameters"], facts)


def _is_theorem(certificate: Certificate) -> bool:
    return certificate.rule in _THEOREMS and "level" not in certificate.facts


def _verify_integrity(parameters: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """As operon-langgraph-gates verifies it: the theorem holds if every invariant did."""
    results = tuple((name, bool(held)) for name, held in parameters.get("invariant_results", ()))
    failed = tuple(name for name, held in results if not held)
    return not failed, {"invariant_results": results, "failed_invariants": failed, "n": len(results)}


def _verify_intervention(parameters: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    try:
        result = Certificate.from_plain(parameters.get("certificate")).verify()
    except CertificateError as error:
        return False, {"status": "failed", "problems": (str(error),)}
    return result.trusted, {"status": result.status, "problems": result.problems}


register()
