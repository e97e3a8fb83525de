"""Steps from the messages of a LangChain-style graph state.

Messages show calls that leave no tool span (unknown tool, denied call), hidden content, and runs without any
instrumentation. Messages are read by attribute, so that this module needs no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from trajectory_guard.core.calls import text_without_id
from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.core.content.masking import result_hash
from trajectory_guard.core.content.outcome import classify
from trajectory_guard.core.fingerprints import args_hash, text_digest
from trajectory_guard.core.names import MAX_NAME_CHARS, bounded_name
from trajectory_guard.core.steps import (
    ERROR,
    NOT_RUN,
    REFUSED_BY_GUARD,
    SUCCESS,
    ModelTokens,
    Outcome,
    StepRecord,
    Usage,
)
from trajectory_guard.core.text import SIGNATURE
from trajectory_guard.core.tools import is_handoff
from trajectory_guard.gates.call_ids import (
    WITHOUT_CALLS,
    call_name,
    own_id,
    own_ids_answered,
    requests_for,
    requests_of,
)
from trajectory_guard.spans.content import as_text
from trajectory_guard.spans.extract import tokens

MARK: Final = "trajectory_guard"
MAX_LOOK_BACK: Final = 256
_MAX_DELIVERED: Final = 4
_MAX_DELIVERY_CHARS: Final = 20_000
_MIN_DELIVERY_CHARS: Final = 300  # a shorter remark is the reason for the hand-over, in new words each time
_SOURCE: Final = "lc_source"
_SUMMARY: Final = "summarization"


def is_tool_message(message: Any) -> bool:
    """Whether a message is the result of a tool call."""
    return getattr(message, "type", None) == "tool"


def is_answer(message: Any) -> bool:
    """Whether a message is the model's answer: it requests no tool."""
    return getattr(message, "type", None) == "ai" and not requests_of(message)


def is_guard_message(message: Any) -> bool:
    """Whether a message was written by a gate."""
    return MARK in (getattr(message, "additional_kwargs", None) or {}) or MARK in (
        getattr(message, "response_metadata", None) or {}
    )


def is_summary(message: Any) -> bool:
    """Whether a message stands for older ones that were removed: the user turn that they were in goes on.

    LangChain's ``SummarizationMiddleware`` marks its message; ``with_summaries`` marks those of others.
    """
    return bool((getattr(message, "additional_kwargs", None) or {}).get(_SOURCE) == _SUMMARY)


class Shown:
    """Stands for a message by which a tool shows a picture, a recording or a file behind its result.

    Not every API takes one as the result of a call, so tools write it as the user. No person has spoken there.
    """

    __slots__ = ("additional_kwargs", "content", "id")
    type = "shown"

    def __init__(self, message: Any) -> None:
        self.additional_kwargs, self.content, self.id = message.additional_kwargs, message.content, message.id


def with_shown(messages: Sequence[Any]) -> Sequence[Any]:
    """``messages`` with ``Shown`` in place of those that follow the results of calls, and hold more than text."""
    lists = [at for at, one in enumerate(messages) if one.content.__class__ is list and is_written_as_user(one)]
    found = [at for at in lists if not is_guard_message(messages[at]) and _holds_more(messages[at])]
    if not found:
        return messages
    replaced = list(messages)
    for at in found:
        if at and (is_tool_message(replaced[at - 1]) or replaced[at - 1].__class__ is Shown):
            replaced[at] = Shown(messages[at])
    return replaced


def _holds_more(message: Any) -> bool:
    """Whether a message has a block that is no text."""
    return any(isinstance(block, dict) and block.get("type") != "text" for block in message.content)


def _showing(answer: Any, shown: Sequence[Shown]) -> Any:
    """A tool message with the blocks of the messages behind it, of which the last comes first."""
    own = answer.content if isinstance(answer.content, list) else [{"type": "text", "text": answer.content}]
    return answer.model_copy(update={"content": [*own, *(block for one in reversed(shown) for block in one.content)]})


def is_written_as_user(message: Any) -> bool:
    """Whether a message has the role of the user, in LangChain's class for it or in that for a role of any name."""
    kind = getattr(message, "type", None)
    return kind == "human" or (kind == "chat" and message.role in ("user", "human"))


_OF_USER: Final = ("human", "chat")


def is_of_person(message: Any) -> bool:
    """Whether a message is one that a person wrote, as far as the graph state shows."""
    return is_written_as_user(message) and not is_guard_message(message) and not is_summary(message)


