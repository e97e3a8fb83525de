"""The cursors on the board: one a trajectory, fed by spans and gates, saved with the state of gates."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable
from typing import Final, TypeVar

import orjson

from trajectory_guard.board.entries import Entry
from trajectory_guard.board.entry_table import EntryTable
from trajectory_guard.core.content.outcome import is_refused_by_person
from trajectory_guard.core.cursor.boundary import APPLICATION, GUARD, PERSON, Sighting
from trajectory_guard.core.cursor.cursor import Cursor, digests_of
from trajectory_guard.core.explain.interventions import args_excerpt
from trajectory_guard.core.fingerprints import parse_json, text_digest
from trajectory_guard.core.state import StateFormatError
from trajectory_guard.core.steps import DENIED, ERROR, StepRecord, is_refused_by_guard, with_known_times
from trajectory_guard.core.text import clip
from trajectory_guard.core.text_bounds import chars_of
from trajectory_guard.core.tracking.scope import run_label
from trajectory_guard.process.containment import contain
from trajectory_guard.process.locks import looks_again

_MAX_ARGS_CHARS: Final = 4_096
_MAX_NAME_CHARS: Final = 128
_MAX_SAVED_BYTES: Final = 64 * 1024 * 1024
_Found = TypeVar("_Found")


class Cursors:
    """The cursors of a board's trajectories. Thread-safe; off unless the configuration has ``cursor``."""

    def __init__(self, table: EntryTable) -> None:
        self._table = table

    @looks_again
    def copy_of(self, trajectory_id: str) -> Cursor | None:
        """A copy of the cursor of a trajectory, None if there is none.

        Parameters:
            trajectory_id: or a trace, thread or session id that it is known by.
        """
        entry = self._table.find(trajectory_id)
        if entry is None or entry.cursor is None:
            return None
        with entry.lock:
            return entry.cursor.copy()

    @looks_again
    def record(self, trajectory_id: str, change: Callable[[Cursor], _Found]) -> _Found | None:
        """Change the cursor of a trajectory, created if it is missing. An error is contained; None is returned."""
        entry = self._table.entry(trajectory_id)
        with entry.lock:
            try:
                return change(self._of(entry))
            except Exception:  # noqa: BLE001  a record that fails must cost the host nothing
                self._contain()
                return None

    def record_step(self, entry: Entry, step: StepRecord, label: str) -> None:
        """Enter a tool call that a span has reported; the caller holds the lock. Errors are contained."""
        step = with_known_times(step)
        try:
            cursor, redact = self._of(entry), self._table.config.redact
            call = cursor.sight(sighting_of(step, label, redact=redact))
            cursor.finish(
                call, step.outcome_type, by=denied_by(step), note=note_of(step, redact=redact),
                end=step.timestamp + step.duration,
            )  # fmt: skip
        except Exception:  # noqa: BLE001  a record that fails must cost the host nothing
            self._contain()

    def record_proposal(self, call: StepRecord) -> None:
        """Enter a call that a model requests, as the span of the model shows it."""
        entry = self._table.entry(call.trajectory_id)
        placed = entry.placed(call)
        seen = sighting_of(placed, run_label(placed, entry.state.turns), redact=self._table.config.redact)
        self.record(
            call.trajectory_id, lambda cursor: cursor.propose(cursor.sight(seen._replace(source="model", start=0.0)))
        )

    def _of(self, entry: Entry) -> Cursor:
        if entry.cursor is None:
            entry.cursor = Cursor(self._table.config.cursor_entries)
        return entry.cursor

    def _contain(self) -> None:
        contain(self._table.counts, "cursor", "error in the cursor, contained")

    def absorb(self, target: Entry, part: Entry) -> None:
        """Take over the cursor of a trace that turned out to belong to the trajectory; the caller holds the lock."""
        if part.cursor is None:
            return
        try:
            self._of(target).merge(part.cursor)
        except Exception:  # noqa: BLE001  a record that fails must cost the host nothing
            self._contain()

    # --- saving ------------------------------------------------------------------------------------------------

    @looks_again
    def save(self, trajectory_id: str, instance: str) -> str | None:
        """The snapshot of a cursor as text, for the state of the gate of an agent instance; None if there is none."""
        entry = self._table.find(trajectory_id)
        if entry is None or entry.cursor is None:
            return None
        with entry.lock:
            try:
                text = _written(entry.cursor)
            except Exception:  # noqa: BLE001  a record that fails must cost the host nothing
                self._contain()
                return None
            entry.cursors_saved[instance] = text_digest(text)
            return text

    @looks_again
    def adopt(self, trajectory_id: str, instance: str, text: str) -> bool:
        """Continue from a snapshot that this process has not saved last: another process went on, or a fork began.

        Raises:
            StateFormatError: it cannot be read; nothing changes.
        """
        entry = self._table.entry(trajectory_id)
        with entry.lock:
            known, digest = entry.cursors_saved.get(instance), text_digest(text)
            if known == digest:
                return False
            saved = _read(text)
            if known is None and entry.cursor is not None and saved.index <= entry.cursor.index:
                return False  # an agent below has saved less than its parent, which shares the cursor
            entry.cursor = saved
            entry.cursors_saved[instance] = digest
            return True


def _written(cursor: Cursor) -> str:
    plain = cursor.to_plain()
    try:
        data = orjson.dumps(plain)
    except TypeError:  # text that is no valid Unicode, as the id of a call may be that was cut off within an emoji
        data = json.dumps(plain).encode("ascii")
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def _read(text: str) -> Cursor:
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _MAX_SAVED_BYTES)
        return Cursor.from_plain(parse_json(unpacked.decode("utf-8")))
    except (binascii.Error, zlib.error, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, StateFormatError):
            raise
        raise StateFormatError(f"cursor: not a saved cursor: {error}") from None


def sighting_of(step: StepRecord, label: str, *, redact: bool) -> Sighting:
    """A call as the span of its tool shows it. ``label``: of its run."""
    digests, shown = digests_of(step.args, step.tool_args_hash), "" if redact else excerpt(step.args)
    return Sighting(
        short(step.tool_name), "span", step.step_id, short(step.call_id or ""), *digests, shown, label, step.run or "",
        step.agent_id, short(step.batch or ""), step.timestamp,
    )  # fmt: skip


def short(name: str) -> str:
    """A name or id as the cursor keeps it: a very long one is cut to its beginning and a digest of the whole."""
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:32]}…{text_digest(name)}"


def excerpt(args: object) -> str:
    """Arguments on one line; of very long ones only that there are some."""
    if args is None or args == {}:
        return ""
    return args_excerpt(args) if chars_of(args, _MAX_ARGS_CHARS) <= _MAX_ARGS_CHARS else "…"


def denied_by(step: StepRecord) -> str:
    """The one who denied a call; empty if nobody did."""
    if step.outcome_type != DENIED:
        return ""
    if is_refused_by_guard(step):
        return GUARD
    return PERSON if is_refused_by_person(step.result or "") else APPLICATION


def note_of(step: StepRecord, *, redact: bool) -> str:
    """The reason of a denial or an error, shortened; empty for everything else."""
    if redact or step.outcome_type not in (DENIED, ERROR):
        return ""
    return clip(step.result or step.error_class or "")
