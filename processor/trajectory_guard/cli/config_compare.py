"""``replay --compare A B``: the same trajectories under two configurations, and which verdicts change."""

from __future__ import annotations

from typing import Any, NamedTuple

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.cli.output import print_json
from trajectory_guard.cli.summary import Tally, counted, when
from trajectory_guard.core.text import printable


class Change(NamedTuple):
    """One trajectory under two configurations."""

    a: Outcome
    b: Outcome

    @property
    def fields(self) -> list[str]:
        """Which of first_nudge, first_stop and types differ."""
        return [
            name
            for name, differs in (
                ("first_nudge", self.a.first_nudge != self.b.first_nudge),
                ("first_stop", self.a.first_stop != self.b.first_stop),
                ("types", set(self.a.types) != set(self.b.types)),
            )
            if differs
        ]

    def to_json(self) -> dict[str, Any]:
        """The line that ``--json`` prints for a trajectory whose verdicts change."""
        return {
            "id": self.a.id,
            "steps": len(self.a.steps),
            "changed": self.fields,
            "a": _short(self.a),
            "b": _short(self.b),
        }


def _short(outcome: Outcome) -> dict[str, Any]:
    return {
        "first_nudge": outcome.first_nudge,
        "first_stop": outcome.first_stop,
        "max_score": round(outcome.max_score, 6),
        "types": outcome.types,
    }


class CompareReport:
    """Prints each changed verdict as it is found, and the totals of both configurations at the end."""

    def __init__(self, names: tuple[str, str], *, as_json: bool) -> None:
        self._names, self._as_json = names, as_json
        self._tallies = Tally(), Tally()
        self._changed = 0

    def add(self, change: Change) -> None:
        """Add one trajectory to the totals."""
        for tally, outcome in zip(self._tallies, change, strict=True):
            tally.add(outcome)
        if not change.fields:
            return
        self._changed += 1
        if self._as_json:
            print_json(change.to_json())
        else:
            self._print(change)

    def _print(self, change: Change) -> None:
        print(f"{printable(change.a.id)}: {len(change.a.steps)} steps")
        for label, outcome in zip("AB", change, strict=True):
            nudge, stop = when(outcome.first_nudge), when(outcome.first_stop)
            kinds = ", ".join(outcome.types) or "nothing seen"
            print(f"    {label}: nudge {nudge}, stop {stop}, max score {outcome.max_score:.2f}, {kinds}")

    def finish(self) -> None:
        """Print the totals: the last JSON line has the key ``totals``."""
        a, b = self._tallies
        if self._as_json:
            totals = {"trajectories": a.trajectories, "steps": a.steps, "changed": self._changed}
            sides = {
                side: {"config": name, **tally.to_json()}
                for side, name, tally in zip("ab", self._names, (a, b), strict=True)
            }
            print_json({"totals": {**totals, **sides}})
            return
        runs, steps = counted(a.trajectories, "trajectory", "trajectories"), counted(a.steps, "step", "steps")
        print(f"{runs}, {steps}: the verdicts of {self._changed:,} change.")
        for label, name, tally in zip("AB", self._names, (a, b), strict=True):
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in tally.types.most_common()) or "nothing seen"
            saved = f"{counted(tally.saved_steps, 'step', 'steps')} saved by stops"
            print(
                f"    {label} ({printable(name)}): {tally.nudged:,} nudged, {tally.stopped:,} stopped, {saved}; {kinds}"
            )
