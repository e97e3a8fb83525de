"""Keep LLM agents from getting stuck: nudge first, stop last.

    from trajectory_guard import apply_guard, instrument

    instrument()            # evaluate every tool span of the process
    apply_guard(builder)    # let the guard nudge or stop the agent

Names that need an optional dependency are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard.callbacks import Intervention
from trajectory_guard.config import ConfigError, GuardConfig, ToolPolicy
from trajectory_guard.core.certificates import Certificate, Verification
from trajectory_guard.core.detectors import LOOP_TYPES, DetectionResult
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.interventions import Spent
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import StateFormatError, TrajectoryState
from trajectory_guard.core.steps import Evidence, StepRecord, Usage
from trajectory_guard.entries import Flag
from trajectory_guard.otel.instrument import instrument, uninstrument
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.runtime import shared_board
from trajectory_guard.spending.budget import BudgetLevel
from trajectory_guard.spending.settings import BudgetSettings, ModelPrice
from trajectory_guard.store import FlagBoard
from trajectory_guard.version import __version__

if TYPE_CHECKING:
    from trajectory_guard.core.boundary import Boundary
    from trajectory_guard.core.cursor import Cursor
    from trajectory_guard.core.cursor_report import CursorReport, CursorStep
    from trajectory_guard.gates.budget_gate import BudgetGate
    from trajectory_guard.gates.budgets import BudgetExceededError
    from trajectory_guard.gates.compiled import (
        guard_compiled,
        guarded_ainvoke,
        guarded_astream,
        guarded_invoke,
        guarded_stream,
    )
    from trajectory_guard.gates.integrity import INTEGRITY_THEOREM, IntegrityGate
    from trajectory_guard.gates.langgraph import AgentState, TrajectoryGuardNode, apply_guard
    from trajectory_guard.gates.loop_error import LoopDetectedError
    from trajectory_guard.gates.middleware import TrajectoryGuardMiddleware
    from trajectory_guard.gates.refusal import RefusalRules
    from trajectory_guard.gates.rewire import GraphShapeError
    from trajectory_guard.gates.stagnation import STAGNATION_THEOREM, StagnationGate
    from trajectory_guard.gates.status import LoopStatus
    from trajectory_guard.gates.tool_gate import arefuse_pointless, refuse_pointless

_LAZY: Final = {
    "INTEGRITY_THEOREM": "gates.integrity",
    "STAGNATION_THEOREM": "gates.stagnation",
    "AgentState": "gates.langgraph",
    "Boundary": "core.boundary",
    "BudgetExceededError": "gates.budgets",
    "BudgetGate": "gates.budget_gate",
    "Cursor": "core.cursor",
    "CursorReport": "core.cursor_report",
    "CursorStep": "core.cursor_report",
    "GraphShapeError": "gates.rewire",
    "IntegrityGate": "gates.integrity",
    "LoopDetectedError": "gates.loop_error",
    "LoopStatus": "gates.status",
    "RefusalRules": "gates.refusal",
    "StagnationGate": "gates.stagnation",
    "TrajectoryGuardMiddleware": "gates.middleware",
    "TrajectoryGuardNode": "gates.langgraph",
    "apply_guard": "gates.langgraph",
    "arefuse_pointless": "gates.tool_gate",
    "guard_compiled": "gates.compiled",
    "guarded_ainvoke": "gates.compiled",
    "guarded_astream": "gates.compiled",
    "guarded_invoke": "gates.compiled",
    "guarded_stream": "gates.compiled",
    "refuse_pointless": "gates.tool_gate",
}

__all__ = [
    "INTEGRITY_THEOREM",
    "LOOP_TYPES",
    "STAGNATION_THEOREM",
    "AgentState",
    "Boundary",
    "BudgetExceededError",
    "BudgetGate",
    "BudgetLevel",
    "BudgetSettings",
    "Certificate",
    "ConfigError",
    "Cursor",
    "CursorReport",
    "CursorStep",
    "DetectionResult",
    "Engine",
    "Evidence",
    "Flag",
    "FlagBoard",
    "GraphShapeError",
    "GuardConfig",
    "IntegrityGate",
    "Intervention",
    "Level",
    "LoopDetectedError",
    "LoopStatus",
    "ModelPrice",
    "RefusalRules",
    "Spent",
    "StagnationGate",
    "StateFormatError",
    "StepRecord",
    "ToolPolicy",
    "TrajectoryGuardMiddleware",
    "TrajectoryGuardNode",
    "TrajectoryGuardProcessor",
    "TrajectoryState",
    "Usage",
    "Verdict",
    "Verification",
    "__version__",
    "apply_guard",
    "arefuse_pointless",
    "guard_compiled",
    "guarded_ainvoke",
    "guarded_astream",
    "guarded_invoke",
    "guarded_stream",
    "instrument",
    "refuse_pointless",
    "shared_board",
    "uninstrument",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
