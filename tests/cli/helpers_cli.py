"""Shared by the tests of the command: running it, and writing input files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajectory_guard.cli.main import main

HOURS = "Closed on Mondays. Open from Tuesday to Sunday, nine to five."
"""A result that shows something, so that getting it again is certain evidence."""


class Ran(NamedTuple):
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines, strictly."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


class Command:
    """Runs ``trajectory-guard`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        status = main([str(one) for one in arguments])
        out, err = self._capsys.readouterr()
        return Ran(status, out, err)


def step(tool: str = "search", args: Any = None, result: Any = HOURS, **fields: Any) -> dict[str, Any]:
    return {"tool": tool, "args": {"q": 1} if args is None else args, "result": result, **fields}


def run_line(identifier: str | None = "run", steps: Sequence[dict[str, Any]] | None = None, repeats: int = 6) -> str:
    value: dict[str, Any] = {"steps": list(steps) if steps is not None else [step() for _ in range(repeats)]}
    return json.dumps({"id": identifier, **value} if identifier is not None else value)


def otlp_span(number: int = 1, trace: int = 1, *, start: float | None = None, tool: str = "search", args: str = '{"q":1}',
              result: str = HOURS, conversation: str | None = None) -> dict[str, Any]:  # fmt: skip
    attributes = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
        "gen_ai.tool.call.arguments": args, "gen_ai.tool.call.result": result,
    }  # fmt: skip
    if conversation is not None:
        attributes["gen_ai.conversation.id"] = conversation
    begin = int((1000 + (start if start is not None else number)) * 1e9)
    return {
        "traceId": f"{trace:032x}", "spanId": f"{trace:08x}{number:08x}", "name": f"execute_tool {tool}", "kind": 1,
        "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 1000),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }  # fmt: skip


def request(spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "app"}}]}
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "test"}, "spans": list(spans)}]}]
    }


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
