"""The table of dialects: which row reads a tool span, and the fields of all rows combined for reading other spans."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard.dialects.base import (
    ARGUMENT_KEYS,
    CALL_ID_KEYS,
    RESULT_KEYS,
    Dialect,
    Keys,
    Messages,
    ModelCalls,
    Opinion,
    RawUsage,
    Test,
    keep_by_names,
    never,
)
from trajectory_guard.dialects.rows import BUILT_IN, READING_ORDER
from trajectory_guard.dialects.span import SpanView

T = TypeVar("T")

UsageReader = Callable[[SpanView], RawUsage | None] | None
UsageTest = tuple[Keys, Opinion, UsageReader]
DENIED_KEY: Final = "trajectory_guard.denied"
"""Attribute by which an application states that a person or a policy refused the call."""


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


class RowKeys(NamedTuple):
    """A row, and those of its keys and of the common ones that the span has, in the order in which they are tried.

    Fields:
        content: keys of the row for the call id, common keys for it, keys of the arguments, and of the result.
    """

    row: Dialect
    content: tuple[Keys, Keys, Keys, Keys]


class KeySet(NamedTuple):
    """The information in the names of a span's attributes, whatever their values: the rows and keys to look at.

    Fields:
        declared, built_in: the rows with a marker among the names, which alone can match.
        scopes: those of the built-in ones; of_any_scope: the built-in ones without any.
        tells_outcome: whether it has a key of ``status_messages``, or one of two by which applications tell an outcome.
        metadata: the key of the metadata of a run, as one JSON object; empty if the span has none.
        step_key: the key of the super-step; empty if the span has none.
        wrapped_metadata: readers of metadata within an attribute that the span has.
        names_several: whether it may hold more ids of the conversation than the one that ``named_conversation`` finds.
        agent_tests: tests whether the span is that of an agent; agent_names: the functions that may know its name, each
            with whether the row has such a test.
        handoffs: the rows that may know to whom the span hands the work; handed_by: keys of the agent that does.
        usage: for rows whose model call the span may be, their scopes, the test and the reader.
        consumed: keys of input tokens, of output tokens, and of the cost.
    The others hold those keys or pairs of the fields of ``DialectTable`` with the same name that the span has.
    """

    declared: tuple[RowKeys, ...]
    built_in: tuple[RowKeys, ...]
    scopes: Keys
    of_any_scope: tuple[RowKeys, ...]
    not_a_tool: tuple[tuple[str, Callable[[Any], bool]], ...]
    copies: tuple[tuple[str, Any], ...]
    failed_when: tuple[tuple[str, Any], ...]
    refused_when: tuple[tuple[str, Callable[[Any], bool]], ...]
    status_messages: Keys
    tells_outcome: bool
    declared_conversations: Keys
    conversations: Keys
    agent_keys: Keys
    handed_by: Keys
    namespace_keys: Keys
    step_key: str
    metadata: str
    wrapped_metadata: tuple[Callable[[SpanView], Mapping[str, Any]], ...]
    names_several: bool
    agent_tests: tuple[Test, ...]
    agent_names: tuple[tuple[Callable[[SpanView], str | None], bool], ...]
    handoffs: tuple[Dialect, ...]
    usage: tuple[UsageTest, ...]
    consumed: tuple[Keys, Keys, Keys]


class MessageKeySet(NamedTuple):
    """The keys of messages that the span has, or that begin a name, and of lists of events that may hold some."""

    inputs: Keys
    outputs: Keys
    transcripts: Keys
    event_lists: Keys


class DialectTable(tuple[Dialect, ...]):
    """Rows in the order in which they are tried on tool spans; the first that matches reads the span.

    For all other questions the fields of the rows are combined once, here: those of rows that ``READING_ORDER`` does
    not list come first. Fields of built-in rows are always among them, whether or not the rows are in the table. The
    attributes are named after the fields of a row; those that end in ``_tests`` hold functions of a span. Besides:

    Attributes:
        markers: a span with none of these keys is no tool span. Checked first: most spans of an application are none.
        interesting: a span with none of these keys describes no tool, agent, conversation or usage.
        named_scopes: beginnings of the scopes whose spans may be known as those of an agent by their names alone.
        resuming_scopes: those of rows in which an agent that runs again is the same instance.
        question_scopes: those in which the span of a model call holds the tool calls that it leads to.
        turn_spans: beginning of the name of the span that holds the tool calls of a model turn, by its scope.
        declared_conversations: keys that the user declared; they win over all others.
        conversations: keys of conversations, then of sessions.
        agent_keys: of the agent's name in the metadata of a LangChain run.
        step_keys, namespace_keys: of the super-step and the checkpoint namespace of LangGraph in that metadata.
    """

    def __init__(self, rows: Iterable[Dialect]) -> None:
        """Combine the fields of the rows."""
        families: tuple[Dialect, ...] = tuple(dict.fromkeys((*self, *BUILT_IN)))
        ordered = (*(row for row in families if row not in READING_ORDER), *READING_ORDER)
        self._key_sets: dict[tuple[str, ...], KeySet] = {}
        self._by_asked: dict[frozenset[str], KeySet] = {}
        self._message_key_sets: dict[tuple[str, ...], MessageKeySet] = {}
        self._combine_tools(ordered)
        self._combine_identity(ordered)
        self._combine_models([row.models for row in ordered])
        self.usage = _usage_tests(ordered)
        self._combine_messages([row.messages for row in ordered])
        self.family_markers = tuple((key, row.name) for row in families for key in row.messages.family_markers)
        self.in_family = tuple((row.messages.in_family, row.name) for row in families if row.messages.in_family)
        self.workflow_dialects = frozenset(row.name for row in families if row.messages.workflow_inputs)
        names = {key for row in ordered for key in (*row.identity.name_keys, *row.identity.agents)}
        self.name_keys: Final = frozenset(names)
        self._of_outcome: Final = frozenset(("error.type", DENIED_KEY, *self.status_messages))
        self._asked: Final = frozenset(_asked(self, ordered)) | self._of_outcome
        self.interesting: Final = frozenset().union(
            self.markers, self.usage_markers, self.conversations, self.metadata_objects, self.agent_markers,
            self.declared_conversations,
        )  # fmt: skip

    def key_set(self, attributes: Mapping[str, Any]) -> KeySet:
        """The information in the names of these attributes.

        An instrumentation writes the same names in the same order each time: the answer is kept by the names.
        """
        names = tuple(attributes)
        found = self._key_sets.get(names)
        if found is None:
            asked = self._asked.intersection(attributes)  # a history that grows adds names that nothing asks for
            found = self._by_asked.get(asked)
            if found is None:
                found = self._new_key_set(asked)
                keep_by_names(self._by_asked, asked, found)
            keep_by_names(self._key_sets, names, found)
        return found

    def _new_key_set(self, names: frozenset[str]) -> KeySet:
        built_in = _rows_with(self.tool_rows, names)
        declared_ids, ids = (_present(keys, names) for keys in (self.declared_conversations, self.conversations))
        metadata = "".join(_present(self.metadata_objects, names)[:1])
        handoffs = tuple(row for row in self.handoffs if _any_of(row.identity.handoff_markers, names))
        return KeySet(
            declared=_rows_with(self.declared_rows, names),
            built_in=built_in,
            scopes=_keys(one.row.scopes for one in built_in),
            of_any_scope=tuple(one for one in built_in if not one.row.scopes),
            not_a_tool=tuple(pair for pair in self.not_a_tool if pair[0] in names),
            copies=tuple(pair for pair in self.copies if pair[0] in names),
            failed_when=tuple(pair for pair in self.failed_when if pair[0] in names),
            refused_when=tuple(pair for pair in self.refused_when if pair[0] in names),
            status_messages=_present(self.status_messages, names),
            tells_outcome=not self._of_outcome.isdisjoint(names),
            declared_conversations=declared_ids,
            conversations=ids,
            agent_keys=_present(self.agent_keys, names),
            handed_by=_present(_keys(row.identity.handed_by for row in handoffs), names),
            namespace_keys=_present(self.namespace_keys, names),
            step_key="".join(_present(self.step_keys, names)[:1]),
            metadata=metadata,
            wrapped_metadata=tuple(read for key, read in self.wrapped_metadata if key in names),
            names_several=bool(metadata) or len(ids) > 1 or bool(ids and self.declared_conversations),
            agent_tests=tuple(dict.fromkeys(test for key, test in self.agent_tests if key in names)),
            agent_names=tuple(dict.fromkeys((read, tested) for key, read, tested in self.agent_names if key in names)),
            handoffs=handoffs,
            usage=tuple(rest for markers, rest in self.usage if not markers or _any_of(markers, names)),
            consumed=(
                _present(self.input_tokens, names),
                _present(self.output_tokens, names),
                _present(self.costs, names),
            ),
        )

    def message_keys(self, wanted: MessageKeys, attributes: Mapping[str, Any]) -> Keys:
        """The keys of ``inputs``, ``outputs`` or ``transcripts`` that these attributes have, in their order."""
        known = self._message_key_set(attributes)
        return known.inputs if wanted is self.inputs else known.outputs if wanted is self.outputs else known.transcripts

    def has_input_keys(self, attributes: Mapping[str, Any]) -> bool:
        """Whether these attributes have a key of ``inputs`` or of ``event_lists``."""
        known = self._message_key_set(attributes)
        return bool(known.inputs or known.event_lists)

    def _message_key_set(self, attributes: Mapping[str, Any]) -> MessageKeySet:
        names = tuple(attributes)
        known = self._message_key_sets.get(names)
        if known is None:
            wanted = (self.inputs.keys, self.outputs.keys, self.transcripts.keys, self.event_lists)
            joined = "\n".join(names)
            known = MessageKeySet(*(_found(keys, attributes, joined) for keys in wanted))
            keep_by_names(self._message_key_sets, names, known)
        return known

    def shed(self) -> None:
        """Forget the answers that are kept by the names of attributes, to free memory."""
        self._key_sets.clear()
        self._by_asked.clear()
        self._message_key_sets.clear()

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
        self.deferral_tests = _given(row.deferred for row in rows)

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
        self.wrapped_metadata = tuple((one.wrapped_in, one.wrapped_metadata) for one in parts if one.wrapped_metadata)
        self.agent_tests = tuple((key, one.is_agent) for one in parts if one.is_agent for key in one.agent_markers)
        self.agent_markers = frozenset(key for key, _ in self.agent_tests)
        self.agent_names = tuple(
            (key, one.agent_name, one.is_agent is not None)
            for one in parts if one.agent_name for key in one.agent_markers
        )  # fmt: skip
        self.agents_by_span_name = tuple(
            (row.scopes, read) for row in rows if (read := row.identity.agent_by_span_name) is not None
        )
        self.named_scopes = _keys(scopes for scopes, _ in self.agents_by_span_name)
        self.no_agents = tuple((row.scopes, test) for row in rows if (test := row.identity.no_agent) is not None)
        self.resuming_scopes = _keys(row.scopes for row in rows if row.identity.resumes)
        self.placeholders = frozenset(("agent", "LangGraph", "", *_keys(one.placeholders for one in parts)))
        self.graph_scopes = frozenset(_keys(one.graph_scopes for one in parts))
        self.question_scopes = frozenset(_keys(one.question_scopes for one in parts))
        self.turn_spans = {scope: name for one in parts for scope, name in one.turn_spans.items()}
        self.graph_markers = frozenset(_keys(one.graph_markers for one in parts))
        self.handoffs = tuple(row for row in rows if row.identity.handoff_markers)

    def _combine_models(self, parts: Sequence[ModelCalls]) -> None:
        self.call_tests = _given(one.is_call for one in parts)
        self.weak_call_tests = _given(one.may_be_call for one in parts)
        self.model_markers = frozenset(_keys(one.markers for one in parts))
        self.usage_markers = frozenset(_keys(one.usage_markers for one in parts))
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


def _present(keys: Keys, names: Container[str]) -> Keys:
    """The keys that are among the names."""
    return tuple(key for key in keys if key in names)


def _any_of(keys: Keys, names: Container[str]) -> bool:
    return any(key in names for key in keys)


def _asked(table: DialectTable, rows: Iterable[Dialect]) -> Iterator[str]:
    """All keys on which a ``KeySet`` depends."""
    yield from (*CALL_ID_KEYS, *ARGUMENT_KEYS, *RESULT_KEYS)
    for row in rows:
        yield from (*row.markers, *row.call_ids, *row.arguments, *row.results, *row.models.call_markers)
        yield from (*row.identity.handoff_markers, *row.identity.handed_by)
    yield from (*table.status_messages, *table.declared_conversations, *table.conversations, *table.agent_keys)
    yield from (*table.namespace_keys, *table.step_keys, *table.metadata_objects)
    yield from (*table.input_tokens, *table.output_tokens, *table.costs)
    for pairs in (table.not_a_tool, table.copies, table.failed_when, table.refused_when):
        yield from (key for key, _ in pairs)
    yield from (key for key, _ in (*table.wrapped_metadata, *table.agent_tests))
    yield from (key for key, _, _ in table.agent_names)


def _rows_with(rows: Iterable[Dialect], names: Container[str]) -> tuple[RowKeys, ...]:
    """The rows with a marker among the names."""
    return tuple(row_keys(row, names) for row in rows if _any_of(row.markers, names))


def row_keys(row: Dialect, names: Container[str]) -> RowKeys:
    """The keys that are tried on a tool span of a row with attributes of these names."""
    content = (
        row.call_ids, CALL_ID_KEYS, (*row.arguments, *ARGUMENT_KEYS), (*row.results, *RESULT_KEYS),
    )  # fmt: skip
    call_ids, common, arguments, results = (_present(keys, names) for keys in content)
    return RowKeys(row, (call_ids, common, arguments, results))


def _usage_tests(rows: Iterable[Dialect]) -> tuple[tuple[Keys, UsageTest], ...]:
    """Markers of each row that knows model calls, with its test. Those with a reader of their own know more, and those
    that know calls by weaker signs only come last.
    """
    rows = tuple(rows)
    strong = _given(row.models.is_call for row in rows)
    having: list[tuple[Keys, UsageTest]] = []
    for row in rows:
        one = row.models
        if (test := one.has_usage or one.is_call) is not None:
            having.append((one.call_markers, (row.scopes, test, one.usage)))
    having.sort(key=lambda known: known[1][2] is None)
    for row in rows:
        one = row.models
        if one.may_be_call is not None and one.has_usage is one.is_call is None:
            having.append((one.call_markers, (row.scopes, partial(_may_be_call, one.may_be_call, strong), one.usage)))
    return tuple(having)


def _may_be_call(weak: Opinion, strong: Sequence[Opinion], span: SpanView) -> bool:
    """Whether weaker signs show a model call, and no row knows better."""
    return weak(span) is True and not any(test(span) is False for test in strong)


def _found(keys: Keys, attributes: Mapping[str, Any], joined: str) -> Keys:
    """The keys that are names of attributes, or with a dot at their end begin some.

    Parameters:
        joined: all names in one text: a key that does not stand in it begins none of what may be thousands.
    """
    return tuple(
        key
        for key in keys
        if key in attributes or (key[-1:] == "." and key in joined and any(name.startswith(key) for name in attributes))
    )


def _given(fields: Iterable[T | None]) -> tuple[T, ...]:
    """The fields that a row has filled in."""
    return tuple(one for one in fields if one is not None)


DIALECTS: Final = DialectTable(BUILT_IN)


def table_of(dialects: Sequence[Dialect]) -> DialectTable:
    """A sequence of rows as a table; the fields of the same rows are combined once."""
    return dialects if isinstance(dialects, DialectTable) else _combined(tuple(dialects))


@lru_cache(maxsize=64)
def _combined(rows: tuple[Dialect, ...]) -> DialectTable:
    return DIALECTS if rows == DIALECTS else DialectTable(rows)


def _is_rejected(attributes: Mapping[str, Any], known: KeySet) -> bool:
    """Spans that look like tools and are none: model calls that name a tool, pending copies, other MCP methods."""
    for key, test in known.not_a_tool:
        value = attributes[key]
        if value is not None and test(value):
            return True
    for key, value in known.copies:  # noqa: SIM110  a generator would cost more than the look-ups
        if attributes[key] == value:
            return True
    return False


def handed_over(span: SpanView, rows: Iterable[Dialect]) -> tuple[Dialect, str] | None:
    """The first row that takes a span for a hand-off, and the next agent, "" if the span does not say."""
    for row in rows:
        read = row.identity.handed_to
        name = read(span) if read is not None else None
        if name is not None:
            return row, name
    return None


def is_copy(span: SpanView, table: DialectTable = DIALECTS) -> bool:
    """Unfinished copies of spans that are still to come."""
    for key, value in table.copies:  # noqa: SIM110  a generator would cost more than the look-ups
        if span.attributes.get(key) == value:
            return True
    return False


def recognise(span: SpanView, dialects: Sequence[Dialect] = DIALECTS) -> Dialect | None:
    """The dialect of a tool span, None if the span is no tool span."""
    found = recognise_keys(span, table_of(dialects).key_set(span.attributes))
    return found.row if found is not None else None


def recognise_keys(span: SpanView, known: KeySet) -> RowKeys | None:
    """As ``recognise``, for a span whose key set is known: the row with the keys that the span has."""
    for one in known.declared:
        if one.row.matches(span):
            return one
    if not known.built_in or ((known.not_a_tool or known.copies) and _is_rejected(span.attributes, known)):
        return None
    scope = span.scope
    for one in known.built_in if scope.startswith(known.scopes) else known.of_any_scope:
        row = one.row
        if (not row.scopes or scope.startswith(row.scopes)) and row.matches(span):
            return one
    return None
