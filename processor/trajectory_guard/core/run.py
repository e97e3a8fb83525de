"""The memory of one run (docs/architecture.md): its history, score and ladder, and what else ends with the run."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

from trajectory_guard.core.content.envelope import NO_PAGE, Page
from trajectory_guard.core.content.grids import NO_GRID, Count, Grid
from trajectory_guard.core.content.listings import LINE_BYTES
from trajectory_guard.core.content.result_text import MAX_FORM_CHARS, carries_content, is_short
from trajectory_guard.core.detectors.base import Detector
from trajectory_guard.core.detectors.insanity import only_says_done
from trajectory_guard.core.fingerprints import Symbol, args_hash, call_symbol, checksum
from trajectory_guard.core.history import WIDTH, History, UsageWindow, second_of, with_pair
from trajectory_guard.core.inquiry import Advance, Inquiry
from trajectory_guard.core.laps import KNOWN_FROM, Walk
from trajectory_guard.core.observation import Observation, SameResultRun
from trajectory_guard.core.plain import from_text, to_text
from trajectory_guard.core.policy import Ladder, RunScore, resolve_nudge
from trajectory_guard.core.steps import EMPTY, ERROR, SUCCESS, StepRecord
from trajectory_guard.core.tools import acts_on_view, enters_text, is_path, is_waiting, moves_cursor, scrolls

MAX_AGENTS: Final = 8
NO_FAILURE: Final = -1
_KEPT_LINES: Final = 320
_KEPT_COMPLAINTS: Final = 8
UNKNOWN_RHYTHM: Final = -1.0
_LINE: Final = "H"
"""Format of a checksum of ``LINE_BYTES`` bytes: its value depends on the machine, its bytes do not."""


class Run:
    """The memory of one run: it is discarded when the run ends.

    Attributes:
        label: the label its steps carry; ``""`` where the telemetry does not distinguish runs.
        index: steps taken so far in this run.
        history: calls, results and start times of the last steps.
        usage: tokens and USD of those steps.
        last_progress: index of the newest step of progress, -1 before the first.
        agent_progress: the same by agent; agents: names of the agents that acted last (up to four).
        last_new_call: index of the newest call that had not been made before.
        last_work: index of the newest such call that handed over content or brought something new, -1 before the first.
        last_act: of the newest one that succeeded in something else than a look or an action on a view, or completed a
            record.
        last_record: of the newest one that entered a text, as at least two before it had done; entries: number of those
            since the last known call; last_entry: index of the newest one.
        last_touched: of the newest one that acted on a file or folder that no act had named before; touched: checksums
            of the newest 24 of these.
        last_moved: of the newest action without arguments, or by some amount or a place, that only says that it was
            done; last_led: of the newest of the latter; last_shown: of the newest call that returned more than that,
            and takes arguments or returned more than a value (of any with arguments before something has moved);
            last_changed: of the newest repeated call whose result is not that of the last time. They tell a round over
            many places from a lap in place (``_note_move``).
        last_timed: index of the newest answer that equals an earlier one but for a duration, -1 before the first.
        count: what the model counts aloud.
        last_waiting: index of the newest step that could only prove waiting, -1 before the first; last_stated_wait: of
            the newest one whose result, call or pause says so, where others have but the name of a tool.
        waits: indices of the newest steps that could only prove waiting on their own, whatever their lap holds.
        old_states_in_a_row: steps in a row that described nothing but states that were there before.
        failure: a checksum of what the newest step reported if it was an error, else ``NO_FAILURE``.
        lines: checksums of the lines of results seen last.
        dated: of the newest calls whose result held a clock or an id: the call, and its result without them.
        unfiltered: of the newest commands with filters: the command as it is written, and without them.
        written: checksums of the words with digits in calls that may have changed something.
        pause_s: idle seconds before the repeats of the current call, on average.
        dismissed: index of the first step after a person said that the agent may go on.
        repeat_streak: call and result repeated last, how often, since which step, and in which batch last.
        batch_end: earliest end in seconds among the calls of the current batch; a step that starts before belongs to
            it.
        batch_label: label of that batch, if the source names it.
        first_superstep: number of the LangGraph super-step of the first step, -1 if unknown.
        last_end: newest end of a step, in seconds.
        rhythm_s: running mean of the idle seconds before calls that were not repeats; -1 before the first, and negative
            where there was one long gap only.
        trace_id: trace of the newest step; boundary: index of the first step after the last uncertain boundary.
        episode_start_s: start in seconds of the step with which the episode began.
        same_results: the current series of steps with one and the same result.
        walk: the steps that describe something, far beyond the history, and how they follow an earlier lap.
        inquiry: the current series of unproductive calls of one tool; advance: how far it has gone on; grid: how its
            arguments are combined.
        score, ladder: the loop score, and the position on the escalation ladder.
        gated: a gate delivers the nudges of this run; stoppable: the gate may also stop it.
        detectors: one of each registered detector; remembering: those with a memory.
    """

    __slots__ = (
        "advance",
        "agent_progress",
        "agents",
        "batch_end",
        "batch_label",
        "boundary",
        "complaints",
        "count",
        "dated",
        "detectors",
        "dismissed",
        "entries",
        "episode_start_s",
        "failure",
        "first_superstep",
        "gated",
        "grid",
        "history",
        "index",
        "inquiry",
        "label",
        "ladder",
        "last_act",
        "last_changed",
        "last_end",
        "last_entry",
        "last_led",
        "last_moved",
        "last_new_call",
        "last_progress",
        "last_record",
        "last_shown",
        "last_stated_wait",
        "last_timed",
        "last_touched",
        "last_waiting",
        "last_work",
        "lines",
        "old_states_in_a_row",
        "page",
        "pause_s", "remembering",
        "repeat_streak",
        "rhythm_s",
        "same_results",
        "score",
        "stoppable",
        "touched",
        "trace_id",
        "unfiltered",
        "usage",
        "waits",
        "walk",
        "written",
    )  # fmt: skip

    def __init__(self, label: str, capacity: int, detectors: tuple[Detector, ...], first_superstep: int = -1) -> None:
        self.label = label
        self.index = 0
        self.history = History(capacity)
        self.usage = UsageWindow()
        self.last_progress = -1
        self.agent_progress: dict[str, int] = {}
        self.agents: tuple[str, ...] = ()
        self.last_new_call = -1
        self.last_waiting = -1
        self.last_stated_wait = -1
        self.waits: tuple[int, ...] = ()
        self.last_timed = -1
        self.last_moved = self.last_led = self.last_shown = self.last_changed = -1
        self.count = Count()
        self.last_work = self.last_act = self.last_record = -1
        self.entries, self.last_entry = 0, -1
        self.touched: tuple[int, ...] = ()
        self.last_touched = -1
        self.old_states_in_a_row = 0
        self.failure = NO_FAILURE
        self.complaints: tuple[int, ...] = ()
        self.page = NO_PAGE
        self.dismissed = 0
        self.lines = b""
        self.dated = b""
        self.unfiltered = b""
        self.written: tuple[int, ...] = ()
        self.pause_s = 0.0
        self.repeat_streak: tuple[str, int, int, int] = ("", 0, -1, -1)
        self.batch_end = float("-inf")
        self.batch_label: str | None = None
        self.first_superstep = first_superstep
        self.last_end = 0.0
        self.rhythm_s = UNKNOWN_RHYTHM
        self.trace_id: str | None = None
        self.boundary = 0
        self.episode_start_s = 0.0
        self.same_results = SameResultRun()
        self.walk = Walk()
        self.inquiry = Inquiry()
        self.advance = Advance()
        self.grid = NO_GRID
        self.score = RunScore()
        self.ladder = Ladder()
        self.gated, self.stoppable = False, True
        self.detectors = detectors
        self.remembering = tuple([one for one in detectors if not one.shared])

    # --- reading ---------------------------------------------------------------------------------------------

    def progress_of(self, agent: str | None) -> int:
        """Index of the newest step in which this agent made progress, or any agent where agents are unknown."""
        if agent is None or not self.agent_progress.keys() - {agent}:
            return self.last_progress
        return self.agent_progress.get(agent, -1)

    def started(self, index: int) -> float | None:
        """Start in seconds of a step before the current one; once it is forgotten, that of the episode's first step, or
        of the oldest step that is remembered. None if none is.
        """
        started, starts = self.history.start_of(index), self.history.starts
        if started is None and starts:
            started = min(starts[0], self.episode_start_s or starts[0])
        return started

    def note_memory(self, seen: Observation) -> None:
        """Note how many steps the run remembers, and whether this call may have been made before them."""
        seen.memory = self.history.capacity
        if 1 < seen.made <= seen.index:
            calls, since = self.history.calls, self.boundary
            if self.dismissed > since:
                since = self.dismissed
            seen.forgets = calls.start > 0 or (since > 0 and any(at < since for at in calls.occurrences(seen.call)))

    def unseen_repeats(self, batch: int) -> tuple[int, int]:
        """Number of the newest model turns in which calls were only repeated, with unknown results; and the first step.

        Parameters:
            batch: ordinal of the turn of the current step, which is one of them.
        """
        history = self.history
        start = history.calls.start
        first = max(self.last_new_call + 1, self.last_progress + 1, self.boundary, self.dismissed, start)
        shown = history.results.data[(first - start) * WIDTH :].strip(b"\0")
        if shown or not all(history.calls[at] for at in range(first, self.index)):
            return 0, -1
        return len(history.batches_of(range(first, self.index)) | {batch}), first

    def follow(self, seen: Observation, previous: int) -> None:
        """Extend the walk by a step; where it only repeats a lap that the history has forgotten, it is no progress.

        Parameters:
            previous: index of the newest equal call, -1 if there is none.
        """
        self.walk = walk = self.walk.after(seen, breaks=self.boundary == seen.index or seen.takes_entry)
        if walk.verified >= KNOWN_FROM:
            seen.progress = False
        if walk.is_lap:
            seen.lap, seen.lapped = walk.lag, walk.verified
        if seen.in_a_row and seen.progress and seen.result_changed:
            repeated, _, first, _ = self.repeat_streak
            if repeated.startswith(seen.call.hex()) and self.ladder.given_at[-1:] >= (first,):
                resolve_nudge(self.ladder)
        step, stays = seen.step, self.last_moved < 0 > self.last_changed and not seen.differs
        if step.args and stays and ((step.result or "")[MAX_FORM_CHARS:] or not scrolls(step.tool_name, step.args)):
            self.last_shown = seen.index  # as mostly
        elif seen.outcome in (SUCCESS, EMPTY):
            self._note_move(seen, previous)
        elif self.last_shown < previous <= self.last_led:
            seen.moves_on = seen.outcome == ERROR and seen.index - self.last_progress < _LONGEST_ROUND

    def _note_move(self, seen: Observation, previous: int) -> None:
        """Note whether an action may have led on, or had an effect, since the newest equal call.

        A robot advances from shelf to shelf: each lap is equal to the one before, and none is made in vain. So is a key
        that is pressed again while the display moves on. A call that names what it asks for and finds it, or a whole
        page as its result, says which place it is: there it counts whether that comes again.
        """
        step, acts = seen.step, only_says_done(seen)
        leads = acts and scrolls(step.tool_name, step.args)
        if leads or (acts and step.args == {}):
            self.last_moved = seen.index
            self.last_led = seen.index if leads else self.last_led
        elif not acts and seen.outcome != EMPTY and (step.args or not is_short(step.result or "")):
            self.last_shown = seen.index
        if seen.differs:
            self.last_changed = seen.index
        may_be_round = seen.index - self.last_progress < _LONGEST_ROUND
        if may_be_round and self.last_shown < previous and not is_waiting(step.tool_name, step.args):
            leads_on = not seen.in_a_row or moves_cursor(step.tool_name, step.args)
            laps = _LAPS_IN_PLACE * self.walk.lag
            returns = 0 < laps <= self.walk.verified and seen.index - self.last_changed <= laps
            seen.moves_on = leads_on and self.last_moved >= previous and not returns
            seen.has_effect = acts and self.last_changed > previous and not returns

    # --- changing --------------------------------------------------------------------------------------------

    def note_count(self, seen: Observation) -> None:
        """Note which repetition of how many the model announces with this step ("run 3 of 10"); few models count."""
        if seen.step.thought:
            self.count = self.count.after(seen.step.thought, self.index, bool(self.ladder.given_at))
        seen.counted = self.count.total > 0 and self.count.covers(self.index)

    def note_new_call(self, seen: Observation) -> None:
        """Note what a call did that was not made before."""
        if seen.progress or carries_content(seen.step.args, seen.values):
            self.last_work = self.index
        if enters_text(seen.step.args):
            self.entries, self.last_entry = self.entries + 1, self.index
        if self.entries >= _ENTRIES:
            self.last_record = self.index
        acts = seen.acts
        if acts or acts_on_view(seen.step.tool_name):
            self._note_places(seen)
        if acts or self.last_record == self.index:
            self.last_act = self.index

    def _note_places(self, seen: Observation) -> None:
        """Note which files and folders a call acts on."""
        places = [checksum(value) for value in seen.values[:_MAX_PLACES] if is_path(value)]
        if places and set(places).isdisjoint(self.touched):
            self.last_touched = self.index
        self.touched = tuple(dict.fromkeys((*self.touched, *places)))[-_KEPT_PLACES:]

    def has_just_entered(self, seen: Observation) -> bool:
        """Whether the series of equal results, no more than a few steps long, began right behind an entered record."""
        first = self.same_results.first
        return 0 <= self.last_record == first - 1 and seen.index - first < _LOOKS_BEHIND_RECORD

    def is_ahead_of_work(self, seen: Observation, before: Sequence[int]) -> bool:
        """Whether a look follows an equal one because that was behind a piece of work, and this is ahead of the next.

        Parameters:
            before: indices of the equal looks before it, newest first.
        """
        if len(before) <= _LOOKS_OF_WORK or seen.index - before[0] != before[1] - before[2]:
            return False
        done = max(self.last_work, self.last_act) if seen.in_a_row else self.last_record
        return before[1] < done < before[0]

    def remember(self, seen: Observation, place: int) -> None:
        """Add an evaluated step to the history; ``place`` is its index in the trajectory."""
        step = seen.step
        if seen.made > 1:
            self.entries = 0
        if seen.progress:
            self.note_progress(step.agent_id)
        if seen.copy_of >= 0:
            self.history.note_copy(seen.copy_of)
        else:
            self.history.append(
                seen.call, seen.result, seen.form, place, step.timestamp, self.score.batch, seen.made, seen.made_alike
            )
        end = step.timestamp + step.duration
        if not seen.same_batch or end < self.batch_end:
            self.batch_end = end
        self.batch_label = step.batch
        if end > self.last_end:
            self.last_end = end
        self.index += seen.copy_of < 0  # a copy has no place of its own in the memory

    def knows_call(self, step: StepRecord) -> bool:
        """Whether the call of a step was made before."""
        return self.history.calls.last(call_symbol(step)) >= 0

    def knows_all(self, lines: bytes) -> bool:
        """Whether the run has seen all these lines before (``lines_of``); it remembers the new ones."""
        known = set(memoryview(self.lines).cast(_LINE))
        new = [line for line in memoryview(lines).cast(_LINE) if line not in known]
        if new:
            self.lines = (self.lines + array(_LINE, dict.fromkeys(new)).tobytes())[-_KEPT_LINES * LINE_BYTES :]
        return not new

    def knows_complaint(self, signature: str) -> bool:
        """Whether a success has read like this error before (``signature_of``); the run remembers it."""
        complaint = checksum(signature)
        if complaint in self.complaints:
            return True
        self.complaints = (*self.complaints[1 - _KEPT_COMPLAINTS :], complaint)
        return False

    def note_dated(self, call: Symbol, masked: Symbol) -> None:
        """Remember the result of a call without its clocks and ids."""
        if call:
            self.dated = with_pair(self.dated, call, masked)

    def dated_as(self, call: Symbol) -> Symbol:
        """What ``note_dated`` remembers of a call, as of its newest result; ``UNKNOWN`` if nothing."""
        return second_of(self.dated, call)

    def note_unfiltered(self, written: Symbol, plain: Symbol) -> None:
        """Remember that a command, as it is written, stands for itself without its filters."""
        self.unfiltered = with_pair(self.unfiltered, written, plain)

    def unfiltered_of(self, written: Symbol) -> Symbol:
        """The command without its filters, as ``note_unfiltered`` remembers it; ``UNKNOWN`` if it does not."""
        return second_of(self.unfiltered, written)

    def name_command(self, seen: Observation, plain: Any) -> None:
        """Let a command stand for what it is without its filters (``plain``), unless its output is another one by them.

        A command that stood for it once always does: another output of it is no work of the filters.
        """
        symbol = call_symbol(seen.step._replace(tool_args_hash=args_hash(plain)))
        history, written = self.history, seen.call
        stands = self.unfiltered_of(written) == symbol
        if stands or history.calls.last(symbol) < 0 or history.returned(symbol, seen.result):
            seen.call = symbol
            if not stands:
                self.note_unfiltered(written, symbol)

    def note_progress(self, agent: str | None) -> None:
        """Record the current step as progress."""
        self.last_progress = self.index
        if agent is not None:
            newest = {**self.agent_progress}
            newest.pop(agent, None)  # to the end: the agent that made no progress for longest is the first to go
            newest[agent] = self.index
            if len(newest) > MAX_AGENTS:
                del newest[next(iter(newest))]
            self.agent_progress = newest

    def forget_repeats(self) -> None:
        """Restart the count of repeats; the history of calls is kept."""
        self.last_progress = self.dismissed = self.index
        self.old_states_in_a_row = 0
        self.walk = self.walk.at_rest()
        self.agent_progress = dict.fromkeys(self.agent_progress, self.index)

    # --- saving ----------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """All fields by name, JSON-able."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            **self.history.to_plain(),
            "usage": self.usage.to_plain() if self.usage.tokens else None,
            "agent_progress": list(self.agent_progress.items()),
            "agents": list(self.agents),
            "lines": self.lines.hex(),
            "dated": self.dated.hex(),
            **({"unfiltered": self.unfiltered.hex()} if self.unfiltered else {}),  # few runs filter their commands
            "complaints": list(self.complaints),
            **({"page": [self.page.symbol.hex(), list(self.page.names)]} if self.page.symbol else {}),
            **({"count": list(self.count)} if self.count.total else {}),
            "walk": [to_text(self.walk.steps), to_text(self.walk.results), *self.walk[2:]],
            "waits": list(self.waits),
            **({"touched": list(self.touched)} if self.touched else {}),
            **({"last_entry": self.last_entry} if self.last_entry >= 0 else {}),
            "written": list(self.written),
            "repeat_streak": list(self.repeat_streak),
            "batch_end": None if self.batch_end == float("-inf") else self.batch_end,
            "same_results": self.same_results.to_plain(),
            "inquiry": self.inquiry.to_plain(),
            "advance": self.advance.to_plain() if self.advance.tool else None,
            **({"grid": self.grid.to_plain()} if self.grid.rows else {}),
            "score": self.score.to_plain(),
            "ladder": self.ladder.to_plain(),
            "detectors": {one.name: data for one in self.detectors if (data := one.dump()) is not None},
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any], detectors: tuple[Detector, ...]) -> Run:
        """Restore ``to_plain``; a detector that this configuration switched off loses its memory, nothing else."""
        run = cls(plain["label"], plain["capacity"], detectors)
        run.history = History.from_plain(plain)
        if plain["usage"] is not None:
            run.usage = UsageWindow.from_plain(plain["usage"])
        for name in _PLAIN:
            setattr(run, name, plain[name])
        run.agent_progress, run.agents = dict(plain["agent_progress"]), tuple(plain["agents"])
        run.repeat_streak = tuple(plain["repeat_streak"])
        run.lines, run.dated = bytes.fromhex(plain["lines"]), bytes.fromhex(plain["dated"])
        run.unfiltered = bytes.fromhex(plain.get("unfiltered", ""))
        run.complaints, run.count = tuple(plain["complaints"]), Count(*plain.get("count", ()))
        steps, results, *counts = plain["walk"]
        run.walk = Walk(from_text(steps), from_text(results), *counts)
        if "page" in plain:
            symbol, names = plain["page"]
            run.page = Page(bytes.fromhex(symbol), tuple(names))
        run.waits, run.written = tuple(plain["waits"]), tuple(plain["written"])
        run.touched, run.last_entry = tuple(plain.get("touched", ())), plain.get("last_entry", -1)
        run.batch_end = float("-inf") if plain["batch_end"] is None else plain["batch_end"]
        run.same_results = SameResultRun.from_plain(plain["same_results"])
        run.inquiry = Inquiry.from_plain(plain["inquiry"])
        if plain["advance"] is not None:
            run.advance = Advance.from_plain(plain["advance"])
        if "grid" in plain:
            run.grid = Grid.from_plain(plain["grid"])
        run.score, run.ladder = RunScore.from_plain(plain["score"]), Ladder.from_plain(plain["ladder"])
        for one in detectors:
            if one.name in plain["detectors"]:
                one.load(plain["detectors"][one.name])
        return run


_LOOKS_OF_WORK: Final = 2
_ENTRIES: Final = 2
"""New texts in a row that make up a record: fewer are the words that a page may have refused before."""
_LOOKS_BEHIND_RECORD: Final = 6
_MAX_PLACES: Final = 4
_KEPT_PLACES: Final = 24
_LAPS_IN_PLACE: Final = 3
"""Laps with looks that change, and each time in the same way, which are made in place."""
_LONGEST_ROUND: Final = 192
"""Steps over places, nothing new at any of them: what goes on for longer is taken for a lap in place after all."""
_PLAIN: Final = (
    "label", "index", "last_progress", "last_new_call", "last_stated_wait", "last_waiting", "last_timed", "last_work",
    "last_act", "last_changed", "last_led", "last_moved", "last_record", "last_shown", "last_touched", "entries",
    "old_states_in_a_row", "failure", "dismissed", "pause_s", "batch_label", "first_superstep", "last_end", "rhythm_s",
    "trace_id", "boundary", "episode_start_s", "gated", "stoppable",
)  # fmt: skip
"""The fields that are saved as they are."""
