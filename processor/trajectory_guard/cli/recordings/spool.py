"""Spans on their way to trajectories, in bounded memory and whatever order they come in.

Spans wait in a private temporary SQLite database until all are read. SQLite keeps it in memory up to the size of its
cache and moves it to disk beyond (to ``SQLITE_TMPDIR`` or ``TMPDIR``); it vanishes with the process. If all spans fit
into memory they are looked at together. Otherwise group by group: a trace, or several that name the same conversation,
or of which one knows the result of a call in another. In memory are the cache, one group, and the steps of one
trajectory.
"""

from __future__ import annotations

import pickle
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from trajectory_guard.cli.recordings.diagnostics import MIB, Diagnostics, Limits, Recorded
from trajectory_guard.cli.recordings.grouping import Groups, offered_calls, wanted_calls
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tracking.model_calls import key_of
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DIALECTS, table_of
from trajectory_guard.spans.identity import conversation_id
from trajectory_guard.transcripts.assemble import drop_duplicates, extract_steps

_RESOURCE: Final = SpanView._fields.index("resource")
_BATCH_ROWS: Final = 512
_MAX_KNOWN: Final = 4096
_MAX_TRACES_OF_CALL: Final = 1000
"""A call id in more traces than this is no id: frameworks count ``call_1``, ``call_2`` from 1 in each."""
_SCHEMA: Final = """
CREATE TABLE spans(id INTEGER PRIMARY KEY, trace BLOB, source INT, resource INT, data BLOB);
CREATE TABLE resources(id INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE conversations(key BLOB, trace BLOB, PRIMARY KEY(key, trace)) WITHOUT ROWID;
CREATE TABLE calls(key BLOB, trace BLOB, offered INT, PRIMARY KEY(key, trace, offered)) WITHOUT ROWID;
CREATE TABLE steps(id INTEGER PRIMARY KEY, trajectory BLOB, place BLOB, trace BLOB, source INT, split INT, data BLOB);
"""


class _Row(NamedTuple):
    """A stored span."""

    trace: bytes
    source: int
    resource: int
    data: bytes


