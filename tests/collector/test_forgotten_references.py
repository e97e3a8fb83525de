"""Paths and credentials with what only a shell replaces: taken as they are, they would be other ones than were meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard_collector.config.load import load_as, load_config
from trajectory_guard_collector.fleet.config import FleetConfig

PATHS = [
    "queue.storage", "guard.spending_file", "receivers.otlp.auth.bearer_tokens_file", "flags.auth.bearer_tokens_file",
    "telemetry.tls.cert_file", "receivers.otlp.protocols.grpc.tls.client_ca_file",
    "receivers.otlp.protocols.http.tls.key_file", "exporters.otlphttp.tls.ca_file",
]  # fmt: skip
LITERAL = [
    "~/guard",
    "~",
    "~me/guard",
    "$HOME/guard",
    "$HOME",
    "/data/$POD/guard",
    "./$X",
    "$$HOME/guard",
    "$$(pwd)",
    "$${HOME}/x",
]


def nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def written(tmp_path: Path, path: str, value: Any) -> str:
    file = tmp_path / "collector.yaml"
    file.write_text(yaml.safe_dump(nested(path, value)), encoding="utf-8")
    return str(file)


def mistakes(*paths: str, environ: dict[str, str] | None = None, overrides: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(paths, environ or {}, overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("value", LITERAL)
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_only_a_shell_would_expand_is_refused(tmp_path: Path, path: str, value: str) -> None:
    [line] = [one for one in mistakes(written(tmp_path, path, value)) if f": {path}: " in one]
    assert "~ and $NAME are not expanded here: write the whole path, or ${env:NAME}" in line


@pytest.mark.parametrize("value", ["$HOME/guard", "~/guard"])
def test_neither_the_command_line_nor_a_variable_makes_such_a_path(value: str) -> None:
    assert "queue.storage: ~ and $NAME" in mistakes(overrides=(f"queue.storage={value}",))[0]
    assert "queue.storage: ~ and $NAME" in mistakes(environ={"Q": value}, overrides=("queue.storage=${env:Q}",))[0]


@pytest.mark.parametrize("value", ["~/token", "$HOME/token"])
def test_a_file_behind_a_reference_is_refused_alike(tmp_path: Path, value: str) -> None:
    [line] = mistakes(written(tmp_path, "queue.storage", f"${{file:{value}}}"))
    assert f"queue.storage: {value}: ~ and $NAME are not expanded here" in line


@pytest.mark.parametrize(
    "value",
    ["/var/lib/guard", "guard", "./~guard", "/srv/a~b", "/srv/a$5", "C:/PROGRA~1", "/srv/x$y", "${env:HOME}/guard"],
)
def test_other_paths_are_taken_as_they_are(value: str) -> None:
    storage = load_config([], {"HOME": "/root"}, [f"queue.storage={value}"]).queue.storage
    assert storage == value.replace("${env:HOME}", "/root")


def test_the_file_of_the_ledger_is_refused_in_process_too() -> None:
    with pytest.raises(ConfigError, match=r"spending_file: ~ and \$NAME are not expanded"):
        GuardConfig.from_mapping({"spending_file": "~/guard"})


CREDENTIALS = [
    "exporters.langfuse.public_key", "exporters.langfuse.secret_key", "exporters.otlphttp.headers.authorization",
    "exporters.otlp.headers.x-api-key",
]  # fmt: skip


@pytest.mark.parametrize("value", ["$LF", "$LF_KEY-1", "$lf:$x", "Bearer $LF", "bearer  $LF", "Basic $LF"])
@pytest.mark.parametrize("path", CREDENTIALS)
def test_a_credential_that_is_a_variable_without_braces_is_refused(tmp_path: Path, path: str, value: str) -> None:
    [line] = [one for one in mistakes(written(tmp_path, path, value)) if f": {path}: " in one]
    assert line.endswith(": begins with $ and a name: a variable is written ${env:NAME}, a dollar sign $$")
    assert value not in line


def test_so_is_a_token_in_a_list_and_one_of_the_command_line(tmp_path: Path) -> None:
    [line] = mistakes(written(tmp_path, "receivers.otlp.auth.bearer_tokens", ["a", "$LF"]))
    assert ": receivers.otlp.auth.bearer_tokens.1: begins with $" in line
    lines = mistakes(overrides=("exporters.langfuse.public_key=$LF", "exporters.langfuse.secret_key=x"))
    assert lines == [
        "--set: exporters.langfuse.public_key: begins with $ and a name: a variable is written ${env:NAME}, a dollar sign $$"
    ]


@pytest.mark.parametrize(
    ("value", "read"),
    [("$$LF", "$LF"), ("${env:LF}", "$secret"), ("$5", "$5"), ("a$LF", "a$LF"), ("Bearer $$LF", "Bearer $LF"), ("$", "$"), ("Bearer ${env:LF}", "Bearer $secret")],
)  # fmt: skip
def test_a_credential_may_hold_dollar_signs(tmp_path: Path, value: str, read: str) -> None:
    """A password that a variable holds is not looked into."""
    section = {"endpoint": "http://tempo", "headers": {"x-api-key": value}}
    headers = (
        load_config([written(tmp_path, "exporters.otlphttp", section)], {"LF": "$secret"}).exporters["otlphttp"].headers
    )
    assert headers["x-api-key"].get_secret_value() == read


@pytest.mark.parametrize(
    ("path", "value"),
    [("state.dir", "$HOME/state"), ("kafka.security.ca_file", "~/ca.pem"), ("kafka.security.password", "$PASSWORD"),
     ("langfuse.secret_key", "$LF"), ("langfuse.headers.x-api-key", "Bearer $LF"), ("langfuse.public_key", "pk "),
     ("flags.readers.bearer_tokens_file", "~/tokens")],
)  # fmt: skip
def test_a_stream_worker_refuses_them_alike(tmp_path: Path, path: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf": {path}: (~ and|begins with|a key must be)"):
        load_as(FleetConfig, [written(tmp_path, path, value)], {})
