"""The line that fixes it, for each family of instrumentations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trajectory_guard.dialects.span import SpanView

OPENLLMETRY: Final = "OpenLLMetry"
OPENLLMETRY_JS: Final = "OpenLLMetry for JavaScript"
OPENINFERENCE: Final = "OpenInference"
OPENINFERENCE_JS: Final = "OpenInference for JavaScript"
OFFICIAL: Final = "OpenTelemetry GenAI"
LANGFUSE: Final = "Langfuse"
LANGSMITH: Final = "LangSmith"
OPENLIT: Final = "OpenLIT"
LOGFIRE: Final = "Logfire"
PYDANTIC_AI: Final = "Pydantic AI"
AGENT_FRAMEWORK: Final = "Microsoft Agent Framework"
AUTOGEN: Final = "AutoGen"
OPENAI_AGENTS: Final = "OpenAI Agents"
MCP: Final = "MCP"
STRANDS: Final = "Strands"
ADK: Final = "Google ADK"
VERCEL: Final = "Vercel AI SDK"
VERCEL_7: Final = "Vercel AI SDK 7"
HAYSTACK: Final = "Haystack"
SPRING_AI: Final = "Spring AI"
SEMANTIC_KERNEL: Final = "Semantic Kernel"
CLAUDE_CODE: Final = "Claude Code"
MASTRA: Final = "Mastra"
GENKIT: Final = "Genkit"
MLFLOW: Final = "MLflow"
LAMINAR: Final = "Laminar"
VOLTAGENT: Final = "VoltAgent"
TANSTACK: Final = "TanStack AI"
AG2: Final = "AG2"
OTHER: Final = "other"

_SCOPES: Final = (
    ("openinference.", OPENINFERENCE), ("langfuse", LANGFUSE), ("langsmith", LANGSMITH), ("openlit", OPENLIT),
    ("logfire.openai", OPENAI_AGENTS), ("pydantic-ai", PYDANTIC_AI), ("logfire", LOGFIRE),
    ("agent_framework", AGENT_FRAMEWORK), ("autogen", AUTOGEN),
    ("opentelemetry.instrumentation.openai_agents", OPENAI_AGENTS),
    ("opentelemetry.instrumentation.mcp", MCP), ("mcp", MCP), ("opentelemetry.instrumentation.genai", OFFICIAL),
    ("opentelemetry.instrumentation.google_genai", OFFICIAL), ("opentelemetry.instrumentation.botocore", OFFICIAL),
    ("opentelemetry.instrumentation.openai_v2", OFFICIAL), ("opentelemetry.util.genai", OFFICIAL),
    ("traceloop", OPENLLMETRY), ("strands.", STRANDS), ("gcp.vertex.agent", ADK),
    ("haystack", HAYSTACK), ("semantic_kernel", SEMANTIC_KERNEL), ("com.anthropic.claude_code", CLAUDE_CODE),
    ("@mastra/", MASTRA), ("genkit", GENKIT), ("mlflow.", MLFLOW), ("@traceloop/", OPENLLMETRY_JS),
    ("@arizeai/", OPENINFERENCE_JS), ("@voltagent/", VOLTAGENT), ("lmnr.", LAMINAR),
    ("opentelemetry.instrumentation.ag2", AG2),
)  # fmt: skip
_KEYS: Final = (
    ("ai.operationId", VERCEL), ("spring.ai.kind", SPRING_AI), ("tanstack.ai.tool.outcome", TANSTACK),
    ("tanstack.ai.iteration", TANSTACK), ("gen_ai.event.start_time", STRANDS),
)  # fmt: skip
"""Families whose scope says too little."""
_SCOPE_OF_VERCEL_7: Final = "gen_ai"
LANGCHAIN: Final = "LangChain"
"""Not a family: LangChain under any family has lines of its own."""
_SET_ATTRIBUTE: Final = 'span.set_attribute("{}", {})'
_SET_ARGUMENTS: Final = _SET_ATTRIBUTE.format("gen_ai.tool.call.arguments", "json.dumps(args)")
_LATEST: Final = "export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
_WITH_ID: Final = (
    "with tracer.start_as_current_span('conversation', attributes={'gen_ai.conversation.id': conversation_id}): ..."
)

CONTENT: Final[Mapping[str, str]] = {
    OPENLLMETRY: "export TRACELOOP_TRACE_CONTENT=true",
    OPENLLMETRY_JS: "export TRACELOOP_TRACE_CONTENT=true",
    OPENINFERENCE: "unset OPENINFERENCE_HIDE_INPUTS OPENINFERENCE_HIDE_OUTPUTS",
    OPENINFERENCE_JS: "unset OPENINFERENCE_HIDE_INPUTS OPENINFERENCE_HIDE_OUTPUTS",
    OFFICIAL: f"{_LATEST} OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only",
    STRANDS: f"{_LATEST}  # without gen_ai_unredacted_attributes",
    ADK: f"{_LATEST} OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    VERCEL: "experimental_telemetry: { isEnabled: true, recordInputs: true, recordOutputs: true }",
    VERCEL_7: "telemetry: { recordInputs: true, recordOutputs: true }",
    HAYSTACK: "export HAYSTACK_CONTENT_TRACING_ENABLED=true",
    SPRING_AI: "spring.ai.tools.observations.include-content=true",
    SEMANTIC_KERNEL: "export SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",
    CLAUDE_CODE: "export ENABLE_BETA_TRACING_DETAILED=1 BETA_TRACING_ENDPOINT=$OTEL_EXPORTER_OTLP_ENDPOINT "
    "OTEL_LOG_TOOL_CONTENT=1",
    MASTRA: "new Observability({ sensitiveDataFilter: false, ... })  # or rename the arguments that it hides",
    TANSTACK: "otelMiddleware({ tracer, captureContent: true })",
    LAMINAR: "@observe(span_type='TOOL')  # without ignore_input and ignore_output",
    LANGFUSE: "Langfuse(mask=None)  # and no @observe(capture_input=False)",
    LANGSMITH: "export LANGSMITH_HIDE_INPUTS=false LANGSMITH_HIDE_OUTPUTS=false",
    OPENLIT: "openlit.init(capture_message_content=True)",
    LOGFIRE: "logfire.configure(scrubbing=False)",
    PYDANTIC_AI: "Agent.instrument_all(InstrumentationSettings(include_content=True))",
    AGENT_FRAMEWORK: "export ENABLE_SENSITIVE_DATA=true",
    OPENAI_AGENTS: "RunConfig(trace_include_sensitive_data=True)  # OpenLLMetry: and TRACELOOP_TRACE_CONTENT=true",
    AG2: "TelemetryMiddleware(capture_content=True, max_tool_result_chars=None)",
    AUTOGEN: f"{_SET_ARGUMENTS}  # inside the tool: AutoGen has no switch",
    MCP: f"{_SET_ARGUMENTS}  # inside the tool",
    OTHER: _SET_ARGUMENTS,
}
"""Switches content capture on."""

KEPT_BACK: Final = (
    ("openinference.instrumentation.openai_agents", "RunConfig(trace_include_sensitive_data=True)"),
    ("@arizeai/openinference-instrumentation-openai-agents", "new Runner({ traceIncludeSensitiveData: true })"),
)
"""Scopes of OpenInference whose framework keeps content back: what OpenInference hides has a placeholder."""
EVENTS_ONLY: Final[Mapping[str, str]] = {OPENLLMETRY: "LangchainInstrumentor(use_attributes=True).instrument()"}
"""Where the model spans show content and the tool spans do not: content goes to log events."""

RESULT: Final[Mapping[str, str]] = {
    **{
        family: line.replace("call.arguments", "call.result").replace("(args)", "(result)")
        for family, line in CONTENT.items()
    },
    OPENINFERENCE: "unset OPENINFERENCE_HIDE_OUTPUTS",
    OPENINFERENCE_JS: "unset OPENINFERENCE_HIDE_OUTPUTS",
}
"""Switches the capture of results on."""

CONVERSATION: Final[Mapping[str, str]] = {
    LANGCHAIN: 'graph.invoke(..., config={"configurable": {"thread_id": conversation_id}})',
    OPENLLMETRY: 'Traceloop.set_association_properties({"session_id": conversation_id})',
    OPENLLMETRY_JS: "traceloop.withAssociationProperties({ session_id: conversationId }, () => ...)",
    OPENINFERENCE: "with openinference.instrumentation.using_session(conversation_id): ...",
    OPENINFERENCE_JS: "context.with(setSession(context.active(), { sessionId: conversationId }), () => ...)",
    LANGFUSE: "with langfuse.propagate_attributes(session_id=conversation_id): ...",
    LOGFIRE: "with logfire.span('conversation', **{'gen_ai.conversation.id': conversation_id}): ...",
    PYDANTIC_AI: "agent.run(..., message_history=earlier.all_messages())",
    STRANDS: 'Agent(..., trace_attributes={"session.id": conversation_id})',
    VERCEL: "experimental_telemetry: { isEnabled: true, metadata: { sessionId } }",
    VERCEL_7: "new OpenTelemetry({ runtimeContext: true })  // and runtimeContext: { conversationId }, telemetry: { "
    "includeRuntimeContext: { conversationId: true } }",
    MASTRA: "agent.generate(..., { memory: { thread: conversationId, resource: userId } })",
    LAMINAR: "Laminar.set_trace_session_id(conversation_id)  # within the outermost span",
    VOLTAGENT: "agent.generateText(..., { conversationId, userId })",
    TANSTACK: "otelMiddleware({ tracer, attributeEnricher: () => ({ 'gen_ai.conversation.id': conversationId }) })",
    GENKIT: "ai.defineAgent({ name: 'support_agent', store, ... }).chat()",
    SPRING_AI: ".advisors(a -> a.param(ChatMemory.CONVERSATION_ID, conversationId))",
    AG2: 'TelemetryMiddleware(span_attributes={"gen_ai.conversation.id": conversation_id})',
    OTHER: _WITH_ID,
}
"""Names the conversation, so that its turns are one trajectory."""

AGENT: Final[Mapping[str, str]] = {
    LANGCHAIN: 'create_agent(..., name="support_agent")',
    STRANDS: 'Agent(..., name="support_agent")',
    AG2: 'TelemetryMiddleware(agent_name="support_agent")',
    VERCEL: "experimental_telemetry: { isEnabled: true, functionId: 'support_agent' }",
    VERCEL_7: "telemetry: { functionId: 'support_agent' }",
    GENKIT: "ai.defineAgent({ name: 'support_agent', ... })",
    HAYSTACK: 'pipeline.add_component("support_agent", agent)',
    OTHER: _SET_ATTRIBUTE.format("gen_ai.agent.name", '"support_agent"'),
}
"""Names the agent."""

TOOL_SPANS: Final[Mapping[str, str]] = {
    "crewai": "pip install openinference-instrumentation-crewai && CrewAIInstrumentor().instrument()",
    "openinference.instrumentation.crewai": "CrewAIInstrumentor().instrument(use_event_listener=True)  # or a model "
    "with native tool calls: wrapped functions see no calls that are written as text",
    "haystack": "pip install opentelemetry-haystack && haystack.tracing.enable_tracing(OpenTelemetryTracer("
    "trace.get_tracer('haystack')))",
    "pipecat": "pip install openinference-instrumentation-pipecat && PipecatInstrumentor().instrument()",
    OTHER: "with tracer.start_as_current_span(f'execute_tool {name}', attributes={'gen_ai.operation.name': "
    "'execute_tool', 'gen_ai.tool.name': name, 'gen_ai.tool.call.arguments': arguments}): ...",
}
"""Gives every tool call a span of its own."""

LIMITS: Final = "unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
SAMPLER: Final = "export OTEL_TRACES_SAMPLER=parentbased_always_on"


def keep_one(removals: Mapping[str, str]) -> str:
    """The choice between instrumentations that report the same calls, on one line: what to remove to keep each.

    Parameters:
        removals: the command that removes each of them, the one to keep by preference first.

    >>> keep_one({"a": "pip uninstall a", "b": "pip uninstall b"})
    'pip uninstall b  # keeps a; or: pip uninstall a  # keeps b'
    """
    choices = (
        " && ".join(command for name, command in removals.items() if name != kept) + f"  # keeps {kept}"
        for kept in removals
    )
    return "; or: ".join(choices)


def family_of(span: SpanView) -> str:
    """Which family of instrumentations wrote a span: by its scope, else by its attributes."""
    for prefix, family in _SCOPES:
        if span.scope.startswith(prefix):
            return family
    if span.scope == _SCOPE_OF_VERCEL_7:
        return VERCEL_7
    attributes = span.attributes
    for key, family in _KEYS:
        if key in attributes:
            return family
    if any(str(key).startswith("traceloop.") for key in attributes) or "gen_ai.completion.0.role" in attributes:
        return OPENLLMETRY
    if span.scope.startswith("opentelemetry.instrumentation."):
        return OPENLLMETRY
    return OPENINFERENCE if "openinference.span.kind" in attributes else OTHER


def fix_for(table: Mapping[str, str], family: str) -> str:
    """The family's line, else the line that works everywhere."""
    return table.get(family) or table[OTHER]
