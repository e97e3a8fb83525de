"""The section ``quality`` of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trajectory_guard.core.quality import QualityRule

_RULE = QualityRule()


class QualityKeys(BaseModel):
    """The keys of the section; without ``track_quality`` or ``quality_judge`` nothing is measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    track_quality: bool = False
    """Measure the quality of answers; a judge does so by itself."""
    quality_drop: float = Field(default=_RULE.drop, gt=0.0, le=1.0)
    """Least difference between the mean of the newest scores and that of the earlier ones that is a drop."""
    quality_floor: float = Field(default=_RULE.floor, gt=0.0, le=1.0)
    """The mean of the newest scores has to be below it, too."""
    quality_recent: int = Field(default=_RULE.recent, ge=2, le=500)
    """How many scores are the newest; as many earlier ones have to be known before there is a trend."""
    quality_window: int = Field(default=_RULE.window, ge=4, le=1_000)
    """Scores remembered by agent and name, at least twice ``quality_recent``."""
    quality_deviations: float = Field(default=_RULE.deviations, ge=0.0, le=100.0)
    """Standard errors, by how much the earlier scores vary, that a drop has to exceed; 0 lets chance pass."""
    quality_evaluations: tuple[str, ...] = ()
    """Names of evaluations on spans that count; by default all of them. More has to be better."""
    quality_judge: Callable[..., Any] | None = None
    """Called with request and response as texts, sync or async, on a thread of its own; returns a score or None."""
    quality_sample: float = Field(default=1.0, gt=0.0, le=1.0)
    """Part of the answers that the judge is asked about."""
    quality_queue: int = Field(default=100, ge=1, le=10_000)
    """Answers that may wait for the judge; the oldest are dropped (and counted)."""
    quality_timeout_s: float = Field(default=30.0, gt=0.0, le=3_600.0)
    """Seconds after which a judgement is given up (and counted)."""

    @model_validator(mode="after")
    def _window_holds_both(self) -> QualityKeys:
        if self.quality_window < 2 * self.quality_recent:
            raise ValueError(
                f"quality_window: at least twice quality_recent ({self.quality_recent}), got {self.quality_window}"
            )
        return self

    @property
    def measures_quality(self) -> bool:
        """Whether anything is measured."""
        return self.track_quality or self.quality_judge is not None

    @property
    def quality_rule(self) -> QualityRule:
        """When scores have dropped."""
        return QualityRule(
            self.quality_drop, self.quality_floor, self.quality_recent, self.quality_window, self.quality_deviations
        )
