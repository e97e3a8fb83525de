"""With ``redact`` the guard keeps hashes alone: no argument, answer or message of the model leaves it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.core.steps import StepRecord

SECRETS = ("xylophone", "quokka", "zeppelin", "vermouth")


def loops() -> dict[str, list[StepRecord]]:
    """One loop of each kind; every secret word is an argument, an answer or a thought."""
    secret = "xylophone quokka"
    return {
        "stutter": [record("search", {"q": secret}, "zeppelin", thought=f"I look for vermouth {n}") for n in range(5)],
        "insanity": [
            record("search", {"query": f"{text} {secret}"}, "", "empty")
            for text in ("the", "a", "for the", "for a", "an")
        ],
        "phantom": [record("click", {"on": f"{secret} {n}"}, "page about zeppelin | vermouth") for n in range(9)],
        "pingpong": [record(f"t{n % 2}", {"q": secret}, f"zeppelin {n % 2}") for n in range(9)],
        "errors": [
            record("run", {"cmd": f"{secret} {n}"}, "error: zeppelin vermouth", "error", error_class="RunError")
            for n in range(6)
        ],
        "requests": [
            record("http", {"method": "POST", "url": "/xylophone/quokka", "body": {"n": n}}, "error: zeppelin", "error")
            for n in range(6)
        ],
        "volatile": [record("poll", {"q": secret}, f'{{"state": "zeppelin", "pid": {n}}}') for n in range(9)],
        "monologue": [
            record("read", {"q": f"{secret} {n}"}, None, thought="vermouth, once again vermouth") for n in range(5)
        ],
        "claims": [record("submit", {"answer": f"{secret} {n}"}, "zeppelin") for n in range(5)],
        "refused": [record("delete", {"what": secret}, "zeppelin said no", "denied") for _ in range(5)],
        "text": [record("say", f"xylophone {n % 2}", "quokka", "success") for n in range(8)],
    }


def leaks(reported: Any) -> list[str]:
    text = reported.decode("utf-8", "replace") if isinstance(reported, bytes) else str(reported)
    return [word for word in SECRETS if word in text.casefold()]


@pytest.mark.parametrize("name", loops())
def test_redacted_verdicts_and_state_hold_no_content(name: str) -> None:
    engine = Engine(EngineSettings(redact=True))
    state = engine.new_state("t")
    fired = False
    for step in loops()[name]:
        verdict = engine.observe(state, step)
        assert verdict is not None
        fired = fired or bool(verdict.detections)
        assert not leaks(verdict.reason)
        assert not leaks(verdict.nudge)
        assert not leaks(json.dumps(verdict.detections))
        assert not leaks(state.to_bytes())
    assert fired or name == "insanity"  # whether two wordings mean the same cannot be told from hashes


@pytest.mark.parametrize("name", loops())
def test_redaction_never_raises_a_score(name: str) -> None:
    def scores(settings: EngineSettings) -> list[float]:
        engine = Engine(settings)
        state = engine.new_state("t")
        return [engine.observe(state, step).score for step in loops()[name]]

    redacted, plain = scores(EngineSettings(redact=True)), scores(EngineSettings())
    assert all(low <= high for low, high in zip(redacted, plain, strict=True))
    if name != "insanity":  # whether two wordings mean the same cannot be told from hashes
        assert redacted == plain


def test_without_redaction_the_reason_shows_call_and_answer() -> None:
    engine = Engine()
    state = engine.new_state("t")
    reason = [engine.observe(state, step) for step in loops()["stutter"]][2].reason
    assert set(leaks(reason)) == {"xylophone", "quokka", "zeppelin"}


def test_excerpts_are_short() -> None:
    engine = Engine()
    state = engine.new_state("t")
    verdicts = [engine.observe(state, record("search", {"q": "word " * 5_000}, "answer " * 5_000)) for _ in range(3)]
    assert len(verdicts[-1].reason) < 500
    assert len(verdicts[-1].nudge) < 1_500


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        ({"command": "curl -sS -H 'Authorization: Bearer tk_live_4417' https://a.example/v1/orders"}, "tk_live_4417"),
        ({"command": "curl -u ada https://ada:s3cretWord@a.example/v1/orders"}, "s3cretWord"),
        ({"url": "https://a.example/v1/orders?api_key=9f8e7d6c5b"}, "9f8e7d6c5b"),
        ({"method": "GET", "url": "https://a.example/v1/orders?access_token=9f8e7d6c5b"}, "9f8e7d6c5b"),
        ({"input": {"url": "/v1/orders", "headers": {"Authorization": "Basic YWRhOnMzY3JldA=="}}}, "YWRhOnMzY3JldA"),
        ({"user": "ada", "password": "s3cretWord"}, "s3cretWord"),
        ({"config": {"client_secret": "s3cretWord", "region": "eu"}}, "s3cretWord"),
        ({"url": "https://b.example/file?sig=9f8e7d6c5b"}, "9f8e7d6c5b"),
        ({"url": "https://b.example/file?Signature=9f8e7d6c5b"}, "9f8e7d6c5b"),
        ({"USER": "ADA", "PASSWORD": "S3CRETWORD"}, "S3CRETWORD"),
        ({"command": "CURL -H 'AUTHORIZATION: BEARER TK_LIVE_4417'"}, "TK_LIVE_4417"),
        ({"set": {"authorization": "k4417"}}, "k4417"),
    ],
)
def test_a_nudge_shows_no_credentials_of_a_call(args: dict[str, Any], secret: str) -> None:
    verdicts = evaluate(
        [record("call", args, '{"ok": true, "refresh_token": "r3freshWord"}', t=float(at)) for at in range(12)]
    )
    texts = [verdict.nudge for verdict in verdicts if verdict is not None and verdict.nudge]
    assert texts
    assert not [text for text in texts if secret in text or "r3freshWord" in text]


@pytest.mark.parametrize(
    "result",
    [
        "see https://b.example/file?sig=r3freshWord",
        '{"PASSWORD": "r3freshWord"}',
        "BASIC r3freshWord",
        '[{"type": "text", "text": "Bearer r3freshWord"}, {"type": "image", "base64": "' + "iVBORw0KGgo" * 600 + '"}]',
    ],
)
def test_a_nudge_shows_no_credentials_of_a_result(result: str) -> None:
    verdicts = evaluate([record("call", {"q": 1}, result, t=float(at)) for at in range(12)])
    texts = [verdict.nudge for verdict in verdicts if verdict is not None and verdict.nudge]
    assert texts
    assert not [text for text in texts if "r3freshWord" in text]


def test_what_only_looks_like_a_credential_is_shown() -> None:
    args = {"keywords": "token ring, basic income", "max_tokens": 700, "key": "orders/17", "sort_key": "age"}
    verdicts = evaluate([record("call", args, "no hits", t=float(at)) for at in range(6)])
    text = next(verdict.nudge for verdict in verdicts if verdict is not None and verdict.nudge)
    assert '{"keywords": "token ring, basic income", "max_tokens": 700, "key": "or' in text
