"""The acting agent, the conversation, the batch and the run of a tool span: from the span and its ancestors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from trajectory_guard.core.fingerprints import parse_names
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.tracking.scope import GRAPH, SUPERSTEP_CHARS
from trajectory_guard.dialects.base import Dialect, json_object, written
from trajectory_guard.dialects.span import CutOff, SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, KeySet, recognise_keys

T = TypeVar("T")
_METADATA_KEYS: Final = ("session_id", "conversation_id", "thread_id")
_PUSHED: Final = ("__pregel_push",)
_NO_METADATA: Final[Mapping[str, Any]] = {}
_IN_GRAPH: Final = "?"
_IN_TOOL: Final = "!"
_TOOL_SPAN: Final = "execute_tool "
_MAX_SPAN_NAMES: Final = 1_024
_MANY_STEPS: Final = 1_000_000_000
"""A number of a super-step from which on Python may not write it out."""
_HIDDEN_NAMES: Final = ("[REDACTED]", "__REDACTED__", "<redacted>", "<fully masked due to failed mask function>")
NO_NAME: Final = (None, "", "null", "None", "undefined", *_HIDDEN_NAMES, *(f'"{name}"' for name in _HIDDEN_NAMES))
"""Values in the place of an id that name nothing: Logfire writes the group of a trace without one as JSON text.
A mask that hides ids would give all conversations one."""


class ToolSpanNames:
    """The names that only tool spans have had, by scope.

    Some instrumentations (OpenInference's of LangChain) write all attributes of a span when it ends: until then nothing
    but its name shows that it is a tool call.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], str | None] = {}

    def learn(self, span: SpanView, tool: str | None) -> None:
        """Take note of a span that has ended. Of too many names all are forgotten.

        Parameters:
            tool: the name of the tool, "" if the span is that of a tool and does not count; None if it is that of none.
        """
        name = (span.scope, span.name)
        if name not in self._seen:
            if len(self._seen) >= _MAX_SPAN_NAMES:
                self._seen.clear()
            self._seen[name] = tool
        elif tool != "" and (known := self._seen.get(name)) is not None and tool != known:
            self._seen[name] = None if tool is None else ""  # no tool, or several under one name

    def tool_of(self, span: SpanView) -> str | None:
        """The tool that the name of a span shows, "" if it may be one of several; None if it shows none."""
        return self._seen.get((span.scope, span.name))


class LiveView(SpanView):
    """A span that has not ended. The spans below it ask the same of it: answers are kept until its view is replaced.

    Attributes:
        table: the table with which the answers were found.
        answers: by the function that was asked.
        tool: the tool that its name shows, as ``ToolSpanNames`` has learned it, while nothing else says what it is.
    """

    table: DialectTable | None = None
    answers: dict[Any, Any]
    tool: str | None = None

    @classmethod
    def of(cls, view: SpanView, table: DialectTable, tools: ToolSpanNames | None = None) -> LiveView:
        """The view of a span that has not ended."""
        live = cls(*view)
        live.table, live.answers = table, {}
        if tools is not None and table.markers.isdisjoint(view.attributes):
            live.tool = tools.tool_of(view)
        return live


def _asked_once(ask: Callable[[SpanView, DialectTable], T]) -> Callable[[SpanView, DialectTable], T]:
    """Keep the answers of a function about spans that have not ended."""

    @wraps(ask)
    def answer(span: SpanView, table: DialectTable) -> T:
        live: Any = span
        if live.__class__ is not LiveView or live.table is not table:
            return ask(span, table)
        answers: dict[Any, T] = live.answers
        try:
            return answers[ask]
        except KeyError:
            found = answers[ask] = ask(span, table)
            return found

    return answer


@_asked_once
def dialect_above(span: SpanView, table: DialectTable) -> Dialect | None:
    """The dialect of a tool span above another span; None if it is no tool span."""
    if table.markers.isdisjoint(span.attributes):
        return None
    found = recognise_keys(span, table.key_set(span.attributes))
    return found.row if found is not None else None


# --- the conversation ------------------------------------------------------------------------------------------