class Spool:
    """Takes spans, then gives steps and trajectories. Use as a context manager.

    Raises:
        sqlite3.Error: from any method, if the temporary database cannot grow.
    """

    def __init__(self, limits: Limits | None = None, dialects: tuple[Dialect, ...] = DIALECTS) -> None:
        self._limits = limits or Limits()
        self._dialects = table_of(dialects)
        self._db = sqlite3.connect("", isolation_level=None)  # the empty name: private, temporary, on disk if it grows
        self._db.execute(f"PRAGMA cache_size = -{max(64, self._limits.cache_bytes // 1024)}")
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.executescript(_SCHEMA)
        self._db.execute("BEGIN")
        self._rows: list[_Row] = []
        self._links: set[tuple[bytes, bytes]] = set()
        self._sources: list[str] = []
        self._stored_bytes = 0
        self._resources = _Resources(self._db)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    # --- spans in --------------------------------------------------------------------------------------------

    def add(self, span: SpanView, source: str = "") -> None:
        """Add one span of the file ``source``."""
        if not self._sources or self._sources[-1] != source:
            self._sources.append(source)
        fields = list(span)
        fields[_RESOURCE] = None
        trace, data = _key(span.trace_id), _dump(fields)
        self._stored_bytes += len(data)
        self._rows.append(_Row(trace, len(self._sources) - 1, self._resources.number(span.resource), data))
        conversation = conversation_id(span.attributes, self._dialects)
        if conversation is not None:
            self._links.add((_key(conversation), trace))
        if len(self._rows) >= _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._db.executemany("INSERT INTO spans(trace, source, resource, data) VALUES (?, ?, ?, ?)", self._rows)
        self._db.executemany("INSERT OR IGNORE INTO conversations VALUES (?, ?)", self._links)
        self._rows.clear()
        self._links.clear()

    # --- from spans to steps ---------------------------------------------------------------------------------

    def collect(self, diagnostics: Diagnostics) -> None:
        """Find the steps once all spans are added."""
        self._flush()
        diagnostics.phase("finding tool calls", self._one("SELECT COUNT(*) FROM spans"))
        if self._stored_bytes <= min(self._limits.whole_bytes, self._limits.trace_bytes):
            self._group(self._db.execute("SELECT trace, source, resource, data FROM spans"), diagnostics)
        else:
            self._db.execute("CREATE INDEX by_trace ON spans(trace)")
            self._collect_groups(diagnostics)
        self._db.execute("CREATE INDEX by_trajectory ON steps(trajectory, place)")
        self._drop_duplicates()

    def _collect_groups(self, diagnostics: Diagnostics) -> None:
        groups = Groups()
        shared = "SELECT key FROM conversations GROUP BY key HAVING COUNT(*) > 1"
        self._join(groups, f"SELECT key, trace FROM conversations WHERE key IN ({shared}) ORDER BY key")
        for trace, rows in self._by_trace():
            if trace not in groups:
                self._group(rows, diagnostics)
        for traces in groups:
            self._group_of_traces(traces, diagnostics)
        self._look_elsewhere(groups, diagnostics)

    def _look_elsewhere(self, groups: Groups, diagnostics: Diagnostics) -> None:
        """Join traces by their calls: bare clients and approvals write several traces without a conversation."""
        wanted = {hash(key) for (key,) in self._db.execute("SELECT DISTINCT key FROM calls")}
        if not wanted:
            return
        diagnostics.phase("matching calls between traces", self._one("SELECT COUNT(DISTINCT trace) FROM spans"))
        for trace, rows in self._by_trace():
            diagnostics.progress(1)
            names = {_key(name) for row in rows for name in offered_calls(self._span(_Row(*row)))}
            found = ((name, trace) for name in names if hash(name) in wanted)
            self._db.executemany("INSERT OR IGNORE INTO calls VALUES (?, ?, 1)", found)
        shared = (
            "SELECT key FROM calls GROUP BY key "
            f"HAVING MAX(offered) AND COUNT(DISTINCT trace) BETWEEN 2 AND {_MAX_TRACES_OF_CALL}"
        )
        joined = self._join(groups, f"SELECT key, trace FROM calls WHERE key IN ({shared}) ORDER BY key")
        if joined:
            self._db.execute("CREATE INDEX by_step_trace ON steps(trace)")
        for traces in list(groups.together_with(joined)):
            self._db.executemany("DELETE FROM steps WHERE trace = ?", ((trace,) for trace in traces))
            self._group_of_traces(traces, diagnostics)

    def _join(self, groups: Groups, query: str) -> set[bytes]:
        """Join the traces of each key; returns those that were separate before."""
        joined: set[bytes] = set()
        for _, rows in groupby(self._db.execute(query), key=itemgetter(0)):
            traces = {trace for _, trace in rows}
            if groups.join(traces):
                joined |= traces
        return joined

    def _group_of_traces(self, traces: list[bytes], diagnostics: Diagnostics) -> None:
        if self._size_of(traces) <= self._limits.trace_bytes:
            self._group(self._rows_of_traces(traces), diagnostics)
        else:
            self._split(traces, diagnostics)

    def _by_trace(self) -> Iterator[tuple[bytes, Iterator[tuple[Any, ...]]]]:
        query = "SELECT trace, source, resource, data FROM spans INDEXED BY by_trace ORDER BY trace, id"
        return groupby(self._db.execute(query), key=itemgetter(0))

    def _rows_of_traces(self, traces: Iterable[bytes]) -> Iterator[tuple[Any, ...]]:
        for trace in traces:
            yield from self._db.execute("SELECT trace, source, resource, data FROM spans WHERE trace = ?", (trace,))

    def _size_of(self, traces: Iterable[bytes]) -> int:
        query = "SELECT SUM(LENGTH(data)) FROM spans WHERE trace = ?"
        return sum(int(self._db.execute(query, (trace,)).fetchone()[0]) for trace in traces)

    def _split(self, traces: list[bytes], diagnostics: Diagnostics) -> None:
        """Traces that belong together but take too much memory: each by itself."""
        label = traces[0].decode("utf-8", "replace")
        diagnostics.note(
            self._source_of(traces[0]),
            f"{len(traces)} traces of one conversation, {label} among them, hold more than --max-trace-mb "
            f"{self._limits.trace_bytes // MIB}; read one by one: results in one for calls in another are not used",
        )
        for trace in traces:
            self._group(self._rows_of_traces([trace]), diagnostics, split=True)

    def _source_of(self, trace: bytes) -> str:
        row = self._db.execute("SELECT source FROM spans WHERE trace = ? LIMIT 1", (trace,)).fetchone()
        return self._sources[int(row[0])]

    def _group(self, rows: Iterable[tuple[Any, ...]], diagnostics: Diagnostics, *, split: bool = False) -> None:
        """Steps of spans that are looked at together."""
        spans: list[SpanView] = []
        sources: dict[str, int] = {}
        size = count = 0
        label = ""
        for row in map(_Row._make, rows):
            count += 1
            size += len(row.data)
            if size > self._limits.trace_bytes:
                spans.clear()
                continue
            spans.append(self._span(row))
            label = spans[-1].trace_id
            sources.setdefault(label, row.source)
        diagnostics.progress(count)
        if size > self._limits.trace_bytes:
            self._too_large(label, next(iter(sources.values()), 0), count, size, diagnostics)
        elif spans:
            self._store(spans, sources, diagnostics, split)

    def _too_large(self, trace: str, source: int, count: int, size: int, diagnostics: Diagnostics) -> None:
        most = self._limits.trace_bytes // MIB
        reason = f"its {count} spans take {size // MIB + 1} MiB, more than --max-trace-mb {most}; left out"
        diagnostics.fail(self._sources[source], f"trace {trace}: {reason}")

    def _store(self, spans: list[SpanView], sources: Mapping[str, int], diagnostics: Diagnostics, split: bool) -> None:
        first = next(iter(sources.values()))
        try:
            steps = extract_steps(spans, dialects=self._dialects, model_calls=True)
        except Exception as error:  # noqa: BLE001  one odd trace must not cost the others
            if len(sources) > 1:
                self._store_one_by_one(spans, sources, diagnostics)
                return
            reason = f"trace {spans[0].trace_id}: cannot be read: {type(error).__name__}: {error}"
            diagnostics.fail(self._sources[first], reason)
            return
        wanted = ((_key(name), _key(step.trace_id or "")) for step in steps for name in wanted_calls(step))
        self._db.executemany("INSERT OR IGNORE INTO calls VALUES (?, ?, 0)", wanted)
        self._db.executemany(
            "INSERT INTO steps(trajectory, place, trace, source, split, data) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (_key(step.trajectory_id), _place(step), _key(step.trace_id or ""),
                 sources.get(step.trace_id or "", first), split, _dump(step))
                for step in steps
            ],
        )  # fmt: skip

    def _store_one_by_one(self, spans: list[SpanView], sources: Mapping[str, int], diagnostics: Diagnostics) -> None:
        for _, group in groupby(sorted(spans, key=lambda span: span.trace_id), key=lambda span: span.trace_id):
            trace = list(group)
            self._store(trace, {trace[0].trace_id: sources[trace[0].trace_id]}, diagnostics, split=True)

    def _span(self, row: _Row) -> SpanView:
        fields = pickle.loads(row.data)
        fields[_RESOURCE] = self._resources.get(row.resource)
        return SpanView(*fields)

    def _drop_duplicates(self) -> None:
        """Drop calls that two traces, read one by one, both report."""
        several = "SELECT trajectory FROM steps WHERE split GROUP BY trajectory HAVING COUNT(DISTINCT trace) > 1"
        for (trajectory,) in self._db.execute(several).fetchall():
            found = [(row, pickle.loads(data)) for row, _, data in self._rows_of(trajectory)]
            kept = {id(step) for step in drop_duplicates([step for _, step in found])}
            dropped = [(row,) for row, step in found if id(step) not in kept]
            self._db.executemany("DELETE FROM steps WHERE id = ?", dropped)

    # --- out -------------------------------------------------------------------------------------------------

    def _rows_of(self, trajectory: bytes) -> list[tuple[int, int, bytes]]:
        query = "SELECT id, source, data FROM steps WHERE trajectory = ? ORDER BY place, id"
        return self._db.execute(query, (trajectory,)).fetchall()

    def steps(self) -> Iterator[StepRecord]:
        """All tool calls, ordered by start time."""
        for (data,) in self._db.execute("SELECT data FROM steps ORDER BY place, id"):
            step = pickle.loads(data)
            if step.model_scope is None and not step.is_toolless:
                yield step

    def trajectories(self) -> Iterator[Recorded]:
        """Trajectories with their steps ordered by start time, in the order of their first steps."""
        first = "SELECT trajectory, MIN(place) AS first FROM steps GROUP BY trajectory ORDER BY first"
        for trajectory, _ in self._db.execute(first):
            rows = self._rows_of(trajectory)
            steps = _without_single_calls([pickle.loads(data) for _, _, data in rows])
            if steps:
                yield Recorded(steps[0].trajectory_id, steps, self._sources[rows[0][1]])

    def count_trajectories(self) -> int:
        """How many trajectories there are."""
        return self._one("SELECT COUNT(DISTINCT trajectory) FROM steps")

    def _one(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])


