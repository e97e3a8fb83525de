"""Write-ahead entries, from which a restart replays the requests since the last snapshot: the agent spans, without
content that scoring does not need again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from trajectory_guard_collector.otlp.lazy import Request
from trajectory_guard_collector.otlp.structure import decoded
from trajectory_guard_collector.scoring.items import StepItem
from trajectory_guard_collector.scoring.parser import AgentSpan, ParsedRequest

_LEVEL: Final = 1
_STORED: Final = 0
_COMPRESSED_BYTES: Final = 2 << 20
"""Larger entries, due to a very large span, stay uncompressed: compressing them would block the event loop."""
_WHOLE_BYTES: Final = 4_096
_MAX_KEPT_BYTES: Final = 8_192


def wal_entry_of(parsed: ParsedRequest) -> bytes:
    """The agent spans of a request, compressed. Call it before the request is tagged."""
    request = Request()
    groups: dict[int, Any] = {}
    scopes: dict[int, Any] = {}
    for agent_span in parsed.agent_spans:
        group = groups.get(id(agent_span.group))
        if group is None:
            group = groups[id(agent_span.group)] = request.resource_spans.add(resource=agent_span.group.resource)
        scoped = scopes.get(id(agent_span.holder))
        if scoped is None:
            scoped = scopes[id(agent_span.holder)] = group.scope_spans.add(scope=agent_span.scope)
        scoped.spans.append(_kept(agent_span))
    data = request.SerializeToString()
    return zlib.compress(data, _LEVEL if len(data) <= _COMPRESSED_BYTES else _STORED)


def join_wal_entries(entries: Sequence[bytes]) -> bytes | None:
    """Join the entries of the parts of one request to one entry: concatenated streams."""
    return b"".join(entries) or None


def request_of(entry: bytes) -> bytes:
    """The request that ``wal_entry_of`` kept.

    Raises:
        ValueError: the bytes are damaged.
    """
    request: list[bytes] = []
    while entry or not request:
        stream = zlib.decompressobj()
        try:
            request.append(stream.decompress(entry))
        except zlib.error as error:
            raise ValueError(f"not a write-ahead entry: {error}") from None
        if not stream.eof:
            raise ValueError("not a write-ahead entry: cut off")
        entry = stream.unused_data
    return b"".join(request)


def _kept(agent_span: AgentSpan) -> bytes:
    """A tool span as received; of a large other span, only the attributes that are short, and no events."""
    raw: bytes = agent_span.holder[agent_span.place]
    if len(raw) <= _WHOLE_BYTES or isinstance(agent_span.item, StepItem):
        return raw
    span = decoded(Span, raw)
    short = [attribute for attribute in span.attributes if attribute.ByteSize() <= _MAX_KEPT_BYTES]
    del span.attributes[:], span.events[:]
    span.attributes.extend(short)
    return span.SerializeToString()
