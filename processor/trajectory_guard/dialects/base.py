"""What a dialect is: how to recognise its tool spans, and under which keys it keeps what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trajectory_guard.dialects.span import SpanView

Keys = tuple[str, ...]

ARGUMENT_KEYS: Final[Keys] = (
    "gen_ai.tool.call.arguments", "tool_arguments", "tool.arguments", "input.value", "traceloop.entity.input",
    "langfuse.observation.input", "gen_ai.prompt", "input", "gen_ai.tool.input", "tool.input", "gen_ai.tool.arguments",
)  # fmt: skip
RESULT_KEYS: Final[Keys] = (
    "gen_ai.tool.call.result", "tool_response", "output.value", "traceloop.entity.output",
    "langfuse.observation.output", "gen_ai.completion", "output", "gen_ai.tool.output", "tool.output", "tool.result",
    "gen_ai.tool.message", "gen_ai.tool.result",
)  # fmt: skip
CALL_ID_KEYS: Final[Keys] = (
    "gen_ai.tool.call.id", "tool_call.id", "langfuse.observation.metadata.tool_call_id", "tool_call_id",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dialect:
    """One row of the table. Compared by identity: tables of dialects are keys on the hot path.

    Attributes:
        name: short name, reported with every step.
        matches: whether a span is a tool span of this dialect; sees attributes that hold at least one marker key.
        markers: attribute keys, at least one of which every tool span of the dialect carries.
        tool_name: the tool's name from a matching span; None if it is a tool span that must not count.
        arguments, results, call_ids: keys tried before the common ones, in order.
        single_argument: a bare string stands for the value of a one-argument call whose argument name was dropped.
        empty_arguments: whether missing arguments beside a visible result mean "no arguments" rather than "unknown".
        empty_result: whether a missing result on a successful span with visible arguments means "returned nothing".
        adjust: last word on the raw fields (call id, arguments, result), for quirks that fit no rule.
        agents, conversations: keys of the agent's name and the conversation's id, tried before the common ones, on the
            span and then on its ancestors.
        declared: the user declared it: it is asked first, even about spans that look like no tool.
    """

    name: str
    matches: Callable[[SpanView], bool]
    markers: Keys
    tool_name: Callable[[SpanView], str | None]
    arguments: Keys = ()
    results: Keys = ()
    call_ids: Keys = ()
    single_argument: bool = False
    empty_arguments: bool = False
    empty_result: bool = False
    adjust: Callable[[SpanView, RawCall], RawCall] | None = None
    agents: Keys = ()
    conversations: Keys = ()
    declared: bool = False


@dataclass(frozen=True)
class RawCall:
    """Undecoded fields of a tool span: attribute values as found, None where absent."""

    call_id: Any = None
    arguments: Any = None
    result: Any = None


def first(attributes: Mapping[str, Any], keys: Keys) -> Any:
    """Value of the first key that is present (and not None)."""
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def named_by(*keys: str, prefixes: Keys = (), suffixes: Keys = ()) -> Callable[[SpanView], str | None]:
    """A ``tool_name`` function: the first present key, else the span name without a known prefix or suffix."""

    def tool_name(span: SpanView) -> str | None:
        value = first(span.attributes, keys)
        if isinstance(value, str) and value:
            return value
        name = span.name
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        for suffix in suffixes:
            name = name.removesuffix(suffix)
        return name or None

    return tool_name
