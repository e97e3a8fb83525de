"""Live objects over stored bytes, with a form of the simplest kind: numbers by name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("quixstreams", reason="the extra 'fleet' is not installed")

from quixstreams.state.rocksdb import RocksDBStorePartition

from tests.fleet.simulation import MemoryState
from trajectory_guard_collector.fleet.live import Content, LiveObjects, StoredPart
from trajectory_guard_collector.fleet.records import SendError, StateStoreError

Numbers = dict[str, Any]


class NumbersForm:
    """Objects are dictionaries. ``refused`` cannot be written; ``unreadable`` cannot be read."""

    def __init__(self) -> None:
        self.prepared: list[Numbers] = []
        self.fatal = False

    def new(self, key: bytes) -> Numbers:
        return {}

    def load(self, key: bytes, head: Any, parts: Mapping[str, Any]) -> Numbers:
        return {name: 1 / value if name == "unreadable" else value for name, value in parts.items()}

    def prepare_commit(self, value: Numbers) -> None:
        self.prepared.append(dict(value))
        if self.fatal:
            raise SendError("no producer")

    def content(self, value: Numbers) -> Content | None:
        if "refused" in value:
            raise OverflowError("too much")
        return (
            Content({}, {name: StoredPart(one, lambda one=one: one) for name, one in value.items()}) if value else None
        )

    def size(self, value: Numbers) -> int:
        return 10


class Store:
    """State by key, and the objects over it."""

    def __init__(self, max_bytes: float = 1_000.0) -> None:
        self.names: dict[bytes, dict[str, tuple[bytes, int]]] = {}
        self.damaged = 0
        self.form = NumbersForm()
        self.max_bytes = max_bytes
        self.live = self.new()

    def new(self) -> LiveObjects[Numbers]:
        return LiveObjects(self.form, 100.0, self.max_bytes, self._damage)

    def _damage(self) -> None:
        self.damaged += 1

    def open(self, key: bytes, at_ms: int = 1_000) -> Numbers:
        return self.live.open(key, MemoryState(self.names.setdefault(key, {}), at_ms), at_ms)

    def parts(self, key: bytes) -> dict[str, bytes]:
        return {name: value for name, (value, _) in self.names[key].items() if name != "h"}


def test_what_was_written_is_read_by_another_process() -> None:
    store = Store()
    store.open(b"k").update(a=1, b=2)
    store.live.flush()
    store.live = store.new()
    assert store.open(b"k") == {"a": 1, "b": 2}


def test_only_what_changed_is_written_and_what_is_gone_is_deleted() -> None:
    store = Store()
    store.open(b"k").update(a=1, b=2, c=3)
    store.live.flush()
    before = {name: expires for name, (_, expires) in store.names[b"k"].items()}
    one = store.open(b"k", 2_000)
    one["b"] = 5
    del one["c"]
    store.live.flush()
    after = {name: expires for name, (_, expires) in store.names[b"k"].items()}
    assert store.parts(b"k") == {"a": b"1", "b": b"5"}
    assert {name for name in after if after[name] != before[name]} == {"b", "h"}


def test_an_object_without_content_leaves_nothing() -> None:
    store = Store()
    store.open(b"k").update(a=1)
    store.live.flush()
    store.open(b"k").clear()
    store.live.flush()
    assert store.names[b"k"] == {}


def test_a_live_object_is_believed_while_the_stored_bytes_match_and_no_longer() -> None:
    store = Store()
    one = store.open(b"k")
    one["a"] = 1
    assert store.open(b"k") is one
    store.live.flush()
    assert store.open(b"k") is one
    store.live.flush()
    committed = dict(store.names[b"k"])
    one["a"] = 2  # ahead of the store, as after a commit that did not happen
    store.open(b"k")
    store.names[b"k"] = dict(committed)
    assert store.open(b"k") == {"a": 1}
    store.open(b"k")["a"] = 3
    store.live.flush()
    store.names[b"k"] = dict(committed)
    assert store.open(b"k") == {"a": 1}


def test_a_commit_that_is_lost_is_noticed_even_where_the_parts_alone_had_changed() -> None:
    """The head holds times of parts: two commits within a millisecond would have equal heads."""
    store = Store()
    store.open(b"k")["a"] = 1
    store.live.flush()
    committed = dict(store.names[b"k"])
    store.open(b"k")["a"] = 2
    store.live.flush()
    store.names[b"k"] = committed
    assert store.open(b"k") == {"a": 1}


def test_objects_beyond_the_memory_are_written_before_they_are_dropped() -> None:
    store = Store(max_bytes=25.0)
    for number in range(5):
        store.open(b"%d" % number)["a"] = number
    assert len(store.live) == 2
    store.live.flush()
    assert [store.open(b"%d" % number)["a"] for number in range(5)] == [0, 1, 2, 3, 4]
    assert store.form.prepared[:3] == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_one_object_that_cannot_be_written_costs_no_other() -> None:
    store = Store()
    store.open(b"bad").update(refused=1)
    store.open(b"good").update(a=1)
    store.live.flush()
    assert (store.damaged, store.names[b"bad"]) == (1, {})
    assert store.parts(b"good") == {"a": b"1"}
    assert store.open(b"bad") == {}


@pytest.mark.parametrize("broken", ["unreadable", "bytes", "version", "part", "mark"])
def test_one_object_that_cannot_be_read_begins_anew(broken: str) -> None:
    store = Store()
    store.open(b"k").update(a=1, **({"unreadable": 0} if broken == "unreadable" else {}))
    store.live.flush()
    head, expires = store.names[b"k"]["h"]
    changed = {"bytes": b"[", "version": head.replace(b'"v":1', b'"v":9'), "mark": b"mark of another process"}
    store.names[b"k"]["h"] = (changed.get(broken, head), expires)
    if broken == "part":
        del store.names[b"k"]["a"]
    store.live = store.new()
    assert store.open(b"k") == {}
    assert store.damaged == 1


def test_a_store_that_fails_ends_the_worker() -> None:
    class Broken(MemoryState):
        def get_bytes(self, key: str, default: None = None) -> bytes | None:
            raise OSError("no disk")

    store = Store()
    with pytest.raises(StateStoreError, match="OSError: no disk"):
        store.live.open(b"k", Broken({}, 0), 0)
    with pytest.raises(StateStoreError, match="OSError: no disk"):
        store.live.is_stored(Broken({}, 0))


def test_an_output_that_fails_ends_the_worker() -> None:
    store = Store()
    store.open(b"k")["a"] = 1
    store.form.fatal = True
    with pytest.raises(SendError):
        store.live.flush()
    assert store.damaged == 0


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 5, 255])
def test_the_stream_engine_takes_nothing_off_what_is_stored(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine took a random mark that began with a zero for a second expiry, so that every object of a process was
    read as damaged, and discarded: about one process in ten thousand."""
    chance = bytes([0, start, *range(200, 230)])
    monkeypatch.setattr(secrets, "token_bytes", lambda size=None: chance[:size])
    damaged: list[int] = []
    partition = RocksDBStorePartition(str(tmp_path / "store"))
    now_ms = 1_795_000_000_000
    for process in range(3):
        live = LiveObjects(NumbersForm(), 100.0, 1_000.0, lambda: damaged.append(1))
        for commit in range(2):
            transaction = partition.begin()
            for again in range(3):
                one = live.open(b"k", transaction.as_state(b"k", now_ms), now_ms)
                one[f"{process} {commit} {again}"] = 1
            live.flush()
            transaction.prepare(processed_offsets={})
            transaction.flush()
    assert len(one) == 18
    assert not damaged
    partition.close()
