"""Named situations: what the guard should do in each, and what it does.

Run: python -m tests.bench.situations [--ids] [--hidden]
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.helpers import evaluate_run, first_level, lines
from trajectory_guard.core.policy import Level
from trajectory_guard.core.settings import EngineSettings

FOLDER: Final = Path(__file__).parent.parent / "data" / "situations"
SETS: Final = (
    "given",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
    "twentyfirst",
    "twentysecond",
    "twentythird",
    "twentyfourth",
    "twentyfifth",
    "twentysixth",
    "twentyseventh",
    "twentyeighth",
    "twentyninth",
    "thirtieth",
    "thirtyfirst",
    "thirtysecond",
    "thirtythird",
    "thirtyfourth",
    "thirtyfifth",
    "thirtysixth",
    "thirtyseventh",
    "thirtyeighth",
    "thirtyninth",
    "fortieth",
    "fortyfirst",
    "fortysecond",
    "hosts",
    "hostsagain",
    "ordinary",
    "attacked",
)
"""See ``tests/data/README.md``: which of them the rules were tuned on."""


class Outcome(NamedTuple):
    """The outcome of one situation. ``nudge``, ``stop``: step of the first one, None if there was none."""

    id: str
    expect: str
    tier: str
    nudge: int | None
    stop: int | None

    @property
    def right(self) -> bool:
        """Whether it is what was to happen. A nudge may be followed by a stop where only a nudge is expected."""
        nudged = self.nudge is not None
        return {
            "quiet": not nudged and self.stop is None,
            "no_stop": self.stop is None,
            "nudge": nudged or self.stop is not None,
            "nudge_then_stop": nudged and self.stop is not None,
        }[self.expect]

    @property
    def wrongly_stopped(self) -> bool:
        """The mistake that costs a user."""
        return self.stop is not None and self.expect in ("quiet", "no_stop")


def situations(name: str) -> Iterator[Mapping[str, Any]]:
    """The situations of a set."""
    return lines(FOLDER / f"{name}.jsonl.gz")


def evaluate_situation(situation: Mapping[str, Any], settings: EngineSettings | None = None) -> Outcome:
    """Evaluate one situation with a fresh engine."""
    verdicts = evaluate_run(situation, settings)
    return Outcome(
        situation["id"], situation["expect"], situation.get("tier") or "core",
        first_level(verdicts, Level.NUDGE), first_level(verdicts, Level.STOP),
    )  # fmt: skip


HIDDEN: Final[Mapping[str, tuple[str, ...]]] = {
    "arguments, results and errors": ("args", "result", "error"),
    "arguments and results": ("args", "result"),
    "arguments": ("args",),
    "results": ("result",),
}
"""Kinds of telemetry that hide something, and the parts of a step that are unknown then. ``error``: the text of an error."""


def with_hidden(situation: Mapping[str, Any], parts: Container[str]) -> Mapping[str, Any]:
    """A situation as telemetry shows it that leaves some parts out: names, agents, times, and what failed stay."""
    steps = []
    for step in situation["steps"]:
        failed = step["outcome"] in ("error", "denied")
        seen = {**step, "thought": None}
        if "args" in parts:
            seen["args"] = None
        if "result" in parts:
            seen["outcome"] = "error" if failed else "success"
            seen["result"] = step["result"] if failed and "error" not in parts else None
        steps.append(seen)
    return {**situation, "steps": steps}


def print_hidden() -> None:
    """Print a row for each kind of telemetry that leaves something out, over all sets."""
    print("| not in the telemetry | quiet left alone | healthy stopped | loops nudged |\n|---|---|---|---|")
    for what, parts in HIDDEN.items():
        found = [evaluate_situation(with_hidden(one, parts)) for name in SETS for one in situations(name)]
        quiet = [one for one in found if one.expect == "quiet"]
        loops = [one for one in found if one.expect.startswith("nudge")]
        alone, nudged = sum(one.right for one in quiet), sum(one.nudge is not None for one in loops)
        stopped, healthy = sum(one.wrongly_stopped for one in found), len(found) - len(loops)
        print(f"| {what} | {alone}/{len(quiet)} | {stopped}/{healthy} | {nudged}/{len(loops)} |")


def main() -> None:
    """Print a row a set, and with ``--ids`` every situation that comes out wrong; with ``--hidden`` other rows."""
    if "--hidden" in sys.argv:
        print_hidden()
        return
    expectations = ("quiet", "no_stop", "nudge", "nudge_then_stop")
    print("| set | " + " | ".join(expectations) + " | right | wrong stops |\n|---|" + "---|" * 6)
    for name in SETS:
        found = [evaluate_situation(one) for one in situations(name)]
        cells = []
        for expect in expectations:
            these = [one for one in found if one.expect == expect]
            cells.append(f"{sum(one.right for one in these)}/{len(these)}")
        right, wrong = sum(one.right for one in found), sum(one.wrongly_stopped for one in found)
        print(f"| {name} | {' | '.join(cells)} | {right}/{len(found)} | {wrong} |")
        if "--ids" in sys.argv:
            for one in found:
                if not one.right:
                    print(f"    {one.expect}: {one.id} (nudge {one.nudge}, stop {one.stop}, {one.tier})")


if __name__ == "__main__":
    main()