def with_summaries(messages: Sequence[Any], turn: str, turns: Collection[str], known: Collection[str]) -> Sequence[Any]:
    """``messages`` with a mark on summaries that bear none: a person's message never comes before calls known already.

    Parameters:
        turn: label of the user turn that goes on; turns: labels of earlier ones.
        known: step ids of its calls that a gate has read.
    """
    marked, seen = messages, False
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if is_of_person(message):
            label = _turn_at(messages, position)
            if not seen or label == turn or label in turns:
                break
            kwargs = {**message.additional_kwargs, _SOURCE: _SUMMARY}
            marked = [*marked[:position], message.model_copy(update={"additional_kwargs": kwargs}),
                      *marked[position + 1 :]]  # fmt: skip
        seen = seen or any(step_id_of(message, call) in known for call in requests_of(message))
    return marked


def open_calls(messages: Sequence[Any]) -> set[str]:
    """Ids of the newest tool calls without a result: no message may be inserted before their results.

    Malformed calls do not count: no tool runs them, and ``create_agent`` answers them later, in front of what follows.
    """
    answered: set[str] = set()
    for message in reversed(messages[-MAX_LOOK_BACK:]):
        if is_tool_message(message):
            answered.add(message.tool_call_id)
        elif getattr(message, "type", None) == "ai":
            return {str(call.get("id")) for call in getattr(message, "tool_calls", None) or ()} - answered
    return set()


def was_nudged(messages: Sequence[Any], advised: Collection[str] = ()) -> bool:
    """Whether the current user turn holds a message by which a gate nudged the agent because of a loop.

    Parameters:
        advised: ``text_digest`` of nudges that were about something else, and precede no stop.
    """
    for message in reversed(messages):
        if _is_nudge(message):
            if not (advised and text_digest(str(message.content)) in advised):
                return True
        elif is_of_person(message):
            return False
    return False


def calls_before_nudges(messages: Sequence[Any], advised: Collection[str] = ()) -> set[str]:
    """Step ids of the newest call before each nudge because of a loop in the current user turn.

    Parameters:
        advised: as for ``was_nudged``.
    """
    found: set[str] = set()
    newest, behind = messages[-MAX_LOOK_BACK:], False
    if not [one for one in newest if getattr(one, "additional_kwargs", None) and _is_nudge(one)]:
        return found  # as in most runs
    for message in reversed(newest):
        if _is_nudge(message):
            behind = behind or not (advised and text_digest(str(message.content)) in advised)
        elif is_of_person(message) or (is_answer(message) and is_guard_message(message)):  # a stop ended the run
            break
        elif behind and (calls := requests_of(message)):
            found.add(step_id_of(message, calls[-1]))
            behind = False
    return found


def with_marks(messages: Sequence[Any], digests: Sequence[str]) -> Sequence[Any]:
    """``messages`` with the marks of nudges restored: states of plain ``{"role", "content"}`` lose them.

    A state that keeps nothing of the gate knows no digest: there the opening of a nudge has to do.

    Parameters:
        digests: ``text_digest`` of the nudges that were given.
    """
    lost = [
        at
        for at, message in enumerate(messages)
        if getattr(message, "type", None) in ("human", "system")
        and not is_guard_message(message)
        and isinstance(message.content, str)
        and (message.content.startswith(SIGNATURE) or (digests and text_digest(message.content) in digests))
    ]
    if not lost:
        return messages
    marked = list(messages)
    for at in lost:
        marked[at] = marked[at].model_copy(update={"additional_kwargs": {MARK: {"intervention": "NUDGE"}}})
    return marked


def _mark(message: Any) -> Mapping[str, Any]:
    further = getattr(message, "additional_kwargs", None)
    if not further:
        return _NO_MARK  # as of most messages
    mark = further.get(MARK)
    return mark if isinstance(mark, Mapping) else _NO_MARK


def _is_nudge(message: Any) -> bool:
    return _mark(message).get("intervention") == "NUDGE"


_NO_MARK: Final[Mapping[str, Any]] = MappingProxyType({})


def is_refusal_message(message: Any) -> bool:
    """Whether a tool message is a gate's refusal to run the call."""
    return bool(_mark(message).get("refused"))


def turn_of(messages: Sequence[Any]) -> str | None:
    """Label of the current user turn: the id of (or else the count up to) the newest message a person wrote."""
    newest = _newest_of_person(messages)
    return _turn_at(messages, newest) if newest >= 0 else None


def _newest_of_person(messages: Sequence[Any]) -> int:
    """Position of the newest message that a person wrote, -1 if there is none."""
    for position in range(len(messages) - 1, -1, -1):
        if getattr(messages[position], "type", None) in _OF_USER and is_of_person(messages[position]):  # few are
            return position
    return -1


def is_first_round(messages: Sequence[Any]) -> bool:
    """Whether the model has requested calls once, and no more often, since a person wrote."""
    rounds = 0
    for message in reversed(messages):
        if getattr(message, "tool_calls", None):
            rounds += 1
            if rounds > 1:
                return False
        elif is_of_person(message):
            break
    return rounds == 1


