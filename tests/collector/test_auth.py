from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from trajectory_guard.config import ConfigError
from trajectory_guard_collector.authentication import Authenticator
from trajectory_guard_collector.config.models import Auth


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def with_file(file: Path, clock: Clock, **more: Any) -> Authenticator:
    return Authenticator(Auth(bearer_tokens_file=str(file)), clock=clock, **more)


def test_without_tokens_everybody_may_come_in() -> None:
    assert Authenticator(Auth()).check(None)


@pytest.mark.parametrize("header", ["Bearer one", "bearer two", "BEARER  two "])
def test_every_token_and_any_case_of_the_scheme_will_do(header: str) -> None:
    assert Authenticator(Auth(bearer_tokens=(SecretStr("one"), SecretStr("two")))).check(header)


@pytest.mark.parametrize(
    "header",
    [None, "", "one", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "Basic one", "Bearer \udcff", "Bearer é"],
)
def test_anything_else_will_not(header: str | None) -> None:
    assert not Authenticator(Auth(bearer_tokens=(SecretStr("one"),))).check(header)


def test_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens", Clock()
    file.write_text("old\n\nother\n")
    auth = with_file(file, clock)
    assert auth.check("Bearer old")
    assert auth.check("Bearer other")
    file.write_text("renewed\n")
    clock.now += 0.5
    assert auth.check("Bearer old"), "looked at more than once a second"
    clock.now += 0.5
    assert not auth.check("Bearer old")
    assert auth.check("Bearer renewed")


def test_fixed_tokens_and_file_add_up(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("from-file")
    auth = Authenticator(Auth(bearer_tokens=(SecretStr("fixed"),), bearer_tokens_file=str(tmp_path / "tokens")))
    assert auth.check("Bearer fixed")
    assert auth.check("Bearer from-file")


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda file: file.write_text("\n"), lambda file: file.write_bytes(b"\xff")]
)
def test_spoilt_file_keeps_the_last_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil) -> None:  # type: ignore[no-untyped-def]
    file, clock = tmp_path / "tokens", Clock()
    file.write_text("token")
    failures: list[str] = []
    auth = with_file(file, clock, failed=lambda: failures.append("failed"))
    spoil(file)
    clock.now += 1.0
    with caplog.at_level(logging.ERROR):
        assert auth.check("Bearer token")
    assert str(file) in caplog.text
    assert failures == ["failed"]
    file.write_text("repaired")
    clock.now += 1.0
    assert auth.check("Bearer repaired")


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("", "no token"), ("  \n\n", "no token")])
def test_file_must_be_usable_at_start(tmp_path: Path, content: str | None, why: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=rf"receivers\.otlp\.auth\.bearer_tokens_file: {file}.*{why}"):
        with_file(file, Clock())
