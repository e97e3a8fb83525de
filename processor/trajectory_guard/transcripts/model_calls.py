"""From a model span to the step of a model call: a digest of its input, its answer, and who called.

An input is hashed as the attributes hold it, so that a long history costs as little as its last 64 kB: equal calls of
one instrumentation have equal attributes. Only the end of an input of up to 64 kB is read as messages: behind an agent
that says the same again and again stands what it said before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from trajectory_guard.core.content.talk import digest, says_same
from trajectory_guard.core.fingerprints import canonical_bytes, parse_json
from trajectory_guard.core.steps import SUCCESS, StepRecord, Usage
from trajectory_guard.core.text_bounds import chars_of
from trajectory_guard.core.tracking.model_calls import TOOL_NAME
from trajectory_guard.dialects.base import Dialect, first
from trajectory_guard.dialects.semconv import SEMCONV
from trajectory_guard.dialects.span import CutOff, SpanView
from trajectory_guard.dialects.table import DIALECTS, DialectTable, MessageKeys
from trajectory_guard.spans.content import is_redacted
from trajectory_guard.spans.extract import agent_of, model_name, trajectory_id
from trajectory_guard.spans.identity import called_by_tool, instance_of, task_of
from trajectory_guard.transcripts.messages import input_items, output_messages
from trajectory_guard.transcripts.parts import read_messages
from trajectory_guard.transcripts.spanless import family_of

MAX_HASHED_CHARS: Final = 65_536
"""If an input is longer, its end and its length are hashed: the newest messages stand at the end."""
MAX_ANSWER_CHARS: Final = 65_536
"""A longer answer is not read: it would delay the application."""
MAX_ATTRIBUTES: Final = 10_000
"""A span with more attributes is not read. Some instrumentations write several attributes for each message."""
_KEPT_ANSWER_CHARS: Final = 4_000
_EXCERPT_CHARS: Final = 200
_EXCERPT_TAIL: Final = 4_096
_SYSTEM_KEYS: Final = ("gen_ai.system_instructions", "gen_ai.system_prompt", "system_prompt")
_SYSTEM_ROLES: Final = frozenset(("system", "developer"))

_NOTHING: Final = frozenset(("", "null", "[]", "{}", "[[]]"))
"""Values that instrumentations write where they did not capture any content."""
_WITHOUT_TEXT: Final = (".role", ".finish_reason")
"""Ends of the attributes of a message that stay where its content is not captured."""

_JSON: Final = re.compile(r"\A\s*(?:\[\s*[\[{]|\{\s*\")")
"""Beginning of messages as JSON; a text may begin with a bracket, as our own nudges do."""
_TEXT_IN_JSON: Final = re.compile(r'"(?:content|text)"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)')


def model_call(
    span: SpanView,
    above: Callable[[], Iterable[SpanView]],
    usage: Usage,
    trajectory_of: Callable[[SpanView], str] | None = None,
    table: DialectTable = DIALECTS,
    *,
    is_whole: bool = True,
) -> StepRecord | None:
    """The step of a model call; None if the span does not show what the model was asked and what it answered, or if a
    tool made the call.

    An answer that requests tools has no fingerprint: it equals no other one, and the tool steps speak for it. What the
    model says with them is its ``thought``.

    Parameters:
        above: the spans above it, nearest first; called only if the content was captured.
        usage: as read from the span.
        trajectory_of: as for ``spans.extract.read_step``.
        is_whole: no span above is missing in ``above``.
    """
    asked = _input_texts(span, table) if len(span.attributes) <= MAX_ATTRIBUTES else []
    if not asked:
        return None
    answered = _answer(span, table)
    if answered is None:
        return None
    answer, thought = answered
    ancestors, dialect = list(above()), dialect_of(span, table)
    if called_by_tool(ancestors, table):
        return None
    asked_before = _asked_before(span, answer, table) if answer else None
    trajectory = trajectory_id(span, ancestors, trajectory_of, table)
    return StepRecord(
        step_id=span.span_id,
        trajectory_id=trajectory,
        tool_name=TOOL_NAME,
        tool_args_hash=_digest((model_name(span, table) or "", *(asked_before or asked))) if answer else None,
        state_snapshot_hash=(digest(answer) if asked_before else _digest((answer,))) if answer else None,
        outcome_type=SUCCESS,
        agent_id=agent_of(span, ancestors, dialect, table),
        timestamp=span.start,
        duration=max(0.0, span.end - span.start),
        dialect=dialect.name,
        trace_id=span.trace_id,
        span_id=span.span_id,
        args={"prompt": _excerpt(asked[-1])} if answer else None,
        result=answer[:_KEPT_ANSWER_CHARS] or None,
        usage=usage._replace(seconds=0.0, asked=None),  # the call is the step itself, and no thinking before it
        run=instance_of(span, ancestors, table, unnamed=is_whole and trajectory == span.trace_id),
        model_scope=span.scope,
        task=task_of(span, table),
        thought=thought,
    )


def dialect_of(span: SpanView, table: DialectTable = DIALECTS) -> Dialect:
    """The row whose conventions a model span follows."""
    name = family_of(span, table)
    return next((row for row in table if row.name == name), SEMCONV)


def _digest(texts: Sequence[str]) -> str:
    """Digest of the last ``MAX_HASHED_CHARS`` characters, and of the lengths of all texts."""
    hashed = sha256()  # twice as fast as the others on 64 kB, where the processor computes it
    left = MAX_HASHED_CHARS
    for text in reversed(texts):
        hashed.update(b"%d\0" % len(text))
        if left > 0:
            hashed.update(text[-left:].encode("utf-8", "surrogatepass"))
            left -= len(text)
    return hashed.hexdigest()[:32]


# --- what the model was asked ------------------------------------------------------------------------------------


def _input_texts(span: SpanView, table: DialectTable) -> list[str]:
    """The input as the span holds it: the system prompt, then the messages. Empty if it is absent, hidden or cut."""
    found = list(_first_source(span, table.inputs, table))
    if not found or (len(found) == 1 and isinstance(found[0], str) and found[0].strip() in _NOTHING):
        return []
    system = first(span.attributes, _SYSTEM_KEYS)
    texts = [_text(value) for value in ((system, *found) if system is not None else found)]
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else []


def _first_source(span: SpanView, wanted: MessageKeys, table: DialectTable) -> Iterator[Any]:
    """The values of the first source that holds messages, undecoded; keys over which they are spread count as well."""
    attributes = span.attributes
    for key in table.message_keys(wanted, attributes):
        if key.endswith("."):
            spread = [(name, value) for name, value in attributes.items() if name.startswith(key)]
            if any(not name.endswith(_WITHOUT_TEXT) for name, _ in spread):
                for name, value in spread:
                    yield name
                    yield value
                return
        elif attributes.get(key) is not None:
            yield attributes[key]
            return
    for key in table.event_lists:
        if key in attributes:
            yield attributes[key]
            return
    for event in span.events:
        whole = first(event.attributes, wanted.keys)
        if whole is not None or event.name in wanted.events:
            yield event.name
            yield whole if whole is not None else event.attributes


def _text(value: Any) -> str | None:
    """A value as text; None if its content is hidden, cut off or too long to be written out."""
    if isinstance(value, str):
        cut = value.endswith("…") or (_JSON.match(value) is not None and value.rstrip()[-1:] not in ("]", "}"))
        return None if cut or isinstance(value, CutOff) or is_redacted(value) else value
    if isinstance(value, Mapping):
        value = dict(value)
    if chars_of(value, MAX_HASHED_CHARS) > MAX_HASHED_CHARS:
        return None
    try:
        return canonical_bytes(value).decode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):
        return None


def _excerpt(text: str) -> str:
    """The beginning of the last message, found without decoding the others."""
    if _JSON.match(text) is None:
        return text[:_EXCERPT_CHARS]
    start = max(text.rfind('"content"', -_EXCERPT_TAIL), text.rfind('"text"', -_EXCERPT_TAIL))
    found = _TEXT_IN_JSON.match(text, start, start + _EXCERPT_CHARS) if start >= 0 else None
    if found is None:
        return ""
    try:
        return str(parse_json(f'"{found[1]}"'))
    except ValueError:
        return found[1]


def _asked_before(span: SpanView, answer: str, table: DialectTable) -> list[str] | None:
    """The input of the model before it gave this very answer; None if the answer is not at the end of its input.

    An agent that is called again and only says the same leaves what it said in its input, which grows for that reason
    alone. Remarks of the system, which may remind it of something, change nothing.
    """
    items = (
        input_items(span, table)
        if sum(len(value) for value in span.attributes.values() if isinstance(value, str)) <= MAX_HASHED_CHARS
        else []
    )
    said = later = ""
    for place in range(len(items) - 1, -1, -1):
        message = next(iter(read_messages(items[place])), None)
        if message is None:
            return None
        if message.role in _SYSTEM_ROLES and place:
            continue
        own = message.role == "assistant" and not message.calls
        if not own or not says_same(message.text, later or answer):
            return [str(place), message.role, message.text or str(items[place])] if said else None
        said = later = message.text
    return None


# --- what it answered --------------------------------------------------------------------------------------------


def is_long_answer(span: SpanView, table: DialectTable) -> bool:
    """Whether the answer is too long to be read."""
    return chars_of(list(_first_source(span, table.outputs, table)), MAX_ANSWER_CHARS) > MAX_ANSWER_CHARS


def _answer(span: SpanView, table: DialectTable) -> tuple[str, str | None] | None:
    """The text of the answer, or, if it requests tools, an empty text and what it says with them; None if unknown."""
    if is_long_answer(span, table) or any(isinstance(one, CutOff) for one in _first_source(span, table.outputs, table)):
        return None
    messages = output_messages(span, table)
    text = "\n".join(message.text for message in messages if message.text).strip()
    is_known = text not in _NOTHING and not is_redacted(text)
    if any(message.calls for message in messages):
        return "", text[:_KEPT_ANSWER_CHARS] if is_known else None
    return (text, None) if is_known and not text.endswith("…") else None