def _turn_at(messages: Sequence[Any], position: int) -> str:
    return bounded_name(str(getattr(messages[position], "id", None) or position))


def new_steps(
    messages: Sequence[Any], *, trajectory_id: str, known: Callable[[str], bool], now: float
) -> list[StepRecord]:
    """Steps for the calls with a result that are not ``known`` yet, oldest first.

    Reading goes backwards and ends at the first model turn of which a call is known, where a person spoke before the
    calls found (unevaluated calls of an earlier turn no longer count), or after ``MAX_LOOK_BACK`` messages, at the
    model turn whose results they end with. Model messages that stand next to each other were written side by side, by
    branches of the graph, and are one turn.
    """
    answers: dict[str, Any] = {}
    shown: dict[str, list[Shown]] = {}
    newest_shown: list[Shown] = []
    found: list[list[StepRecord]] = []
    in_turn = False  # results were read, and not yet the message that requested them
    beside, batch = -1, ""  # position and turn of the model message read last
    last = len(messages) - 1
    for behind, message in enumerate(reversed(messages)):
        position = last - behind
        if is_tool_message(message):
            answers[message.tool_call_id] = message
            if newest_shown:
                shown[message.tool_call_id], newest_shown = newest_shown, []
            in_turn = True
            continue
        if message.__class__ is Shown:
            newest_shown.append(message)
            continue
        if behind >= MAX_LOOK_BACK and not in_turn:
            break
        if getattr(message, "type", None) == "ai" and (calls := requests_of(message)):
            answered = [call for call in calls if call.get("id") in answers]
            fresh = [call for call in answered if not known(step_id_of(message, call))]
            for call in fresh if shown else ():
                if call["id"] in shown:  # some models use the ids again: of the calls before, it shows nothing
                    answers[call["id"]] = _showing(answers[call["id"]], shown.pop(call["id"]))
            batch, beside = batch if beside == position + 1 else _batch_label(message), position
            steps = [
                _with_delivery(_step(message, call, answers[call["id"]], trajectory_id, now, batch), messages, position)
                for call in fresh
            ]
            if steps:
                steps[0] = steps[0]._replace(usage=usage_of(message))
            found.append(steps)
            in_turn = False
            if len(fresh) < len(answered) or behind >= MAX_LOOK_BACK:
                break
        elif found and is_of_person(message):
            break
    return [step for steps in reversed(found) for step in steps]


class TurnCall(NamedTuple):
    """A call of the current user turn that was answered.

    Fields:
        tool, args: as the model requested it.
        step_id: as in ``new_steps``.
        text, outcome: the answer.
        batch: label of the model turn.
        by_guard: a gate answered it, without running it.
    """

    tool: str
    args: Any
    step_id: str
    text: str
    outcome: Outcome
    batch: str
    by_guard: bool


def calls_of_turn(messages: Sequence[Any]) -> Iterator[TurnCall]:
    """The answered calls since a person spoke last, newest first."""
    answers: dict[str, Any] = {}
    beside = turn = -1  # positions of the model message read last, and of the newest one of its turn
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        kind = getattr(message, "type", None)
        if is_tool_message(message):
            answers.setdefault(message.tool_call_id, message)
        elif is_of_person(message):
            return
        elif kind == "ai":
            turn, beside = turn if beside == position + 1 else position, position
            for call in reversed(requests_of(message)):
                answer = answers.pop(str(call.get("id")), None)  # some models use the ids again
                if answer is not None:
                    outcome, text = answer_of(answer)
                    yield TurnCall(
                        str(call.get("name") or ""), call.get("args"), step_id_of(message, call), text,
                        outcome, str(turn), is_refusal_message(answer) or text.startswith(NOT_RUN),
                    )  # fmt: skip


def first_request(message: Any) -> dict[str, Any] | None:
    """The first tool call that a message requests, None if it requests none."""
    if getattr(message, "type", None) in WITHOUT_CALLS:
        return None
    calls = getattr(message, "tool_calls", None) or getattr(message, "invalid_tool_calls", None)
    return (calls[0] if getattr(message, "tool_calls", None) else requests_of(message)[0]) if calls else None


def requested_in(message: Any) -> list[str]:
    """The step ids of the calls that a model message requests; none if it has no id, for call ids are used again."""
    return [step_id_of(message, call) for call in requests_of(message)] if getattr(message, "id", None) else []


def requested_in_turn(messages: Sequence[Any]) -> Iterator[str]:
    """The step ids of the calls that were requested since a person spoke last, newest first."""
    for message in reversed(messages[-MAX_LOOK_BACK:]):
        if is_of_person(message):
            return
        yield from requested_in(message)


