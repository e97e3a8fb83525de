"""Step lines: one recorded trajectory a line, ``{"id", "steps": [{"tool", "args", "result", …}]}``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trajectory_guard.cli.recordings.diagnostics import Diagnostics, Recorded
from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.core.content.masking import result_hash, state_hash
from trajectory_guard.core.content.outcome import classify
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.steps import ERROR, OUTCOMES, Evidence, Outcome, StepRecord, Usage
from trajectory_guard.core.text import nearest
from trajectory_guard.spans.content import as_text
from trajectory_guard.spans.extract import amount

_KEYS: Final = (
    "tool", "args", "result", "outcome", "t", "dur", "step_id", "state", "agent", "tokens", "cost", "batch", "turn",
    "run", "thought",
)  # fmt: skip
_OTHER_NAMES: Final = {
    "args": ("arguments", "input", "inputs", "parameters", "params", "tool_args", "tool_input"),
    "result": ("output", "outputs", "response", "tool_output", "tool_result", "observation", "content"),
}
_MEANT: Final = {other: key for key, others in _OTHER_NAMES.items() for other in others}


def recorded(value: Mapping[str, Any], name: str, line: int | None, diagnostics: Diagnostics) -> Recorded | None:
    """The trajectory in a decoded line; steps that cannot be read are reported and left out. None if there is none."""
    given, steps = value.get("id"), value["steps"]
    identifier = f"{name}:{line}" if given is None else str(given)
    if not isinstance(steps, list):
        diagnostics.fail(name, f"'steps' must be a list, got {type(steps).__name__}", line)
        return None
    found = []
    for key, hint in sorted({one for step in steps for one in _misnamed(step)}):
        diagnostics.note_once(name, f"steps have the unknown key {key!r}, which is not read{hint}")
    for index, step in enumerate(steps):
        record = _readable_step(step, identifier, index)
        if isinstance(record, StepRecord):
            found.append(record)
        else:
            diagnostics.fail(name, f"steps[{index}]: {record}", line)
    return Recorded(identifier, found, name, line)


def _misnamed(step: Any) -> Iterator[tuple[str, str]]:
    """Unknown keys of a step that seem to stand for one that it lacks, each with the hint at that one."""
    if isinstance(step, Mapping) and (unknown := step.keys() - _KEYS):
        absent = [key for key in _KEYS if key not in step]
        for key in map(str, unknown):
            meant = _MEANT.get(key)
            hint = f" (did you mean {meant!r}?)" if meant in absent else nearest(key, absent)
            if hint:
                yield key, hint


def _readable_step(step: Any, trajectory: str, index: int) -> StepRecord | Exception:
    try:
        return _step(step, trajectory, index)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return error


def _step(step: Any, trajectory: str, index: int) -> StepRecord:
    if not isinstance(step, Mapping):
        raise TypeError(f"expected an object, got {type(step).__name__}")
    if not isinstance(step.get("tool"), str):
        raise TypeError("'tool' is missing or not text")
    result, args = _text(step.get("result")), step.get("args")
    inner = unwrap(result) if result else None
    result, failed = (inner.text, inner.error) if inner is not None else (result, None)
    outcome = _outcome(step, result, failed)
    state = _text(step.get("state"))
    return StepRecord(
        step_id=str(step.get("step_id") or f"{trajectory}#{index}"),
        trajectory_id=trajectory,
        tool_name=bounded_name(step["tool"]),
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(outcome, result) if state is None else state_hash(state),
        outcome_type=outcome,
        agent_id=_text(step.get("agent")) or None,
        timestamp=_number(step, "t"),
        duration=_number(step, "dur"),
        args=args,
        result=result,
        evidence=_evidence(args, result, outcome),
        usage=_usage(step),
        batch=_label(step, "batch"),
        turn=_label(step, "turn"),
        run=_label(step, "run"),
        stated=state is not None,
        thought=_text(step.get("thought")) or None,
    )


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else as_text(value)


def _label(step: Mapping[str, Any], key: str) -> str | None:
    return str(step[key]) if step.get(key) is not None else None


def _outcome(step: Mapping[str, Any], result: str | None, failed: bool | None) -> Outcome:
    outcome = step.get("outcome") or classify(result, failed=failed)
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome {outcome!r} is none of {', '.join(OUTCOMES)}")
    return outcome


def _evidence(args: Any, result: str | None, outcome: Outcome) -> Evidence:
    if args is None:
        return Evidence.NAME_ONLY
    return Evidence.FULL if result is not None or outcome == ERROR else Evidence.NO_RESULT


def _number(step: Mapping[str, Any], key: str) -> float:
    """A finite number, 0 if it is absent; text that reads as a number is one."""
    value = step.get(key)
    try:
        number = float(value or 0.0)
    except (TypeError, ValueError):
        raise ValueError(f"{key!r} must be a number, got {value!r}"[:200]) from None
    if not math.isfinite(number):
        raise ValueError(f"{key!r} must be a finite number, got {value!r}")
    return number


def _usage(step: Mapping[str, Any]) -> Usage | None:
    tokens, cost = amount(_number(step, "tokens")), amount(_number(step, "cost"))
    return Usage(int(tokens), 0, cost) if tokens or cost else None
