"""Doctor findings on a capture: the visible and the missing parts of its calls. Pure functions."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trajectory_guard import telemetry
from trajectory_guard.cli.doctor.fixes import (
    AGENT,
    CONTENT,
    CONVERSATION,
    EVENTS_ONLY,
    KEPT_BACK,
    LANGCHAIN,
    LIMITS,
    OPENINFERENCE,
    OPENINFERENCE_JS,
    RESULT,
    SAMPLER,
    TOOL_SPANS,
    family_of,
    fix_for,
    keep_one,
)
from trajectory_guard.cli.findings import Finding, Severity, plural, share
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.steps import ERROR, StepRecord
from trajectory_guard.dialects.base import ARGUMENT_KEYS, RESULT_KEYS
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import recognise
from trajectory_guard.spans.content import is_redacted, python_literal
from trajectory_guard.transcripts.assemble import extract_steps
from trajectory_guard.transcripts.messages import is_model_span, output_messages
from trajectory_guard.transcripts.spanless import SUFFIX, is_handoff_span

_MOST: Final = 0.5
"""Share of steps (0 to 1) from which on missing data is a problem and not a warning."""
_MIN_LIMIT_CHARS: Final = 16
_MIN_CUT_VALUES: Final = 3
_MAX_LONGEST: Final = 64
_MAX_MEASURED: Final = 200_000
"""Text attributes looked at for a length limit."""


@dataclass
class Capture:
    """Spans and their steps, with the figures behind the findings."""

    spans: Sequence[SpanView]
    steps: Sequence[StepRecord]
    tools: Sequence[SpanView] = ()
    models: Sequence[SpanView] = ()
    family: str = "other"
    by_span: dict[tuple[str, str], SpanView] = field(default_factory=dict)

    @property
    def with_spans(self) -> list[StepRecord]:
        """Steps that have a tool span."""
        return [step for step in self.steps if not (step.dialect or "").endswith(SUFFIX)]

    @property
    def without_spans(self) -> list[StepRecord]:
        """Steps that were read from messages."""
        return [step for step in self.steps if (step.dialect or "").endswith(SUFFIX)]


def look_at(spans: Iterable[SpanView]) -> Capture:
    """Read a set of spans."""
    by_span = {(span.trace_id, span.span_id): span for span in spans if span.scope != telemetry.SCOPE}
    kept = list(by_span.values())
    tools = [span for span in kept if (dialect := recognise(span)) is not None and dialect.tool_name(span) is not None]
    models = [span for span in kept if is_model_span(span)]
    of_interest = tools or models or kept
    families = Counter(family_of(span) for span in of_interest)
    family = families.most_common(1)[0][0] if families else "other"
    return Capture(kept, extract_steps(kept), tools, models, family, by_span)


def capture_findings(spans: Iterable[SpanView]) -> list[Finding]:
    """All findings on a set of spans."""
    capture = look_at(spans)
    return [
        *_found(capture), *_no_tool_spans(capture), *_arguments(capture), *_results(capture), *_truncated(capture),
        *_conversations(capture), *_agents(capture), *_call_ids(capture), *_messages(capture), *_twice(capture),
        *_orphans(capture),
    ]  # fmt: skip


def recorded_findings(steps: Sequence[StepRecord]) -> list[Finding]:
    """Findings on step lines: the fields that they fill."""
    capture = Capture((), steps, family="step lines")
    return [*_found(capture), *_lines_without(steps, "args"), *_lines_without(steps, "result")]


def _lines_without(steps: Sequence[StepRecord], key: str) -> Iterator[Finding]:
    missing = [step for step in steps if getattr(step, key) is None and (key == "args" or step.outcome_type != ERROR)]
    if missing:
        yield Finding(
            _severity(len(missing), len(steps)), f"no_{key}", "step lines",
            f"{share(len(missing), len(steps), 'step')} without {key!r}.", f'{{"tool": ..., "{key}": ...}}',
            {"missing": len(missing), "steps": len(steps)},
        )  # fmt: skip


def _severity(missing: int, total: int) -> Severity:
    return "problem" if total and missing / total >= _MOST else "warn"


# --- what is there -------------------------------------------------------------------------------------------


def _found(capture: Capture) -> Iterator[Finding]:
    dialects = Counter(step.dialect or "step lines" for step in capture.steps)
    lengths = sorted(Counter(step.trajectory_id for step in capture.steps).values())
    data = {
        "spans": len(capture.spans), "traces": len({span.trace_id for span in capture.spans}),
        "tool_spans": len(capture.tools), "model_spans": len(capture.models), "steps": len(capture.steps),
        "trajectories": len(lengths), "dialects": dict(dialects.most_common()),
        "longest": lengths[-1] if lengths else 0, "median": statistics.median(lengths) if lengths else 0,
    }  # fmt: skip
    if not capture.steps:
        return
    calls, runs = plural(len(capture.steps), "tool call"), plural(len(lengths), "trajectory")
    named = ", ".join(f"{name} ({count})" for name, count in dialects.most_common())
    message = f"{calls} in {runs} (longest {lengths[-1]}, median {data['median']:g}), read as {named}."
    yield Finding("ok", "steps", capture.family, message, None, data)


def _no_tool_spans(capture: Capture) -> Iterator[Finding]:
    if capture.with_spans or not capture.spans:
        return
    known = ("openinference.instrumentation.crewai", "crewai", "haystack", "pipecat")
    key = next((name for name in known if any(name in span.scope for span in capture.spans)), "other")
    read = len(capture.without_spans)
    message = (
        f"No call has a tool span; {plural(read, 'call')} read from messages: that works on recordings, not in process."
        if read
        else f"{plural(len(capture.spans), 'span')} and no tool call among them."
    )
    yield Finding("problem", "no_tool_spans", capture.family, message, TOOL_SPANS[key], {"calls_in_messages": read})


# --- content -------------------------------------------------------------------------------------------------


def _arguments(capture: Capture) -> Iterator[Finding]:
    steps = capture.with_spans
    missing = [step for step in steps if step.args is None]
    hidden = _hidden(capture, missing, ARGUMENT_KEYS)
    if hidden:
        message = (
            f"{share(len(hidden), len(steps), 'call')} with redacted arguments: all calls of a tool look the same."
        )
        yield Finding(
            _severity(len(hidden), len(steps)), "redacted", _family(capture, hidden), message,
            fix_for(CONTENT, _family(capture, hidden)), {"redacted": len(hidden), "steps": len(steps)},
        )  # fmt: skip
    known = {step.step_id for step in hidden}
    plain = [step for step in missing if step.step_id not in known]
    if plain:
        family = _family(capture, plain)
        yield Finding(
            _severity(len(plain), len(steps)), "no_arguments", family,
            f"{share(len(plain), len(steps), 'call')} without arguments: all calls of a tool look the same.",
            _content_fix(capture, family, CONTENT), {"missing": len(plain), "steps": len(steps)},
        )  # fmt: skip


def _results(capture: Capture) -> Iterator[Finding]:
    steps = [step for step in capture.with_spans if step.outcome_type not in (ERROR, "interrupted", "denied")]
    missing = [step for step in steps if step.result is None]
    hidden = _hidden(capture, missing, RESULT_KEYS)
    if missing:
        family = _family(capture, missing)
        why = " (redacted)" if len(hidden) == len(missing) else ""
        fix = fix_for(CONTENT, family) if hidden else _content_fix(capture, family, RESULT)
        message = f"{share(len(missing), len(steps), 'call')} without a result{why}: did anything new come back?"
        yield Finding(
            _severity(len(missing), len(steps)), "no_results", family, message, fix,
            {"missing": len(missing), "steps": len(steps), "redacted": len(hidden)},
        )  # fmt: skip


def _hidden(capture: Capture, steps: Iterable[StepRecord], keys: Sequence[str]) -> list[StepRecord]:
    """Steps whose span holds a placeholder where content belongs."""
    return [step for step in steps if any(is_redacted(_span(capture, step).attributes.get(key)) for key in keys)]


def _span(capture: Capture, step: StepRecord) -> SpanView:
    return capture.by_span[step.trace_id or "", step.span_id or ""]


def _family(capture: Capture, steps: Iterable[StepRecord]) -> str:
    families = Counter(family_of(_span(capture, step)) for step in steps)
    return families.most_common(1)[0][0] if families else capture.family


def _content_fix(capture: Capture, family: str, table: Mapping[str, str]) -> str:
    """Content on model spans and none on tool spans means that it goes elsewhere, not that it is off."""
    for scope, line in KEPT_BACK:
        if family in (OPENINFERENCE, OPENINFERENCE_JS) and any(span.scope == scope for span in capture.tools):
            return line
    of_langchain = any("langchain" in span.scope for span in capture.tools)
    shown = family in EVENTS_ONLY and of_langchain and any(map(_shows_content, capture.models))
    return EVENTS_ONLY[family] if shown else fix_for(table, family)


def _shows_content(span: SpanView) -> bool:
    return any(
        message.text or any(call.arguments is not None for call in message.calls) for message in output_messages(span)
    )


def _truncated(capture: Capture) -> Iterator[Finding]:
    limit = length_limit(capture.spans)
    if limit is not None:
        cut = sum(_is_cut(span, limit) for span in capture.tools)
        yield Finding(
            "problem" if cut else "warn", "truncated", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            f"Attribute values are cut after {limit} characters ({share(cut, len(capture.tools), 'tool span')}).",
            LIMITS, {"limit": limit, "tool_spans": cut},
        )  # fmt: skip


def _is_cut(span: SpanView, limit: int) -> bool:
    return any(isinstance(value, str) and len(value) == limit for value in span.attributes.values())


def length_limit(spans: Iterable[SpanView]) -> int | None:
    """The length at which attribute values are cut, None if they are not.

    Several values have exactly the greatest length of all, and are JSON that stops in the middle.
    """
    longest: list[str] = []
    length = _MIN_LIMIT_CHARS
    for text in _texts(spans):
        if len(text) > length:
            longest, length = [text], len(text)
        elif len(text) == length and len(longest) < _MAX_LONGEST:
            longest.append(text)
    if len(longest) < _MIN_CUT_VALUES:
        return None
    broken = sum(map(_stops_in_the_middle, longest))
    several = len(set(longest)) >= _MIN_CUT_VALUES
    return length if broken >= _MIN_CUT_VALUES or (broken and several) else None


def _texts(spans: Iterable[SpanView]) -> Iterator[str]:
    count = 0
    for span in spans:
        for value in span.attributes.values():
            if isinstance(value, str):
                count += 1
                if count > _MAX_MEASURED:
                    return
                yield value


def _stops_in_the_middle(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        parse_json(text)
    except (ValueError, RecursionError):
        return python_literal(text) is None
    return False


# --- identity ------------------------------------------------------------------------------------------------


def _line_of(capture: Capture, family: str) -> str:
    """LangGraph names conversation and agent itself, whoever records it."""
    graph = any(_is_langgraph(span) for span in capture.tools)
    return LANGCHAIN if graph else family


def _is_langgraph(span: SpanView) -> bool:
    return any("langgraph" in str(key) for key in span.attributes) or "langgraph_step" in str(
        span.attributes.get("metadata", "")
    )


def _conversations(capture: Capture) -> Iterator[Finding]:
    unnamed = [step for step in capture.steps if step.trajectory_id == step.trace_id]
    if not unnamed:
        return
    traces = {step.trace_id for step in unnamed}
    scattered = len(traces) > 1 and len(traces) * 2 > len(unnamed)
    family = _family(capture, unnamed)
    calls = share(len(unnamed), len(capture.steps), "call")
    message = f"{calls} without a conversation: each trace is its own trajectory."
    if scattered:
        message += f" With {len(traces)} traces for {len(unnamed)} calls no loop can be seen."
    fix = fix_for(CONVERSATION, _line_of(capture, family))
    yield Finding(
        "problem" if scattered else "warn", "no_conversation", family, message, fix,
        {"missing": len(unnamed), "steps": len(capture.steps), "traces": len(traces)},
    )  # fmt: skip


def _agents(capture: Capture) -> Iterator[Finding]:
    unnamed = [step for step in capture.steps if step.agent_id is None]
    if unnamed:
        family = _family(capture, unnamed)
        handoffs = any(is_handoff_span(span) for span in capture.spans)
        calls = share(len(unnamed), len(capture.steps), "call")
        yield Finding(
            "warn" if handoffs or len(unnamed) < len(capture.steps) else "ok", "no_agent", family,
            f"{calls} without an agent's name; it is needed only to see agents hand work back and forth.",
            fix_for(AGENT, _line_of(capture, family)), {"missing": len(unnamed), "steps": len(capture.steps)},
        )  # fmt: skip


def _call_ids(capture: Capture) -> Iterator[Finding]:
    missing = sum(step.call_id is None for step in capture.with_spans)
    if missing:
        spans = share(missing, len(capture.with_spans), "tool span")
        yield Finding(
            "ok", "no_call_id", capture.family,
            f"{spans} without a call id; duplicates are detected by arguments and time instead.", None,
            {"missing": missing, "steps": len(capture.with_spans)},
        )  # fmt: skip


def _messages(capture: Capture) -> Iterator[Finding]:
    without = capture.without_spans
    if without and capture.with_spans:
        names = ", ".join(sorted({step.tool_name for step in without})[:3])
        yield Finding(
            "warn", "calls_without_span", _family(capture, without),
            f"{plural(len(without), 'call')} without a tool span ({names}): unknown tools and refused calls. Read from "
            "messages afterwards; in process the guard does not see them.", None, {"calls": len(without)},
        )  # fmt: skip


# --- duplicates and gaps -------------------------------------------------------------------------------------


def _twice(capture: Capture) -> Iterator[Finding]:
    """Calls reported by two instrumentation scopes in one trace, and more spans than calls."""
    surplus = len(capture.tools) - len(capture.with_spans)
    if surplus <= 0:
        return
    scopes: dict[tuple[str, str], set[str]] = {}
    for span in capture.tools:
        dialect = recognise(span)
        name = dialect.tool_name(span) if dialect is not None else None
        scopes.setdefault((span.trace_id, (name or "").casefold()), set()).add(span.scope)
    double: Counter[str] = Counter(scope for found in scopes.values() if len(found) > 1 for scope in found)
    if double:
        both = sorted(double)
        yield Finding(
            "warn", "two_instrumentations", " + ".join(both),
            f"{share(surplus, len(capture.tools), 'tool span')} reported by another instrumentation too; counted once. "
            "Keep one of them.", _keep_one(both), {"repeated": surplus, "tool_spans": len(capture.tools)},
        )  # fmt: skip


def _keep_one(scopes: Sequence[str]) -> str:
    """OpenInference comes last: its live spans show less, since parents are bare until they end."""
    packages = {
        scope: scope.replace(".instrumentation.", "-instrumentation-").replace("_", "-")
        for scope in sorted(scopes, key=lambda name: (name.startswith("openinference"), name))
    }
    return keep_one(
        {
            scope: f"pip uninstall {package}" if "-instrumentation-" in package else f"# remove the spans of {scope!r}"
            for scope, package in packages.items()
        }
    )


def _orphans(capture: Capture) -> Iterator[Finding]:
    orphans = [
        span for span in capture.spans if span.parent_id and (span.trace_id, span.parent_id) not in capture.by_span
    ]
    if orphans:
        of_tools = sum(recognise(span) is not None for span in orphans)
        spans = share(len(orphans), len(capture.spans), "span")
        yield Finding(
            "warn", "missing_parents", family_of(orphans[0]),
            f"{spans} ({of_tools} of them tool spans) with a parent that is not here: sampled out, not exported yet, "
            "or in another service's file. Agent and conversation may be missing.",
            SAMPLER, {"spans": len(orphans), "tool_spans": of_tools},
        )  # fmt: skip
