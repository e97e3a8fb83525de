"""Keep LLM agents from getting stuck: nudge first, stop last.

    from trajectory_guard import apply_guard, instrument

    instrument()            # evaluate every tool span of the process
    apply_guard(builder)    # let the guard nudge or stop the agent

Each name is imported when it is first used: one that needs an optional dependency costs nobody else anything, and a
program that only wants a configuration or an error class does not load the engine. ``import *`` leaves out those of
the extra ``langgraph`` where it is not installed. ``docs/interface.md`` lists them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from trajectory_guard.version import __version__

if TYPE_CHECKING:
    from trajectory_guard.board.flags import Flag
    from trajectory_guard.board.store import FlagBoard
    from trajectory_guard.callbacks import Intervention
    from trajectory_guard.config import ConfigError, GuardConfig, ToolPolicy
    from trajectory_guard.config.messages import Mistake
    from trajectory_guard.config.spending import BudgetSettings, ModelPrice
    from trajectory_guard.core.content.masking import result_hash
    from trajectory_guard.core.cursor.boundary import Boundary, EntryKind
    from trajectory_guard.core.cursor.cursor import Cursor
    from trajectory_guard.core.cursor.report import CursorReport, CursorStep
    from trajectory_guard.core.detectors import LOOP_TYPES, DetectionResult
    from trajectory_guard.core.engine import Engine, Verdict
    from trajectory_guard.core.explain.certificates import Certificate, Verification
    from trajectory_guard.core.explain.interventions import Spent
    from trajectory_guard.core.fingerprints import args_hash
    from trajectory_guard.core.hand_flag import HandFlag
    from trajectory_guard.core.observation import Observation, SameResultRun
    from trajectory_guard.core.policy import Level
    from trajectory_guard.core.quality import quality_of_logprob
    from trajectory_guard.core.settings import EngineSettings, ToolSettings
    from trajectory_guard.core.state import StateFormatError, TrajectoryState
    from trajectory_guard.core.steps import Certainty, Evidence, ModelTokens, Outcome, StepRecord, Usage
    from trajectory_guard.gates.budget_gate import BudgetGate, CheaperModel
    from trajectory_guard.gates.budgets import BudgetExceededError, BudgetText
    from trajectory_guard.gates.compiled import (
        guard_compiled,
        guarded_ainvoke,
        guarded_astream,
        guarded_invoke,
        guarded_stream,
    )
    from trajectory_guard.gates.graph_gate import Ending, NudgeRole
    from trajectory_guard.gates.integrity import INTEGRITY_THEOREM, IntegrityGate
    from trajectory_guard.gates.langgraph import AgentState, TrajectoryGuardNode, apply_guard
    from trajectory_guard.gates.loop_error import LoopDetectedError
    from trajectory_guard.gates.middleware import TrajectoryGuardMiddleware
    from trajectory_guard.gates.refusal import RefusalRules
    from trajectory_guard.gates.rewire import GraphShapeError
    from trajectory_guard.gates.stagnation import STAGNATION_THEOREM, Embedder, StagnationGate
    from trajectory_guard.gates.state_of import StateOf
    from trajectory_guard.gates.status import LoopStatus
    from trajectory_guard.gates.tool_gate import arefuse_pointless, refuse_pointless
    from trajectory_guard.otel.instrument import instrument, uninstrument
    from trajectory_guard.otel.processor import TrajectoryGuardProcessor
    from trajectory_guard.quality.logprobs import mean_logprob
    from trajectory_guard.runtime import shared_board
    from trajectory_guard.spending.budget import Budget, BudgetLevel, BudgetState
    from trajectory_guard.spending.ledger import Account, Balance
    from trajectory_guard.spending.spending import BudgetStatus

    __all__ = [
        "INTEGRITY_THEOREM",
        "LOOP_TYPES",
        "STAGNATION_THEOREM",
        "Account",
        "AgentState",
        "Balance",
        "Boundary",
        "Budget",
        "BudgetExceededError",
        "BudgetGate",
        "BudgetLevel",
        "BudgetSettings",
        "BudgetState",
        "BudgetStatus",
        "BudgetText",
        "Certainty",
        "Certificate",
        "CheaperModel",
        "ConfigError",
        "Cursor",
        "CursorReport",
        "CursorStep",
        "DetectionResult",
        "Embedder",
        "Ending",
        "Engine",
        "EngineSettings",
        "EntryKind",
        "Evidence",
        "Flag",
        "FlagBoard",
        "GraphShapeError",
        "GuardConfig",
        "HandFlag",
        "IntegrityGate",
        "Intervention",
        "Level",
        "LoopDetectedError",
        "LoopStatus",
        "Mistake",
        "ModelPrice",
        "ModelTokens",
        "NudgeRole",
        "Observation",
        "Outcome",
        "RefusalRules",
        "SameResultRun",
        "Spent",
        "StagnationGate",
        "StateFormatError",
        "StateOf",
        "StepRecord",
        "ToolPolicy",
        "ToolSettings",
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
        "args_hash",
        "guard_compiled",
        "guarded_ainvoke",
        "guarded_astream",
        "guarded_invoke",
        "guarded_stream",
        "instrument",
        "mean_logprob",
        "quality_of_logprob",
        "refuse_pointless",
        "result_hash",
        "shared_board",
        "uninstrument",
    ]

_MODULES: Final = {
    "INTEGRITY_THEOREM": "gates.integrity",
    "LOOP_TYPES": "core.detectors",
    "STAGNATION_THEOREM": "gates.stagnation",
    "Account": "spending.ledger",
    "AgentState": "gates.langgraph",
    "Balance": "spending.ledger",
    "Boundary": "core.cursor.boundary",
    "Budget": "spending.budget",
    "BudgetExceededError": "gates.budgets",
    "BudgetGate": "gates.budget_gate",
    "BudgetLevel": "spending.budget",
    "BudgetSettings": "config.spending",
    "BudgetState": "spending.budget",
    "BudgetStatus": "spending.spending",
    "BudgetText": "gates.budgets",
    "Certainty": "core.steps",
    "Certificate": "core.explain.certificates",
    "CheaperModel": "gates.budget_gate",
    "ConfigError": "config",
    "Cursor": "core.cursor.cursor",
    "CursorReport": "core.cursor.report",
    "CursorStep": "core.cursor.report",
    "DetectionResult": "core.detectors",
    "Embedder": "gates.stagnation",
    "Ending": "gates.graph_gate",
    "Engine": "core.engine",
    "EngineSettings": "core.settings",
    "EntryKind": "core.cursor.boundary",
    "Evidence": "core.steps",
    "Flag": "board.flags",
    "FlagBoard": "board.store",
    "GraphShapeError": "gates.rewire",
    "GuardConfig": "config",
    "HandFlag": "core.hand_flag",
    "IntegrityGate": "gates.integrity",
    "Intervention": "callbacks",
    "Level": "core.policy",
    "LoopDetectedError": "gates.loop_error",
    "LoopStatus": "gates.status",
    "Mistake": "config",
    "ModelPrice": "config.spending",
    "ModelTokens": "core.steps",
    "NudgeRole": "gates.graph_gate",
    "Observation": "core.observation",
    "Outcome": "core.steps",
    "RefusalRules": "gates.refusal",
    "SameResultRun": "core.observation",
    "Spent": "core.explain.interventions",
    "StagnationGate": "gates.stagnation",
    "StateFormatError": "core.state",
    "StateOf": "gates.state_of",
    "StepRecord": "core.steps",
    "ToolPolicy": "config",
    "ToolSettings": "core.settings",
    "TrajectoryGuardMiddleware": "gates.middleware",
    "TrajectoryGuardNode": "gates.langgraph",
    "TrajectoryGuardProcessor": "otel.processor",
    "TrajectoryState": "core.state",
    "Usage": "core.steps",
    "Verdict": "core.engine",
    "Verification": "core.explain.certificates",
    "apply_guard": "gates.langgraph",
    "arefuse_pointless": "gates.tool_gate",
    "args_hash": "core.fingerprints",
    "guard_compiled": "gates.compiled",
    "guarded_ainvoke": "gates.compiled",
    "guarded_astream": "gates.compiled",
    "guarded_invoke": "gates.compiled",
    "guarded_stream": "gates.compiled",
    "instrument": "otel.instrument",
    "mean_logprob": "quality.logprobs",
    "quality_of_logprob": "core.quality",
    "refuse_pointless": "gates.tool_gate",
    "result_hash": "core.content.masking",
    "shared_board": "runtime",
    "uninstrument": "otel.instrument",
}

_EXTRA: Final = ("langgraph", "langchain", "langchain_core")
"""Packages of the extra ``langgraph``, which ``_OF_EXTRA`` import."""
_OF_EXTRA: Final = frozenset((
    "gates.budget_gate", "gates.budgets", "gates.compiled", "gates.graph_gate", "gates.langgraph", "gates.middleware",
    "gates.rewire", "gates.tool_gate",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__all__":  # ``import *`` takes each of these names, and would fail at the first one that cannot be
        has_extra = all(find_spec(one) is not None for one in _EXTRA)
        return ["__version__", *(one for one, module in _MODULES.items() if has_extra or module not in _OF_EXTRA)]
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__all__"})
