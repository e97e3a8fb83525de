"""Certificates: every nudge and stop has one that verifies, any changed value is found, and no text is in it."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.situations import situations
from tests.core.test_saved_state import build, one_step
from tests.helpers import DATA, evaluate, evaluate_run, fewer_examples, from_line, lines, record
from trajectory_guard.core.detectors import (
    REGISTRY,
    TYPE_VI,
    DetectionResult,
    Detector,
    register,
    unregister,
    weights,
)
from trajectory_guard.core.detectors.reported import NOTHING_NEW_SAID, QUALITY_DROP, STATE_INVARIANT
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.explain.certificates import FROZEN, REPLAYABLE, Certificate, CertificateError, canonical
from trajectory_guard.core.explain.replayed_rules import RULES
from trajectory_guard.core.observation import Observation
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings, ToolSettings
from trajectory_guard.core.steps import Certainty

REPLAYED = {
    "same_model_call",
    "same_call_same_result",
    "recurring_result",
    "denied_again",
    "same_state",
    "same_effect",
    "cycle",
}
OWN_WORDS = {REPLAYABLE, FROZEN, *map(str, Level), *map(str, Certainty), *RULES, *weights()}
ROOM = "You are in room {}: two doors, a table, and a lamp."
NAMES = ("user", "users", "id", "user_id", "users_id", "uid", "user_uid", "id_user", "uid_users", "users_uid", "id_id")
PAGE = "Cart: 1 item. Please choose a size to continue."


@cache
def loops() -> dict[str, list[Any]]:
    """For each rule steps that lead to a nudge, most of them to a stop as well."""
    walk = "abcdefgh" + "hfdbgacehdbfgaec" * 2
    lap = [
        record("edit", {"line": 7}, "Line 7 of orders.py is now: total = price * count, as before."),
        record("test", {"all": True}, "2 failed, 9 passed: test_total and test_discount in tests/test_orders.py."),
    ]
    queries = ("flights from Berlin to Rome", "flights Berlin to Rome", "the flights from Berlin to Rome")
    texts = ("red lamps", "blue chairs", "old maps", "new tools", "wet paint", "dry goods", "hot soup", "cold tea")
    code = [f"{'    ' * (at % 3)}total_{at} = price[{at}] * amount" for at in range(9)]
    return {
        "same_call_same_result": [record("search", {"q": "hours"}, "Closed on Mondays, open from nine to five.")] * 12,
        "same_model_call": [
            record("model", {"prompt": "Improve the draft."}, "The draft is fine as it is.", model_scope="s")
        ] * 12,
        "denied_again": [record("delete", {"path": "/data"}, "not allowed", "denied")] * 5,
        "cycle": lap * 8,
        "same_meaning": [record("search", {"query": one}, "", "empty") for one in queries * 3],
        "same_error": [record("run", {"column": one}, f"KeyError: '{one}'", "error") for one in NAMES],
        "same_answer": [
            record("ocr", {"image": "scan_004.png", "dpi": dpi}, '{"text": ""}', "empty") for dpi in (150, 200, 300, 400, 600, 96, 72, 240, 1200, 90, 180, 360, 720, 80)
        ],
        "same_state": [record(tool, {"at": "size"}, PAGE) for tool in ("click", "scroll", "type")],
        "same_effect": [record("click", {"on": one}, PAGE) for one in ("buy", "pay", "next", "ok", "go", "more", "up")],
        "claims_done": [record("submit", {"answer": one}, "noted") for one in ("four", "five", "six", "seven", "one")],
        "only_thoughts": [record("think", {"thought": f"{way}, {'very ' * at}slowly"}, "ok") for at, way in enumerate("abcdefgh" * 8)],
        "only_plans": [
            record("update_plan", {"plan": [{"step": f"{way} {at}", "status": "pending"} for way in "ab"]}, "Plan updated")
            for at in range(20)
        ],
        "nothing_new": [
            record("go", {"way": way}, ROOM.format(at)) for way, at in zip(walk[1:], walk, strict=False)
        ],
        "known_calls": [
            record("pull", {"lever": one}, f"Lever {one} clicks {ord(one):b} times, and the door stays shut.")
            for one in "abcdef" + "fbxdcaebydacfzbdfaecvbfdacewbd"
        ],
        "long_cycle": [
            record("read", {"file": f"part_{at}.py"}, f"Part {at} defines the class Part{at} and {at * 7} lines.")
            for at in range(40)
        ] * 4,
        "renewed_name": [
            one
            for pod in ("x7k2", "9fz4", "m3w8", "t5b1", "q2n6", "h8r4", "w1z7", "d6s3", "b9c5", "k4v2")
            for one in (
                record("get_pods", {"app": "api"}, f"api-{pod} 0/1 CrashLoopBackOff"),
                record("delete_pod", {"name": f"api-{pod}"}, f"deleted api-{pod}"),
            )
        ],
        "never_works": [
            one
            for at in range(16)
            for one in (
                record("write", {"text": f"version {'abcdefghijklmnop'[at] * 4}"}, f"saved as {at * 977 % 89}"),
                record("submit", {"file": "report"}, f"Rejected: {NAMES[at % 3]} is missing, {NAMES[at * at % 3]} is not cited", "error"),
            )
        ],
        "unseen_results": [record("press", {"key": at % 3}, None) for at in range(16)],
        "handoffs": [
            record(f"transfer_to_{to}", {"reason": f"{why} {n}"}, "done")
            for n, (to, why) in enumerate([("billing", "invoice"), ("support", "who is it")] * 6)
        ],
        "recurring_result": [
            one for n, page in enumerate(texts)
            for one in (record("open", {"page": n}, f"All about {page}."), record("find", {"q": "refund"}, "", "empty"))
        ],
        "known_lines": [
            record("view", {"file": "a.py", "from": at, "to": to}, "\n".join(code[at:to]))
            for at, to in ((0, 9), (0, 4), (1, 6), (2, 9), (3, 7), (4, 9), (0, 5), (1, 8), (2, 6), (5, 9))
        ],
        "only_failures": [
            record("run", {"with": way}, f"{way}: {way[::-1]} {len(way)}", "error")
            for way in ["curl", "wget", "pip", "npm", "git", "ftp", "ssh", "scp", "rsync", "nc", "ping", "dig", "host", "telnet", "apt", "conda", "brew", "yarn"]
        ],
        "recurring_failure": [
            one
            for pod in ("a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8")
            for one in (
                record("logs", {"pod": pod}, f"Error: the variable DB_URL is not set; exit code 1 of the pod {pod}"),
                record("delete", {"pod": pod}, f"pod {pod} deleted"),
            )
        ],
        "undone": [
            one
            for at in range(9)
            for one in (
                record("edit", {"path": "a/values.yaml", "old": f"pool: {50 - 30 * (at % 2)}", "new": f"pool: {20 + 30 * (at % 2)}"}, "1 replacement"),
                record("logs", {"app": "api"}, f"Error: the pool of api-{at * 7} is {('empty', 'too large')[at % 2]} at :{at * 31}"),
            )
        ],
        "long_standstill": standing(40),
        "standstill": standing(14),
        "same_message": [
            record("look", {"at": n % 2}, f"The wall on side {n % 2} is grey, and the door in it is closed.", thought="I will look at the wall once more.")
            for n in range(24)
        ],
    }  # fmt: skip


def standing(laps: int) -> list[Any]:
    """Known looks in changing order, whose figures move and lead nowhere."""
    return [
        one
        for at in range(laps)
        for one in (
            record("audit", {"command": "abcd"[at * at // 3 % 4]}, f"{1208 + at * 7 % 5} packages, four of them cannot be mended"),
            record("look", {"at": "efgh"[at * 7 % 4]}, f"The disk is full to {90 + at * 11 % 7} percent, nothing can be deleted"),
        )
    ]  # fmt: skip


def certified(steps: Iterator[Any] | list[Any], settings: EngineSettings | None = None) -> list[Verdict]:
    numbered = [
        step._replace(step_id=f"{at + 1:016x}", timestamp=step.timestamp or at * 1.0) for at, step in enumerate(steps)
    ]
    return [one for one in evaluate(numbered, settings) if one is not None and one.intervenes]


@cache
def of_rule(rule: str) -> list[Verdict]:
    """Interventions for this rule in the steps that lead to it."""
    return of_rule_in(rule, loops()[rule])


def of_rule_in(rule: str, steps: list[Any]) -> list[Verdict]:
    """Interventions for this rule; where another one outweighs it, by its type alone."""
    owner = next(kind for kind in REGISTRY.values() if rule in kind.rules)
    alone = EngineSettings(weights={kind.loop_type: 0.0 for kind in REGISTRY.values()} | {owner.loop_type: 3.0})
    found = [[one for one in certified(steps, given) if one.rule == rule] for given in (None, alone)]
    return found[0] or found[1]


@cache
def recorded() -> list[Verdict]:
    """Every intervention in every recorded run, case and situation of the test data."""
    found: list[Verdict] = []
    for name in ("trajectories_sample.jsonl.gz", "own_trajectories.jsonl", "peer_cases.jsonl"):
        for run in lines(DATA / name):
            found += [one for one in evaluate_run(run) if one is not None and one.intervenes]
    for name in ("first", "given", "fourth"):
        for one in situations(name):
            steps = [
                from_line(line, step_id=f"{one['id']}-{at}", trajectory="t") for at, line in enumerate(one["steps"])
            ]
            found += [verdict for verdict in evaluate(steps) if verdict is not None and verdict.intervenes]
    return found


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all single values."""
    if isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list) and value:
        for place in range(len(value)):
            yield from leaves(value[place], (*path, place))
    else:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return "x" if value is None else [*value, 1] if isinstance(value, list) else {"x": 1}


