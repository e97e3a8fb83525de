"""Two processes reach the same state and the same verdicts: nothing follows the order of a set, which a seed decides."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers import DATA, TESTS
from trajectory_guard.core.detectors.lasting_failures import _read

SOURCE = "trajectories_sample.jsonl.gz"
DIGEST = """
import hashlib, sys
from pathlib import Path
from tests.helpers import from_line, lines
from trajectory_guard.core.engine import Engine

digest, engine = hashlib.sha256(), Engine()
for run in lines(Path(sys.argv[1])):
    state = engine.new_state(run["id"])
    for at, line in enumerate(run["steps"]):
        step = from_line(line, step_id=str(at), trajectory=run["id"])
        digest.update(repr(engine.observe(state, step)).encode())
    digest.update(state.to_bytes())
print(digest.hexdigest())
"""


def _digest(seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", DIGEST, str(DATA / SOURCE)]
    done = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_states_and_verdicts_do_not_depend_on_the_seed_of_hashes() -> None:
    assert _digest(1) == _digest(2)


def test_a_name_within_a_longer_one_leaves_the_longer_one_whole() -> None:
    assert _read("the pod a1b22 of pod-a1b22x is gone", ["a1b22, pod-a1b22x"])[0] == "the pod # of # is gone"
