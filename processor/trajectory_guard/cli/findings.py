"""Findings of the doctor, each with its fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Severity = Literal["ok", "warn", "problem"]
SEVERITIES: Final[tuple[Severity, ...]] = ("problem", "warn", "ok")
"""Worst first."""


@dataclass(frozen=True)
class Finding:
    """One finding of the doctor.

    Attributes:
        severity: ``ok``, ``warn`` (works, with less than it could see) or ``problem`` (the guard misses loops).
        code: stable name for scripts, such as ``no_arguments``.
        subject: which instrumentation, package, variable or dialect it is about.
        message: one sentence.
        fix: the line that fixes it (shell or code), None where there is nothing to fix.
        data: the numbers behind the sentence.
    """

    severity: Severity
    code: str
    subject: str
    message: str
    fix: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``doctor --json`` prints it."""
        return {
            "severity": self.severity, "code": self.code, "subject": self.subject, "message": self.message,
            "fix": self.fix, "data": dict(self.data),
        }  # fmt: skip


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; otherwise in the order they were made."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def share(count: int, total: int, noun: str) -> str:
    """``All 12 calls``, or ``3 of 12 calls``."""
    return f"All {plural(total, noun)}" if count == total > 1 else f"{count} of {plural(total, noun)}"


def plural(count: int, noun: str) -> str:
    """``1 call``, ``2 calls``, ``2 trajectories``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"
