"""The variables by which instrumentations are told to leave arguments and results out of spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trajectory_guard.config import FALSE, TRUE

HIDES_TOOLS: Final = ("OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS")


def is_on(environ: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set to yes."""
    return environ.get(name, "").strip().lower() in TRUE


def switched_on(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Those of some variables that are set to yes."""
    return [name for name in names if is_on(environ, name)]


def openllmetry_is_off(environ: Mapping[str, str]) -> bool:
    """Whether OpenLLMetry, which records content by default, is told not to."""
    return environ.get("TRACELOOP_TRACE_CONTENT", "true").strip().lower() in FALSE


def official_mode(environ: Mapping[str, str]) -> str:
    """The content that official instrumentations are told to record, in lower case; empty without the variable."""
    return environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