def mutated(plain: Mapping[str, Any], path: tuple[Any, ...], change: Any = changed) -> dict[str, Any]:
    other = copy.deepcopy(dict(plain))
    holder: Any = other
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = change(holder[path[-1]])
    return other


def value_at(plain: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def plain_of(certificate: Certificate) -> dict[str, Any]:
    return json.loads(certificate.to_json())  # type: ignore[no-any-return]


def is_trusted(plain: Any, key: bytes | None = None) -> bool:
    try:
        return Certificate.from_plain(plain).verify(key).trusted
    except CertificateError:
        return False


def rehashed(plain: Mapping[str, Any]) -> Certificate:
    """A forger's certificate: changed values, and a digest that fits them."""
    return Certificate.made(plain["rule"], plain["basis"], plain["parameters"], plain["facts"])


def of(verdict: Verdict) -> Certificate:
    assert verdict.certificate is not None
    return verdict.certificate


# --- recorded runs -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_intervention_of_all_recorded_runs_has_a_certificate_that_verifies() -> None:
    assert len(recorded()) > 300
    for verdict in recorded():
        one = of(verdict)
        result = one.verify()
        assert result.trusted, (verdict.rule, result.problems)
        assert result.status == ("replayed" if one.basis == REPLAYABLE else FROZEN)
        assert (one.rule, one.facts["level"], one.facts["step"]) == (verdict.rule, verdict.level, verdict.step_index)
        assert one.facts["score"]["after"] == verdict.score
        assert Certificate.from_json(one.to_json()) == Certificate.from_plain(plain_of(one))


@pytest.mark.slow
def test_rules_over_equal_calls_are_always_computed_again() -> None:
    basis = Counter((verdict.rule, of(verdict).basis) for verdict in recorded())
    for rule in ("same_call_same_result", "denied_again", "cycle", "recurring_result"):
        assert basis[rule, FROZEN] == 0, rule


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.nightly)])
def test_each_single_changed_field_of_a_recorded_certificate_is_found(every: int) -> None:
    for verdict in recorded()[::every]:
        plain = plain_of(of(verdict))
        wrong = [path for path in leaves(plain) if is_trusted(mutated(plain, path))]
        assert wrong == []


