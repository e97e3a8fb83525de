"""Groups of traces that must be read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.base import CALL_ID_KEYS, first
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.spans.content import decode_arguments
from trajectory_guard.transcripts.messages import input_messages, is_model_span
from trajectory_guard.transcripts.spanless import SUFFIX


class Groups:
    """Sets of traces; joining two sets makes one of them."""

    def __init__(self) -> None:
        self._above: dict[bytes, bytes] = {}

    def __contains__(self, trace: bytes) -> bool:
        return trace in self._above

    def join(self, traces: Iterable[bytes]) -> bool:
        """Join the sets of ``traces``; returns whether any of them were separate before."""
        root: bytes | None = None
        apart = False
        for trace in traces:
            found = self._root(trace)
            root = found if root is None else root
            apart = apart or found != root
            self._above[found] = root
        return apart

    def _root(self, trace: bytes) -> bytes:
        path = []
        while (above := self._above.setdefault(trace, trace)) != trace:
            path.append(trace)
            trace = above
        for passed in path:
            self._above[passed] = trace
        return trace

    def together_with(self, traces: Iterable[bytes]) -> Iterator[list[bytes]]:
        """The sets in which any of ``traces`` is."""
        roots = {self._root(trace) for trace in traces}
        yield from (members for members in self if self._root(members[0]) in roots)

    def __iter__(self) -> Iterator[list[bytes]]:
        members: dict[bytes, list[bytes]] = {}
        for trace in self._above:
            members.setdefault(self._root(trace), []).append(trace)
        yield from members.values()


def wanted_calls(step: StepRecord) -> set[str]:
    """Names of the call if another trace may know more of it: its result, or the tool span that stands for it."""
    spanless = (step.dialect or "").endswith(SUFFIX)
    if step.result is not None and not spanless:
        return set()
    names = {step.call_id} if step.call_id else set()
    hashed = args_hash(step.args)
    return names | {_name(step.tool_name, hashed)} if hashed is not None and step.result is None else names


def offered_calls(span: SpanView) -> set[str]:
    """Names of the calls that a span makes, or whose results a model receives."""
    own = first(span.attributes, CALL_ID_KEYS)
    names = {own} if isinstance(own, str) else set()
    if not is_model_span(span) and "gen_ai.input.messages" not in span.attributes:
        return names
    for message in input_messages(span):
        answered = [answer.call for answer in message.results if answer.call is not None]
        for call in (*message.calls, *answered):
            names |= {one for one in (call.call_id, call.item_id) if one}
            names.add(_name(call.name, args_hash(decode_arguments(call.arguments).value)))
        names |= {answer.call_id for answer in message.results if answer.call_id}
    return names


def _name(tool: str, hashed: str | None) -> str:
    return f"{tool}({hashed})"
