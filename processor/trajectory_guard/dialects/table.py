"""The table of dialects: which row reads a tool span, and the fields of all rows combined for reading other spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard.dialects.base import Dialect, Keys, Messages, ModelCalls, never
from trajectory_guard.dialects.crewai import CREWAI
from trajectory_guard.dialects.google_adk import GOOGLE_ADK
from trajectory_guard.dialects.haystack import HAYSTACK
from trajectory_guard.dialects.langfuse import LANGFUSE
from trajectory_guard.dialects.langsmith import LANGSMITH
from trajectory_guard.dialects.llamaindex import LLAMAINDEX
from trajectory_guard.dialects.logfire import LOGFIRE, LOGFIRE_CLIENTS
from trajectory_guard.dialects.mcp import MCP
from trajectory_guard.dialects.mlflow import MLFLOW
from trajectory_guard.dialects.openai_agents import OPENAI_AGENTS
from trajectory_guard.dialects.openinference import OPENINFERENCE
from trajectory_guard.dialects.openlit import OPENLIT
from trajectory_guard.dialects.openllmetry import OPENLLMETRY
from trajectory_guard.dialects.pydantic_ai import PYDANTIC_AI
from trajectory_guard.dialects.semconv import SEMCONV, SEMCONV_NAMED, UNPREFIXED
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.spring_ai import SPRING_AI
from trajectory_guard.dialects.strands import STRANDS
from trajectory_guard.dialects.vercel import VERCEL

T = TypeVar("T")

_BUILT_IN: Final = (
    LANGSMITH, LANGFUSE, LOGFIRE, OPENLIT, LLAMAINDEX, GOOGLE_ADK, STRANDS, CREWAI, VERCEL, HAYSTACK, SPRING_AI,
    OPENLLMETRY, OPENINFERENCE, MCP,
    PYDANTIC_AI, MLFLOW, OPENAI_AGENTS, LOGFIRE_CLIENTS, UNPREFIXED,  # no tool spans
    SEMCONV, SEMCONV_NAMED,
)  # fmt: skip
"""Rows in the order in which they are tried on tool spans."""
_READING_ORDER: Final = (
    SEMCONV, PYDANTIC_AI, CREWAI, OPENINFERENCE, UNPREFIXED, VERCEL, LOGFIRE_CLIENTS, OPENLLMETRY, LLAMAINDEX, LANGFUSE,
    LANGSMITH, GOOGLE_ADK, STRANDS, HAYSTACK, SPRING_AI, LOGFIRE, OPENAI_AGENTS, MCP, OPENLIT, MLFLOW, SEMCONV_NAMED,
)  # fmt: skip
"""Rows in the order in which their keys are tried on a span that may carry those of several."""


_MAX_KEY_SETS: Final = 1_024
_MAX_KEPT_NAMES: Final = 128
"""Where a history is spread over several attributes a message, each span has names of its own."""


class MessageKeys(NamedTuple):
    """Where the messages of one direction stand.

    Attributes:
        keys: attributes, in order; a dot at the end marks the beginning of keys over which a list is spread.
        events: names of span events that hold one message each.
        assemble: functions that put messages together from several attributes.
        of_model: whether these are the model's answers.
    """

    keys: Keys
    events: frozenset[str] = frozenset()
    assemble: tuple[Callable[[Mapping[str, Any]], Any], ...] = ()
    of_model: bool = False


class KeySet(NamedTuple):
    """What the names of a span's attributes say, whatever their values: which rows and keys need to be looked at.

    Fields:
        declared, built_in: the rows with a marker among the names, which alone can match.
        conversations: the keys of conversations and sessions that the span has.
        inputs, outputs, transcripts: the keys of messages that the span has, or that begin a name.
    """

    declared: tuple[Dialect, ...]
    built_in: tuple[Dialect, ...]
    conversations: Keys
    inputs: Keys
    outputs: Keys
    transcripts: Keys


class DialectTable(tuple[Dialect, ...]):
    """Rows in the order in which they are tried on tool spans; the first that matches reads the span.

    For all other questions the fields of the rows are combined once, here: those of rows that ``_READING_ORDER`` does
    not list come first. Fields of built-in rows are always among them, whether or not the rows are in the table. The
    attributes are named after the fields of a row; those that end in ``_tests`` hold functions of a span. Besides:

    Attributes:
        markers: a span with none of these keys is no tool span. Checked first: most spans of an application are none.
        interesting: a span with none of these keys describes no tool, agent, conversation or usage.
        declared_conversations: keys that the user declared; they win over all others.
        conversations: keys of conversations, then of sessions.
        agent_keys, step_keys, namespace_keys: where vendors spread the metadata of a LangChain run: the agent's name,
            the super-step and the checkpoint namespace of LangGraph.
    """

    def __init__(self, rows: Iterable[Dialect]) -> None:
        """Combine the fields of the rows."""
        families: tuple[Dialect, ...] = tuple(dict.fromkeys((*self, *_BUILT_IN)))
        ordered = (*(row for row in families if row not in _READING_ORDER), *_READING_ORDER)
        self._key_sets: dict[tuple[str, ...], KeySet] = {}
        self._combine_tools(ordered)
        self._combine_identity(ordered)
        self._combine_models([row.models for row in ordered])
        self._combine_messages([row.messages for row in ordered])
        self.family_markers = tuple((key, row.name) for row in families for key in row.messages.family_markers)
        self.in_family = tuple((row.messages.in_family, row.name) for row in families if row.messages.in_family)
        self.workflow_dialects = frozenset(row.name for row in families if row.messages.workflow_inputs)
        names = {key for row in ordered for key in (*row.identity.name_keys, *row.identity.agents)}
        self.name_keys: Final = frozenset(names)
        self.interesting: Final = frozenset().union(
            self.markers, self.usage_markers, self.conversations, self.metadata_objects, self.agent_markers,
            self.declared_conversations,
        )  # fmt: skip

    def key_set(self, attributes: Mapping[str, Any]) -> KeySet:
        """What the names of these attributes say.

        An instrumentation writes the same names in the same order each time: the answer is kept by the names.
        """
        names = tuple(attributes)
        found = self._key_sets.get(names)
        if found is None:
            found = self._new_key_set(attributes)
            if len(names) <= _MAX_KEPT_NAMES:
                if len(self._key_sets) >= _MAX_KEY_SETS:
                    self._key_sets.clear()
                self._key_sets[names] = found
        return found

    def _new_key_set(self, attributes: Mapping[str, Any]) -> KeySet:
        declared, built_in = (
            tuple(row for row in rows if any(key in attributes for key in row.markers))
            for rows in (self.declared_rows, self.tool_rows)
        )
        return KeySet(
            declared, built_in, tuple(key for key in self.conversations if key in attributes),
            *(_found(wanted.keys, attributes) for wanted in (self.inputs, self.outputs, self.transcripts)),
        )  # fmt: skip

    def message_keys(self, wanted: MessageKeys, attributes: Mapping[str, Any]) -> Keys:
        """The keys of ``inputs``, ``outputs`` or ``transcripts`` that these attributes have, in their order."""
        known = self.key_set(attributes)
        return known.inputs if wanted is self.inputs else known.outputs if wanted is self.outputs else known.transcripts

    def _combine_tools(self, rows: Sequence[Dialect]) -> None:
        self.markers = frozenset(key for row in self for key in row.markers)
        self.tool_rows = tuple(row for row in self if row.matches is not never)
        self.declared_rows = tuple(row for row in self if row.declared)
        self.copies = tuple(pair for row in rows for pair in row.copies.items())
        self.not_a_tool = tuple(pair for row in rows for pair in row.not_a_tool.items())
        self.failed_when = tuple(pair for row in rows for pair in row.failed_when.items())
        self.refused_when = tuple(pair for row in rows for pair in row.refused_when.items())
        self.status_messages = _keys(row.status_messages for row in rows)
        self.approval_tests = _given(row.awaits_approval for row in rows)

    def _combine_identity(self, rows: Sequence[Dialect]) -> None:
        parts = [row.identity for row in rows]
        known = [row.identity for row in rows if not row.declared]
        self.declared_conversations = _keys(row.identity.conversations for row in rows if row.declared)
        self.conversations = _keys((*(one.conversations for one in known), *(one.sessions for one in known)))
        self.metadata_objects = _keys(one.metadata_objects for one in parts)
        prefixes = _keys(one.metadata_prefixes for one in parts)
        self.agent_keys = tuple(f"{prefix}lc_agent_name" for prefix in prefixes)
        self.step_keys = tuple(f"{prefix}langgraph_step" for prefix in prefixes)
        self.namespace_keys = tuple(f"{prefix}langgraph_checkpoint_ns" for prefix in prefixes)
        self.wrapped_metadata = _given(one.wrapped_metadata for one in parts)
        self.agent_tests = tuple((key, one.is_agent) for one in parts if one.is_agent for key in one.agent_markers)
        self.agent_markers = frozenset(key for key, _ in self.agent_tests)
        self.agent_names = tuple(
            (key, one.agent_name, one.is_agent is not None)
            for one in parts if one.agent_name for key in one.agent_markers
        )  # fmt: skip
        self.placeholders = frozenset(("agent", "LangGraph", "", *_keys(one.placeholders for one in parts)))
        self.graph_scopes = frozenset(_keys(one.graph_scopes for one in parts))
        self.graph_markers = frozenset(_keys(one.graph_markers for one in parts))
        self.handoff_tests = _given(one.is_handoff for one in parts)

    def _combine_models(self, parts: Sequence[ModelCalls]) -> None:
        self.call_tests = _given(one.is_call for one in parts)
        self.weak_call_tests = _given(one.may_be_call for one in parts)
        self.model_markers = frozenset(_keys(one.markers for one in parts))
        self.usage_markers = frozenset(_keys(one.usage_markers for one in parts))
        having = [(test, one.usage) for one in parts if (test := one.has_usage or one.is_call) is not None]
        self.usage = tuple(sorted(having, key=lambda pair: pair[1] is None))  # a reader of its own knows more
        self.input_tokens = _keys(one.input_tokens for one in parts)
        self.output_tokens = _keys(one.output_tokens for one in parts)
        self.costs = _keys(one.costs for one in parts)
        self.model_names = _keys(one.names for one in parts)
        self.response_ids = _keys(one.response_ids for one in parts)

    def _combine_messages(self, parts: Sequence[Messages]) -> None:
        self.inputs = MessageKeys(
            _keys((*(one.inputs for one in parts), *(one.raw_inputs for one in parts))),
            frozenset(_keys(one.input_events for one in parts)),
        )
        self.outputs = MessageKeys(
            _keys((*(one.outputs for one in parts), *(one.raw_outputs for one in parts))),
            frozenset(_keys(one.output_events for one in parts)),
            _given(one.assemble_output for one in parts),
            of_model=True,
        )
        self.transcripts = MessageKeys(_keys(one.transcripts for one in parts))
        self.event_lists = _keys(one.event_lists for one in parts)
        self.tools = _keys(one.tools for one in parts)
        self.workflow_inputs = _keys(one.workflow_inputs for one in parts)
        self.workflow_outputs = _keys(one.workflow_outputs for one in parts)
        self.no_transcript = frozenset(_keys(one.no_transcript for one in parts))


def _keys(fields: Iterable[Keys]) -> Keys:
    """The keys of several rows, each once, in order."""
    return tuple(dict.fromkeys(key for keys in fields for key in keys))


def _found(keys: Keys, attributes: Mapping[str, Any]) -> Keys:
    """The keys that are names of attributes, or with a dot at their end begin some."""
    return tuple(
        key
        for key in keys
        if key in attributes or (key[-1:] == "." and any(name.startswith(key) for name in attributes))
    )


def _given(fields: Iterable[T | None]) -> tuple[T, ...]:
    """The fields that a row has filled in."""
    return tuple(one for one in fields if one is not None)


DIALECTS: Final = DialectTable(_BUILT_IN)


def table_of(dialects: Sequence[Dialect]) -> DialectTable:
    """A sequence of rows as a table; the fields of the same rows are combined once."""
    return dialects if isinstance(dialects, DialectTable) else _combined(tuple(dialects))


@lru_cache(maxsize=64)
def _combined(rows: tuple[Dialect, ...]) -> DialectTable:
    return DIALECTS if rows == DIALECTS else DialectTable(rows)


def is_rejected(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Spans that look like tools and are none: model calls that name a tool, pending copies, other MCP methods."""
    attributes = span.attributes
    for key, test in table.not_a_tool:
        value = attributes.get(key)
        if value is not None and test(value):
            return True
    return is_copy(span, table)


def is_copy(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Unfinished copies of spans that are still to come."""
    for key, value in table.copies:  # noqa: SIM110  a generator would cost more than the look-ups
        if span.attributes.get(key) == value:
            return True
    return False


def recognise(span: SpanView, dialects: Sequence[Dialect] = DIALECTS) -> Dialect | None:
    """The dialect of a tool span, None if the span is no tool span."""
    table = table_of(dialects)
    known = table.key_set(span.attributes)
    for row in known.declared:
        if row.matches(span):
            return row
    if not known.built_in or is_rejected(span, table):
        return None
    for row in known.built_in:
        if row.matches(span):
            return row
    return None
