"""CrewAI: the messages of all tasks, on the span of the crew."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Messages

CREWAI = Dialect(name="crewai", messages=Messages(transcripts=("crewai.crew.tasks_output",)))
