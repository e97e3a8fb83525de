"""A process with a guarded agent behind a shared budget: ``budgeted_agent.py COLLECTOR OTLP CONVERSATION TOKENS``.

Prints what the agent said last, and how often the model was asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.gates.agents import TASK, lookup, thread, works
from trajectory_guard import GuardConfig, TrajectoryGuardMiddleware, instrument
from trajectory_guard.cli.demo.scripted import ScriptedChatModel


def main(collector: str, otlp: str, conversation: str, steps: int) -> None:
    """Run the agent, and flush its spans."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{otlp}/v1/traces")))
    trace.set_tracer_provider(provider)
    LangChainInstrumentor().instrument()
    config = GuardConfig(collector_url=collector, collector_timeout_s=10.0)
    instrument(config=config)
    asked, script = list[int](), works(steps)

    def policy(messages: Sequence[Any], turn: int) -> AIMessage:
        asked.append(turn)
        return script(messages, turn)

    model = ScriptedChatModel(policy=policy, model_name="large")
    agent = create_agent(model, [lookup], middleware=[TrajectoryGuardMiddleware(config)])
    result = agent.invoke(TASK, thread(conversation))
    provider.shutdown()
    print(json.dumps([result["messages"][-1].text, len(asked), result["loop_status"].get("budget")]))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
