"""Structured logs: one JSON object a line, on the logger ``trajectory_guard``.

Each record has the fields that spans have as well as attributes, too, under the keys of spans.

Handlers and filters are the application's own: one that raises costs the line, and neither the guard's work nor the
application.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final

from trajectory_guard import telemetry
from trajectory_guard.core.detectors.reported import QUALITY_DROP
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level

logger: Final = logging.getLogger(telemetry.LOGGER)
_LEVELS: Final = {Level.OBSERVE: logging.DEBUG, Level.NUDGE: logging.WARNING, Level.STOP: logging.ERROR}
_ATTRIBUTES: Final = {
    "trajectory_id": telemetry.TRAJECTORY_ID, "run": telemetry.RUN_ID, "step_index": telemetry.STEP_INDEX,
    "intervention": telemetry.INTERVENTION, "types": telemetry.LOOP_TYPE, "rule": telemetry.LOOP_RULE,
    "certainty": telemetry.LOOP_CERTAINTY, "score": telemetry.LOOP_SCORE, "health": telemetry.HEALTH,
    "episode": telemetry.EPISODE, "evidence": telemetry.EVIDENCE, "tool": telemetry.TOOL,
    "level": telemetry.BUDGET_LEVEL, "used": telemetry.BUDGET_USED, "scope": telemetry.BUDGET_SCOPE,
    "name": telemetry.BUDGET_NAME, "percent": telemetry.BUDGET_PERCENT, "model": telemetry.MODEL,
    "tokens": telemetry.OUTLIER_TOKENS, "usual_tokens": telemetry.OUTLIER_USUAL,
    "deviations": telemetry.OUTLIER_DEVIATIONS,
}  # fmt: skip
"""Attributes of a record by the field of its entry: each field has one meaning in all entries."""


def log_contained(text: str, *values: object, stacklevel: int = 2, quotes_nothing: bool = False) -> None:
    """Log the exception that is being handled. What a handler or filter of the application raises goes no further.

    Parameters:
        stacklevel: as for ``logging``, seen from here; by default the record names the caller.
        quotes_nothing: leave out the text of the exception, which may quote a message.
    """
    error = sys.exc_info()[1]
    shown = _without_text(error) if quotes_nothing and error is not None else error
    with suppress(Exception):
        logger.error(f"trajectory_guard: {text}", *values, stacklevel=stacklevel, exc_info=shown)


def _without_text(error: BaseException) -> BaseException:
    """An exception that names the kind of ``error`` and the lines that it came through, and nothing else."""
    kind: type[Exception] = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})
    return kind("its text is withheld, since it may quote a message").with_traceback(error.__traceback__)


def log_verdict(verdict: Verdict, *, redact: bool = False, is_gated: Callable[[str, str], bool] | None = None) -> None:
    """Log a verdict: nudges at WARNING, stops at ERROR, everything else at DEBUG. Free if the level is off.

    A loop that goes on keeps the level of its nudge, then of its stop; only the step at which either becomes due is
    logged above DEBUG.

    Parameters:
        is_gated: whether a gate acts on nudges and stops of a trajectory and a run; None: their lines do not say so.
    """
    level = _LEVELS[verdict.level] if verdict.intervenes else logging.DEBUG
    if logger.isEnabledFor(level):
        entry = verdict_entry(verdict, redact=redact)
        if is_gated is not None and verdict.intervenes:
            entry["gated"] = is_gated(verdict.trajectory_id, verdict.run)
        _write_verdict(level, verdict, entry)


def log_recovery(verdict: Verdict) -> None:
    """Log that an agent left a loop after a nudge, at INFO."""
    if logger.isEnabledFor(logging.INFO):
        _write_verdict(logging.INFO, verdict, verdict_entry(verdict) | {"event_type": "TRAJECTORY_RECOVERY"})


def log_refusal(trajectory_id: str, tool: str, reason: str, times: int) -> None:
    """Log that a gate answered a requested call without running it, at INFO."""
    if logger.isEnabledFor(logging.INFO):
        _log_event("TRAJECTORY_REFUSAL", trajectory_id, logging.INFO, tool=tool, reason=reason, times=times)


def log_without_content(count: int, dialect: str) -> None:
    """Log that tool spans show no content, at WARNING: the guard looks idle then, and its user does not know why."""
    with suppress(Exception):
        logger.warning(
            "trajectory_guard: the first %d tool calls hold neither arguments nor results (%s), so a repeated call "
            "cannot be recognised. Switch on content capture in your instrumentation: `trajectory-guard doctor` names "
            "the setting (logged once)", count, dialect, stacklevel=2,
        )  # fmt: skip


def log_missing_actions(trajectory_id: str, tools: Sequence[str]) -> None:
    """Log that an agent ended without actions that are required, at WARNING."""
    _log_event("TRAJECTORY_REQUIRED_ACTIONS_MISSING", trajectory_id, logging.WARNING, tools=list(tools))


def log_flag(action: str, trajectory_id: str, level: str, reason: str, actor: str) -> None:
    """Log that a person raised or cleared a flag, at WARNING."""
    _log_event(
        f"TRAJECTORY_FLAG_{action}", trajectory_id, logging.WARNING, intervention=level, reason=reason, actor=actor
    )


def _log_event(event: str, trajectory_id: str, level: int, **fields: Any) -> None:
    entry = {
        "timestamp": datetime.now(timezone.utc).isoformat(), "event_type": event, "trajectory_id": trajectory_id,
        **fields,
    }  # fmt: skip
    write_entry(level, entry)


def write_entry(level: int, entry: Mapping[str, Any]) -> None:
    """Log an entry as a line of JSON; its record has those fields as attributes that spans have, too."""
    _write(level, entry, _attributes(entry))


def _write_verdict(level: int, verdict: Verdict, entry: Mapping[str, Any]) -> None:
    attributes = _attributes(entry)
    attributes[telemetry.LOOP_DETECTED] = is_loop(verdict) and verdict.level is not Level.OBSERVE
    if (quality := entry.get("quality")) is not None:
        attributes.pop(telemetry.TOOL, None)
        attributes |= {
            telemetry.QUALITY_NAME: quality["name"], telemetry.QUALITY_BEFORE: quality["before"],
            telemetry.QUALITY_NOW: quality["now"],
        }  # fmt: skip
    _write(level, entry, attributes)


def _attributes(entry: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: entry[field] for field, key in _ATTRIBUTES.items() if entry.get(field, "") not in ("", [])}
    found[telemetry.EVENT_NAME] = telemetry.EVENT_NAMES[entry["event_type"]]
    return found


def _write(level: int, entry: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    line = _line(entry)
    with suppress(Exception):
        logger.log(level, "%s", line, extra=attributes, stacklevel=4)


def is_loop(verdict: Verdict) -> bool:
    """Whether a verdict is about a loop. A drop of quality is none: it has its own type, and no alert on loops fires
    for it.
    """
    return bool(verdict.detections) and verdict.rule != QUALITY_DROP


def _line(entry: Mapping[str, Any]) -> str:
    """An entry as JSON. Lone surrogates, which no handler can encode, are escaped."""
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def _quality(verdict: Verdict) -> dict[str, Any]:
    """Which scores have dropped, from and to which mean; empty for every other finding."""
    if verdict.rule != QUALITY_DROP:
        return {}
    name, before, now = verdict.detections[0].names
    return {"quality": {"name": name, "before": float(before), "now": float(now)}}


def verdict_entry(verdict: Verdict, *, redact: bool = False) -> dict[str, Any]:
    """A verdict as a JSON-able object, with the names that flags, records and payloads have for the same values."""
    return {
        "timestamp": datetime.now(timezone.utc).isoformat(),
        "event_type": f"TRAJECTORY_{verdict.level}",
        "intervention": str(verdict.level),
        "trajectory_id": verdict.trajectory_id,
        "run": verdict.run,
        "step_id": verdict.step_id,
        "step_index": verdict.step_index,
        "tool": verdict.tool,
        "episode": verdict.episode,
        "types": verdict.types,
        "rule": verdict.rule,
        "certainty": str(verdict.certainty or ""),
        "evidence": str(verdict.evidence),
        "reason": "" if redact else verdict.reason,
        "score": round(verdict.score, 4),
        "health": round(verdict.health, 4),
        "detections": [
            {"type": found.loop_type, "rule": found.rule, "confidence": found.confidence}
            for found in verdict.detections
        ],
        "spent": verdict.spent._asdict(),
        **_quality(verdict),
        **({"certificate": verdict.certificate.to_plain()} if verdict.certificate is not None else {}),
    }
