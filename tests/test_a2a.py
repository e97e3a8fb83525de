"""Certificates travel as A2A parts, by operon's own codec where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard import (
    INTEGRITY_THEOREM,
    STAGNATION_THEOREM,
    FlagBoard,
    GuardConfig,
    IntegrityGate,
    StagnationGate,
)
from trajectory_guard.core.explain.certificates import Certificate, CertificateError

REASON = "needs operon-ai (extra a2a), which supports Python 3.11 and later"


def gate_certificates() -> list[Certificate]:
    board = FlagBoard(GuardConfig())
    stagnation = StagnationGate(board=board)
    for _ in range(3):
        stagnation.observe("I will search again for the return policy", thread_id="a")

    def paid_up(output: Any) -> bool:
        return bool(output["paid"])

    integrity = IntegrityGate([paid_up, lambda output: True], board=board)
    integrity.wrap(lambda state: {"paid": 0})({})
    return [*stagnation.certificates, *integrity.certificates]


def intervention() -> Certificate:
    found = evaluate(record("search", {"q": "hours"}, "Closed on Mondays, open from nine to five.") for _ in range(4))
    return next(one.certificate for one in found if one is not None and one.certificate is not None)


def test_without_operon_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == "operon_ai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "operon_ai", None)
    monkeypatch.delitem(sys.modules, "trajectory_guard.integrations.a2a", raising=False)
    with pytest.raises(ImportError, match=r"the A2A form of certificates needs operon_ai.*install the extra 'a2a'"):
        __import__("trajectory_guard.integrations.a2a")
    one, other = gate_certificates()  # the gates themselves need nothing of it
    assert one.verify().trusted
    assert other.verify().trusted


def test_gates_and_certificates_load_nothing_of_operon() -> None:
    code = (
        "import sys, trajectory_guard as t; t.StagnationGate; t.IntegrityGate;"
        "print([one for one in sys.modules if one.startswith(('operon', 'langgraph'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.strip() == "[]"


def test_operon_reads_our_parts_and_verifies_them() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    from operon_ai.convergence import a2a_certificate as codec

    from trajectory_guard.integrations.a2a import to_a2a_part

    for one, theorem in zip(gate_certificates(), (STAGNATION_THEOREM, INTEGRITY_THEOREM), strict=True):
        part = json.loads(json.dumps(to_a2a_part(one)))
        assert part["kind"] == "data"
        assert part["data"]["verification"]["holds"] is False
        theirs = codec.safe_certificate_from_a2a_part(part)
        assert theirs.theorem == theorem
        assert theirs.verify().holds == one.verify().holds
        assert json.loads(json.dumps(codec.certificate_to_a2a_part(theirs)["data"]["parameters"])) == json.loads(
            json.dumps(one.parameters)
        )
        assert (theirs.conclusion, theirs.source) == (one.conclusion, one.source)


def test_a_round_trip_gives_the_same_certificate() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    from trajectory_guard.integrations.a2a import from_a2a_part, to_a2a_part

    for one in (*gate_certificates(), intervention()):
        back = from_a2a_part(json.loads(json.dumps(to_a2a_part(one))))
        assert back.to_json() == one.to_json()
        assert back.verify() == Certificate.from_json(one.to_json()).verify()
        assert back.verify().trusted


def test_a_part_that_was_changed_on_its_way_is_found() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    from operon_ai.convergence import a2a_certificate as codec

    from trajectory_guard.integrations.a2a import from_a2a_part, to_a2a_part

    stagnation, integrity = gate_certificates()
    part = to_a2a_part(stagnation)
    part["data"]["parameters"]["signal_values"] = [0.99, 0.99]
    assert from_a2a_part(part).verify().status == "failed"
    part = to_a2a_part(integrity)
    part["data"]["parameters"]["invariant_results"][0][0] = "other"
    assert from_a2a_part(part).verify().status == "failed"
    part = to_a2a_part(intervention())
    assert part["data"]["verification"]["holds"] is True
    part["data"]["parameters"]["certificate"]["facts"]["count"] += 1
    assert codec.certificate_from_a2a_part(part).verify().holds is False
    assert from_a2a_part(part).verify().status == "failed"


def test_certificates_of_operons_own_gates_are_read_and_verify_alike() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    gates = pytest.importorskip("operon_langgraph_gates", reason="needs operon-langgraph-gates (extra bench)")
    from operon_ai.convergence import a2a_certificate as codec

    from trajectory_guard.integrations.a2a import from_a2a_part

    theirs = gates.StagnationGate(window_size=3)
    for _ in range(20):
        theirs.observe("I will search again", thread_id="a")
    broken = gates.IntegrityGate([lambda output: False])
    broken.wrap(lambda state: {})({})
    for one in (theirs.certificates[0], broken.certificates[0]):
        back = from_a2a_part(json.loads(json.dumps(codec.certificate_to_a2a_part(one))))
        assert back.theorem == one.theorem
        assert back.verify().trusted
        assert back.verify().holds == one.verify().holds is False


def test_other_parts_are_refused() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    from operon_ai.convergence import a2a_certificate as codec
    from operon_ai.core.certificate import Certificate as Theirs

    from trajectory_guard.integrations.a2a import from_a2a_part, to_a2a_part

    good = to_a2a_part(intervention())
    quality = Theirs.from_theorem("behavioral_quality", {"scores": (1.0,), "threshold": 0.5}, "fine", "x")
    unknown = {**good, "data": {**good["data"], "theorem": "never_heard_of"}}
    empty = {**good, "data": {**good["data"], "parameters": {}}}
    for part in (None, {}, {"kind": "text"}, codec.certificate_to_a2a_part(quality), unknown, empty):
        with pytest.raises(CertificateError):
            from_a2a_part(part)


def test_operon_alone_learns_the_theorem_from_us() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    code = (
        "from operon_ai.core.certificate import resolve_verify_fn as known;"
        f"print(known({INTEGRITY_THEOREM!r}) is None);"
        "import trajectory_guard.integrations.a2a;"
        f"print(known({INTEGRITY_THEOREM!r}) is None, known({STAGNATION_THEOREM!r}) is None)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.split() == ["True", "False", "False"]


def test_the_theorem_that_operon_does_not_know_is_registered_once() -> None:
    pytest.importorskip("operon_ai", reason=REASON)
    from operon_ai.core import certificate as operon

    from trajectory_guard.integrations import a2a

    before = operon.resolve_verify_fn(INTEGRITY_THEOREM)
    assert before is not None
    a2a.register()
    assert operon.resolve_verify_fn(INTEGRITY_THEOREM) is before  # whoever registered first stays
