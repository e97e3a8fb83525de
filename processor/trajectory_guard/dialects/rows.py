"""The rows of all vendors, in the orders in which they are tried."""

from __future__ import annotations

from typing import Final

from trajectory_guard.dialects.ag2 import AG2
from trajectory_guard.dialects.agentops import AGENTOPS
from trajectory_guard.dialects.agentscope import AGENTSCOPE
from trajectory_guard.dialects.agno import AGNO
from trajectory_guard.dialects.bedrock import BEDROCK
from trajectory_guard.dialects.beeai import BEEAI
from trajectory_guard.dialects.claude_code import CLAUDE_CODE
from trajectory_guard.dialects.codex import CODEX
from trajectory_guard.dialects.copilot import COPILOT
from trajectory_guard.dialects.crewai import CREWAI
from trajectory_guard.dialects.dspy import DSPY
from trajectory_guard.dialects.future_agi import FUTURE_AGI
from trajectory_guard.dialects.gemini_cli import GEMINI_CLI
from trajectory_guard.dialects.genkit import GENKIT
from trajectory_guard.dialects.google_adk import GOOGLE_ADK
from trajectory_guard.dialects.google_genai import GOOGLE_GENAI
from trajectory_guard.dialects.haystack import HAYSTACK
from trajectory_guard.dialects.laminar import LAMINAR
from trajectory_guard.dialects.langfuse import LANGFUSE
from trajectory_guard.dialects.langsmith import LANGSMITH
from trajectory_guard.dialects.litellm import LITELLM
from trajectory_guard.dialects.llamaindex import LLAMAINDEX, LLAMAINDEX_RUNS
from trajectory_guard.dialects.logfire import LOGFIRE, LOGFIRE_CLAUDE, LOGFIRE_CLIENTS, LOGFIRE_MCP
from trajectory_guard.dialects.mastra import MASTRA
from trajectory_guard.dialects.mcp import MCP
from trajectory_guard.dialects.mlflow import MLFLOW
from trajectory_guard.dialects.openai_agents import OPENAI_AGENTS, OPENAI_AGENTS_JS
from trajectory_guard.dialects.openinference import AGENT_FRAMEWORK, OPENINFERENCE
from trajectory_guard.dialects.openlit import OPENLIT
from trajectory_guard.dialects.openllmetry import OPENLLMETRY, OPENLLMETRY_GEMINI, OPENLLMETRY_JS
from trajectory_guard.dialects.pipecat import PIPECAT
from trajectory_guard.dialects.pydantic_ai import PYDANTIC_AI
from trajectory_guard.dialects.semconv import SEMCONV, SEMCONV_NAMED, UNPREFIXED
from trajectory_guard.dialects.sentry import SENTRY
from trajectory_guard.dialects.spring_ai import SPRING_AI
from trajectory_guard.dialects.strands import STRANDS
from trajectory_guard.dialects.tanstack import TANSTACK
from trajectory_guard.dialects.vercel import VERCEL, VERCEL_OPENINFERENCE
from trajectory_guard.dialects.voltagent import VOLTAGENT

BUILT_IN: Final = (
    AGENTSCOPE, FUTURE_AGI, AGENTOPS, COPILOT, GEMINI_CLI, CODEX, LANGSMITH, LANGFUSE, LOGFIRE, LOGFIRE_CLAUDE,
    LOGFIRE_MCP, OPENLIT, LLAMAINDEX, GOOGLE_ADK, STRANDS, CREWAI, VERCEL, VERCEL_OPENINFERENCE, HAYSTACK,
    SPRING_AI, GENKIT, MASTRA, VOLTAGENT, TANSTACK, SENTRY, CLAUDE_CODE, DSPY, BEEAI, AG2, OPENAI_AGENTS_JS, BEDROCK,
    AGNO, OPENLLMETRY, OPENLLMETRY_JS, AGENT_FRAMEWORK, OPENINFERENCE, MCP, MLFLOW, LAMINAR, PYDANTIC_AI, LITELLM,
    PIPECAT, OPENAI_AGENTS, LOGFIRE_CLIENTS, LLAMAINDEX_RUNS, UNPREFIXED, OPENLLMETRY_GEMINI, GOOGLE_GENAI,
    SEMCONV, SEMCONV_NAMED,
)  # fmt: skip
"""Rows in the order in which they are tried on tool spans."""
READING_ORDER: Final = (
    SEMCONV, PYDANTIC_AI, CREWAI, BEDROCK, VERCEL, VERCEL_OPENINFERENCE, OPENINFERENCE, UNPREFIXED, LOGFIRE_CLIENTS,
    OPENLLMETRY, LLAMAINDEX, LANGFUSE, LANGSMITH, GOOGLE_ADK, STRANDS, HAYSTACK, SPRING_AI, GENKIT, MASTRA,
    CLAUDE_CODE, DSPY, BEEAI, AG2, LITELLM, OPENLLMETRY_JS, LOGFIRE, OPENAI_AGENTS, OPENAI_AGENTS_JS, MCP, OPENLIT,
    MLFLOW, PIPECAT, VOLTAGENT, LAMINAR, LLAMAINDEX_RUNS, TANSTACK, OPENLLMETRY_GEMINI, AGNO, SEMCONV_NAMED,
    AGENTOPS, FUTURE_AGI, AGENTSCOPE, CODEX, GEMINI_CLI, AGENT_FRAMEWORK, LOGFIRE_CLAUDE, LOGFIRE_MCP, COPILOT,
    GOOGLE_GENAI, SENTRY,
)  # fmt: skip
"""Rows in the order in which their keys are tried on a span that may carry those of several."""
