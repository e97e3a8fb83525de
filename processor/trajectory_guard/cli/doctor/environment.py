"""Doctor findings on a running environment: packages, switches, limits. Pure functions of plain data."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from trajectory_guard.cli.doctor.fixes import (
    ADK,
    CONTENT,
    OFFICIAL,
    OPENINFERENCE,
    OPENLLMETRY,
    SAMPLER,
    STRANDS,
    TOOL_SPANS,
    keep_one,
)
from trajectory_guard.cli.findings import Finding
from trajectory_guard.config import ENV_PREFIX, FALSE, ConfigError, GuardConfig
from trajectory_guard.content_switches import HIDES_TOOLS, is_on, official_mode, openllmetry_is_off, switched_on

_FRAMEWORKS: Final = frozenset(
    (
        "agno", "alephalpha", "anthropic", "bedrock", "cohere", "crewai", "google-generativeai", "groq", "haystack",
        "langchain", "llamaindex", "mcp", "mistralai", "ollama", "openai", "openai-agents", "replicate", "sagemaker",
        "together", "transformers", "vertexai", "watsonx", "writer",
    )
)  # fmt: skip
_OTHERS: Final[Mapping[str, str]] = {
    "langfuse": "Langfuse", "openlit": "OpenLIT", "logfire": "Logfire", "traceloop-sdk": "OpenLLMetry",
    "pydantic-ai": "Pydantic AI", "pydantic-ai-slim": "Pydantic AI", "autogen-core": "AutoGen",
    "agent-framework-core": "Microsoft Agent Framework", "strands-agents": STRANDS, "google-adk": ADK,
}  # fmt: skip
"""Packages that emit spans by themselves, instrumentations of another name among them."""
_LANGCHAIN: Final = (
    "opentelemetry-instrumentation-langchain", "openinference-instrumentation-langchain",
    "opentelemetry-instrumentation-genai-langchain",
)  # fmt: skip
_REMOVALS: Final[Mapping[str, str]] = {"langsmith": "export LANGSMITH_OTEL_ENABLED=false"}
"""Where another command than ``pip uninstall`` switches an instrumentation off."""
_MIN_VALUE_CHARS: Final = 4_096
_MIN_ATTRIBUTES: Final = 128
_HIDE: Final = (
    *HIDES_TOOLS, "OPENINFERENCE_HIDE_INPUT_MESSAGES", "OPENINFERENCE_HIDE_OUTPUT_MESSAGES",
    "OPENINFERENCE_HIDE_INPUT_TEXT", "OPENINFERENCE_HIDE_OUTPUT_TEXT",
)  # fmt: skip


def environment_findings(environ: Mapping[str, str], versions: Mapping[str, str]) -> list[Finding]:
    """All findings on an environment.

    Parameters:
        environ: environment variables.
        versions: installed distributions (normalised names, ``opentelemetry-sdk``) and their versions.
    """
    found = instrumentations(versions, environ)
    return [
        *_installed(found, versions),
        *_two_langchains(versions, environ),
        *_content(set(found.values()), environ),
        *_official_content(found, environ),
        *_own_spans_content(set(found.values()), environ),
        *_crewai(versions),
        *_limits(environ),
        *_sampling(environ),
        *_own(environ),
        *_gate(versions),
        *_version_pairs(versions),
    ]


# --- packages ------------------------------------------------------------------------------------------------


def instrumentations(versions: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Installed instrumentation packages and the family each belongs to.

    LangSmith comes with LangChain and counts only where its OpenTelemetry mode is on.
    """
    found = {}
    for name in sorted(versions):
        family = _family_of_package(name)
        if family is not None:
            found[name] = family
    if "langsmith" in versions and is_on(environ, "LANGSMITH_OTEL_ENABLED"):
        found["langsmith"] = "LangSmith"
    return found


