"""A load of OTLP traces: applications that each send their batches one after the other, one span in ten a tool call.

Batches are made from a template by writing ids, times and arguments into its bytes, so that making the load costs
little beside sending it.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS: Final = 512
TOOL_EVERY: Final = 10
CONVERSATIONS: Final = 25
_START_NS: Final = 1_700_000_000_000_000_000
_STEP_NS: Final = 1_000_000
_ARGUMENT: Final = 200
_RESULT: Final = 500


class Sender:
    """One application: ``next`` gives its next batch.

    Parameters:
        number: tells it from the others.
    """

    def __init__(self, number: int) -> None:
        self._conversations = [f"conv-{number:04d}-{at:04d}" for at in range(CONVERSATIONS)]
        self._traces = [os.urandom(16) for _ in range(CONVERSATIONS)]
        self._template, self._places = _template(number)
        self._batch = 0

    def next(self) -> bytes:
        """A serialized request of ``SPANS`` spans that was never sent before."""
        data = bytearray(self._template)
        ids = os.urandom(8 * SPANS)
        for at, (span_id, start, trace, conversation, text) in enumerate(self._places):
            data[span_id : span_id + 8] = ids[8 * at : 8 * at + 8]
            begin = _START_NS + (self._batch * SPANS + at) * _STEP_NS
            data[start : start + 8] = struct.pack("<Q", begin)
            data[start + 9 : start + 17] = struct.pack("<Q", begin + _STEP_NS // 2)
            if conversation:
                which = (self._batch * SPANS + at) // TOOL_EVERY % CONVERSATIONS
                data[trace : trace + 16] = self._traces[which]
                data[conversation : conversation + 14] = self._conversations[which].encode()
                number = b"%016d" % (self._batch * SPANS + at)
                for place in text:
                    data[place : place + 16] = number
            else:
                data[trace : trace + 8] = ids[8 * at : 8 * at + 8]
        self._batch += 1
        return bytes(data)


_Places = tuple[int, int, int, int, tuple[int, ...]]


def _template(number: int) -> tuple[bytes, list[_Places]]:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = f"app-{number}"
    scoped = group.scope_spans.add()
    scoped.scope.name = "load"
    for at in range(SPANS):
        _add_span(scoped.spans.add(), at)
    data = message.SerializeToString()
    places, cursor = [], 0
    for at in range(SPANS):
        cursor = data.index(_mark(at, 8), cursor)
        trace = data.rindex(b"\x0a\x10", 0, cursor) + 2
        start = data.index(struct.pack("<Q", _START_NS + at), cursor)
        texts: tuple[int, ...] = ()
        conversation = 0
        if at % TOOL_EVERY == 0:
            conversation = data.index(b"conv-____-____", start)
            first = data.index(b"N" * 16, conversation)
            second = data.index(b"N" * 16, first + 16)
            texts = (first, second, data.index(b"N" * 16, second + 16))
        places.append((cursor, start, trace, conversation, texts))
    return data, places


def _mark(at: int, size: int) -> bytes:
    return b"\xfe\xdc" + at.to_bytes(2, "big") + b"\xab" * (size - 4)


def _add_span(span: object, at: int) -> None:
    span.trace_id, span.span_id = _mark(at, 16)[::-1], _mark(at, 8)  # type: ignore[attr-defined]
    span.start_time_unix_nano = span.end_time_unix_nano = _START_NS + at  # type: ignore[attr-defined]

    def put(key: str, value: str) -> None:
        span.attributes.add(key=key).value.string_value = value  # type: ignore[attr-defined]

    if at % TOOL_EVERY:
        span.name, span.kind = "GET /orders", 3  # type: ignore[attr-defined]
        for key in range(10):
            put(f"http.some.attribute{key}", "value" * 5)
        return
    span.name, span.kind = "execute_tool search", 1  # type: ignore[attr-defined]
    put("gen_ai.operation.name", "execute_tool")
    put("gen_ai.tool.name", "search")
    put("gen_ai.conversation.id", "conv-____-____")
    put("gen_ai.tool.call.id", "call" + "N" * 16)
    put("gen_ai.tool.call.arguments", json.dumps({"query": "N" * 16 + "x" * (_ARGUMENT - 30), "limit": 10}))
    put("gen_ai.tool.call.result", json.dumps({"text": "N" * 16 + "lorem ipsum " * ((_RESULT - 30) // 12)}))