class _Resources:
    """Resources, kept once: the spans of a request share theirs."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._last: tuple[Mapping[str, Any], int] | None = None
        self._numbers: dict[bytes, int] = {}
        self._count = 0
        self._loaded: dict[int, Mapping[str, Any]] = {}

    def number(self, resource: Mapping[str, Any]) -> int:
        """The number under which ``resource`` is kept."""
        if self._last is None or self._last[0] is not resource:
            data = _dump(dict(resource))
            number = self._numbers.get(data)
            if number is None:
                if len(self._numbers) >= _MAX_KNOWN:
                    self._numbers.clear()
                self._count += 1
                number = self._numbers[data] = self._count
                self._db.execute("INSERT INTO resources VALUES (?, ?)", (number, data))
            self._last = (resource, number)
        return self._last[1]

    def get(self, number: int) -> Mapping[str, Any]:
        """The resource of that number."""
        found = self._loaded.get(number)
        if found is None:
            if len(self._loaded) >= _MAX_KNOWN:
                self._loaded.clear()
            row = self._db.execute("SELECT data FROM resources WHERE id = ?", (number,)).fetchone()
            found = self._loaded[number] = pickle.loads(row[0])
        return found


def _without_single_calls(steps: list[StepRecord]) -> list[StepRecord]:
    """Without the model calls of a trajectory if no two of them are equal, as in most: none of them is a step."""
    calls = Counter(key_of(step) for step in steps if step.model_scope is not None)
    if any(count > 1 for key, count in calls.items() if key):
        return steps
    return [step for step in steps if step.model_scope is None]


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


def _key(text: str) -> bytes:
    """Text as bytes that sort like it; SQLite's own text cannot hold every string that JSON can."""
    return text.encode("utf-8", "surrogatepass")


def _place(step: StepRecord) -> bytes:
    """Where a step stands in its trajectory: bytes that sort by start time, then by id."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", step.timestamp + 0.0))
    bits = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | 1 << 63
    return struct.pack(">Q", bits) + _key(step.step_id)
