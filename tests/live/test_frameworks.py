"""Frameworks that emit spans by themselves: a fresh run of the installed package yields what its capture does.

Each program of ``tests/captures`` runs in this environment if the package is installed, else in an environment of its own
under the folder ``FRAMEWORKS``: ``<name>/bin/python``, or ``<name>/node_modules`` for programs in JavaScript, where the
package ``node`` may bring another Node.js.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers import TESTS, golden
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.otlp import spans_from_json
from trajectory_guard.transcripts.assemble import extract_steps

FOLDER = Path(os.environ.get("FRAMEWORKS", "/nonexistent"))
LATEST = "gen_ai_latest_experimental"
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"


class Run(NamedTuple):
    """A program of ``tests/captures``: its environment, the package it needs (a client may be there without its instrumentation), its switches and variables."""

    environment: str
    package: str
    program: str
    switches: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}


ADK, STRANDS = ("adk", "google.adk", "google_adk"), ("strands", "strands", "strands_agents")
STRANDS_JS = ("strands_js", "@strands-agents/sdk", "strands_js")
ADK_JS = ("adk_js", "@google/adk", "google_adk_js")
CLAUDE = ("claude", "claude_agent_sdk", "claude_code")
SEMANTIC_KERNEL = ("semantic_kernel", "semantic_kernel", "semantic_kernel_agent")
OPENINFERENCE_BEDROCK = "openinference.instrumentation.bedrock"
GENAI_OFFICIAL = ("opentelemetry.instrumentation.google_genai", "google_genai_client", ("official",))
OPENAI_AGENTS_JS = ("openai_js", "@openai/agents", "openai_agents_js")
OPENAI_AGENTS = ("openai_agents", "agents", "openai_agents_handoffs")
FASTMCP = ("fastmcp", "fastmcp_session")
PYDANTIC_AI = ("pydantic_ai", "pydantic_ai_deferred")
HAYSTACK, CREWAI = ("haystack", "haystack", "haystack_agent"), ("crewai", "crewai", "crewai_crew")
ADK_CONTENT = {OPT_IN: LATEST, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}
RUNS = {
    "vercel-v6__main": Run("ai6", "ai", "vercel_ai"),
    "vercel-v6-nocontent__main": Run("ai6", "ai", "vercel_ai", ("nocontent",)),
    "vercel-v7__main": Run("ai7", "ai", "vercel_ai"),
    "vercel-v7-legacy__main": Run("ai7", "ai", "vercel_ai", ("legacy",)),
    "google-adk__main": Run(*ADK, (), ADK_CONTENT),
    "google-adk-nocontent__main": Run(*ADK),
    "google-adk-v1__main": Run(*ADK, (), {"ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN": "1"}),
    "google-adk-openinference__main": Run(*ADK, ("openinference",)),
    "strands__main": Run(*STRANDS),
    "strands__swarm": Run(*STRANDS, ("swarm",)),
    "strands-latest__main": Run(*STRANDS, (), {OPT_IN: LATEST}),
    "strands-attributes__main": Run(*STRANDS, (), {OPT_IN: f"{LATEST},gen_ai_span_attributes_only"}),
    "strands-redacted__main": Run(*STRANDS, (), {OPT_IN: "gen_ai_unredacted_attributes="}),
    "strands-js__main": Run(*STRANDS_JS),
    "strands-js-latest__main": Run(*STRANDS_JS, (), {OPT_IN: LATEST}),
    "google-adk-js__main": Run(*ADK_JS),
    "google-adk-js-nocontent__main": Run(*ADK_JS, (), {"ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false"}),
    "tanstack__main": Run("tanstack", "@tanstack/ai", "tanstack_ai"),
    "tanstack-nocontent__main": Run("tanstack", "@tanstack/ai", "tanstack_ai", ("nocontent",)),
    "haystack__agent_turns": Run(*HAYSTACK, (), {"HAYSTACK_CONTENT_TRACING_ENABLED": "true"}),
    "haystack-nocontent__agent_turns": Run(*HAYSTACK),
    "crewai-openinference-react__turns": Run(*CREWAI, ("react",)),
    "crewai-openinference-native__turns": Run(*CREWAI, ("native",)),
    "crewai-openinference-react-listener__turns": Run(*CREWAI, ("react", "listener")),
    "genkit__main": Run("genkit", "genkit", "genkit"),
    "genkit-python__main": Run("genkit_python", "genkit", "genkit_python"),
    "mastra__main": Run("mastra", "mastra", "mastra"),
    "claude-code__main": Run(*CLAUDE, ("detailed",)),
    "claude-code-nocontent__main": Run(*CLAUDE),
    "claude-code-openinference__main": Run(*CLAUDE, ("openinference",)),
    "semantic-kernel__main": Run(*SEMANTIC_KERNEL),
    "semantic-kernel-nocontent__main": Run(*SEMANTIC_KERNEL, ("nocontent",)),
    "dspy-openinference__react": Run("dspy", "dspy", "dspy_react"),
    "beeai-openinference__main": Run("beeai", "beeai_framework", "beeai_agents"),
    "langchain-js-openinference__agent": Run("langchain_js", "langchain", "langchain_js", ("openinference",)),
    "langchain-js-traceloop__agent": Run("langchain_js", "langchain", "langchain_js", ("traceloop",)),
    "openai-agents-js-openinference__main": Run(*OPENAI_AGENTS_JS),
    "openai-agents-js-openinference-nocontent__main": Run(*OPENAI_AGENTS_JS, ("nocontent",)),
    "client-openai-js-traceloop__responses": Run("openai_js", "openai", "openai_client_js", ("traceloop",)),
    "pipecat__main": Run("pipecat", "pipecat", "pipecat_agent"),
    "pipecat-openinference__main": Run("pipecat", "pipecat", "pipecat_agent", ("openinference",)),
    "client-bedrock-traceloop__loop": Run(
        "bedrock", "opentelemetry.instrumentation.bedrock", "bedrock_client", ("traceloop",)
    ),
    "client-bedrock-openinference__loop": Run("bedrock", OPENINFERENCE_BEDROCK, "bedrock_client", ("openinference",)),
    "bedrock-agent-openinference__main": Run("bedrock", OPENINFERENCE_BEDROCK, "bedrock_client", ("agent",)),
    "client-groq-openinference__stream": Run("groq", "openinference.instrumentation.groq", "groq_client"),
    "google-genai-official__tools": Run("google_genai_1", *GENAI_OFFICIAL),
    "google-genai-official__automatic": Run("google_genai_2", *GENAI_OFFICIAL),
    "google-genai-openinference__automatic": Run(
        "google_genai_3", "openinference.instrumentation.google_genai", "google_genai_client", ("openinference",)
    ),
    "google-genai-traceloop__automatic": Run(
        "google_genai_3", "opentelemetry.instrumentation.google_generativeai", "google_genai_client", ("traceloop",)
    ),
    "voltagent__main": Run("voltagent", "@voltagent/core", "voltagent"),
    "laminar__main": Run("laminar", "lmnr", "laminar_agent"),
    "laminar-nocontent__main": Run("laminar", "lmnr", "laminar_agent", ("nocontent",)),
    "client-azure-inference__loop": Run("azure", "azure.ai.inference", "azure_inference"),
    "client-responses-azure__continued": Run("azure", "azure.ai.projects", "responses_client", ("azure",)),
    "client-responses-openinference__continued": Run(
        "openai", "openinference.instrumentation.openai", "responses_client", ("openinference",)
    ),
    "mlflow-langchain__agent": Run("mlflow", "mlflow", "mlflow_langchain"),
    "agno-traceloop__main": Run("agno", "opentelemetry.instrumentation.agno", "agno_agent"),
    "ag2__main": Run("ag2", "ag2", "ag2_agent"),
    "livekit__main": Run("livekit", "livekit.agents", "livekit_agent"),
    "client-litellm-native__loop": Run("litellm", "litellm", "litellm_client"),
    "client-langfuse-openai__loop": Run("langfuse", "langfuse.openai", "langfuse_client"),
    "openai-agents-logfire-nogroup__main": Run("openai_agents", "logfire", "openai_agents_logfire"),
    "openai-agents-openinference__circle": Run(*OPENAI_AGENTS, ("openinference", "circle")),
    "openai-agents-openinference__work": Run(*OPENAI_AGENTS, ("openinference", "work")),
    "openai-agents-openinference__turns": Run(*OPENAI_AGENTS, ("openinference", "turns")),
    "openai-agents-traceloop__circle": Run(*OPENAI_AGENTS, ("traceloop", "circle")),
    "openai-agents-traceloop-nocontent__work": Run(*OPENAI_AGENTS, ("traceloop", "work", "nocontent")),
    "openai-agents-traceloop-nocontent__turns": Run(*OPENAI_AGENTS, ("traceloop", "turns", "nocontent")),
    "openai-agents-logfire__circle": Run(*OPENAI_AGENTS, ("logfire", "circle")),
    "openai-agents-otelv2__circle": Run("openai_agents_v2", *OPENAI_AGENTS[1:], ("otelv2", "circle")),
    **{
        f"openai-agents-openlit__{shape}": Run("openai_agents_openlit", *OPENAI_AGENTS[1:], ("openlit", shape))
        for shape in ("circle", "work", "turns", "same")
    },
    "openlit-smolagents__main": Run("smolagents_openlit", "smolagents", "smolagents_agent"),
    "pydantic-ai-native5__deferred": Run("pydantic_ai", *PYDANTIC_AI),
    "pydantic-ai-nocontent__deferred": Run("pydantic_ai", *PYDANTIC_AI, ("nocontent",)),
    "pydantic-ai-1.10__deferred": Run("pydantic_ai_1", *PYDANTIC_AI, ("old",)),
    "openai-agents-openinference-mcp__main": Run("openai_agents", "agents.mcp", "openai_agents_mcp"),
    "mcp-fastmcp__session": Run("fastmcp", *FASTMCP),
    "mcp-traceloop-fastmcp__session": Run("fastmcp_3", *FASTMCP, ("traceloop",)),
    "mcp-traceloop-fastmcp2__session": Run("fastmcp_2", *FASTMCP, ("traceloop",)),
    "agent-framework-stream__main": Run("agent_framework", "agent_framework", "agent_framework_agent"),
}
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def command(run: Run, out: Path, folder: Path) -> list[str]:
    """The program as arguments; the test is skipped if its package is installed nowhere."""
    own = FOLDER / run.environment
    script = f"{run.program}.mjs"
    if (TESTS / "captures" / script).exists():
        node = shutil.which("node", path=own / "node_modules" / ".bin") or shutil.which("node")
        if node is None or not (own / "node_modules").is_dir():
            pytest.skip(f"no node, or no {run.environment}/node_modules in the folder FRAMEWORKS")
        (folder / "node_modules").symlink_to(own / "node_modules")
        shutil.copy(TESTS / "captures" / script, folder)
        return [node, script, str(out), *run.switches]
    python = own / "bin" / "python"
    if not python.exists():
        try:
            installed = importlib.util.find_spec(run.package) is not None
        except ModuleNotFoundError:
            installed = False
        if not installed:
            pytest.skip(f"{run.package} is neither installed here nor in the folder FRAMEWORKS")
        python = Path(sys.executable)
    return [str(python), "-m", f"tests.captures.{run.program}", str(out), *run.switches]


def call(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What a call is compared by: neither ids of spans and traces nor the wording of errors."""
    result = None if found["outcome_type"] == "error" else found["result"]
    try:
        result = json.dumps(json.loads(str(result)))
    except ValueError:
        pass
    result = _ID.sub("id", str(result))
    named = _ID.sub("id", found["trajectory_id"]) if found["trajectory_id"].startswith("chat-") else "trace"
    fields = ("tool_name", "call_id", "outcome_type", "agent_id", "evidence")
    return (*(str(found[field]) for field in fields), json.dumps(found["args"], sort_keys=True), result, named)


def fields_of(step: StepRecord) -> dict[str, Any]:
    return {**step._asdict(), "evidence": step.evidence.value}


@pytest.mark.parametrize("name", RUNS)
def test_a_fresh_run_extracts_as_the_capture_does(name: str, tmp_path: Path) -> None:
    run, out = RUNS[name], tmp_path / "spans.json"
    arguments = command(run, out, tmp_path)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "ADK_", "OPENINFERENCE_"))}
    private = {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }
    environ = {**kept, **private, "PYTHONPATH": str(TESTS.parent), "CREWAI_STORAGE_DIR": str(tmp_path), **run.variables}
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]

    steps = extract_steps(list(spans_from_json(json.loads(out.read_text(encoding="utf-8")))))

    wanted = [*golden(name), *golden(f"{name}.messages")]
    assert Counter(map(call, map(fields_of, steps))) == Counter(map(call, wanted))