# --- each rule ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", loops())
def test_each_rule_is_certified(rule: str) -> None:
    found = of_rule(rule)
    assert found
    for one in found:
        assert of(one).verify().status == ("replayed" if rule in REPLAYED else FROZEN)
        assert of(one).basis == (REPLAYABLE if rule in REPLAYED else FROZEN)


def test_every_rule_of_the_engine_is_known() -> None:
    assert {rule for kind in REGISTRY.values() for rule in kind.rules} <= RULES.keys()
    assert {rule for rule, one in RULES.items() if one.replay is not None} == REPLAYED | {
        NOTHING_NEW_SAID,
        QUALITY_DROP,
    }


@pytest.mark.parametrize("rule", sorted(REPLAYED - {"same_state", "recurring_result"}))
@pytest.mark.parametrize(
    "path",
    [
        ("facts", "count"), ("facts", "confidence"), ("facts", "level"), ("facts", "ordinal"), ("facts", "score", "after"),
        ("facts", "score", "before"), ("facts", "ladder", "nudges"), ("facts", "loop", "earlier"),
        ("facts", "loop", "fingerprints"), ("parameters", "policy", "nudge_threshold"), ("parameters", "policy", "max_score"),
    ],
    ids=lambda path: ".".join(path),
)  # fmt: skip
def test_a_conclusion_that_does_not_follow_is_found_whatever_the_digest_says(rule: str, path: tuple[str, ...]) -> None:
    verdict = of_rule(rule)[0]

    def forged(value: Any) -> Any:
        if path[-1] == "fingerprints":
            return value[:1]
        if path[-1] == "level":
            return "STOP" if value == "NUDGE" else "NUDGE"
        return value * 0.5 + 0.125 if path[-1] == "confidence" else value + 4

    plain = mutated(plain_of(of(verdict)), path, forged)
    found = rehashed(plain).verify()
    if path[-1] == "max_score":
        assert rehashed(plain).digest != of(verdict).digest
    else:
        assert found.status == "failed", (rule, path)


