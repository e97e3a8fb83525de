"""A collector, or whatever listens in its place, that never comes to an end: a gate waits for it no longer than it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.helpers import eventually
from trajectory_guard.gates.remote import Caller, Memory, RemoteFlags

FAR_TOO_LONG_S = 60.0


@contextmanager
def listening(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[tuple[str, threading.Event]]:
    """The URL of a server on this machine, and the event that ends its answers."""
    released = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65_536)
                answer(connection, released)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", released
    finally:
        released.set()
        server.close()


def drips(connection: socket.socket, released: threading.Event) -> None:
    """Each byte comes within the time-out of the socket, and the answer never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    while not released.wait(0.02):
        connection.sendall(b" ")


def test_an_answer_that_drips_is_not_waited_for() -> None:
    failures: list[int] = []
    now = [0.0]
    memory = Memory()
    with listening(drips) as (url, released):
        flags = RemoteFlags(url, None, 0.2, lambda: failures.append(1), memory=memory, clock=lambda: now[0])
        answers: list[object] = []

        def ask_often() -> None:
            for _ in range(8):
                answers.append(flags.ask("c", -1, 0, Caller()))
                now[0] += 10.0  # a pause follows each failure

        thread = threading.Thread(target=ask_often, daemon=True)
        thread.start()
        thread.join(FAR_TOO_LONG_S)
        assert answers == [None] * 8
        assert len(failures) == 4  # with so many requests under way there is no further one
        released.set()
        assert eventually(lambda: not memory.late)


def test_a_server_that_does_not_speak_http_counts_as_no_answer() -> None:
    failures: list[int] = []
    with listening(lambda connection, _: connection.sendall(b"\x00\x00\x06\x04\x00 \r\n\r\n")) as (url, _):
        flags = RemoteFlags(url, None, FAR_TOO_LONG_S, lambda: failures.append(1))
        assert flags.ask("c", -1, 0, Caller()) is None
        assert flags.ask("c", -1, 0, Caller()) is None  # not asked: the pause has begun
    assert failures == [1]
