"""Byte form of steps and model calls, for another process or a later one. Versioned; no pickle.

A dialect is written by its name, since it holds functions: the reader has the same dialects configured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import orjson

from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import as_list
from trajectory_guard.core.steps import Certainty, Evidence, ModelTokens, StepRecord, Usage
from trajectory_guard.dialects.base import Dialect
from trajectory_guard.dialects.span import SpanEvent, SpanView
from trajectory_guard_collector.scoring.calls import call_from, plain_call
from trajectory_guard_collector.scoring.items import EventKind, Item, ResourceInfo, StepItem, UsageItem

FORMAT_VERSION: Final = 1
Dialects = Mapping[str, Dialect]
"""Dialects by name."""
_POINT: Final = ord(".")
_DIGITS: Final = bytes(
    ord("0") if chr(one) in "0123456789" else _POINT if one == _POINT else ord(" ") for one in range(256)
)
_LONG_INTEGER: Final = b"0" * 19
"""Digits of an integer that may need more than 64 bits, after translation by ``_DIGITS``, which takes a sixth of the
time of a regular expression."""
_MAX_ORIGINS: Final = 256
_RESULT_FLAGS: Final = ("evaluated", "moved", "recovered", "repeats")


class ItemFormatError(ValueError):
    """Raised for bytes that are no item or operation of this version. The message says why."""


def dialects_by_name(rows: Iterable[Dialect]) -> Dialects:
    """The dialects in use by name."""
    return {row.name: row for row in rows}


def to_bytes(plain: Any) -> bytes:
    """JSON; of what orjson refuses (long integers, invalid Unicode), as the standard library writes it."""
    try:
        return orjson.dumps(plain, default=as_list)
    except TypeError:
        return json.dumps(plain).encode("ascii")


def from_bytes(data: bytes) -> Any:
    """Read ``to_bytes``; raises ``ItemFormatError``."""
    try:
        if not _has_long_integer(data):  # orjson would read it as a float
            with suppress(ValueError):
                return orjson.loads(data)
        return parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise ItemFormatError(f"no JSON: {error}") from None


def _has_long_integer(data: bytes) -> bool:
    """Whether 19 digits in a row stand anywhere but behind a point: fractions of seconds or dollars may have more."""
    digits = data.translate(_DIGITS)
    at = digits.find(_LONG_INTEGER)
    while at > 0 and digits[at - 1] == _POINT:
        end = digits.find(b" ", at)
        at = digits.find(_LONG_INTEGER, end) if end > 0 else -1
    return at >= 0


def plain_item(item: Item, *, results: bool = False) -> dict[str, Any]:
    """An item as JSON-able data.

    Parameters:
        results: include the result of the evaluation, and what was published of it.
    """
    plain: dict[str, Any] = {
        "v": FORMAT_VERSION, "span": item.span.hex(), "order": item.order, "service": item.service,
        "tenant": item.tenant, "size": item.size,
    }  # fmt: skip
    if isinstance(item, UsageItem):
        call = {"call": plain_call(item.call)} if item.call is not None else {}
        moved = {"moved": True} if item.moved else {}
        task = {"task": item.task} if item.task is not None else {}
        usage = plain_usage(item.usage)
        return {**plain, "trace": item.trace_id, "scope": item.scope, "usage": usage, **call, **moved, **task}
    plain |= {
        "step": _plain_step(item.step), "view": plain_view(item.view), "dialect": item.dialect.name,
        "resource": dict(item.origin.attributes), "own": [item.own_agent, item.own_run],
        "moved": item.moved, "announced_as": item.announced_as,
        **({"session": item.session} if item.session is not None else {}),
        **({"context": [item.trace_state, item.flags]} if item.trace_state or item.flags else {}),
    }  # fmt: skip
    if results:
        plain["results"] = {
            "verdict": plain_verdict(item.verdict) if item.verdict is not None else None,
            "first_step": item.first_step,
            "announced": item.announced,
            "late": dict(item.late) if item.late is not None else None,
            **{name: getattr(item, name) for name in _RESULT_FLAGS},
        }
    return plain


def item_of(plain: Any, dialects: Dialects) -> Item:
    """Read ``plain_item``.

    Raises:
        ItemFormatError: the data is no item, of another version, or of a dialect that is not configured.
    """
    try:
        if plain["v"] != FORMAT_VERSION:
            raise ItemFormatError(
                f"item format version {plain['v']!r} is unknown (this version reads {FORMAT_VERSION})"
            )
        return _usage_item(plain) if "usage" in plain else _step_item(plain, dialects)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ItemFormatError):
            raise
        raise ItemFormatError(f"damaged item: {type(error).__name__}: {error}") from None


def _usage_item(plain: dict[str, Any]) -> UsageItem:
    origin = ResourceInfo({}, plain["service"], plain["tenant"])
    end, span_id = plain["order"]
    item = UsageItem(
        bytes.fromhex(plain["span"]), (float(end), span_id), plain["trace"], plain["scope"], usage_of(plain["usage"]),
        origin,
    )  # fmt: skip
    item.size = plain["size"]
    item.call = call_from(plain["call"]) if "call" in plain else None
    item.moved, item.task = plain.get("moved", False), plain.get("task")
    return item


def _step_item(plain: dict[str, Any], dialects: Dialects) -> StepItem:
    name = plain["dialect"]
    if name not in dialects:
        raise ItemFormatError(f"dialect {name!r} is not configured here")
    origin = _origin(to_bytes([plain["resource"], plain["service"], plain["tenant"]]))
    item = StepItem(
        bytes.fromhex(plain["span"]),
        _step(plain["step"]),
        view_from(plain["view"]),
        dialects[name],
        origin,
        plain["size"],
    )
    end, span_id = plain["order"]
    item.order = (float(end), span_id)
    item.own_agent, item.own_run = plain["own"]
    item.session = plain.get("session")
    item.trace_state, item.flags = plain.get("context", ("", 0))
    item.moved, item.announced_as = plain["moved"], _kind(plain["announced_as"])
    if (results := plain.get("results")) is not None:
        item.verdict = verdict_of(results["verdict"]) if results["verdict"] is not None else None
        item.first_step, item.announced, item.late = results["first_step"], _kind(results["announced"]), results["late"]
        for flag in _RESULT_FLAGS:
            setattr(item, flag, results[flag])
    return item


@lru_cache(_MAX_ORIGINS)
def _origin(data: bytes) -> ResourceInfo:
    """The resource of a step: the steps of one application share it."""
    return ResourceInfo(*from_bytes(data))


def _kind(value: str | None) -> EventKind | None:
    return EventKind(value) if value is not None else None


# --- the parts of an item ------------------------------------------------------------------------------------


def plain_identity(step: StepRecord) -> list[Any]:
    """The part of a step that may become known later: trajectory, agent, run and model turn."""
    return [step.trajectory_id, step.agent_id, step.run, step.batch]


def with_identity(step: StepRecord, plain: list[Any]) -> StepRecord:
    """The step with what ``plain_identity`` returned."""
    trajectory, agent, run, batch = plain
    return step._replace(trajectory_id=trajectory, agent_id=agent, run=run, batch=batch)


_FIELDS: Final = StepRecord._fields
_DEFAULTS: Final = tuple(StepRecord._field_defaults.get(name, ()) for name in _FIELDS)
"""Fields that equal their default are not written; a required one equals no empty tuple."""
_ATTRIBUTES, _EVENTS, _RESOURCE = map(SpanView._fields.index, ("attributes", "events", "resource"))


def _plain_step(step: StepRecord) -> dict[str, Any]:
    plain = {name: value for name, value, default in zip(_FIELDS, step, _DEFAULTS, strict=True) if value != default}
    if step.evidence is not Evidence.FULL:
        plain["evidence"] = str(step.evidence)
    if step.usage is not None:
        plain["usage"] = plain_usage(step.usage)
    return plain


def _step(plain: dict[str, Any]) -> StepRecord:
    usage = plain.get("usage")
    return StepRecord(
        **{
            **plain,
            "usage": usage_of(usage) if usage is not None else None,
            "evidence": Evidence(plain.get("evidence", Evidence.FULL)),
        }
    )


def plain_view(view: SpanView) -> list[Any]:
    """A span view as JSON-able data."""
    plain: list[Any] = list(view)
    plain[_ATTRIBUTES], plain[_RESOURCE] = dict(view.attributes), dict(view.resource)
    plain[_EVENTS] = [[event.name, dict(event.attributes)] for event in view.events]
    return plain if view.dropped else plain[:-1]  # workers of earlier versions read it then


def view_from(plain: list[Any]) -> SpanView:
    """Read ``plain_view``."""
    view = SpanView(*plain)
    return view._replace(events=[SpanEvent(*event) for event in view.events]) if view.events else view


def plain_usage(usage: Usage) -> list[Any]:
    """Usage as JSON-able data, without last fields that say nothing: workers of earlier versions read it then."""
    return list(usage if usage.opening else usage[:-1] if usage.answers else usage[:-2])


def usage_of(plain: list[Any]) -> Usage:
    """Read ``plain_usage``."""
    inputs, outputs, cost, seconds, unpriced, *rest = plain
    return Usage(inputs, outputs, cost, seconds, tuple(ModelTokens(*one) for one in unpriced), *rest)


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON-able data, without the steps, names and attempts of its findings."""
    found = [[*one[:3], str(one.certainty), one.count, one.first_step] for one in verdict.detections]
    certificate = verdict.certificate.to_plain() if verdict.certificate is not None else None
    plain = {**verdict._asdict(), "detections": found, "spent": list(verdict.spent), "certificate": certificate}
    if not verdict.not_run:  # collectors and workers of earlier versions read it then
        del plain["not_run"]
    return plain


def verdict_of(plain: dict[str, Any]) -> Verdict:
    """Read ``plain_verdict``."""
    found = tuple(
        DetectionResult(kind, confidence, rule, Certainty(certainty), count, first)
        for kind, confidence, rule, certainty, count, first in plain["detections"]
    )
    return Verdict(**{
        **plain,
        "detections": found,
        "spent": Spent(*plain["spent"]),
        "level": Level(plain["level"]),
        "evidence": Evidence(plain["evidence"]),
        "certificate": Certificate.from_plain(plain["certificate"]) if plain.get("certificate") else None,
    })  # fmt: skip