def test_a_step_with_another_result_is_found_whatever_the_digest_says() -> None:
    verdict = certified(loops()["same_call_same_result"])[0]
    plain = plain_of(of(verdict))
    plain["facts"]["loop"]["fingerprints"].append("00" * 8)
    plain["facts"]["loop"]["steps"][0][2] = 2
    assert rehashed(plain).verify().problems == ("the results are not equal",)


def test_stops_are_certified_with_their_place_on_the_ladder() -> None:
    levels = [one.level for one in certified(loops()["same_call_same_result"])]
    assert levels == [Level.NUDGE, Level.STOP]
    plain = plain_of(of(certified(loops()["same_call_same_result"])[1]))
    assert plain["facts"]["ladder"]["segment_since"] == plain["parameters"]["policy"]["stop_patience"]
    early = mutated(plain, ("facts", "ladder", "segment_since"), lambda value: value - 1)
    assert rehashed(early).verify().problems == ("STOP was not due at this place on the ladder",)


def test_settings_of_a_tool_are_part_of_the_certificate() -> None:
    steps = loops()["same_call_same_result"]
    for tool in (ToolSettings(idempotent=True), ToolSettings(weight=0.75), ToolSettings(poll=True)):
        settings = EngineSettings(tools={"search": tool}, max_polls=8)
        found = certified(steps, settings)
        assert found
        assert [of(one).verify().status for one in found] == ["replayed"] * len(found)


def test_a_step_at_which_nothing_becomes_due_has_no_certificate() -> None:
    verdicts = evaluate([one._replace(step_id=str(at)) for at, one in enumerate(loops()["cycle"])])
    assert all(
        (one is not None and one.certificate is not None) == (one is not None and one.intervenes) for one in verdicts
    )


# --- damage, signatures, what is unknown -----------------------------------------------------------------------------


def sample() -> Certificate:
    return of(of_rule("cycle")[0])