def conversation_id(attributes: Mapping[str, Any], table: DialectTable = DIALECTS) -> str | None:
    """Conversation, session or thread id on one span, None if it has none. Declared keys are asked first."""
    known = table.key_set(attributes)
    return named_conversation(attributes, known, metadata_of(attributes, known))


@_asked_once
def conversation_above(span: SpanView, table: DialectTable) -> str | None:
    """As ``conversation_id``, of a span above another one."""
    return conversation_id(span.attributes, table)


def named_conversation(attributes: Mapping[str, Any], known: KeySet, metadata: Mapping[str, Any]) -> str | None:
    """As ``conversation_id``, for a span whose key set and metadata are known.

    An id that a length limit has cut off is unknown: what is left may be that of other conversations, too.
    """
    for key in known.declared_conversations:
        value = attributes[key]
        if value not in NO_NAME and value.__class__ is not CutOff:
            return bounded_name(written(value))
    for key in known.conversations:
        value = attributes[key]
        if value not in NO_NAME and value.__class__ is not CutOff:
            plain = value.__class__ is str and value[0] != '"' and not value[MAX_NAME_CHARS:]
            return value if plain else _name(value)
    if metadata:
        for key in _METADATA_KEYS:
            if metadata.get(key) and metadata[key] not in NO_NAME:
                return _name(metadata[key])
    return None


def all_conversation_ids(
    attributes: Mapping[str, Any], table: DialectTable = DIALECTS, known: KeySet | None = None
) -> list[str]:
    """Every id on the span that may name the conversation: a gate may know it by another one than the tracer.

    Parameters:
        known: what the names of the attributes say, if the caller has looked.
    """
    known = known or table.key_set(attributes)
    found = []
    for key in known.conversations:
        value = attributes[key]
        if value and value not in NO_NAME and value.__class__ is not CutOff:
            plain = value.__class__ is str and value[0] != '"' and not value[MAX_NAME_CHARS:]
            found.append(value if plain else _name(value))
    if known.metadata:
        metadata = metadata_of(attributes, known)
        for key in _METADATA_KEYS:
            if metadata.get(key) and metadata[key] not in NO_NAME:
                found.append(_name(metadata[key]))  # noqa: PERF401  a function of its own would cost more
    return found


def metadata_of(attributes: Mapping[str, Any], known: KeySet) -> Mapping[str, Any]:
    """Metadata of the run that a vendor writes as one JSON object; empty if the span has none."""
    return json_object(attributes[known.metadata]) if known.metadata else _NO_METADATA


# --- the batch -------------------------------------------------------------------------------------------------


def task_of(span: SpanView, table: DialectTable = DIALECTS) -> str | None:
    """Label of the task in which a span lies; None outside LangGraph graphs."""
    known = table.key_set(span.attributes)
    return batch_and_task(span, known, metadata_of(span.attributes, known))[1]


