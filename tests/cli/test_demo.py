"""The demo as ``make demo`` runs it: what a user sees first."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "options", [pytest.param([], id="plain"), pytest.param(["-OO"], id="without docstrings", marks=pytest.mark.slow)]
)
def test_one_agent_recovers_one_is_stopped_and_two_are_left_alone(options: list[str]) -> None:
    """In a process of its own: instrumentations do not undo everything when they are switched off."""
    command = [sys.executable, *options, "-m", "trajectory_guard.cli.main", "demo"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    recovers, ignores, edits, polls = (part.partition("Measured: ")[0] for part in done.stdout.split("╭─ ")[1:])
    levels = re.compile(r"^ *guard +score \S+ +(\w+)", re.MULTILINE)
    assert levels.findall(recovers) == ["OBSERVE"] * 3 + ["NUDGE", "OBSERVE"]
    assert "You can return goods within 30 days" in recovers
    assert levels.findall(ignores) == ["OBSERVE", "OBSERVE", "NUDGE", "NUDGE", "STOP"]
    assert "could not get any further" in ignores
    assert set(levels.findall(edits)) == set(levels.findall(polls)) == {"OBSERVE"}
    assert "with guard" in done.stdout
