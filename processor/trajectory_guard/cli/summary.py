"""Summary of a replay for people: flagged trajectories, and sums per file and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.cli.output import make_console
from trajectory_guard.core.text import printable

MAX_TABLE_ROWS: Final = 500
"""Flagged trajectories in the table on a terminal; all are listed where the output goes to a file."""
_SUMS: Final = ("trajectories", "steps", "nudged", "stopped", "steps saved", "tokens saved")


@dataclass
class Tally:
    """Sums over trajectories. ``types`` counts the trajectories in which a loop type was seen.

    ``saved_steps``, ``saved_tokens`` and ``saved_usd`` count everything after the first stop.
    Tokens and money count where the telemetry names them.
    """

    trajectories: int = 0
    steps: int = 0
    nudged: int = 0
    stopped: int = 0
    types: Counter[str] = field(default_factory=Counter)
    saved_steps: int = 0
    saved_tokens: int = 0
    saved_usd: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one trajectory."""
        self.trajectories += 1
        self.steps += len(outcome.steps)
        self.nudged += outcome.first_nudge is not None
        self.types.update(outcome.types)
        stop = outcome.first_stop
        if stop is None:
            return
        self.stopped += 1
        self.saved_steps += len(outcome.steps) - stop - 1
        for step in outcome.steps[stop + 1 :]:
            if step.usage is not None:
                self.saved_tokens += step.usage.tokens
                self.saved_usd += step.usage.cost_usd

    def to_json(self) -> dict[str, Any]:
        """All sums, JSON-able."""
        return {
            "trajectories": self.trajectories,
            "steps": self.steps,
            "nudged": self.nudged,
            "stopped": self.stopped,
            "types": dict(self.types.most_common()),
            "saved_steps": self.saved_steps,
            "saved_tokens": self.saved_tokens,
            "saved_usd": round(self.saved_usd, 6),
        }

    def cells(self) -> list[str]:
        """The sums of the table, in the order of its columns."""
        saved = (self.saved_steps, self.saved_tokens)
        return [f"{number:,}" for number in (self.trajectories, self.steps, self.nudged, self.stopped, *saved)]


@dataclass
class Tallies:
    """Sums per file and in all."""

    total: Tally = field(default_factory=Tally)
    files: dict[str, Tally] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one trajectory for its file."""
        self.total.add(outcome)
        self.files.setdefault(outcome.source, Tally()).add(outcome)

    def rows(self) -> Iterator[tuple[str, Tally]]:
        """Files in the order they came up, then the sum; only the sum if there is one file."""
        if len(self.files) > 1:
            for name, tally in self.files.items():
                yield printable(name), tally
        yield "all", self.total

    def sentences(self) -> Iterator[str]:
        """The sums in words."""
        all_of = self.total
        yield (
            f"{counted(all_of.trajectories, 'trajectory', 'trajectories')}, {counted(all_of.steps, 'step', 'steps')}: "
            f"{all_of.nudged:,} would have been nudged, "
            f"{all_of.stopped:,} stopped."
        )
        if all_of.types:
            found = ", ".join(f"{name} {count:,}" for name, count in all_of.types.most_common())
            yield f"Seen, by number of trajectories: {found}."
        if all_of.saved_steps:
            tokens = f" and {counted(all_of.saved_tokens, 'token', 'tokens')}" if all_of.saved_tokens else ""
            money = f" (${all_of.saved_usd:,.2f})" if all_of.saved_usd else ""
            yield f"The stops would have saved {counted(all_of.saved_steps, 'step', 'steps')}{tokens}{money}."


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def row_cells(outcome: Outcome) -> tuple[str, ...]:
    """Id, steps, first nudge, first stop, highest score, types and reason of a flagged trajectory, steps from 1."""
    at = outcome.first_nudge if outcome.first_nudge is not None else outcome.first_stop
    verdict = outcome.verdicts[at] if at is not None else None
    return (
        printable(outcome.id),
        str(len(outcome.steps)),
        _ordinal(outcome.first_nudge),
        _ordinal(outcome.first_stop),
        f"{outcome.max_score:.2f}",
        ", ".join(outcome.types),
        printable(verdict.reason) if verdict is not None else "",
    )


def _ordinal(index: int | None) -> str:
    return "-" if index is None else str(index + 1)


def when(index: int | None) -> str:
    """Where a level was reached first, in words: ``at step 3``, or ``never``."""
    return "never" if index is None else f"at step {index + 1}"


class PlainReport:
    """Lines of text, written while trajectories are evaluated."""

    def __init__(self) -> None:
        self._tallies = Tallies()

    def add(self, outcome: Outcome) -> None:
        """Print a trajectory if it was flagged."""
        self._tallies.add(outcome)
        if outcome.first_nudge is None and outcome.first_stop is None:
            return
        identifier, steps, _, _, score, types, reason = row_cells(outcome)
        nudge, stop = when(outcome.first_nudge), when(outcome.first_stop)
        print(f"{identifier}: {steps} steps, nudge {nudge}, stop {stop}, max score {score}, {types}")
        print(f"    {reason}")

    def finish(self) -> None:
        """Print the sums."""
        rows = [("file", list(_SUMS)), *((name, tally.cells()) for name, tally in self._tallies.rows())]
        if len(rows) > 2:
            _print_columns([[name, *cells] for name, cells in rows])
        for sentence in self._tallies.sentences():
            print(sentence)


def _print_columns(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        print(
            "  ".join(
                [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
            )
        )


class RichReport:
    """Tables on a terminal, written at the end."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._tallies = Tallies()
        self._rows: list[tuple[str, ...]] = []
        self._left_out = 0

    def add(self, outcome: Outcome) -> None:
        """Keep what the table shows of a flagged trajectory."""
        self._tallies.add(outcome)
        if outcome.first_nudge is None and outcome.first_stop is None:
            return
        if len(self._rows) < MAX_TABLE_ROWS:
            self._rows.append(row_cells(outcome))
        else:
            self._left_out += 1

    def finish(self) -> None:
        """Print both tables and the sums in words."""
        if self._rows:
            heads = ("trajectory", "steps", "nudge at", "stop at", "max score", "types", "reason")
            self._print_table(heads, self._rows, numbers=range(1, 5))
        if self._left_out:
            self._console.print(f"… and {self._left_out:,} more; --json lists them all.")
        rows = [(name, *tally.cells()) for name, tally in self._tallies.rows()]
        if len(rows) > 1:
            self._print_table(("file", *_SUMS), rows, numbers=range(1, 7))
        for sentence in self._tallies.sentences():
            self._console.print(sentence, markup=False)

    def _print_table(self, heads: tuple[str, ...], rows: list[tuple[str, ...]], numbers: range) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(header_style="bold", show_lines=False)
        for at, head in enumerate(heads):
            table.add_column(head, justify="right" if at in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)


def make_report() -> PlainReport | RichReport:
    """Tables on a terminal if ``rich`` is installed, else plain lines."""
    try:
        console = make_console()
    except ImportError:
        return PlainReport()
    return RichReport(console) if console.is_terminal else PlainReport()