def batch_and_task(span: SpanView, known: KeySet, metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Label shared by the calls of one LangGraph super-step (one model turn), and label of the task; None outside.

    Of two super-steps of one graph in one trace the label of the later one is the greater text.
    A task is the execution of one node, which LangGraph names by its checkpoint namespace.
    """
    attributes = span.attributes
    step = attributes[known.step_key] if known.step_key else None
    if step is not None:
        namespace = attributes[known.namespace_keys[0]] if known.namespace_keys else ""
    else:
        step = metadata.get("langgraph_step") if metadata else None
        if step is None:
            return None, None
        namespace = metadata.get("langgraph_checkpoint_ns", "")
    task = _unquote(namespace)
    graph = task.rpartition("|")[0]
    if graph:
        spread = attributes.get(f"{known.step_key.removesuffix('step')}path") if known.step_key else None
        if _is_functional(spread or metadata.get("langgraph_path")):
            return None, None
    service = span.resource.get("service.name", "") if span.resource else ""  # each of two counts for itself
    if not (step.__class__ is str or (step.__class__ is int and 0 <= step < _MANY_STEPS)):
        step = written(step)
    label = f"{span.trace_id}/{service}/{graph}/{step!s:>{SUPERSTEP_CHARS}}"
    if label[MAX_NAME_CHARS:] or task[MAX_NAME_CHARS:]:
        return bounded_name(label), bounded_name(task)
    return label, task or None


def _is_functional(path: Any) -> bool:
    """Whether a path is that of a task of the functional API, whose tasks all have one super-step, one after another.

    >>> path = ("__pregel_push", ("__pregel_pull", "agent"), 7, True)
    >>> _is_functional(path), _is_functional(("__pregel_push", "7", "False"))
    (True, False)
    """
    return isinstance(path, (list, tuple)) and path[:1] in (_PUSHED, list(_PUSHED)) and path[-1] in (True, "True")


# --- the agent -------------------------------------------------------------------------------------------------


def agent_name(span: SpanView, ancestors: Iterable[SpanView], table: DialectTable = DIALECTS) -> str | None:
    """Stable name of the acting agent: from the tool span, else the nearest agent span above it."""
    known = table.key_set(span.attributes)
    return named_agent(span, ancestors, table, known, metadata_of(span.attributes, known))


def named_agent(
    span: SpanView, ancestors: Iterable[SpanView], table: DialectTable, known: KeySet, metadata: Mapping[str, Any]
) -> str | None:
    """As ``agent_name``, for a span whose key set and metadata are known."""
    attributes = span.attributes
    for key in known.handed_by:
        if attributes[key]:
            return _name(attributes[key])  # OpenLIT names the next agent as the one of the span
    named = attributes.get("gen_ai.agent.name")
    if isinstance(named, str) and named not in table.placeholders:
        return named if not named[MAX_NAME_CHARS:] else bounded_name(named)
    for key in known.agent_keys:
        if attributes[key]:
            return _name(attributes[key])
    if metadata and metadata.get("lc_agent_name"):
        name = metadata["lc_agent_name"]
        return bounded_name(name if name.__class__ is str else written(name))
    if metadata or known.namespace_keys:
        spread = [attributes[key] for key in known.namespace_keys]
        name = _of_namespace((*spread, metadata.get("langgraph_checkpoint_ns")))
        if name:
            return name
    return (known.wrapped_metadata and _from_wrapped_metadata(span, known)) or _from_ancestors(ancestors, table)


def _of_namespace(namespaces: Iterable[Any]) -> str | None:
    """``alice:<uuid>|tools:<uuid>``: the enclosing sub-graph is the agent."""
    for value in namespaces:
        if isinstance(value, str) and "|" in value:
            return bounded_name(_unquote(value).split(":", 1)[0]) or None
    return None


def _from_wrapped_metadata(span: SpanView, known: KeySet) -> str | None:
    for read in known.wrapped_metadata:
        metadata = read(span)
        if metadata:
            name = metadata.get("lc_agent_name")
            return bounded_name(written(name)) if name else _of_namespace((metadata.get("langgraph_checkpoint_ns"),))
    return None


def _from_ancestors(ancestors: Iterable[SpanView], table: DialectTable) -> str | None:
    nameless = False
    for ancestor in ancestors:
        name = _agent_span_name(ancestor, table)
        if name is not None:
            return name
        if nameless and dialect_above(ancestor, table) is not None:
            return None  # an agent without a name runs inside this tool call: whoever made the call is another one
        nameless = nameless or is_agent_span(ancestor, table)
    return None


@_asked_once
def _agent_span_name(span: SpanView, table: DialectTable) -> str | None:
    """Name of the agent that a span stands for. The first row that can say decides."""
    if span.scope.startswith(table.named_scopes):
        name = _by_span_name(span, table)
        if name is not None:
            return bounded_name(name) or None
    for read, of_agents in table.key_set(span.attributes).agent_names:
        name = read(span)
        if name is not None:
            known = name not in table.placeholders and not (of_agents and _is_graph(span, table))
            return bounded_name(name) if known else None
    return None


def _by_span_name(span: SpanView, table: DialectTable) -> str | None:
    """Name of the agent of a span that only its own name shows to be an agent's, None if it is none."""
    for scopes, read in table.agents_by_span_name:
        if span.scope.startswith(scopes) and (name := read(span)) is not None:
            return name
    return None


def _is_graph(span: SpanView, table: DialectTable) -> bool:
    """The span of a whole LangGraph graph where the instrumentation presents it as an agent."""
    return span.scope in table.graph_scopes or not table.graph_markers.isdisjoint(span.attributes)


def is_agent_span(span: SpanView, table: DialectTable = DIALECTS, known: KeySet | None = None) -> bool:
    """Whether a span stands for one agent at work, or for one run of a graph, from input to answer.

    Parameters:
        known: what the names of its attributes say, if the caller has looked.
    """
    for test in (known or table.key_set(span.attributes)).agent_tests:
        if test(span):
            return not any(span.scope.startswith(scopes) and denies(span) for scopes, denies in table.no_agents)
    return span.scope.startswith(table.named_scopes) and _by_span_name(span, table) is not None


# --- the run ---------------------------------------------------------------------------------------------------


def instance_of(
    span: SpanView, ancestors: Sequence[SpanView], table: DialectTable = DIALECTS, *, unnamed: bool = False
) -> str | None:  # fmt: skip
    """Label of the agent instance that acts in a tool span; None if the span does not distinguish instances.

    LangGraph names the sub-graph's execution in the checkpoint namespace (``alice:<uuid>|tools:<uuid>``); elsewhere it
    is the id of the nearest agent span above the tool span, or, where agents resume, its name within the span above;
    without an agent, the id of the model call that holds the tool call (``Identity.question_scopes``).
    Calls that the code of a tool makes are not those of the agent that called it: their label is the id of its span.
    A graph at the top has a label of its own (``GRAPH``) where a program may invoke it several times side by side.

    Parameters:
        unnamed: nothing names a conversation, and all spans above are known.
    """
    known = table.key_set(span.attributes)
    return named_instance(span, ancestors, table, known, metadata_of(span.attributes, known), unnamed=unnamed)


def named_instance(
    span: SpanView, ancestors: Sequence[SpanView], table: DialectTable, known: KeySet, metadata: Mapping[str, Any],
    tool: str = "", *, unnamed: bool = False,
) -> str | None:  # fmt: skip
    """As ``instance_of``, for a span whose key set and metadata are known.

    Parameters:
        tool: the name of the tool that the span calls. A live span of another instrumentation around it whose name
            shows the same one is of the same call, and will say so when it ends.
    """
    graph = _graph_around(span, known, metadata) if metadata or known.namespace_keys else ""
    question = None
    for one in ancestors:  # as ``nearest_instance``, without the calls that it would cost at each step
        label = _own_label(one, table)
        if label is None:
            if one.__class__ is LiveView and one.tool is not None and not graph and not _is_around(one, span, tool):
                return one.span_id
            if question is None and one.scope in table.question_scopes:
                question = one.span_id
            continue
        if label is _IN_TOOL:
            return one.span_id if not graph or graph == _graph_of(one, table) else graph
        if graph:
            break
        if label is _IN_GRAPH:
            if (found := nearest_instance(ancestors, table)) is not None:
                return found[1]
            break
        return label or _resumed(one, ancestors, table)
    return graph or question or (_invocation(span, ancestors, table, known, metadata) if unnamed else None)


def _invocation(
    span: SpanView, ancestors: Sequence[SpanView], table: DialectTable, known: KeySet, metadata: Mapping[str, Any]
) -> str | None:
    """Label of one invocation of a graph by a program, None if the trace shows nothing else. Live spans show scopes."""
    if span.scope in table.graph_scopes and not known.step_key and "langgraph_step" not in metadata:
        return None
    top = next((one for one in reversed(ancestors) if one.scope in table.graph_scopes), None)
    return f"{GRAPH}{top.span_id}" if top is not None and top.parent_id else None


def _is_around(outer: LiveView, span: SpanView, tool: str) -> bool:
    """Whether a live span that only its name shows to be a tool's is of the same call, by another instrumentation."""
    return bool(tool) and outer.tool == tool and outer.scope != span.scope


def _graph_around(span: SpanView, known: KeySet, metadata: Mapping[str, Any]) -> str:
    """The execution of a LangGraph sub-graph in which a span lies, empty if it names none."""
    namespaces = [span.attributes[key] for key in known.namespace_keys]
    for namespace in namespaces or [metadata.get("langgraph_checkpoint_ns", "")]:
        graph = _unquote(namespace).rpartition("|")[0]
        if graph:
            return graph if not graph[MAX_NAME_CHARS:] else bounded_name(graph)
    return ""


@_asked_once
def _graph_of(span: SpanView, table: DialectTable) -> str:
    """As ``_graph_around``, of a tool span above another one."""
    known = table.key_set(span.attributes)
    return _graph_around(span, known, metadata_of(span.attributes, known))


def nearest_instance(spans: Sequence[SpanView], table: DialectTable) -> tuple[SpanView, str] | None:
    """The first of ``spans``, nearest first, that stands for an agent instance, and its label; None if none does.

    Without an agent it is the span of a model call that holds the tool calls, as in ``instance_of``.
    """
    in_graph = question = None
    for one in spans:
        label = _own_label(one, table)
        if label is None and question is None and one.scope in table.question_scopes:
            question = one, one.span_id
        if in_graph is not None:
            if label is _IN_TOOL:
                return in_graph, in_graph.span_id
            in_graph = None
        if label is _IN_GRAPH:
            in_graph = one
        elif label is not None and label is not _IN_TOOL:
            return one, label or _resumed(one, spans, table)
    return question


def called_by_tool(ancestors: Iterable[SpanView], table: DialectTable) -> bool:
    """Whether the code of a tool made a call, as for votes of a model: then it is not the agent's.

    Parameters:
        ancestors: the spans above the call, nearest first.
    """
    label = next((found for one in ancestors if (found := _own_label(one, table)) is not None), None)
    return label is _IN_TOOL


@_asked_once
def _own_label(span: SpanView, table: DialectTable) -> str | None:
    """Label of the agent instance that a span stands for; None if for none, "" if it depends on the spans above.

    ``_IN_GRAPH``: the span is that of a LangGraph agent, which is a node of the graph around it unless a tool calls it.
    ``_IN_TOOL``: the span is that of a tool call.
    """
    if not is_agent_span(span, table):
        return _IN_TOOL if dialect_above(span, table) is not None else None
    if _is_graph_node(span, table):
        return _IN_GRAPH
    return "" if span.scope.startswith(table.resuming_scopes) else span.span_id


def _resumed(span: SpanView, ancestors: Sequence[SpanView], table: DialectTable) -> str:
    """Label of an agent that goes on where it stopped when it runs again in the same agent: an iteration of a loop.

    Parameters:
        span: the span of the agent, one of the ancestors.
    """
    above = iter(ancestors)
    for nearer in above:
        if nearer is span:
            break
    for outer in above:
        if dialect_above(outer, table) is not None or outer.name.startswith(_TOOL_SPAN):
            break  # called as a tool, whose span may have nothing but its name before it ends
        if _is_instance(outer, table):
            return bounded_name(f"{outer.span_id}/{_agent_span_name(span, table) or span.name}")
    return span.span_id


@_asked_once
def _is_instance(span: SpanView, table: DialectTable) -> bool:
    return is_agent_span(span, table) and not _is_graph_node(span, table)


def _is_graph_node(span: SpanView, table: DialectTable) -> bool:
    """A node of a LangGraph graph that an instrumentation presents as an agent: a step of a run, not the run."""
    scope = span.scope
    return "langchain" in scope or "langgraph" in scope or _is_graph(span, table) or span.name in table.placeholders


def _name(value: Any) -> str:
    """An id or a name as it is kept."""
    name = _unquote(value)
    return name if not name[MAX_NAME_CHARS:] else bounded_name(name)


def _unquote(value: Any) -> str:
    """Langfuse writes metadata as JSON text: ``"\\"thread-A\\""``."""
    text: str = value if value.__class__ is str else written(value)
    if text[:1] == '"' and text[-1] == '"' and len(text) > 1:
        try:
            return str(parse_names(text))
        except ValueError:
            return text
    return text
