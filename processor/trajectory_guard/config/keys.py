"""The keys of ``GuardConfig`` as type checkers and editors see them: with the values that users write.

Validation turns these into the values of the fields. ``tests/test_types.py`` compares them with the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypedDict

from trajectory_guard.config.choices import Mode, Per, Scope

if TYPE_CHECKING:
    from pydantic import SecretStr

    from trajectory_guard.config.spending import BudgetSettings, ModelPrice
    from trajectory_guard.config.tool_policy import ToolPolicy


class ToolKeys(TypedDict, total=False):
    """A ``ToolPolicy`` as a mapping."""

    poll: bool
    never_stop: bool
    idempotent: bool
    ignore: bool
    weight: float


class _BudgetScope(TypedDict):
    scope: Scope


class BudgetKeys(_BudgetScope, total=False):
    """A ``BudgetSettings`` as a mapping."""

    usd: float | None
    tokens: int | None
    per: Per
    name: str | None


class PriceKeys(TypedDict):
    """A ``ModelPrice`` as a mapping."""

    input: float
    output: float


class GuardKeys(TypedDict, total=False):
    """The keyword arguments of ``GuardConfig``."""

    # engine, policy
    nudge_threshold: float
    stop_threshold: float
    max_score: float
    decay: float
    weights: Mapping[str, float] | None
    history_steps: int
    stop_patience: int
    renudge: int
    max_nudges: int | None
    max_polls: int | None
    max_wait_s: float | None
    max_understood_chars: int
    slow_gap_s: float
    poll_patience: int
    tools: Mapping[str, ToolPolicy | ToolKeys] | None
    dialects: Sequence[Mapping[str, Any]] | None
    redact: bool
    certificate_key: SecretStr | str | None
    # gates
    mode: Mode
    nudge_text: str | Callable[..., Any] | None
    stop_text: str | Callable[..., Any] | None
    on_intervention: Callable[..., Any] | None
    # sentence model
    model_path: str | None
    model_download: bool
    calibration: str | None
    # collector, Langfuse
    collector_url: str | None
    collector_token: SecretStr | str | None
    collector_timeout_s: float
    langfuse_scores: bool
    langfuse_max_waiting: int
    langfuse_batches_per_minute: float
    # spending
    budgets: Sequence[BudgetSettings | BudgetKeys] | None
    model_prices: Mapping[str, ModelPrice | PriceKeys] | None
    outlier_deviations: float
    outlier_tokens: int
    spending_file: str | None
    track_spending: bool
    # quality
    track_quality: bool
    quality_drop: float
    quality_floor: float
    quality_recent: int
    quality_window: int
    quality_deviations: float
    quality_evaluations: Sequence[str] | Set[str] | None
    quality_judge: Callable[..., Any] | None
    quality_sample: float
    quality_queue: int
    quality_timeout_s: float
    # record
    cursor: bool
    cursor_entries: int
    required_actions: Sequence[str] | Set[str] | None
    recall: bool
    recall_chars: int
    # limits
    max_trajectories: int
    idle_ttl_s: float
    max_open_spans: int
    open_span_ttl_s: float
