"""Replies to scores that are none of Langfuse's: broken, odd or without an end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.langfuse_server import PUBLIC_KEY, SECRET_KEY, Reply, langfuse
from tests.test_langfuse_sender import score
from trajectory_guard.integrations.langfuse.client import (
    Connection,
    RefusedAccessError,
    RetryableScoreError,
    ScoresClient,
)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = 2_048
ODD = {
    "not compressed": Reply(200, {"content-encoding": "gzip"}),
    "an error, not compressed": Reply(502, {"content-encoding": "gzip"}),
    "nested deeply": Reply(200, body="[" * 50_000 + "]" * 50_000),
    "no list of errors": Reply(207, body='{"accepted": 1, "rejected": 1, "errors": null}'),
    "a number without an end": Reply(207, body='{"accepted": 1, "rejected": 1e999, "errors": []}'),
    "a number in words": Reply(207, body='{"accepted": 1, "rejected": "one", "errors": []}'),
}


@pytest.fixture
def connect() -> Iterator[Callable[[str, float], ScoresClient]]:
    clients = []

    def client(url: str, timeout_s: float) -> ScoresClient:
        clients.append(ScoresClient(Connection(url, PUBLIC_KEY, SECRET_KEY, timeout_s=timeout_s)))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


@contextmanager
def writing(chunk: bytes, written: list[int], pause_s: float = 0.0) -> Iterator[str]:
    """A server whose reply consists of one chunk again and again, until the client has enough; its base URL."""

    def answer() -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(HEAD)
            while len(written) < CHUNKS:
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                written.append(len(chunk))
                time.sleep(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("name", ODD)
def test_a_reply_that_makes_no_sense_is_no_success_and_ends_nothing(
    name: str, connect: Callable[[str, float], ScoresClient]
) -> None:
    with langfuse() as server:
        server.script.append(ODD[name])
        client = connect(server.url, 5.0)
        with pytest.raises(RefusedAccessError) as refused:
            list(client.send([score(1), score(2)]))
        assert refused.value.status == "invalid"
        assert [len(one.scores) for one in client.send([score(1), score(2)])] == [2]


def test_fewer_rejected_than_none_are_none(connect: Callable[[str, float], ScoresClient]) -> None:
    with langfuse() as server:
        server.script.append(Reply(207, body='{"accepted": 3, "rejected": -1, "errors": []}'))
        assert [one.rejected for one in connect(server.url, 5.0).send([score(1), score(2)])] == [0]


def test_of_a_reply_without_an_end_only_the_beginning_is_read(connect: Callable[[str, float], ScoresClient]) -> None:
    written: list[int] = []
    with writing(bytes(65_536), written) as url, pytest.raises(RefusedAccessError):
        list(connect(url, 5.0).send([score(1)]))
    assert 0 < len(written) < CHUNKS // 2


def test_a_reply_that_trickles_ends_with_the_timeout(connect: Callable[[str, float], ScoresClient]) -> None:
    with writing(b" ", [], 0.01) as url, pytest.raises(RetryableScoreError, match="takes longer"):
        list(connect(url, 0.3).send([score(1)]))
