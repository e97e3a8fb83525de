"""The row of a vendor: how to recognise its spans, and under which attributes it keeps their content."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from trajectory_guard.core.fingerprints import parse_names
from trajectory_guard.dialects.span import SpanView

T = TypeVar("T")
N = TypeVar("N", tuple[str, ...], frozenset[str])
Keys = tuple[str, ...]
Test = Callable[[SpanView], bool]
Opinion = Callable[[SpanView], bool | None]
"""True or False if the row can decide, None if the span has no attribute that the row reads."""

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

MAX_NAME_CHARS: Final = 256
"""Length of the names of attributes that are kept beyond their span. A sender decides how long they are."""
_MAX_KEY_SETS: Final = 1_024
_MAX_KEPT_NAMES: Final = 128
"""Where a history is spread over several attributes a message, each span has names of its own."""


def executes_tool(span: SpanView) -> bool:
    """Whether a span is that of a tool call, by the semantic conventions."""
    return span.attributes.get("gen_ai.operation.name") == "execute_tool"


def never(span: SpanView) -> bool:
    """The ``matches`` of a row without tool spans of its own."""
    return False


class RawUsage(NamedTuple):
    """Tokens and cost (US dollars) of a model call, as found on its span."""

    input_tokens: Any = None
    output_tokens: Any = None
    cost: Any = None


@dataclass(frozen=True, eq=False)
class Identity:
    """Attributes that name the conversation and the acting agent.

    Attributes:
        conversations: keys of the conversation's or thread's id.
        sessions: keys of ids of wider scope, tried after the ``conversations`` of all rows.
        agents: keys of the agent's name, tried before all others, on the tool span and then on its ancestors; read for
            tool spans of this row.
        metadata_prefixes: beginnings of the attributes into which the vendor spreads the metadata of a LangChain run
            (``lc_agent_name``, ``langgraph_step``, ``langgraph_checkpoint_ns``).
        metadata_objects: attributes that hold the metadata of a run as one JSON object.
        wrapped_metadata: metadata of a run from within another attribute; empty if there is none.
        wrapped_in: the key of that attribute.
        agent_markers: keys, at least one of which every span carries that ``is_agent`` or ``agent_name`` knows.
        is_agent: whether a span stands for one agent at work, or for one run of a graph.
        no_agent: whether a span of the row's ``scopes`` that the conventions take for an agent is a part of its work.
        agent_name: name of the agent that a span stands for: "" if it stands for none, None if the row cannot say.
        name_keys: keys that ``agent_name`` reads; a span with one of them is kept as a possible ancestor.
        agent_by_span_name: name of the agent of a span that only its own name shows to be an agent's, None if it is
            none; asked first, of every span of the row's ``scopes``, whatever attributes it has.
        resumes: an agent that runs again within the same agent's span remembers what it did: spans of one name there
            are one instance, and siblings have different names.
        placeholders: constants that the vendor writes where an agent has no name.
        graph_scopes, graph_markers: instrumentation scopes, and attributes, of spans that present a whole LangGraph
            graph as an agent.
        question_scopes: instrumentation scopes in which the span of a model call holds the tool calls that it leads to
            and the calls of the model after them: without an agent above it, it is an instance of its own.
        turn_spans: instrumentation scopes in which one span holds all tool calls of a model turn, those of a block of
            code, each with the beginning of the name of that span.
        handed_by: keys of the name of the agent that hands the work over, on the span of a hand-off.
        handed_to: name of the agent to which a span hands the work over: "" if the span does not say, None if it is no
            hand-off.
        handoff_markers: keys, at least one of which every hand-off carries that is to be a step.
    """

    conversations: Keys = ()
    sessions: Keys = ()
    agents: Keys = ()
    metadata_prefixes: Keys = ()
    metadata_objects: Keys = ()
    wrapped_metadata: Callable[[SpanView], Mapping[str, Any]] | None = None
    wrapped_in: str = ""
    agent_markers: Keys = ()
    is_agent: Test | None = None
    no_agent: Test | None = None
    agent_name: Callable[[SpanView], str | None] | None = None
    name_keys: Keys = ()
    agent_by_span_name: Callable[[SpanView], str | None] | None = None
    resumes: bool = False
    placeholders: Keys = ()
    graph_scopes: Keys = ()
    graph_markers: Keys = ()
    question_scopes: Keys = ()
    turn_spans: Mapping[str, str] = field(default_factory=dict)
    handed_by: Keys = ()
    handed_to: Callable[[SpanView], str | None] | None = None
    handoff_markers: Keys = ()

    def __post_init__(self) -> None:
        """Spans of agents and of hand-offs are looked for by their markers: without any, none would ever be found."""
        if (self.is_agent or self.agent_name) and not self.agent_markers:
            raise ValueError("agent_markers: is_agent and agent_name need at least one key")
        if self.handed_to and not self.handoff_markers:
            raise ValueError("handoff_markers: handed_to needs at least one key")


@dataclass(frozen=True, eq=False)
class ModelCalls:
    """How the calls of a language model are recognised, and what they cost.

    A span is a model call if a row's ``is_call`` says so; else it is none if one says that. Where no row knows,
    ``may_be_call`` decides in the same way; after that, any of the ``markers``.

    Attributes:
        is_call: reads the attribute that distinguishes kinds of spans.
        may_be_call: reads weaker signs.
        markers: keys of messages, which only model calls have.
        usage_markers: keys, at least one of which every span with usage carries.
        has_usage: whether the tokens on a span are of this one call; by default, whether ``is_call`` says True, or, in
            a row without ``is_call``, ``may_be_call`` while no row's ``is_call`` says False.
        call_markers: keys, at least one of which every span has whose tokens are of one call; none: any may be one.
        usage: reads tokens and cost; None if they are unknown. By default the keys below, those of all rows together.
        input_tokens, output_tokens, costs: keys of the tokens, and of the cost in US dollars.
        names: keys of the model's name.
        response_ids: keys of the provider's id of the answer.
    """

    is_call: Opinion | None = None
    may_be_call: Opinion | None = None
    markers: Keys = ()
    usage_markers: Keys = ()
    has_usage: Test | None = None
    call_markers: Keys = ()
    usage: Callable[[SpanView], RawUsage | None] | None = None
    input_tokens: Keys = ()
    output_tokens: Keys = ()
    costs: Keys = ()
    names: Keys = ()
    response_ids: Keys = ()


@dataclass(frozen=True, eq=False)
class Messages:
    """Where messages stand on the spans of models and agents. A key with a dot at its end is the beginning of keys
    over which a list is spread (``llm.input_messages.0.message.role``).

    Attributes:
        inputs, outputs: keys of the messages that a model was sent, and of those that it answered.
        raw_inputs, raw_outputs: keys of any input or output, tried after the ``inputs`` or ``outputs`` of all rows.
        transcripts: keys of whole conversations on spans of agents and workflows.
        assemble_output: the answer put together from several attributes, tried after all keys; None if there is none.
        input_events, output_events: names of span events that hold one message each.
        event_lists: keys of lists of such events.
        tools: keys of the definitions of the tools that the model could call.
        workflow_inputs, workflow_outputs: keys of the input and output of LlamaIndex workflow steps.
        family_markers: keys by which spans of the vendor are known.
        in_family: whether a span without any row's ``family_markers`` is the vendor's.
        no_transcript: keys of spans that carry messages of a protocol, not of a conversation.
    """

    inputs: Keys = ()
    outputs: Keys = ()
    raw_inputs: Keys = ()
    raw_outputs: Keys = ()
    transcripts: Keys = ()
    assemble_output: Callable[[Mapping[str, Any]], Any] | None = None
    input_events: Keys = ()
    output_events: Keys = ()
    event_lists: Keys = ()
    tools: Keys = ()
    workflow_inputs: Keys = ()
    workflow_outputs: Keys = ()
    family_markers: Keys = ()
    in_family: Test | None = None
    no_transcript: Keys = ()


@dataclass(frozen=True, eq=False)
class Dialect:
    """One row of the table. Compared by identity: tables of dialects are keys on the hot path.

    Attributes:
        name: short name, reported with every step.
        matches: whether a span is a tool span of this dialect; sees attributes that hold at least one marker key.
        markers: attribute keys, at least one of which every tool span of the dialect carries.
        scopes: beginnings of the instrumentation scopes of the vendor: of spans of another scope the row is not asked
            whether they are its tool spans or model calls. None: spans of any scope may be.
        tool_name: the tool's name from a matching span; None if it is a tool span that must not count. By default the
            name of the span.
        arguments, results, call_ids: keys tried before the common ones, in order.
        single_argument: a bare string stands for the value of a one-argument call whose argument name was dropped.
        empty_arguments: whether missing arguments beside a visible result mean "no arguments" rather than "unknown".
        empty_result: whether the missing result of this span, successful and with visible arguments, means "returned
            nothing".
        adjust: last word on the raw fields (call id, arguments, result), for quirks that fit no rule.
        not_a_tool: attributes with a test of their value: if true, the span only looks like a tool span of any row.
        copies: attributes with the value that marks an unfinished copy of a span that is still to come.
        failed_when: attributes with the value that says, on a tool span of any row, that the call failed.
        succeeded: whether a call of this row did not fail although its span ended with an error; asked of such spans.
        failed: whether a call of this row failed although no attribute says so; asked if the span shows no result.
        refused_when: attributes with a test of their value: if true, a person or a policy refused the call.
        status_messages: keys of texts that say how a call ended, beside the status of the span.
        awaits_approval: whether a call without a result waits for a person's approval.
        deferred: whether the framework itself says that a call without a result was put off, for a person or another
            program; asked even if the arguments are unknown.
        identity, models, messages: attributes of other spans; see there.
        declared: the configuration declares the row: it is tried first, even on spans that look like no tool.
    """

    name: str
    matches: Test = never
    markers: Keys = ()
    scopes: Keys = ()
    tool_name: Callable[[SpanView], str | None] = field(default=lambda span: span.name or None)
    arguments: Keys = ()
    results: Keys = ()
    call_ids: Keys = ()
    single_argument: bool = False
    empty_arguments: bool = False
    empty_result: Test | None = None
    adjust: Callable[[SpanView, RawCall], RawCall] | None = None
    not_a_tool: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    copies: Mapping[str, Any] = field(default_factory=dict)
    failed_when: Mapping[str, Any] = field(default_factory=dict)
    succeeded: Test | None = None
    failed: Test | None = None
    refused_when: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    status_messages: Keys = ()
    awaits_approval: Test | None = None
    deferred: Test | None = None
    identity: Identity = Identity()
    models: ModelCalls = ModelCalls()
    messages: Messages = Messages()
    declared: bool = False

    def __post_init__(self) -> None:
        """Tool spans are looked for by their markers, agents without any by their scope: without it, none is found."""
        if self.matches is not never and not self.markers:
            raise ValueError(f"{self.name}: markers: matches needs at least one key")
        identity = self.identity
        if (identity.agent_by_span_name or identity.no_agent or identity.resumes) and not self.scopes:
            raise ValueError(f"{self.name}: scopes: agent_by_span_name, no_agent and resumes need at least one scope")


class RawCall(NamedTuple):
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


def firsts(attributes: Mapping[str, Any], wanted: Iterable[Keys]) -> list[Any]:
    """As ``first``, for several lists of keys that are all present: their values, in one pass."""
    found = []
    for keys in wanted:
        value = None
        for key in keys:
            value = attributes[key]
            if value is not None:
                break
        found.append(value)
    return found


def named_by(*keys: str, prefixes: Keys = (), suffixes: Keys = ()) -> Callable[[SpanView], str | None]:
    """A ``tool_name`` function: the first present key, else the span name without a known prefix or suffix."""

    def tool_name(span: SpanView) -> str | None:
        attributes = span.attributes
        for key in keys:
            value = attributes.get(key)
            if value is not None:
                if isinstance(value, str) and value:
                    return value
                break
        name = span.name
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        for suffix in suffixes:
            name = name.removesuffix(suffix)
        return name or None

    return tool_name


def is_span(name: str) -> Opinion:
    """An ``is_call`` for model calls that are known by the name of their span alone."""

    def is_call(span: SpanView) -> bool | None:
        return True if span.name == name else None

    return is_call


def is_kind(key: str, kind: str) -> Opinion:
    """An ``is_call`` for a vendor whose spans name their kind in an attribute, ``kind`` being that of model calls."""

    def is_call(span: SpanView) -> bool | None:
        found = span.attributes.get(key)
        return None if found is None else found == kind

    return is_call


HANDOFF_KEYS: Final[Keys] = ("gen_ai.handoff.from_agent", "gen_ai.handoff.to_agent")


def hands_over(key: str, *kinds: str) -> Callable[[SpanView], str | None]:
    """A ``handed_to`` for spans that name their kind in an attribute, and the next agent in one of ``HANDOFF_KEYS``."""

    def handed_to(span: SpanView) -> str | None:
        if not is_one_of(span.attributes.get(key), kinds):
            return None
        return text_or_empty(span.attributes.get("gen_ai.handoff.to_agent"))

    return handed_to


def begins_with(start: str) -> Callable[[Any], bool]:
    """A test of an attribute's value: whether it is text that begins like this."""

    def test(value: Any) -> bool:
        return isinstance(value, str) and value.startswith(start)

    return test


