"""google-genai with the official instrumentation: automatic function calling runs tools within a call of the model."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Identity

GOOGLE_GENAI = Dialect(
    name="semconv", identity=Identity(question_scopes=("opentelemetry.instrumentation.google_genai",))
)
