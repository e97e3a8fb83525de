"""A model call as a ledger needs it: read from its span, and again when spans above it arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from trajectory_guard.core.names import bounded_name
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.spans.extract import model_name, requested_model, response_id, trajectory_id
from trajectory_guard.spans.identity import agent_name

CALL_BYTES: Final = 768
"""Bytes that a model call takes in memory beside its usage."""


class ModelCall(NamedTuple):
    """A model call as the ledger books it, as far as is known by now. JSON-able.

    Fields:
        id: trace id and span id, hex.
        service: of its resource; model and response: as the span names them. All are empty if unknown.
        start, end: seconds since the epoch.
        above: ids of the agent spans around it, hex, nearest first.
        agent: the acting agent; conversation: the one that the span or a span above names. Empty if unknown.
        is_complete: every span above has arrived.
        revision: how often more of its identity became known since it was reported.
        requested: the other name of the model on the span, as the caller named it; empty if there is none.
    """

    id: str
    service: str
    model: str
    response: str
    start: float
    end: float
    above: tuple[str, ...]
    agent: str
    conversation: str
    is_complete: bool
    revision: int = 0
    requested: str = ""

    @property
    def span_id(self) -> str:
        """Hex."""
        return self.id[-16:]


def read_call(
    view: SpanView, above: Sequence[SpanView], resource: Mapping[str, Any], table: DialectTable, *, is_complete: bool
) -> ModelCall:
    """Read a model call from its span.

    Parameters:
        above: the spans above it that are known, nearest first.
        is_complete: no span above is missing.
    """
    service = bounded_name(str(resource.get("service.name") or ""))
    call = ModelCall(
        view.trace_id + view.span_id, service, model_name(view, table) or "",
        response_id(view, table) or "", view.start, view.end, (), "", "", is_complete,
        requested=requested_model(view, table) or "",
    )  # fmt: skip
    return _identified(call, view, above, table)


def read_again(
    call: ModelCall, view: SpanView, above: Sequence[SpanView], table: DialectTable, *, is_complete: bool
) -> ModelCall:
    """The call with what is known of its identity now that a span above it has arrived. Arguments as above."""
    return _identified(revised(call)._replace(is_complete=is_complete), view, above, table)


def revised(call: ModelCall) -> ModelCall:
    """The call, of whose identity more has become known."""
    return call._replace(revision=call.revision + 1)


def _identified(call: ModelCall, view: SpanView, above: Sequence[SpanView], table: DialectTable) -> ModelCall:
    return call._replace(
        above=tuple(one.span_id for one in above),
        agent=call.agent or agent_name(view, above, table) or "",
        conversation=call.conversation or trajectory_id(view, above, lambda span: "", table),
    )


def plain_call(call: ModelCall) -> list[Any]:
    """A call as JSON-able data."""
    return list(call)


def call_from(plain: Sequence[Any]) -> ModelCall:
    """Read ``plain_call``."""
    call = ModelCall(*plain)
    return call._replace(above=tuple(call.above))