def text_or_empty(value: Any) -> str:
    """An attribute that should be text, "" if it is none."""
    return value if isinstance(value, str) else ""


def is_one_of(value: Any, names: Container[str]) -> bool:
    """Whether an attribute that should be text is one of these names. A list or a map has no place in a set."""
    return isinstance(value, str) and value in names


def written(value: Any) -> str:
    """An attribute as text that may be a number: an id, or the name of something.

    Python writes no integer of more than 4,300 digits in decimal, and no value that is nested too deeply.
    """
    try:
        return str(value)
    except (ValueError, RecursionError):
        return hex(value) if isinstance(value, int) else type(value).__name__


def keep_by_names(memo: dict[N, T], names: N, answer: T) -> None:
    """Keep an answer by the names of attributes, within bounds of their number and size."""
    if len(names) <= _MAX_KEPT_NAMES and max(map(len, names), default=0) <= MAX_NAME_CHARS:
        if len(memo) >= _MAX_KEY_SETS:
            memo.clear()
        memo[names] = answer


def json_object(value: Any) -> Mapping[str, Any]:
    """An attribute that holds a JSON object as text, decoded; empty if it does not."""
    if isinstance(value, str):
        return _parsed(value) if value[:1] == "{" else {}
    return value if isinstance(value, Mapping) else {}


def json_text(value: Any) -> str | None:
    """An attribute that holds a text written as JSON, decoded; None if it does not."""
    if not isinstance(value, str) or value[:1] != '"':
        return None
    try:
        return str(parse_names(value))
    except ValueError:
        return None


@lru_cache(maxsize=4)
def _parsed(text: str) -> Mapping[str, Any]:
    """One text of a span is read up to four times; the mapping is shared and must not be changed."""
    try:
        decoded = parse_names(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