def batch_in(message: Any) -> tuple[str, list[str]] | None:
    """Label of a model turn, as its steps have it, and the ids of the calls that it requests; None without calls."""
    ids = [str(name) for call in requests_of(message) if (name := own_id(call))]
    return (_batch_label(message), ids) if ids else None


def _batch_label(message: Any) -> str:
    return bounded_name(str(getattr(message, "id", None) or call_name(requests_of(message)[0])))


def answer_of(answer: Any) -> tuple[Outcome, str]:
    """Outcome and text of a tool message, as the model reads it: MCP's content blocks may be written down as text."""
    content = answer.content
    text = content_text(content)
    inner = unwrap(text)
    if inner is not None:
        text = inner.text
    stated = inner is not None and inner.error is True and content.__class__ is str
    failed = stated or getattr(answer, "status", "success") == "error"
    outcome = classify(text, failed=failed, refused=is_refusal_message(answer))
    return outcome, text_without_id(text, next(own_ids_answered([answer]), None)) if outcome == ERROR else text


def requesting(messages: Sequence[Any], call: Mapping[str, Any]) -> list[str]:
    """The step id of the newest request for a call; of several if neither ids nor arguments tell them apart."""
    message, calls = request_with(messages, call) or (None, [])
    return [step_id_of(message, one) for one in calls]


def request_with(messages: Sequence[Any], call: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]] | None:
    """The newest model message that requests a call, and its ``requests_for`` the call; None if there is none."""
    for message in reversed(messages[-MAX_LOOK_BACK:]):
        if found := requests_for(call, requests_of(message)):
            return message, found
    return None


def step_id_of(message: Any, call: dict[str, Any]) -> str:
    """The step id of a call. The call id alone is not enough: some models restart its numbering in every turn."""
    found = f"{message.id}/{call.get('id')}" if getattr(message, "id", None) else call_name(call)
    return found if not found[MAX_NAME_CHARS:] else bounded_name(found)


def _step(message: Any, call: dict[str, Any], answer: Any, trajectory_id: str, now: float, batch: str) -> StepRecord:
    kind, text = answer_of(answer)
    args, call_id = call.get("args"), str(own_id(call))
    return StepRecord(
        step_id=step_id_of(message, call),
        trajectory_id=trajectory_id,
        tool_name=bounded_name(str(call.get("name") or getattr(answer, "name", None) or "")),
        tool_args_hash=args_hash(args),
        state_snapshot_hash=result_hash(kind, text),
        outcome_type=kind,
        agent_id=bounded_name(message.name) if getattr(message, "name", None) else None,
        timestamp=now,
        call_id=bounded_name(call_id),
        dialect="messages",
        args=args,
        result=text,
        batch=batch,
        error_class=REFUSED_BY_GUARD if is_refusal_message(answer) else None,
        thought=content_text(message.content) or None,
    )


def _with_delivery(step: StepRecord, messages: Sequence[Any], position: int) -> StepRecord:
    """A hand-over with what the agent had written before it: the tool's own result only says that it took place."""
    if not is_handoff(step.tool_name) or step.outcome_type != SUCCESS:
        return step
    written = [step.thought] if step.thought else []
    for before in reversed(messages[max(0, position - _MAX_DELIVERED) : position]):
        if not is_answer(before) or is_guard_message(before):
            break
        written.append(content_text(before.content))
    if sum(map(len, written)) < _MIN_DELIVERY_CHARS:
        return step
    text = "\n".join([step.result or "", *reversed(written)])[:_MAX_DELIVERY_CHARS]
    return step._replace(result=text, state_snapshot_hash=result_hash(step.outcome_type, text))


def content_text(content: Any) -> str:
    """The text of a message: blocks of text, without those of reasoning and tool calls."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        blocks: Iterable[Any] = (
            block.get("text", "") if isinstance(block, dict) and block.get("type") == "text" else block
            for block in content
            if not (
                isinstance(block, dict) and block.get("type") in ("tool_use", "function_call", "thinking", "reasoning")
            )
        )
        parts = list(blocks)
        if all(isinstance(part, str) for part in parts) and (parts or content):
            return "\n".join(parts)
    return as_text(content)


def usage_of(message: Any) -> Usage | None:
    """Tokens of the model call that wrote a message; None if it does not say."""
    usage = getattr(message, "usage_metadata", None)
    if not usage:
        return None
    asked, answered = tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens"))
    metadata = getattr(message, "response_metadata", None) or {}
    model = metadata.get("model_name") or metadata.get("model")
    unpriced = (ModelTokens(bounded_name(model), asked, answered),) if isinstance(model, str) else ()
    return Usage(asked, answered, unpriced=unpriced)
