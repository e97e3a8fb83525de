"""A loop that no process sees alone: two services hand the same draft back and forth, each in traces of its own.

A collector finds it, and reports it to any agent that asks.

Run: python examples/two_services.py   (offline; needs the extras collector and otlp: pip install '.[collector,otlp]')
With stream workers behind an OpenTelemetry Collector (docs/fleet.md), whichever worker is asked:
     python examples/two_services.py --otlp http://localhost:4318 --flags http://localhost:8890
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "localhost:0"}}}}
telemetry: {endpoint: "localhost:0", log_level: info}
"""


def start_collector(folder: str) -> tuple[subprocess.Popen, str, str]:
    """A collector on free ports, which prints its verdicts here: its process, and its URLs for spans and for flags."""
    config = Path(folder, "collector.yaml")
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "trajectory_guard_collector.cli", "run", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    urls = {}
    for line in process.stderr:
        if not line.startswith("{"):  # not a log line: the extra collector is missing, for example
            raise SystemExit(line.strip())
        entry = json.loads(line)
        if entry["message"] == "listening":
            urls[entry["server"]] = f"http://{entry['endpoint']}"
        if len(urls) == 2:
            return process, urls["otlp/http"], urls["telemetry"]
    raise SystemExit("the collector did not start")


def service(name: str, collector: str):
    """A service's tracer: its spans go to the collector as they end."""
    provider = TracerProvider(resource=Resource({"service.name": name}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    return provider.get_tracer("agents")


def hand_over(tracer, agent: str, tool: str, conversation: str) -> None:
    """One agent calls the other: one tool span, in a trace of its own."""
    with tracer.start_as_current_span(f"invoke_agent {agent}") as span:
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent})
        span.set_attribute("gen_ai.conversation.id", conversation)
        with tracer.start_as_current_span(f"execute_tool {tool}") as call:
            call.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool})
            call.set_attribute("gen_ai.tool.call.arguments", json.dumps({"draft": "v1"}))
            call.set_attribute("gen_ai.tool.call.result", "please revise")


def demonstrate(collector: str, flags: list[str], pause_s: float) -> None:
    """Two services hand the draft on until they are told to stop; flags are asked for at each URL in turn."""
    writer, critic = service("writer", collector), service("critic", collector)
    for turn in range(1, 13):
        hand_over(writer, "writer", "ask_critic", "order-42")
        hand_over(critic, "critic", "ask_writer", "order-42")
        time.sleep(pause_s)
        with urllib.request.urlopen(f"{flags[turn % len(flags)]}/v1/flags/order-42", timeout=5) as reply:
            flag = json.load(reply)
        print(f"turn {turn}: may the agents of order-42 go on?  {flag['level']}", flush=True)
        if flag["level"] == "STOP":
            print(f"stopped, going in circles: {flag['reason']}")
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--otlp", metavar="URL", help="OTLP/HTTP receiver; by default a collector is started")
    parser.add_argument("--flags", metavar="URL", action="append", help="where flags are served; several take turns")
    given = parser.parse_args()
    if bool(given.otlp) != bool(given.flags):
        parser.error("--otlp and --flags need each other")
    if given.otlp:
        demonstrate(given.otlp, given.flags, pause_s=2.0)  # on their way through Kafka, spans take a second
        return
    with tempfile.TemporaryDirectory() as folder:
        process, collector, flags = start_collector(folder)
        try:
            demonstrate(collector, [flags], pause_s=0.05)
        finally:
            process.terminate()
            process.communicate(timeout=10)  # reads to the end and closes the pipe


if __name__ == "__main__":
    main()