def _family_of_package(name: str) -> str | None:
    if name.startswith("openinference-instrumentation-"):
        return OPENINFERENCE
    tail = name.removeprefix("opentelemetry-instrumentation-")
    if tail != name:
        if tail.startswith("genai-") or (tail.endswith("-v2") and tail.removesuffix("-v2") in _FRAMEWORKS):
            return OFFICIAL
        return OPENLLMETRY if tail in _FRAMEWORKS else None
    return _OTHERS.get(name)


def _installed(found: Mapping[str, str], versions: Mapping[str, str]) -> Iterator[Finding]:
    if not found:
        gated = not _missing_for_gates(versions) and "langgraph" in versions
        yield Finding(
            "warn" if gated else "problem", "no_instrumentation", "environment",
            "No instrumentation of an LLM framework is installed: no tool call leaves a span"
            + ("; gates read the calls from the messages, and nothing else sees them." if gated else "."),
            "pip install opentelemetry-instrumentation-langchain  # or openinference-instrumentation-<framework>",
        )  # fmt: skip
    for name, family in found.items():
        if name in versions:
            yield Finding("ok", "instrumentation", name, f"{family}: {name} {versions[name]} is installed.")


def _two_langchains(versions: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    found = [name for name in _LANGCHAIN if name in versions]
    if is_on(environ, "LANGSMITH_OTEL_ENABLED"):
        found.append("langsmith")
    disabled = {one.strip() for one in environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    if len(found) > 1 and "langchain" not in disabled:
        yield Finding(
            "warn", "two_instrumentations", " + ".join(found),
            "Several instrumentations of LangChain are installed; where more than one is active, each call yields as "
            "many spans (the guard counts it once, the backend does not): keep one of them.",
            keep_one({name: _REMOVALS.get(name, f"pip uninstall {name}") for name in found}),
        )  # fmt: skip
    if is_on(environ, "LANGSMITH_OTEL_ENABLED"):
        yield Finding(
            "warn", "late_spans", "LANGSMITH_OTEL_ENABLED",
            "LangSmith ends its spans later, on a background thread: they can feed the collector, never a gate.",
            "pip install opentelemetry-instrumentation-langchain  # for the gate",
        )  # fmt: skip


def _gate(versions: Mapping[str, str]) -> Iterator[Finding]:
    if "langgraph" not in versions:
        return
    missing = _missing_for_gates(versions)
    if missing:
        yield Finding(
            "warn", "no_gate", "langgraph",
            f"LangGraph {versions['langgraph']} is installed without what the gate needs ({', '.join(missing)}): "
            "loops are seen, not stopped.",
            "pip install '.[langgraph]'  # in a clone of trajectory_guard",
        )  # fmt: skip


def _missing_for_gates(versions: Mapping[str, str]) -> list[str]:
    missing = [name for name in ("langchain", "langchain-core") if name not in versions]
    return [*missing, "langgraph>=1.2"] if _older(versions, "langgraph", (1, 2)) else missing


def _version_pairs(versions: Mapping[str, str]) -> Iterator[Finding]:
    """Pairs of versions that are known not to work together."""

    def pair(bad: bool, subject: str, message: str, fix: str, code: str = "version_pair") -> Iterator[Finding]:
        if bad:
            yield Finding("problem", code, subject, message, fix)

    old = "opentelemetry-instrumentation-langchain"
    wrapt2 = _at_least(versions, "wrapt", (2,))
    yield from pair(wrapt2 and _older(versions, old, (0, 50)), f"{old} + wrapt",
                    "OpenLLMetry before 0.50 fails with wrapt 2.", f"pip install -U {old}")  # fmt: skip
    v2 = "opentelemetry-instrumentation-openai-v2"
    yield from pair(wrapt2 and versions.get(v2, "").startswith("2.3b"), f"{v2} + wrapt",
                    f"{v2} 2.3b0 fails with wrapt 2.", "pip install 'wrapt<2'")  # fmt: skip
    yield from pair(
        _at_least(versions, v2, (2, 4)) and "opentelemetry-util-genai" in versions
        and not _at_least(versions, "opentelemetry-util-genai", (1, 4)), f"{v2} + opentelemetry-util-genai",
        f"{v2} 2.4b0 needs a newer opentelemetry-util-genai than 1.3b0.", "pip install -U opentelemetry-util-genai",
    )  # fmt: skip
    yield from pair(_at_least(versions, "mcp", (2,)) and "opentelemetry-instrumentation-mcp" in versions,
                    "opentelemetry-instrumentation-mcp + mcp", "OpenLLMetry's MCP instrumentation cannot import mcp 2.",
                    "pip install 'mcp<2'  # or rely on mcp's own spans")  # fmt: skip
    for name in ("pydantic-ai", "pydantic-ai-slim"):
        yield from pair(_older(versions, name, (1,)) and _at_least(versions, "opentelemetry-api", (1, 40)), name,
                        f"{name} before 1.0 breaks on new OpenTelemetry (opentelemetry._events).",
                        f"pip install -U {name}")  # fmt: skip
    yield from pair(_older(versions, "opentelemetry-sdk", (1, 30)), "opentelemetry-sdk",
                    f"opentelemetry-sdk {versions.get('opentelemetry-sdk')} is too old.",
                    "pip install -U opentelemetry-sdk", "old_sdk")  # fmt: skip


def release(version: str) -> tuple[int, ...]:
    """The release numbers of a version, without pre-release and local parts.

    >>> release("2.3b0"), release("0.62.4"), release("junk")
    ((2, 3), (0, 62, 4), ())
    """
    match = re.match(r"\A\s*v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")[:6] if len(part) < 10) if match else ()


def _older(versions: Mapping[str, str], name: str, than: tuple[int, ...]) -> bool:
    numbers = release(versions.get(name, ""))
    return bool(numbers) and numbers < than


def _at_least(versions: Mapping[str, str], name: str, than: tuple[int, ...]) -> bool:
    return release(versions.get(name, "")) >= than


# --- switches ------------------------------------------------------------------------------------------------


def _content(families: set[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    if openllmetry_is_off(environ):
        yield Finding(
            "problem" if OPENLLMETRY in families else "warn", "content_off", "TRACELOOP_TRACE_CONTENT",
            "OpenLLMetry records neither arguments nor results: the guard works on names, outcomes and times.",
            CONTENT[OPENLLMETRY],
        )  # fmt: skip
    hidden = switched_on(environ, _HIDE)
    if hidden:
        yield Finding(
            "problem" if OPENINFERENCE in families else "warn", "content_off", ", ".join(hidden),
            "OpenInference writes __REDACTED__ in place of content: the guard works on names, outcomes and times.",
            f"unset {' '.join(hidden)}",
        )  # fmt: skip
    if "Microsoft Agent Framework" in families and not is_on(environ, "ENABLE_SENSITIVE_DATA"):
        yield Finding(
            "warn", "content_off", "ENABLE_SENSITIVE_DATA",
            "Agent Framework records content only where ENABLE_SENSITIVE_DATA (or its setting) is on.",
            CONTENT["Microsoft Agent Framework"],
        )  # fmt: skip


def _official_content(found: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    packages = [name for name, family in found.items() if family == OFFICIAL and "openai-agents" not in name]
    mode = official_mode(environ)
    if packages and mode in ("", "no_content", "event_only", *FALSE):
        where = "sends content to log events" if mode == "event_only" else "records no content by default"
        yield Finding(
            "problem", "content_off", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
            f"{packages[0]} {where}: the guard works on names, outcomes and times.", CONTENT[OFFICIAL],
        )  # fmt: skip
    opted = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
    if packages and mode and "gen_ai_latest_experimental" not in opted:
        yield Finding(
            "warn", "old_conventions", "OTEL_SEMCONV_STABILITY_OPT_IN",
            "Content modes such as span_only are understood by some packages only with the latest conventions.",
            "export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
        )  # fmt: skip


def _own_spans_content(families: set[str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Frameworks that emit spans by themselves: Strands with content, ADK without it unless capture is enabled."""
    opted = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
    if STRANDS in families and "gen_ai_unredacted_attributes" in opted:
        yield Finding(
            "problem", "content_off", "OTEL_SEMCONV_STABILITY_OPT_IN",
            "Strands redacts all content that gen_ai_unredacted_attributes does not list: the guard works on names, "
            "outcomes and times.", CONTENT[STRANDS],
        )  # fmt: skip
    mode = official_mode(environ)
    if ADK in families and mode not in ("span_only", "span_and_event"):
        yield Finding(
            "problem", "content_off", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
            "Google ADK emits spans by itself, without arguments and results by default: the guard works on names, "
            "outcomes and times.", CONTENT[ADK],
        )  # fmt: skip


def _crewai(versions: Mapping[str, str]) -> Iterator[Finding]:
    """CrewAI's own telemetry is not for applications; OpenLLMetry's instrumentation writes no tool spans."""
    if "crewai" not in versions:
        return
    if "openinference-instrumentation-crewai" in versions:
        yield Finding(
            "warn", "no_tool_spans", "crewai",
            "CrewAI's agents leave tool spans only where the model makes native tool calls, and none where it writes "
            "them as text (ReAct), unless the instrumentation listens to CrewAI's events.",
            TOOL_SPANS["openinference.instrumentation.crewai"],
        )  # fmt: skip
    else:
        yield Finding("problem", "no_tool_spans", "crewai", "CrewAI's tool calls leave no spans.", TOOL_SPANS["crewai"])


def _limits(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
        limit = _number(environ.get(name))
        if limit is not None and limit < _MIN_VALUE_CHARS:
            yield Finding(
                "problem" if limit < _MIN_VALUE_CHARS // 4 else "warn", "value_limit", name,
                f"Attribute values are cut after {limit:g} characters: arguments and results come truncated.",
                f"unset {name}",
            )  # fmt: skip
    for name in ("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"):
        limit = _number(environ.get(name))
        if limit is not None and limit < _MIN_ATTRIBUTES:
            yield Finding(
                "warn", "count_limit", name,
                f"Spans keep {limit:g} attributes, the newest: names and identity may be dropped.", f"unset {name}",
            )  # fmt: skip


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None and text.strip() else None
    except ValueError:
        return None


def _sampling(environ: Mapping[str, str]) -> Iterator[Finding]:
    if is_on(environ, "OTEL_SDK_DISABLED"):
        yield Finding("problem", "sdk_disabled", "OTEL_SDK_DISABLED", "OpenTelemetry is switched off: no spans.",
                      "unset OTEL_SDK_DISABLED")  # fmt: skip
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratio = _number(environ.get("OTEL_TRACES_SAMPLER_ARG"))
    if sampler.endswith("always_off"):
        yield Finding("problem", "sampled_out", "OTEL_TRACES_SAMPLER",
                      "No trace is sampled: no span reaches the guard.", SAMPLER)  # fmt: skip
    elif sampler.endswith("traceidratio") and ratio is not None and ratio < 1.0:
        yield Finding(
            "problem", "sampled_out", "OTEL_TRACES_SAMPLER_ARG",
            f"Only {ratio:.3g} of all traces are sampled; the others never reach the guard. Sample behind it instead.",
            SAMPLER,
        )  # fmt: skip


def _own(environ: Mapping[str, str]) -> Iterator[Finding]:
    name = f"{ENV_PREFIX}DISABLED"
    if is_on(environ, name):
        yield Finding("warn", "guard_disabled", name, "The guard is switched off.", f"unset {name}")
    try:
        GuardConfig.from_env(environ)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding("problem", "bad_configuration", f"{ENV_PREFIX}*", line, f"env | grep {ENV_PREFIX}")
    known = [ENV_PREFIX + key.upper() for key in GuardConfig.model_fields]
    for key in sorted(environ):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.85) if key.startswith(ENV_PREFIX) else []
        if near and key not in known and key != name:
            yield Finding("warn", "unknown_variable", key, f"{key} is no setting of the guard; did you mean {near[0]}?",
                          f'export {near[0]}="${key}"; unset {key}')  # fmt: skip
