"""Agents without any framework: one is stubborn, one listens, one is fine. Tool spans are written by hand.

Run: python examples/looping_demo_agent.py   (offline; needs no extra). With OTEL_EXPORTER_OTLP_ENDPOINT set, the spans
go to that collector instead (needs the extra otlp), which evaluates them, and flags are read from
TRAJECTORY_GUARD_COLLECTOR_URL: dashboards/docker-compose.yaml does so. ``--rounds 0`` goes on until it is stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from trajectory_guard import instrument, shared_board

COLLECTOR = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
FLAGS = os.environ.get("TRAJECTORY_GUARD_COLLECTOR_URL", "http://localhost:8888")
MODEL = "gpt-4o"
NAME = "researcher"
MANY = 8
Ask = Callable[[str, int], str | None]
"""The nudge that is due in a conversation, None if none is; given the conversation and the step acted on last."""
tracer = trace.get_tracer("looping_demo_agent")


def set_up() -> Ask:
    """Send spans to the collector if there is one, else evaluate them here; returns who to ask for flags."""
    provider = TracerProvider(resource=Resource.create())
    trace.set_tracer_provider(provider)
    if COLLECTOR is None:
        instrument()
        return nudge_of_board
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    return nudge_of_collector


def nudge_of_board(conversation: str, step: int) -> str | None:
    """Ask this process."""
    verdict = shared_board().take(conversation).verdict
    return verdict.nudge if verdict is not None else None


def nudge_of_collector(conversation: str, step: int) -> str | None:
    """Ask the collector over HTTP, as an agent in any language can; without an answer the agent goes on."""
    try:
        with urllib.request.urlopen(f"{FLAGS}/v1/flags/{conversation}?after={step}", timeout=2.0) as reply:
            return json.load(reply).get("nudge")
    except (OSError, ValueError):
        return None


def call_tool(conversation: str, name: str, arguments: dict[str, object], result: str) -> None:
    """A model call and the tool call it leads to, as an instrumentation would report them."""
    about = {"gen_ai.conversation.id": conversation, "gen_ai.agent.name": NAME}
    with tracer.start_as_current_span(f"chat {MODEL}", attributes={**about, "gen_ai.operation.name": "chat"}) as span:
        span.set_attributes({
            "gen_ai.request.model": MODEL, "gen_ai.usage.input_tokens": 2_000, "gen_ai.usage.output_tokens": 100,
        })  # fmt: skip
    with tracer.start_as_current_span(f"execute_tool {name}", attributes=about) as span:
        span.set_attributes({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": uuid.uuid4().hex,
            "gen_ai.tool.call.arguments": json.dumps(arguments), "gen_ai.tool.call.result": result,
        })  # fmt: skip


def stubborn(conversation: str, ask: Ask) -> Iterator[str]:
    """Searches for the same thing, whatever it reads."""
    for at in range(MANY):
        call_tool(conversation, "search", {"query": "return policy"}, "No results found")
        yield f"step {at}: search, no results"


def listening(conversation: str, ask: Ask) -> Iterator[str]:
    """Searches for the same thing until it is nudged, then asks somebody else."""
    for at in range(MANY):
        call_tool(conversation, "search", {"query": "return policy"}, "No results found")
        yield f"step {at}: search, no results"
        nudge = ask(conversation, at - 1)
        if nudge:
            yield nudge
            break
    for topic in ("returns", "receipts", "refunds", "shipping"):
        call_tool(conversation, "check_faq", {"topic": topic}, f"All about {topic}: see page {len(topic)}.")
        yield f"asked the FAQ about {topic}"


def healthy(conversation: str, ask: Ask) -> Iterator[str]:
    """Reads one page after the other."""
    for page in range(1, MANY + 1):
        call_tool(
            conversation, "read_page", {"page": page}, f"Text of page {page}, as long as it is different: {page * 37}"
        )
        yield f"read page {page}"


def converse(agent: Callable[[str, Ask], Iterator[str]], conversation: str, ask: Ask) -> Iterator[str]:
    """One conversation, below the span of its agent: in a trace for each call, repeats would lead to advice only."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": NAME,
        "gen_ai.conversation.id": conversation,
    }
    with tracer.start_as_current_span(f"invoke_agent {NAME}", attributes=attributes):
        yield from agent(conversation, ask)


AGENTS = {agent.__name__: agent for agent in (stubborn, listening, healthy)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="*", default=list(AGENTS), metavar="AGENT", help=", ".join(AGENTS))
    parser.add_argument("--rounds", type=int, default=1, help="conversations of each agent, 0 for ever (default: 1)")
    parser.add_argument("--pause", type=float, default=2.0 if COLLECTOR else 0.0, help="seconds between calls")
    options = parser.parse_args()
    ask = set_up()
    for _ in range(options.rounds) if options.rounds else itertools.count():
        for name in options.agents:
            conversation = f"{name}-{uuid.uuid4().hex[:8]}"
            print(f"{conversation}:", flush=True)
            for line in converse(AGENTS[name], conversation, ask):
                print(f"  {line}", flush=True)
                time.sleep(options.pause)


if __name__ == "__main__":
    main()
