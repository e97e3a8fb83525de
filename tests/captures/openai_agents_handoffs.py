"""Spans of two agents of the OpenAI Agents SDK (openai-agents 0.24.0) that hand over to each other; the model is scripted.
Instrumentations: openinference-instrumentation-openai-agents 2.6.0, opentelemetry-instrumentation-openai-agents 0.62.4,
opentelemetry-instrumentation-openai-agents-v2 0.1.0, logfire 5.4.0, openlit 1.45.0 (with openai-agents 0.20.0).

    python -m tests.captures.openai_agents_handoffs OUT.json openinference|traceloop|otelv2|logfire|openlit circle|work|turns|same [nocontent]

``circle``: twelve hand-overs and nothing else. ``work``: a look-up of something else before each of them. ``turns``: an
answer to the user after each of them, who then asks the agent that answered, all in one trace. ``same``: one agent that
looks the same thing up, six times.
"""

# no postponed annotations: the framework reads the types of the tools

import asyncio
import sys
from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool, trace
from openai import AsyncOpenAI
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write

HAND_OVERS = 12


def find_invoice(number: int) -> str:
    """Find."""
    return f"invoice {number}: {17 + 3 * number} EUR, paid in May"


def answers(shape: str) -> list[Answer]:
    if shape == "same":
        return [*([(f"look_{number}", "find_invoice", {"number": 7})] for number in range(6)), "It was paid in May."]
    found: list[Answer] = []
    for number in range(HAND_OVERS):
        if shape == "work":
            found.append([(f"look_{number}", "find_invoice", {"number": number})])
        found.append([(f"go_{number}", f"transfer_to_{('triage', 'billing')[(number + 1) % 2]}", {})])
        if shape == "turns":
            found.append(f"That was answer {number}.")
    return [*found, "Somebody will call you."]


def instrument(name: str) -> InMemorySpanExporter:
    if name == "logfire":
        import logfire

        exporter = InMemorySpanExporter()
        more = [SimpleSpanProcessor(exporter)]
        logfire.configure(send_to_logfire=False, console=False, additional_span_processors=more)
        logfire.instrument_openai_agents()
        return exporter
    exporter = record()
    if name == "openlit":
        import openlit

        openlit.init(disable_metrics=True, disabled_instrumentors=["httpx"])
        return exporter
    if name == "openinference":
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    else:
        from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    OpenAIAgentsInstrumentor().instrument()
    return exporter


async def main(model: ModelServer, questions: int, *, content: bool) -> None:
    client = AsyncOpenAI(api_key="none", base_url=f"{model.url}/v1")
    triage, billing = (
        Agent(name=name, model=OpenAIChatCompletionsModel("scripted-1", client), tools=[function_tool(find_invoice)])
        for name in ("Triage", "Billing")
    )
    triage.handoffs, billing.handoffs = [billing], [triage]
    config = RunConfig(trace_include_sensitive_data=content)
    agent, messages = triage, []
    with trace("Conversation"):
        for number in range(questions):
            messages.append({"role": "user", "content": f"I was charged twice, in month {number}."})
            done = await Runner.run(agent, messages, max_turns=40, run_config=config)
            agent, messages = done.last_agent, done.to_input_list()


if __name__ == "__main__":
    out, instrumentation, shape, *switches = sys.argv[1:]
    exporter = instrument(instrumentation)
    questions = HAND_OVERS if shape == "turns" else 1
    asyncio.run(main(ModelServer(answers(shape)), questions, content="nocontent" not in switches))
    write(exporter, out)
    if instrumentation == "logfire":
        from tests.captures.openai_agents_logfire import anonymise

        anonymise(Path(out))
