"""``flag``: addresses that cannot be asked, and servers that never come to an end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cli.helpers_cli import Command
from trajectory_guard.cli import flag

HEADS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x"),
    "body of a refusal": (b"HTTP/1.1 503 Unavailable\r\nContent-Length: 1000\r\n\r\n", b"x"),
}


@pytest.fixture(params=HEADS.values(), ids=HEADS)
def dripping(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server whose reply comes in little parts, without an end."""
    ended = threading.Event()
    head, part = request.param
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(head)
                    while not ended.wait(0.05):
                        connection.sendall(part)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join(10)


def test_a_reply_that_never_ends_is_not_waited_for(
    dripping: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flag, "_TIMEOUT_S", 0.5)
    began = time.monotonic()
    ran = command("flag", "show", "c", "--collector", dripping)
    assert time.monotonic() - began < 20
    assert (ran.status, ran.out) == (2, "")
    assert f"{dripping}: no answer from the collector: no answer within 0.5 s" in ran.err


@pytest.mark.parametrize("url", ["http://", "localhost:8888", "http://host:port", "http://host?a=b"])
def test_a_url_that_is_none_is_named(url: str, command: Command) -> None:
    ran = command("flag", "show", "c", "--collector", url)
    assert ran.status == 2
    assert ran.err.startswith("trajectory-guard: flag show: --collector: ")
    assert repr(url) in ran.err


def test_a_password_in_a_url_is_not_shown(command: Command) -> None:
    ran = command("flag", "show", "c", "--collector", f"http://ann:{'s3cret' * 20}@localhost:1")
    assert ran.status == 2
    assert "holds credentials" in ran.err
    assert "s3cret" not in ran.err
