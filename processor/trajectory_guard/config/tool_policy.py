"""What an application declares of one of its tools."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from trajectory_guard.config.part import PartModel
from trajectory_guard.core.settings import ToolSettings

_TOOL: Final = ToolSettings()


class ToolPolicy(PartModel):
    """Declared properties of one tool beyond its spans. All are optional."""

    poll: bool = _TOOL.poll
    """Asking again is the tool's purpose: repeats are waiting. They are nudged late and never lead to a stop."""
    never_stop: bool = _TOOL.never_stop
    """Findings at this tool never lead to a stop, whatever they are."""
    idempotent: bool = _TOOL.idempotent
    """A read: the second equal answer is already certain to be a repeat."""
    ignore: bool = _TOOL.ignore
    """Calls of this tool are neither evaluated nor remembered."""
    weight: float = Field(default=_TOOL.weight, ge=0.0, le=10.0)
    """Factor on the confidence of findings at this tool, capped at 1 after multiplication."""
