"""A scripted model behind the HTTP API of Amazon Bedrock (Converse, ConverseStream, InvokeAgent), on a port of this machine."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tests.captures.model_server import ModelServer

USAGE = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}


class BedrockServer(ModelServer):
    """Its answers are text, calls as (id, tool, arguments), or events of an agent."""

    headers: ClassVar[Mapping[str, str]] = {"x-amzn-bedrock-agent-content-type": "application/json"}

    def respond(self, path: str, request: dict[str, Any]) -> tuple[str, bytes]:
        answer = self.answers.pop(0)
        if path.endswith("/text"):
            return "application/vnd.amazon.eventstream", b"".join(_frame(kind, body) for kind, body in answer)
        asks = not isinstance(answer, str)
        content = (
            [{"toolUse": {"toolUseId": one, "name": name, "input": args}} for one, name, args in answer]
            if asks
            else [{"text": answer}]
        )
        stop = "tool_use" if asks else "end_turn"
        if path.endswith("/converse-stream"):
            return "application/vnd.amazon.eventstream", b"".join(_frame(*one) for one in _events(content, stop))
        message = {"role": "assistant", "content": content}
        body = {"output": {"message": message}, "stopReason": stop, "usage": USAGE, "metrics": {"latencyMs": 1}}
        return "application/json", json.dumps(body).encode()


def _events(content: list[dict[str, Any]], stop: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(content):
        if "toolUse" in block:
            use = block["toolUse"]
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield "contentBlockStart", {"start": start, "contentBlockIndex": index}
            delta = {"toolUse": {"input": json.dumps(use["input"])}}
        else:
            delta = block
        yield "contentBlockDelta", {"delta": delta, "contentBlockIndex": index}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": stop}
    yield "metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}


def _frame(kind: str, body: dict[str, Any]) -> bytes:
    """One message of an AWS event stream."""
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
    payload = json.dumps(body).encode()
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    message = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return message + struct.pack("!I", crc32(message))
