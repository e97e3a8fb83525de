"""Settings of the engine: plain frozen values, with the defaults that hold everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trajectory_guard.core.detectors import weights as default_weights
from trajectory_guard.core.text import nearest
from trajectory_guard.core.text_bounds import MAX_UNDERSTOOD_CHARS


class SettingsError(ValueError):
    """Settings that contradict each other or the registry of detectors.

    Attributes:
        path: the setting, keys with dots; message: the reason.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Declared properties of one tool, beyond its spans.

    Attributes:
        poll: repeats are waiting: nudged late, never stopped.
        never_stop: findings at this tool never lead to a stop.
        idempotent: a read: the second equal answer is already certain to be a repeat.
        ignore: its calls are neither evaluated nor remembered.
        weight: factor on the confidence of findings at this tool; the product is capped at 1.
    """

    poll: bool = False
    never_stop: bool = False
    idempotent: bool = False
    ignore: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything the engine and its parts are set by.

    Attributes:
        nudge_threshold, stop_threshold: scores from which a nudge and a stop may become due.
        max_score: cap of the score.
        decay: factor on the score per step without a finding.
        weights: weight per loop type; a type that is left out has the default weight of its detector.
        history_steps: steps remembered per run.
        stop_patience: unproductive steps after a nudge before a stop, where the evidence is certain.
        renudge: least number of unproductive steps between two nudges, and before a stop, where the evidence is likely.
        max_nudges: nudges in vain after which a further one is a stop, whatever the rules; None: no number of them.
        max_polls: repeats of a waiting call at which a stop may become due; None: never.
        max_wait_s: seconds of waiting at which a stop may become due; None: never.
        max_understood_chars: characters of a call, arguments and result together, that are understood.
        slow_gap_s: idle seconds from which a pause is an uncertain boundary.
        poll_patience: factor on the number of repeats while something is under way.
        tools: settings of single tools by name, case-folded.
        redact: keep hashes only.
        certificate_key: signs certificates (HMAC); None: they carry a digest only.
        may_stop: whether a stop can become due where no gate says so for its run; without it a loop is nudged ever more
            rarely.

    Raises:
        SettingsError: an unknown loop type, a weight that is no number of at least 0, or thresholds out of order.
    """

    nudge_threshold: float = 2.0
    stop_threshold: float = 3.0
    max_score: float = 5.0
    decay: float = 0.5
    weights: Mapping[str, float] = field(default_factory=default_weights)
    history_steps: int = 32
    stop_patience: int = 2
    renudge: int = 3
    max_nudges: int | None = 6
    max_polls: int | None = None
    max_wait_s: float | None = None
    max_understood_chars: int = MAX_UNDERSTOOD_CHARS
    slow_gap_s: float = 120.0
    poll_patience: int = 3
    tools: Mapping[str, ToolSettings] = field(default_factory=dict)
    redact: bool = False
    may_stop: bool = True
    certificate_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_weights(self.weights)
        if not self.nudge_threshold <= self.stop_threshold <= self.max_score:
            raise SettingsError(
                "thresholds",
                "nudge_threshold <= stop_threshold <= max_score must hold, got "
                f"{self.nudge_threshold} / {self.stop_threshold} / {self.max_score}",
            )

    @property
    def key_bytes(self) -> bytes | None:
        """The key of certificates, as HMAC takes it."""
        return self.certificate_key.encode("utf-8", "surrogatepass") if self.certificate_key else None

    def tool(self, name: str) -> ToolSettings | None:
        """The settings of a tool, None if it has none."""
        return self.tools.get(name.casefold()) if self.tools else None


def settings_or_defaults(settings: EngineSettings | None) -> EngineSettings:
    """``settings``, or the defaults if None; raises TypeError if it is something else."""
    if settings is None:
        return EngineSettings()
    if not isinstance(settings, EngineSettings):
        raise TypeError(
            f"settings: expected EngineSettings, such as GuardConfig.engine_settings() gives, got {settings!r:.80} "
            f"({type(settings).__name__})"
        )
    return settings


def check_weights(weights: Mapping[str, float]) -> None:
    """Raise ``SettingsError`` if one of the loop types is unknown, or its weight is no number of at least 0."""
    known = default_weights()
    for name, weight in weights.items():
        if name not in known:
            hint = nearest(name, known) or f"; known: {', '.join(known)}"
            raise SettingsError("weights", f"unknown loop type {name!r}{hint}")
        if not weight >= 0:  # NaN is not either
            raise SettingsError(f"weights.{name}", f"must be a number of at least 0, got {weight}")
