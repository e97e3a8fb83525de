"""Configuration: keys, their checks and sources. ``guard_config`` has the one value that all of them lead to."""

from trajectory_guard.config.guard_config import (
    ENV_PREFIX,
    FALSE,
    GATE_KEYS,
    SECTION_OF,
    SECTIONS,
    TRUE,
    GuardConfig,
    check_config,
    decoded,
    differences,
    is_disabled,
    unclear_switch,
    unknown_variables,
)
from trajectory_guard.config.messages import ConfigError, Mistake
from trajectory_guard.config.tool_policy import ToolPolicy

__all__ = [
    "ENV_PREFIX",
    "FALSE",
    "GATE_KEYS",
    "SECTIONS",
    "SECTION_OF",
    "TRUE",
    "ConfigError",
    "GuardConfig",
    "Mistake",
    "ToolPolicy",
    "check_config",
    "decoded",
    "differences",
    "is_disabled",
    "unclear_switch",
    "unknown_variables",
]
