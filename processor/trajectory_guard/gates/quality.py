"""Quality of the answers in the messages of a graph state: log-probabilities, and texts for the judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trajectory_guard.board.flags import Flag
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.calls import call_key
from trajectory_guard.core.policy import Level
from trajectory_guard.core.quality import LOW_LOGPROB, quality_of_logprob
from trajectory_guard.gates.messages import MAX_LOOK_BACK, is_answer, is_guard_message, is_of_person
from trajectory_guard.otel.publishing import quotes_nothing
from trajectory_guard.process.containment import contain
from trajectory_guard.quality.judge import MAX_REQUEST_CHARS
from trajectory_guard.quality.logprobs import mean_logprob
from trajectory_guard.quality.quality import LOGPROBS, Quality


def has_advice(board: FlagBoard, messages: Sequence[Any], thread_id: str | None, namespace: str) -> bool:
    """Whether a nudge about the quality of answers waits, which needs no tool call to be given."""
    if thread_id is None:
        return False
    trajectory = board.resolve_alias(thread_id)
    read_quality(board, trajectory, messages, namespace)
    return board.has_advice(trajectory, agents_of(messages, namespace))


def with_advice(board: FlagBoard, trajectory: str, flag: Flag, messages: Sequence[Any], namespace: str) -> Flag:
    """The flag, or advice about the quality of answers where nothing else is due."""
    if flag.level is not Level.OBSERVE:
        return flag
    verdict = board.advice(trajectory, agents_of(messages, namespace))
    return flag if verdict is None else flag._replace(level=Level.NUDGE, verdict=verdict)


def read_quality(
    board: FlagBoard, trajectory: str, messages: Sequence[Any], instance: str | None = None, *,
    answers: str | None = None,
) -> None:  # fmt: skip
    """Score the model's messages that no gate has read yet, as far as they can be scored.

    In a trajectory that a gate sees for the first time, messages before the last one of a person belong to the past:
    another process has acted on them. They count for the trend, and nothing follows from them.

    Parameters:
        instance: as for ``agents_of``, None if the gate is known already.
        answers: the request that these messages answer, which is not among them; None where it is. Of these messages
            those without an id are left out: LangGraph gives them one when it stores them.
    """
    quality = board.quality
    if quality is None:
        return
    try:
        _read(board, quality, trajectory, messages, None if instance is None else name_of(instance), answers)
    except Exception:  # noqa: BLE001  it costs these scores, and no decision of the gate
        withheld = quotes_nothing(board)
        contain(board.counts, "quality", "messages could not be scored, contained", quotes_nothing=withheld)


def _read(
    board: FlagBoard, quality: Quality, trajectory: str, messages: Sequence[Any], gate: str | None, answers: str | None
) -> None:
    newest_first = range(len(messages) - 1, max(0, len(messages) - MAX_LOOK_BACK) - 1, -1)
    places: list[int] = []

    def keys() -> Iterator[bytes]:
        for at in newest_first:
            if _is_of_model(messages[at], named=answers is not None):
                places.append(at)
                yield _key(messages[at], at)

    count, first = board.new_messages(trajectory, gate, keys())
    asked = next((at for at in newest_first if is_of_person(messages[at])), -1) if first else -1
    for at in reversed(places[:count]):
        message, past = messages[at], first and at < asked
        agent = str(getattr(message, "name", None) or "")
        mean = mean_logprob(message)
        if mean is not None:
            quality.counts["quality.low"] += mean < LOW_LOGPROB
            board.publish_score(
                board.record_score(
                    trajectory, quality_of_logprob(mean), name=LOGPROBS, source=LOGPROBS, agent=agent, silent=past
                )
            )
        if quality.judge is not None and not past and is_answer(message):
            response = _text(message)
            if response.strip():
                request = request_in(messages[:at]) if answers is None else answers
                board.judge_answer(trajectory, request, response, agent_name=agent)


def agents_of(messages: Sequence[Any], instance: str) -> frozenset[str]:
    """Names of the agents that a gate speaks to: that of its sub-graph; at the top those that wrote the messages.

    Parameters:
        instance: path of tasks that leads to the graph run of the gate (``alice:<id>``), empty at the top.
    """
    if instance:
        return frozenset((name_of(instance),))
    newest = messages[-MAX_LOOK_BACK:]
    return frozenset(("", *(str(one.name) for one in newest if is_of_ai(one) and getattr(one, "name", None))))


def name_of(instance: str) -> str:
    """Name of the sub-graph of an instance, empty at the top."""
    return instance.rpartition("|")[2].partition(":")[0]


def request_in(messages: Sequence[Any]) -> str:
    """The text that a person wrote last, as much of it as the judge reads; empty if there is none."""
    return next((_text(one) for one in reversed(messages) if is_of_person(one)), "")[:MAX_REQUEST_CHARS]


def is_of_ai(message: Any) -> bool:
    """Whether a model wrote a message."""
    return getattr(message, "type", None) == "ai"


def _is_of_model(message: Any, *, named: bool) -> bool:
    return is_of_ai(message) and not is_guard_message(message) and bool(not named or getattr(message, "id", None))


def _key(message: Any, at: int) -> bytes:
    return call_key(str(getattr(message, "id", None) or f"{at}:{_text(message)}"))


def _text(message: Any) -> str:
    text = getattr(message, "text", None)
    return str(text) if isinstance(text, str) else str(getattr(message, "content", ""))
