"""A scripted model behind the HTTP APIs of OpenAI (chat completions) and Anthropic (messages), on a port of this machine.

What is sent to ``/v1/traces`` as OTLP/JSON is kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Answer = str | list[tuple[str, str, dict[str, Any]]]
"""Text, or calls as (id, tool, arguments)."""


class ModelServer:
    """Gives one answer a request, in order; ``url`` is where it listens. Subclasses speak other APIs."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.resource_spans: list[Any] = []
        handler = type("Handler", (_Handler,), {"model": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    headers: ClassVar[Mapping[str, str]] = {}

    def respond(self, path: str, request: dict[str, Any]) -> tuple[str, str | bytes]:
        """Content type and body of a response."""
        if "/v1/traces" in path:
            self.resource_spans += request["resourceSpans"]
            return "application/json", "{}"
        if "/chat/completions" in path:
            completion = _completion(self.answers.pop(0), request)
            if not request.get("stream"):
                return "application/json", json.dumps(completion)
            return "text/event-stream", "".join(f"data: {one}\n\n" for one in _chunks(completion))
        if "/messages" not in path or "count_tokens" in path:
            return "application/json", "{}"
        answer = self.answers.pop(0) if request.get("tools") else "a title"  # Claude Code also asks for titles
        message = _message(answer, request)
        if not request.get("stream"):
            return "application/json", json.dumps(message)
        events = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(message))
        return "text/event-stream", "".join(events)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def do_GET(self) -> None:
        self._reply("application/json", "{}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._reply(*self.model.respond(self.path, json.loads(body or b"{}")))

    def _reply(self, kind: str, reply: str | bytes) -> None:
        body = reply.encode() if isinstance(reply, str) else reply
        self.send_response(200)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **self.model.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _completion(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    asks = not isinstance(answer, str)
    message: dict[str, Any] = {"role": "assistant", "content": None if asks else answer}
    if not isinstance(answer, str):
        message["tool_calls"] = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for one, name, args in answer
        ]
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if asks else "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }  # fmt: skip


def _chunks(completion: dict[str, Any]) -> Iterator[str]:
    """A completion as it is streamed."""
    (choice,), usage = completion["choices"], completion["usage"]
    calls = choice["message"].get("tool_calls", ())
    deltas = [{"tool_calls": [{**call, "index": index}]} for index, call in enumerate(calls)] or [choice["message"]]
    common = {**completion, "object": "chat.completion.chunk", "usage": None}
    for delta in deltas:
        yield json.dumps(
            {**common, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}
        )
    yield json.dumps({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield json.dumps({**common, "choices": [], "usage": usage})
    yield "[DONE]"


def _message(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    asks = not isinstance(answer, str)
    content: list[dict[str, Any]] = (
        [{"type": "text", "text": answer}]
        if isinstance(answer, str)
        else [{"type": "tool_use", "id": one, "name": name, "input": args} for one, name, args in answer]
    )
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": content,
        "stop_reason": "tool_use" if asks else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message as it is streamed."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        text = block["type"] == "text"
        start = {**block, "text": ""} if text else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