def test_a_changed_byte_is_found() -> None:
    text = sample().to_json()
    for at in range(len(text)):
        for other in ("0", "9", " ", '"', "}", "e", "E", "a"):
            if text[at] == other:
                continue
            try:
                trusted = Certificate.from_json(text[:at] + other + text[at + 1 :]).verify().trusted
            except CertificateError:
                continue
            assert not trusted, (at, text[at], other)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "NaN", "[" * 5_000, '{"v":1}', '"x"', "{" * 70_000])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(CertificateError):
        Certificate.from_json(text)


def test_further_missing_and_wrong_fields_are_refused() -> None:
    plain = plain_of(sample())
    for name in plain:
        with pytest.raises(CertificateError):
            Certificate.from_plain({key: value for key, value in plain.items() if key != name})
        with pytest.raises(CertificateError):
            Certificate.from_plain({**plain, name: None})
    for extra in ({"note": "x"}, {"hmac": ""}, {"v": True}):
        with pytest.raises(CertificateError):
            Certificate.from_plain({**plain, **extra})


def test_a_detour_through_other_json_writers_changes_nothing() -> None:
    one = sample()
    foreign = json.loads(json.dumps(one.to_plain(), indent=2), parse_int=float)  # JavaScript has one kind of number
    foreign["v"] = int(foreign["v"])
    assert canonical(foreign) == canonical(one.to_plain())
    assert Certificate.from_plain(foreign).verify().status == "replayed"


def test_an_unknown_rule_or_version_is_reported_and_not_trusted() -> None:
    plain = plain_of(of(certified(loops()["same_error"])[0]))
    foreign = Certificate.made("their_rule", FROZEN, plain["parameters"], plain["facts"])
    assert foreign.verify().status == "unknown"
    assert not foreign.verify().trusted
    assert foreign.verify(known=("their_rule",)).status == FROZEN
    later = {**plain, "v": 2}
    later["digest"] = (
        __import__("hashlib").sha256(canonical({k: v for k, v in later.items() if k != "digest"})).hexdigest()
    )
    assert Certificate.from_plain(later).verify().status == "unknown"
    assert Certificate.made("same_error", "proven", plain["parameters"], plain["facts"]).verify().status == "failed"


def test_a_frozen_rule_cannot_claim_to_be_replayable() -> None:
    plain = plain_of(of(certified(loops()["same_error"])[0]))
    one = Certificate.made("same_error", REPLAYABLE, plain["parameters"], plain["facts"])
    assert one.verify().problems == ("rule same_error cannot be computed again from fingerprints",)


def test_a_signature_is_of_one_key_and_covers_everything() -> None:
    found = certified(loops()["cycle"], EngineSettings(certificate_key="a key"))[0]
    one = of(found)
    assert one.verify(b"a key").trusted
    assert one.verify().trusted
    assert one.verify(b"another").problems == ("the signature does not match: another key, or a changed value",)
    assert sample().verify(b"a key").problems == ("it is not signed",)
    plain = plain_of(one)
    assert [path for path in leaves(plain) if is_trusted(mutated(plain, path), b"a key")] == []
    forged = rehashed({key: value for key, value in plain.items() if key != "hmac"}).to_plain() | {
        "hmac": plain["hmac"]
    }
    forged["facts"] = {**forged["facts"], "run": "0" * 16}
    assert not is_trusted(rehashed(forged).to_plain() | {"hmac": plain["hmac"]}, b"a key")
    assert "a key" not in repr(EngineSettings(certificate_key="a key")) + repr(one)


# --- detectors of users ----------------------------------------------------------------------------------------------


class Humming(Detector):
    """A detector of the user's own, with odd values in its findings."""

    name, loop_type, weight, rules = "humming", TYPE_VI, 2.0, ("hums",)
    shared = True

    def update(self, seen: Observation) -> DetectionResult | None:
        if seen.tool != "hum":
            return None
        return self.found(
            seen, 1.0, "hums", count=1 + seen.index, steps=(seen.index - 50, seen.index), names=("secret",)
        )


