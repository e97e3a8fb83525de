"""Spans of Genkit for Python (genkit 0.12.0), with a scripted model.

python -m tests.captures.genkit_python OUT.json
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from genkit import ActionRunContext, Genkit, Interrupt, ModelRequest, ModelResponse, respond_to_interrupt
from pydantic import BaseModel

from tests.captures.otlp_file import record, write

exporter = record()
ai = Genkit()
ZOE = {"customer": "Zoë"}
ANSWERS: list[Any] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    "first answer",
    [("call_11", "delete_all", {"scope": "prod"})],
    "not deleted",
    [("call_4", "read_config", {"path": "/etc/app.yaml"})],
]


async def scripted(request: ModelRequest, context: ActionRunContext) -> ModelResponse:
    """The next answer: text, or calls as (id, tool, arguments)."""
    answer = ANSWERS.pop(0)
    parts = (
        [{"text": answer}]
        if isinstance(answer, str)
        else [{"toolRequest": {"ref": one, "name": name, "input": args}} for one, name, args in answer]
    )
    usage = {"inputTokens": 10, "outputTokens": 5}
    return ModelResponse.model_validate(
        {"message": {"role": "model", "content": parts}, "finishReason": "stop", "usage": usage}
    )


ai.define_model(name="scripted/alice", fn=scripted)


class Customer(BaseModel):
    customer: str


class Path(BaseModel):
    path: str


class Query(BaseModel):
    query: str


class Scope(BaseModel):
    scope: str


@ai.tool()
async def search_orders(given: Customer) -> dict[str, list[str]]:
    """Search."""
    return {"orders": [f"A-1 for {given.customer}"]}


@ai.tool()
async def list_files(given: Path) -> list[str]:
    """List."""
    return []


@ai.tool()
async def kb_search(given: Query) -> str:
    """Search."""
    return "No results found"


@ai.tool()
async def read_config(given: Path) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {given.path}")


@ai.tool()
async def delete_all(given: Scope) -> str:
    """Delete, once a person has agreed."""
    raise Interrupt({"question": f"delete {given.scope}?"})


TOOLS = ["search_orders", "list_files", "kb_search", "read_config", "delete_all"]


async def main() -> None:
    """Three user turns of one chat; a person refuses a call, and a tool raises, which ends its turn."""
    common: dict[str, Any] = {"model": "scripted/alice", "tools": TOOLS, "max_turns": 9}
    first = await ai.generate(prompt="find the orders", **common)
    asked = await ai.generate(prompt="delete all", messages=first.messages, **common)
    refusal = respond_to_interrupt("User denied the deletion", interrupt=asked.interrupts[0])
    answered = await ai.generate(messages=asked.messages, resume_respond=refusal, **common)
    print(answered.text)
    await ai.generate(prompt="read the configuration", messages=answered.messages, **common)


if __name__ == "__main__":
    asyncio.run(main())
    write(exporter, sys.argv[1])
