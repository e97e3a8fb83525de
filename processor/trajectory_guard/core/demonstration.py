"""Short trajectories as text, for the doctests of the detectors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import SUCCESS, StepRecord
from trajectory_guard.core.tracking.model_calls import TOOL_NAME

_CALL: Final = re.compile(r"\A(?P<tool>\w+)\((?P<args>.*)\) -> (?:\[(?P<outcome>\w+)\] )?(?P<result>(?s:.*))")


def fires(rule: str, calls: Iterable[str]) -> None:
    """Print each step at which ``rule`` fires: index from 0, repeats, confidence, certainty, and the level of the run.

    Parameters:
        calls: ``tool(name=value, …) -> result``, with ``?`` for an unknown result, and with ``[error] `` or another
            outcome than success before the result.

    Raises:
        ValueError: a call has another shape.
    """
    engine = Engine()
    state = engine.new_state("demonstration")
    for index, call in enumerate(calls):
        match = _CALL.fullmatch(call)
        if match is None:
            raise ValueError(f"expected 'tool(name=value) -> result', got {call!r}")
        args: Any = dict(pair.split("=", 1) for pair in match["args"].split(", ") if pair)
        outcome: Any = match["outcome"] or SUCCESS
        result = None if match["result"] == "?" else match["result"]
        verdict = engine.observe(state, StepRecord(
            str(index), "demonstration", match["tool"], args_hash(args), result_hash(outcome, result), outcome,
            args=args, result=result, model_scope="demonstration" if match["tool"] == TOOL_NAME else None,
        ))  # fmt: skip
        for found in (one for one in (verdict.detections if verdict else ()) if one.rule == rule):
            level = verdict.level if verdict else None
            print(f"step {index}: {found.count} times, {found.confidence:.2f}, {found.certainty}, {level}")
