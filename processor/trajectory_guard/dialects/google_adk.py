"""Google ADK: semantic conventions, and the session under a key of its own."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, Identity

GOOGLE_ADK = Dialect(name="google_adk", identity=Identity(sessions=("gcp.vertex.agent.session_id",)))