def test_a_registered_detector_gets_a_frozen_certificate() -> None:
    register(Humming)
    try:
        found = certified([record("hum", {"n": n}, f"hm {n}") for n in range(6)])
        assert found
        assert {of(one).verify().status for one in found} == {FROZEN}
        assert "secret" not in of(found[0]).to_json()
    finally:
        unregister("humming")
    assert of(found[0]).verify().status == "unknown"
    assert of(found[0]).verify(known=("hums",)).status == FROZEN


# --- no texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", loops())
def test_no_text_of_the_run_is_in_a_certificate(rule: str) -> None:
    steps = [
        one._replace(trajectory_id="customer-4711", run="agent-zeta", turn="turn-omega", agent_id="agent-kappa")
        for one in loops()[rule]
    ]
    for verdict in of_rule_in(rule, steps):
        plain, text = plain_of(of(verdict)), of(verdict).to_json()
        texts = [value_at(plain, path) for path in leaves(plain)]
        texts = [one for one in texts if isinstance(one, str) and not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{64}", one)]
        assert set(texts) <= OWN_WORDS
        for name in ("customer-4711", "agent-zeta", "turn-omega", "agent-kappa"):
            assert name not in text


# --- properties ------------------------------------------------------------------------------------------------------


@fewer_examples(1)
@given(st.lists(one_step, min_size=6, max_size=40))
def test_certificates_of_random_runs_verify(plan: Any) -> None:
    engine = Engine()
    state = engine.new_state("t")
    for step in build(plan):
        verdict = engine.observe(state, step)
        if verdict is None:
            continue
        assert (verdict.certificate is not None) == verdict.intervenes
        if verdict.certificate is not None:
            result = verdict.certificate.verify()
            assert result.trusted, result.problems
            if verdict.rule in {"same_call_same_result", "denied_again", "cycle"}:
                assert result.status == "replayed"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(RULES)), st.sampled_from([REPLAYABLE, FROZEN]), st.data())
def test_verifying_never_raises(rule: str, basis: str, data: st.DataObject) -> None:
    plain = plain_of(sample())
    paths = list(leaves(plain))
    for path in data.draw(
        st.lists(st.sampled_from([one for one in paths if one[0] in ("parameters", "facts")]), max_size=4)
    ):
        plain = mutated(plain, path, lambda _: data.draw(json_values))
    made = Certificate.made(rule, basis, plain["parameters"], plain["facts"])
    assert made.verify().status in ("replayed", FROZEN, "failed")


@given(json_values)
def test_reading_anything_raises_nothing_else(value: Any) -> None:
    with pytest.raises(CertificateError):
        Certificate.from_plain(value)
    assert json.loads(canonical(value)) is not NotImplemented


# --- the theorems of the output gates --------------------------------------------------------------------------------


def test_the_theorems_hold_on_no_evidence_of_a_violation() -> None:
    stagnant = Certificate.made(NOTHING_NEW_SAID, REPLAYABLE, {"signal_values": (0.85, 0.9), "threshold": 0.8}, {})
    assert stagnant.verify() == ("replayed", (), False, {"max": 0.9, "mean": 0.875, "n": 2, "holds": False})
    lively = Certificate.made(NOTHING_NEW_SAID, REPLAYABLE, {"signal_values": (0.85, 0.7), "threshold": 0.8}, {})
    assert lively.verify().problems == ("not every window is above the threshold",)
    broken = {"invariant_results": (("paid", True), ("known_user", False)), "all_passed": False}
    found = Certificate.made(STATE_INVARIANT, FROZEN, broken, {}).verify()
    assert found == (FROZEN, (), False, {"failed_invariants": ["known_user"], "n": 2, "holds": False})
    for wrong in ({**broken, "all_passed": True}, {"invariant_results": [["paid", True]], "all_passed": False}):
        assert Certificate.made(STATE_INVARIANT, FROZEN, wrong, {}).verify().status == "failed"
